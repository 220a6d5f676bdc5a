/*
 * lookback.cuh  The tiles of a row in a fixed order of combination.
 *
 * FAN tiles form a group, FAN groups a supergroup.  A tile combines the totals of the
 * tiles before it in its group, those of the groups before it in its supergroup, and all
 * that comes before its supergroup, in this order whatever came first: the bits are the
 * same in every run.  The last tile of a group publishes the group's total, the last of
 * a supergroup what comes before the next.
 * Not here: who publishes and waits when (ladder/v3_single_pass.cuh and on).
 */
#ifndef GPO_SCAN_LOOKBACK_CUH
#define GPO_SCAN_LOOKBACK_CUH

#include "status.cuh"

/* Where tile t of a row publishes, and what comes before it. */
template <typename Op>
struct lookback_place {
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;

    uint64_t *tile, *group; /* the first of its group, of its supergroup */
    uint64_t *supergroup;
    int in_group, in_supergroup;
    bool has_supergroup, has_next; /* a supergroup before, behind */

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

/* What a warp has read of the tiles, groups and supergroups before a tile. */
template <typename Op>
struct lookback_values {
    status_value<typename Op::Acc> tile;
    status_value<typename Op::Part> group, supergroup;
};

/* Reads all that may be there already, without a wait. */
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

/* The tiles before in the group, in every lane. */
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

/* What comes before the group; `v` is the lane's group before it in the supergroup. */
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

/* The same where every group is waited for. */
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

/* Cleared words for rows of `across` tiles. */
template <typename Op>
gpo_status
make_row_status(gpo_call *call, int64_t rows, int64_t across, scan_status *status)
{
    constexpr int64_t ACC = WORDS<typename Op::Acc>, PART = WORDS<typename Op::Part>;
    const int64_t groups = ceil_div(across, FAN), supergroups = ceil_div(groups, FAN);
    return make_status(call, rows * across * ACC, rows * groups * PART,
                       rows * supergroups * PART, status);
}

#endif
