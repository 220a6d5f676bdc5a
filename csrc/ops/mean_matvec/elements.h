/*
 * elements.h  mean_matvec on the CPU: the four element types, how they become the type
 * that is computed in and back, and sums that keep what they round away.
 * Not here: loops (cpu.inc), the walk over the arrays (cpu.c).
 */
#ifndef GPO_MEAN_MATVEC_ELEMENTS_H
#define GPO_MEAN_MATVEC_ELEMENTS_H

#include "mean_matvec.h"

#include <math.h>

/* ---- elements: T_F32 is the C type of GPO_F32 ---- */

typedef gpo_f16 T_F16;
typedef gpo_bf16 T_BF16;
typedef float T_F32;
typedef double T_F64;

typedef union float_bits {
    float f;
    uint32_t u;
} float_bits;

static inline float
load_F16(gpo_f16 x)
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
load_BF16(gpo_bf16 x)
{
    const float_bits y = {.u = (uint32_t)x.bits << 16};
    return y.f;
}

static inline float
load_F32(float x)
{
    return x;
}

static inline double
load_F64(double x)
{
    return x;
}

static inline gpo_f16
store_F16(float x)
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
store_BF16(float x)
{
    const float_bits y = {.f = x};
    if (x != x) {
        return (gpo_bf16){0x7fc0};
    }
    return (gpo_bf16){(uint16_t)((y.u + 0x7fff + (y.u >> 16 & 1)) >> 16)};
}

static inline float
store_F32(float x)
{
    return x;
}

static inline double
store_F64(double x)
{
    return x;
}

/* F(dtype, the type it is computed in) */
#define ELEMENTS(F) \
    F(F16, float)   \
    F(BF16, float)  \
    F(F32, float)   \
    F(F64, double)

/* n elements as values: where they are, or converted into `buffer`. */
#define DEFINE_VALUES(dtype, T)                                                 \
    static inline const float *values_##dtype(const T *x, int n, float *buffer) \
    {                                                                           \
        for (int c = 0; c < n; c++) {                                           \
            buffer[c] = load_##dtype(x[c]);                                     \
        }                                                                       \
        return buffer;                                                          \
    }
DEFINE_VALUES(F16, gpo_f16)
DEFINE_VALUES(BF16, gpo_bf16)

static inline const float *
values_F32(const float *x, int n, float *buffer)
{
    return (void)n, (void)buffer, x;
}

static inline const double *
values_F64(const double *x, int n, double *buffer)
{
    return (void)n, (void)buffer, x;
}

/* ---- a long sum ---- */

/* A sum of doubles that also keeps what each addition rounds away (Knuth's TwoSum). */
typedef struct long_sum {
    double total, lost;
} long_sum;

static inline void
long_sum_add(long_sum *s, double p)
{
    const double sum = s->total + p;
    const double back = sum - s->total;
    s->lost += (s->total - (sum - back)) + (p - back);
    s->total = sum;
}

static inline double
long_sum_value(const long_sum *s)
{
    /* after inf, `lost` is a nan */
    return s->lost - s->lost == 0 ? s->total + s->lost : s->total;
}

#endif
