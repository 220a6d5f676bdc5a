/*
 * op.c  elementwise: the contract of every functor.  Order: arguments, dtypes, the
 * shape rule by the types of a functor, plan, cost, descriptors.  See cpu.c and cuda.cu
 * for the computation.
 */
#include "elementwise.h"

#include "../../core/promote.h"

#include <stdio.h>
#include <string.h>

/* ---- arguments ---- */

enum { ARG_CONDITION, ARG_MIN = 1, ARG_MAX = 2, ARG_DTYPE = 1 };

#define ARRAY(name)                      \
    {                                    \
        name, GPO_KIND_ARRAY, NULL, NULL \
    }
#define BOUND(name)                        \
    {                                      \
        name, GPO_KIND_ARRAY, "None", NULL \
    }
#define END                              \
    {                                    \
        NULL, GPO_KIND_ARRAY, NULL, NULL \
    }

static const gpo_arg ARGS_UNARY[] = {ARRAY("x"), END};
static const gpo_arg ARGS_BINARY[] = {ARRAY("x"), ARRAY("y"), END};
static const gpo_arg ARGS_TERNARY[] = {ARRAY("x"), ARRAY("y"), ARRAY("z"), END};
static const gpo_arg ARGS_CONDITION[] = {ARRAY("condition"), ARRAY("x"), ARRAY("y"),
                                         END};
static const gpo_arg ARGS_BOUNDS[] = {ARRAY("x"), BOUND("min"), BOUND("max"), END};
static const gpo_arg ARGS_TARGET[] = {
    ARRAY("x"), {"dtype", GPO_KIND_DTYPE, NULL, NULL}, END};

enum {
    INPUTS_UNARY = 1,
    INPUTS_BINARY = 2,
    INPUTS_TERNARY = 3,
    INPUTS_CONDITION = 3,
    INPUTS_BOUNDS = 3,
    INPUTS_TARGET = 1,
};

static const int inputs_of[ELEMENTWISE_NFUNCTORS] = {
#define FUNCTOR(name, inputs, ...) [ELEMENTWISE_##name] = INPUTS_##inputs,
#include "functors.def"
#undef FUNCTOR
};

/* ---- dtypes ---- */

static gpo_dtype
unsigned_of(int bytes)
{
    return bytes == 1   ? GPO_U8
           : bytes == 2 ? GPO_U16
           : bytes == 4 ? GPO_U32
           : bytes == 8 ? GPO_U64
                        : GPO_C128;
}

/* Promotes `dtype` with a Python number, wrapped as int64 or wider: NEP 50. */
static gpo_dtype
promote_weak(gpo_dtype dtype, gpo_dtype number)
{
    switch (gpo_dtypes[number].kind) {
        case 'f':
            return gpo_is_whole(dtype) ? GPO_F64 : dtype;
        case 'c':
            return gpo_dtypes[dtype].kind == 'c' ? dtype
                   : gpo_is_whole(dtype)         ? GPO_C128
                                                 : gpo_promote(dtype, GPO_C64);
        default:
            return dtype == GPO_BOOL ? number : dtype;
    }
}

/* The dtype to which the inputs from `first` on promote. */
static gpo_dtype
common_dtype(const gpo_call *call, int first, int inputs)
{
    gpo_dtype common = GPO_NONE;
    /* Floats come first, as in numpy.result_type: int16, uint16 and float32 give float32,
       though the two integers alone would be an int32, which gives float64. */
    for (int whole = 0; whole < 2; whole++) {
        for (int i = first; i < inputs; i++) {
            const gpo_array *in = &call->in[i];
            if (in->present && !in->weak && gpo_is_whole(in->dtype) == whole) {
                common =
                    common == GPO_NONE ? in->dtype : gpo_promote(common, in->dtype);
            }
        }
    }
    const bool all_weak = common == GPO_NONE;
    for (int i = first; i < inputs; i++) {
        const gpo_array *in = &call->in[i];
        if (in->present && in->weak) {
            /* With other inputs, a Python integer is an int64, or too large. */
            const gpo_dtype number =
                gpo_is_whole(in->dtype) && inputs - first > 1 ? GPO_I64 : in->dtype;
            common = common == GPO_NONE ? number
                     : all_weak         ? gpo_promote(common, number)
                                        : promote_weak(common, number);
        }
    }
    return common;
}

/* ---- the rules: the dtype of the loop and of the result, by a functor's types ---- */

static gpo_status
refuse(gpo_call *call, gpo_dtype dtype)
{
    return gpo_fail(&call->error, GPO_ETYPE, "%s() does not support dtype '%s'",
                    call->op->name, gpo_dtypes[dtype].name);
}

static gpo_status
rule_NUMBERS(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    if (*type == GPO_BOOL && call->op->member == ELEMENTWISE_subtract) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "numpy boolean subtract, the `-` operator, is not supported, "
                        "use the bitwise_xor, the `^` operator, or the logical_xor "
                        "function instead.");
    }
    if (*type == GPO_BOOL && call->op->member == ELEMENTWISE_negative) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "The numpy boolean negative, the `-` operator, is not "
                        "supported, use the `~` operator or the "
                        "logical_not function instead.");
    }
    *to = *type;
    return GPO_OK;
}

static gpo_status
rule_FRACTIONS(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    (void)call;
    *to = *type = gpo_is_whole(*type) ? GPO_F64 : *type;
    return GPO_OK;
}

static gpo_status
rule_ORDERED(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    *to = *type;
    return gpo_dtypes[*type].kind == 'c' ? refuse(call, *type) : GPO_OK;
}

static gpo_status
rule_FUSED(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    return *type == GPO_BOOL ? refuse(call, *type) : rule_ORDERED(call, type, to);
}

static gpo_status
rule_SELECT(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    call->convert[ARG_CONDITION] =
        call->in[ARG_CONDITION].dtype == GPO_BOOL ? GPO_NONE : GPO_BOOL;
    *to = *type;
    return GPO_OK;
}

static gpo_status
rule_SIGNED(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    return rule_ORDERED(call, type, to);
}

static gpo_status
rule_MAGNITUDES(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    (void)call;
    *to = *type == GPO_C64 ? GPO_F32 : *type == GPO_C128 ? GPO_F64 : *type;
    return GPO_OK;
}

static gpo_status
rule_SMOOTH(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    *to = *type = gpo_float_beside(*type);
    return gpo_dtypes[*type].kind == 'c' ? refuse(call, *type) : GPO_OK;
}

static gpo_status
rule_ROOTS(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    return rule_SMOOTH(call, type, to);
}

static gpo_status
rule_CAST(gpo_call *call, gpo_dtype *type, gpo_dtype *to)
{
    *type = call->in[0].dtype;
    *to = (gpo_dtype)call->opt[ARG_DTYPE].i;
    return GPO_OK;
}

typedef gpo_status (*rule)(gpo_call *call, gpo_dtype *type, gpo_dtype *to);

static const rule rules[ELEMENTWISE_NFUNCTORS] = {
#define FUNCTOR(name, inputs, types, ...) [ELEMENTWISE_##name] = rule_##types,
#include "functors.def"
#undef FUNCTOR
};

/* ---- shape rule ---- */

/* "(3,) (4,1) ", as NumPy lists shapes that do not broadcast; truncated to `room`. */
static void
print_shapes(const gpo_call *call, int inputs, char *text, size_t room)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < inputs; i++) {
        const gpo_array *in = &call->in[i];
        for (int d = 0; in->present && d < in->ndim && at < room; d++) {
            at += (size_t)snprintf(text + at, room - at, d > 0 ? ",%lld" : "(%lld",
                                   (long long)in->shape[d]);
        }
        if (in->present && at < room) {
            const char *end = in->ndim == 0 ? "() " : in->ndim == 1 ? ",) " : ") ";
            at += (size_t)snprintf(text + at, room - at, "%s", end);
        }
    }
}

static gpo_status
broadcast(gpo_call *call, int inputs)
{
    gpo_array *out = &call->out[0];
    out->ndim = 0;
    for (int i = 0; i < inputs; i++) {
        const gpo_array *in = &call->in[i];
        out->ndim = in->present && in->ndim > out->ndim ? in->ndim : out->ndim;
    }
    for (int d = 0; d < out->ndim; d++) {
        out->shape[d] = 1;
    }
    for (int i = 0; i < inputs; i++) {
        const gpo_array *in = &call->in[i];
        for (int d = 0; in->present && d < in->ndim; d++) {
            int64_t *length = &out->shape[d + out->ndim - in->ndim];
            if (in->shape[d] == 1 || in->shape[d] == *length) {
                continue;
            }
            if (*length != 1) {
                char shapes[GPO_MESSAGE - 80];
                print_shapes(call, inputs, shapes, sizeof shapes);
                return gpo_fail(
                    &call->error, GPO_EVALUE,
                    "operands could not be broadcast together with shapes %s", shapes);
            }
            *length = in->shape[d];
        }
    }
    return gpo_array_contiguous(&call->error, out);
}

/* Whether a Python integer is at or past one end of the range of an integer dtype. */
static bool
reaches_end(const gpo_array *number, gpo_dtype dtype, bool upper)
{
    const bool is_signed = gpo_dtypes[dtype].kind == 'i';
    const uint64_t most = UINT64_MAX >> (64 - 8 * gpo_dtypes[dtype].bytes + is_signed);
    int64_t value;
    memcpy(&value, number->data, sizeof value);
    const bool negative = number->dtype == GPO_I64 && value < 0;
    if (upper) {
        return !negative && (uint64_t)value >= most;
    }
    return is_signed ? negative && value <= -(int64_t)most - 1 : negative || value == 0;
}

/* Drops a bound that is a Python integer at or past the range's end, as in np.clip. */
static void
drop_idle_bounds(gpo_call *call, gpo_dtype type)
{
    for (int i = ARG_MIN; i <= ARG_MAX; i++) {
        gpo_array *in = &call->in[i];
        if (in->present && in->weak && gpo_is_whole(type) && type != GPO_BOOL &&
            gpo_is_whole(in->dtype) && reaches_end(in, type, i == ARG_MAX)) {
            in->present = false;
        }
    }
}

/* Decides which inputs are weak: Python numbers, but not the x of clip. */
static void
settle_weak(gpo_call *call, elementwise_functor functor, int inputs)
{
    for (int i = 0; i < inputs; i++) {
        gpo_array *in = &call->in[i];
        in->weak = in->weak && in->ndim == 0 && (i > 0 || functor != ELEMENTWISE_clip);
    }
}

static gpo_status
shape(gpo_call *call)
{
    const elementwise_functor functor = (elementwise_functor)call->op->member;
    const int inputs = inputs_of[functor];
    const int first = functor == ELEMENTWISE_where; /* the condition has its own rule */
    settle_weak(call, functor, inputs);
    gpo_dtype type = common_dtype(call, first, inputs), to = GPO_NONE;
    gpo_status status = rules[functor](call, &type, &to);
    if (status) {
        return status;
    }
    if (functor == ELEMENTWISE_clip) {
        drop_idle_bounds(call, type);
    }
    for (int i = first; i < inputs; i++) {
        if (call->in[i].present && call->in[i].dtype != type) {
            call->convert[i] = type;
        }
    }
    call->out[0].dtype = to;
    return broadcast(call, inputs);
}

/* ---- plan ---- */

_Static_assert(sizeof(elementwise_plan) <= GPO_PLAN_BYTES, "the plan fits");

static bool
is_unsigned(gpo_dtype dtype)
{
    return dtype == GPO_BOOL || gpo_dtypes[dtype].kind == 'u';
}

/* A cast from complex to real reads every second real number. */
static void
read_real_part(elementwise_plan *plan)
{
    if (gpo_dtypes[plan->type].kind != 'c' || gpo_dtypes[plan->to].kind == 'c' ||
        plan->to == GPO_BOOL) {
        return;
    }
    plan->type = plan->type == GPO_C64 ? GPO_F32 : GPO_F64;
    plan->bytes[0] = gpo_dtypes[plan->type].bytes;
    for (int d = 0; d < plan->ndim; d++) {
        plan->strides[0][d] *= 2;
    }
}

/* Replaces functor and type by those whose loop is used: see elementwise_plan. */
static void
share_loop(elementwise_plan *plan)
{
    const gpo_dtype unsigned_type = unsigned_of(gpo_dtypes[plan->type].bytes);
    const bool whole = gpo_is_whole(plan->type);
    switch (plan->functor) {
        case ELEMENTWISE_add:
        case ELEMENTWISE_multiply:
            if (plan->type == GPO_BOOL) {
                plan->functor = plan->functor == ELEMENTWISE_add ? ELEMENTWISE_maximum
                                                                 : ELEMENTWISE_minimum;
                break;
            }
            plan->type = whole ? unsigned_type : plan->type;
            break;
        case ELEMENTWISE_subtract:
        case ELEMENTWISE_negative:
        case ELEMENTWISE_fma:
            plan->type = whole ? unsigned_type : plan->type;
            break;
        case ELEMENTWISE_abs:
        case ELEMENTWISE_relu:
            if (is_unsigned(plan->type)) {
                plan->functor = ELEMENTWISE_cast;
            }
            break;
        case ELEMENTWISE_where:
            plan->type = plan->to = unsigned_type;
            break;
        case ELEMENTWISE_clip:
            if (plan->inputs == 1) {
                plan->functor = ELEMENTWISE_cast;
            }
            break;
        default:
            break;
    }
    if (plan->functor == ELEMENTWISE_cast) {
        read_real_part(plan);
    }
    if (plan->functor == ELEMENTWISE_cast && plan->type == plan->to) {
        plan->type = plan->to = unsigned_of(gpo_dtypes[plan->to].bytes);
    }
}

/* The axes of the result, merged where every operand allows it. */
static void
set_axes(elementwise_plan *plan, const gpo_call *call)
{
    const gpo_array *out = &call->out[0];
    plan->ndim = 0;
    for (int d = 0; d < out->ndim; d++) {
        const int64_t length = out->shape[d];
        if (length == 1) {
            continue;
        }
        const int last = plan->ndim - 1;
        int64_t stride[ELEMENTWISE_INPUTS];
        bool merges = last >= 0;
        for (int k = 0; k < plan->inputs; k++) {
            const gpo_array *in = &call->in[plan->input[k]];
            const int own = d - (out->ndim - in->ndim);
            stride[k] = own < 0 || in->shape[own] == 1 ? 0 : in->strides[own];
            merges = merges && plan->strides[k][last] == length * stride[k];
        }
        if (merges) {
            plan->shape[last] *= length;
        }
        else {
            plan->shape[plan->ndim++] = length;
        }
        for (int k = 0; k < plan->inputs; k++) {
            plan->strides[k][plan->ndim - 1] = stride[k];
        }
    }
}

static void
plan(const gpo_call *call)
{
    elementwise_plan *p = call->plan;
    p->functor = (elementwise_functor)call->op->member;
    p->type = call->in[call->op->by].dtype;
    p->to = call->out[0].dtype;
    p->size = call->out[0].size;
    p->inputs = 0;
    for (int i = 0; i < inputs_of[p->functor]; i++) {
        if (call->in[i].present) {
            p->input[p->inputs] = i;
            p->bytes[p->inputs++] = gpo_dtypes[call->in[i].dtype].bytes;
        }
    }
    set_axes(p, call);
    if (p->functor == ELEMENTWISE_clip && p->inputs == 2) {
        p->functor =
            call->in[ARG_MIN].present ? ELEMENTWISE_maximum : ELEMENTWISE_minimum;
    }
    share_loop(p);
}

bool
elementwise_is_scalar(const elementwise_plan *plan, int k)
{
    for (int d = 0; d < plan->ndim; d++) {
        if (plan->strides[k][d] != 0) {
            return false;
        }
    }
    return true;
}

bool
elementwise_is_flat(const elementwise_plan *plan)
{
    for (int k = 0; k < plan->inputs; k++) {
        const bool in_order = plan->ndim == 1 && plan->strides[k][0] == 1;
        if (!in_order && !elementwise_is_scalar(plan, k)) {
            return false;
        }
    }
    return true;
}

/* ---- cost ---- */

static void
cost(const gpo_call *call, gpo_cost *cost)
{
    const elementwise_plan *p = elementwise_plan_of(call);
    const gpo_array *out = &call->out[0];
    cost->read_bytes = 0;
    for (int k = 0; k < p->inputs; k++) {
        const gpo_array *in = &call->in[p->input[k]];
        cost->read_bytes += (double)in->size * gpo_dtypes[in->dtype].bytes;
    }
    cost->written_bytes = (double)out->size * gpo_dtypes[out->dtype].bytes;
    cost->flops = (double)out->size;
}

/* ---- descriptors ---- */

GPO_TABLES(elementwise);

#define FUNCTOR(function, inputs, types, expression)       \
    const gpo_op op_##function = {                         \
        .name = #function,                                 \
        .ladder = "elementwise",                           \
        .room = "elementwise",                             \
        .args = ARGS_##inputs,                             \
        .nout = 1,                                         \
        .member = ELEMENTWISE_##function,                  \
        .by = ELEMENTWISE_##function == ELEMENTWISE_where, \
        .in_place = 7,                                     \
        .by_value = 7,                                     \
        .shape = shape,                                    \
        .plan = plan,                                      \
        .cost = cost,                                      \
        .cpu = &elementwise_cpu,                           \
        .cuda = GPO_CUDA_TABLE(elementwise),               \
    };
#include "functors.def"
#undef FUNCTOR
