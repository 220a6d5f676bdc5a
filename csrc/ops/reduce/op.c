/*
 * op.c  reduce: the contract.  Order: arguments, result dtype, shape rule, plan, cost,
 * descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "reduce.h"

#include "../../core/promote.h"

#include <string.h>

/* ---- arguments ---- */

enum { ARG_X, ARG_WHERE, ARG_OP, ARG_AXIS, ARG_KEEPDIMS, ARG_DTYPE, ARG_INITIAL };

static const char *const ops[] = {"sum",    "prod",   "min", "max", "mean",
                                  "argmin", "argmax", "any", "all", NULL};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_WHERE] = {"where", GPO_KIND_ARRAY, "None", NULL, true},
    [ARG_OP] = {"op", GPO_KIND_ENUM, "'sum'", ops},
    [ARG_AXIS] = {"axis", GPO_KIND_INTS, "None", NULL},
    [ARG_KEEPDIMS] = {"keepdims", GPO_KIND_BOOL, "False", NULL},
    [ARG_DTYPE] = {"dtype", GPO_KIND_DTYPE, "None", NULL},
    [ARG_INITIAL] = {"initial", GPO_KIND_FLOAT, "None", NULL, true},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- result dtype: NumPy's rule ---- */

static gpo_dtype
natural_dtype(reduce_op op, gpo_dtype x)
{
    const char kind = gpo_dtypes[x].kind;
    const bool whole = kind == 'b' || kind == 'i' || kind == 'u';
    switch (op) {
        case REDUCE_SUM:
        case REDUCE_PROD:
            return kind == 'u' ? GPO_U64 : whole ? GPO_I64 : x;
        case REDUCE_MEAN:
            return whole ? GPO_F64 : x;
        case REDUCE_ARGMIN:
        case REDUCE_ARGMAX:
            return GPO_I64;
        case REDUCE_ANY:
        case REDUCE_ALL:
            return GPO_BOOL;
        default:
            return x;
    }
}

static bool
takes_dtype(reduce_op op)
{
    return op == REDUCE_SUM || op == REDUCE_PROD || op == REDUCE_MEAN;
}

static bool
takes_initial(reduce_op op)
{
    return op == REDUCE_SUM || op == REDUCE_PROD || op == REDUCE_MIN ||
           op == REDUCE_MAX;
}

/*
 * The dtype to combine in where out= is given without dtype=.  NumPy promotes the
 * dtypes of x and out and casts the result, not the elements.  Integers wrap, so a
 * 64-bit total cast to a narrower or signed dtype has the bits of one computed in it.
 */
static gpo_dtype
dtype_for_out(gpo_dtype natural, gpo_dtype x, gpo_dtype out)
{
    const bool wraps = gpo_is_whole(x) && gpo_is_whole(out) && out != GPO_BOOL;
    /* The natural dtype of a mean of integers is float64 already. */
    return wraps ? natural : gpo_promote(gpo_is_whole(natural) ? x : natural, out);
}

/* ---- shape rule ---- */

static gpo_status
check_axes(gpo_call *call)
{
    const gpo_option *axis = &call->opt[ARG_AXIS];
    bool seen[GPO_MAX_DIMS] = {false};
    for (int64_t k = 0; axis->given && k < axis->i; k++) {
        int d;
        gpo_status status =
            gpo_axis(&call->error, axis->ints[k], call->in[ARG_X].ndim, &d);
        if (status) {
            return status;
        }
        if (seen[d]) {
            return gpo_fail(&call->error, GPO_EVALUE, "duplicate value in 'axis'");
        }
        seen[d] = true;
    }
    return GPO_OK;
}

/* Whether axis d of x is reduced; check_axes has passed. */
static bool
is_reduced(const gpo_call *call, int d)
{
    const gpo_option *axis = &call->opt[ARG_AXIS];
    for (int64_t k = 0; axis->given && k < axis->i; k++) {
        if (axis->ints[k] == d || axis->ints[k] == d - call->in[ARG_X].ndim) {
            return true;
        }
    }
    return !axis->given;
}

static gpo_status
check_op(gpo_call *call, reduce_op op)
{
    const gpo_array *x = &call->in[0];
    const bool arg = op == REDUCE_ARGMIN || op == REDUCE_ARGMAX;
    const bool ordered = arg || op == REDUCE_MIN || op == REDUCE_MAX;
    if (arg && call->opt[ARG_AXIS].given && call->opt[ARG_AXIS].i != 1) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() with op='%s' takes one axis or None", ops[op]);
    }
    if (ordered && gpo_dtypes[x->dtype].kind == 'c') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() with op='%s' does not support dtype '%s'; "
                        "complex numbers have no order",
                        ops[op], gpo_dtypes[x->dtype].name);
    }
    if ((op == REDUCE_ANY || op == REDUCE_ALL) && gpo_dtypes[x->dtype].kind == 'c') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() with op='%s' does not support dtype '%s'", ops[op],
                        gpo_dtypes[x->dtype].name);
    }
    if (call->opt[ARG_DTYPE].given && !takes_dtype(op)) {
        return gpo_fail(
            &call->error, GPO_ETYPE,
            "reduce() takes dtype= for op='sum', 'prod' and 'mean', not '%s'", ops[op]);
    }
    if (call->opt[ARG_INITIAL].given && !takes_initial(op)) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() takes initial= for op='sum', 'prod', 'min' and "
                        "'max', not '%s'",
                        ops[op]);
    }
    return GPO_OK;
}

/* gpuopt/_masked.py computes a call with where=, by calls without it. */
static gpo_status
check_where(gpo_call *call, reduce_op op)
{
    const gpo_array *x = &call->in[0], *where = &call->in[ARG_WHERE];
    if (!where->present) {
        return GPO_OK;
    }
    if (where->dtype != GPO_BOOL) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() takes where= of dtype 'bool', not '%s'",
                        gpo_dtypes[where->dtype].name);
    }
    if (op == REDUCE_ARGMIN || op == REDUCE_ARGMAX) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() with op='%s' takes no where=", ops[op]);
    }
    if ((op == REDUCE_MIN || op == REDUCE_MAX) && !call->opt[ARG_INITIAL].given) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "reduction operation '%s' does not have an identity, so to use "
                        "a where mask one has to specify 'initial'",
                        op == REDUCE_MIN ? "minimum" : "maximum");
    }
    const int more = x->ndim - where->ndim;
    bool fits = more >= 0;
    for (int d = 0; fits && d < where->ndim; d++) {
        fits = where->shape[d] == 1 || where->shape[d] == x->shape[d + more];
    }
    return fits
               ? GPO_OK
               : gpo_fail(&call->error, GPO_EVALUE,
                          "where= of %d dimensions cannot be broadcast to the shape of "
                          "x, which has %d",
                          where->ndim, x->ndim);
}

static gpo_status
shape(gpo_call *call)
{
    gpo_array *x = &call->in[0];
    gpo_array *out = &call->out[0];
    const reduce_op op = (reduce_op)call->opt[ARG_OP].i;

    gpo_status status = check_op(call, op);
    if (!status) {
        status = check_axes(call);
    }
    if (!status) {
        status = check_where(call, op);
    }
    if (status) {
        return status;
    }

    const gpo_dtype natural = natural_dtype(op, x->dtype);
    gpo_dtype wanted = natural;
    if (call->opt[ARG_DTYPE].given) {
        wanted = (gpo_dtype)call->opt[ARG_DTYPE].i;
    }
    else if (takes_dtype(op) && call->out_given[0] != GPO_NONE) {
        wanted = call->out_given[0];
    }
    if (op == REDUCE_MEAN && gpo_dtypes[wanted].kind != 'f' &&
        gpo_dtypes[wanted].kind != 'c') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "reduce() with op='mean' takes a floating dtype, not '%s'",
                        gpo_dtypes[wanted].name);
    }
    if (takes_dtype(op) && !call->opt[ARG_DTYPE].given &&
        call->out_given[0] != GPO_NONE) {
        wanted = dtype_for_out(natural, x->dtype, wanted);
        call->out_given[0] = wanted; /* the binding casts the result */
    }
    if (wanted != natural && wanted != x->dtype) {
        /* NumPy: every element is converted first, then combined in that dtype. */
        call->convert[0] = wanted;
    }

    out->dtype = wanted;
    out->ndim = 0;
    int64_t cols = 1;
    const bool keepdims = call->opt[ARG_KEEPDIMS].i != 0;
    for (int d = 0; d < x->ndim; d++) {
        if (!is_reduced(call, d)) {
            out->shape[out->ndim++] = x->shape[d];
            continue;
        }
        cols *= x->shape[d];
        if (keepdims) {
            out->shape[out->ndim++] = 1;
        }
    }
    status = gpo_array_contiguous(&call->error, out);
    if (!status) {
        status = gpo_initial_check(call, &call->opt[ARG_INITIAL], out->dtype);
    }
    if (status) {
        return status;
    }
    if (cols == 0 && !call->opt[ARG_INITIAL].given) {
        if (op == REDUCE_MIN || op == REDUCE_MAX) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "zero-size array to reduction operation %s "
                            "which has no identity",
                            op == REDUCE_MIN ? "minimum" : "maximum");
        }
        if (op == REDUCE_ARGMIN || op == REDUCE_ARGMAX) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "attempt to get %s of an empty sequence", ops[op]);
        }
    }
    return GPO_OK;
}

/* ---- plan ---- */

_Static_assert(sizeof(reduce_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    reduce_plan *p = call->plan;
    p->op = (reduce_op)call->opt[ARG_OP].i;
    p->rows = call->out[0].size;
    p->cols = 1;
    p->first = 0;
    p->initial = gpo_initial_of(&call->opt[ARG_INITIAL], call->out[0].dtype);
    p->kept.ndim = 0;
    p->reduced.ndim = 0;

    const bool in_order = p->op == REDUCE_ARGMIN || p->op == REDUCE_ARGMAX;
    int64_t length[GPO_MAX_DIMS], stride[GPO_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (!is_reduced(call, d)) {
            reduce_push_axis(&p->kept, x->shape[d], x->strides[d]);
            continue;
        }
        p->cols *= x->shape[d];
        int64_t s = x->strides[d];
        if (!in_order && s < 0 && x->shape[d] > 0) {
            p->first += (x->shape[d] - 1) * s;
            s = -s;
        }
        int k = n++; /* an insertion sort keeps the strides descending */
        while (!in_order && k > 0 && stride[k - 1] < s) {
            length[k] = length[k - 1];
            stride[k] = stride[k - 1];
            k--;
        }
        length[k] = x->shape[d];
        stride[k] = s;
    }
    for (int k = 0; k < n; k++) {
        reduce_push_axis(&p->reduced, length[k], stride[k]);
    }
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[0];
    const gpo_array *out = &call->out[0];
    cost->read_bytes = (double)x->size * gpo_dtypes[x->dtype].bytes;
    if (call->in[ARG_WHERE].present) {
        cost->read_bytes += (double)call->in[ARG_WHERE].size;
    }
    cost->written_bytes = (double)out->size * gpo_dtypes[out->dtype].bytes;
    cost->flops = (double)x->size;
}

/* ---- descriptor ---- */

GPO_TABLES(reduce);

const gpo_op op_reduce = {
    .name = "reduce",
    .args = args,
    .nout = 1,
    .mask = ARG_WHERE,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &reduce_cpu,
    .cuda = GPO_CUDA_TABLE(reduce),
};
