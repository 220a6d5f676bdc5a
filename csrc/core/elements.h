/*
 * elements.h  Elements on the CPU: the C type of each dtype, and conversions of 16-bit
 * floats.  Order: types, to float, from float and double, unsigned dtypes, finite.
 * Each result depends on its operand alone, without branches, so that loops vectorise.
 */
#ifndef GPO_ELEMENTS_H
#define GPO_ELEMENTS_H

#include "gpo.h"

#include <math.h>

/* ---- types: T_F32 is the C type of GPO_F32 ---- */

#define GPO_DTYPE(suffix, type, name, bytes, kind) typedef type T_##suffix;
#include "dtypes.def"
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

/* Rounded to nearest, ties to even. */
static inline gpo_f16
f16_of_float(float x)
{
    const float_bits y = {.f = x};
    const uint32_t size = y.u & 0x7fffffffu;
    const float_bits least = {.f = fabsf(x) + 0.5f}; /* its last bit is 2^-24 */
    uint32_t bits = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    bits = size < 0x38800000u ? least.u - 0x3f000000u : bits; /* below 2^-14 */
    bits = size >= 0x47800000u ? 0x7c00u : bits;              /* from 2^16 on */
    bits = size > 0x7f800000u ? 0x7e00u : bits;
    return (gpo_f16){(uint16_t)(bits | (y.u >> 16 & 0x8000u))};
}

static inline gpo_bf16
bf16_of_float(float x)
{
    const float_bits y = {.f = x};
    uint32_t bits = (y.u + 0x7fff + (y.u >> 16 & 1)) >> 16;
    bits = (y.u & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : bits;
    return (gpo_bf16){(uint16_t)bits};
}

/* Rounded to odd: a later rounding to 16 bits is then that of the exact value. */
static inline float
odd_float(double x)
{
    float_bits y = {.f = (float)x};
    const uint32_t odd = (y.u - (fabs((double)y.f) > fabs(x))) | 1u;
    const bool inexact = (double)y.f != x && (y.u & 0x7f800000u) != 0x7f800000u;
    y.u = inexact ? odd : y.u;
    return y.f;
}

static inline gpo_f16
f16_of_f64(double x)
{
    return f16_of_float(odd_float(x));
}

static inline gpo_bf16
bf16_of_f64(double x)
{
    return bf16_of_float(odd_float(x));
}

/* ---- the unsigned dtype whose loops serve a signed one: both wrap ---- */

static inline gpo_dtype
gpo_unsigned_of(gpo_dtype dtype)
{
    switch (dtype) {
        case GPO_I8:
            return GPO_U8;
        case GPO_I16:
            return GPO_U16;
        case GPO_I32:
            return GPO_U32;
        case GPO_I64:
            return GPO_U64;
        default:
            return dtype;
    }
}

/* ---- finite values: x - x is nan for inf and nan, else 0 ---- */

#define DEFINE_FINITE(V, bits)                           \
    static inline bool finite_##V(const V *x, int64_t n) \
    {                                                    \
        bits others = 0;                                 \
        for (int64_t i = 0; i < n; i++) {                \
            others |= x[i] - x[i] != 0;                  \
        }                                                \
        return others == 0;                              \
    }

DEFINE_FINITE(float, int32_t)
DEFINE_FINITE(double, int64_t)
#undef DEFINE_FINITE

#endif
