/*
 * cuda.c  The CUDA backend: devices, memory, streams and errors of the runtime API.
 * Order: availability, errors, begin and end, memory, the stream's workspace, launches.
 * A build without CUDA has only a table that says why it is unavailable.
 */
#define _GNU_SOURCE /* dladdr */
#include "cuda.h"

#include "../core/exchange.h"

#ifndef GPO_WITH_CUDA

static const char *
unavailable(void)
{
    return "this build of gpuopt has no CUDA part: it was built without nvcc, or by "
           "`make demo` without a driver; `make build` adds it";
}

const gpo_backend gpo_backend_cuda = {
    .name = "cuda", .device_memory = true, .unavailable = unavailable};

#else

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- availability ---- */

static struct {
    pthread_once_t once;
    atomic_bool forked; /* this process was forked from the one that started CUDA */
    int devices;
    bool blocking; /* GPUOPT_BLOCKING=1: wait after every launch */
    char reason[256];
} state = {.once = PTHREAD_ONCE_INIT};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char dead[GPO_MESSAGE]; /* why the context is dead, or ""; under `lock` */

/* The first kernel launched since the host last waited: the suspect of an error. */
static _Atomic(const char *) suspect;

static void
mark_child(void)
{
    atomic_store(&state.forked, true);
}

/* The oldest driver for this build's CUDA, by NVIDIA's release notes; 0: unknown. */
enum {
    CUDA_MAJOR = CUDART_VERSION / 1000,
    DRIVER_NEEDED = CUDA_MAJOR == 13   ? 580
                    : CUDA_MAJOR == 12 ? 525
                                       : 0,
};

/*
 * Writes the driver's version, such as "550.54.14", from the file name of its library;
 * "" if the name has none.
 */
static void
driver_version(char *version, size_t size)
{
    const char start[] = "libcuda.so.";
    Dl_info found;
    char *path = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    version[0] = '\0';
    if (library && dladdr(dlsym(library, "cuInit"), &found)) {
        path = realpath(found.dli_fname, NULL);
    }
    const char *name = path ? strrchr(path, '/') : NULL;
    if (name && strncmp(name + 1, start, strlen(start)) == 0) {
        const char *number = name + 1 + strlen(start);
        if (atoi(number) >= 100) { /* WSL's file ends in .1.1, which is not a version */
            snprintf(version, size, "%s", number);
        }
    }
    free(path);
    if (library) {
        dlclose(library);
    }
}

/* Writes why there is no device and what to do; `error` is the runtime's. */
static void
say_why(cudaError_t error)
{
    char *reason = state.reason;
    const size_t size = sizeof state.reason;
    const int built = CUDART_VERSION;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0; /* the newest CUDA that it supports; 0 if there is no driver */
    cudaDriverGetVersion(&driver);
    if (driver == 0) {
        snprintf(reason, size, "no NVIDIA driver on this machine");
    }
    else if (error == cudaErrorInsufficientDriver) {
        char version[32];
        driver_version(version, sizeof version);
        if (version[0] && DRIVER_NEEDED) {
            snprintf(reason, size, "NVIDIA driver %s is too old, %d or later is needed",
                     version, DRIVER_NEEDED);
        }
        else {
            snprintf(reason, size,
                     "the NVIDIA driver is too old: it supports CUDA %d.%d, this build "
                     "needs %d.%d",
                     driver / 1000, driver % 1000 / 10, built / 1000,
                     built % 1000 / 10);
        }
    }
    else if (error != cudaErrorNoDevice) {
        snprintf(reason, size, "%s", cudaGetErrorString(error));
    }
    else if (visible) {
        snprintf(reason, size, "CUDA_VISIBLE_DEVICES='%.80s' leaves no GPU", visible);
    }
    else {
        snprintf(reason, size, "the NVIDIA driver finds no GPU");
    }
    cudaGetLastError(); /* clears the error, so that no later call reports it */
}

static void
start(void)
{
    if (atomic_load(&state.forked)) {
        return; /* another thread of the parent was in this function at the fork */
    }
    const char *blocking = getenv("GPUOPT_BLOCKING");
    pthread_atfork(NULL, NULL, mark_child);
    state.blocking = blocking && strcmp(blocking, "1") == 0;
    if (blocking && *blocking && !state.blocking && strcmp(blocking, "0") != 0) {
        snprintf(state.reason, sizeof state.reason,
                 "GPUOPT_BLOCKING must be '0' or '1', not '%.100s'", blocking);
        return;
    }
    const cudaError_t error = cudaGetDeviceCount(&state.devices);
    if (error != cudaSuccess || state.devices == 0) {
        state.devices = 0;
        say_why(error == cudaSuccess ? cudaErrorNoDevice : error);
    }
    else if (state.devices > GPO_CUDA_DEVICES) {
        state.devices = GPO_CUDA_DEVICES;
    }
}

static const char forked_reason[] = "CUDA was started before this process was forked; "
                                    "start it with the 'spawn' or 'forkserver' method";

static const char *
unavailable(void)
{
    pthread_once(&state.once, start);
    if (state.reason[0]) {
        return state.reason;
    }
    return gpo_cuda_usable() ? NULL : forked_reason;
}

bool
gpo_cuda_usable(void)
{
    return !atomic_load_explicit(&state.forked, memory_order_relaxed);
}

int
gpo_cuda_devices(void)
{
    return unavailable() ? 0 : state.devices;
}

/* ---- errors ---- */

/* Errors after which every later call on the context fails, too. */
static bool
is_fatal(cudaError_t error)
{
    switch (error) {
        case cudaErrorIllegalAddress:
        case cudaErrorLaunchFailure:
        case cudaErrorLaunchTimeout:
        case cudaErrorHardwareStackError:
        case cudaErrorIllegalInstruction:
        case cudaErrorMisalignedAddress:
        case cudaErrorInvalidAddressSpace:
        case cudaErrorInvalidPc:
        case cudaErrorAssert:
        case cudaErrorECCUncorrectable:
            return true;
        default:
            return false;
    }
}

gpo_status
gpo_cuda_check(gpo_call *call, cudaError_t error, const char *api)
{
    if (error == cudaSuccess) {
        return GPO_OK;
    }
    cudaGetLastError();
    call->error.code = (int)error;
    call->error.api = api;
    if (!is_fatal(error)) {
        return gpo_fail(&call->error, GPO_ECUDA, "%s() failed in %s%s%s: %s",
                        call->op->name, api, call->error.kernel ? " after kernel " : "",
                        call->error.kernel ? call->error.kernel : "",
                        cudaGetErrorString(error));
    }
    const char *kernel = atomic_load(&suspect);
    pthread_mutex_lock(&lock);
    if (!dead[0]) {
        snprintf(dead, sizeof dead, "the CUDA context died in %s() (%s%s): %s",
                 call->op->name, kernel ? "kernel " : api, kernel ? kernel : "",
                 cudaGetErrorString(error));
    }
    call->error.kernel = kernel;
    gpo_fail(&call->error, GPO_EDEAD, "%s; only a new process can use the GPU again",
             dead);
    pthread_mutex_unlock(&lock);
    return GPO_EDEAD;
}

/* ---- begin and end ---- */

/* One allocation of a call's scratch, in the list call->scratch. */
typedef struct scratch_node {
    struct scratch_node *next;
    void *memory;
    uint64_t *answer;    /* or the word of gpo_question */
    int previous_device; /* in the last node: the device to return to, else -1 */
} scratch_node;

static gpo_status
begin(gpo_call *call)
{
    if (!gpo_cuda_usable()) {
        return gpo_fail(&call->error, GPO_ECUDA, "%s() cannot use CUDA: %s",
                        call->op->name, forked_reason);
    }
    pthread_mutex_lock(&lock);
    const bool lives = !dead[0];
    if (!lives) {
        call->error.code = (int)cudaErrorIllegalAddress;
        gpo_fail(&call->error, GPO_EDEAD,
                 "%s; only a new process can use the GPU again", dead);
    }
    pthread_mutex_unlock(&lock);
    if (!lives) {
        return GPO_EDEAD;
    }
    if (gpo_cuda_check_later(call)) {
        return GPO_EINDEX;
    }
    scratch_node *last = malloc(sizeof *last);
    if (!last) {
        return gpo_fail(&call->error, GPO_EMEMORY, "out of host memory");
    }
    last->next = NULL;
    last->memory = NULL;
    last->answer = NULL;
    last->previous_device = -1;
    int current = 0;
    gpo_status status = gpo_cuda_check(call, cudaGetDevice(&current), "cudaGetDevice");
    if (!status && current != call->device) {
        status = gpo_cuda_check(call, cudaSetDevice(call->device), "cudaSetDevice");
        last->previous_device = current;
    }
    if (status) {
        free(last);
        return status;
    }
    call->scratch = last;
    return GPO_OK;
}

static void
end(gpo_call *call)
{
    scratch_node *node = call->scratch;
    while (node) {
        scratch_node *next = node->next;
        if (node->memory) {
            cudaFreeAsync(node->memory, (cudaStream_t)call->stream);
        }
        if (node->answer) {
            gpo_cuda_give_slot(call, node->answer);
        }
        if (!next && node->previous_device >= 0) {
            cudaSetDevice(node->previous_device);
        }
        free(node);
        node = next;
    }
    call->scratch = NULL;
}

/* ---- memory ---- */

/* Lets the device's pool keep freed memory, so that later allocations are fast. */
static gpo_status
keep_pool(gpo_call *call)
{
    static bool kept[GPO_CUDA_DEVICES]; /* under `lock` */
    gpo_status status = GPO_OK;
    pthread_mutex_lock(&lock);
    const bool known = kept[call->device];
    pthread_mutex_unlock(&lock);
    if (known) {
        return GPO_OK;
    }
    cudaMemPool_t pool;
    unsigned long long everything = ~0ULL;
    status = gpo_cuda_check(call, cudaDeviceGetDefaultMemPool(&pool, call->device),
                            "cudaDeviceGetDefaultMemPool");
    if (!status) {
        status = gpo_cuda_check(
            call,
            cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &everything),
            "cudaMemPoolSetAttribute");
    }
    if (!status) {
        pthread_mutex_lock(&lock);
        kept[call->device] = true;
        pthread_mutex_unlock(&lock);
    }
    return status;
}

/* Stream-ordered allocation; if it fails, trims the pool and tries once more. */
static gpo_status
alloc(gpo_call *call, size_t bytes, void **out)
{
    gpo_status status = keep_pool(call);
    if (status) {
        return status;
    }
    const cudaStream_t stream = (cudaStream_t)call->stream;
    cudaError_t error = cudaMallocAsync(out, bytes, stream);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        cudaMemPool_t pool;
        cudaStreamSynchronize(stream);
        if (cudaDeviceGetDefaultMemPool(&pool, call->device) == cudaSuccess) {
            cudaMemPoolTrimTo(pool, 0);
        }
        error = cudaMallocAsync(out, bytes, stream);
    }
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        call->error.requested_bytes = bytes;
        cudaMemGetInfo(&call->error.free_bytes, &call->error.total_bytes);
        return gpo_fail(&call->error, GPO_EDEVMEMORY,
                        "%s() needs %zu bytes on GPU %d; %zu of %zu are free",
                        call->op->name, bytes, call->device, call->error.free_bytes,
                        call->error.total_bytes);
    }
    return gpo_cuda_check(call, error, "cudaMallocAsync");
}

static void
release(gpo_call *call, void *memory)
{
    if (!gpo_cuda_usable()) {
        return; /* the memory belongs to the parent process */
    }
    cudaFreeAsync(memory, (cudaStream_t)call->stream);
}

static gpo_status
upload(gpo_call *call, void *to, const void *from, size_t bytes)
{
    if (bytes >= GPO_STAGED_BYTES) {
        return gpo_cuda_staged_upload(call, to, from, bytes);
    }
    return gpo_cuda_check(call,
                          cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice,
                                          (cudaStream_t)call->stream),
                          "cudaMemcpyAsync");
}

static gpo_status
download(gpo_call *call, void *to, const void *from, size_t bytes)
{
    if (bytes >= GPO_STAGED_BYTES) {
        return gpo_cuda_staged_download(call, to, from, bytes);
    }
    return gpo_cuda_check(call,
                          cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost,
                                          (cudaStream_t)call->stream),
                          "cudaMemcpyAsync");
}

gpo_status
gpo_cuda_wait(gpo_call *call)
{
    const cudaError_t error = cudaStreamSynchronize((cudaStream_t)call->stream);
    if (error != cudaSuccess) {
        return gpo_cuda_check(call, error, "cudaStreamSynchronize");
    }
    atomic_store(&suspect, NULL);
    return gpo_cuda_check_later(call);
}

static gpo_status
scratch(gpo_call *call, size_t bytes, void **out)
{
    scratch_node *node = malloc(sizeof *node);
    if (!node) {
        return gpo_fail(&call->error, GPO_EMEMORY, "out of host memory");
    }
    const gpo_status status = alloc(call, bytes, out);
    if (status) {
        free(node);
        return status;
    }
    node->memory = *out;
    node->answer = NULL;
    node->next = call->scratch;
    call->scratch = node;
    return GPO_OK;
}

/* ---- the stream's workspace: gpo_tickets, and exchange.h behind it ---- */

/* One per device and stream that ever needed it; freed with the stream or at exit. */
typedef struct stream_block {
    struct stream_block *next;
    int device;
    void *stream;
    unsigned *tickets;
} stream_block;

static stream_block *blocks; /* under `lock` */

static stream_block *
find_block(const gpo_call *call)
{
    stream_block *b = blocks;
    while (b && (b->device != call->device || b->stream != call->stream)) {
        b = b->next;
    }
    return b;
}

static gpo_status
tickets(gpo_call *call, unsigned **out)
{
    enum { TICKET_BYTES = GPO_TICKETS * sizeof(unsigned) };
    const cudaStream_t stream = (cudaStream_t)call->stream;
    gpo_status status = GPO_OK;
    pthread_mutex_lock(&lock);
    stream_block *b = find_block(call);
    pthread_mutex_unlock(&lock);
    if (b) {
        *out = b->tickets;
        return GPO_OK;
    }
    void *memory = NULL;
    b = malloc(sizeof *b);
    if (!b) {
        return gpo_fail(&call->error, GPO_EMEMORY, "out of host memory");
    }
    status = alloc(call, TICKET_BYTES + GPO_PARTIALS + GPO_EXCHANGE_BYTES, &memory);
    if (!status) {
        status = gpo_cuda_check(call, cudaMemsetAsync(memory, 0, TICKET_BYTES, stream),
                                "cudaMemsetAsync");
    }
    if (!status) {
        status = gpo_cuda_check(
            call,
            cudaMemsetAsync(gpo_exchange_of(memory), 0, GPO_EXCHANGE_BYTES, stream),
            "cudaMemsetAsync");
    }
    if (status) {
        if (memory) {
            release(call, memory);
        }
        free(b);
        return status;
    }
    b->device = call->device;
    b->stream = call->stream;
    b->tickets = memory;
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    *out = b->tickets;
    return GPO_OK;
}

void
gpo_cuda_forget_stream(gpo_call *call, void *stream)
{
    pthread_mutex_lock(&lock);
    stream_block **link = &blocks, *found = NULL;
    while (*link && ((*link)->device != call->device || (*link)->stream != stream)) {
        link = &(*link)->next;
    }
    if (*link) {
        found = *link;
        *link = found->next;
    }
    pthread_mutex_unlock(&lock);
    if (found) {
        cudaFreeAsync(found->tickets, (cudaStream_t)stream);
        free(found);
    }
}

/* An attribute of the call's device, at least 1, cached by device in `known`. */
static int
attribute(const gpo_call *call, enum cudaDeviceAttr which, atomic_int *known)
{
    known += call->device; /* every thread stores the same value */
    int value = atomic_load_explicit(known, memory_order_relaxed);
    if (value == 0) {
        if (cudaDeviceGetAttribute(&value, which, call->device) != cudaSuccess) {
            cudaGetLastError();
            return 1;
        }
        value = value > 0 ? value : 1;
        atomic_store_explicit(known, value, memory_order_relaxed);
    }
    return value;
}

static int
processors(const gpo_call *call)
{
    static atomic_int known[GPO_CUDA_DEVICES];
    return attribute(call, cudaDevAttrMultiProcessorCount, known);
}

static int64_t
l2_bytes(const gpo_call *call)
{
    static atomic_int known[GPO_CUDA_DEVICES];
    return attribute(call, cudaDevAttrL2CacheSize, known);
}

/* Code for sm_90a runs only on devices of compute capability 9.0. */
static const char *
lacks(int device, const char *needs)
{
    const char *arch = needs + strlen("sm_");
    int major = 0, minor = 0;
    if (!strstr(GPO_CUDA_ARCHS, arch)) {
        return "this build has no code for it";
    }
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) !=
            cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) !=
            cudaSuccess) {
        cudaGetLastError();
        return "the GPU does not say what it is";
    }
    return atoi(arch) == 10 * major + minor ? NULL : "the GPU is another one";
}

static gpo_status
may_wait(gpo_call *call)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const gpo_status status = gpo_cuda_check(
        call, cudaStreamIsCapturing((cudaStream_t)call->stream, &capture),
        "cudaStreamIsCapturing");
    if (!status && capture != cudaStreamCaptureStatusNone) {
        return gpo_fail(&call->error, GPO_ECUDA,
                        "%s() reads a result of the GPU on the host, which a stream "
                        "under capture does not allow",
                        call->op->name);
    }
    return status;
}

static gpo_status
question(gpo_call *call, uint64_t **word)
{
    scratch_node *node = malloc(sizeof *node);
    if (!node) {
        return gpo_fail(&call->error, GPO_EMEMORY, "out of host memory");
    }
    const gpo_status status = gpo_cuda_take_slot(call, word);
    if (status) {
        free(node);
        return status;
    }
    node->memory = NULL;
    node->answer = *word;
    node->next = call->scratch;
    call->scratch = node;
    return GPO_OK;
}

/* ---- launches ---- */

gpo_status gpo_cuda_launched(gpo_call *call, const char *kernel);

gpo_status
gpo_cuda_launched(gpo_call *call, const char *kernel)
{
    const char *none = NULL;
    call->error.kernel = kernel;
    atomic_compare_exchange_strong(&suspect, &none, kernel);
    gpo_status status = gpo_cuda_check(call, cudaGetLastError(), "kernel launch");
    if (!status && state.blocking) {
        status = gpo_cuda_wait(call);
    }
    return status;
}

const gpo_backend gpo_backend_cuda = {
    .name = "cuda",
    .device_memory = true,
    .unavailable = unavailable,
    .begin = begin,
    .end = end,
    .alloc = alloc,
    .free = release,
    .upload = upload,
    .download = download,
    .wait = gpo_cuda_wait,
    .scratch = scratch,
    .tickets = tickets,
    .processors = processors,
    .l2_bytes = l2_bytes,
    .may_wait = may_wait,
    .question = question,
    .answer = gpo_cuda_answer,
    .later = gpo_cuda_later,
    .lacks = lacks,
};

#endif
