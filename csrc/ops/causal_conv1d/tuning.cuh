/*
 * tuning.cuh  The sizes that the kernels of causal_conv1d were tuned to on an H200;
 * NOTES.md has the trials, benchmarks/results/h200-causal_conv1d*.json the times.
 */
#ifndef GPO_CAUSAL_CONV1D_TUNING_CUH
#define GPO_CAUSAL_CONV1D_TUNING_CUH

#include "../../device/warp.cuh"

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 and v1 */
constexpr int PIECE = 256; /* inputs staged at a time, v1 to v4 */

constexpr int QUADS = 64;             /* threads per block of v2 to v4 */
constexpr int QUAD_STEPS = 4 * QUADS; /* steps per block */

/* v3, v4: batches per block; for the gradient of filters, batches and inputs staged. */
template <typename T>
constexpr int SHARING = sizeof(T) == 8 ? 4 : 8;
constexpr int LAG_ROWS = 2, LAG_PIECE = 128;

/* v5: the tile of a thread, steps (or lags) by inputs. */
constexpr int STEPS = 16;
constexpr int INPUTS = 8;
constexpr int WINDOW = STEPS + INPUTS; /* lags of 16 by 8 products, and one more */
constexpr int SUBSTEPS = 4;            /* unrolled, with the window in registers */
constexpr int TILE_WARPS = 8, TILE_BLOCK = TILE_WARPS * WARP;
constexpr int SEGMENT = TILE_WARPS * STEPS; /* steps of a row of v5 */
constexpr int CHUNK = 64;                   /* inputs staged at a time */
constexpr int LAG_SEGMENT = 256;            /* the same for lags: inputs */

/* The tile of lags: 4-byte and 8-byte values take the same shared memory. */
template <typename V>
struct lag_tile {
    static constexpr int WARPS = sizeof(V) == 8 ? 4 : 8, BLOCK = WARPS * WARP;
    static constexpr int LAGS = WARPS * STEPS;              /* per block */
    static constexpr int STAGED = sizeof(V) == 8 ? 32 : 64; /* inputs at a time */
    static constexpr int RING = sizeof(V) == 8 ? 128 : 256; /* >= STAGED + LAGS */
};

/* Filters of at most SHORT lags. */
constexpr int SHORT = 16;
constexpr int64_t MOST_SHORT_STEPS = 1 << 30; /* fewer than so many */
constexpr int SHORT_BLOCK = 128;              /* threads per block */
constexpr int SHORT_ITEMS = 4; /* packs per lane, loaded before the first use */
constexpr int64_t SHORT_ROW_WARPS = 64; /* wanted per SM: turns of a warp, forward */
constexpr int64_t SHORT_WARPS = 12;     /* backward: per SM, before rows are cut */
constexpr int64_t SHARING_WARPS = 64;   /* backward: per SM, for parts of a channel */
constexpr int STEPS_TOGETHER = 8;       /* channels last: stretches are whole eights */
constexpr int64_t LAST_THREADS = 2048;  /* channels last: threads wanted per SM */
constexpr int64_t LEAST_STEPS = 8;      /* channels last: per thread */
constexpr int64_t LAST_THREADS_BACKWARD = 512, LEAST_STEPS_BACKWARD = 16;

/* Backward, channels last: blocks per SM for which registers are kept. */
template <typename T, int LAGS>
constexpr int backward_blocks = sizeof(T) == 8 ? 0
                                : LAGS == 4    ? 4
                                               : 2;

constexpr int64_t MOST_STEPS_SUMMED = 256; /* steps of a block of a sum of dw */

/* Most groups of rows that write partial sums of the gradient of the filters. */
constexpr int64_t MOST_SPLITS = 64;
constexpr int64_t BLOCKS_WANTED = 4; /* per SM */

constexpr int REST_BLOCK = 256; /* threads of the kernels in common.cu */

/* v6: clocks between the starts of an SM's first blocks, so that phases alternate. */
constexpr int64_t STAGGER = 4500;

/* Fewer rows of SEGMENT steps than this leave most lanes of v5 idle. */
constexpr int64_t FEW_ROWS = 8;

#endif
