/*
 * arithmetic.h  elementwise on the CPU: what an element is, and what the capitals of
 * functors.def mean in C.  Order: elements, order and sign, fma, smooth
 * functions, complex numbers, the element types of each list.
 * Not here: the loops over elements (cpu.inc), the walk over operands (cpu.c).
 */
#ifndef GPO_ARITHMETIC_H
#define GPO_ARITHMETIC_H

#include "elementwise.h"

#include <math.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wtautological-compare" /* x != x of an integer */

#include "../../core/elements.h"
#include "../../core/smooth.h"

/* How an element is read and written. */
#define KEEP(x) (x)
#define READ_BOOL(x) ((x) != 0)
#define READ_BF16(x) float_of_bf16(x)
#define WRITE_BF16(x) bf16_of_float((float)(x))

/* ---- order and sign ---- */

/* Two choices of one comparison each, which the compiler does not turn to branches. */
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

/* The absolute value of the least integer is itself. */
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

/* ---- smooth functions: in float but for float64 ---- */

#define SQRT(x) _Generic((x), float : sqrtf, double : sqrt)(x)
#define EXP(x) _Generic((x), float : expf_of, double : exp_of)(x)
#define LOG(x) _Generic((x), float : logf_of, double : log_of)(x)
#define TANH(x) _Generic((x), float : tanhf_of, double : tanh_of)(x)
#define SIGMOID(x) _Generic((x), float : sigmoidf_of, double : sigmoid_of)(x)
#define SILU(x) _Generic((x), float : siluf_of, double : silu_of)(x)
#define GELU(x) gelu_of(x)

/* ---- complex numbers ---- */

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

/*
 * Division by Smith's algorithm, as NumPy's; the size by factors that keep the squares
 * in range, a power of two each.
 */
#define DEFINE_COMPLEX(dtype, R, absolute, root, huge, scale)                     \
    static inline T_##dtype complex_add_##dtype(T_##dtype x, T_##dtype y)         \
    {                                                                             \
        return (T_##dtype){x.re + y.re, x.im + y.im};                             \
    }                                                                             \
    static inline T_##dtype complex_subtract_##dtype(T_##dtype x, T_##dtype y)    \
    {                                                                             \
        return (T_##dtype){x.re - y.re, x.im - y.im};                             \
    }                                                                             \
    static inline T_##dtype complex_negative_##dtype(T_##dtype x)                 \
    {                                                                             \
        return (T_##dtype){-x.re, -x.im};                                         \
    }                                                                             \
    static inline T_##dtype complex_multiply_##dtype(T_##dtype x, T_##dtype y)    \
    {                                                                             \
        R rr = x.re * y.re, ii = x.im * y.im, ri = x.re * y.im, ir = x.im * y.re; \
        ROUNDED(rr);                                                              \
        ROUNDED(ii);                                                              \
        ROUNDED(ri);                                                              \
        ROUNDED(ir);                                                              \
        return (T_##dtype){rr - ii, ri + ir};                                     \
    }                                                                             \
    static inline T_##dtype complex_divide_##dtype(T_##dtype x, T_##dtype y)      \
    {                                                                             \
        const bool wide = absolute(y.re) >= absolute(y.im);                       \
        const R most = wide ? y.re : y.im, least = wide ? y.im : y.re;            \
        if (most == 0 && least == 0) {                                            \
            return (T_##dtype){x.re / absolute(most), x.im / absolute(most)};     \
        }                                                                         \
        const R ratio = least / most, factor = 1 / (most + least * ratio);        \
        R p = wide ? x.re : x.im, q = wide ? x.im : x.re;                         \
        R up = q * ratio, down = p * ratio;                                       \
        ROUNDED(up);                                                              \
        ROUNDED(down);                                                            \
        const R im = (q - down) * factor;                                         \
        return (T_##dtype){(p + up) * factor, wide ? im : -im};                   \
    }                                                                             \
    static inline R complex_abs_##dtype(T_##dtype x)                              \
    {                                                                             \
        const R a = absolute(x.re), b = absolute(x.im), most = a > b ? a : b;     \
        const R up = most > huge ? 1 / scale : most < 1 / huge ? scale : 1;       \
        const R down = most > huge ? scale : most < 1 / huge ? 1 / scale : 1;     \
        const R aa = a * up, bb = b * up;                                         \
        const R size = root(aa * aa + bb * bb) * down;                            \
        return (a == (R)INFINITY) | (b == (R)INFINITY) ? (R)INFINITY : size;      \
    }

DEFINE_COMPLEX(C64, float, fabsf, sqrtf, 0x1p60f, 0x1p100f)
DEFINE_COMPLEX(C128, double, fabs, sqrt, 0x1p500, 0x1p700)

/*
 * ---- the element types of each list of functors.def ----
 * LOOP(name, inputs, expression, dtype, V, READ, WRITE): x, y and z are of type V;
 * LOOP_BY_F32(name, inputs, dtype): by way of float.
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
    LOOP##_BY_F32(name, inputs, F16)                                       \
        LOOP(name, inputs, expression, BF16, float, READ_BF16, WRITE_BF16) \
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
    LOOPS_ROOTS(LOOP, name, inputs, expression)
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
    LOOPS_ROOTS(LOOP, name, inputs, expression)
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
#define LOOPS_SMOOTH(LOOP, name, inputs, expression) \
    LOOPS_ROOTS(LOOP##_SMOOTH, name, inputs, expression)
#define LOOPS_SELECT(LOOP, name, inputs, expression)
#define LOOPS_CAST(LOOP, name, inputs, expression)

#define COMPLEX_UNARY(name, dtype) complex_##name##_##dtype(x)
#define COMPLEX_BINARY(name, dtype) complex_##name##_##dtype(x, y)

#endif
