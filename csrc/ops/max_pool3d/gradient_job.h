/*
 * gradient_job.h  What every part of the gradient of max_pool3d on the CPU reads.  Order:
 * the inner loops of three instruction sets, the job, which indices count.  Only
 * gradient.c includes it.  See gradient_loops.inc for the inner loops.
 */
#ifndef GPO_MAX_POOL3D_GRADIENT_JOB_H
#define GPO_MAX_POOL3D_GRADIENT_JOB_H

#include "keys.h"

#include "../../core/integers.h"
#include "../../core/once.h"
#include "../../core/prefetch.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- the inner loops of three instruction sets ---- */

enum {
    BLOCK = 256,    /* gradients whose elements are found at once: 6 KiB of stack */
    SPARE = 16,     /* so many are written at once, perhaps past the end of a row */
    AT_ONCE = 64,   /* gradients that are added between two prefetches */
    DEAD = 1 << 30, /* the first element of a window without any */
};

/* Of each window its first element, which is outside of x only along the first of the
   axes that count, and how many more it has along W and H. */
typedef struct windows {
    int32_t *origin, *last_w, *last_h;
} windows;

/* The indices of some gradients in a row, and their windows. */
typedef struct block {
    int64_t index[BLOCK]; /* a copy: another thread may change the array */
    int32_t own[3][BLOCK + SPARE];
    windows windows; /* `own`, or a part of those of a slice... */
    int32_t shift;   /* ...whose first elements are so many further on */
    bool in_line;    /* instead, the first begins at `first`, each `step` further on */
    int32_t first, step;
    int32_t base[BLOCK]; /* the element at which its plane begins */
    int64_t plane;
    int axes; /* the last ones, from the first that has a choice of elements on */
    bool has_gaps;
    int32_t row, slice; /* elements of a row and a slice of a plane, at most DEAD */
    int32_t dilation[POOL_AXES];
    int32_t last[POOL_AXES];  /* of a window, from its first element */
    float inverse[POOL_AXES]; /* of the dilation */
} block;

/* Where an output is in its plane. */
typedef struct place {
    int64_t k, h, w;
} place;

typedef struct gradient_loops {
    /* see gradient_loops.inc */
    int64_t (*set_windows)(const pool_gradient_plan *p, int axes, windows to, int64_t n,
                           place *o);
    bool (*elements)(block *b, const int64_t *index, int64_t n, int32_t *at);
    bool (*in_windows)(block *b, const int64_t *index, int64_t n, int32_t *at);
    void (*add_base)(const block *b, int64_t n, int32_t *at);
    void (*widen)(const void *from, int64_t n, float *to); /* of 16-bit floats */
    void (*narrow)(const float *from, int64_t n, void *to);
    void (*alone)(const void *from, int64_t n, void *to); /* sums of one */
} gradient_loops;

#define GPO_LOOPS "../ops/max_pool3d/gradient_loops.inc"
#include "../../core/each_isa.h"

/* ---- the job: what every part of one call reads ---- */

typedef struct gradient_job gradient_job;

struct gradient_job {
    const pool_gradient_plan *plan;
    const void *dy;
    const int64_t *indices;
    void *dx;
    const gradient_loops *loops;
    gpo_dtype dtype;
    bool in_blocks; /* else one gradient after the other, by `plane` */
    int64_t group;  /* planes at once */
    int64_t (*plane)(const gradient_job *j, int64_t plane, void *memory);
    int64_t memory; /* bytes of separate sums; 0 if dx holds the sums */
    int64_t tasks;
    int64_t *bad; /* per task: the first bad index; -1 if none */
    bool *failed;
};

/* ---- which indices count ---- */

/* The first index that names no element of a plane; -1 if all do. */
static int64_t
first_bad(const gradient_job *j, int64_t begin, int64_t n)
{
    const int64_t *index = j->indices + begin, plane = j->plan->plane;
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        bad |= index[i] < -1 || index[i] >= plane;
    }
    for (int64_t i = 0; bad && i < n; i++) {
        if (index[i] < -1 || index[i] >= plane) {
            return begin + i;
        }
    }
    return -1;
}

/* Whether position `at` of an axis is an element of window o. */
static bool
is_in_window(const pool_axis *a, int64_t o, int64_t at)
{
    const int64_t past = at - (o * a->stride - a->padding);
    return past >= 0 && past < pool_extent(a) &&
           (a->dilation == 1 || past % a->dilation == 0);
}

/* The element that takes the gradient of output (k, h, w); -1 if none does. */
static int64_t
element_of(const pool_gradient_plan *p, int64_t index, int64_t k, int64_t h, int64_t w)
{
    if (index < 0 || index >= p->plane) {
        return -1;
    }
    if (!p->has_windows) {
        return index;
    }
    const int64_t height = p->axis[POOL_H].in, width = p->axis[POOL_W].in;
    int64_t row, at;
    if (index <= UINT32_MAX && width <= UINT32_MAX &&
        height <= UINT32_MAX) { /* divisions of 32 bits take half the time */
        const uint32_t narrow = (uint32_t)index, cols = (uint32_t)width;
        const uint32_t rows = (uint32_t)height;
        row = narrow / cols;
        at = (uint32_t)row / rows;
        row -= at * rows;
        index = narrow % cols;
    }
    else {
        row = index / width;
        index %= width;
        at = row / height;
        row %= height;
    }
    const bool inside = is_in_window(&p->axis[POOL_T], k, at) &&
                        is_in_window(&p->axis[POOL_H], h, row) &&
                        is_in_window(&p->axis[POOL_W], w, index);
    return inside ? (at * height + row) * width + index : -1;
}

#endif
