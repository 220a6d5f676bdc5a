/*
 * quads.cuh  Pieces of rows in shared memory for v2 to v4, whose threads have 4
 * outputs: of a convolution, and of the gradient of the filters.
 */
#ifndef GPO_CAUSAL_CONV1D_QUADS_CUH
#define GPO_CAUSAL_CONV1D_QUADS_CUH

#include "staging.cuh"

/* Four values, which are one or two 16-byte packs. */
template <typename V>
__device__ __forceinline__ void
four_values(V *to, const V *from)
{
    shared_values<4>(to, from);
}

/* ---- of a convolution ---- */

template <typename V, int ROWS>
struct quad_stage {
    alignas(16) V x[ROWS][PIECE];
    alignas(16) V other[PIECE + QUAD_STEPS + 4]; /* lags of the filter */

    /*
     * Loads inputs from u0 on of ROWS batches from `batch` on, and the lags between
     * them and steps from t0 on: other[i] is lag t0 - u0 - PIECE + i.
     */
    template <typename T>
    __device__ __forceinline__ void load(const conv_view<T> &v, int64_t c,
                                         int64_t batch, int64_t t0, int64_t u0)
    {
        __syncthreads();
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            const bool there = batch + r < v.batches;
            stage_row<QUADS>(x[r], v.x.row(there ? batch + r : batch, c), v.x.t, u0,
                             PIECE, there ? v.steps : 0);
        }
        stage_lags<QUADS>(other, v, c, t0 - u0 - PIECE, PIECE + QUAD_STEPS + 4);
        __syncthreads();
    }
};

/* ---- of the gradient of the filters ---- */

template <typename V, int ROWS, int INPUTS_AT_ONCE>
struct lag_stage {
    alignas(16) V x[ROWS][INPUTS_AT_ONCE];
    alignas(16) V g[ROWS][INPUTS_AT_ONCE + QUAD_STEPS + 4];

    /* Loads inputs from u0 on of ROWS batches, and the gradient s0 steps later. */
    template <typename T>
    __device__ __forceinline__ void load(const lag_view<T> &v, int64_t c, int64_t batch,
                                         int64_t s0, int64_t u0)
    {
        __syncthreads();
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            const bool there = batch + r < v.batches;
            const int64_t b = there ? batch + r : batch;
            const int64_t steps = there ? v.steps : 0;
            stage_row<QUADS>(x[r], v.x.row(b, c), v.x.t, u0, INPUTS_AT_ONCE, steps);
            stage_row<QUADS>(g[r], v.g.row(b, c), v.g.t, u0 + s0,
                             INPUTS_AT_ONCE + QUAD_STEPS + 4, steps);
        }
        __syncthreads();
    }
};

#endif
