/*
 * v3  Two-stage shuffle for the product.
 * Was:   v2 adds up the terms of an output in shared memory, in seven steps.
 * Now:   each warp adds its 32 in registers, then one warp adds the warps' sums; two
 *        buffers alternate between outputs, so that one barrier per output is enough.
 * Cost:  as v2 with one barrier per output and BLOCK / 32 shared values.
 * Left:  every batch reads the whole matrix, N * L2 * L values in all -> v4.
 */
#ifndef GPO_MEAN_MATVEC_V3_TWO_STAGE_CUH
#define GPO_MEAN_MATVEC_V3_TWO_STAGE_CUH

#include "v2_warp_per_row.cuh"

template <typename T>
__global__ void
mean_matvec_v3_two_stage(mean_matvec_view<T> v)
{
    constexpr int WARPS = BLOCK / WARP;
    GPO_SHARED(value_type<T>, slots, [2][WARPS]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_warp(v, n);
        __syncthreads();
        for (int64_t i = 0; i < v.outputs; i++) {
            const value_type<T> sum =
                block_combine<add, BLOCK>(product_share(v, i, n), slots[i % 2]);
            if (threadIdx.x == 0) {
                v.put(i, n, sum);
            }
        }
        __syncthreads();
    }
}

template <typename T>
static gpo_status
mean_matvec_v3(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v3_two_stage<T>), v);
}

#endif
