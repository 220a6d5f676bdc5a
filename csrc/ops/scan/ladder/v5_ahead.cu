/*
 * v5  Totals are computed ahead of the tiles.
 * Was:   a tile's total is known once the tile has arrived, so every tile waits for the
 *        slowest copy before it: 0.13 of 0.73 ms (2^28 float32 on an H200).
 * Now:   a block adds up the tile a quarter of L2 ahead, and scans its own tile, whose
 *        total, like all those before it, other blocks published long ago.  It reads
 *        its own tile a second time, from L2: the first read is evict-last, the second
 *        evict-first.  No tile waits, so four tiles per SM are enough.
 * Cost:  8 bytes of memory and 4 of L2 per 4-byte element; the grid is longer by the
 *        tiles ahead, and the blocks at its ends have half the work.
 * Left:  rows and arrays of a few MB, where v4 is faster; rows of one tile,
 *        products of short integers and columns run v3.
 */
#include "../parked.cuh"
#include "v3_single_pass.cuh"

/* The sum of the thread's packs of a tile, read with an L2 eviction policy. */
template <typename Op>
__device__ __forceinline__ typename Op::Acc
sum_of_packs(const Op &op, const scan_view<typename Op::Out> &a, const tile_place &p,
             uint64_t policy)
{
    using Raw = typename Op::Raw;
    using Acc = typename Op::Acc;
    constexpr int VEC = Op::VEC;
    const bool back = a.stride < 0;
    const Raw *const x = static_cast<const Raw *>(a.x) + p.at.x;
    const auto is_whole = [&](int64_t f) {
        return p.packed && f >= 0 && f + VEC <= p.n;
    };
    const auto load = [&](int64_t f) {
        return load_pack(x + (back ? -f - (VEC - 1) : f), policy);
    };
    const auto add = [&](Acc sum, const pack<Raw> &raw) {
#pragma unroll
        for (int i = 0; i < VEC; i++) {
            sum = Op::Fold::combine(sum, op.lift(raw.v[i]));
        }
        return sum;
    };
    Acc sum = Op::Fold::identity();
    if (is_whole(p.begin) && is_whole(p.begin + (PARKED - 1) * (WARP * VEC))) {
        pack<Raw> raw[PARKED];
#pragma unroll
        for (int j = 0; j < PARKED; j++) {
            raw[j] = load(p.begin + j * (WARP * VEC));
        }
#pragma unroll
        for (int j = 0; j < PARKED; j++) {
            sum = add(sum, raw[j]);
        }
        return sum;
    }
#pragma unroll 1
    for (int j = 0; j < PARKED; j++) {
        const int64_t f = p.begin + j * (WARP * VEC);
        pack<Raw> raw;
        if (is_whole(f)) {
            raw = load(f);
        }
        else {
            load_elements(op, a, p, f, raw.v);
        }
        sum = add(sum, raw);
    }
    return sum;
}

/* Blocks per SM; of narrow elements a thread has up to 16 wide sums. */
template <typename Op>
constexpr int ahead_blocks = IS_COMPLEX<typename Op::Raw> || IS_SPREAD<Op> ? 3 : 4;

template <typename Op>
__global__ void
__launch_bounds__(THREADS, ahead_blocks<Op>)
    scan_v5_ahead(Op op, scan_view<typename Op::Out> a, int64_t across, int64_t tiles,
                  int64_t ahead, scan_status status)
{
    using Tile = parked_tile<Op>;
    using Run = stretch<typename Op::Fold, typename Op::Acc, false>;
    GPO_DYN_SHARED(pack<typename Op::Raw>, parked);
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(Run, totals, [WARPS]);
    GPO_SHARED(typename Op::Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    GPO_SHARED(uint64_t, arrival, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    if (threadIdx.x == 0) {
        start_arrival(arrival);
    }
    const int64_t next = take_tile(status.next, ticket), id = next - ahead;
    Tile tile = {};
    if (id >= 0) {
        tile.start(op, a, across, id, parked, arrival, l2_evict_first());
    }

    if (next < tiles) {
        const tile_place p = place_of<Op, false, PARKED>(op, a, across, 1, next);
        const Run sum = warp_scan<Run>(Run{sum_of_packs(op, a, p, l2_evict_last())});
        if (lane == WARP - 1) {
            totals[warp] = sum;
        }
        __syncthreads();
        if (warp == 0) {
            Run total;
            sum_before_warp(totals, &total);
            publish_tile(lookback_place<Op>(status, p.row, across, p.t), total.v);
        }
    }
    if (id < 0) {
        return;
    }

    if (warp == WARPS - 1) {
        const lookback_place<Op> place(status, tile.place.row, across, tile.place.t);
        const typename Op::Part all = look_back(place, peek_back(place));
        if (lane == 0) {
            carried[0] = Op::narrow(all);
        }
    }
    await_arrival(arrival);
    Run before[PARKED];
    const Run sum = scan_packs<Op, false>(op, a, tile.place, tile, before);
    if (lane == 0) {
        slots[warp] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    prefix.v = Op::Fold::combine(carried[0], prefix.v);
    store_packs<Op, false>(op, a, tile.place, tile, before, prefix);
}

struct ahead {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        const int64_t across = tiles_across<Op>(a, PARKED_TILE<Op>);
        const int64_t tiles = a.rows * across;
        const int64_t share = gpo_l2_bytes(call) / AHEAD_OF_L2 / PARKED_BYTES;
        const int64_t ahead = share < tiles ? share : tiles;
        scan_status status = {};
        gpo_status failed = make_row_status<Op>(call, a.rows, across, false, &status);
        gpo_allow_shared(scan_v5_ahead<Op>, PARKED_BYTES);
        for (int64_t left = tiles + ahead; !failed && left > 0; left -= MAX_GRID_X) {
            failed =
                GPO_LAUNCH(call, grid_of(left), THREADS, PARKED_BYTES,
                           (scan_v5_ahead<Op>), op, a, across, tiles, ahead, status);
        }
        return failed;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        if constexpr (Op::AS_READ) {
            return for_each_row_view<ahead>(call, op);
        }
        else {
            return gpo_fail(&call->error, GPO_ETYPE, "scan() keeps no such element");
        }
    }
};

/* Only for calls where has_many_tiles is true. */
template <typename T>
gpo_status
scan_v5(gpo_call *call)
{
    return scan_with<ahead, T, true>(call);
}

#define INSTANTIATE(T) template gpo_status scan_v5<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
