/*
 * v1  One block per batch.
 * Was:   v0 computes the batches one after the other.
 * Now:   one block per batch; the rest is v0's.
 * Cost:  as v0, on all SMs.
 * Left:  the lanes of a warp still read M elements apart -> v2.
 */
#ifndef GPO_MEAN_MATVEC_V1_BLOCK_PER_BATCH_CUH
#define GPO_MEAN_MATVEC_V1_BLOCK_PER_BATCH_CUH

#include "v0_one_block.cuh"

template <typename T>
__global__ void
mean_matvec_v1_block_per_batch(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_thread(v, n);
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v1(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0,
                               (mean_matvec_v1_block_per_batch<T>), v);
}

#endif
