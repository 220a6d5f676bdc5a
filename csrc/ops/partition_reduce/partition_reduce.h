/*
 * partition_reduce.h  What op.c works out once and every variant reads: which bits of
 * an element's index are kept, and where in the index of the result they go.
 */
#ifndef GPO_PARTITION_REDUCE_H
#define GPO_PARTITION_REDUCE_H

#include "../../core/gpo.h"
#include "../../core/integers.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PARTITION_BITS = 64 };

/*
 * Element i of 2^n adds to output `sum of ((i >> b) & 1) << to[b]` over the kept b; its
 * bits with to[b] < 0 are summed over.
 *
 * A sum of complex numbers is a sum of twice as many reals whose bit 0, the part, is
 * kept as bit 0 of the result: `dtype`, n, k and `to` then describe the reals, and
 * element i is at x[(i >> 1) * stride + (i & 1)].  Otherwise it is at x[i * stride].
 */
typedef struct partition_plan {
    gpo_dtype dtype; /* of an element: C64 and C128 only with `square` */
    bool square;     /* sum |x|^2 */
    bool pairs;      /* the reals of complex numbers */
    int n, k;
    int8_t to[PARTITION_BITS];
    int64_t stride; /* in elements of `dtype` */
    gpo_dtype out_dtype;
} partition_plan;

static inline const partition_plan *
partition_plan_of(const gpo_call *call)
{
    return (const partition_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
