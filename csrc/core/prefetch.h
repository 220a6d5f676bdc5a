/*
 * prefetch.h  Software prefetch on a CPU.
 * The hardware prefetcher follows a few streams, each no further than the end of its
 * page; these functions prefetch beyond that.  Best a few lines at a time, between the
 * steps that use the earlier ones: many at once stall.
 */
#ifndef GPO_PREFETCH_H
#define GPO_PREFETCH_H

#include <stdint.h>

enum {
    LINE = 64,            /* bytes of a cache line */
    AHEAD = 2048,         /* prefetch distance in a stream, in bytes */
    ELEMENTS_AHEAD = 64,  /* prefetch distance of scattered elements, in elements */
    KEPT_BYTES = 1 << 18, /* of scattered sums that L2 can hold beside a stream */
};

/* Prefetches the cache lines of these bytes; any address is allowed. */
static inline void
prefetch_lines(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(from + b);
    }
}

/* Prefetches the line that a stream, now at `at`, reads AHEAD bytes later. */
static inline void
prefetch_stream(const void *at)
{
    __builtin_prefetch((const char *)at + AHEAD);
}

/*
 * Prefetches element `at` of an array into L2, some dozens of elements before its use;
 * `at` may be out of bounds.
 */
static inline void
prefetch_element(const void *array, int64_t at, int64_t bytes)
{
    __builtin_prefetch(
        (const void *)((uintptr_t)array + (uint64_t)at * (uint64_t)bytes), 0, 2);
}

#endif
