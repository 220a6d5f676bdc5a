/*
 * tiles.cuh  Products in registers: quads of 4 steps for v2 to v4, tiles of 16 steps by 8
 * inputs for v5.  Order: quads of a convolution, quads of lags, tiles.
 * Not here: who does which part when (cuda.cu), staging (rows.cuh).
 */
#ifndef GPO_CAUSAL_CONV1D_TILES_CUH
#define GPO_CAUSAL_CONV1D_TILES_CUH

#include "rows.cuh"

/* ---- quads of a convolution ---- */

constexpr int QUADS = 64;             /* threads of a block of v2 to v4 */
constexpr int QUAD_STEPS = 4 * QUADS; /* steps of a block */

/* Values in 16-byte packs, whose number in 4 steps is 1 or 2. */
template <typename V>
__device__ __forceinline__ void
four_values(V *to, const V *from)
{
    shared_values<4>(to, from);
}

template <typename V, int ROWS, int PIECE>
struct quad_stage {
    alignas(16) V x[ROWS][PIECE];
    alignas(16) V other[PIECE + QUAD_STEPS + 4]; /* lags of the filter */
};

/*
 * Steps t..t+3 of ROWS batches from `batch` on, for the thread's t = t0 + 4 * quad; all
 * threads call it, `active` ones have steps.  The row comes in pieces of PIECE inputs; the
 * sum over a piece is added to the total.
 */
template <typename T, int ROWS, int PIECE>
__device__ __forceinline__ void
conv_quads(const conv_view<T> &v, quad_stage<value_type<T>, ROWS, PIECE> &stage,
           int64_t c, int64_t batch, int64_t t0, int quad, bool active)
{
    using V = value_type<T>;
    const int64_t t = t0 + 4 * quad;
    V total[ROWS][4] = {};
    const int64_t early = t0 - v.lags + 1 > 0 ? (t0 - v.lags + 1) / PIECE * PIECE : 0;
    const int64_t end = t0 + QUAD_STEPS < v.steps ? t0 + QUAD_STEPS : v.steps;
    for (int64_t u0 = early; u0 < end; u0 += PIECE) {
        __syncthreads();
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            const bool there = batch + r < v.batches;
            stage_row<QUADS>(stage.x[r], v.x.row(there ? batch + r : batch, c), v.x.t,
                             u0, PIECE, there ? v.steps : 0);
        }
        /* other[i] is lag t0 - u0 - PIECE + i */
        stage_lags<QUADS>(stage.other, v, c, t0 - u0 - PIECE, PIECE + QUAD_STEPS + 4);
        __syncthreads();

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

/* ---- quads of lags ---- */

template <typename V, int ROWS, int PIECE>
struct lag_stage {
    alignas(16) V x[ROWS][PIECE];
    alignas(16) V g[ROWS][PIECE + QUAD_STEPS + 4];
};

/* Lags s..s+3 of a channel, s = s0 + 4 * quad, ROWS batches at a time. */
template <typename T, int ROWS, int PIECE>
__device__ __forceinline__ void
lag_quads(const lag_view<T> &v, lag_stage<value_type<T>, ROWS, PIECE> &stage, int64_t c,
          int64_t s0, int quad, bool active)
{
    using V = value_type<T>;
    const int64_t s = s0 + 4 * quad;
    const int64_t end = s0 > 0 ? v.steps - s0 : v.steps; /* inputs that a lag meets */
    V total[4] = {};
    for (int64_t batch = 0; batch < v.batches; batch += ROWS) {
        for (int64_t u0 = 0; u0 < end; u0 += PIECE) {
            __syncthreads();
#pragma unroll 1
            for (int r = 0; r < ROWS; r++) {
                const bool there = batch + r < v.batches;
                const int64_t b = there ? batch + r : batch;
                const int64_t steps = there ? v.steps : 0;
                stage_row<QUADS>(stage.x[r], v.x.row(b, c), v.x.t, u0, PIECE, steps);
                stage_row<QUADS>(stage.g[r], v.g.row(b, c), v.g.t, u0 + s0,
                                 PIECE + QUAD_STEPS + 4, steps);
            }
            __syncthreads();

            const int64_t left = v.steps - s - u0; /* inputs of lag s in this piece */
            const int to = left < PIECE ? static_cast<int>(left) : PIECE;
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

/* ---- tiles: 16 steps of a row by 8 inputs ---- */

constexpr int STEPS = 16;              /* of a thread */
constexpr int INPUTS = 8;              /* of a substep */
constexpr int WINDOW = STEPS + INPUTS; /* what 16 by 8 products read, and one more */

/* sum[i] += lag[7 + i - j] * x[j] for every i and j with i - j >= LEAST. */
template <int LEAST, typename V>
__device__ __forceinline__ void
conv_products(V (&sum)[STEPS], const V *lag, const V (&x)[INPUTS])
{
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i - j >= LEAST) {
                sum[i] += lag[INPUTS - 1 + i - j] * x[j];
            }
        }
    }
}

/* The same for low <= i - j < high. */
template <typename V>
__device__ __forceinline__ void
conv_products_between(V (&sum)[STEPS], const V *lag, const V (&x)[INPUTS], int64_t low,
                      int64_t high)
{
    const int from = static_cast<int>(low < -INPUTS ? -INPUTS : low);
    const int to = static_cast<int>(high > STEPS ? STEPS : high);
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i - j >= from && i - j < to) {
                sum[i] += lag[INPUTS - 1 + i - j] * x[j];
            }
        }
    }
}

/* sum[i] += x[j] * g[i + j]. */
template <typename V>
__device__ __forceinline__ void
lag_products(V (&sum)[STEPS], const V *g, const V (&x)[INPUTS])
{
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            sum[i] += x[j] * g[i + j];
        }
    }
}

/* The same for i + j < left. */
template <typename V>
__device__ __forceinline__ void
lag_products_below(V (&sum)[STEPS], const V *g, const V (&x)[INPUTS], int64_t left)
{
    const int to = static_cast<int>(left < WINDOW ? left : WINDOW);
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i + j < to) {
                sum[i] += x[j] * g[i + j];
            }
        }
    }
}

/*
 * Tiles on an edge of the filter: `first` is the lag of step 0 and input 0, a multiple of
 * 8; `all` the number of lags.  Products whose lag is outside are left out, not zero: an
 * infinite input must not reach them.
 */
template <typename V>
__device__ __forceinline__ void
conv_edge(V (&sum)[STEPS], const V *lags, const V *inputs, int64_t first, int64_t all)
{
    if (first + STEPS - 1 < 0 || first - (INPUTS - 1) >= all) {
        return;
    }
    V x[INPUTS], lag[WINDOW];
    shared_values<INPUTS>(x, inputs);
    shared_values<WINDOW>(lag, lags);
    if (first + STEPS - 1 >= all) {
        conv_products_between(sum, lag, x, -first, all - first);
    }
    else if (first == 0) {
        conv_products<0>(sum, lag, x);
    }
    else if (first == -INPUTS) {
        conv_products<INPUTS>(sum, lag, x);
    }
    else {
        conv_products<-INPUTS>(sum, lag, x);
    }
}

/* total += sum; sum = 0. */
template <typename V>
__device__ __forceinline__ void
fold(V (&total)[STEPS], V (&sum)[STEPS])
{
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        total[i] += sum[i];
        sum[i] = 0;
    }
}

/* Steps t..t+15 of row (b, c), as far as the row goes: in packs where they lie so. */
template <typename T>
__device__ __forceinline__ void
store_steps(const conv_view<T> &v, int64_t b, int64_t c, int64_t t,
            const value_type<T> (&total)[STEPS])
{
    constexpr int SIZE = pack<T>::SIZE;
    T *const row = v.out.row(b, c);
    const value_type<T> add = v.offset(c);
    const bool backwards = v.out.t == -1;
    T *const first = row + (backwards ? -t - (STEPS - 1) : t); /* in memory */
    const bool packed = (backwards || v.out.t == 1) && t + STEPS <= v.steps &&
                        reinterpret_cast<uintptr_t>(first) % 16 == 0;
    if (packed) {
#pragma unroll
        for (int k = 0; k < STEPS; k += SIZE) {
            pack<T> p;
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                p.v[i] = v.finished(total[k + i] + add, b, c, t + k + i);
            }
            if (backwards) {
                pack<T> turned;
#pragma unroll
                for (int i = 0; i < SIZE; i++) {
                    turned.v[i] = p.v[SIZE - 1 - i];
                }
                *reinterpret_cast<pack<T> *>(first + STEPS - SIZE - k) = turned;
            }
            else {
                *reinterpret_cast<pack<T> *>(first + k) = p;
            }
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < STEPS; i++) {
        if (t + i < v.steps) {
            row[(t + i) * v.out.t] = v.finished(total[i] + add, b, c, t + i);
        }
    }
}

#endif
