/*
 * rows.h  The rows of the smaller side of upsample_nearest on the CPU, and the outputs
 * that belong to them.  Order: rows, sources and first outputs.
 */
#ifndef GPO_UPSAMPLE_NEAREST_ROWS_H
#define GPO_UPSAMPLE_NEAREST_ROWS_H

#include "upsample_nearest.h"

/* ---- rows ---- */

/* Row t of the smaller side, numbered through images, channels, D and H. */
typedef struct row_index {
    int64_t a, b, d, h;
} row_index;

static inline row_index
row_of(const upsample_nearest_plan *p, int64_t t)
{
    const int64_t d = p->axis[0].in, h = p->axis[1].in;
    row_index r;
    r.h = t % h;
    t /= h;
    r.d = t % d;
    t /= d;
    r.b = t % p->channels;
    r.a = t / p->channels;
    return r;
}

/* Moves to the row after *r. */
static inline void
next_row(const upsample_nearest_plan *p, row_index *r)
{
    if (++r->h < p->axis[1].in) {
        return;
    }
    r->h = 0;
    if (++r->d < p->axis[0].in) {
        return;
    }
    r->d = 0;
    if (++r->b == p->channels) {
        r->b = 0;
        r->a++;
    }
}

/* ---- sources and first outputs ---- */

/* As upsample_source: the source is not negative, so that conversion rounds it down. */
static inline int64_t
source_of(const upsample_axis *axis, int64_t i)
{
    const int64_t source = (int64_t)(((float)i + axis->shift) * axis->inverse);
    return source < axis->in - 1 ? source : axis->in - 1;
}

/* first[s] = upsample_first(axis, s) for s in [0, in] */
static inline void
fill_first(const upsample_axis *axis, int64_t *first)
{
    if (axis->log >= 0) {
        for (int64_t s = 0; s <= axis->in; s++) {
            first[s] = s << axis->log;
        }
        return;
    }
    int64_t s = 0;
    for (int64_t i = 0; i < axis->out; i++) {
        for (const int64_t source = source_of(axis, i); s <= source; s++) {
            first[s] = i;
        }
    }
    for (; s <= axis->in; s++) {
        first[s] = axis->out;
    }
}

#endif
