/*
 * neighbours.cuh  Lanes that are to add to the place of the lane before (v1): sorted and
 * hot indices have many, and their atomics would wait for each other.
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

#endif
