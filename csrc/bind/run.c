/*
 * run.c  The part of a call that computes: on host arrays in place or by copies there
 * and back, on device arrays in their own queue.  Order: measuring, host arrays, device
 * arrays, results and what is noted of the call.
 */
#define _POSIX_C_SOURCE 200809L
#include "call.h"

#include <string.h>
#include <time.h>

/* ---- measuring: events between the parts of a call ---- */

enum { MARK_START, MARK_UPLOADED, MARK_RUN, MARK_DOWNLOADED, NMARKS };

typedef struct timer {
    const gpo_device *device; /* NULL: not measuring */
    void *event[NMARKS];
} timer;

static gpo_status
timer_start(timer *t, gpo_call *call, gpo_backend_id id)
{
    gpo_status status = GPO_OK;
    memset(t, 0, sizeof *t);
    if (gpo_measuring) {
        t->device = gpo_device_of(id);
        for (int k = 0; k < NMARKS && !status; k++) {
            status = t->device->event_new(call, &t->event[k]);
        }
        if (!status) {
            status = t->device->event_record(call, t->event[MARK_START]);
        }
    }
    return status;
}

static gpo_status
timer_mark(const timer *t, gpo_call *call, int mark)
{
    return t->device ? t->device->event_record(call, t->event[mark]) : GPO_OK;
}

/* Waits for the last mark and notes the times; frees the events in any case. */
static gpo_status
timer_finish(timer *t, gpo_call *call, gpo_status status, gpo_last *last)
{
    double *const ms[] = {&last->upload_ms, &last->kernel_ms, &last->download_ms};
    for (int k = 0; t->device && k + 1 < NMARKS && !status; k++) {
        status = t->device->event_elapsed(call, t->event[k], t->event[k + 1], ms[k]);
    }
    for (int k = 0; t->device && k < NMARKS; k++) {
        if (t->event[k]) {
            t->device->event_free(call, t->event[k]);
        }
    }
    return status;
}

/* ---- run: host arrays, by copies there and back ---- */

static gpo_status
upload_inputs(gpo_call *call, void *memory[GPO_MAX_IN])
{
    enum { ALIGNMENT = 16 }; /* an address keeps its offset within the widest load */
    gpo_status status = GPO_OK;
    for (int i = 0; i < GPO_MAX_IN && !status; i++) {
        gpo_array *in = &call->in[i];
        if (!in->present || in->size == 0) {
            continue;
        }
        int64_t low, high;
        gpo_array_extent(in, &low, &high);
        const char *first = (const char *)in->data + low;
        const size_t offset = (uintptr_t)first % ALIGNMENT;
        status = call->backend->alloc(call, (size_t)(high - low) + offset, &memory[i]);
        if (!status) {
            char *to = (char *)memory[i] + offset;
            status = call->backend->upload(call, to, first, (size_t)(high - low));
            in->data = to - low;
        }
    }
    return status;
}

/* Copies the inputs to the backend's memory, runs, copies back.  Without the GIL. */
static gpo_status
run_on_device(gpo_call *call, gpo_backend_id id, gpo_last *last)
{
    const gpo_backend *backend = call->backend;
    void *memory[GPO_MAX_IN + GPO_MAX_OUT] = {NULL};
    void *host[GPO_MAX_OUT] = {NULL};
    timer t;

    gpo_status status = timer_start(&t, call, id);
    if (!status) {
        status = upload_inputs(call, memory);
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_UPLOADED);
    }
    for (int i = 0; i < call->nout && !status; i++) {
        gpo_array *out = &call->out[i];
        host[i] = out->data;
        if (out->size > 0) {
            const size_t bytes =
                (size_t)out->size * (size_t)gpo_dtypes[out->dtype].bytes;
            status = backend->alloc(call, bytes, &memory[GPO_MAX_IN + i]);
            out->data = memory[GPO_MAX_IN + i];
        }
    }
    if (!status) {
        status = call->variant->run[call->in[call->op->by].dtype](call);
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_RUN);
    }
    for (int i = 0; i < call->nout && !status; i++) {
        const gpo_array *out = &call->out[i];
        if (out->size > 0) {
            const size_t bytes =
                (size_t)out->size * (size_t)gpo_dtypes[out->dtype].bytes;
            status = backend->download(call, host[i], out->data, bytes);
        }
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_DOWNLOADED);
    }
    if (!status) {
        status = backend->wait(call);
    }
    status = timer_finish(&t, call, status, last);
    for (int i = 0; i < GPO_MAX_IN + GPO_MAX_OUT; i++) {
        if (memory[i]) {
            backend->free(call, memory[i]);
        }
    }
    return status;
}

/* ---- run: arrays that are on the device ---- */

/* Lets `call->stream` wait for, or with `back` be waited for by, the arrays' streams.
 */
static gpo_status
order_streams(frame *f, const gpo_device *device, bool back)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int k = 0; k < GPO_MAX_IN + GPO_MAX_OUT && !status; k++) {
        const gpo_foreign *array =
            k < GPO_MAX_IN ? &f->away.in[k] : &f->away.out[k - GPO_MAX_IN];
        if (array->keep && array->has_stream && array->stream != call->stream) {
            status = back ? device->order(call, call->stream, array->stream)
                          : device->order(call, array->stream, call->stream);
        }
    }
    return status;
}

/* Brings the numbers that came from the host to the arrays' device. */
static gpo_status
store_numbers(frame *f, const gpo_device *device)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->binding->narrays && !status; i++) {
        gpo_array *in = &call->in[i];
        if (!in->present || f->away.in[i].object) {
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

/* Replaces the inputs that the shape rule wants in another dtype. */
static gpo_status
convert_in_place(frame *f, const gpo_device *device)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->binding->narrays && !status; i++) {
        gpo_array *in = &call->in[i];
        if (call->convert[i] == GPO_NONE || in->size == 0 || !f->away.in[i].object) {
            continue;
        }
        const size_t bytes = (size_t)in->size * (size_t)gpo_dtypes[in->dtype].bytes;
        status = gpo_scratch(call, bytes, &in->data);
        if (!status) {
            status = device->copy(call, &f->away.source[i], in);
        }
    }
    return status;
}

/* Whether the caller's out= takes the result as the kernel writes it. */
static bool
is_written_in_place(const gpo_array *target, const gpo_array *out)
{
    return target->dtype == out->dtype && gpo_array_is_contiguous(target);
}

/* Memory for the results: the caller's, its library's, scratch where a copy follows. */
static gpo_status
place_in_place(frame *f)
{
    gpo_call *call = &f->call;
    gpo_status status = GPO_OK;
    for (int i = 0; i < call->nout && !status; i++) {
        gpo_array *out = &call->out[i];
        const size_t bytes = (size_t)out->size * (size_t)gpo_dtypes[out->dtype].bytes;
        if (f->caller_object[i] && is_written_in_place(&f->away.target[i], out)) {
            out->data = f->away.target[i].data;
        }
        else if (f->away.made[i].tensor || bytes == 0) {
            continue;
        }
        else if (f->caller_object[i]) {
            status = gpo_scratch(call, bytes, &out->data);
        }
        else {
            status = call->backend->alloc(call, bytes, &f->away.memory[i]);
            out->data = f->away.memory[i];
        }
    }
    return status;
}

static gpo_status
fill_other_outputs(frame *f, const gpo_device *device)
{
    gpo_status status = GPO_OK;
    for (int i = 0; i < f->call.nout && !status; i++) {
        const gpo_array *target = &f->away.target[i];
        if (f->caller_object[i] && target->size > 0 &&
            !is_written_in_place(target, &f->call.out[i])) {
            status = device->copy(&f->call, &f->call.out[i], target);
        }
    }
    return status;
}

static gpo_status
check_stream_device(gpo_call *call, const gpo_device *device)
{
    int of_stream = call->device;
    gpo_status status = device->stream_device(call, call->stream, &of_stream);
    if (!status && of_stream != call->device) {
        status = gpo_fail(call, GPO_EVALUE,
                          "%s(): the stream belongs to device %d, the arrays are on "
                          "device %d",
                          call->op->name, of_stream, call->device);
    }
    return status;
}

/* Queues the call on its stream; waits for nothing unless it measures. */
static gpo_status
run_in_place(frame *f, gpo_last *last)
{
    gpo_call *call = &f->call;
    const gpo_device *device = gpo_device_of(f->id);
    timer t = {.device = NULL};
    gpo_status status =
        f->away.stream_given ? check_stream_device(call, device) : GPO_OK;
    if (!status) {
        status = order_streams(f, device, false);
    }
    if (!status) {
        status = timer_start(&t, call, f->id);
    }
    if (!status) {
        status = store_numbers(f, device);
    }
    if (!status) {
        status = convert_in_place(f, device);
    }
    if (!status) {
        status = place_in_place(f);
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_UPLOADED);
    }
    if (!status) {
        status = call->variant->run[call->in[call->op->by].dtype](call);
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_RUN);
    }
    if (!status) {
        status = fill_other_outputs(f, device);
    }
    if (!status) {
        status = timer_mark(&t, call, MARK_DOWNLOADED);
    }
    if (!status) {
        status = order_streams(f, device, true);
    }
    status = timer_finish(&t, call, status, last);
    for (int i = 0; status && i < call->nout; i++) {
        if (f->away.memory[i]) {
            call->backend->free(call, f->away.memory[i]);
            f->away.memory[i] = NULL;
        }
    }
    return status;
}

/* ---- run ---- */

_Thread_local PyThreadState *gpo_released;

static double
milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

static gpo_status
run(frame *f, gpo_last *last)
{
    gpo_call *call = &f->call;
    gpo_status status = call->backend->begin(call);
    if (status) {
        return status;
    }
    if (f->is_away && f->away.on_device) {
        status = run_in_place(f, last);
    }
    else if (call->backend->device_memory) {
        status = run_on_device(call, f->id, last);
    }
    else {
        const double start = gpo_measuring ? milliseconds() : 0;
        status = call->variant->run[call->in[call->op->by].dtype](call);
        if (gpo_measuring) {
            last->kernel_ms = milliseconds() - start;
        }
    }
    call->backend->end(call);
    return status;
}

/* Results that the call allocated become objects; raw memory never outlives this. */
static bool
adopt_results(frame *f)
{
    away *w = &f->away;
    bool good = true;
    for (int i = 0; i < f->call.nout; i++) {
        if (f->caller_object[i] || w->made[i].tensor) {
            continue;
        }
        void *memory = w->memory[i];
        w->memory[i] = NULL;
        f->call.out[i].data = memory;
        w->made[i].array =
            gpo_device_array_new(f->id, f->call.backend, f->call.device, f->call.stream,
                                 w->keeper, memory, NULL, &f->call.out[i]);
        good = good && w->made[i].array;
    }
    return good;
}

/* Inputs whose producer could reuse the memory stay until the call's stream is done. */
static bool
retain_inputs(frame *f)
{
    if (f->id != GPO_CUDA) {
        return true;
    }
    gpo_reap();
    for (int i = 0; i < f->binding->narrays; i++) {
        const gpo_foreign *in = &f->away.in[i];
        if (in->keep && in->retain && !gpo_retain(&f->call, in->keep)) {
            return false;
        }
    }
    return true;
}

static bool
note(frame *f, gpo_last *last)
{
    const gpo_call *call = &f->call;
    last->op = call->op->name;
    last->backend = call->backend->name;
    last->variant = call->variant->name;
    last->pageable = f->id == GPO_CUDA && gpo_device_cuda.went_pageable &&
                     gpo_device_cuda.went_pageable();
    for (int i = 0; i < f->binding->narrays; i++) {
        last->packed = last->packed || call->convert[i] != GPO_NONE;
    }
    gpo_last_call = *last;
    return !last->pageable ||
           PyErr_WarnEx(
               gpo_py.performance_warning,
               "there is no pinned memory left: a large array was copied at the "
               "speed of pageable memory",
               1) == 0;
}

/* Other threads run while this one computes. */
static bool
pin_all(frame *f)
{
    for (int k = 0; k < GPO_MAX_IN + GPO_MAX_OUT; k++) {
        if (!gpo_pin(f, k)) {
            return false;
        }
    }
    return true;
}

bool
gpo_execute(frame *f)
{
    enum {
        GIL_BYTES = 1 << 16
    }; /* below, releasing the GIL costs more than it gives */
    gpo_call *call = &f->call;
    gpo_last last = {
        .packed = f->packed, .upload_ms = -1, .kernel_ms = -1, .download_ms = -1};
    int64_t bytes = 0;
    for (int i = 0; i < f->binding->narrays; i++) {
        if (call->in[i].present) {
            bytes += call->in[i].size * gpo_dtypes[call->in[i].dtype].bytes;
        }
    }
    gpo_status status;
    const bool alone = !call->backend->device_memory && bytes < GIL_BYTES;
    if (!alone && !pin_all(f)) {
        return false;
    }
    if (!alone) {
        gpo_released = PyEval_SaveThread();
        status = run(f, &last);
        PyThreadState *thread = gpo_released;
        gpo_released = NULL;
        PyEval_RestoreThread(thread);
    }
    else {
        status = run(f, &last);
    }
    if (status) {
        gpo_raise(call, status);
        return false;
    }
    if (f->is_away && f->away.on_device && !(adopt_results(f) && retain_inputs(f))) {
        return false;
    }
    return note(f, &last);
}
