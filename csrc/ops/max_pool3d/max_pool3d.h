/*
 * max_pool3d.h  What op.c works out once and every variant of the room reads.  Pooling
 * in one and two dimensions is lifted to three: axes of length 1 and a kernel of 1.
 * Order: windows along an axis, the plan of pooling, the plan of its gradient.
 */
#ifndef GPO_MAX_POOL3D_H
#define GPO_MAX_POOL3D_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { POOL_T, POOL_H, POOL_W, POOL_AXES };

/*
 * Window o of an axis has the positions o * stride - padding + j * dilation, j in
 * [0, kernel), that lie in [0, in).  In a plan, kernel and padding leave out what lies
 * outside of x in every window: a window spans at most in + (out - 1) * stride +
 * dilation elements.
 */
typedef struct pool_axis {
    int64_t in, out;
    int64_t kernel, stride, padding, dilation;
} pool_axis;

/* The elements of the axis from a window's first to its last. */
static inline int64_t
pool_extent(const pool_axis *a)
{
    return (a->kernel - 1) * a->dilation + 1;
}

/* Window o takes positions *first, *first + dilation, ... below *end; perhaps none. */
static inline void
pool_window(const pool_axis *a, int64_t o, int64_t *first, int64_t *end)
{
    const int64_t start = o * a->stride - a->padding;
    const int64_t stop = start + pool_extent(a);
    const int64_t steps = start < 0 ? (-start + a->dilation - 1) / a->dilation : 0;
    *first = start + steps * a->dilation;
    *end = stop < a->in ? stop : a->in;
}

/* ---- pooling ---- */

/* y and the indices are contiguous: planes x T x H x W of axis[].out. */
typedef struct max_pool3d_plan {
    int64_t planes, channels;                    /* batches x channels; per batch */
    int64_t by_batch, by_channel, by[POOL_AXES]; /* strides of x in elements */
    pool_axis axis[POOL_AXES];
    int64_t plane, outputs; /* elements of a plane of x and of y */
    double taps;            /* elements of a window */
    int64_t cube;           /* the size of windows that are gapless cubes; else 0 */
    bool is_padded;         /* a window may begin before x or end after it */
    bool with_indices;
} max_pool3d_plan;

static inline const max_pool3d_plan *
max_pool3d_plan_of(const gpo_call *call)
{
    return (const max_pool3d_plan *)call->plan;
}

/* Where the positions of the maxima go; NULL if they are not wanted. */
static inline int64_t *
max_pool3d_indices_of(const gpo_call *call)
{
    return max_pool3d_plan_of(call)->with_indices ? (int64_t *)call->out[1].data : NULL;
}

/* ---- the gradient ---- */

/* dy and the indices are contiguous, planes x out, and so is dx, planes x in. */
typedef struct pool_gradient_plan {
    int64_t planes;
    int64_t plane, outputs;    /* elements of a plane of dx and of dy */
    bool has_windows;          /* kernel_size= was given */
    pool_axis axis[POOL_AXES]; /* without it, windows of one element */
    bool is_apart;             /* no element is in two windows */
    bool has_gaps;             /* some windows are dilated */
} pool_gradient_plan;

static inline const pool_gradient_plan *
pool_gradient_plan_of(const gpo_call *call)
{
    return (const pool_gradient_plan *)call->plan;
}

/* IndexError: `value`, at element `at` of the indices, names no element of a plane. */
gpo_status max_pool3d_out_of_range(gpo_call *call, int64_t value, int64_t at);

#ifdef __cplusplus
}
#endif
#endif
