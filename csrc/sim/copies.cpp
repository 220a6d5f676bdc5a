/*
 * copies.cpp  mbarriers and asynchronous copies.  Order: the block's state, mbarriers,
 * copies that an mbarrier counts, copies that their thread waits for, the scheduler's
 * events.
 * A copy that an mbarrier counts is made when no thread of the block can go on, in the
 * schedule `preempt` sometimes earlier; the others are made when their thread waits.
 */
#include "async.h"
#include "hopper_calls.h"
#include "tables.h"

#include <stdio.h>

namespace gpo_sim {

/* ---- the block's state ---- */

Async *
async_of(Block *block, const Site *site)
{
    if (!block->async) {
        block->async = (Async *)calloc(1, sizeof(Async));
        if (!block->async) {
            fault(current, site, "the simulator has no memory for asynchronous copies");
        }
    }
    return block->async;
}

bool
is_shared(const Block *block, uintptr_t address, size_t bytes)
{
    for (int i = 0; i < block->narrays; i++) {
        const SharedArray *array = &block->arrays[i];
        const uintptr_t offset = address - (uintptr_t)array->data;
        if (offset <= array->bytes && bytes <= array->bytes - offset) {
            return true;
        }
    }
    return false;
}

uint32_t
shared_number(const void *p, const char *file, int line)
{
    const uintptr_t offset = (uintptr_t)p - (uintptr_t)current->block->shared;
    if (offset >= SHARED_ROOM) {
        const Site site = {file, line};
        fault(current, &site, "the address is not in shared memory");
    }
    return (uint32_t)offset;
}

static uintptr_t
shared_place(const Block *block, uint32_t address)
{
    return (uintptr_t)block->shared + address;
}

uint32_t
shared_word(uint32_t address, const char *file, int line)
{
    Fibre *self = current;
    const Site site = {file, line};
    const uintptr_t at = shared_place(self->block, address);
    if (address % 4 != 0 || !is_shared(self->block, at, 4)) {
        fault(self, &site, "read of 4 bytes at %u: not a word of a shared array",
              address);
    }
    access_plain((const void *)at, 4, false, &site);
    uint32_t word;
    memcpy(&word, (const void *)at, sizeof word);
    return word;
}

void
proxy_fence()
{
    Fibre *self = current;
    if (self->proxy_fence < self->block->barrier) {
        self->earlier_proxy_fence = self->proxy_fence;
    }
    self->proxy_fence = ++now;
    self->proxy_fences[self->nproxy_fences++ % FENCES] = now;
}

/* ---- mbarriers ---- */

static MBarrier *
find_barrier(Block *block, uint32_t address)
{
    Async *async = block->async;
    for (unsigned i = 0; async && i < async->nbarriers; i++) {
        MBarrier *barrier = &async->barriers[i];
        if (barrier->valid && address - barrier->address + 7 < 15) { /* they overlap */
            return barrier;
        }
    }
    return NULL;
}

/* The mbarrier at the address, or at a peer's; a fault if there is none. */
static MBarrier *
barrier_at(uint32_t address, const Site *site)
{
    const uint32_t offset = address & OFFSET_MASK;
    MBarrier *barrier = find_barrier(block_of(address), offset);
    if (!barrier || barrier->address != offset) {
        fault(current, site, "there is no mbarrier at %u", address);
    }
    return barrier;
}

void
mbarrier_init(uint32_t address, uint32_t count, const char *file, int line)
{
    Fibre *self = current;
    Block *block = self->block;
    const Site site = {file, line};
    const uintptr_t at = shared_place(block, address);
    if (address % 8 != 0 || !is_shared(block, at, 8)) {
        fault(self, &site, "an mbarrier at %u: not 8 aligned bytes of a shared array",
              address);
    }
    if (count < 1 || count >= 1u << 20) {
        fault(self, &site, "an mbarrier of %u arrivals; 1 to 2^20 - 1 are possible",
              count);
    }
    if (const MBarrier *old = find_barrier(block, address)) {
        fault(self, &site,
              "initialises the mbarrier of line %d again, which is in use: %u phases "
              "have ended, and there was no mbarrier.inval",
              old->site.line, old->phases);
    }
    Async *async = async_of(block, &site);
    unsigned number = 0;
    while (number < async->nbarriers && async->barriers[number].valid) {
        number++;
    }
    if (number == MAX_BARRIERS) {
        fault(self, &site, "more than %d mbarriers in a block", (int)MAX_BARRIERS);
    }
    async->nbarriers += number == async->nbarriers;
    MBarrier *barrier = &async->barriers[number];
    async_barrier_word(self, block, address, true, true, &site);
    memset(barrier->waited, 0xFF, sizeof barrier->waited);
    barrier->block = block;
    barrier->address = address;
    barrier->number = number;
    barrier->valid = true;
    barrier->count = barrier->missing = count;
    barrier->bytes = 0;
    barrier->phases = 0;
    barrier->site = site;
    barrier->thread = self->linear;
    barrier->time = now;
}

void
mbarrier_end(uint32_t address, const char *file, int line)
{
    const Site site = {file, line};
    MBarrier *barrier = barrier_at(address, &site);
    async_barrier_word(current, barrier->block, address, false, true, &site);
    if (barrier->bytes != 0 || barrier->missing != barrier->count) {
        fault(current, &site, "ends an mbarrier in the middle of a phase");
    }
    barrier->valid = false;
}

/* Ends the phase if nothing is missing. */
static void
maybe_end_phase(MBarrier *barrier)
{
    if (barrier->missing == 0 && barrier->bytes == 0) {
        barrier->phases++;
        barrier->missing = barrier->count;
        async_phase_ends(barrier);
        wake_waiting(barrier->block, barrier, (int)barrier->phases);
    }
}

static void
arrive(MBarrier *barrier, int64_t bytes, uint32_t count, const Site *site)
{
    check_peer(barrier->block, site);
    async_barrier_word(current, barrier->block, barrier->address, false, true, site);
    if (count > barrier->missing) {
        fault(current, site, "more arrivals than the %u of the mbarrier's phase%s",
              barrier->count,
              barrier->bytes > 0 ? ", whose bytes have not all arrived" : "");
    }
    barrier->bytes += bytes;
    barrier->missing -= count;
    maybe_end_phase(barrier);
}

void
mbarrier_arrive(uint32_t address, uint32_t bytes, uint32_t count, const char *file,
                int line)
{
    const Site site = {file, line};
    maybe_preempt();
    arrive(barrier_at(address, &site), bytes, count, &site);
}

/* The mbarrier at the address; a fault if it is another block's. */
static MBarrier *
own_barrier_at(uint32_t address, const Site *site)
{
    MBarrier *barrier = barrier_at(address, site);
    if (barrier->block != current->block) {
        fault(current, site, "waits for an mbarrier of another block");
    }
    return barrier;
}

/* Whether the phase of this parity has ended: the one before the current one. */
static bool
has_ended(const MBarrier *barrier, uint32_t parity)
{
    return (barrier->phases & 1) != (parity & 1);
}

static void
note_wait(Fibre *self, MBarrier *barrier, uint32_t phases, const Site *site)
{
    barrier->waited[self->linear] = phases;
    async_barrier_word(self, barrier->block, barrier->address, false, false, site);
}

bool
mbarrier_test(uint32_t address, uint32_t parity, const char *file, int line)
{
    const Site site = {file, line};
    MBarrier *barrier = own_barrier_at(address, &site);
    if (!has_ended(barrier, parity)) {
        spin_at(&site);
        return false;
    }
    note_wait(current, barrier, barrier->phases, &site);
    return true;
}

void
mbarrier_wait(uint32_t address, uint32_t parity, const char *file, int line)
{
    Fibre *self = current;
    const Site site = {file, line};
    MBarrier *barrier = own_barrier_at(address, &site);
    uint32_t phases = barrier->phases;
    maybe_preempt();
    if (!has_ended(barrier, parity)) {
        phases = (uint32_t)wait_for(Fibre::FOR_MBARRIER, barrier, &site);
    }
    else if (barrier->waited[self->linear] == barrier->phases) {
        fault(self, &site,
              "waits a second time for the phase of parity %u (number %u of the "
              "mbarrier of line %d)",
              parity & 1, barrier->phases - 1, barrier->site.line);
    }
    else {
        phases = barrier->phases;
    }
    note_wait(self, barrier, phases, &site);
}

/* ---- copies ---- */

static Copy *
new_copy(Fibre *self, CopyKind kind, const Site *site)
{
    Async *async = async_of(self->block, site);
    if (!reserve(&async->copies, &async->copies_capacity, async->ncopies + 1)) {
        fault(self, site, "the simulator has no memory for asynchronous copies");
    }
    Copy *copy = &async->copies[async->ncopies++];
    *copy = Copy();
    copy->kind = kind;
    copy->fibre = self;
    copy->site = *site;
    copy->time = ++now;
    return copy;
}

static void
remove_copy(Async *async, size_t i)
{
    free(async->copies[i].held);
    memmove(async->copies + i, async->copies + i + 1,
            (async->ncopies - i - 1) * sizeof *async->copies);
    async->ncopies--;
}

/* Checks the addresses of a copy between global and shared memory. */
static void
check_copy(Fibre *self, const char *what, const void *global, uint32_t shared,
           size_t bytes, const Site *site)
{
    const uintptr_t at = shared_place(self->block, shared);
    if ((uintptr_t)global % BULK || shared % BULK || bytes % BULK) {
        fault(self, site,
              "unaligned %s: global address %u, shared address %u and size %u modulo "
              "16 must be 0",
              what, (unsigned)((uintptr_t)global % BULK), shared % BULK,
              (unsigned)(bytes % BULK));
    }
    if (!is_shared(self->block, at, bytes)) {
        fault(self, site, "%s of %zu bytes at %u: not inside a shared array", what,
              bytes, shared);
    }
    const Allocation *a = allocation_of(global);
    if (!a || bytes > a->bytes - (size_t)((const char *)global - a->data)) {
        char where[128];
        describe_address(a ? (uintptr_t)a->data + a->bytes : (uintptr_t)global, where,
                         sizeof where);
        fault(self, site, "out-of-bounds %s of %zu bytes, %s", what, bytes, where);
    }
}

/* The box of a map, or `bytes` bytes from `global` on; `shared` is their other place. */
struct Places {
    char *global;
    uint32_t shared, bytes;
    const TensorMap *map;
    const int32_t *at;
};

static void
place_copy(Copy *copy, const Places *places)
{
    copy->global = places->global;
    copy->shared = (char *)shared_place(copy->fibre->block, places->shared);
    copy->bytes = places->bytes;
    if (places->map) {
        copy->map = *places->map;
        memcpy(copy->at, places->at, places->map->rank * sizeof *places->at);
    }
}

static void
start_load(const Places *places, uint32_t barrier_address, const Site *site)
{
    Fibre *self = current;
    MBarrier *barrier = own_barrier_at(barrier_address, site);
    async_check_barrier(self, barrier, site);
    Copy *copy = new_copy(self, BULK_LOAD, site);
    place_copy(copy, places);
    copy->barrier = barrier;
    copy->phase = barrier->phases;
    bool is_first = true;
    each_piece(copy, [&](size_t, const char *global, size_t bytes) {
        async_reads(self, (uintptr_t)global, bytes, false, site);
        access_copy(global, bytes, is_first, site);
        is_first = false;
    });
    async_writes(self, (uintptr_t)copy->shared, copy->bytes,
                 ASYNC_FLAG | barrier->number, site);
    memset(copy->shared, POISON, copy->bytes);
}

void
bulk_load_start(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier,
                const char *file, int line)
{
    const Site site = {file, line};
    const Places places = {(char *)from, to, bytes, NULL, NULL};
    check_copy(current, "bulk copy", from, to, bytes, &site);
    start_load(&places, barrier, &site);
}

void
tensor_load_start(uint32_t to, const TensorMap *map, const int32_t *at, uint32_t rank,
                  uint32_t barrier, const char *file, int line)
{
    const Site site = {file, line};
    check_box(current, "bulk copy", map, at, rank, to, &site);
    const Places places = {NULL, to, box_bytes(map), map, at};
    start_load(&places, barrier, &site);
}

/* Reports a copy whose phase has ended without it. */
static bool
is_too_many(const Copy *copy)
{
    const bool is_late = copy->barrier->phases != copy->phase;
    if (is_late) {
        fault(copy->fibre, &copy->site,
              "the %zu bytes of this bulk copy are more than the mbarrier's phase "
              "expects: it has ended without them",
              copy->bytes);
    }
    return is_late;
}

/* Makes a copy that an mbarrier counts. */
static void
finish_load(Async *async, size_t i)
{
    const Copy copy = async->copies[i];
    MBarrier *barrier = copy.barrier;
    remove_copy(async, i);
    if (is_too_many(&copy)) {
        return;
    }
    memset(copy.shared, 0, copy.bytes); /* what is out of bounds of a map */
    each_piece(&copy, [&](size_t offset, const char *global, size_t bytes) {
        each_part(&copy, offset, bytes, [&](size_t to, size_t from, size_t part) {
            memcpy(copy.shared + to, global + from, part);
        });
    });
    barrier->bytes -= (int64_t)copy.bytes;
    maybe_end_phase(barrier);
}

void
copy_16_start(uint32_t to, const void *from, bool wanted, const char *file, int line)
{
    Fibre *self = current;
    const Site site = {file, line};
    const uintptr_t at = shared_place(self->block, to);
    if (wanted) {
        check_copy(self, "copy", from, to, BULK, &site);
    }
    else if (to % BULK || !is_shared(self->block, at, BULK)) {
        fault(self, &site, "a copy to %u: not 16 aligned bytes of a shared array", to);
    }
    Copy *copy = new_copy(self, COPY_16, &site);
    copy->shared = (char *)at;
    copy->global = (char *)from;
    copy->bytes = BULK;
    copy->zeros = !wanted;
    if (wanted) {
        async_reads(self, (uintptr_t)from, BULK, false, &site);
        access_copy_16(from, &site);
    }
    async_writes(self, at, BULK, BY_ITS_THREAD, &site);
    memset(copy->shared, POISON, BULK);
}

/*
 * Calls `finish` for the copies of a kind that the running thread has started; those for
 * which it returns true have been made.  A fault in it leaves a list that can be freed.
 */
template <typename Finish>
static void
each_own_copy(CopyKind kind, Finish finish)
{
    Async *async = current->block->async;
    const size_t count = async ? async->ncopies : 0;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        Copy *copy = &async->copies[i];
        if (copy->kind == kind && copy->fibre == current && finish(copy)) {
            free(copy->held);
            copy->held = NULL;
        }
        else if (kept++ < i) {
            async->copies[kept - 1] = *copy;
            copy->held = NULL;
        }
    }
    if (async) {
        async->ncopies = kept;
    }
}

void
copy_16_wait()
{
    maybe_preempt();
    each_own_copy(COPY_16, [](Copy *copy) {
        async_has_written(copy->fibre, (uintptr_t)copy->shared, BULK, &copy->site);
        if (copy->zeros) {
            memset(copy->shared, 0, BULK);
        }
        else {
            memcpy(copy->shared, copy->global, BULK);
        }
        return true;
    });
}

static void
start_store(const Places *places, bool adds_floats, const Site *site)
{
    Fibre *self = current;
    Copy *copy = new_copy(self, BULK_STORE, site);
    place_copy(copy, places);
    copy->adds = adds_floats;
    bool is_first = true;
    each_piece(copy, [&](size_t offset, char *global, size_t bytes) {
        each_part(copy, offset, bytes, [&](size_t from, size_t, size_t part) {
            async_reads(self, (uintptr_t)copy->shared + from, part, true, site);
        });
        access_copy(global, bytes, is_first, site);
        is_first = false;
        if (!adds_floats) { /* sums of many blocks may go to the same place */
            async_writes(self, (uintptr_t)global, bytes, BY_ITS_THREAD, site);
            memset(global, POISON, bytes);
        }
    });
}

void
bulk_store_start(void *to, uint32_t from, uint32_t bytes, bool adds_floats,
                 const char *file, int line)
{
    const Site site = {file, line};
    const Places places = {(char *)to, from, bytes, NULL, NULL};
    check_copy(current, "bulk store", to, from, bytes, &site);
    start_store(&places, adds_floats, &site);
}

void
tensor_store_start(const TensorMap *map, const int32_t *at, uint32_t rank,
                   uint32_t from, const char *file, int line)
{
    const Site site = {file, line};
    check_box(current, "bulk store", map, at, rank, from, &site);
    check_stored_box(current, map, at, &site);
    const Places places = {NULL, from, box_bytes(map), map, at};
    start_store(&places, false, &site);
}

static void
read_store(Copy *copy, const Site *site)
{
    if (copy->held) {
        return;
    }
    copy->held = (char *)malloc(copy->bytes ? copy->bytes : 1);
    if (!copy->held) {
        fault(copy->fibre, site, "the simulator has no memory for a bulk store");
        return;
    }
    each_piece(copy, [&](size_t offset, const char *, size_t bytes) {
        each_part(copy, offset, bytes, [&](size_t from, size_t, size_t part) {
            async_has_read(copy->fibre, (uintptr_t)copy->shared + from, part,
                           copy->time, "bulk store", &copy->site);
        });
    });
    memcpy(copy->held, copy->shared, copy->bytes);
}

/* Writes what the store has read. */
static void
write_store(const Copy *copy)
{
    for (size_t i = 0; copy->adds && i < copy->bytes; i += sizeof(float)) {
        float sum, value;
        memcpy(&sum, copy->global + i, sizeof sum);
        memcpy(&value, copy->held + i, sizeof value);
        sum += value;
        memcpy(copy->global + i, &sum, sizeof sum);
    }
    if (!copy->adds) {
        each_piece(copy, [&](size_t offset, char *global, size_t bytes) {
            each_part(copy, offset, bytes, [&](size_t from, size_t to, size_t part) {
                memcpy(global + to, copy->held + from, part);
            });
        });
    }
}

void
bulk_store_wait(bool only_read, const char *file, int line)
{
    const Site site = {file, line};
    maybe_preempt();
    each_own_copy(BULK_STORE, [&](Copy *copy) {
        read_store(copy, &site);
        if (only_read) {
            return false;
        }
        if (!copy->adds) {
            each_piece(copy, [&](size_t, const char *global, size_t bytes) {
                async_has_written(copy->fibre, (uintptr_t)global, bytes, &copy->site);
            });
        }
        write_store(copy);
        return true;
    });
}

/* ---- the scheduler's events ---- */

void
async_begin(Block *block)
{
    Async *async = block->async;
    if (!async) {
        return;
    }
    while (async->ncopies > 0) { /* of a launch that failed */
        remove_copy(async, async->ncopies - 1);
    }
    async->nbarriers = 0;
    async->nuses = 0;
    memset(async->named, 0, sizeof async->named);
    products_begin(block);
}

/* Makes the stores that have read their shared memory; nothing else may be left. */
static void
finish_copies(Async *async)
{
    for (size_t i = 0; i < async->ncopies; i++) {
        const Copy *copy = &async->copies[i];
        if (copy->kind == BULK_LOAD && !is_too_many(copy)) {
            fault(copy->fibre, &copy->site,
                  "the block ends while this bulk copy into its shared memory is in "
                  "flight");
        }
        if (copy->kind == BULK_LOAD) {
            return;
        }
        if (copy->kind == BULK_STORE && !copy->held) {
            fault(copy->fibre, &copy->site,
                  "the block ends while this bulk store may still read its shared "
                  "memory: nobody has waited for it");
            return;
        }
        if (copy->kind == BULK_STORE) {
            write_store(copy);
        }
    }
}

void
async_end(Block *block)
{
    Async *async = block->async;
    if (!async) {
        return;
    }
    finish_copies(async);
    for (unsigned i = 0; i < async->nbarriers; i++) {
        const MBarrier *barrier = &async->barriers[i];
        if (barrier->valid && barrier->bytes != 0) {
            fault(&block->fibres[barrier->thread], &barrier->site,
                  "the block ends while a phase of this mbarrier %s %lld bytes",
                  barrier->bytes > 0 ? "lacks" : "has too many, by",
                  (long long)(barrier->bytes > 0 ? barrier->bytes : -barrier->bytes));
        }
    }
    products_end(block);
    while (async->ncopies > 0) {
        remove_copy(async, async->ncopies - 1);
    }
}

bool
async_pending(const Block *block)
{
    return block->async && block->async->ncopies > 0;
}

bool
async_progress(Block *block)
{
    Async *async = block->async;
    size_t loads = 0;
    for (size_t i = 0; async && i < async->ncopies; i++) {
        loads += async->copies[i].kind == BULK_LOAD;
    }
    if (loads == 0) {
        return false;
    }
    size_t wanted = 0; /* the number of the load to make */
    switch (config.schedule) {
        case GPO_SIM_DESCENDING:
            wanted = loads - 1;
            break;
        case GPO_SIM_SHUFFLE:
        case GPO_SIM_PREEMPT:
            wanted = random_below((uint32_t)loads);
            break;
        default:
            break;
    }
    for (size_t i = 0; i < async->ncopies; i++) {
        if (async->copies[i].kind == BULK_LOAD && wanted-- == 0) {
            finish_load(async, i);
            break;
        }
    }
    return true;
}

bool
async_report_deadlock(Block *block)
{
    for (unsigned i = 0; i < block->nthreads; i++) {
        const Fibre *fibre = &block->fibres[i];
        if (!(fibre->warp->waiting >> fibre->position.lane & 1u)) {
            continue;
        }
        if (fibre->waits == Fibre::FOR_NAMED_BARRIER) {
            report_named_barrier(fibre);
            return true;
        }
        if (fibre->waits == Fibre::FOR_CLUSTER) {
            report_cluster(fibre);
            return true;
        }
        const MBarrier *barrier = (const MBarrier *)fibre->waits_for;
        char what[96] = "";
        if (barrier->missing > 0) {
            snprintf(what, sizeof what, "%u of %u arrivals never come",
                     barrier->missing, barrier->count);
        }
        else {
            snprintf(what, sizeof what, "%lld bytes %s",
                     (long long)(barrier->bytes > 0 ? barrier->bytes : -barrier->bytes),
                     barrier->bytes > 0 ? "that it expects never come"
                                        : "more than it expects have come");
        }
        fault(fibre, &fibre->site,
              "deadlock: phase %u of the mbarrier of line %d does not end: %s",
              barrier->phases, barrier->site.line, what);
        return true;
    }
    return false;
}

void
async_check_shared(Fibre *self, uintptr_t address, size_t bytes, const Site *site)
{
    const Async *async = self->block->async;
    for (unsigned i = 0; i < async->nbarriers; i++) {
        const MBarrier *barrier = &async->barriers[i];
        const uintptr_t at = shared_place(self->block, barrier->address);
        if (barrier->valid && address < at + 8 && at < address + bytes) {
            fault(self, site, "a plain access of the mbarrier of line %d",
                  barrier->site.line);
        }
    }
}

} // namespace gpo_sim
