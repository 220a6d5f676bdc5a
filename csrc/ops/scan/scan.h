/*
 * scan.h  The plan of scan, made by op.c and read by every variant: which scan, and the
 * arrays as `rows` scans of `cols` elements each.
 */
#ifndef GPO_SCAN_H
#define GPO_SCAN_H

#include "../../core/initial.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum scan_op { SCAN_SUM, SCAN_PROD, SCAN_MIN, SCAN_MAX, SCAN_NOPS } scan_op;

/* Axes, outermost first; adjacent axes that one stride can walk are merged. */
typedef struct scan_axes {
    int ndim;
    int64_t shape[GPO_MAX_DIMS];
    int64_t strides[GPO_MAX_DIMS]; /* in elements */
} scan_axes;

/*
 * Scan r = o * inner + i combines the elements x[x_first + offset(kept, r) +
 * k * stride], k in [0, cols), and stores result k in out[out_first +
 * o * cols * inner + k * step + i].  A reversed scan begins at the last element and
 * result, and its strides are negative.
 */
typedef struct scan_plan {
    scan_op op;
    bool exclusive;
    gpo_initial initial; /* what a scan begins with; else the identity */
    int64_t rows, cols, inner;
    int64_t x_first, out_first;
    int64_t stride; /* of x along the axis */
    int64_t step;   /* of out: inner, or -inner */
    scan_axes kept; /* the other axes of x, merged: the outer ones, then the inner */
    int inner_ndim; /* how many of them are inner */
} scan_plan;

static inline const scan_plan *
scan_plan_of(const gpo_call *call)
{
    return (const scan_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
