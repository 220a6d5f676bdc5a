/*
 * library.h  The interface of a simulator library: the one symbol it exports, and the
 * plain C structures it exchanges.  Order: settings, state, report, trace, the library.
 */
#ifndef GPO_SIM_LIBRARY_H
#define GPO_SIM_LIBRARY_H

#include "../backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which the threads, warps and blocks of a launch run. */
typedef enum gpo_sim_schedule {
    GPO_SIM_ASCENDING,
    GPO_SIM_DESCENDING,
    GPO_SIM_SHUFFLE,  /* a new seeded order at every step */
    GPO_SIM_PREEMPT,  /* shuffle, and threads also stop between their accesses */
    GPO_SIM_LOCKSTEP, /* a warp goes from volatile access to volatile access together */
    GPO_SIM_NSCHEDULES
} gpo_sim_schedule;

typedef struct gpo_sim_config {
    int schedule;
    uint32_t seed;
    int64_t first_block; /* blocks before it are skipped in every larger grid */
    int64_t fail_after;  /* this many uploads, allocations... succeed; -1: all */
    int64_t max_threads; /* the most threads of a launch; 0: the build's own limit */
    int resident;        /* blocks that run at once; 0: the schedule's own number */
    bool checks;         /* accesses are checked; only in the instrumented build */
    bool profile;        /* accesses and races are counted; only in that build */
} gpo_sim_config;

typedef struct gpo_sim_state {
    int64_t fail_after;  /* the rest of the count; -1 also after the failure */
    int64_t allocations; /* live device allocations, and their size */
    int64_t bytes;
    int64_t launches; /* since the library was loaded */
} gpo_sim_state;

/* The counts of one source line of one kernel, summed over its launches. */
typedef struct gpo_sim_record {
    const char *kernel;
    char file[96]; /* "ops/reduce/cuda.cu"; "" if the line is unknown */
    int line;
    uint64_t launches, blocks, threads; /* of the kernel */
    uint64_t shared_requests, shared_wavefronts, shared_ideal;
    uint64_t global_requests, global_sectors, global_ideal;
    uint64_t atomic_requests, atomic_serialised;
    uint64_t code_blocks, code_divergent, code_lanes, code_lanes_full;
    uint64_t barriers, races;
} gpo_sim_record;

/* What a request of a warp is: gpuopt/lab/trace.py has the same numbers. */
typedef enum gpo_sim_kind {
    GPO_SIM_SHARED,
    GPO_SIM_GLOBAL,
    GPO_SIM_SHARED_ATOMIC,
    GPO_SIM_GLOBAL_ATOMIC,
    GPO_SIM_CODE /* a piece of code without branches, executed once */
} gpo_sim_kind;

/* One request: what the lanes of a warp access, or execute, together. */
typedef struct gpo_sim_request {
    char kernel[64];
    char file[96]; /* as in gpo_sim_record */
    int32_t line;
    int32_t launch;    /* since the trace began, from 0 */
    int64_t block;     /* its number in the grid */
    int32_t warp;      /* its number in the block */
    uint32_t interval; /* which barrier it follows; no other block has the number */
    int32_t after; /* the request of this warp and interval, by number, that the first
                      lane of this one made before; -1: none */
    uint32_t exists, mask; /* the lanes of the warp, and those that take part */
    uint8_t kind, bytes, write, unused;
    uint64_t address[32]; /* by lane; in shared memory from the first array */
} gpo_sim_request;

/* One block of a launch, when it has ended. */
typedef struct gpo_sim_block {
    char kernel[64];
    int32_t launch;
    uint32_t grid[3], threads[3];
    uint64_t block, shared_bytes;
    uint64_t pieces; /* of code that its warps have executed */
} gpo_sim_block;

/* Where a trace is written: the caller's memory.  The counts go on when it is full. */
typedef struct gpo_sim_trace {
    int64_t first_block, end_block; /* the blocks whose requests are kept */
    gpo_sim_request *requests;
    size_t request_capacity, nrequests;
    gpo_sim_block *blocks;
    size_t block_capacity, nblocks;
} gpo_sim_trace;

typedef struct gpo_sim_library {
    size_t
        record_bytes; /* sizeof(gpo_sim_record), to detect a library of another build */
    bool instrumented;
    const gpo_backend *backend;
    const gpo_table *(*table)(const char *op);
    void (*configure)(const gpo_sim_config *config);
    void (*state)(gpo_sim_state *state);
    void (*reset)(void); /* clears the report */
    /* Fills up to `capacity` records; returns how many there are. */
    size_t (*report)(gpo_sim_record *records, size_t capacity);
    /* Around a fork: waits for the running launch and blocks others. */
    void (*hold)(void);
    void (*let_go)(void); /* in the parent and in the child */
    /* gpo_device_copy in device/copy.cu; NULL in a test's library. */
    gpo_status (*copy)(gpo_call *call, const gpo_array *from, const gpo_array *to);
    /* Traces launches with the setting `profile` until it is called with NULL. */
    void (*trace)(gpo_sim_trace *into);
} gpo_sim_library;

/* The exported symbol is gpo_sim_entry. */
extern const gpo_sim_library gpo_sim_entry;

#ifdef __cplusplus
}
#endif
#endif
