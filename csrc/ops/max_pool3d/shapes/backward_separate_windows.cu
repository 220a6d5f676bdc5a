/*
 * backward_separate_windows.cu  The gradient of windows without a common element, those
 * that reach into each other's gaps among them.  A block owns a stretch of dx, some
 * planes or a piece of one.  It fills that with zeros, then each window that reaches
 * into it stores its gradient where its index says.
 * Cost:  dx is written once, in words of 16 bytes, and each named element again while
 *        its line is in L2; an index and a gradient of each window, of some twice where
 *        planes are cut.  No two windows name one element, so nothing is added.
 */
#include "../gather.cuh"

template <typename T>
struct separate_view : narrow_view<T> {
    int together, piece; /* planes of a block; elements of each at most */
    divider pieces;      /* of a plane */
    bool has_gaps;
};

/* What a block owns: elements of planes, and the windows that reach into them. */
struct separate_part {
    int plane, planes;
    int begin, end; /* elements of each plane */
    int first[POOL_AXES], count[POOL_AXES];
};

template <typename T>
__device__ __forceinline__ separate_part
share_of(const separate_view<T> &v, int block)
{
    separate_part p;
    const int group = v.pieces.narrow(block);
    p.plane = group * v.together;
    p.planes = v.planes - p.plane < v.together ? v.planes - p.plane : v.together;
    p.begin = (block - group * static_cast<int>(v.pieces.by)) * v.piece;
    p.end = v.plane - p.begin < v.piece ? v.plane : p.begin + v.piece;
    /* whole slices, rows of one slice, or elements of one row */
    int from = p.begin, to = p.end - 1;
    const divider *const per[] = {&v.per_slice, &v.per_row, nullptr};
    bool is_one = true;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        int low = from, high = to;
        if (d < POOL_W) {
            low = per[d]->narrow(from);
            high = per[d]->narrow(to);
            from -= low * static_cast<int>(per[d]->by);
            to -= high * static_cast<int>(per[d]->by);
        }
        const gather_axis &a = v.axis[d];
        const int_range over =
            is_one ? windows_over(a, low, high) : int_range{0, a.out - 1};
        p.first[d] = over.first;
        p.count[d] = over.last >= over.first ? over.last - over.first + 1 : 0;
        is_one = is_one && low == high;
    }
    return p;
}

template <typename T>
struct separate_window : coming_window<T> {
    int plane, at[POOL_AXES]; /* of the window */
};

template <typename T>
__device__ __forceinline__ separate_window<T>
bring_separate(const separate_view<T> &v, const separate_part &p, int windows, int q)
{
    separate_window<T> o = {{-1, stored_as<T>(value_type<T>(0))}, 0, {}};
    if (q < windows) {
#pragma unroll
        for (int d = POOL_W; d >= POOL_T; d--) {
            const int above = q / p.count[d];
            o.at[d] = p.first[d] + q - above * p.count[d];
            q = above;
        }
        o.plane = p.plane + q;
        const int line = o.at[POOL_T] * v.axis[POOL_H].out + o.at[POOL_H];
        const int64_t from = static_cast<int64_t>(o.plane) * v.outputs +
                             line * v.axis[POOL_W].out + o.at[POOL_W];
        static_cast<coming_window<T> &>(o) =
            bring_window(v.indices + from, v.dy + from, true, 0);
    }
    return o;
}

/* Stores the gradient of a window whose index is one of its own elements, and here. */
template <typename T>
__device__ __forceinline__ void
store_window(const separate_view<T> &v, const separate_part &p,
             const separate_window<T> &o)
{
    if (o.found < p.begin || o.found >= p.end) {
        return;
    }
    const int index = static_cast<int>(o.found);
    const coordinates e = coordinates_of(v, index);
    const int at[] = {e.t, e.h, e.w};
    bool is_own = true;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int past = at[d] - (o.at[d] * a.stride - a.padding);
        is_own = is_own && past >= 0 && past <= (a.kernel - 1) * a.dilation;
        if (v.has_gaps && is_own) {
            is_own = v.dilation[d].narrow(past) * a.dilation == past;
        }
    }
    if (is_own) {
        v.dx[static_cast<int64_t>(o.plane) * v.plane + index] = o.gradient;
    }
}

template <typename T>
__global__ void
__launch_bounds__(SEPARATE_BLOCK)
    max_pool3d_backward_separate_windows_kernel(separate_view<T> v)
{
    const separate_part p = share_of(v, blockIdx.x);
    const int tid = threadIdx.x;
    const int windows = p.planes * p.count[POOL_T] * p.count[POOL_H] * p.count[POOL_W];
    for (int base = 0; base == 0 || base < windows;
         base += IN_FLIGHT * SEPARATE_BLOCK) {
        separate_window<T> coming[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            coming[k] = bring_separate(v, p, windows, base + k * SEPARATE_BLOCK + tid);
        }
        if (base == 0) { /* while those are on their way */
            const int64_t from = static_cast<int64_t>(p.plane) * v.plane + p.begin;
            clear(v.dx + from, p.planes > 1 ? p.planes * v.plane : p.end - p.begin);
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            store_window(v, p, coming[k]);
        }
    }
}

/* ---- launch ---- */

template <typename T>
gpo_status
max_pool3d_backward_separate_windows(gpo_call *call)
{
    const separate_plan s = plan_separate(call);
    separate_view<T> v = {};
    set_narrow<T>(call, &v);
    v.together = static_cast<int>(s.together);
    v.piece = static_cast<int>(s.piece);
    v.pieces = divider_of(s.pieces);
    v.has_gaps = pool_gradient_plan_of(call)->has_gaps;
    return GPO_LAUNCH(call, grid_of(s.blocks), SEPARATE_BLOCK, 0,
                      (max_pool3d_backward_separate_windows_kernel<T>), v);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_separate_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
