/*
 * by_batch.cuh  Shared by v0 to v3, in which a block computes whole batches: a thread's
 * share of an output.
 */
#ifndef GPO_MEAN_MATVEC_BY_BATCH_CUH
#define GPO_MEAN_MATVEC_BY_BATCH_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

/* This thread's share of output i of batch n. */
template <typename T>
__device__ __forceinline__ value_type<T>
product_share(const mean_matvec_view<T> &v, int64_t i, int64_t n)
{
    value_type<T> acc = 0;
    for (int64_t l = threadIdx.x; l < v.rows; l += BLOCK) {
        acc += v.matrix_at(i, l) * v.means[n * v.rows + l];
    }
    return acc;
}

#endif
