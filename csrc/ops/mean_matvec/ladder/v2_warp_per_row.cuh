/*
 * v2  Coalesced rows, warp shuffle.
 * Was:   each lane of v1 walks along a different row.
 * Now:   a warp takes a row; its lanes read adjacent elements, coalesced, and shuffles
 *        add their sums.
 * Cost:  reads x once in whole sectors; the product is v1's.
 * Left:  the product of an output takes eight barriers -> v3.
 */
#ifndef GPO_MEAN_MATVEC_V2_WARP_PER_ROW_CUH
#define GPO_MEAN_MATVEC_V2_WARP_PER_ROW_CUH

#include "v0_one_block.cuh"

/* A warp takes a row: lanes read adjacent elements and add their sums by shuffles. */
template <typename T>
__device__ __forceinline__ void
means_by_warp(const mean_matvec_view<T> &v, int64_t n)
{
    const int lane = threadIdx.x % WARP;
    for (int64_t l = threadIdx.x / WARP; l < v.rows; l += BLOCK / WARP) {
        const T *p = v.x + n * v.x_batch + l * v.x_row;
        row_sum<value_type<T>> sum;
        for (int64_t m = lane; m < v.cols; m += WARP) {
            sum.add(value_of(p[m * v.x_col]));
        }
        const value_type<T> total = warp_combine<add>(sum.value());
        if (lane == 0) {
            v.means[n * v.rows + l] = total / static_cast<value_type<T>>(v.cols);
        }
    }
}
template <typename T>
__global__ void
mean_matvec_v2_warp_per_row(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_warp(v, n);
        __syncthreads();
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v2(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status
               ? status
               : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v2_warp_per_row<T>), v);
}

#endif
