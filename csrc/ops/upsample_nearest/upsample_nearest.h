/*
 * upsample_nearest.h  What op.c works out once and every variant of upsample_nearest
 * and its backward reads: the rule that maps an output to its source, and both arrays
 * as planes of rows.  Order: the rule of one axis, its inverse, the plan.
 */
#ifndef GPO_UPSAMPLE_NEAREST_H
#define GPO_UPSAMPLE_NEAREST_H

#include "../../core/gpo.h"

#include <math.h>

#ifdef __CUDACC__
#define UPSAMPLE_INLINE static __host__ __device__ __forceinline__
#else
#define UPSAMPLE_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the rule of one axis ---- */

typedef struct upsample_axis {
    int64_t in, out;
    float inverse; /* sources per output: 1 / scale, or in / out */
    float shift;   /* 0.5 if the centres of outputs are mapped, else 0 */
    int log;       /* output i comes from i >> log; -1 if that is not certain */
} upsample_axis;

/* The source of output i, in float32 as in PyTorch; it never decreases as i grows. */
UPSAMPLE_INLINE int64_t
upsample_source(const upsample_axis *axis, int64_t i)
{
    const float at = floorf(((float)i + axis->shift) * axis->inverse);
    const int64_t source = (int64_t)at;
    return source < axis->in - 1 ? source : axis->in - 1;
}

/* ---- its inverse ---- */

/*
 * The first output whose source is s or more; axis->out if there is none.  The outputs
 * of s are [first(s), first(s + 1)).  The quotient is only a guess, which the rule
 * corrects.
 */
UPSAMPLE_INLINE int64_t
upsample_first(const upsample_axis *axis, int64_t s)
{
    if (axis->log >= 0) {
        return s << axis->log;
    }
    if (s <= 0 || s >= axis->in) {
        return s <= 0 ? 0 : axis->out;
    }
    const int64_t guess = (int64_t)((float)s / axis->inverse);
    int64_t i = guess < axis->out ? guess : axis->out;
    while (i > 0 && upsample_source(axis, i - 1) >= s) {
        i--;
    }
    while (i < axis->out && upsample_source(axis, i) < s) {
        i++;
    }
    return i;
}

/* ---- the plan ---- */

/*
 * Both arrays are (A, B, D, H, W, I): images, channels, three spatial axes, contiguous
 * channels.  With channels first I is 1, with channels last B is; a spatial axis that
 * the array lacks has 1 element.  Forward reads axis[].in and writes axis[].out,
 * backward the other way round.  `from` is the input, x or dy; `to` is the output,
 * which is contiguous.
 */
enum { UPSAMPLE_SPATIAL = 3, UPSAMPLE_AXES = 6 };
enum { UPSAMPLE_A, UPSAMPLE_B, UPSAMPLE_D, UPSAMPLE_H, UPSAMPLE_W, UPSAMPLE_I };

typedef struct upsample_nearest_plan {
    bool backward;            /* upsample_nearest_backward */
    int64_t bytes;            /* of an element */
    int64_t from_size, size;  /* elements of `from`, of `to` */
    int64_t images, channels; /* 1 and all planes if these have one stride */
    upsample_axis axis[UPSAMPLE_SPATIAL]; /* D, H, W */
    int64_t inner;
    int64_t length[UPSAMPLE_AXES]; /* of `from` */
    int64_t stride[UPSAMPLE_AXES]; /* of `from`, in elements */
    double reach;                  /* of a row of `from`: end to end, in elements */
    bool packed;                   /* the elements of such a row are contiguous */
    int64_t row;                   /* elements of a row of `to` */
    int64_t rows;                  /* of x or dx, usually the smaller side */
} upsample_nearest_plan;

static inline const upsample_nearest_plan *
upsample_nearest_plan_of(const gpo_call *call)
{
    return (const upsample_nearest_plan *)call->plan;
}

#ifdef __cplusplus
}
#endif
#endif
