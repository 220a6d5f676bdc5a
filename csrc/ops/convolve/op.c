/*
 * op.c  convolve: the contract.  Order: arguments, result dtype, shape rule, plan,
 * cost, descriptor.  See cpu.c and cuda.cu for the implementations.
 */
#include "convolve.h"

#include <stdio.h>

/* ---- arguments ---- */

enum { ARG_A, ARG_V, ARG_MODE };
enum { MODE_FULL, MODE_SAME, MODE_VALID };

static const char *const modes[] = {"full", "same", "valid", NULL};

static const gpo_arg args[] = {
    [ARG_A] = {"a", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_V] = {"v", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_MODE] = {"mode", GPO_KIND_ENUM, "'full'", modes},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- result dtype: NumPy's promotion, with bfloat16 as ml_dtypes has it ---- */

static bool
is_whole(gpo_dtype dtype)
{
    return dtype <= GPO_U64; /* bool and integers come first in dtypes.def */
}

/* No integer type holds both int64 and uint64: float64. */
static gpo_dtype
common_whole(gpo_dtype a, gpo_dtype b)
{
    static const gpo_dtype is_signed[] = {
        [1] = GPO_I8, [2] = GPO_I16, [4] = GPO_I32, [8] = GPO_I64};
    const gpo_dtype_info *p = &gpo_dtypes[a], *q = &gpo_dtypes[b];
    if (a == GPO_BOOL || b == GPO_BOOL) {
        return a == GPO_BOOL ? b : a;
    }
    if (p->kind == q->kind) {
        return p->bytes >= q->bytes ? a : b;
    }
    const gpo_dtype_info *i = p->kind == 'i' ? p : q, *u = p->kind == 'i' ? q : p;
    const int bytes = i->bytes > u->bytes ? i->bytes : 2 * u->bytes;
    return bytes > 8 ? GPO_F64 : is_signed[bytes];
}

/* The smallest floating dtype for a real dtype when the other operand is floating. */
static gpo_dtype
float_beside(gpo_dtype dtype)
{
    const int bytes = gpo_dtypes[dtype].bytes;
    if (is_whole(dtype)) {
        return bytes == 1 ? GPO_F16 : bytes == 2 ? GPO_F32 : GPO_F64;
    }
    return dtype;
}

static gpo_dtype
common_dtype(gpo_dtype a, gpo_dtype b)
{
    if (a == b) {
        return a;
    }
    if (is_whole(a) && is_whole(b)) {
        return common_whole(a, b);
    }
    if (gpo_dtypes[a].kind == 'c' || gpo_dtypes[b].kind == 'c') {
        const bool wide = a == GPO_C128 || b == GPO_C128 ||
                          float_beside(a) == GPO_F64 || float_beside(b) == GPO_F64;
        return wide ? GPO_C128 : GPO_C64;
    }
    const gpo_dtype x = float_beside(a), y = float_beside(b);
    if (x == GPO_F64 || y == GPO_F64) {
        return GPO_F64;
    }
    if (gpo_dtypes[x].bytes == 2 && gpo_dtypes[y].bytes == 2) {
        /* An 8-bit integer fits in either 16-bit float. */
        return is_whole(a) ? b : is_whole(b) ? a : GPO_F32;
    }
    return GPO_F32;
}

/* ---- shape rule ---- */

/* Elements of a row; a scalar is a row of one element, as in NumPy. */
static int64_t
row_length(const gpo_array *x)
{
    return x->ndim > 0 ? x->shape[x->ndim - 1] : 1;
}

/* A shape for a message, as "(3,)" or "(4,1)"; truncated to fit. */
static void
print_shape(const gpo_array *x, char *text, size_t room)
{
    size_t at = (size_t)snprintf(text, room, "(");
    for (int d = 0; d < x->ndim && at < room; d++) {
        at += (size_t)snprintf(text + at, room - at, d > 0 ? ",%lld" : "%lld",
                               (long long)x->shape[d]);
    }
    if (at < room) {
        snprintf(text + at, room - at, x->ndim == 1 ? ",)" : ")");
    }
}

/* Sets the leading axes of the result: those of a and v, broadcast. */
static gpo_status
broadcast_rows(gpo_call *call)
{
    gpo_array *out = &call->out[0];
    const gpo_array *a = &call->in[ARG_A], *v = &call->in[ARG_V];
    const int most = a->ndim > v->ndim ? a->ndim : v->ndim;
    out->ndim = most > 0 ? most : 1;
    for (int d = 0; d < out->ndim - 1; d++) {
        out->shape[d] = 1;
    }
    for (int i = ARG_A; i <= ARG_V; i++) {
        const gpo_array *in = &call->in[i];
        for (int d = 0; d < in->ndim - 1; d++) {
            int64_t *length = &out->shape[d + out->ndim - in->ndim];
            if (in->shape[d] == 1 || in->shape[d] == *length) {
                continue;
            }
            if (*length != 1) {
                char first[GPO_MESSAGE / 4], second[GPO_MESSAGE / 4];
                print_shape(a, first, sizeof first);
                print_shape(v, second, sizeof second);
                return gpo_fail(&call->error, GPO_EVALUE,
                                "leading axes could not be broadcast together "
                                "with shapes %s %s",
                                first, second);
            }
            *length = in->shape[d];
        }
    }
    return GPO_OK;
}

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *a = &call->in[ARG_A], *v = &call->in[ARG_V];
    gpo_array *out = &call->out[0];
    const int64_t n = row_length(a), m = row_length(v);
    const int64_t longer = n > m ? n : m, shorter = n > m ? m : n;
    if (shorter == 0) {
        return gpo_fail(&call->error, GPO_EVALUE, "%s cannot be empty",
                        n == 0 ? "a" : "v");
    }
    const gpo_status status = broadcast_rows(call);
    if (status) {
        return status;
    }
    const gpo_dtype dtype = common_dtype(a->dtype, v->dtype);
    for (int i = ARG_A; i <= ARG_V; i++) {
        if (call->in[i].dtype != dtype) {
            call->convert[i] = dtype;
        }
    }
    int64_t length = longer;
    if (call->opt[ARG_MODE].i == MODE_FULL &&
        __builtin_add_overflow(longer, shorter - 1, &length)) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "array is too big; its size overflows");
    }
    if (call->opt[ARG_MODE].i == MODE_VALID) {
        length = longer - shorter + 1;
    }
    out->dtype = dtype;
    out->shape[out->ndim - 1] = length;
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

/* The stride of `in` along axis d of a result of ndim dimensions. */
static int64_t
stride_along(const gpo_array *in, int d, int ndim)
{
    const int own = d - (ndim - in->ndim);
    return own < 0 || in->shape[own] == 1 ? 0 : in->strides[own];
}

static void
merge_axes(convolve_rows *rows, const gpo_array *a, const gpo_array *v,
           const gpo_array *out)
{
    rows->naxes = 0;
    for (int d = out->ndim - 2; d >= 0; d--) {
        const convolve_axis next = {out->shape[d], stride_along(a, d, out->ndim),
                                    stride_along(v, d, out->ndim)};
        convolve_axis *last = rows->naxes > 0 ? &rows->axes[rows->naxes - 1] : NULL;
        if (next.length == 1) {
            continue;
        }
        if (last && next.a == last->a * last->length &&
            next.v == last->v * last->length) {
            last->length *= next.length;
            continue;
        }
        rows->axes[rows->naxes++] = next;
    }
}

_Static_assert(sizeof(convolve_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    convolve_plan *p = call->plan;
    const bool swap = row_length(&call->in[ARG_V]) > row_length(&call->in[ARG_A]);
    p->in_a = swap ? ARG_V : ARG_A;
    p->in_v = swap ? ARG_A : ARG_V;
    const gpo_array *a = &call->in[p->in_a], *v = &call->in[p->in_v];
    const gpo_array *out = &call->out[0];
    const int64_t n = row_length(a), m = row_length(v);
    const int64_t first[] = {
        [MODE_FULL] = 0, [MODE_SAME] = (m - 1) / 2, [MODE_VALID] = m - 1};
    p->n = n;
    p->m = m;
    p->a_step = n > 1 ? a->strides[a->ndim - 1] : 1;
    p->v_step = m > 1 ? v->strides[v->ndim - 1] : 1;
    p->first = first[call->opt[ARG_MODE].i];
    p->count = out->shape[out->ndim - 1];
    p->count_rows = out->size / p->count;
    merge_axes(&p->rows, a, v, out);
    p->one_filter = true;
    for (int i = 0; i < p->rows.naxes; i++) {
        p->one_filter = p->one_filter && p->rows.axes[i].v == 0;
    }
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *a = &call->in[ARG_A], *v = &call->in[ARG_V];
    const gpo_array *out = &call->out[0];
    const double bytes = gpo_dtypes[out->dtype].bytes;
    const convolve_plan *p = convolve_plan_of(call);
    /* Of n m products, those of the sums before and after the result are left out. */
    const double before = (double)p->first;
    const double after = (double)(p->n + p->m - 1 - p->count - p->first);
    const double products = (double)p->n * (double)p->m - before * (before + 1) / 2 -
                            after * (after + 1) / 2;
    cost->read_bytes = ((double)a->size + (double)v->size) * bytes;
    cost->written_bytes = (double)out->size * bytes;
    cost->flops = (gpo_dtypes[out->dtype].kind == 'c' ? 8.0 : 2.0) * products *
                  (double)p->count_rows;
}

/* ---- descriptor ---- */

GPO_TABLES(convolve);

const gpo_op op_convolve = {
    .name = "convolve",
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &convolve_cpu,
    .cuda = GPO_CUDA_TABLE(convolve),
};
