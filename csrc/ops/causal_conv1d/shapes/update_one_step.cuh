/*
 * update_one_step.cuh  One step of decoding: a state of K - 1 steps, at most 8 taps.  A
 * thread per channel loads state, x and taps before its first product, so that all are
 * under way together, and adds in the order of v0.
 * Cost:  reads state, x and w once, writes y and the state.
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_ONE_STEP_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_ONE_STEP_CUH

#include "../../../device/divide.cuh"
#include "../update.cuh"

constexpr int ONE_STEP_TAPS = 8;

/* LAGS: at least as many as the filter has. */
template <typename T, int LAGS>
__global__ void
__launch_bounds__(UPDATE_BLOCK)
    causal_conv1d_update_one_step(update_view<T> u, divider channels)
{
    using V = value_type<T>;
    const int64_t all = u.v.batches * u.v.channels;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * UPDATE_BLOCK;
    const int lags = static_cast<int>(u.v.lags);
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * UPDATE_BLOCK + threadIdx.x;
         i < all; i += stride) {
        const int64_t b = channels.of(i), c = i - b * channels.by;
        const int64_t row = u.row_of(b);
        T step[LAGS] = {}; /* the step s before this one, which is step 0 */
        V tap[LAGS] = {};
        step[0] = *u.v.x.row(b, c);
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s < lags) {
                tap[s] = u.v.w_at(c, s);
            }
        }
        if (row < 0) {
            u.note(b);
            continue;
        }
        const T *const state = u.state.row(row, c);
#pragma unroll
        for (int s = 1; s < LAGS; s++) {
            if (s < lags) {
                step[s] = state[(lags - 1 - s) * u.state.t];
            }
        }
        V sum = 0;
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s < lags) {
                sum += tap[s] * static_cast<V>(value_of(step[s]));
            }
        }
        u.v.put(b, c, 0, sum);
        T *const next = u.next.row(row, c);
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s < lags - 1) {
                next[(lags - 2 - s) * u.next.t] = step[s];
            }
        }
    }
}

/* Whether a call is one step whose state has no steps that the filter does not reach. */
inline bool
takes_one_step(const gpo_call *call)
{
    const update_plan &p = *update_plan_of(call);
    return p.steps == 1 && p.taps <= ONE_STEP_TAPS && p.kept == p.taps - 1;
}

template <typename T>
static gpo_status
update_one_step(gpo_call *call, const update_view<T> &u)
{
    const dim3 grid = grid_of(ceil_div(u.v.batches * u.v.channels, UPDATE_BLOCK));
    const divider channels = divider_of(u.v.channels);
    return u.v.lags <= 4
               ? GPO_LAUNCH(call, grid, UPDATE_BLOCK, 0,
                            (causal_conv1d_update_one_step<T, 4>), u, channels)
               : GPO_LAUNCH(call, grid, UPDATE_BLOCK, 0,
                            (causal_conv1d_update_one_step<T, ONE_STEP_TAPS>), u,
                            channels);
}

#endif
