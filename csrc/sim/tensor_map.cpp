/*
 * tensor_map.cpp  Tensor maps: how they are made, and the checks of a box.  copies.cpp
 * makes the copies.
 */
#include "async.h"

#include <stdio.h>

namespace gpo_sim {

/* Bytes from the first to the last element; more than any allocation where it overflows. */
static uint64_t
extent_of(const TensorMap *map)
{
    uint64_t bytes = map->sizes[0] * map->element; /* at most 2^32 * 16 */
    for (uint32_t d = 1; d < map->rank; d++) {
        uint64_t more = 0;
        if (__builtin_mul_overflow(map->sizes[d] - 1, map->strides[d], &more) ||
            __builtin_add_overflow(bytes, more, &bytes)) {
            return UINT64_MAX;
        }
    }
    return bytes;
}

static bool
is_allocated(const TensorMap *map)
{
    const Allocation *a = allocation_of(map->base);
    return a && extent_of(map) <= a->bytes - (size_t)(map->base - a->data);
}

/* What cuTensorMapEncodeTiled refuses, in words; "" if nothing. */
static void
describe_refusal(const TensorMap *map, char *text, size_t size)
{
    constexpr uint64_t MOST_SIZE = uint64_t(1) << 32, MOST_STRIDE = uint64_t(1) << 40;
    text[0] = '\0';
    if ((uintptr_t)map->base % BULK) {
        snprintf(text, size, "the array begins at %u modulo 16, which must be 0",
                 (unsigned)((uintptr_t)map->base % BULK));
    }
    for (uint32_t d = 0; d < map->rank; d++) {
        if (map->sizes[d] < 1 || map->sizes[d] > MOST_SIZE) {
            snprintf(text, size,
                     "%llu elements along dimension %u; 1 to 2^32 are possible",
                     (unsigned long long)map->sizes[d], d);
        }
        else if (map->box[d] < 1 || map->box[d] > 256) {
            snprintf(text, size,
                     "a box of %u along dimension %u; 1 to 256 are possible",
                     map->box[d], d);
        }
        else if (d > 0 && (map->strides[d] % BULK || map->strides[d] >= MOST_STRIDE)) {
            snprintf(text, size,
                     "a stride of %llu bytes along dimension %u; multiples of 16 below "
                     "2^40 are possible",
                     (unsigned long long)map->strides[d], d);
        }
    }
    if (!text[0] && map->box[0] * map->element % BULK) {
        snprintf(text, size,
                 "a box of %u bytes along dimension 0: not a multiple of 16",
                 map->box[0] * map->element);
    }
    if (!text[0] && map->swizzled && map->box[0] * map->element != SWIZZLED_ROW) {
        snprintf(text, size, "a swizzled box of %u bytes along dimension 0: not 128",
                 map->box[0] * map->element);
    }
}

gpo_status
tensor_map_make(gpo_call *call, TensorMap *map, void *base, uint32_t element_bytes,
                uint32_t rank, const uint64_t *sizes, const uint64_t *strides,
                const uint32_t *box, bool swizzled, const char *file, int line)
{
    char text[256] = "";
    *map = TensorMap();
    if (rank < 1 || rank > MAX_RANK) {
        snprintf(text, sizeof text, "%u dimensions; 1 to 5 are possible", rank);
    }
    else {
        map->made = TENSOR_MAP_MADE;
        map->rank = rank;
        map->element = element_bytes;
        map->base = (char *)base;
        map->swizzled = swizzled;
        for (uint32_t d = 0; d < rank; d++) {
            map->sizes[d] = sizes[d];
            map->strides[d] = d == 0 ? element_bytes : strides[d];
            map->box[d] = box[d];
        }
        describe_refusal(map, text, sizeof text);
    }
    lock();
    if (!text[0] && !is_allocated(map)) {
        char where[128];
        const Allocation *a = allocation_of(base);
        describe_address(a ? (uintptr_t)a->data + a->bytes : (uintptr_t)base, where,
                         sizeof where);
        snprintf(text, sizeof text, "out of bounds: an array of %llu bytes, %s",
                 (unsigned long long)extent_of(map), where);
    }
    unlock();
    if (text[0]) {
        *map = TensorMap();
        return gpo_fail(&call->error, GPO_ESIM, "tensor map, %s:%d: %s",
                        short_path(file), line, text);
    }
    return GPO_OK;
}

uint32_t
box_bytes(const TensorMap *map)
{
    uint32_t bytes = map->element;
    for (uint32_t d = 0; d < map->rank; d++) {
        bytes *= map->box[d];
    }
    return bytes;
}

/*
 * What an H200 does not do in a store, though it does in a load: it reports an illegal
 * instruction for a box that begins below 0, and writes rows in units of 16 bytes.
 */
void
check_stored_box(Fibre *self, const TensorMap *map, const int32_t *at, const Site *site)
{
    for (uint32_t d = 0; d < map->rank; d++) {
        if (at[d] < 0) {
            fault(self, site,
                  "out-of-bounds bulk store: it begins at %d of dimension %u, below 0, "
                  "from where a GPU loads but does not store",
                  at[d], d);
        }
    }
    const uint64_t row = map->sizes[0] * map->element;
    if (row % 16 && at[0] + (int64_t)map->box[0] > (int64_t)map->sizes[0]) {
        fault(self, site,
              "out-of-bounds bulk store: the rows of %llu bytes are not a multiple of "
              "16, and a GPU stores 16 at their end",
              (unsigned long long)row);
    }
}

void
check_box(Fibre *self, const char *what, const TensorMap *map, const int32_t *at,
          uint32_t rank, uint32_t shared, const Site *site)
{
    if (map->made != TENSOR_MAP_MADE) {
        fault(self, site, "%s by a tensor map that nobody has made", what);
    }
    if (rank != map->rank) {
        fault(self, site, "%s at %u coordinates by a tensor map of %u dimensions", what,
              rank, map->rank);
    }
    if (!is_allocated(map)) {
        fault(self, site, "%s by a tensor map whose array has been freed", what);
    }
    for (uint32_t d = 0; d < rank; d++) {
        const int64_t first = at[d], end = first + map->box[d];
        if (end <= 0 || first >= (int64_t)map->sizes[d]) {
            fault(self, site,
                  "out-of-bounds %s: the box at %lld to %lld of dimension %u lies "
                  "wholly outside of its %lld elements",
                  what, (long long)first, (long long)end - 1, d,
                  (long long)map->sizes[d]);
        }
    }
    const int64_t along = (int64_t)at[0] * map->element;
    if (along % 16) {
        fault(self, site,
              "unaligned %s: the box begins %lld bytes along dimension 0, not a "
              "multiple of 16",
              what, (long long)along);
    }
    const uint32_t place = map->swizzled ? SWIZZLED_PLACE : BOX_PLACE;
    if (shared % place) {
        fault(self, site, "unaligned %s: shared address %u modulo %u must be 0", what,
              shared % place, place);
    }
    const uintptr_t to = (uintptr_t)self->block->shared + shared;
    if (!is_shared(self->block, to, box_bytes(map))) {
        fault(self, site, "%s of %u bytes at %u: not inside a shared array", what,
              box_bytes(map), shared);
    }
}

} // namespace gpo_sim
