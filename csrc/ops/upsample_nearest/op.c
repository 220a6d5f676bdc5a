/*
 * op.c  upsample_nearest and upsample_nearest_backward: the contract.  Order:
 * arguments, the options of one call, shape rules, plan, cost, descriptors.  See cpu.c
 * and cuda.cu for the computation.
 */
#include "upsample_nearest.h"

#include <stdio.h>

/* ---- arguments ---- */

enum { FORWARD, BACKWARD };
enum { CHANNELS_FIRST, CHANNELS_LAST };
enum { LEAST_DIMS = 3, MOST_DIMS = 2 + UPSAMPLE_SPATIAL };

static const char *const layouts[] = {"NCHW", "NHWC", NULL};

static const gpo_arg forward_args[] = {
    {"x", GPO_KIND_ARRAY, NULL, NULL},
    {"size", GPO_KIND_INTS, "None", NULL},
    {"scale", GPO_KIND_FLOATS, "None", NULL},
    {"exact", GPO_KIND_BOOL, "False", NULL},
    {"layout", GPO_KIND_ENUM, "'NCHW'", layouts},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

static const gpo_arg backward_args[] = {
    {"dy", GPO_KIND_ARRAY, NULL, NULL},
    {"input_shape", GPO_KIND_INTS, NULL, NULL},
    {"size", GPO_KIND_INTS, "None", NULL},
    {"scale", GPO_KIND_FLOATS, "None", NULL},
    {"exact", GPO_KIND_BOOL, "False", NULL},
    {"layout", GPO_KIND_ENUM, "'NCHW'", layouts},
    {NULL, GPO_KIND_ARRAY, NULL, NULL},
};

/* ---- the options of one call ---- */

/* The input's shape and the options, which are one argument later in backward. */
typedef struct request {
    bool backward;
    int ndim, spatial;    /* axes, spatial ones among them */
    const int64_t *shape; /* of x, or input_shape */
    const gpo_option *size, *scale;
    bool exact, channels_last;
} request;

static request
request_of(const gpo_call *call)
{
    const bool backward = call->op->member == BACKWARD;
    const gpo_option *opt = &call->opt[backward ? 2 : 1];
    const gpo_array *array = &call->in[0];
    return (request){
        .backward = backward,
        .ndim = array->ndim,
        .spatial = array->ndim - 2,
        .shape = backward ? call->opt[1].ints : array->shape,
        .size = &opt[0],
        .scale = &opt[1],
        .exact = opt[2].i != 0,
        .channels_last = opt[3].i == CHANNELS_LAST,
    };
}

/* The array's axis that is spatial axis k, and that of the channels. */
static int
spatial_axis(const request *r, int k)
{
    return r->channels_last ? 1 + k : 2 + k;
}

static int
channel_axis(const request *r)
{
    return r->channels_last ? r->ndim - 1 : 1;
}

/* The scale of spatial axis k, if one is given. */
static double
scale_of(const request *r, int k)
{
    return r->scale->floats[r->scale->is_tuple ? k : 0];
}

/* ---- shape rules ---- */

static gpo_status
check_count(gpo_call *call, const char *name, const gpo_option *option, int spatial)
{
    if (option->given && option->is_tuple && option->i != spatial) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s has %lld values, but there are %d spatial axes", name,
                        (long long)option->i, spatial);
    }
    return GPO_OK;
}

/* size and scale: exactly one of them, of the right length, every value in range. */
static gpo_status
check_request(gpo_call *call, const request *r)
{
    if (r->size->given == r->scale->given) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s() needs exactly one of size and scale, got %s",
                        call->op->name, r->size->given ? "both" : "neither");
    }
    gpo_status status = check_count(call, "size", r->size, r->spatial);
    if (!status) {
        status = check_count(call, "scale", r->scale, r->spatial);
    }
    for (int k = 0; !status && k < r->spatial; k++) {
        const int64_t in = r->shape[spatial_axis(r, k)];
        if (r->scale->given) {
            const double scale = scale_of(r, k);
            if (!(scale > 0) || isinf(scale)) {
                status = gpo_fail(&call->error, GPO_EVALUE,
                                  "scale must be positive and finite, got %g", scale);
            }
            else if ((double)in * scale >= 0x1p62) {
                status = gpo_fail(&call->error, GPO_EVALUE,
                                  "array is too big: %lld elements of an axis "
                                  "times a scale of %g",
                                  (long long)in, scale);
            }
        }
    }
    return status;
}

/*
 * The shape of the enlarged array, for a checked request.  As in PyTorch, only the
 * first axis may be empty.
 */
static gpo_status
enlarged_shape(gpo_call *call, const request *r, int64_t *shape)
{
    if (r->shape[channel_axis(r)] == 0) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s has no channels: axis %d has 0 elements",
                        r->backward ? "input_shape" : "x", channel_axis(r));
    }
    for (int d = 0; d < r->ndim; d++) {
        shape[d] = r->shape[d];
    }
    for (int k = 0; k < r->spatial; k++) {
        const int d = spatial_axis(r, k);
        const int64_t in = r->shape[d];
        shape[d] = r->scale->given ? (int64_t)((double)in * scale_of(r, k))
                                   : r->size->ints[r->size->is_tuple ? k : 0];
        if (in <= 0 || shape[d] <= 0) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "input and output sizes must be greater than 0, but axis "
                            "%d has %lld and %lld",
                            d, (long long)in, (long long)shape[d]);
        }
    }
    return GPO_OK;
}

static gpo_status
check_dims(gpo_call *call)
{
    const gpo_array *array = &call->in[0];
    if (array->ndim < LEAST_DIMS || array->ndim > MOST_DIMS) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "%s must have 3, 4 or 5 dimensions: batch, channels and 1 to 3 "
                        "spatial axes, but it has %d",
                        call->op->args[0].name, array->ndim);
    }
    return GPO_OK;
}

static gpo_status
forward_shape(gpo_call *call)
{
    gpo_status status = check_dims(call);
    if (status) {
        return status;
    }
    const request r = request_of(call);
    gpo_array *out = &call->out[0];
    status = check_request(call, &r);
    if (!status) {
        status = enlarged_shape(call, &r, out->shape);
    }
    if (status) {
        return status;
    }
    out->dtype = call->in[0].dtype;
    out->ndim = r.ndim;
    return gpo_array_contiguous(&call->error, out);
}

/* "(2, 3, 8)" as NumPy writes a shape. */
enum { SHAPE_TEXT = 24 * MOST_DIMS };

static void
write_shape(char text[SHAPE_TEXT], const int64_t *shape, int ndim)
{
    int at = 0;
    for (int d = 0; d < ndim; d++) {
        at += snprintf(text + at, (size_t)(SHAPE_TEXT - at), "%s%lld",
                       d > 0 ? ", " : "(", (long long)shape[d]);
    }
    snprintf(text + at, (size_t)(SHAPE_TEXT - at), ")");
}

static gpo_status
backward_shape(gpo_call *call)
{
    gpo_status status = check_dims(call);
    if (status) {
        return status;
    }
    const gpo_array *dy = &call->in[0];
    const gpo_option *input_shape = &call->opt[1];
    if (input_shape->i != dy->ndim) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "input_shape has %lld values, but dy has %d dimensions",
                        (long long)input_shape->i, dy->ndim);
    }
    for (int d = 0; d < dy->ndim; d++) {
        if (input_shape->ints[d] < 0) {
            return gpo_fail(&call->error, GPO_EVALUE,
                            "negative dimensions are not allowed: "
                            "input_shape[%d] is %lld",
                            d, (long long)input_shape->ints[d]);
        }
    }
    const request r = request_of(call);
    int64_t wanted[MOST_DIMS] = {0};
    status = check_request(call, &r);
    if (!status) {
        status = enlarged_shape(call, &r, wanted);
    }
    if (status) {
        return status;
    }
    for (int d = 0; d < dy->ndim; d++) {
        if (dy->shape[d] != wanted[d]) {
            char got[SHAPE_TEXT], want[SHAPE_TEXT], input[SHAPE_TEXT];
            write_shape(got, dy->shape, dy->ndim);
            write_shape(want, wanted, dy->ndim);
            write_shape(input, r.shape, dy->ndim);
            return gpo_fail(&call->error, GPO_EVALUE,
                            "dy has shape %s, but an input of shape %s gives %s", got,
                            input, want);
        }
    }
    gpo_array *out = &call->out[0];
    out->dtype = dy->dtype;
    out->ndim = dy->ndim;
    for (int d = 0; d < dy->ndim; d++) {
        out->shape[d] = r.shape[d];
    }
    return gpo_array_contiguous(&call->error, out);
}

/* ---- plan ---- */

_Static_assert(sizeof(upsample_nearest_plan) <= GPO_PLAN_BYTES, "the plan fits");

/* The rule of spatial axis k, whose lengths the shape rule has found to be positive. */
static upsample_axis
axis_of(const request *r, int k, int64_t in, int64_t out)
{
    upsample_axis axis = {
        .in = in,
        .out = out,
        .inverse =
            r->scale->given ? (float)(1.0 / scale_of(r, k)) : (float)in / (float)out,
        .shift = r->exact ? 0.5F : 0.0F,
        .log = -1,
    };
    enum { EXACT = 1 << 23 }; /* up to here i and i + 0.5 are float32 numbers */
    for (int log = 0; out <= EXACT && in <= out >> log; log++) {
        if (out == in << log && axis.inverse == ldexpf(1.0F, -log)) {
            axis.log = log;
        }
    }
    return axis;
}

/* The plan of both operators. */
static void
plan(const gpo_call *call)
{
    const request r = request_of(call);
    const gpo_array *from = &call->in[0], *to = &call->out[0];
    const int channel = channel_axis(&r), absent = UPSAMPLE_SPATIAL - r.spatial;
    const upsample_axis one = {.in = 1, .out = 1, .inverse = 1.0F, .log = 0};
    upsample_nearest_plan *p = call->plan;
    *p = (upsample_nearest_plan){
        .backward = r.backward,
        .bytes = gpo_dtypes[from->dtype].bytes,
        .from_size = from->size,
        .size = to->size,
        .images = from->shape[0],
        .channels = r.channels_last ? 1 : from->shape[channel],
        .axis = {one, one, one},
        .inner = r.channels_last ? from->shape[channel] : 1,
    };
    p->stride[UPSAMPLE_A] = from->strides[0];
    p->stride[r.channels_last ? UPSAMPLE_I : UPSAMPLE_B] = from->strides[channel];
    for (int k = 0; k < r.spatial; k++) {
        const int d = spatial_axis(&r, k);
        const int64_t in = r.shape[d], out = r.backward ? from->shape[d] : to->shape[d];
        p->axis[absent + k] = axis_of(&r, k, in, out);
        p->stride[UPSAMPLE_D + absent + k] = from->strides[d];
    }
    if (p->stride[UPSAMPLE_A] == p->channels * p->stride[UPSAMPLE_B]) {
        p->channels *= p->images; /* one axis of planes */
        p->images = 1;
    }
    p->length[UPSAMPLE_A] = p->images;
    p->length[UPSAMPLE_B] = p->channels;
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        p->length[UPSAMPLE_D + k] = r.backward ? p->axis[k].out : p->axis[k].in;
    }
    p->length[UPSAMPLE_I] = p->inner;

    const int64_t width = p->length[UPSAMPLE_W], across = p->stride[UPSAMPLE_W];
    const int64_t by = p->stride[UPSAMPLE_I];
    p->reach =
        (double)width * fabs((double)across) + (double)p->inner * fabs((double)by);
    p->packed = (p->inner == 1 || by == 1) && (width == 1 || across == p->inner);
    p->row = (r.backward ? p->axis[2].in : p->axis[2].out) * p->inner;
    p->rows = p->images * p->channels * p->axis[0].in * p->axis[1].in;
}

/* ---- cost ---- */

static void
forward_cost(const gpo_call *call, gpo_cost *cost)
{
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    double read = (double)(p->images * p->channels * p->inner) * (double)p->bytes;
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) { /* a smaller result skips elements */
        const upsample_axis *axis = &p->axis[k];
        read *= (double)(axis->in < axis->out ? axis->in : axis->out);
    }
    cost->read_bytes = read;
    cost->written_bytes = (double)p->size * (double)p->bytes;
    cost->flops = 0;
}

static void
backward_cost(const gpo_call *call, gpo_cost *cost)
{
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    cost->read_bytes = (double)p->from_size * (double)p->bytes;
    cost->written_bytes = (double)p->size * (double)p->bytes;
    cost->flops = (double)p->from_size;
}

/* ---- descriptors ---- */

GPO_TABLES(upsample_nearest);
GPO_TABLES(upsample_nearest_backward);

const gpo_op op_upsample_nearest = {
    .name = "upsample_nearest",
    .args = forward_args,
    .nout = 1,
    .member = FORWARD,
    .shape = forward_shape,
    .plan = plan,
    .cost = forward_cost,
    .cpu = &upsample_nearest_cpu,
    .cuda = GPO_CUDA_TABLE(upsample_nearest),
};

const gpo_op op_upsample_nearest_backward = {
    .name = "upsample_nearest_backward",
    .ladder = "upsample_nearest_backward",
    .room = "upsample_nearest",
    .args = backward_args,
    .nout = 1,
    .member = BACKWARD,
    .shape = backward_shape,
    .plan = plan,
    .cost = backward_cost,
    .cpu = &upsample_nearest_backward_cpu,
    .cuda = GPO_CUDA_TABLE(upsample_nearest_backward),
};
