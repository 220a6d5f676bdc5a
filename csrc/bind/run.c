/*
 * run.c  Functions that all placements share to run a call: the GIL, the record for
 * last_call(), measuring.  See place_*.c for the call of a kernel.
 */
#define _POSIX_C_SOURCE 200809L
#include "run.h"

#include "backends.h"
#include "errors.h"
#include "take.h"

#include <string.h>
#include <time.h>

/* ---- the GIL ---- */

/* What this thread gave up to compute without the GIL; NULL while it has it. */
static _Thread_local PyThreadState *released;

bool
gpo_let_go(frame *f)
{
    for (int k = 0; k < GPO_MAX_ARRAYS; k++) {
        if (!gpo_pin(f, k)) {
            return false;
        }
    }
    released = PyEval_SaveThread();
    return true;
}

void
gpo_take_back(void)
{
    PyThreadState *thread = released;
    released = NULL;
    PyEval_RestoreThread(thread);
}

/* ---- the record for last_call() ---- */

const gpo_last gpo_unmeasured = {.upload_ms = -1, .kernel_ms = -1, .download_ms = -1};

static bool
note(frame *f, gpo_last *last)
{
    const gpo_call *call = &f->call;
    last->packed = f->packed;
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

bool
gpo_run_end(frame *f, gpo_status status, gpo_last *last)
{
    if (status) {
        gpo_raise(&f->call, status);
        return false;
    }
    return note(f, last);
}

/* ---- measuring ---- */

double
gpo_milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

gpo_status
gpo_timer_start(gpo_timer *t, gpo_call *call, gpo_backend_id id)
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

gpo_status
gpo_timer_mark(const gpo_timer *t, gpo_call *call, int mark)
{
    return t->device ? t->device->event_record(call, t->event[mark]) : GPO_OK;
}

gpo_status
gpo_timer_finish(gpo_timer *t, gpo_call *call, gpo_status status, gpo_last *last)
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
