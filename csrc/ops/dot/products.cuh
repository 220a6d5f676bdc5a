/*
 * products.cuh  How dot loads elements, and how products are added.
 * Order: the arrays as a kernel argument, products in an array's own type, wide sums.
 */
#ifndef GPO_DOT_PRODUCTS_CUH
#define GPO_DOT_PRODUCTS_CUH

#include <type_traits>

#include "../../device/sum.cuh"
#include "../../device/number.cuh"
#include "../../device/atomic.cuh"
#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "dot.h"

/* ---- the arrays ---- */

template <typename T>
struct dot_view {
    const T *x, *y;
    int64_t n, x_stride, y_stride;
};

template <typename T>
dot_view<T>
view_of(const gpo_call *call)
{
    const dot_plan &plan = *dot_plan_of(call);
    return {static_cast<const T *>(call->in[0].data) + plan.x_first,
            static_cast<const T *>(call->in[1].data) + plan.y_first, plan.n,
            plan.x_stride, plan.y_stride};
}

/* Whether an array is not contiguous, or the arrays run in opposite directions. */
inline bool
has_gaps(const dot_plan &plan)
{
    return plan.x_stride != 1 || plan.y_stride != 1;
}

/* Loads an element; the address of a complex one need not be a multiple of its size. */
template <typename T>
__device__ __forceinline__ T
element(const T *p)
{
    if constexpr (IS_COMPLEX<T>) {
        using Real = decltype(T::re);
        const Real *parts = reinterpret_cast<const Real *>(p);
        return {parts[0], parts[1]};
    }
    else {
        return *p;
    }
}

template <typename T>
__device__ __forceinline__ void
store_element(T *p, T value)
{
    if constexpr (IS_COMPLEX<T>) {
        using Real = decltype(T::re);
        Real *parts = reinterpret_cast<Real *>(p);
        parts[0] = value.re;
        parts[1] = value.im;
    }
    else {
        *p = value;
    }
}

/* ---- products in the type of the arrays ---- */

/* sum + a * b */
template <typename T>
__device__ __forceinline__ T
multiply_add(T sum, T a, T b)
{
    return sum + a * b;
}

__device__ __forceinline__ f16
multiply_add(f16 sum, f16 a, f16 b)
{
    return __hfma(a, b, sum);
}

__device__ __forceinline__ bf16
multiply_add(bf16 sum, bf16 a, bf16 b)
{
    return multiply_add_once(a, b, sum);
}

/* sum + a * b for both halves of a pair */
__device__ __forceinline__ __half2
multiply_add(__half2 sum, __half2 a, __half2 b)
{
    return __hfma2(a, b, sum);
}

__device__ __forceinline__ __nv_bfloat162
multiply_add(__nv_bfloat162 sum, __nv_bfloat162 a, __nv_bfloat162 b)
{
    return multiply_add_once(a, b, sum);
}

/* The sum of the halves of a pair, rounded to a half. */
template <typename Pair>
__device__ __forceinline__ auto
add_halves(Pair p)
{
    using Half = decltype(p.x);
    return stored_as<Half>(value_of(p.x) + value_of(p.y));
}

template <typename Real>
__device__ __forceinline__ complex<Real>
multiply_add(complex<Real> sum, complex<Real> a, complex<Real> b)
{
    return {sum.re + (a.re * b.re - a.im * b.im), sum.im + (a.re * b.im + a.im * b.re)};
}

/* ---- wide sums ---- */

/*
 * How the products of elements of type T are added:
 *   Acc    the accumulator in a tile: Acc{} is 0, multiply_add(acc, a, b),
 *          combine(acc, acc)
 *   Part   what blocks exchange, wider than Acc for floats: widen(acc), combine
 *   Fold   a long chain of Parts with a bounded error: add(part), value()
 *   store(part) is the result
 */
template <typename Element>
struct whole_sum { /* unsigned integers, modulo the width of T */
    using T = Element;
    using Acc = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    using Part = Acc;

    struct Fold {
        Acc total = 0;

        __device__ __forceinline__ void add(Acc p)
        {
            total += p;
        }

        __device__ __forceinline__ Acc value() const
        {
            return total;
        }
    };

    static __device__ __forceinline__ Acc multiply_add(Acc sum, T a, T b)
    {
        return sum + static_cast<Acc>(a) * static_cast<Acc>(b);
    }

    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        return a + b;
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ T store(Part p)
    {
        return static_cast<T>(p);
    }
};

struct truth_sum { /* bool: any x and y */
    using T = b8;
    using Acc = unsigned;
    using Part = unsigned;

    struct Fold {
        unsigned total = 0;

        __device__ __forceinline__ void add(unsigned p)
        {
            total |= p;
        }

        __device__ __forceinline__ unsigned value() const
        {
            return total;
        }
    };

    static __device__ __forceinline__ Acc multiply_add(Acc sum, T a, T b)
    {
        return sum | (value_of(a) & value_of(b));
    }

    static __device__ __forceinline__ Acc combine(Acc a, Acc b)
    {
        return a | b;
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ T store(Part p)
    {
        return {static_cast<uint8_t>(p != 0)};
    }
};

/* Tiles of 16 and 32-bit floats in float, the rest in double; double compensated. */
template <typename Element>
struct float_sum {
    using T = Element;
    using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
    using Part = double;

    struct plain {
        double total = 0;

        __device__ __forceinline__ void add(double p)
        {
            total += p;
        }

        __device__ __forceinline__ double value() const
        {
            return total;
        }
    };
    using Fold =
        std::conditional_t<std::is_same_v<T, double>, compensated_sum<double>, plain>;

    static __device__ __forceinline__ Acc multiply_add(Acc sum, T a, T b)
    {
        return sum + value_of(a) * value_of(b);
    }

    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return a;
    }

    static __device__ __forceinline__ T store(Part p)
    {
        if constexpr (std::is_same_v<T, double>) {
            return p;
        }
        else {
            return stored_as<T>(static_cast<float>(p));
        }
    }
};

template <typename Element>
struct complex_sum {
    using T = Element;
    using Acc = T;
    using Part = c128;

    struct Fold {
        compensated_sum<double> re, im;

        __device__ __forceinline__ void add(c128 p)
        {
            re.add(p.re);
            im.add(p.im);
        }

        __device__ __forceinline__ c128 value() const
        {
            return {re.value(), im.value()};
        }
    };

    static __device__ __forceinline__ Acc multiply_add(Acc sum, T a, T b)
    {
        return ::multiply_add(sum, a, b);
    }

    template <typename Real>
    static __device__ __forceinline__ complex<Real> combine(complex<Real> a,
                                                            complex<Real> b)
    {
        return {a.re + b.re, a.im + b.im};
    }

    static __device__ __forceinline__ Part widen(Acc a)
    {
        return {a.re, a.im};
    }

    static __device__ __forceinline__ T store(Part p)
    {
        using Real = decltype(T::re);
        return {static_cast<Real>(p.re), static_cast<Real>(p.im)};
    }
};

/* The sum for T: integers of one size share one, as unsigned integers. */
template <typename T>
using sum_of = std::conditional_t<
    std::is_same_v<T, b8>, truth_sum,
    std::conditional_t<
        IS_COMPLEX<T>, complex_sum<T>,
        std::conditional_t<
            std::is_integral_v<T>,
            whole_sum<std::conditional_t<
                sizeof(T) == 1, uint8_t,
                std::conditional_t<
                    sizeof(T) == 2, uint16_t,
                    std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>>,
            float_sum<T>>>>;

#endif
