/*
 * async_access.cpp  Checks what asynchronous copies and products read and write, in the
 * instrumented build.  Order: reads, writes, mbarriers.
 * A copy is checked as an access of its thread when it starts.  Until its end nobody
 * else may write what it reads, or touch what it writes.  It accesses shared memory
 * through the asynchronous proxy: a plain write is visible to it after a proxy fence of
 * the thread that wrote, or of the one that starts the copy.
 */
#include "async.h"

#ifdef GPO_SIM_PROFILE

namespace gpo_sim {

enum { PIECE = 16 }; /* bytes of which at least one must have been written */

/* ---- reads ---- */

/* Whether a proxy fence follows the write and precedes the running thread's copy. */
static bool
is_fenced(const Fibre *self, const Cell *cell)
{
    const Block *block = self->block;
    const unsigned thread = cell->write_thread & ~(unsigned)ATOMIC_FLAG;
    if (cell->write_thread & ASYNC_FLAG || cell->write_time < block->start ||
        cell->write_block != (uint32_t)block->linear ||
        self->proxy_fence > cell->write_time) {
        return true;
    }
    const Fibre *writer = &block->fibres[thread];
    const auto orders = [&](uint32_t fence) {
        return fence > cell->write_time &&
               (thread / WARP == self->linear / WARP ||
                is_before(self, fence, (uint32_t)block->linear, thread));
    };
    uint32_t first =
        writer->proxy_fence; /* after the write: later ones order no more */
    for (const uint32_t fence : writer->proxy_fences) {
        first = fence > cell->write_time && fence < first ? fence : first;
    }
    return orders(first) || orders(writer->earlier_proxy_fence);
}

static void
check_fence(Fibre *self, const Cell *cell, const Site *site)
{
    if (!is_fenced(self, cell)) {
        const Site there = site_line(cell->write_site);
        fault(self, site,
              "reads shared memory that thread %d wrote at %s:%d, without "
              "fence.proxy.async in between",
              cell->write_thread & ~ATOMIC_FLAG, short_path(there.file), there.line);
    }
}

void
async_reads(Fibre *self, uintptr_t address, size_t bytes, bool proxied,
            const Site *site)
{
    Block *block = self->block;
    if (!checking) {
        return;
    }
    const uint32_t number = site_of_line(site);
    if (address - (uintptr_t)block->shared >= SHARED_ROOM) {
        Allocation *a = allocation_of((const void *)address);
        size_t count = 0;
        for (size_t i = 0; a && a->unwritten && config.checks && i < bytes;
             i += PIECE) {
            if (config.first_block <= 0 &&
                none_written(a, (const void *)(address + i), PIECE)) {
                fault(self, site, "copies device memory that nothing has written");
            }
        }
        Cell *cell = a ? global_cells(a, address, bytes, &count) : NULL;
        for (size_t i = 0; cell && i < count; i++) {
            touch(self, cell + i, number, false, false, false);
        }
        return;
    }
    Cell *cell = shared_cells(block, address);
    for (size_t i = 0; cell && i < bytes; i++) {
        if (i % PIECE == 0 && config.checks) {
            bool written = false;
            for (size_t k = i; k < i + PIECE && k < bytes && !written; k++) {
                written = cell[k].write_time >= block->start;
            }
            if (!written) {
                fault(self, site, "copies shared memory that nothing has written");
            }
        }
        touch(self, cell + i, number, true, false, false);
        if (proxied && config.checks) {
            check_fence(self, cell + i, site);
        }
    }
}

void
async_has_read(Fibre *self, uintptr_t address, size_t bytes, uint32_t since,
               const char *what, const Site *site)
{
    Block *block = self->block;
    if (!checking) {
        return;
    }
    const uint32_t number = site_of_line(site);
    Cell *cell = shared_cells(block, address);
    for (size_t i = 0; cell && i < bytes; i++) {
        if (cell[i].write_time >= since && config.checks) {
            const Site there = site_line(cell[i].write_site);
            const unsigned thread = cell[i].write_thread & 0x3FFFu;
            const bool is_thread = !(cell[i].write_thread & ASYNC_FLAG) &&
                                   cell[i].write_block == (uint32_t)block->linear;
            fault(is_thread ? &block->fibres[thread] : self, &there,
                  "writes shared memory that the %s of %s:%d still reads", what,
                  short_path(site->file), site->line);
            return;
        }
        touch(self, cell + i, number, true, false, false);
    }
}

/* ---- writes ---- */

static void
mark(Fibre *self, Cell *cell, unsigned thread)
{
    cell->write_time = now;
    cell->write_block = (uint32_t)self->block->linear;
    cell->write_thread = (uint16_t)thread;
}

/* Calls `change` for the cells of a range. */
template <typename Change>
static void
each_cell(Fibre *self, uintptr_t address, size_t bytes, Change change)
{
    Block *block = self->block;
    const bool shared = address - (uintptr_t)block->shared < SHARED_ROOM;
    Allocation *a = shared ? NULL : allocation_of((const void *)address);
    size_t count = bytes;
    Cell *cell = shared ? shared_cells(block, address)
                 : a    ? global_cells(a, address, bytes, &count)
                        : NULL;
    for (size_t i = 0; cell && i < count; i++) {
        change(cell + i, shared);
    }
    if (a && a->unwritten) {
        allocation_written(a, (const void *)address, bytes);
    }
}

void
async_writes(Fibre *self, uintptr_t address, size_t bytes, unsigned thread,
             const Site *site)
{
    if (!checking) {
        return;
    }
    const uint32_t number = site_of_line(site);
    each_cell(self, address, bytes, [&](Cell *cell, bool shared) {
        touch(self, cell, number, shared, true, false);
        mark(self, cell, thread);
    });
}

void
async_has_written(Fibre *self, uintptr_t address, size_t bytes, const Site *site)
{
    if (!checking) {
        return;
    }
    const uint32_t number = site_of_line(site);
    each_cell(self, address, bytes, [&](Cell *cell, bool) {
        mark(self, cell, self->linear);
        cell->write_site = (uint16_t)number;
    });
}

/* ---- mbarriers ---- */

void
async_phase_ends(const MBarrier *barrier)
{
    if (checking) {
        release_copies(barrier->block,
                       (uintptr_t)barrier->block->shared + barrier->address,
                       ASYNC_FLAG | barrier->number);
    }
}

void
async_barrier_word(Fibre *self, Block *owner, uint32_t address, bool starts,
                   bool writes, const Site *site)
{
    if (!checking) {
        return;
    }
    const uint32_t number = site_of_line(site);
    const uintptr_t at = (uintptr_t)owner->shared + address;
    Cell *cell = shared_cells(owner, at);
    for (int i = 0; cell && i < 8; i++) {
        touch(self, cell + i, number, true, writes, !starts);
    }
    if (writes) {
        access_fence();
    }
    if (!starts) {
        acquire_and_release(self, at, !writes, writes);
    }
}

void
async_check_barrier(Fibre *self, const MBarrier *barrier, const Site *site)
{
    const Fibre *writer = &barrier->block->fibres[barrier->thread];
    if (config.checks && checking && writer->proxy_fence < barrier->time &&
        self->proxy_fence < barrier->time) {
        fault(self, site,
              "the mbarrier of line %d has been initialised without a fence for the "
              "asynchronous proxy after that",
              barrier->site.line);
    }
}

/* ---- clusters, and whatever else orders memory ---- */

void
async_meet(Fibre *self, const void *what, bool arrives)
{
    if (checking && arrives) {
        access_fence();
    }
    if (checking) {
        acquire_and_release(self, (uintptr_t)what, !arrives, arrives);
    }
}

void
async_remote(Fibre *self, Block *owner, uintptr_t address, bool write, const Site *site)
{
    Cell *cell = checking ? shared_cells(owner, address) : NULL;
    const uint32_t number = cell ? site_of_line(site) : 0;
    bool written = write || !config.checks;
    for (int i = 0; cell && i < 4 && !written; i++) {
        written = cell[i].write_time >= owner->start;
    }
    if (cell && !written) {
        fault(self, site, "read of shared memory that nothing has written");
    }
    for (int i = 0; cell && i < 4; i++) {
        touch(self, cell + i, number, true, write, false);
    }
}

bool
async_remote_ended(const Block *owner, const RemoteUse *use)
{
    return !checking || !config.checks ||
           is_before_end(owner, use->time, (uint32_t)use->fibre->block->linear,
                         use->fibre->linear);
}

} // namespace gpo_sim

#else

namespace gpo_sim {

void
async_reads(Fibre *, uintptr_t, size_t, bool, const Site *)
{
}

void
async_has_read(Fibre *, uintptr_t, size_t, uint32_t, const char *, const Site *)
{
}

void
async_writes(Fibre *, uintptr_t, size_t, unsigned, const Site *)
{
}

void
async_has_written(Fibre *, uintptr_t, size_t, const Site *)
{
}

void
async_phase_ends(const MBarrier *)
{
}

void
async_barrier_word(Fibre *, Block *, uint32_t, bool, bool, const Site *)
{
}

void
async_check_barrier(Fibre *, const MBarrier *, const Site *)
{
}

void
async_meet(Fibre *, const void *, bool)
{
}

void
async_remote(Fibre *, Block *, uintptr_t, bool, const Site *)
{
}

bool
async_remote_ended(const Block *, const RemoteUse *)
{
    return true;
}

} // namespace gpo_sim

#endif
