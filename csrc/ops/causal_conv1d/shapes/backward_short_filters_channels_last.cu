/*
 * backward_short_filters_channels_last.cu  The gradients of filters of at most 16 taps,
 * neighbouring channels (BTC), in one pass.  A thread has a chunk of channels and walks
 * along a stretch of steps with two windows in registers, of x and of g; dx of a step
 * follows when the last g it needs is in the window, so a stretch reads the steps of a
 * window on both sides, which its neighbours read, too.  With SiLU g is computed from x
 * again, and is not rounded.  dw and dbias are added up step by step over a stretch, then
 * over the stretches of the thread in shared memory, then over threads by the second
 * kernel of backward_short_filters.cu.
 * Cost:  reads x and dy once, and taps - 1 steps at the ends of each stretch twice.
 */
#include "channels_last.cuh"

/* The sums of a stretch: dw by lag, dbias. */
template <typename V, int LAGS, int W>
struct last_sums {
    V lag[LAGS][W], bias[W];
};

/* Step j of the stretch is in slot j % SLOTS; the next steps are under way. */
template <typename T, int LAGS, int W>
struct last_window {
    static constexpr int SLOTS = WINDOW_STEPS<LAGS, W>, AHEAD = STEPS_AHEAD<T, W>;
    static_assert(SLOTS % AHEAD == 0, "a step has one place in both");
    value_type<T> x[SLOTS][W], g[SLOTS][W];
    chunk<T, W> x_ahead[AHEAD], dy_ahead[AHEAD];
};

/* x of the steps before a stretch, and the loads of its first steps, of `loaded`. */
template <int LAGS, int W, typename T>
__device__ __forceinline__ void
fill_window(last_window<T, LAGS, W> *at, const conv_view<T> &v, const T *x, const T *dy,
            int64_t t0, int loaded)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>, AHEAD = STEPS_AHEAD<T, W>;
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        at->x_ahead[k] = k < loaded ? load_chunk<W>(x + k * v.x.t) : chunk<T, W>{};
        at->dy_ahead[k] = k < loaded ? load_chunk<W>(dy + k * v.dy.t) : chunk<T, W>{};
    }
#pragma unroll
    for (int k = 0; k < SLOTS; k++) {
        const int back = SLOTS - k;
        const bool there = back < LAGS && back < v.lags && back <= t0;
        const chunk<T, W> old = there ? load_chunk<W>(x - back * v.x.t) : chunk<T, W>{};
        values_of_chunk<T>(at->x[k], old);
#pragma unroll
        for (int i = 0; i < W; i++) {
            at->g[k][i] = 0;
        }
    }
}

/* g of the step in slot K, with the lags up to `last`. */
template <int K, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
gradient_of_step(last_window<T, LAGS, W> *at, const chunk<T, W> &dy,
                 const V (&tap)[LAGS][W], const V (&offset)[W], bool is_silu, int last)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>;
    V sum[W];
    values_of_chunk<T>(at->g[K], dy);
#pragma unroll
    for (int i = 0; i < W; i++) {
        sum[i] = offset[i];
    }
    if (is_silu) {
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s <= last) {
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[i] += tap[s][i] * at->x[(K - s + SLOTS) % SLOTS][i];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < W; i++) {
            at->g[K][i] *= silu_slope<T>(sum[i]);
        }
    }
}

/* The terms of dw of the step in slot K. */
template <int K, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
add_step(last_sums<V, LAGS, W> *sums, const last_window<T, LAGS, W> &at, int last)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>;
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s <= last) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                sums->lag[s][i] += at.g[K][i] * at.x[(K - s + SLOTS) % SLOTS][i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
        sums->bias[i] += at.g[K][i];
    }
}

/* dx of the step LAGS - 1 before slot K, from the g of lags up to `last`. */
template <int K, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ chunk<T, W>
result_of_step(const last_window<T, LAGS, W> &at, const V (&tap)[LAGS][W], int last)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>;
    V sum[W] = {};
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s <= last) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum[i] += tap[s][i] * at.g[(K - (LAGS - 1) + s + SLOTS) % SLOTS][i];
            }
        }
    }
    return chunk_of_values<T>(sum);
}

/* What the steps of a stretch have in common. */
template <typename T>
struct last_stretch {
    const T *x, *dy; /* of step j */
    T *dx;
    int64_t t0, steps;
    int n, loaded; /* steps of the stretch; and with those after it that are read */
    int lags;
    bool is_silu;
    row_marks marks;
};

/* Slots K and up of a turn of the window; j is the step of slot 0. */
template <int K, short_rows ROWS, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
turn(last_window<T, LAGS, W> *at, last_sums<V, LAGS, W> *sums, const conv_view<T> &v,
     const last_stretch<T> &of, const V (&tap)[LAGS][W], const V (&offset)[W], int j,
     slot_marks<LAGS> begins)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>, AHEAD = STEPS_AHEAD<T, W>;
    if constexpr (K < SLOTS) {
        const int step = j + K;
        if (step >= of.n + LAGS - 1) {
            return;
        }
        values_of_chunk<T>(at->x[K], at->x_ahead[K % AHEAD]);
        const chunk<T, W> dy = at->dy_ahead[K % AHEAD];
        const bool more = step + AHEAD < of.loaded;
        at->x_ahead[K % AHEAD] =
            more ? load_chunk<W>(of.x + (K + AHEAD) * v.x.t) : chunk<T, W>{};
        at->dy_ahead[K % AHEAD] =
            more ? load_chunk<W>(of.dy + (K + AHEAD) * v.dy.t) : chunk<T, W>{};
        const int64_t t = of.t0 + step, before = ROWS == CUT ? begins.back(K) : t;
        const int last = before < of.lags - 1 ? static_cast<int>(before) : of.lags - 1;
        gradient_of_step<K>(at, dy, tap, offset, of.is_silu && step < of.loaded, last);
        if (step < of.n) {
            add_step<K>(sums, *at, last);
        }
        if (step >= LAGS - 1) {
            const int64_t after =
                ROWS == CUT ? begins.ahead(K) : of.steps - 1 - (t - (LAGS - 1));
            const int most =
                after < of.lags - 1 ? static_cast<int>(after) : of.lags - 1;
            *reinterpret_cast<chunk<T, W> *>(of.dx + (K - (LAGS - 1)) * v.out.t) =
                result_of_step<K>(*at, tap, most);
        }
        turn<K + 1, ROWS>(at, sums, v, of, tap, offset, j, begins);
    }
}

template <short_rows ROWS, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
walk(last_sums<V, LAGS, W> *sums, const conv_view<T> &v, const V (&tap)[LAGS][W],
     int64_t b, int64_t c, int64_t t0, int n, const segment_marks &marks)
{
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>;
    last_stretch<T> of;
    of.x = v.x.row(b, c) + t0 * v.x.t;
    of.dy = v.dy.row(b, c) + t0 * v.dy.t;
    of.dx = v.out.row(b, c) + t0 * v.out.t;
    of.t0 = t0;
    of.steps = v.steps;
    of.n = n;
    of.lags = static_cast<int>(v.lags);
    of.loaded = n + of.lags - 1;
    of.loaded = v.steps - t0 < of.loaded ? static_cast<int>(v.steps - t0) : of.loaded;
    of.is_silu = v.finish == FINISH_SILU;
    if constexpr (ROWS == CUT) {
        of.marks = marks.row(b);
    }
    V offset[W];
#pragma unroll
    for (int i = 0; i < W; i++) {
        offset[i] = v.offset(c + i);
    }
    last_window<T, LAGS, W> at;
    fill_window(&at, v, of.x, of.dy, t0, of.loaded);
    for (int j = 0; j < n + LAGS - 1; j += SLOTS) {
        slot_marks<LAGS> begins = {};
        if constexpr (ROWS == CUT) {
            begins.bits = of.marks.from(static_cast<int>(t0) + j - (LAGS - 1));
        }
        turn<0, ROWS>(&at, sums, v, of, tap, offset, j, begins);
        of.x += SLOTS * v.x.t;
        of.dy += SLOTS * v.dy.t;
        of.dx += SLOTS * v.out.t;
    }
}

/* Adds the sums of a stretch to those of the thread so far, in shared memory. */
template <int LAGS, int W, typename V>
__device__ __forceinline__ void
fold(V *totals, const last_sums<V, LAGS, W> &sums, bool is_first)
{
#pragma unroll
    for (int s = 0; s <= LAGS; s++) {
#pragma unroll
        for (int i = 0; i < W; i++) {
            V *const total = totals + (s * W + i) * SHORT_BLOCK + threadIdx.x;
            const V sum = s < LAGS ? sums.lag[s < LAGS ? s : 0][i] : sums.bias[i];
            *total = is_first ? sum : *total + sum;
        }
    }
}

/* The sums of a thread as a part, or as results if there is one part. */
template <int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
put_sums(const lag_view<T> &to, int64_t parts, int64_t part, int64_t c, const V *totals)
{
#pragma unroll 1
    for (int s = 0; s <= to.lags; s++) {
        V sum[W];
#pragma unroll
        for (int i = 0; i < W; i++) {
            const int from = (s < to.lags ? s : LAGS) * W + i;
            sum[i] = totals[from * SHORT_BLOCK + threadIdx.x];
        }
        put_chunk_sums<W>(to, parts, part, c, s, sum);
    }
}

template <typename T, int LAGS, int W, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK, backward_blocks<T, LAGS>)
    causal_conv1d_backward_short_filters_channels_last(conv_view<T> v, lag_view<T> to,
                                                       last_work work)
{
    using V = value_type<T>;
    GPO_SHARED(V, staged, [LAGS * W * SHORT_BLOCK]);
    GPO_SHARED(V, totals, [(LAGS + 1) * W * SHORT_BLOCK]);
    for (int64_t task = blockIdx.x; task < work.tasks; task += gridDim.x) {
        const last_place at(work, task, W);
        V tap[LAGS][W];
        load_block_taps(tap, staged, v, at, work.shift);
        const int64_t c = at.first + at.chunk * W;
        if (c >= v.channels || at.part >= work.parts) {
            continue;
        }
        const int64_t all = v.batches * work.stretches.by;
        const int64_t begin = at.part * work.share;
        const int64_t end = all - begin < work.share ? all : begin + work.share;
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t b = work.stretches.of(unit);
            const int64_t t0 = (unit - b * work.stretches.by) * work.length;
            const int64_t left = v.steps - t0;
            last_sums<V, LAGS, W> sums = {};
            walk<ROWS>(&sums, v, tap, b, c, t0,
                       static_cast<int>(left < work.length ? left : work.length),
                       work.marks);
            fold(totals, sums, unit == begin);
        }
        put_sums<LAGS, W>(to, work.parts, at.part, c, totals);
    }
}

template <typename T, int LAGS, int W, short_rows ROWS>
static gpo_status
launch(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags,
       const segment_marks &marks)
{
    const int64_t chunks = ceil_div(v.channels, W);
    const int64_t wanted = gpo_processors(call) * LAST_THREADS_BACKWARD;
    last_work work = {};
    split_channels(&work, chunks);
    split_steps(&work, wanted, LEAST_STEPS_BACKWARD, chunks, v.batches, v.steps);
    const int64_t stretches = work.parts, pieces = ceil_div(wanted, chunks);
    work.share = ceil_div(stretches, stretches < pieces ? stretches : pieces);
    work.parts = ceil_div(stretches, work.share);
    count_tasks(&work);
    work.marks = marks;
    lag_view<T> to = lags;
    gpo_status status = make_short_parts(call, work.parts, &to);
    if (!status) {
        status = GPO_LAUNCH(
            call, grid_of(work.tasks), SHORT_BLOCK, 0,
            (causal_conv1d_backward_short_filters_channels_last<T, LAGS, W, ROWS>), v,
            to, work);
    }
    return status ? status : add_short_parts(call, to, work.parts);
}

template <typename T, int LAGS, short_rows ROWS>
static gpo_status
launch_widest(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags,
              const segment_marks &marks)
{
    constexpr int W = last_width<T, LAGS>(16, 16);
    const bool wide = has_chunks<W>(v.x, v.channels) &&
                      has_chunks<W>(v.dy, v.channels) &&
                      has_chunks<W>(v.out, v.channels);
    return wide ? launch<T, LAGS, W, ROWS>(call, v, lags, marks)
                : launch<T, LAGS, 1, ROWS>(call, v, lags, marks);
}

template <typename T>
gpo_status
gradients_short_filters_channels_last(gpo_call *call, const conv_view<T> &v,
                                      const lag_view<T> &lags)
{
    if (v.batches == 0) {
        return add_short_parts(call, lags, 0);
    }
    segment_marks marks;
    const gpo_status status = mark_segments(call, &marks);
    if (status) {
        return status;
    }
#define WITH(LAGS, ROWS) launch_widest<T, LAGS, ROWS>(call, v, lags, marks)
    /* Segments and 5 to 8 taps: few_taps_channels_last takes fours of channels. */
    return !marks.words  ? GPO_BY_LAGS(v.lags, PLAIN, WITH)
           : v.lags <= 4 ? WITH(4, CUT)
                         : WITH(SHORT, CUT);
#undef WITH
}

GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_short_filters_channels_last)
