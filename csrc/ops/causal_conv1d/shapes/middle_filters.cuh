/*
 * middle_filters.cuh  Filters of at most 128 lags.  A block stages 32 rows, or segments of
 * rows, with the lags of their channels in shared memory; a lane has one of them and each
 * warp eight of its steps, so channels are as good as batches to fill a warp, and a row
 * of 40 steps costs 40 and not 128 as in v5.
 * Order: the work, staging, sums, the kernel, its launcher.
 * Cost:  reads x once, and K - 1 steps again for each segment of a row; 2 shared loads of
 *        16 bytes for 32 products.
 * See short_filters.cu for filters of at most 16 lags, v5 for many lags.
 */
#ifndef GPO_CAUSAL_CONV1D_MIDDLE_FILTERS_CUH
#define GPO_CAUSAL_CONV1D_MIDDLE_FILTERS_CUH

#include "../../../device/divide.cuh"
#include "../../../device/warp.cuh"
#include "../staging.cuh"

constexpr int MIDDLE_BLOCK = 512; /* threads, 32 for each 8 steps; two fit on an SM */

/* ---- the work ---- */

/* How rows are cut into segments, one for each lane. */
struct middle_work {
    int64_t rows;         /* of segments: batches x segments of a row x channels */
    int segment;          /* steps, whole eights */
    int lead;             /* steps before a segment, whole fours */
    int lags;             /* staged: whole fours */
    int x_pitch, w_pitch; /* an odd number of 16 bytes: eight lanes use all banks */
    bool by_channels_in; /* neighbouring lanes load neighbouring channels, else steps */
    bool by_channels_out;           /* the same for results */
    divider channels, segments;     /* of a row */
    divider loaded, stored, filter; /* steps staged and stored per lane; `lags` */
};

/* A lane's segment. */
struct middle_row {
    int64_t b, c, first; /* its first step */
    int steps;           /* 0: there is no such segment */
};

__device__ __forceinline__ middle_row
middle_row_of(const middle_work &work, int64_t row, int64_t steps)
{
    if (row >= work.rows) {
        return {0, 0, 0, 0};
    }
    const int64_t q = work.channels.of(row), b = work.segments.of(q);
    const int64_t first = (q - b * work.segments.by) * work.segment;
    const int64_t left = steps - first;
    return {b, row - q * work.channels.by, first,
            static_cast<int>(left < work.segment ? left : work.segment)};
}

/* ---- staging ---- */

/* Loads of a thread that are under way together: all of a row of 40 steps or more. */
constexpr int HELD_STEPS = 10, HELD_LAGS = 4;

/* Element e of 32 rows of columns.by, by rows, or `across` them; one beyond is nobody's. */
struct lane_element {
    int lane, k;
    bool is_there;

    __device__ __forceinline__ lane_element(const divider &columns, bool across, int e)
    {
        const int wide = static_cast<int>(columns.by);
        lane = across ? e % WARP : columns.narrow(e);
        k = across ? e / WARP : e - lane * wide;
        is_there = e < wide * WARP;
    }
};

/*
 * x[lane][k] = step first - lead + k of the lane's row, 0 outside of it;
 * w[lane][s] = lag s of the lane's channel, 0 from the last lag on.
 */
template <typename T, typename V>
__device__ __forceinline__ void
stage(const conv_view<T> &v, const middle_work &work, const middle_row &own, V *x, V *w)
{
    const int threads = static_cast<int>(blockDim.x);
    const int64_t row = own.b * v.x.b + own.c * v.x.c + (own.first - work.lead) * v.x.t;
    const int64_t filter = own.c * v.w_c;
    const int low = own.first < work.lead ? work.lead - static_cast<int>(own.first) : 0;
    const int high = own.steps > 0 ? work.lead + own.steps : 0;
    const int steps = static_cast<int>(work.loaded.by) * WARP, lags = work.lags * WARP;
#pragma unroll 1
    for (int e = threadIdx.x, f = e; e < steps || f < lags;
         e += HELD_STEPS * threads, f += HELD_LAGS * threads) {
        V step[HELD_STEPS] = {}, lag[HELD_LAGS] = {};
#pragma unroll
        for (int j = 0; j < HELD_STEPS; j++) {
            const lane_element at(work.loaded, work.by_channels_in, e + j * threads);
            const int64_t from = shuffle_from(row, at.lane % WARP);
            const int least = shuffle_from(low, at.lane % WARP);
            const int most = shuffle_from(high, at.lane % WARP);
            if (at.is_there && at.k >= least && at.k < most) {
                step[j] = value_of(v.x.p[from + at.k * v.x.t]);
            }
        }
#pragma unroll
        for (int j = 0; j < HELD_LAGS; j++) {
            const lane_element at(work.filter, false, f + j * threads);
            const int64_t from = shuffle_from(filter, at.lane % WARP);
            if (at.is_there && at.k < v.lags) {
                lag[j] = value_of(v.w[from + at.k * v.w_s]);
            }
        }
#pragma unroll
        for (int j = 0; j < HELD_STEPS; j++) {
            const lane_element at(work.loaded, work.by_channels_in, e + j * threads);
            if (at.is_there) {
                x[at.lane * work.x_pitch + at.k] = step[j];
            }
        }
#pragma unroll
        for (int j = 0; j < HELD_LAGS; j++) {
            const lane_element at(work.filter, false, f + j * threads);
            if (at.is_there) {
                w[at.lane * work.w_pitch + at.k] = lag[j];
            }
        }
    }
}

/*
 * Stores results, which pass through shared memory so that neighbouring threads store
 * neighbouring elements.
 */
template <typename T, typename V>
__device__ __forceinline__ void
store_from_shared(const conv_view<T> &v, const middle_work &work, const middle_row &own,
                  const V *x)
{
    const int threads = static_cast<int>(blockDim.x);
    const int64_t row = own.b * v.out.b + own.c * v.out.c + own.first * v.out.t;
    const int64_t of_dy = own.b * v.dy.b + own.c * v.dy.c + own.first * v.dy.t;
#pragma unroll 1
    for (int e = threadIdx.x; e < work.segment * WARP; e += threads) {
        const lane_element at(work.stored, work.by_channels_out, e);
        const int64_t to = shuffle_from(row, at.lane);
        const int64_t slope = shuffle_from(of_dy, at.lane);
        V value = x[at.lane * work.x_pitch + at.k];
        if (at.k < shuffle_from(own.steps, at.lane)) {
            if (v.finish != FINISH_NONE) {
                const bool is_slope = v.finish == FINISH_SLOPE;
                value = v.after(
                    value, is_slope ? value_of(v.dy.p[slope + at.k * v.dy.t]) : V(0));
            }
            v.out.p[to + at.k * v.out.t] = stored_as<T>(value);
        }
    }
}

/* ---- sums ---- */

constexpr int MIDDLE_STEPS = 8; /* of a thread */

/*
 * Adds the terms of lags s..s+3 to steps t..t+7.  window[4 + i] is step t - s + i on
 * entry and t - s - 4 + i afterwards; x is step t, w lag 0.  With `edge`, products whose
 * lag is not below `lags`, or is above the step's number t + i, are left out.
 */
template <bool EDGE, typename V>
__device__ __forceinline__ void
add_four_lags(V (&sum)[MIDDLE_STEPS], V (&window)[MIDDLE_STEPS + 4], const V *x,
              const V *w, int s, int lags, int t)
{
    V tap[4];
    shared_values<4>(window, x - s - 4);
    shared_values<4>(tap, w + s);
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
        for (int i = 0; i < MIDDLE_STEPS; i++) {
            if (!EDGE || (s + k < lags && s + k - i <= t)) {
                sum[i] += tap[k] * window[4 + i - k];
            }
        }
    }
#pragma unroll
    for (int i = MIDDLE_STEPS - 1; i >= 0; i--) {
        window[4 + i] = window[i];
    }
}

/* Steps t..t+7 of a row. */
template <typename V>
__device__ __forceinline__ void
sum_of_lags(V (&sum)[MIDDLE_STEPS], const V *x, const V *w, int lags, int64_t t)
{
    constexpr int FAR_STEP = 1 << 20; /* has all lags, as every later one */
    const int step = t < FAR_STEP ? static_cast<int>(t) : FAR_STEP;
    const int whole = (lags < step + 1 ? lags : step + 1) / 4 * 4; /* of all 8 steps */
    const int end = lags < step + MIDDLE_STEPS ? lags : step + MIDDLE_STEPS;
    V window[MIDDLE_STEPS + 4];
    shared_values<MIDDLE_STEPS>(window + 4, x);
    int s = 0;
#pragma unroll 3
    for (; s < whole; s += 4) {
        add_four_lags<false>(sum, window, x, w, s, lags, step);
    }
#pragma unroll 1
    for (; s < end; s += 4) {
        add_four_lags<true>(sum, window, x, w, s, lags, step);
    }
}

/* ---- the kernel ---- */

template <typename T>
__global__ void
__launch_bounds__(MIDDLE_BLOCK, 2)
    causal_conv1d_middle_filters(conv_view<T> v, middle_work work)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(V, x);
    V *const w = x + WARP * work.x_pitch;
    const int lane = threadIdx.x % WARP, local = threadIdx.x / WARP * MIDDLE_STEPS;
#pragma unroll 1
    for (int64_t group = blockIdx.x; group * WARP < work.rows; group += gridDim.x) {
        const middle_row own = middle_row_of(work, group * WARP + lane, v.steps);
        stage(v, work, own, x, w);
        __syncthreads();
        V sum[MIDDLE_STEPS] = {};
        if (local < own.steps) {
            sum_of_lags(sum, x + lane * work.x_pitch + work.lead + local,
                        w + lane * work.w_pitch, static_cast<int>(v.lags),
                        own.first + local);
        }
        const V add = v.offset(own.c);
#pragma unroll
        for (int i = 0; i < MIDDLE_STEPS; i++) {
            sum[i] += add;
        }
        __syncthreads();
        store_values<MIDDLE_STEPS>(x + lane * work.x_pitch + local, sum);
        __syncthreads();

        store_from_shared(v, work, own, x);
        __syncthreads();
    }
}

/* ---- its launcher ---- */

/* Steps of a segment: a whole row of at most MIDDLE_BLOCK / 4, else an even part. */
static int
segment_of(const gpo_call *call, int64_t rows, int64_t steps, int64_t lags)
{
    constexpr int64_t MOST = MIDDLE_BLOCK / WARP * MIDDLE_STEPS, LEAST = MOST / 4;
    int64_t most = MOST;
    if (steps > MOST) {
        const int64_t blocks = gpo_processors(call);
        most = lags <= MOST / 2 ? MOST : MOST / 2;
        while (most > LEAST && rows * ceil_div(steps, most) < 2 * blocks * WARP) {
            most /= 2;
        }
    }
    const int64_t segments = ceil_div(steps, most);
    return static_cast<int>(ceil_div(ceil_div(steps, segments), MIDDLE_STEPS) *
                            MIDDLE_STEPS);
}

/* The least pitch for whole fours that is an odd number of 16 bytes. */
static int
pitch_of(int values)
{
    return (values / 4 | 1) * 4;
}

/* Whether neighbouring channels are nearer than neighbouring steps. */
template <typename T>
static bool
is_by_channels(const row_view<T> &rows, int64_t channels)
{
    const auto size = [](int64_t stride) { return stride < 0 ? -stride : stride; };
    return channels > 1 && size(rows.c) < size(rows.t);
}

template <typename T>
static gpo_status
conv_middle_filters(gpo_call *call, const conv_view<T> &v)
{
    middle_work work = {};
    work.segment = segment_of(call, v.batches * v.channels, v.steps, v.lags);
    work.lags = static_cast<int>(ceil_div(v.lags, 4) * 4);
    const int64_t segments = ceil_div(v.steps, work.segment);
    work.lead = segments > 1 || work.lags < 8 ? work.lags : 8;
    work.rows = v.batches * segments * v.channels;
    work.x_pitch = pitch_of(work.lead + work.segment);
    work.w_pitch = pitch_of(work.lags);
    work.by_channels_in = is_by_channels(v.x, v.channels);
    work.by_channels_out = is_by_channels(v.out, v.channels);
    work.channels = divider_of(v.channels);
    work.segments = divider_of(segments);
    work.loaded = divider_of(work.lead + work.segment);
    work.stored = divider_of(work.segment);
    work.filter = divider_of(work.lags);
    const size_t bytes = WARP * (work.x_pitch + work.w_pitch) * sizeof(value_type<T>);
    const dim3 grid = grid_of(ceil_div(work.rows, WARP));
    const dim3 block(static_cast<unsigned>(work.segment / MIDDLE_STEPS * WARP));
    return GPO_LAUNCH(call, grid, block, bytes, (causal_conv1d_middle_filters<T>), v,
                      work);
}

#endif
