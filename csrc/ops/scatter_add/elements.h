/*
 * elements.h  scatter_add on the CPU: what an element is, and the type its sum is made
 * in.  Order: elements, how they are widened and narrowed, the list of all dtypes.
 * Not here: the loops (cpu.inc), the walk over the arrays (cpu.c).
 */
#ifndef GPO_SCATTER_ADD_ELEMENTS_H
#define GPO_SCATTER_ADD_ELEMENTS_H

#include "scatter_add.h"

#include <math.h>
#include <string.h>

#include "../../core/elements.h"

/* ---- widened, added, narrowed ---- */

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define WRAP(x) ((uint64_t)(int64_t)(x)) /* modulo 2^64, sign extended */

static inline gpo_c128
c128_of_c64(gpo_c64 x)
{
    return (gpo_c128){x.re, x.im};
}

static inline gpo_c64
c64_of_c128(gpo_c128 x)
{
    return (gpo_c64){(float)x.re, (float)x.im};
}

static inline gpo_c128
add_c128(gpo_c128 a, gpo_c128 b)
{
    return (gpo_c128){a.re + b.re, a.im + b.im};
}

#define ADD(a, b) ((a) + (b))
#define AS_I64(x) ((int64_t)(x))
#define AS_F32(x) ((float)(x))

/* SUMS(X): X(S, type, ADD) for each type that sums are made in. */
#define SUMS(X)           \
    X(U64, uint64_t, ADD) \
    X(F64, double, ADD)   \
    X(C128, gpo_c128, add_c128)

/* ELEMENTS(X): X(dtype, S, LOAD), S the type of its sums, LOAD what makes one of it. */
#define ELEMENTS(X)             \
    X(BOOL, U64, TRUTH)         \
    X(I8, U64, WRAP)            \
    X(U8, U64, KEEP)            \
    X(I16, U64, WRAP)           \
    X(U16, U64, KEEP)           \
    X(I32, U64, WRAP)           \
    X(U32, U64, KEEP)           \
    X(I64, U64, WRAP)           \
    X(U64, U64, KEEP)           \
    X(F16, F64, float_of_f16)   \
    X(BF16, F64, float_of_bf16) \
    X(F32, F64, KEEP)           \
    X(F64, F64, KEEP)           \
    X(C64, C128, c128_of_c64)   \
    X(C128, C128, KEEP)

/* RESULTS(X): X(dtype, S, STORE) for each dtype a result has. */
#define RESULTS(X)            \
    X(I64, U64, AS_I64)       \
    X(U64, U64, KEEP)         \
    X(F16, F64, f16_of_f64)   \
    X(BF16, F64, bf16_of_f64) \
    X(F32, F64, AS_F32)       \
    X(F64, F64, KEEP)         \
    X(C64, C128, c64_of_c128) \
    X(C128, C128, KEEP)

/* INDICES(X): X(dtype, NEGATIVE) for each dtype of an index as it is read. */
#define INDICES(X) \
    X(I32, true)   \
    X(I64, true)   \
    X(U64, false)

#endif
