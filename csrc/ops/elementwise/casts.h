/*
 * casts.h  Casts of elementwise on the CPU.  Order: conversions of one value, the pairs
 * that have a loop, one element of each, the other pairs.  Those are cast through a
 * carrier, which holds every value of the source: int64, uint64 or float64.  A real
 * part is read as an array of real numbers.
 */
#ifndef GPO_CASTS_H
#define GPO_CASTS_H

#include "arithmetic.h"

/* The value of an element, in a type that C converts. */
#define VALUE_OF_BOOL(x) ((x) != 0)
#define VALUE_OF_I8(x) (x)
#define VALUE_OF_U8(x) (x)
#define VALUE_OF_I16(x) (x)
#define VALUE_OF_U16(x) (x)
#define VALUE_OF_I32(x) (x)
#define VALUE_OF_U32(x) (x)
#define VALUE_OF_I64(x) (x)
#define VALUE_OF_U64(x) (x)
#define VALUE_OF_F16(x) float_of_f16(x)
#define VALUE_OF_BF16(x) float_of_bf16(x)
#define VALUE_OF_F32(x) (x)
#define VALUE_OF_F64(x) (x)

/* Real values, by C's own conversions. */
#define CAST_TO_BOOL(x) ((x) != 0)
#define CAST_TO_I8(x) ((int8_t)(x))
#define CAST_TO_U8(x) ((uint8_t)(x))
#define CAST_TO_I16(x) ((int16_t)(x))
#define CAST_TO_U16(x) ((uint16_t)(x))
#define CAST_TO_I32(x) ((int32_t)(x))
#define CAST_TO_U32(x) ((uint32_t)(x))
#define CAST_TO_I64(x) ((int64_t)(x))
#define CAST_TO_U64(x) ((uint64_t)(x))
#define CAST_TO_F16(x) f16_of_float((float)(x))
#define CAST_TO_BF16(x) bf16_of_float((float)(x)) /* as ml_dtypes */
#define CAST_TO_F32(x) ((float)(x))
#define CAST_TO_F64(x) ((double)(x))
#define CAST_TO_C64(x) ((gpo_c64){(float)(x), 0})
#define CAST_TO_C128(x) ((gpo_c128){(double)(x), 0})

/* ---- the pairs that have a loop: CAST(from, to) ---- */

/* One type per width, for elements that are only moved. */
#define WIDTHS(f) f(U8) f(U16) f(U32) f(U64) f(C128)

#include "casts.def"

/* ---- one element of each: cast_at_F32_F16(in, i, out), as add_at_F32 ---- */

#define CAST(from, to)                                                               \
    INLINED void cast_at_##from##_##to(const void *const *in, int64_t i, void *out)  \
    {                                                                                \
        ((T_##to *)out)[i] = CAST_TO_##to(VALUE_OF_##from(ELEMENT_OF(T_##from, 0))); \
    }
STRAIGHT(CAST)
TO_CARRIER(CAST)
FROM_CARRIER(CAST)
#undef CAST

#define CAST(from, to, expression)                                                  \
    INLINED void cast_at_##from##_##to(const void *const *in, int64_t i, void *out) \
    {                                                                               \
        const T_##from x = ELEMENT_OF(T_##from, 0);                                 \
        ((T_##to *)out)[i] = expression;                                            \
    }
FROM_COMPLEX(CAST)
#undef CAST

/* ---- the other pairs ---- */

/* The intermediate dtype for a pair without a loop of its own. */
static inline gpo_dtype
carrier_of(gpo_dtype from)
{
    return from == GPO_U64 ? GPO_U64 : from < GPO_U64 ? GPO_I64 : GPO_F64;
}

#endif
