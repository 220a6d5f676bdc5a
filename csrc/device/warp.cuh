/*
 * warp.cuh  Shuffles between the lanes of a warp, for any type of whole 32-bit words or
 * less; sums of the lanes that have one key.
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

/* ---- lanes of one key ---- */

/*
 * The lowest lane of `peers`, the lanes of one key, gets their sum, in pairs: in each round
 * the lanes that are left to a key are added to the ones before.  All lanes of a warp call
 * it, and the order of additions follows from the lanes alone.
 */
template <typename Sum>
__device__ __forceinline__ void
add_up(unsigned peers, Sum *sum)
{
    const unsigned mine = 1u << (threadIdx.x % WARP);
    unsigned before = static_cast<unsigned>(__popc(peers & (mine - 1)));
    unsigned after = peers & ~(2 * mine - 1);
    while (__any_sync(ALL_LANES, after != 0)) {
        const int from = after != 0 ? __ffs(static_cast<int>(after)) - 1 : 0;
        const Sum other = shuffle_from(*sum, from);
        if (after != 0) {
            *sum = *sum + other;
        }
        after &= __ballot_sync(ALL_LANES, before % 2 == 0);
        before /= 2;
    }
}

/* The lowest lane of each key gets the sum of all lanes with it; whether this is that lane.
   All lanes of a warp call it. */
template <typename Key, typename Sum>
__device__ __forceinline__ bool
add_up_key(Key key, Sum *sum)
{
    const unsigned before = (1u << (threadIdx.x % WARP)) - 1;
    const unsigned peers = __match_any_sync(ALL_LANES, key);
    add_up(peers, sum);
    return (peers & before) == 0;
}

#endif
