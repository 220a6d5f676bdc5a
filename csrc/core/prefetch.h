/*
 * prefetch.h  Memory asked for ahead of its use, on a CPU.
 * A processor foresees one stream by itself, but no further than its page, and a few
 * streams; what lies beyond is asked for here.  Best a few lines at a time, between the
 * steps that use the earlier ones: many at once are waited for.
 */
#ifndef GPO_PREFETCH_H
#define GPO_PREFETCH_H

#include <stdint.h>

enum { LINE = 64, AHEAD = 2048 }; /* bytes of a cache line, to what is asked for */

/* Has the lines of these bytes come to the cache; they need not belong to an array. */
static inline void
ask_for(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(from + b);
    }
}

/* The same for lines that no later call will find: they pass by the larger caches. */
static inline void
ask_once_for(const char *from, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += LINE) {
        __builtin_prefetch(from + b, 0, 0);
    }
}

#endif
