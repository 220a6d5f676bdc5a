/*
 * cuda_device.c  The table of device.h for CUDA.
 * Order: ordering, streams, events, memory, copies from another device, name, pinned
 * memory, the table.
 * A build without CUDA has only the count.
 */
#include "cuda.h"

#ifndef GPO_WITH_CUDA

static int
count(void)
{
    return 0;
}

const gpo_device gpo_device_cuda = {.count = count};

#else

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from, const gpo_array *to);
gpo_status gpo_device_store(gpo_call *call, void *to, const void *from, size_t bytes);

/* ---- ordering ---- */

/*
 * A new event per ordering would cost driver calls; instead each device keeps one,
 * which is recorded and waited for under a lock: a wait refers to the last record
 * before it.
 */
static struct {
    pthread_mutex_t lock;
    cudaEvent_t event[GPO_CUDA_DEVICES];
} fence = {.lock = PTHREAD_MUTEX_INITIALIZER};

static gpo_status
order(gpo_call *call, void *first, void *then)
{
    if (first == then) {
        return GPO_OK;
    }
    gpo_status status = GPO_OK;
    pthread_mutex_lock(&fence.lock);
    cudaEvent_t *event = &fence.event[call->device];
    if (!*event) {
        status = gpo_cuda_check(call,
                                cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                                "cudaEventCreateWithFlags");
    }
    if (!status) {
        status = gpo_cuda_check(call, cudaEventRecord(*event, (cudaStream_t)first),
                                "cudaEventRecord");
    }
    if (!status) {
        status =
            gpo_cuda_check(call, cudaStreamWaitEvent((cudaStream_t)then, *event, 0),
                           "cudaStreamWaitEvent");
    }
    pthread_mutex_unlock(&fence.lock);
    return status;
}

/* ---- streams ---- */

static gpo_status
stream_new(gpo_call *call, int priority, void **stream)
{
    int least, greatest;
    gpo_status status =
        gpo_cuda_check(call, cudaDeviceGetStreamPriorityRange(&least, &greatest),
                       "cudaDeviceGetStreamPriorityRange");
    if (status) {
        return status;
    }
    if (priority < greatest || priority > least) {
        return gpo_fail(&call->error, GPO_EVALUE,
                        "priority must be between %d (first) and %d (last) (got %d)",
                        greatest, least, priority);
    }
    return gpo_cuda_check(call,
                          cudaStreamCreateWithPriority((cudaStream_t *)stream,
                                                       cudaStreamNonBlocking, priority),
                          "cudaStreamCreateWithPriority");
}

static void
stream_free(gpo_call *call, void *stream)
{
    if (gpo_cuda_usable()) {
        gpo_cuda_forget_stream(call, stream);
        cudaStreamDestroy((cudaStream_t)stream);
    }
}

static gpo_status
stream_device(gpo_call *call, void *stream, int *device)
{
#if CUDART_VERSION >= 12080
    if ((uintptr_t)stream > 2) { /* default streams belong to every device */
        return gpo_cuda_check(call, cudaStreamGetDevice((cudaStream_t)stream, device),
                              "cudaStreamGetDevice");
    }
#endif
    *device = call->device;
    return GPO_OK;
}

/* ---- events ---- */

static gpo_status
event_new(gpo_call *call, void **event)
{
    return gpo_cuda_check(call, cudaEventCreate((cudaEvent_t *)event),
                          "cudaEventCreate");
}

static void
event_free(gpo_call *call, void *event)
{
    (void)call;
    if (gpo_cuda_usable()) {
        cudaEventDestroy((cudaEvent_t)event);
    }
}

static gpo_status
event_record(gpo_call *call, void *event)
{
    return gpo_cuda_check(
        call, cudaEventRecord((cudaEvent_t)event, (cudaStream_t)call->stream),
        "cudaEventRecord");
}

static gpo_status
event_wait(gpo_call *call, void *event)
{
    return gpo_cuda_check(call, cudaEventSynchronize((cudaEvent_t)event),
                          "cudaEventSynchronize");
}

static gpo_status
event_follow(gpo_call *call, void *event)
{
    return gpo_cuda_check(
        call, cudaStreamWaitEvent((cudaStream_t)call->stream, (cudaEvent_t)event, 0),
        "cudaStreamWaitEvent");
}

static gpo_status
event_done(gpo_call *call, void *event, bool *done)
{
    const cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    *done = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return GPO_OK;
    }
    return gpo_cuda_check(call, error, "cudaEventQuery");
}

static gpo_status
event_elapsed(gpo_call *call, void *first, void *last, double *ms)
{
    float elapsed = 0;
    gpo_status status = event_wait(call, last);
    if (!status) {
        status = gpo_cuda_check(
            call, cudaEventElapsedTime(&elapsed, (cudaEvent_t)first, (cudaEvent_t)last),
            "cudaEventElapsedTime");
    }
    *ms = elapsed;
    return status;
}

/* ---- memory ---- */

static gpo_status
synchronize(gpo_call *call)
{
    const gpo_status status =
        gpo_cuda_check(call, cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return status ? status : gpo_cuda_check_later(call);
}

static gpo_status
pool_of(gpo_call *call, cudaMemPool_t *pool)
{
    return gpo_cuda_check(call, cudaDeviceGetDefaultMemPool(pool, call->device),
                          "cudaDeviceGetDefaultMemPool");
}

static gpo_status
memory(gpo_call *call, size_t *free_bytes, size_t *total_bytes, size_t *pool_bytes)
{
    cudaMemPool_t pool;
    unsigned long long reserved = 0, used = 0;
    gpo_status status =
        gpo_cuda_check(call, cudaMemGetInfo(free_bytes, total_bytes), "cudaMemGetInfo");
    if (!status) {
        status = pool_of(call, &pool);
    }
    if (!status) {
        status = gpo_cuda_check(
            call,
            cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved),
            "cudaMemPoolGetAttribute");
    }
    if (!status) {
        status = gpo_cuda_check(
            call, cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used),
            "cudaMemPoolGetAttribute");
    }
    *pool_bytes = (size_t)(reserved - used);
    return status;
}

static gpo_status
trim(gpo_call *call)
{
    cudaMemPool_t pool;
    gpo_status status = pool_of(call, &pool);
    if (!status) {
        status = gpo_cuda_check(call, cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo");
    }
    return status;
}

static gpo_status
device_of(gpo_call *call, const void *address, int *device)
{
    struct cudaPointerAttributes attributes;
    gpo_status status =
        gpo_cuda_check(call, cudaPointerGetAttributes(&attributes, address),
                       "cudaPointerGetAttributes");
    if (status) {
        return status;
    }
    if (attributes.type != cudaMemoryTypeDevice &&
        attributes.type != cudaMemoryTypeManaged) {
        return gpo_fail(&call->error, GPO_ETYPE,
                        "%s(): the array's memory is on no GPU", call->op->name);
    }
    *device = attributes.device;
    return GPO_OK;
}

/* ---- copies from another device ---- */

/*
 * Lets the call's device read the other's memory, so that a copy takes the link between
 * them and not the host's memory.  What cannot be had is no error: the copy is slower.
 */
static void
open_link(const gpo_call *call, int other)
{
    static atomic_bool tried[GPO_CUDA_DEVICES][GPO_CUDA_DEVICES];
    const struct cudaMemAccessDesc access = {
        .location = {.type = cudaMemLocationTypeDevice, .id = call->device},
        .flags = cudaMemAccessFlagsProtReadWrite};
    cudaMemPool_t pool;
    int can = 0;
    if (atomic_exchange(&tried[call->device][other], true)) {
        return;
    }
    if (cudaDeviceCanAccessPeer(&can, call->device, other) == cudaSuccess && can) {
        cudaDeviceEnablePeerAccess(other, 0);
        if (cudaDeviceGetDefaultMemPool(&pool, other) == cudaSuccess) {
            cudaMemPoolSetAccess(pool, &access, 1);
        }
    }
    cudaGetLastError();
}

static gpo_status
copy_across(gpo_call *call, void *to, const void *from, int from_device, size_t bytes)
{
    open_link(call, from_device);
    return gpo_cuda_check(call,
                          cudaMemcpyPeerAsync(to, call->device, from, from_device,
                                              bytes, (cudaStream_t)call->stream),
                          "cudaMemcpyPeerAsync");
}

/* ---- its name ---- */

static void
name_device(int device, char name[GPO_DEVICE_NAME])
{
    struct cudaDeviceProp properties;
    name[0] = '\0';
    if (cudaGetDeviceProperties(&properties, device) == cudaSuccess) {
        snprintf(name, GPO_DEVICE_NAME, "%s", properties.name);
    }
}

/* ---- pinned memory ---- */

static void
pinned_free(void *address)
{
    if (gpo_cuda_usable()) {
        cudaFreeHost(address);
    }
}

const gpo_device gpo_device_cuda = {
    .count = gpo_cuda_devices,
    .name = name_device,
    .copy = gpo_device_copy,
    .copy_across = copy_across,
    .store = gpo_device_store,
    .order = order,
    .stream_new = stream_new,
    .stream_free = stream_free,
    .stream_device = stream_device,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_follow = event_follow,
    .event_done = event_done,
    .event_elapsed = event_elapsed,
    .synchronize = synchronize,
    .memory = memory,
    .trim = trim,
    .pinned_new = gpo_cuda_pinned_new,
    .pinned_free = pinned_free,
    .device_of = device_of,
    .went_pageable = gpo_cuda_went_pageable,
};

#endif
