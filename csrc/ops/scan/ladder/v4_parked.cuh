/*
 * v4  Tiles wait in shared memory.
 * Was:   a row of many tiles runs at half the speed of rows of one: a tile of v3 waits
 *        for 6 us of its 9, and waiting tiles fill the registers.
 * Now:   asynchronous bulk copies load tiles into shared memory, bypassing registers,
 *        where they wait: three times as many bytes are in flight.  A thread reads its
 *        packs twice, once for the tile's total and once for the results.  The block's
 *        warps add up the groups right before its tile, so it waits only for tiles.  A
 *        row of one such tile takes no ticket and publishes nothing.
 * Cost:  as v3 with half or a fourth of the status words; per 16 bytes of x, 16 bytes
 *        of shared memory are written once and read twice.
 * Left:  every tile waits for the slowest copy before it -> v5.  Rows of one tile,
 *        which do not wait, and products of short integers run v3; columns run v2.
 */
#ifndef GPO_SCAN_V4_PARKED_CUH
#define GPO_SCAN_V4_PARKED_CUH

#include "../parked.cuh"
#include "v3_single_pass.cuh"

/* A group's total, as its last tile publishes it, from its tiles' words; all lanes. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
sum_of_group(const uint64_t *tiles)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    const Part own = Op::widen(wait_for<Acc>(tiles + lane * WORDS<Acc>, 1));
    const Part v = warp_scan<Fold>(lane < FAN - 1 ? own : Fold::identity());
    return Fold::combine(shuffle_from(v, WARP - 1), shuffle_from(own, FAN - 1));
}

/*
 * Publishes a tile's total and returns its prefix, in thread 0.  The groups right
 * before it have rarely published theirs yet, so warps 1, 2, ... add up those groups'
 * tiles themselves, to the same bits, into `groups`.
 */
template <typename Op>
__device__ __forceinline__ typename Op::Part
publish_and_look_back(const lookback_place<Op> &place, typename Op::Acc total,
                      typename Op::Part (&groups)[WARPS])
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool is_last = place.in_group == FAN - 1;
    lookback_values<Op> seen = {};
    Part near = Fold::identity(), group = Fold::identity();
    if (warp == 0) {
        if (lane == 0) {
            publish(place.tile + place.in_group * WORDS<Acc>, 1, total);
        }
        seen = peek_back(place);
        near = sum_of_tiles(place, seen);
        group = Fold::combine(near, Op::widen(total));
        if (is_last && lane == 0) {
            publish(place.group + place.in_supergroup * WORDS<Part>, 1, group);
        }
    }
    else if (warp <= place.in_supergroup) {
        const Part sum = sum_of_group<Op>(place.tile - warp * FAN * WORDS<Acc>);
        if (lane == 0) {
            groups[warp] = sum;
        }
    }
    __syncthreads();
    Part before = Fold::identity();
    if (warp == 0) {
        const int back = place.in_supergroup - lane;
        if (back >= WARPS) {
            before = wait_for(seen.group, place.group + lane * WORDS<Part>, 1);
        }
        else if (back > 0) {
            before = groups[back];
        }
        before = sum_before_group(place, seen, before);
        if (is_last && place.in_supergroup == FAN - 1 && place.has_next && lane == 0) {
            publish(place.supergroup + WORDS<Part>, 1, Fold::combine(before, group));
        }
        before = Fold::combine(before, near);
    }
    return before;
}

/* Blocks per SM: shared memory has room for the tiles of six. */
template <typename Op>
constexpr int parked_blocks = IS_SPREAD<Op> ? 3
                              : IS_COMPLEX<typename Op::Raw> ||
                                      sizeof(typename Op::Out) >
                                          sizeof(typename Op::Raw)
                                  ? 4
                                  : 6;

template <typename Op>
__global__ void
__launch_bounds__(THREADS, parked_blocks<Op>)
    scan_v4_parked(Op op, scan_view<typename Op::Out> a, int64_t across, int64_t first,
                   scan_status status)
{
    using Tile = parked_tile<Op>;
    using Run = stretch<typename Op::Fold, typename Op::Acc, false>;
    GPO_DYN_SHARED(pack<typename Op::Raw>, parked);
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(typename Op::Part, groups, [WARPS]);
    GPO_SHARED(typename Op::Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    GPO_SHARED(bool, last, [1]);
    GPO_SHARED(uint64_t, arrival, [1]);
    if (threadIdx.x == 0) {
        start_arrival(arrival);
    }
    const bool waits = across > 1;
    int64_t id = first + blockIdx.x;
    if (waits) {
        id = take_tile(status.next, ticket);
    }
    else {
        __syncthreads(); /* `arrival` is started, as take_tile's barrier sees to */
    }
    Tile tile;
    tile.start(op, a, across, id, parked, arrival, l2_evict_first());
    await_arrival(arrival);

    Run before[PARKED];
    const Run sum = scan_packs<Op, false>(op, a, tile.place, tile, before);
    if (threadIdx.x % WARP == 0) {
        slots[threadIdx.x / WARP] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    if (waits) {
        const lookback_place<Op> place(status, tile.place.row, across, tile.place.t);
        const typename Op::Part all = publish_and_look_back(place, total.v, groups);
        if (threadIdx.x == 0) {
            carried[0] = Op::narrow(all);
        }
        __syncthreads();
        prefix.v = Op::Fold::combine(carried[0], prefix.v);
    }
    store_packs<Op, false>(op, a, tile.place, tile, before, prefix);
    leave_status(status, a.rows * across, last);
}

struct scan_v4 {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        const int64_t across = tiles_across<Op>(a, PARKED_TILE<Op>);
        const int64_t tiles = a.rows * across;
        scan_status status = {};
        gpo_status failed =
            across > 1 ? make_row_status<Op>(call, a.rows, across, true, &status)
                       : GPO_OK;
        gpo_allow_shared(scan_v4_parked<Op>, PARKED_BYTES);
        for (int64_t first = 0; !failed && first < tiles; first += MAX_GRID_X) {
            failed = GPO_LAUNCH(call, grid_of(tiles - first), THREADS, PARKED_BYTES,
                                (scan_v4_parked<Op>), op, a, across, first, status);
        }
        return failed;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        if constexpr (Op::AS_READ) {
            return for_each_row_view<scan_v4>(call, op);
        }
        else {
            return gpo_fail(&call->error, GPO_ETYPE, "scan() keeps no such element");
        }
    }
};

#endif
