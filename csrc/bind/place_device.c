/*
 * place_device.c  Calls on arrays on a device, by its backend: the arrays stay there,
 * the work is launched on a stream, and the call does not wait for it.
 * Order: wrap, check_out, convert, place, before the kernel, after it, run, result.
 */
#include "call.h"

#include "array.h"
#include "backends.h"
#include "device_array.h"
#include "errors.h"
#include "gate.h"
#include "overlap.h"
#include "place_host.h"
#include "retain.h"
#include "run.h"
#include "stream.h"
#include "take.h"

/* ---- wrap ---- */

/* The stream of the call: stream=, else that of `with`, the producer's, the default. */
static bool
settle_stream(frame *f)
{
    const gpo_foreign *like = f->like;
    PyObject *given = f->value[f->binding->nargs + COMMON_STREAM];
    if (!gpo_stream_fits(given, like->id, like->device)) {
        return false;
    }
    if (!f->stream_given &&
        (like->family == GPO_OWN || like->family == GPO_INTERFACE)) {
        f->stream_owner = gpo_stream_current(like->id, like->device, &f->stream);
    }
    if (!f->stream_given && !f->stream_owner && like->has_stream) {
        f->stream = like->stream;
        f->stream_owner = like->stream_owner;
    }
    f->call.stream = f->stream;
    return true;
}

static bool
wrap_out(frame *f, int i)
{
    const gpo_foreign *out = f->foreign[GPO_MAX_IN + i];
    if (!out) {
        PyErr_Format(
            PyExc_TypeError, "%s(): out is a host array, the inputs are on %s:%d",
            f->binding->op->name, gpo_backend_names[f->like->id], f->like->device);
        return false;
    }
    if (!gpo_wrap_foreign_out(f, i) || !gpo_check_apart(f, out) ||
        !gpo_check_writeable(!out->readonly)) {
        return false;
    }
    f->caller_dtype[i] = f->target[i].dtype;
    return true;
}

static bool
wrap(frame *f)
{
    if (!settle_stream(f)) {
        return false;
    }
    for (int i = 0; i < f->binding->op->nout; i++) {
        if (f->caller_object[i] && !wrap_out(f, i)) {
            return false;
        }
    }
    return true;
}

/* ---- check_out ---- */

static bool
check_out(const frame *f, int i)
{
    const gpo_array *out = &f->target[i];
    if (!gpo_same_shape(out, &f->call.out[i])) {
        return gpo_raise_out_shape(gpo_shape_tuple(out->ndim, out->shape),
                                   &f->call.out[i]);
    }
    for (int k = 0; k < f->binding->narrays; k++) {
        const gpo_array *in = &f->call.in[k];
        const bool may_be = f->binding->op->in_place >> k & 1u;
        if (in->present && !(may_be && gpo_arrays_same(in, out)) &&
            gpo_arrays_overlap(in, out)) {
            return gpo_raise_out_overlap(f, k);
        }
    }
    for (int k = 0; k < i; k++) {
        if (f->caller_object[k] && gpo_arrays_overlap(&f->target[k], out)) {
            return gpo_raise_outs_overlap(f);
        }
    }
    return true;
}

/* ---- convert ---- */

/* A number is converted on the host now; an array on the device when the call runs. */
static bool
convert(frame *f, int i)
{
    gpo_array *in = &f->call.in[i];
    if (!f->foreign[i]) {
        return gpo_host_convert(f, i);
    }
    f->source[i] = *in;
    in->dtype = f->call.convert[i];
    if (gpo_array_contiguous(&f->call.error, in) != GPO_OK) {
        gpo_raise(&f->call, GPO_EVALUE);
        return false;
    }
    return true;
}

/* ---- place ---- */

/* Results that the arrays' library allocates; place_results allocates the others. */
static bool
place(frame *f)
{
    for (int i = 0; i < f->call.nout; i++) {
        if (!f->caller_object[i] &&
            !gpo_result_alloc(f->like, &f->call.out[i], &f->made[i])) {
            return false;
        }
    }
    return true;
}

/* ---- before the kernel, without the GIL ---- */

static gpo_status
check_stream_device(gpo_call *call, const gpo_device *device)
{
    int of_stream = call->device;
    gpo_status status = device->stream_device(call, call->stream, &of_stream);
    if (!status && of_stream != call->device) {
        status = gpo_fail(&call->error, GPO_EVALUE,
                          "%s(): the stream belongs to device %d, the arrays are on "
                          "device %d",
                          call->op->name, of_stream, call->device);
    }
    return status;
}

/* Makes the call's stream wait for those of the arrays; with `back`, those for it. */
static gpo_status
order_streams(frame *f, const gpo_device *device, bool back)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int k = 0; k < GPO_MAX_ARRAYS && !status; k++) {
        const gpo_foreign *array = f->foreign[k];
        if (array && array->keep && array->has_stream &&
            array->stream != call->stream) {
            status = back ? device->order(call, call->stream, array->stream)
                          : device->order(call, array->stream, call->stream);
        }
    }
    return status;
}

/* Copies numbers passed from the host to the device, unless kernels take them. */
static gpo_status
store_numbers(frame *f, const gpo_device *device)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->binding->narrays && !status; i++) {
        gpo_array *in = &call->in[i];
        if (!in->present || f->foreign[i]) {
            continue;
        }
        in->on_host = f->binding->op->by_value >> i & 1u;
        if (in->on_host) {
            continue;
        }
        const size_t bytes = (size_t)gpo_dtypes[in->dtype].bytes;
        const void *value = in->data;
        status = gpo_scratch(call, bytes, &in->data);
        if (!status) {
            status = device->store(call, in->data, value, bytes);
        }
    }
    return status;
}

/* Replaces the inputs that the shape rule requests in another dtype. */
static gpo_status
convert_arrays(frame *f, const gpo_device *device)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->binding->narrays && !status; i++) {
        gpo_array *in = &call->in[i];
        if (call->convert[i] == GPO_NONE || in->size == 0 || !f->foreign[i]) {
            continue;
        }
        const size_t bytes = (size_t)in->size * (size_t)gpo_dtypes[in->dtype].bytes;
        status = gpo_scratch(call, bytes, &in->data);
        if (!status) {
            status = device->copy(call, &f->source[i], in);
        }
    }
    return status;
}

/* Whether the kernel can write into the caller's out= directly. */
static bool
is_written_directly(const gpo_array *target, const gpo_array *out)
{
    return target->dtype == out->dtype && gpo_array_is_contiguous(target);
}

/* Memory for the results: out=, the library's, ours, or scratch if a copy follows. */
static gpo_status
place_results(frame *f)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < call->nout && !status; i++) {
        gpo_array *out = &call->out[i];
        const size_t bytes = (size_t)out->size * (size_t)gpo_dtypes[out->dtype].bytes;
        if (f->caller_object[i] && is_written_directly(&f->target[i], out)) {
            out->data = f->target[i].data;
        }
        else if (f->made[i].tensor || bytes == 0) {
            continue;
        }
        else if (f->caller_object[i]) {
            status = gpo_scratch(call, bytes, &out->data);
        }
        else {
            status = call->backend->alloc(call, bytes, &f->memory[i]);
            out->data = f->memory[i];
        }
    }
    return status;
}

static gpo_status
before(frame *f, const gpo_device *device, gpo_timer *t)
{
    gpo_call *call = &f->call;
    gpo_status status = f->stream_given ? check_stream_device(call, device) : GPO_OK;
    if (!status) {
        status = order_streams(f, device, false);
    }
    if (!status) {
        status = gpo_timer_start(t, call, f->id);
    }
    if (!status) {
        status = store_numbers(f, device);
    }
    if (!status) {
        status = convert_arrays(f, device);
    }
    if (!status) {
        status = place_results(f);
    }
    if (!status) {
        status = gpo_timer_mark(t, call, MARK_UPLOADED);
    }
    return status;
}

/* ---- after the kernel, without the GIL ---- */

static gpo_status
fill_other_outputs(frame *f, const gpo_device *device)
{
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->call.nout && !status; i++) {
        const gpo_array *target = &f->target[i];
        if (f->caller_object[i] && target->size > 0 &&
            !is_written_directly(target, &f->call.out[i])) {
            status = device->copy(&f->call, &f->call.out[i], target);
        }
    }
    return status;
}

static gpo_status
after(frame *f, const gpo_device *device, const gpo_timer *t)
{
    gpo_status status = gpo_timer_mark(t, &f->call, MARK_RUN);
    if (!status) {
        status = fill_other_outputs(f, device);
    }
    if (!status) {
        status = gpo_timer_mark(t, &f->call, MARK_DOWNLOADED);
    }
    if (!status) {
        status = order_streams(f, device, true);
    }
    return status;
}

static void
free_results(frame *f)
{
    for (int i = 0; i < f->call.nout; i++) {
        if (f->memory[i]) {
            f->call.backend->free(&f->call, f->memory[i]);
            f->memory[i] = NULL;
        }
    }
}

/* ---- run ---- */

/* Wraps the results that the call allocated in objects, also if one of these fails. */
static bool
adopt_results(frame *f)
{
    bool good = true;
    for (int i = 0; i < f->call.nout; i++) {
        if (f->caller_object[i] || f->made[i].tensor) {
            continue;
        }
        void *memory = f->memory[i];
        f->memory[i] = NULL;
        f->call.out[i].data = memory;
        f->made[i].array =
            gpo_device_array_new(f->id, f->call.backend, f->call.device, f->call.stream,
                                 f->stream_owner, memory, NULL, &f->call.out[i]);
        good = good && f->made[i].array;
    }
    return good;
}

/* Keeps inputs whose producer could reuse the memory until the stream has read them. */
static bool
retain_inputs(frame *f)
{
    if (f->id != GPO_CUDA) {
        return true;
    }
    gpo_reap();
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_foreign *in = f->foreign[i];
        if (in && in->keep && in->retain && !gpo_retain(&f->call, in->keep)) {
            return false;
        }
    }
    return true;
}

/* Launches the call on its stream; does not wait, unless it measures. */
static bool
run(frame *f)
{
    gpo_call *call = &f->call;
    const gpo_device *device = gpo_device_of(f->id);
    gpo_last last = gpo_unmeasured;
    gpo_timer t = {.device = NULL};
    if (!gpo_let_go(f)) {
        return false;
    }
    gpo_status status = call->backend->begin(call);
    if (!status) {
        status = before(f, device, &t);
        if (!status) {
            status = call->variant->run[call->in[call->op->by].dtype](call);
        }
        if (!status) {
            status = after(f, device, &t);
        }
        status = gpo_timer_finish(&t, call, status, &last);
        if (status) {
            free_results(f);
        }
        call->backend->end(call);
    }
    gpo_take_back();
    if (!status && !(adopt_results(f) && retain_inputs(f))) {
        return false;
    }
    return gpo_run_end(f, status, &last);
}

/* ---- result ---- */

static PyObject *
result(frame *f, int i)
{
    if (!f->caller_object[i]) {
        return gpo_result_finish(f->like, &f->made[i]);
    }
    gpo_gate_written(f->caller_object[i]);
    return Py_NewRef(f->caller_object[i]);
}

const gpo_placement gpo_place_device = {
    .wrap = wrap,
    .check_out = check_out,
    .convert = convert,
    .place = place,
    .run = run,
    .result = result,
    .bound = true,
};
