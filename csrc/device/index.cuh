/*
 * index.cuh  Out-of-bounds indices on the device, and how the host learns of them.
 */
#ifndef GPO_INDEX_CUH
#define GPO_INDEX_CUH

#include "../core/index.h"
#include "launch.cuh"

constexpr unsigned long long NONE_BAD = ~0ull; /* no index was out of bounds */

/* Writes the word of gpo_question. */
__device__ __forceinline__ void
tell_host(uint64_t *word, uint64_t answer)
{
#ifdef __CUDACC__
    *static_cast<volatile uint64_t *>(word) = answer;
#else
    *word = answer;
#endif
}

/* gpo_index_place of the index at position i; if it is -1, *bad = min(*bad, i). */
__device__ __forceinline__ int64_t
place_or_note(int64_t index, int64_t i, int64_t length, gpo_index_mode mode,
              bool is_unsigned, unsigned long long *bad)
{
    if (mode != GPO_INDEX_RAISE) {
        return gpo_index_place(index, length, mode, is_unsigned);
    }
    const int64_t place = gpo_index_place(index, length, GPO_INDEX_RAISE, is_unsigned);
    if (place < 0 && bad != nullptr) {
        atomicMin(bad, static_cast<unsigned long long>(i));
    }
    return place;
}

/* The same, not inlined: else the divisions of 'wrap' are repeated at every load. */
static __device__ __noinline__ int64_t
place_outside(int64_t index, int64_t i, int64_t length, gpo_index_mode mode,
              bool is_unsigned, unsigned long long *bad)
{
    return place_or_note(index, i, length, mode, is_unsigned, bad);
}

#endif
