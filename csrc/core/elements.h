/*
 * elements.h  Elements on the CPU: the C type of each dtype, and 16-bit floats widened
 * and narrowed.  Order: types, to float, from double.
 * The bits are those of the operation alone, so that loops over them become vectors; a
 * room that sets `#pragma GCC optimize` does so before it includes this.
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

/* Rounds to odd: the later rounding to 16 bits is then that of the exact value. */
static inline float_bits
float_of_f64(double x)
{
    float_bits y = {.f = (float)x};
    if ((double)y.f != x && x == x) {
        y.u -= fabs((double)y.f) > fabs(x);
        y.u |= 1;
    }
    return y;
}

static inline gpo_f16
f16_of_f64(double x)
{
    const float_bits y = float_of_f64(x);
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
bf16_of_f64(double x)
{
    const float_bits y = float_of_f64(x);
    if (x != x) {
        return (gpo_bf16){0x7fc0};
    }
    return (gpo_bf16){(uint16_t)((y.u + 0x7fff + (y.u >> 16 & 1)) >> 16)};
}

#endif
