/*
 * short_filters_chunks.cu  Filters of at most 16 taps, neighbouring channels
 * (BTC).  A thread has a chunk of channels, 16 bytes for up to 4 taps, and walks along a
 * stretch of steps: the last values and the taps of its channels stay in registers, and
 * the step that leaves the window is loaded again one window ahead.  A stretch begins
 * with the steps before it, which its neighbour reads, too.
 * Cost:  reads x once, and the first taps - 1 steps of each stretch twice.
 * Arrays without such chunks (single channels, other strides) have chunks of one.
 * It takes what short_filters_channels_last.cu leaves: float64, chunks of other alignment.
 */
#include "channels_last.cuh"
#include "earlier_chunk.cuh"

/* In a struct of their own, as a larger argument changes the code of all kernels. */
struct behind_work : last_work {
    earlier_steps state;
};
template <short_rows ROWS>
using forward_work = std::conditional_t<ROWS == BEHIND, behind_work, last_work>;

/* The results of a stretch of W channels: `n` steps from t0 on. */
template <short_rows ROWS, int LAGS, int W, typename T>
__device__ __forceinline__ void
walk(const conv_view<T> &v, const value_type<T> (&tap)[LAGS][W], int64_t b, int64_t c,
     int64_t t0, int n, const forward_work<ROWS> &work)
{
    using V = value_type<T>;
    constexpr int SLOTS = WINDOW_STEPS<LAGS, W>, AHEAD = STEPS_AHEAD<T, W>;
    static_assert(SLOTS % AHEAD == 0, "a step has one place in both");
    const T *x = v.x.row(b, c) + t0 * v.x.t;
    T *out = v.out.row(b, c) + t0 * v.out.t;
    const int lags = static_cast<int>(v.lags);
    V window[SLOTS][W], offset[W]; /* step j of the stretch is in slot j % SLOTS */
    chunk<T, W> ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < W; i++) {
        offset[i] = v.offset(c + i);
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        ahead[k] = k < n ? load_chunk<W>(x + k * v.x.t) : chunk<T, W>{};
    }
#pragma unroll
    for (int k = 1; k < SLOTS; k++) {
        const int back = SLOTS - k;
        const bool there = back < LAGS && back < lags && back <= t0;
        const chunk<T, W> old = there ? load_chunk<W>(x - back * v.x.t) : chunk<T, W>{};
        values_of_chunk<T>(window[k], old);
        if constexpr (ROWS == BEHIND) {
            if (back < LAGS && back < lags && back > t0) {
                values_of_chunk<T>(window[k],
                                   earlier_chunk<W, T>(work.state, b, c, t0 - back));
            }
        }
    }
    int inside = t0 < SHORT ? static_cast<int>(t0) : SHORT; /* steps before, at least */
    if constexpr (ROWS == BEHIND) {
        inside = SHORT;
    }
    for (int j = 0; j < n; j += SLOTS) {
        slot_marks<LAGS> begins = {};
        if constexpr (ROWS == CUT) {
            begins.bits = work.marks.row(b).from(static_cast<int>(t0) + j - (LAGS - 1));
        }
#pragma unroll
        for (int k = 0; k < SLOTS; k++) {
            if (j + k >= n) {
                break;
            }
            V sum[W];
            values_of_chunk<T>(window[k], ahead[k % AHEAD]);
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum[i] = offset[i];
            }
            if (j + k + AHEAD < n) {
                ahead[k % AHEAD] = load_chunk<W>(x + (k + AHEAD) * v.x.t);
            }
            const int past = ROWS == CUT ? begins.back(k) : inside + k;
            const int last = lags - 1 < past ? lags - 1 : past;
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (s <= last) {
#pragma unroll
                    for (int i = 0; i < W; i++) {
                        sum[i] += tap[s][i] * window[(k - s + SLOTS) % SLOTS][i];
                    }
                }
            }
            if (v.finish == FINISH_SILU) {
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[i] = silu<T>(sum[i]);
                }
            }
            *reinterpret_cast<chunk<T, W> *>(out + k * v.out.t) =
                chunk_of_values<T>(sum);
        }
        x += SLOTS * v.x.t;
        out += SLOTS * v.out.t;
        inside = SHORT; /* a window has at least 4 steps, so after four of them: */
    }
}

template <typename T, int LAGS, int W, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK)
    causal_conv1d_short_filters_chunks(conv_view<T> v, forward_work<ROWS> work)
{
    using V = value_type<T>;
    GPO_SHARED(V, staged, [LAGS * W * SHORT_BLOCK]);
    for (int64_t task = blockIdx.x; task < work.tasks; task += gridDim.x) {
        const last_place at(work, task, W);
        V tap[LAGS][W];
        load_block_taps(tap, staged, v, at, work.shift);
        const int64_t c = at.first + at.chunk * W;
        if (c < v.channels && at.part < work.parts) {
            const int64_t b = work.stretches.of(at.part);
            const int64_t t0 = (at.part - b * work.stretches.by) * work.length;
            const int64_t left = v.steps - t0;
            walk<ROWS>(v, tap, b, c, t0,
                       static_cast<int>(left < work.length ? left : work.length), work);
        }
    }
}

template <typename T, int LAGS, int W, short_rows ROWS>
static gpo_status
launch(gpo_call *call, const conv_view<T> &v, const segment_marks &marks)
{
    const int64_t chunks = ceil_div(v.channels, W);
    forward_work<ROWS> work = {};
    split_channels(&work, chunks);
    split_steps(&work, gpo_processors(call) * LAST_THREADS, LEAST_STEPS, chunks,
                v.batches, v.steps);
    count_tasks(&work);
    work.marks = marks;
    if constexpr (ROWS == BEHIND) {
        work.state = earlier_steps_of(call);
    }
    return GPO_LAUNCH(call, grid_of(work.tasks), SHORT_BLOCK, 0,
                      (causal_conv1d_short_filters_chunks<T, LAGS, W, ROWS>), v, work);
}

template <typename T, int LAGS, short_rows ROWS>
static gpo_status
launch_widest(gpo_call *call, const conv_view<T> &v, const segment_marks &marks)
{
    constexpr int W = last_width<T, LAGS>(16, 8);
    if constexpr (LAGS == 4 && W > 1) { /* the usual filters */
        if (has_chunks<W>(v.x, v.channels) && has_chunks<W>(v.out, v.channels)) {
            return launch<T, LAGS, W, ROWS>(call, v, marks);
        }
    }
    return launch<T, LAGS, 1, ROWS>(call, v, marks);
}

template <typename T>
gpo_status
conv_short_filters_chunks(gpo_call *call, const conv_view<T> &v)
{
    segment_marks marks;
    const gpo_status status = mark_segments(call, &marks);
    if (status) {
        return status;
    }
#define WITH(LAGS, ROWS) launch_widest<T, LAGS, ROWS>(call, v, marks)
    return earlier_steps_of(call).p ? GPO_BY_LAGS(v.lags, BEHIND, WITH)
                                    : GPO_BY_LAGS_AND_CUT(v.lags, marks.words, WITH);
#undef WITH
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_short_filters_chunks)
