/*
 * cells.h  What access.cpp shares with async_access.cpp: the last accesses of every
 * byte, and which of them happen before the current one.
 */
#ifndef GPO_SIM_CELLS_H
#define GPO_SIM_CELLS_H

#include "internal.h"

namespace gpo_sim {

enum {
    ATOMIC_FLAG = 0x8000, /* in write_thread: the write was atomic */
    /*
     * In write_thread: an asynchronous copy wrote.  The rest is the number of its
     * mbarrier; a wait for that orders the write.
     */
    ASYNC_FLAG = 0x4000,
    SEVERAL_WARPS = 0xFFFF,
};
static const uint32_t SEVERAL_BLOCKS = 0xFFFFFFFFu;

struct Cell {
    uint32_t write_time, write_block;
    uint16_t write_thread, write_site;
    uint16_t read_warp, read_site;
    uint32_t read_time, read_block, read_lanes;
};

extern bool checking; /* the settings enable checks or counts */

uint32_t site_of_line(const Site *site);
Site site_line(uint32_t number);

/* Whether an access by `thread` of `block` at `time` happens before the current one. */
bool is_before(const Fibre *self, uint32_t time, uint32_t block, unsigned thread);

void forget_order(void); /* a launch begins */

/* Whether it happens before the end of `own`, whose threads have all ended. */
bool is_before_end(const Block *own, uint32_t time, uint32_t block, unsigned thread);

/* An atomic on a word: acquires what others released by it if it `reads`, releases what a
   fence precedes if it `writes`. */
void acquire_and_release(Fibre *self, uintptr_t address, bool reads, bool writes);

/* Releases what asynchronous copies with this write_thread have written so far. */
void release_copies(Block *block, uintptr_t address, unsigned thread);

/* Checks and records one access of one cell. */
void touch(Fibre *self, Cell *cell, uint32_t site, bool shared, bool write,
           bool atomic);

/* Those of an address of the block's shared memory; NULL: no memory. */
Cell *shared_cells(Block *block, uintptr_t address);

/* Those of `bytes` bytes of an allocation and their number; NULL: no memory. */
Cell *global_cells(Allocation *a, uintptr_t address, size_t bytes, size_t *count);

} // namespace gpo_sim

#endif
