/*
 * op.c  causal_conv1d, causal_conv1d_backward and causal_conv1d_update: the contract.
 * Order: arguments, shape rules, plan, cost, the update, descriptors.
 * See cpu*.c and cuda.cu for the implementations.
 */
#include "../../backend/backend.h"
#include "causal_conv1d.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

enum { FORWARD, BACKWARD, UPDATE }; /* gpo_op.member */

/* Inputs of the forward pass; backward has dy before them. */
enum { IN_X, IN_W, IN_BIAS };
enum { IN_STATE = 3 };    /* forward only */
enum { IN_SEGMENTS = 4 }; /* of both operators */

/* The options, counted from the first: see first_option. */
enum {
    ARG_EPS,
    ARG_ACTIVATION,
    ARG_LAYOUT,
    ARG_PRECISION,
    ARG_CAUSALITY,
    ARG_RETURN_STATE, /* forward only */
};
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
    {                                                       \
        "causality", GPO_KIND_ENUM, "None", causalities     \
    }

static const gpo_arg forward_args[] = {
    INPUTS,
    {"initial_state", GPO_KIND_ARRAY, "None", NULL, true},
    {"segments", GPO_KIND_ARRAY, "None", NULL, true},
    OPTIONS,
    {"return_state", GPO_KIND_BOOL, "False", NULL, true},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};
static const gpo_arg backward_args[] = {
    {"dy", GPO_KIND_ARRAY, NULL, NULL},
    INPUTS,
    {"segments", GPO_KIND_ARRAY, "None", NULL, true},
    OPTIONS,
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* The number of arrays before x. */
static int
before_x(const gpo_call *call)
{
    return call->op->member == BACKWARD;
}

static const gpo_option *
option(const gpo_call *call, int i)
{
    return &call->opt[IN_SEGMENTS + 1 + i];
}

/* The `initial_state` of a call, NULL where there is none. */
static const gpo_array *
state_of(const gpo_call *call)
{
    const bool given = call->op->member == FORWARD && call->in[IN_STATE].present;
    return given ? &call->in[IN_STATE] : NULL;
}

/* ---- shape rules ---- */

/* The axis of T in the shape of x, 1 or 2; C is the other one. */
static int
time_axis(const gpo_call *call)
{
    return option(call, ARG_LAYOUT)->i == LAYOUT_BTC ? 1 : 2;
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

/* The shape of a state of x: K - 1 steps. */
static void
state_shape(const gpo_call *call, int64_t shape[3])
{
    const gpo_array *x = &call->in[IN_X];
    const int time = time_axis(call);
    shape[0] = x->shape[0];
    shape[3 - time] = x->shape[3 - time];
    shape[time] = call->in[IN_W].shape[1] - 1;
}

static gpo_status
check_state(gpo_call *call)
{
    const gpo_array *state = state_of(call);
    int64_t wanted[3];
    if (!state) {
        return GPO_OK;
    }
    const bool by_time = time_axis(call) == 1;
    const gpo_status status =
        check_array(call, IN_STATE, 3, by_time ? "(B, K - 1, C)" : "(B, C, K - 1)");
    if (status) {
        return status;
    }
    state_shape(call, wanted);
    for (int i = 0; i < 3; i++) {
        if (state->shape[i] != wanted[i]) {
            return gpo_fail(
                &call->error, GPO_EVALUE,
                "initial_state has shape (%lld, %lld, %lld), but x and w call for "
                "(%lld, %lld, %lld), that is %s",
                (long long)state->shape[0], (long long)state->shape[1],
                (long long)state->shape[2], (long long)wanted[0], (long long)wanted[1],
                (long long)wanted[2], by_time ? "(B, K - 1, C)" : "(B, C, K - 1)");
        }
    }
    return GPO_OK;
}

/* Whether the values of `segments` are right, cpu_segments.c finds out. */
static gpo_status
check_segments(gpo_call *call)
{
    const gpo_array *segments = &call->in[IN_SEGMENTS];
    const gpo_array *x = &call->in[before_x(call) + IN_X];
    if (!segments->present) {
        return GPO_OK;
    }
    if (segments->dtype != GPO_I32 && segments->dtype != GPO_I64) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "segments must have dtype 'int32' or 'int64', not '%s'",
                        gpo_dtypes[segments->dtype].name);
    }
    if (segments->ndim != 1 && segments->ndim != 2) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments must have 1 dimension, cumulative lengths, or 2, "
                        "(B, T), but it has %d",
                        segments->ndim);
    }
    const int64_t batches = x->shape[0], steps = x->shape[time_axis(call)];
    if (segments->ndim == 1 && batches != 1) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments of 1 dimension are the cumulative lengths of one "
                        "batch, but x has %lld",
                        (long long)batches);
    }
    if (segments->ndim == 1 && segments->shape[0] < 2) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments must have at least 2 cumulative lengths, 0 and T, "
                        "but it has %lld",
                        (long long)segments->shape[0]);
    }
    if (segments->ndim == 2 &&
        (segments->shape[0] != batches || segments->shape[1] != steps)) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments has shape (%lld, %lld), but x calls for "
                        "(%lld, %lld), that is (B, T)",
                        (long long)segments->shape[0], (long long)segments->shape[1],
                        (long long)batches, (long long)steps);
    }
    if (call->op->member == FORWARD &&
        (state_of(call) || option(call, ARG_RETURN_STATE)->i)) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "segments do not go with %s: no state is before a segment",
                        state_of(call) ? "initial_state" : "return_state");
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
    gpo_status status = check_inputs(call);
    if (!status) {
        status = check_state(call);
    }
    if (!status) {
        status = check_segments(call);
    }
    if (status) {
        return status;
    }
    call->nout = option(call, ARG_RETURN_STATE)->i ? 2 : 1;
    for (int i = 0; !status && i < call->nout; i++) {
        shaped_like(&call->out[i], &call->in[IN_X]);
        if (i == 1) {
            state_shape(call, call->out[i].shape);
        }
        status = gpo_array_contiguous(&call->error, &call->out[i]);
    }
    return status;
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
    if (!status) {
        status = check_segments(call);
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
        .eps = option(call, ARG_EPS)->f,
        .silu = option(call, ARG_ACTIVATION)->given,
        .precision = (conv_precision)option(call, ARG_PRECISION)->i,
        .exact_causality = option(call, ARG_CAUSALITY)->given,
    };
    const gpo_array *state = state_of(call), *segments = &call->in[IN_SEGMENTS];
    if (state) {
        p->has_state = true;
        p->state = strides_of(state, time);
    }
    if (!p->backward && call->nout == 2) {
        p->returns_state = true;
        p->last = strides_of(&call->out[1], time);
    }
    if (segments->present) {
        p->segments = segments->ndim == 1 ? SEGMENTS_BORDERS : SEGMENTS_IDS;
        p->segments_wide = segments->dtype == GPO_I64;
        p->segments_n = segments->shape[0];
        p->segments_b = segments->ndim == 1 ? 0 : segments->strides[0];
        p->segments_t = segments->strides[segments->ndim - 1];
    }
    p->lags = p->taps < p->steps || p->has_state ? p->taps : p->steps;
    if (p->backward) {
        p->dy = strides_of(&call->in[0], time);
    }
}

gpo_status
conv_check_causality(gpo_call *call)
{
    const gpo_variant *variant = call->variant;
    if (conv_plan_of(call)->segments && call->backend->device_memory &&
        !variant->shape) {
        return gpo_fail(&call->error, GPO_EVARIANT,
                        "%s(segments=...) got variant '%s', a rung of whole rows; the "
                        "shape kernels of gpuopt.variants() take segments",
                        call->op->name, variant->name);
    }
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
    const double missing = p->has_state ? 0 : lags * (lags - 1) / 2;
    const double products = rows * (lags * steps - missing);
    const double passes = !p->backward ? 1 : p->silu ? 3 : 2;
    cost->read_bytes = ((double)x->size * (p->backward + 1) + (double)w->size) * bytes;
    cost->written_bytes = ((double)x->size + p->backward * (double)w->size) * bytes;
    cost->flops = 2 * products * passes;
}

/* ---- the update ---- */

enum { UPDATE_EPS = UPDATE_INDEX + 1, UPDATE_ACTIVATION };

static const gpo_arg update_args[] = {
    {"state", GPO_KIND_ARRAY, NULL, NULL},
    INPUTS,
    {"state_index", GPO_KIND_ARRAY, "None", NULL, true},
    {"eps", GPO_KIND_FLOAT, "0.0", NULL, true},
    {"activation", GPO_KIND_ENUM, "None", activations, true},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

static gpo_status
check_dtype(gpo_call *call, int i)
{
    const gpo_array *a = &call->in[i], *x = &call->in[UPDATE_X];
    if (!a->present || a->dtype == x->dtype) {
        return GPO_OK;
    }
    return gpo_fail(
        &call->error, GPO_ETYPE, "%s has dtype '%s', x has '%s': one dtype is wanted",
        call->op->args[i].name, gpo_dtypes[a->dtype].name, gpo_dtypes[x->dtype].name);
}

static gpo_status
check_dimensions(gpo_call *call, int i, int least, int most, const char *shape)
{
    const gpo_array *a = &call->in[i];
    if (!a->present || (a->ndim >= least && a->ndim <= most)) {
        return GPO_OK;
    }
    return gpo_fail(&call->error, GPO_EVALUE,
                    "%s must have the shape %s, but it has %d %s",
                    call->op->args[i].name, shape, a->ndim,
                    a->ndim == 1 ? "dimension" : "dimensions");
}

static gpo_status
check_channels(gpo_call *call, int i, int axis)
{
    const gpo_array *a = &call->in[i];
    const long long channels = call->in[UPDATE_X].shape[1];
    if (!a->present || a->shape[axis] == channels) {
        return GPO_OK;
    }
    return gpo_fail(&call->error, GPO_EVALUE, "%s has %lld channels, x has %lld",
                    call->op->args[i].name, (long long)a->shape[axis], channels);
}

/* The index, and the number of rows of the state without one. */
static gpo_status
check_rows(gpo_call *call)
{
    const gpo_array *index = &call->in[UPDATE_INDEX], *x = &call->in[UPDATE_X];
    const gpo_array *state = &call->in[UPDATE_STATE];
    if (!index->present && state->shape[0] != x->shape[0]) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "state has %lld rows, x has %lld: state_index says "
                        "which row of state each belongs to",
                        (long long)state->shape[0], (long long)x->shape[0]);
    }
    if (index->present && index->dtype != GPO_I32 && index->dtype != GPO_I64) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "state_index must have dtype 'int32' or 'int64', not '%s'",
                        gpo_dtypes[index->dtype].name);
    }
    if (index->present && index->shape[0] != x->shape[0]) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "state_index has %lld elements, x has %lld rows",
                        (long long)index->shape[0], (long long)x->shape[0]);
    }
    return GPO_OK;
}

static gpo_status
check_lengths(gpo_call *call)
{
    const gpo_array *x = &call->in[UPDATE_X];
    const long long taps = call->in[UPDATE_W].shape[1];
    const long long kept = call->in[UPDATE_STATE].shape[2];
    if (x->ndim == 3 && x->shape[2] == 0) {
        return gpo_fail(&call->error, GPO_EVALUE, "x has no time steps: L is 0");
    }
    if (taps == 0) {
        return gpo_fail(&call->error, GPO_EVALUE, "w has a filter of length 0");
    }
    if (kept < taps - 1) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "state has %lld steps, but filters of %lld taps need %lld",
                        kept, taps, taps - 1);
    }
    return GPO_OK;
}

static gpo_status
update_shape(gpo_call *call)
{
    static const struct {
        int input, least, most, channels; /* the axis of the channels, -1: none */
        const char *shape;
    } rows[] = {
        {UPDATE_STATE, 3, 3, 1, "(N, C, S)"},
        {UPDATE_X, 2, 3, 1, "(B, C) or (B, C, L)"},
        {UPDATE_W, 2, 2, 0, "(C, K)"},
        {UPDATE_BIAS, 1, 1, 0, "(C,)"},
        {UPDATE_INDEX, 1, 1, -1, "(B,)"},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    gpo_status status = GPO_OK;
    for (int i = 0; i < ROWS && !status; i++) {
        status = check_dimensions(call, rows[i].input, rows[i].least, rows[i].most,
                                  rows[i].shape);
        if (!status && rows[i].channels >= 0) {
            status = check_dtype(call, rows[i].input);
        }
    }
    for (int i = 0; i < ROWS && !status; i++) {
        if (rows[i].channels >= 0) {
            status = check_channels(call, rows[i].input, rows[i].channels);
        }
    }
    if (!status) {
        status = check_rows(call);
    }
    if (!status) {
        status = check_lengths(call);
    }
    static const int like[] = {UPDATE_X, UPDATE_STATE};
    for (int i = 0; i < 2 && !status; i++) {
        shaped_like(&call->out[i], &call->in[like[i]]);
        status = gpo_array_contiguous(&call->error, &call->out[i]);
    }
    return status;
}

static conv_strides
steps_strides(const gpo_array *a)
{
    return (conv_strides){a->strides[0], a->strides[1],
                          a->ndim == 3 ? a->strides[2] : 1};
}

_Static_assert(sizeof(update_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan_update(const gpo_call *call)
{
    const gpo_array *x = &call->in[UPDATE_X], *w = &call->in[UPDATE_W];
    const gpo_array *state = &call->in[UPDATE_STATE], *index = &call->in[UPDATE_INDEX];
    const gpo_array *bias = &call->in[UPDATE_BIAS];
    update_plan *p = call->plan;
    *p = (update_plan){
        .batches = x->shape[0],
        .channels = x->shape[1],
        .steps = x->ndim == 3 ? x->shape[2] : 1,
        .taps = w->shape[1],
        .rows = state->shape[0],
        .kept = state->shape[2],
        .state = steps_strides(state),
        .x = steps_strides(x),
        .y = steps_strides(&call->out[0]),
        .next = steps_strides(&call->out[1]),
        .w_c = w->strides[0],
        .w_k = w->strides[1],
        .has_bias = bias->present,
        .has_index = index->present,
        .index_wide = index->present && index->dtype == GPO_I64,
        .bias_c = bias->present ? bias->strides[0] : 0,
        .index_b = index->present ? index->strides[0] : 0,
        .eps = call->opt[UPDATE_EPS].f,
        .silu = call->opt[UPDATE_ACTIVATION].given,
    };
}

static void
cost_update(const gpo_call *call, gpo_cost *cost)
{
    const update_plan *p = update_plan_of(call);
    const gpo_array *x = &call->in[UPDATE_X], *w = &call->in[UPDATE_W];
    const double bytes = gpo_dtypes[x->dtype].bytes;
    const double rows = (double)p->batches * (double)p->channels;
    cost->read_bytes = (rows * (double)(p->kept + p->steps) + (double)w->size) * bytes;
    cost->written_bytes = rows * (double)(p->kept + p->steps) * bytes;
    cost->flops = 2 * rows * (double)p->steps * (double)p->taps;
}

/* ---- descriptors ---- */

GPO_TABLES(causal_conv1d);
GPO_TABLES(causal_conv1d_backward);
GPO_TABLES(causal_conv1d_update);

const gpo_op op_causal_conv1d = {
    .name = "causal_conv1d",
    .args = forward_args,
    .nout = 2,
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

const gpo_op op_causal_conv1d_update = {
    .name = "causal_conv1d_update",
    .ladder = "causal_conv1d_update",
    .room = "causal_conv1d",
    .args = update_args,
    .nout = 2,
    .member = UPDATE,
    .by = UPDATE_X,
    .in_place = 1u << UPDATE_STATE,
    .indices = UPDATE_INDEX,
    .shape = update_shape,
    .plan = plan_update,
    .cost = cost_update,
    .cpu = &causal_conv1d_update_cpu,
    .cuda = GPO_CUDA_TABLE(causal_conv1d_update),
};
