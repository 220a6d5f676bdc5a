/*
 * kernels.cuh  elementwise on the device: functors with the types of their operands and
 * result, packs of elements, the tables of all kernels of a rung.
 * Order: functors, packs, tables.  Not here: arithmetic (arithmetic.cuh), rungs (cuda.cu).
 */
#ifndef GPO_ELEMENTWISE_KERNELS_CUH
#define GPO_ELEMENTWISE_KERNELS_CUH

#include "arithmetic.cuh"
#include "elementwise.h"

/*
 * A functor F has types In0, In1, In2 and R, the number N of its operands, a call of
 * one element, and with PAIRS a call of two.  It is made on the host, by make(plan), and
 * carries what it needs to know at run time.
 */

/* ---- the expressions of functors.def: Op::apply(x, y, z) on values ---- */

enum {
    INPUTS_UNARY = 1,
    INPUTS_BINARY = 2,
    INPUTS_TERNARY = 3,
    INPUTS_CONDITION = 3,
    INPUTS_BOUNDS = 3,
    INPUTS_TARGET = 1,
};

/* Which functors the hardware has for two 16-bit floats. */
struct functor_add;
struct functor_subtract;
struct functor_multiply;
struct functor_fma;

template <typename Op>
struct pairs_of : no_pairs {
};
template <>
struct pairs_of<functor_add> : pairs_add {
};
template <>
struct pairs_of<functor_subtract> : pairs_subtract {
};
template <>
struct pairs_of<functor_multiply> : pairs_multiply {
};
template <>
struct pairs_of<functor_fma> : pairs_fma {
};

#define FUNCTOR(name, inputs, types, expression, summary)           \
    struct functor_##name {                                         \
        static constexpr int N = INPUTS_##inputs;                   \
        template <typename V>                                       \
        static __device__ __forceinline__ auto apply(V x, V y, V z) \
        {                                                           \
            (void)y;                                                \
            (void)z;                                                \
            return expression;                                      \
        }                                                           \
    };
#include "functors.def"
#undef FUNCTOR

/* Op on elements of type T, computed in V. */
template <typename Op, typename T, typename V = typename wide<T>::type>
struct computed {
    using In0 = T;
    using In1 = T;
    using In2 = T;
    using R = T;
    static constexpr int N = Op::N;
    static constexpr bool SHORT = is_same<T, f16>::value || is_same<T, bf16>::value;
    static constexpr bool PAIRS = SHORT && pairs_of<Op>::PAIRS;

    static computed make(const elementwise_plan &)
    {
        return {};
    }

    __device__ __forceinline__ T operator()(T x, T y, T z) const
    {
        return write_as<T>(
            static_cast<V>(Op::apply(read_as<V>(x), read_as<V>(y), read_as<V>(z))));
    }

    __device__ __forceinline__ void two(T *r, const T *x, const T *y, const T *z) const
    {
        if constexpr (PAIRS) {
            using Pair = typename half_pair<T>::type;
            const Pair pair =
                pairs_of<Op>::two(Pair(x[0], x[1]), Pair(y[0], y[1]), Pair(z[0], z[1]));
            r[0] = pair.x;
            r[1] = pair.y;
        }
    }
};

/* |x| of a complex x. */
template <typename Real>
struct magnitude {
    using In0 = complex<Real>;
    using In1 = complex<Real>;
    using In2 = complex<Real>;
    using R = Real;
    static constexpr int N = 1;
    static constexpr bool PAIRS = false;

    static magnitude make(const elementwise_plan &)
    {
        return {};
    }

    __device__ __forceinline__ R operator()(In0 x, In1, In2) const
    {
        return HYPOT(x.re, x.im);
    }
};

/* condition ? x : y, whatever the bits of x and y mean. */
template <typename T>
struct choice {
    using In0 = b8;
    using In1 = T;
    using In2 = T;
    using R = T;
    static constexpr int N = 3;
    static constexpr bool PAIRS = false;

    static choice make(const elementwise_plan &)
    {
        return {};
    }

    __device__ __forceinline__ R operator()(b8 condition, T x, T y) const
    {
        return condition.bits ? x : y;
    }
};

template <typename From, typename To>
struct conversion {
    using In0 = From;
    using In1 = From;
    using In2 = From;
    using R = To;
    static constexpr int N = 1;
    static constexpr bool PAIRS = false;
    cast_kinds kinds; /* known at run time: a kernel serves several dtypes */

    static conversion make(const elementwise_plan &plan)
    {
        const char kind = gpo_dtypes[plan.type].kind;
        return {{kind == 'b'   ? TRUTH
                 : kind == 'i' ? SIGNED
                               : UNSIGNED,
                 plan.type == GPO_BF16, plan.to == GPO_BF16, plan.to == GPO_I64}};
    }

    __device__ __forceinline__ R operator()(From x, From, From) const
    {
        return cast_from<To>(x, kinds);
    }
};

/* ---- packs: neighbouring elements that one load brings ---- */

template <int BYTES>
struct word;
template <>
struct word<1> {
    using type = uint8_t;
};
template <>
struct word<2> {
    using type = uint16_t;
};
template <>
struct word<4> {
    using type = uint32_t;
};
template <>
struct word<8> {
    using type = uint2;
};
template <>
struct word<16> {
    using type = uint4;
};

template <typename T, int SIZE>
struct alignas(SIZE * sizeof(T)) elements {
    T v[SIZE];
};

template <typename T, int SIZE>
using word_of = typename word<SIZE *static_cast<int>(sizeof(T))>::type;

/* The word is a value: from a reference to memory each element would be a load. */
template <typename T, int SIZE>
__device__ __forceinline__ elements<T, SIZE>
elements_of(word_of<T, SIZE> bits)
{
    elements<T, SIZE> out;
    memcpy(static_cast<void *>(out.v), &bits, sizeof bits);
    return out;
}

template <typename T, int SIZE>
__device__ __forceinline__ word_of<T, SIZE>
word_from(const elements<T, SIZE> &x)
{
    word_of<T, SIZE> bits;
    memcpy(static_cast<void *>(&bits), x.v, sizeof bits);
    return bits;
}

template <int SIZE, typename T>
__device__ __forceinline__ elements<T, SIZE>
load_elements(const T *p)
{
    return elements_of<T, SIZE>(*reinterpret_cast<const word_of<T, SIZE> *>(p));
}

template <int SIZE, typename T>
__device__ __forceinline__ void
store_elements(T *p, const elements<T, SIZE> &x)
{
    *reinterpret_cast<word_of<T, SIZE> *>(p) = word_from(x);
}

template <int SIZE, typename T>
__device__ __forceinline__ elements<T, SIZE>
repeated(T x)
{
    elements<T, SIZE> out;
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        out.v[j] = x;
    }
    return out;
}

/* Elements of a pack: the widest of result and operands fills 16 bytes. */
template <typename F>
__host__ __device__ constexpr int
pack_size()
{
    size_t widest = sizeof(typename F::R);
    widest = sizeof(typename F::In0) > widest ? sizeof(typename F::In0) : widest;
    widest =
        F::N > 1 && sizeof(typename F::In1) > widest ? sizeof(typename F::In1) : widest;
    return static_cast<int>(16 / widest);
}

template <int SIZE, typename F>
__device__ __forceinline__ elements<typename F::R, SIZE>
apply_pack(const F &f, const elements<typename F::In0, SIZE> &x,
           const elements<typename F::In1, SIZE> &y,
           const elements<typename F::In2, SIZE> &z)
{
    elements<typename F::R, SIZE> out;
    if constexpr (F::PAIRS && SIZE % 2 == 0) {
#pragma unroll
        for (int j = 0; j < SIZE; j += 2) {
            f.two(out.v + j, x.v + j, y.v + j, z.v + j);
        }
    }
    else {
#pragma unroll
        for (int j = 0; j < SIZE; j++) {
            out.v[j] = f(x.v[j], y.v[j], z.v[j]);
        }
    }
    return out;
}

/* ---- tables: the kernel of a rung for each functor and element type ---- */

using launcher = gpo_status (*)(gpo_call *, const elementwise_plan &);

#define KERNEL(...) Rung::template run<__VA_ARGS__>
#define NO nullptr

#define FLOATS_OF(Op)                                      \
    KERNEL(computed<Op, f16>), KERNEL(computed<Op, bf16>), \
        KERNEL(computed<Op, float>), KERNEL(computed<Op, double>)
#define COMPLEX_OF(Op) KERNEL(computed<Op, c64>), KERNEL(computed<Op, c128>)
#define UNSIGNED_OF(Op)                                                            \
    NO, NO, KERNEL(computed<Op, uint8_t>), NO, KERNEL(computed<Op, uint16_t>), NO, \
        KERNEL(computed<Op, uint32_t>), NO, KERNEL(computed<Op, uint64_t>)
#define NO_WHOLE NO, NO, NO, NO, NO, NO, NO, NO, NO

#define ROW_NUMBERS(Op)                                \
    {                                                  \
        UNSIGNED_OF(Op), FLOATS_OF(Op), COMPLEX_OF(Op) \
    }
#define ROW_FRACTIONS(Op)                       \
    {                                           \
        NO_WHOLE, FLOATS_OF(Op), COMPLEX_OF(Op) \
    }
#define ROW_ORDERED(Op)                                                    \
    {                                                                      \
        KERNEL(computed<Op, b8>), KERNEL(computed<Op, int8_t>),            \
            KERNEL(computed<Op, uint8_t>), KERNEL(computed<Op, int16_t>),  \
            KERNEL(computed<Op, uint16_t>), KERNEL(computed<Op, int32_t>), \
            KERNEL(computed<Op, uint32_t>), KERNEL(computed<Op, int64_t>), \
            KERNEL(computed<Op, uint64_t>), FLOATS_OF(Op), NO, NO          \
    }
#define ROW_FUSED(Op)                                                      \
    {                                                                      \
        UNSIGNED_OF(Op), KERNEL(computed<Op, f16, f16>),                   \
            KERNEL(computed<Op, bf16, bf16>), KERNEL(computed<Op, float>), \
            KERNEL(computed<Op, double>), NO, NO                           \
    }
#define ROW_SELECT(Op)                                                              \
    {                                                                               \
        NO, NO, KERNEL(choice<uint8_t>), NO, KERNEL(choice<uint16_t>), NO,          \
            KERNEL(choice<uint32_t>), NO, KERNEL(choice<uint64_t>), NO, NO, NO, NO, \
            NO, KERNEL(choice<c128>)                                                \
    }
#define SIGNED_OF(Op)                                                         \
    NO, KERNEL(computed<Op, int8_t>), NO, KERNEL(computed<Op, int16_t>), NO,  \
        KERNEL(computed<Op, int32_t>), NO, KERNEL(computed<Op, int64_t>), NO, \
        FLOATS_OF(Op)
#define ROW_SIGNED(Op)        \
    {                         \
        SIGNED_OF(Op), NO, NO \
    }
#define ROW_MAGNITUDES(Op)                                                 \
    {                                                                      \
        SIGNED_OF(Op), KERNEL(magnitude<float>), KERNEL(magnitude<double>) \
    }
#define ROW_ROOTS(Op)                   \
    {                                   \
        NO_WHOLE, FLOATS_OF(Op), NO, NO \
    }
#define ROW_SMOOTH(Op) ROW_ROOTS(Op)
#define ROW_CAST(Op) \
    {                \
    }

/* Integers of both signs and both 16-bit floats share a kernel: see cast_kinds. */
#define CASTS_FROM(From)                                                               \
    {                                                                                  \
        KERNEL(conversion<From, b8>), KERNEL(conversion<From, uint8_t>),               \
            KERNEL(conversion<From, uint8_t>), KERNEL(conversion<From, uint16_t>),     \
            KERNEL(conversion<From, uint16_t>), KERNEL(conversion<From, uint32_t>),    \
            KERNEL(conversion<From, uint32_t>), KERNEL(conversion<From, uint64_t>),    \
            KERNEL(conversion<From, uint64_t>), KERNEL(conversion<From, short_float>), \
            KERNEL(conversion<From, short_float>), KERNEL(conversion<From, float>),    \
            KERNEL(conversion<From, double>), KERNEL(conversion<From, c64>),           \
            KERNEL(conversion<From, c128>)                                             \
    }
#define CASTS_FROM_COMPLEX(From)                                                      \
    {                                                                                 \
        KERNEL(conversion<From, b8>), NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, \
            KERNEL(conversion<From, c64>), KERNEL(conversion<From, c128>)             \
    }

/* The kernel of `Rung` for this plan: Rung::run<F>(call, plan) launches it. */
template <typename Rung>
static launcher
kernel_of(const elementwise_plan &plan)
{
    static const launcher functors[ELEMENTWISE_NFUNCTORS][GPO_NDTYPES] = {
#define FUNCTOR(name, inputs, types, expression, summary) ROW_##types(functor_##name),
#include "functors.def"
#undef FUNCTOR
    };
    static const launcher casts[GPO_NDTYPES][GPO_NDTYPES] = {
        CASTS_FROM(uint8_t),     CASTS_FROM(uint8_t),     CASTS_FROM(uint8_t),
        CASTS_FROM(uint16_t),    CASTS_FROM(uint16_t),    CASTS_FROM(uint32_t),
        CASTS_FROM(uint32_t),    CASTS_FROM(uint64_t),    CASTS_FROM(uint64_t),
        CASTS_FROM(short_float), CASTS_FROM(short_float), CASTS_FROM(float),
        CASTS_FROM(double),      CASTS_FROM_COMPLEX(c64), CASTS_FROM_COMPLEX(c128),
    };
    if (plan.functor == ELEMENTWISE_cast) {
        return casts[plan.type][plan.to];
    }
    return functors[plan.functor][plan.type];
}

#undef NO

#endif
