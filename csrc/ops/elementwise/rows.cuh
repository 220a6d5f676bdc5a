/*
 * rows.cuh  Rows of the result, for elementwise's v2: where each operand's row begins,
 * and whether a row has elements beside its packs.
 */
#ifndef GPO_ELEMENTWISE_ROWS_CUH
#define GPO_ELEMENTWISE_ROWS_CUH

#include "../../device/divide.cuh"
#include "../../device/warp.cuh"
#include "rungs.cuh"

/* Rows of the result, and where each operand's row begins. */
struct elementwise_rows {
    int64_t cols, tiles; /* elements and blocks of a row */
    bool tall;     /* blockIdx.x numbers rows, which are many, and blockIdx.y tiles */
    unsigned held; /* bit k: a row of operand k is one element repeated */
    int ndim;      /* axes of the rows */
    divider length[FEW_AXES];
    int64_t strides[ELEMENTWISE_INPUTS][FEW_AXES];
};

/* at[k] = the offset of row `row` of operand k from its first element, in elements. */
template <int INPUTS>
__device__ __forceinline__ void
row_offsets(const elementwise_rows &rows, int64_t row, int64_t (&at)[INPUTS])
{
#pragma unroll 1
    for (int d = rows.ndim - 1; d >= 0; d--) {
        const int64_t quotient = d > 0 ? rows.length[d].of(row) : 0;
        const int64_t i = row - quotient * rows.length[d].by;
        row = quotient;
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            at[k] += i * rows.strides[k][d];
        }
    }
}

/* Whether a single row of `cols` elements has some beside its packs of `size`. */
inline bool
has_ends(const gpo_call *call, int64_t cols, int64_t size)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    bool whole =
        cols % size == 0 && reinterpret_cast<uintptr_t>(call->out[0].data) % 16 == 0;
    for (int k = 0; k < plan.inputs; k++) {
        const void *const x = call->in[plan.input[k]].data;
        const bool held = plan.ndim == 0 || plan.strides[k][plan.ndim - 1] == 0;
        whole = whole && (held || reinterpret_cast<uintptr_t>(x) % 16 == 0);
    }
    return !whole;
}

#endif
