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

typedef union double_bits {
    double f;
    uint64_t u;
} double_bits;

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

/* ---- smooth functions, without branches: in float but for float64 ---- */

#define SQRT(x) _Generic((x), float : sqrtf, double : sqrt)(x)
#define EXP(x) _Generic((x), float : expf_of, double : exp_of)(x)
#define LOG(x) _Generic((x), float : logf_of, double : log_of)(x)
#define TANH(x) _Generic((x), float : tanhf_of, double : tanh_of)(x)
#define SIGMOID(x) _Generic((x), float : sigmoidf_of, double : sigmoid_of)(x)
#define GELU(x) gelu_of(x)

/* x * 2^52 in the last bits: adding it rounds to a whole number and leaves its bits. */
#define WHOLE 0x1.8p52
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times a whole number below 2^20 exact */
#define LN2_LOW 0x1.a39ef35793c76p-33

/* 2^k, for a whole number k in [-1022, 1023] that WHOLE was added to. */
static inline double
power_of_two(double k_and_whole)
{
    double_bits scale = {.f = k_and_whole};
    scale.u = (scale.u + 1023) << 52;
    return scale.f;
}

/* (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2: Taylor's series, error below 2^-56. */
static inline double
exp_tail(double r)
{
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    return p * r + 0.5;
}

/* exp(x) = 2^k exp(r); two factors, so that a subnormal result is rounded once. */
static inline double
exp_of(double x)
{
    x = x < -746 ? -746 : x;
    x = x > 710 ? 710 : x;
    const double k = (x * 0x1.71547652b82fep0 + WHOLE) - WHOLE;
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW;
    const double p = 1 + (r + r * r * exp_tail(r));
    const double half = k * 0.5 + WHOLE;
    const double rest = k - (half - WHOLE);
    return p * power_of_two(half) * power_of_two(rest + WHOLE);
}

/* log(x) = k ln(2) + log(m), m in [sqrt(1/2), sqrt(2)): FreeBSD's e_log.c. */
static inline double
log_of(double x)
{
    const bool tiny = x < 0x1p-1022;
    const uint64_t low = UINT64_C(0x3fe6a09e00000000); /* of sqrt(1/2) */
    const double_bits y = {.f = tiny ? x * 0x1p54 : x};
    const uint64_t shifted = y.u + (UINT64_C(0x3ff0000000000000) - low);
    const double_bits m = {.u = (shifted & UINT64_C(0x000fffffffffffff)) + low};
    const double_bits biased = {.u = shifted >> 52 | UINT64_C(0x4330000000000000)};
    const double k = biased.f - (tiny ? 0x1p52 + 1077 : 0x1p52 + 1023);
    const double f = m.f - 1, s = f / (2 + f), z = s * s, w = z * z;
    const double even =
        w * (3.999999999940941908e-01 +
             w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const double odd =
        z * (6.666666666666735130e-01 +
             w * (2.857142874366239149e-01 +
                  w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    const double half = 0.5 * f * f;
    double y_log = s * (half + (even + odd)) + k * LN2_LOW - half + f + k * LN2_HIGH;
    y_log = x == (double)INFINITY ? x : y_log;
    y_log = x == 0 ? -(double)INFINITY : y_log;
    y_log = x < 0 ? (double)NAN : y_log;
    return x != x ? x : y_log;
}

/* tanh|x| = e / (e + 2), e = exp(2|x|) - 1, which keeps its digits near 0. */
static inline double
tanh_of(double x)
{
    double y = 2 * fabs(x);
    y = y > 44 ? 44 : y;
    const double whole = y * 0x1.71547652b82fep0 + WHOLE;
    const double k = whole - WHOLE;
    const double r = (y - k * LN2_HIGH) - k * LN2_LOW;
    const double scale = power_of_two(whole);
    const double e = scale * (r + r * r * exp_tail(r)) + (scale - 1);
    return copysign(e / (e + 2), x);
}

static inline double
sigmoid_of(double x)
{
    const double e = exp_of(-fabs(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

static inline double
gelu_of(double x)
{
    return 0.5 * x * erfc(x * -0x1.6a09e667f3bcdp-1);
}

/*
 * The same in float.  Coefficients of S. L. Moshier's Cephes (expf.c, logf.c); the high
 * part of ln(2) has 9 bits, so that its product with an exponent is exact.
 */
#define WHOLEF 0x1.8p23f
#define LN2_HIGHF 0x1.63p-1f
#define LN2_LOWF -0x1.bd0106p-13f

static inline float
power_of_twof(float k_and_whole)
{
    float_bits scale = {.f = k_and_whole};
    scale.u = (scale.u + 127) << 23;
    return scale.f;
}

static inline float
expf_tail(float r)
{
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    return p * r + 5.0000001201e-1f;
}

static inline float
expf_of(float x)
{
    x = x < -105 ? -105 : x;
    x = x > 89 ? 89 : x;
    const float k = (x * 0x1.715476p0f + WHOLEF) - WHOLEF;
    const float r = (x - k * LN2_HIGHF) - k * LN2_LOWF;
    const float p = 1 + (r + r * r * expf_tail(r));
    const float half = k * 0.5f + WHOLEF;
    const float rest = k - (half - WHOLEF);
    return p * power_of_twof(half) * power_of_twof(rest + WHOLEF);
}

static inline float
logf_of(float x)
{
    const bool tiny = x < 0x1p-126f;
    const uint32_t low = 0x3f3504f3u; /* sqrt(1/2) */
    const float_bits y = {.f = tiny ? x * 0x1p24f : x};
    const uint32_t shifted = y.u + (0x3f800000u - low);
    const float_bits m = {.u = (shifted & 0x007fffffu) + low};
    const float k = (float)(int32_t)(shifted >> 23) - (tiny ? 151.0f : 127.0f);
    const float f = m.f - 1, z = f * f;
    float p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
    float y_log = f * (z * p) + k * LN2_LOWF - 0.5f * z + f + k * LN2_HIGHF;
    y_log = x == INFINITY ? x : y_log;
    y_log = x == 0 ? -INFINITY : y_log;
    y_log = x < 0 ? NAN : y_log;
    return x != x ? x : y_log;
}

static inline float
tanhf_of(float x)
{
    float y = 2 * fabsf(x);
    y = y > 20 ? 20 : y;
    const float whole = y * 0x1.715476p0f + WHOLEF;
    const float k = whole - WHOLEF;
    const float r = (y - k * LN2_HIGHF) - k * LN2_LOWF;
    const float scale = power_of_twof(whole);
    const float e = scale * (r + r * r * expf_tail(r)) + (scale - 1);
    return copysignf(e / (e + 2), x);
}

static inline float
sigmoidf_of(float x)
{
    const float e = expf_of(-fabsf(x));
    return (x >= 0 ? 1 : e) / (1 + e);
}

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
