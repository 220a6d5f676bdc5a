/*
 * op.c  dot: the contract.  Order: arguments, result dtype, shape rule, plan, cost,
 * descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "dot.h"

/* ---- arguments ---- */

enum { ARG_X, ARG_Y };

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_Y] = {"y", GPO_KIND_ARRAY, NULL, NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- result dtype: NumPy's promotion ---- */

/* The integer dtype that holds both; none holds int64 and uint64: float64. */
static gpo_dtype
common_whole(gpo_dtype a, gpo_dtype b)
{
    static const gpo_dtype is_signed[] = {
        [1] = GPO_I8, [2] = GPO_I16, [4] = GPO_I32, [8] = GPO_I64};
    const gpo_dtype_info *p = &gpo_dtypes[a], *q = &gpo_dtypes[b];
    if (p->kind == q->kind) {
        return p->bytes >= q->bytes ? a : b;
    }
    const gpo_dtype_info *i = p->kind == 'i' ? p : q, *u = p->kind == 'i' ? q : p;
    const int bytes = i->bytes > u->bytes ? i->bytes : 2 * u->bytes;
    return bytes > 8 ? GPO_F64 : is_signed[bytes];
}

/* The real floating dtype that NumPy promotes a dtype to when the other is floating. */
static gpo_dtype
as_float(gpo_dtype a)
{
    switch (gpo_dtypes[a].kind) {
        case 'i':
        case 'u':
            return gpo_dtypes[a].bytes == 1   ? GPO_F16
                   : gpo_dtypes[a].bytes == 2 ? GPO_F32
                                              : GPO_F64;
        case 'c':
            return a == GPO_C64 ? GPO_F32 : GPO_F64;
        default:
            return a;
    }
}

/* GPO_NONE if there is none: bfloat16 promotes only with bool, 8 bits, wider floats. */
static gpo_dtype
common_dtype(gpo_dtype a, gpo_dtype b)
{
    if (a == b || gpo_dtypes[b].kind == 'b') {
        return a;
    }
    if (gpo_dtypes[a].kind == 'b') {
        return b;
    }
    const char p = gpo_dtypes[a].kind, q = gpo_dtypes[b].kind;
    const bool complex_number = p == 'c' || q == 'c';
    if (p != 'f' && q != 'f' && !complex_number) {
        return common_whole(a, b);
    }
    const gpo_dtype x = as_float(a), y = as_float(b);
    if (a == GPO_BF16 || b == GPO_BF16) {
        const gpo_dtype other = a == GPO_BF16 ? b : a;
        if (gpo_dtypes[other].bytes == 1) {
            return GPO_BF16;
        }
        if (other < GPO_F32) {
            return GPO_NONE;
        }
    }
    const gpo_dtype widest = x > y ? x : y; /* dtypes.def lists them by width */
    if (complex_number) {
        return widest == GPO_F64 ? GPO_C128 : GPO_C64;
    }
    return widest;
}

/* ---- shape rule ---- */

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X], *y = &call->in[ARG_Y];
    gpo_array *out = &call->out[0];
    for (int i = ARG_X; i <= ARG_Y; i++) {
        if (call->in[i].ndim != 1) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "dot() takes arrays of dimension 1, %s has dimension %d",
                            args[i].name, call->in[i].ndim);
        }
    }
    if (x->size != y->size) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "shapes (%lld,) and (%lld,) not aligned: "
                        "%lld (dim 0) != %lld (dim 0)",
                        (long long)x->size, (long long)y->size, (long long)x->size,
                        (long long)y->size);
    }
    const gpo_dtype dtype = common_dtype(x->dtype, y->dtype);
    if (dtype == GPO_NONE) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "dot() finds no common dtype of '%s' and '%s'",
                        gpo_dtypes[x->dtype].name, gpo_dtypes[y->dtype].name);
    }
    for (int i = ARG_X; i <= ARG_Y; i++) {
        if (call->in[i].dtype != dtype) {
            call->convert[i] = dtype;
        }
    }
    out->dtype = dtype;
    out->ndim = 0;
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(dot_plan) <= GPO_PLAN_BYTES, "the plan fits");

/* A converted array has no gaps; gpuopt.plan() calls this before the conversion. */
static int64_t
stride_of(const gpo_call *call, int i)
{
    return call->convert[i] == GPO_NONE ? call->in[i].strides[0] : 1;
}

static void
plan(const gpo_call *call)
{
    dot_plan *p = call->plan;
    *p = (dot_plan){.n = call->in[ARG_X].size, .x_stride = 1, .y_stride = 1};
    if (p->n > 1) {
        p->x_stride = stride_of(call, ARG_X);
        p->y_stride = stride_of(call, ARG_Y);
    }
    if (p->x_stride < 0 && p->y_stride < 0) {
        p->x_first = (p->n - 1) * p->x_stride;
        p->y_first = (p->n - 1) * p->y_stride;
        p->x_stride = -p->x_stride;
        p->y_stride = -p->y_stride;
    }
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[ARG_X], *y = &call->in[ARG_Y];
    cost->read_bytes = (double)x->size * gpo_dtypes[x->dtype].bytes +
                       (double)y->size * gpo_dtypes[y->dtype].bytes;
    cost->written_bytes = gpo_dtypes[call->out[0].dtype].bytes;
    cost->flops = 2.0 * (double)x->size;
}

/* ---- descriptor ---- */

GPO_TABLES(dot);

const gpo_op op_dot = {
    .name = "dot",
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &dot_cpu,
    .cuda = GPO_CUDA_TABLE(dot),
};
