/*
 * memory.cpp  The simulated device's memory.  Order: the heap, the backend's functions,
 * workspace and tickets, shared memory, the runtime's memset and memcpy.
 * Every allocation has its exact size, lies between two guard zones and is filled with
 * 0xFF (nan in every floating type).  One above SPARSE bytes is a lazy mapping of
 * zeros, so that an array of 2^31 elements costs only the pages that are touched.
 */
#include "internal.h"

#include "../core/exchange.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifdef GPO_SIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace gpo_sim {

enum {
    ALIGNMENT = 256, /* as cudaMalloc gives it */
    GUARD = 4096,    /* bytes before and after an allocation: a block's worth */
    PAGE = 4096,
    GUARD_FILL = 0x7D, /* a float16 of these bytes is a nan: adding 0 changes it */
    SHARED_FILL = 0xA5,
};
static const size_t SPARSE = (size_t)256 << 20;
static const size_t DEVICE_BYTES = (size_t)80 << 30;

/* ---- the heap: allocations by address ---- */

static Allocation *heap;
static size_t heap_count, heap_capacity;
static size_t heap_bytes;
static char *ticket_block;
static bool tickets_used;

/* The index of the first allocation that begins after `address`. */
static size_t
after(const void *address)
{
    size_t low = 0, high = heap_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if ((uintptr_t)heap[middle].data > (uintptr_t)address) {
            high = middle;
        }
        else {
            low = middle + 1;
        }
    }
    return low;
}

Allocation *
allocation_of(const void *address)
{
    static size_t last; /* caches the last one found: most calls repeat it */
    const uintptr_t a = (uintptr_t)address;
    if (last < heap_count && a - (uintptr_t)heap[last].data < heap[last].bytes) {
        return &heap[last];
    }
    const size_t i = after(address);
    if (i == 0 || a - (uintptr_t)heap[i - 1].data >= heap[i - 1].bytes) {
        return NULL;
    }
    last = i - 1;
    return &heap[last];
}

/* Whether [address, address + bytes) is inside one allocation. */
static bool
is_device(const void *address, size_t bytes)
{
    const size_t i = after(address);
    if (bytes == 0) {
        return true;
    }
    if (i == 0) {
        return false;
    }
    const size_t offset = (size_t)((uintptr_t)address - (uintptr_t)heap[i - 1].data);
    return offset <= heap[i - 1].bytes && bytes <= heap[i - 1].bytes - offset;
}

static size_t
padded(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool
heap_insert(const Allocation *allocation)
{
    if (heap_count == heap_capacity) {
        const size_t capacity = heap_capacity ? 2 * heap_capacity : 64;
        Allocation *grown = (Allocation *)realloc(heap, capacity * sizeof *heap);
        if (!grown) {
            return false;
        }
        heap = grown;
        heap_capacity = capacity;
    }
    const size_t i = after(allocation->data);
    memmove(heap + i + 1, heap + i, (heap_count - i) * sizeof *heap);
    heap[i] = *allocation;
    heap_count++;
    heap_bytes += allocation->bytes;
    return true;
}

static void
guard_fill(const Allocation *a)
{
    const size_t tail = padded(a->bytes) - a->bytes + GUARD;
    memset(a->data - GUARD, GUARD_FILL, GUARD);
    memset(a->data + a->bytes, GUARD_FILL, tail);
#ifdef GPO_SIM_ASAN
    __asan_poison_memory_region(a->data - GUARD, GUARD);
    __asan_poison_memory_region(a->data + a->bytes, tail);
#endif
}

static void
allocation_destroy(Allocation *a)
{
    access_release_cells(a);
    free(a->unwritten);
    if (a->mapped) {
        munmap(a->data, a->mapped);
        return;
    }
#ifdef GPO_SIM_ASAN
    __asan_unpoison_memory_region(a->data - GUARD, padded(a->bytes) + 2 * GUARD);
#endif
    free(a->data - GUARD);
}

static void *
heap_alloc(size_t bytes)
{
    Allocation a = Allocation();
    a.bytes = bytes;
    if (bytes > SPARSE) {
        a.mapped = (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
        void *memory = mmap(NULL, a.mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return NULL;
        }
        mprotect((char *)memory + a.mapped - PAGE, PAGE, PROT_NONE);
        a.data = (char *)memory;
    }
    else {
        char *memory = (char *)aligned_alloc(ALIGNMENT, padded(bytes) + 2 * GUARD);
        if (!memory) {
            return NULL;
        }
        a.data = memory + GUARD;
        memset(a.data, 0xFF, bytes);
        guard_fill(&a);
#ifdef GPO_SIM_PROFILE
        a.unwritten = (uint8_t *)malloc(bytes / 8 + 1);
        if (a.unwritten) {
            memset(a.unwritten, 0xFF, bytes / 8 + 1);
        }
#endif
    }
    if (!heap_insert(&a)) {
        allocation_destroy(&a);
        return NULL;
    }
    return a.data;
}

static void
heap_free(void *memory)
{
    const size_t i = after(memory);
    if (!memory || i == 0 || heap[i - 1].data != memory) {
        return;
    }
    heap_bytes -= heap[i - 1].bytes;
    allocation_destroy(&heap[i - 1]);
    memmove(heap + i - 1, heap + i, (heap_count - i) * sizeof *heap);
    heap_count--;
}

/* Clears the unwritten bits of [from, from + bytes), one per byte. */
void
allocation_written(Allocation *a, const void *from, size_t bytes)
{
    if (!a || !a->unwritten) {
        return;
    }
    size_t i = (size_t)((const char *)from - a->data);
    const size_t end = i + bytes;
    for (; i < end && i % 8 != 0; i++) {
        a->unwritten[i / 8] &= (uint8_t) ~(1u << i % 8);
    }
    if (end > i && end - i >= 8) {
        memset(a->unwritten + i / 8, 0, (end - i) / 8);
        i += (end - i) / 8 * 8;
    }
    for (; i < end; i++) {
        a->unwritten[i / 8] &= (uint8_t) ~(1u << i % 8);
    }
}

bool
none_written(const Allocation *a, const void *from, size_t bytes)
{
    const size_t start = (size_t)((const char *)from - a->data);
    for (size_t i = start; i < start + bytes; i++) {
        if (!(a->unwritten[i / 8] >> i % 8 & 1)) {
            return false;
        }
    }
    return true;
}

/* The first byte of the range that nothing has written, -1 if there is none. */
static int64_t
first_unwritten(const Allocation *a, const void *from, size_t bytes)
{
    const size_t start = (size_t)((const char *)from - a->data);
    for (size_t i = start; a->unwritten && i < start + bytes; i++) {
        if (i % 8 == 0 && a->unwritten[i / 8] == 0) {
            i += 7;
        }
        else if (a->unwritten[i / 8] >> i % 8 & 1) {
            return (int64_t)(i - start);
        }
    }
    return -1;
}

void
describe_address(uintptr_t address, char *text, size_t size)
{
    const size_t i = after((const void *)address);
    /* the allocation before the address, then the one after it */
    for (size_t k = i > 0 ? i - 1 : 0; k <= i && k < heap_count; k++) {
        const uintptr_t begin = (uintptr_t)heap[k].data;
        const uintptr_t end = begin + heap[k].bytes;
        if (address >= end && address - end < 65536) {
            snprintf(text, size,
                     "%zu bytes after the end of a device allocation of "
                     "%zu bytes",
                     (size_t)(address - end), heap[k].bytes);
            return;
        }
        if (address < begin && begin - address < 65536) {
            snprintf(text, size, "%zu bytes before a device allocation of %zu bytes",
                     (size_t)(begin - address), heap[k].bytes);
            return;
        }
    }
    snprintf(text, size, "in no device allocation");
}

/* ---- the backend ---- */

static const char *
unavailable(void)
{
    return NULL;
}

static gpo_status
begin(gpo_call *)
{
    return GPO_OK;
}

static gpo_status
no_memory(gpo_call *call, size_t bytes)
{
    call->error.requested_bytes = bytes;
    call->error.total_bytes = DEVICE_BYTES;
    call->error.free_bytes = heap_bytes < DEVICE_BYTES ? DEVICE_BYTES - heap_bytes : 0;
    return gpo_fail(&call->error, GPO_EDEVMEMORY,
                    "out of device memory: %zu bytes wanted, %zu of %zu free", bytes,
                    call->error.free_bytes, call->error.total_bytes);
}

static gpo_status
injected(gpo_call *call, const char *what)
{
    call->error.code = 1; /* cudaErrorInvalidValue */
    call->error.api = what;
    return gpo_fail(&call->error, GPO_ECUDA, "%s: injected failure", what);
}

static gpo_status
alloc_locked(gpo_call *call, size_t bytes, void **out)
{
    *out = NULL;
    if (must_fail() || bytes > DEVICE_BYTES || heap_bytes > DEVICE_BYTES - bytes) {
        return no_memory(call, bytes);
    }
    *out = heap_alloc(bytes);
    return *out ? GPO_OK : no_memory(call, bytes);
}

static gpo_status
alloc(gpo_call *call, size_t bytes, void **out)
{
    lock();
    const gpo_status status = alloc_locked(call, bytes, out);
    unlock();
    return status;
}

static void
release(gpo_call *, void *memory)
{
    lock();
    heap_free(memory);
    unlock();
}

static bool
is_zero_page(const char *page)
{
    return page[0] == 0 && memcmp(page, page + 1, PAGE - 1) == 0;
}

static gpo_status
upload_locked(gpo_call *call, void *to, const void *from, size_t bytes)
{
    if (must_fail()) {
        return injected(call, "upload");
    }
    if (!is_device(to, bytes)) {
        return gpo_fail(&call->error, GPO_ESIM,
                        "upload: %zu bytes to an address that is not a "
                        "device allocation of that size",
                        bytes);
    }
    Allocation *a = allocation_of(to);
    if (a && a->mapped) { /* pages of zeros are not copied */
        size_t done = 0;
        for (; bytes - done >= PAGE; done += PAGE) {
            const char *page = (const char *)from + done;
            char *target = (char *)to + done;
            if (!is_zero_page(page) || !is_zero_page(target)) {
                memcpy(target, page, PAGE);
            }
        }
        memcpy((char *)to + done, (const char *)from + done, bytes - done);
    }
    else {
        memcpy(to, from, bytes);
    }
    allocation_written(a, to, bytes);
    return GPO_OK;
}

static gpo_status
upload(gpo_call *call, void *to, const void *from, size_t bytes)
{
    lock();
    const gpo_status status = upload_locked(call, to, from, bytes);
    unlock();
    return status;
}

static gpo_status
download_locked(gpo_call *call, void *to, const void *from, size_t bytes)
{
    if (must_fail()) {
        return injected(call, "download");
    }
    if (!is_device(from, bytes)) {
        return gpo_fail(&call->error, GPO_ESIM,
                        "download: %zu bytes from an address that is "
                        "not a device allocation of that size",
                        bytes);
    }
    const Allocation *a = allocation_of(from);
    if (a && config.checks && config.first_block <= 0) {
        const int64_t i = first_unwritten(a, from, bytes);
        if (i >= 0) {
            return gpo_fail(&call->error, GPO_ESIM,
                            "%s: byte %lld of a result of %zu bytes was never written",
                            call->op ? call->op->name : "download", (long long)i,
                            bytes);
        }
    }
    memcpy(to, from, bytes);
    return GPO_OK;
}

static gpo_status
download(gpo_call *call, void *to, const void *from, size_t bytes)
{
    lock();
    const gpo_status status = download_locked(call, to, from, bytes);
    unlock();
    return status;
}

static gpo_status
wait(gpo_call *)
{
    return GPO_OK; /* a launch returns when it is done */
}

/* ---- workspace and tickets ---- */

struct Scratch {
    Scratch *next;
    void *memory;
};

static gpo_status
scratch(gpo_call *call, size_t bytes, void **out)
{
    Scratch *node = (Scratch *)malloc(sizeof *node);
    if (!node) {
        return gpo_fail(&call->error, GPO_EMEMORY,
                        "no memory for a list of workspaces");
    }
    const gpo_status status = alloc(call, bytes, out);
    if (status) {
        free(node);
        return status;
    }
    node->memory = *out;
    node->next = (Scratch *)call->scratch;
    call->scratch = node;
    return GPO_OK;
}

static void
end(gpo_call *call)
{
    for (Scratch *node = (Scratch *)call->scratch; node;) {
        Scratch *next = node->next;
        release(call, node->memory);
        free(node);
        node = next;
    }
    call->scratch = NULL;
}

static const size_t ticket_bytes = GPO_TICKETS * sizeof(unsigned);
static const size_t block_bytes = ticket_bytes + GPO_PARTIALS + GPO_EXCHANGE_BYTES;

/* The tickets are zero between launches; the partials after them count as unwritten, the
   words of exchange.h are as the last launch left them. */
static gpo_status
tickets(gpo_call *call, unsigned **out)
{
    gpo_status status = GPO_OK;
    *out = NULL;
    lock();
    const bool fails = must_fail();
    if (!fails && !ticket_block) {
        ticket_block = (char *)heap_alloc(block_bytes);
        if (ticket_block) {
            memset(ticket_block, 0, block_bytes);
        }
    }
    if (fails || !ticket_block) {
        status = no_memory(call, block_bytes);
    }
    else {
        Allocation *block = allocation_of(ticket_block);
        if (block->unwritten &&
            config.checks) { /* a call must not read what earlier calls left */
            memset(ticket_block + ticket_bytes, 0xFF, GPO_PARTIALS);
            memset(block->unwritten, 0xFF, block->bytes / 8 + 1);
        }
        allocation_written(block, ticket_block, ticket_bytes);
        allocation_written(block, ticket_block + ticket_bytes + GPO_PARTIALS,
                           GPO_EXCHANGE_BYTES);
        *out = (unsigned *)ticket_block;
        tickets_used = true;
    }
    unlock();
    return status;
}

static void
check_tickets(bool complete)
{
    const unsigned *ticket = (const unsigned *)ticket_block;
    if (!complete) { /* blocks that did not start have not been counted */
        memset(ticket_block + ticket_bytes + GPO_PARTIALS, 0, GPO_EXCHANGE_BYTES);
    }
    for (int i = 0; i < GPO_TICKETS; i++) {
        if (ticket[i] != 0) {
            if (complete) {
                fault(NULL, NULL, "the kernel left ticket %d at %u, not 0", i,
                      ticket[i]);
            }
            memset(ticket_block, 0, ticket_bytes);
            return;
        }
    }
}

/* The offset of the first changed byte in a guard zone, -1 if there is none. */
static int64_t
first_changed(const char *zone, size_t bytes)
{
    const uint8_t *z = (const uint8_t *)zone;
    if (bytes == 0 || (z[0] == GUARD_FILL && memcmp(z, z + 1, bytes - 1) == 0)) {
        return -1;
    }
    size_t i = 0;
    while (z[i] == GUARD_FILL) {
        i++;
    }
    return (int64_t)i;
}

static void
check_guards(const Allocation *a)
{
    const int64_t before = first_changed(a->data - GUARD, GUARD);
    const int64_t behind =
        first_changed(a->data + a->bytes, padded(a->bytes) - a->bytes + GUARD);
    if (before >= 0) {
        fault(NULL, NULL,
              "the kernel wrote %lld bytes before a device allocation of %zu bytes",
              (long long)(GUARD - before), a->bytes);
    }
    if (behind >= 0) {
        fault(NULL, NULL,
              "the kernel wrote %lld bytes after the end of a device allocation of %zu "
              "bytes",
              (long long)behind, a->bytes);
    }
    if (before >= 0 || behind >= 0) {
        guard_fill(a);
    }
}

/* Checks whether the launch wrote into a guard zone or left tickets nonzero. */
void
memory_after_launch(bool complete)
{
#ifndef GPO_SIM_ASAN
    for (size_t i = 0; i < heap_count; i++) {
        if (!heap[i].mapped) {
            check_guards(&heap[i]);
        }
    }
#endif
    if (tickets_used && ticket_block) {
        check_tickets(complete);
    }
}

void
memory_state(gpo_sim_state *state)
{
    state->allocations = (int64_t)heap_count - (ticket_block != NULL);
    state->bytes = (int64_t)(heap_bytes - (ticket_block ? block_bytes : 0));
}

/* SMs: few, so that grids sized by it run quickly but still have many blocks. */
static int
processors(const gpo_call *)
{
    return 4;
}

/* Small, so that small arrays already exceed what an operator keeps in L2. */
static int64_t
l2_bytes(const gpo_call *)
{
    return 1 << 20;
}

/* The simulated device has compute capability 9.0. */
static const char *
lacks(int, const char *needs)
{
    return strcmp(needs, "sm_90a") == 0 ? NULL : "the simulator knows those of sm_90a";
}

const gpo_backend backend = {
    "sim",  true,     unavailable, begin,   end,     alloc,      release,
    upload, download, wait,        scratch, tickets, processors, l2_bytes,
    NULL,   NULL,     NULL,        NULL,    lacks,
};

/* ---- shared memory: arrays with guard zones between them ---- */

bool
shared_prepare(Block *block)
{
    if (!block->shared) {
        void *memory = mmap(NULL, SHARED_ROOM, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) {
            return false;
        }
        block->shared = (char *)memory;
    }
#ifdef GPO_SIM_ASAN
    __asan_unpoison_memory_region(block->shared, SHARED_ROOM);
#endif
    return true;
}

static SharedArray *
shared_add(Block *block, const void *key, size_t bytes)
{
    const size_t whole = (bytes + SHARED_GUARD - 1) / SHARED_GUARD * SHARED_GUARD;
    SharedArray *array = &block->arrays[block->narrays++];
    array->key = key;
    array->bytes = bytes;
    array->data = block->shared + block->shared_used + SHARED_GUARD;
    array->offset = (block->shared_offset + 15) / 16 * 16;
    block->shared_offset = array->offset + bytes;
#ifdef GPO_SIM_ASAN /* the zone before this array is the one after the previous array */
    __asan_unpoison_memory_region(array->data - SHARED_GUARD, SHARED_GUARD);
#endif
    memset(array->data - SHARED_GUARD, GUARD_FILL, SHARED_GUARD);
    memset(array->data, SHARED_FILL, bytes);
    memset(array->data + bytes, GUARD_FILL, whole - bytes + SHARED_GUARD);
    block->shared_used += SHARED_GUARD + whole;
#ifdef GPO_SIM_ASAN
    __asan_poison_memory_region(array->data - SHARED_GUARD, SHARED_GUARD);
    __asan_poison_memory_region(array->data + bytes, whole - bytes + SHARED_GUARD);
#endif
    return array;
}

void
shared_begin(Block *block)
{
    if (running.dynamic_bytes > 0 && block->narrays == 0) {
        block->shared_used = SHARED_ALIGNMENT - SHARED_GUARD;
        shared_add(block, NULL, running.dynamic_bytes);
        return;
    }
    for (int i = 0; i < block->narrays; i++) {
        memset(block->arrays[i].data, SHARED_FILL, block->arrays[i].bytes);
    }
}

void
shared_end(Block *block)
{
#ifndef GPO_SIM_ASAN
    for (int i = 0; i < block->narrays; i++) {
        const SharedArray *a = &block->arrays[i];
        for (size_t k = 0; k < SHARED_GUARD; k++) {
            const bool behind = (uint8_t)a->data[a->bytes + k] != GUARD_FILL;
            if (behind || (uint8_t)a->data[-1 - (ptrdiff_t)k] != GUARD_FILL) {
                fault(
                    NULL, NULL,
                    "block (%u, %u, %u) wrote %zu bytes %s a shared array of %zu bytes",
                    block->index.x, block->index.y, block->index.z, k,
                    behind ? "after" : "before", a->bytes);
                return;
            }
        }
    }
#else
    (void)block;
#endif
}

void *
shared_array(const void *key, size_t bytes, const char *file, int line)
{
    Block *block = current->block;
    for (int i = 0; i < block->narrays; i++) {
        if (block->arrays[i].key == key) {
            return block->arrays[i].data;
        }
    }
    const Site site = {file, line};
    block->static_bytes += bytes;
    if (block->static_bytes > SHARED_STATIC) {
        fault(current, &site,
              "invalid launch: %zu bytes of static shared memory; %d are possible",
              block->static_bytes, (int)SHARED_STATIC);
    }
    if (block->shared_offset + bytes > SHARED_TOTAL || block->narrays == MAX_ARRAYS) {
        fault(current, &site,
              "invalid launch: %zu bytes of shared memory; %d are possible",
              block->shared_offset + bytes, (int)SHARED_TOTAL);
    }
    return shared_add(block, key, bytes)->data;
}

void *
dynamic_shared(void)
{
    const Block *block = current->block;
    return block->narrays > 0 && !block->arrays[0].key ? block->arrays[0].data : NULL;
}

/* ---- the runtime's own copies ---- */

cudaError_t
memory_set(void *to, int value, size_t bytes)
{
    cudaError_t error = cudaErrorInvalidValue;
    lock();
    if (!must_fail() && is_device(to, bytes)) {
        memset(to, value, bytes);
        allocation_written(allocation_of(to), to, bytes);
        error = cudaSuccess;
    }
    unlock();
    return error;
}

cudaError_t
memory_copy(void *to, const void *from, size_t bytes)
{
    cudaError_t error = cudaErrorInvalidValue;
    lock();
    if (!must_fail() && is_device(to, bytes) && is_device(from, bytes)) {
        memmove(to, from, bytes);
        allocation_written(allocation_of(to), to, bytes);
        error = cudaSuccess;
    }
    unlock();
    return error;
}

} // namespace gpo_sim
