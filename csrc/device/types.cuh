/*
 * types.cuh  The C++ types of the dtypes on the device, and the macros that write one
 * row of a variant table.  Order: types, conversions, table rows.
 */
#ifndef GPO_TYPES_CUH
#define GPO_TYPES_CUH

#include "launch.cuh"

/* ---- types, in the order of dtypes.def ---- */

/* A bool in memory: any byte but 0 is true, as NumPy reads a view. */
struct b8 {
    uint8_t bits;
};

using f16 = __half;
using bf16 = __nv_bfloat16;

template <typename Real>
struct alignas(2 * sizeof(Real)) complex {
    Real re, im;
};

using c64 = complex<float>;
using c128 = complex<double>;

/* ---- conversions to the type arithmetic is done in ---- */

template <typename T>
__device__ __forceinline__ T
value_of(T x)
{
    return x;
}

__device__ __forceinline__ bool
value_of(b8 x)
{
    return x.bits != 0;
}

__device__ __forceinline__ float
value_of(f16 x)
{
    return __half2float(x);
}

__device__ __forceinline__ float
value_of(bf16 x)
{
    return __bfloat162float(x);
}

/* `x` rounded to storage type T; an integer is taken modulo the width of T. */
template <typename T, typename V>
__device__ __forceinline__ T
stored_as(V x)
{
    return static_cast<T>(x);
}

template <>
__device__ __forceinline__ f16
stored_as<f16, float>(float x)
{
    return __float2half_rn(x);
}

template <>
__device__ __forceinline__ bf16
stored_as<bf16, float>(float x)
{
    return __float2bfloat16_rn(x);
}

/* The pair of a 16-bit float. */
template <typename Half>
struct half_pair;

template <>
struct half_pair<f16> {
    using type = __half2;
};

template <>
struct half_pair<bf16> {
    using type = __nv_bfloat162;
};

/* ---- table rows: run[] of gpo_variant, one launcher per dtype ---- */

#define GPO_ALL_REAL(f)                                                             \
    f<b8>, f<int8_t>, f<uint8_t>, f<int16_t>, f<uint16_t>, f<int32_t>, f<uint32_t>, \
        f<int64_t>, f<uint64_t>, f<f16>, f<bf16>, f<float>, f<double>
#define GPO_ALL(f)                       \
    {                                    \
        GPO_ALL_REAL(f), f<c64>, f<c128> \
    }

#endif
