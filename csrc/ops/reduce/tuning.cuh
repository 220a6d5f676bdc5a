/*
 * tuning.cuh  The sizes that reduce's kernels were tuned to on an H200; NOTES.md has the
 * sweeps, benchmarks/results/h200-reduce.json the times that came of them.
 */
#ifndef GPO_REDUCE_TUNING_CUH
#define GPO_REDUCE_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, of every kernel but v9's */

/* v6 to v8: blocks of a row at most, and elements of a thread before there are more. */
constexpr int64_t FIXED_GRID = 1024, ITEMS_PER_THREAD = 32;

/* v9: threads of a block, and loads of a thread on their way: 32 KiB. */
constexpr int ROW_BLOCK = 512, TILE_ITEMS = 4;

/* Blocks of v9 a processor is to hold: all its threads, in 32 registers each. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int ROW_BLOCKS = 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && \
    (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1100)
constexpr int ROW_BLOCKS = 3;
#else
constexpr int ROW_BLOCKS = 4;
#endif

constexpr int BLOCKS_PER_PROCESSOR = 4; /* v9, columns: blocks that share one result */

constexpr int64_t SHORT_ROW_BYTES = 4096; /* short_rows: up to here part of a warp */
constexpr int64_t WARP_ROW_BYTES = 32768; /* up to here a warp, if rows are many */
constexpr int MANY_ROWS = 32;             /* per processor */
constexpr int ROWS_AT_ONCE = 2;  /* short rows a group of lanes loads together */
constexpr int LOADS_AT_ONCE = 4; /* of one short row, where loads are single elements */

/*
 * Up to here reads leave L2 what was in it.  A larger array drives that out in any
 * case, and then a stream that may use only part of L2 is the slower one.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

#endif
