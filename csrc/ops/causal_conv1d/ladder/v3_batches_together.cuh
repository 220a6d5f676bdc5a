/*
 * v3  Eight batches share one row of w.
 * Was:   v2 takes one batch at a time.
 * Now:   a block takes the rows of eight batches (four of float64) and uses each window
 *        of lags, loaded once, for all of them.  The gradient of the filters has no
 *        such row to share; taking two batches at a time halves its barriers.
 * Cost:  9 loads of 16 bytes for 128 products.
 * Left:  step t has t + 1 terms, so the threads of early steps wait for those of late
 *        steps -> v4.
 */
#ifndef GPO_CAUSAL_CONV1D_V3_BATCHES_TOGETHER_CUH
#define GPO_CAUSAL_CONV1D_V3_BATCHES_TOGETHER_CUH

#include "../quads.cuh"

/*
 * Steps t..t+3 of ROWS batches from `batch` on, for the thread's t = t0 + 4 * quad.
 * All threads of the block call it; those that are `active` have steps to compute.
 */
template <typename T, int ROWS>
__device__ __forceinline__ void
conv_quads(const conv_view<T> &v, quad_stage<value_type<T>, ROWS> &stage, int64_t c,
           int64_t batch, int64_t t0, int quad, bool active)
{
    using V = value_type<T>;
    const int64_t t = t0 + 4 * quad;
    V total[ROWS][4] = {};
    const int64_t early = t0 - v.lags + 1 > 0 ? (t0 - v.lags + 1) / PIECE * PIECE : 0;
    const int64_t end = t0 + QUAD_STEPS < v.steps ? t0 + QUAD_STEPS : v.steps;
    for (int64_t u0 = early; u0 < end; u0 += PIECE) {
        stage.load(v, c, batch, t0, u0);
        const int64_t low = t - v.lags + 1 - u0, high = t + 4 - u0;
        const int from =
            low > 0 ? static_cast<int>(low < PIECE ? low : PIECE) / 4 * 4 : 0;
        const int to = high < PIECE ? static_cast<int>(high) : PIECE;
        V sum[ROWS][4] = {}, lag[8];
        if (active && from < to) {
            four_values(lag + 4, stage.other + 4 * quad - from + PIECE);
        }
        for (int j = from; active && j < to; j += 4) {
            four_values(lag, stage.other + 4 * quad - j + PIECE - 4);
            const int64_t first = t - u0 - j; /* lag of step t and input j */
            const bool whole = first >= 3 && first + 3 < v.lags;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                V x[4];
                four_values(x, stage.x[r] + j);
#pragma unroll
                for (int k = 0; k < 4; k++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int64_t s = first + i - k;
                        if (whole || (s >= 0 && s < v.lags)) {
                            sum[r][i] += lag[4 + i - k] * x[k];
                        }
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                lag[4 + i] = lag[i];
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                total[r][i] += sum[r][i];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (active && t + i >= 0 && t + i < v.steps && batch + r < v.batches) {
                v.put(batch + r, c, t + i, total[r][i]);
            }
        }
    }
}

template <typename T, int ROWS>
__global__ void
__launch_bounds__(QUADS, 8)
    causal_conv1d_v3_batches_together(conv_view<T> v, int64_t tiles, int64_t works)
{
    using memory = quad_stage<value_type<T>, ROWS>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t rest = work / tiles, tile = tiles - 1 - work % tiles;
        conv_quads(v, stage[0], rest % v.channels, rest / v.channels * ROWS,
                   tile * QUAD_STEPS, threadIdx.x, true);
    }
}

/* Lags s..s+3 of a channel, s = s0 + 4 * quad, ROWS batches at a time. */
template <typename T, int ROWS>
__device__ __forceinline__ void
lag_quads(const lag_view<T> &v, lag_stage<value_type<T>, ROWS, LAG_PIECE> &stage,
          int64_t c, int64_t s0, int quad, bool active)
{
    using V = value_type<T>;
    const int64_t s = s0 + 4 * quad;
    const int64_t end = s0 > 0 ? v.steps - s0 : v.steps; /* inputs that lag s0 has */
    V total[4] = {};
    for (int64_t batch = 0; batch < v.batches; batch += ROWS) {
        for (int64_t u0 = 0; u0 < end; u0 += LAG_PIECE) {
            stage.load(v, c, batch, s0, u0);
            const int64_t left = v.steps - s - u0; /* inputs of lag s from u0 on */
            const int to = left < LAG_PIECE ? static_cast<int>(left) : LAG_PIECE;
            V sum[ROWS][4] = {};
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                V g[8];
                if (active && to > 0) {
                    four_values(g, stage.g[r] + 4 * quad);
                }
                for (int j = 0; active && j < to; j += 4) {
                    V x[4];
                    four_values(x, stage.x[r] + j);
                    four_values(g + 4, stage.g[r] + 4 * quad + j + 4);
                    const bool whole = j + 6 < left;
#pragma unroll
                    for (int k = 0; k < 4; k++) {
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            if (whole || j + k + i < left) {
                                sum[r][i] += x[k] * g[i + k];
                            }
                        }
                    }
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        g[i] = g[4 + i];
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    total[i] += sum[r][i];
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (active && s + i >= 0 && s + i < v.lags) {
            v.put(c, s + i, total[i]);
        }
    }
}

template <typename T, int ROWS>
__global__ void
causal_conv1d_backward_v3_batches_together(lag_view<T> v, int64_t tiles, int64_t works)
{
    using memory = lag_stage<value_type<T>, ROWS, LAG_PIECE>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        lag_quads(v, stage[0], work / tiles, work % tiles * QUAD_STEPS, threadIdx.x,
                  true);
    }
}

template <typename T>
static gpo_status
conv_v3(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, QUAD_STEPS);
    const int64_t works = ceil_div(v.batches, SHARING<T>) * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_v3_batches_together<T, SHARING<T>>), v, tiles,
                      works);
}

template <typename T>
static gpo_status
lag_v3(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, QUAD_STEPS), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_backward_v3_batches_together<T, LAG_ROWS>), v,
                      tiles, works);
}

#endif
