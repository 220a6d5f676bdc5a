/*
 * cpu.c  The CPU backend: the instruction set in use, the choice of most rooms, read
 * bandwidth, host workspace, its table.
 * See team.c for threads, ops/<room>/cpu.c for kernels.
 */
#define _GNU_SOURCE
#include "backend.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- instruction set ---- */

const char *const gpo_isa_names[GPO_NISA] = {
#ifdef __aarch64__
    [GPO_ISA_BASE] = "aarch64",
#else
    [GPO_ISA_BASE] = "x86-64",
#endif
    [GPO_ISA_V3] = "x86-64-v3",
    [GPO_ISA_V4] = "x86-64-v4",
};

gpo_isa
gpo_cpu_best_isa(void)
{
/* Clang does not support the target pragma, so its build has only the base level. */
#if defined(__x86_64__) && !defined(__clang__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) {
        return GPO_ISA_V4;
    }
    if (__builtin_cpu_supports("x86-64-v3")) {
        return GPO_ISA_V3;
    }
#endif
    return GPO_ISA_BASE;
}

static struct {
    pthread_once_t once;
    gpo_isa isa;
    char error[GPO_MESSAGE]; /* "" if GPUOPT_CPU is unset or its level available */
} level = {.once = PTHREAD_ONCE_INIT};

static void
read_isa(void)
{
    static const char *const short_names[GPO_NISA] = {"baseline", "v3", "v4"};
    const gpo_isa best = gpo_cpu_best_isa();
    const char *forced = getenv("GPUOPT_CPU");
    level.isa = best;
    if (!forced || !*forced) {
        return;
    }
    for (int i = 0; i < GPO_NISA; i++) {
        if (strcmp(forced, gpo_isa_names[i]) != 0 &&
            strcmp(forced, short_names[i]) != 0) {
            continue;
        }
        if (i <= (int)best) {
            level.isa = (gpo_isa)i;
            return;
        }
        snprintf(
            level.error, sizeof level.error,
            "GPUOPT_CPU='%s' is beyond this machine or build; the best here is '%s'",
            forced, gpo_isa_names[best]);
        return;
    }
    snprintf(level.error, sizeof level.error,
             "GPUOPT_CPU='%.100s' is unknown; choose from 'baseline' ('%s'), 'v3' "
             "('x86-64-v3') and 'v4' ('x86-64-v4')",
             forced, gpo_isa_names[GPO_ISA_BASE]);
}

gpo_isa
gpo_cpu_isa(void)
{
    pthread_once(&level.once, read_isa);
    return level.isa;
}

/* ---- the choice of most rooms ---- */

const gpo_variant *
gpo_cpu_choose(const gpo_variant *variants, bool pays, const char *little,
               const char *enough, char why[GPO_MESSAGE])
{
    const bool alone = gpo_cpu_threads() == 1;
    GPO_SAY(why, "%s",
            !pays   ? little
            : alone ? "the thread team has one thread"
                    : enough);
    return &variants[pays && !alone ? GPO_CPU_THREADS : GPO_CPU_SIMD];
}

/* ---- read bandwidth ---- */

enum { READ_CHUNK = 1 << 18 }; /* bytes a task reads: long streams, many tasks */

typedef struct read_job {
    const uint64_t *words;
    int64_t nwords;
    atomic_uint_least64_t sink; /* keeps the compiler from removing the loop */
} read_job;

static void
read_chunk(void *context, int64_t i)
{
    read_job *job = context;
    const int64_t words = READ_CHUNK / (int64_t)sizeof(uint64_t);
    const int64_t first = i * words;
    const int64_t last = first + words < job->nwords ? first + words : job->nwords;
    uint64_t sum = 0;
    for (int64_t k = first; k < last; k++) {
        sum += job->words[k];
    }
    atomic_fetch_add_explicit(&job->sink, sum, memory_order_relaxed);
}

static double
seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool
gpo_cpu_read_bandwidth(size_t bytes, double *gb_per_second)
{
    void *memory = malloc(bytes);
    if (!memory) {
        return false;
    }
    memset(memory, 1, bytes);
    read_job job = {.words = memory, .nwords = (int64_t)(bytes / sizeof(uint64_t))};
    double best = 0;
    for (int pass = 0; pass < 5; pass++) {
        const double start = seconds();
        gpo_cpu_parallel((int64_t)((bytes + READ_CHUNK - 1) / READ_CHUNK), read_chunk,
                         &job);
        const double rate = (double)bytes / (seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    free(memory);
    *gb_per_second = best;
    return true;
}

/* ---- workspace ---- */

enum { ALIGNMENT = 256 }; /* what gpo_scratch promises */

/* A header ALIGNMENT bytes before its workspace; call->scratch is the list. */
typedef struct block {
    struct block *next;
} block;

static gpo_status
scratch(gpo_call *call, size_t bytes, void **out)
{
    block *head = NULL;
    if (bytes <= SIZE_MAX - 2 * (size_t)ALIGNMENT) {
        head = aligned_alloc(ALIGNMENT,
                             (bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    }
    if (!head) {
        gpo_fail(&call->error, GPO_EMEMORY, "cannot allocate %zu bytes of workspace",
                 bytes);
        return GPO_EMEMORY;
    }
    head->next = call->scratch;
    call->scratch = head;
    *out = (char *)head + ALIGNMENT;
    return GPO_OK;
}

static gpo_status
tickets(gpo_call *call, unsigned **out)
{
    const size_t bytes = GPO_TICKETS * sizeof(unsigned) + GPO_PARTIALS;
    void *memory = NULL;
    gpo_status status = scratch(call, bytes, &memory);
    if (!status) {
        *out = memset(memory, 0, bytes);
    }
    return status;
}

/* ---- table ---- */

static const char *
unavailable(void)
{
    gpo_cpu_isa();
    return level.error[0] ? level.error : NULL;
}

static gpo_status
begin(gpo_call *call)
{
    const char *reason = unavailable();
    return reason ? gpo_fail(&call->error, GPO_EVALUE, "%s", reason) : GPO_OK;
}

static void
end(gpo_call *call)
{
    block *head = call->scratch;
    while (head) {
        block *next = head->next;
        free(head);
        head = next;
    }
    call->scratch = NULL;
}

static gpo_status
wait(gpo_call *call)
{
    (void)call;
    return GPO_OK;
}

const gpo_backend gpo_backend_cpu = {
    .name = "cpu",
    .device_memory = false,
    .unavailable = unavailable,
    .begin = begin,
    .end = end,
    .wait = wait,
    .scratch = scratch,
    .tickets = tickets,
};
