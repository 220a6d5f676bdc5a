/*
 * team.c  The thread pool of the CPU backend: a parallel loop whose tasks the workers
 * share with the caller.  Order: the team, a worker, fork, the number of threads, the
 * loop.
 *
 * The caller takes tasks like the workers, and waits only for workers that have entered
 * the loop: one that wakes late finds the loop closed and costs nothing.  An OpenMP
 * team waits for all its threads: on two cores a call whose tasks need 0.1 ms took 2 to
 * 6 ms once the workers had gone to sleep.
 *
 * Threads of other libraries may occupy the cores: OpenBLAS's and OpenMP's poll for tens
 * of milliseconds after a call.  So the workers keep off the caller's core, and ask the
 * scheduler for short turns: once woken, they interrupt those threads.
 *
 * No thread-local variables: those of a module that was loaded late are allocated when a
 * thread first uses them, and without memory for that glibc ends the process.
 */
#define _GNU_SOURCE
#include "backend.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the team ---- */

/*
 * After a loop a worker polls for POLLING_NS, because loops often follow each other, then
 * takes NAPS of NAP_NS, some 10 ms, and looks for a loop after each: a core sleeps lightly
 * for so short a time.  Nobody wakes it then.  To wake a sleeping thread takes the caller
 * 10 to 30 us on a virtual machine, as long as a small call, and the thread starts 30 to 70 us
 * later.  It does not yield: the spinning thread of another library would run for
 * milliseconds, while a worker that naps runs at once.
 * The caller looks QUIET_LOOKS times, PAUSES words each, before it yields.
 */
enum { PAUSES = 32, LOOKS = 10000, QUIET_LOOKS = 30 };
enum { POLLING_NS = 100000, NAP_NS = 30000, NAPS = 300, SLACK_NS = 1000 };

/* Workers that are kept off the caller's core: a larger team has idle cores. */
enum { STEERED = 8 };

enum {
    TURN_NS = 100000
}; /* of a worker, if others want its core: the least there is */

/*
 * A contiguous range of tasks for one thread, which thus reads memory sequentially;
 * tasks from a common queue would jump.  At the end of its share a thread takes from
 * the others.
 */
enum { MOST_SHARES = 64 };

typedef struct share {
    _Alignas(64) atomic_int_least64_t next; /* its own cache line: no false sharing */
    int64_t end;
} share;

typedef struct loop {
    void (*body)(void *context, int64_t i, void *memory);
    void *context;
    char *memory; /* `bytes` for each thread */
    size_t bytes;
    int shares;
    share share[MOST_SHARES];
} loop;

typedef struct workforce {
    pthread_mutex_t caller; /* held by the thread whose loop runs */
    pthread_mutex_t lock;   /* of all below; the atomics may be read without it */
    pthread_cond_t posted, left;
    loop *loop;        /* NULL: no loop is open */
    int wanted;        /* workers that may still enter it */
    int asleep;        /* workers that wait to be woken */
    atomic_int inside; /* workers inside it */
    atomic_uint calls; /* loops posted so far */
    int workers;
    pid_t steered[STEERED]; /* the first workers that have started */
    int started;
    int apart; /* the core they are kept off; -1: none yet */
} workforce;

#define NEW_WORKFORCE                                                           \
    {                                                                           \
        .caller = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, \
        .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER,   \
        .apart = -1                                                             \
    }

static workforce team = NEW_WORKFORCE;

static void
pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool
has_posted(unsigned seen)
{
    return atomic_load_explicit(&team.calls, memory_order_relaxed) != seen;
}

static bool
all_left(void)
{
    return atomic_load_explicit(&team.inside, memory_order_relaxed) == 0;
}

static int64_t
nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Polls until a loop is posted, or for POLLING_NS. */
static void
poll_briefly(unsigned seen)
{
    const int64_t end = nanoseconds(CLOCK_MONOTONIC) + POLLING_NS;
    while (!has_posted(seen) && nanoseconds(CLOCK_MONOTONIC) < end) {
        for (int n = 0; n < PAUSES && !has_posted(seen); n++) {
            pause_briefly();
        }
    }
}

/* Naps until a loop is posted, NAPS times at most. */
static void
nap(unsigned seen)
{
    const struct timespec time = {.tv_nsec = NAP_NS};
    for (int k = 0; k < NAPS && !has_posted(seen); k++) {
        nanosleep(&time, NULL);
    }
}

static void
divide(loop *l, int64_t count, int threads)
{
    l->shares = threads < MOST_SHARES ? threads : MOST_SHARES;
    const int64_t each = count / l->shares, more = count % l->shares;
    int64_t at = 0;
    for (int k = 0; k < l->shares; k++) {
        atomic_init(&l->share[k].next, at);
        at += each + (k < more);
        l->share[k].end = at;
    }
}

/* Runs the tasks of share `own`, then the remaining tasks of the others. */
static void
take_tasks(loop *l, int own)
{
    void *memory = l->memory + (size_t)own * l->bytes;
    for (int k = 0; k < l->shares; k++) {
        share *s = &l->share[(own + k) % l->shares];
        for (;;) {
            const int64_t i =
                atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
            if (i >= s->end) {
                break;
            }
            l->body(l->context, i, memory);
        }
    }
}

/* ---- a worker ---- */

/* Waits, with the lock released, until there is a loop to enter. */
static void
await_loop(void)
{
    while (!team.loop || team.wanted == 0) {
        const unsigned seen = atomic_load(&team.calls);
        pthread_mutex_unlock(&team.lock);
        poll_briefly(seen);
        nap(seen);
        pthread_mutex_lock(&team.lock);
        if (!has_posted(seen)) {
            team.asleep++;
            pthread_cond_wait(&team.posted, &team.lock);
            team.asleep--;
        }
    }
}

/* Linux since 6.12 lets a thread with short turns interrupt those with longer ones. */
static void
ask_for_short_turns(void)
{
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 &&
        attributes.policy == SCHED_OTHER) {
        attributes.runtime = TURN_NS;
        syscall(SYS_sched_setattr, 0, &attributes, 0);
    }
#endif
}

/* Keeps a thread off a core, if `set`, where it may run, has others. */
static void
keep_off(pid_t thread, int core, cpu_set_t set)
{
    CPU_CLR((size_t)core, &set);
    if (CPU_COUNT(&set) > 0) {
        sched_setaffinity(thread, sizeof set, &set);
    }
}

/*
 * Keeps the workers off the core of the caller, if they are few; the lock is held.  The
 * scheduler likes to wake a worker on the core of the thread that wakes it, where the two
 * take turns.
 */
static void
steer(void)
{
    const int core = sched_getcpu();
    cpu_set_t set;
    if (core == team.apart || core < 0 || core >= CPU_SETSIZE ||
        team.workers > STEERED || sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    for (int k = 0; k < team.started; k++) {
        keep_off(team.steered[k], core, set);
    }
    team.apart = core;
}

/* Puts a worker that has just started among them; it may run where its creator may. */
static void
join(void)
{
    cpu_set_t set;
    if (team.started < STEERED) {
        team.steered[team.started++] = (pid_t)syscall(SYS_gettid);
    }
    if (team.apart >= 0 && team.workers <= STEERED &&
        sched_getaffinity(0, sizeof set, &set) == 0) {
        keep_off(0, team.apart, set);
    }
}

static void *
work(void *unused)
{
    (void)unused;
    ask_for_short_turns();
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&team.lock);
    join();
    for (;;) {
        await_loop();
        loop *l = team.loop;
        const int own = team.wanted--; /* the caller has share 0 */
        atomic_fetch_add(&team.inside, 1);
        pthread_mutex_unlock(&team.lock);
        take_tasks(l, own);
        pthread_mutex_lock(&team.lock);
        if (atomic_fetch_sub(&team.inside, 1) == 1) {
            pthread_cond_signal(&team.left);
        }
    }
    return NULL;
}

/* Creates workers up to `wanted`, or as many as it can; the lock is held. */
static void
hire(int wanted)
{
    sigset_t handled, old;
    pthread_attr_t attributes;
    if (team.workers >= wanted || pthread_attr_init(&attributes) != 0) {
        return;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&handled); /* blocks signals, except those of faults, in the workers */
    sigdelset(&handled, SIGSEGV);
    sigdelset(&handled, SIGBUS);
    sigdelset(&handled, SIGFPE);
    sigdelset(&handled, SIGILL);
    pthread_sigmask(SIG_SETMASK, &handled, &old);
    pthread_t thread;
    while (team.workers < wanted &&
           pthread_create(&thread, &attributes, work, NULL) == 0) {
        team.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
}

/* ---- fork: the child has only the thread that forked, no workers ---- */

static void
start_anew(void)
{
    team = (workforce)NEW_WORKFORCE;
}

/* ---- the number of threads ---- */

static atomic_int threads_wanted; /* 0: the default */
static int threads_default;
static pthread_once_t threads_once = PTHREAD_ONCE_INIT;

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
        threads_default = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    pthread_atfork(NULL, NULL, start_anew);
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

/* ---- the loop ---- */

static void
post(loop *l, int helpers)
{
    pthread_mutex_lock(&team.lock);
    hire(helpers);
    steer();
    team.loop = l;
    team.wanted = helpers;
    atomic_fetch_add(&team.calls, 1);
    for (int k = 0; k < helpers && k < team.asleep; k++) {
        pthread_cond_signal(&team.posted);
    }
    pthread_mutex_unlock(&team.lock);
}

/* Closes the loop; returns when no worker is inside. */
static void
finish(void)
{
    pthread_mutex_lock(&team.lock);
    team.loop = NULL;
    pthread_mutex_unlock(&team.lock);
    for (int k = 0; k < LOOKS && !all_left(); k++) {
        for (int n = 0; n < PAUSES && !all_left(); n++) {
            pause_briefly();
        }
        if (k >= QUIET_LOOKS) {
            sched_yield(); /* a worker may be waiting for this core */
        }
    }
    pthread_mutex_lock(&team.lock); /* makes the workers' writes visible */
    while (atomic_load(&team.inside) > 0) {
        pthread_cond_wait(&team.left, &team.lock);
    }
    pthread_mutex_unlock(&team.lock);
}

/*
 * Runs the tasks on the team; false if it is busy with another caller's loop, or with that
 * of a task which calls this: a nested loop runs on its own thread alone.
 */
static bool
run_on_team(int64_t count, int threads, char *memory, size_t bytes,
            void (*body)(void *context, int64_t i, void *memory), void *context)
{
    if (pthread_mutex_trylock(&team.caller) != 0) {
        return false;
    }
    loop l;
    l.body = body;
    l.context = context;
    l.memory = memory;
    l.bytes = bytes;
    divide(&l, count, threads);
    post(&l, threads - 1);
    take_tasks(&l, 0);
    finish();
    pthread_mutex_unlock(&team.caller);
    return true;
}

/* The number of threads for `count` tasks. */
static int
threads_for(bool parallel, int64_t count)
{
    const int threads = parallel ? gpo_cpu_threads() : 1;
    return count < threads ? (int)count : threads;
}

gpo_status
gpo_cpu_work(gpo_call *call, bool parallel, int64_t count, size_t bytes,
             void (*body)(void *context, int64_t i, void *memory), void *context)
{
    /* A small call uses the stack: malloc would take a quarter of its time. */
    enum { LINES = 256, NEAR_BYTES = 13 << 10 };
    _Alignas(64) char near[NEAR_BYTES];
    const int threads = threads_for(parallel, count);
    const size_t each = (bytes + LINES - 1) / LINES * LINES;
    void *memory = near;
    if (bytes > 0 && (threads > 1 || bytes > sizeof near)) {
        const gpo_status status = gpo_scratch(call, (size_t)threads * each, &memory);
        if (status) {
            return status;
        }
    }
    if (threads <= 1 || !run_on_team(count, threads, memory, each, body, context)) {
        for (int64_t i = 0; i < count; i++) {
            body(context, i, memory);
        }
    }
    return GPO_OK;
}

/* A body that needs no memory. */
typedef struct plain_body {
    void (*body)(void *context, int64_t i);
    void *context;
} plain_body;

static void
run_plain(void *context, int64_t i, void *memory)
{
    const plain_body *plain = context;
    (void)memory;
    plain->body(plain->context, i);
}

void
gpo_cpu_loop(bool parallel, int64_t count, void (*body)(void *context, int64_t i),
             void *context)
{
    const int threads = threads_for(parallel, count);
    if (threads > 1) {
        plain_body plain = {body, context};
        char nothing;
        if (run_on_team(count, threads, &nothing, 0, run_plain, &plain)) {
            return;
        }
    }
    for (int64_t i = 0; i < count; i++) {
        body(context, i);
    }
}

void
gpo_cpu_parallel(int64_t count, void (*body)(void *context, int64_t i), void *context)
{
    gpo_cpu_loop(true, count, body, context);
}
