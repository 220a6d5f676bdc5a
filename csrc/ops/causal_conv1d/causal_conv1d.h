/*
 * causal_conv1d.h  What op.c works out once and every variant of causal_conv1d and
 * causal_conv1d_backward reads: rows of time steps with strides, and the filters.
 */
#ifndef GPO_CAUSAL_CONV1D_H
#define GPO_CAUSAL_CONV1D_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The least accuracy wanted of the products of float32 values. */
typedef enum conv_precision {
    PRECISION_FP32,
    PRECISION_FAST,
    PRECISION_HALF
} conv_precision;

/* An array of B x C rows of T steps, whatever the order of its axes. */
typedef struct conv_rows {
    void *data;
    int64_t b, c, t; /* strides */
} conv_rows;

/*
 * out[b, c, t] = eps + bias[c] + sum over s in [0, min(t + 1, taps)) of
 * w[c, taps - 1 - s] * x[b, c, t - s], then SiLU if asked.  The lag s is the number of
 * steps between an input and what it adds to.
 */
typedef struct conv_plan {
    int64_t batches, channels, steps, taps; /* B, C, T, K */
    int64_t lags;                           /* min(T, K): lags that occur */
    conv_rows x;
    const void *w;
    int64_t w_c, w_k;
    const void *bias; /* NULL: none */
    int64_t bias_c;
    double eps;
    bool silu;
    conv_precision precision;
    bool exact_causality; /* only variants that are, see gpo_variant.causal */

    conv_rows out; /* forward: the result; backward: dx */
    conv_rows dy;  /* backward */
    void *dw;      /* backward: (C, K), contiguous */
    void *dbias;   /* backward: (C), NULL without a bias */
} conv_plan;

/* The plan of a call whose arguments the operator's shape rule has accepted. */
void conv_make_plan(const gpo_call *call, conv_plan *plan);

/* VariantError where the call wants exact causality and has a variant without. */
gpo_status conv_check_causality(gpo_call *call, const conv_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
