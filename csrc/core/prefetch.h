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
    AHEAD_TO_L2 = 1024,   /* of a prefetch into L2, after the hardware's own */
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

/* The same of lines that will be written: their other copies are dropped meanwhile. */
static inline void
prefetch_lines_to_write(const char *to, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(to + b, 1);
    }
}

/*
 * prefetch_lines into L2 alone, for sums that wait for nothing but memory: L1 has few places
 * for lines on their way, and the hardware prefetcher, which fills L2, takes none.  On an
 * EPYC of two cores a sum of 51 MB took 1.4 ms for 2.0 with prefetches into L1 (one
 * thread 2.4 for 3.3), a dot of two such arrays 2.9 for 3.1 (3.6 for 4.1).
 */
static inline void
prefetch_lines_to_l2(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(from + b, 0, 2);
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
