/*
 * v1  Strided index.
 * Was:   v0 keeps every second thread of each warp busy, then every fourth, ...
 * Now:   the first threads do the work; whole warps retire.
 * Cost:  as v0 without the divergence, but lanes are 2 * d words apart: up to 32 of
 *        them access the same bank.
 * Left:  bank conflicts -> v2.
 */
#ifndef GPO_REDUCE_V1_STRIDED_CUH
#define GPO_REDUCE_V1_STRIDED_CUH

#include "../rows.cuh"

template <typename Op>
__global__ void
reduce_v1_strided(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
    __syncthreads();
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        const unsigned i = 2 * d * tid;
        if (i < BLOCK) {
            s[i] = Op::combine(s[i], s[i + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v1 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v1_strided<Op>), op, x, part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, BLOCK), launch<Op>);
    }
};

#endif
