/*
 * scheduler.cpp  Runs a launch: schedules threads, completes barriers and warp
 * collectives, checks launch parameters.  Order: state, faults, leaving a thread,
 * barriers and collectives, warps, blocks, launches, control.
 * A thread runs until it waits in a barrier or collective.  Then the next lane of its
 * warp takes over directly; when no lane of the warp is ready, the scheduler checks
 * which barriers and collectives are complete.
 */
#include "hopper_calls.h"
#include "internal.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

namespace gpo_sim {

/* ---- state ---- */

const Position *here;
dim3 block_dim, grid_dim;
gpo_sim_config config = {GPO_SIM_ASCENDING, 1, 0, -1, 0, 0, false, false};
Fibre *current;
__thread bool launching;
uint32_t now;
LaunchState running;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Block blocks[MAX_RESIDENT];
static Fibre *queue[WARP]; /* the ready lanes of the running warp, in order */
static unsigned queue_position, queue_length;
static uint32_t random_state;
static uint32_t intervals; /* barriers since the library was loaded */
static uint64_t waits;     /* iterations of waiting loops since the last progress */
static unsigned busy;      /* calls of is_busy() since the last switch */
static int64_t launches;

enum {
    /* A thread with this many atomic or volatile accesses may be waiting: it yields. */
    BUSY_LIMIT = 4096,
    /* Iterations of waiting loops with no other progress: about a second. */
    WAIT_LIMIT = 1 << 22,
    /* After this many an asynchronous copy completes, which one may be waiting for. */
    PATIENCE = 4096,
    /* In `preempt` one in so many atomics, barriers and collectives yields. */
    PREEMPT_ONE_IN = 3,
};

/* About a minute at the speed of the slowest rung. */
#ifdef GPO_SIM_PROFILE
static const int64_t default_max_threads = (int64_t)1 << 25;
#else
static const int64_t default_max_threads = (int64_t)1 << 28;
#endif

void
lock(void)
{
    pthread_mutex_lock(&mutex);
}

void
unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

/* A linear congruential generator: the same sequence everywhere. */
uint32_t
random_below(uint32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void
set_current(Fibre *fibre)
{
    current = fibre;
    here = fibre ? &fibre->position : NULL;
    busy = 0;
}

bool
must_fail(void)
{
    if (config.fail_after < 0) {
        return false;
    }
    return config.fail_after-- == 0;
}

/* ---- faults ---- */

void
fault(const Fibre *fibre, const Site *site, const char *format, ...)
{
    if (!running.failed) {
        running.failed = true;
        char where[160] = "", line[160] = "", what[GPO_MESSAGE];
        if (fibre) {
            const uint3 b = fibre->position.block, t = fibre->position.thread;
            snprintf(where, sizeof where, ", block (%u, %u, %u), thread (%u, %u, %u)",
                     b.x, b.y, b.z, t.x, t.y, t.z);
        }
        if (site && site->line > 0) {
            snprintf(line, sizeof line, ", %s:%d", short_path(site->file), site->line);
        }
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(what, sizeof what, format, arguments);
        va_end(arguments);
        gpo_fail(&running.call->error, GPO_ESIM, "%s%s%s: %s", running.kernel, where,
                 line, what);
        running.call->error.kernel = running.kernel;
    }
    if (current) {
        Fibre *self = current;
        set_current(NULL);
        fibre_switch(self, NULL); /* never returns: the launch resets every fibre */
    }
}

/* ---- leaving a thread ---- */

/* A stack that has not run for a while is in no near cache, and its page in no TLB. */
static void
prefetch(const Fibre *fibre)
{
    const char *top = (const char *)fibre->stack_pointer;
    __builtin_prefetch(top);
    __builtin_prefetch(top + 64);
    __builtin_prefetch(top + 128);
}

/* Switches to the next lane of the warp, else to the scheduler. */
static void
park(void)
{
    Fibre *self = current;
    Fibre *next = queue_position < queue_length ? queue[queue_position++] : NULL;
    if (queue_position + 1 < queue_length) {
        prefetch(queue[queue_position + 1]);
    }
    set_current(next);
    fibre_switch(self, next);
}

void
fibre_main(void)
{
    fibre_entered();
    for (;;) { /* the next block reuses the stack */
        running.run(running.arguments);
        Warp *warp = current->warp;
        warp->alive &= ~(1u << current->position.lane);
        waits = 0;
        park();
    }
}

void
yield(void)
{
    current->warp->ready |= 1u << current->position.lane;
    park();
}

bool
is_busy(void)
{
    return ++busy > BUSY_LIMIT;
}

void
spin_at(const Site *site)
{
    if (++waits > WAIT_LIMIT) {
        fault(current, site,
              "livelock: the thread waits for a store that never comes (of a block "
              "that has not started, or of a thread that waits itself)");
    }
    yield();
}

void
spin(const char *file, int line)
{
    if (current) {
        const Site site = {file, line};
        spin_at(&site);
    }
}

void
atomic_access(void *address, size_t bytes, bool writes, const char *file, int line)
{
    if (!current) {
        return;
    }
    const Site site = {file, line};
    if (config.schedule == GPO_SIM_PREEMPT && random_below(PREEMPT_ONE_IN) == 0) {
        yield();
    }
    else if (is_busy()) {
        spin_at(&site);
    }
    access_atomic(address, bytes, writes, &site);
}

void
fence(void)
{
    if (current) {
        access_fence();
    }
}

long long
ticks(void)
{
    static long long clock;
    return clock += 1024;
}

/* ---- barriers and collectives: the thread's side ---- */

void
maybe_preempt(void)
{
    if (config.schedule == GPO_SIM_PREEMPT && random_below(PREEMPT_ONE_IN) == 0) {
        yield();
    }
}

int
barrier(Fold fold, int value, const char *file, int line)
{
    Fibre *self = current;
    maybe_preempt();
    self->site = Site{file, line};
    self->fold = fold;
    self->value = value;
    self->warp->at_barrier |= 1u << self->position.lane;
    park();
    return self->value;
}

int
wait_for(Fibre::Waits kind, const void *what, const Site *site)
{
    Fibre *self = current;
    self->site = *site;
    self->waits = kind;
    self->waits_for = what;
    self->warp->waiting |= 1u << self->position.lane;
    park();
    return self->value;
}

void
wake_waiting(Block *block, const void *what, int value)
{
    for (unsigned w = 0; w < block->nwarps; w++) {
        Warp *warp = &block->warps[w];
        for (unsigned left = warp->waiting; left; left &= left - 1) {
            const unsigned lane = (unsigned)__builtin_ctz(left);
            if (warp->lanes[lane].waits_for == what) {
                warp->lanes[lane].value = value;
                warp->waiting &= ~(1u << lane);
                warp->ready |= 1u << lane;
            }
        }
    }
    waits = 0;
}

unsigned
meet(unsigned mask, Exchange kind, const void *in, void *out, size_t bytes, int arg,
     int width, const char *file, int line)
{
    Fibre *self = current;
    maybe_preempt();
    if (!(mask >> self->position.lane & 1u)) {
        const Site site = {file, line};
        fault(self, &site, "lane %u is not in its own mask 0x%08x", self->position.lane,
              mask);
    }
    if (width < 1 || width > WARP || (width & (width - 1)) != 0) {
        const Site site = {file, line};
        fault(self, &site, "width %d is not a power of two up to 32", width);
    }
    /* member by member: a structure copied in wide pieces would wait for its narrow stores */
    Collective *own = &self->collective;
    self->site.file = file;
    self->site.line = line;
    own->mask = mask;
    own->in = in;
    own->out = out;
    own->arg = arg;
    own->bytes = bytes;
    own->width = width;
    own->kind = kind;
    self->warp->collective |= 1u << self->position.lane;
    park();
    return own->met;
}

/* ---- barriers and collectives: the scheduler's side ---- */

static bool
same_site(const Site *a, const Site *b)
{
    return a->line == b->line && (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* The lane a shuffle reads, by the rule of the PTX instruction shfl.sync. */
static unsigned
source_lane(const Collective *m, unsigned lane)
{
    const unsigned base = lane & ~(unsigned)(m->width - 1);
    const unsigned end = base + (unsigned)m->width;
    const unsigned arg = (unsigned)m->arg;
    switch (m->kind) {
        case EXCHANGE_IDX:
            return base + (arg & (unsigned)(m->width - 1));
        case EXCHANGE_UP:
            return lane < base + (arg & 31u) ? lane : lane - (arg & 31u);
        case EXCHANGE_DOWN:
            return lane + (arg & 31u) >= end ? lane : lane + (arg & 31u);
        default: {
            const unsigned source = lane ^ (arg & 31u);
            return source >= end ? lane : source;
        }
    }
}

static void
copy_value(void *to, const void *from, size_t bytes)
{
    switch (bytes) {
        case 4:
            memcpy(to, from, 4);
            break;
        case 8:
            memcpy(to, from, 8);
            break;
        default:
            memcpy(to, from, bytes);
    }
}

/* Completes a collective: gives every lane of `met` its result and makes it ready. */
static void
finish_collective(Warp *warp, unsigned met)
{
    unsigned ballot = 0;
    const Exchange kind = warp->lanes[__builtin_ctz(met)].collective.kind;
    if (kind == EXCHANGE_BALLOT) {
        for (unsigned left = met; left; left &= left - 1) {
            const unsigned lane = (unsigned)__builtin_ctz(left);
            ballot |= (unsigned)(*(const int *)warp->lanes[lane].collective.in != 0)
                      << lane;
        }
    }
    char all[WARP * 8]; /* of a gather; nobody reads those of lanes that take no part */
    const size_t each = warp->lanes[__builtin_ctz(met)].collective.bytes;
    if (kind == EXCHANGE_GATHER) {
        for (unsigned left = met; left; left &= left - 1) {
            const unsigned lane = (unsigned)__builtin_ctz(left);
            copy_value(all + lane * each, warp->lanes[lane].collective.in, each);
        }
    }
    for (unsigned left = met; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        Fibre *self = &warp->lanes[lane];
        Collective *m = &self->collective;
        m->met = met;
        switch (m->kind) {
            case EXCHANGE_SYNC:
            case EXCHANGE_ALIGNED:
                break;
            case EXCHANGE_BALLOT:
                memcpy(m->out, &ballot, sizeof ballot);
                break;
            case EXCHANGE_GATHER:
                memcpy(m->out, all, WARP * each);
                break;
            default: {
                const unsigned from = source_lane(m, lane);
                if (!(met >> from & 1u)) {
                    fault(self, &self->site,
                          "shuffle reads lane %u, which takes no part (mask 0x%08x)",
                          from, m->mask);
                    return;
                }
                copy_value(m->out, warp->lanes[from].collective.in, m->bytes);
            }
        }
    }
    if (kind == EXCHANGE_SYNC) { /* a shuffle does not order memory */
        access_collective(warp, met);
    }
    warp->collective &= ~met;
    warp->ready |= met;
    waits = 0;
}

/* Completes every collective whose lanes have all arrived; false if there was none. */
static bool
release_collectives(Warp *warp)
{
    bool any = false;
    unsigned waiting = warp->collective;
    while (waiting) {
        const Fibre *first = &warp->lanes[__builtin_ctz(waiting)];
        unsigned group = 0;
        for (unsigned left = waiting; left; left &= left - 1) {
            const unsigned lane = (unsigned)__builtin_ctz(left);
            const Fibre *other = &warp->lanes[lane];
            if (other->collective.mask == first->collective.mask &&
                other->collective.kind == first->collective.kind &&
                same_site(&other->site, &first->site)) {
                group |= 1u << lane;
            }
        }
        waiting &= ~group;
        const unsigned needed = first->collective.mask & warp->alive;
        if ((group & needed) == needed) {
            finish_collective(warp, group);
            any = true;
        }
    }
    return any;
}

/* All live threads are at a barrier: checks that it is the same one, then ends it. */
static void
release_barrier(Block *block)
{
    const Fibre *first = NULL;
    int any = 0, all = 1, count = 0;
    for (unsigned w = 0; w < block->nwarps; w++) {
        Warp *warp = &block->warps[w];
        for (unsigned left = warp->at_barrier; left; left &= left - 1) {
            const Fibre *fibre = &warp->lanes[__builtin_ctz(left)];
            if (!first) {
                first = fibre;
            }
            else if (fibre->fold != first->fold ||
                     !same_site(&fibre->site, &first->site)) {
                const uint3 t = first->position.thread;
                fault(fibre, &fibre->site,
                      "barrier divergence: thread (%u, %u, %u) waits at line %d", t.x,
                      t.y, t.z, first->site.line);
                return;
            }
            any |= fibre->value != 0;
            all &= fibre->value != 0;
            count += fibre->value != 0;
        }
    }
    access_barrier(block, &first->site);
    const int result = first->fold == FOLD_OR    ? any
                       : first->fold == FOLD_AND ? all
                                                 : count;
    for (unsigned w = 0; w < block->nwarps; w++) {
        Warp *warp = &block->warps[w];
        for (unsigned left = warp->at_barrier; left; left &= left - 1) {
            warp->lanes[__builtin_ctz(left)].value = result;
        }
        warp->ready |= warp->at_barrier;
        warp->at_barrier = 0;
    }
    block->barrier = ++now;
    block->interval = ++intervals;
    waits = 0;
}

/* No thread can run: reports an mbarrier, or the lanes that a collective waits for. */
static void
report_deadlock(Block *block)
{
    if (async_report_deadlock(block)) {
        return;
    }
    for (unsigned w = 0; w < block->nwarps; w++) {
        Warp *warp = &block->warps[w];
        if (!warp->collective) {
            continue;
        }
        const Fibre *fibre = &warp->lanes[__builtin_ctz(warp->collective)];
        unsigned there = 0, elsewhere = 0;
        for (unsigned left = warp->collective; left; left &= left - 1) {
            const unsigned lane = (unsigned)__builtin_ctz(left);
            const Fibre *other = &warp->lanes[lane];
            const bool same = other->collective.mask == fibre->collective.mask &&
                              same_site(&other->site, &fibre->site);
            (same ? there : elsewhere) |= 1u << lane;
        }
        const unsigned missing = fibre->collective.mask & warp->alive & ~there;
        fault(fibre, &fibre->site,
              "deadlock: the lanes 0x%08x of mask 0x%08x never come; %s", missing,
              fibre->collective.mask,
              missing & warp->at_barrier ? "they wait at a block barrier"
              : missing & elsewhere ? "they wait at another line or with another mask"
                                    : "they are not in this warp's code");
        return;
    }
}

/* ---- warps ---- */

/* Runs every ready lane once, in the order of the schedule. */
static void
run_ready(Warp *warp)
{
    unsigned ready = warp->ready, n = 0;
    warp->ready = 0;
    if (config.schedule == GPO_SIM_DESCENDING) {
        for (; ready; ready &= ~(0x80000000u >> __builtin_clz(ready))) {
            queue[n++] = &warp->lanes[31 - __builtin_clz(ready)];
        }
    }
    else {
        for (; ready; ready &= ready - 1) {
            queue[n++] = &warp->lanes[__builtin_ctz(ready)];
        }
    }
    if (config.schedule == GPO_SIM_SHUFFLE || config.schedule == GPO_SIM_PREEMPT) {
        for (unsigned i = n; i > 1; i--) {
            const unsigned k = random_below(i);
            Fibre *swapped = queue[i - 1];
            queue[i - 1] = queue[k];
            queue[k] = swapped;
        }
    }
    queue_length = n;
    queue_position = 1;
    for (unsigned i = 1; i < 3 && i < n; i++) {
        prefetch(queue[i]);
    }
    set_current(queue[0]);
    fibre_switch(NULL, queue[0]);
    set_current(NULL);
}

/* Runs the warp until its lanes wait or have yielded; returns whether any ran. */
static bool
run_warp(Warp *warp)
{
    bool ran = false;
    /* Let other warps run between two steps of this one. */
    const bool mixes = config.schedule == GPO_SIM_PREEMPT || waits > 0;
    for (;;) {
        if (warp->ready) {
            run_ready(warp);
            ran = true;
        }
        if (running.failed) {
            return ran;
        }
        if (warp->collective && release_collectives(warp)) {
            ran = true;
        }
        if (!warp->ready || running.failed || mixes || waits > 0) {
            return ran;
        }
    }
}

/* ---- blocks ---- */

static void
begin_block(Block *block, uint64_t linear)
{
    const dim3 g = running.grid, b = running.block;
    block->active = true;
    block->linear = linear;
    block->index = uint3{(unsigned)(linear % g.x), (unsigned)(linear / g.x % g.y),
                         (unsigned)(linear / g.x / g.y)};
    block->nthreads = b.x * b.y * b.z;
    block->nwarps = (block->nthreads + WARP - 1) / WARP;
    block->start = block->barrier = ++now;
    block->interval = ++intervals;
    for (unsigned w = 0; w < block->nwarps; w++) {
        Warp *warp = &block->warps[w];
        const unsigned left = block->nthreads - w * WARP;
        const unsigned count = left < WARP ? left : (unsigned)WARP;
        warp->index = w;
        warp->lanes = block->fibres + w * WARP;
        warp->exists = count == WARP ? 0xffffffffu : (1u << count) - 1;
        warp->alive = warp->ready = warp->exists;
        warp->at_barrier = warp->collective = warp->waiting = 0;
    }
    uint3 t = {0, 0, 0};
    for (unsigned i = 0; i < block->nthreads; i++) {
        Fibre *fibre = &block->fibres[i];
        fibre->position.thread = t;
        fibre->position.block = block->index;
        fibre->position.lane = i % WARP;
        fibre->linear = i;
        fibre->block = block;
        fibre->warp = &block->warps[i / WARP];
        if (++t.x == b.x) {
            t.x = 0;
            if (++t.y == b.y) {
                t.y = 0;
                t.z++;
            }
        }
    }
    shared_begin(block);
    async_begin(block);
    access_block_begin(block);
}

/* Copies complete when no thread can go on; in `preempt` sometimes before that. */
static bool
completes_early(const Block *block)
{
    return async_pending(block) &&
           (waits > PATIENCE ||
            (config.schedule == GPO_SIM_PREEMPT && random_below(PREEMPT_ONE_IN) == 0));
}

/* One round over the warps of a block; deactivates the block when it has ended. */
static void
run_block(Block *block)
{
    unsigned order[MAX_WARPS];
    bool ran = false;
    block->stuck = false;
    const unsigned n = block->nwarps;
    for (unsigned i = 0; i < n; i++) {
        order[i] = config.schedule == GPO_SIM_DESCENDING ? n - 1 - i : i;
    }
    if (config.schedule == GPO_SIM_SHUFFLE || config.schedule == GPO_SIM_PREEMPT) {
        for (unsigned i = n; i > 1; i--) {
            const unsigned k = random_below(i);
            const unsigned swapped = order[i - 1];
            order[i - 1] = order[k];
            order[k] = swapped;
        }
    }
    for (unsigned i = 0; i < n && !running.failed; i++) {
        ran |= run_warp(&block->warps[order[i]]);
    }
    if (running.failed) {
        return;
    }
    unsigned moving = 0, at_barrier = 0, alive = 0;
    for (unsigned i = 0; i < n; i++) {
        const Warp *warp = &block->warps[i];
        moving |= warp->ready | warp->collective | warp->waiting;
        at_barrier |= warp->at_barrier;
        alive |= warp->alive;
    }
    if (!alive) {
        async_end(block);
        shared_end(block);
        access_block_end(block);
        block->active = false;
        cluster_block_ends(block);
    }
    else if (!moving && at_barrier) {
        release_barrier(block);
    }
    else if (!ran || completes_early(block)) {
        block->stuck =
            !async_progress(block) && !ran && !cluster_release(block->cluster);
        if (block->stuck && running.cluster == 1) {
            report_deadlock(block);
        }
    }
}

/* ---- launches ---- */

/* The kernel's name without the parentheses that GPO_LAUNCH needs; cached. */
static const char *
clean_name(const char *given)
{
    static struct Name {
        const char *given;
        char *clean;
    } * names;
    static size_t count;
    for (size_t i = 0; i < count; i++) {
        if (names[i].given == given) {
            return names[i].clean;
        }
    }
    Name *grown = (Name *)realloc(names, (count + 1) * sizeof *names);
    char *clean = (char *)malloc(strlen(given) + 1);
    if (!grown || !clean) {
        free(clean);
        names = grown ? grown : names;
        return given;
    }
    const char *kernel = given;
    size_t length = strlen(kernel);
    while (length >= 2 && kernel[0] == '(' && kernel[length - 1] == ')') {
        kernel++;
        length -= 2;
    }
    memcpy(clean, kernel, length);
    clean[length] = 0;
    names = grown;
    names[count].given = given;
    names[count].clean = clean;
    return names[count++].clean;
}

static uint64_t
gcd(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The number of the k-th block to run, of the n blocks from `first` on. */
static uint64_t
block_in_order(uint64_t k, uint64_t n, uint64_t first, uint64_t factor)
{
    switch (config.schedule) {
        case GPO_SIM_DESCENDING:
            return first + n - 1 - k;
        case GPO_SIM_SHUFFLE:
        case GPO_SIM_PREEMPT:
            return first + (uint64_t)((unsigned __int128)k * factor % n + factor) % n;
        default:
            return first + k;
    }
}

static gpo_status
check_configuration(gpo_call *call, dim3 g, dim3 b, size_t shared_bytes)
{
    const uint64_t threads = (uint64_t)b.x * b.y * b.z;
    if (threads == 0 || threads > MAX_THREADS || b.x > 1024 || b.y > 1024 || b.z > 64) {
        return gpo_fail(
            &call->error, GPO_ESIM,
            "%s: invalid launch: a block of (%u, %u, %u) threads; 1 to 1024 "
            "are possible, 64 in z",
            running.kernel, b.x, b.y, b.z);
    }
    if (g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
        return gpo_fail(&call->error, GPO_ESIM,
                        "%s: invalid launch: a grid of (%u, %u, %u) blocks; at most "
                        "(2147483647, 65535, 65535) are possible",
                        running.kernel, g.x, g.y, g.z);
    }
    if (running.cluster < 1 || running.cluster > MAX_RESIDENT ||
        g.x % running.cluster != 0) {
        return gpo_fail(&call->error, GPO_ESIM,
                        "%s: invalid launch: clusters of %u blocks in a grid of %u in "
                        "x; 1 to %d are possible, and no rest",
                        running.kernel, running.cluster, g.x, (int)MAX_RESIDENT);
    }
    if (shared_bytes > SHARED_TOTAL) {
        return gpo_fail(
            &call->error, GPO_ESIM,
            "%s: invalid launch: %zu bytes of dynamic shared memory; %d are "
            "possible",
            running.kernel, shared_bytes, (int)SHARED_TOTAL);
    }
    return GPO_OK;
}

static int
resident_blocks(uint64_t count)
{
    const int cluster = (int)running.cluster;
    int n = config.resident;
    if (n <= 0) {
        n = config.schedule == GPO_SIM_PREEMPT   ? 4
            : config.schedule == GPO_SIM_SHUFFLE ? 2
                                                 : 1;
    }
    n = n > MAX_RESIDENT ? (int)MAX_RESIDENT : n;
    n = n < cluster ? cluster : n / cluster * cluster;
    return (uint64_t)n > count ? (int)count : n;
}

static bool
prepare_blocks(int resident, unsigned nthreads)
{
    for (int i = 0; i < resident; i++) {
        Block *block = &blocks[i];
        if (!block->fibres) {
            block->fibres = (Fibre *)calloc(MAX_THREADS, sizeof(Fibre));
        }
        if (!block->fibres || !fibres_prepare(block->fibres, nthreads) ||
            !shared_prepare(block)) {
            return false;
        }
        block->active = false;
        block->narrays = 0;
        block->shared_used = block->shared_offset = block->static_bytes = 0;
    }
    return true;
}

/* Whether the blocks of a cluster, from `block` on, have all ended. */
static bool
is_free(const Block *block)
{
    bool free = true;
    for (unsigned r = 0; r < running.cluster; r++) {
        free = free && !block[r].active;
    }
    return free;
}

static void
begin_cluster(Block *block, uint64_t number)
{
    block->arrived = 0;
    for (unsigned r = 0; r < running.cluster; r++) {
        block[r].cluster = block;
        block[r].rank = r;
        begin_block(&block[r], number * running.cluster + r);
    }
}

/* Where no block of any cluster can run: the first one says why. */
static void
report_stuck_clusters(int resident)
{
    Block *first = NULL;
    for (int i = 0; i < resident; i++) {
        if (blocks[i].active && !blocks[i].stuck) {
            return;
        }
        first = first || !blocks[i].active ? first : &blocks[i];
    }
    if (first) {
        report_deadlock(first);
    }
}

static void
run_grid(uint64_t first, uint64_t count, int resident)
{
    const unsigned size = running.cluster;
    count /= size;
    first /= size;
    uint64_t factor = count / 2 + random_below((uint32_t)(count < 1000 ? count : 1000));
    while (gcd(factor, count) != 1) {
        factor++;
    }
    const bool backwards = size > 1 && config.schedule == GPO_SIM_DESCENDING;
    uint64_t begun = 0, ended = 0;
    while (ended < count * size && !running.failed) {
        for (int i = 0; i < resident && !running.failed; i++) {
            const int at = backwards ? resident - 1 - i : i;
            Block *block = &blocks[at];
            if (at % (int)size == 0 && begun < count && is_free(block)) {
                begin_cluster(block, block_in_order(begun++, count, first, factor));
            }
            if (block->active) {
                run_block(block);
                ended += !block->active && !running.failed;
            }
        }
        if (size > 1 && !running.failed) {
            report_stuck_clusters(resident);
        }
    }
    if (running.failed) {
        for (int i = 0; i < MAX_RESIDENT; i++) {
            blocks[i].active = false;
            for (unsigned t = 0; blocks[i].fibres && t < MAX_THREADS; t++) {
                if (blocks[i].fibres[t].stack) {
                    fibre_reset(&blocks[i].fibres[t]);
                }
            }
        }
    }
}

static gpo_status
launch_locked(gpo_call *call, void (*run)(const void *), const void *arguments,
              size_t arguments_bytes, dim3 grid, dim3 block, size_t shared_bytes,
              const char *kernel, unsigned cluster)
{
    running = LaunchState();
    running.cluster = cluster;
    running.call = call;
    running.kernel = clean_name(kernel);
    running.run = run;
    running.arguments = (const char *)arguments;
    running.arguments_bytes = arguments_bytes;
    running.dynamic_bytes = shared_bytes;
    running.grid = grid;
    running.block = block;
    gpo_status status = check_configuration(call, grid, block, shared_bytes);
    if (status) {
        return status;
    }
    if (must_fail()) {
        call->error.code = 719; /* cudaErrorLaunchFailure */
        call->error.api = "launch";
        call->error.kernel = running.kernel;
        return gpo_fail(&call->error, GPO_ECUDA, "%s: injected failure of a launch",
                        running.kernel);
    }

    const uint64_t total = (uint64_t)grid.x * grid.y * grid.z;
    const uint64_t first =
        config.first_block > 0 && (uint64_t)config.first_block < total
            ? (uint64_t)config.first_block
            : 0;
    const unsigned nthreads = block.x * block.y * block.z;
    const int64_t most =
        config.max_threads > 0 ? config.max_threads : default_max_threads;
    if (total - first > (uint64_t)most / nthreads) {
        return gpo_fail(&call->error, GPO_ESIM,
                        "%s: %llu blocks of %u threads would take minutes in the "
                        "simulator; give it a smaller input, or set first_block= or "
                        "max_threads= in gpuopt._core._sim_configure()",
                        running.kernel, (unsigned long long)(total - first), nthreads);
    }
    const int resident = resident_blocks(total - first);
    if (!prepare_blocks(resident, nthreads)) {
        return gpo_fail(&call->error, GPO_EMEMORY,
                        "the simulator has no memory for %u threads", nthreads);
    }
    running.partial = first > 0;
    running.start = ++now;
    block_dim = block;
    grid_dim = grid;
    random_state = config.seed;
    waits = 0;
    launches++;
    access_launch_begin();
    launching = true;
    run_grid(first, total - first, resident);
    launching = false;
    memory_after_launch(!running.failed && !running.partial);
    return running.failed ? GPO_ESIM : GPO_OK;
}

gpo_status
launch_clusters(gpo_call *call, void (*run)(const void *), const void *arguments,
                size_t arguments_bytes, dim3 grid, dim3 block, size_t shared_bytes,
                const char *kernel, unsigned cluster)
{
    lock();
    const gpo_status status = launch_locked(call, run, arguments, arguments_bytes, grid,
                                            block, shared_bytes, kernel, cluster);
    unlock();
    return status;
}

gpo_status
launch(gpo_call *call, void (*run)(const void *), const void *arguments,
       size_t arguments_bytes, dim3 grid, dim3 block, size_t shared_bytes,
       const char *kernel)
{
    return launch_clusters(call, run, arguments, arguments_bytes, grid, block,
                           shared_bytes, kernel, 1);
}

/* ---- control ---- */

static void
configure(const gpo_sim_config *wanted)
{
    lock();
    config = *wanted;
    unlock();
}

static void
get_state(gpo_sim_state *state)
{
    lock();
    memory_state(state);
    state->fail_after = config.fail_after;
    state->launches = launches;
    unlock();
}

static void
reset(void)
{
    lock();
    access_reset();
    unlock();
}

static size_t
report(gpo_sim_record *records, size_t capacity)
{
    lock();
    const size_t count = access_report(records, capacity);
    unlock();
    return count;
}

static void
trace(gpo_sim_trace *into)
{
    lock();
    trace_set(into);
    unlock();
}

} // namespace gpo_sim

const gpo_table *gpo_sim_room(const char *op);

extern "C" __attribute__((weak)) gpo_status
gpo_device_copy(gpo_call *call, const gpo_array *from, const gpo_array *to);

extern "C" __attribute__((visibility("default")))
const gpo_sim_library gpo_sim_entry = {
    sizeof(gpo_sim_record),
#ifdef GPO_SIM_PROFILE
    true,
#else
    false,
#endif
    &gpo_sim::backend,
    gpo_sim_room,
    gpo_sim::configure,
    gpo_sim::get_state,
    gpo_sim::reset,
    gpo_sim::report,
    gpo_sim::lock,
    gpo_sim::unlock,
    gpo_device_copy,
    gpo_sim::trace,
};
