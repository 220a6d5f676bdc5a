/*
 * once.h  Memory that another thread may write while it is read: an index array is the
 * caller's, and a call runs without the interpreter's lock.
 * An index is loaded once, and what was loaded is judged and used.  A plain load will not
 * do: the compiler may read the place again for the second use.  A volatile one costs a
 * third of scatter_add's loop.
 */
#ifndef GPO_ONCE_H
#define GPO_ONCE_H

#include <stdint.h>

/* ONCE(at): *at for an index type; where the value came from is lost on the compiler. */
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

/* What was copied out of such memory before stays as it was copied: no load moves here. */
#define COPIED() __asm__("" : : : "memory")

#endif
