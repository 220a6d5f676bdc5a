/*
 * views.cuh  Shared by all kernels of scan: the arrays as kernel arguments, and the
 * warp scan.
 */
#ifndef GPO_SCAN_VIEWS_CUH
#define GPO_SCAN_VIEWS_CUH

#include "../../device/grid.cuh"
#include "scans.cuh"
#include "tuning.cuh"

constexpr int AXES = 4; /* in kernel arguments; the host loops over the rest */

/* ---- the arrays ---- */

/*
 * Element k of row r is x[offset of r + k * stride], its result goes to out[offset of r
 * + k * step]; an offset is a sum over `ndim` axes, outermost first.
 */
template <typename Out>
struct scan_view {
    const void *x;
    Out *out;
    int64_t rows, cols, stride, step;
    bool exclusive;
    int ndim;
    int64_t shape[AXES], x_strides[AXES], out_strides[AXES];
};

struct row_offset {
    int64_t x, out;
};

template <typename Out>
__device__ __forceinline__ row_offset
offset_of(const scan_view<Out> &a, int64_t row)
{
    row_offset at = {0, 0};
#pragma unroll
    for (int d = AXES - 1; d >= 0; d--) {
        if (d < a.ndim) {
            const int64_t i = d > 0 ? row % a.shape[d] : row;
            row /= a.shape[d];
            at.x += i * a.x_strides[d];
            at.out += i * a.out_strides[d];
        }
    }
    return at;
}

/*
 * Calls run(view) for every index of the axes that do not fit in a view: usually once.
 * The plan's offsets count from `x` and `out`: the arrays, or copies of them.
 */
template <typename Op, typename Run>
gpo_status
for_each_view(const scan_plan &plan, const void *x, void *out, const Op &op, Run run)
{
    using Out = typename Op::Out;
    const scan_axes &kept = plan.kept;
    const int extra = kept.ndim > AXES ? kept.ndim - AXES : 0;
    const int outer = kept.ndim - plan.inner_ndim;
    int64_t out_strides[GPO_MAX_DIMS], slices = 1, step = 1;
    for (int d = kept.ndim - 1; d >= 0; d--) {
        step = d == outer - 1 ? plan.cols * plan.inner : step;
        out_strides[d] = step;
        step *= kept.shape[d];
    }
    for (int d = 0; d < extra; d++) {
        slices *= kept.shape[d];
    }
    scan_view<Out> a = {};
    a.rows = plan.rows / slices;
    a.cols = plan.cols;
    a.stride = plan.stride;
    a.step = plan.step;
    a.exclusive = plan.exclusive;
    a.ndim = kept.ndim - extra;
    for (int d = 0; d < a.ndim; d++) {
        a.shape[d] = kept.shape[extra + d];
        a.x_strides[d] = kept.strides[extra + d];
        a.out_strides[d] = out_strides[extra + d];
    }
    gpo_status status = GPO_OK;
    for (int64_t s = 0; !status && s < slices; s++) {
        int64_t x_at = plan.x_first, out_at = plan.out_first, i = s;
        for (int d = extra - 1; d >= 0; d--) {
            x_at += i % kept.shape[d] * kept.strides[d];
            out_at += i % kept.shape[d] * out_strides[d];
            i /= kept.shape[d];
        }
        a.x = static_cast<const char *>(x) + x_at * op.bytes();
        a.out = static_cast<Out *>(out) + out_at;
        status = run(a);
    }
    return status;
}

/* The same for x and out of the call. */
template <typename Op, typename Run>
gpo_status
for_each_view(const gpo_call *call, const Op &op, Run run)
{
    return for_each_view(*scan_plan_of(call), call->in[0].data, call->out[0].data, op,
                         run);
}

/* ---- the warp scan ---- */

/* An inclusive scan over the lanes that are a multiple of `first` apart. */
template <typename Fold, typename V>
__device__ __forceinline__ V
warp_scan(V v, int first = 1)
{
    const int lane = threadIdx.x % WARP;
    for (int d = first; d < WARP; d *= 2) {
        const V before = shuffle_up(v, d);
        v = lane >= d ? Fold::combine(before, v) : v;
    }
    return v;
}

#endif
