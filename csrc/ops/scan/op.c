/*
 * op.c  scan: the contract.  Order: arguments, shape rule, plan, cost, documentation,
 * descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "scan.h"

/* ---- arguments ---- */

enum { ARG_X, ARG_OP, ARG_AXIS, ARG_EXCLUSIVE, ARG_REVERSE };

static const char *const ops[] = {"sum", "prod", "min", "max", NULL};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_OP] = {"op", GPO_KIND_ENUM, "'sum'", ops},
    [ARG_AXIS] = {"axis", GPO_KIND_INT, "-1", NULL},
    [ARG_EXCLUSIVE] = {"exclusive", GPO_KIND_BOOL, "False", NULL},
    [ARG_REVERSE] = {"reverse", GPO_KIND_BOOL, "False", NULL},
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
    return gpo_array_contiguous(&call->error, out);
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
    p->rows = 1;
    p->cols = x->shape[axis];
    p->inner = 1;
    p->x_first = p->out_first = 0;
    p->kept.ndim = 0;
    for (int d = 0; d < axis; d++) {
        push_axis(&p->kept, 0, x->shape[d], x->strides[d]);
        p->rows *= x->shape[d];
    }
    const int outer = p->kept.ndim;
    for (int d = (int)axis + 1; d < x->ndim; d++) {
        push_axis(&p->kept, outer, x->shape[d], x->strides[d]);
        p->inner *= x->shape[d];
    }
    p->rows *= p->inner;
    p->inner_ndim = p->kept.ndim - outer;
    p->stride = x->strides[axis];
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

/* ---- documentation ---- */

static const char doc[] =
    "Combine each element of an array with all elements before it along an axis.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "x : array_like, any shape and strides, one dimension or more\n"
    "    bool, int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64;\n"
    "    complex64 and complex128 for 'sum' and 'prod'.\n"
    "op : {'sum', 'prod', 'min', 'max'}\n"
    "    What to compute: numpy.cumsum, numpy.cumprod, numpy.minimum.accumulate or\n"
    "    numpy.maximum.accumulate.\n"
    "axis : int, optional\n"
    "    The axis to walk along; the last one by default.\n"
    "exclusive : bool, optional\n"
    "    Leave the element itself out: the first result is the identity, 0 for 'sum',\n"
    "    1 for 'prod', for 'min' and 'max' the largest or lowest value of the dtype\n"
    "    (inf and -inf for floats).\n"
    "reverse : bool, optional\n"
    "    Walk from the end of the axis to its beginning.\n"
    "out : array, optional\n"
    "    Written and returned; must have the shape and dtype of the result and share "
    "no\n"
    "    memory with x.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "array\n"
    "    Shape of x.  The dtype of x; int64 or uint64 for 'sum' and 'prod' of bool "
    "and\n"
    "    integers.\n"
    "\n"
    "Raises\n"
    "------\n"
    "numpy.exceptions.AxisError\n"
    "    The axis is out of bounds; a scalar has none.\n"
    "ValueError\n"
    "    `out` has the wrong shape, is read-only or shares memory with x.\n"
    "TypeError\n"
    "    x has another dtype; 'min' or 'max' of complex numbers; `out` has the wrong\n"
    "    dtype.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "An axis of length 0 gives an empty array.  A nan makes every later 'min' and "
    "'max'\n"
    "nan.\n"
    "\n"
    "Accuracy: float16 and bfloat16 are combined in float32 or wider and rounded once "
    "per\n"
    "element.  The sum of the first k elements of float32 and float64 errs by at most\n"
    "(ceil(log2 k) + c) * eps * sum(abs(x[:k])), eps = 2**-24 or 2**-53; c = 32 on a "
    "GPU\n"
    "(float64 adds k * 2**-10 to it: groups of 2**10 elements or more follow each "
    "other "
    "in\n"
    "a chain), 12 for float32 on a CPU, where sums are kept in float64, and 48 for "
    "float64\n"
    "there.  Products: one rounding per factor.  Integers wrap modulo 2**64, as in "
    "NumPy.\n"
    "\n"
    "Determinism: each variant gives the same bits run to run, for any number of "
    "threads\n"
    "and whatever tile of a GPU's grid comes first; different variants and devices "
    "may\n"
    "differ in the last bits of a floating-point result.\n"
    "\n"
    "The CUDA rungs follow W. D. Hillis and G. L. Steele, 'Data Parallel Algorithms' "
    "(1986);\n"
    "G. E. Blelloch, 'Prefix Sums and Their Applications' (1990); and D. Merrill and\n"
    "M. Garland, 'Single-pass Parallel Prefix Scan with Decoupled Look-back' (2016), "
    "whose\n"
    "look-back is here regrouped so that its association is fixed.\n";

/* ---- descriptor ---- */

GPO_TABLES(scan);

const gpo_op op_scan = {
    .name = "scan",
    .doc = doc,
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &scan_cpu,
    .cuda = GPO_CUDA_TABLE(scan),
};
