/*
 * folds.h  reduce on the CPU: what an element is, and how two partial results become
 * one.  Order: loads, folds, states.
 * Not here: minimum and maximum (extremes.inc), the loops over elements (fold.inc), the
 * walk over an array (cpu.c).
 */
#ifndef GPO_REDUCE_FOLDS_H
#define GPO_REDUCE_FOLDS_H

#include "reduce.h"

#include <math.h>
#include <string.h>

/*
 * A loop that copies a row stays a loop: memcpy does not read front to back.  This stands
 * before the folds: gcc inlines no function into one with other options.
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

/* ---- folds: two partial results become one ---- */

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))

/* ---- states: a partial result becomes what a chunk leaves ---- */

#define WIDEN_U64(a) ((uint64_t)(int64_t)(a)) /* modulo 2^64, sign extended */
#define WIDEN_I64(a) ((int64_t)(a))
#define WIDEN_F64(a) ((double)(a))
#define WIDEN_C128(a) ((gpo_c128){(a).re, (a).im})

#endif
