/*
 * neighbours.cuh  Lanes that are to add to one place: sorted and hot indices have many, and
 * their atomics would wait for each other.
 */
#ifndef GPO_SCATTER_ADD_NEIGHBOURS_CUH
#define GPO_SCATTER_ADD_NEIGHBOURS_CUH

#include "input.cuh"

template <typename Sum>
struct place_and_sum {
    int64_t at;
    Sum sum;
};

/*
 * Where half of the lanes and more have the place of the lane before, the first lane of
 * each such run gets its sum.  Whether this lane's is to be added.  complex128: always,
 * there are no registers left.
 */
template <typename Sum>
__device__ __forceinline__ bool
joined(place_and_sum<Sum> *mine)
{
    const int lane = threadIdx.x % WARP;
    if constexpr (sizeof(Sum) > sizeof(double)) {
        return true;
    }
    const bool is_first = shuffle_up(mine->at, 1) != mine->at || lane == 0;
    const unsigned firsts = __ballot_sync(ALL_LANES, is_first);
    if (__popc(firsts) > WARP / 2) {
        return true;
    }
    const unsigned after = firsts >> lane >> 1;
    const int rest = after != 0 ? __ffs(static_cast<int>(after)) : WARP - lane;
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) { /* lanes [lane, lane + rest) are of the run */
        const Sum right = shuffle_down(mine->sum, d);
        mine->sum = d < rest ? mine->sum + right : mine->sum;
    }
    return is_first;
}

/*
 * Adds to a sum in shared memory.  64-bit integers by halves, whose atomics are one
 * instruction each; the upper one is rare: a compare-and-swap loop is slow where places
 * are hot.
 */
template <typename Sum>
__device__ __forceinline__ void
add_to_table(Sum *at, Sum v)
{
    if constexpr (std::is_same_v<Sum, uint64_t>) {
        unsigned *const half = reinterpret_cast<unsigned *>(at);
        const unsigned low = static_cast<unsigned>(v);
        const unsigned before = atomicAdd(&half[0], low);
        const unsigned high =
            static_cast<unsigned>(v >> 32) + (before + low < low ? 1 : 0);
        if (high != 0) {
            atomicAdd(&half[1], high);
        }
    }
    else {
        atomic_add(at, v);
    }
}

/* Where a warp has fewer keys, adding up the lanes of each takes less than atomics. */
constexpr int WORTH_ADDING = 25;

/*
 * Where the lanes of a warp have few keys, the lowest lane of each gets the sum of all
 * lanes with it.  Whether this lane's is to be added; all lanes of a warp call it, those
 * that have no element with `is_element` false.  A match of 32 keys takes some 100 cycles,
 * so it is made only where two lanes side by side have one key.  `worth` keys are too many.
 */
template <typename Sum>
__device__ __forceinline__ bool
joined_anywhere(uint32_t key, bool is_element, Sum *sum, int worth = WORTH_ADDING)
{
    const unsigned lane = threadIdx.x % WARP, mine = 1u << lane;
    const bool repeats = shuffle_up(key, 1) == key && is_element && lane > 0;
    if (!__any_sync(ALL_LANES, repeats)) {
        return is_element;
    }
    const unsigned same = __match_any_sync(ALL_LANES, key);
    const unsigned peers = is_element ? same : mine;
    const bool leads = (peers & (mine - 1)) == 0;
    if (__popc(__ballot_sync(ALL_LANES, leads)) >= worth) {
        return is_element;
    }
    add_up(peers, sum);
    return is_element && leads;
}

#endif
