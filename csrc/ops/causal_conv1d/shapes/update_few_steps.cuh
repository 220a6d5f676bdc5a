/*
 * update_few_steps.cuh  At most 16 steps of decoding and 16 taps, any state.  A thread per
 * channel loads x, state, bias and taps before its first product, so that all are under
 * way together.  A block has channels of one row, so that all but the channel is uniform.
 * Usual numbers of steps and taps have kernels of their own, in which steps that are
 * neighbours go in chunks; others test each step and tap.  Rows of 5 to 16 steps without
 * gaps go through shared memory, as neighbouring threads are a row apart.
 * Cost:  reads state, x and w once, writes y and the state.
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_CUH

#include "../update.cuh"
#include "short_filters.cuh"

constexpr int FEW_STEPS = 16, FEW_STEPS_TAPS = 16;
constexpr int FEW_STEPS_BLOCK = 128; /* threads */

/* ---- the work ---- */

/* Strides within a row, which 32 bits hold. */
struct narrow_strides {
    int c, t;
};

struct few_steps_work {
    divider blocks; /* of the channels */
    narrow_strides x, out, state, next, w;
    int bias_c;
    bool has_chunked_taps; /* as many as the kernel has, lag 0 last */
    bool has_staged_state; /* rows through shared memory */
    divider steps, kept;   /* of these rows */
};

/* What a kernel knows of its calls. */
enum few_form {
    AT_MOST, /* so many taps and steps, or fewer */
    EXACTLY, /* so many, and a state of K - 1 steps */
    CHUNKS,  /* and steps of x and y in chunks */
};

/* The results of a channel: `past` counts back from the last step of x, at 0. */
template <int LAGS, int STEPS, typename T>
__device__ __forceinline__ void
add_few_steps(T (&result)[STEPS], const T (&past)[STEPS + LAGS - 1],
              const T (&tap)[LAGS], T add, const conv_view<T> &v, int lags, int steps)
{
    using V = value_type<T>;
    const V offset = static_cast<V>(v.eps) + static_cast<V>(value_of(add));
    V sums[STEPS];
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
    if (v.finish == FINISH_SILU) {
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            sums[j] = silu<T>(sums[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < STEPS; j++) {
        result[j] = stored_as<T>(sums[j]);
    }
}

/* ---- a thread loads and stores what it needs ---- */

/* `past` counts back on into the state. */
template <typename T, int LAGS, int STEPS, few_form FORM>
__global__ void
__launch_bounds__(FEW_STEPS_BLOCK)
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
        const int c =
            static_cast<int>(first) * FEW_STEPS_BLOCK + static_cast<int>(threadIdx.x);
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
        T result[STEPS];
        add_few_steps<LAGS>(result, past, tap, add, u.v, lags, steps);
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

/* ---- rows through shared memory ---- */

constexpr int STAGED_PITCH = FEW_STEPS + 1; /* odd: few lanes share a bank */

/* The elements of a block's rows, which follow one another without gaps. */
template <typename T>
struct staged_rows {
    divider steps; /* of a row, at most FEW_STEPS */
    int all;
    T held[FEW_STEPS];

    __device__ __forceinline__ int place(int i) const
    {
        return i + steps.narrow(i) * (STAGED_PITCH - static_cast<int>(steps.by));
    }

    template <typename Move>
    __device__ __forceinline__ void each(const Move &move)
    {
#pragma unroll
        for (int k = 0; k < FEW_STEPS; k++) {
            const int i = static_cast<int>(threadIdx.x) + k * FEW_STEPS_BLOCK;
            if (i < all) {
                move(i, held[k]);
            }
        }
    }

    __device__ __forceinline__ void load(const T *from)
    {
        each([&](int i, T &element) { element = from[i]; });
    }

    __device__ __forceinline__ void put(T *tile)
    {
        each([&](int i, const T &element) { tile[place(i)] = element; });
    }

    __device__ __forceinline__ void store(T *to, const T *tile)
    {
        each([&](int i, T &) { to[i] = tile[place(i)]; });
    }
};

/* Rows of x and y without gaps, at most LAGS taps; the same for the state, if staged. */
template <typename T, int LAGS>
__global__ void
__launch_bounds__(FEW_STEPS_BLOCK)
    causal_conv1d_update_few_steps_staged(update_view<T> u, few_steps_work work)
{
    constexpr int HELD = FEW_STEPS + LAGS - 1;
    GPO_SHARED(T, steps_tile, [FEW_STEPS_BLOCK * STAGED_PITCH]);
    GPO_SHARED(T, state_tile, [FEW_STEPS_BLOCK * STAGED_PITCH]);
    const int lags = static_cast<int>(u.v.lags), kept = static_cast<int>(u.kept);
    const int steps = static_cast<int>(u.v.steps), tid = static_cast<int>(threadIdx.x);
    const bool staged = work.has_staged_state;
    const int64_t tasks = u.v.batches * work.blocks.by;
    for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
        const int64_t b = work.blocks.of(task), first = task - b * work.blocks.by;
        const int c0 = static_cast<int>(first) * FEW_STEPS_BLOCK, c = c0 + tid;
        const int left = static_cast<int>(u.v.channels) - c0;
        const int here = left < FEW_STEPS_BLOCK ? left : FEW_STEPS_BLOCK;
        staged_rows<T> moved = {work.steps, here * steps, {}};
        staged_rows<T> states = {work.kept, here * kept, {}};
        moved.load(u.v.x.p + b * u.v.x.b + c0 * work.x.c);
        T past[HELD] = {}, tap[LAGS] = {}, add = stored_as<T>(value_type<T>(0));
        if (tid < here) {
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (s < lags) {
                    tap[s] = u.v.w[c * work.w.c + s * work.w.t];
                }
            }
            if (u.v.bias) {
                add = u.v.bias[c * work.bias_c];
            }
        }
        const int64_t row = u.row_of(b);
        if (row < 0) { /* of all threads */
            u.note(b);
            continue;
        }
        const T *state = u.state.p + row * u.state.b + c0 * work.state.c;
        T *next = u.next.p + row * u.next.b + c0 * work.next.c;
        if (staged) {
            states.load(state);
            states.put(state_tile);
        }
        moved.put(steps_tile);
        __syncthreads();
        if (tid < here) {
            T *const own = steps_tile + tid * STAGED_PITCH;
            T *const own_state = state_tile + tid * STAGED_PITCH;
            const T *const old = staged ? own_state : state + tid * work.state.c;
            T *const later = staged ? own_state : next + tid * work.next.c;
            const int old_t = staged ? 1 : work.state.t;
            const int later_t = staged ? 1 : work.next.t;
            const int reach = lags - 1 > kept - steps ? lags - 1 : kept - steps;
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                const int back = j - steps; /* in the state */
                if (back < 0) {
                    past[j] = own[-1 - back];
                }
                else if (back < reach) {
                    past[j] = old[(kept - 1 - back) * old_t];
                }
            }
            T result[FEW_STEPS];
            add_few_steps<LAGS>(result, past, tap, add, u.v, lags, steps);
#pragma unroll
            for (int j = 0; j < FEW_STEPS; j++) {
                if (j < steps) {
                    own[steps - 1 - j] = result[j];
                }
            }
#pragma unroll 1
            for (int k = 0; k < kept - HELD; k++) { /* ascending, as in v0 */
                later[k * later_t] = old[(k + steps) * old_t];
            }
#pragma unroll
            for (int j = 0; j < HELD; j++) {
                if (j < kept) {
                    later[(kept - 1 - j) * later_t] = past[j];
                }
            }
        }
        __syncthreads();
        moved.store(u.v.out.p + b * u.v.out.b + c0 * work.out.c, steps_tile);
        if (staged) {
            states.store(next, state_tile);
        }
        __syncthreads(); /* the tiles have been read */
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

template <int LAGS, typename T>
static few_steps_work
few_steps_work_of(const update_view<T> &u)
{
    const row_view<const T> taps = {u.v.w - (LAGS - 1), 0, u.v.w_c, -u.v.w_s};
    few_steps_work work = {};
    work.blocks = divider_of(ceil_div(u.v.channels, FEW_STEPS_BLOCK));
    work.x = narrow(u.v.x);
    work.out = narrow(u.v.out);
    work.state = narrow(u.state);
    work.next = narrow(u.next);
    work.w = {static_cast<int>(u.v.w_c), static_cast<int>(u.v.w_s)};
    work.bias_c = static_cast<int>(u.v.bias_c);
    work.has_chunked_taps = u.v.lags == LAGS && has_chunked_steps<LAGS>(taps);
    return work;
}

template <typename T, int LAGS, int STEPS, few_form FORM>
static gpo_status
launch_few_steps(gpo_call *call, const update_view<T> &u)
{
    const few_steps_work work = few_steps_work_of<LAGS>(u);
    return GPO_LAUNCH(call, grid_of(u.v.batches * work.blocks.by), FEW_STEPS_BLOCK, 0,
                      (causal_conv1d_update_few_steps<T, LAGS, STEPS, FORM>), u, work);
}

/* Whether rows of n steps, 5 to FEW_STEPS, follow one another. */
template <typename T>
static bool
goes_staged(const row_view<T> &rows, int64_t n)
{
    return n > 4 && n <= FEW_STEPS && rows.t == 1 && rows.c == n;
}

template <typename T, int LAGS>
static gpo_status
launch_staged_steps(gpo_call *call, const update_view<T> &u)
{
    few_steps_work work = few_steps_work_of<LAGS>(u);
    work.has_staged_state = goes_staged(u.state, u.kept) && goes_staged(u.next, u.kept);
    work.steps = divider_of(u.v.steps);
    work.kept = divider_of(work.has_staged_state ? u.kept : 1);
    return GPO_LAUNCH(call, grid_of(u.v.batches * work.blocks.by), FEW_STEPS_BLOCK, 0,
                      (causal_conv1d_update_few_steps_staged<T, LAGS>), u, work);
}

/* The kernel that is compiled for the sizes of a call, if it is one of these. */
template <typename T, int LAGS, int STEPS>
static bool
launch_exactly(gpo_call *call, const update_view<T> &u, gpo_status *status)
{
    if (u.v.lags != LAGS || u.kept != LAGS - 1 || u.v.steps != STEPS) {
        return false;
    }
    if (has_chunked_steps<STEPS>(u.v.x) && has_chunked_steps<STEPS>(u.v.out)) {
        *status = launch_few_steps<T, LAGS, STEPS, CHUNKS>(call, u);
        return true;
    }
    if constexpr (LAGS == 4 && (STEPS == 2 || STEPS == 4)) {
        *status = launch_few_steps<T, LAGS, STEPS, EXACTLY>(call, u);
        return true;
    }
    return false;
}

template <typename T, int LAGS>
static bool
launch_exact_taps(gpo_call *call, const update_view<T> &u, gpo_status *status)
{
    return launch_exactly<T, LAGS, 1>(call, u, status) ||
           launch_exactly<T, LAGS, 2>(call, u, status) ||
           launch_exactly<T, LAGS, 4>(call, u, status);
}

template <typename T>
static gpo_status
update_few_steps(gpo_call *call, const update_view<T> &u)
{
    gpo_status status = GPO_OK;
    if constexpr (sizeof(T) < 8) {
        if (launch_exact_taps<T, 2>(call, u, &status) ||
            launch_exact_taps<T, 3>(call, u, &status) ||
            launch_exact_taps<T, 4>(call, u, &status) ||
            launch_exactly<T, 4, 8>(call, u, &status) ||
            launch_exactly<T, 4, 16>(call, u, &status) ||
            launch_exactly<T, 8, 1>(call, u, &status) ||
            launch_exactly<T, 8, 4>(call, u, &status)) {
            return status;
        }
        if (goes_staged(u.v.x, u.v.steps) && goes_staged(u.v.out, u.v.steps)) {
            return u.v.lags <= 4 ? launch_staged_steps<T, 4>(call, u)
                                 : launch_staged_steps<T, FEW_STEPS_TAPS>(call, u);
        }
    }
    if (u.v.steps <= 4 && u.v.lags <= 8) {
        return u.v.lags <= 4 ? launch_few_steps<T, 4, 4, AT_MOST>(call, u)
                             : launch_few_steps<T, 8, 4, AT_MOST>(call, u);
    }
    return u.v.lags <= 4
               ? launch_few_steps<T, 4, FEW_STEPS, AT_MOST>(call, u)
               : launch_few_steps<T, FEW_STEPS_TAPS, FEW_STEPS, AT_MOST>(call, u);
}

#endif
