/*
 * op.c  causal_conv1d and causal_conv1d_backward: the contract.  Order: arguments,
 * shape rules, plan, cost, descriptors. See cpu.c and cuda.cu for the implementations.
 */
#include "causal_conv1d.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

enum { FORWARD, BACKWARD }; /* gpo_op.member */

/* Inputs of the forward pass; backward has dy before them. */
enum { IN_X, IN_W, IN_BIAS };
enum { ARG_EPS = 3, ARG_ACTIVATION, ARG_LAYOUT, ARG_PRECISION, ARG_CAUSALITY };
enum { LAYOUT_BCT, LAYOUT_BTC };

static const char *const activations[] = {"silu", NULL};
static const char *const layouts[] = {"BCT", "BTC", NULL};
static const char *const precisions[] = {"fp32", "fast", "half", NULL};
static const char *const causalities[] = {"exact", NULL};

#define INPUTS                                                            \
    {"x", GPO_KIND_ARRAY, NULL, NULL}, {"w", GPO_KIND_ARRAY, NULL, NULL}, \
    {                                                                     \
        "bias", GPO_KIND_ARRAY, "None", NULL                              \
    }
#define OPTIONS                                             \
    {"eps", GPO_KIND_FLOAT, "0.0", NULL},                   \
        {"activation", GPO_KIND_ENUM, "None", activations}, \
        {"layout", GPO_KIND_ENUM, "'BCT'", layouts},        \
        {"precision", GPO_KIND_ENUM, "'fp32'", precisions}, \
        {"causality", GPO_KIND_ENUM, "None", causalities},  \
    {                                                       \
        NULL, GPO_KIND_ARRAY, NULL, NULL                    \
    }

static const gpo_arg forward_args[] = {INPUTS, OPTIONS};
static const gpo_arg backward_args[] = {
    {"dy", GPO_KIND_ARRAY, NULL, NULL}, INPUTS, OPTIONS};

/* The number of arrays before x. */
static int
before_x(const gpo_call *call)
{
    return call->op->member == BACKWARD;
}

/* ---- shape rules ---- */

/* The axis of T in the shape of x, 1 or 2; C is the other one. */
static int
time_axis(const gpo_call *call)
{
    return call->opt[before_x(call) + ARG_LAYOUT].i == LAYOUT_BTC ? 1 : 2;
}

static gpo_status
check_array(gpo_call *call, int i, int ndim, const char *shape)
{
    const gpo_array *a = &call->in[i];
    const gpo_array *x = &call->in[before_x(call) + IN_X];
    const char *name = call->op->args[i].name;
    if (a->ndim != ndim) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s must have %d dimension%s %s, but it has %d", name, ndim,
                        ndim == 1 ? "" : "s", shape, a->ndim);
    }
    if (a->dtype != x->dtype) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "%s has dtype '%s', x has '%s': one dtype is wanted", name,
                        gpo_dtypes[a->dtype].name, gpo_dtypes[x->dtype].name);
    }
    return GPO_OK;
}

static gpo_status
check_inputs(gpo_call *call)
{
    const int first = before_x(call), time = time_axis(call);
    const gpo_array *x = &call->in[first + IN_X];
    const gpo_array *w = &call->in[first + IN_W];
    const gpo_array *bias = &call->in[first + IN_BIAS];
    const char *order = time == 1 ? "(B, T, C)" : "(B, C, T)";
    gpo_status status = check_array(call, first + IN_X, 3, order);
    if (!status) {
        status = check_array(call, first + IN_W, 2, "(C, K)");
    }
    if (!status && bias->present) {
        status = check_array(call, first + IN_BIAS, 1, "(C,)");
    }
    if (status) {
        return status;
    }
    const long long channels = x->shape[3 - time];
    if (w->shape[0] != channels) {
        return gpo_fail(&call->error, GPO_EVALUE, "w has %lld channels, x has %lld",
                        (long long)w->shape[0], channels);
    }
    if (bias->present && bias->shape[0] != channels) {
        return gpo_fail(&call->error, GPO_EVALUE, "bias has %lld channels, x has %lld",
                        (long long)bias->shape[0], channels);
    }
    if (x->shape[time] == 0) {
        return gpo_fail(&call->error, GPO_EVALUE, "x has no time steps: T is 0");
    }
    if (w->shape[1] == 0) {
        return gpo_fail(&call->error, GPO_EVALUE, "w has a filter of length 0");
    }
    return GPO_OK;
}

static void
shaped_like(gpo_array *out, const gpo_array *in)
{
    out->dtype = in->dtype;
    out->ndim = in->ndim;
    for (int i = 0; i < in->ndim; i++) {
        out->shape[i] = in->shape[i];
    }
}

static gpo_status
forward_shape(gpo_call *call)
{
    const gpo_status status = check_inputs(call);
    if (status) {
        return status;
    }
    shaped_like(&call->out[0], &call->in[IN_X]);
    return gpo_array_contiguous(&call->error, &call->out[0]);
}

static gpo_status
backward_shape(gpo_call *call)
{
    const gpo_array *dy = &call->in[0], *x = &call->in[1];
    gpo_status status = check_inputs(call);
    if (!status) {
        const bool by_time = time_axis(call) == 1;
        status = check_array(call, 0, 3, by_time ? "(B, T, C)" : "(B, C, T)");
    }
    if (status) {
        return status;
    }
    for (int i = 0; i < 3; i++) {
        if (dy->shape[i] != x->shape[i]) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "dy has shape (%lld, %lld, %lld), x has (%lld, %lld, %lld)",
                            (long long)dy->shape[0], (long long)dy->shape[1],
                            (long long)dy->shape[2], (long long)x->shape[0],
                            (long long)x->shape[1], (long long)x->shape[2]);
        }
    }
    call->nout = call->in[1 + IN_BIAS].present ? 3 : 2;
    for (int i = 0; !status && i < call->nout; i++) {
        shaped_like(&call->out[i], &call->in[1 + i]);
        status = gpo_array_contiguous(&call->error, &call->out[i]);
    }
    return status;
}

/* ---- plan ---- */

_Static_assert(sizeof(conv_plan) <= GPO_PLAN_BYTES, "the plan fits");

static conv_strides
strides_of(const gpo_array *a, int time)
{
    return (conv_strides){a->strides[0], a->strides[3 - time], a->strides[time]};
}

/* The plan of both operators. */
static void
plan(const gpo_call *call)
{
    const int first = before_x(call), time = time_axis(call);
    const gpo_array *x = &call->in[first + IN_X];
    const gpo_array *w = &call->in[first + IN_W];
    const gpo_array *bias = &call->in[first + IN_BIAS];
    conv_plan *p = call->plan;
    *p = (conv_plan){
        .backward = call->op->member == BACKWARD,
        .batches = x->shape[0],
        .channels = x->shape[3 - time],
        .steps = x->shape[time],
        .taps = w->shape[1],
        .x = strides_of(x, time),
        .out = strides_of(&call->out[0], time),
        .w_c = w->strides[0],
        .w_k = w->strides[1],
        .has_bias = bias->present,
        .bias_c = bias->present ? bias->strides[0] : 0,
        .eps = call->opt[first + ARG_EPS].f,
        .silu = call->opt[first + ARG_ACTIVATION].given,
        .precision = (conv_precision)call->opt[first + ARG_PRECISION].i,
        .exact_causality = call->opt[first + ARG_CAUSALITY].given,
    };
    p->lags = p->taps < p->steps ? p->taps : p->steps;
    if (p->backward) {
        p->dy = strides_of(&call->in[0], time);
    }
}

gpo_status
conv_check_causality(gpo_call *call)
{
    const gpo_variant *variant = call->variant;
    if (!conv_plan_of(call)->exact_causality || strcmp(variant->causal, "exact") == 0) {
        return GPO_OK;
    }
    return gpo_fail(&call->error, GPO_EVARIANT,
                    "%s(causality='exact') got variant '%s', which is causal %s; "
                    "gpuopt.variants() lists what is exact",
                    call->op->name, variant->name, variant->causal);
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const conv_plan *p = conv_plan_of(call);
    const gpo_array *x = &call->in[p->backward + IN_X];
    const gpo_array *w = &call->in[p->backward + IN_W];
    const double bytes = gpo_dtypes[x->dtype].bytes;
    const double steps = (double)p->steps, lags = (double)p->lags;
    const double rows = (double)p->batches * (double)p->channels;
    const double products = rows * (lags * steps - lags * (lags - 1) / 2);
    const double passes = !p->backward ? 1 : p->silu ? 3 : 2;
    cost->read_bytes = ((double)x->size * (p->backward + 1) + (double)w->size) * bytes;
    cost->written_bytes = ((double)x->size + p->backward * (double)w->size) * bytes;
    cost->flops = 2 * products * passes;
}

/* ---- descriptors ---- */

GPO_TABLES(causal_conv1d);
GPO_TABLES(causal_conv1d_backward);

const gpo_op op_causal_conv1d = {
    .name = "causal_conv1d",
    .args = forward_args,
    .nout = 1,
    .member = FORWARD,
    .by = IN_X,
    .shape = forward_shape,
    .plan = plan,
    .cost = cost,
    .cpu = &causal_conv1d_cpu,
    .cuda = GPO_CUDA_TABLE(causal_conv1d),
};

const gpo_op op_causal_conv1d_backward = {
    .name = "causal_conv1d_backward",
    .ladder = "causal_conv1d_backward",
    .room = "causal_conv1d",
    .args = backward_args,
    .nout = 3,
    .member = BACKWARD,
    .by = 1 + IN_X,
    .shape = backward_shape,
    .plan = plan,
    .cost = cost,
    .cpu = &causal_conv1d_backward_cpu,
    .cuda = GPO_CUDA_TABLE(causal_conv1d_backward),
};
