/*
 * v4  Balanced work.
 * Was:   v3's threads have between one and T terms per step.
 * Now:   a thread computes the four steps around t, then those around T - 1 - t, so all
 *        threads, and all blocks, have the same number of products.  Lags s and K-1-s
 *        are paired in the same way.
 * Cost:  as v3, with half as many blocks of twice the work.
 * Left:  a window of lags is loaded for every 4 inputs and used by only 4 steps -> v5.
 * Measured: slower than v3, 1.00 after 0.85 ms (backward 2.86 after 2.55) at B32 C768
 *        T768 in float32 on an H200
 *        (benchmarks/results/h200-causal_conv1d*-ladder.json).  The likely reasons, not
 *        profiled: v3 is balanced already, as an SM that finishes a short block takes
 *        the next one and the long blocks start first; each pair is staged twice;
 *        forward, 168 registers allow 6 blocks per SM where v3's 112 allow nine.
 */
#ifndef GPO_CAUSAL_CONV1D_V4_BALANCED_CUH
#define GPO_CAUSAL_CONV1D_V4_BALANCED_CUH

#include "v3_batches_together.cuh"

template <typename T, int ROWS>
__global__ void
__launch_bounds__(QUADS, 6)
    causal_conv1d_v4_balanced(conv_view<T> v, int64_t tiles, int64_t works)
{
    using memory = quad_stage<value_type<T>, ROWS>;
    GPO_SHARED(memory, stage, [1]);
    const int tid = threadIdx.x;
    const int64_t quads = (v.steps + 3) / 4, half = (quads + 1) / 2;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t rest = work / tiles, first = work % tiles * QUADS;
        const int64_t c = rest % v.channels, batch = rest / v.channels * ROWS;
        const int64_t mine = first + tid, mirrored = quads - 1 - mine;
#pragma unroll 1
        for (int late = 0; late < 2; late++) {
            const int64_t t0 = 4 * (late ? quads - first - QUADS : first);
            conv_quads(v, stage[0], c, batch, t0, late ? QUADS - 1 - tid : tid,
                       mine < half && (!late || mirrored > mine));
        }
    }
}

template <typename T, int ROWS>
__global__ void
causal_conv1d_backward_v4_balanced(lag_view<T> v, int64_t tiles, int64_t works)
{
    using memory = lag_stage<value_type<T>, ROWS, LAG_PIECE>;
    GPO_SHARED(memory, stage, [1]);
    const int tid = threadIdx.x;
    const int64_t quads = (v.lags + 3) / 4, half = (quads + 1) / 2;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t c = work / tiles, first = work % tiles * QUADS;
        const int64_t mine = first + tid, mirrored = quads - 1 - mine;
#pragma unroll 1
        for (int late = 0; late < 2; late++) {
            const int64_t s0 = 4 * (late ? quads - first - QUADS : first);
            lag_quads(v, stage[0], c, s0, late ? QUADS - 1 - tid : tid,
                      mine < half && (!late || mirrored > mine));
        }
    }
}

template <typename T>
static gpo_status
conv_v4(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(ceil_div(ceil_div(v.steps, 4), 2), QUADS);
    const int64_t works = ceil_div(v.batches, SHARING<T>) * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_v4_balanced<T, SHARING<T>>), v, tiles, works);
}

template <typename T>
static gpo_status
lag_v4(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(ceil_div(ceil_div(v.lags, 4), 2), QUADS);
    const int64_t works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (causal_conv1d_backward_v4_balanced<T, LAG_ROWS>), v, tiles,
                      works);
}

#endif
