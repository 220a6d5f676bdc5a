/*
 * internal.h  What the files of the simulator share.  Order: threads, warps and blocks
 * (scheduler.cpp), faults, fibres (fibre.cpp), memory (memory.cpp), checks and counts
 * (access.cpp), source lines (lines.cpp).
 * One launch runs at a time, under one lock: this state is the process's.
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
    MAX_WARPS = MAX_THREADS / WARP,
    MAX_RESIDENT = 8,
    MAX_ARRAYS = 64,    /* shared arrays of one kernel */
    SHARED_GUARD = 128, /* bytes between two shared arrays */
    SHARED_STATIC = 48 * 1024,
    SHARED_TOTAL = 227 * 1024, /* per block, compute capability 9.0 */
    SHARED_ROOM = SHARED_TOTAL + 2 * MAX_ARRAYS * SHARED_GUARD,
};

struct Site {
    const char *file;
    int line;
};

struct Meeting {
    Exchange kind;
    unsigned mask, met;
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

struct Fibre {
    Position position; /* first: `here` points at it */
    unsigned linear;   /* thread number in the block */
    Warp *warp;
    Block *block;
    void *stack_pointer;
    char *stack;
    void *fake_stack; /* ASan's */
    Site site;        /* where it waits */
    int value;        /* the predicate it brings to a barrier, then the result */
    Fold fold;
    Meeting meeting;
    uint32_t fence,
        fence_barrier;       /* time of its last fence, of the barrier before it */
    Occurrence *occurrences; /* by site: how often since the last barrier */
    size_t noccurrences;
};

struct Request {
    uint32_t site;
    uint32_t mask;
    uint8_t bytes;
    uint8_t kind;
    uintptr_t address[WARP];
};

/* Requests of one warp since the last barrier, found by site and occurrence. */
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
    /* One bit per lane; a lane is in at most one of ready, at_barrier and meeting. */
    unsigned exists, alive, ready, at_barrier, meeting;
    unsigned index;
    Fibre *lanes;
    uint32_t seen[WARP][WARP]; /* seen[b][a]: what lane a did before this, b follows */
    RequestTable table;
};

struct SharedArray {
    const void *key; /* NULL: the dynamic array */
    char *data;
    size_t bytes;
    size_t offset; /* on the device, where arrays lie without gaps */
};

struct Block {
    bool active;
    uint3 index;
    uint64_t linear;
    unsigned nthreads, nwarps;
    Warp warps[MAX_WARPS];
    Fibre *fibres; /* MAX_THREADS */
    char *shared;  /* SHARED_TOTAL bytes and the gaps */
    size_t shared_used, shared_offset, static_bytes;
    SharedArray arrays[MAX_ARRAYS];
    int narrays;
    uint32_t start;    /* the time it began, */
    uint32_t barrier;  /* of its last barrier: what was before is ordered */
    uint32_t interval; /* number of its last barrier, unique in the process */
    uint32_t fences;   /* how many its threads have made */
    uint32_t acquired; /* its acquires, a list in access.cpp; 0: none */
    void *cells;       /* of its shared memory, see access.cpp */
};

/* ---- scheduler.cpp ---- */

extern gpo_sim_config config;
extern Fibre *current; /* NULL outside of a kernel */

/* Whether this system thread runs the launch: others' host code is instrumented too. */
extern __thread bool launching __attribute__((tls_model("initial-exec")));

extern uint32_t now; /* counts barriers, meetings and fences */

struct LaunchState {
    gpo_call *call;
    const char *kernel;
    void (*run)(const void *);
    const char *arguments;
    size_t arguments_bytes;
    size_t dynamic_bytes;
    dim3 grid, block;
    bool failed;
    bool partial;   /* the settings leave out blocks */
    uint32_t start; /* the time it began: what is older is ordered */
};
extern LaunchState running;

uint32_t random_below(uint32_t n);

/* Lets others run; the thread stays ready. */
void yield(void);

/* Whether the running thread has asked this very often since it got its turn. */
bool is_busy(void);

/* A loop that waits for a store of another thread came round once more. */
void spin_at(const Site *site);

void lock(void);
void unlock(void);

/*
 * A fault of the launch: the first one becomes the sentence of the call.  `fibre`
 * (NULL: no thread is to blame) and `site` (NULL: unknown) are named in it.  Called by
 * the running thread it does not return: the kernel is left for good.
 */
__attribute__((format(printf, 3, 4))) void fault(const Fibre *fibre, const Site *site,
                                                 const char *format, ...);

/* Whether the next injectable point must fail, by the settings. */
bool must_fail(void);

/* ---- fibre.cpp ---- */

/* Stacks for `count` fibres from `fibres` on, made once; false: no memory. */
bool fibres_prepare(Fibre *fibres, unsigned count);

/* Forgets what the fibre was doing: the next switch to it starts `fibre_main`. */
void fibre_reset(Fibre *fibre);

void fibre_switch(Fibre *from, Fibre *to); /* NULL is the scheduler */
void fibre_entered(void);                  /* first thing on a fresh stack */
void fibre_main(void);                     /* scheduler.cpp */

extern const size_t fibre_stack_bytes;

/* ---- memory.cpp ---- */

struct Allocation {
    char *data;
    size_t bytes;
    size_t mapped;      /* bytes of its own mapping if sparse, else 0 */
    uint8_t *unwritten; /* instrumented build: a bit per byte, set until written */
    void *cells;        /* instrumented build: see access.cpp */
    size_t cells_bytes; /* of the mapping */
    int granule;        /* bytes per cell */
};

extern const gpo_backend backend;

/* Whether nothing has written any byte of the range. */
bool none_written(const Allocation *allocation, const void *from, size_t bytes);

/* The allocation that holds `address`, else NULL. */
Allocation *allocation_of(const void *address);

void allocation_written(Allocation *allocation, const void *from, size_t bytes);

/* Words for where an address outside of every allocation lies. */
void describe_address(uintptr_t address, char *text, size_t size);

bool shared_prepare(Block *block);
void shared_begin(Block *block);
void shared_end(Block *block); /* checks the gaps */
void memory_after_launch(bool complete);
void memory_state(gpo_sim_state *state);

/* ---- access.cpp; without instrumentation these do nothing ---- */

void access_launch_begin(void);
void access_block_begin(Block *block);
void access_barrier(Block *block, const Site *site); /* all threads have met */
void access_meeting(Warp *warp, unsigned met);
void access_block_end(Block *block);
void access_release_cells(Allocation *allocation);
void access_atomic(void *address, size_t bytes, bool writes, const Site *site);
void access_fence(void);
size_t access_report(gpo_sim_record *records, size_t capacity);
void access_reset(void);

/* ---- lines.cpp ---- */

/* The source line of an instruction of this library; file "" and 0 if unknown. */
Site line_of(uintptr_t pc);

/* "ops/reduce/cuda.cu" of a path as the compiler knows it; good until the next call. */
const char *short_path(const char *path);

} // namespace gpo_sim

#endif
