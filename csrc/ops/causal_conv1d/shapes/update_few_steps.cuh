/*
 * update_few_steps.cuh  At most 16 steps of decoding and 16 taps, any state.  A thread per
 * channel loads x, state, bias and taps before its first product, so that all are under
 * way together.  A block has channels of one row, so that all but the channel is uniform.
 * Usual numbers of steps and taps have kernels of their own, in which steps that are
 * neighbours go in chunks; others test each step and tap.
 * Cost:  reads state, x and w once, writes y and the state.
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_CUH

#include "../update.cuh"
#include "short_filters.cuh"

constexpr int FEW_STEPS = 16, FEW_STEPS_TAPS = 16;
constexpr int FEW_STEPS_BLOCK = 64, FEW_STEPS_MOST = 128; /* threads */

/* ---- the kernel ---- */

/* Strides within a row, which 32 bits hold. */
struct narrow_strides {
    int c, t;
};

struct few_steps_work {
    divider blocks; /* of the channels */
    narrow_strides x, out, state, next, w;
    int bias_c;
    bool has_chunked_taps; /* as many as the kernel has, lag 0 last */
};

/* What a kernel knows of its calls. */
enum few_form {
    AT_MOST, /* so many taps and steps, or fewer */
    EXACTLY, /* so many, and a state of K - 1 steps */
    CHUNKS,  /* and steps of x and y in chunks */
};

/* `past` counts back from the last step of x, at 0, on into the state. */
template <typename T, int LAGS, int STEPS, few_form FORM>
__global__ void
__launch_bounds__(FEW_STEPS_MOST)
    causal_conv1d_update_few_steps(update_view<T> u, few_steps_work work)
{
    using V = value_type<T>;
    constexpr bool IS_EXACT = FORM != AT_MOST, IS_CHUNKED = FORM == CHUNKS;
    constexpr int HELD = STEPS + LAGS - 1;
    const int lags = IS_EXACT ? LAGS : static_cast<int>(u.v.lags);
    const int steps = IS_EXACT ? STEPS : static_cast<int>(u.v.steps);
    const int kept = IS_EXACT ? LAGS - 1 : static_cast<int>(u.kept);
    const int64_t tasks = u.v.batches * work.blocks.by;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t b = work.blocks.of(task), first = task - b * work.blocks.by;
        const int c = static_cast<int>(first) * static_cast<int>(blockDim.x) +
                      static_cast<int>(threadIdx.x);
        if (c >= static_cast<int>(u.v.channels)) {
            continue;
        }
        const T *const x = u.v.x.p + b * u.v.x.b + c * work.x.c;
        T past[HELD] = {}, tap[LAGS] = {};
        chunked<T, STEPS> newest;
        if constexpr (IS_CHUNKED) {
            newest.load(x);
        }
        else {
#pragma unroll
            for (int j = 0; j < STEPS; j++) {
                if (j < steps) {
                    past[j] = x[(steps - 1 - j) * work.x.t];
                }
            }
        }
        const T *const w = u.v.w + c * work.w.c;
        chunked<T, LAGS> taps;
        if (work.has_chunked_taps) {
            taps.load(w - (LAGS - 1));
        }
        else {
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (s < lags) {
                    tap[s] = w[s * work.w.t];
                }
            }
        }
        T add = stored_as<T>(V(0));
        if (u.v.bias) {
            add = u.v.bias[c * work.bias_c];
        }
        const int64_t row = u.row_of(b);
        if (row < 0) {
            u.note(b);
            continue;
        }
        const T *const state = u.state.p + row * u.state.b + c * work.state.c;
        const int reach = lags - 1 > kept - steps ? lags - 1 : kept - steps;
#pragma unroll
        for (int j = IS_EXACT ? STEPS : 0; j < HELD; j++) {
            const int back = j - steps; /* in the state */
            if (IS_EXACT || (back >= 0 && back < reach)) {
                past[j] = state[(kept - 1 - back) * work.state.t];
            }
        }
        if constexpr (IS_CHUNKED) {
            newest.put_turned(past);
        }
        if (work.has_chunked_taps) {
            taps.put_turned(tap);
        }
        const V offset = static_cast<V>(u.v.eps) + static_cast<V>(value_of(add));
        V sums[STEPS];
        T result[STEPS];
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            V sum = 0;
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (s < lags && j < steps) {
                    sum += static_cast<V>(value_of(tap[s])) *
                           static_cast<V>(value_of(past[j + s]));
                }
            }
            sums[j] = sum + offset;
        }
        if (u.v.finish == FINISH_SILU) {
#pragma unroll
            for (int j = 0; j < STEPS; j++) {
                sums[j] = silu<T>(sums[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            result[j] = stored_as<T>(sums[j]);
        }
        T *const out = u.v.out.p + b * u.v.out.b + c * work.out.c;
        if constexpr (IS_CHUNKED) {
            newest.set_turned(result);
            newest.store(out);
        }
        else {
#pragma unroll
            for (int j = 0; j < STEPS; j++) {
                if (j < steps) {
                    out[(steps - 1 - j) * work.out.t] = result[j];
                }
            }
        }
        T *const next = u.next.p + row * u.next.b + c * work.next.c;
#pragma unroll 1
        for (int k = 0; k < kept - HELD; k++) { /* ascending, as in v0 */
            next[k * work.next.t] = state[(k + steps) * work.state.t];
        }
#pragma unroll
        for (int j = 0; j < (IS_EXACT ? LAGS - 1 : HELD); j++) {
            if (j < kept) {
                next[(kept - 1 - j) * work.next.t] = past[j];
            }
        }
    }
}

/* ---- launches ---- */

constexpr int64_t MOST_NARROW = int64_t{1} << 29;

/* Whether 32 bits hold the places of n steps of the channels. */
inline bool
has_narrow_strides(const update_plan &p, int64_t c, int64_t t, int64_t n)
{
    return llabs(c) <= MOST_NARROW / p.channels && llabs(t) <= MOST_NARROW / (n + 1);
}

inline bool
takes_few_steps(const gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    if (p.steps < 1 || p.steps > FEW_STEPS || p.taps > FEW_STEPS_TAPS) {
        return false;
    }
    const int64_t held = p.kept + p.steps;
    if (p.channels > MOST_NARROW || p.kept > MOST_NARROW) {
        return false;
    }
    return p.channels == 0 || (has_narrow_strides(p, p.x.c, p.x.t, p.steps) &&
                               has_narrow_strides(p, p.y.c, p.y.t, p.steps) &&
                               has_narrow_strides(p, p.state.c, p.state.t, held) &&
                               has_narrow_strides(p, p.next.c, p.next.t, held) &&
                               has_narrow_strides(p, p.w_c, p.w_k, p.taps) &&
                               has_narrow_strides(p, p.bias_c, 0, 1));
}

template <typename T>
narrow_strides
narrow(const row_view<T> &rows)
{
    return {static_cast<int>(rows.c), static_cast<int>(rows.t)};
}

template <typename T, int LAGS, int STEPS, few_form FORM>
static gpo_status
launch_few_steps(gpo_call *call, const update_view<T> &u, int block)
{
    const row_view<const T> taps = {u.v.w - (LAGS - 1), 0, u.v.w_c, -u.v.w_s};
    few_steps_work work = {};
    work.blocks = divider_of(ceil_div(u.v.channels, block));
    work.x = narrow(u.v.x);
    work.out = narrow(u.v.out);
    work.state = narrow(u.state);
    work.next = narrow(u.next);
    work.w = {static_cast<int>(u.v.w_c), static_cast<int>(u.v.w_s)};
    work.bias_c = static_cast<int>(u.v.bias_c);
    work.has_chunked_taps = u.v.lags == LAGS && has_chunked_steps<LAGS>(taps);
    return GPO_LAUNCH(call, grid_of(u.v.batches * work.blocks.by), block, 0,
                      (causal_conv1d_update_few_steps<T, LAGS, STEPS, FORM>), u, work);
}

/* The kernel that is compiled for the sizes of a call, if it is one of these. */
template <typename T, int LAGS, int STEPS>
static bool
launch_exactly(gpo_call *call, const update_view<T> &u, int block, gpo_status *status)
{
    if (u.v.lags != LAGS || u.kept != LAGS - 1 || u.v.steps != STEPS) {
        return false;
    }
    if (has_chunked_steps<STEPS>(u.v.x) && has_chunked_steps<STEPS>(u.v.out)) {
        *status = launch_few_steps<T, LAGS, STEPS, CHUNKS>(call, u, block);
        return true;
    }
    if constexpr (LAGS == 4 && (STEPS == 2 || STEPS == 4)) {
        *status = launch_few_steps<T, LAGS, STEPS, EXACTLY>(call, u, block);
        return true;
    }
    return false;
}

template <typename T, int LAGS>
static bool
launch_exact_taps(gpo_call *call, const update_view<T> &u, int block,
                  gpo_status *status)
{
    return launch_exactly<T, LAGS, 1>(call, u, block, status) ||
           launch_exactly<T, LAGS, 2>(call, u, block, status) ||
           launch_exactly<T, LAGS, 4>(call, u, block, status);
}

template <typename T>
static gpo_status
update_in_blocks(gpo_call *call, const update_view<T> &u, int block)
{
    gpo_status status = GPO_OK;
    if constexpr (sizeof(T) < 8) {
        if (launch_exact_taps<T, 2>(call, u, block, &status) ||
            launch_exact_taps<T, 3>(call, u, block, &status) ||
            launch_exact_taps<T, 4>(call, u, block, &status) ||
            launch_exactly<T, 4, 8>(call, u, block, &status) ||
            launch_exactly<T, 8, 1>(call, u, block, &status) ||
            launch_exactly<T, 8, 4>(call, u, block, &status)) {
            return status;
        }
    }
    if (u.v.steps <= 4 && u.v.lags <= 8) {
        return u.v.lags <= 4 ? launch_few_steps<T, 4, 4, AT_MOST>(call, u, block)
                             : launch_few_steps<T, 8, 4, AT_MOST>(call, u, block);
    }
    return u.v.lags <= 4 ? launch_few_steps<T, 4, FEW_STEPS, AT_MOST>(call, u, block)
                         : launch_few_steps<T, FEW_STEPS_TAPS, FEW_STEPS, AT_MOST>(
                               call, u, block);
}

template <typename T>
static gpo_status
update_few_steps(gpo_call *call, const update_view<T> &u)
{
    return update_in_blocks(call, u, FEW_STEPS_BLOCK);
}

#endif
