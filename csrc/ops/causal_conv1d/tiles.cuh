/*
 * tiles.cuh  Helpers of v5, whose tile is 16 steps or lags of a thread by 8 inputs:
 * adding sums to totals, tiles on an edge of the filter, storing steps.
 * See ladder/v5_* for the other tiles, staging.cuh for staging.
 */
#ifndef GPO_CAUSAL_CONV1D_TILES_CUH
#define GPO_CAUSAL_CONV1D_TILES_CUH

#include "staging.cuh"

constexpr int64_t FAR = INT64_MAX / 4; /* first step of a row that does not exist */

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

/* Stores steps t..t+15 of row (b, c), if in the row; in packs where aligned. */
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

/* ---- tiles on an edge: products outside are skipped, not zero ---- */

/* sum[i] += lag[7 + i - j] * x[j] for low <= i - j < high. */
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

/* sum[i] += x[j] * g[i + j] for i + j < left. */
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

#endif
