/*
 * folds.h  scan on the CPU: what an element is, and how two partial results become one.
 * Order: loads and stores, folds, chains.
 * Not here: minimum and maximum (extremes.inc), the loops over elements (fold.inc), the
 * walk over an array (cpu.c).
 */
#ifndef GPO_SCAN_FOLDS_H
#define GPO_SCAN_FOLDS_H

#include "scan.h"

#include <math.h>
#include <string.h>

#include "../../core/complex.h"
#include "../../core/elements.h"

/* ---- loads and stores: an element, a running result, a result ---- */

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define WIDE_C(x) ((gpo_c128){(x).re, (x).im})
#define NARROW_C(a) ((gpo_c64){(float)(a).re, (float)(a).im})
#define NARROW_F(a) ((float)(a))

/* ---- folds: two partial results become one ---- */

#define ZERO_C ((gpo_c128){0, 0})
#define ONE_C ((gpo_c128){1, 0})
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))

/* ---- chains: a running result `hi`, and `lo` that keeps what `hi` rounds away ---- */

#define PLAIN_STEP(fold, hi, lo, v) ((hi) = fold(hi, v), (void)(lo))
#define PLAIN_VALUE(hi, lo) ((void)(lo), (hi))

/* A sum that keeps what each addition rounds away (Knuth's TwoSum). */
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
    return lo - lo == 0 ? hi + lo : hi; /* after inf, `lo` is a nan */
}

#define F64_STEP(fold, hi, lo, v) two_sum(&(hi), &(lo), v)
#define F64_VALUE(hi, lo) two_sum_value(hi, lo)
#define C128_STEP(fold, hi, lo, v) \
    (two_sum(&(hi).re, &(lo).re, (v).re), two_sum(&(hi).im, &(lo).im, (v).im))
#define C128_VALUE(hi, lo) \
    ((gpo_c128){two_sum_value((hi).re, (lo).re), two_sum_value((hi).im, (lo).im)})

#endif
