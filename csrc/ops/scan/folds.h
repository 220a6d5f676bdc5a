/*
 * folds.h  scan on the CPU: what an element is, how two partial results become one, and
 * the list of all folds by operation and dtype.
 * Not here: the loops over elements (cpu.inc), the walk over an array (cpu.c).
 */
#ifndef GPO_SCAN_FOLDS_H
#define GPO_SCAN_FOLDS_H

#include "scan.h"

#include <math.h>
#include <string.h>

#include "../../core/elements.h"

/* ---- folds: two partial results become one ---- */

/*
 * GCC 12 fuses a vectorised complex product into vfmaddsub even with -ffp-contract=off,
 * and the bits would depend on the instruction set; ROUNDED keeps the product apart.
 */
#ifdef GPO_ANALYZE /* gcc -fanalyzer takes what passes an asm for uninitialised */
#define ROUNDED(x) ((void)0)
#elif defined(__x86_64__)
#define ROUNDED(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define ROUNDED(x) __asm__("" : "+w"(x))
#else
#define ROUNDED(x) ((void)0)
#endif

#define DEFINE_COMPLEX(name, C, R)                                                \
    static inline C add_##name(C a, C b)                                          \
    {                                                                             \
        return (C){a.re + b.re, a.im + b.im};                                     \
    }                                                                             \
    static inline C mul_##name(C a, C b)                                          \
    {                                                                             \
        R rr = a.re * b.re, ii = a.im * b.im, ri = a.re * b.im, ir = a.im * b.re; \
        ROUNDED(rr);                                                              \
        ROUNDED(ii);                                                              \
        ROUNDED(ri);                                                              \
        ROUNDED(ir);                                                              \
        return (C){rr - ii, ri + ir};                                             \
    }
DEFINE_COMPLEX(C128, gpo_c128, double)

/* Ties keep a, the earlier element; a nan wins over every number. */
#define DEFINE_ORDER(name, A)            \
    static inline A min_##name(A a, A b) \
    {                                    \
        return b < a ? b : a;            \
    }                                    \
    static inline A max_##name(A a, A b) \
    {                                    \
        return b > a ? b : a;            \
    }
#define DEFINE_ORDER_NAN(name, A)          \
    static inline A min_##name(A a, A b)   \
    {                                      \
        return (b < a) | (b != b) ? b : a; \
    }                                      \
    static inline A max_##name(A a, A b)   \
    {                                      \
        return (b > a) | (b != b) ? b : a; \
    }
DEFINE_ORDER(I8, int8_t)
DEFINE_ORDER(U8, uint8_t)
DEFINE_ORDER(I16, int16_t)
DEFINE_ORDER(U16, uint16_t)
DEFINE_ORDER(I32, int32_t)
DEFINE_ORDER(U32, uint32_t)
DEFINE_ORDER(I64, int64_t)
DEFINE_ORDER(U64, uint64_t)
DEFINE_ORDER_NAN(F32, float)
DEFINE_ORDER_NAN(F64, double)

/* ---- chains: a running result `hi`, and `lo` that keeps what `hi` rounds away ---- */

#define PLAIN_STEP(fold, hi, lo, v) ((hi) = fold(hi, v), (void)(lo))
#define PLAIN_VALUE(hi, lo) ((void)(lo), (hi))

/* A sum that keeps what each addition rounds away (Knuth's TwoSum). */
static inline void
two_sum(double *hi, double *lo, double v)
{
    const double sum = *hi + v;
    const double back = sum - *hi;
    *lo += (*hi - (sum - back)) + (v - back);
    *hi = sum;
}

static inline double
two_sum_value(double hi, double lo)
{
    return lo - lo == 0 ? hi + lo : hi; /* after inf, `lo` is a nan */
}

#define F64_STEP(fold, hi, lo, v) two_sum(&(hi), &(lo), v)
#define F64_VALUE(hi, lo) two_sum_value(hi, lo)
#define C128_STEP(fold, hi, lo, v) \
    (two_sum(&(hi).re, &(lo).re, (v).re), two_sum(&(hi).im, &(lo).im, (v).im))
#define C128_VALUE(hi, lo) \
    ((gpo_c128){two_sum_value((hi).re, (lo).re), two_sum_value((hi).im, (lo).im)})

/* ---- the list ---- */

#define KEEP(x) (x)
#define WRAP(x) ((uint64_t)(int64_t)(x)) /* modulo 2^64, sign extended */
#define TRUTH(x) ((x) != 0)
#define WIDE_C(x) ((gpo_c128){(x).re, (x).im})
#define NARROW_C(a) ((gpo_c64){(float)(a).re, (float)(a).im})
#define NARROW_F(a) ((float)(a))
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))

/*
 * F(op, dtype, dtype of the result, type of a running result, its identity, load, fold,
 *   store, chain)
 * int64 sums and products run as uint64.
 */
#define TOTALS(F)                                                          \
    F(SUM, BOOL, U64, uint64_t, 0, TRUTH, ADD, KEEP, PLAIN)                \
    F(SUM, I8, U64, uint64_t, 0, WRAP, ADD, KEEP, PLAIN)                   \
    F(SUM, U8, U64, uint64_t, 0, KEEP, ADD, KEEP, PLAIN)                   \
    F(SUM, I16, U64, uint64_t, 0, WRAP, ADD, KEEP, PLAIN)                  \
    F(SUM, U16, U64, uint64_t, 0, KEEP, ADD, KEEP, PLAIN)                  \
    F(SUM, I32, U64, uint64_t, 0, WRAP, ADD, KEEP, PLAIN)                  \
    F(SUM, U32, U64, uint64_t, 0, KEEP, ADD, KEEP, PLAIN)                  \
    F(SUM, U64, U64, uint64_t, 0, KEEP, ADD, KEEP, PLAIN)                  \
    F(SUM, F16, F16, double, 0, float_of_f16, ADD, f16_of_f64, PLAIN)      \
    F(SUM, BF16, BF16, double, 0, float_of_bf16, ADD, bf16_of_f64, PLAIN)  \
    F(SUM, F32, F32, double, 0, KEEP, ADD, NARROW_F, PLAIN)                \
    F(SUM, F64, F64, double, 0, KEEP, ADD, KEEP, F64)                      \
    F(SUM, C64, C64, gpo_c128, ZERO_C, WIDE_C, add_C128, NARROW_C, PLAIN)  \
    F(SUM, C128, C128, gpo_c128, ZERO_C, KEEP, add_C128, KEEP, C128)       \
    F(PROD, BOOL, U64, uint64_t, 1, TRUTH, MUL, KEEP, PLAIN)               \
    F(PROD, I8, U64, uint64_t, 1, WRAP, MUL, KEEP, PLAIN)                  \
    F(PROD, U8, U64, uint64_t, 1, KEEP, MUL, KEEP, PLAIN)                  \
    F(PROD, I16, U64, uint64_t, 1, WRAP, MUL, KEEP, PLAIN)                 \
    F(PROD, U16, U64, uint64_t, 1, KEEP, MUL, KEEP, PLAIN)                 \
    F(PROD, I32, U64, uint64_t, 1, WRAP, MUL, KEEP, PLAIN)                 \
    F(PROD, U32, U64, uint64_t, 1, KEEP, MUL, KEEP, PLAIN)                 \
    F(PROD, U64, U64, uint64_t, 1, KEEP, MUL, KEEP, PLAIN)                 \
    F(PROD, F16, F16, double, 1, float_of_f16, MUL, f16_of_f64, PLAIN)     \
    F(PROD, BF16, BF16, double, 1, float_of_bf16, MUL, bf16_of_f64, PLAIN) \
    F(PROD, F32, F32, double, 1, KEEP, MUL, NARROW_F, PLAIN)               \
    F(PROD, F64, F64, double, 1, KEEP, MUL, KEEP, PLAIN)                   \
    F(PROD, C64, C64, gpo_c128, ONE_C, WIDE_C, mul_C128, NARROW_C, PLAIN)  \
    F(PROD, C128, C128, gpo_c128, ONE_C, KEEP, mul_C128, KEEP, PLAIN)

#define ZERO_C ((gpo_c128){0, 0})
#define ONE_C ((gpo_c128){1, 0})

/* `end` is MAX for a minimum's identity, MIN for a maximum's; `inf` likewise. */
#define ORDERED_OP(F, op, fold, signed_end, unsigned_end, inf)                         \
    F(op, BOOL, U8, uint8_t, unsigned_end(1), TRUTH, fold##_U8, KEEP, PLAIN)           \
    F(op, I8, I8, int8_t, INT8_##signed_end, KEEP, fold##_I8, KEEP, PLAIN)             \
    F(op, U8, U8, uint8_t, unsigned_end(UINT8_MAX), KEEP, fold##_U8, KEEP, PLAIN)      \
    F(op, I16, I16, int16_t, INT16_##signed_end, KEEP, fold##_I16, KEEP, PLAIN)        \
    F(op, U16, U16, uint16_t, unsigned_end(UINT16_MAX), KEEP, fold##_U16, KEEP, PLAIN) \
    F(op, I32, I32, int32_t, INT32_##signed_end, KEEP, fold##_I32, KEEP, PLAIN)        \
    F(op, U32, U32, uint32_t, unsigned_end(UINT32_MAX), KEEP, fold##_U32, KEEP, PLAIN) \
    F(op, I64, I64, int64_t, INT64_##signed_end, KEEP, fold##_I64, KEEP, PLAIN)        \
    F(op, U64, U64, uint64_t, unsigned_end(UINT64_MAX), KEEP, fold##_U64, KEEP, PLAIN) \
    F(op, F16, F16, float, inf, float_of_f16, fold##_F32, f16_of_f64, PLAIN)           \
    F(op, BF16, BF16, float, inf, float_of_bf16, fold##_F32, bf16_of_f64, PLAIN)       \
    F(op, F32, F32, float, inf, KEEP, fold##_F32, KEEP, PLAIN)                         \
    F(op, F64, F64, double, inf, KEEP, fold##_F64, KEEP, PLAIN)
#define NOTHING(x) 0
#define ORDERED(F)                                \
    ORDERED_OP(F, MIN, min, MAX, KEEP, HUGE_VALF) \
    ORDERED_OP(F, MAX, max, MIN, NOTHING, -HUGE_VALF)

#define FOLDS(F) TOTALS(F) ORDERED(F)

#endif
