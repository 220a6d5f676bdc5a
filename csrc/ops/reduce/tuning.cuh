/*
 * tuning.cuh  The sizes of reduce's kernels, tuned on an H200.  See NOTES.md for the
 * sweeps, benchmarks/results/h200-reduce.json for the resulting times.
 */
#ifndef GPO_REDUCE_TUNING_CUH
#define GPO_REDUCE_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, of every kernel but v9's */

/* v6 to v8: the most blocks per row, and elements per thread below that. */
constexpr int64_t FIXED_GRID = 1024, ITEMS_PER_THREAD = 32;

/* v9: threads per block, and loads in flight per thread: 32 KiB per block. */
constexpr int ROW_BLOCK = 512, TILE_ITEMS = 4;

/* v9: up to so many tiles of a row one block does alone, a load's latency, 0.8 us, for
   each; blocks that share it exchange parts, 2 us.  Estimated. */
constexpr int64_t TILES_ALONE = 2;

/* Blocks of v9 per SM: all of its threads, with 32 registers each. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int ROW_BLOCKS = 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && \
    (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1100)
constexpr int ROW_BLOCKS = 3;
#else
constexpr int ROW_BLOCKS = 4;
#endif

constexpr int BLOCKS_PER_PROCESSOR = 4; /* v9, columns: where blocks share a result */

constexpr int64_t SHORT_ROW_BYTES = 4096; /* short_rows: rows up to this size */
constexpr int64_t WARP_ROW_BYTES = 32768; /* the same, if there are many rows */
constexpr int MANY_ROWS = 32;             /* per SM */
constexpr int ROWS_AT_ONCE = 2;           /* short rows in flight per group of lanes */
constexpr int LOADS_AT_ONCE = 4; /* per lane and row, where loads are single elements */

/* short_rows: so many packs of a row are worth the elements beside them, up to 30 of a
   byte each, which lanes load first.  Estimated. */
constexpr int64_t PACKS_WITH_EDGES = 16;

/*
 * Up to this size, reads keep what L2 holds.  A larger array evicts it in any case, and
 * a stream limited to part of L2 is then slower.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

/* columns: rounds of loads of a block, up to which no other block shares its columns:
   the last of several waits for a ticket and for their parts.  Estimated. */
constexpr int64_t ROUNDS_ALONE = 3;

/* columns: from so many elements on, what all blocks read twice is more than what lanes
   without a column could have on their way.  Estimated. */
constexpr int64_t LONG_COLUMN = 4096;

/* columns: elements from which on a thread has twice the loads in flight, of float64 in
   packs that fill the device ((537, 368218) 551 us on an H100, 574 without; 64 down
   alike). */
constexpr int64_t DEEP_COLUMN = 128;

/* Up to so many elements a thread walks down a row of any strides: where a warp has
   several such rows, they use whole sectors together.  Estimated. */
constexpr int FEW_DOWN = 8;

/* few_down: threads of a block, and kept axes at most; elements down a single axis at
   most, FEW_DOWN of them in flight. */
constexpr int FEW_BLOCK = 128, MOST_FEW_AXES = 3;
constexpr int64_t MORE_DOWN = 32;

/* few_down: threads of one result each that an SM runs at once; more results go to
   threads of several neighbours, 16 bytes a load.  Estimated. */
constexpr int64_t FEW_AT_ONCE = 12 * FEW_BLOCK;

/* The choice: results of few_down per SM; it takes half of columns' time for 5,500 and
   12,600 of them on an H100, times in NOTES.md. */
constexpr int64_t FEW_RESULTS = 16384;

/* one_block: threads above 32 KiB, and bytes of its row, at most: all are on their way at
   once.  one_cluster: blocks of its cluster, and bytes.  Estimated above 32 KiB. */
constexpr int LARGE_BLOCK = 1024, ROW_CLUSTER = 8;
constexpr int64_t ONE_BLOCK_BYTES = LARGE_BLOCK * TILE_ITEMS * 16;
constexpr int64_t ONE_CLUSTER_BYTES = ROW_CLUSTER * ONE_BLOCK_BYTES;

/* columns: rows with gaps that a block may have; a warp reads 4 elements of each. */
constexpr int ROWS_WITH_GAPS = 8;

/* The choice: rows with gaps up to this length are for short_rows where they are more
   than blocks at once, each of which takes 2.6 us.  From times in NOTES.md. */
constexpr int64_t SHORT_GAPPED = 2048;

/* The choice: results of one element each, from which columns beat short_rows. */
constexpr int64_t MANY_COPIED = 1 << 20;

/* The choice: so many results, of rows up to this length, are for `transposed` where
   both sides of a tile are at least so long.  Estimated. */
constexpr int64_t SHORT_TRANSPOSED = 32, TRANSPOSED_SIDE = 16;

#endif
