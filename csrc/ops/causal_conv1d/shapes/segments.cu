/*
 * segments.cu  Rows with segments and filters of any length, term by term: a thread has
 * an output of y or dx, a block a lag of dw.  Where a segment begins and ends around each
 * step is found once.  Without segments a row is one.
 * Cost:  reads x and w once for each product; neighbouring threads share the sectors.
 * See short_filters.cu for filters of at most 16 taps, which take far less time.
 */
#include "../../../device/block.cuh"
#include "../segments.cuh"

/* Steps before and after a step in its segment, at most as many as there are lags. */
struct step_span {
    int back, ahead;
};

struct span_work {
    const step_span *spans; /* NULL: each row is one segment */
    int64_t pitch;          /* from a batch to the next; 0: one row */
    int64_t rows, steps;

    __device__ __forceinline__ step_span at(int64_t b, int64_t t) const
    {
        if (!spans) {
            return {static_cast<int>(t), static_cast<int>(steps - 1 - t)};
        }
        return spans[b * pitch + t];
    }
};

__global__ void
causal_conv1d_segment_spans(segment_marks marks, span_work work, step_span *to,
                            int lags)
{
    const int64_t all = work.rows * work.steps;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * REST_BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < all; i += stride) {
        const row_marks row = marks.row(i / work.steps);
        const int t = static_cast<int>(i % work.steps);
        step_span span = {0, 0};
        for (bool more = true; more && span.back < lags;) { /* steps t - 31 to t */
            const int found = __clz(static_cast<int>(row.from(t - span.back - 31)));
            more = found == 32;
            span.back += found;
        }
        for (bool more = true; more && span.ahead < lags;) { /* t + 1 to t + 32 */
            const unsigned marked = row.from(t + span.ahead + 1);
            const int found = __clz(static_cast<int>(__brev(marked)));
            more = found == 32;
            span.ahead += found;
        }
        to[i] = span;
    }
}

/*
 * Step t of each row, from the steps before it in its segment; AHEAD: from those after it,
 * which makes dx of g.
 */
template <typename T, bool AHEAD>
__global__ void
causal_conv1d_segments(conv_view<T> v, span_work work)
{
    const int64_t all = v.batches * v.channels * v.steps;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * REST_BLOCK;
    const bool by_channels = v.out.t != 1;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < all; i += stride) {
        const int64_t inner = by_channels ? v.channels : v.steps;
        const int64_t outer = by_channels ? v.steps : v.channels;
        const int64_t low = i % inner, high = i / inner % outer, b = i / inner / outer;
        const int64_t c = by_channels ? low : high, t = by_channels ? high : low;
        const step_span span = work.at(b, t);
        const int64_t n = AHEAD ? span.ahead : span.back, step = AHEAD ? -1 : 1;
        const T *const first = v.x.row(b, c) + (t - step * n) * v.x.t;
        v.put(b, c, t, direct_step<4>(v, first, step * v.x.t, c, n));
    }
}

/* Lag s of dw of a channel: a thread adds blocks of at most 64 terms. */
template <typename T>
__global__ void
__launch_bounds__(REST_BLOCK)
    causal_conv1d_backward_segments(lag_view<T> v, span_work work)
{
    using V = value_type<T>;
    GPO_SHARED(V, slots, [REST_BLOCK / WARP]);
    for (int64_t i = blockIdx.x; i < v.channels * v.lags; i += gridDim.x) {
        const int64_t c = i / v.lags, s = i - c * v.lags;
        V total = 0, part = 0;
        int terms = 0;
        for (int64_t b = 0; b < v.batches; b++) {
            const T *const x = v.x.row(b, c), *const g = v.g.row(b, c);
            for (int64_t t = s + threadIdx.x; t < v.steps; t += REST_BLOCK) {
                if (work.at(b, t).back < s) {
                    continue;
                }
                part += value_of(g[t * v.g.t]) * value_of(x[(t - s) * v.x.t]);
                if (++terms == 64) {
                    total += part;
                    part = 0;
                    terms = 0;
                }
            }
        }
        total = block_combine<add, REST_BLOCK>(total + part, slots);
        if (threadIdx.x == 0) {
            v.put(c, s, total);
        }
        __syncthreads();
    }
}

/* ---- the launches ---- */

static gpo_status
find_spans(gpo_call *call, int64_t steps, int64_t lags, span_work *work)
{
    segment_marks marks;
    *work = {nullptr, 0, 0, steps};
    const gpo_status status = mark_segments(call, &marks);
    if (status || !marks.words) {
        return status;
    }
    work->rows = marks.pitch ? conv_plan_of(call)->batches : 1;
    work->pitch = marks.pitch ? steps : 0;
    void *memory = nullptr;
    const int64_t all = work->rows * steps;
    const gpo_status made = gpo_scratch(call, all * sizeof(step_span), &memory);
    if (made) {
        return made;
    }
    work->spans = static_cast<step_span *>(memory);
    return GPO_LAUNCH(call, grid_of(ceil_div(all, REST_BLOCK)), REST_BLOCK, 0,
                      causal_conv1d_segment_spans, marks, *work,
                      static_cast<step_span *>(memory), static_cast<int>(lags));
}

template <typename T, bool AHEAD>
static gpo_status
launch(gpo_call *call, const conv_view<T> &v, const span_work &work)
{
    const int64_t all = v.batches * v.channels * v.steps;
    return GPO_LAUNCH(call, grid_of(ceil_div(all, REST_BLOCK)), REST_BLOCK, 0,
                      (causal_conv1d_segments<T, AHEAD>), v, work);
}

template <typename T>
gpo_status
conv_by_segment(gpo_call *call, const conv_view<T> &v)
{
    span_work work;
    const gpo_status status = find_spans(call, v.steps, v.lags, &work);
    return status ? status : launch<T, false>(call, v, work);
}

/* With SiLU first g, in the dtype and layout of dx. */
template <typename T>
static gpo_status
make_slopes(gpo_call *call, const conv_view<T> &v, const span_work &work,
            row_view<const T> *g)
{
    void *memory = nullptr;
    const int64_t bytes = v.batches * v.channels * v.steps * sizeof(T);
    const gpo_status status = gpo_scratch(call, bytes, &memory);
    if (status) {
        return status;
    }
    const bool by_channels = v.out.t != 1;
    conv_view<T> slopes = v;
    slopes.out = {static_cast<T *>(memory), v.channels * v.steps,
                  by_channels ? 1 : v.steps, by_channels ? v.channels : 1};
    slopes.finish = FINISH_SLOPE;
    *g = {slopes.out.p, slopes.out.b, slopes.out.c, slopes.out.t};
    return launch<T, false>(call, slopes, work);
}

template <typename T>
gpo_status
gradients_by_segment(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    span_work work;
    gpo_status status = find_spans(call, v.steps, v.lags, &work);
    lag_view<T> to = lags;
    if (!status && v.finish == FINISH_SILU && v.batches > 0) {
        status = make_slopes(call, v, work, &to.g);
    }
    if (!status) {
        conv_view<T> back = v;
        back.x = to.g;
        back.bias = nullptr;
        back.eps = 0;
        back.finish = FINISH_NONE;
        status = launch<T, true>(call, back, work);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(v.channels * v.lags), REST_BLOCK, 0,
                            (causal_conv1d_backward_segments<T>), to, work);
    }
    return status ? status : make_rest(call, to);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_by_segment)
GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_by_segment)
