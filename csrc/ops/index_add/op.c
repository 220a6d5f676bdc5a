/*
 * op.c  index_add: the contract.  Order: arguments, dtypes, shape rule, plan, the index
 * error, cost, descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "index_add.h"

#include <math.h>
#include <stdio.h>

/* ---- arguments ---- */

enum { ARG_X, ARG_INDEX, ARG_SOURCE, ARG_AXIS, ARG_ALPHA, ARG_MODE, ARG_DETERMINISTIC };

static const char *const modes[] = {GPO_INDEX_MODES};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_INDEX] = {"index", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_SOURCE] = {"source", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_AXIS] = {"axis", GPO_KIND_INT, "0", NULL},
    [ARG_ALPHA] = {"alpha", GPO_KIND_FLOAT, "1", NULL},
    [ARG_MODE] = {"mode", GPO_KIND_ENUM, "'raise'", modes},
    [ARG_DETERMINISTIC] = {"deterministic", GPO_KIND_BOOL, "False", NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- dtypes ---- */

static bool
is_whole(gpo_dtype dtype)
{
    const char kind = gpo_dtypes[dtype].kind;
    return kind == 'b' || kind == 'i' || kind == 'u';
}

/* numpy.can_cast(from, to, 'same_kind') */
static bool
can_cast_same_kind(gpo_dtype from, gpo_dtype to)
{
    const char a = gpo_dtypes[from].kind, b = gpo_dtypes[to].kind;
    switch (a) {
        case 'b':
            return true;
        case 'u':
            return b != 'b';
        case 'i':
            return b != 'b' && b != 'u';
        case 'f':
            return b == 'f' || b == 'c';
        default:
            return b == 'c';
    }
}

static gpo_status
check_dtypes(gpo_call *call)
{
    const gpo_dtype x = call->in[ARG_X].dtype;
    const gpo_dtype index = call->in[ARG_INDEX].dtype;
    const gpo_dtype source = call->in[ARG_SOURCE].dtype;
    const char kind = gpo_dtypes[index].kind;
    const bool nothing = call->in[ARG_INDEX].weak && call->in[ARG_INDEX].size == 0;
    if (kind != 'i' && kind != 'u' && !nothing) { /* [] is a list of integers, too */
        return gpo_fail(&call->error, GPO_ETYPE,
                        "index_add() takes an index of an integer dtype, not '%s'",
                        gpo_dtypes[index].name);
    }
    if (!can_cast_same_kind(source, x)) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "Cannot cast array data from dtype('%s') to dtype('%s') "
                        "according to the rule 'same_kind'",
                        gpo_dtypes[source].name, gpo_dtypes[x].name);
    }
    if (is_whole(x) && !call->opt[ARG_ALPHA].is_int) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "Cannot cast alpha from dtype('float64') to dtype('%s') "
                        "according to the rule 'same_kind'",
                        gpo_dtypes[x].name);
    }
    if (!is_whole(x) && call->opt[ARG_ALPHA].is_int && isinf(call->opt[ARG_ALPHA].f)) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "alpha is an int too large for a float");
    }
    if (index != GPO_I32 && index != GPO_I64) {
        call->convert[ARG_INDEX] = GPO_I64;
    }
    if (source != x) {
        call->convert[ARG_SOURCE] = x;
    }
    return GPO_OK;
}

/* ---- shape rule ---- */

/* "(2, 3)", as Python writes a shape; axes that do not fit are left out. */
static void
write_shape(char *to, size_t room, int ndim, const int64_t *shape)
{
    size_t used = (size_t)snprintf(to, room, "(");
    for (int d = 0; d < ndim && used + 32 < room; d++) {
        used += (size_t)snprintf(to + used, room - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    }
    snprintf(to + used, room - used, ndim == 1 ? ",)" : ")");
}

static gpo_status
check_shapes(gpo_call *call, int axis)
{
    const gpo_array *x = &call->in[ARG_X], *index = &call->in[ARG_INDEX];
    const gpo_array *source = &call->in[ARG_SOURCE];
    if (index->ndim != 1) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "index must be 1-dimensional, not %d-dimensional", index->ndim);
    }
    int64_t wanted[GPO_MAX_DIMS];
    bool same = source->ndim == x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        wanted[d] = d == axis ? index->shape[0] : x->shape[d];
        same = same && source->shape[d] == wanted[d];
    }
    if (!same) {
        char is[160], should[160];
        write_shape(is, sizeof is, source->ndim, source->shape);
        write_shape(should, sizeof should, x->ndim, wanted);
        return gpo_fail(&call->error, GPO_EVALUE, "source has shape %s, expected %s",
                        is, should);
    }
    if (x->shape[axis] == 0 && index->shape[0] > 0) {
        return gpo_fail(&call->error, GPO_EINDEX,
                        "cannot do a non-empty take from an empty axes.");
    }
    return GPO_OK;
}

/* Whether axes [begin, end) in C order have one stride; `stride` gets it. */
static bool
is_one_axis(const gpo_array *a, int begin, int end, int64_t *stride)
{
    int64_t length = 1;
    *stride = 1;
    for (int d = end - 1; d >= begin; d--) {
        if (a->shape[d] == 1) {
            continue;
        }
        if (length > 1 && a->strides[d] != length * *stride) {
            return a->size == 0;
        }
        *stride = length > 1 ? *stride : a->strides[d];
        length *= a->shape[d];
    }
    return true;
}

/* Whether three strides describe the source; parts of complex numbers are adjacent. */
static bool
is_walkable(const gpo_array *source, int axis)
{
    int64_t by_outer, by_inner;
    const bool close = is_one_axis(source, 0, axis, &by_outer) &&
                       is_one_axis(source, axis + 1, source->ndim, &by_inner);
    return close && (gpo_dtypes[source->dtype].kind != 'c' || by_inner == 1);
}

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    gpo_array *out = &call->out[0];
    int axis = 0;
    gpo_status status = gpo_axis(&call->error, call->opt[ARG_AXIS].i, x->ndim, &axis);
    if (!status) {
        status = check_dtypes(call);
    }
    if (!status) {
        status = check_shapes(call, axis);
    }
    if (status) {
        return status;
    }
    if (!is_walkable(&call->in[ARG_SOURCE], axis)) {
        call->convert[ARG_SOURCE] = x->dtype; /* the same values, contiguous */
    }
    out->dtype = x->dtype;
    out->ndim = x->ndim;
    for (int d = 0; d < x->ndim; d++) {
        out->shape[d] = x->shape[d];
    }
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(index_add_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X], *index = &call->in[ARG_INDEX];
    const gpo_array *source = &call->in[ARG_SOURCE];
    const gpo_option *alpha = &call->opt[ARG_ALPHA];
    const int64_t given = call->opt[ARG_AXIS].i;
    const int axis = (int)(given < 0 ? given + x->ndim : given);
    index_add_plan *p = call->plan;
    *p = (index_add_plan){
        /* Integers have one sum in any order. */
        .is_deterministic = call->opt[ARG_DETERMINISTIC].i != 0 && !is_whole(x->dtype),
        .mode = (gpo_index_mode)call->opt[ARG_MODE].i,
        .dtype = x->dtype,
        .is_first = call->out_given[0] != GPO_NONE,
        .axis = axis,
        .outer = 1,
        .length = x->shape[axis],
        .count = index->shape[0],
        .inner = 1,
        .by_row = source->strides[axis],
        .step = index->strides[0],
        .is_wide = index->dtype == GPO_I64,
        /* i of a large int is modulo 2^64: it may be 1, or 0 where f is not. */
        .is_scaled = is_whole(x->dtype) ? alpha->i != 1 : alpha->f != 1,
        .whole = x->dtype == GPO_BOOL ? alpha->f != 0 : alpha->i,
        .alpha = alpha->f,
    };
    for (int d = 0; d < x->ndim; d++) {
        p->outer *= d < axis ? x->shape[d] : 1;
        p->inner *= d > axis ? x->shape[d] : 1;
    }
    is_one_axis(source, 0, axis, &p->by_outer);
    is_one_axis(source, axis + 1, source->ndim, &p->by_inner);
    if (gpo_dtypes[x->dtype].kind == 'c') {
        p->dtype = x->dtype == GPO_C64 ? GPO_F32 : GPO_F64;
        p->inner *= 2;
        p->by_outer *= 2;
        p->by_row *= 2;
    }
}

/* ---- the index error ---- */

gpo_status
index_add_out_of_range(gpo_call *call, int64_t value, int64_t position)
{
    const index_add_plan *p = index_add_plan_of(call);
    return gpo_fail(
        &call->error, GPO_EINDEX,
        "index %lld at position %lld is out of bounds for axis %d with size %lld",
        (long long)value, (long long)position, p->axis, (long long)p->length);
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[ARG_X], *index = &call->in[ARG_INDEX];
    const gpo_array *source = &call->in[ARG_SOURCE];
    const double bytes = gpo_dtypes[x->dtype].bytes;
    const bool in_place = call->out[0].data && call->out[0].data == x->data;
    const double touched = (double)(in_place ? source->size : x->size) * bytes;
    cost->read_bytes = touched + (double)source->size * bytes +
                       (double)index->size * gpo_dtypes[index->dtype].bytes;
    cost->written_bytes = touched;
    cost->flops = (double)source->size;
}

/* ---- descriptor ---- */

GPO_TABLES(index_add);

const gpo_op op_index_add = {
    .name = "index_add",
    .args = args,
    .nout = 1,
    .in_place = 1u << ARG_X,
    .indices = ARG_INDEX,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &index_add_cpu,
    .cuda = GPO_CUDA_TABLE(index_add),
};
