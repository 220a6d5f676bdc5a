/*
 * cuda_answers.c  Words of pinned memory that a kernel writes and the host reads: one
 * for each call that polls, less than half of what a copy and a wait for the stream
 * take; and one for all calls that do not wait.
 */
#include "cuda.h"

#ifdef GPO_WITH_CUDA

#include <pthread.h>
#include <stdatomic.h>

/* A cache line, so that no write disturbs the polling of another. */
typedef struct answer_slot {
    _Atomic uint64_t word;
    struct answer_slot *next; /* of those that no call uses */
    char rest[48];
} answer_slot;

enum { SLOTS = 64 };                /* allocated at once, never freed */
#define UNANSWERED (UINT64_MAX - 1) /* no kernel answers this */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static answer_slot *unused; /* under `lock` */

/* With `lock` held.  Another thread may be capturing a graph meanwhile. */
static cudaError_t
make_slots(void)
{
    void *memory = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const cudaError_t error =
        cudaHostAlloc(&memory, SLOTS * sizeof(answer_slot),
                      cudaHostAllocPortable | cudaHostAllocMapped);
    cudaThreadExchangeStreamCaptureMode(&mode);
    for (int k = 0; error == cudaSuccess && k < SLOTS; k++) {
        answer_slot *const slot = (answer_slot *)memory + k;
        slot->next = unused;
        unused = slot;
    }
    return error;
}

gpo_status
gpo_cuda_take_slot(gpo_call *call, uint64_t **word)
{
    pthread_mutex_lock(&lock);
    const cudaError_t error = unused ? cudaSuccess : make_slots();
    answer_slot *const slot = unused;
    unused = slot ? slot->next : NULL;
    pthread_mutex_unlock(&lock);
    if (!slot) {
        return gpo_cuda_check(call, error, "cudaHostAlloc");
    }
    atomic_store_explicit(&slot->word, UNANSWERED, memory_order_release);
    *word = (uint64_t *)&slot->word; /* the device's address is the same */
    return GPO_OK;
}

void
gpo_cuda_give_slot(gpo_call *call, uint64_t *word)
{
    answer_slot *const slot = (answer_slot *)word;
    if (atomic_load_explicit(&slot->word, memory_order_relaxed) == UNANSWERED &&
        cudaStreamSynchronize((cudaStream_t)call->stream) != cudaSuccess) {
        cudaGetLastError();
        return; /* a kernel may still write */
    }
    pthread_mutex_lock(&lock);
    slot->next = unused;
    unused = slot;
    pthread_mutex_unlock(&lock);
}

/*
 * Polls for as long as short kernels take, then waits for the stream, which a failed
 * kernel ends, too.  To ask the driver for the stream's state meanwhile would take longer
 * than an answer.
 */
gpo_status
gpo_cuda_answer(gpo_call *call, const uint64_t *word, uint64_t *answer)
{
    enum { POLLS = 400000 }; /* some 2 ms */
    const _Atomic uint64_t *const at = (const _Atomic uint64_t *)word;
    for (int poll = 0; poll < POLLS; poll++) {
        *answer = atomic_load_explicit(at, memory_order_acquire);
        if (*answer != UNANSWERED) {
            return GPO_OK;
        }
    }
    const gpo_status status = gpo_cuda_wait(call);
    *answer = atomic_load_explicit(at, memory_order_acquire);
    if (!status && *answer == UNANSWERED) {
        return gpo_fail(&call->error, GPO_ECUDA, "%s() got no answer from its kernel",
                        call->op->name);
    }
    return status;
}

/* ---- the word of calls that do not wait ---- */

static _Atomic(_Atomic uint64_t *) later;  /* NULL until a call needs it */
static _Atomic(const char *) later_caller; /* the operator that used it last */

gpo_status
gpo_cuda_later(gpo_call *call, uint64_t **word)
{
    _Atomic uint64_t *at = atomic_load(&later), *none = NULL;
    if (!at) {
        uint64_t *fresh = NULL;
        const gpo_status status = gpo_cuda_take_slot(call, &fresh);
        if (status) {
            return status;
        }
        at = (_Atomic uint64_t *)fresh;
        atomic_store(at, UINT64_MAX);
        if (!atomic_compare_exchange_strong(&later, &none, at)) {
            gpo_cuda_give_slot(call, fresh); /* another thread was faster */
            at = none;
        }
    }
    atomic_store(&later_caller, call->op->name);
    *word = (uint64_t *)at;
    return GPO_OK;
}

gpo_status
gpo_cuda_check_later(gpo_call *call)
{
    _Atomic uint64_t *const at = atomic_load_explicit(&later, memory_order_acquire);
    if (!at || atomic_load_explicit(at, memory_order_relaxed) == UINT64_MAX) {
        return GPO_OK;
    }
    const uint64_t place = atomic_exchange(at, UINT64_MAX);
    return gpo_fail(&call->error, GPO_EINDEX,
                    "an earlier call of %s() met an index out of bounds, at position "
                    "%llu: the index had been found right and was written to since, by "
                    "something that PyTorch does not see",
                    atomic_load(&later_caller), (unsigned long long)place);
}

#endif
