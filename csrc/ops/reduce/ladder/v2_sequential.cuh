/*
 * v2  Sequential addressing.
 * Was:   v1's lanes stride through shared memory.
 * Now:   the upper half is added to the lower half; lanes access neighbouring words.
 * Cost:  as v1, one wavefront per request for types of 4 bytes.
 * Left:  half of the threads only load and then idle -> v3.
 */
#ifndef GPO_REDUCE_V2_SEQUENTIAL_CUH
#define GPO_REDUCE_V2_SEQUENTIAL_CUH

#include "../rows.cuh"

template <typename Op>
__global__ void
reduce_v2_sequential(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
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

struct reduce_v2 {
    template <typename Op>
    static gpo_status launch(gpo_call *call, dim3 grid, const Op &op,
                             const reduce_rows<typename Op::T> &x,
                             typename Op::Part *part)
    {
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v2_sequential<Op>), op, x,
                          part);
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return reduce_in_chunks(call, op, chunks_of(call, BLOCK), launch<Op>);
    }
};

#endif
