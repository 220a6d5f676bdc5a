/*
 * v3  Atomic-free.
 * Was:   v2 combines elements by atomics, though the bits of their indices already tell
 *        which of them are added together.
 * Now:   an index is [high bits][5 lane bits][bits of a 16-byte pack].  Kept high bits
 *        number tiles, each the work of a team of warps; reduced high bits are a loop
 *        with 8 loads in flight; reduced bits of a pack are summed in registers,
 *        reduced lane bits by xor shuffles.  Where tiles are few, a team is a block and
 *        the loop is split over blocks, whose partial sums the last block adds in a
 *        fixed order.
 * Cost:  reads 2^n elements once, a warp 512 bytes at a time; one launch.
 * Left:  x that is not contiguous or not aligned to 16 bytes is read element by
 *        element.  A tile of fewer than 8 loads does not fill one iteration: such calls
 *        run short_loops (shapes/), since earlier rungs add by atomics, in no fixed
 *        order.
 */
#ifndef GPO_PARTITION_REDUCE_V3_NO_ATOMICS_CUH
#define GPO_PARTITION_REDUCE_V3_NO_ATOMICS_CUH

#include "../tiles.cuh"

/* Blocks per SM: packs of 8 elements take more registers. */
template <typename Term, bool PACKED>
constexpr int RESIDENT_BLOCKS = PACKED && sizeof(typename Term::T) == 2
                                    ? BLOCKS_PER_SM - 1
                                    : BLOCKS_PER_SM;

/* A team of warps per tile and split. */
template <typename Term, bool PACKED>
__global__ void
__launch_bounds__(BLOCK, (RESIDENT_BLOCKS<Term, PACKED>))
    partition_reduce_v3_no_atomics(partition_call<Term> p)
{
    using T = typename Term::T;
    using Part = part_of<typename Term::Acc>;
    const partition_tiles &t = p.tiles;
    constexpr int VEC = PACKED ? pack<T>::SIZE : 1;
    GPO_SHARED(Part, slots, [WARPS][VEC][WARP]);
    GPO_SHARED(bool, last, [1]);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t unit = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
    const int member = static_cast<int>(unit & (t.team - 1));
    const int64_t rest = unit / t.team;
    const int64_t split = rest >> t.tile_bits;
    const int64_t tile = rest & ((static_cast<int64_t>(1) << t.tile_bits) - 1);
    const bool active = unit < t.units && static_cast<int>(lane) < t.lanes;
    int rank;
    const int64_t o =
        moved(t.to_output, tile) | lane_output(t.lane_to, t.reduced_lanes, lane, &rank);
    const T *base = p.x.x + p.x.place(moved(t.to_index, tile) |
                                      static_cast<int64_t>(lane) << t.pack_bits);
    const uint64_t policy = l2_policy(t.keep_l2);

    chain<typename Term::Acc> chains[VEC];
    const int64_t step = static_cast<int64_t>(t.splits) * t.team;
    int64_t turn = split * t.team + member;
    uint64_t at = static_cast<uint64_t>(deposit(turn, t.loop));
    for (; turn < (active ? t.turns : 0); turn += step) {
        const T *q = base + p.x.place(static_cast<int64_t>(at));
        T loaded[LOADS][VEC];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            load_elements<Term, PACKED>(q + t.load_at[u], policy, loaded[u]);
        }
        at = ((at | ~t.loop) + static_cast<uint64_t>(t.step)) & t.loop;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            chains[e].add(sum_loads<Term, LOADS, VEC>(loaded, e, p.x.square));
        }
    }

    /* Sums the lanes of an output by shuffles, the warps of a team in shared memory. */
    Part sum[VEC];
    const auto combine = [&](int team, int place) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            sum[e] = chains[e].value();
        }
        sum_packs<VEC>(sum, t.reduced_packs);
        sum_lanes<VEC>(sum, t.reduced_packs, t.reduced_lanes);
        if (team > 1) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                slots[warp][e][lane] = sum[e];
            }
            __syncthreads();
            if (place == 0) {
                for (int m = 1; m < team; m++) {
#pragma unroll
                    for (int e = 0; e < VEC; e++) {
                        sum[e] += slots[warp + m][e][lane];
                    }
                }
            }
        }
    };
    combine(t.team, member);
    if (t.splits > 1) { /* then a team is a block */
        const int64_t outputs = static_cast<int64_t>(1) << p.x.k;
        if (warp == 0 && rank == 0) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & t.reduced_packs)) {
                    p.part[split * outputs + (o | t.pack_out[e])] = sum[e];
                }
            }
        }
        if (!is_last_block(&p.ticket[tile], t.splits, last)) {
            return;
        }
        const int64_t ranks = 1 << __popc(t.reduced_lanes);
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            chains[e] = chain<typename Term::Acc>();
        }
#pragma unroll 4
        for (int64_t s = warp * ranks + rank; s < t.splits; s += WARPS * ranks) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & t.reduced_packs)) {
                    chains[e].add(p.part[s * outputs + (o | t.pack_out[e])]);
                }
            }
        }
        combine(WARPS, warp);
    }
    if (active && member == 0 && rank == 0) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            if (!(e & t.reduced_packs)) {
                p.out[o | t.pack_out[e]] = result_of<Term>(sum[e]);
            }
        }
    }
}

/*
 * Splits a tile over warps of a block, then over blocks, until they fill the GPU; a
 * partial sum has `bytes` bytes.
 */
inline void
share_tiles(const gpo_call *call, int64_t bytes, partition_tiles *t)
{
    const partition_plan &plan = *partition_plan_of(call);
    for (int64_t u = 0; u < LOADS; u++) {
        t->load_at[u] = place_of(plan, deposit(u, t->loop));
    }
    t->loop &= ~static_cast<uint64_t>(deposit(LOADS - 1, t->loop));
    t->turns = bit_at(t->loop_bits - LOOP_BITS);
    const int64_t room =
        static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_SM * WARPS;
    const int64_t tiles = bit_at(t->tile_bits);
    while (t->team < WARPS && 2 * tiles * t->team <= room && 2 * t->team <= t->turns) {
        t->team *= 2;
    }
    const int64_t fits = GPO_PARTIALS / bytes >> plan.k;
    int64_t splits = room / (tiles * t->team);
    splits = splits < t->turns / t->team ? splits : t->turns / t->team;
    splits = splits < fits ? splits : fits;
    if (t->team == WARPS && splits > 1 && tiles <= GPO_TICKETS) {
        t->splits = static_cast<int>(splits);
    }
    t->step = deposit(static_cast<int64_t>(t->splits) * t->team, t->loop);
    t->units = tiles * t->team * t->splits;
}

struct partition_reduce_v3 {
    template <typename Term>
    static gpo_status run(gpo_call *call)
    {
        using Part = part_of<typename Term::Acc>;
        if (has_short_loops(call)) {
            return short_loops::run<Term>(call);
        }
        partition_tiles tiles = tiles_of(call, lanes_of(call));
        share_tiles(call, sizeof(Part), &tiles);
        partition_call<Term> p = partition_call_of<Term>(call, tiles);
        if (tiles.splits > 1) {
            const gpo_status status = gpo_tickets(call, &p.ticket);
            if (status) {
                return status;
            }
            p.part = reinterpret_cast<Part *>(p.ticket + GPO_TICKETS);
        }
        const dim3 grid(ceil_div(tiles.units, WARPS));
        return is_packed(call)
                   ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                (partition_reduce_v3_no_atomics<Term, true>), p)
                   : GPO_LAUNCH(call, grid, BLOCK, 0,
                                (partition_reduce_v3_no_atomics<Term, false>), p);
    }
};

#endif
