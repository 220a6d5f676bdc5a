/*
 * tuning.cuh  The sizes that max_pool3d's kernels were tuned to on an H200; NOTES.md
 * says why, benchmarks/results/h200-max_pool3d*.json have the times.
 */
#ifndef GPO_MAX_POOL3D_TUNING_CUH
#define GPO_MAX_POOL3D_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, unless stated otherwise */

/* v3: windows of a tile along each axis; bytes of its elements at most. */
constexpr int TILE_T = 4, TILE_H = 8, TILE_W = 8;
constexpr int64_t TILE_BYTES = 48 << 10;

/* v4, v5: threads of a block, and along z. */
constexpr int FULL_BLOCK = 512, MOST_Z = 64;

/* v7 */
constexpr int ROWS = 8;       /* of a thread */
constexpr int MOST_ROWS = 64; /* of a block: warps along H */
constexpr int ALONE = 4;      /* warps of a block where they share no rows */

/* Any windows (shapes/): estimated, not yet measured. */
constexpr int TAP_BLOCK = 128;
constexpr int TAPS_IN_FLIGHT = 9;  /* loads of a thread at most */
constexpr int GENERAL_TAPS = 3;    /* adjacent ones, where windows may be dilated */
constexpr int TAP_THREADS = 1024;  /* of an SM, which lanes that share fill */
constexpr int MOST_LOG_SHARED = 5; /* a warp shares a window */

/* The gradient. */
constexpr int OWNERS = 4;                  /* v0: warps of a block */
constexpr int64_t SLICES_BYTES = 96 << 10; /* v3: two blocks and more on an SM */
constexpr int ROUND_WARPS = 16;            /* v4: warps of a block at most */
constexpr int64_t ROUNDS_BYTES = 72 << 10; /* v4: three blocks on an SM */

/* The gradient of any windows (shapes/): estimated, not yet measured. */
constexpr int GATHER_BLOCK = 128, GATHER_BLOCKS = 8; /* on an SM: 64 registers */
constexpr int64_t GATHER_THREADS = 1024; /* of an SM, which lanes that share fill */
constexpr int MOST_LOG_SHARES = 3;       /* eight lanes share the windows of a run */
constexpr double GATHER_WINDOWS = 9;     /* of one element, where there is any work */
constexpr double GATHER_WORK = 1 << 24;  /* elements times windows; 4 us of issue */

/* The gradient of strided windows (shapes/): estimated, not yet measured. */
constexpr int64_t STRETCHES = 4; /* blocks of an SM, of so many elements: */
constexpr int64_t LEAST_STRETCH = 1 << 11, MOST_STRETCH = 1 << 14;
constexpr int64_t MOST_STEP = 1 << 16; /* elements of a step along the axis cut */
constexpr double ASKED_US = 0.3e-6;    /* a window that another asks */
constexpr double ROUNDS_US = 8, ROUNDS_WINDOW_US = 10e-6; /* v4: a call, a window */

#endif
