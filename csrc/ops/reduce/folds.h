/*
 * folds.h  reduce on the CPU: what an element is, and how two partial results become
 * one.  Order: elements, folds, the list of all folds by reduction and dtype.
 * Not here: the loops over elements (cpu.inc), the walk over an array (cpu.c).
 */
#ifndef GPO_REDUCE_FOLDS_H
#define GPO_REDUCE_FOLDS_H

#include "reduce.h"

#include <math.h>
#include <string.h>

/*
 * A loop that copies a row stays a loop: memcpy does not read front to back.  Before the
 * folds: gcc inlines no function into one with other options.
 */
#ifndef __clang__
#pragma GCC optimize("no-tree-loop-distribute-patterns")
#endif

#include "../../core/elements.h"

/* ---- folds: how an element is loaded and two partial results become one ---- */

#define KEEP(x) (x)
#define WRAP(x) ((uint64_t)(int64_t)(x)) /* modulo 2^64, sign extended */
#define TRUTH(x) ((x) != 0)
#define UNTRUTH(x) ((x) == 0)
#define TRUTH_16(x) ((x).bits & 0x7fffu)
#define UNTRUTH_16(x) (((x).bits & 0x7fffu) == 0)
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define AND(a, b) ((a) & (b))
#define OR(a, b) ((a) | (b))

#define WIDEN_U64(a) ((uint64_t)(int64_t)(a))
#define WIDEN_I64(a) ((int64_t)(a))
#define WIDEN_F64(a) ((double)(a))
#define WIDEN_C128(a) ((gpo_c128){(a).re, (a).im})

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
DEFINE_COMPLEX(C64, gpo_c64, float)
DEFINE_COMPLEX(C128, gpo_c128, double)

/* Ties keep a, the earlier element; a nan wins over every number. */
#define DEFINE_ORDER(name, A)             \
    static inline A min_##name(A a, A b)  \
    {                                     \
        return b < a ? b : a;             \
    }                                     \
    static inline A max_##name(A a, A b)  \
    {                                     \
        return b > a ? b : a;             \
    }                                     \
    static inline bool is_nan_##name(A a) \
    {                                     \
        return (void)a, false;            \
    }
#define DEFINE_ORDER_NAN(name, A)         \
    static inline A min_##name(A a, A b)  \
    {                                     \
        const A m = b < a ? b : a;        \
        return b != b ? b : m;            \
    }                                     \
    static inline A max_##name(A a, A b)  \
    {                                     \
        const A m = b > a ? b : a;        \
        return b != b ? b : m;            \
    }                                     \
    static inline bool is_nan_##name(A a) \
    {                                     \
        return a != a;                    \
    }
DEFINE_ORDER(BOOL, uint8_t)
DEFINE_ORDER(I8, int8_t)
DEFINE_ORDER(U8, uint8_t)
DEFINE_ORDER(I16, int16_t)
DEFINE_ORDER(U16, uint16_t)
DEFINE_ORDER(I32, int32_t)
DEFINE_ORDER(U32, uint32_t)
DEFINE_ORDER(I64, int64_t)
DEFINE_ORDER(U64, uint64_t)
DEFINE_ORDER_NAN(F16, float)
DEFINE_ORDER_NAN(BF16, float)
DEFINE_ORDER_NAN(F32, float)
DEFINE_ORDER_NAN(F64, double)

/*
 * ---- keys: integers ordered as the elements, for argmin and argmax ----
 * A nan's key is beyond all numbers', so that a comparison of integers is the whole rule
 * and a loop over elements becomes vectors.  K_F32 is the type of F32's keys, element_F32 the
 * element (or a nan) of a key.
 */
#define KEYS_MIN(a, b) ((b) < (a) ? (b) : (a))
#define KEYS_MAX(a, b) ((b) > (a) ? (b) : (a))

#define DEFINE_KEYS(name)                               \
    typedef T_##name K_##name;                          \
    static inline T_##name key_MIN_##name(T_##name x)   \
    {                                                   \
        return x;                                       \
    }                                                   \
    static inline T_##name key_MAX_##name(T_##name x)   \
    {                                                   \
        return x;                                       \
    }                                                   \
    static inline T_##name element_##name(T_##name key) \
    {                                                   \
        return key;                                     \
    }
/* I, U: integers of the float's width.  A choice of a constant would become a branch. */
#define DEFINE_KEYS_NAN(name, I, U, MOST, INFINITE)             \
    typedef I K_##name;                                         \
    static inline I size_of_##name(T_##name x, I *sign, I *nan) \
    {                                                           \
        I bits;                                                 \
        memcpy(&bits, &x, sizeof bits);                         \
        *sign = (I)(bits >> (8 * sizeof bits - 1));             \
        *nan = (I) - ((bits & MOST) > INFINITE);                \
        return bits & MOST;                                     \
    }                                                           \
    static inline I key_MIN_##name(T_##name x)                  \
    {                                                           \
        I sign, nan;                                            \
        const I size = size_of_##name(x, &sign, &nan);          \
        return size ^ (sign | nan);                             \
    }                                                           \
    static inline I key_MAX_##name(T_##name x)                  \
    {                                                           \
        I sign, nan;                                            \
        const I size = size_of_##name(x, &sign, &nan);          \
        return size ^ (sign & ~nan);                            \
    }                                                           \
    static inline T_##name element_##name(I key)                \
    {                                                           \
        const U bits = (U)(key < 0 ? key ^ MOST : key);         \
        T_##name x;                                             \
        memcpy(&x, &bits, sizeof x);                            \
        return x;                                               \
    }
DEFINE_KEYS(BOOL)
DEFINE_KEYS(I8)
DEFINE_KEYS(U8)
DEFINE_KEYS(I16)
DEFINE_KEYS(U16)
DEFINE_KEYS(I32)
DEFINE_KEYS(U32)
DEFINE_KEYS(I64)
DEFINE_KEYS(U64)
DEFINE_KEYS_NAN(F16, int16_t, uint16_t, INT16_MAX, 0x7c00)
DEFINE_KEYS_NAN(BF16, int16_t, uint16_t, INT16_MAX, 0x7f80)
DEFINE_KEYS_NAN(F32, int32_t, uint32_t, INT32_MAX, 0x7f800000)
DEFINE_KEYS_NAN(F64, int64_t, uint64_t, INT64_MAX, INT64_C(0x7ff0000000000000))

/*
 * F(op, dtype, type of a partial result within a chunk, dtype of the state a chunk
 *   leaves, load, fold)
 * A chunk has at most 2^17 bytes (rows) or 2^9 elements (columns), so 32 bits hold its
 * sum of 8- or 16-bit integers.  What is not here is one that is: see find_loops.
 */
#define FOLDS(F)                                  \
    F(SUM, BOOL, int32_t, U64, TRUTH, ADD)        \
    F(SUM, I8, int32_t, U64, KEEP, ADD)           \
    F(SUM, U8, int32_t, U64, KEEP, ADD)           \
    F(SUM, I16, int32_t, U64, KEEP, ADD)          \
    F(SUM, U16, uint32_t, U64, KEEP, ADD)         \
    F(SUM, I32, uint64_t, U64, WRAP, ADD)         \
    F(SUM, U32, uint64_t, U64, KEEP, ADD)         \
    F(SUM, U64, uint64_t, U64, KEEP, ADD)         \
    F(SUM, F16, float, F64, float_of_f16, ADD)    \
    F(SUM, BF16, float, F64, float_of_bf16, ADD)  \
    F(SUM, F32, float, F64, KEEP, ADD)            \
    F(SUM, F64, double, F64, KEEP, ADD)           \
    F(SUM, C64, gpo_c64, C128, KEEP, add_C64)     \
    F(SUM, C128, gpo_c128, C128, KEEP, add_C128)  \
    F(PROD, BOOL, uint8_t, U64, TRUTH, AND)       \
    F(PROD, I8, uint64_t, U64, WRAP, MUL)         \
    F(PROD, U8, uint64_t, U64, KEEP, MUL)         \
    F(PROD, I16, uint64_t, U64, WRAP, MUL)        \
    F(PROD, U16, uint64_t, U64, KEEP, MUL)        \
    F(PROD, I32, uint64_t, U64, WRAP, MUL)        \
    F(PROD, U32, uint64_t, U64, KEEP, MUL)        \
    F(PROD, U64, uint64_t, U64, KEEP, MUL)        \
    F(PROD, F16, float, F64, float_of_f16, MUL)   \
    F(PROD, BF16, float, F64, float_of_bf16, MUL) \
    F(PROD, F32, float, F64, KEEP, MUL)           \
    F(PROD, F64, double, F64, KEEP, MUL)          \
    F(PROD, C64, gpo_c64, C128, KEEP, mul_C64)    \
    F(PROD, C128, gpo_c128, C128, KEEP, mul_C128) \
    F(MEAN, BOOL, int32_t, F64, TRUTH, ADD)       \
    F(MEAN, I8, int32_t, F64, KEEP, ADD)          \
    F(MEAN, U8, int32_t, F64, KEEP, ADD)          \
    F(MEAN, I16, int32_t, F64, KEEP, ADD)         \
    F(MEAN, U16, uint32_t, F64, KEEP, ADD)        \
    F(MEAN, I32, int64_t, F64, KEEP, ADD)         \
    F(MEAN, U32, int64_t, F64, KEEP, ADD)         \
    F(MEAN, I64, double, F64, KEEP, ADD)          \
    F(MEAN, U64, double, F64, KEEP, ADD)          \
    F(ANY, U8, uint8_t, U64, KEEP, OR)            \
    F(ANY, U16, uint16_t, U64, KEEP, OR)          \
    F(ANY, U32, uint32_t, U64, KEEP, OR)          \
    F(ANY, U64, uint64_t, U64, KEEP, OR)          \
    F(ANY, F16, uint16_t, U64, TRUTH_16, OR)      \
    F(ANY, F32, uint32_t, U64, TRUTH, OR)         \
    F(ANY, F64, uint64_t, U64, TRUTH, OR)         \
    F(ALL, U8, uint8_t, U64, UNTRUTH, OR)         \
    F(ALL, U16, uint16_t, U64, UNTRUTH, OR)       \
    F(ALL, U32, uint32_t, U64, UNTRUTH, OR)       \
    F(ALL, U64, uint64_t, U64, UNTRUTH, OR)       \
    F(ALL, F16, uint16_t, U64, UNTRUTH_16, OR)    \
    F(ALL, F32, uint32_t, U64, UNTRUTH, OR)       \
    F(ALL, F64, uint64_t, U64, UNTRUTH, OR)

#define ORDERED_OP(F, op, fold)                         \
    F(op, BOOL, uint8_t, U64, TRUTH, fold##_BOOL)       \
    F(op, I8, int8_t, I64, KEEP, fold##_I8)             \
    F(op, U8, uint8_t, U64, KEEP, fold##_U8)            \
    F(op, I16, int16_t, I64, KEEP, fold##_I16)          \
    F(op, U16, uint16_t, U64, KEEP, fold##_U16)         \
    F(op, I32, int32_t, I64, KEEP, fold##_I32)          \
    F(op, U32, uint32_t, U64, KEEP, fold##_U32)         \
    F(op, I64, int64_t, I64, KEEP, fold##_I64)          \
    F(op, U64, uint64_t, U64, KEEP, fold##_U64)         \
    F(op, F16, float, F64, float_of_f16, fold##_F16)    \
    F(op, BF16, float, F64, float_of_bf16, fold##_BF16) \
    F(op, F32, float, F64, KEEP, fold##_F32)            \
    F(op, F64, double, F64, KEEP, fold##_F64)
#define ORDERED(F) ORDERED_OP(F, MIN, min) ORDERED_OP(F, MAX, max)

/* Those of FOLDS whose speed is the memory's and that convert nothing: see `stream`. */
#define STREAMED(F)                     \
    F(SUM, F32, float, F64, KEEP, ADD)  \
    F(SUM, F64, double, F64, KEEP, ADD) \
    F(PROD, F32, float, F64, KEEP, MUL) \
    F(PROD, F64, double, F64, KEEP, MUL)

#endif
