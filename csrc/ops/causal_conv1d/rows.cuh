/*
 * rows.cuh  Code shared by all kernels of causal_conv1d: rows and filters as kernel
 * arguments, bias and activation of a sum, direct sums, partial sums, and the launchers
 * that several files use.
 * See staging.cuh for rows in shared memory, calls.cuh for the steps of a call, op.c
 * for the contract.
 */
#ifndef GPO_CAUSAL_CONV1D_ROWS_CUH
#define GPO_CAUSAL_CONV1D_ROWS_CUH

#include <type_traits>

#include "../../device/grid.cuh"
#include "../../device/vec.cuh"
#include "causal_conv1d.h"
#include "tuning.cuh"

/* The type that T is computed in. */
template <typename T>
using value_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr int64_t TERMS = 128; /* of a direct sum, added up before the total */

/*
 * Orders work by groups of 64 channels, so that blocks that read the same rows run at
 * the same time and find them in L2; within a group by unit, then by channel.
 */
struct conv_work {
    int64_t c, unit;
};

__device__ __forceinline__ conv_work
work_at(int64_t work, int64_t channels, int64_t units)
{
    constexpr int64_t SHARE = 64;
    const int64_t first = work / (units * SHARE) * SHARE, rest = work - first * units;
    const int64_t n = channels - first < SHARE ? channels - first : SHARE;
    return {first + rest % n, rest / n};
}

/* ---- views ---- */

/* What is done with a sum v = eps + bias + terms. */
enum conv_finish {
    FINISH_NONE,
    FINISH_SILU,  /* v / (1 + exp(-v)) */
    FINISH_SLOPE, /* dy times the derivative of SiLU: the gradient of v */
};

/* B x C rows of steps, with strides in elements. */
template <typename T>
struct row_view {
    T *p;
    int64_t b, c, t;

    __device__ __forceinline__ T *row(int64_t batch, int64_t channel) const
    {
        return p + batch * b + channel * c;
    }
};

/*
 * One convolution:
 *     out[t] = finish(eps + bias[c] + sum over lags s <= t of w[s] x[t-s]).
 * dx is one, too: x is then the gradient and out is dx, both with the last step first.
 */
template <typename T>
struct conv_view {
    using V = value_type<T>;
    row_view<const T> x, dy;
    row_view<T> out;
    const T *w; /* of channel 0, lag 0 */
    int64_t w_c, w_s;
    const T *bias;
    int64_t bias_c;
    int64_t batches, channels, steps, lags;
    double eps;
    conv_finish finish;
    conv_precision precision; /* read by launchers */

    __device__ __forceinline__ V w_at(int64_t c, int64_t s) const
    {
        return value_of(w[c * w_c + s * w_s]);
    }

    /* What is added to each sum of a channel. */
    __device__ __forceinline__ V offset(int64_t c) const
    {
        const V add = static_cast<V>(eps);
        return bias ? add + static_cast<V>(value_of(bias[c * bias_c])) : add;
    }

    /* SiLU of `v`, offset included, or the gradient of v, given dy in g. */
    __device__ __forceinline__ V after(V v, V g) const
    {
        const V e = exp_of(v < 0 ? v : -v), share = ratio_of(v < 0 ? e : V(1), 1 + e);
        return finish == FINISH_SILU ? v * share : g * (share * (1 + v * (1 - share)));
    }

    /* Element (b, c, t) of the result, computed from `v`, offset included. */
    __device__ __forceinline__ T finished(V v, int64_t b, int64_t c, int64_t t) const
    {
        if (finish != FINISH_NONE) {
            const bool slope = finish == FINISH_SLOPE;
            v = after(v, slope ? V(value_of(dy.row(b, c)[t * dy.t])) : V(0));
        }
        return stored_as<T>(v);
    }

    __device__ __forceinline__ void put(int64_t b, int64_t c, int64_t t, V sum) const
    {
        out.row(b, c)[t * out.t] = finished(sum + offset(c), b, c, t);
    }

  private:
    static __device__ __forceinline__ float exp_of(float v)
    {
        return expf(v);
    }

    static __device__ __forceinline__ double exp_of(double v)
    {
        return exp(v);
    }

    /* Accurate to 2 units of the last place; an exact division would cost registers. */
    static __device__ __forceinline__ float ratio_of(float a, float b)
    {
        return __fdividef(a, b);
    }

    static __device__ __forceinline__ double ratio_of(double a, double b)
    {
        return a / b;
    }
};

/*
 * The gradient of the filters: dw[c, taps-1-s] = sum over b and u of g[u+s] x[u].  Some
 * rungs write partial sums of groups of rows first: parts[group][c][s].
 */
template <typename T>
struct lag_view {
    using V = value_type<T>;
    row_view<const T> x, g;
    T *dw; /* (C, K), contiguous */
    T *dbias;
    V *parts;
    int64_t batches, channels, steps, taps, lags;
    conv_precision precision; /* read by launchers */

    __device__ __forceinline__ void put(int64_t c, int64_t s, V sum) const
    {
        dw[c * taps + taps - 1 - s] = stored_as<T>(sum);
    }
};

/* ---- direct sums: all of v0, and rows that v6 and v7 cannot compute ---- */

/* Step t of channel c of the row x, in chunks of TERMS. */
template <int UNROLL, typename T>
__device__ __forceinline__ value_type<T>
direct_step(const conv_view<T> &v, const T *x, int64_t stride, int64_t c, int64_t t)
{
    using V = value_type<T>;
    const int64_t terms = t + 1 < v.lags ? t + 1 : v.lags;
    V total = 0;
    for (int64_t begin = 0; begin < terms; begin += TERMS) {
        const int64_t end = terms - begin < TERMS ? terms : begin + TERMS;
        V sum = 0;
#pragma unroll UNROLL
        for (int64_t s = begin; s < end; s++) {
            sum += v.w_at(c, s) * static_cast<V>(value_of(x[(t - s) * stride]));
        }
        total += sum;
    }
    return total;
}

/* Lag s of channel c over batches [first, last), in chunks of TERMS. */
template <int UNROLL, typename T>
__device__ __forceinline__ value_type<T>
direct_lag(const lag_view<T> &v, int64_t first, int64_t last, int64_t c, int64_t s)
{
    using V = value_type<T>;
    V total = 0;
    for (int64_t b = first; b < last; b++) {
        const T *x = v.x.row(b, c), *g = v.g.row(b, c) + s * v.g.t;
        for (int64_t begin = 0; begin < v.steps - s; begin += TERMS) {
            const int64_t left = v.steps - s - begin;
            const int64_t end = begin + (left < TERMS ? left : TERMS);
            V sum = 0;
#pragma unroll UNROLL
            for (int64_t u = begin; u < end; u++) {
                sum += static_cast<V>(value_of(x[u * v.x.t])) *
                       static_cast<V>(value_of(g[u * v.g.t]));
            }
            total += sum;
        }
    }
    return total;
}

/* ---- partial sums of the gradient of the filters ---- */

struct add {
    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }
};

/* Stores the sum of lag s over a group of rows: the result if there is one group. */
template <typename T>
__device__ __forceinline__ void
put_part(const lag_view<T> &v, int64_t groups, int64_t group, int64_t c, int64_t s,
         value_type<T> sum)
{
    if (groups == 1) {
        v.put(c, s, sum);
    }
    else {
        v.parts[(group * v.channels + c) * v.lags + s] = sum;
    }
}

/* Allocates the partial sums of `splits` groups, if there is more than one. */
template <typename T>
gpo_status
make_parts(gpo_call *call, int64_t splits, lag_view<T> *v)
{
    void *memory = nullptr;
    gpo_status status = GPO_OK;
    if (splits > 1) {
        const int64_t bytes = v->channels * v->lags * sizeof(value_type<T>);
        status = gpo_scratch(call, splits * bytes, &memory);
    }
    v->parts = static_cast<value_type<T> *>(memory);
    return status;
}

/* Groups of rows that make about `wanted` units of work of `works`; at most `most`. */
inline int64_t
splits_for(int64_t wanted, int64_t works, int64_t pieces, int64_t most)
{
    int64_t splits = ceil_div(wanted, works);
    splits = splits < most ? splits : most;
    splits = splits < pieces ? splits : pieces;
    return splits > 1 ? splits : 1;
}

/* ---- launchers of common.cu ---- */

/* dw from the partial sums of `splits` groups; nothing to do for one group. */
template <typename T>
gpo_status add_parts(gpo_call *call, const lag_view<T> &v, int64_t splits);

/* The gradient of the bias, and the zeros of dw for taps beyond the row's length. */
template <typename T>
gpo_status make_rest(gpo_call *call, const lag_view<T> &v);

/* to[i, c, r] = from[i, r, c] for i < n. */
template <typename T>
gpo_status swap_axes(gpo_call *call, const T *from, T *to, int64_t n, int64_t rows,
                     int64_t cols);

/* ---- launchers of rungs and shape kernels in separate object files ---- */

/* Rows of a convolution; dx is one, too. */
template <typename T>
using conv_launch = gpo_status (*)(gpo_call *call, const conv_view<T> &v);

/* The gradient of the filters. */
template <typename T>
using lag_launch = gpo_status (*)(gpo_call *call, const lag_view<T> &v);

/* dx, as the convolution `v` of reversed rows, and dw together. */
template <typename T>
using gradients_launch = gpo_status (*)(gpo_call *call, const conv_view<T> &v,
                                        const lag_view<T> &lags);

#define GPO_LAUNCHERS(rung)                                        \
    template <typename T>                                          \
    gpo_status conv_##rung(gpo_call *call, const conv_view<T> &v); \
    template <typename T>                                          \
    gpo_status lag_##rung(gpo_call *call, const lag_view<T> &v)

GPO_LAUNCHERS(v0);
GPO_LAUNCHERS(v5);
GPO_LAUNCHERS(v6);
GPO_LAUNCHERS(large_transforms);

template <typename T>
gpo_status conv_persistent(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status conv_by_segment(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status gradients_by_segment(gpo_call *call, const conv_view<T> &v,
                                const lag_view<T> &lags);
template <typename T>
gpo_status conv_v7(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status gradients_v7(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags);

/* Instantiates a launcher for every type of its table row, in the file that has it. */
#define GPO_CONV_OF(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const conv_view<T> &);
#define GPO_LAG_OF(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const lag_view<T> &);
#define GPO_GRADIENTS_OF(T, launcher)                                 \
    template gpo_status launcher<T>(gpo_call *, const conv_view<T> &, \
                                    const lag_view<T> &);
#define GPO_EVERY_FLOAT(Macro, launcher)                              \
    Macro(f16, launcher) Macro(bf16, launcher) Macro(float, launcher) \
        Macro(double, launcher)
#define GPO_EVERY_FLOAT32(Macro, launcher) \
    Macro(f16, launcher) Macro(bf16, launcher) Macro(float, launcher)

#endif
