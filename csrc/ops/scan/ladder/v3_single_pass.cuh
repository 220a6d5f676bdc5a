/*
 * v3  Single pass: tiles look back.
 * Was:   v2 reads x twice, in three launches.
 * Now:   a tile stays in registers while a look-back computes its prefix from what the
 *        tiles before it have published, in a grouping with a fixed association
 *        (lookback.cuh).  16-byte loads and stores.  A row of one tile does not wait.
 * Cost:  reads x once, writes out once: 8 bytes per 4-byte element; 8 bytes of status
 *        per tile, cleared before if there are many.  A view not in the order of out is copied first.
 * Left:  a waiting block holds its tile in registers, so few tiles are in flight -> v4.
 *        A row of a few elements takes a whole tile: shapes/short_rows.cu.  Columns run
 *        v2, which walks them one by one: shapes/columns.cu.
 */
#ifndef GPO_SCAN_V3_SINGLE_PASS_CUH
#define GPO_SCAN_V3_SINGLE_PASS_CUH

#include "../lookback.cuh"
#include "../prepare.cuh"
#include "../rows.cuh"
#include "v2_warp_shuffles.cuh"

/* Publishes a tile's total; the last tile of a group or supergroup publishes for it. */
template <typename Op>
__device__ __forceinline__ void
publish_tile(const lookback_place<Op> &place, typename Op::Acc total)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::PartFold;
    const int lane = threadIdx.x % WARP;
    if (lane == 0) {
        publish(place.tile + place.in_group * WORDS<Acc>, 1, total);
    }
    if (place.in_group < FAN - 1) {
        return;
    }
    const lookback_values<Op> seen = peek_back(place);
    const Part group = Fold::combine(sum_of_tiles(place, seen), Op::widen(total));
    if (lane == 0) {
        publish(place.group + place.in_supergroup * WORDS<Part>, 1, group);
    }
    if (place.in_supergroup == FAN - 1 && place.has_next) {
        const Part all = Fold::combine(sum_before_group(place, seen), group);
        if (lane == 0) {
            publish(place.supergroup + WORDS<Part>, 1, all);
        }
    }
}

/* The prefix of a tile, computed by one warp; `seen` is what it has read so far. */
template <typename Op>
__device__ __forceinline__ typename Op::Part
look_back(const lookback_place<Op> &place, const lookback_values<Op> &seen)
{
    const typename Op::Part near = sum_of_tiles(place, seen);
    return Op::PartFold::combine(sum_before_group(place, seen), near);
}

/* A block scans one tile of a row; rows of one tile need no tickets and no waits. */
template <typename Op>
__global__ void
__launch_bounds__(THREADS, row_blocks<Op>)
    scan_v3_single_pass(Op op, scan_view<typename Op::Out> a, int64_t across,
                        int64_t first, scan_status status)
{
    using Acc = typename Op::Acc;
    using Run = stretch<typename Op::Fold, Acc, false>;
    GPO_SHARED(Run, slots, [WARPS]);
    GPO_SHARED(Acc, carried, [1]);
    GPO_SHARED(unsigned, ticket, [1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool waits = across > 1;
    const int64_t id = waits ? take_tile(status.next, ticket) : first + blockIdx.x;
    const tile_place p = place_of<Op, false, PACKS>(op, a, across, 1, id);

    pack<typename Op::Raw> raw[PACKS];
    load_packs(op, a, p, raw);
    const auto read = [&](int j) -> const pack<typename Op::Raw> & { return raw[j]; };
    Run before[PACKS];
    const Run sum = scan_packs<Op, false>(op, a, p, read, before);
    if (lane == 0) {
        slots[warp] = sum;
    }
    __syncthreads();
    Run total;
    Run prefix = sum_before_warp(slots, &total);
    if (waits) {
        if (warp == 0) {
            const lookback_place<Op> place(status, p.row, across, p.t);
            publish_tile(place, total.v);
            const typename Op::Part all = look_back(place, peek_back(place));
            if (lane == 0) {
                carried[0] = Op::narrow(all);
            }
        }
        __syncthreads();
        if (warp == 0) {
            leave_status_by_warp(status, a.rows * across);
        }
        prefix.v = Op::Fold::combine(carried[0], prefix.v);
    }
    store_packs<Op, false>(op, a, p, read, before, prefix);
}

struct scan_v3 {
    template <typename Op>
    static gpo_status rows(gpo_call *call, const scan_view<typename Op::Out> &a,
                           const Op &op)
    {
        const int64_t across = tiles_across<Op>(a, TILE<Op>), tiles = a.rows * across;
        scan_status status = {};
        gpo_status failed =
            across > 1 ? make_row_status<Op>(call, a.rows, across, true, &status)
                       : GPO_OK;
        for (int64_t first = 0; !failed && first < tiles; first += MAX_GRID_X) {
            failed =
                GPO_LAUNCH(call, grid_of(tiles - first), THREADS, 0,
                           (scan_v3_single_pass<Op>), op, a, across, first, status);
        }
        return failed;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return has_columns(call) ? scan_v2::run(call, op)
                                 : for_each_row_view<scan_v3>(call, op);
    }
};

#endif
