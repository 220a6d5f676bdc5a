/*
 * tuning.cuh  The sizes that partition_reduce's kernels were tuned to on an H200;
 * NOTES.md says why, benchmarks/results/h200-partition_reduce.json has the times.
 */
#ifndef GPO_PARTITION_REDUCE_TUNING_CUH
#define GPO_PARTITION_REDUCE_TUNING_CUH

#include <stdint.h>

constexpr int LOG_BLOCK = 8, BLOCK = 1 << LOG_BLOCK; /* threads of every kernel */

/* v1: log2 of the sums of a copy; elements of a thread, if there are that many. */
constexpr int WINDOW_BITS = 12;
constexpr int64_t V1_ITEMS = 16;

constexpr int64_t COPIES_BYTES = static_cast<int64_t>(64) << 20; /* v2: all copies */

/* v3: loads of a turn; short_loops takes sums over fewer than LOOP_BITS high bits. */
constexpr int LOOP_BITS = 3, LOADS = 1 << LOOP_BITS;
constexpr int BLOCKS_PER_SM = 4;

/* short_loops: lanes write runs of 2^NEAR_BITS sums; 2^LOW_LANE_BITS read 64 bytes. */
constexpr int NEAR_BITS = 3, LOW_LANE_BITS = 2;

/* few_bits: summed bits; packs are for whole sectors. */
constexpr int FEW_BITS = 4, SECTOR_BYTES = 32;

/* few_sums: bits of a result and summed bits, at most; the choice takes it for at least
   LEAST_FEW of these, of at most 2^FEW_SUMS_BITS elements (2^12 float64 into two 4.6 us on an H100, v3
   5.6; 2^11 into 128 of 16 5.2, short_loops 6.5). */
constexpr int FEW_KEPT = 9, MOST_FEW = 12, LEAST_FEW = 2, FEW_SUMS_BITS = 16;

/* Reads of up to this size keep what is in L2: see reduce's notes on evict-first. */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

#endif
