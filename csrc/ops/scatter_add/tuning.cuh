/*
 * tuning.cuh  The sizes that scatter_add's kernels were tuned to on an H200; the times
 * are in benchmarks/results/h200-scatter_add.json.
 */
#ifndef GPO_SCATTER_ADD_TUNING_CUH
#define GPO_SCATTER_ADD_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, unless stated otherwise */

/* v1 */
constexpr int SHARED_BLOCK = 512;
constexpr int GROUPS_AT_ONCE = 2;          /* 16-byte packs of the index in flight */
constexpr int64_t COPIES_BYTES = 64 << 10; /* of tables: two blocks fit on an H200 */
constexpr int64_t WORTH = 16; /* elements per place, from which tables pay, up to */
constexpr int64_t SMALL_BYTES = 16
                                << 10; /* of tables: larger ones are slow where places
                         are skewed, 524,288 zipf into 5,806 float32 48 us, long_result 21 */
/* Bytes of sums that two tables hold, and elements per place from which they pay: 16,777,216
   uniform int32 into 2,059 87 us on an H200, long_result 496; a table for each of two blocks,
   16,777,216 uniform float32 into 5,000 88 and 411, 29,369,216 float64 into 12,903 157 and 571;
   skewed ones may lose: 67,108,864 zipf int32 into 20,000 2,024 and 907, CuPy 7,955. */
constexpr int64_t MANY_BYTES = 32 << 10, MANY = 190;
constexpr int64_t ONE_TABLE_BYTES = 112 << 10, MANY_OF_ONE = 400;
constexpr int64_t FEW_FOR_TABLES =
    120000;                           /* they are more: 84,739 into 3 int64 11.2 us,
                                               long_result 7.2 */
constexpr double STEPS_OF_MERGE = 72; /* an element takes a block 0.9 ns, and a sum that
                                         it sends to L2 takes L2 0.0125; from two calls
                                         of a sweep, see NOTES.md */

/* long_result: elements of a thread; of L2, what one range of sums takes; the most ranges;
   elements per place from which a place is in L2 again when its next element comes */
constexpr int LANES_ITEMS = 2;
constexpr int64_t L2_OF_SUMS = 2, L2_PARTS = 5, MOST_RANGES = 8;
constexpr double AGAIN = 0.25;

/* Sums that a thread rounds. */
constexpr int ROUNDED_ITEMS = 4;

/* ascending: blocks per SM, each with a ticket; places that a warp clears itself, and bytes of
   those that it writes by way of shared memory, at most: two blocks on an SM. */
constexpr int64_t LOOKING_BLOCKS = 5;
constexpr int32_t MOST_BETWEEN = 4096;
constexpr int64_t STAGED_BYTES = 12 << 10;

/* The choice: elements per place up to which a run is short enough. */
constexpr int64_t LONGEST_MEAN = 8;

/* buckets: threads of a block, which orders a tile, and which adds: three on an SM with
   tables of 2^13 places.  A bucket has as few places as make no more than MANY_BUCKETS, up
   to 2^13, and 2^14 from USUAL_BUCKETS on. */
constexpr int TILE_BLOCK = 512, SUM_BLOCK = 512;
constexpr int LEAST_LOG_PLACES = 11, USUAL_LOG_PLACES = 13, MOST_LOG_PLACES = 14;
constexpr int64_t MANY_BUCKETS = 512, USUAL_BUCKETS = 1024, MOST_BUCKETS = 2048;
constexpr int64_t SPLIT_ROOM = 160
                               << 10; /* bytes of shared memory that a block may need */
constexpr int64_t SPLITTING_BLOCKS = 16; /* per SM, each of which takes several tiles */
/* Elements of a block that adds, at least, its blocks per SM; elements in flight. */
constexpr int64_t LEAST_OF_BLOCK = 8192, SUMMING_BLOCKS = 3;
constexpr int SUMMED_AT_ONCE = 4;
/* A bucket's elements in one tile that all warps of a block share; so many such tiles. */
constexpr unsigned LONG_SEGMENT = 64, LONG_SEGMENTS = 64;
constexpr unsigned JOINING_BLOCKS = 64;
/* Chosen for integers and float64 from so many places on. */
constexpr int64_t LONG_RESULT_PLACES = 5000000;

/* ordered_buckets: buckets, elements of a warp at least, blocks, which are warps */
constexpr int LEAST_LOG_ORDERED = 10;
constexpr int64_t ORDERED_BUCKETS = 1024, LEAST_OF_WARP = 1024, MOST_OF_LEAST = 4096;
constexpr int64_t ORDERED_BLOCKS_OF_ALL = 4096, ORDERED_PLACES = 1 << 22;

/* v2, v3: private copies of the result */
constexpr int64_t MOST_COPIES_BYTES = 1 << 28;
constexpr int64_t PRIVATE_BLOCKS = 8;      /* v2, per SM */
constexpr int64_t PRIVATE_ITEMS = 8;       /* v2: elements of a thread, at least */
constexpr int ORDERED_BLOCK = 128;         /* v3: a table for each of its warps */
constexpr int64_t TABLES_BYTES = 48 << 10; /* v3, of a block */
constexpr int64_t ORDERED_BLOCKS = 6;      /* v3, per SM */
/* v3: elements of a warp, at least, and up to MOST_ORDERED of them one for each four places,
   as each block's tables are written and read. */
constexpr int64_t ORDERED_ITEMS = 256, MOST_ORDERED = 1024;
constexpr int STEPS_AT_ONCE = 4; /* v3: elements of a lane in flight */
/* Of sums up to which v3 is faster than v4, and than ordered_buckets, which takes floats:
   17,841 float32 into 1,024. */
constexpr int64_t ORDERED_BYTES = 96 << 10, FEW_TILES_BYTES = 24 << 10;

/* v4: sorted elements of a warp, which waits for memory twice for each 32: eight warps of 1,024
   took 50 of the 75 us of 8,192 elements on an H100 (estimated). */
constexpr int LEAST_OF_RUN_CHUNK = 64, MOST_OF_RUN_CHUNK = 1024;

/* one_launch: elements and places at most, places of a block; estimated. */
constexpr int64_t MOST_ELEMENTS = 4096, PLACES = 8192, MOST_PLACES = 512 * PLACES;

/* one_table: places of a block, whose sums take 32 KB, complex ones 64. */
constexpr int64_t TABLE_PLACES = 4096;

/* The choice: elements up to which one_table is faster than long_result where the host need
   not wait: 4,096 zipf float32 into 1,024 14.1 us, 9.4. */
constexpr int64_t ONE_TABLE_ELEMENTS = 3072;

#endif
