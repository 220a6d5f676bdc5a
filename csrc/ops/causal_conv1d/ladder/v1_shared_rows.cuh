/*
 * v1  Rows of w and x in shared memory.
 * Was:   v0 reads both operands of every product from global memory.
 * Now:   a block computes 128 steps of a row; it stages 256 inputs at a time, and the
 *        lags they need, in shared memory, so a row may have any length.
 * Cost:  two 4-byte shared loads per product; x is read T / 256 times, out of L2.
 * Left:  each operand costs a load, and the multipliers wait for the loads -> v2.
 */
#ifndef GPO_CAUSAL_CONV1D_V1_SHARED_ROWS_CUH
#define GPO_CAUSAL_CONV1D_V1_SHARED_ROWS_CUH

#include "../staging.cuh"

template <typename T>
__global__ void
causal_conv1d_v1_shared_rows(conv_view<T> v, int64_t tiles, int64_t works)
{
    using V = value_type<T>;
    GPO_SHARED(V, x, [PIECE]);
    GPO_SHARED(V, lag, [PIECE + BLOCK]);
    const int tid = threadIdx.x;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t row = work / tiles, t0 = (tiles - 1 - work % tiles) * BLOCK;
        const int64_t b = row / v.channels, c = row % v.channels, t = t0 + tid;
        const int64_t end = t0 + BLOCK < v.steps ? t0 + BLOCK : v.steps;
        V total = 0;
        for (int64_t u0 = t0 < v.lags ? 0 : (t0 - v.lags + 1) / PIECE * PIECE; u0 < end;
             u0 += PIECE) {
            __syncthreads();
            stage_row<BLOCK>(x, v.x.row(b, c), v.x.t, u0, PIECE, v.steps);
            stage_lags<BLOCK>(lag, v, c, t0 - u0 - PIECE + 1, PIECE + BLOCK);
            __syncthreads();
            const int64_t low = t - v.lags + 1 - u0, high = t + 1 - u0;
            const int from = low > 0 ? static_cast<int>(low < PIECE ? low : PIECE) : 0;
            const int to = high < PIECE ? static_cast<int>(high) : PIECE;
            V sum = 0;
            for (int j = from; j < to; j++) {
                sum += lag[tid - j + PIECE - 1] * x[j];
            }
            total += sum;
        }
        if (t < v.steps) {
            v.put(b, c, t, total);
        }
    }
}

template <typename T>
__global__ void
causal_conv1d_backward_v1_shared_rows(lag_view<T> v, int64_t tiles, int64_t works)
{
    using V = value_type<T>;
    GPO_SHARED(V, x, [PIECE]);
    GPO_SHARED(V, g, [PIECE + BLOCK]);
    const int tid = threadIdx.x;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t c = work / tiles, s0 = work % tiles * BLOCK, s = s0 + tid;
        V total = 0;
        for (int64_t b = 0; b < v.batches; b++) {
            for (int64_t u0 = 0; u0 < v.steps - s0; u0 += PIECE) {
                __syncthreads();
                stage_row<BLOCK>(x, v.x.row(b, c), v.x.t, u0, PIECE, v.steps);
                stage_row<BLOCK>(g, v.g.row(b, c), v.g.t, u0 + s0, PIECE + BLOCK,
                                 v.steps);
                __syncthreads();
                const int64_t left = v.steps - s - u0;
                const int to = left < PIECE ? static_cast<int>(left) : PIECE;
                V sum = 0;
                for (int j = 0; j < to; j++) {
                    sum += x[j] * g[j + tid];
                }
                total += sum;
            }
        }
        if (s < v.lags) {
            v.put(c, s, total);
        }
    }
}

template <typename T>
static gpo_status
conv_v1(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, BLOCK);
    const int64_t works = v.batches * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), BLOCK, 0, (causal_conv1d_v1_shared_rows<T>),
                      v, tiles, works);
}

template <typename T>
static gpo_status
lag_v1(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, BLOCK), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), BLOCK, 0,
                      (causal_conv1d_backward_v1_shared_rows<T>), v, tiles, works);
}

#endif
