/*
 * number.cuh  Kinds of numbers, the types that stand for others, complex arithmetic.
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
