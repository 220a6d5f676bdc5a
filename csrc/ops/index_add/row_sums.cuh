/*
 * row_sums.cuh  The sum of the source rows that a list names, several in flight: v4 and
 * unpacked_rows.
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

/* So many threads share the `across` packs of a row, at most a warp. */
inline int
lanes_for(int64_t across)
{
    int lanes = 1;
    while (lanes < WARP && lanes < across) {
        lanes *= 2;
    }
    return lanes;
}

#endif
