/*
 * register_rows.cuh  Rows of 64 bytes in shared memory, which threads take into registers
 * one after the other: v2's window, and that of v3 over terms that are added up.
 */
#ifndef GPO_CONVOLVE_REGISTER_ROWS_CUH
#define GPO_CONVOLVE_REGISTER_ROWS_CUH

#include "products.cuh"

/* The sums of a thread, and elements of a row of shared memory: 64 bytes. */
template <typename V>
constexpr int SUMS = 64 / sizeof(V);

/* A row and 16 bytes: eight lanes that read 16 bytes of eight rows meet all banks once. */
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
