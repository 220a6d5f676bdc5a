/*
 * cpu_segments.c  Where the rows of a call of causal_conv1d begin and end on a CPU: a
 * state before step 0, and segments of a row.  Order: segments, the span of a step,
 * states.
 */
#include "cpu.h"

#include <string.h>

/* ---- segments ---- */

static int64_t
segment_value(const conv_job *j, int64_t b, int64_t t)
{
    const conv_plan *p = &j->plan;
    const int64_t i = b * p->segments_b + t * p->segments_t;
    return p->segments_wide ? ((const int64_t *)j->arrays.segments)[i]
                            : ((const int32_t *)j->arrays.segments)[i];
}

/* Cumulative lengths 0 <= ... <= T. */
static gpo_status
check_borders(gpo_call *call, const conv_job *j)
{
    const conv_plan *p = &j->plan;
    int64_t before = 0;
    for (int64_t i = 0; i < p->segments_n; i++) {
        const int64_t value = segment_value(j, 0, i);
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

/* Whether a segment begins at step t of batch b. */
static bool
begins(const conv_job *j, int64_t b, int64_t t)
{
    return t == 0 || segment_value(j, b, t) != segment_value(j, b, t - 1);
}

static gpo_status
check_ids(gpo_call *call, const conv_job *j, int64_t *count)
{
    const conv_plan *p = &j->plan;
    for (int64_t b = 0; b < p->batches; b++) {
        for (int64_t t = 0; t < p->steps; t++) {
            const int64_t value = segment_value(j, b, t);
            if (value < 0) {
                return gpo_fail(&call->error, GPO_EVALUE,
                                "segments must not be negative, but "
                                "segments[%lld, %lld] is %lld",
                                (long long)b, (long long)t, (long long)value);
            }
            *count += begins(j, b, t);
        }
    }
    return GPO_OK;
}

gpo_status
conv_find_segments(gpo_call *call, conv_job *j)
{
    const conv_plan *p = &j->plan;
    int64_t count = p->segments_n;
    gpo_status status = GPO_OK;
    if (!p->segments) {
        return GPO_OK;
    }
    if (p->segments == SEGMENTS_BORDERS) {
        status = check_borders(call, j);
    }
    else {
        count = 0;
        status = check_ids(call, j, &count);
    }
    void *memory = NULL;
    if (!status) {
        status = gpo_scratch(call, (size_t)(p->batches + 1 + count) * sizeof(int64_t),
                             &memory);
    }
    if (status) {
        return status;
    }
    int64_t *begin = memory, n = 0;
    j->first_segment = begin + count;
    for (int64_t b = 0; b < p->batches; b++) {
        j->first_segment[b] = n;
        if (p->segments == SEGMENTS_BORDERS) {
            for (; n < p->segments_n - 1; n++) {
                begin[n] = segment_value(j, b, n);
            }
            continue;
        }
        for (int64_t t = 0; t < p->steps; t++) {
            if (begins(j, b, t)) {
                begin[n++] = t;
            }
        }
    }
    j->first_segment[p->batches] = n;
    j->segment_begin = begin;
    return GPO_OK;
}

/* ---- the span of a step ---- */

conv_span
conv_span_at(const conv_job *j, int64_t b, int64_t from, int64_t to)
{
    const conv_plan *p = &j->plan;
    conv_span span = {p->has_state ? 1 - p->taps : 0, p->steps, from, to};
    if (!j->segment_begin) {
        return span;
    }
    int64_t low = j->first_segment[b], high = j->first_segment[b + 1];
    const int64_t past = high;
    while (high - low > 1) { /* the last segment that begins at `from` or before */
        const int64_t middle = low + (high - low) / 2;
        if (j->segment_begin[middle] <= from) {
            low = middle;
        }
        else {
            high = middle;
        }
    }
    span.begin = j->segment_begin[low];
    span.end = low + 1 < past ? j->segment_begin[low + 1] : p->steps;
    span.to = to < span.end ? to : span.end;
    return span;
}

/* ---- states ---- */

/* Task b: the last K - 1 inputs of batch b; without a state, 0 is before step 0. */
static void
keep_last(void *context, int64_t b)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t kept = p->taps - 1;
    for (int64_t c = 0; c < p->channels; c++) {
        for (int64_t k = 0; k < kept; k++) {
            const int64_t t = p->steps - kept + k;
            char *to = conv_element(j, j->arrays.last, &p->last, b, c, k);
            if (t >= 0) {
                conv_copy_element(to, conv_element(j, j->arrays.x, &p->x, b, c, t),
                                  j->bytes);
            }
            else if (p->has_state) {
                conv_copy_element(
                    to, conv_element(j, j->arrays.state, &p->state, b, c, kept + t),
                    j->bytes);
            }
            else {
                memset(to, 0, (size_t)j->bytes);
            }
        }
    }
}

void
conv_return_state(const conv_job *j)
{
    if (j->plan.returns_state) {
        gpo_cpu_loop(j->parallel, j->plan.batches, keep_last, (void *)j);
    }
}
