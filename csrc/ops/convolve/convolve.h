/*
 * convolve.h  The plan that op.c makes once and every variant of convolve reads: rows
 * of two operands, the second never longer than the first, and the part of their full
 * convolution that is the result.
 */
#ifndef GPO_CONVOLVE_H
#define GPO_CONVOLVE_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One leading axis of the result; strides of the operands are in elements. */
typedef struct convolve_axis {
    int64_t length, a, v;
} convolve_axis;

/* How a row of the result finds its operands. */
typedef struct convolve_rows {
    int naxes;
    convolve_axis axes[GPO_MAX_DIMS]; /* innermost first; adjacent ones are merged */
} convolve_rows;

/*
 * out[r, i] = sum over k in [0, m) of v[r, k] * a[r, first + i - k], terms beyond the
 * ends of `a` left out, for r in [0, count_rows) and i in [0, count); m <= n.
 */
typedef struct convolve_plan {
    int in_a, in_v;         /* which inputs of the call a and v are */
    int64_t n, m;           /* elements of a row of a and of v */
    int64_t a_step, v_step; /* strides within a row */
    int64_t first, count;   /* which of the n + m - 1 sums the result keeps */
    int64_t count_rows;
    bool one_filter; /* every row has the same v */
    convolve_rows rows;
} convolve_plan;

static inline const convolve_plan *
convolve_plan_of(const gpo_call *call)
{
    return (const convolve_plan *)call->plan;
}

/* Terms that sum i of n + m - 1 adds up: k in [*low, *high). */
static inline void
convolve_terms(int64_t n, int64_t m, int64_t i, int64_t *low, int64_t *high)
{
    *low = i - n + 1 > 0 ? i - n + 1 : 0;
    *high = i + 1 < m ? i + 1 : m;
}

/* Terms that are added in order; such sums go into a compensated total. */
enum { CONVOLVE_CHUNK = 512 };

#ifdef __cplusplus
}
#endif
#endif
