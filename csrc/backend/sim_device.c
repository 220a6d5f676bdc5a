/*
 * sim_device.c  The table of device.h for the simulator.
 * A launch returns when the kernel has ended, so a stream is just a number and an event
 * the time at which it was recorded.
 */
#define _POSIX_C_SOURCE 200809L
#include "device.h"
#include "sim.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const size_t TOTAL_BYTES = (size_t)80 << 30; /* as sim/memory.cpp */

static int
count(void)
{
    const char *reason;
    return gpo_sim_loaded(&reason) ? 1 : 0;
}

static void
name_device(int device, char name[GPO_DEVICE_NAME])
{
    snprintf(name, GPO_DEVICE_NAME, "simulator %d", device);
}

/* ---- copy and order ---- */

static gpo_status
copy(gpo_call *call, const gpo_array *from, const gpo_array *to)
{
    const char *reason;
    const gpo_sim_library *library = gpo_sim_loaded(&reason);
    if (!library) {
        return gpo_fail(&call->error, GPO_ESIM, "%s", reason);
    }
    return library->copy(call, from, to);
}

static gpo_status
store(gpo_call *call, void *to, const void *from, size_t bytes)
{
    return call->backend->upload(call, to, from, bytes);
}

static gpo_status
order(gpo_call *call, void *first, void *then)
{
    (void)call, (void)first, (void)then;
    return GPO_OK;
}

/* ---- streams ---- */

static gpo_status
stream_new(gpo_call *call, int priority, void **stream)
{
    static atomic_uintptr_t last = 2;    /* 1 and 2 are CUDA's default streams */
    if (priority < -5 || priority > 0) { /* as on every GPU since Pascal */
        return gpo_fail(&call->error, GPO_EVALUE,
                        "priority must be between -5 (first) and 0 (last) (got %d)",
                        priority);
    }
    *stream = (void *)(atomic_fetch_add(&last, 1) + 1);
    return GPO_OK;
}

static void
stream_free(gpo_call *call, void *stream)
{
    (void)call, (void)stream;
}

static gpo_status
stream_device(gpo_call *call, void *stream, int *device)
{
    (void)stream;
    *device = call->device;
    return GPO_OK;
}

/* ---- events ---- */

typedef struct moment {
    struct timespec time;
} moment;

static gpo_status
event_new(gpo_call *call, void **event)
{
    *event = calloc(1, sizeof(moment));
    return *event ? GPO_OK : gpo_fail(&call->error, GPO_EMEMORY, "out of host memory");
}

static void
event_free(gpo_call *call, void *event)
{
    (void)call;
    free(event);
}

static gpo_status
event_record(gpo_call *call, void *event)
{
    (void)call;
    clock_gettime(CLOCK_MONOTONIC, &((moment *)event)->time);
    return GPO_OK;
}

static gpo_status
nothing_to_wait_for(gpo_call *call, void *event)
{
    (void)call, (void)event;
    return GPO_OK;
}

static gpo_status
event_done(gpo_call *call, void *event, bool *done)
{
    (void)call, (void)event;
    *done = true;
    return GPO_OK;
}

static gpo_status
event_elapsed(gpo_call *call, void *first, void *last, double *ms)
{
    (void)call;
    const struct timespec a = ((moment *)first)->time, b = ((moment *)last)->time;
    *ms = 1e3 * (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_nsec - a.tv_nsec);
    return GPO_OK;
}

/* ---- memory ---- */

static gpo_status
synchronize(gpo_call *call)
{
    (void)call;
    return GPO_OK;
}

static gpo_status
memory(gpo_call *call, size_t *free_bytes, size_t *total_bytes, size_t *pool_bytes)
{
    const char *reason;
    const gpo_sim_library *library = gpo_sim_loaded(&reason);
    if (!library) {
        return gpo_fail(&call->error, GPO_ESIM, "%s", reason);
    }
    gpo_sim_state state;
    library->state(&state);
    *total_bytes = TOTAL_BYTES;
    *free_bytes = TOTAL_BYTES - (size_t)state.bytes;
    *pool_bytes = 0;
    return GPO_OK;
}

static gpo_status
pinned_new(gpo_call *call, size_t bytes, void **out)
{
    (void)bytes, (void)out;
    return gpo_fail(&call->error, GPO_EUNSUPPORTED,
                    "the simulator has no pinned memory");
}

static void
pinned_free(void *memory)
{
    (void)memory;
}

static gpo_status
device_of(gpo_call *call, const void *memory, int *device)
{
    (void)memory, (void)device;
    return gpo_fail(&call->error, GPO_EUNSUPPORTED,
                    "the simulator knows its own arrays alone");
}

static bool
went_pageable(void)
{
    return false;
}

const gpo_device gpo_device_sim = {
    .count = count,
    .name = name_device,
    .copy = copy,
    .store = store,
    .order = order,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_device = stream_device,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = nothing_to_wait_for,
    .event_follow = nothing_to_wait_for,
    .event_done = event_done,
    .event_elapsed = event_elapsed,
    .synchronize = synchronize,
    .memory = memory,
    .trim = synchronize,
    .pinned_new = pinned_new,
    .pinned_free = pinned_free,
    .device_of = device_of,
    .went_pageable = went_pageable,
};
