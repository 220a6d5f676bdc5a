/*
 * segments.h  The values of `segments` in host memory, and what is wrong with them: what
 * cpu_segments.c and segment_marks.cu have in common.
 */
#ifndef GPO_CAUSAL_CONV1D_SEGMENTS_H
#define GPO_CAUSAL_CONV1D_SEGMENTS_H

#include "causal_conv1d.h"

/* Of each step of each batch, or cumulative lengths (b is 0); strides in elements. */
typedef struct segment_values {
    const void *values;
    bool wide; /* int64, not int32 */
    int64_t b, t;
} segment_values;

static inline int64_t
segment_value(const segment_values *s, int64_t b, int64_t t)
{
    const int64_t i = b * s->b + t * s->t;
    return s->wide ? ((const int64_t *)s->values)[i] : ((const int32_t *)s->values)[i];
}

/* Cumulative lengths 0 <= ... <= T. */
static inline gpo_status
check_segment_borders(gpo_call *call, const segment_values *s)
{
    const conv_plan *p = conv_plan_of(call);
    int64_t before = 0;
    for (int64_t i = 0; i < p->segments_n; i++) {
        const int64_t value = segment_value(s, 0, i);
        if (i == 0 && value != 0) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "segments must begin with 0, not %lld", (long long)value);
        }
        if (value < before) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "segments must not decrease, but segments[%lld] after "
                            "%lld is %lld, which is less",
                            (long long)i, (long long)before, (long long)value);
        }
        before = value;
    }
    if (before != p->steps) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments must end with T = %lld, the steps of x, not %lld",
                        (long long)p->steps, (long long)before);
    }
    return GPO_OK;
}

static inline gpo_status
check_segment_ids(gpo_call *call, const segment_values *s)
{
    const conv_plan *p = conv_plan_of(call);
    for (int64_t b = 0; b < p->batches; b++) {
        for (int64_t t = 0; t < p->steps; t++) {
            const int64_t value = segment_value(s, b, t);
            if (value < 0) {
                return gpo_fail(&call->error, GPO_EVALUE,
                                "segments must not be negative, but "
                                "segments[%lld, %lld] is %lld",
                                (long long)b, (long long)t, (long long)value);
            }
        }
    }
    return GPO_OK;
}

/* ValueError for lengths that decrease or do not end with T, and for negative numbers. */
static inline gpo_status
check_segment_values(gpo_call *call, const segment_values *s)
{
    return conv_plan_of(call)->segments == SEGMENTS_BORDERS
               ? check_segment_borders(call, s)
               : check_segment_ids(call, s);
}

#endif
