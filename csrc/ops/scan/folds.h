/*
 * folds.h  scan on the CPU: how elements are loaded and results combined and stored.
 * Order: loads and stores, folds, chains.
 * See extremes.inc for minimum and maximum, fold.inc for the loops over elements, cpu.c
 * for the walk over an array.
 */
#ifndef GPO_SCAN_FOLDS_H
#define GPO_SCAN_FOLDS_H

#include "scan.h"

#include <math.h>
#include <string.h>

#include "../../core/complex.h"
#include "../../core/elements.h"

/* ---- loads and stores: element to running result to result ---- */

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define WIDE_C(x) ((gpo_c128){(x).re, (x).im})
#define NARROW_C(a) ((gpo_c64){(float)(a).re, (float)(a).im})
#define NARROW_F(a) ((float)(a))

/* ---- folds: combine two partial results ---- */

#define ZERO_C ((gpo_c128){0, 0})
#define ONE_C ((gpo_c128){1, 0})
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))

/* ---- chains: a running result `hi` and its rounding error `lo` ---- */

#define PLAIN_STEP(fold, hi, lo, v) ((hi) = fold(hi, v), (void)(lo))
#define PLAIN_VALUE(hi, lo) ((void)(lo), (hi))

/* Adds v to *hi and the rounding error of the addition to *lo (Knuth's TwoSum). */
static inline void
two_sum(double *hi, double *lo, double v)
{
    const double sum = *hi + v;
    const double back = sum - *hi;
    *lo += (*hi - (sum - back)) + (v - back);
    *hi = sum;
}

static inline double
two_sum_value(double hi, double lo)
{
    return lo - lo == 0 ? hi + lo : hi; /* after inf, `lo` is nan */
}

#define F64_STEP(fold, hi, lo, v) two_sum(&(hi), &(lo), v)
#define F64_VALUE(hi, lo) two_sum_value(hi, lo)
#define C128_STEP(fold, hi, lo, v) \
    (two_sum(&(hi).re, &(lo).re, (v).re), two_sum(&(hi).im, &(lo).im, (v).im))
#define C128_VALUE(hi, lo) \
    ((gpo_c128){two_sum_value((hi).re, (lo).re), two_sum_value((hi).im, (lo).im)})

#endif
