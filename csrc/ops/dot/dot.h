/*
 * dot.h  The plan of dot, made by op.c and read by every variant: the two arrays as n
 * pairs of elements.
 */
#ifndef GPO_DOT_H
#define GPO_DOT_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The sum over i in [0, n) of x[x_first + i * x_stride] * y[y_first + i * y_stride], in
 * elements.  Two arrays that both run backwards are reversed.
 */
typedef struct dot_plan {
    int64_t n, x_first, x_stride, y_first, y_stride;
} dot_plan;

static inline const dot_plan *
dot_plan_of(const gpo_call *call)
{
    return (const dot_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
