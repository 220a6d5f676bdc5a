/*
 * v2  The aligned neighbour.
 * Was:   v1 needs a pair of its own for one result.
 * Now:   fast_atomic_add turns the addition of one half into a packed one on the
 *        aligned pair around it; the neighbour gets -0.0.  It works on any array of
 *        halves.
 * Cost:  one more addition per thread, one packed atomic.  A result of one element has
 *        no neighbour, and the pair around it may be someone else's memory, so it goes
 *        through a pair of scratch memory.  (The source passes the input's length and
 *        writes past the result.)
 * Left:  every addition rounds to 11 bits, sums overflow at 65504, and the order of the
 *        atomics changes the result -> v3.
 */
#ifndef GPO_DOT_V2_NEIGHBOUR_CUH
#define GPO_DOT_V2_NEIGHBOUR_CUH

#include "v1_pairs.cuh"

template <typename Half, bool PACKED>
__global__ void
__launch_bounds__(BLOCK) dot_v2_neighbour(dot_view<Half> a, Half *sum)
{
    const typename half_pair<Half>::type mine = sum_pairs<Half, PACKED>(a);
    fast_atomic_add(sum, 0, 2, add_halves(mine));
}

template <typename Half>
static gpo_status
dot_v2(gpo_call *call)
{
    return in_a_pair<Half>(
        call, [=](unsigned grid, bool packed, const auto &a, auto *pair) {
            Half *sum = reinterpret_cast<Half *>(pair);
            return packed ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v2_neighbour<Half, true>), a, sum)
                          : GPO_LAUNCH(call, grid, BLOCK, 0,
                                       (dot_v2_neighbour<Half, false>), a, sum);
        });
}

#endif
