/*
 * async.h  What a block has in flight: mbarriers and copies (copies.cpp), products of
 * wgmma (wgmma.cpp), and the checks of what they read and write (async_access.cpp).
 * Everything happens as late as the rules allow: a copy's bytes and a product's sums are
 * poison until somebody has waited for them.
 */
#ifndef GPO_SIM_ASYNC_H
#define GPO_SIM_ASYNC_H

#include "cells.h"
#include "tensor_map.h"

namespace gpo_sim {

enum {
    MAX_BARRIERS = 64,     /* mbarriers of a block */
    MAX_ACCUMULATORS = 16, /* of a thread, in flight at once */
    MAX_SUMS = 64,         /* values of a thread's accumulator: n = 128 */
    POISON = 0xFF,         /* a nan in every floating type */
    BULK = 16,             /* addresses and sizes of bulk copies are multiples of it */
    BY_ITS_THREAD = ASYNC_FLAG | 0x3FFF, /* write_thread of a copy without mbarrier */
    RANK_SHIFT = 24, /* a peer's address has its rank, plus 1, in the bits above */
    OFFSET_MASK = (1 << RANK_SHIFT) - 1,
};

struct MBarrier {
    Block *block;
    uint32_t address;        /* in its shared memory */
    unsigned number;         /* in the block */
    bool valid;              /* not since mbarrier.inval */
    uint32_t count, missing; /* arrivals of a phase, and those still to come */
    int64_t bytes;           /* expected, but not yet copied */
    uint32_t phases;         /* that have ended */
    Site site;               /* of its initialisation, with thread and time */
    unsigned thread;
    uint32_t time;
    uint32_t waited[MAX_THREADS]; /* phases that had ended when a thread last waited */
};

enum CopyKind { BULK_LOAD, BULK_STORE, COPY_16 };

struct Copy {
    CopyKind kind;
    bool zeros; /* instead of what global memory holds */
    bool adds;  /* floats to those in global memory */
    char *shared, *global;
    size_t bytes;  /* in shared memory */
    TensorMap map; /* of rank 0, or else a box of it is copied */
    int32_t at[MAX_RANK];
    Fibre *fibre;
    MBarrier *barrier; /* of a BULK_LOAD */
    uint32_t phase;    /* of the barrier when the copy started */
    uint32_t time;     /* when it started */
    Site site;
    char *held; /* BULK_STORE: the bytes, once they have been read */
};

/* The sums of a thread, while products that add to them are in flight. */
struct Accumulator {
    float *at;
    unsigned n, in_flight;
    Site site;
    float value[MAX_SUMS];
};

/* A wgmma, as one warp of the warpgroup takes part in it. */
struct Product {
    uint64_t a, b;           /* descriptors */
    uint32_t words[WARP][4]; /* a, if it is in registers */
    const uint32_t *registers[WARP];
    float *d[WARP];
    unsigned n; /* columns */
    bool in_shared, bf16, tf32, add;
    unsigned met;   /* lanes that have issued it */
    uint32_t time;  /* when the last one did */
    uint32_t group; /* number of its group, or NO_GROUP */
    Site site;
};
static const uint32_t NO_GROUP = 0xFFFFFFFFu;

struct Products {
    Product *list; /* in flight; the first one is number `done` of the warp */
    size_t count, capacity;
    uint32_t done, waits;
    struct Lane {
        uint32_t issued, committed, groups, waits;
        bool fenced;
    } lanes[WARP];
};

/* Barriers 1 to 15 of bar.sync. */
struct NamedBarrier {
    unsigned threads; /* that its first thread named; 0: nobody has come */
    unsigned arrived;
    Site site;
};
enum { MAX_NAMED = 16 };

/* A block whose shared memory another block of the cluster has used. */
struct RemoteUse {
    const Fibre *fibre; /* the last one of each thread */
    uint32_t time;
    Site site;
};

struct Async {
    NamedBarrier named[MAX_NAMED];
    RemoteUse *uses; /* of this block's shared memory by its peers */
    size_t nuses, uses_capacity;
    MBarrier barriers[MAX_BARRIERS];
    unsigned nbarriers;
    Copy *copies;
    size_t ncopies, copies_capacity;
    Products products[MAX_WARPS];
    Accumulator (*accumulators)[MAX_ACCUMULATORS]; /* by thread; NULL until needed */
};

/* The block's, created where it has none; a fault if there is no memory. */
Async *async_of(Block *block, const Site *site);

/* Whether the range is inside one shared array of the block. */
bool is_shared(const Block *block, uintptr_t address, size_t bytes);

/* The block and the place there of an address, which may be a peer's. */
Block *block_of(uint32_t address);
uintptr_t place_of(uint32_t address);

/* A fault if the block, one of the cluster, has ended. */
void check_peer(const Block *block, const Site *site);

/* ---- tensor_map.cpp ---- */

uint32_t box_bytes(const TensorMap *map);

/* A fault if a copy of the box at `at` is impossible, or lies wholly out of bounds. */
void check_box(Fibre *self, const char *what, const TensorMap *map, const int32_t *at,
               uint32_t rank, uint32_t shared, const Site *site);

/* After check_box: a fault if a GPU, which might load the box, does not store it so. */
void check_stored_box(Fibre *self, const TensorMap *map, const int32_t *at,
                      const Site *site);

/*
 * Calls use(offset in shared memory, global address, bytes) for each piece of the copy
 * that is contiguous in global memory: its offset before the swizzle.  What is out of
 * bounds of a map is left out.
 */
template <typename Use>
void
each_piece(const Copy *copy, Use use)
{
    const TensorMap *map = &copy->map;
    if (map->rank == 0) {
        use(size_t{0}, copy->global, copy->bytes);
        return;
    }
    const int64_t x = copy->at[0], size = (int64_t)map->sizes[0];
    const int64_t first = x < 0 ? 0 : x;
    const int64_t end = x + map->box[0] < size ? x + map->box[0] : size;
    const size_t row_bytes = (size_t)map->box[0] * map->element;
    uint32_t index[MAX_RANK] = {}; /* in the box, of the row that begins at `row` */
    for (size_t row = 0; row < copy->bytes; row += row_bytes) {
        bool is_in = first < end;
        char *global = map->base + first * map->element;
        for (uint32_t d = 1; d < map->rank; d++) {
            const int64_t place = (int64_t)copy->at[d] + index[d];
            is_in = is_in && place >= 0 && place < (int64_t)map->sizes[d];
            global += is_in ? (uint64_t)place * map->strides[d] : 0;
        }
        if (is_in) {
            use(row + (size_t)(first - x) * map->element, global,
                (size_t)(end - first) * map->element);
        }
        for (uint32_t d = 1; d < map->rank && ++index[d] == map->box[d]; d++) {
            index[d] = 0;
        }
    }
}

/* Calls use(offset in shared memory, offset in the piece, bytes) for each part of it. */
template <typename Use>
void
each_part(const Copy *copy, size_t offset, size_t bytes, Use use)
{
    if (!copy->map.swizzled) {
        use(offset, size_t{0}, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i += BULK) { /* `offset` is a multiple of it */
        const size_t at = offset + i, part = bytes - i < BULK ? bytes - i : BULK;
        use(at ^ (at / SWIZZLED_ROW % 8 * BULK), i, part);
    }
}

/* ---- cluster.cpp ---- */

void report_named_barrier(const Fibre *fibre);
void report_cluster(const Fibre *fibre);

/* ---- wgmma.cpp ---- */

void products_begin(Block *block);
void products_end(Block *block);

/* ---- async_access.cpp; without instrumentation these do nothing ---- */

/* A copy starts to read: `proxied` where writes need a proxy fence before it. */
void async_reads(Fibre *self, uintptr_t address, size_t bytes, bool proxied,
                 const Site *site);

/* A copy that started at `since` has read: nobody may have written in between. */
void async_has_read(Fibre *self, uintptr_t address, size_t bytes, uint32_t since,
                    const char *what, const Site *site);

/* A copy starts to write; `thread` is the write_thread of its cells. */
void async_writes(Fibre *self, uintptr_t address, size_t bytes, unsigned thread,
                  const Site *site);

/* The thread has waited for its own copy: from now on it is the thread's write. */
void async_has_written(Fibre *self, uintptr_t address, size_t bytes, const Site *site);

/* A thread uses a word of the shared memory of another block of its cluster. */
void async_remote(Fibre *self, Block *owner, uintptr_t address, bool write,
                  const Site *site);

/* Whether the use happens before the end of the block. */
bool async_remote_ended(const Block *owner, const RemoteUse *use);

/* A thread arrives at something that orders memory (`arrives`), or has waited for it. */
void async_meet(Fibre *self, const void *what, bool arrives);

/* The mbarrier at the address ends a phase. */
void async_phase_ends(const MBarrier *barrier);

/* A thread initialises an mbarrier, arrives at it (`writes`), or has waited for it. */
void async_barrier_word(Fibre *self, Block *owner, uint32_t address, bool starts,
                        bool writes, const Site *site);

/* The mbarrier's initialisation is visible to the asynchronous proxy. */
void async_check_barrier(Fibre *self, const MBarrier *barrier, const Site *site);

} // namespace gpo_sim

#endif
