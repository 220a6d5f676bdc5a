/*
 * elements.h  The element types of index_add on the CPU: what a sum is held in, how an
 * element enters it and how it leaves.
 */
#ifndef GPO_INDEX_ADD_ELEMENTS_H
#define GPO_INDEX_ADD_ELEMENTS_H

#include "index_add.h"

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
    float_bits small = {.u = size};
    small.f += 0.5f; /* below 2^-14 one unit of f16 is one of 0.5f */
    uint32_t bits = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    bits = size < 0x38800000u ? small.u - 0x3f000000u : bits;
    bits = size >= 0x47800000u ? 0x7c00 : bits;
    bits = size > 0x7f800000u ? 0x7e00 : bits;
    return (gpo_f16){(uint16_t)(bits | (y.u >> 16 & 0x8000u))};
}

static inline gpo_bf16
bf16_of_float(float x)
{
    const float_bits y = {.f = x};
    const uint32_t bits = (y.u + 0x7fff + (y.u >> 16 & 1)) >> 16;
    return (gpo_bf16){(uint16_t)(x == x ? bits : 0x7fc0)};
}

#define GPO_DTYPE(suffix, type, name, bytes, kind) typedef type T_##suffix;
#include "../../core/dtypes.def"
#undef GPO_DTYPE

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define PLUS(a, b) (a) + (b)
#define EITHER(a, b) (a) | (b)
#define TIMES(a, b) (a) * (b)
#define BOTH(a, b) (a) & (b)

/*
 * f(dtype, A, LOAD, STORE, ADD, SCALE, alpha): a sum is an A, of which LOAD makes one
 * of an element and STORE the element; ADD adds two, SCALE multiplies by the plan's
 * alpha.  Signed integers are added as the unsigned ones of their width.
 */
#define ELEMENTS(f)                                                                 \
    f(BOOL, uint8_t, TRUTH, KEEP, EITHER, BOTH, (uint8_t)(p->whole != 0))           \
        f(U8, uint8_t, KEEP, KEEP, PLUS, TIMES, (uint8_t)p->whole)                  \
            f(U16, uint16_t, KEEP, KEEP, PLUS, TIMES_U16, (uint16_t)p->whole)       \
                f(U32, uint32_t, KEEP, KEEP, PLUS, TIMES, (uint32_t)p->whole)       \
                    f(U64, uint64_t, KEEP, KEEP, PLUS, TIMES, (uint64_t)p->whole)   \
                        f(F16, float, float_of_f16, f16_of_float, PLUS, TIMES,      \
                          (float)p->alpha) f(BF16, float, float_of_bf16,            \
                                             bf16_of_float, PLUS, TIMES,            \
                                             (float)p->alpha)                       \
                            f(F32, float, KEEP, KEEP, PLUS, TIMES, (float)p->alpha) \
                                f(F64, double, KEEP, KEEP, PLUS, TIMES, p->alpha)

/* Promoted to int, a product of two uint16_t may overflow. */
#define TIMES_U16(a, b) (uint32_t)(a) * (uint32_t)(b)

/* The entry of ELEMENTS that adds a dtype of a plan. */
static inline gpo_dtype
added_as(gpo_dtype dtype)
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

#endif
