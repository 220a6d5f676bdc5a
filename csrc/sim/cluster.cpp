/*
 * cluster.cpp  Named barriers, and clusters: blocks that run at the same time and see
 * each other's shared memory.  Order: named barriers, the blocks of a cluster, shared
 * memory of another block, the barrier of a cluster.
 */
#include "async.h"
#include "hopper_calls.h"
#include "tables.h"

namespace gpo_sim {

/* ---- named barriers ---- */

void
named_barrier(unsigned id, unsigned threads, bool waits, const char *file, int line)
{
    Fibre *self = current;
    Block *block = self->block;
    const Site site = {file, line};
    maybe_preempt();
    if (id < 1 || id >= MAX_NAMED || threads < 1 || threads > MAX_THREADS ||
        threads % WARP != 0) {
        fault(
            self, &site,
            "barrier %u for %u threads; barriers 1 to %d for whole warps are possible",
            id, threads, MAX_NAMED - 1);
    }
    NamedBarrier *barrier = &async_of(block, &site)->named[id];
    if (barrier->arrived > 0 && barrier->threads != threads) {
        fault(self, &site, "barrier %u for %u threads, but for %u at line %d", id,
              threads, barrier->threads, barrier->site.line);
    }
    barrier->threads = threads;
    barrier->site = site;
    async_meet(self, barrier, true);
    if (++barrier->arrived == threads) {
        barrier->arrived = 0;
        wake_waiting(block, barrier, 0);
    }
    else if (waits) {
        wait_for(Fibre::FOR_NAMED_BARRIER, barrier, &site);
    }
    if (waits) {
        async_meet(self, barrier, false);
    }
}

void
report_named_barrier(const Fibre *fibre)
{
    const NamedBarrier *barrier = (const NamedBarrier *)fibre->waits_for;
    fault(fibre, &fibre->site,
          "deadlock: %u of the %u threads of barrier %u never come",
          barrier->threads - barrier->arrived, barrier->threads,
          (unsigned)(barrier - fibre->block->async->named));
}

/* ---- the blocks of a cluster ---- */

unsigned
cluster_rank()
{
    return current->block->rank;
}

unsigned
cluster_size()
{
    return running.cluster;
}

Block *
block_of(uint32_t address)
{
    Block *own = current->block;
    const uint32_t rank = address >> RANK_SHIFT;
    return rank == 0 ? own : own->cluster + (rank - 1) % running.cluster;
}

uintptr_t
place_of(uint32_t address)
{
    return (uintptr_t)block_of(address)->shared + (address & OFFSET_MASK);
}

uint32_t
peer_address(uint32_t address, unsigned rank, const char *file, int line)
{
    if (rank >= running.cluster) {
        const Site site = {file, line};
        fault(current, &site, "rank %u of a cluster of %u blocks", rank,
              running.cluster);
    }
    return (address & OFFSET_MASK) | (rank + 1) << RANK_SHIFT;
}

/* ---- shared memory of another block ---- */

void
check_peer(const Block *block, const Site *site)
{
    if (!block->active) {
        fault(current, site,
              "uses the shared memory of block %u of the cluster, which "
              "has ended",
              block->rank);
    }
}

/* The word at the address, after the checks of an access. */
static void *
peer_place(uint32_t address, bool write, const Site *site)
{
    Fibre *self = current;
    Block *owner = block_of(address);
    const uintptr_t at = place_of(address);
    maybe_preempt();
    check_peer(owner, site);
    if (address % 4 != 0 || !is_shared(owner, at, 4)) {
        fault(self, site,
              "%s of 4 bytes at %u of block %u: not a word of a shared "
              "array",
              write ? "write" : "read", address & OFFSET_MASK, owner->rank);
    }
    if (owner == self->block) {
        access_plain((const void *)at, 4, write, site);
        return (void *)at;
    }
    async_remote(self, owner, at, write, site);
    Async *async = async_of(owner, site);
    size_t i = 0;
    while (i < async->nuses && async->uses[i].fibre != self) {
        i++;
    }
    if (!reserve(&async->uses, &async->uses_capacity, i + 1)) {
        fault(self, site, "the simulator has no memory for a cluster");
    }
    async->nuses += i == async->nuses;
    async->uses[i] = RemoteUse{self, now, *site};
    return (void *)at;
}

uint32_t
peer_word(uint32_t address, const char *file, int line)
{
    const Site site = {file, line};
    uint32_t word;
    memcpy(&word, peer_place(address, false, &site), sizeof word);
    return word;
}

void
store_peer_word(uint32_t address, uint32_t word, const char *file, int line)
{
    const Site site = {file, line};
    memcpy(peer_place(address, true, &site), &word, sizeof word);
}

/* ---- the barrier of a cluster ---- */

/* Ends the barrier if all threads that are left have come; false if not. */
bool
cluster_release(Block *first)
{
    unsigned alive = 0;
    for (unsigned r = 0; r < running.cluster; r++) {
        for (unsigned w = 0; first[r].active && w < first[r].nwarps; w++) {
            alive += (unsigned)__builtin_popcount(first[r].warps[w].alive);
        }
    }
    if (first->arrived == 0 || first->arrived < alive) {
        return false;
    }
    first->arrived = 0;
    for (unsigned r = 0; r < running.cluster; r++) {
        wake_waiting(&first[r], first, 0);
    }
    return true;
}

void
cluster_sync(const char *file, int line)
{
    Fibre *self = current;
    Block *first = self->block->cluster;
    const Site site = {file, line};
    maybe_preempt();
    async_meet(self, first, true);
    first->arrived++;
    if (!cluster_release(first)) {
        wait_for(Fibre::FOR_CLUSTER, first, &site);
    }
    async_meet(self, first, false);
}

void
report_cluster(const Fibre *fibre)
{
    fault(fibre, &fibre->site,
          "deadlock: some threads of the cluster never come to its barrier");
}

void
cluster_block_ends(Block *block)
{
    const Async *async = block->async;
    for (size_t i = 0; async && i < async->nuses; i++) {
        const RemoteUse *use = &async->uses[i];
        if (!async_remote_ended(block, use)) {
            fault(use->fibre, &use->site,
                  "uses the shared memory of block %u of the cluster, which may have "
                  "ended: no barrier of the cluster follows",
                  block->rank);
            return;
        }
    }
}

} // namespace gpo_sim
