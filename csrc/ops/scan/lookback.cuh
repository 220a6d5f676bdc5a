/*
 * lookback.cuh  Look-back over the tiles of a row, combined in a fixed order.
 *
 * FAN tiles form a group, FAN groups a supergroup.  A tile combines the totals of the
 * tiles before it in its group, those of the groups before its group in the supergroup,
 * and the prefix of its supergroup, in a fixed order, independent of timing: the bits
 * are the same in every run.  The last tile of a group publishes the group's total, the
 * last of a supergroup the next one's prefix.  See ladder/v3_single_pass.cuh and on for
 * who publishes and waits when.
 */
#ifndef GPO_SCAN_LOOKBACK_CUH
#define GPO_SCAN_LOOKBACK_CUH

#include "status.cuh"

/* Where tile t of a row publishes, and where it reads its prefix. */
template <typename Op>
struct lookback_place {
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;

    uint64_t *tile, *group; /* the first of its group and of its supergroup */
    uint64_t *supergroup;
    int in_group, in_supergroup;
    bool has_supergroup, has_next; /* whether a supergroup comes before, after */

    __device__ __forceinline__ lookback_place(const scan_status &status, int64_t row,
                                              int64_t across, int64_t t)
    {
        const int64_t g = t / FAN, c = g / FAN;
        const int64_t groups = ceil_div(across, FAN),
                      supergroups = ceil_div(groups, FAN);
        tile = status.tile + (row * across + g * FAN) * WORDS<Acc>;
        group = status.group + (row * groups + c * FAN) * WORDS<Part>;
        supergroup = status.supergroup + (row * supergroups + c) * WORDS<Part>;
        in_group = static_cast<int>(t % FAN);
        in_supergroup = static_cast<int>(g % FAN);
        has_supergroup = c > 0;
        has_next = c + 1 < supergroups;
    }
};

/* The status a warp has read of the tiles, groups and supergroup before a tile. */
template <typename Op>
struct lookback_values {
    status_value<typename Op::Acc> tile;
    status_value<typename Op::Part> group, supergroup;
};

/* Reads all status that may be published already, without waiting. */
template <typename Op>
__device__ __forceinline__ lookback_values<Op>
peek_back(const lookback_place<Op> &place)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    const int lane = threadIdx.x % WARP;
    lookback_values<Op> seen = {};
    if (lane < place.in_group) {
        seen.tile = peek<Acc>(place.tile + lane * WORDS<Acc>, 1);
    }
    if (lane < place.in_supergroup) {
        seen.group = peek<Part>(place.group + lane * WORDS<Part>, 1);
    }
    if (place.has_supergroup) {
        seen.supergroup = peek<Part>(place.supergroup, 1);
    }
    return seen;
}

/* The total of the tiles before this one in its group, in every lane. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_of_tiles(const lookback_place<Op> &place, const lookback_values<Op> &seen)
{
    using Acc = typename Op::Acc;
    const int lane = threadIdx.x % WARP;
    typename Op::Part v = Op::PartFold::identity();
    if (lane < place.in_group) {
        v = Op::widen(wait_for(seen.tile, place.tile + lane * WORDS<Acc>, 1));
    }
    return shuffle_from(warp_scan<typename Op::PartFold>(v), WARP - 1);
}

/* The prefix of the group; `v` is the total of this lane's group in the supergroup. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_before_group(const lookback_place<Op> &place, const lookback_values<Op> &seen,
                 typename Op::Part v)
{
    using Fold = typename Op::PartFold;
    v = shuffle_from(warp_scan<Fold>(v), WARP - 1);
    const typename Op::Part old = place.has_supergroup
                                      ? wait_for(seen.supergroup, place.supergroup, 1)
                                      : Fold::identity();
    return Fold::combine(old, v);
}

/* The same, waiting for every group's total. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_before_group(const lookback_place<Op> &place, const lookback_values<Op> &seen)
{
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    Part v = Fold::identity();
    if (lane < place.in_supergroup) {
        v = wait_for(seen.group, place.group + lane * WORDS<Part>, 1);
    }
    return sum_before_group(place, seen, v);
}

/* Cleared status words for rows of `across` tiles; see make_status(). */
template <typename Op>
gpo_status
make_row_status(gpo_call *call, int64_t rows, int64_t across, bool left_cleared,
                scan_status *status)
{
    constexpr int64_t ACC = WORDS<typename Op::Acc>, PART = WORDS<typename Op::Part>;
    const int64_t groups = ceil_div(across, FAN), supergroups = ceil_div(groups, FAN);
    return make_status(call, rows * across * ACC, rows * groups * PART,
                       rows * supergroups * PART, left_cleared, status);
}

#endif
