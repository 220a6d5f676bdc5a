/*
 * tuning.cuh  The sizes that elementwise's kernels were tuned to on an H200:
 * benchmarks/results/h200-elementwise.json has the times.
 */
#ifndef GPO_ELEMENTWISE_TUNING_CUH
#define GPO_ELEMENTWISE_TUNING_CUH

constexpr int BLOCK = 256;
constexpr int FEW_AXES = 8; /* of a launch; more of them take several */

enum { WAVES = 32, BLOCKS_PER_PROCESSOR = 8 }; /* v1: of a fixed grid */
enum { LONG_ROW_BYTES = 2048 };                /* v2: shorter rows go to v0 */

#endif
