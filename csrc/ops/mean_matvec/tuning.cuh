/*
 * tuning.cuh  The sizes of mean_matvec's kernels, tuned on an H200.  See NOTES.md for
 * what was tried, benchmarks/results/h200-mean_matvec.json for the times.
 */
#ifndef GPO_MEAN_MATVEC_TUNING_CUH
#define GPO_MEAN_MATVEC_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 to v3 */

/* v4 and v5 */
constexpr int THREADS = 256;    /* per block that streams or multiplies tiles */
constexpr int BLOCKS = 2;       /* per SM: 128 registers per thread */
constexpr int SLOTS = 8;        /* 16-byte loads in flight per thread */
constexpr int FEWEST_LANES = 8; /* per row: 128 contiguous bytes */
constexpr int STEPS = 4;        /* of SLOTS loads per item: 128 KiB of x */
constexpr int TILE_OUTPUTS = 64, TILE_BATCHES = 64; /* per tile of the product */
constexpr int DEPTH_PACKS = 8; /* per stage: the depth in shared memory at once */
constexpr int RING = 3;        /* stages, two in flight: L2 latency is more than one */

constexpr int64_t SHORT = 128; /* up to this many elements per mean v5 is faster */
constexpr int64_t HIDDEN = 15; /* and so many outputs per element: beyond, the product
                                  takes longer than x (N1024 L2048 M5, 2048 outputs,
                                  float64: v4 360 us, v5 432) */

/* short_rows (shapes/). */
constexpr int64_t SHORT_COLS_OF_LANE = 10; /* elements of a row */
constexpr int64_t SHORT_COLS = 32 * SHORT_COLS_OF_LANE;
constexpr int SHORT_BYTES = 16 << 10;     /* of a chunk of x, two per block */
constexpr int SHORT_BLOCKS = 6;           /* per SM */
constexpr double PADDED_BYTES = 64 << 20; /* of a matrix that is copied */

/* few_tiles (shapes/). */
constexpr int64_t MOST_SPLITS = 32;
constexpr double MOST_TILES = 1024;
constexpr double SPLIT_US = 2, SPLIT_PART_US = 0.4; /* to add the sums of the splits */

/* few_batches (shapes/). */
constexpr int FEW_OUTPUTS = 4, FEW_BATCHES = 4;    /* of a block */
constexpr int64_t FEW_COLS = 32;                   /* means computed where needed */
constexpr double FROM_X_BYTES = 16 << 20;          /* of x, read once per 4 outputs */
constexpr int64_t LONG_COLS = 1024, LONG_ROWS = 8; /* a block per row; rows per SM */
constexpr int FEW_WARPS[2] = {28, 18};        /* resident per SM, by the registers of */
constexpr int FEW_FROM_X_WARPS[2] = {18, 12}; /* sums in float32 and in float64 */
constexpr double FEW_PAIR =
    0.7; /* us of two rounds of loads, or of 8 values of means */
constexpr double FEW_WAVE = 0.6;           /* us of the start and the end of a block */
constexpr double STAGE_MICROSECONDS = 0.8; /* of v4's product, in float64 */
constexpr double MISALIGNED = 2.5;         /* times that: rows not of whole packs */
constexpr double L2_BYTES_PER_MICROSECOND = 30000; /* per SM */

/*
 * Measured over estimated in 12 calls (benchmarks/results/h200-few-batches.json): what a
 * product takes besides, few_tiles' instead; per us of the estimate, of v4 in float32,
 * few_tiles and few_batches.
 */
constexpr double PRODUCT_US = 6, FEW_TILES_US = 15;
constexpr double STAGE_IN_FLOAT32 = 1.7;
constexpr double FEW_TILES_MEASURED = 1.65, FEW_BATCHES_MEASURED = 0.83;

#endif
