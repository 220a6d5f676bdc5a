/*
 * folds.h  reduce on the CPU: how an element is loaded and two partial results are
 * combined.  Order: loads, folds, states.
 * See extremes.inc for minimum and maximum, fold.inc for the loops over elements, cpu.c
 * for the walk over an array.
 */
#ifndef GPO_REDUCE_FOLDS_H
#define GPO_REDUCE_FOLDS_H

#include "reduce.h"

#include <math.h>
#include <string.h>

/*
 * Keeps gcc from turning a loop that copies a row into memcpy, which does not read
 * front to back.  It comes before the folds, because gcc does not inline a function
 * into one with other options.
 */
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include "../../core/complex.h"
#include "../../core/elements.h"

/* ---- loads: the value of an element ---- */

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define UNTRUTH(x) ((x) == 0)
#define TRUTH_16(x) ((x).bits & 0x7fffu)
#define UNTRUTH_16(x) (((x).bits & 0x7fffu) == 0)

/* ---- folds: combine two partial results ---- */

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))

/* ---- states: convert a partial result to the state of a chunk ---- */

#define WIDEN_U64(a) ((uint64_t)(int64_t)(a)) /* modulo 2^64, sign extended */
#define WIDEN_I64(a) ((int64_t)(a))
#define WIDEN_F64(a) ((double)(a))
#define WIDEN_C128(a) ((gpo_c128){(a).re, (a).im})

#endif
