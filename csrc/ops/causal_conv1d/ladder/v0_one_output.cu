/*
 * v0  One output per thread.
 * Now:   a thread sums the terms of one output element or, for the gradient, of one lag
 *        over the whole batch; every operand comes from global memory.
 * Cost:  two loads per product; L1 serves most of them.
 * Left:  neighbouring threads load the same rows again and again -> v1.
 */
#include "../rows.cuh"

template <typename T>
__global__ void
causal_conv1d_v0_one_output(conv_view<T> v)
{
    const int64_t all = v.batches * v.channels * v.steps;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < all;
         k += step) {
        const int64_t t = k % v.steps, row = k / v.steps;
        const int64_t b = row / v.channels, c = row % v.channels;
        v.put(b, c, t, direct_step<4>(v, v.x.row(b, c), v.x.t, c, t));
    }
}

template <typename T>
__global__ void
causal_conv1d_backward_v0_one_output(lag_view<T> v)
{
    const int64_t all = v.channels * v.lags;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < all;
         k += step) {
        const int64_t s = k % v.lags, c = k / v.lags;
        v.put(c, s, direct_lag<4>(v, 0, v.batches, c, s));
    }
}

template <typename T>
gpo_status
conv_v0(gpo_call *call, const conv_view<T> &v)
{
    const dim3 grid = grid_of(ceil_div(v.batches * v.channels * v.steps, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (causal_conv1d_v0_one_output<T>), v);
}

template <typename T>
gpo_status
lag_v0(gpo_call *call, const lag_view<T> &v)
{
    const dim3 grid = grid_of(ceil_div(v.channels * v.lags, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (causal_conv1d_backward_v0_one_output<T>),
                      v);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_v0)
GPO_EVERY_FLOAT(GPO_LAG_OF, lag_v0)
