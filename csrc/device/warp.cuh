/*
 * warp.cuh  Shuffles between the lanes of a warp, for any type of whole 32-bit words or
 * less.
 */
#ifndef GPO_WARP_CUH
#define GPO_WARP_CUH

#include "types.cuh"

enum { WARP = 32 };

constexpr unsigned ALL_LANES = 0xffffffffu;

/* `move` applied to each 32-bit word of v. */
template <typename T, typename Move>
__device__ __forceinline__ T
moved_by_words(T v, Move move)
{
    constexpr unsigned WORDS = (sizeof(T) + 3) / 4;
    static_assert(sizeof(T) < 4 || sizeof(T) % 4 == 0, "whole 32-bit words");
    unsigned words[WORDS] = {};
    memcpy(words, static_cast<const void *>(&v), sizeof(T));
#pragma unroll
    for (unsigned k = 0; k < WORDS; k++) {
        words[k] = move(words[k]);
    }
    memcpy(static_cast<void *>(&v), words, sizeof(T));
    return v;
}

/* The value of lane `lane + d`, for a group of `width` lanes (a power of two). */
template <typename T>
__device__ __forceinline__ T
shuffle_down(T v, int d, int width = WARP)
{
    return moved_by_words(
        v, [&](unsigned word) { return __shfl_down_sync(ALL_LANES, word, d, width); });
}

/* The value of lane `lane - d`; the lane's own value where there is no such lane. */
template <typename T>
__device__ __forceinline__ T
shuffle_up(T v, int d)
{
    return moved_by_words(
        v, [&](unsigned word) { return __shfl_up_sync(ALL_LANES, word, d); });
}

/* The value of one lane. */
template <typename T>
__device__ __forceinline__ T
shuffle_from(T v, int lane)
{
    return moved_by_words(
        v, [&](unsigned word) { return __shfl_sync(ALL_LANES, word, lane); });
}

#endif
