/*
 * few_batches.cuh  Times of the product by estimate: in v4's tiles, in tiles whose
 * depth blocks share (shapes/few_tiles.cu), in small ones (shapes/few_batches.cu); for
 * the table and the kernels' launchers.
 */
#ifndef GPO_MEAN_MATVEC_FEW_BATCHES_CUH
#define GPO_MEAN_MATVEC_FEW_BATCHES_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

#include <math.h>

/* Tiles of v4's product, and stages of the depth of one. */
struct tile_count {
    double tiles, stages, stage_us;
};

/* `is_padded`: rows of the factors are copied so that they are whole packs. */
inline tile_count
tiles_of(const gpo_call *call, bool is_padded)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes == 8 ? 8 : 4;
    const double tiles = static_cast<double>(ceil_div(p.batches, TILE_BATCHES)) *
                         static_cast<double>(ceil_div(p.outputs, TILE_OUTPUTS));
    const double stages =
        static_cast<double>(p.rows) * static_cast<double>(bytes) / (DEPTH_PACKS * 16.0);
    const bool is_aligned = is_padded || p.rows * bytes % 16 == 0;
    return {tiles, stages, STAGE_MICROSECONDS * (is_aligned ? 1 : MISALIGNED)};
}

/* v4's product in us, where `splits` blocks share the depth of a tile. */
inline double
tiles_us(const gpo_call *call, const tile_count &t, double splits)
{
    const double waves = t.tiles * splits / gpo_processors(call);
    const double shared = splits > 1 ? SPLIT_US + SPLIT_PART_US * splits : 0;
    return (waves < 1 ? 1 : waves) * (t.stages / splits + 2) * t.stage_us + shared;
}

/* Blocks that share the depth of a tile in the least time. */
inline int64_t
splits_of(const gpo_call *call)
{
    const tile_count t = tiles_of(call, false);
    int64_t best = 1;
    double least = INFINITY;
    for (int64_t splits = 1; splits <= MOST_SPLITS; splits++) {
        const double us = tiles_us(call, t, static_cast<double>(splits));
        if (us < least) {
            least = us;
            best = splits;
        }
    }
    return best;
}

/* A ticket per tile, and sums of all splits in memory. */
inline bool
takes_few_tiles(const gpo_call *call)
{
    return tiles_of(call, false).tiles <= MOST_TILES;
}

/* v4's product by whole tiles. */
inline double
whole_tiles_us(const gpo_call *call, bool is_padded)
{
    const bool narrow = gpo_dtypes[call->out[0].dtype].bytes < 8;
    return PRODUCT_US + tiles_us(call, tiles_of(call, is_padded), 1) *
                            (narrow ? STAGE_IN_FLOAT32 : 1);
}

/* The same by few_tiles, where it pays that several blocks share a tile. */
inline double
shared_tiles_us(const gpo_call *call, bool is_padded)
{
    const int64_t splits = takes_few_tiles(call) ? splits_of(call) : 1;
    return splits == 1 ? INFINITY
                       : FEW_TILES_US + FEW_TILES_MEASURED *
                                            tiles_us(call, tiles_of(call, is_padded),
                                                     static_cast<double>(splits));
}

/* The product by tiles in the faster way. */
inline double
product_us(const gpo_call *call, bool is_padded)
{
    return fmin(whole_tiles_us(call, is_padded), shared_tiles_us(call, is_padded));
}

/* few_batches' product in us, by the bytes that it reads from L2. */
inline double
few_batches_us(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double bytes = gpo_dtypes[call->out[0].dtype].bytes == 8 ? 8 : 4;
    const double loads = static_cast<double>(p.batches) *
                         static_cast<double>(p.outputs) * static_cast<double>(p.rows) *
                         bytes * (1.0 / FEW_OUTPUTS + 1.0 / FEW_BATCHES);
    return PRODUCT_US + FEW_BATCHES_MEASURED * loads /
                            (L2_BYTES_PER_MICROSECOND * gpo_processors(call));
}

/* Means of rows of any kind; row n of them starts at n * v.rows. */
template <typename T>
gpo_status mean_matvec_find_means(gpo_call *call, const mean_matvec_view<T> &v);

template <typename T>
gpo_status mean_matvec_few_tiles(gpo_call *call);

template <typename T>
gpo_status mean_matvec_few_batches(gpo_call *call);

#endif
