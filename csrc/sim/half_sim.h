/*
 * half_sim.h  CUDA's __half, __nv_bfloat16 and their pairs for a host compiler: first
 * the conversions, then the scalar types with the operators CUDA gives them, then the
 * intrinsics.  Every operation rounds once, to nearest even, as the device does.
 */
#ifndef GPO_SIM_HALF_SIM_H
#define GPO_SIM_HALF_SIM_H

#include "vector_sim.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace gpo_sim {

static inline uint32_t
float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float
bits_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float
half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) {
        return bits_float(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    }
    if (rest < 0x400u) { /* zero and subnormals: rest * 2^-24, exact in float */
        const float magnitude = (float)rest * 0x1p-24f;
        return bits_float(sign | float_bits(magnitude));
    }
    return bits_float(sign | ((rest << 13) + 0x38000000u));
}

/* The IEEE rounding modes. */
enum Rounding { NEAREST, TOWARD_ZERO, DOWN, UP };

/* `kept`, plus 1 if the discarded part, `rest` of `unit`, rounds it up. */
static inline uint32_t
rounded(uint32_t kept, uint32_t rest, uint32_t unit, bool negative, Rounding rounding)
{
    switch (rounding) {
        case TOWARD_ZERO:
            return kept;
        case DOWN:
            return kept + (negative && rest != 0);
        case UP:
            return kept + (!negative && rest != 0);
        default:
            return kept + (rest > unit / 2 || (rest == unit / 2 && (kept & 1u)));
    }
}

static inline uint16_t
float_to_half(float value, Rounding rounding = NEAREST)
{
    const uint32_t bits = float_bits(value);
    const uint32_t sign = bits >> 31;
    const uint32_t rest = bits & 0x7fffffffu;
    uint32_t half;
    if (rest > 0x7f800000u) {
        return 0x7fffu; /* CUDA's canonical nan */
    }
    if (rest == 0x7f800000u) {
        half = 0x7c00u;
    }
    else if (rest >= 0x47800000u) { /* 2^16 and more */
        half = 0x7bffu + (rounding == NEAREST || (rounding == UP && !sign) ||
                          (rounding == DOWN && sign));
    }
    else if (rest >= 0x38800000u) { /* normal: the carry may run into the exponent */
        half = rounded((rest - 0x38000000u) >> 13, rest & 0x1fffu, 0x2000u, sign != 0,
                       rounding);
    }
    else { /* subnormal: the significand in units of 2^-24 */
        const uint32_t significand = (rest & 0x7fffffu) | 0x800000u;
        const uint32_t shift = 126 - (rest >> 23);
        if (rest < 0x00800000u || shift > 30) {
            half = rounded(0, rest != 0, 4, sign != 0, rounding);
        }
        else {
            half = rounded(significand >> shift, significand & ((1u << shift) - 1),
                           1u << shift, sign != 0, rounding);
        }
    }
    return (uint16_t)(sign << 15 | half);
}

static inline float
bfloat16_to_float(uint16_t bfloat)
{
    return bits_float((uint32_t)bfloat << 16);
}

static inline uint16_t
float_to_bfloat16(float value, Rounding rounding = NEAREST)
{
    const uint32_t bits = float_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return 0x7fffu;
    }
    if ((bits & 0x7fffffffu) == 0x7f800000u) {
        return (uint16_t)(bits >> 16);
    }
    return (uint16_t)rounded(bits >> 16, bits & 0xffffu, 0x10000u, bits >> 31 != 0,
                             rounding);
}

/*
 * A double rounded to float, to odd when inexact: rounding that again, to 11 or 8 bits,
 * gives the same as rounding the double directly.
 */
static inline float
round_to_odd(double value)
{
    const float nearest = (float)value;
    if ((double)nearest == value || nearest != nearest || isinf(nearest)) {
        return nearest;
    }
    uint32_t bits = float_bits(nearest);
    const bool away = fabs((double)nearest) > fabs(value);
    bits -= away; /* now truncated */
    return bits_float(bits | 1u);
}

/* a * b + c rounded to odd in double: the product of two short floats is exact. */
static inline float
fma_to_odd(float a, float b, float c)
{
    const double product = (double)a * b;
    const double sum = product + c;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (c - back);
    if (!(error != 0) || isinf(sum)) {
        return round_to_odd(sum);
    }
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if ((bits & 1u) == 0) {
        bits += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    }
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return round_to_odd(odd);
}

} // namespace gpo_sim

/* ---- the scalar types: one body, two formats ---- */

#define GPO_SIM_SHORT_FLOAT(type, raw_type, TO_FLOAT, FROM_FLOAT)                     \
    struct raw_type {                                                                 \
        unsigned short x;                                                             \
    };                                                                                \
    struct alignas(2) type {                                                          \
        unsigned short bits;                                                          \
        type() = default;                                                             \
        type(raw_type raw) : bits(raw.x)                                              \
        {                                                                             \
        }                                                                             \
        type(float v) : bits(FROM_FLOAT(v, gpo_sim::NEAREST))                         \
        {                                                                             \
        }                                                                             \
        type(double v) : bits(FROM_FLOAT(gpo_sim::round_to_odd(v), gpo_sim::NEAREST)) \
        {                                                                             \
        }                                                                             \
        type(int v) : type((double)v)                                                 \
        {                                                                             \
        }                                                                             \
        type(unsigned v) : type((double)v)                                            \
        {                                                                             \
        }                                                                             \
        type(short v) : type((double)v)                                               \
        {                                                                             \
        }                                                                             \
        type(unsigned short v) : type((double)v)                                      \
        {                                                                             \
        }                                                                             \
        type(long v) : type((double)v)                                                \
        {                                                                             \
        }                                                                             \
        type(unsigned long v) : type((double)v)                                       \
        {                                                                             \
        }                                                                             \
        type(long long v) : type((double)v)                                           \
        {                                                                             \
        }                                                                             \
        type(unsigned long long v) : type((double)v)                                  \
        {                                                                             \
        }                                                                             \
        operator float() const                                                        \
        {                                                                             \
            return TO_FLOAT(bits);                                                    \
        }                                                                             \
        operator raw_type() const                                                     \
        {                                                                             \
            return raw_type{bits};                                                    \
        }                                                                             \
        type &operator+=(type b)                                                      \
        {                                                                             \
            return *this = type((float)*this + (float)b);                             \
        }                                                                             \
        type &operator-=(type b)                                                      \
        {                                                                             \
            return *this = type((float)*this - (float)b);                             \
        }                                                                             \
        type &operator*=(type b)                                                      \
        {                                                                             \
            return *this = type((float)*this * (float)b);                             \
        }                                                                             \
        type &operator/=(type b)                                                      \
        {                                                                             \
            return *this = type((float)*this / (float)b);                             \
        }                                                                             \
    };                                                                                \
    static inline type operator+(type a, type b)                                      \
    {                                                                                 \
        return type((float)a + (float)b);                                             \
    }                                                                                 \
    static inline type operator-(type a, type b)                                      \
    {                                                                                 \
        return type((float)a - (float)b);                                             \
    }                                                                                 \
    static inline type operator*(type a, type b)                                      \
    {                                                                                 \
        return type((float)a * (float)b);                                             \
    }                                                                                 \
    static inline type operator/(type a, type b)                                      \
    {                                                                                 \
        return type((float)a / (float)b);                                             \
    }                                                                                 \
    static inline type operator-(type a)                                              \
    {                                                                                 \
        a.bits ^= 0x8000u;                                                            \
        return a;                                                                     \
    }                                                                                 \
    static inline bool operator==(type a, type b)                                     \
    {                                                                                 \
        return (float)a == (float)b;                                                  \
    }                                                                                 \
    static inline bool operator!=(type a, type b)                                     \
    {                                                                                 \
        return (float)a != (float)b;                                                  \
    }                                                                                 \
    static inline bool operator<(type a, type b)                                      \
    {                                                                                 \
        return (float)a < (float)b;                                                   \
    }                                                                                 \
    static inline bool operator>(type a, type b)                                      \
    {                                                                                 \
        return (float)a > (float)b;                                                   \
    }                                                                                 \
    static inline bool operator<=(type a, type b)                                     \
    {                                                                                 \
        return (float)a <= (float)b;                                                  \
    }                                                                                 \
    static inline bool operator>=(type a, type b)                                     \
    {                                                                                 \
        return (float)a >= (float)b;                                                  \
    }

#define GPO_SIM_PAIR(pair, scalar)               \
    struct alignas(4) pair {                     \
        scalar x, y;                             \
        pair() = default;                        \
        pair(scalar a, scalar b) : x(a), y(b)    \
        {                                        \
        }                                        \
    };                                           \
    static inline pair operator+(pair a, pair b) \
    {                                            \
        return pair(a.x + b.x, a.y + b.y);       \
    }                                            \
    static inline pair operator-(pair a, pair b) \
    {                                            \
        return pair(a.x - b.x, a.y - b.y);       \
    }                                            \
    static inline pair operator*(pair a, pair b) \
    {                                            \
        return pair(a.x * b.x, a.y * b.y);       \
    }                                            \
    static inline pair operator/(pair a, pair b) \
    {                                            \
        return pair(a.x / b.x, a.y / b.y);       \
    }

GPO_SIM_SHORT_FLOAT(__half, __half_raw, gpo_sim::half_to_float, gpo_sim::float_to_half)
GPO_SIM_SHORT_FLOAT(__nv_bfloat16, __nv_bfloat16_raw, gpo_sim::bfloat16_to_float,
                    gpo_sim::float_to_bfloat16)
GPO_SIM_PAIR(__half2, __half)
GPO_SIM_PAIR(__nv_bfloat162, __nv_bfloat16)

typedef __half half;
typedef __half2 half2;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

/* ---- the intrinsics that CUDA overloads for both formats ---- */

#define GPO_SIM_SHORT_MATH(type, pair)                             \
    static inline type __hadd(type a, type b)                      \
    {                                                              \
        return a + b;                                              \
    }                                                              \
    static inline type __hsub(type a, type b)                      \
    {                                                              \
        return a - b;                                              \
    }                                                              \
    static inline type __hmul(type a, type b)                      \
    {                                                              \
        return a * b;                                              \
    }                                                              \
    static inline type __hdiv(type a, type b)                      \
    {                                                              \
        return a / b;                                              \
    }                                                              \
    static inline type __hneg(type a)                              \
    {                                                              \
        return -a;                                                 \
    }                                                              \
    static inline type __habs(type a)                              \
    {                                                              \
        a.bits &= 0x7fffu;                                         \
        return a;                                                  \
    }                                                              \
    static inline type __hfma(type a, type b, type c)              \
    {                                                              \
        return type(gpo_sim::fma_to_odd(a, b, c));                 \
    }                                                              \
    static inline bool __hisnan(type a)                            \
    {                                                              \
        return a != a;                                             \
    }                                                              \
    static inline bool __heq(type a, type b)                       \
    {                                                              \
        return a == b;                                             \
    }                                                              \
    static inline bool __hlt(type a, type b)                       \
    {                                                              \
        return a < b;                                              \
    }                                                              \
    static inline bool __hgt(type a, type b)                       \
    {                                                              \
        return a > b;                                              \
    }                                                              \
    static inline type __hmax(type a, type b)                      \
    {                                                              \
        return a != a ? b : b != b ? a : a < b ? b : a;            \
    }                                                              \
    static inline type __hmin(type a, type b)                      \
    {                                                              \
        return a != a ? b : b != b ? a : b < a ? b : a;            \
    }                                                              \
    static inline type __hmax_nan(type a, type b)                  \
    {                                                              \
        return a != a ? a : b != b ? b : a < b ? b : a;            \
    }                                                              \
    static inline type __hmin_nan(type a, type b)                  \
    {                                                              \
        return a != a ? a : b != b ? b : b < a ? b : a;            \
    }                                                              \
    static inline pair __hadd2(pair a, pair b)                     \
    {                                                              \
        return a + b;                                              \
    }                                                              \
    static inline pair __hsub2(pair a, pair b)                     \
    {                                                              \
        return a - b;                                              \
    }                                                              \
    static inline pair __hmul2(pair a, pair b)                     \
    {                                                              \
        return a * b;                                              \
    }                                                              \
    static inline pair __h2div(pair a, pair b)                     \
    {                                                              \
        return a / b;                                              \
    }                                                              \
    static inline pair __hfma2(pair a, pair b, pair c)             \
    {                                                              \
        return pair(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); \
    }                                                              \
    static inline pair __hmax2(pair a, pair b)                     \
    {                                                              \
        return pair(__hmax(a.x, b.x), __hmax(a.y, b.y));           \
    }                                                              \
    static inline pair __hmin2(pair a, pair b)                     \
    {                                                              \
        return pair(__hmin(a.x, b.x), __hmin(a.y, b.y));           \
    }                                                              \
    static inline pair __hmax2_nan(pair a, pair b)                 \
    {                                                              \
        return pair(__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y));   \
    }                                                              \
    static inline pair __hmin2_nan(pair a, pair b)                 \
    {                                                              \
        return pair(__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y));   \
    }

GPO_SIM_SHORT_MATH(__half, __half2)
GPO_SIM_SHORT_MATH(__nv_bfloat16, __nv_bfloat162)

/* ---- the intrinsics whose names carry the format ---- */

#define GPO_SIM_SHORT_NAMES(type, pair, name, name2, FROM_FLOAT) \
    static inline float __##name##2float(type a)                 \
    {                                                            \
        return (float)a;                                         \
    }                                                            \
    static inline type __float2##name(float a)                   \
    {                                                            \
        return type(a);                                          \
    }                                                            \
    static inline type __float2##name##_rn(float a)              \
    {                                                            \
        return type(a);                                          \
    }                                                            \
    static inline type __float2##name##_rz(float a)              \
    {                                                            \
        type r;                                                  \
        r.bits = FROM_FLOAT(a, gpo_sim::TOWARD_ZERO);            \
        return r;                                                \
    }                                                            \
    static inline type __float2##name##_rd(float a)              \
    {                                                            \
        type r;                                                  \
        r.bits = FROM_FLOAT(a, gpo_sim::DOWN);                   \
        return r;                                                \
    }                                                            \
    static inline type __float2##name##_ru(float a)              \
    {                                                            \
        type r;                                                  \
        r.bits = FROM_FLOAT(a, gpo_sim::UP);                     \
        return r;                                                \
    }                                                            \
    static inline type __double2##name(double a)                 \
    {                                                            \
        return type(a);                                          \
    }                                                            \
    static inline type __ushort_as_##name(unsigned short bits)   \
    {                                                            \
        type r;                                                  \
        r.bits = bits;                                           \
        return r;                                                \
    }                                                            \
    static inline unsigned short __##name##_as_ushort(type a)    \
    {                                                            \
        return a.bits;                                           \
    }                                                            \
    static inline pair __##name##2##name2(type a)                \
    {                                                            \
        return pair(a, a);                                       \
    }                                                            \
    static inline pair __floats2##name2##_rn(float a, float b)   \
    {                                                            \
        return pair(type(a), type(b));                           \
    }                                                            \
    static inline pair __float2##name2##_rn(float a)             \
    {                                                            \
        return pair(type(a), type(a));                           \
    }                                                            \
    static inline pair __float22##name2##_rn(float2 a)           \
    {                                                            \
        return pair(type(a.x), type(a.y));                       \
    }                                                            \
    static inline float2 __##name2##2float2(pair a)              \
    {                                                            \
        return float2{(float)a.x, (float)a.y};                   \
    }

GPO_SIM_SHORT_NAMES(__half, __half2, half, half2, gpo_sim::float_to_half)
GPO_SIM_SHORT_NAMES(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162,
                    gpo_sim::float_to_bfloat16)

#define GPO_SIM_PAIR_NAMES(type, pair, name, name2)     \
    static inline pair __halves2##name2(type a, type b) \
    {                                                   \
        return pair(a, b);                              \
    }                                                   \
    static inline type __low2##name(pair a)             \
    {                                                   \
        return a.x;                                     \
    }                                                   \
    static inline type __high2##name(pair a)            \
    {                                                   \
        return a.y;                                     \
    }                                                   \
    static inline float __low2float(pair a)             \
    {                                                   \
        return (float)a.x;                              \
    }                                                   \
    static inline float __high2float(pair a)            \
    {                                                   \
        return (float)a.y;                              \
    }

GPO_SIM_PAIR_NAMES(__half, __half2, half, half2)
GPO_SIM_PAIR_NAMES(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)

#endif
