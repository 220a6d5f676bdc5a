/*
 * v0  One block.
 * Now:   one block computes all batches; a thread adds up a row, a tree in shared
 *        memory adds up the terms of an output.
 * Cost:  reads x once, uncoalesced: lanes are M elements apart, so a request touches as
 *        many sectors as it has lanes; reads the matrix once per batch; eight barriers
 *        per output.
 * Left:  only one SM of the GPU works -> v1.
 */
#ifndef GPO_MEAN_MATVEC_V0_ONE_BLOCK_CUH
#define GPO_MEAN_MATVEC_V0_ONE_BLOCK_CUH

#include "../by_batch.cuh"

/* Thread t takes rows t, t + BLOCK, ... of a batch, one element after the other. */
template <typename T>
__device__ __forceinline__ void
means_by_thread(const mean_matvec_view<T> &v, int64_t n)
{
    for (int64_t l = threadIdx.x; l < v.rows; l += BLOCK) {
        const T *p = v.x + n * v.x_batch + l * v.x_row;
        row_sum<value_type<T>> sum;
        for (int64_t m = 0; m < v.cols; m++) {
            sum.add(value_of(p[m * v.x_col]));
        }
        v.means[n * v.rows + l] = sum.value() / static_cast<value_type<T>>(v.cols);
    }
}

/*
 * A tree in shared memory per output.  The published first version lacks the barrier
 * after `s` is written and the one in every step: there one output's sum races with the
 * next one's products.
 */
template <typename T>
__device__ __forceinline__ void
product_by_tree(const mean_matvec_view<T> &v, int64_t n, value_type<T> *s)
{
    const unsigned tid = threadIdx.x;
    for (int64_t i = 0; i < v.outputs; i++) {
        s[tid] = product_share(v, i, n);
        __syncthreads();
        for (unsigned d = BLOCK / 2; d > 0; d /= 2) {
            if (tid < d) {
                s[tid] += s[tid + d];
            }
            __syncthreads();
        }
        if (tid == 0) { /* the only thread that writes s[0], so it may read it late */
            v.put(i, n, s[0]);
        }
    }
}
template <typename T>
__global__ void
mean_matvec_v0_one_block(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = 0; n < v.batches; n++) {
        means_by_thread(v, n); /* a thread multiplies the means it wrote: no barrier */
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v0(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid(v.batches * v.outputs > 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v0_one_block<T>), v);
}

#endif
