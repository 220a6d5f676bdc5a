/*
 * elements.h  The element types of index_add on the CPU: what a sum is held in, how an
 * element enters it and how it leaves.
 */
#ifndef GPO_INDEX_ADD_ELEMENTS_H
#define GPO_INDEX_ADD_ELEMENTS_H

#include "../../core/elements.h"
#include "index_add.h"

#define KEEP(x) (x)
#define TRUTH(x) ((x) != 0)
#define PLUS(a, b) (a) + (b)
#define EITHER(a, b) (a) | (b)
#define TIMES(a, b) (a) * (b)
#define BOTH(a, b) (a) & (b)
#define AS_F32(x) ((float)(x))

/*
 * F(name, dtype, A, LOAD, STORE, ADD, SCALE, alpha): a sum is an A, of which LOAD makes
 * one of an element and STORE the element; ADD adds two, SCALE multiplies by the plan's
 * alpha.  Signed integers are added as the unsigned ones of their width.  Floats below
 * float64 have two entries: that with float64 sums is for many rows.
 */
#define ELEMENTS(F)                                                                  \
    F(BOOL, BOOL, uint8_t, TRUTH, KEEP, EITHER, BOTH, (uint8_t)(p->whole != 0))      \
    F(U8, U8, uint8_t, KEEP, KEEP, PLUS, TIMES, (uint8_t)p->whole)                   \
    F(U16, U16, uint16_t, KEEP, KEEP, PLUS, TIMES_U16, (uint16_t)p->whole)           \
    F(U32, U32, uint32_t, KEEP, KEEP, PLUS, TIMES, (uint32_t)p->whole)               \
    F(U64, U64, uint64_t, KEEP, KEEP, PLUS, TIMES, (uint64_t)p->whole)               \
    F(F16, F16, float, float_of_f16, f16_of_float, PLUS, TIMES, (float)p->alpha)     \
    F(BF16, BF16, float, float_of_bf16, bf16_of_float, PLUS, TIMES, (float)p->alpha) \
    F(F32, F32, float, KEEP, KEEP, PLUS, TIMES, (float)p->alpha)                     \
    F(F64, F64, double, KEEP, KEEP, PLUS, TIMES, p->alpha)                           \
    F(WIDE_F16, F16, double, float_of_f16, f16_of_f64, PLUS, TIMES, p->alpha)        \
    F(WIDE_BF16, BF16, double, float_of_bf16, bf16_of_f64, PLUS, TIMES, p->alpha)    \
    F(WIDE_F32, F32, double, KEEP, AS_F32, PLUS, TIMES, p->alpha)

#define SUMS_NAME(name, dtype, A, LOAD, STORE, ADD, SCALE, ALPHA) SUMS_##name,
enum { ELEMENTS(SUMS_NAME) NSUMS };
#undef SUMS_NAME

/* Promoted to int, a product of two uint16_t may overflow. */
#define TIMES_U16(a, b) (uint32_t)(a) * (uint32_t)(b)

/* Whether a dtype has an entry with float64 sums beside that with float32 sums. */
static inline bool
is_narrow_float(gpo_dtype dtype)
{
    return dtype == GPO_F16 || dtype == GPO_BF16 || dtype == GPO_F32;
}

/* The entry of ELEMENTS for a dtype; `many`: more than a few rows may meet. */
static inline int
sums_of(gpo_dtype dtype, bool many)
{
    switch (dtype) {
        case GPO_BOOL:
            return SUMS_BOOL;
        case GPO_I8:
        case GPO_U8:
            return SUMS_U8;
        case GPO_I16:
        case GPO_U16:
            return SUMS_U16;
        case GPO_I32:
        case GPO_U32:
            return SUMS_U32;
        case GPO_F16:
            return many ? SUMS_WIDE_F16 : SUMS_F16;
        case GPO_BF16:
            return many ? SUMS_WIDE_BF16 : SUMS_BF16;
        case GPO_F32:
            return many ? SUMS_WIDE_F32 : SUMS_F32;
        case GPO_F64:
            return SUMS_F64;
        default:
            return SUMS_U64;
    }
}

#endif
