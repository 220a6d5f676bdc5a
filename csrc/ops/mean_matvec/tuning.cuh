/*
 * tuning.cuh  The sizes of mean_matvec's kernels, tuned on an H200.  See NOTES.md for
 * what was tried, benchmarks/results/h200-mean_matvec.json for the times.
 */
#ifndef GPO_MEAN_MATVEC_TUNING_CUH
#define GPO_MEAN_MATVEC_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 to v3 */

/* v4 and v5 */
constexpr int THREADS = 256;       /* per block that streams or multiplies tiles */
constexpr int BLOCKS = 2;          /* per SM: 128 registers per thread */
constexpr int SLOTS = 8;           /* 16-byte loads in flight per thread */
constexpr int FEWEST_LANES = 8;    /* per row: 128 contiguous bytes */
constexpr int STEPS = 4;           /* of SLOTS loads per item: 128 KiB of x */
constexpr int MOST_LOADS = 24;     /* the same of a block that has one item */
constexpr double ITEM_START = 0.3; /* of an item, in steps of SLOTS loads: predicted */
constexpr int TILE_OUTPUTS = 64, TILE_BATCHES = 64; /* per tile of the product */
constexpr int RING = 3; /* stages, two in flight: L2 latency is more than one */

/* Packs of a row in a stage of a tile, the depth in shared memory at once: 32 terms of
   either type. */
constexpr int STAGE_TERMS = 32, DEPTH_PACKS = 8, WIDE_DEPTH_PACKS = 16;
template <typename V>
constexpr int STAGE_PACKS = sizeof(V) == 8 ? WIDE_DEPTH_PACKS : DEPTH_PACKS;

constexpr int64_t SHORT = 128; /* up to this many elements per mean v5 is faster */
constexpr int64_t HIDDEN = 15; /* and so many outputs per element: beyond, the product
                                  takes longer than x (N1024 L2048 M5, 2048 outputs,
                                  float64: v4 360 us, v5 432) */

/* short_rows (shapes/). */
constexpr int64_t SHORT_COLS_OF_LANE = 10; /* elements of a row */
constexpr int64_t SHORT_COLS = 32 * SHORT_COLS_OF_LANE;
constexpr double LEAST_USED = 0.57;        /* of the loads of lanes that share a row */
constexpr int SHORT_BYTES = 16 << 10;      /* of a chunk of x, two per block */
constexpr int SHORT_BLOCKS[2] = {6, 4};    /* per SM; of float64 */
constexpr double PADDED_BYTES = 256 << 20; /* of a matrix that is copied, at most */

/* few_batches' means of long uneven rows of float64 (shapes/): elements; blocks per SM. */
constexpr int64_t WIDE_COLS = 128;
constexpr int WIDE_BLOCKS = 6;

/* few_tiles (shapes/). */
constexpr int64_t MOST_SPLITS = 32;
constexpr int MOST_IN_CLUSTER = 8; /* blocks, 2, 4 or 8, that share a depth */
constexpr int NARROW_RING = 4;     /* stages of a tile of fewer than 64 batches */
constexpr int NARROW_BLOCKS = 3;   /* per SM, of fewer than 32 batches or 64 outputs */

/* Stages in shared memory, so that the blocks of an SM have room. */
constexpr int
ring_of_tile(int outputs, int batches, bool is_wide)
{
    return is_wide && (outputs > 64 || batches < 32) ? (outputs > 64 ? 2 : RING)
           : batches < TILE_BATCHES                  ? NARROW_RING
                                                     : RING;
}

/* Blocks of an SM of a tile of so many results, for the launch bound. */
constexpr int
blocks_of_tile(int outputs, int batches)
{
    return batches < 32 || outputs < 64 ? NARROW_BLOCKS : BLOCKS;
}

/* warpgroup_tiles (shapes/). */
constexpr int WARPGROUP_RING = 4; /* stages; then low parts of two stages' means */
constexpr int
warpgroup_bytes(int batches)
{
    return (WARPGROUP_RING * (128 + batches) + 2 * batches) * 128;
}

/* few_batches (shapes/). */
constexpr int FEW_OUTPUTS = 4, FEW_BATCHES = 4;    /* of a block */
constexpr int64_t FEW_COLS = 32;                   /* means computed where needed */
constexpr double FROM_X_BYTES = 16 << 20;          /* of x, read once per 4 outputs */
constexpr int64_t LONG_COLS = 1024, LONG_ROWS = 8; /* a block per row; rows per SM */
constexpr int FEW_WARPS[2] = {17, 17};        /* resident per SM, by the registers of */
constexpr int FEW_FROM_X_WARPS[2] = {18, 12}; /* sums in float32 and in float64 */
constexpr int FEW_PACK_WARPS[2] = {16, 16};   /* the same of loads of 16 bytes */

/* own_means (shapes/): outputs of a tile; terms at most. */
constexpr int OWN_OUTPUTS = 64, OWN_ROWS = 512;

/* many_batches (shapes/): predicted, see NOTES.md. */
constexpr int64_t MANY_COLS = 128;       /* the longest rows */
constexpr int MANY_BLOCKS[2] = {3, 2};   /* per SM, of light and heavy threads */
constexpr int MANY_RING = 3;             /* stages of x, two on their way */
constexpr int64_t MANY_BYTES = 16 << 10; /* of a stage */
constexpr int64_t MANY_LANE_BYTES = 64;  /* of a row, that a lane adds */
constexpr int64_t MANY_PIECE = 512;      /* most batches whose means are kept */
constexpr int64_t MANY_UNIT = 32;        /* ... or a multiple of these */
constexpr int64_t MANY_HEAVY_FROM = 6;   /* outputs per element of a mean: heavy */
constexpr int MANY_LIGHT_OUTPUTS = 4, MANY_LIGHT_ACROSS = 2; /* a thread's results */
constexpr int MANY_HEAVY_OUTPUTS = 8, MANY_HEAVY_ACROSS = 4;
constexpr int64_t MANY_HEAVY_PIECE = 96; /* batches: results beside each other */
constexpr int MANY_WIDE_OUTPUTS = 8, MANY_WIDE_ACROSS[2] = {8, 4}; /* of float64 */
constexpr double MANY_WIDE_USED = 0.75; /* of the threads' results at least exist */

#endif
