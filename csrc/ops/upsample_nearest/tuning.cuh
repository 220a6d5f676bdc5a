/*
 * tuning.cuh  The sizes that upsample_nearest's kernels were tuned to on an H200;
 * NOTES.md says why, benchmarks/results/h200-upsample_nearest*.json have the times.
 */
#ifndef GPO_UPSAMPLE_NEAREST_TUNING_CUH
#define GPO_UPSAMPLE_NEAREST_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads of every kernel */

/* Lanes that share a row are 2^LEAST_LOG_LANES to 2^MOST_LOG_LANES. */
enum { LEAST_LOG_LANES = 2, MOST_LOG_LANES = 8 };

/* Rows of a thread whose loads are in flight together. */
enum {
    DOUBLED_ITEMS = 4, /* v2, of x */
    HALVED_ITEMS = 2,  /* backward v2, of dx: two rows of dy each */
    ALIGNED_ITEMS = 4, /* aligned_rows */
    PICKED_ITEMS = 2,  /* aligned_rows whose elements are loaded one by one */
};

/* Units of rows, of which threads take one each: the threads of an H200, about. */
constexpr int64_t ONE_ROW_EACH = 1 << 17; /* estimated, not timed */

/* The choice: results of up to so many bytes take any_rows 0.3 to 0.6 us less. */
constexpr int64_t SMALL_BYTES = 3 << 19;

/* The choice: threads of an SM, which have an element each of a small result of elements
   below 4 bytes in one_each, or of a small gradient of scales up to MOST_SCALE in
   few_elements, whose 48 registers leave room for 1,280 at once; estimated, not timed. */
constexpr int64_t THREADS_OF_SM = 2048;
constexpr float MOST_SCALE = 3;

enum { DY_PACKS = 4 }; /* backward aligned_rows: packs in flight before they add */

/*
 * backward any_rows: rows of dx of a thread, if dx has more elements than these; rows
 * and columns of dy that it loads before it adds, enough for scales up to 2 and 4.
 * contiguous_rows has 2 columns for scales up to 2.
 */
enum { ELEMENT_ITEMS = 4, NEAR_ROWS = 2, NEAR_COLUMNS = 4 };
constexpr int64_t ONE_ELEMENT_EACH = 1 << 20; /* estimated, not timed */

enum { TILE_BLOCKS = 6 }; /* contiguous_rows, on an SM: 40 registers */

/* backward long_rows, estimated: rows of a thread in flight together and in
   all; blocks on an SM: 42 registers; so many rows that these are two waves. */
enum { LONG_ITEMS = 4, MOST_LONG_ROWS = 16, LONG_BLOCKS = 6, LONG_WAVES = 2 };

enum { BOX_ROWS = 4 }; /* backward whole_scales: in flight; estimated, not timed */

/*
 * backward contiguous_rows; estimated, not timed.  Bytes of dy of a tile: six tiles on
 * an SM have 144 KB in flight; smaller ones where there are few, so that each SM has 4.
 * Its elements of dx, its rows and columns, at most.
 */
constexpr int64_t TILE_BYTES = 24 << 10, LEAST_TILE_BYTES = 2 << 10;
constexpr int64_t MOST_TILE_BYTES = 48 << 10; /* with its tables */
constexpr int64_t TILES_EACH = 4, TILE_SUMS = 8192, TILE_LINES = 1024;
constexpr int64_t TILE_COLUMNS = 2048;
constexpr int64_t CUT_COLUMNS = 32; /* elements of a row of dx, at least, if cut */

#endif
