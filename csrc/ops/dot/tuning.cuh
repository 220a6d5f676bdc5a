/*
 * tuning.cuh  The sizes that dot's kernels were tuned to on an H200: NOTES.md says how v3
 * is made, benchmarks/results/h200-dot.json has the times that came of them.
 */
#ifndef GPO_DOT_TUNING_CUH
#define GPO_DOT_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, of every kernel */

constexpr int ATOMIC_BLOCKS = 8; /* v0 to v2, per SM: all its threads, an atomic each */

constexpr int BLOCKS_PER_SM = 4; /* v3, strided: 1024 threads, 64 registers each */
constexpr int ITEMS = 4;         /* v3: packs of x, and of y, in flight */
constexpr int SHIFTED_ITEMS = 2; /* twice as many packs of y */
constexpr int LOADS = 8;         /* strided: single elements in flight */

/*
 * Up to here reads leave L2 what was in it.  A larger input drives that out in any
 * case, and then a stream that may use only part of L2 is the slower one: reduce's
 * NOTES.md has the figures.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

#endif
