/*
 * op.c  partition_reduce: the contract.  Order: arguments, result dtype, shape rule,
 * plan, cost, descriptor.  See cpu.c and cuda.cu for the computation.
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
    const int n = floor_log2(x->size);
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
        .n = floor_log2(x->size) + more,
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

/* ---- descriptor ---- */

GPO_TABLES(partition_reduce);

const gpo_op op_partition_reduce = {
    .name = "partition_reduce",
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &partition_reduce_cpu,
    .cuda = GPO_CUDA_TABLE(partition_reduce),
};
