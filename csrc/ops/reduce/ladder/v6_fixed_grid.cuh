/*
 * v6  Many elements per thread, fixed grid.
 * Was:   v5 starts one block per 512 elements, and the finish has a part for each.
 * Now:   at most 1,024 blocks stride through a row; the tree is paid once per block.
 * Cost:  reads n * sizeof(T) bytes once; shared-memory work no longer grows with n.
 * Left:  the tree still goes through shared memory -> v7.
 */
#ifndef GPO_REDUCE_V6_FIXED_GRID_CUH
#define GPO_REDUCE_V6_FIXED_GRID_CUH

#include "v5_unrolled.cuh"

inline int64_t
fixed_grid(const gpo_call *call)
{
    const int64_t chunks = chunks_of(call, BLOCK * ITEMS_PER_THREAD);
    return chunks < FIXED_GRID ? chunks : FIXED_GRID;
}

/* Combines this thread's elements in a grid-stride loop over the row. */
template <typename Op>
__device__ __forceinline__ typename Op::Acc
combine_strided(const Op &op, const reduce_rows<typename Op::T> &x, int64_t row)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    typename Op::Acc v = Op::identity();
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < x.cols;
         k += step) {
        v = Op::combine(v, load(op, x, row, k));
    }
    return v;
}

template <typename Op>
__global__ void
reduce_v6_fixed_grid(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = combine_strided(op, x, row);
    __syncthreads();
    combine_block_unrolled<Op, BLOCK>(s, tid);
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct reduce_v6 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v6_fixed_grid<Op>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, fixed_grid(call), launch<Op>);
    }
};

#endif
