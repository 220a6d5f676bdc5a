/*
 * fixed_sums.cuh  Sums of floats that do not depend on the order of their terms, in
 * 32-bit integers of shared memory: the largest exponent of the terms first, then the
 * terms as whole numbers below it, cut into limbs of 21 bits.
 * A term is cut off 41 bits (float64: 62) below the leading bit of the largest one, so
 * that n terms err by n * 2^-41 (2^-62) of that, before the one rounding at the end.
 */
#ifndef GPO_MAX_POOL3D_FIXED_SUMS_CUH
#define GPO_MAX_POOL3D_FIXED_SUMS_CUH

#include "../../device/launch.cuh"

#include <math.h>
#include <stdint.h>

constexpr int LIMB_BITS = 21;
constexpr unsigned LIMB_MASK = (1u << LIMB_BITS) - 1;
/* Marks above all exponents; both together are a nan. */
constexpr unsigned PLUS_INFINITY = 1u << 29, MINUS_INFINITY = 1u << 30;
constexpr unsigned MOST_SHIFT = 63; /* that 64 bits have */

template <typename V>
struct float_parts;

template <>
struct float_parts<float> {
    static constexpr int LIMBS = 2, SPARE = 18; /* bits below a term's last one */
    static constexpr unsigned WIDEST = 255;     /* exponent of an infinity or a nan */
    uint64_t mantissa;
    unsigned exponent; /* at least 1; of a subnormal number, too */
    bool is_negative;

    __device__ __forceinline__ explicit float_parts(float value)
    {
        const unsigned bits = __float_as_uint(value), field = bits >> 23 & WIDEST;
        mantissa = (bits & 0x7fffffu) | (field > 0 ? 1u << 23 : 0);
        exponent = field > 0 ? field : 1;
        is_negative = bits >> 31 != 0;
    }
    __device__ __forceinline__ bool is_nan() const
    {
        return exponent == WIDEST && mantissa != 1u << 23;
    }
    /* The term as a whole number, with SPARE bits below those of exponent `top`. */
    __device__ __forceinline__ uint64_t below(unsigned top) const
    {
        const unsigned past = top - exponent;
        return mantissa << SPARE >> (past < MOST_SHIFT ? past : MOST_SHIFT);
    }

    /* sum[i] counts 2^(21 i) of the last bit of a term with exponent `top`. */
    template <typename Limb>
    static __device__ __forceinline__ float sum_of(const Limb (&sum)[LIMBS],
                                                   unsigned top)
    {
        constexpr int BIAS = 150 + SPARE, DOUBLE_BIAS = 1023;
        const int64_t all = static_cast<int64_t>(sum[1]) * (1 << LIMB_BITS) + sum[0];
        const int power = static_cast<int>(top) - BIAS + DOUBLE_BIAS;
        const double by = __longlong_as_double(static_cast<long long>(power) << 52);
        return static_cast<float>(static_cast<double>(all) * by);
    }
};

template <>
struct float_parts<double> {
    static constexpr int LIMBS = 3, SPARE = 10;
    static constexpr unsigned WIDEST = 2047;
    uint64_t mantissa;
    unsigned exponent;
    bool is_negative;

    __device__ __forceinline__ explicit float_parts(double value)
    {
        const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(value));
        const uint64_t one = uint64_t{1} << 52;
        const unsigned field = static_cast<unsigned>(bits >> 52) & WIDEST;
        mantissa = (bits & (one - 1)) | (field > 0 ? one : 0);
        exponent = field > 0 ? field : 1;
        is_negative = bits >> 63 != 0;
    }
    __device__ __forceinline__ bool is_nan() const
    {
        return exponent == WIDEST && mantissa != uint64_t{1} << 52;
    }
    /* The term as a whole number, with SPARE bits below those of exponent `top`. */
    __device__ __forceinline__ uint64_t below(unsigned top) const
    {
        const unsigned past = top - exponent;
        return mantissa << SPARE >> (past < MOST_SHIFT ? past : MOST_SHIFT);
    }

    template <typename Limb>
    static __device__ __forceinline__ double sum_of(const Limb (&sum)[LIMBS],
                                                    unsigned top)
    {
        constexpr int BIAS = 1075 + SPARE;
        const int64_t low = static_cast<int64_t>(sum[1]) * (1 << LIMB_BITS) + sum[0];
        const double high = static_cast<double>(static_cast<int64_t>(sum[2]) *
                                                (int64_t{1} << LIMB_BITS));
        const double all = static_cast<double>(low) + high * (1 << LIMB_BITS);
        return ldexp(all, static_cast<int>(top) - BIAS);
    }
};

/* The exponent of a term, or the mark of an infinity or a nan. */
template <typename V>
__device__ __forceinline__ unsigned
exponent_or_mark(V term)
{
    const float_parts<V> p(term);
    if (p.exponent < float_parts<V>::WIDEST) {
        return p.exponent;
    }
    return p.is_nan()      ? PLUS_INFINITY | MINUS_INFINITY
           : p.is_negative ? MINUS_INFINITY
                           : PLUS_INFINITY;
}

/* A sum's largest exponent so far, or its marks, with one more term. */
template <typename V>
__device__ __forceinline__ void
raise_exponent(unsigned *top, V term)
{
    const unsigned found = exponent_or_mark<V>(term);
    if (found < PLUS_INFINITY) {
        atomicMax(top, found);
    }
    else {
        atomicOr(top, found);
    }
}

/* Adds a term to the limbs of a sum, `pitch` words apart, that has this exponent. */
template <typename V>
__device__ __forceinline__ void
add_limbs(int *sum, int pitch, unsigned top, V term)
{
    constexpr int LIMBS = float_parts<V>::LIMBS;
    if (top >= PLUS_INFINITY) {
        return;
    }
    const float_parts<V> p(term);
    const uint64_t whole = p.below(top);
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        const int limb = static_cast<int>(whole >> (i * LIMB_BITS) & LIMB_MASK);
        atomicAdd(sum + i * pitch, p.is_negative ? -limb : limb);
    }
}

/* The sum of terms among which are those marked. */
template <typename V>
__device__ __forceinline__ V
sum_of_marks(unsigned marks)
{
    const V most = static_cast<V>(INFINITY);
    const bool has_plus = (marks & PLUS_INFINITY) != 0;
    const bool has_minus = (marks & MINUS_INFINITY) != 0;
    return has_plus && has_minus ? most - most : has_plus ? most : -most;
}

/* The sum of a top and its limbs; 0 without terms. */
template <typename V>
__device__ __forceinline__ V
sum_of_limbs(const int *sum, int pitch, unsigned top)
{
    constexpr int LIMBS = float_parts<V>::LIMBS;
    if (top == 0) {
        return V(0);
    }
    if (top >= PLUS_INFINITY) {
        return sum_of_marks<V>(top);
    }
    int limbs[LIMBS];
#pragma unroll
    for (int i = 0; i < LIMBS; i++) {
        limbs[i] = sum[i * pitch];
    }
    return float_parts<V>::sum_of(limbs, top);
}

#endif
