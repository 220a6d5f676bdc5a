/*
 * staging.cuh  Moves rows and filters through shared memory and registers: pieces of
 * rows, packs of 16 bytes, rows for 32 lanes.
 * See rows.cuh for views.
 */
#ifndef GPO_CAUSAL_CONV1D_STAGING_CUH
#define GPO_CAUSAL_CONV1D_STAGING_CUH

#include "rows.cuh"

/* Element u of a row of `steps`, 0 outside. */
template <typename T>
__device__ __forceinline__ value_type<T>
step_or_zero(const T *row, int64_t stride, int64_t u, int64_t steps)
{
    return u >= 0 && u < steps ? value_of(row[u * stride]) : value_type<T>(0);
}

/* to[i] = step first + i of a row, for i in [0, n), by all BLOCK threads. */
template <int BLOCK, typename T>
__device__ __forceinline__ void
stage_row(value_type<T> *to, const T *row, int64_t stride, int64_t first, int n,
          int64_t steps)
{
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        to[i] = step_or_zero(row, stride, first + i, steps);
    }
}

/* to[i] = lag first + i of channel c's filter, for i in [0, n). */
template <int BLOCK, typename T>
__device__ __forceinline__ void
stage_lags(value_type<T> *to, const conv_view<T> &v, int64_t c, int64_t first, int n)
{
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const int64_t s = first + i;
        to[i] = s >= 0 && s < v.lags ? v.w_at(c, s) : value_type<T>(0);
    }
}

/* 16 bytes of shared memory; p is aligned to them. */
template <typename V>
__device__ __forceinline__ pack<V>
shared_pack(const V *p)
{
    return *reinterpret_cast<const pack<V> *>(p);
}

/* N values from a 16-byte boundary of shared memory. */
template <int N, typename V>
__device__ __forceinline__ void
shared_values(V *to, const V *from)
{
    static_assert(N % pack<V>::SIZE == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < N; i += pack<V>::SIZE) {
        const pack<V> p = shared_pack(from + i);
#pragma unroll
        for (int k = 0; k < pack<V>::SIZE; k++) {
            to[i + k] = p.v[k];
        }
    }
}

/* N values from column `at` on, 8 at a time, out of a ring buffer of RING columns. */
template <int N, int RING, typename V>
__device__ __forceinline__ void
ring_values(V *to, const V *row, int at)
{
    static_assert((RING & (RING - 1)) == 0, "a power of two");
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        shared_values<8>(to + i, row + ((at + i) & (RING - 1)));
    }
}

/* Whether all rows consist of aligned 16-byte packs, forwards or backwards. */
template <typename T>
bool
packs_are_even(const row_view<T> &rows, int64_t steps)
{
    constexpr int64_t SIZE = pack<std::remove_const_t<T>>::SIZE;
    const uintptr_t first =
        reinterpret_cast<uintptr_t>(rows.t < 0 ? rows.p - (SIZE - 1) : rows.p);
    return (rows.t == 1 || rows.t == -1) && first % 16 == 0 && rows.b % SIZE == 0 &&
           rows.c % SIZE == 0 && steps % SIZE == 0;
}

/* The pack of such a row that begins at step u; zeros outside the row. */
template <typename T>
__device__ __forceinline__ pack<T>
even_pack(const T *row, bool backwards, int64_t u, int64_t steps)
{
    constexpr int SIZE = pack<T>::SIZE;
    pack<T> p = pack_of<T>(uint4{0, 0, 0, 0});
    if (u >= 0 && u < steps) {
        if (backwards) {
            const pack<T> turned = load_pack(row - u - (SIZE - 1));
#pragma unroll
            for (int k = 0; k < SIZE; k++) {
                p.v[k] = turned.v[SIZE - 1 - k];
            }
        }
        else {
            p = load_pack(row + u);
        }
    }
    return p;
}

/* SIZE steps of a row from u on; `even` rows in one pack. */
template <typename T>
__device__ __forceinline__ void
load_steps(T *to, const T *row, int64_t stride, int64_t u, int64_t steps, bool even)
{
    constexpr int SIZE = pack<T>::SIZE;
    if (even) {
        const pack<T> p = even_pack(row, stride < 0, u, steps);
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            to[k] = p.v[k];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        to[k] = stored_as<T>(value_type<T>(0));
        if (u + k >= 0 && u + k < steps) {
            to[k] = row[(u + k) * stride];
        }
    }
}

/* N elements as values, to a 16-byte boundary of shared memory. */
template <int N, typename T, typename V>
__device__ __forceinline__ void
store_values(V *to, const T *from)
{
    constexpr int SIZE = pack<V>::SIZE;
    static_assert(N % SIZE == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < N; i += SIZE) {
        pack<V> p;
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            p.v[k] = value_of(from[i + k]);
        }
        *reinterpret_cast<pack<V> *>(to + i) = p;
    }
}

/*
 * N values of a row, and 16 bytes of padding: 8 lanes that read 16 bytes of 8 rows use
 * all banks once.
 */
template <typename V, int N>
struct row_stage {
    alignas(16) V v[N + 16 / sizeof(V)];
};

/*
 * COLUMNS steps of 32 rows, by BLOCK threads: column (at + i) % ring of row r gets step
 * first[r] + u + i.  `ring` is a power of two.
 */
template <int BLOCK, int COLUMNS, typename Stage, typename T>
__device__ __forceinline__ void
stage_rows(Stage &stage, const row_view<const T> &rows, const int64_t *offset,
           const int64_t *first, int64_t u, int at, int ring, int64_t steps, bool even)
{
    constexpr int SIZE = pack<T>::SIZE, PACKS = COLUMNS / SIZE;
    constexpr int TURNS = WARP * PACKS / BLOCK;
    static_assert(WARP * PACKS % BLOCK == 0, "every thread stages as much");
    T held[TURNS][SIZE];
#pragma unroll
    for (int k = 0; k < TURNS; k++) {
        const int i = k * BLOCK + static_cast<int>(threadIdx.x), r = i / PACKS;
        load_steps(held[k], rows.p + offset[r], rows.t, first[r] + u + i % PACKS * SIZE,
                   steps, even);
    }
#pragma unroll
    for (int k = 0; k < TURNS; k++) {
        const int i = k * BLOCK + static_cast<int>(threadIdx.x), r = i / PACKS;
        const int column = (at + i % PACKS * SIZE) & (ring - 1);
        store_values<SIZE>(stage[r].v + column, held[k]);
    }
}

#endif
