/*
 * op.c  partition_reduce: the contract.  Order: arguments, result dtype, shape rule,
 * plan, cost, documentation, descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "partition_reduce.h"

#include <string.h>

/* ---- arguments ---- */

enum { ARG_X, ARG_BITS, ARG_OP, ARG_SQUARE };

static const char *const ops[] = {"sum", NULL};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_BITS] = {"bits", GPO_KIND_INTS, NULL, NULL},
    [ARG_OP] = {"op", GPO_KIND_ENUM, "'sum'", ops},
    [ARG_SQUARE] = {"square", GPO_KIND_BOOL, "False", NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- result dtype ---- */

static gpo_dtype
part_of(gpo_dtype x)
{
    return x == GPO_C64 ? GPO_F32 : x == GPO_C128 ? GPO_F64 : x;
}

static gpo_dtype
natural_dtype(gpo_dtype x, bool square)
{
    return x == GPO_I32 ? GPO_I64 : square ? part_of(x) : x;
}

/* ---- shape rule ---- */

static int
log2_of(int64_t size)
{
    int n = 0;
    while (size >> n > 1) {
        n++;
    }
    return n;
}

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *x = &call->in[0];
    const gpo_option *bits = &call->opt[ARG_BITS];
    gpo_array *out = &call->out[0];
    if (x->ndim != 1) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "partition_reduce() takes an array of 1 dimension, x has %d",
                        x->ndim);
    }
    if (x->size <= 0 || (x->size & (x->size - 1)) != 0) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "x has %lld elements, which is not a power of two",
                        (long long)x->size);
    }
    if (!bits->given) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "bits must be an int or a tuple of ints, not None");
    }
    const int n = log2_of(x->size);
    uint64_t seen = 0;
    for (int64_t b = 0; b < bits->i; b++) {
        const int64_t bit = bits->ints[b];
        if (bit < 0 || bit >= n) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "bit %lld is out of range for 2^%d elements",
                            (long long)bit, n);
        }
        if (seen >> bit & 1) {
            return gpo_fail(&call->error, GPO_EVALUE, "bit %lld is repeated in 'bits'",
                            (long long)bit);
        }
        seen |= (uint64_t)1 << bit;
    }
    out->dtype = natural_dtype(x->dtype, call->opt[ARG_SQUARE].i != 0);
    out->ndim = 1;
    out->shape[0] = (int64_t)1 << bits->i;
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(partition_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[0];
    const gpo_option *bits = &call->opt[ARG_BITS];
    const bool square = call->opt[ARG_SQUARE].i != 0;
    const int more = !square && part_of(x->dtype) != x->dtype;
    partition_plan *p = call->plan;
    *p = (partition_plan){
        .dtype = more ? part_of(x->dtype) : x->dtype,
        .square = square,
        .pairs = more,
        .n = log2_of(x->size) + more,
        .k = (int)bits->i + more,
        .stride = more ? 2 * x->strides[0] : x->strides[0],
        .out_dtype = more ? part_of(x->dtype) : call->out[0].dtype,
    };
    memset(p->to, -1, sizeof p->to);
    if (more) {
        p->to[0] = 0;
    }
    for (int b = 0; b < (int)bits->i; b++) {
        p->to[bits->ints[b] + more] = (int8_t)(b + more);
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
    cost->flops = (double)x->size * (call->opt[ARG_SQUARE].i ? 2 : 1);
}

/* ---- documentation ---- */

static const char doc[] =
    "Sum elements whose indices agree in some bits.\n"
    "\n"
    "Element i of x is added to element ``sum(((i >> bits[b]) & 1) << b)`` of the\n"
    "result.  With square=True that of a quantum state gives the probabilities of "
    "some\n"
    "of its qubits.\n"
    "\n"
    "Parameters\n"
    "----------\n"
    "x : array_like of 2**n elements, one dimension, any stride\n"
    "    int32, int64, float16, bfloat16, float32, float64, complex64 or complex128.\n"
    "bits : int or tuple of ints\n"
    "    Distinct positions in [0, n), 0 the lowest bit of an index; the order is "
    "that\n"
    "    of the bits of the result's index.  An empty tuple sums everything.\n"
    "op : {'sum'}\n"
    "    What to compute.\n"
    "square : bool, optional\n"
    "    Sum abs(x)**2 instead of x.\n"
    "out : array, optional\n"
    "    Written and returned; must have the shape and dtype of the result and share "
    "no\n"
    "    memory with x.\n"
    "\n"
    "Returns\n"
    "-------\n"
    "array of 2**len(bits) elements\n"
    "    int64 for int32; float32 and float64 for the squares of complex64 and\n"
    "    complex128; else the dtype of x.\n"
    "\n"
    "Raises\n"
    "------\n"
    "ValueError\n"
    "    x has not one dimension or not 2**n elements; a bit is out of range or "
    "repeated;\n"
    "    `out` has the wrong shape, is read-only or shares memory with x.\n"
    "TypeError\n"
    "    x has another dtype; bits are not whole numbers; `out` has the wrong dtype.\n"
    "\n"
    "Notes\n"
    "-----\n"
    "With ``a = x.reshape((2,) * n)`` bit b is axis n - 1 - b: the result is the sum "
    "of a\n"
    "over the other axes, transposed to the order of bits.\n"
    "\n"
    "Accuracy: float16 and bfloat16 are added in float32.  A result of m elements errs "
    "by\n"
    "at most (ceil(log2 m) + 12) * eps * sum(abs(x)), eps = 2**-24 or 2**-53, in the\n"
    "variants that gpuopt chooses itself, and by m * eps * sum(abs(x)) in those that "
    "add\n"
    "atomically; each part of a complex number on its own.  Integers wrap modulo "
    "2**64.\n"
    "\n"
    "Determinism: the CPU variants, v3 and short_loops give the same bits run to run, "
    "for\n"
    "any number of threads; v0, v1 and v2 add in the order in which atomics arrive.\n"
    "\n"
    "Rungs v0, v1 and v2 are methods B, C and A of a public answer on how to partition "
    "and\n"
    "sum an array in CUDA; gpuopt.variants('partition_reduce') lists them.\n";

/* ---- descriptor ---- */

GPO_TABLES(partition_reduce);

const gpo_op op_partition_reduce = {
    .name = "partition_reduce",
    .doc = doc,
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &partition_reduce_cpu,
    .cuda = GPO_CUDA_TABLE(partition_reduce),
};
