/*
 * backward_one_block.cu  The gradients of small calls and filters of at most
 * LAGS_OF_ONE_BLOCK lags: a block has all rows of a channel in shared memory, so dw and
 * dbias need no parts, and the call is one launch of short code.
 * Cost:  reads x and dy once, element by element, and writes dx once.
 */
#include "one_channel.cuh"

/* sum + the products of lags with values of a row; `at` is step t, `step` 1 or -1. */
template <typename V>
__device__ __forceinline__ V
add_taps(V sum, const V *tap, const V *at, int step, int terms)
{
#pragma unroll 4
    for (int s = 0; s < terms; s++) {
        sum += tap[s] * at[s * step];
    }
    return sum;
}

/* A lane's products of lag s; its steps go around in each row. */
template <typename V>
__device__ __forceinline__ V
add_lag(const V *x, const V *g, int s, const channel_work &work, int steps)
{
    const int lane = threadIdx.x % WARP, turn = WARP - work.steps.narrow(WARP) * steps;
    int t = lane - work.steps.narrow(lane) * steps;
    V sum = 0;
#pragma unroll 4
    for (int i = lane; i < work.elements; i += WARP) {
        if (t + s < steps) {
            sum += x[i] * g[i + s];
        }
        t += turn;
        t -= t >= steps ? steps : 0;
    }
    return sum;
}

template <typename T>
__global__ void
__launch_bounds__(MOST_OF_ONE_BLOCK)
    causal_conv1d_backward_one_block(conv_view<T> v, lag_view<T> to, channel_work work)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(V, x);
    GPO_SHARED(V, tap, [LAGS_OF_ONE_BLOCK]);
    V *const g = x + work.elements;
    const int block = static_cast<int>(blockDim.x), steps = static_cast<int>(v.steps);
    const int lags = static_cast<int>(v.lags), taps = static_cast<int>(to.taps);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int64_t c = blockIdx.x; c < v.channels; c += gridDim.x) {
        const bool has_tap = static_cast<int>(threadIdx.x) < lags;
        const V own = has_tap ? v.w_at(c, threadIdx.x) : V(0);
        stage_channel(x, g, v, c, work, 0, work.elements);
        if (has_tap) {
            tap[threadIdx.x] = own;
        }
        __syncthreads();
        if (v.finish == FINISH_SILU) {
            const V offset = v.offset(c);
            for (int i = threadIdx.x; i < work.elements; i += block) {
                const int t = i - work.steps.narrow(i) * steps;
                const V sum =
                    add_taps(offset, tap, x + i, -1, t + 1 < lags ? t + 1 : lags);
                g[i] *= silu_slope<T>(sum);
            }
            __syncthreads();
        }
        T *const dx = v.out.row(0, c);
        for (int i = threadIdx.x; i < work.elements; i += block) {
            const int b = work.steps.narrow(i), t = i - b * steps, left = steps - t;
            const V sum = add_taps(V(0), tap, g + i, 1, left < lags ? left : lags);
            dx[b * work.out.b + t * work.out.t] = stored_as<T>(sum);
        }
        for (int s = warp; s <= lags; s += block / WARP) {
            V sum = s < lags ? add_lag(x, g, s, work, steps) : V(0);
            for (int i = lane; s == lags && i < work.elements; i += WARP) {
                sum += g[i];
            }
            sum = warp_combine<add>(sum);
            if (lane == 0) {
                put_short_part(to, 1, 0, c, s, sum);
            }
        }
        for (int k = threadIdx.x; k < taps - lags; k += block) {
            to.dw[c * to.taps + k] = stored_as<T>(V(0));
        }
        __syncthreads(); /* all has been read */
    }
}

template <typename T>
gpo_status
gradients_one_block(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    using V = value_type<T>;
    const int64_t elements = v.batches * v.steps;
    if (elements == 0) {
        return add_short_parts(call, lags, 0);
    }
    channel_work work = {};
    if (!plan_channel(&work, v)) {
        return v.lags <= SHORT ? gradients_short_filters(call, v, lags)
                               : gradients_by_segment(call, v, lags);
    }
    static_assert(LAGS_OF_ONE_BLOCK <= 128, "a thread for each tap");
    const int block = elements <= 512    ? 128
                      : elements <= 2048 ? 256
                                         : MOST_OF_ONE_BLOCK;
    const size_t shared = 2 * elements * sizeof(V);
    return GPO_LAUNCH(call, grid_of(v.channels), block, shared,
                      (causal_conv1d_backward_one_block<T>), v, lags, work);
}

GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_one_block)
