/*
 * earlier_chunk.cuh  Chunks of channels of the steps before a row, from a state.
 */
#ifndef GPO_CAUSAL_CONV1D_EARLIER_CHUNK_CUH
#define GPO_CAUSAL_CONV1D_EARLIER_CHUNK_CUH

#include "short_filters.cuh"

/* W neighbouring channels of a step before 0; of a state they may be anywhere. */
template <int W, typename T>
__device__ __forceinline__ chunk<T, W>
earlier_chunk(const earlier_steps &state, int64_t b, int64_t c, int64_t step)
{
    const T *const first = state.before<T>(b, c) + step * state.t;
    if (state.c == 1 && reinterpret_cast<uintptr_t>(first) % (W * sizeof(T)) == 0) {
        return load_chunk<W>(first);
    }
    T elements[W];
#pragma unroll
    for (int i = 0; i < W; i++) {
        elements[i] = first[i * state.c];
    }
    chunk<T, W> bits;
    memcpy(static_cast<void *>(&bits), static_cast<const void *>(elements),
           sizeof(bits));
    return bits;
}

#endif
