/*
 * cpu.c  The CPU backend: host workspace, the instruction set in use, the thread team.
 * Order: instruction set, threads, parallel loop, read bandwidth, workspace, table.
 * Not here: kernels (ops/<room>/cpu.c).
 */
#define _GNU_SOURCE
#include "backend.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
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
/* Clang takes no target pragma, so its build holds the base level alone. */
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
    char error[GPO_MESSAGE]; /* "" if GPUOPT_CPU is unset or can be had */
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

/* ---- threads ---- */

static atomic_int threads_wanted; /* 0: the default */
static int threads_default;
static pthread_once_t threads_once = PTHREAD_ONCE_INIT;

/*
 * A libgomp team does not survive fork: a child that forks off a thread with a team
 * waits for workers it does not have.  Each thread owns its team, and the child keeps
 * only the thread that forked, so it is enough that this thread lets its team go.
 */
static void
release_team(void)
{
    omp_pause_resource_all(omp_pause_soft);
}

static void
read_threads(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    const long n = text ? strtol(text, NULL, 10) : 0;
    cpu_set_t set;
    if (n >= 1 && n <= 1 << 16) {
        threads_default = (int)n;
    }
    else if (sched_getaffinity(0, sizeof set, &set) == 0) {
        threads_default = CPU_COUNT(&set);
    }
    else { /* more than 1024 processors */
        threads_default = omp_get_num_procs();
    }
    pthread_atfork(release_team, NULL, NULL);
}

int
gpo_cpu_threads(void)
{
    pthread_once(&threads_once, read_threads);
    const int n = atomic_load_explicit(&threads_wanted, memory_order_relaxed);
    return n > 0 ? n : threads_default;
}

void
gpo_cpu_set_threads(int n)
{
    atomic_store_explicit(&threads_wanted, n, memory_order_relaxed);
}

/* ---- parallel loop ---- */

void
gpo_cpu_parallel(int64_t count, void (*body)(void *context, int64_t i), void *context)
{
    int64_t threads = gpo_cpu_threads();
    if (threads > count) {
        threads = count;
    }
    if (threads <= 1 || omp_in_parallel()) {
        for (int64_t i = 0; i < count; i++) {
            body(context, i);
        }
        return;
    }
#pragma omp parallel for num_threads((int)threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < count; i++) {
        body(context, i);
    }
}

/* ---- read bandwidth ---- */

enum { READ_CHUNK = 1 << 18 }; /* bytes a task reads: long streams, many tasks */

typedef struct read_job {
    const uint64_t *words;
    int64_t nwords;
    atomic_uint_least64_t sink; /* keeps the loop from being dropped */
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

/* Stands ALIGNMENT bytes before the workspace it heads; call->scratch is the list. */
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
        gpo_fail(call, GPO_EMEMORY, "cannot allocate %zu bytes of workspace", bytes);
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
    return NULL;
}

static gpo_status
begin(gpo_call *call)
{
    gpo_cpu_isa();
    if (level.error[0]) {
        return gpo_fail(call, GPO_EVALUE, "%s", level.error);
    }
    return GPO_OK;
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
