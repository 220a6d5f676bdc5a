/*
 * types.cuh  The C++ types of the dtypes on the device, and the macros that write one
 * row of a variant table.  Order: types, conversions, table rows.
 */
#ifndef GPO_TYPES_CUH
#define GPO_TYPES_CUH

#include "launch.cuh"

#include <type_traits>

/* ---- types, in the order of dtypes.def ---- */

/* A bool in memory: any byte except 0 is true, as in NumPy. */
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

/* ---- conversions to and from the type used for arithmetic ---- */

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

/* `x` rounded to storage type T; an integer wraps to the width of T. */
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

/* CUDA's type for a pair of 16-bit floats. */
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

/* ---- table rows: the launcher of a rung for each dtype ---- */

/* The device type of a dtype: the C type, unless specialised below. */
template <gpo_dtype, typename C>
struct device_type {
    using type = C;
};

template <>
struct device_type<GPO_BOOL, gpo_bool> {
    using type = b8;
};

template <>
struct device_type<GPO_F16, gpo_f16> {
    using type = f16;
};

template <>
struct device_type<GPO_BF16, gpo_bf16> {
    using type = bf16;
};

template <>
struct device_type<GPO_C64, gpo_c64> {
    using type = c64;
};

template <>
struct device_type<GPO_C128, gpo_c128> {
    using type = c128;
};

template <typename... Types>
struct gpo_types {
};

using real_types = gpo_types<b8, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                             int64_t, uint64_t, f16, bf16, float, double>;
using float_types = gpo_types<f16, bf16, float, double>;
using every_type = gpo_types<b8, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                             int64_t, uint64_t, f16, bf16, float, double, c64, c128>;

/* A function template `f` of launchers, for gpo_row. */
#define GPO_RUN(f) [](auto t) -> gpo_run { return f<typename decltype(t)::type>; }

template <typename T>
struct gpo_type {
    using type = T;
};

template <typename T, typename Run, typename... Types>
constexpr gpo_run
run_of(gpo_types<Types...>, Run run)
{
    if constexpr ((std::is_same_v<T, Types> || ...)) {
        return run(gpo_type<T>());
    }
    else {
        return nullptr;
    }
}

/* The launchers by dtype; NULL for dtypes that are not served. */
struct gpo_runs {
    gpo_run of[GPO_NDTYPES];
};

template <typename Types, typename Run>
constexpr gpo_runs
gpo_runs_of(Run run)
{
    return {{
#define GPO_DTYPE(suffix, ctype, text, bytes, kind) \
    run_of<typename device_type<GPO_##suffix, ctype>::type>(Types(), run),
#include "../core/dtypes.def"
#undef GPO_DTYPE
    }};
}

/*
 * A row of a variant table that serves the dtypes of `Types`:
 *   gpo_row<gpo_types<f16, bf16>>("v3", "the idea in one line", GPO_RUN(dot_v3))
 */
template <typename Types, typename Run>
constexpr gpo_variant
gpo_row(const char *name, const char *idea, Run run,
        const char *determinism = "run-to-run", const char *needs = "",
        const char *causal = nullptr)
{
    gpo_variant row = {name, idea, needs, determinism, {}, causal, nullptr, nullptr};
    const gpo_runs runs = gpo_runs_of<Types>(run);
    for (int d = 0; d < GPO_NDTYPES; d++) {
        row.run[d] = runs.of[d];
    }
    return row;
}

/* A shape kernel's row: `shape` says which calls it takes, takes(call) tests them. */
constexpr gpo_variant
gpo_shape(gpo_variant row, const char *shape, bool (*takes)(const gpo_call *))
{
    row.shape = shape;
    row.takes = takes;
    return row;
}

/* `Macro(T)` for every type: instantiates a launcher that another file uses. */
#define GPO_EVERY_TYPE(Macro)                                                    \
    Macro(b8) Macro(int8_t) Macro(uint8_t) Macro(int16_t) Macro(uint16_t)        \
        Macro(int32_t) Macro(uint32_t) Macro(int64_t) Macro(uint64_t) Macro(f16) \
            Macro(bf16) Macro(float) Macro(double) Macro(c64) Macro(c128)

#endif
