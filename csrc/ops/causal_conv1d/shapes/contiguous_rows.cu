/*
 * contiguous_rows.cu  Filters of 2 to 4 taps, rows that follow each other in memory
 * (BCT without gaps) and begin anywhere.  x is cut into packs of 16 bytes as if it were
 * one row, so no lane idles at the end of a row and each access is a whole pack: a pack
 * has the end of one row and the start of the next, with the taps of either.
 * - The steps before a pack come from the lane before by shuffles; the first lane of a
 *   warp loads the pack before its own.
 * - A thread has all of its loads under way at once, taps included.
 * Cost:  reads x once, and 1/32 of it again; writes the result once.
 * See short_filters.cu for rows of other strides, few_taps.cu for rows of whole packs.
 */
#include "few_taps.cuh"

constexpr int CONTIGUOUS_BLOCK = 128, CONTIGUOUS_ITEMS = 2; /* packs of a thread */

struct contiguous_work {
    divider steps, channels;
    int total, wholes; /* elements, whole packs */
};

/* The taps of a pack: of the row of its first step, and of the row after that. */
template <typename T, int LAGS>
struct two_rows {
    T tap[LAGS], later[LAGS], bias, later_bias;
    int t; /* step of the first element */
};

template <int LAGS, typename T>
__device__ __forceinline__ void
load_two_rows(two_rows<T, LAGS> *rows, const conv_view<T> &v,
              const contiguous_work &work, int first)
{
    const int at = first < work.total ? first : work.total - 1;
    const int row = work.steps.narrow(at), steps = static_cast<int>(work.steps.by);
    const int channels = static_cast<int>(work.channels.by);
    const int c = row - work.channels.narrow(row) * channels;
    const int later = c + 1 < channels ? c + 1 : 0;
    rows->t = at - row * steps;
    const bool has_later = rows->t + pack<T>::SIZE > steps;
    const int other = has_later ? later : c;
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        rows->tap[s] = v.w[c * v.w_c + s * v.w_s];
    }
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        rows->later[s] = v.w[other * v.w_c + s * v.w_s];
    }
    rows->bias = v.bias ? v.bias[c * v.bias_c] : stored_as<T>(0.0F);
    rows->later_bias = v.bias ? v.bias[other * v.bias_c] : stored_as<T>(0.0F);
}

/* Element i of a pack that lies at element `at`, if it is in memory. */
template <typename T>
__device__ __forceinline__ uint4
load_end(const T *x, int at, int total)
{
    pack<T> got;
#pragma unroll
    for (int i = 0; i < pack<T>::SIZE; i++) {
        got.v[i] = at + i < total ? x[at + i] : stored_as<T>(0.0F);
    }
    uint4 bits;
    memcpy(static_cast<void *>(&bits), static_cast<const void *>(got.v), 16);
    return bits;
}

template <int LAGS, typename T>
__device__ __forceinline__ uint4
results_of_pack(const conv_view<T> &v, const contiguous_work &work,
                const two_rows<T, LAGS> &rows, const uint4 &own, const uint4 &before)
{
    constexpr int SIZE = pack<T>::SIZE;
    const float eps = static_cast<float>(v.eps);
    float tap[LAGS], value[2 * SIZE], sum[SIZE];
    float earlier[SIZE], current[SIZE];
    values_of_chunk<T>(earlier, before);
    values_of_chunk<T>(current, own);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        value[i] = earlier[i];
        value[SIZE + i] = current[i];
        sum[i] = eps + value_of(rows.bias);
    }
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        tap[s] = value_of(rows.tap[s]);
    }
    const int steps = static_cast<int>(work.steps.by), left = steps - rows.t;
    if (rows.t >= LAGS - 1 && left >= SIZE) {
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                sum[i] += tap[s] * value[SIZE + i - s];
            }
        }
    }
    else { /* a row begins in the pack, or shortly before it */
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            const bool is_later = i >= left;
            const int t = is_later ? i - left : rows.t + i;
            sum[i] = is_later ? eps + value_of(rows.later_bias) : sum[i];
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                const float of = is_later ? value_of(rows.later[s]) : tap[s];
                if (s <= t) {
                    sum[i] += of * value[SIZE + i - s];
                }
            }
        }
    }
    if (v.finish == FINISH_SILU) {
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            sum[i] = silu<T>(sum[i]);
        }
    }
    return chunk_of_values<T>(sum);
}

template <typename T, int LAGS>
__global__ void
__launch_bounds__(CONTIGUOUS_BLOCK)
    causal_conv1d_contiguous_rows(conv_view<T> v, contiguous_work work)
{
    constexpr int SIZE = pack<T>::SIZE, ITEMS = CONTIGUOUS_ITEMS;
    const int lane = threadIdx.x % WARP;
    const int first = static_cast<int>(blockIdx.x) * ITEMS * CONTIGUOUS_BLOCK +
                      static_cast<int>(threadIdx.x);
    const T *const x = v.x.p;
    uint4 own[ITEMS], edge[ITEMS];
    two_rows<T, LAGS> rows[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const int p = first + k * CONTIGUOUS_BLOCK;
        own[k] = pack_from(x + static_cast<int64_t>(p) * SIZE, p < work.wholes);
        edge[k] = pack_from(x + (static_cast<int64_t>(p) - 1) * SIZE,
                            lane == 0 && p > 0 && p <= work.wholes);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        load_two_rows(&rows[k], v, work, (first + k * CONTIGUOUS_BLOCK) * SIZE);
    }
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const int p = first + k * CONTIGUOUS_BLOCK, at = p * SIZE;
        const bool is_end = p == work.wholes && at < work.total;
        if (is_end) {
            own[k] = load_end(x, at, work.total);
        }
        uint4 before = {0, __shfl_up_sync(ALL_LANES, own[k].y, 1),
                        __shfl_up_sync(ALL_LANES, own[k].z, 1),
                        __shfl_up_sync(ALL_LANES, own[k].w, 1)};
        before = lane == 0 ? edge[k] : before;
        const uint4 results = results_of_pack(v, work, rows[k], own[k], before);
        if (p < work.wholes) {
            *reinterpret_cast<uint4 *>(v.out.p + at) = results;
        }
        else if (is_end) {
            const pack<T> put = pack_of<T>(results);
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                if (at + i < work.total) {
                    v.out.p[at + i] = put.v[i];
                }
            }
        }
    }
}

/* ---- the launch ---- */

/* A call that packed its arrays after the choice may have other rows. */
template <typename T>
gpo_status
conv_contiguous_rows(gpo_call *call, const conv_view<T> &v)
{
    if (!takes_contiguous_rows(v)) {
        return conv_short_filters(call, v);
    }
    contiguous_work work = {};
    work.steps = divider_of(v.steps);
    work.channels = divider_of(v.channels);
    work.total = static_cast<int>(v.batches * v.channels * v.steps);
    work.wholes = work.total / pack<T>::SIZE;
    const int64_t packs = ceil_div(work.total, pack<T>::SIZE);
    const dim3 grid = grid_of(ceil_div(packs, CONTIGUOUS_BLOCK * CONTIGUOUS_ITEMS));
#define WITH(LAGS)                              \
    GPO_LAUNCH(call, grid, CONTIGUOUS_BLOCK, 0, \
               (causal_conv1d_contiguous_rows<T, LAGS>), v, work)
    return v.lags == 2 ? WITH(2) : v.lags == 3 ? WITH(3) : WITH(4);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_contiguous_rows)
