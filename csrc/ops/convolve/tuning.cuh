/*
 * tuning.cuh  The sizes that convolve's kernels were tuned to on an H200; NOTES.md has
 * the sweeps, benchmarks/results/h200-convolve.json the resulting times.
 */
#ifndef GPO_CONVOLVE_TUNING_CUH
#define GPO_CONVOLVE_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 and v1 */

/* v1: bytes of taps per launch; with the view below the 4 KB that every GPU takes. */
constexpr int PIECE_BYTES = 2048;
constexpr int STAGE = 256; /* v1: terms whose signal is in shared memory at a time */

constexpr int THREADS = 256;       /* of v2 */
constexpr int BLOCKS = 2;          /* of v2 on an SM */
constexpr int FEWEST_LANES = 8;    /* v2: threads whose 16-byte loads use all banks */
constexpr int LEAST_TERMS = 128;   /* v2: fewest terms of a part */
constexpr int STAGE_BYTES = 30720; /* v2: largest of all shapes (window_shape.cuh) */

/* short_filters: one round of loads, one chunk of terms. */
constexpr int SHORT_THREADS = 128;
constexpr int SHORT_SUMS = 4 * SHORT_THREADS; /* per block */
constexpr int64_t MOST_SHORT_TAPS = 512;

constexpr int64_t LEAST_TAPS = 192;             /* for transforms; v2 takes fewer */
constexpr int64_t BLOCK_TAPS = 4096;            /* most in a filter of one block */
constexpr int64_t MOST_TAPS = int64_t{1} << 28; /* beyond, spectra fill a GPU */
constexpr int MARKS = 64; /* v3: most blocks of results per block of threads */

/* long_filters: blocks of results per thread, at one frequency. */
constexpr int RESULTS = 8;
constexpr int TILE_TAPS = 32; /* blocks of the filter in shared memory at a time */
/* Spectral values of rows and results in memory at a time, per SM: 2 MiB. */
constexpr int64_t PASS_NUMBERS = 1 << 18;

#endif
