/*
 * backward_any_windows.cu  The gradient of windows of any size, stride, padding and
 * dilation, where 31 bits count elements.  A thread sums up to four adjacent elements
 * of a row of dx over the windows that contain them, in the order of dy; where there
 * are few elements, up to eight lanes share the rows of windows of each.
 * Cost:  an index and a gradient of each window, from L1 and L2; dx is written once,
 *        without zeros before, atomics or barriers; no division.
 */
#include "../gather.cuh"

template <typename T>
struct gather_view : run_view<T> {
    int log_lanes; /* of the lanes that share a run */
    bool has_gaps;
};

/* Adds the gradients of a row of windows that name an element of the run. */
template <typename T, int ITEMS>
__device__ __forceinline__ void
add_row(const gather_view<T> &v, int64_t row, int_range over, int w, int64_t index,
        value_type<T> (&sum)[ITEMS])
{
    const gather_axis &a = v.axis[POOL_W];
#pragma unroll 4
    for (int o = over.first; o <= over.last; o++) {
        const int64_t past = v.indices[row + o] - index;
        const value_type<T> gradient = value_of(v.dy[row + o]); /* no second wait */
        if (static_cast<uint64_t>(past) < ITEMS &&
            window_has(a, o, w + static_cast<int>(past))) {
#pragma unroll
            for (int k = 0; k < ITEMS; k++) {
                if (past == k) {
                    sum[k] += gradient;
                }
            }
        }
    }
}

template <typename T, int ITEMS>
__global__ void
__launch_bounds__(GATHER_BLOCK, GATHER_BLOCKS)
    max_pool3d_backward_any_windows_kernel(gather_view<T> v)
{
    using V = value_type<T>;
    const gather_axis &at = v.axis[POOL_T], &ah = v.axis[POOL_H], &aw = v.axis[POOL_W];
    const int lanes = 1 << v.log_lanes, across = WARP >> v.log_lanes;
    const int lane = threadIdx.x % WARP, share = lane / across;
    const int warp = blockIdx.x * (GATHER_BLOCK / WARP) + threadIdx.x / WARP;
    const int unit = warp * across + lane % across;
    const bool active = unit < v.units;

    const int row = v.per_row.narrow(unit), slice = v.per_slice.narrow(row);
    const int plane = v.per_plane.narrow(slice), t = slice - plane * at.in;
    const int h = row - slice * ah.in;
    const int w = (unit - row * static_cast<int>(v.per_row.by)) * ITEMS;
    const int end = w + ITEMS < aw.in ? w + ITEMS : aw.in;
    const int64_t index = (t * ah.in + h) * aw.in + w;
    const int_range over_t = windows_over(at, t, t), over_h = windows_over(ah, h, h);
    const int_range over_w = windows_over(aw, w, end - 1);
    const int depth = over_t.last - over_t.first + 1;
    const int height = over_h.last - over_h.first + 1;

    V sum[ITEMS] = {};
    if (active && depth > 0 && height > 0) {
        int ot = over_t.first, oh = over_h.first + share;
        for (int r = share; r < depth * height; r += lanes) {
            for (; oh > over_h.last; oh -= height) {
                ot++;
            }
            if (!v.has_gaps || (window_has(at, ot, t) && window_has(ah, oh, h))) {
                const int64_t from = plane * v.outputs + (ot * ah.out + oh) * aw.out;
                add_row<T, ITEMS>(v, from, over_w, w, index, sum);
            }
            oh += lanes;
        }
    }
    for (int d = across; d < WARP; d *= 2) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            sum[k] += __shfl_xor_sync(ALL_LANES, sum[k], d);
        }
    }
    if (!active || share > 0) {
        return;
    }
    T *const to = v.dx + static_cast<int64_t>(row) * aw.in + w;
    store_run(to, sum, end - w, v.in_words);
}

/* ---- launch ---- */

template <typename T, int ITEMS>
static gpo_status
run(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    gather_view<T> v = {};
    v.has_gaps = plan.has_gaps;
    const int64_t units = set_runs<ITEMS>(call, &v);
    double rows = 1; /* of windows that contain an element */
    for (int d = POOL_T; d < POOL_W; d++) {
        rows *= windows_per_element(plan.axis[d]);
    }
    const int64_t fill = gpo_processors(call) * GATHER_THREADS;
    while (v.log_lanes < MOST_LOG_SHARES && units << (v.log_lanes + 1) <= fill &&
           2 << v.log_lanes <= rows) {
        v.log_lanes++;
    }
    const int64_t warps = ceil_div(units, WARP >> v.log_lanes);
    return GPO_LAUNCH(call, grid_of(ceil_div(warps, GATHER_BLOCK / WARP)), GATHER_BLOCK,
                      0, (max_pool3d_backward_any_windows_kernel<T, ITEMS>), v);
}

template <typename T>
gpo_status
max_pool3d_backward_any_windows(gpo_call *call)
{
    const int items = items_of(call);
    if constexpr (sizeof(T) <= 4) {
        if (items == 4) {
            return run<T, 4>(call);
        }
    }
    return items == 2 ? run<T, 2>(call) : run<T, 1>(call);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_any_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
