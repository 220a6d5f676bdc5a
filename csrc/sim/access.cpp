/*
 * access.cpp  Checks and counts every memory access in the instrumented build: kernel
 * files are compiled with -fsanitize=thread -fsanitize-coverage=trace-pc, and the
 * compiler calls the __tsan_ and __sanitizer_cov_ functions below (libtsan is not
 * linked).  Order: sites, counts, cells, one access, the scheduler's events, the
 * report, the compiler's hooks.  In the plain build all functions are empty.  See
 * order.cpp for what happens before what.
 *
 * Counting: the k-th execution of one instruction by the lanes of a warp since the last
 * barrier is one request.
 */
#include "cells.h"
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef GPO_SIM_PROFILE
#include <link.h>

namespace gpo_sim {

/* ---- sites ---- */

/* An instruction, or a line where a function of cuda_sim.h was called. */
struct SiteInfo {
    uintptr_t pc; /* 0: `site` is known */
    Site site;
};

static SiteInfo *sites;
static size_t nsites = 1, sites_capacity; /* site 0 is "unknown" */
static Index site_index;
enum { MAX_SITES = 65535 };

static uint32_t
site_number(uint64_t key, uintptr_t pc, const Site *site)
{
    uint32_t *number = index_at(&site_index, key);
    if (number && *number == 0 && nsites < MAX_SITES &&
        reserve(&sites, &sites_capacity, nsites + 1)) {
        sites[nsites].pc = pc;
        sites[nsites].site = site ? *site : Site{"", 0};
        *number = (uint32_t)nsites++;
    }
    return number ? *number : 0;
}

static uint32_t
site_of_pc(uintptr_t pc)
{
    return site_number(pc, pc, NULL);
}

uint32_t
site_of_line(const Site *site)
{
    return site_number((uint64_t)(uintptr_t)site->file << 20 ^ (uint64_t)site->line ^
                           (uint64_t)1 << 63,
                       0, site);
}

Site
site_line(uint32_t number)
{
    if (number == 0 || number >= nsites) {
        return Site{"", 0};
    }
    SiteInfo *info = &sites[number];
    if (info->pc) {
        info->site = line_of(info->pc - 1); /* the call, not the return address */
        info->pc = 0;
    }
    return info->site;
}

/* ---- counts ---- */

enum Kind {
    SHARED = GPO_SIM_SHARED,
    GLOBAL = GPO_SIM_GLOBAL,
    SHARED_ATOMIC = GPO_SIM_SHARED_ATOMIC,
    GLOBAL_ATOMIC = GPO_SIM_GLOBAL_ATOMIC,
    CODE = GPO_SIM_CODE
};

struct Counts {
    uint64_t shared_requests, shared_wavefronts, shared_ideal;
    uint64_t global_requests, global_sectors, global_ideal;
    uint64_t atomic_requests, atomic_serialised;
    uint64_t code_blocks, code_divergent, code_lanes, code_lanes_full;
    uint64_t barriers, races;
};

struct Kernel {
    const char *name;
    uint64_t launches, blocks, threads;
    Counts *counts; /* by site */
    size_t capacity;
};

static Kernel *kernels;
static size_t nkernels, kernels_capacity;
static Kernel *kernel; /* of the running launch */
bool checking;

static Counts *
counts_at(uint32_t site)
{
    static Counts nowhere;
    if (!kernel || !reserve(&kernel->counts, &kernel->capacity, site + 1)) {
        return &nowhere;
    }
    return &kernel->counts[site];
}

/* Appends `value` unless the list has it; searched backwards: repeats are recent. */
static unsigned
add_distinct(uintptr_t *list, unsigned count, uintptr_t value)
{
    for (unsigned i = count; i > 0; i--) {
        if (list[i - 1] == value) {
            return count;
        }
    }
    list[count] = value;
    return count + 1;
}

/*
 * Shared memory has 32 banks of 4 bytes.  Accesses of 8 bytes are served per half warp,
 * of 16 bytes per quarter warp; one wavefront serves one word of every bank.
 */
static void
count_shared(const Request *r, Counts *counts)
{
    const unsigned group = r->bytes >= 16 ? 8 : r->bytes == 8 ? 16 : 32;
    const unsigned words = r->bytes > 4 ? r->bytes / 4 : 1;
    counts->shared_requests++;
    for (unsigned first = 0; first < WARP; first += group) {
        uintptr_t bank[32][32];
        unsigned used[32] = {0}, most = 0;
        for (unsigned lane = first; lane < first + group; lane++) {
            if (!(r->mask >> lane & 1u)) {
                continue;
            }
            for (unsigned w = 0; w < words; w++) {
                const uintptr_t word = r->address[lane] / 4 + w;
                const unsigned b = (unsigned)(word & 31);
                used[b] = add_distinct(bank[b], used[b], word);
                most = used[b] > most ? used[b] : most;
            }
        }
        counts->shared_wavefronts += most;
        counts->shared_ideal += most > 0;
    }
}

/* Global memory is accessed in sectors of 32 bytes. */
static void
count_global(const Request *r, Counts *counts)
{
    uintptr_t sectors[2 * WARP], elements[WARP];
    unsigned nsectors = 0, nelements = 0;
    for (unsigned left = r->mask; left; left &= left - 1) {
        const uintptr_t a = r->address[__builtin_ctz(left)];
        nsectors = add_distinct(sectors, nsectors, a / 32);
        nsectors = add_distinct(sectors, nsectors, (a + r->bytes - 1u) / 32);
        nelements = add_distinct(elements, nelements, a);
    }
    counts->global_requests++;
    counts->global_sectors += nsectors;
    counts->global_ideal += (nelements * r->bytes + 31u) / 32;
}

/* Lanes with the same address are serialised. */
static void
count_atomic(const Request *r, Counts *counts)
{
    unsigned most = 0;
    for (unsigned left = r->mask; left; left &= left - 1) {
        const uintptr_t a = r->address[__builtin_ctz(left)];
        unsigned same = 0;
        for (unsigned other = r->mask; other; other &= other - 1) {
            same += r->address[__builtin_ctz(other)] == a;
        }
        most = same > most ? same : most;
    }
    counts->atomic_requests++;
    counts->atomic_serialised += most;
}

static void
count_requests(Warp *warp)
{
    const unsigned exists = (unsigned)__builtin_popcount(warp->exists);
    for (size_t i = 0; i < warp->table.count; i++) {
        const Request *r = &warp->table.requests[i];
        Counts *counts = counts_at(r->site);
        const unsigned lanes = (unsigned)__builtin_popcount(r->mask);
        if (tracing) {
            const Site site = site_line(r->site);
            trace_request(warp, r, &site);
        }
        switch (r->kind) {
            case SHARED:
                count_shared(r, counts);
                break;
            case GLOBAL:
                count_global(r, counts);
                break;
            case CODE:
                counts->code_blocks++;
                warp->lanes[0].block->pieces++;
                counts->code_divergent += lanes < exists;
                counts->code_lanes += lanes;
                counts->code_lanes_full += exists;
                break;
            default:
                count_atomic(r, counts);
        }
    }
    warp->table.count = 0;
}

/* The request of the running lane's next execution of this site; NULL: no memory. */
static Request *
join_request(Fibre *self, uint32_t site, Kind kind)
{
    const uint32_t interval = self->block->interval;
    if (!reserve(&self->occurrences, &self->noccurrences, site + 1)) {
        return NULL;
    }
    Occurrence *o = &self->occurrences[site];
    if (o->interval != interval) {
        *o = Occurrence{interval, 0};
    }
    const uint64_t key = (uint64_t)site << 32 | o->count++;
    RequestTable *t = &self->warp->table;
    if (!reserve(&t->requests, &t->capacity, t->count + 1)) {
        return NULL;
    }
    if (t->nslots < 2 * t->capacity) { /* rehash the requests of this interval */
        const size_t nslots = 4 * t->capacity;
        const RequestTable old = *t;
        t->slots = (RequestTable::Slot *)calloc(nslots, sizeof *t->slots);
        if (!t->slots) {
            t->slots = old.slots;
            return NULL;
        }
        t->nslots = nslots;
        for (size_t i = 0; i < old.nslots; i++) {
            if (old.slots[i].interval == interval) {
                size_t k =
                    (old.slots[i].key * 0x9e3779b97f4a7c15u) >> 24 & (nslots - 1);
                while (t->slots[k].interval == interval) {
                    k = (k + 1) & (nslots - 1);
                }
                t->slots[k] = old.slots[i];
            }
        }
        free(old.slots);
    }
    size_t i = (key * 0x9e3779b97f4a7c15u) >> 24 & (t->nslots - 1);
    while (t->slots[i].interval == interval && t->slots[i].key != key) {
        i = (i + 1) & (t->nslots - 1);
    }
    if (t->slots[i].interval != interval) {
        t->slots[i] = RequestTable::Slot{key, interval, (uint32_t)t->count};
        Request *r = &t->requests[t->count++];
        r->site = site;
        r->mask = 0;
        r->kind = (uint8_t)kind;
        r->after = self->request_interval == interval ? (int32_t)self->request : -1;
    }
    self->request = t->slots[i].index;
    self->request_interval = interval;
    return &t->requests[self->request];
}

static void
record_request(Fibre *self, uint32_t site, Kind kind, uintptr_t address, unsigned bytes,
               bool write)
{
    Request *r = join_request(self, site, kind);
    if (r) {
        const unsigned lane = self->position.lane;
        r->mask |= 1u << lane;
        r->bytes = (uint8_t)bytes;
        r->write = write;
        r->address[lane] = address;
    }
}

/* ---- cells: the last accesses of these bytes ---- */

static bool found_race; /* by the access being checked */

static void
report_race(Fibre *self, uint32_t site, bool shared, bool write, uint32_t other_site,
            bool other_write, uint32_t other_block, int other_thread)
{
    found_race = true;
    if (!config.checks) {
        return;
    }
    const Site here_line = site_line(site), there = site_line(other_site);
    if (other_thread >= 0 && other_thread & ASYNC_FLAG) {
        fault(self, &here_line,
              "%s %s memory that an asynchronous copy (%s:%d) writes, without having "
              "waited for it",
              write ? "writes" : "reads", shared ? "shared" : "global",
              short_path(there.file), there.line);
        return;
    }
    char who[64];
    if (other_block == SEVERAL_BLOCKS) {
        snprintf(who, sizeof who, "other blocks");
    }
    else if (other_block != (uint32_t)self->block->linear) {
        snprintf(who, sizeof who, "block %u", other_block);
    }
    else if (other_thread < 0) {
        snprintf(who, sizeof who, "other warps");
    }
    else {
        snprintf(who, sizeof who, "thread %d", other_thread);
    }
    char line[160] = "";
    if (there.line) {
        snprintf(line, sizeof line, " at %s:%d", short_path(there.file), there.line);
    }
    fault(self, &here_line,
          "race in %s memory: %s what %s %s%s, and nothing orders them",
          shared ? "shared" : "global", write ? "writes" : "reads", who,
          other_write ? "wrote" : "read", line);
}

/*
 * When each warp of the block last read a byte of its shared memory that several have
 * read since the last write or barrier; NULL for other memory.
 */
static uint32_t *
readers_of(Block *own, const Cell *cell)
{
    const size_t at = (uintptr_t)cell - (uintptr_t)own->cells; /* may wrap around */
    if (!own->cells || at >= SHARED_ROOM * sizeof(Cell)) {
        return NULL;
    }
    if (!own->readers) {
        void *memory = mmap(NULL, SHARED_ROOM * MAX_WARPS * sizeof(uint32_t),
                            PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        own->readers = memory == MAP_FAILED ? NULL : (uint32_t *)memory;
    }
    return own->readers ? own->readers + at / sizeof(Cell) * MAX_WARPS : NULL;
}

/* Whether what several warps of the block have read may be written: all reads precede. */
static bool
is_after_readers(const Fibre *self, const uint32_t *times)
{
    const Block *own = self->block;
    for (unsigned w = 0; times && w <= (own->nthreads - 1) / WARP; w++) {
        if (times[w] >= own->barrier &&
            !is_before(self, times[w], (uint32_t)own->linear, w * WARP)) {
            return false;
        }
    }
    return times != NULL;
}

/* Checks a write against the reads since the last write. */
static void
check_readers(Fibre *self, Cell *cell, uint32_t site, bool shared)
{
    const Block *own = self->block;
    if (cell->read_time < running.start || cell->read_time < own->start * shared) {
        return;
    }
    if (cell->read_block == SEVERAL_BLOCKS) {
        /* the blocks are not recorded: a block that has acquired anything passes */
        if (!own->acquired) {
            report_race(self, site, shared, true, cell->read_site, false,
                        SEVERAL_BLOCKS, -1);
        }
        return;
    }
    if (cell->read_warp == SEVERAL_WARPS) {
        if (cell->read_block != (uint32_t)own->linear
                ? !is_before(self, cell->read_time, cell->read_block, 0)
                : cell->read_time >= own->barrier &&
                      !(shared &&
                        is_after_readers(self, readers_of(self->block, cell)))) {
            report_race(self, site, shared, true, cell->read_site, false,
                        cell->read_block, -1);
        }
        return;
    }
    for (uint32_t left = cell->read_lanes; left; left &= left - 1) {
        const unsigned thread = cell->read_warp * WARP + (unsigned)__builtin_ctz(left);
        if (!is_before(self, cell->read_time, cell->read_block, thread)) {
            report_race(self, site, shared, true, cell->read_site, false,
                        cell->read_block, (int)thread);
            return;
        }
    }
}

static void
note_read(Fibre *self, Cell *cell, uint32_t site, bool shared)
{
    const Block *own = self->block;
    const unsigned lane = self->position.lane;
    bool fresh =
        cell->read_time < running.start || cell->read_time < own->start * shared;
    if (!fresh && cell->read_block == (uint32_t)own->linear) {
        if (cell->read_time < own->barrier) {
            fresh = true;
        }
        else if (cell->read_warp == self->warp->index) {
            fresh = true; /* if this read is ordered after all the others */
            for (uint32_t left = cell->read_lanes; left && fresh; left &= left - 1) {
                const unsigned other = (unsigned)__builtin_ctz(left);
                fresh =
                    other == lane || cell->read_time < self->warp->seen[lane][other];
            }
            if (!fresh) {
                cell->read_lanes |= 1u << lane;
            }
        }
        else {
            uint32_t *times = shared ? readers_of(self->block, cell) : NULL;
            if (times && cell->read_warp != SEVERAL_WARPS) {
                memset(times, 0, MAX_WARPS * sizeof *times);
                times[cell->read_warp] = cell->read_time;
            }
            if (times) {
                times[self->warp->index] = now;
            }
            cell->read_warp = SEVERAL_WARPS;
        }
    }
    else if (!fresh && cell->read_block != SEVERAL_BLOCKS) {
        cell->read_block = SEVERAL_BLOCKS;
    }
    if (fresh) {
        cell->read_block = (uint32_t)own->linear;
        cell->read_warp = (uint16_t)self->warp->index;
        cell->read_lanes = 1u << lane;
    }
    cell->read_time = now;
    cell->read_site = (uint16_t)site;
}

void
touch(Fibre *self, Cell *cell, uint32_t site, bool shared, bool write, bool atomic)
{
    const Block *own = self->block;
    const bool written =
        cell->write_time >= running.start && cell->write_time >= own->start * shared;
    if (written && !(atomic && cell->write_thread & ATOMIC_FLAG)) {
        const unsigned thread = cell->write_thread & ~(unsigned)ATOMIC_FLAG;
        if (!is_before(self, cell->write_time, cell->write_block, thread)) {
            report_race(self, site, shared, write, cell->write_site, true,
                        cell->write_block, (int)thread);
        }
    }
    if (!write) {
        if (!atomic) {
            note_read(self, cell, site, shared);
        }
        return;
    }
    check_readers(self, cell, site, shared);
    cell->write_time = now;
    cell->write_block = (uint32_t)own->linear;
    cell->write_thread =
        (uint16_t)(self->linear | (atomic ? (unsigned)ATOMIC_FLAG : 0u));
    cell->write_site = (uint16_t)site;
    cell->read_time = 0;
}

/*
 * Touches the cells of one access.  Most accesses find all their cells in one state: the
 * first one is checked, and those that were like it become what it became.  Where several
 * warps have read, each cell has times of its own.
 */
static void
touch_all(Fibre *self, Cell *cell, size_t count, uint32_t site, bool shared, bool write,
          bool atomic)
{
    const Cell before = *cell;
    touch(self, cell, site, shared, write, atomic);
    const Cell after = *cell;
    const bool has_times = shared && after.read_warp == SEVERAL_WARPS;
    for (size_t i = 1; i < count; i++) {
        if (!has_times && memcmp(&cell[i], &before, sizeof before) == 0) {
            cell[i] = after;
        }
        else {
            touch(self, cell + i, site, shared, write, atomic);
        }
    }
}

static Cell *
map_cells(size_t count, size_t *bytes)
{
    *bytes = count * sizeof(Cell);
    void *memory = mmap(NULL, *bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : (Cell *)memory;
}

void
access_release_cells(Allocation *a)
{
    if (a->cells) {
        munmap(a->cells, a->cells_bytes);
        a->cells = NULL;
    }
}

/* Global memory has a cell per 4 bytes, until a smaller or misaligned access. */
Cell *
global_cells(Allocation *a, uintptr_t address, size_t bytes, size_t *count)
{
    const size_t offset = (size_t)(address - (uintptr_t)a->data);
    if (!a->cells || (a->granule == 4 && (bytes | offset) % 4 != 0)) {
        access_release_cells(a);
        a->granule = (bytes | offset) % 4 == 0 ? 4 : 1;
        a->cells = map_cells(a->bytes / (size_t)a->granule + 1, &a->cells_bytes);
    }
    const size_t granule = (size_t)a->granule;
    *count = bytes / granule;
    return a->cells ? (Cell *)a->cells + offset / granule : NULL;
}

static void
touch_global(Fibre *self, Allocation *a, uintptr_t address, unsigned bytes,
             uint32_t site, bool write, bool atomic)
{
    size_t count = 0;
    Cell *cell = global_cells(a, address, bytes, &count);
    if (cell && count > 0) {
        touch_all(self, cell, count, site, false, write, atomic);
    }
}

Cell *
shared_cells(Block *block, uintptr_t address)
{
    if (!block->cells) {
        size_t mapped;
        block->cells = map_cells(SHARED_ROOM, &mapped); /* reused by later blocks */
    }
    return block->cells ? (Cell *)block->cells + (address - (uintptr_t)block->shared)
                        : NULL;
}

static void
touch_shared(Fibre *self, uintptr_t address, unsigned bytes, uint32_t site, bool write,
             bool atomic)
{
    Block *block = self->block;
    Cell *cell = shared_cells(block, address);
    if (!cell) {
        return;
    }
    bool written = write || !config.checks;
    for (unsigned i = 0; i < bytes && !written; i++) {
        written = cell[i].write_time >= block->start;
    }
    if (!written) { /* some bytes may be padding of a structure, but not all */
        const Site line = site_line(site);
        fault(self, &line, "read of shared memory that this block has not written");
    }
    touch_all(self, cell, bytes, site, true, write, atomic);
}

/* ---- one access ---- */

enum Alignment { ALIGNED, ANY_ALIGNMENT };

/* The address range of this library: kernels may read its constants and static data. */
static struct {
    uintptr_t begin, end;
} image;

static int
find_image(struct dl_phdr_info *info, size_t, void *)
{
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD) {
            const uintptr_t from = info->dlpi_addr + p->p_vaddr;
            begin = from < begin ? from : begin;
            end = from + p->p_memsz > end ? from + p->p_memsz : end;
        }
    }
    const uintptr_t self = (uintptr_t)&image;
    if (self >= begin && self < end) {
        image.begin = begin;
        image.end = end;
        return 1;
    }
    return 0;
}

/* Local memory, threadIdx, parameters and constants are not checked. */
static bool
is_private(const Fibre *self, uintptr_t a)
{
    return a - (uintptr_t)self->stack < fibre_stack_bytes ||
           a - (uintptr_t)self < sizeof *self ||
           a - (uintptr_t)running.arguments < running.arguments_bytes ||
           a - image.begin < image.end - image.begin;
}

static const SharedArray *
shared_array_of(const Block *block, uintptr_t a)
{
    const SharedArray *nearest = NULL;
    for (int i = 0; i < block->narrays; i++) {
        const SharedArray *array = &block->arrays[i];
        if (a >= (uintptr_t)array->data - SHARED_GUARD) {
            nearest = array;
        }
    }
    return nearest;
}

static void
fault_shared_bounds(Fibre *self, const Site *site, uintptr_t a, unsigned bytes,
                    bool write)
{
    const SharedArray *array = shared_array_of(self->block, a);
    if (!array) {
        fault(self, site, "%s of %u bytes outside of every shared array",
              write ? "write" : "read", bytes);
        return;
    }
    fault(self, site,
          "out-of-bounds %s of %u bytes at byte %lld of a shared array of %zu bytes",
          write ? "write" : "read", bytes, (long long)(a - (uintptr_t)array->data),
          array->bytes);
}

static void
check_access(Fibre *self, uintptr_t a, unsigned bytes, bool write, bool atomic,
             Alignment alignment, uint32_t number)
{
    const Block *block = self->block;
    Allocation *allocation = NULL;
    const SharedArray *array = NULL;
    const char *verb = write ? "write" : "read";
    const bool shared = a - (uintptr_t)block->shared < SHARED_ROOM;
    if (shared) {
        array = shared_array_of(block, a);
        if (!array || a - (uintptr_t)array->data >= array->bytes ||
            bytes > array->bytes - (a - (uintptr_t)array->data)) {
            const Site site = site_line(number);
            fault_shared_bounds(self, &site, a, bytes, write);
        }
    }
    else {
        allocation = allocation_of((const void *)a);
        if (!allocation ||
            bytes > allocation->bytes - (a - (uintptr_t)allocation->data)) {
            char where[128];
            const Site site = site_line(number);
            describe_address(
                allocation ? (uintptr_t)allocation->data + allocation->bytes : a, where,
                sizeof where);
            fault(self, &site, "out-of-bounds %s of %u bytes, %s", verb, bytes, where);
        }
    }
    if (alignment == ALIGNED && (a & (bytes - 1)) != 0 && (bytes & (bytes - 1)) == 0) {
        const Site site = site_line(number);
        fault(self, &site, "misaligned %s of %u bytes: the address is %llu modulo %u",
              verb, bytes, (unsigned long long)(a & (bytes - 1)), bytes);
    }
    if (config.profile) {
        const uintptr_t counted =
            shared ? a - (uintptr_t)array->data + array->offset : a;
        record_request(self, number,
                       shared ? (atomic ? SHARED_ATOMIC : SHARED)
                              : (atomic ? GLOBAL_ATOMIC : GLOBAL),
                       counted, bytes, write);
    }
    found_race = false;
    if (shared) {
        if (block->async && !atomic) {
            const Site site = site_line(number);
            async_check_shared(self, a, bytes, &site);
        }
        touch_shared(self, a, bytes, number, write, atomic);
        counts_at(number)->races += found_race;
        return;
    }
    if (allocation->unwritten) {
        /* results of blocks that the settings skip are unwritten */
        if (config.checks && config.first_block <= 0 && (!write || atomic) &&
            none_written(allocation, (const void *)a, bytes)) {
            const Site site = site_line(number);
            fault(self, &site,
                  "read of %u bytes of device memory that nothing has written", bytes);
        }
        if (write) {
            allocation_written(allocation, (const void *)a, bytes);
        }
    }
    touch_global(self, allocation, a, bytes, number, write, atomic);
    counts_at(number)->races += found_race;
}

/* In the schedule `preempt` one in so many accesses yields. */
enum { PREEMPT_ACCESS = 5 };

static void
access(uintptr_t a, size_t bytes, bool write, bool is_volatile, Alignment alignment,
       uintptr_t pc)
{
    if (!launching) {
        return;
    }
    Fibre *self = current;
    if (self && self->naccumulators > 0 && checking) {
        async_check_private(self, a, bytes, write, pc);
    }
    if (!self || is_private(self, a)) {
        return;
    }
    if (is_volatile) {
        if (config.schedule == GPO_SIM_LOCKSTEP) {
            yield();
        }
        else if (!write && is_busy()) {
            const Site site = site_line(site_of_pc(pc));
            spin_at(&site); /* it may be waiting for another thread */
        }
    }
    if (config.schedule == GPO_SIM_PREEMPT && random_below(PREEMPT_ACCESS) == 0) {
        yield();
    }
    if (!checking) {
        return;
    }
    const uint32_t site = site_of_pc(pc);
    /* in global memory a volatile access is a relaxed atomic; in shared it is not */
    const bool signal =
        is_volatile && a - (uintptr_t)self->block->shared >= SHARED_ROOM;
    for (size_t done = 0; done < bytes; done += 16) {
        const unsigned part = bytes - done < 16 ? (unsigned)(bytes - done) : 16;
        check_access(self, a + done, part, write, false, alignment, site);
    }
    if (signal) {
        acquire_and_release(self, a, true, write);
    }
}

void
access_atomic(void *address, size_t bytes, bool writes, const Site *site)
{
    Fibre *self = current;
    const uintptr_t a = (uintptr_t)address;
    if (!checking || is_private(self, a)) {
        return;
    }
    check_access(self, a, (unsigned)bytes, writes, true, ALIGNED, site_of_line(site));
    acquire_and_release(self, a, true, writes);
}

void
access_copy(const void *global, size_t bytes, bool is_first, const Site *site)
{
    if (!checking || !config.profile || bytes == 0) {
        return;
    }
    Counts *counts = counts_at(site_of_line(site));
    const uintptr_t first = (uintptr_t)global, last = first + bytes - 1;
    counts->global_requests += is_first;
    counts->global_sectors += last / 32 - first / 32 + 1;
    counts->global_ideal += (bytes + 31) / 32;
}

void
access_copy_16(const void *global, const Site *site)
{
    if (checking && config.profile) {
        record_request(current, site_of_line(site), GLOBAL, (uintptr_t)global, 16,
                       false);
    }
}

void
access_plain(const void *address, size_t bytes, bool write, const Site *site)
{
    if (checking && !is_private(current, (uintptr_t)address)) {
        check_access(current, (uintptr_t)address, (unsigned)bytes, write, false,
                     ALIGNED, site_of_line(site));
    }
}

void
access_fence(void)
{
    current->fence = ++now;
    current->fence_barrier = current->block->barrier;
    current->block->fences++;
}

/* ---- the scheduler's events ---- */

void
access_launch_begin(void)
{
    checking = config.checks || config.profile;
    if (!image.end) {
        dl_iterate_phdr(find_image, NULL);
    }
    forget_order();
    trace_launch();
    kernel = NULL;
    for (size_t i = 0; i < nkernels; i++) {
        if (kernels[i].name == running.kernel) {
            kernel = &kernels[i];
        }
    }
    if (!kernel && reserve(&kernels, &kernels_capacity, nkernels + 1)) {
        kernel = &kernels[nkernels++];
        *kernel = Kernel();
        kernel->name = running.kernel;
    }
    if (kernel) {
        kernel->launches++;
    }
}

void
access_block_begin(Block *block)
{
    block->acquired = 0;
    block->fences = 0;
    block->pieces = 0;
    for (unsigned i = 0; i < block->nthreads; i++) {
        block->fibres[i].fence = 0;
    }
    for (unsigned w = 0; w < block->nwarps; w++) {
        memset(block->warps[w].seen, 0, sizeof block->warps[w].seen);
        block->warps[w].table.count = 0;
    }
}

static void
count_block(Block *block)
{
    for (unsigned w = 0; config.profile && w < block->nwarps; w++) {
        count_requests(&block->warps[w]);
    }
}

void
access_barrier(Block *block, const Site *site)
{
    count_block(block);
    if (config.profile) {
        counts_at(site_of_line(site))->barriers++;
    }
}

void
access_collective(Warp *warp, unsigned met)
{
    uint32_t joined[WARP] = {0};
    const uint32_t time = ++now;
    for (unsigned left = met; left; left &= left - 1) {
        const unsigned lane = (unsigned)__builtin_ctz(left);
        for (int other = 0; other < WARP; other++) {
            if (warp->seen[lane][other] > joined[other]) {
                joined[other] = warp->seen[lane][other];
            }
        }
    }
    for (unsigned left = met; left; left &= left - 1) {
        joined[__builtin_ctz(left)] = time;
    }
    for (unsigned left = met; left; left &= left - 1) {
        memcpy(warp->seen[__builtin_ctz(left)], joined, sizeof joined);
    }
}

void
access_block_end(Block *block)
{
    count_block(block);
    if (tracing && config.profile) {
        trace_block(block);
    }
    if (kernel) {
        kernel->blocks++;
        kernel->threads += block->nthreads;
    }
}

/* ---- the report ---- */

void
access_reset(void)
{
    for (size_t i = 0; i < nkernels; i++) {
        free(kernels[i].counts);
    }
    nkernels = 0;
    kernel = NULL;
}

size_t
access_report(gpo_sim_record *records, size_t capacity)
{
    static const Counts nothing = Counts();
    size_t count = 0;
    for (size_t i = 0; i < nkernels; i++) {
        const Kernel *k = &kernels[i];
        for (size_t s = 0; s < k->capacity && s < nsites; s++) {
            const Counts *c = &k->counts[s];
            if (memcmp(c, &nothing, sizeof nothing) == 0) {
                continue;
            }
            if (count < capacity) {
                const Site line = site_line((uint32_t)s);
                gpo_sim_record *r = &records[count];
                r->kernel = k->name;
                snprintf(r->file, sizeof r->file, "%s", short_path(line.file));
                r->line = line.line;
                r->launches = k->launches;
                r->blocks = k->blocks;
                r->threads = k->threads;
                r->shared_requests = c->shared_requests;
                r->shared_wavefronts = c->shared_wavefronts;
                r->shared_ideal = c->shared_ideal;
                r->global_requests = c->global_requests;
                r->global_sectors = c->global_sectors;
                r->global_ideal = c->global_ideal;
                r->atomic_requests = c->atomic_requests;
                r->atomic_serialised = c->atomic_serialised;
                r->code_blocks = c->code_blocks;
                r->code_divergent = c->code_divergent;
                r->code_lanes = c->code_lanes;
                r->code_lanes_full = c->code_lanes_full;
                r->barriers = c->barriers;
                r->races = c->races;
            }
            count++;
        }
    }
    return count;
}

/* ---- the compiler's hooks ---- */

static void
code_block(uintptr_t pc)
{
    if (!launching) {
        return;
    }
    Fibre *self = current;
    if (self && config.profile) {
        Request *r = join_request(self, site_of_pc(pc), CODE);
        if (r) {
            r->mask |= 1u << self->position.lane;
        }
    }
}

} // namespace gpo_sim

#define GPO_SIM_CALLER ((uintptr_t)__builtin_return_address(0))
#define GPO_SIM_HOOK(name, bytes, write, is_volatile, alignment)       \
    extern "C" void name(void *address);                               \
    void name(void *address)                                           \
    {                                                                  \
        gpo_sim::access((uintptr_t)address, bytes, write, is_volatile, \
                        gpo_sim::alignment, GPO_SIM_CALLER);           \
    }
#define GPO_SIM_HOOKS(bytes)                                                       \
    GPO_SIM_HOOK(__tsan_read##bytes, bytes, false, false, ALIGNED)                 \
    GPO_SIM_HOOK(__tsan_write##bytes, bytes, true, false, ALIGNED)                 \
    GPO_SIM_HOOK(__tsan_unaligned_read##bytes, bytes, false, false, ANY_ALIGNMENT) \
    GPO_SIM_HOOK(__tsan_unaligned_write##bytes, bytes, true, false, ANY_ALIGNMENT) \
    GPO_SIM_HOOK(__tsan_volatile_read##bytes, bytes, false, true, ALIGNED)         \
    GPO_SIM_HOOK(__tsan_volatile_write##bytes, bytes, true, true, ALIGNED)         \
    GPO_SIM_HOOK(__tsan_unaligned_volatile_read##bytes, bytes, false, true,        \
                 ANY_ALIGNMENT)                                                    \
    GPO_SIM_HOOK(__tsan_unaligned_volatile_write##bytes, bytes, true, true,        \
                 ANY_ALIGNMENT)

GPO_SIM_HOOKS(1)
GPO_SIM_HOOKS(2)
GPO_SIM_HOOKS(4)
GPO_SIM_HOOKS(8)
GPO_SIM_HOOKS(16)

extern "C" {
void __tsan_init(void);
void __tsan_func_entry(void *);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **, void *);
void __tsan_vptr_read(void **);
void __tsan_read_range(void *address, size_t bytes);
void __tsan_write_range(void *address, size_t bytes);
void __sanitizer_cov_trace_pc(void);
}

void
__tsan_init(void)
{
}

void
__tsan_func_entry(void *)
{
}

void
__tsan_func_exit(void)
{
}

void
__tsan_vptr_update(void **, void *)
{
}

void
__tsan_vptr_read(void **)
{
}

void
__tsan_read_range(void *address, size_t bytes)
{
    gpo_sim::access((uintptr_t)address, bytes, false, false, gpo_sim::ANY_ALIGNMENT,
                    GPO_SIM_CALLER);
}

void
__tsan_write_range(void *address, size_t bytes)
{
    gpo_sim::access((uintptr_t)address, bytes, true, false, gpo_sim::ANY_ALIGNMENT,
                    GPO_SIM_CALLER);
}

void
__sanitizer_cov_trace_pc(void)
{
    gpo_sim::code_block(GPO_SIM_CALLER);
}

#else

namespace gpo_sim {

void
access_launch_begin(void)
{
}

void
access_block_begin(Block *)
{
}

void
access_barrier(Block *, const Site *)
{
}

void
access_collective(Warp *, unsigned)
{
}

void
access_block_end(Block *)
{
}

void
access_release_cells(Allocation *)
{
}

void
access_atomic(void *, size_t, bool, const Site *)
{
}

void
access_plain(const void *, size_t, bool, const Site *)
{
}

void
access_copy(const void *, size_t, bool, const Site *)
{
}

void
access_copy_16(const void *, const Site *)
{
}

void
access_fence(void)
{
}

size_t
access_report(gpo_sim_record *, size_t)
{
    return 0;
}

void
access_reset(void)
{
}

} // namespace gpo_sim

#endif
