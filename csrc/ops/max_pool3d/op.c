/*
 * op.c  max_pool3d, max_pool2d, max_pool1d and their gradients: the contract.  Order:
 * arguments, windows, the shape rule of pooling, that of the gradient, plans, costs,
 * descriptors.  See cpu.c, gradient.c and cuda.cu for the computation.
 */
#include "max_pool3d.h"

#include <stdio.h>

/* ---- arguments ---- */

enum {
    ARG_X,
    ARG_KERNEL,
    ARG_STRIDE,
    ARG_PADDING,
    ARG_DILATION,
    ARG_CEIL,
    ARG_INDICES
};

static const gpo_arg args[] = {
    [ARG_X] = {"x", GPO_KIND_ARRAY, NULL, NULL},
    [ARG_KERNEL] = {"kernel_size", GPO_KIND_INTS, NULL, NULL},
    [ARG_STRIDE] = {"stride", GPO_KIND_INTS, "None", NULL},
    [ARG_PADDING] = {"padding", GPO_KIND_INTS, "0", NULL},
    [ARG_DILATION] = {"dilation", GPO_KIND_INTS, "1", NULL},
    [ARG_CEIL] = {"ceil_mode", GPO_KIND_BOOL, "False", NULL},
    [ARG_INDICES] = {"return_indices", GPO_KIND_BOOL, "False", NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

enum {
    GRAD_DY,
    GRAD_INDICES,
    GRAD_SHAPE,
    GRAD_KERNEL,
    GRAD_STRIDE,
    GRAD_PADDING,
    GRAD_DILATION
};

static const gpo_arg gradient_args[] = {
    [GRAD_DY] = {"dy", GPO_KIND_ARRAY, NULL, NULL},
    [GRAD_INDICES] = {"indices", GPO_KIND_ARRAY, NULL, NULL},
    [GRAD_SHAPE] = {"input_shape", GPO_KIND_INTS, NULL, NULL},
    [GRAD_KERNEL] = {"kernel_size", GPO_KIND_INTS, "None", NULL},
    [GRAD_STRIDE] = {"stride", GPO_KIND_INTS, "None", NULL},
    [GRAD_PADDING] = {"padding", GPO_KIND_INTS, "None", NULL},
    [GRAD_DILATION] = {"dilation", GPO_KIND_INTS, "None", NULL},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* "(2, 3)", as Python writes a shape; axes that do not fit are left out. */
static void
write_shape(char *to, size_t room, int64_t n, const int64_t *shape)
{
    size_t used = (size_t)snprintf(to, room, "(");
    for (int64_t d = 0; d < n && used + 32 < room; d++) {
        used += (size_t)snprintf(to + used, room - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    }
    snprintf(to + used, room - used, n == 1 ? ",)" : ")");
}

/* ---- windows ---- */

enum { MOST = INT32_MAX }; /* of a kernel, stride, padding or dilation, as in PyTorch */

/* Whether an option is an int, or a tuple of one int per axis, of at least `least`. */
static gpo_status
check_ints(gpo_call *call, const char *name, const gpo_option *option, int rank,
           int64_t least)
{
    if (option->i != 1 && option->i != rank) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s must be an int or a tuple of %d ints, but it has %lld",
                        name, rank, (long long)option->i);
    }
    for (int64_t d = 0; d < option->i; d++) {
        const int64_t value = option->ints[d];
        if (value < least || value > MOST) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "%s must be %s and at most %d, but it is %lld", name,
                            least > 0 ? "positive" : "non-negative", MOST,
                            (long long)value);
        }
    }
    return GPO_OK;
}

/* The value of such an option for axis d of POOL_AXES; `preset` if it has none. */
static int64_t
int_of_axis(const gpo_option *option, int rank, int d, int64_t preset)
{
    const int at = d - (POOL_AXES - rank);
    return at < 0 || !option->given ? preset : option->ints[option->i == 1 ? 0 : at];
}

enum { KERNEL, STRIDE, PADDING, DILATION }; /* the options of windows, in their order */

/* The windows that the options from `option` on describe; they have been checked. */
static void
read_windows(const gpo_option *option, int rank, pool_axis *axis)
{
    const gpo_option *stride = &option[option[STRIDE].given ? STRIDE : KERNEL];
    for (int d = 0; d < POOL_AXES; d++) {
        axis[d].kernel = int_of_axis(&option[KERNEL], rank, d, 1);
        axis[d].stride = int_of_axis(stride, rank, d, 1);
        axis[d].padding = int_of_axis(&option[PADDING], rank, d, 0);
        axis[d].dilation = int_of_axis(&option[DILATION], rank, d, 1);
    }
}

static gpo_status
check_windows(gpo_call *call, int first, int rank, pool_axis *axis)
{
    static const char *const names[] = {"kernel_size", "stride", "padding", "dilation"};
    const gpo_option *option = &call->opt[first];
    gpo_status status = GPO_OK;
    for (int k = KERNEL; k <= DILATION && !status; k++) {
        if (k == KERNEL || option[k].given) {
            status = check_ints(call, names[k], &option[k], rank, k != PADDING);
        }
    }
    if (status) {
        return status;
    }
    read_windows(option, rank, axis);
    for (int d = 0; d < POOL_AXES && !status; d++) {
        if (axis[d].padding > axis[d].kernel / 2) {
            status = gpo_fail(&call->error, GPO_EVALUE,
                              "padding must be at most half of the kernel size, but it "
                              "is %lld for a kernel size of %lld",
                              (long long)axis[d].padding, (long long)axis[d].kernel);
        }
    }
    return status;
}

/* How many windows an axis has: PyTorch's rule. */
static int64_t
count_windows(const pool_axis *a, bool ceil_mode)
{
    const int64_t room = a->in + 2 * a->padding - pool_extent(a);
    const int64_t up = ceil_mode ? a->stride - 1 : 0;
    if (room + up < 0) {
        return 0;
    }
    const int64_t out = (room + up) / a->stride + 1;
    /* the last window begins inside of x or the padding before it */
    const bool beyond = ceil_mode && (out - 1) * a->stride >= a->in + a->padding;
    return beyond ? out - 1 : out;
}

/* The rank of the windows: 3, 2 or 1. */
static int
rank_of(const gpo_call *call)
{
    return call->op->member;
}

/* ---- the shape rule of pooling ---- */

static const char *const forms[] = {
    [1] = "(C, W) or (N, C, W)",
    [2] = "(C, H, W) or (N, C, H, W)",
    [3] = "(C, T, H, W) or (N, C, T, H, W)",
};

/* Whether `n` lengths can be those of an input: only the batch may be empty. */
static gpo_status
check_input_shape(gpo_call *call, const char *name, int64_t n, const int64_t *shape)
{
    const int rank = rank_of(call);
    if (n != rank + 1 && n != rank + 2) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s must have %d or %d dimensions, %s, but it has %lld", name,
                        rank + 1, rank + 2, forms[rank], (long long)n);
    }
    for (int64_t d = 0; d < n; d++) {
        if (shape[d] < 0 || (shape[d] == 0 && (d > 0 || n == rank + 1))) {
            char text[160];
            write_shape(text, sizeof text, n, shape);
            return gpo_fail(&call->error, GPO_EVALUE,
                            "%s must have positive lengths but for the batch, "
                            "but its shape is %s",
                            name, text);
        }
    }
    return GPO_OK;
}

static void
set_lengths(pool_axis *axis, int rank, const int64_t *last)
{
    for (int d = 0; d < POOL_AXES; d++) {
        const int at = d - (POOL_AXES - rank);
        axis[d].in = at < 0 ? 1 : last[at];
    }
}

static gpo_status
shape(gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    const int rank = rank_of(call);
    const int kept = x->ndim - rank;
    pool_axis axis[POOL_AXES];
    gpo_status status = check_input_shape(call, "x", x->ndim, x->shape);
    if (!status) {
        status = check_windows(call, ARG_KERNEL, rank, axis);
    }
    if (status) {
        return status;
    }
    set_lengths(axis, rank, x->shape + kept);
    int64_t out[POOL_AXES];
    bool empty = false;
    for (int d = 0; d < POOL_AXES; d++) {
        out[d] = count_windows(&axis[d], call->opt[ARG_CEIL].i != 0);
        empty = empty || out[d] < 1;
    }
    if (empty) {
        char in[100], no[100];
        write_shape(in, sizeof in, rank, x->shape + kept);
        write_shape(no, sizeof no, rank, out + POOL_AXES - rank);
        return gpo_fail(&call->error, GPO_EVALUE,
                        "the output is too small: an input of size %s "
                        "gives an output of size %s",
                        in, no);
    }
    call->nout = call->opt[ARG_INDICES].i != 0 ? 2 : 1;
    for (int k = 0; k < call->nout && !status; k++) {
        gpo_array *y = &call->out[k];
        y->dtype = k == 0 ? x->dtype : GPO_I64;
        y->ndim = x->ndim;
        for (int d = 0; d < x->ndim; d++) {
            y->shape[d] = d < kept ? x->shape[d] : out[POOL_AXES - x->ndim + d];
        }
        status = gpo_array_contiguous(&call->error, y);
    }
    return status;
}

/* ---- the shape rule of the gradient ---- */

static gpo_status
check_gradient_windows(gpo_call *call, const gpo_array *dy, const int64_t *in)
{
    const int rank = rank_of(call);
    if (!call->opt[GRAD_KERNEL].given) {
        for (int a = GRAD_STRIDE; a <= GRAD_DILATION; a++) {
            if (call->opt[a].given) {
                return gpo_fail(&call->error, GPO_EVALUE,
                                "%s is given, but kernel_size is not",
                                gradient_args[a].name);
            }
        }
        return GPO_OK;
    }
    pool_axis axis[POOL_AXES];
    const gpo_status status = check_windows(call, GRAD_KERNEL, rank, axis);
    if (status) {
        return status;
    }
    set_lengths(axis, rank, in);
    for (int d = POOL_AXES - rank; d < POOL_AXES; d++) {
        const int at = d - (POOL_AXES - rank) + dy->ndim - rank;
        const int64_t down = count_windows(&axis[d], false);
        const int64_t up = count_windows(&axis[d], true);
        if (dy->shape[at] != down && dy->shape[at] != up) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "dy has %lld elements along axis %d, but windows of this "
                            "kind give %lld, or %lld with ceil_mode",
                            (long long)dy->shape[at], at, (long long)down,
                            (long long)up);
        }
    }
    return GPO_OK;
}

static gpo_status
gradient_shape(gpo_call *call)
{
    gpo_array *dy = &call->in[GRAD_DY], *indices = &call->in[GRAD_INDICES];
    const gpo_option *given = &call->opt[GRAD_SHAPE];
    const int rank = rank_of(call);
    const char kind = gpo_dtypes[indices->dtype].kind;
    char is[100], should[100];
    gpo_status status = check_input_shape(call, "input_shape", given->i, given->ints);
    if (status) {
        return status;
    }
    write_shape(is, sizeof is, dy->ndim, dy->shape);
    if (kind != 'i' && kind != 'u') {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "%s() takes indices of an integer dtype, not '%s'",
                        call->op->name, gpo_dtypes[indices->dtype].name);
    }
    bool fits = dy->ndim == given->i;
    for (int d = 0; fits && d < dy->ndim; d++) {
        const bool kept = d < dy->ndim - rank;
        fits = kept ? dy->shape[d] == given->ints[d] : dy->shape[d] > 0;
    }
    if (!fits) {
        write_shape(should, sizeof should, given->i, given->ints);
        return gpo_fail(&call->error, GPO_EVALUE,
                        "dy has shape %s, which is no pooling of input_shape %s", is,
                        should);
    }
    bool same = indices->ndim == dy->ndim;
    for (int d = 0; same && d < dy->ndim; d++) {
        same = indices->shape[d] == dy->shape[d];
    }
    if (!same) {
        write_shape(should, sizeof should, indices->ndim, indices->shape);
        return gpo_fail(&call->error, GPO_EVALUE, "indices has shape %s, but dy has %s",
                        should, is);
    }
    status = check_gradient_windows(call, dy, given->ints + (dy->ndim - rank));
    if (status) {
        return status;
    }
    if (!gpo_array_is_contiguous(dy)) {
        call->convert[GRAD_DY] = dy->dtype;
    }
    if (indices->dtype != GPO_I64 || !gpo_array_is_contiguous(indices)) {
        call->convert[GRAD_INDICES] = GPO_I64;
    }
    gpo_array *dx = &call->out[0];
    dx->dtype = dy->dtype;
    dx->ndim = dy->ndim;
    for (int d = 0; d < dx->ndim; d++) {
        dx->shape[d] = given->ints[d];
    }
    return gpo_array_contiguous(&call->error, dx);
}

/* ---- plans ---- */

/*
 * Leaves out the elements that lie outside of x in every window: the windows keep what
 * they have of x, and what a variant holds of a window, or loops over, is bounded by
 * the lengths of x and y, whatever the kernel.
 */
static void
trim(pool_axis *a)
{
    const int64_t last = (a->out - 1) * a->stride;
    const int64_t reached = (a->in + a->padding - 1) / a->dilation + 1;
    a->kernel = a->kernel < reached ? a->kernel : reached;
    const int64_t before = a->padding > last ? (a->padding - last) / a->dilation : 0;
    const int64_t left_out = before < a->kernel ? before : a->kernel - 1;
    a->kernel -= left_out;
    a->padding -= left_out * a->dilation;
}

/* The windows over x that the options from `option` on describe, one for each of y. */
static void
plan_axes(const gpo_option *option, int rank, const gpo_array *x, const gpo_array *y,
          pool_axis *axis)
{
    const int kept = x->ndim - rank;
    read_windows(option, rank, axis);
    set_lengths(axis, rank, x->shape + kept);
    for (int d = 0; d < POOL_AXES; d++) {
        const int at = d - (POOL_AXES - rank) + kept;
        axis[d].out = at < kept ? 1 : y->shape[at];
        trim(&axis[d]);
    }
}

_Static_assert(sizeof(max_pool3d_plan) <= GPO_PLAN_BYTES, "the plan fits");
_Static_assert(sizeof(pool_gradient_plan) <= GPO_PLAN_BYTES, "the plan fits");

static void
plan(const gpo_call *call)
{
    const gpo_array *x = &call->in[ARG_X];
    const int rank = rank_of(call);
    const int kept = x->ndim - rank;
    max_pool3d_plan *p = call->plan;
    *p = (max_pool3d_plan){
        .planes = kept == 2 ? x->shape[0] * x->shape[1] : x->shape[0],
        .channels = x->shape[kept - 1],
        .by_batch = kept == 2 ? x->strides[0] : 0,
        .by_channel = x->strides[kept - 1],
        .plane = 1,
        .outputs = 1,
        .taps = 1,
        .with_indices = call->nout == 2,
    };
    plan_axes(&call->opt[ARG_KERNEL], rank, x, &call->out[0], p->axis);
    p->cube = p->axis[0].kernel;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis *a = &p->axis[d];
        const int at = d - (POOL_AXES - rank) + kept;
        const int64_t end = (a->out - 1) * a->stride - a->padding + pool_extent(a);
        p->by[d] = at < kept ? 0 : x->strides[at];
        p->plane *= a->in;
        p->outputs *= a->out;
        p->taps *= (double)a->kernel;
        p->cube = a->kernel == p->cube && a->dilation == 1 ? p->cube : 0;
        p->is_padded = p->is_padded || a->padding > 0 || end > a->in;
    }
}

static void
gradient_plan(const gpo_call *call)
{
    const gpo_array *dy = &call->in[GRAD_DY];
    const int rank = rank_of(call);
    pool_gradient_plan *p = call->plan;
    *p = (pool_gradient_plan){
        .planes = dy->ndim - rank == 2 ? dy->shape[0] * dy->shape[1] : dy->shape[0],
        .plane = 1,
        .outputs = 1,
        .has_windows = call->opt[GRAD_KERNEL].given,
        .is_apart = true,
    };
    plan_axes(&call->opt[GRAD_KERNEL], rank, &call->out[0], dy, p->axis);
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis *a = &p->axis[d];
        p->plane *= a->in;
        p->outputs *= a->out;
        p->is_apart = p->is_apart && (a->stride >= pool_extent(a) || a->out == 1);
        p->has_gaps = p->has_gaps || a->dilation > 1;
    }
}

gpo_status
max_pool3d_out_of_range(gpo_call *call, int64_t value, int64_t at)
{
    return gpo_fail(&call->error, GPO_EINDEX,
                    "index %lld at element %lld of indices is out of bounds for a "
                    "plane of %lld elements",
                    (long long)value, (long long)at,
                    (long long)pool_gradient_plan_of(call)->plane);
}

/* ---- costs ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *x = &call->in[ARG_X], *y = &call->out[0];
    const max_pool3d_plan *p = max_pool3d_plan_of(call);
    double share = 1; /* of x that lies in any window */
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis *a = &p->axis[d];
        const double seen = (double)a->out * (double)a->kernel;
        share *= seen < (double)a->in ? seen / (double)a->in : 1;
    }
    const int64_t bytes = gpo_dtypes[x->dtype].bytes;
    const int64_t indices = p->with_indices ? 8 : 0;
    cost->read_bytes = (double)x->size * (double)bytes * share;
    cost->written_bytes = (double)y->size * (double)(bytes + indices);
    cost->flops = (double)y->size * p->taps;
}

static void
gradient_cost(const gpo_call *call, gpo_cost *cost)
{
    const gpo_array *dy = &call->in[GRAD_DY], *dx = &call->out[0];
    const double bytes = gpo_dtypes[dy->dtype].bytes;
    cost->read_bytes = (double)dy->size * (bytes + 8);
    cost->written_bytes = (double)dx->size * bytes;
    cost->flops = (double)dy->size;
}

/* ---- descriptors ---- */

GPO_TABLES(max_pool3d);
GPO_TABLES(max_pool3d_backward);

#define POOL_OP(n)                          \
    const gpo_op op_max_pool##n##d = {      \
        .name = "max_pool" #n "d",          \
        .ladder = "max_pool3d",             \
        .room = "max_pool3d",               \
        .args = args,                       \
        .nout = 2,                          \
        .member = n,                        \
        .shape = shape,                     \
        .plan = plan,                       \
        .cost = cost,                       \
        .cpu = &max_pool3d_cpu,             \
        .cuda = GPO_CUDA_TABLE(max_pool3d), \
    }

POOL_OP(3);
POOL_OP(2);
POOL_OP(1);

#define GRADIENT_OP(n)                               \
    const gpo_op op_max_pool##n##d_backward = {      \
        .name = "max_pool" #n "d_backward",          \
        .ladder = "max_pool3d_backward",             \
        .room = "max_pool3d",                        \
        .args = gradient_args,                       \
        .nout = 1,                                   \
        .member = n,                                 \
        .shape = gradient_shape,                     \
        .plan = gradient_plan,                       \
        .cost = gradient_cost,                       \
        .cpu = &max_pool3d_backward_cpu,             \
        .cuda = GPO_CUDA_TABLE(max_pool3d_backward), \
    }

GRADIENT_OP(3);
GRADIENT_OP(2);
GRADIENT_OP(1);
