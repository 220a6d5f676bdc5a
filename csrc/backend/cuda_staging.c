/*
 * cuda_staging.c  Copies large host arrays to and from the GPU at the speed of the bus:
 * through a ring of pinned buffers per device, of which the CPU's threads fill (empty)
 * one while the GPU copies others.  Order: pinned memory, the ring, upload, download.
 */
#include "cuda.h"

#ifdef GPO_WITH_CUDA

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- pinned memory ---- */

static _Thread_local bool went_pageable;

bool
gpo_cuda_went_pageable(void)
{
    const bool did = went_pageable;
    went_pageable = false;
    return did;
}

gpo_status
gpo_cuda_pinned_new(gpo_call *call, size_t bytes, void **out)
{
    const cudaError_t error = cudaHostAlloc(out, bytes, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return gpo_fail(&call->error, GPO_EMEMORY,
                        "%s(): %zu bytes of pinned memory cannot be had",
                        call->op->name, bytes);
    }
    return gpo_cuda_check(call, error, "cudaHostAlloc");
}

/* Whether `memory` is pinned, so that the GPU can access it directly. */
static bool
is_pinned(const void *memory)
{
    struct cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeHost;
}

/* ---- the ring ---- */

/*
 * SLOTS x SLOT_BYTES fit in the last-level cache of a server CPU, so the GPU reads what
 * was just written from there.  A slice is what one thread copies at a time.
 */
enum { SLOTS = 4, SLOT_BYTES = 8 << 20, SLICE_BYTES = 512 << 10 };

typedef struct ring {
    pthread_mutex_t lock; /* one large copy per device at a time */
    bool made;
    char *slot[SLOTS];
    cudaEvent_t copied[SLOTS]; /* the GPU has finished with the slot */
} ring;

static ring rings[GPO_CUDA_DEVICES];
static pthread_once_t rings_once = PTHREAD_ONCE_INIT;

static void
rings_init(void)
{
    for (int i = 0; i < GPO_CUDA_DEVICES; i++) {
        pthread_mutex_init(&rings[i].lock, NULL);
    }
}

static void
ring_destroy(ring *r)
{
    for (int i = 0; i < SLOTS; i++) {
        if (r->copied[i]) {
            cudaEventDestroy(r->copied[i]);
        }
        if (r->slot[i]) {
            cudaFreeHost(r->slot[i]);
        }
        r->copied[i] = NULL;
        r->slot[i] = NULL;
    }
}

/* Call with the ring's lock held; false if there is no pinned memory. */
static bool
ring_make(ring *r)
{
    for (int i = 0; i < SLOTS && !r->made; i++) {
        void *slot = NULL;
        if (cudaHostAlloc(&slot, SLOT_BYTES, cudaHostAllocPortable) != cudaSuccess ||
            cudaEventCreateWithFlags(&r->copied[i], cudaEventDisableTiming) !=
                cudaSuccess) {
            cudaGetLastError();
            r->slot[i] = slot;
            ring_destroy(r);
            return false;
        }
        r->slot[i] = slot;
    }
    r->made = true;
    return true;
}

/* The device's ring, locked; NULL if it cannot be allocated. */
static ring *
ring_take(int device)
{
    pthread_once(&rings_once, rings_init);
    ring *r = &rings[device];
    pthread_mutex_lock(&r->lock);
    if (!ring_make(r)) {
        pthread_mutex_unlock(&r->lock);
        went_pageable = true;
        return NULL;
    }
    return r;
}

typedef struct slices {
    char *to;
    const char *from;
    size_t bytes;
} slices;

static void
copy_slice(void *context, int64_t i)
{
    const slices *job = context;
    const size_t start = (size_t)i * SLICE_BYTES;
    const size_t left = job->bytes - start;
    memcpy(job->to + start, job->from + start, left < SLICE_BYTES ? left : SLICE_BYTES);
}

static void
copy_on_all_threads(void *to, const void *from, size_t bytes)
{
    slices job = {to, from, bytes};
    gpo_cpu_parallel((int64_t)((bytes + SLICE_BYTES - 1) / SLICE_BYTES), copy_slice,
                     &job);
}

/* ---- upload ---- */

gpo_status
gpo_cuda_staged_upload(gpo_call *call, void *to, const void *from, size_t bytes)
{
    const cudaStream_t stream = (cudaStream_t)call->stream;
    ring *r = is_pinned(from) ? NULL : ring_take(call->device);
    if (!r) {
        return gpo_cuda_check(
            call, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync");
    }
    gpo_status status = GPO_OK;
    size_t done = 0;
    for (int k = 0; !status && done < bytes; k = (k + 1) % SLOTS) {
        const size_t part = bytes - done < SLOT_BYTES ? bytes - done : SLOT_BYTES;
        status = gpo_cuda_check(call, cudaEventSynchronize(r->copied[k]),
                                "cudaEventSynchronize");
        if (status) {
            break;
        }
        copy_on_all_threads(r->slot[k], (const char *)from + done, part);
        status = gpo_cuda_check(call,
                                cudaMemcpyAsync((char *)to + done, r->slot[k], part,
                                                cudaMemcpyHostToDevice, stream),
                                "cudaMemcpyAsync");
        if (!status) {
            status = gpo_cuda_check(call, cudaEventRecord(r->copied[k], stream),
                                    "cudaEventRecord");
        }
        done += part;
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

/* ---- download ---- */

gpo_status
gpo_cuda_staged_download(gpo_call *call, void *to, const void *from, size_t bytes)
{
    const cudaStream_t stream = (cudaStream_t)call->stream;
    ring *r = is_pinned(to) ? NULL : ring_take(call->device);
    if (!r) {
        return gpo_cuda_check(
            call, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
            "cudaMemcpyAsync");
    }
    gpo_status status = GPO_OK;
    const size_t parts = (bytes + SLOT_BYTES - 1) / SLOT_BYTES;
    /* The GPU's copy of part p is issued SLOTS - 1 steps before the slot is emptied. */
    for (size_t p = 0; !status && p < parts + SLOTS - 1; p++) {
        if (p < parts) {
            const int k = (int)(p % SLOTS);
            const size_t start = p * SLOT_BYTES;
            const size_t part = bytes - start < SLOT_BYTES ? bytes - start : SLOT_BYTES;
            status = gpo_cuda_check(call, cudaEventSynchronize(r->copied[k]),
                                    "cudaEventSynchronize"); /* of an earlier upload */
            if (!status) {
                status = gpo_cuda_check(
                    call,
                    cudaMemcpyAsync(r->slot[k], (const char *)from + start, part,
                                    cudaMemcpyDeviceToHost, stream),
                    "cudaMemcpyAsync");
            }
            if (!status) {
                status = gpo_cuda_check(call, cudaEventRecord(r->copied[k], stream),
                                        "cudaEventRecord");
            }
        }
        if (!status && p >= SLOTS - 1) {
            const size_t q = p - (SLOTS - 1);
            const int k = (int)(q % SLOTS);
            const size_t start = q * SLOT_BYTES;
            const size_t part = bytes - start < SLOT_BYTES ? bytes - start : SLOT_BYTES;
            status = gpo_cuda_check(call, cudaEventSynchronize(r->copied[k]),
                                    "cudaEventSynchronize");
            if (!status) {
                copy_on_all_threads((char *)to + start, r->slot[k], part);
            }
        }
    }
    pthread_mutex_unlock(&r->lock);
    return status;
}

#endif
