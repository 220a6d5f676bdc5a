/*
 * v2  Four outputs per thread, 16-byte loads.
 * Was:   v1 loads two operands for each product.
 * Now:   a thread multiplies four inputs by the lags of four steps in registers: 16
 *        products for two 16-byte loads, of 4 inputs and 4 new lags; the other 4 lags
 *        are kept from the previous four inputs.  The gradient of the filters has four
 *        lags per thread in the same way.
 * Cost:  an eighth of v1's shared loads.
 * Left:  every batch loads the filter of its channel again -> v3.
 */
#ifndef GPO_CAUSAL_CONV1D_V2_FOUR_OUTPUTS_CUH
#define GPO_CAUSAL_CONV1D_V2_FOUR_OUTPUTS_CUH

#include "../quads.cuh"

/* Steps t..t+3 of row (b, c), for the thread's t = t0 + 4 * quad. */
template <typename T>
__device__ __forceinline__ void
conv_quad(const conv_view<T> &v, quad_stage<value_type<T>, 1> &stage, int64_t c,
          int64_t b, int64_t t0, int quad)
{
    using V = value_type<T>;
    const int64_t t = t0 + 4 * quad;
    V total[4] = {};
    const int64_t early = t0 - v.lags + 1 > 0 ? (t0 - v.lags + 1) / PIECE * PIECE : 0;
    const int64_t end = t0 + QUAD_STEPS < v.steps ? t0 + QUAD_STEPS : v.steps;
    for (int64_t u0 = early; u0 < end; u0 += PIECE) {
        stage.load(v, c, b, t0, u0);
        const int64_t low = t - v.lags + 1 - u0, high = t + 4 - u0;
        const int from =
            low > 0 ? static_cast<int>(low < PIECE ? low : PIECE) / 4 * 4 : 0;
        const int to = high < PIECE ? static_cast<int>(high) : PIECE;
        V sum[4] = {}, lag[8];
        if (from < to) {
            four_values(lag + 4, stage.other + 4 * quad - from + PIECE);
        }
        for (int j = from; j < to; j += 4) {
            four_values(lag, stage.other + 4 * quad - j + PIECE - 4);
            const int64_t first = t - u0 - j; /* lag of step t and input j */
            const bool whole = first >= 3 && first + 3 < v.lags;
            V x[4];
            four_values(x, stage.x[0] + j);
#pragma unroll
            for (int k = 0; k < 4; k++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int64_t s = first + i - k;
                    if (whole || (s >= 0 && s < v.lags)) {
                        sum[i] += lag[4 + i - k] * x[k];
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                lag[4 + i] = lag[i];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            total[i] += sum[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (t + i < v.steps) {
            v.put(b, c, t + i, total[i]);
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(QUADS, 8)
    causal_conv1d_v2_four_outputs(conv_view<T> v, int64_t tiles, int64_t works)
{
    using memory = quad_stage<value_type<T>, 1>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t row = work / tiles, tile = tiles - 1 - work % tiles;
        conv_quad(v, stage[0], row % v.channels, row / v.channels, tile * QUAD_STEPS,
                  threadIdx.x);
    }
}

/* Lags s..s+3 of a channel, s = s0 + 4 * quad. */
template <typename T>
__device__ __forceinline__ void
lag_quad(const lag_view<T> &v, lag_stage<value_type<T>, 1, PIECE> &stage, int64_t c,
         int64_t s0, int quad)
{
    using V = value_type<T>;
    const int64_t s = s0 + 4 * quad;
    const int64_t end = s0 > 0 ? v.steps - s0 : v.steps; /* inputs that lag s0 has */
    V total[4] = {};
    for (int64_t b = 0; b < v.batches; b++) {
        for (int64_t u0 = 0; u0 < end; u0 += PIECE) {
            stage.load(v, c, b, s0, u0);
            const int64_t left = v.steps - s - u0; /* inputs of lag s from u0 on */
            const int to = left < PIECE ? static_cast<int>(left) : PIECE;
            V sum[4] = {}, g[8];
            if (to > 0) {
                four_values(g, stage.g[0] + 4 * quad);
            }
            for (int j = 0; j < to; j += 4) {
                V x[4];
                four_values(x, stage.x[0] + j);
                four_values(g + 4, stage.g[0] + 4 * quad + j + 4);
                const bool whole = j + 6 < left;
#pragma unroll
                for (int k = 0; k < 4; k++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        if (whole || j + k + i < left) {
                            sum[i] += x[k] * g[i + k];
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
                total[i] += sum[i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (s + i < v.lags) {
            v.put(c, s + i, total[i]);
        }
    }
}

template <typename T>
__global__ void
causal_conv1d_backward_v2_four_outputs(lag_view<T> v, int64_t tiles, int64_t works)
{
    using memory = lag_stage<value_type<T>, 1, PIECE>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        lag_quad(v, stage[0], work / tiles, work % tiles * QUAD_STEPS, threadIdx.x);
    }
}

template <typename T>
static gpo_status
conv_v2(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, QUAD_STEPS);
    const int64_t works = v.batches * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_v2_four_outputs<T>), v, tiles, works);
}

template <typename T>
static gpo_status
lag_v2(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, QUAD_STEPS), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_backward_v2_four_outputs<T>), v, tiles, works);
}

#endif
