/*
 * causal_conv1d.h  The plan that op.c makes once and every variant of causal_conv1d and
 * causal_conv1d_backward reads: rows of time steps with strides, and the filters.
 * Order: the plan, the arrays of a call, exact causality.
 */
#ifndef GPO_CAUSAL_CONV1D_H
#define GPO_CAUSAL_CONV1D_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The least accuracy required of products of float32 values. */
typedef enum conv_precision {
    PRECISION_FP32,
    PRECISION_FAST,
    PRECISION_HALF
} conv_precision;

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
} conv_arrays;

static inline conv_arrays
conv_arrays_of(const gpo_call *call)
{
    const conv_plan *p = conv_plan_of(call);
    const gpo_array *in = call->in + p->backward, *out = call->out;
    conv_arrays arrays = {in[0].data, in[1].data, NULL, out[0].data, NULL, NULL, NULL};
    if (p->has_bias) {
        arrays.bias = in[2].data;
    }
    if (p->backward) {
        arrays.dy = call->in[0].data;
        arrays.dw = out[1].data;
        arrays.dbias = p->has_bias ? out[2].data : NULL;
    }
    return arrays;
}

/* VariantError where the call requires exact causality and its variant lacks it. */
gpo_status conv_check_causality(gpo_call *call);

#ifdef __cplusplus
}
#endif
#endif
