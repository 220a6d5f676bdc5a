/*
 * input.cuh  What every rung of scatter_add reads: elements and their indices, each
 * with one stride, what an index means, the type of a sum.
 * Order: types, the input, groups of elements.
 */
#ifndef GPO_SCATTER_ADD_INPUT_CUH
#define GPO_SCATTER_ADD_INPUT_CUH

#include <type_traits>

#include "../../device/index.cuh"
#include "../../device/number.cuh"
#include "../../device/atomic.cuh"
#include "../../device/vec.cuh"
#include "../../device/warp.cuh"
#include "scatter_add.h"

/* ---- types ---- */

template <typename T>
constexpr bool IS_WHOLE = std::is_integral_v<T> || std::is_same_v<T, b8>;

/* Integers wrap modulo 2^64, as in NumPy; floats are added in double, as on a CPU. */
template <typename T>
using sum_of = std::conditional_t<IS_WHOLE<T>, uint64_t,
                                  std::conditional_t<IS_COMPLEX<T>, c128, double>>;

/* The elements of out: integers have 64 bits there. */
template <typename T>
using result_of = std::conditional_t<IS_WHOLE<T>, uint64_t, T>;

template <typename T, typename Sum>
__device__ __forceinline__ result_of<T>
rounded(Sum sum)
{
    if constexpr (IS_COMPLEX<T>) {
        return {static_cast<decltype(T::re)>(sum.re),
                static_cast<decltype(T::im)>(sum.im)};
    }
    else if constexpr (sizeof(result_of<T>) == 2) {
        return stored_as<T>(rounded_to_odd(sum));
    }
    else {
        return static_cast<result_of<T>>(sum);
    }
}

/* ---- the input ---- */

template <typename Value, typename Index>
struct scatter_add_input {
    using T = Value;
    using I = Index;
    using Sum = sum_of<T>;

    const T *values;
    const I *index;
    int64_t values_stride, index_stride; /* in elements */
    int64_t n, size;
    gpo_index_mode mode;
    bool is_unsigned;
    bool is_wide;              /* the index has 64 bits, else 32: see raw */
    bool truth;                /* values are bools: any byte but 0 is true */
    uint64_t sign;             /* integers: the sign bit of a signed type, else 0 */
    unsigned long long *bad;   /* the first position that is out of bounds, so far */
    unsigned long long *fresh; /* the same if it is of this call: starts as NONE_BAD */

    __device__ __forceinline__ Sum lift(T x) const
    {
        if constexpr (std::is_integral_v<T>) {
            const uint64_t whole = (x ^ sign) - sign; /* extends the sign */
            return truth ? whole != 0 : whole;
        }
        else if constexpr (IS_COMPLEX<T>) {
            return {x.re, x.im};
        }
        else {
            return value_of(x);
        }
    }

    /* The index at position i, of either width: `index` need not be of type I. */
    __device__ __forceinline__ int64_t raw(int64_t i) const
    {
        const int64_t at = i * index_stride;
        return is_wide ? reinterpret_cast<const int64_t *>(index)[at]
                       : reinterpret_cast<const int32_t *>(index)[at];
    }

    /* The place of the index at position i; -1, noted in `bad`, if out of bounds. */
    __device__ __forceinline__ int64_t place(int64_t at, int64_t i) const
    {
        if (static_cast<uint64_t>(at) < static_cast<uint64_t>(size)) {
            return at;
        }
        return place_outside(at, i, size, mode, is_unsigned, bad);
    }
};

/* The same input, whose index has 32 bits. */
template <typename T>
scatter_add_input<T, int32_t>
narrow(const scatter_add_input<T, int64_t> &x)
{
    return {x.values,
            reinterpret_cast<const int32_t *>(x.index),
            x.values_stride,
            x.index_stride,
            x.n,
            x.size,
            x.mode,
            x.is_unsigned,
            x.is_wide,
            x.truth,
            x.sign,
            x.bad,
            x.fresh};
}

/* ---- groups: as many elements as 16 bytes hold indices ---- */

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) group {
    T v[N];
};

/* Elements [i, i + N) of an input; `packed` if they are contiguous and aligned. */
template <typename T, int N>
__device__ __forceinline__ group<T, N>
load_group(const T *line, int64_t stride, int64_t i, bool packed)
{
    group<T, N> g;
    if (packed) {
        g = *reinterpret_cast<const group<T, N> *>(line + i);
    }
    else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            g.v[k] = line[(i + k) * stride];
        }
    }
    return g;
}

#endif
