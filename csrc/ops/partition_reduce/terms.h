/*
 * terms.h  partition_reduce on the CPU: what an element contributes to a sum, and how a
 * sum becomes a result.  Order: elements, terms, the list of all terms.
 * Not here: the loops over elements (cpu.inc), the walk over an array (cpu.c).
 */
#ifndef GPO_PARTITION_REDUCE_TERMS_H
#define GPO_PARTITION_REDUCE_TERMS_H

#include "partition_reduce.h"

#include <math.h>

/* ---- elements: T_F32 is the C type of GPO_F32 ---- */

#define GPO_DTYPE(suffix, type, name, bytes, kind) typedef type T_##suffix;
#include "../../core/dtypes.def"
#undef GPO_DTYPE

typedef union float_bits {
    float f;
    uint32_t u;
} float_bits;

static inline float
float_of_f16(gpo_f16 x)
{
    const uint32_t size = x.bits & 0x7fffu;
    const float_bits tiny = {.f = (float)(int32_t)size * 0x1p-24f};
    uint32_t bits = (size << 13) + (112u << 23);
    bits += size >= 0x7c00 ? 112u << 23 : 0; /* inf and nan */
    bits = size < 0x400 ? tiny.u : bits;     /* subnormal */
    const float_bits y = {.u = bits | (x.bits & 0x8000u) << 16};
    return y.f;
}

static inline float
float_of_bf16(gpo_bf16 x)
{
    const float_bits y = {.u = (uint32_t)x.bits << 16};
    return y.f;
}

static inline gpo_f16
f16_of_f32(float x)
{
    const float_bits y = {.f = x};
    uint32_t size = y.u & 0x7fffffffu;
    if (size > 0x7f800000u) {
        size = 0x7e00;
    }
    else if (size >= 0x47800000u) { /* 2^16 */
        size = 0x7c00;
    }
    else if (size < 0x38800000u) { /* 2^-14: one unit of f16 is one of 0.5f */
        float_bits sum = {.u = size};
        sum.f += 0.5f;
        size = sum.u - 0x3f000000u;
    }
    else {
        size = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    }
    return (gpo_f16){(uint16_t)(size | (y.u >> 16 & 0x8000u))};
}

static inline gpo_bf16
bf16_of_f32(float x)
{
    const float_bits y = {.f = x};
    if (x != x) {
        return (gpo_bf16){0x7fc0};
    }
    return (gpo_bf16){(uint16_t)((y.u + 0x7fff + (y.u >> 16 & 1)) >> 16)};
}

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
