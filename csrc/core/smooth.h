/*
 * smooth.h  exp, log, tanh, sigmoid, silu and gelu on the CPU, without branches and
 * fused multiply-adds: loops over them vectorise, with the same bits on every
 * instruction set.  Order: in double, in float.
 */
#ifndef GPO_SMOOTH_H
#define GPO_SMOOTH_H

#include "elements.h"

#include <math.h>

typedef union double_bits {
    double f;
    uint64_t u;
} double_bits;

/* ---- in double ---- */

/* 1.5 * 2^52: adding it rounds to an integer and leaves that in the low bits. */
#define WHOLE 0x1.8p52
#define LN2_HIGH 0x1.62e42feep-1 /* 32 bits: times an integer below 2^20 is exact */
#define LN2_LOW 0x1.a39ef35793c76p-33

/* 2^k, for an integer k in [-1022, 1023] that WHOLE was added to. */
static inline double
power_of_two(double k_and_whole)
{
    double_bits scale = {.f = k_and_whole};
    scale.u = (scale.u + 1023) << 52;
    return scale.f;
}

/*
 * (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2: Taylor's series, error below 2^-56.  Even
 * and odd powers are summed apart, here and below: two short chains of dependent
 * operations instead of a long one.
 */
static inline double
exp_tail(double r)
{
    const double q = r * r;
    double odd = 1.0 / 6227020800, even = 1.0 / 479001600;
    odd = odd * q + 1.0 / 39916800;
    even = even * q + 1.0 / 3628800;
    odd = odd * q + 1.0 / 362880;
    even = even * q + 1.0 / 40320;
    odd = odd * q + 1.0 / 5040;
    even = even * q + 1.0 / 720;
    odd = odd * q + 1.0 / 120;
    even = even * q + 1.0 / 24;
    odd = odd * q + 1.0 / 6;
    return odd * r + (even * q + 0.5);
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

/* exp(x) 2^DECAY for x <= 0: far from subnormal, and 0 where x exp(x) is. */
#define DECAY 512
#define DECAYED 0x1p-512

static inline double
decay_of(double x)
{
    x = x < -1064 ? -1064 : x; /* the power of two is 0 */
    double_bits scale = {.f = x * 0x1.71547652b82fep0 + WHOLE};
    const double k = scale.f - WHOLE;
    const double r = (x - k * LN2_HIGH) - k * LN2_LOW;
    scale.u = (scale.u + 1023 + DECAY) << 52;
    return (1 + (r + r * r * exp_tail(r))) * scale.f;
}

static inline double
sigmoid_of(double x)
{
    const double e = decay_of(-fabs(x)) * DECAYED;
    return (x >= 0 ? 1 : e) / (1 + e);
}

/*
 * x exp(x) / (1 + exp(x)) for negative x.  exp(x) becomes subnormal, with few bits,
 * before its product with x does.  -inf gives nan.
 */
static inline double
silu_of(double x)
{
    const double large = decay_of(-fabs(x)), e = large * DECAYED;
    return (x >= 0 ? x : x * large) / (1 + e) * (x >= 0 ? 1 : DECAYED);
}

/*
 * exp(u^2 / 2) times the normal distribution up to -u, u >= 0: z = 5 / (5 + u) times a
 * polynomial, interpolated at Chebyshev's nodes for u in [0, 39], error below 2^-56.
 */
static inline double
bell_tail(double u)
{
    const double z = 5 / (5 + u), t = z - 0.5;
    const double q = t * t;
    double even = -0.0001331898620258937, odd = -0.0007352817922220153;
    even = even * q + 0.0016070626353107522;
    odd = odd * q + 0.0009765976533186442;
    even = even * q - 0.003457271286976858;
    odd = odd * q - 0.001108213595899569;
    even = even * q + 0.005677266182946927;
    odd = odd * q + 0.002206042476388333;
    even = even * q - 0.009074334420164379;
    odd = odd * q - 0.006522310095450999;
    even = even * q + 0.013665250297480856;
    odd = odd * q + 0.020382848725231946;
    even = even * q - 0.012160149096430768;
    odd = odd * q - 0.0557976642327685;
    even = even * q - 0.04085091320146279;
    odd = odd * q + 0.07663044532501868;
    even = even * q + 0.2661768550385047;
    odd = odd * q + 0.442359287720385;
    even = even * q + 0.528065171745231;
    odd = odd * q + 0.5016530506740873;
    even = even * q + 0.3962444927759811;
    odd = odd * q + 0.2661530011560227;
    even = even * q + 0.15383860995001258;
    return z * (odd * t + even);
}

/* Below 0 the tail itself, above 0 what the other tail leaves of 1. */
static inline double
gelu_of(double x)
{
    const double u = fabs(x),
                 tail = bell_tail(u) * (decay_of(-0.5 * (u * u)) * DECAYED);
    return x * (x < 0 ? tail : 1 - tail);
}

/* ---- in float ---- */

/*
 * Coefficients of S. L. Moshier's Cephes (expf.c, logf.c); the high part of ln(2) has 9
 * bits, so that its product with an exponent is exact.
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
    const float q = r * r;
    float odd = 1.9875691500e-4f, even = 1.3981999507e-3f;
    odd = odd * q + 8.3334519073e-3f;
    even = even * q + 4.1665795894e-2f;
    odd = odd * q + 1.6666665459e-1f;
    return odd * r + (even * q + 5.0000001201e-1f);
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
    float even = 7.0376836292e-2f, odd = -1.1514610310e-1f;
    even = even * z + 1.1676998740e-1f;
    odd = odd * z - 1.2420140846e-1f;
    even = even * z + 1.4249322787e-1f;
    odd = odd * z - 1.6668057665e-1f;
    even = even * z + 2.0000714765e-1f;
    odd = odd * z - 2.4999993993e-1f;
    even = even * z + 3.3333331174e-1f;
    float y_log =
        f * (z * (odd * f + even)) + k * LN2_LOWF - 0.5f * z + f + k * LN2_HIGHF;
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

/* As decay_of. */
#define DECAYF 100
#define DECAYEDF 0x1p-100f

static inline float
decayf_of(float x)
{
    x = x < -157.3f ? -157.3f : x;
    float_bits scale = {.f = x * 0x1.715476p0f + WHOLEF};
    const float k = scale.f - WHOLEF;
    const float r = (x - k * LN2_HIGHF) - k * LN2_LOWF;
    scale.u = (scale.u + 127 + DECAYF) << 23;
    return (1 + (r + r * r * expf_tail(r))) * scale.f;
}

static inline float
sigmoidf_of(float x)
{
    const float e = decayf_of(-fabsf(x)) * DECAYEDF;
    return (x >= 0 ? 1 : e) / (1 + e);
}

static inline float
siluf_of(float x)
{
    const float large = decayf_of(-fabsf(x)), e = large * DECAYEDF;
    return (x >= 0 ? x : x * large) / (1 + e) * (x >= 0 ? 1 : DECAYEDF);
}

/* As bell_tail, with z = 4 / (4 + u) for u in [0, 15], error below 2^-26. */
static inline float
bell_tailf(float u)
{
    const float z = 4 / (4 + u), t = z - 0.5f;
    const float q = t * t;
    float odd = 0x1.0750a6p-6f, even = 0x1.8c5abcp-7f;
    odd = odd * q - 0x1.9abfa6p-5f;
    even = even * q - 0x1.cd803ep-5f;
    odd = odd * q + 0x1.ed2f4ep-5f;
    even = even * q + 0x1.eed8f4p-3f;
    odd = odd * q + 0x1.7dffeep-2f;
    even = even * q + 0x1.8c6d9p-2f;
    odd = odd * q + 0x1.373e38p-2f;
    even = even * q + 0x1.82b4bcp-3f;
    return z * (odd * t + even);
}

static inline float
geluf_of(float x)
{
    const float u = fabsf(x),
                tail = bell_tailf(u) * (decayf_of(-0.5f * (u * u)) * DECAYEDF);
    return x * (x < 0 ? tail : 1 - tail);
}

#endif
