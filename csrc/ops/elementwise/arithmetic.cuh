/*
 * arithmetic.cuh  elementwise on the device: the CUDA functions for the names in
 * capitals in functors.def.  Order: values of an element, order and sign, fma, smooth
 * functions, complex numbers, two 16-bit floats at once, casts.  See kernels.cuh for
 * the functors with their element types, ladder/ for the kernels.
 */
#ifndef GPO_ELEMENTWISE_ARITHMETIC_CUH
#define GPO_ELEMENTWISE_ARITHMETIC_CUH

#include "../../device/number.cuh"
#include "../../device/smooth.cuh"
#include "../../device/types.cuh"

/* ---- values: the type in which an element is computed ---- */

template <typename A, typename B>
struct is_same {
    static constexpr bool value = false;
};

template <typename A>
struct is_same<A, A> {
    static constexpr bool value = true;
};

template <typename T>
struct wide {
    using type = T;
};
template <>
struct wide<b8> {
    using type = unsigned;
};
template <>
struct wide<int8_t> {
    using type = int;
};
template <>
struct wide<int16_t> {
    using type = int;
};
template <>
struct wide<uint8_t> {
    using type = unsigned;
};
template <>
struct wide<uint16_t> {
    using type = unsigned;
};
template <>
struct wide<f16> {
    using type = float;
};
template <>
struct wide<bf16> {
    using type = float;
};

template <typename V, typename T>
__device__ __forceinline__ V
read_as(T x)
{
    if constexpr (is_same<V, T>::value) {
        return x;
    }
    else {
        return static_cast<V>(value_of(x));
    }
}

/* `v` as an element of type T: rounded once, integers modulo their width. */
template <typename T, typename V>
__device__ __forceinline__ T
write_as(V v)
{
    if constexpr (is_same<V, T>::value) {
        return v;
    }
    else if constexpr (is_same<T, b8>::value) {
        return b8{static_cast<uint8_t>(v != 0)};
    }
    else {
        return stored_as<T>(v);
    }
}

/* ---- order and sign ---- */

#define MAXIMUM(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define MINIMUM(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))

__device__ __forceinline__ float
ABS(float x)
{
    return fabsf(x);
}

__device__ __forceinline__ double
ABS(double x)
{
    return fabs(x);
}

/* The absolute value of the smallest integer is itself. */
__device__ __forceinline__ int
ABS(int x)
{
    return x < 0 ? static_cast<int>(0u - static_cast<unsigned>(x)) : x;
}

__device__ __forceinline__ int64_t
ABS(int64_t x)
{
    return x < 0 ? static_cast<int64_t>(uint64_t(0) - static_cast<uint64_t>(x)) : x;
}

/* ---- fma: one rounding ---- */

template <typename V>
__device__ __forceinline__ V
FMA(V x, V y, V z)
{
    return x * y + z; /* integers */
}

__device__ __forceinline__ float
FMA(float x, float y, float z)
{
    return __fmaf_rn(x, y, z);
}

__device__ __forceinline__ double
FMA(double x, double y, double z)
{
    return fma(x, y, z);
}

__device__ __forceinline__ f16
FMA(f16 x, f16 y, f16 z)
{
    return __hfma(x, y, z);
}

__device__ __forceinline__ bf16
FMA(bf16 x, bf16 y, bf16 z)
{
    return multiply_add_once(x, y, z);
}

/* ---- smooth functions: errors in units of eps times the result ---- */

/*
 * exp(x) becomes subnormal and loses bits before x exp(x) does: below -FAR silu of floats
 * computes it as exp(x + FAR), where the sum is exact, times exp(-FAR).
 */
constexpr float FAR = 64, EXP_FAR = 0x1.969d48p-93F;

/* Coefficients in the constant bank, which instructions read without registers of theirs. */
#define FIRST(sum, coefficient) coefficient,
#define NEXT(sum, coefficient) coefficient,
static __constant__ double EXP_REST[] = {
#include "../../core/exp.def"
};
static __constant__ double BELL[] = {
#include "../../core/bell.def"
};
#undef FIRST
#undef NEXT

struct two_sums {
    double even, odd;
};

/* The sums of even and odd powers, whose squares are q, from the highest ones on. */
template <int N>
__device__ __forceinline__ two_sums
summed(const double (&coefficients)[N], double q)
{
    two_sums s = {coefficients[0], coefficients[1]};
#pragma unroll
    for (int k = 2; k < N; k++) {
        double &sum = k % 2 == 0 ? s.even : s.odd;
        sum = fma(sum, q, coefficients[k]);
    }
    return s;
}

/* exp(x) 2^512 for x <= 0, without a branch, as on the CPU: see core/smooth.h. */
constexpr double DECAYED = 0x1p-512;

__device__ __forceinline__ double
decay(double x)
{
    constexpr double PER_LN2 = 0x1.71547652b82fep0, LN2_HIGH = 0x1.62e42feep-1;
    constexpr double LN2_LOW = 0x1.a39ef35793c76p-33, LEAST = -1064;
    constexpr double BIASED =
        0x1.8p52 + 1023 + 512; /* leaves an integer in the low bits */
    const double bounded = x < LEAST ? LEAST : x;
    const double whole = fma(bounded, PER_LN2, BIASED), k = whole - BIASED;
    const double r = fma(k, -LN2_LOW, fma(k, -LN2_HIGH, bounded)), q = r * r;
    const two_sums s = summed(EXP_REST, q);
    const double rest = fma(q, fma(s.odd, r, s.even), r);
    const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(whole));
    const double scale = __longlong_as_double(static_cast<long long>(bits << 52));
    return fma(rest, scale, scale);
}

/*
 * x / y for y in [1, 64], where the reciprocal needs no care for its range: of floats the
 * hardware's and one step of Newton's, 2^-24 of the result and a little before the
 * product's rounding.  An exact division is some 10 instructions and a branch.
 */
__device__ __forceinline__ float
over_moderate(float x, float y)
{
    const float r = reciprocal_fast(y);
    return x * __fmaf_rn(r, __fmaf_rn(-y, r, 1.0F), r);
}

/* A float's reciprocal and a step of third order: 66 bits before they are rounded. */
__device__ __forceinline__ double
over_moderate(double x, double y)
{
    const double r = reciprocal_fast(static_cast<float>(y)), e = fma(-y, r, 1.0);
    return x * fma(fma(e, e, e), r, r);
}

/*
 * The steps of CUDA's sqrtf, exactly rounded where no difference is subnormal, without
 * its branches to the other numbers: calls of a function break up the packs beside them.
 */
__device__ __forceinline__ float
SQRT(float x)
{
    const bool is_tiny = x < 0x1p-100F;
    const float v = is_tiny ? x * 0x1p64F : x;
    const float s = reciprocal_root_fast(v), root = v * s;
    const float exact = __fmaf_rn(__fmaf_rn(-root, root, v), 0.5F * s, root);
    const float result = is_tiny ? exact * 0x1p-32F : exact;
    return x == 0 || x == HUGE_VALF ? x : result;
}

__device__ __forceinline__ double
SQRT(double x)
{
    return sqrt(x);
}

#define SMOOTH_FUNCTIONS(Real, suffix)                     \
    __device__ __forceinline__ Real EXP(Real x)            \
    {                                                      \
        return exp##suffix(x);                             \
    }                                                      \
    __device__ __forceinline__ Real LOG(Real x)            \
    {                                                      \
        return log##suffix(x);                             \
    }                                                      \
    __device__ __forceinline__ Real TANH(Real x)           \
    {                                                      \
        return tanh##suffix(x);                            \
    }                                                      \
    __device__ __forceinline__ Real SIGMOID(Real x)        \
    {                                                      \
        const Real e = exp##suffix(-fabs##suffix(x));      \
        return over_moderate(x >= 0 ? Real(1) : e, 1 + e); \
    }                                                      \
    __device__ __forceinline__ Real HYPOT(Real x, Real y)  \
    {                                                      \
        return hypot##suffix(x, y);                        \
    }

SMOOTH_FUNCTIONS(float, f)
SMOOTH_FUNCTIONS(double, )

__device__ __forceinline__ float
SILU(float x)
{
    const bool far = x < -FAR;
    const float e = expf((far ? FAR : 0) - fabsf(x));
    return over_moderate(x >= 0 ? x : x * e, 1 + (far ? 0 : e)) * (far ? EXP_FAR : 1);
}

/* exp(x) becomes subnormal, and loses bits, before its product with x does. */
__device__ __forceinline__ double
SILU(double x)
{
    const double large = decay(-fabs(x)), e = large * DECAYED;
    return over_moderate(x >= 0 ? x : x * large, 1 + e) * (x >= 0 ? 1 : DECAYED);
}

__device__ __forceinline__ float
GELU(float x)
{
    return 0.5F * x * erfcf(x * -0.70710678118654752440F);
}

/*
 * x times the normal distribution up to -|x|, or 1 minus it, as on the CPU: half of the
 * instructions of erfc.  Beyond 39 the exponential is 0.
 */
__device__ __forceinline__ double
GELU(double x)
{
    const double u = fabs(x), z = over_moderate(5.0, 5 + (u > 39 ? 39 : u));
    const double t = z - 0.5;
    const two_sums bell = summed(BELL, t * t);
    const double tail =
        z * fma(bell.odd, t, bell.even) * (decay(-0.5 * (u * u)) * DECAYED);
    return x * (x < 0 ? tail : 1 - tail);
}

/*
 * The logarithm for results of 16 bits, as in smooth.cuh.  __logf has an error of up to
 * 2^-21.4 near 1, where the result is small: there a series takes its place.
 */
__device__ __forceinline__ float
short_log(float x)
{
    const float t = x - 1;
    float p = __fmaf_rn(t, 0.2F, -0.25F);
    p = __fmaf_rn(t, p, 1.0F / 3);
    p = __fmaf_rn(t, p, -0.5F);
    return fabsf(t) < 0x1p-4F ? __fmaf_rn(t * t, p, t) : __logf(x);
}

/* ---- complex numbers ---- */

/* Smith's algorithm, as in NumPy. */
template <typename Real>
__device__ __forceinline__ complex<Real>
operator/(complex<Real> x, complex<Real> y)
{
    const bool upright = ABS(y.re) >= ABS(y.im);
    const Real most = upright ? y.re : y.im, least = upright ? y.im : y.re;
    if (most == 0 && least == 0) {
        return {x.re / ABS(most), x.im / ABS(most)};
    }
    const Real ratio = least / most, factor = 1 / (most + least * ratio);
    const Real p = upright ? x.re : x.im, q = upright ? x.im : x.re;
    const Real im = (q - p * ratio) * factor;
    return {(p + q * ratio) * factor, upright ? im : -im};
}

/* ---- two 16-bit floats at once: the hardware's instructions for pairs ---- */

struct no_pairs {
    static constexpr bool PAIRS = false;
};

struct pairs_add {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair)
    {
        return __hadd2(x, y);
    }
};

struct pairs_subtract {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair)
    {
        return __hsub2(x, y);
    }
};

struct pairs_multiply {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair)
    {
        return __hmul2(x, y);
    }
};

/* nan if either is: of the hardware, not the one given. */
struct pairs_maximum {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair)
    {
        return __hmax2_nan(x, y);
    }
};

struct pairs_minimum {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair)
    {
        return __hmin2_nan(x, y);
    }
};

struct pairs_clip {
    static constexpr bool PAIRS = true;
    template <typename Pair>
    static __device__ __forceinline__ Pair two(Pair x, Pair y, Pair z)
    {
        return __hmin2_nan(__hmax2_nan(x, y), z);
    }
};

struct pairs_fma {
    static constexpr bool PAIRS = true;
    static __device__ __forceinline__ __half2 two(__half2 x, __half2 y, __half2 z)
    {
        return __hfma2(x, y, z);
    }
    static __device__ __forceinline__ __nv_bfloat162 two(__nv_bfloat162 x,
                                                         __nv_bfloat162 y,
                                                         __nv_bfloat162 z)
    {
        return multiply_add_once(x, y, z);
    }
};

/* ---- casts ---- */

/* How to read the bits of an integer. */
enum whole_kind { UNSIGNED, SIGNED, TRUTH };

/* A float16 or a bfloat16; a cast knows at run time which one. */
struct short_float {
    uint16_t bits;
};

__device__ __forceinline__ float
value_of(short_float x, bool is_brain)
{
    return is_brain ? value_of(__ushort_as_bfloat16(x.bits))
                    : value_of(__ushort_as_half(x.bits));
}

/* float32 rounded to odd: a second rounding, to 16 bits, is then correct. */
__device__ __forceinline__ float
odd_float(double x)
{
    float f = static_cast<float>(x);
    const double back = static_cast<double>(f);
    unsigned bits;
    memcpy(&bits, &f, sizeof bits);
    const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
    if (finite && back != x) {
        bits = (bits - (fabs(back) > fabs(x))) | 1u;
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

/* How a cast reads its operand and writes its result: one kernel for several dtypes. */
struct cast_kinds {
    whole_kind from; /* of an integer */
    bool from_brain; /* a short_float is a bfloat16 */
    bool to_brain;
    bool to_signed; /* a float is converted to int64, not uint64 */
};

template <typename To, typename V>
__device__ __forceinline__ To
cast_to(V v, const cast_kinds &kinds)
{
    constexpr bool real = is_same<V, float>::value || is_same<V, double>::value;
    if constexpr (IS_COMPLEX<V> && IS_COMPLEX<To>) {
        using Real = decltype(To::re);
        return {static_cast<Real>(v.re), static_cast<Real>(v.im)};
    }
    else if constexpr (IS_COMPLEX<V>) { /* op.c makes the others real */
        return b8{static_cast<uint8_t>(v.re != 0 || v.im != 0)};
    }
    else if constexpr (IS_COMPLEX<To>) {
        using Real = decltype(To::re);
        return {static_cast<Real>(v), Real(0)};
    }
    else if constexpr (is_same<To, b8>::value) {
        return b8{static_cast<uint8_t>(v != 0)};
    }
    else if constexpr (is_same<To, short_float>::value) {
        if (kinds.to_brain) { /* through float32, as in ml_dtypes */
            return {__bfloat16_as_ushort(stored_as<bf16>(static_cast<float>(v)))};
        }
        if constexpr (is_same<V, double>::value) {
            return {__half_as_ushort(stored_as<f16>(odd_float(v)))};
        }
        else {
            return {__half_as_ushort(stored_as<f16>(static_cast<float>(v)))};
        }
    }
    else if constexpr (real && is_same<To, uint64_t>::value) {
        return kinds.to_signed ? static_cast<uint64_t>(static_cast<int64_t>(v))
                               : static_cast<uint64_t>(v);
    }
    else if constexpr (real && sizeof(To) < 8 && !is_same<To, float>::value) {
        return static_cast<To>(static_cast<int64_t>(v));
    }
    else {
        return static_cast<To>(v);
    }
}

template <typename To, typename From>
__device__ __forceinline__ To
cast_from(From x, const cast_kinds &kinds)
{
    if constexpr (is_same<From, uint8_t>::value) {
        const int v = kinds.from == TRUTH    ? x != 0
                      : kinds.from == SIGNED ? static_cast<int8_t>(x)
                                             : x;
        return cast_to<To>(v, kinds);
    }
    else if constexpr (is_same<From, uint16_t>::value) {
        const int v = kinds.from == SIGNED ? static_cast<int16_t>(x) : x;
        return cast_to<To>(v, kinds);
    }
    else if constexpr (is_same<From, uint32_t>::value) {
        const int64_t v =
            kinds.from == SIGNED ? static_cast<int32_t>(x) : static_cast<int64_t>(x);
        return cast_to<To>(v, kinds);
    }
    else if constexpr (is_same<From, uint64_t>::value) {
        return kinds.from == SIGNED ? cast_to<To>(static_cast<int64_t>(x), kinds)
                                    : cast_to<To>(x, kinds);
    }
    else if constexpr (is_same<From, short_float>::value) {
        return cast_to<To>(value_of(x, kinds.from_brain), kinds);
    }
    else {
        return cast_to<To>(x, kinds);
    }
}

#endif
