/*
 * op.c  scan: the contract.  Order: arguments, shape rule, plan, cost, descriptor.  See
 * cpu.c and cuda.cu for the computation.
 */
#include "scan.h"

/* ---- arguments ---- */

enum { ARG_X, ARG_OP, ARG_AXIS, ARG_EXCLUSIVE, ARG_REVERSE, ARG_INITIAL };

static const char *const ops[] = {"sum", "prod", "min", "max", NULL};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_OP] = {"op", GPO_KIND_ENUM, "'sum'", ops},
    [ARG_AXIS] = {"axis", GPO_KIND_INT, "-1", NULL},
    [ARG_EXCLUSIVE] = {"exclusive", GPO_KIND_BOOL, "False", NULL},
    [ARG_REVERSE] = {"reverse", GPO_KIND_BOOL, "False", NULL},
    [ARG_INITIAL] = {"initial", GPO_KIND_FLOAT, "None", NULL, true},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- shape rule ---- */

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *x = &call->in[0];
    gpo_array *out = &call->out[0];
    const scan_op op = (scan_op)call->opt[ARG_OP].i;
    const char kind = gpo_dtypes[x->dtype].kind;
    int axis;
    gpo_status status = gpo_axis(&call->error, call->opt[ARG_AXIS].i, x->ndim, &axis);
    if (status) {
        return status;
    }
    const bool total = op == SCAN_SUM || op == SCAN_PROD;
    if (!total && kind == 'c') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "scan() with op='%s' does not support dtype '%s'; "
                        "complex numbers have no order",
                        ops[op], gpo_dtypes[x->dtype].name);
    }
    out->dtype = x->dtype;
    if (total && (kind == 'b' || kind == 'i')) {
        out->dtype = GPO_I64;
    }
    else if (total && kind == 'u') {
        out->dtype = GPO_U64;
    }
    out->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        out->shape[d] = x->shape[d];
    }
    status = gpo_initial_check(call, &call->opt[ARG_INITIAL], out->dtype);
    return status ? status : gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(scan_plan) <= GPO_PLAN_BYTES, "the plan fits");

/* Appends an axis, or merges it into the last one if possible and that is >= `from`. */
static void
push_axis(scan_axes *axes, int from, int64_t length, int64_t stride)
{
    const int last = axes->ndim - 1;
    if (length == 1) {
        return;
    }
    if (last >= from && axes->strides[last] == length * stride) {
        axes->shape[last] *= length;
        axes->strides[last] = stride;
        return;
    }
    axes->shape[axes->ndim] = length;
    axes->strides[axes->ndim++] = stride;
}

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    scan_plan *p = call->plan;
    int64_t axis = call->opt[ARG_AXIS].i;
    axis += axis < 0 ? x->ndim : 0;

    p->op = (scan_op)call->opt[ARG_OP].i;
    p->exclusive = call->opt[ARG_EXCLUSIVE].i != 0;
    p->initial = gpo_initial_of(&call->opt[ARG_INITIAL], call->out[0].dtype);
    p->rows = 1;
    p->cols = x->shape[axis];
    p->inner = 1;
    p->x_first = p->out_first = 0;
    p->kept.ndim = 0;
    for (int d = 0; d < axis; d++) {
        push_axis(&p->kept, 0, x->shape[d], x->strides[d]);
        p->rows *= x->shape[d];
    }
    const bool is_column =
        p->cols > 1; /* one element has no neighbours to stay apart from */
    const int outer = p->kept.ndim;
    for (int d = (int)axis + 1; d < x->ndim; d++) {
        push_axis(&p->kept, is_column ? outer : 0, x->shape[d], x->strides[d]);
        p->rows *= is_column ? 1 : x->shape[d];
        p->inner *= is_column ? x->shape[d] : 1;
    }
    p->rows *= p->inner;
    p->inner_ndim = is_column ? p->kept.ndim - outer : 0;
    p->stride = is_column ? x->strides[axis] : 1;
    p->step = p->inner;
    if (call->opt[ARG_REVERSE].i != 0 && x->size > 0) {
        p->x_first = (p->cols - 1) * p->stride;
        p->out_first = (p->cols - 1) * p->step;
        p->stride = -p->stride;
        p->step = -p->step;
    }
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[0];
    const gpo_array *out = &call->out[0];
    cost->read_bytes = (double)x->size * gpo_dtypes[x->dtype].bytes;
    cost->written_bytes = (double)out->size * gpo_dtypes[out->dtype].bytes;
    cost->flops = (double)x->size;
}

/* ---- descriptor ---- */

GPO_TABLES(scan);

const gpo_op op_scan = {
    .name = "scan",
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &scan_cpu,
    .cuda = GPO_CUDA_TABLE(scan),
};
