/*
 * tuning.cuh  The sizes of dot's kernels, tuned on an H200.  See NOTES.md for how v3
 * works, benchmarks/results/h200-dot.json for the resulting times.
 */
#ifndef GPO_DOT_TUNING_CUH
#define GPO_DOT_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256; /* threads, of every kernel */

constexpr int ATOMIC_BLOCKS = 8; /* v0 to v2, per SM: all of its threads */

constexpr int BLOCKS_PER_SM = 4; /* v3, strided: 1024 threads of 64 registers */
constexpr int ITEMS = 4;         /* v3: packs of x, and of y, in flight */
constexpr int SHIFTED_ITEMS = 2; /* twice as many packs of y */
constexpr int LOADS = 8;         /* strided: single elements in flight */

/*
 * one_block: its threads, and the bytes of an array that they load at once, of 64
 * registers.  More elements than ONE_BLOCK_ITEMS are a block's work for longer than
 * several blocks take with their tickets.
 */
constexpr int ONE_BLOCK = 1024;
constexpr int64_t ONE_BLOCK_BYTES = ONE_BLOCK * ITEMS * 16;
constexpr int64_t ONE_BLOCK_ITEMS = 16384;

/*
 * Up to this size, reads keep what L2 holds.  A larger input evicts it in any case, and
 * a stream limited to part of L2 is then slower.  See reduce's NOTES.md for the
 * figures.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

#endif
