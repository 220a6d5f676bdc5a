/*
 * cuda_staging.c  Copies large host arrays to and from the GPU at the speed of the bus:
 * through pinned buffers, of which the CPU's threads fill (empty) some while the GPU
 * copies others.  A piece of the array is the business of one thread from end to end, so
 * that none waits for another, and a call begins while the GPU still copies the end of
 * the one before.  Order: pinned memory, the buffers, a job, upload, download.
 */
#include "cuda.h"

#ifdef GPO_WITH_CUDA

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

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

/* ---- the buffers ---- */

/*
 * SLOTS x SLOT_BYTES fit in the last-level cache of a server CPU, so the GPU reads what
 * was just written from there.
 */
enum { SLOTS = 32, SLOT_BYTES = 1 << 20 };

/*
 * Of a short array every thread gets a part.  More of them take longer, as threads wait for
 * each other in the driver: 4 MiB in 16 parts 0.50 ms, in 32 1.01 (an H200, 16 threads).
 */
enum { LEAST_PART = 256 << 10 };

typedef struct slot {
    char *memory;
    cudaEvent_t copied; /* the GPU has finished with the memory */
} slot;

/* Slots that no thread holds, the one given back longest ago first. */
typedef struct depot {
    pthread_mutex_t lock;
    pthread_cond_t given;
    bool made;
    slot slot[SLOTS];
    slot *idle[SLOTS];
    int first, count;
} depot;

static depot depots[GPO_CUDA_DEVICES];
static pthread_once_t depots_once = PTHREAD_ONCE_INIT;

static void
depots_init(void)
{
    for (int i = 0; i < GPO_CUDA_DEVICES; i++) {
        pthread_mutex_init(&depots[i].lock, NULL);
        pthread_cond_init(&depots[i].given, NULL);
    }
}

static void
depot_destroy(depot *d)
{
    for (int i = 0; i < SLOTS; i++) {
        if (d->slot[i].copied) {
            cudaEventDestroy(d->slot[i].copied);
        }
        d->slot[i].copied = NULL;
    }
    if (d->slot[0].memory) {
        cudaFreeHost(d->slot[0].memory);
    }
    d->slot[0].memory = NULL;
}

/* Call with the lock held; false if there is no pinned memory. */
static bool
depot_make(depot *d)
{
    if (d->made) {
        return true;
    }
    void *memory = NULL;
    bool ok = cudaHostAlloc(&memory, (size_t)SLOTS * SLOT_BYTES,
                            cudaHostAllocPortable) == cudaSuccess;
    for (int i = 0; ok && i < SLOTS; i++) {
        d->slot[i].memory = (char *)memory + (size_t)i * SLOT_BYTES;
        d->idle[i] = &d->slot[i];
        ok = cudaEventCreateWithFlags(&d->slot[i].copied, cudaEventDisableTiming) ==
             cudaSuccess;
    }
    if (!ok) {
        cudaGetLastError();
        depot_destroy(d);
        return false;
    }
    d->first = 0;
    d->count = SLOTS;
    d->made = true;
    return true;
}

/* The device's buffers; NULL if they cannot be allocated. */
static depot *
depot_of(int device)
{
    pthread_once(&depots_once, depots_init);
    depot *d = &depots[device];
    pthread_mutex_lock(&d->lock);
    const bool ok = depot_make(d);
    pthread_mutex_unlock(&d->lock);
    went_pageable |= !ok;
    return ok ? d : NULL;
}

/* Takes `n` slots at once: of two threads with half of what they need, none would end. */
static void
take(depot *d, slot **taken, int n)
{
    pthread_mutex_lock(&d->lock);
    while (d->count < n) {
        pthread_cond_wait(&d->given, &d->lock);
    }
    for (int i = 0; i < n; i++) {
        taken[i] = d->idle[(d->first + i) % SLOTS];
    }
    d->first = (d->first + n) % SLOTS;
    d->count -= n;
    pthread_mutex_unlock(&d->lock);
}

static void
give(depot *d, slot *s)
{
    pthread_mutex_lock(&d->lock);
    d->idle[(d->first + d->count) % SLOTS] = s;
    d->count++;
    pthread_cond_broadcast(&d->given);
    pthread_mutex_unlock(&d->lock);
}

/* ---- a job ---- */

typedef struct job {
    depot *depot;
    int device;
    cudaStream_t stream;
    char *to;
    const char *from;
    size_t bytes;
    size_t part;      /* bytes that go through a slot at a time */
    atomic_int error; /* the first; the pieces after it are left out */
} job;

static void
fail(job *j, cudaError_t error)
{
    int none = cudaSuccess;
    if (error != cudaSuccess) {
        atomic_compare_exchange_strong(&j->error, &none, (int)error);
    }
}

/* Whether the pieces may go on; the device of a worker thread is anybody's. */
static bool
ready(job *j)
{
    if (atomic_load(&j->error) == cudaSuccess) {
        fail(j, cudaSetDevice(j->device));
    }
    return atomic_load(&j->error) == cudaSuccess;
}

static size_t
part_of(const job *j, size_t at)
{
    return j->bytes - at < j->part ? j->bytes - at : j->part;
}

/*
 * Pieces of `slots` parts on all threads, which a second job would not get: it waits.
 */
static gpo_status
run(gpo_call *call, job *j, int slots, void (*piece)(void *job, int64_t i))
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    const size_t each = j->bytes / (size_t)(slots * gpo_cpu_threads()) + 1;
    const size_t part = (each + LEAST_PART - 1) / LEAST_PART * LEAST_PART;
    j->part = part < SLOT_BYTES ? part : SLOT_BYTES;
    const size_t step = j->part * (size_t)slots;
    pthread_mutex_lock(&one_at_a_time);
    gpo_cpu_parallel((int64_t)((j->bytes + step - 1) / step), piece, j);
    pthread_mutex_unlock(&one_at_a_time);
    return gpo_cuda_check(call, (cudaError_t)atomic_load(&j->error), "cudaMemcpyAsync");
}

/* ---- upload ---- */

static void
upload_piece(void *context, int64_t i)
{
    job *const j = context;
    const size_t at = (size_t)i * j->part;
    slot *s;
    if (!ready(j)) {
        return;
    }
    take(j->depot, &s, 1);
    cudaError_t error = cudaEventSynchronize(s->copied);
    if (error == cudaSuccess) {
        memcpy(s->memory, j->from + at, part_of(j, at));
        error = cudaMemcpyAsync(j->to + at, s->memory, part_of(j, at),
                                cudaMemcpyHostToDevice, j->stream);
    }
    if (error == cudaSuccess) {
        error = cudaEventRecord(s->copied, j->stream);
    }
    fail(j, error);
    give(j->depot, s);
}

gpo_status
gpo_cuda_staged_upload(gpo_call *call, void *to, const void *from, size_t bytes)
{
    job j = {.device = call->device,
             .stream = (cudaStream_t)call->stream,
             .to = to,
             .from = from,
             .bytes = bytes};
    j.depot = is_pinned(from) ? NULL : depot_of(call->device);
    if (!j.depot) {
        return gpo_cuda_check(
            call, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, j.stream),
            "cudaMemcpyAsync");
    }
    return run(call, &j, 1, upload_piece);
}

/* ---- download ---- */

/* memcpy() past the caches: the result is too large for them. */
static void
copy_past_caches(char *to, const char *from, size_t bytes)
{
#if defined(__x86_64__)
    const size_t lead = -(uintptr_t)to % 16;
    if (bytes > lead) {
        memcpy(to, from, lead);
        to += lead;
        from += lead;
        bytes -= lead;
        for (; bytes >= 64; bytes -= 64, to += 64, from += 64) {
            const __m128i *in = (const __m128i *)(const void *)from;
            __m128i *out = (__m128i *)(void *)to;
            const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
            const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
            _mm_stream_si128(out, a);
            _mm_stream_si128(out + 1, b);
            _mm_stream_si128(out + 2, c);
            _mm_stream_si128(out + 3, d);
        }
        _mm_sfence();
    }
#endif
    memcpy(to, from, bytes);
}

enum { AHEAD = 2 }; /* slots of a piece: the GPU copies one while another is emptied */

static void
download_piece(void *context, int64_t i)
{
    job *const j = context;
    const size_t begin = (size_t)i * AHEAD * j->part;
    slot *s[AHEAD];
    if (!ready(j)) {
        return;
    }
    take(j->depot, s, AHEAD);
    cudaError_t error = cudaSuccess;
    for (size_t k = 0, at = begin; error == cudaSuccess && k < AHEAD && at < j->bytes;
         k++, at += j->part) {
        error = cudaEventSynchronize(s[k]->copied); /* of an earlier upload */
        if (error == cudaSuccess) {
            error = cudaMemcpyAsync(s[k]->memory, j->from + at, part_of(j, at),
                                    cudaMemcpyDeviceToHost, j->stream);
        }
        if (error == cudaSuccess) {
            error = cudaEventRecord(s[k]->copied, j->stream);
        }
    }
    for (size_t k = 0, at = begin; k < AHEAD; k++, at += j->part) {
        if (error == cudaSuccess && at < j->bytes) {
            error = cudaEventSynchronize(s[k]->copied);
            if (error == cudaSuccess) {
                copy_past_caches(j->to + at, s[k]->memory, part_of(j, at));
            }
        }
        give(j->depot, s[k]);
    }
    fail(j, error);
}

gpo_status
gpo_cuda_staged_download(gpo_call *call, void *to, const void *from, size_t bytes)
{
    job j = {.device = call->device,
             .stream = (cudaStream_t)call->stream,
             .to = to,
             .from = from,
             .bytes = bytes};
    j.depot = is_pinned(to) ? NULL : depot_of(call->device);
    if (!j.depot) {
        return gpo_cuda_check(
            call, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, j.stream),
            "cudaMemcpyAsync");
    }
    return run(call, &j, AHEAD, download_piece);
}

#endif
