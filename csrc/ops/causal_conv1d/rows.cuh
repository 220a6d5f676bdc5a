/*
 * rows.cuh  What the rungs of causal_conv1d share: rows and filters as kernel arguments,
 * what becomes of a sum, the staging of pieces in shared memory, the walk through a call.
 * Order: views, sums in the plain order, staging, partial sums, launches.
 * Not here: the rungs (cuda.cu), their tiles (tiles.cuh), the contract (op.c).
 */
#ifndef GPO_CAUSAL_CONV1D_ROWS_CUH
#define GPO_CAUSAL_CONV1D_ROWS_CUH

#include <type_traits>

#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "causal_conv1d.h"

/* What T is computed in. */
template <typename T>
using value_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr int64_t MAX_GRID_X = 2147483647;
constexpr int64_t TERMS = 128; /* of a plain sum, added up before they meet the total */

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for `n` pieces of work: a kernel strides over more than a grid may have. */
inline dim3
grid_of(int64_t n)
{
    return dim3(static_cast<unsigned>(n < MAX_GRID_X ? n : MAX_GRID_X));
}

/*
 * Work in shares of 64 channels, so that what reads the same rows runs at the same time
 * and finds them in L2; within a share by unit, the channels of one next to each other.
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

/* What becomes of a sum v = eps + bias + terms. */
enum conv_finish {
    FINISH_NONE,
    FINISH_SILU,  /* v / (1 + exp(-v)) */
    FINISH_SLOPE, /* dy times the derivative of that: the gradient of v */
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
 * One convolution: out[t] = finish(eps + bias[c] + sum over lags s <= t of w[s] x[t-s]).
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

    /* What becomes of `v`, offset included; g is dy there, for the slope alone. */
    __device__ __forceinline__ V after(V v, V g) const
    {
        const V e = exp_of(v < 0 ? v : -v), share = ratio_of(v < 0 ? e : V(1), 1 + e);
        return finish == FINISH_SILU ? v * share : g * (share * (1 + v * (1 - share)));
    }

    /* Element (b, c, t) of the result out of `v`, offset included. */
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

    /* To 2 units of the last place: a quotient of its own would cost registers. */
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

/* ---- sums in the plain order: all of v0, and what v6 and v7 cannot carry ---- */

/* Step t of channel c over the row x, in parts of TERMS. */
template <int UNROLL, typename T>
__device__ __forceinline__ value_type<T>
plain_step(const conv_view<T> &v, const T *x, int64_t stride, int64_t c, int64_t t)
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

/* Lag s of channel c over batches [first, last), in parts of TERMS. */
template <int UNROLL, typename T>
__device__ __forceinline__ value_type<T>
plain_lag(const lag_view<T> &v, int64_t first, int64_t last, int64_t c, int64_t s)
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

/* ---- staging ---- */

/* Element u of a row of `steps`, 0 outside. */
template <typename T>
__device__ __forceinline__ value_type<T>
step_or_zero(const T *row, int64_t stride, int64_t u, int64_t steps)
{
    return u >= 0 && u < steps ? value_of(row[u * stride]) : value_type<T>(0);
}

/* to[i] = step first + i of a row, for i in [0, n), by all BLOCK threads. */
template <int BLOCK, typename T>
__device__ __forceinline__ void
stage_row(value_type<T> *to, const T *row, int64_t stride, int64_t first, int n,
          int64_t steps)
{
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        to[i] = step_or_zero(row, stride, first + i, steps);
    }
}

/* to[i] = lag first + i of channel c's filter, for i in [0, n). */
template <int BLOCK, typename T>
__device__ __forceinline__ void
stage_lags(value_type<T> *to, const conv_view<T> &v, int64_t c, int64_t first, int n)
{
    for (int i = threadIdx.x; i < n; i += BLOCK) {
        const int64_t s = first + i;
        to[i] = s >= 0 && s < v.lags ? v.w_at(c, s) : value_type<T>(0);
    }
}

/* 16 bytes of shared memory; p lies on their boundary. */
template <typename V>
__device__ __forceinline__ pack<V>
shared_pack(const V *p)
{
    return *reinterpret_cast<const pack<V> *>(p);
}

/* N values from a 16-byte boundary of shared memory. */
template <int N, typename V>
__device__ __forceinline__ void
shared_values(V *to, const V *from)
{
    static_assert(N % pack<V>::SIZE == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < N; i += pack<V>::SIZE) {
        const pack<V> p = shared_pack(from + i);
#pragma unroll
        for (int k = 0; k < pack<V>::SIZE; k++) {
            to[i + k] = p.v[k];
        }
    }
}

/* N values from column `at` on, in packs of 8; the columns are a ring of RING. */
template <int N, int RING, typename V>
__device__ __forceinline__ void
ring_values(V *to, const V *row, int at)
{
    static_assert((RING & (RING - 1)) == 0, "a power of two");
#pragma unroll
    for (int i = 0; i < N; i += 8) {
        shared_values<8>(to + i, row + ((at + i) & (RING - 1)));
    }
}

/* Whether packs of all rows are whole, on 16-byte boundaries, forwards or backwards. */
template <typename T>
static bool
packs_are_even(const row_view<T> &rows, int64_t steps)
{
    constexpr int64_t SIZE = pack<std::remove_const_t<T>>::SIZE;
    const uintptr_t first =
        reinterpret_cast<uintptr_t>(rows.t < 0 ? rows.p - (SIZE - 1) : rows.p);
    return (rows.t == 1 || rows.t == -1) && first % 16 == 0 && rows.b % SIZE == 0 &&
           rows.c % SIZE == 0 && steps % SIZE == 0;
}

/* The pack of steps u.. of such a row; zeros where it lies outside. */
template <typename T>
__device__ __forceinline__ pack<T>
even_pack(const T *row, bool backwards, int64_t u, int64_t steps)
{
    constexpr int SIZE = pack<T>::SIZE;
    pack<T> p = pack_of<T>(uint4{0, 0, 0, 0});
    if (u >= 0 && u < steps) {
        if (backwards) {
            const pack<T> turned = load_pack(row - u - (SIZE - 1));
#pragma unroll
            for (int k = 0; k < SIZE; k++) {
                p.v[k] = turned.v[SIZE - 1 - k];
            }
        }
        else {
            p = load_pack(row + u);
        }
    }
    return p;
}

/* SIZE steps of a row from u on; `even` rows in one pack. */
template <typename T>
__device__ __forceinline__ void
load_steps(T *to, const T *row, int64_t stride, int64_t u, int64_t steps, bool even)
{
    constexpr int SIZE = pack<T>::SIZE;
    if (even) {
        const pack<T> p = even_pack(row, stride < 0, u, steps);
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            to[k] = p.v[k];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        to[k] = stored_as<T>(value_type<T>(0));
        if (u + k >= 0 && u + k < steps) {
            to[k] = row[(u + k) * stride];
        }
    }
}

/* N elements as values, to a 16-byte boundary of shared memory. */
template <int N, typename T, typename V>
__device__ __forceinline__ void
store_values(V *to, const T *from)
{
    constexpr int SIZE = pack<V>::SIZE;
    static_assert(N % SIZE == 0, "whole packs");
#pragma unroll
    for (int i = 0; i < N; i += SIZE) {
        pack<V> p;
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            p.v[k] = value_of(from[i + k]);
        }
        *reinterpret_cast<pack<V> *>(to + i) = p;
    }
}

/*
 * N values of a row, and 16 bytes of padding: 8 lanes that read 16 bytes of 8 rows meet
 * all banks once.
 */
template <typename V, int N>
struct row_stage {
    alignas(16) V v[N + 16 / sizeof(V)];
};

/*
 * COLUMNS steps of 32 rows, by BLOCK threads: column (at + i) % ring of row r gets step
 * first[r] + u + i.  `ring` is a power of two.
 */
template <int BLOCK, int COLUMNS, typename Stage, typename T>
__device__ __forceinline__ void
stage_rows(Stage &stage, const row_view<const T> &rows, const int64_t *offset,
           const int64_t *first, int64_t u, int at, int ring, int64_t steps, bool even)
{
    constexpr int SIZE = pack<T>::SIZE, PACKS = COLUMNS / SIZE;
    constexpr int TURNS = WARP * PACKS / BLOCK;
    static_assert(WARP * PACKS % BLOCK == 0, "every thread stages as much");
    T held[TURNS][SIZE];
#pragma unroll
    for (int k = 0; k < TURNS; k++) {
        const int i = k * BLOCK + static_cast<int>(threadIdx.x), r = i / PACKS;
        load_steps(held[k], rows.p + offset[r], rows.t, first[r] + u + i % PACKS * SIZE,
                   steps, even);
    }
#pragma unroll
    for (int k = 0; k < TURNS; k++) {
        const int i = k * BLOCK + static_cast<int>(threadIdx.x), r = i / PACKS;
        const int column = (at + i % PACKS * SIZE) & (ring - 1);
        store_values<SIZE>(stage[r].v + column, held[k]);
    }
}

/* The gradient at SIZE steps from t on, and x there and HALO packs before. */
template <int SIZE, int HALO, typename T>
__device__ __forceinline__ void
lag_short_inputs(const lag_view<T> &v, int64_t b, int64_t c, int64_t t,
                 value_type<T> (&g)[SIZE], value_type<T> (&x)[(HALO + 1) * SIZE])
{
    const T *rows[2] = {v.x.row(b, c), v.g.row(b, c)};
    if constexpr (SIZE == pack<T>::SIZE) {
        pack<T> in[HALO + 1];
#pragma unroll
        for (int h = 0; h <= HALO; h++) {
            in[h] = even_pack(rows[0], false, t + (h - HALO) * SIZE, v.steps);
        }
        const pack<T> own = even_pack(rows[1], false, t, v.steps);
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            g[i] = value_of(own.v[i]);
        }
#pragma unroll
        for (int i = 0; i < (HALO + 1) * SIZE; i++) {
            x[i] = value_of(in[i / SIZE].v[i % SIZE]);
        }
    }
    else {
#pragma unroll
        for (int i = 0; i < (HALO + 1) * SIZE; i++) {
            x[i] = i >= HALO * SIZE - (v.lags - 1)
                       ? step_or_zero(rows[0], v.x.t, t + i - HALO * SIZE, v.steps)
                       : value_type<T>(0);
        }
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            g[i] = step_or_zero(rows[1], v.g.t, t + i, v.steps);
        }
    }
}

/* ---- partial sums, the gradient of the bias, taps that meet nothing ---- */

constexpr int REST_BLOCK = 256;

struct add {
    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }
};

/* A block per channel; each thread adds blocks of at most 64 elements. */
template <typename T>
__global__ void
conv_rest_of_channel(lag_view<T> v)
{
    using V = value_type<T>;
    GPO_SHARED(V, slots, [REST_BLOCK / WARP]);
    for (int64_t c = blockIdx.x; c < v.channels; c += gridDim.x) {
        for (int64_t k = threadIdx.x; k < v.taps - v.lags; k += REST_BLOCK) {
            v.dw[c * v.taps + k] = stored_as<T>(V(0));
        }
        if (!v.dbias) {
            continue;
        }
        V total = 0, part = 0;
        int terms = 0;
        for (int64_t b = 0; b < v.batches; b++) {
            const T *g = v.g.row(b, c);
            for (int64_t t = threadIdx.x; t < v.steps; t += REST_BLOCK) {
                part += value_of(g[t * v.g.t]);
                if (++terms == 64) {
                    total += part;
                    part = 0;
                    terms = 0;
                }
            }
        }
        total = block_combine<add, REST_BLOCK>(total + part, slots);
        if (threadIdx.x == 0) {
            v.dbias[c] = stored_as<T>(total);
        }
        __syncthreads();
    }
}

/* The sum of lag s of a channel over a group of rows: a result if there is one group. */
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

/* dw out of the partial sums of `groups` groups, in their order. */
template <typename T>
__global__ void
conv_sum_of_groups(lag_view<T> v, int64_t groups)
{
    const int64_t all = v.channels * v.lags;
    const int64_t step = static_cast<int64_t>(gridDim.x) * REST_BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < all; i += step) {
        value_type<T> sum = 0;
        for (int64_t k = 0; k < groups; k++) {
            sum += v.parts[k * all + i];
        }
        v.put(i / v.lags, i % v.lags, sum);
    }
}

/* ---- launches ---- */

/* Memory for the partial sums of `splits` groups, where there is more than one. */
template <typename T>
static gpo_status
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

/* dw out of the partial sums of `splits` groups, if they are not dw already. */
template <typename T>
static gpo_status
add_parts(gpo_call *call, const lag_view<T> &v, int64_t splits)
{
    if (splits <= 1) {
        return GPO_OK;
    }
    const dim3 grid = grid_of(ceil_div(v.channels * v.lags, REST_BLOCK));
    return GPO_LAUNCH(call, grid, REST_BLOCK, 0, (conv_sum_of_groups<T>), v, splits);
}

template <typename T>
static conv_view<T>
conv_of(const conv_plan &p)
{
    conv_view<T> v = {};
    v.x = {static_cast<const T *>(p.x.data), p.x.b, p.x.c, p.x.t};
    v.dy = {static_cast<const T *>(p.dy.data), p.dy.b, p.dy.c, p.dy.t};
    v.out = {static_cast<T *>(p.out.data), p.out.b, p.out.c, p.out.t};
    v.w = static_cast<const T *>(p.w) + (p.taps - 1) * p.w_k;
    v.w_c = p.w_c;
    v.w_s = -p.w_k;
    v.bias = static_cast<const T *>(p.bias);
    v.bias_c = p.bias_c;
    v.batches = p.batches;
    v.channels = p.channels;
    v.steps = p.steps;
    v.lags = p.lags;
    v.eps = p.eps;
    v.finish = p.silu ? FINISH_SILU : FINISH_NONE;
    v.precision = p.precision;
    return v;
}

template <typename T>
using conv_launch = gpo_status (*)(gpo_call *call, const conv_view<T> &v);
template <typename T>
using lag_launch = gpo_status (*)(gpo_call *call, const lag_view<T> &v);

/* dx, as the convolution `v` of reversed rows, and dw in one launch. */
template <typename T>
using gradients_launch = gpo_status (*)(gpo_call *call, const conv_view<T> &v,
                                        const lag_view<T> &lags);

template <typename T>
static gpo_status
run_forward(gpo_call *call, conv_launch<T> convolve)
{
    conv_plan p;
    conv_make_plan(call, &p);
    const gpo_status status = conv_check_causality(call, &p);
    if (status) {
        return status;
    }
    return p.batches * p.channels > 0 ? convolve(call, conv_of<T>(p)) : GPO_OK;
}

/*
 * With SiLU g first, then dx as a convolution of reversed rows, dw, and the rest; a rung
 * that has `gradients` makes dx and dw by that.
 */
template <typename T>
static gpo_status
run_backward(gpo_call *call, conv_launch<T> convolve, lag_launch<T> correlate,
             gradients_launch<T> gradients = nullptr)
{
    conv_plan p;
    conv_make_plan(call, &p);
    gpo_status status = conv_check_causality(call, &p);
    if (status || p.channels == 0) {
        return status;
    }
    conv_view<T> v = conv_of<T>(p);
    const row_view<T> dx = v.out;
    row_view<const T> g = v.dy;
    if (p.silu && p.batches > 0) {
        void *memory = nullptr;
        const int64_t elements = p.batches * p.channels * p.steps;
        status = gpo_scratch(call, elements * sizeof(T), &memory);
        if (status) {
            return status;
        }
        v.out.p = static_cast<T *>(memory); /* g lies as dx does, without gaps */
        v.finish = FINISH_SLOPE;
        g = {v.out.p, dx.b, dx.c, dx.t};
        status = convolve(call, v);
    }
    if (!status && p.batches > 0) {
        const int64_t last = p.steps - 1;
        v.x = {g.p + last * g.t, g.b, g.c, -g.t};
        v.out = {dx.p + last * dx.t, dx.b, dx.c, -dx.t};
        v.bias = nullptr;
        v.eps = 0;
        v.finish = FINISH_NONE;
        status = gradients ? GPO_OK : convolve(call, v);
    }
    lag_view<T> lags = {};
    lags.x = {static_cast<const T *>(p.x.data), p.x.b, p.x.c, p.x.t};
    lags.g = g;
    lags.dw = static_cast<T *>(p.dw);
    lags.dbias = static_cast<T *>(p.dbias);
    lags.batches = p.batches;
    lags.channels = p.channels;
    lags.steps = p.steps;
    lags.taps = p.taps;
    lags.lags = p.lags;
    lags.precision = p.precision;
    if (!status) {
        status = gradients ? gradients(call, v, lags) : correlate(call, lags);
    }
    if (!status && (p.dbias || p.taps > p.lags)) {
        status = GPO_LAUNCH(call, grid_of(p.channels), REST_BLOCK, 0,
                            (conv_rest_of_channel<T>), lags);
    }
    return status;
}

#endif
