/*
 * kernels.cuh  elementwise on the device: functors with the types of their operands and
 * result, packs of elements, the tables of all kernels of a rung.
 * Order: functors, packs, numbers, tables.  See arithmetic.cuh for arithmetic, ladder/ for
 * rungs.
 */
#ifndef GPO_ELEMENTWISE_KERNELS_CUH
#define GPO_ELEMENTWISE_KERNELS_CUH

#include "../../device/number.cuh"
#include "arithmetic.cuh"
#include "rungs.cuh"

/*
 * A functor F has types In0, In1, In2 and R, the number N of its operands, a call
 * operator for one element, and with PAIRS one for two.  make(call) creates it on the
 * host, with its run-time parameters.
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

/* The functors that the hardware computes on two 16-bit floats at once. */
struct functor_add;
struct functor_subtract;
struct functor_multiply;
struct functor_maximum;
struct functor_minimum;
struct functor_clip;
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
struct pairs_of<functor_maximum> : pairs_maximum {
};
template <>
struct pairs_of<functor_minimum> : pairs_minimum {
};
template <>
struct pairs_of<functor_clip> : pairs_clip {
};
template <>
struct pairs_of<functor_fma> : pairs_fma {
};

#define FUNCTOR(name, inputs, types, expression)                    \
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

    static computed make(const gpo_call *)
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

/* ---- smooth functions of 16-bit floats, where few bits are needed ---- */

struct functor_exp;
struct functor_gelu;
struct functor_log;
struct functor_sigmoid;
struct functor_silu;
struct functor_tanh;

template <typename Op>
struct short_form {
    static constexpr bool EXISTS = false;
};

#define SHORT_FORM(name)                                       \
    template <>                                                \
    struct short_form<functor_##name> {                        \
        static constexpr bool EXISTS = true;                   \
        static __device__ __forceinline__ float apply(float x) \
        {                                                      \
            return short_##name(x);                            \
        }                                                      \
    };
SHORT_FORM(exp)
SHORT_FORM(gelu)
SHORT_FORM(log)
SHORT_FORM(sigmoid)
SHORT_FORM(silu)
SHORT_FORM(tanh)
#undef SHORT_FORM

template <typename Op, typename T>
struct computed_short : computed<Op, T> {
    static computed_short make(const gpo_call *)
    {
        return {};
    }

    __device__ __forceinline__ T operator()(T x, T, T) const
    {
        return write_as<T>(short_form<Op>::apply(read_as<float>(x)));
    }
};

template <typename Op, typename T>
using computed_smooth =
    std::conditional_t<short_form<Op>::EXISTS && computed<Op, T>::SHORT,
                       computed_short<Op, T>, computed<Op, T>>;

/* Smooth functions of float64, whose arithmetic fills the registers. */
template <typename F>
constexpr bool IS_LONG = false;
template <typename Op>
constexpr bool IS_LONG<computed<Op, double>> = short_form<Op>::EXISTS;

/* clip where both bounds are numbers: as arguments they are no operands to load (v2). */
template <typename T>
struct bounded : computed<functor_clip, T> {
    static constexpr int N = 1;
    using Of = computed<functor_clip, T>;
    T least, most;

    static bounded make(const gpo_call *call)
    {
        bounded f = {};
        memcpy(static_cast<void *>(&f.least), call->in[1].data, sizeof(T));
        memcpy(static_cast<void *>(&f.most), call->in[2].data, sizeof(T));
        return f;
    }

    __device__ __forceinline__ T operator()(T x, T, T) const
    {
        return Of::operator()(x, least, most);
    }

    __device__ __forceinline__ void two(T *r, const T *x, const T *, const T *) const
    {
        const T low[2] = {least, least}, high[2] = {most, most};
        Of::two(r, x, low, high);
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

    static magnitude make(const gpo_call *)
    {
        return {};
    }

    __device__ __forceinline__ R operator()(In0 x, In1, In2) const
    {
        return HYPOT(x.re, x.im);
    }
};

/* condition ? x : y, which only moves x and y. */
template <typename T>
struct choice {
    using In0 = b8;
    using In1 = T;
    using In2 = T;
    using R = T;
    static constexpr int N = 3;
    static constexpr bool PAIRS = false;

    static choice make(const gpo_call *)
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

    static conversion make(const gpo_call *call)
    {
        const elementwise_plan &plan = *elementwise_plan_of(call);
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

/* ---- packs: contiguous elements moved by one load ---- */

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

/* The word is passed by value: through a reference each element would be a load. */
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

/* Elements per pack: the widest type of result and operands fills 16 bytes. */
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

/* ---- numbers: operands that are arguments of the kernel, not arrays ---- */

template <typename T>
struct number {
    T value;
    bool given;

    /* The number, else the element at p. */
    __device__ __forceinline__ T or_at(const T *p) const
    {
        return given ? value : *p;
    }
};

template <typename F>
struct numbers {
    number<typename F::In0> a;
    number<typename F::In1> b;
    number<typename F::In2> c;
};

/* The numbers of a call, which are in host memory. */
template <typename F>
numbers<F>
numbers_of(const gpo_call *call)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    numbers<F> n = {};
    void *const value[] = {&n.a.value, &n.b.value, &n.c.value};
    bool *const given[] = {&n.a.given, &n.b.given, &n.c.given};
    for (int k = 0; k < plan.inputs; k++) {
        const gpo_array &in = call->in[plan.input[k]];
        *given[k] = in.on_host;
        if (in.on_host) {
            memcpy(value[k], in.data, static_cast<size_t>(plan.bytes[k]));
        }
    }
    return n;
}

/* ---- tables: the kernel of a rung for each functor and element type ---- */

/* Signed and unsigned integers share kernels that give the same bits; see the plan. */
using number_types = gpo_types<uint8_t, uint16_t, uint32_t, uint64_t, f16, bf16, float,
                               double, c64, c128>;
using fraction_types = gpo_types<f16, bf16, float, double, c64, c128>;
using fused_types =
    gpo_types<uint8_t, uint16_t, uint32_t, uint64_t, f16, bf16, float, double>;
using select_types = gpo_types<uint8_t, uint16_t, uint32_t, uint64_t, c128>;
using signed_types =
    gpo_types<int8_t, int16_t, int32_t, int64_t, f16, bf16, float, double>;
using magnitude_types =
    gpo_types<int8_t, int16_t, int32_t, int64_t, f16, bf16, float, double, c64, c128>;

/* 16-bit floats are multiplied and added as they are. */
template <typename Op, typename T>
using fused = std::conditional_t<is_same<T, f16>::value || is_same<T, bf16>::value,
                                 computed<Op, T, T>, computed<Op, T>>;

template <typename Op, typename T>
struct magnitude_or {
    using type = computed<Op, T>;
};
template <typename Op, typename Real>
struct magnitude_or<Op, complex<Real>> {
    using type = magnitude<Real>;
};

/* The kernels of Rung for each T of `types`; the functor, of T, follows. */
#define ROW(types, ...)                         \
    gpo_runs_of<types>([](auto t) -> gpo_run {  \
        using T = typename decltype(t)::type;   \
        return Rung::template run<__VA_ARGS__>; \
    })
#define ROW_NUMBERS(Op) ROW(number_types, computed<Op, T>)
#define ROW_FRACTIONS(Op) ROW(fraction_types, computed<Op, T>)
#define ROW_ORDERED(Op) ROW(real_types, computed<Op, T>)
#define ROW_FUSED(Op) ROW(fused_types, fused<Op, T>)
#define ROW_SELECT(Op) ROW(select_types, choice<T>)
#define ROW_SIGNED(Op) ROW(signed_types, computed<Op, T>)
#define ROW_MAGNITUDES(Op) ROW(magnitude_types, typename magnitude_or<Op, T>::type)
#define ROW_ROOTS(Op) ROW(float_types, computed<Op, T>)
#define ROW_SMOOTH(Op) ROW(float_types, computed_smooth<Op, T>)
#define ROW_CAST(Op) gpo_runs()

/* The type in which a cast reads or writes T; signs and 16-bit floats are run-time. */
template <typename T>
struct cast_carrier {
    using type = typename std::conditional_t<std::is_integral_v<T>,
                                             std::make_unsigned<T>, gpo_type<T>>::type;
};
template <>
struct cast_carrier<f16> {
    using type = short_float;
};
template <>
struct cast_carrier<bf16> {
    using type = short_float;
};

/* The casts from T: a bool is read as a byte, and complex numbers stay complex. */
template <typename Rung, typename Dtype>
constexpr gpo_runs
casts_from()
{
    using From = std::conditional_t<is_same<Dtype, b8>::value, uint8_t,
                                    typename cast_carrier<Dtype>::type>;
    using To =
        std::conditional_t<IS_COMPLEX<Dtype>, gpo_types<b8, c64, c128>, every_type>;
    return ROW(To, conversion<From, typename cast_carrier<T>::type>);
}

/* Runs Rung::run<F>(call) for the functor and type of the call's plan. */
template <typename Rung>
static gpo_status
run_kernel(gpo_call *call)
{
    static const gpo_runs functors[ELEMENTWISE_NFUNCTORS] = {
#define FUNCTOR(name, inputs, types, expression) ROW_##types(functor_##name),
#include "functors.def"
#undef FUNCTOR
    };
    static const gpo_runs casts[GPO_NDTYPES] = {
#define GPO_DTYPE(suffix, ctype, text, bytes, kind) \
    casts_from<Rung, typename device_type<GPO_##suffix, ctype>::type>(),
#include "../../core/dtypes.def"
#undef GPO_DTYPE
    };
    const elementwise_plan &plan = *elementwise_plan_of(call);
    if (plan.size == 0) {
        return GPO_OK;
    }
    const gpo_run run = plan.functor == ELEMENTWISE_cast
                            ? casts[plan.type].of[plan.to]
                            : functors[plan.functor].of[plan.type];
    return run(call);
}

#endif
