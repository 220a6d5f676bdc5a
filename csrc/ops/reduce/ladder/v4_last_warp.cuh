/*
 * v4  Last warp unrolled.
 * Was:   v3's last six steps need barriers of the whole block.
 * Now:   they run in warp 0 alone, six steps without a loop.  Each step reads, calls
 *        __syncwarp, writes and calls it again: lanes of a warp run independently since
 *        Volta, and the published `volatile` version without __syncwarp is a race
 *        there.
 * Cost:  as v3 with three barriers instead of nine.
 * Left:  the loop before them still computes its step width at run time -> v5.
 */
#ifndef GPO_REDUCE_V4_LAST_WARP_CUH
#define GPO_REDUCE_V4_LAST_WARP_CUH

#include "../rows.cuh"

template <typename Op>
__device__ __forceinline__ void
combine_last_warp(typename Op::Acc *s, unsigned tid)
{
    typename Op::Acc v = s[tid];
#pragma unroll
    for (unsigned d = WARP; d > 0; d /= 2) {
        v = Op::combine(v, s[tid + d]);
        __syncwarp();
        s[tid] = v;
        __syncwarp();
    }
}

template <typename Op>
__global__ void
reduce_v4_last_warp(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * BLOCK) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + BLOCK));
    __syncthreads();
    for (unsigned d = BLOCK / 2; d > WARP; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid < WARP) {
        combine_last_warp<Op>(s, tid);
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v4 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v4_last_warp<Op>), op, x, part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, 2 * BLOCK), launch<Op>);
    }
};

#endif
