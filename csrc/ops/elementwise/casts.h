/*
 * casts.h  Casts of elementwise on the CPU: how a value becomes one of another dtype, and
 * which pairs have a loop.  The other pairs go through a carrier, which holds every value
 * of the source: int64, uint64 or float64.  A real part is read as an array of real numbers.
 */
#ifndef GPO_CASTS_H
#define GPO_CASTS_H

#include "arithmetic.h"

/* What an element holds, in a type that C converts. */
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

static inline gpo_f16
f16_of_double(double x)
{
    return f16_of_float(odd_float(x)); /* rounded once */
}

/* Real values, in C's own conversions. */
#define CAST_TO_BOOL(x) ((x) != 0)
#define CAST_TO_I8(x) ((int8_t)(x))
#define CAST_TO_U8(x) ((uint8_t)(x))
#define CAST_TO_I16(x) ((int16_t)(x))
#define CAST_TO_U16(x) ((uint16_t)(x))
#define CAST_TO_I32(x) ((int32_t)(x))
#define CAST_TO_U32(x) ((uint32_t)(x))
#define CAST_TO_I64(x) ((int64_t)(x))
#define CAST_TO_U64(x) ((uint64_t)(x))
#define CAST_TO_F16(x) _Generic((x), double : f16_of_double, default : f16_of_float)(x)
#define CAST_TO_BF16(x) bf16_of_float((float)(x)) /* as ml_dtypes */
#define CAST_TO_F32(x) ((float)(x))
#define CAST_TO_F64(x) ((double)(x))
#define CAST_TO_C64(x) ((gpo_c64){(float)(x), 0})
#define CAST_TO_C128(x) ((gpo_c128){(double)(x), 0})

/* ---- the pairs that have a loop: CAST(from, to) ---- */

/* Types of one width that are moved without a look at what they mean. */
#define WIDTHS(f) f(U8) f(U16) f(U32) f(U64) f(C128)

/* clang-format off: one source a line */
#define STRAIGHT(CAST)                                                               \
    CAST(F32, F16)                                                                   \
    CAST(F32, BF16)                                                                  \
    CAST(F32, I32)                                                                   \
    CAST(F32, I64)                                                                   \
    CAST(F32, U8)                                                                    \
    CAST(F32, BOOL)                                                                  \
    CAST(F16, F32) CAST(F16, BF16) CAST(BF16, F32) CAST(BF16, F16) CAST(I32, F32)    \
        CAST(I32, F64) CAST(I32, I16) CAST(I32, I8) CAST(I32, BOOL) CAST(I16, F32)   \
            CAST(I16, I32) CAST(U16, F32) CAST(U8, F32) CAST(U8, I32) CAST(U8, BOOL) \
                CAST(I8, F32) CAST(I8, I32) CAST(BOOL, F32) CAST(BOOL, U8)           \
                    CAST(BOOL, I32)

#define TO_CARRIER(CAST) \
    CAST(BOOL, I64)      \
    CAST(I8, I64)        \
    CAST(U8, I64)        \
    CAST(I16, I64)       \
    CAST(U16, I64)       \
    CAST(I32, I64) CAST(U32, I64) CAST(F16, F64) CAST(BF16, F64) CAST(F32, F64)

#define FROM_CARRIER(CAST)                                                            \
    CAST(I64, BOOL)                                                                   \
    CAST(I64, I8)                                                                     \
    CAST(I64, U8)                                                                     \
    CAST(I64, I16)                                                                    \
    CAST(I64, U16)                                                                    \
    CAST(I64, I32)                                                                    \
    CAST(I64, U32) CAST(I64, U64) CAST(I64, F16) CAST(I64, BF16) CAST(I64, F32)       \
        CAST(I64, F64) CAST(I64, C64) CAST(I64, C128) CAST(U64, BOOL) CAST(U64, I8)   \
            CAST(U64, U8) CAST(U64, I16) CAST(U64, U16) CAST(U64, I32) CAST(U64, U32) \
                CAST(U64, I64) CAST(U64, F16) CAST(U64, BF16) CAST(U64, F32)          \
                    CAST(U64, F64) CAST(U64, C64) CAST(U64, C128) CAST(F64, BOOL)     \
                        CAST(F64, I8) CAST(F64, U8) CAST(F64, I16) CAST(F64, U16)     \
                            CAST(F64, I32) CAST(F64, U32) CAST(F64, I64)              \
                                CAST(F64, U64) CAST(F64, F16) CAST(F64, BF16)         \
                                    CAST(F64, F32) CAST(F64, C64) CAST(F64, C128)

/* From a complex x, with the result as an expression. */
#define FROM_COMPLEX(CAST)                                 \
    CAST(C64, C128, ((gpo_c128){x.re, x.im}))              \
    CAST(C128, C64, ((gpo_c64){(float)x.re, (float)x.im})) \
    CAST(C64, F64, x.re)                                   \
    CAST(C128, F64, x.re)                                  \
    CAST(C64, BOOL, (x.re != 0) | (x.im != 0))             \
    CAST(C128, BOOL, (x.re != 0) | (x.im != 0))
/* clang-format on */

/* The dtype by way of which a pair without a loop of its own is cast. */
static inline gpo_dtype
carrier_of(gpo_dtype from)
{
    return from == GPO_U64 ? GPO_U64 : from < GPO_U64 ? GPO_I64 : GPO_F64;
}

#endif
