/*
 * v3  First add during load.
 * Was:   v2 spends a thread on every element.
 * Now:   each thread loads two elements and combines them in registers; half the
 *        blocks.
 * Cost:  as v2 with half the shared-memory work per element.
 * Left:  the last six steps use one warp and still pay a barrier each -> v4.
 */
#ifndef GPO_REDUCE_V3_ADD_ON_LOAD_CUH
#define GPO_REDUCE_V3_ADD_ON_LOAD_CUH

#include "../rows.cuh"

template <typename Op>
__global__ void
reduce_v3_add_on_load(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * BLOCK) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + BLOCK));
    __syncthreads();
    for (unsigned d = BLOCK / 2; d > 0; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v3 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v3_add_on_load<Op>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, 2 * BLOCK), launch<Op>);
    }
};

#endif
