/*
 * tuning.cuh  The sizes of elementwise's kernels, tuned on an H200.  See
 * benchmarks/results/h200-elementwise.json for the times.
 */
#ifndef GPO_ELEMENTWISE_TUNING_CUH
#define GPO_ELEMENTWISE_TUNING_CUH

#include <stdint.h>

constexpr int BLOCK = 256;
constexpr int FEW_AXES = 8; /* per launch; more axes take several launches */

enum { WAVES = 32, BLOCKS_PER_PROCESSOR = 8 }; /* v1: of a fixed grid */
enum { LONG_ROW_BYTES = 1024 };                /* v2: shorter rows go to v0 */

enum { STRIDED_BLOCK = 128, STRIDED_PACK = 4 }; /* any_strides; fewest of a pack */

/* any_strides: the largest offset, so that a pack after the last one has 31 bits, too. */
constexpr int64_t MOST_OFFSET = INT32_MAX - 64;

/* The choice: results from which any_strides is taken instead of v0; on an H100 both take
   4 us below.  Bytes of a sector, of which a transposed operand takes one per element. */
constexpr int64_t MANY_RESULTS = 1 << 16, SECTOR_BYTES = 32, LINE_BYTES = 128;
/* Rows so short that a block of any_strides has whole sectors of a transposed operand: sum
   of (3223639, 4) and its like transposed, bfloat16, 58 us in v0 on an H100, any_strides 27;
   1.6 million rows of 100 float32 1,291 and 956. */
constexpr int64_t NARROW = 128;
/* But not a wave or two of v0's threads: minimum of (14, 4096, 5) float16 and its like
   transposed 6.2 us in v0 on an H100, any_strides 7.0. */
constexpr int64_t MANY_NARROW = 1 << 19;

/* any_strides: neighbouring packs of a row before those of the next row, where rows share
   lines of a transposed operand: 128 bytes of the result. */
constexpr int TURNED_PACKS = 8;

/* Results up to which v0 is taken if lanes share an element: 4 x 8,192 bfloat16 with a
   column 4.4 us on an H100, v1 4.3 to 4.8, v2 5.1.  Of rows that are v2's, more: 64 x 1,024
   float32 6.0 us, v2 6.7, 100 x 1,300 float16 5.8 and 6.8, 300 x 1,000 float32 7.5 and 7.6. */
constexpr int64_t FEW_RESULTS = 1 << 15, FEW_IN_ROWS = 1 << 17;

/* The choice: bytes of all arrays up to which v1 is taken; measured on an H100.  From so many
   on some calls are left to v2, and divisions to any_strides. */
constexpr int64_t SMALL_BYTES = 512 << 20, MIDDLE_BYTES = 48 << 20;

#endif
