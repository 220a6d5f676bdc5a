/*
 * v7  Warp shuffle.
 * Was:   v6 combines 256 values through shared memory.
 * Now:   each warp combines its 32 in registers; 8 values and one barrier remain.
 * Cost:  as v6 with BLOCK / 32 values of shared memory.
 * Left:  each load fetches one element -> v8.
 */
#ifndef GPO_REDUCE_V7_WARP_SHUFFLE_CUH
#define GPO_REDUCE_V7_WARP_SHUFFLE_CUH

#include "v6_fixed_grid.cuh"

template <typename Op>
__global__ void
reduce_v7_warp_shuffle(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, slots, [BLOCK / WARP]);
    const int64_t row = x.first_row + blockIdx.y;

    typename Op::Acc v = combine_strided(op, x, row);
    v = block_combine<Op, BLOCK>(v, slots);
    if (threadIdx.x == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(v);
    }
}

struct reduce_v7 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v7_warp_shuffle<Op>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, fixed_grid(call), launch<Op>);
    }
};

#endif
