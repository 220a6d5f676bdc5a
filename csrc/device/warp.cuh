/*
 * warp.cuh  Values moved between the lanes of a warp, for any type of whole 32-bit
 * words or less.
 */
#ifndef GPO_WARP_CUH
#define GPO_WARP_CUH

#include "types.cuh"

enum { WARP = 32 };

constexpr unsigned ALL_LANES = 0xffffffffu;

/* The value of lane `lane + d`, for a group of `width` lanes (a power of two). */
template <typename T>
__device__ __forceinline__ T
shuffle_down(T v, int d, int width = WARP)
{
    if constexpr (sizeof(T) < 4) {
        unsigned word = 0;
        memcpy(&word, &v, sizeof(T));
        word = __shfl_down_sync(ALL_LANES, word, d, width);
        memcpy(&v, &word, sizeof(T));
        return v;
    }
    else {
        static_assert(sizeof(T) % 4 == 0, "shuffled types are whole 32-bit words");
        unsigned words[sizeof(T) / 4];
        memcpy(words, &v, sizeof(T));
#pragma unroll
        for (unsigned k = 0; k < sizeof(T) / 4; k++) {
            words[k] = __shfl_down_sync(ALL_LANES, words[k], d, width);
        }
        memcpy(&v, words, sizeof(T));
        return v;
    }
}

#endif
