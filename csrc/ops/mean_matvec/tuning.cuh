/*
 * tuning.cuh  The sizes that mean_matvec's kernels were tuned to on an H200; NOTES.md says
 * what was tried, benchmarks/results/h200-mean_matvec.json has the times.
 */
#ifndef GPO_MEAN_MATVEC_TUNING_CUH
#define GPO_MEAN_MATVEC_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 128; /* threads of v0 to v3 */

/* v4 and v5 */
constexpr int THREADS = 256;    /* of a block that streams or multiplies tiles */
constexpr int BLOCKS = 2;       /* of them on an SM: 128 registers a thread */
constexpr int SLOTS = 8;        /* 16-byte loads a thread has in flight */
constexpr int FEWEST_LANES = 8; /* on one row: 128 bytes side by side */
constexpr int STEPS = 4;        /* of SLOTS loads in an item: 128 KiB of x */
constexpr int TILE_OUTPUTS = 64, TILE_BATCHES = 64; /* of a tile of the product */
constexpr int DEPTH_PACKS = 8; /* of a stage, what lies in shared memory at a time */
constexpr int RING = 3; /* stages: two on their way, for L2 takes longer than one */

constexpr int64_t SHORT = 128; /* elements of a mean up to which v5 is faster than v4 */

#endif
