/*
 * calls.cuh  Runs a call of causal_conv1d or causal_conv1d_backward with the launchers
 * of a rung: views of its arrays, then the forward pass, or dx, dw and the rest.
 * See ladder/ and shapes/ for the launchers, cuda.cu for the choice between them.
 */
#ifndef GPO_CAUSAL_CONV1D_CALLS_CUH
#define GPO_CAUSAL_CONV1D_CALLS_CUH

#include "segments.cuh"
#include "states.cuh"
#include "tensor.cuh"

/* The view for the forward pass of a call. */
template <typename T>
static conv_view<T>
conv_of(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    const conv_arrays arrays = conv_arrays_of(call);
    conv_view<T> v = {};
    v.x = {static_cast<const T *>(arrays.x), p.x.b, p.x.c, p.x.t};
    v.dy = {static_cast<const T *>(arrays.dy), p.dy.b, p.dy.c, p.dy.t};
    v.out = {static_cast<T *>(arrays.out), p.out.b, p.out.c, p.out.t};
    v.w = static_cast<const T *>(arrays.w) + (p.taps - 1) * p.w_k;
    v.w_c = p.w_c;
    v.w_s = -p.w_k;
    v.bias = static_cast<const T *>(arrays.bias);
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

/* The view for the gradient of the filters; g is the gradient before the activation. */
template <typename T>
static lag_view<T>
lags_of(const gpo_call *call, row_view<const T> g)
{
    const conv_plan &p = *conv_plan_of(call);
    const conv_arrays arrays = conv_arrays_of(call);
    lag_view<T> v = {};
    v.x = {static_cast<const T *>(arrays.x), p.x.b, p.x.c, p.x.t};
    v.g = g;
    v.dw = static_cast<T *>(arrays.dw);
    v.dbias = static_cast<T *>(arrays.dbias);
    v.batches = p.batches;
    v.channels = p.channels;
    v.steps = p.steps;
    v.taps = p.taps;
    v.lags = p.lags;
    v.precision = p.precision;
    return v;
}

/*
 * A convolution behind a state: of copied rows of K - 1 + T steps, whose first K - 1
 * results are dropped.  Any rung computes it, for a copy of x and one of the result.
 */
template <typename T>
static gpo_status
convolve_behind_state(gpo_call *call, conv_launch<T> convolve)
{
    const conv_plan &p = *conv_plan_of(call);
    const int64_t kept = p.taps - 1, steps = kept + p.steps;
    const int64_t elements = p.batches * p.channels * steps;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, 2 * elements * sizeof(T), &memory);
    if (status) {
        return status;
    }
    const bool by_channels = p.out.t != 1;
    row_view<T> rows = {static_cast<T *>(memory), p.channels * steps,
                        by_channels ? 1 : steps, by_channels ? p.channels : 1};
    status = join_rows(call, joined_of<T>(call, 0, steps), rows);
    conv_view<T> v = conv_of<T>(call);
    const row_view<T> out = v.out;
    v.x = {rows.p, rows.b, rows.c, rows.t};
    rows.p += elements;
    v.out = rows;
    v.steps = steps;
    if (!status) {
        status = convolve(call, v);
    }
    if (!status) {
        joined_rows<T> results = joined_of<T>(call, 0, p.steps);
        results.kept = 0;
        results.x = {rows.p + kept * rows.t, rows.b, rows.c, rows.t};
        status = join_rows(call, results, out);
    }
    return status;
}

/* For calls without results: the values of segments may be wrong all the same. */
static gpo_status
check_segments_alone(gpo_call *call)
{
    segment_marks marks;
    return mark_segments(call, &marks);
}

/* Whether a launcher reads the call's state where it is, and writes the one after. */
enum state_access { NO_STATE, READS_STATE, KEEPS_STATE };

template <typename T>
static gpo_status
run_forward(gpo_call *call, conv_launch<T> convolve, state_access access)
{
    const conv_plan &p = *conv_plan_of(call);
    gpo_status status = conv_check_causality(call);
    if (!status && p.returns_state && access != KEEPS_STATE) {
        status = write_last_state<T>(call);
    }
    if (status || p.batches * p.channels == 0) {
        return status ? status : check_segments_alone(call);
    }
    if (p.has_state && p.taps > 1 && access == NO_STATE) {
        return convolve_behind_state(call, convolve);
    }
    return convolve(call, conv_of<T>(call));
}

/* What a rung wants contiguous rows of, backward: nothing, x and g for dw, all. */
enum row_turns { TURNS_NONE, TURNS_LAGS, TURNS_ALL };

/*
 * Whether (B, T, C) arrays are transposed first.  A rung that walks along rows loads a
 * sector for each element otherwise; a transposition is a launch and two passes.
 */
template <typename T>
static bool
turns_pay(const conv_plan &p)
{
    constexpr int64_t LEAST = 1 << 17, SECTOR = 32; /* elements; bytes of channels */
    const int64_t bytes = p.channels * static_cast<int64_t>(sizeof(T));
    return bytes >= SECTOR && p.batches * p.channels * p.steps >= LEAST;
}

/*
 * With SiLU first g, then dx as a convolution of reversed rows, dw, and the rest; a
 * rung that has `gradients` computes dx and dw with it.
 */
template <typename T>
static gpo_status
run_backward(gpo_call *call, conv_launch<T> convolve, lag_launch<T> correlate,
             gradients_launch<T> gradients, row_turns turns)
{
    const conv_plan &p = *conv_plan_of(call);
    gpo_status status = conv_check_causality(call);
    if (status || p.channels == 0) {
        return status;
    }
    conv_view<T> v = conv_of<T>(call);
    const row_view<T> result = v.out;
    turns = turns_pay<T>(p) ? turns : TURNS_NONE;
    const auto turn = [&](row_view<const T> *rows) {
        return tensor_rows(call, p.batches, p.channels, p.steps, rows);
    };
    if (turns == TURNS_ALL) {
        status = turn(&v.x);
        status = status ? status : turn(&v.dy);
        status = status ? status
                        : tensor_results(call, p.batches, p.channels, p.steps, &v.out);
        if (status) {
            return status;
        }
    }
    const row_view<const T> x = v.x;
    const row_view<T> dx = v.out;
    row_view<const T> g = v.dy;
    if (p.silu && p.batches > 0) {
        void *memory = nullptr;
        const int64_t elements = p.batches * p.channels * p.steps;
        status = gpo_scratch(call, elements * sizeof(T), &memory);
        if (status) {
            return status;
        }
        v.out.p = static_cast<T *>(memory); /* g has the layout of dx, without gaps */
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
    lag_view<T> lags = lags_of<T>(call, g);
    lags.x = x;
    if (!status && turns == TURNS_LAGS) {
        status = turn(&lags.x);
        status = status ? status : turn(&lags.g);
    }
    if (!status) {
        status = gradients ? gradients(call, v, lags) : correlate(call, lags);
    }
    if (!status && (p.has_bias || p.taps > p.lags)) {
        status = make_rest(call, lags);
    }
    if (!status && dx.p != result.p) {
        const T *const turned = dx.p;
        status = swap_axes(call, turned, result.p, p.batches, p.channels, p.steps);
    }
    return status;
}

/*
 * All gradients by one launcher: `v` is the forward pass with dx as its result, and g of
 * the other view is dy, before the activation too.
 */
template <typename T>
static gpo_status
run_backward_at_once(gpo_call *call, gradients_launch<T> gradients)
{
    const gpo_status status = conv_check_causality(call);
    if (status || conv_plan_of(call)->channels == 0) {
        return status ? status : check_segments_alone(call);
    }
    const conv_view<T> v = conv_of<T>(call);
    return gradients(call, v, lags_of<T>(call, v.dy));
}

/* ---- rows of the tables ---- */

/* A function for the variant table: one rung for T. */
template <typename T, conv_launch<T> CONV, state_access ACCESS>
static gpo_status
forward(gpo_call *call)
{
    return run_forward<T>(call, CONV, ACCESS);
}

/* The same; GRADIENT computes dw, or dw and dx together. */
template <typename T, conv_launch<T> CONV, auto GRADIENT, row_turns TURNS>
static gpo_status
backward(gpo_call *call)
{
    if constexpr (std::is_same_v<decltype(GRADIENT), gradients_launch<T>>) {
        return run_backward<T>(call, CONV, nullptr, GRADIENT, TURNS);
    }
    else {
        return run_backward<T>(call, CONV, GRADIENT, nullptr, TURNS);
    }
}

template <typename T, gradients_launch<T> GRADIENTS>
static gpo_status
backward_at_once(gpo_call *call)
{
    return run_backward_at_once<T>(call, GRADIENTS);
}

#define FORWARD(conv) FORWARD_WITH(conv, NO_STATE)
#define FORWARD_BEHIND_STATES(conv) FORWARD_WITH(conv, READS_STATE)
#define FORWARD_WITH_STATES(conv) FORWARD_WITH(conv, KEEPS_STATE)
#define FORWARD_WITH(conv, access)            \
    [](auto t) -> gpo_run {                   \
        using T = typename decltype(t)::type; \
        return forward<T, conv<T>, access>;   \
    }
#define BACKWARD(conv, gradient) BACKWARD_TURNED(conv, gradient, TURNS_NONE)
#define BACKWARD_TURNED(conv, gradient, turns)           \
    [](auto t) -> gpo_run {                              \
        using T = typename decltype(t)::type;            \
        return backward<T, conv<T>, gradient<T>, turns>; \
    }
#define BACKWARD_AT_ONCE(gradients)               \
    [](auto t) -> gpo_run {                       \
        using T = typename decltype(t)::type;     \
        return backward_at_once<T, gradients<T>>; \
    }

#endif
