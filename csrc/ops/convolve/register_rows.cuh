/*
 * register_rows.cuh  Rows of 64 bytes in shared memory, which threads load into
 * registers one at a time: for the window of v2, and of v3 where it adds up terms
 * directly.
 */
#ifndef GPO_CONVOLVE_REGISTER_ROWS_CUH
#define GPO_CONVOLVE_REGISTER_ROWS_CUH

#include "products.cuh"

/* Sums per thread, and elements per row of shared memory: 64 bytes. */
template <typename V>
constexpr int SUMS = 64 / sizeof(V);

/* A row and 16 bytes of padding: 16-byte loads of eight rows use all banks once. */
template <typename V>
constexpr int PITCH = 80 / sizeof(V);

template <typename V>
__device__ __forceinline__ void
load_row(V (&to)[SUMS<V>], const V *from)
{
    constexpr int SIZE = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < SUMS<V> / SIZE; q++) {
        const pack<V> p = *reinterpret_cast<const pack<V> *>(from + q * SIZE);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            to[q * SIZE + u] = p.v[u];
        }
    }
}

template <typename V>
__device__ __forceinline__ int
place_of(int x)
{
    return x / SUMS<V> * PITCH<V> + x % SUMS<V>;
}

#endif
