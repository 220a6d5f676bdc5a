/*
 * number.cuh  Kinds of numbers, the types that stand for others, roundings, the fma of bfloat16,
 * complex arithmetic.
 */
#ifndef GPO_NUMBER_CUH
#define GPO_NUMBER_CUH

#include <type_traits>

#include "types.cuh"

/* ---- kinds ---- */

template <typename T>
constexpr bool IS_COMPLEX = std::is_same_v<T, c64> || std::is_same_v<T, c128>;

template <typename T>
constexpr bool IS_FLOAT = std::is_same_v<T, f16> || std::is_same_v<T, bf16> ||
                          std::is_same_v<T, float> || std::is_same_v<T, double>;

/* ---- types that stand for others ---- */

/* The unsigned integer of `bytes` bytes. */
template <int bytes>
using unsigned_of = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t,
                       std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

/* The type whose kernels serve T: addition is the same for integers of one width. */
template <typename T>
using carrier_of =
    std::conditional_t<IS_FLOAT<T> || IS_COMPLEX<T>, T, unsigned_of<sizeof(T)>>;

/* The type in which partial sums of A are exchanged: double for float. */
template <typename A>
using part_of = std::conditional_t<std::is_same_v<A, float>, double,
                                   std::conditional_t<std::is_same_v<A, c64>, c128, A>>;

/* ---- two roundings that act as one ---- */

/* For float64 to a 16-bit float: with float32 rounded to odd in between, the second
   rounding gives the correctly rounded result. */
__device__ __forceinline__ float
rounded_to_odd(double x)
{
    float f = static_cast<float>(x);
    const double back = static_cast<double>(f);
    unsigned bits;
    memcpy(&bits, &f, sizeof bits);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    if (finite && back != x && (bits & 1u) == 0) {
        const bool grew = x < 0 ? back < x : back > x;
        bits += grew ? -1 : 1; /* the odd neighbour, nearer to 0 or farther from it */
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

/* ---- the fma of bfloat16 ---- */

/*
 * x * y + z, rounded once.  Before sm_80 there is no such instruction: the product is
 * exact in double, and the sum is rounded to odd there, which rounding it again to
 * bfloat16 cannot tell from the exact sum (Boldo and Melquiond, "Emulation of FMA and
 * correctly rounded sums: proved algorithms using rounding to odd", 2008).
 */
__device__ __forceinline__ bf16
multiply_add_once(bf16 x, bf16 y, bf16 z)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __hfma(x, y, z);
#else
    const double product = static_cast<double>(value_of(x)) * value_of(y);
    const double below = __dadd_rd(product, value_of(z));
    const double above = __dadd_ru(product, value_of(z));
    return __double2bfloat16(__double_as_longlong(below) & 1 ? below : above);
#endif
}

/* Both halves of a pair. */
__device__ __forceinline__ __nv_bfloat162
multiply_add_once(__nv_bfloat162 x, __nv_bfloat162 y, __nv_bfloat162 z)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    return __hfma2(x, y, z);
#else
    return {multiply_add_once(x.x, y.x, z.x), multiply_add_once(x.y, y.y, z.y)};
#endif
}

/* ---- complex arithmetic ---- */

template <typename Real>
__device__ __forceinline__ complex<Real>
operator+(complex<Real> a, complex<Real> b)
{
    return {a.re + b.re, a.im + b.im};
}

template <typename Real>
__device__ __forceinline__ complex<Real>
operator-(complex<Real> a, complex<Real> b)
{
    return {a.re - b.re, a.im - b.im};
}

template <typename Real>
__device__ __forceinline__ complex<Real>
operator-(complex<Real> a)
{
    return {-a.re, -a.im};
}

template <typename Real>
__device__ __forceinline__ complex<Real>
operator*(complex<Real> a, complex<Real> b)
{
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

#endif
