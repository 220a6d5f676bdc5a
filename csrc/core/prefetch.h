/*
 * prefetch.h  Memory asked for ahead of its use, on a CPU.
 * A processor foresees one stream by itself, but no further than its page, and a few
 * streams; what lies beyond is asked for here.  Best a few lines at a time, between the
 * steps that use the earlier ones: many at once are waited for.
 */
#ifndef GPO_PREFETCH_H
#define GPO_PREFETCH_H

#include <stdint.h>

enum {
    LINE = 64,            /* bytes of a cache line */
    AHEAD = 2048,         /* bytes to what is asked for of a stream */
    ELEMENTS_AHEAD = 64,  /* the same of scattered elements, in elements */
    KEPT_BYTES = 1 << 18, /* of scattered sums: L2 keeps so many beside a stream */
};

/* Has the lines of these bytes come to the cache; they need not belong to an array. */
static inline void
ask_for(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(from + b);
    }
}

/*
 * Has element `at` of an array come to L2, ahead of some dozens of others; it need not be
 * one that the array has.
 */
static inline void
ask_for_element(const void *array, int64_t at, int64_t bytes)
{
    __builtin_prefetch(
        (const void *)((uintptr_t)array + (uint64_t)at * (uint64_t)bytes), 0, 2);
}

#endif
