/*
 * backward_paired_windows.cu  The gradient where one or two windows of each axis have an
 * element: kernels of at most twice the stride, not dilated.  A thread sums an element,
 * or two of a row, over its up to eight windows, all of whose indices and gradients it
 * loads before it compares one.
 * Cost:  an index and a gradient of each window of an element, most from L1; dx is
 *        written once, without zeros before, atomics or barriers; one wait for memory.
 */
#include "../gather.cuh"
#include "../paired.cuh"

/* DEPTH windows along T, two along H and W. */
template <typename T, int ITEMS, int DEPTH>
__global__ void
__launch_bounds__(GATHER_BLOCK, GATHER_BLOCKS)
    max_pool3d_backward_paired_windows_kernel(run_view<T> v)
{
    using V = value_type<T>;
    const gather_axis &at = v.axis[POOL_T], &ah = v.axis[POOL_H], &aw = v.axis[POOL_W];
    const int unit = blockIdx.x * GATHER_BLOCK + threadIdx.x;
    if (unit >= v.units) {
        return;
    }
    const int row = v.per_row.narrow(unit), slice = v.per_slice.narrow(row);
    const int plane = v.per_plane.narrow(slice), t = slice - plane * at.in;
    const int h = row - slice * ah.in;
    const int w = (unit - row * static_cast<int>(v.per_row.by)) * ITEMS;
    const int end = w + ITEMS < aw.in ? w + ITEMS : aw.in;
    const int64_t index = (t * ah.in + h) * aw.in + w;
    const int_range over_t = windows_over(at, t, t), over_h = windows_over(ah, h, h);
    const int_range over_w = windows_over(aw, w, end - 1);
    const int64_t from = plane * v.outputs +
                         (over_t.first * ah.out + over_h.first) * aw.out + over_w.first;

    /* Load. */
    int64_t found[DEPTH][2][2];
    V gradient[DEPTH][2][2];
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
                const bool has = over_t.first + i <= over_t.last &&
                                 over_h.first + j <= over_h.last &&
                                 over_w.first + k <= over_w.last;
                const int64_t o = from + (i * ah.out + j) * aw.out + k;
                found[i][j][k] = has ? v.indices[o] : -1;
                gradient[i][j][k] = has ? value_of(v.dy[o]) : V(0);
            }
        }
    }

    /* Add, in the order of dy. */
    V sum[ITEMS] = {};
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
            for (int k = 0; k < 2; k++) {
#pragma unroll
                for (int e = 0; e < ITEMS; e++) {
                    if (found[i][j][k] == index + e &&
                        (ITEMS == 1 || window_has(aw, over_w.first + k, w + e))) {
                        sum[e] += gradient[i][j][k];
                    }
                }
            }
        }
    }

    /* Store. */
    T *const to = v.dx + static_cast<int64_t>(row) * aw.in + w;
    store_run(to, sum, end - w, v.in_words);
}

/* ---- launch ---- */

template <typename T, int ITEMS>
static gpo_status
run_pairs(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    run_view<T> v = {};
    const int64_t units = set_runs<ITEMS>(call, &v);
    const dim3 grid = grid_of(ceil_div(units, GATHER_BLOCK));
    if (is_paired_deep(plan)) {
        return GPO_LAUNCH(call, grid, GATHER_BLOCK, 0,
                          (max_pool3d_backward_paired_windows_kernel<T, ITEMS, 2>), v);
    }
    return GPO_LAUNCH(call, grid, GATHER_BLOCK, 0,
                      (max_pool3d_backward_paired_windows_kernel<T, ITEMS, 1>), v);
}

template <typename T>
gpo_status
max_pool3d_backward_paired_windows(gpo_call *call)
{
    return paired_items(call) == 2 ? run_pairs<T, 2>(call) : run_pairs<T, 1>(call);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_paired_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
