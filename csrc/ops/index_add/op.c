/*
 * op.c  index_add: the contract.  Order: arguments, dtypes, shape rule, plan, the index
 * error, cost, documentation, descriptor.  See cpu.c and cuda.cu for the computation.
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
        .is_deterministic = call->opt[ARG_DETERMINISTIC].i != 0,
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
    cost->read_bytes = ((double)x->size + (double)source->size) * bytes +
                       (double)index->size * gpo_dtypes[index->dtype].bytes;
    cost->written_bytes = (double)x->size * bytes;
    cost->flops = (double)source->size;
}

/* ---- documentation ---- */

static const char doc[] =
    "Add the slices of an array to the slices of another that an index names.\n"
    "\n"
    "For axis 0: a copy y of x, then y[index[i]] += alpha * source[i] for every i,\n"
    "repeats included.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "x : array_like, one dimension or more\n"
    "    bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64,\n"
    "    complex64, complex128.\n"
    "index : array_like of integers, 1-D\n"
    "    Positions on the axis; negative ones count from its end.  int32 and int64 "
    "are\n"
    "    read as they are, other integer dtypes are converted to int64.  An empty "
    "list\n"
    "    is one of integers.\n"
    "source : array_like\n"
    "    The shape of x, but len(index) along the axis; converted to the dtype of x\n"
    "    where numpy.can_cast(source.dtype, x.dtype, 'same_kind') allows it.\n"
    "axis : int\n"
    "    The axis of x that the index is for.\n"
    "alpha : int or float\n"
    "    The factor of the source.  A whole number for bool and integers, where it is\n"
    "    exact modulo 2**bits whatever its size.\n"
    "mode : {'raise', 'wrap', 'clip'}\n"
    "    An index out of range is an IndexError, is taken modulo the length of the\n"
    "    axis, or is moved to the nearest end of it (a negative one to 0), as in\n"
    "    numpy.take.\n"
    "deterministic : bool\n"
    "    Choose a variant that gives the same bits in every run.\n"
    "out : array, optional\n"
    "    Written and returned; the shape and dtype of x.  `out=x` adds in place.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "array\n"
    "    Shape and dtype of x.\n"
    "\n"
    "Raises\n"
    "------\n"
    "IndexError\n"
    "    mode='raise' and an index is out of range: the message names the first one "
    "and\n"
    "    its position.  Any index into an axis of length 0.\n"
    "numpy.exceptions.AxisError\n"
    "    The axis is out of bounds.\n"
    "ValueError\n"
    "    index is not 1-D; source or `out` has the wrong shape; `out` is read-only or\n"
    "    shares memory with an input in another way than being x.\n"
    "TypeError\n"
    "    index is not of integers; source, or a float alpha, cannot be cast to the\n"
    "    dtype of x; `out` has the wrong dtype.\n"
    "gpuopt.VariantError\n"
    "    deterministic=True with a variant that adds by atomics.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "On a GPU mode='raise' waits for the stream once: without `out` the check is part\n"
    "of the addition, whose result is dropped; with `out` a pass over the index comes\n"
    "first, so that nothing is written before an error.  While the stream is captured\n"
    "into a graph it is refused; 'wrap' and 'clip' never wait.\n"
    "\n"
    "Accuracy: n values, that of x among them, meet in an element of y; S is the sum "
    "of\n"
    "their absolute values.  Whatever the index, the default errs by at most\n"
    "\n"
    "    u * abs(y) + (min(n, 1024) + 4) * 2**-24 * S + n * 2**-53 * S\n"
    "\n"
    "for float16, bfloat16, float32 and complex64 (each part on its own), u = 2**-11,\n"
    "2**-8 and 2**-24, one rounding of the result, and by (n + 4) * 2**-53 * S for\n"
    "float64 and complex128.  So do by name v4, v5, one_element, few_destinations and\n"
    "the CPU variants.  v0 to v3 and short_rows round to the dtype of x after each\n"
    "addition, as np.add.at does: n * u * S, and the default takes them for float32\n"
    "only up to 1,024 rows.  Integers wrap, bools are or-ed.\n"
    "\n"
    "Determinism: the CPU variants, v4 and one_element give the same bits in every\n"
    "run, and simd and threads the same as each other, so that the default has the\n"
    "same bits on a CPU for any number of threads; v0 to v3 and short_rows do so for\n"
    "integers alone, v5 and few_destinations never.  The default takes v4 for large\n"
    "sources as well.  v4 and one_element sort in GPU memory of their own: 16 bytes "
    "for\n"
    "each entry of the index, and v4 8 for each slice of x and about a thirty-second "
    "of\n"
    "the source.  v5 and few_destinations take 8 bytes for each element of x, as the\n"
    "CPU variants do where more than 1,024 rows meet.\n"
    "\n"
    "The index may be written by another thread or stream during the call: the result "
    "is\n"
    "then undefined, but no memory outside of it is touched.\n"
    "\n"
    "v0 is OneFlow's index_add kernel, as the first source document prints it, v1 its\n"
    "packed half atomics; gpuopt.variants('index_add') lists them.\n";

/* ---- descriptor ---- */

GPO_TABLES(index_add);

const gpo_op op_index_add = {
    .name = "index_add",
    .doc = doc,
    .args = args,
    .nout = 1,
    .in_place = 1u << ARG_X,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &index_add_cpu,
    .cuda = GPO_CUDA_TABLE(index_add),
};
