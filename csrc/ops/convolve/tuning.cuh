/*
 * tuning.cuh  The sizes that convolve's kernels were tuned to on an H200; NOTES.md has the
 * sweeps, benchmarks/results/h200-convolve.json the times that came of them.
 */
#ifndef GPO_CONVOLVE_TUNING_CUH
#define GPO_CONVOLVE_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 and v1 */

/* v1: bytes of taps of a launch, with the view below the 4 KB every card takes. */
constexpr int PIECE_BYTES = 2048;
constexpr int STAGE = 256; /* v1: terms whose signal is in shared memory at a time */

constexpr int THREADS = 256;       /* of v2 */
constexpr int BLOCKS = 2;          /* of v2 on an SM */
constexpr int FEWEST_LANES = 8;    /* v2: threads whose 16-byte loads meet the banks */
constexpr int LEAST_TERMS = 128;   /* v2: that are worth a part of their own */
constexpr int STAGE_BYTES = 30720; /* v2: the most of all shapes (window_shape.cuh) */

constexpr int64_t LEAST_TAPS = 192;             /* of spectra; fewer are v2's */
constexpr int64_t BLOCK_TAPS = 4096;            /* of a filter of one block at most */
constexpr int64_t MOST_TAPS = int64_t{1} << 28; /* beyond, spectra fill a card */
constexpr int MARKS = 64; /* v3: the most blocks of results of a block of threads */

/* long_filters: blocks of results of a thread, for one frequency. */
constexpr int RESULTS = 8;
constexpr int TILE_TAPS = 32; /* blocks of the filter in shared memory at a time */
/* Of spectra of rows and results in memory at a time, per SM: 2 MiB. */
constexpr int64_t PASS_NUMBERS = 1 << 18;

#endif
