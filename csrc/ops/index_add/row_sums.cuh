/*
 * row_sums.cuh  The sum of the source rows that a list names, several in flight (v4), and
 * the grid of threads that make them.
 */
#ifndef GPO_INDEX_ADD_ROW_SUMS_CUH
#define GPO_INDEX_ADD_ROW_SUMS_CUH

#include "frame.cuh"

/* C groups of V columns each. */
template <typename T, int V, int C>
struct index_add_sums {
    acc_of<T> v[C][V];
};

/* V elements in flight: kept as a word until they are added; unpacking would wait. */
template <typename T, int V>
struct in_flight {
    std::conditional_t<
        V == 1, T,
        std::conditional_t<V * sizeof(T) == 16, uint4,
                           std::conditional_t<V * sizeof(T) == 8, uint2, unsigned>>>
        word;
};

/* Starts the load of V elements that nothing writes during the kernel. */
template <typename T, int V>
__device__ __forceinline__ in_flight<T, V>
send_for(const T *p)
{
    if constexpr (V * sizeof(T) == 16 && V > 1) {
        return {load_streamed(reinterpret_cast<const uint4 *>(p))};
    }
    else {
        return *reinterpret_cast<const in_flight<T, V> *>(p);
    }
}

/*
 * The sum of rows number[0..n), V columns from `from` on, and as many at `apart` behind
 * them, C times or only `live` times.  Up to eight rows are in flight, two if C is not 1,
 * and the numbers of as many after them.
 */
template <typename T, int V, int C, typename Payload>
__device__ __forceinline__ index_add_sums<T, V, C>
sum_rows(const T *from, int64_t by_row, int64_t apart, int live, alpha_of<T> alpha,
         const Payload *number, int n)
{
    constexpr int AT_ONCE = C > 1 ? 2 : V <= 8 ? 8 : 4; /* sums fill registers, too */
    index_add_sums<T, V, C> sum = {};
    Payload row[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        row[k] = k < n ? number[k] : 0;
    }
    for (; n > 0; n -= AT_ONCE) {
        in_flight<T, V> loaded[AT_ONCE][C];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (k < n && (C == 1 || c < live)) {
                    loaded[k][c] = send_for<T, V>(from + row[k] * by_row + c * apart);
                }
            }
        }
        number += AT_ONCE;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            row[k] = k < n - AT_ONCE ? number[k] : 0;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (k < n && (C == 1 || c < live)) {
                    values<T, V> v;
                    memcpy(v.v, &loaded[k][c].word, sizeof v.v);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        sum.v[c][e] = sum_of<T>(sum.v[c][e], scaled(v.v[e], alpha));
                    }
                }
            }
        }
    }
    return sum;
}

/* ---- the grid ---- */

/* The grid of the gather: `lanes` threads share the `across` packs of a row. */
struct gather_shape {
    int lanes;
    int64_t tiles;
    dim3 grid;
    bool several; /* packs to a thread */
};

/* Packs that a thread then takes at a time, of one element or of a pair; as many registers
   of sums. */
template <typename T, int V>
constexpr int GATHERED = sizeof(acc_of<T>) == 8 || sizeof(T) * V == 8 ? 4 : 8;

/*
 * At most `most` packs to a thread at a time, if so many threads are left that SMs are full.
 * Where units are many, and none is known to be hot, few lanes share a row and take turns of
 * it, because the search for a unit's rows takes as long as several loads; the chunks of a hot
 * one would wait for each turn.
 */
inline gather_shape
gather_shape_of(const gpo_call *call, int64_t across, int64_t units, int most)
{
    constexpr int64_t THREADS = 512; /* of an SM */
    constexpr int IN_TURNS = 8;      /* lanes */
    constexpr int64_t MANY = 4;      /* times as many as SMs have threads */
    const int64_t all = index_add_plan_of(call)->outer * units;
    const int64_t full = gpo_processors(call) * THREADS;
    int lanes = 1;
    while (lanes < WARP && lanes * most < across) {
        lanes *= 2;
    }
    const bool several = most > 1 && across > WARP / 2 && all * lanes >= full;
    const bool in_turns =
        several && all * IN_TURNS >= MANY * full && index_add_most(call) <= HOT;
    while (!several && lanes < WARP && lanes < across) {
        lanes *= 2;
    }
    lanes = in_turns && lanes > IN_TURNS ? IN_TURNS : lanes;
    const int64_t tiles = in_turns ? 1 : ceil_div(across, lanes * (several ? most : 1));
    return {lanes, tiles, grid_for(all * tiles * lanes), several};
}

#endif
