/*
 * arithmetic.h  elementwise on the CPU: how elements are read and written, and the C
 * macros for the names in capitals in functors.def.  Order: elements, order and sign,
 * fma, smooth functions, complex numbers, the element types of each list, one element
 * of each functor.  See loops.inc for the loops over elements, cpu.c for the walk over
 * operands.
 */
#ifndef GPO_ARITHMETIC_H
#define GPO_ARITHMETIC_H

#include "elementwise.h"

#include <math.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of an integer */

#include "../../core/complex.h"
#include "../../core/elements.h"
#include "../../core/gather.h"
#include "../../core/smooth.h"

#ifdef __x86_64__
#include <immintrin.h>
#define VECTOR_ROOTS , __m256 : _mm256_sqrt_ps, __m512 : _mm512_sqrt_ps
#else
#define VECTOR_ROOTS
#endif

/* How an element is read and written. */
#define KEEP(x) (x)
#define READ_BOOL(x) ((x) != 0)
#define READ_BF16(x) float_of_bf16(x)
#define WRITE_BF16(x) bf16_of_float((float)(x))

/* ---- order and sign ---- */

/* Two selects of one comparison each, which the compiler does not turn to branches. */
#define MAXIMUM(x, y)                                  \
    __extension__({                                    \
        const __typeof__(x) a_ = (x), b_ = (y);        \
        const __typeof__(x) more_ = a_ < b_ ? b_ : a_; \
        b_ != b_ ? b_ : more_;                         \
    })
#define MINIMUM(x, y)                                  \
    __extension__({                                    \
        const __typeof__(x) c_ = (x), d_ = (y);        \
        const __typeof__(x) less_ = d_ < c_ ? d_ : c_; \
        d_ != d_ ? d_ : less_;                         \
    })

/* The absolute value of the smallest integer is itself. */
#define ABS(x)                       \
    _Generic((x), float              \
             : fabsf, double         \
             : fabs, gpo_f16         \
             : abs_of_f16, gpo_bf16  \
             : abs_of_bf16, int32_t  \
             : abs_of_int32, int64_t \
             : abs_of_int64)(x)

static inline gpo_f16
abs_of_f16(gpo_f16 x)
{
    return (gpo_f16){x.bits & 0x7fffu};
}

static inline gpo_bf16
abs_of_bf16(gpo_bf16 x)
{
    return (gpo_bf16){x.bits & 0x7fffu};
}

static inline int32_t
abs_of_int32(int32_t x)
{
    return (int32_t)(x < 0 ? 0u - (uint32_t)x : (uint32_t)x);
}

static inline int64_t
abs_of_int64(int64_t x)
{
    return (int64_t)(x < 0 ? UINT64_C(0) - (uint64_t)x : (uint64_t)x);
}

/* ---- fma ---- */

#define FMA(x, y, z)                   \
    _Generic((x), float                \
             : fmaf, double            \
             : fma, gpo_f16            \
             : fma_of_f16, gpo_bf16    \
             : fma_of_bf16, uint32_t   \
             : fma_of_uint32, uint64_t \
             : fma_of_uint64)(x, y, z)

static inline uint32_t
fma_of_uint32(uint32_t x, uint32_t y, uint32_t z)
{
    return x * y + z;
}

static inline uint64_t
fma_of_uint64(uint64_t x, uint64_t y, uint64_t z)
{
    return x * y + z;
}

/* x * y + z rounded to odd in double; the product of two short floats is exact. */
static inline float
odd_fma(float x, float y, float z)
{
    const double product = (double)x * (double)y, c = z;
    double_bits sum = {.f = product + c};
    const double back = sum.f - product;
    const double error = (product - (sum.f - back)) + (c - back);
    const bool inexact = (error < 0 || error > 0) && (sum.u & 1) == 0;
    const uint64_t odd = (error > 0) == (sum.f > 0) ? sum.u + 1 : sum.u - 1;
    sum.u = inexact ? odd : sum.u;
    return odd_float(sum.f);
}

static inline gpo_f16
fma_of_f16(gpo_f16 x, gpo_f16 y, gpo_f16 z)
{
    return f16_of_float(odd_fma(float_of_f16(x), float_of_f16(y), float_of_f16(z)));
}

static inline gpo_bf16
fma_of_bf16(gpo_bf16 x, gpo_bf16 y, gpo_bf16 z)
{
    return bf16_of_float(odd_fma(float_of_bf16(x), float_of_bf16(y), float_of_bf16(z)));
}

/* ---- order of 16-bit floats, by their bits: -0 equals 0, a nan comes first ---- */

/* An integer in the order of the elements; nan is what a nan counts as. */
static inline int16_t
half_key(uint16_t bits, int16_t infinite, int16_t nan)
{
    const int16_t size = (int16_t)(bits & 0x7fff),
                  sign = (int16_t)((int16_t)bits >> 15);
    const int16_t key = (int16_t)((size ^ sign) - sign);
    return size > infinite ? nan : key;
}

#define DEFINE_HALF_ORDER(dtype, T, infinite)                                    \
    static inline T half_maximum_##dtype(T x, T y)                               \
    {                                                                            \
        const int16_t a = half_key(x.bits, infinite, INT16_MAX);                 \
        return (T){half_key(y.bits, infinite, INT16_MAX) > a ? y.bits : x.bits}; \
    }                                                                            \
    static inline T half_minimum_##dtype(T x, T y)                               \
    {                                                                            \
        const int16_t a = half_key(x.bits, infinite, INT16_MIN);                 \
        return (T){half_key(y.bits, infinite, INT16_MIN) < a ? y.bits : x.bits}; \
    }                                                                            \
    static inline T half_clip_##dtype(T x, T y, T z)                             \
    {                                                                            \
        return half_minimum_##dtype(half_maximum_##dtype(x, y), z);              \
    }                                                                            \
    static inline T half_relu_##dtype(T x)                                       \
    {                                                                            \
        return (T){half_key(x.bits, infinite, INT16_MAX) < 0 ? 0 : x.bits};      \
    }

DEFINE_HALF_ORDER(F16, gpo_f16, 0x7c00)
DEFINE_HALF_ORDER(BF16, gpo_bf16, 0x7f80)

#define HALF_UNARY(name, dtype) half_##name##_##dtype(x)
#define HALF_BINARY(name, dtype) half_##name##_##dtype(x, y)
#define HALF_BOUNDS(name, dtype) half_##name##_##dtype(x, y, z)

/* ---- smooth functions: in float, except for float64 ---- */

#define SQRT(x) _Generic((x), float : sqrtf, double : sqrt VECTOR_ROOTS)(x)
#define EXP(x) _Generic((x), float : expf_of, double : exp_of)(x)
#define LOG(x) _Generic((x), float : logf_of, double : log_of)(x)
#define TANH(x) _Generic((x), float : tanhf_of, double : tanh_of)(x)
#define SIGMOID(x) _Generic((x), float : sigmoidf_of, double : sigmoid_of)(x)
#define SILU(x) _Generic((x), float : siluf_of, double : silu_of)(x)
#define GELU(x) _Generic((x), float : geluf_of, double : gelu_of)(x)

/*
 * Most arguments of exp and log are usual, with results that need no care for the
 * smallest and largest numbers: those whose keys are less than a constant.
 */
#define USUAL_exp(x) _Generic((x), float : expf_usual, double : exp_usual)(x)
#define USUAL_log(x) _Generic((x), float : logf_usual, double : log_usual)(x)
#define KEY_exp(x) _Generic((x), float : expf_key, double : exp_key)(x)
#define KEY_log(x) _Generic((x), float : logf_key, double : log_key)(x)
#define KEYS_exp(V) _Generic((V)0, float : EXPF_KEYS, double : EXP_KEYS)
#define KEYS_log(V) _Generic((V)0, float : LOGF_KEYS, double : LOG_KEYS)

/* ---- complex numbers ---- */

#define COMPLEX(name) complex_##name##_C64
#define T gpo_c64
#define R float
#define LARGE 0x1p60f
#define FACTOR 0x1p100f
#include "complex.inc"

#define COMPLEX(name) complex_##name##_C128
#define T gpo_c128
#define R double
#define LARGE 0x1p500
#define FACTOR 0x1p700
#include "complex.inc"

/*
 * ---- the element types of each list of functors.def ----
 * LOOP(name, inputs, expression, dtype, V, READ, WRITE): x, y and z are of type V;
 * LOOP_HALF(name, inputs, expression): float16, x, y and z are floats or vectors of them;
 * LOOP_BY_F32(name, inputs, dtype): converted to float and back.
 */

#define LOOPS_NUMBERS(LOOP, name, inputs, expression)         \
    LOOP(name, inputs, expression, U8, uint32_t, KEEP, KEEP)  \
    LOOP(name, inputs, expression, U16, uint32_t, KEEP, KEEP) \
    LOOP(name, inputs, expression, U32, uint32_t, KEEP, KEEP) \
    LOOP(name, inputs, expression, U64, uint64_t, KEEP, KEEP) \
    LOOPS_FRACTIONS(LOOP, name, inputs, expression)
#define LOOPS_FRACTIONS(LOOP, name, inputs, expression)                     \
    LOOPS_ROOTS(LOOP, name, inputs, expression)                             \
    LOOP(name, inputs, COMPLEX_##inputs(name, C64), C64, T_C64, KEEP, KEEP) \
    LOOP(name, inputs, COMPLEX_##inputs(name, C128), C128, T_C128, KEEP, KEEP)
#define LOOPS_ROOTS(LOOP, name, inputs, expression)                        \
    LOOP(name, inputs, expression, F32, float, KEEP, KEEP)                 \
    LOOP##_HALF(name, inputs, expression)                                  \
        LOOP(name, inputs, expression, BF16, float, READ_BF16, WRITE_BF16) \
            LOOP(name, inputs, expression, F64, double, KEEP, KEEP)
#define LOOPS_COMPARED(LOOP, name, inputs, expression)                      \
    LOOP(name, inputs, expression, F32, float, KEEP, KEEP)                  \
    LOOP(name, inputs, HALF_##inputs(name, F16), F16, T_F16, KEEP, KEEP)    \
    LOOP(name, inputs, HALF_##inputs(name, BF16), BF16, T_BF16, KEEP, KEEP) \
    LOOP(name, inputs, expression, F64, double, KEEP, KEEP)
#define LOOPS_ORDERED(LOOP, name, inputs, expression)              \
    LOOP(name, inputs, expression, BOOL, uint8_t, READ_BOOL, KEEP) \
    LOOP(name, inputs, expression, I8, int8_t, KEEP, KEEP)         \
    LOOP(name, inputs, expression, U8, uint8_t, KEEP, KEEP)        \
    LOOP(name, inputs, expression, I16, int16_t, KEEP, KEEP)       \
    LOOP(name, inputs, expression, U16, uint16_t, KEEP, KEEP)      \
    LOOP(name, inputs, expression, I32, int32_t, KEEP, KEEP)       \
    LOOP(name, inputs, expression, U32, uint32_t, KEEP, KEEP)      \
    LOOP(name, inputs, expression, I64, int64_t, KEEP, KEEP)       \
    LOOP(name, inputs, expression, U64, uint64_t, KEEP, KEEP)      \
    LOOPS_COMPARED(LOOP, name, inputs, expression)
#define LOOPS_FUSED(LOOP, name, inputs, expression)            \
    LOOP(name, inputs, expression, U8, uint32_t, KEEP, KEEP)   \
    LOOP(name, inputs, expression, U16, uint32_t, KEEP, KEEP)  \
    LOOP(name, inputs, expression, U32, uint32_t, KEEP, KEEP)  \
    LOOP(name, inputs, expression, U64, uint64_t, KEEP, KEEP)  \
    LOOP(name, inputs, expression, F16, gpo_f16, KEEP, KEEP)   \
    LOOP(name, inputs, expression, BF16, gpo_bf16, KEEP, KEEP) \
    LOOP(name, inputs, expression, F32, float, KEEP, KEEP)     \
    LOOP(name, inputs, expression, F64, double, KEEP, KEEP)
#define LOOPS_SIGNED(LOOP, name, inputs, expression) \
    LOOPS_INTEGERS(LOOP, name, inputs, expression)   \
    LOOPS_COMPARED(LOOP, name, inputs, expression)
#define LOOPS_MAGNITUDES(LOOP, name, inputs, expression)       \
    LOOPS_INTEGERS(LOOP, name, inputs, expression)             \
    LOOP(name, inputs, expression, F16, gpo_f16, KEEP, KEEP)   \
    LOOP(name, inputs, expression, BF16, gpo_bf16, KEEP, KEEP) \
    LOOP(name, inputs, expression, F32, float, KEEP, KEEP)     \
    LOOP(name, inputs, expression, F64, double, KEEP, KEEP)
#define LOOPS_INTEGERS(LOOP, name, inputs, expression)       \
    LOOP(name, inputs, expression, I8, int32_t, KEEP, KEEP)  \
    LOOP(name, inputs, expression, I16, int32_t, KEEP, KEEP) \
    LOOP(name, inputs, expression, I32, int32_t, KEEP, KEEP) \
    LOOP(name, inputs, expression, I64, int64_t, KEEP, KEEP)
#define LOOPS_SMOOTH(LOOP, name, inputs, expression)                                   \
    LOOP##_SMOOTH(name, inputs, expression, F32, float, KEEP, KEEP)                    \
        LOOP##_BY_F32(name, inputs, F16) LOOP##_SMOOTH(name, inputs, expression, BF16, \
                                                       float, READ_BF16, WRITE_BF16)   \
            LOOP##_SMOOTH(name, inputs, expression, F64, double, KEEP, KEEP)
#define LOOPS_SELECT(LOOP, name, inputs, expression)
#define LOOPS_CAST(LOOP, name, inputs, expression)

#define COMPLEX_UNARY(name, dtype) complex_##name##_##dtype(x)
#define COMPLEX_BINARY(name, dtype) complex_##name##_##dtype(x, y)

/*
 * ---- one element of each functor ----
 * add_at_F32(in, i, out) computes out[i] from x = in[0][i] and y = in[1][i].  The loops
 * take its address and inline it.
 */

#define ELEMENT(name, inputs, expression, dtype, V, READ, WRITE)                \
    INLINED void name##_at_##dtype(const void *const *in, int64_t i, void *out) \
    {                                                                           \
        VALUES_##inputs(T_##dtype, V, READ);                                    \
        ((T_##dtype *)out)[i] = WRITE(expression);                              \
    }
#define ELEMENT_BY_F32(name, inputs, dtype)
#define ELEMENT_HALF(name, inputs, expression)
#define ELEMENT_SMOOTH ELEMENT

#define ELEMENT_OF(T, k) (((const T *)in[k])[i])
#define VALUES_UNARY(T, V, READ) const V x = READ(ELEMENT_OF(T, 0))
#define VALUES_BINARY(T, V, READ) VALUES_UNARY(T, V, READ), y = READ(ELEMENT_OF(T, 1))
#define VALUES_TERNARY(T, V, READ) VALUES_BINARY(T, V, READ), z = READ(ELEMENT_OF(T, 2))
#define VALUES_BOUNDS(T, V, READ) VALUES_TERNARY(T, V, READ)

#define FUNCTOR(name, inputs, types, expression) \
    LOOPS_##types(ELEMENT, name, inputs, expression)
#include "functors.def"
#undef FUNCTOR

INLINED void
abs_at_C64(const void *const *in, int64_t i, void *out)
{
    ((float *)out)[i] = complex_abs_C64(ELEMENT_OF(gpo_c64, 0));
}

INLINED void
abs_at_C128(const void *const *in, int64_t i, void *out)
{
    ((double *)out)[i] = complex_abs_C128(ELEMENT_OF(gpo_c128, 0));
}

#endif
