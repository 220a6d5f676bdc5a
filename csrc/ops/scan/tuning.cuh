/*
 * tuning.cuh  The sizes of scan's kernels, tuned on an H200.  See NOTES.md for the
 * sweeps, benchmarks/results/h200-scan.json for the resulting times.
 */
#ifndef GPO_SCAN_TUNING_CUH
#define GPO_SCAN_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 to v2 */
constexpr int ITEMS = 4;   /* elements per thread of v2 */

constexpr int THREADS = 256; /* per block of the single-pass kernels: v3 on, shapes */
constexpr int PACKS = 4;     /* 16-byte packs per thread: tiles of 16 KB of x or out */
constexpr int PARKED = 8;    /* packs per thread in v4 and v5: tiles of 32 KB */
constexpr int FAN = 32;      /* tiles per group: one per lane of a warp */

/* cluster_rows: blocks per row, which run at once; their threads, and the most packs of
   each: up to 128 KB of shared memory, a row of 1 MB.  Estimated. */
constexpr int CLUSTER = 8, CLUSTER_THREADS = 1024, CLUSTER_PACKS = 8;

/* one_wave: threads of a block, a thread for each block of a row, and the most packs of
   each: up to 80 KB of shared memory. */
constexpr int WAVE_THREADS = 512, WAVE_PACKS = 10;
constexpr int64_t WAVE_BLOCKS = 256; /* of a row */

/*
 * The choice of both, by times on an H100: 20,000 float32 6.8 us in cluster_rows, 7.6 in
 * one_wave; 60,000 8.2 and 7.4; 40 rows of 20,000 9.0 and 9.9, 130 rows 18.2 and 13.6 (v4
 * 15.4); 2 million float64 18.5 in one_wave, 22.1 in v4.
 */
constexpr int64_t CLUSTER_ROW_BYTES = 96 << 10, CLUSTERS_AT_ONCE = 3;
constexpr int64_t WAVE_BYTES = 32 << 20;
/* Short rows, as long as the processors have a block or two: 16 of 512 int64 5.2 us in
   one_wave, warp_rows 8.2; 260 of 512 int32 6.7, short_rows 8.4; 14 of 128 float32 5.2,
   warp_rows 4.8, 8 of 163 float16 on an H200 7.2 and 6.9: of few rounds of a warp those. */
constexpr int64_t WAVE_FEW = 5, WAVE_SHORTEST = 193, WAVE_SHORT = 2048;

/* v5: totals are computed 1 / 4 of L2 ahead; at 1 / 3 tiles are evicted too early. */
constexpr int AHEAD_OF_L2 = 4;

/* columns: rows per thread, chunks per group; strips that need no supergroups. */
constexpr int DEPTH = 8, COLUMN_FAN = 8;
constexpr int64_t MANY_STRIPS = 16;

/*
 * walked_columns: threads per block, rows in flight per thread.  It is chosen from so
 * many packs of columns per SM on (90 rows of 110,178 float32 32.8 us, columns 58.3; 128
 * of 128,000 45.9 and 56.9), for columns of at most SHORT_COLUMN elements, and for
 * as many columns of at most FEW_DOWN (20 rows of 52,907 float64: 10.5 us, columns
 * 17.7), and a quarter of the packs of at most MIDDLE_COLUMN (90 rows of 32,768 int64 22
 * us, columns 39); of most elements by estimates of its time and that of columns (choice.cu).
 * Threads of one column each are taken for fewer than twice as many packs.
 */
constexpr int WALKERS = 128, STEP = 8;
constexpr int64_t PACKS_PER_SM = 128, SHORT_COLUMN = 16, MIDDLE_COLUMN = 128;
/* Elements of columns of which threads have as many at once: four of up to four, where
   packs are not aligned.  Estimated. */
constexpr int FEWEST_IN_COLUMN = 4;

/*
 * warp_rows: the longest and the most rows; chosen up to so many elements, in a row and
 * in all (4,096 rows of 67 float32 6.8 us on an H200, short_rows 8.6, 7,225 of 62 int32
 * 7.7 and 9.2; 7 rows of 512 int64: 15.7 us, v3 7.5), and for columns of which
 * fewer than a sector are neighbours (64 float64 down, 2 beside each other, 12,593
 * times: 14.5 us, walked_columns 33, columns 204).
 */
constexpr int64_t MOST_CHAINED = 1024, MOST_WARP_ROWS = 1 << 24, FEW_ELEMENTS = 1 << 19;
constexpr int64_t FEW_IN_WARP = 128, MORE_IN_WARP = 256, SECTOR_BYTES = 32;

/* walked_columns: columns of so few elements, where there are many, although narrow. */
constexpr int64_t FEW_DOWN = 64;
/* warp_rows: loads of a lane at once, for rows of more than two rounds. */
constexpr int LOADS_IN_WARP = 4;

/* one_element: packs of a thread.  Estimated: 64 KiB in flight per SM. */
constexpr int PACKS_OF_ONE = 2;

/* columns, although fewer than a sector are neighbours: 31 x 1,040 x 4 float32 8.4 us, v2
   13.4; 427 x 6 float16 8.8, warp_rows 11.8; but 33,553 x 2 float32 15.2, v2 12.3. */
constexpr int64_t FEW_IN_PARTS = 1 << 17, LONG_IN_PARTS = 1 << 12;

/* The choice: rows of 4-byte elements from which warp_rows beat short_rows, and how many
   of them for each SM: one of 1,024 float32 14.0 us on an H100, 200 of 700 float64 13.0
   (short_rows 9.1), 3,000 of 300 11.6 (14.6); elements of 4 bytes in all, at least: 8,308
   of 544 float32 24.4 us on an H200, short_rows 22.5. */
constexpr int64_t LONG_IN_WARP = 256, MANY_IN_WARPS = 8, MANY_IN_ALL = 1 << 23;

#endif
