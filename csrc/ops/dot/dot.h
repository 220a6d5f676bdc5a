/*
 * dot.h  What op.c works out once and every variant of dot reads: the two arrays as n
 * pairs of elements.
 */
#ifndef GPO_DOT_H
#define GPO_DOT_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The sum over i in [0, n) of x[i * x_stride] * y[i * y_stride]; strides are in
 * elements.  Two arrays that both run backwards are turned round.
 */
typedef struct dot_plan {
    const void *x, *y;
    int64_t n, x_stride, y_stride;
} dot_plan;

/* The plan of a call that dot's shape rule has accepted. */
void dot_make_plan(const gpo_call *call, dot_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
