/*
 * causal_conv1d.h  The plan that op.c makes once and every variant of causal_conv1d and
 * causal_conv1d_backward reads: rows of time steps with strides, and the filters; and
 * that of causal_conv1d_update.
 * Order: the plan, the arrays of a call, what a variant refuses, the update.
 */
#ifndef GPO_CAUSAL_CONV1D_H
#define GPO_CAUSAL_CONV1D_H

#include "../../core/gpo.h"

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The least accuracy required of products of float32 values. */
typedef enum conv_precision {
    PRECISION_FP32,
    PRECISION_FAST,
    PRECISION_HALF
} conv_precision;

/* The form of `segments`, which divide the steps into sequences. */
typedef enum conv_segments {
    SEGMENTS_NONE,
    SEGMENTS_BORDERS, /* the first steps of the sequences of one row, then its end */
    SEGMENTS_IDS,     /* of each step of each batch: a sequence begins at a new one */
} conv_segments;

/* Strides of an array of B x C rows of T steps, in any order of the axes. */
typedef struct conv_strides {
    int64_t b, c, t;
} conv_strides;

/*
 * out[b, c, t] = eps + bias[c] + sum over s in [0, min(t + 1, taps)) of
 * w[c, taps - 1 - s] * x[b, c, t - s], then SiLU if asked.  The lag s is the number of
 * steps from an input to the output it contributes to.  All strides are in elements.
 */
typedef struct conv_plan {
    bool backward;                          /* causal_conv1d_backward */
    int64_t batches, channels, steps, taps; /* B, C, T, K */
    int64_t lags;                           /* min(T, K): lags that occur */
    conv_strides x, out;                    /* backward: out is dx */
    conv_strides dy;                        /* backward */
    int64_t w_c, w_k;
    bool has_bias;
    int64_t bias_c;
    double eps;
    bool silu;
    conv_precision precision;
    bool exact_causality; /* only for variants with gpo_variant.causal */

    /* Steps -(K - 1) to -1: then lags is K, and every sum has K terms. */
    bool has_state, returns_state;
    conv_strides state, last; /* K - 1 steps each */

    conv_segments segments;
    bool segments_wide; /* int64, not int32 */
    int64_t segments_b, segments_t, segments_n;
} conv_plan;

static inline const conv_plan *
conv_plan_of(const gpo_call *call)
{
    return (const conv_plan *)call->plan;
}

/* First elements of the arrays of a call; NULL for those it does not have. */
typedef struct conv_arrays {
    const void *x, *w, *bias;
    void *out;      /* forward: the result; backward: dx */
    const void *dy; /* backward */
    void *dw;       /* backward: (C, K), contiguous */
    void *dbias;    /* backward: (C), contiguous */
    const void *state, *segments;
    void *last; /* forward: the state after the last step */
} conv_arrays;

static inline conv_arrays
conv_arrays_of(const gpo_call *call)
{
    const conv_plan *p = conv_plan_of(call);
    const gpo_array *in = call->in + p->backward, *out = call->out;
    conv_arrays arrays;
    memset(&arrays, 0, sizeof arrays);
    arrays.x = in[0].data;
    arrays.w = in[1].data;
    arrays.out = out[0].data;
    if (p->has_bias) {
        arrays.bias = in[2].data;
    }
    if (p->segments) {
        arrays.segments = in[p->backward ? 3 : 4].data;
    }
    if (p->backward) {
        arrays.dy = call->in[0].data;
        arrays.dw = out[1].data;
        arrays.dbias = p->has_bias ? out[2].data : NULL;
        return arrays;
    }
    if (p->has_state) {
        arrays.state = in[3].data;
    }
    if (p->returns_state) {
        arrays.last = out[1].data;
    }
    return arrays;
}

/*
 * VariantError where the call requires exact causality and its variant lacks it, and
 * where it has segments and its variant is a rung on CUDA.
 */
gpo_status conv_check_causality(gpo_call *call);

/* ---- causal_conv1d_update ---- */

/*
 * Row b of x continues row r of the state, r = index[b] or b: with u the `kept` steps of
 * the state and then the steps of x, y[b, c, t] is the convolution at step kept + t, and
 * the new state has the last `kept` steps of u.
 */
typedef struct update_plan {
    int64_t batches, channels, steps, taps;
    int64_t rows, kept;             /* of the state: N, and K - 1 or more */
    conv_strides state, x, y, next; /* next: the new state */
    int64_t w_c, w_k;
    bool has_bias, has_index, index_wide;
    int64_t bias_c, index_b;
    double eps;
    bool silu;
} update_plan;

static inline const update_plan *
update_plan_of(const gpo_call *call)
{
    return (const update_plan *)call->plan;
}

enum { UPDATE_STATE, UPDATE_X, UPDATE_W, UPDATE_BIAS, UPDATE_INDEX };

#ifdef __cplusplus
}
#endif
#endif
