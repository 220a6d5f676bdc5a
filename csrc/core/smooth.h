/*
 * smooth.h  exp, log, tanh, sigmoid, silu and gelu on the CPU, without branches: loops
 * over them vectorise.  Order: in double, in float.
 *
 * Polynomials are chains of fused multiply-adds, one instruction from x86-64-v3 on and a
 * call of libm below: the bits are the same on every instruction set.
 */
#ifndef GPO_SMOOTH_H
#define GPO_SMOOTH_H

#include "elements.h"

#include <math.h>

/* A part of its caller, compiled for the caller's instruction set. */
#define SMOOTH static inline __attribute__((always_inline))

/* ---- in double ---- */

typedef union double_bits {
    double f;
    uint64_t u;
} double_bits;

/* 1.5 * 2^52: adding it rounds to an integer and leaves that in the low bits. */
#define WHOLE 0x1.8p52
#define PER_LN2 0x1.71547652b82fep0
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times an integer below 2^20 is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33

enum { BIAS = 1023, DECAY = 512 }; /* of exponents, and in decay_of */
#define DECAYED 0x1p-512

/* 2^(bits - BIAS), for the low bits of a number. */
SMOOTH double
power_of_two(double bits)
{
    double_bits scale = {.f = bits};
    scale.u <<= 52;
    return scale.f;
}

/* x - k ln(2) */
SMOOTH double
rest_of(double x, double k)
{
    return fma(k, -LN2_LOW, fma(k, -LN2_HIGH, x));
}

/* Sums of exp.def and bell.def, of powers of q. */
#define FIRST(sum, coefficient) double sum = coefficient;
#define NEXT(sum, coefficient) sum = fma(sum, q, coefficient);

/*
 * exp(r) - 1 for |r| <= ln(2) / 2.  Even and odd powers are summed apart, here and below:
 * two short chains of dependent operations instead of a long one.
 */
SMOOTH double
exp_rest(double r)
{
    const double q = r * r;
#include "exp.def"
    return fma(q, fma(odd, r, even), r);
}

/* exp(x) = 2^k exp(r); two factors, so that a subnormal result is rounded once. */
SMOOTH double
exp_of(double x)
{
    const double size = fabs(x);
    x = copysign(size > 746 ? 746 : size, x);
    const double_bits whole = {.f = fma(x, PER_LN2, WHOLE + 2 * BIAS)};
    const double rest = exp_rest(rest_of(x, whole.f - (WHOLE + 2 * BIAS)));
    const double_bits half = {.u = whole.u >> 1};
    const double_bits other = {.u = whole.u - half.u};
    const double a = power_of_two(half.f), b = power_of_two(other.f);
    return fma(rest, a, a) * b;
}

/* The same for |x| < 708, where 2^k is normal: if exp_key(x) < EXP_KEYS. */
SMOOTH double
exp_usual(double x)
{
    const double whole = fma(x, PER_LN2, WHOLE + BIAS);
    const double rest = exp_rest(rest_of(x, whole - (WHOLE + BIAS)));
    const double scale = power_of_two(whole);
    return fma(rest, scale, scale);
}

#define EXP_KEYS UINT64_C(0x4086200000000000) /* of 708 */

SMOOTH uint64_t
exp_key(double x)
{
    const double_bits size = {.f = fabs(x)};
    return size.u;
}

/*
 * log(x) = k ln(2) + log(m), m in [sqrt(1/2), sqrt(2)): FreeBSD's e_log.c; k is the
 * exponent less that of `bias`, for normal x.
 */
SMOOTH double
log_scaled(double x, double bias)
{
    const uint64_t low = UINT64_C(0x3fe6a09e00000000); /* of sqrt(1/2) */
    const double_bits y = {.f = x};
    const uint64_t shifted = y.u + (UINT64_C(0x3ff0000000000000) - low);
    const double_bits m = {.u = (shifted & UINT64_C(0x000fffffffffffff)) + low};
    const double_bits biased = {.u = shifted >> 52 | UINT64_C(0x4330000000000000)};
    const double k = biased.f - bias;
    const double f = m.f - 1, s = f / (2 + f), z = s * s, w = z * z;
    double even = 1.531383769920937332e-01, odd = 1.479819860511658591e-01;
    even = fma(even, w, 2.222219843214978396e-01);
    odd = fma(odd, w, 1.818357216161805012e-01);
    even = fma(even, w, 3.999999999940941908e-01);
    odd = fma(odd, w, 2.857142874366239149e-01);
    odd = fma(odd, w, 6.666666666666735130e-01);
    const double half = 0.5 * f * f, series = fma(even, w, odd * z);
    return fma(k, LN2_HIGH, fma(s, half + series, k * LN2_LOW) - half + f);
}

SMOOTH double
log_of(double x)
{
    const bool tiny = x < 0x1p-1022;
    double y = log_scaled(tiny ? x * 0x1p54 : x, tiny ? 0x1p52 + 1077 : 0x1p52 + 1023);
    y = x == (double)INFINITY ? x : y;
    y = x == 0 ? -(double)INFINITY : y;
    y = x < 0 ? (double)NAN : y;
    return x != x ? x : y;
}

/* The same for normal positive x: if log_key(x) < LOG_KEYS. */
SMOOTH double
log_usual(double x)
{
    return log_scaled(x, 0x1p52 + 1023);
}

#define LOG_KEYS UINT64_C(0x7fe0000000000000)

SMOOTH uint64_t
log_key(double x)
{
    const double_bits y = {.f = x};
    return y.u - UINT64_C(0x0010000000000000); /* of the least normal number */
}

/* tanh|x| = e / (e + 2), e = exp(2|x|) - 1, which keeps its digits near 0. */
SMOOTH double
tanh_of(double x)
{
    double y = 2 * fabs(x);
    y = y > 44 ? 44 : y;
    const double whole = fma(y, PER_LN2, WHOLE + BIAS), scale = power_of_two(whole);
    const double rest = exp_rest(rest_of(y, whole - (WHOLE + BIAS)));
    const double e = fma(scale, rest, scale - 1);
    return copysign(e / (e + 2), x);
}

/* exp(x) 2^DECAY for x <= 0: far from subnormal, and 0 where x exp(x) is. */
SMOOTH double
decay_of(double x)
{
    x = x < -1064 ? -1064 : x; /* the power of two is 0 */
    const double whole = fma(x, PER_LN2, WHOLE + BIAS + DECAY);
    const double rest = exp_rest(rest_of(x, whole - (WHOLE + BIAS + DECAY)));
    const double scale = power_of_two(whole);
    return fma(rest, scale, scale);
}

SMOOTH double
sigmoid_of(double x)
{
    const double e = decay_of(-fabs(x)) * DECAYED;
    return (x >= 0 ? 1 : e) / (1 + e);
}

/*
 * x exp(x) / (1 + exp(x)) for negative x.  exp(x) becomes subnormal, with few bits,
 * before its product with x does.  -inf gives nan.
 */
SMOOTH double
silu_of(double x)
{
    const double large = decay_of(-fabs(x)), e = large * DECAYED;
    return (x < 0 ? x * large : x) / (1 + e) * (x >= 0 ? 1 : DECAYED);
}

/* exp(u^2 / 2) times the normal distribution up to -u, u in [0, 39]. */
SMOOTH double
bell_tail(double u)
{
    const double z = 5 / (5 + u), t = z - 0.5;
    const double q = t * t;
#include "bell.def"
    return z * fma(odd, t, even);
}

/* Below 0 the tail itself, above 0 what the other tail leaves of 1. */
SMOOTH double
gelu_of(double x)
{
    const double u = x < 0 ? -x : x; /* keeps the sign of a nan, as all below */
    const double decay = decay_of(-0.5 * (u * u)) * DECAYED;
    const double tail = bell_tail(u) * decay;
    return x * (x < 0 ? tail : 1 - tail);
}

#undef FIRST
#undef NEXT

/* ---- in float: coefficients of S. L. Moshier's Cephes (expf.c, logf.c) ---- */

#define WHOLEF 0x1.8p23f
#define PER_LN2F 0x1.715476p0f
#define LN2_HIGHF 0x1.63p-1f /* 9 bits: times an exponent is exact */
#define LN2_LOWF -0x1.bd0106p-13f

enum { BIASF = 127, DECAYF = 100 };
#define DECAYEDF 0x1p-100f

SMOOTH float
power_of_twof(float bits)
{
    float_bits scale = {.f = bits};
    scale.u <<= 23;
    return scale.f;
}

SMOOTH float
restf_of(float x, float k)
{
    return fmaf(k, -LN2_LOWF, fmaf(k, -LN2_HIGHF, x));
}

/* Error below 2^-26. */
SMOOTH float
expf_rest(float r)
{
    const float q = r * r;
    float even = 0x1.6d1106p-10f, odd = 0x1.120b6cp-7f;
    even = fmaf(even, q, 0x1.55551ap-5f);
    odd = fmaf(odd, q, 0x1.5554dcp-3f);
    even = fmaf(even, q, 0.5f);
    return fmaf(q, fmaf(odd, r, even), r);
}

SMOOTH float
expf_of(float x)
{
    const float size = fabsf(x);
    x = copysignf(size > 105 ? 105 : size, x);
    const float_bits whole = {.f = fmaf(x, PER_LN2F, WHOLEF + 2 * BIASF)};
    const float rest = expf_rest(restf_of(x, whole.f - (WHOLEF + 2 * BIASF)));
    const float_bits half = {.u = whole.u >> 1};
    const float_bits other = {.u = whole.u - half.u};
    const float a = power_of_twof(half.f), b = power_of_twof(other.f);
    return fmaf(rest, a, a) * b;
}

/* The same for |x| < 87. */
SMOOTH float
expf_usual(float x)
{
    const float whole = fmaf(x, PER_LN2F, WHOLEF + BIASF);
    const float rest = expf_rest(restf_of(x, whole - (WHOLEF + BIASF)));
    const float scale = power_of_twof(whole);
    return fmaf(rest, scale, scale);
}

#define EXPF_KEYS 0x42ae0000u /* of 87 */

SMOOTH uint32_t
expf_key(float x)
{
    const float_bits size = {.f = fabsf(x)};
    return size.u;
}

SMOOTH float
logf_scaled(float x, float bias)
{
    const uint32_t low = 0x3f3504f3u; /* sqrt(1/2) */
    const float_bits y = {.f = x};
    const uint32_t shifted = y.u + (0x3f800000u - low);
    const float_bits m = {.u = (shifted & 0x007fffffu) + low};
    const float k = (float)(int32_t)(shifted >> 23) - bias;
    const float f = m.f - 1, z = f * f;
    float even = 7.0376836292e-2f, odd = -1.1514610310e-1f;
    even = fmaf(even, z, 1.1676998740e-1f);
    odd = fmaf(odd, z, -1.2420140846e-1f);
    even = fmaf(even, z, 1.4249322787e-1f);
    odd = fmaf(odd, z, -1.6668057665e-1f);
    even = fmaf(even, z, 2.0000714765e-1f);
    odd = fmaf(odd, z, -2.4999993993e-1f);
    even = fmaf(even, z, 3.3333331174e-1f);
    const float y_log = fmaf(f, z * fmaf(odd, f, even), k * LN2_LOWF);
    return fmaf(k, LN2_HIGHF, fmaf(-0.5f, z, y_log) + f);
}

SMOOTH float
logf_of(float x)
{
    const bool tiny = x < 0x1p-126f;
    float y = logf_scaled(tiny ? x * 0x1p24f : x, tiny ? 151 : 127);
    y = x == INFINITY ? x : y;
    y = x == 0 ? -INFINITY : y;
    y = x < 0 ? NAN : y;
    return x != x ? x : y;
}

SMOOTH float
logf_usual(float x)
{
    return logf_scaled(x, 127);
}

#define LOGF_KEYS 0x7f000000u

SMOOTH uint32_t
logf_key(float x)
{
    const float_bits y = {.f = x};
    return y.u - 0x00800000u;
}

SMOOTH float
tanhf_of(float x)
{
    float y = 2 * fabsf(x);
    y = y > 20 ? 20 : y;
    const float whole = fmaf(y, PER_LN2F, WHOLEF + BIASF), scale = power_of_twof(whole);
    const float rest = expf_rest(restf_of(y, whole - (WHOLEF + BIASF)));
    const float e = fmaf(scale, rest, scale - 1);
    return copysignf(e / (e + 2), x);
}

/* As decay_of. */
SMOOTH float
decayf_of(float x)
{
    x = x < -157.3f ? -157.3f : x;
    const float whole = fmaf(x, PER_LN2F, WHOLEF + BIASF + DECAYF);
    const float rest = expf_rest(restf_of(x, whole - (WHOLEF + BIASF + DECAYF)));
    const float scale = power_of_twof(whole);
    return fmaf(rest, scale, scale);
}

SMOOTH float
sigmoidf_of(float x)
{
    const float e = decayf_of(-fabsf(x)) * DECAYEDF;
    return (x >= 0 ? 1 : e) / (1 + e);
}

SMOOTH float
siluf_of(float x)
{
    const float large = decayf_of(-fabsf(x)), e = large * DECAYEDF;
    return (x < 0 ? x * large : x) / (1 + e) * (x >= 0 ? 1 : DECAYEDF);
}

/* As bell_tail, with z = 4 / (4 + u) for u in [0, 15], error below 2^-26. */
SMOOTH float
bell_tailf(float u)
{
    const float z = 4 / (4 + u), t = z - 0.5f;
    const float q = t * t;
    float odd = 0x1.0750a6p-6f, even = 0x1.8c5abcp-7f;
    odd = fmaf(odd, q, -0x1.9abfa6p-5f);
    even = fmaf(even, q, -0x1.cd803ep-5f);
    odd = fmaf(odd, q, 0x1.ed2f4ep-5f);
    even = fmaf(even, q, 0x1.eed8f4p-3f);
    odd = fmaf(odd, q, 0x1.7dffeep-2f);
    even = fmaf(even, q, 0x1.8c6d9p-2f);
    odd = fmaf(odd, q, 0x1.373e38p-2f);
    even = fmaf(even, q, 0x1.82b4bcp-3f);
    return z * fmaf(odd, t, even);
}

SMOOTH float
geluf_of(float x)
{
    const float u = x < 0 ? -x : x;
    const float decay = decayf_of(-0.5f * (u * u)) * DECAYEDF;
    const float tail = bell_tailf(u) * decay;
    return x * (x < 0 ? tail : 1 - tail);
}

#endif
