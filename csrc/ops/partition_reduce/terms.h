/*
 * terms.h  partition_reduce on the CPU: what an element contributes to a sum, and how a
 * sum becomes a result.  Order: elements, terms, the list of all terms.
 * Not here: the loops over elements (cpu.inc), the walk over an array (cpu.c).
 */
#ifndef GPO_PARTITION_REDUCE_TERMS_H
#define GPO_PARTITION_REDUCE_TERMS_H

#include "../../core/elements.h"
#include "partition_reduce.h"

/* ---- terms ---- */

static inline float
square_f32(float x)
{
    return x * x;
}

static inline double
square_f64(double x)
{
    return x * x;
}

static inline uint64_t
square_u64(uint64_t x)
{
    return x * x;
}

#define KEEP(x) (x)
#define WRAP(x) ((uint64_t)(int64_t)(x)) /* modulo 2^64, sign extended */
#define SQUARE_WHOLE(x) square_u64(WRAP(x))
#define SQUARE_F16(x) square_f32(float_of_f16(x))
#define SQUARE_BF16(x) square_f32(float_of_bf16(x))
#define NORM(x) ((x).re * (x).re + (x).im * (x).im)

/*
 * F(name, dtype of an element, dtype of a sum, the term of element x).  A name with
 * _SQ is the one of `square`.  Other complex sums are sums of reals.
 */
#define TERMS(F)                       \
    F(I32, I32, U64, WRAP)             \
    F(I64, I64, U64, WRAP)             \
    F(F16, F16, F32, float_of_f16)     \
    F(BF16, BF16, F32, float_of_bf16)  \
    F(F32, F32, F32, KEEP)             \
    F(F64, F64, F64, KEEP)             \
    F(I32_SQ, I32, U64, SQUARE_WHOLE)  \
    F(I64_SQ, I64, U64, SQUARE_WHOLE)  \
    F(F16_SQ, F16, F32, SQUARE_F16)    \
    F(BF16_SQ, BF16, F32, SQUARE_BF16) \
    F(F32_SQ, F32, F32, square_f32)    \
    F(F64_SQ, F64, F64, square_f64)    \
    F(C64_SQ, C64, F32, NORM)          \
    F(C128_SQ, C128, F64, NORM)

/* F(dtype of a sum) */
#define SUMS(F) F(U64) F(F32) F(F64)

#endif
