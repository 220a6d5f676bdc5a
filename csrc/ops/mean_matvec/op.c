/*
 * op.c  mean_matvec: the contract.  Order: arguments, result dtype, shape rule, plan,
 * cost, descriptor.  See cpu.c and cuda.cu for the computation.
 */
#include "mean_matvec.h"

/* ---- arguments ---- */

enum { ARG_X, ARG_MATRIX, ARG_LAYOUT };
enum { LAYOUT_LN, LAYOUT_NL };

static const char *const layouts[] = {"LN", "NL", NULL};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_MATRIX] = {"matrix", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_LAYOUT] = {"layout", GPO_KIND_ENUM, "'LN'", layouts},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- result dtype ---- */

/* As NumPy's mean: integers become float64. */
static gpo_dtype
mean_dtype(gpo_dtype x)
{
    return gpo_dtypes[x].kind == 'f' ? x : GPO_F64;
}

/*
 * NumPy's result type of a floating dtype and any real one; float32 for the pairs with
 * bfloat16 that have no common dtype in NumPy.
 */
static gpo_dtype
promoted(gpo_dtype mean, gpo_dtype other)
{
    const gpo_dtype_info *info = &gpo_dtypes[other];
    if (info->kind == 'f') {
        const bool both_halves = mean != other && gpo_dtypes[mean].bytes == 2;
        if (both_halves && info->bytes == 2) {
            return GPO_F32;
        }
        return info->bytes > gpo_dtypes[mean].bytes ? other : mean;
    }
    if (info->kind == 'b' || info->bytes == 1) {
        return mean;
    }
    const gpo_dtype holds = info->bytes == 2 ? GPO_F32 : GPO_F64;
    return gpo_dtypes[holds].bytes > gpo_dtypes[mean].bytes ? holds : mean;
}

/* ---- shape rule ---- */

static gpo_status
check_array(gpo_call *call, int i, int ndim, const char *shape)
{
    const gpo_array *a = &call->in[i];
    if (gpo_dtypes[a->dtype].kind == 'c') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "mean_matvec() does not support dtype '%s'; "
                        "supported: real numbers",
                        gpo_dtypes[a->dtype].name);
    }
    if (a->ndim != ndim) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s must have %d dimensions %s, but it has %d", args[i].name,
                        ndim, shape, a->ndim);
    }
    return GPO_OK;
}

/* The axis of the result that counts rows of the matrix; the other counts batches. */
static int
output_axis(const gpo_call *call)
{
    return call->opt[ARG_LAYOUT].i == LAYOUT_NL ? 1 : 0;
}

static gpo_status
shape(gpo_call *call)
{
    gpo_array *x = &call->in[ARG_X];
    gpo_array *matrix = &call->in[ARG_MATRIX];
    gpo_array *out = &call->out[0];
    gpo_status status = check_array(call, ARG_X, 3, "(N, L, M)");
    if (!status) {
        status = check_array(call, ARG_MATRIX, 2, "(L2, L)");
    }
    if (status) {
        return status;
    }
    if (matrix->shape[1] != x->shape[1]) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "matrix has %lld columns, but x has %lld rows in each batch",
                        (long long)matrix->shape[1], (long long)x->shape[1]);
    }
    const gpo_dtype dtype = promoted(mean_dtype(x->dtype), matrix->dtype);
    for (int i = ARG_X; i <= ARG_MATRIX; i++) {
        if (call->in[i].dtype != dtype) {
            call->convert[i] = dtype;
        }
    }
    const int axis = output_axis(call);
    out->dtype = dtype;
    out->ndim = 2;
    out->shape[axis] = matrix->shape[0];
    out->shape[1 - axis] = x->shape[0];
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(mean_matvec_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    const gpo_array *matrix = &call->in[ARG_MATRIX];
    const gpo_array *out = &call->out[0];
    const int axis = output_axis(call);
    *(mean_matvec_plan *)call->plan = (mean_matvec_plan){
        .batches = x->shape[0],
        .rows = x->shape[1],
        .cols = x->shape[2],
        .outputs = matrix->shape[0],
        .x_batch = x->strides[0],
        .x_row = x->strides[1],
        .x_col = x->strides[2],
        .matrix_output = matrix->strides[0],
        .matrix_row = matrix->strides[1],
        .out_output = out->strides[axis],
        .out_batch = out->strides[1 - axis],
    };
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[ARG_X];
    const gpo_array *matrix = &call->in[ARG_MATRIX];
    const gpo_array *out = &call->out[0];
    const double bytes = gpo_dtypes[out->dtype].bytes;
    cost->read_bytes = ((double)x->size + (double)matrix->size) * bytes;
    cost->written_bytes = (double)out->size * bytes;
    cost->flops = (double)x->size + 2.0 * (double)out->size * (double)x->shape[1];
}

/* ---- descriptor ---- */

GPO_TABLES(mean_matvec);

const gpo_op op_mean_matvec = {
    .name = "mean_matvec",
    .args = args,
    .nout = 1,
    .shape = shape,
    .plan = plan,
    .cost = cost,
    .cpu = &mean_matvec_cpu,
    .cuda = GPO_CUDA_TABLE(mean_matvec),
};
