/*
 * op.c  scatter_add: the contract.  Order: arguments, shape rule, plan, the index
 * error, cost, descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "scatter_add.h"

#include <inttypes.h>

/* ---- arguments ---- */

enum { ARG_VALUES, ARG_INDEX, ARG_SIZE, ARG_MODE, ARG_DETERMINISTIC };

static const char *const modes[] = {GPO_INDEX_MODES};

static const gpo_arg args[] = {
    [ARG_VALUES] = {"values", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_INDEX] = {"index", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_SIZE] = {"size", GPO_KIND_INT, NULL, NULL},
    [ARG_MODE] = {"mode", GPO_KIND_ENUM, "'raise'", modes},
    [ARG_DETERMINISTIC] = {"deterministic", GPO_KIND_BOOL, "False", NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- shape rule ---- */

/* NumPy's rule for a sum: integers are added in 64 bits. */
static gpo_dtype
sum_dtype(gpo_dtype x)
{
    const char kind = gpo_dtypes[x].kind;
    return kind == 'u' ? GPO_U64 : kind == 'i' || kind == 'b' ? GPO_I64 : x;
}

static gpo_status
check_shapes(gpo_call *call)
{
    const gpo_array *values = &call->in[SCATTER_ADD_VALUES];
    const gpo_array *index = &call->in[SCATTER_ADD_INDEX];
    if (values->ndim != index->ndim) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "values and index must have the same shape, but values has %d "
                        "dimensions and index has %d",
                        values->ndim, index->ndim);
    }
    for (int d = 0; d < values->ndim; d++) {
        if (values->shape[d] != index->shape[d]) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "values and index must have the same shape, but axis %d of "
                            "values has length %" PRId64 " and that of index %" PRId64,
                            d, values->shape[d], index->shape[d]);
        }
    }
    return GPO_OK;
}

/* Indices are read as int32, int64 or uint64; narrower ones are converted. */
static gpo_status
check_index(gpo_call *call)
{
    const gpo_dtype dtype = call->in[SCATTER_ADD_INDEX].dtype;
    if (call->in[SCATTER_ADD_INDEX].weak && call->in[SCATTER_ADD_INDEX].size == 0) {
        call->convert[SCATTER_ADD_INDEX] = GPO_I64; /* [] is a list of integers, too */
        return GPO_OK;
    }
    switch (dtype) {
        case GPO_I32:
        case GPO_I64:
        case GPO_U64:
            return GPO_OK;
        case GPO_I8:
        case GPO_U8:
        case GPO_I16:
        case GPO_U16:
            call->convert[SCATTER_ADD_INDEX] = GPO_I32;
            return GPO_OK;
        case GPO_U32:
            call->convert[SCATTER_ADD_INDEX] = GPO_I64;
            return GPO_OK;
        default:
            return gpo_fail(&call->error, GPO_ETYPE,
                            "scatter_add() takes integers for index, not dtype '%s'",
                            gpo_dtypes[dtype].name);
    }
}

static gpo_status
shape(gpo_call *call)
{
    gpo_array *out = &call->out[0];
    gpo_status status = check_shapes(call);
    if (!status) {
        status = check_index(call);
    }
    if (status) {
        return status;
    }
    const int64_t size = call->opt[ARG_SIZE].i;
    if (size < 0) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "negative dimensions are not allowed");
    }
    if (size == 0 && call->in[SCATTER_ADD_INDEX].size > 0 &&
        call->opt[ARG_MODE].i != GPO_INDEX_RAISE) {
        return gpo_fail(&call->error, GPO_EINDEX,
                        "cannot do a non-empty scatter_add into an empty axis");
    }
    out->dtype = sum_dtype(call->in[SCATTER_ADD_VALUES].dtype);
    out->ndim = 1;
    out->shape[0] = size;
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

static scatter_add_line
line_of(const gpo_array *a)
{
    scatter_add_line line = {.is_line = true, .stride = 1};
    int64_t inner = 1; /* elements of the axes to the right */
    bool first = true;
    for (int d = a->ndim - 1; d >= 0; d--) {
        if (a->shape[d] == 1) {
            continue;
        }
        if (first) {
            line.stride = a->strides[d];
            first = false;
        }
        else if (a->strides[d] != line.stride * inner) {
            line.is_line = a->size == 0;
            return line;
        }
        inner *= a->shape[d];
    }
    return line;
}

_Static_assert(sizeof(scatter_add_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *values = &call->in[SCATTER_ADD_VALUES];
    const gpo_array *index = &call->in[SCATTER_ADD_INDEX];
    const gpo_index_mode mode = (gpo_index_mode)call->opt[ARG_MODE].i;
    const char kind = gpo_dtypes[values->dtype].kind;
    *(scatter_add_plan *)call->plan = (scatter_add_plan){
        .n = index->size,
        .size = call->out[0].size,
        .mode = mode,
        /* Integers have one sum in any order. */
        .deterministic =
            call->opt[ARG_DETERMINISTIC].i != 0 && (kind == 'f' || kind == 'c'),
        .is_unsigned = index->dtype == GPO_U64,
        .late = mode == GPO_INDEX_RAISE && call->out_given[0] != GPO_NONE,
        .line = {line_of(values), line_of(index)},
    };
}

/* ---- the index error ---- */

gpo_status
scatter_add_refuse(gpo_call *call, int64_t raw, int64_t position)
{
    const scatter_add_plan *p = scatter_add_plan_of(call);
    if (p->is_unsigned) {
        return gpo_fail(&call->error, GPO_EINDEX,
                        "index %" PRIu64 " at position %" PRId64
                        " is out of bounds for axis 0 with size %" PRId64,
                        (uint64_t)raw, position, p->size);
    }
    return gpo_fail(&call->error, GPO_EINDEX,
                    "index %" PRId64 " at position %" PRId64
                    " is out of bounds for axis 0 with size %" PRId64,
                    raw, position, p->size);
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *values = &call->in[SCATTER_ADD_VALUES];
    const gpo_array *index = &call->in[SCATTER_ADD_INDEX];
    const gpo_array *out = &call->out[0];
    cost->read_bytes = (double)values->size * (gpo_dtypes[values->dtype].bytes +
                                               gpo_dtypes[index->dtype].bytes);
    cost->written_bytes = (double)out->size * gpo_dtypes[out->dtype].bytes;
    cost->flops = (double)values->size;
}

/* ---- descriptor ---- */

GPO_TABLES(scatter_add);

const gpo_op op_scatter_add = {
    .name = "scatter_add",
    .args = args,
    .nout = 1,
    .by = SCATTER_ADD_VALUES,
    .indices = SCATTER_ADD_INDEX,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &scatter_add_cpu,
    .cuda = GPO_CUDA_TABLE(scatter_add),
};
