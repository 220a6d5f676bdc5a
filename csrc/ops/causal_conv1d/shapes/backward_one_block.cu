/*
 * backward_one_block.cu  The gradients of small calls and filters of at most SHORT taps: a
 * block has all rows of a channel in shared memory, so dw and dbias need no parts, and the
 * call is one launch of short code.
 * Cost:  reads x and dy once, element by element, and writes dx once.
 */
#include "few_taps.cuh"

/* Strides of rows, which fit into 32 bits with all steps. */
struct block_strides {
    int b, t;
};

struct block_work {
    divider steps; /* of a row */
    int elements;  /* of a channel */
    block_strides x, dy, out;
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
    const T *const from_x = v.x.row(0, c), *const from_dy = v.dy.row(0, c);
    for (int first = threadIdx.x; first < work.elements; first += AT_ONCE * block) {
        T got[2][AT_ONCE] = {};
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const int i = first + k * block;
            if (i < work.elements) {
                const int b = work.steps.narrow(i), t = i - b * steps;
                got[0][k] = from_x[b * work.x.b + t * work.x.t];
                got[1][k] = from_dy[b * work.dy.b + t * work.dy.t];
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

/* A lane's products of lag s; its steps go around in each row. */
template <typename V>
__device__ __forceinline__ V
add_lag(const V *x, const V *g, int s, const block_work &work, int steps)
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
        const bool has_tap = static_cast<int>(threadIdx.x) < lags;
        const V own = has_tap ? v.w_at(c, threadIdx.x) : V(0);
        stage_channel(x, g, v, c, work);
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

/* The strides of rows, if all offsets from the first step fit into 32 bits. */
template <typename T>
static bool
narrow_strides(block_strides *to, const row_view<T> &rows, int64_t batches,
               int64_t steps)
{
    const int64_t b = rows.b < 0 ? -rows.b : rows.b, t = rows.t < 0 ? -rows.t : rows.t;
    *to = {static_cast<int>(rows.b), static_cast<int>(rows.t)};
    return b <= INT32_MAX / 2 / batches && t <= INT32_MAX / 2 / steps;
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
    block_work work = {};
    work.steps = divider_of(v.steps);
    work.elements = static_cast<int>(elements);
    const bool is_narrow = narrow_strides(&work.x, v.x, v.batches, v.steps) &&
                           narrow_strides(&work.dy, v.dy, v.batches, v.steps) &&
                           narrow_strides(&work.out, v.out, v.batches, v.steps);
    if (!is_narrow) {
        return gradients_short_filters(call, v, lags);
    }
    const int block = elements <= 512    ? 128
                      : elements <= 2048 ? 256
                                         : MOST_OF_ONE_BLOCK;
    const size_t shared = 2 * elements * sizeof(V);
    return GPO_LAUNCH(call, grid_of(v.channels), block, shared,
                      (causal_conv1d_backward_one_block<T>), v, lags, work);
}

GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_one_block)
