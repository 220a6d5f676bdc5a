/*
 * short_loops.cu  Sums of few elements: fewer than 3 reduced bits above those of a
 * warp's load.  A tile is then fewer than 8 loads.  Where tiles are many, a warp takes
 * several, with one load of each in flight; where they are few, it takes one with all of
 * its loads in flight.  The lanes of an output divide among themselves the tiles that
 * they sum and write.
 * Sums that are neighbours in the result are written by neighbouring lanes: if their
 * bits are high ones of the index, up to 3 of those number lanes.
 * Cost:  reads 2^n elements once, a warp 512 bytes at a time, in pieces of at least 64;
 *        one launch, no barrier.
 */
#include "../tiles.cuh"

/* The offset of a lane's first element. */
__device__ __forceinline__ int64_t
lane_offset(const int64_t *lane_at, unsigned lane)
{
    int64_t at = 0;
#pragma unroll
    for (int b = 0; b < 5; b++) {
        at += lane >> b & 1 ? lane_at[b] : 0;
    }
    return at;
}

/* A warp per group of tiles; the loop has 4 turns at most. */
template <typename Term, bool PACKED>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_SM - 1)
    partition_reduce_short_loops(partition_call<Term> p)
{
    using T = typename Term::T;
    using Acc = typename Term::Acc;
    const partition_tiles &t = p.tiles;
    constexpr int VEC = PACKED ? pack<T>::SIZE : 1, ALL = IN_FLIGHT<Term, PACKED>;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t unit = static_cast<int64_t>(blockIdx.x) * WARPS + warp;
    if (unit >= t.units) {
        return;
    }
    const bool active = static_cast<int>(lane) < t.lanes;
    const int64_t tile = unit * t.groups;
    int rank;
    const int64_t o =
        moved(t.to_output, tile) | lane_output(t.lane_to, t.reduced_lanes, lane, &rank);
    const T *base = p.x.x + p.x.place(moved(t.to_index, tile)) +
                    lane_offset(t.lane_at, active ? lane : 0);
    const uint64_t policy = l2_policy(t.keep_l2);

    Acc sum[ALL][VEC];
#pragma unroll
    for (int g = 0; g < ALL; g++) {
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            sum[g][e] = 0;
        }
    }
    uint64_t at = 0;
    for (int64_t turn = 0; turn < t.turns; turn++) {
        const T *q = base + p.x.place(static_cast<int64_t>(at));
        T loaded[ALL][VEC];
#pragma unroll
        for (int g = 0; g < ALL; g++) {
            memset(static_cast<void *>(loaded[g]), 0, sizeof loaded[g]);
            if (g < t.loads) {
                load_elements<Term, PACKED>(q + t.load_at[g], policy, loaded[g]);
            }
        }
        at = (at - t.loop) & t.loop;
#pragma unroll
        for (int g = 0; g < ALL; g++) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                sum[g][e] += Term::of(loaded[g][e], p.x.square);
            }
        }
    }
#pragma unroll
    for (int half = ALL / 2; half > 0; half /= 2) { /* loads of the same tiles */
        if (half < t.loads && half >= t.groups) {
#pragma unroll
            for (int g = 0; g < half; g++) {
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    sum[g][e] += sum[g + half][e];
                }
            }
        }
    }
    const int ranks = 1 << __popc(t.reduced_lanes);
#pragma unroll
    for (int g = 0; g < ALL; g++) {
        sum_packs<VEC>(sum[g], t.reduced_packs);
    }
    if (ranks >= ALL && t.groups == ALL) {
        unsigned left = t.reduced_lanes;
        const int mine = share_out<ALL, VEC>(sum, lane, t.reduced_packs, &left);
        sum_lanes<VEC>(sum[0], t.reduced_packs, left);
        int64_t to = o;
#pragma unroll
        for (int g = 1; g < ALL; g *= 2) {
            to |= mine & g ? t.load_out[g] : 0;
        }
        if (active && !(lane & left)) {
#pragma unroll
            for (int e = 0; e < VEC; e++) {
                if (!(e & t.reduced_packs)) {
                    p.out[to | t.pack_out[e]] = result_of<Term>(sum[0][e]);
                }
            }
        }
        return;
    }
#pragma unroll
    for (int g = 0; g < ALL; g++) { /* written by the lanes of rank g */
        if (g < t.groups) {
            sum_lanes<VEC>(sum[g], t.reduced_packs, t.reduced_lanes);
            if (active && (g & (ranks - 1)) == rank) {
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    if (!(e & t.reduced_packs)) {
                        p.out[o | t.load_out[g] | t.pack_out[e]] =
                            result_of<Term>(sum[g][e]);
                    }
                }
            }
        }
    }
}

/*
 * The lanes, with high bits in place of the upper ones for outputs that are neighbours:
 * the kept lane bits that are replaced number tiles, of which a warp takes several, so
 * that it still reads whole lines.  The lowest 2 stay: 4 lanes read 64 bytes.
 */
static lane_bits
lanes_by_output(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    lane_bits lanes = lanes_of(call);
    int place = is_packed(call) ? lanes.count - 1 : 0;
    for (int b = low_bits_of(call); b < plan.n; b++) {
        while (place >= LOW_LANE_BITS && (plan.to[lanes.bit[place]] < 0 ||
                                          plan.to[lanes.bit[place]] < NEAR_BITS)) {
            place--;
        }
        if (place >= LOW_LANE_BITS && plan.to[b] >= 0 && plan.to[b] < NEAR_BITS) {
            lanes.bit[place--] = b;
        }
    }
    return lanes;
}

/*
 * Gives a warp tiles for up to `most` loads, or where there are too few tiles for all
 * warps of the GPU, several loads of a tile: the offsets of their loads and outputs.
 */
static void
group_tiles(const gpo_call *call, int64_t most, partition_tiles *t)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int64_t tiles = bit_at(t->tile_bits), turns = bit_at(t->loop_bits);
    const int64_t room =
        static_cast<int64_t>(gpo_processors(call)) * (BLOCKS_PER_SM - 1) * WARPS;
    int64_t groups = 1, deep = 1;
    while (2 * groups <= most && tiles / (2 * groups) >= room) {
        groups *= 2;
    }
    while (2 * groups * deep <= most && 2 * deep <= turns) {
        deep *= 2;
    }
    for (int64_t l = 0; l < groups * deep; l++) {
        t->load_at[l] = place_of(plan, moved(t->to_index, l % groups) |
                                           deposit(l / groups, t->loop));
        t->load_out[l] = moved(t->to_output, l % groups);
    }
    t->groups = static_cast<int>(groups);
    t->loads = static_cast<int>(groups * deep);
    t->loop &= ~static_cast<uint64_t>(deposit(deep - 1, t->loop));
    t->turns = turns / deep;
    t->units = tiles / groups;
}

template <typename Term>
gpo_status
short_loops::run(gpo_call *call)
{
    const bool packed = is_packed(call);
    partition_tiles tiles = tiles_of(call, lanes_by_output(call));
    group_tiles(call, packed ? IN_FLIGHT<Term, true> : IN_FLIGHT<Term, false>, &tiles);
    const partition_call<Term> p = partition_call_of<Term>(call, tiles);
    const dim3 grid(ceil_div(tiles.units, WARPS));
    return packed ? GPO_LAUNCH(call, grid, BLOCK, 0,
                               (partition_reduce_short_loops<Term, true>), p)
                  : GPO_LAUNCH(call, grid, BLOCK, 0,
                               (partition_reduce_short_loops<Term, false>), p);
}

#define INSTANTIATE(Term) template gpo_status short_loops::run<Term>(gpo_call * call);
PARTITION_REDUCE_EVERY_TERM(INSTANTIATE)
