/*
 * products.cuh  What the rungs of convolve share.  Order: the types products are
 * computed in, totals of sums, the operands of a row, one sum from its own terms only.
 */
#ifndef GPO_CONVOLVE_PRODUCTS_CUH
#define GPO_CONVOLVE_PRODUCTS_CUH

#include "../../device/quotient.cuh"
#include "../../device/sum.cuh"
#include "../../device/vec.cuh"
#include "convolve.h"

#include <type_traits>

/* ---- the types products are computed in ---- */

/* A bool: a sum is true if any product is. */
struct truth {
    uint32_t bits;
};

template <typename T>
struct value_traits {
    using type = T;
};
template <>
struct value_traits<b8> {
    using type = truth;
};
template <>
struct value_traits<uint8_t> { /* low bits of a product depend only on low bits */
    using type = uint32_t;
};
template <>
struct value_traits<uint16_t> {
    using type = uint32_t;
};
template <>
struct value_traits<f16> {
    using type = float;
};
template <>
struct value_traits<bf16> {
    using type = float;
};

template <typename T>
using value_type = typename value_traits<T>::type;

template <typename T>
__device__ __forceinline__ value_type<T>
read_value(T x)
{
    if constexpr (std::is_same_v<T, b8>) {
        return {x.bits != 0};
    }
    else {
        return value_of(x);
    }
}

template <typename T>
__device__ __forceinline__ T
result_of(value_type<T> x)
{
    if constexpr (std::is_same_v<T, b8>) {
        return {static_cast<uint8_t>(x.bits)};
    }
    else {
        return stored_as<T>(x);
    }
}

template <typename V>
__device__ __forceinline__ void
add_product(V &sum, V x, V t)
{
    sum += x * t;
}

__device__ __forceinline__ void
add_product(truth &sum, truth x, truth t)
{
    sum.bits |= x.bits & t.bits;
}

template <typename Real>
__device__ __forceinline__ void
add_product(complex<Real> &sum, complex<Real> x, complex<Real> t)
{
    sum.re += x.re * t.re;
    sum.im += x.im * t.re;
    sum.re -= x.im * t.im;
    sum.im += x.re * t.im;
}

/* False for nan and inf: x - x is 0 only for finite x. */
template <typename V>
__device__ __forceinline__ bool
is_finite(V x)
{
    return x - x == 0;
}

__device__ __forceinline__ bool
is_finite(truth)
{
    return true;
}

template <typename Real>
__device__ __forceinline__ bool
is_finite(complex<Real> x)
{
    return is_finite(x.re) && is_finite(x.im);
}

/* ---- totals of sums ---- */

/* Integers wrap around: the order of additions does not matter. */
template <typename V>
struct total {
    V sum = {};

    __device__ __forceinline__ void start(V x)
    {
        sum = x;
    }

    __device__ __forceinline__ void add(V x)
    {
        sum += x;
    }

    __device__ __forceinline__ V value() const
    {
        return sum;
    }
};

template <>
struct total<truth> {
    truth sum = {};

    __device__ __forceinline__ void start(truth x)
    {
        sum = x;
    }

    __device__ __forceinline__ void add(truth x)
    {
        sum.bits |= x.bits;
    }

    __device__ __forceinline__ truth value() const
    {
        return sum;
    }
};

/* Floats use compensated summation. */
template <>
struct total<float> : compensated_sum<float> {
};
template <>
struct total<double> : compensated_sum<double> {
};

template <typename Real>
struct total<complex<Real>> {
    compensated_sum<Real> re, im;

    __device__ __forceinline__ void start(complex<Real> x)
    {
        re.start(x.re);
        im.start(x.im);
    }

    __device__ __forceinline__ void add(complex<Real> x)
    {
        re.add(x.re);
        im.add(x.im);
    }

    __device__ __forceinline__ complex<Real> value() const
    {
        return {re.value(), im.value()};
    }
};

/* ---- the operands of a row ---- */

template <typename T>
struct convolve_view {
    const T *a, *v;
    T *out;
    int64_t n, m, a_step, v_step, first, count, count_rows;
    convolve_rows rows;
};

template <typename T>
struct row_operands {
    const T *a, *v;
};

template <typename T>
__device__ __forceinline__ row_operands<T>
find_row(const convolve_view<T> &c, int64_t row)
{
    row_operands<T> found = {c.a, c.v};
    for (int d = 0; d < c.rows.naxes; d++) {
        const int64_t rest = quotient(row, c.rows.axes[d].length);
        const int64_t at = row - rest * c.rows.axes[d].length;
        found.a += at * c.rows.axes[d].a;
        found.v += at * c.rows.axes[d].v;
        row = rest;
    }
    return found;
}

/* ---- one sum from its own terms only ---- */

/* Sum i of the n + m - 1 sums of a row. */
template <typename T>
__device__ __forceinline__ value_type<T>
exact_sum(const convolve_view<T> &c, const row_operands<T> &row, int64_t i)
{
    using V = value_type<T>;
    const int64_t low = i - c.n + 1 > 0 ? i - c.n + 1 : 0;
    const int64_t high = i + 1 < c.m ? i + 1 : c.m;
    const T *x = row.a + (i - low) * c.a_step, *t = row.v + low * c.v_step;
    total<V> all;
    for (int64_t k = low; k < high; k += CONVOLVE_CHUNK) {
        const int terms =
            static_cast<int>(high - k < CONVOLVE_CHUNK ? high - k : CONVOLVE_CHUNK);
        V sum = {};
#pragma unroll 4
        for (int j = 0; j < terms; j++) {
            add_product(sum, read_value(*x), read_value(*t));
            x -= c.a_step;
            t += c.v_step;
        }
        all.add(sum);
    }
    return all.value();
}

/*
 * The zero padding beyond the ends times inf or nan may have made a nan, so a result
 * that is not finite is computed again from its own terms.
 */
template <typename T>
__device__ __forceinline__ void
put(const convolve_view<T> &c, const row_operands<T> &row, int64_t row_index, int64_t i,
    value_type<T> sum)
{
    if (!is_finite(sum)) {
        sum = exact_sum(c, row, c.first + i);
    }
    c.out[row_index * c.count + i] = result_of<T>(sum);
}

template <typename T>
static convolve_view<T>
view_of(const gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    return {static_cast<const T *>(call->in[p.in_a].data),
            static_cast<const T *>(call->in[p.in_v].data),
            static_cast<T *>(call->out[0].data),
            p.n,
            p.m,
            p.a_step,
            p.v_step,
            p.first,
            p.count,
            p.count_rows,
            p.rows};
}

#endif
