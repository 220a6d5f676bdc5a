/*
 * internal.h  Declarations shared by the files of the simulator.  Order: threads, warps
 * and blocks (scheduler.cpp), faults, fibres (fibre.cpp), memory (memory.cpp), checks
 * and counts (access.cpp), traces (trace.cpp), asynchronous copies (copies.cpp), source
 * lines (lines.cpp).
 * One launch runs at a time, under one lock; the state is global to the process.
 */
#ifndef GPO_SIM_INTERNAL_H
#define GPO_SIM_INTERNAL_H

#include "cuda_sim.h"
#include "library.h"

#if defined(__SANITIZE_ADDRESS__)
#define GPO_SIM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GPO_SIM_ASAN 1
#endif
#endif

namespace gpo_sim {

enum {
    WARP = 32,
    MAX_THREADS = 1024,
    FENCES = 16, /* kept of a thread, which may be that far ahead of others */
    MAX_WARPS = MAX_THREADS / WARP,
    MAX_RESIDENT = 8,
    MAX_ARRAYS = 64,    /* shared arrays of one kernel */
    SHARED_GUARD = 128, /* bytes between two shared arrays */
    SHARED_STATIC = 48 * 1024,
    SHARED_TOTAL = 227 * 1024, /* per block, compute capability 9.0 */
    SHARED_ALIGNMENT = 1024,   /* of the dynamic array */
    SHARED_ROOM = SHARED_TOTAL + 2 * MAX_ARRAYS * SHARED_GUARD + SHARED_ALIGNMENT,
};

struct Site {
    const char *file;
    int line;
};

/* A warp-collective operation that a lane waits in. */
struct Collective {
    Exchange kind;
    unsigned mask, met; /* the lanes it names, the lanes that took part */
    const void *in;
    void *out;
    size_t bytes;
    int arg, width;
};

struct Occurrence {
    uint32_t interval, count;
};

struct Warp;
struct Block;
struct Async; /* async.h */
struct Accumulator;

struct Fibre {
    Position position; /* first: `here` points at it */
    unsigned linear;   /* thread number in the block */
    Warp *warp;
    Block *block;
    void *stack_pointer;
    char *stack;
    void *fake_stack; /* ASan's */
    Site site;        /* where it waits */
    int value;        /* the predicate it passes to a barrier, then the result */
    Fold fold;
    Collective collective;
    uint32_t fence,
        fence_barrier;       /* times of its last fence and the barrier before that */
    Occurrence *occurrences; /* by site: executions since the last barrier */
    size_t noccurrences;
    uint32_t request,
        request_interval;  /* its last one; the number if the interval is */
    const void *waits_for; /* an mbarrier, named barrier or cluster */
    enum Waits { FOR_MBARRIER, FOR_NAMED_BARRIER, FOR_CLUSTER } waits;
    uint32_t proxy_fence, earlier_proxy_fence; /* times; a barrier lies between them */
    uint32_t proxy_fences[FENCES]; /* the last ones, number n at n % FENCES */
    unsigned nproxy_fences;
    Accumulator *accumulators; /* of wgmma in flight, see async.h */
    unsigned naccumulators;
};

struct Request {
    uint32_t site;
    uint32_t mask;
    int32_t after; /* as in gpo_sim_request */
    uint8_t bytes;
    uint8_t kind;
    bool write;
    uintptr_t address[WARP];
};

/* The requests of one warp since the last barrier, keyed by site and occurrence. */
struct RequestTable {
    Request *requests;
    size_t count, capacity;
    struct Slot {
        uint64_t key;
        uint32_t interval, index;
    } * slots;
    size_t nslots;
};

struct Warp {
    /* One bit per lane, set in at most one of ready, at_barrier, collective, waiting. */
    unsigned exists, alive, ready, at_barrier, collective, waiting;
    unsigned index;
    Fibre *lanes;
    uint32_t seen[WARP][WARP]; /* [b][a]: lane b comes after what a did before it */
    RequestTable table;
};

struct SharedArray {
    const void *key; /* NULL: the dynamic array */
    char *data;
    size_t bytes;
    size_t offset; /* on the device, where arrays have no gaps between them */
};

struct Block {
    bool active;
    uint3 index;
    uint64_t linear;
    unsigned nthreads, nwarps;
    Warp warps[MAX_WARPS];
    Fibre *fibres; /* MAX_THREADS */
    char *shared;  /* SHARED_TOTAL bytes plus the gaps */
    size_t shared_used, shared_offset, static_bytes;
    SharedArray arrays[MAX_ARRAYS];
    int narrays;
    uint32_t start;    /* the time it began */
    uint32_t barrier;  /* time of its last barrier: everything before is ordered */
    uint32_t interval; /* number of its last barrier, unique in the process */
    uint32_t fences;   /* the number of fences its threads have executed */
    uint32_t acquired; /* its acquires, a list in access.cpp; 0: none */
    uint64_t pieces;   /* of code that its warps have executed */
    void *cells;       /* the cells of its shared memory, see cells.h */
    uint32_t *readers; /* when each warp last read them, see access.cpp */
    Async *async;      /* its mbarriers and what is in flight, NULL until needed */
    Block *cluster;    /* the first block of its cluster, with the others after it */
    unsigned rank;     /* in the cluster */
    unsigned arrived;  /* first block: threads of the cluster that wait in it */
    bool stuck;        /* none of its threads could run */
};

/* ---- scheduler.cpp ---- */

extern gpo_sim_config config;
extern Fibre *current; /* NULL outside of a kernel */

/* Whether this host thread runs the launch: instrumented code runs in others, too. */
extern __thread bool launching __attribute__((tls_model("initial-exec")));

extern uint32_t now; /* logical time: counts barriers, warp collectives and fences */

struct LaunchState {
    gpo_call *call;
    const char *kernel;
    void (*run)(const void *);
    const char *arguments;
    size_t arguments_bytes;
    size_t dynamic_bytes;
    dim3 grid, block;
    unsigned cluster; /* blocks of a cluster */
    bool failed;
    bool partial;   /* the settings skip blocks */
    uint32_t start; /* the time it began: everything before is ordered */
};
extern LaunchState running;

uint32_t random_below(uint32_t n);

/* In the schedule `preempt` sometimes lets other threads run. */
void maybe_preempt(void);

/* Stops the running thread until wake_waiting(block, what, value); returns `value`. */
int wait_for(Fibre::Waits waits, const void *what, const Site *site);
void wake_waiting(Block *block, const void *what, int value);

/* Lets other threads run; this one stays ready. */
void yield(void);

/* Whether the running thread has called this very often since it was scheduled. */
bool is_busy(void);

/* Called in each iteration of a loop that waits for a store of another thread. */
void spin_at(const Site *site);

void lock(void);
void unlock(void);

/*
 * Reports a fault of the launch; the first one becomes the call's error message, which
 * names `fibre` (NULL: no particular thread) and `site` (NULL: unknown).  Called by the
 * running thread it does not return: the kernel is aborted.
 */
__attribute__((format(printf, 3, 4))) void fault(const Fibre *fibre, const Site *site,
                                                 const char *format, ...);

/* Counts down the setting fail_after; true where the failure is injected. */
bool must_fail(void);

/* ---- fibre.cpp ---- */

/* Allocates stacks for `count` fibres where they have none; false: no memory. */
bool fibres_prepare(Fibre *fibres, unsigned count);

/* Resets the fibre: the next switch to it starts `fibre_main`. */
void fibre_reset(Fibre *fibre);

void fibre_switch(Fibre *from, Fibre *to); /* NULL is the scheduler */
void fibre_entered(void);                  /* to be called first on a fresh stack */
void fibre_main(void);                     /* scheduler.cpp */

extern const size_t fibre_stack_bytes;

/* ---- memory.cpp ---- */

struct Allocation {
    char *data;
    size_t bytes;
    size_t mapped;      /* if it is sparse, bytes of its own mapping; else 0 */
    uint8_t *unwritten; /* instrumented build: a bit per byte, set until written */
    void *cells;        /* instrumented build: see access.cpp */
    size_t cells_bytes; /* bytes of their mapping */
    int granule;        /* bytes per cell */
};

extern const gpo_backend backend;

/* Whether nothing has written any byte of the range. */
bool none_written(const Allocation *allocation, const void *from, size_t bytes);

/* The allocation that holds `address`, else NULL. */
Allocation *allocation_of(const void *address);

void allocation_written(Allocation *allocation, const void *from, size_t bytes);

/* Describes in words where an address outside of every allocation is. */
void describe_address(uintptr_t address, char *text, size_t size);

bool shared_prepare(Block *block);
void shared_begin(Block *block);
void shared_end(Block *block); /* checks the gaps */
void memory_after_launch(bool complete);
void memory_state(gpo_sim_state *state);

/* ---- copies.cpp, wgmma.cpp: what happens asynchronously ---- */

void async_begin(Block *block);
void async_end(Block *block); /* checks that nothing is in flight */
bool async_pending(const Block *block);

/* Completes one copy that somebody may be waiting for; false if there is none. */
bool async_progress(Block *block);

/* Reports what a thread waits for besides collectives; false if none does. */
bool async_report_deadlock(Block *block);

/* Reports an access of an accumulator or operand in flight, or of an mbarrier. */
void async_check_private(Fibre *self, uintptr_t address, size_t bytes, bool write,
                         uintptr_t pc);
void async_check_shared(Fibre *self, uintptr_t address, size_t bytes, const Site *site);

/* ---- cluster.cpp ---- */

void cluster_block_ends(Block *block);
bool cluster_release(Block *first);

/* ---- access.cpp; without instrumentation these do nothing ---- */

void access_launch_begin(void);
void access_block_begin(Block *block);
void access_barrier(Block *block, const Site *site); /* all threads have arrived */
void access_collective(Warp *warp, unsigned met);
void access_block_end(Block *block);
void access_release_cells(Allocation *allocation);
void access_atomic(void *address, size_t bytes, bool writes, const Site *site);
void access_fence(void);
void access_plain(const void *address, size_t bytes, bool write, const Site *site);

/*
 * Counts what an asynchronous copy moves from or to global memory: one of a lane's 16
 * bytes, or a contiguous piece of a bulk copy, whose first piece counts as a request.
 */
void access_copy(const void *global, size_t bytes, bool is_first, const Site *site);
void access_copy_16(const void *global, const Site *site);
size_t access_report(gpo_sim_record *records, size_t capacity);
void access_reset(void);

/* ---- trace.cpp: the requests one by one ---- */

extern gpo_sim_trace *tracing; /* NULL: nobody asks */
void trace_set(gpo_sim_trace *into);
void trace_launch(void);
void trace_request(const Warp *warp, const Request *request, const Site *site);
void trace_block(const Block *block);

/* ---- lines.cpp ---- */

/* The source line of an instruction of this library; file "" and 0 if unknown. */
Site line_of(uintptr_t pc);

/* A compiler's path as "ops/reduce/cuda.cu"; valid until the next call. */
const char *short_path(const char *path);

} // namespace gpo_sim

#endif
