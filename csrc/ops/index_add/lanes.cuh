/*
 * lanes.cuh  Lanes of a warp whose elements go to one place: one of them sends their sum.
 */
#ifndef GPO_INDEX_ADD_LANES_CUH
#define GPO_INDEX_ADD_LANES_CUH

#include "index_add.cuh"

/*
 * The lowest lane of each key gets the sum of all lanes with it, in pairs; whether this is
 * that lane.  All lanes of a warp call it.
 */
template <typename Key, typename Sum>
__device__ __forceinline__ bool
index_add_joined(Key key, Sum *sum)
{
    const unsigned mine = 1u << (threadIdx.x % WARP);
    const unsigned peers = __match_any_sync(ALL_LANES, key);
    unsigned before = static_cast<unsigned>(__popc(peers & (mine - 1)));
    unsigned after = peers & ~(2 * mine - 1);
    const bool leads = before == 0;
    while (__any_sync(ALL_LANES, after != 0)) {
        const int from = after != 0 ? __ffs(static_cast<int>(after)) - 1 : 0;
        const Sum other = shuffle_from(*sum, from);
        if (after != 0) {
            *sum += other;
        }
        after &= __ballot_sync(ALL_LANES, before % 2 == 0);
        before /= 2;
    }
    return leads;
}

#endif
