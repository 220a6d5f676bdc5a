/*
 * walk.cuh  How v4 and v5 divide x: rows among lanes, items of work among blocks.
 */
#ifndef GPO_MEAN_MATVEC_WALK_CUH
#define GPO_MEAN_MATVEC_WALK_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

#include <math.h>

/* Lanes that share a row of some packs, packs of a lane at once, and turns they take. */
struct row_lanes {
    int lanes, shift;
    int64_t chunks;
};

inline row_lanes
lanes_of(int64_t packs)
{
    row_lanes r = {FEWEST_LANES, 0, 1};
    while (r.lanes < WARP && r.lanes * SLOTS < packs) {
        r.lanes *= 2;
    }
    while (1 << r.shift < SLOTS && r.lanes << r.shift < packs) {
        r.shift++;
    }
    r.chunks = packs > 0 ? ceil_div(packs, r.lanes << r.shift) : 1;
    return r;
}

/*
 * Steps of an item, of `steps` in all: as many as make the last wave of blocks full, by
 * the loads of a wave and what its start takes; no more than STEPS where a block has many
 * loads, whose items then differ in when they end.  Where v5 is to hide the product, STEPS.
 */
inline int64_t
steps_of_item(const gpo_call *call, int64_t steps, int64_t chunks)
{
    const int64_t blocks = gpo_processors(call) * BLOCKS;
    const int64_t share = ceil_div(steps, blocks);
    const int64_t few = share < STEPS ? share : STEPS;
    int64_t best = share < 1 ? 1 : few;
    if (mean_matvec_plan_of(call)->cols <= SHORT) {
        return best;
    }
    const int64_t most = share > MOST_LOADS / chunks ? few : share;
    double least = INFINITY;
    for (int64_t k = 1; k <= most; k++) {
        const double waves = static_cast<double>(ceil_div(ceil_div(steps, k), blocks));
        const double us = waves * (static_cast<double>(k * chunks) + ITEM_START);
        if (us < least) {
            least = us;
            best = k;
        }
    }
    return best;
}

/*
 * The walk over x in packs of `size` elements.  Items are short enough to keep all SMs
 * busy, and long enough for a tile of batches to have fewer than 2^30.
 */
inline row_walk
walk_of(const gpo_call *call, int size)
{
    constexpr int64_t MOST = 1 << 24;
    const mean_matvec_plan &v = *mean_matvec_plan_of(call);
    row_walk walk = {};
    walk.packed = v.x_col == 1 || v.cols <= 1;
    walk.even = reinterpret_cast<uintptr_t>(call->in[0].data) % 16 == 0 &&
                v.x_batch % size == 0 && v.x_row % size == 0 && v.cols % size == 0;
    const int64_t packs = ceil_div(v.cols, size);
    const row_lanes row = lanes_of(packs);
    walk.lanes = row.lanes;
    walk.shift = row.shift;
    walk.chunks = row.chunks;
    walk.per_step = THREADS / walk.lanes * (SLOTS >> walk.shift);
    walk.full = walk.even && packs == walk.chunks * (walk.lanes << walk.shift);
    for (int u = 0; u < SLOTS; u++) {
        const int64_t row = (u >> walk.shift) * (THREADS / walk.lanes);
        const int64_t pack = (u & ((1 << walk.shift) - 1)) * walk.lanes;
        walk.jump[u] = row * v.x_row + pack * size;
    }

    const int64_t most = v.batches < TILE_BATCHES ? v.batches : TILE_BATCHES;
    const bool gapless = v.x_batch == v.rows * v.x_row;
    walk.span_batches = gapless ? most : 1;
    const int64_t span = walk.span_batches * v.rows;
    const int64_t steps = ceil_div(v.batches * v.rows, walk.per_step);
    int64_t per_item = walk.per_step * steps_of_item(call, steps, walk.chunks);
    while (ceil_div(span, per_item) > MOST) { /* there is no memory for 2^54 means */
        per_item *= 2;
    }
    walk.per_item = static_cast<int>(per_item);
    walk.per_span = static_cast<unsigned>(ceil_div(span, walk.per_item));
    walk.streams = walk.per_span * static_cast<unsigned>(most / walk.span_batches);
    return walk;
}

#endif
