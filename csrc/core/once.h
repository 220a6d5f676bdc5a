/*
 * once.h  Loads from memory that another thread may write meanwhile: an index array
 * belongs to the caller, and a call runs without the GIL.
 * Each index must be loaded once, so that the value checked is the value used.  A
 * plain load does not ensure that: the compiler may load again for the second use.  A
 * volatile load costs a third of scatter_add's loop.
 */
#ifndef GPO_ONCE_H
#define GPO_ONCE_H

#include <stdint.h>

/* ONCE(at): *at for an index type; the compiler cannot tell that it was a load. */
#define ONCE(at) \
    _Generic((at),                        \
        const int32_t *: once_int32_t,    \
        const int64_t *: once_int64_t,    \
        const uint64_t *: once_uint64_t)(at)

#define DEFINE_ONCE(type)                          \
    static inline type once_##type(const type *at) \
    {                                              \
        type x = *at;                              \
        __asm__("" : "+r"(x));                     \
        return x;                                  \
    }
DEFINE_ONCE(int32_t)
DEFINE_ONCE(int64_t)
DEFINE_ONCE(uint64_t)
#undef DEFINE_ONCE

/* After a copy of such memory: a compiler barrier, so that no load is repeated. */
#define COPIED() __asm__("" : : : "memory")

#endif
