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
 * Window o of an axis looks at positions o * stride - padding + j * dilation, j in
 * [0, kernel), that lie in [0, in).  In a plan, kernel and padding are without what no
 * window has in x: a window spans at most in + (out - 1) * stride + dilation elements.
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

typedef struct max_pool3d_plan {
    const void *x;
    void *y;          /* contiguous: planes x out[T] x out[H] x out[W] */
    int64_t *indices; /* as y, into a plane of x; NULL where not asked for */
    int64_t batches, channels;
    int64_t by_batch, by_channel, by[POOL_AXES]; /* strides of x in elements */
    pool_axis axis[POOL_AXES];
    int64_t outputs; /* of a plane */
    bool is_turned;  /* a rung has let T and H change places */
} max_pool3d_plan;

/* The plan of a call whose arguments the shape rule has accepted. */
void max_pool3d_make_plan(const gpo_call *call, max_pool3d_plan *plan);

/* Whether a window may begin before the first element or end behind the last one. */
bool max_pool3d_is_padded(const max_pool3d_plan *plan);

/* ---- the gradient ---- */

typedef struct pool_gradient_plan {
    const void *dy;         /* contiguous: planes x out */
    const int64_t *indices; /* as dy */
    void *dx;               /* contiguous: planes x in */
    int64_t planes;
    int64_t in[POOL_AXES], out[POOL_AXES];
    int64_t plane, outputs;    /* elements of a plane of dx and of dy */
    bool has_windows;          /* kernel_size= was given */
    pool_axis axis[POOL_AXES]; /* if so */
} pool_gradient_plan;

void max_pool3d_make_gradient_plan(const gpo_call *call, pool_gradient_plan *plan);

/* IndexError: `value`, at element `at` of the indices, names no element of a plane. */
gpo_status max_pool3d_out_of_range(gpo_call *call, int64_t plane, int64_t value,
                                   int64_t at);

#ifdef __cplusplus
}
#endif
#endif
