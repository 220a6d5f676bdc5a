/*
 * tuning.cuh  The sizes that index_add's kernels were tuned to on an H200; NOTES.md
 * says what was tried, benchmarks/results/h200-index_add.json has the times.
 */
#ifndef GPO_INDEX_ADD_TUNING_CUH
#define GPO_INDEX_ADD_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256;
constexpr int64_t MAX_GRID = 1 << 30; /* blocks; beyond, a thread takes several */

/* v2, few_destinations: a table of sums in shared memory */
constexpr int TABLE_BLOCK = 1024;
constexpr int64_t TABLE_COPIES = 8 * 1024; /* sums in all copies of a table, at most */
constexpr int64_t TABLE_MIN_BYTES = 32;    /* of a row, read at once */
/* Of a table that the last block adds up: places, or of more of them the sums in all
   blocks' tables.  6,000 rows into 381 have six tables; estimated. */
constexpr int64_t PLACES_ALONE = 256, PARTS_ALONE = 8192;

/* few_destinations: destinations from which lanes of one row each seldom meet at a sum; rows
   that a block adds to each, at least.  Estimated. */
constexpr int64_t MANY_PLACES = 1024, ROWS_FOR_PLACE = 8;

constexpr int64_t SHORT_ROW = 16; /* short_rows: columns, at most */

/* v4 */
constexpr int CHUNK = 64; /* entries of a hot destination that are summed at a time */
constexpr int HOT = 128;  /* rows; a destination of more is hot */
constexpr int SPAN = 32;  /* chunks that a block combines */

/* unpacked_rows: threads of an SM, at least; where they are so many, lanes take turns. */
constexpr int64_t THREADS_OF_PARTS = 512, THREADS_IN_TURNS = 2048;
constexpr int LANES_IN_TURNS = 8;

/* v5: of L2, what one range of sums takes; estimated from v0, which slows down by half
   between 37 and 66 MB of results on an H200 of 50 MB. */
constexpr int64_t L2_OF_SUMS = 3, L2_PARTS = 4;

/* few_rows: elements of the source, at most; their table then takes 1.5 GiB. */
constexpr int64_t SPARSE_ELEMENTS = 1 << 26;

/* one_element: entries of a thread, of a block */
constexpr int TILE_ITEMS = 8, TILE = BLOCK * TILE_ITEMS;

/* one_launch: rows and elements of the source, at most; elements of x that a block
   copies, and all blocks, beyond which x is copied before; those that may be copied with
   few columns to a block.  All estimated. */
constexpr int64_t MOST_ROWS = 4096, FEW_ELEMENTS = 1 << 20;
constexpr int64_t COPIED = 8192, COPIED_AT_ONCE = 512 * COPIED;
constexpr int64_t COPIED_BY_COLUMNS = 1 << 16;
/* Rows that find each other in slots, without a sort, at most, which are threads of a block, and
   their elements; elements of x that a thread copies, and all of x if it has one column. */
constexpr int PAIRED = 256, COPIED_BY_THREAD = 2;
constexpr int64_t PAIRED_ELEMENTS = 1 << 16, COPIED_BY_PAIRS = 1 << 19;
constexpr int64_t ROWS_FOR_SORT = 2048; /* at most, where v5 need not wait either */

/* short_rows, joined_sums: of 256 rows, those with the destination of a row before among 32,
   from which joining lanes saves more than a match costs (half an atomic).  Estimated. */
constexpr int64_t WORTH_JOINING = 32;

/* joined_sums: rows of one element that are a thread each, at most: 112,437 10.3 us on an H200,
   v5 12.0, 200,000 into 6,683 15.1 and 13.1. */
constexpr int64_t FEW_SINGLES = 1 << 17;

/* short_rows: elements of float32, at most, so that no value passes more than 1,024
   additions: those of a warp in pairs, then one for each warp. */
constexpr int64_t JOINED_FLOATS = 32 * 1000;

/* own_places: threads of a block and bytes of the sums it owns; rows of one element and of more, and
   elements of x, at most.  All estimated. */
constexpr int OWNING_BLOCK = 1024, OWNED_BYTES = 16 << 10;
constexpr int64_t OWNING_BLOCKS = 32, OWNED_AT_LEAST = 32; /* blocks, and sums of one */
constexpr int64_t OWNED_ROWS = 1 << 16, OWNED_WIDE_ROWS = 4096, OWNED_PLACES = 1 << 21;

/* one_writer: threads and blocks of an SM; destinations of which four tables are 48 KB; rows
   of a warp at least, and of a call for which it takes less time than a sort: 524,288 of
   1,000 destinations 30 us on an H100, one_element 56. */
constexpr int WRITER_BLOCK = 128, WRITER_BLOCKS = 6;
constexpr int64_t WRITER_PLACES = 1536, WARP_ROWS = 256, WRITER_ROWS = 4096;

/* gathered_rows: rows of a block; of more float32 rows in all than these a destination could
   take more atomics than INDEX_ADD_FEW_ROWS; columns that are worth a warp's lanes. */
constexpr int GATHERED_ROWS = 128;
constexpr int64_t GATHERED_FLOATS =
    (INDEX_ADD_FEW_ROWS - GATHERED_ROWS) * GATHERED_ROWS;
constexpr int64_t GATHERED_FROM = 5;

/* The choice. */
constexpr int64_t WIDE = 256, WARP_WIDE = 512; /* bytes of a row */
constexpr int64_t WARPS_AT_LEAST = 32;         /* of v3 for each SM */
/* Of 8-byte elements: rows from which skew is looked for; rows for each destination, on
   average, from which nearby ones may share it (16,777,216 sorted into 7,589 rows of 4 float64
   4,645 us in v0, short_rows 706). */
constexpr int64_t MANY_DOUBLES = 1 << 17, MANY_NEARBY = 512;
/* v0's atomics to one destination, ps of a row and of its bytes: some 250,000 of 10^6 float64
   550 us on an H100, 12,000 of 20,000 rows of 314 241. */
constexpr double ONE_ROW = 2200, ONE_BYTE = 8;
constexpr int64_t FOR_V0 = 1 << 17, HOT_FOR_V0 = 2048; /* elements, hot rows */
/* Elements of float32, at most, for v2: two launches less than few_destinations, and
   3.6 ps more for each element (2^25 into 1e3 0.319 and 0.197 ms). */
constexpr int64_t FEW_FOR_TABLES = 1 << 19;
constexpr int64_t TABLE_BYTES = 48 * 1024; /* of sums, for v2 and few_destinations */
/* Bytes of a source of wide rows of 4-byte elements, and its rows for each destination:
   65,536 of 1,024 float32 into 122,289 in place 616 us on an H100 in v4, 316 in v1; 1e6 of
   128 into 1e5 341 and 437 on an H200.  Of 8-byte elements 900,000 of 64 into 4,096 369
   and, one_by_one, 254. */
constexpr int64_t LARGE = 1 << 28, SORT_FROM = 4;

#endif
