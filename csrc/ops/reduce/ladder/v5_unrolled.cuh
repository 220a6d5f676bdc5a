/*
 * v5  Complete unroll.
 * Was:   v4 computes and tests its step width at run time.
 * Now:   the block size is a template parameter; every step is a constant.
 * Cost:  as v4 with no loop instructions.
 * Left:  a block reduces 512 elements and ends; starting it costs more than that -> v6.
 */
#ifndef GPO_REDUCE_V5_UNROLLED_CUH
#define GPO_REDUCE_V5_UNROLLED_CUH

#include "v4_last_warp.cuh"

template <typename Op, unsigned THREADS>
__device__ __forceinline__ void
combine_block_unrolled(typename Op::Acc *s, unsigned tid)
{
    static_assert(THREADS >= 64 && THREADS <= 1024, "steps below cover 64 to 1024");
#pragma unroll
    for (unsigned d = THREADS / 2; d > WARP; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid < WARP) {
        combine_last_warp<Op>(s, tid);
    }
}

template <typename Op, unsigned THREADS>
__global__ void
reduce_v5_unrolled(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [THREADS]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * THREADS) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + THREADS));
    __syncthreads();
    combine_block_unrolled<Op, THREADS>(s, tid);
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v5 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v5_unrolled<Op, BLOCK>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, 2 * BLOCK), launch<Op>);
    }
};

#endif
