/*
 * tuning.cuh  The sizes that scan's kernels were tuned to on an H200; NOTES.md has the
 * sweeps, benchmarks/results/h200-scan.json the times that came of them.
 */
#ifndef GPO_SCAN_TUNING_CUH
#define GPO_SCAN_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 to v2 */
constexpr int ITEMS = 4;   /* elements per thread of v2 */

constexpr int THREADS = 256; /* of a block that makes one pass: v3 on, shapes */
constexpr int PACKS = 4;     /* of a thread, of 16 bytes: 16 KB of x or out per tile */
constexpr int PARKED = 8;    /* of a thread in v4 and v5: tiles of 32 KB */
constexpr int FAN = 32;      /* tiles of a group: a warp looks at each */

/* v5: the part of L2 that a tile's total is taken ahead; a third pushes tiles out. */
constexpr int AHEAD_OF_L2 = 4;

/* columns: rows of a thread, chunks of a group; strips that need no supergroups. */
constexpr int DEPTH = 8, COLUMN_FAN = 8;
constexpr int64_t MANY_STRIPS = 16;

/* Rows and arrays of more bytes are faster in v5 than in v4. */
constexpr int64_t LONG_ROW_BYTES = 256 << 10, LARGE_BYTES = 16 << 20;

#endif
