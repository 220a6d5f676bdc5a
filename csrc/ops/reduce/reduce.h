/*
 * reduce.h  The plan of reduce, made by op.c and read by every variant: which
 * reduction, and the array as `rows` results of `cols` elements each.
 */
#ifndef GPO_REDUCE_H
#define GPO_REDUCE_H

#include "../../core/initial.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum reduce_op {
    REDUCE_SUM,
    REDUCE_PROD,
    REDUCE_MIN,
    REDUCE_MAX,
    REDUCE_MEAN,
    REDUCE_ARGMIN,
    REDUCE_ARGMAX,
    REDUCE_ANY,
    REDUCE_ALL,
    REDUCE_NOPS
} reduce_op;

/* Axes, outermost first; adjacent axes that one stride can walk are merged. */
typedef struct reduce_axes {
    int ndim;
    int64_t shape[GPO_MAX_DIMS];
    int64_t strides[GPO_MAX_DIMS]; /* in elements */
} reduce_axes;

/*
 * Result r (row-major over `kept`) combines x[first + offset(kept, r) +
 * offset(reduced, k)] for k in [0, cols).  The order of k is NumPy's C order for
 * argmin and argmax; for the others the axes are sorted so that the last one has the
 * smallest stride, and negative strides are made positive (`first` is adjusted).
 */
typedef struct reduce_plan {
    reduce_op op;
    int64_t rows, cols;
    int64_t first;       /* element 0 of result 0 */
    gpo_initial initial; /* SUM, PROD, MIN, MAX: combined with every result */
    reduce_axes kept, reduced;
} reduce_plan;

/* Appends an axis; one of a single element needs none. */
static inline void
reduce_push_axis(reduce_axes *axes, int64_t length, int64_t stride)
{
    const int last = axes->ndim - 1;
    if (length == 1) {
        return;
    }
    if (last >= 0 && axes->strides[last] == length * stride) {
        axes->shape[last] *= length;
        axes->strides[last] = stride;
        return;
    }
    axes->shape[axes->ndim] = length;
    axes->strides[axes->ndim++] = stride;
}

static inline const reduce_plan *
reduce_plan_of(const gpo_call *call)
{
    return (const reduce_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
