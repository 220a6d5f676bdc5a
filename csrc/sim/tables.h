/*
 * tables.h  Small tables of the checks: a hash table of numbers, arrays that grow.
 */
#ifndef GPO_SIM_TABLES_H
#define GPO_SIM_TABLES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

namespace gpo_sim {

/* A hash table from 64-bit keys to numbers; open addressing, at most half full. */
struct Index {
    struct Slot {
        uint64_t key;
        uint32_t value, used;
    } * slots;
    size_t size, count;
};

/* The value of `key`, inserted as 0 if it was not there; NULL: no memory. */
static inline uint32_t *
index_at(Index *index, uint64_t key)
{
    if (2 * (index->count + 1) > index->size) {
        const Index old = *index;
        index->size = old.size ? 2 * old.size : 1024;
        index->slots = (Index::Slot *)calloc(index->size, sizeof *index->slots);
        index->count = 0;
        if (!index->slots) {
            *index = old;
            return NULL;
        }
        for (size_t i = 0; i < old.size; i++) {
            if (old.slots[i].used) {
                *index_at(index, old.slots[i].key) = old.slots[i].value;
            }
        }
        free(old.slots);
    }
    size_t i = (key * 0x9e3779b97f4a7c15u) >> 20 & (index->size - 1);
    while (index->slots[i].used && index->slots[i].key != key) {
        i = (i + 1) & (index->size - 1);
    }
    if (!index->slots[i].used) {
        index->slots[i] = Index::Slot{key, 0, 1};
        index->count++;
    }
    return &index->slots[i].value;
}

/* The value of `key`, 0 if it is not there. */
static inline uint32_t
index_get(const Index *index, uint64_t key)
{
    if (index->size == 0) {
        return 0;
    }
    size_t i = (key * 0x9e3779b97f4a7c15u) >> 20 & (index->size - 1);
    while (index->slots[i].used) {
        if (index->slots[i].key == key) {
            return index->slots[i].value;
        }
        i = (i + 1) & (index->size - 1);
    }
    return 0;
}

static inline void
index_clear(Index *index)
{
    if (index->count) {
        memset(index->slots, 0, index->size * sizeof *index->slots);
        index->count = 0;
    }
}

/* Grows the array to at least `count` elements, the new ones zero; false: no memory. */
template <typename T>
bool
reserve(T **data, size_t *capacity, size_t count)
{
    if (count <= *capacity) {
        return true;
    }
    size_t wanted = *capacity ? *capacity : 64;
    while (wanted < count) {
        wanted *= 2;
    }
    T *grown = (T *)realloc((void *)*data, wanted * sizeof(T));
    if (!grown) {
        return false;
    }
    memset((void *)(grown + *capacity), 0, (wanted - *capacity) * sizeof(T));
    *data = grown;
    *capacity = wanted;
    return true;
}

} // namespace gpo_sim

#endif
