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

/* Any windows (shapes/): estimated; NOTES.md has what was measured. */
constexpr int TAP_BLOCK = 128;
constexpr int TAPS_IN_FLIGHT = 9;  /* loads of a thread at most */
constexpr int GENERAL_TAPS = 3;    /* adjacent ones, where windows may be dilated */
constexpr int TAP_THREADS = 1024;  /* of an SM, which lanes that share fill */
constexpr int MOST_LOG_SHARED = 5; /* a warp shares a window */

/* Channels last (shapes/): estimated. */
constexpr int CHANNEL_BLOCK = 256; /* threads, four or five blocks on an SM */
constexpr int CHANNEL_RUN = 64;    /* outputs of a plane: 128 bytes of 16-bit floats */
constexpr int PACKS_IN_FLIGHT = 4; /* of 16 bytes, of a thread */

/* Overlapping windows (shapes/): estimated. */
constexpr int BOX_BLOCK = 256;          /* threads, four blocks on an SM */
constexpr int64_t BOX_BYTES = 56 << 10; /* of a block at most */
constexpr int BOX_IN_FLIGHT = 4;        /* loads of a thread */

/* The gradient. */
constexpr int OWNERS = 4;                  /* v0: warps of a block */
constexpr int64_t SLICES_BYTES = 96 << 10; /* v3: two blocks and more on an SM */
constexpr int ROUND_WARPS = 16;            /* v4: warps of a block at most */
constexpr int64_t ROUNDS_BYTES = 72 << 10; /* v4: three blocks on an SM */

/* The gradient of any windows (shapes/). */
constexpr int GATHER_BLOCK = 128, GATHER_BLOCKS = 8; /* on an SM: 64 registers */
constexpr int64_t GATHER_THREADS = 1024; /* of an SM, which lanes that share fill */
constexpr int MOST_LOG_SHARES = 3;       /* eight lanes share the windows of a run */

/* The gradient by marches (shapes/): threads of an SM, 64 registers. */
constexpr int MARCH_BLOCK = 128, MARCH_THREADS = 1024;

/* The gradient of windows that do not overlap (shapes/): estimated. */
constexpr int SEPARATE_BLOCK = 256;          /* threads */
constexpr int64_t SEPARATE_BYTES = 32 << 10; /* of dx, of a block */

/* The gradient of overlapping windows (shapes/). */
constexpr int OVERLAP_BLOCK = 256, OVERLAP_BLOCKS = 4; /* on an SM: 64 registers */
constexpr int OVERLAP_THREADS = OVERLAP_BLOCKS * OVERLAP_BLOCK;
constexpr int IN_FLIGHT = 4; /* windows of a thread */
/* A block lists elements for this share of its windows, or this often as many as it
   names by estimate. */
constexpr double LISTED_SHARE = 0.25, LISTED_OVER = 2;
constexpr int MOST_LOG_ASKING = 4;   /* 16 lanes share an element */
constexpr double ASKED_BY_LANE = 48; /* windows, if lanes allow it */

/* The gradient of windows that overlap along T and H (shapes/): estimated. */
constexpr int DEEP_WARPS = 8, DEEP_BLOCKS = 3; /* on an SM: 85 registers */
constexpr int DEEP_FLIGHT = 8;           /* windows of a thread; of float64 half */
constexpr int DEEP_EMPTY = 255;          /* no place in a window */
constexpr int DEEP_LINES = 2;            /* that a warp takes at once */
constexpr int64_t DEEP_STATIC = 1 << 10; /* bytes of shared memory, and more */
constexpr int64_t MOST_DEEP_ROW = 4096, MOST_DEEP_PIECES = 8;

/*
 * What choose() compares on an H200: microseconds, bytes and thread instructions of an
 * SM per microsecond; instructions counted in the machine code of sm_90.
 */
constexpr double GRADIENT_LAUNCH_US = 2.5, GRADIENT_RATE = 0.21e6;
constexpr double GRADIENT_BYTES = 30e3;
constexpr double WAIT_US = 0.8; /* a round of loads, and what follows from them */
constexpr double THREAD_WORK = 250, ZERO_WORK = 3;
/* overlapping_windows: fitted to 19 times, NOTES.md. */
constexpr double WINDOW_WORK = 70;
constexpr double NAMED_WORK = 170, ASKED_ROW_WORK = 10, ASKED_WORK = 2;
constexpr double CHAINED_WORK = 60; /* a window of a chain, with its share of the sum */
constexpr int LISTED_OF_BOX =
    4; /* a chain in so many elements: not listed, but all seen */
constexpr double STORED_WORK = 90; /* a window that does not overlap others */
constexpr double GATHER_WORK = 60, GATHERED_WORK = 11; /* an element, its windows */
/* paired_windows: a run of elements, each window of one or two, measured times over that. */
constexpr double PAIRED_WORK = 70, PAIRED_WINDOW_WORK[2] = {11, 20};
constexpr double PAIRED_MEASURED = 1.5;
/* marching_windows: a thread, a window that it loads, an element and each of its windows
   that is compared; fitted to 22 times, NOTES.md. */
constexpr double MARCH_WORK = 130, MARCH_LOAD_WORK = 14, MARCH_ELEMENT_WORK = 20;
constexpr double MARCH_MEASURED = 1.7;
/* v4, fitted to 30 times (NOTES.md): a call, a tile, a step of a warp, a lane's window,
   and of the time of its bytes what nothing hides. */
constexpr double ROUNDS_US = 4.2, ROUND_TILE_US = 3.7, ROUND_STEP_US = 0.53;
constexpr double ROUNDS_WORK = 126, ROUNDS_UNHIDDEN = 0.47;

/* deep_windows: a window; a line, an element; a named one, each of a lane. */
constexpr double DEEP_WINDOW_WORK = 80, DEEP_LINE_WORK = 50, DEEP_ELEMENT_WORK = 4;
constexpr double DEEP_NAMED_WORK = 60; /* us of a row of windows, of a window of it: */
constexpr double DEEP_PHASE_US = 0.8, DEEP_STEP_US = 0.09, DEEP_CAUTION = 2;

/*
 * Measured times over such estimates, about, in 13 shapes (benchmarks/results/
 * h200-pool-gradients.json): of any_windows and overlapping_windows.
 */
constexpr double GATHER_MEASURED = 3.6, OVERLAP_MEASURED = 1.7;
/* The latter again where kernels are at most twice the stride: 1.1 to 1.7 times on an
   H100, of planes 1.4 to 1.9 times. */
constexpr double SHORT_CAUTION = 1.45, FLAT_CAUTION = 1.6;

#endif
