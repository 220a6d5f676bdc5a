/*
 * v0  Interleaved addressing.
 * Was:   nothing; the first parallel reduction one would write.
 * Now:   a tree in shared memory that combines neighbours first; one element per
 *        thread.
 * Cost:  reads n * sizeof(T) bytes once; half of the threads of every warp are idle
 *        from the first step on, and `%` is a long instruction sequence.
 * Left:  the active threads are spread over all warps -> v1.
 */
#ifndef GPO_REDUCE_V0_INTERLEAVED_CUH
#define GPO_REDUCE_V0_INTERLEAVED_CUH

#include "../rows.cuh"

template <typename Op>
__global__ void
reduce_v0_interleaved(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
    __syncthreads();
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        if (tid % (2 * d) == 0) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v0 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v0_interleaved<Op>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, BLOCK), launch<Op>);
    }
};

#endif
