/*
 * cpu_segments.c  Where the rows of a call of causal_conv1d begin and end on a CPU: a
 * state before step 0, and segments of a row.  Order: segments, the span of a step,
 * states.
 */
#include "cpu.h"
#include "segments.h"

#include <string.h>

/* ---- segments ---- */

/* Whether a segment begins at step t of batch b. */
static bool
begins(const segment_values *s, int64_t b, int64_t t)
{
    return t == 0 || segment_value(s, b, t) != segment_value(s, b, t - 1);
}

gpo_status
conv_find_segments(gpo_call *call, conv_job *j)
{
    const conv_plan *p = &j->plan;
    const segment_values s = {j->arrays.segments, p->segments_wide, p->segments_b,
                              p->segments_t};
    int64_t count = p->segments_n;
    if (!p->segments) {
        return GPO_OK;
    }
    gpo_status status = check_segment_values(call, &s);
    if (!status && p->segments == SEGMENTS_IDS) {
        count = 0;
        for (int64_t b = 0; b < p->batches; b++) {
            for (int64_t t = 0; t < p->steps; t++) {
                count += begins(&s, b, t);
            }
        }
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
                begin[n] = segment_value(&s, b, n);
            }
            continue;
        }
        for (int64_t t = 0; t < p->steps; t++) {
            if (begins(&s, b, t)) {
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
