/*
 * backward_one_block.cu  The gradients of small calls and filters of at most SHORT taps: a
 * block has all rows of a channel in shared memory, so dw and dbias need no parts, and the
 * call is one launch of short code.
 * Cost:  reads x and dy once, element by element, and writes dx once.
 */
#include "few_taps.cuh"

struct block_work {
    divider steps; /* of a row */
    int elements;  /* of a channel */
};

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

/* The elements of a channel, several of a thread at once. */
template <typename T, typename V>
__device__ __forceinline__ void
stage_channel(V *x, V *g, const conv_view<T> &v, int64_t c, const block_work &work)
{
    constexpr int AT_ONCE = 4;
    const int block = static_cast<int>(blockDim.x), steps = static_cast<int>(v.steps);
    for (int first = threadIdx.x; first < work.elements; first += AT_ONCE * block) {
        T got[2][AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * block;
            if (i < work.elements) {
                const int b = work.steps.narrow(i), t = i - b * steps;
                got[0][k] = v.x.row(b, c)[t * v.x.t];
                got[1][k] = v.dy.row(b, c)[t * v.dy.t];
            }
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * block;
            if (i < work.elements) {
                x[i] = value_of(got[0][k]);
                g[i] = value_of(got[1][k]);
            }
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(MOST_OF_ONE_BLOCK)
    causal_conv1d_backward_one_block(conv_view<T> v, lag_view<T> to, block_work work)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(V, x);
    GPO_SHARED(V, tap, [SHORT]);
    V *const g = x + work.elements;
    const int block = static_cast<int>(blockDim.x), steps = static_cast<int>(v.steps);
    const int lags = static_cast<int>(v.lags), taps = static_cast<int>(to.taps);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int64_t c = blockIdx.x; c < v.channels; c += gridDim.x) {
        if (static_cast<int>(threadIdx.x) < lags) {
            tap[threadIdx.x] = v.w_at(c, threadIdx.x);
        }
        stage_channel(x, g, v, c, work);
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
        for (int i = threadIdx.x; i < work.elements; i += block) {
            const int b = work.steps.narrow(i), t = i - b * steps, left = steps - t;
            const V sum = add_taps(V(0), tap, g + i, 1, left < lags ? left : lags);
            v.out.row(b, c)[t * v.out.t] = stored_as<T>(sum);
        }
        for (int s = warp; s <= lags; s += block / WARP) {
            const int ahead = s < lags ? s : 0;
            V sum = 0;
#pragma unroll 4
            for (int i = lane; i < work.elements; i += WARP) {
                const int t = i - work.steps.narrow(i) * steps;
                if (t + ahead < steps) {
                    sum += s < lags ? x[i] * g[i + ahead] : g[i];
                }
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
    const block_work work = {divider_of(v.steps), static_cast<int>(elements)};
    const int block = elements <= 512    ? 128
                      : elements <= 2048 ? 256
                                         : MOST_OF_ONE_BLOCK;
    const size_t shared = 2 * elements * sizeof(V);
    return GPO_LAUNCH(call, grid_of(v.channels), block, shared,
                      (causal_conv1d_backward_one_block<T>), v, lags, work);
}

GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_one_block)
