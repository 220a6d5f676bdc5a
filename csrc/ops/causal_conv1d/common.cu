/*
 * common.cu  Kernels that several rungs of causal_conv1d launch beside their own: the
 * gradient of the bias and the zeros of dw, the sum of partial dw, the
 * transposition of (B, T, C) arrays, and copies of rows behind a state.
 */
#include "../../device/block.cuh"
#include "../../device/transpose.cuh"
#include "states.cuh"

/* ---- the gradient of the bias, taps beyond the row's length ---- */

/* A block per channel; each thread adds blocks of at most 64 elements. */
template <typename T>
__global__ void
causal_conv1d_rest_of_channel(lag_view<T> v)
{
    using V = value_type<T>;
    GPO_SHARED(V, slots, [REST_BLOCK / WARP]);
    for (int64_t c = blockIdx.x; c < v.channels; c += gridDim.x) {
        for (int64_t k = threadIdx.x; k < v.taps - v.lags; k += REST_BLOCK) {
            v.dw[c * v.taps + k] = stored_as<T>(V(0));
        }
        if (!v.dbias) {
            continue;
        }
        V total = 0, part = 0;
        int terms = 0;
        for (int64_t b = 0; b < v.batches; b++) {
            const T *g = v.g.row(b, c);
            for (int64_t t = threadIdx.x; t < v.steps; t += REST_BLOCK) {
                part += value_of(g[t * v.g.t]);
                if (++terms == 64) {
                    total += part;
                    part = 0;
                    terms = 0;
                }
            }
        }
        total = block_combine<add, REST_BLOCK>(total + part, slots);
        if (threadIdx.x == 0) {
            v.dbias[c] = stored_as<T>(total);
        }
        __syncthreads();
    }
}

template <typename T>
gpo_status
make_rest(gpo_call *call, const lag_view<T> &v)
{
    return GPO_LAUNCH(call, grid_of(v.channels), REST_BLOCK, 0,
                      (causal_conv1d_rest_of_channel<T>), v);
}

/* ---- partial sums ---- */

/* dw from the partial sums of `groups` groups, added in their order. */
template <typename T>
__global__ void
causal_conv1d_sum_of_groups(lag_view<T> v, int64_t groups)
{
    const int64_t all = v.channels * v.lags;
    const int64_t step = static_cast<int64_t>(gridDim.x) * REST_BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < all; i += step) {
        value_type<T> sum = 0;
        for (int64_t k = 0; k < groups; k++) {
            sum += v.parts[k * all + i];
        }
        v.put(i / v.lags, i % v.lags, sum);
    }
}

template <typename T>
gpo_status
add_parts(gpo_call *call, const lag_view<T> &v, int64_t splits)
{
    if (splits <= 1) {
        return GPO_OK;
    }
    const dim3 grid = grid_of(ceil_div(v.channels * v.lags, REST_BLOCK));
    return GPO_LAUNCH(call, grid, REST_BLOCK, 0, (causal_conv1d_sum_of_groups<T>), v,
                      splits);
}

/* ---- (B, T, C) ---- */

/* to[i, c, r] = from[i, r, c]; a block has one 32 x 32 tile. */
template <typename T>
__global__ void __launch_bounds__(256)
    causal_conv1d_swap_axes(const T *from, T *to, int64_t rows, int64_t cols)
{
    GPO_SHARED(T, tile, [32][33]);
    const int64_t across = (cols + 31) / 32, down = (rows + 31) / 32;
    const int64_t i = blockIdx.x / (across * down), in = blockIdx.x % (across * down);
    const int64_t r0 = in / across * 32, c0 = in % across * 32;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    from += i * rows * cols;
    to += i * rows * cols;
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        if (r0 + y + k < rows && c0 + x < cols) {
            tile[y + k][x] = from[(r0 + y + k) * cols + c0 + x];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        if (c0 + y + k < cols && r0 + x < rows) {
            to[(c0 + y + k) * rows + r0 + x] = tile[x][y + k];
        }
    }
}

template <typename T>
gpo_status
swap_axes(gpo_call *call, const T *from, T *to, int64_t n, int64_t rows, int64_t cols)
{
    constexpr int64_t LARGE = 1 << 17, SIDE = 64; /* elements, of a larger tile */
    if (n * rows * cols >= LARGE && rows >= SIDE && cols >= SIDE) {
        transpose_axes axes = {};
        axes.rows = axes.from_col = cols;
        axes.cols = axes.to_row = rows;
        axes.ndim = 1;
        axes.shape[0] = axes.outer = n;
        axes.from[0] = axes.to[0] = rows * cols;
        return transpose<T>(call, from, to, axes);
    }
    const dim3 grid(static_cast<unsigned>(n * ((rows + 31) / 32) * ((cols + 31) / 32)));
    return GPO_LAUNCH(call, grid, dim3(256), 0, (causal_conv1d_swap_axes<T>), from, to,
                      rows, cols);
}

/* ---- rows behind a state ---- */

/* Neighbouring threads take neighbouring elements of the rows that are written. */
template <typename T>
__global__ void
causal_conv1d_join_rows(joined_rows<T> v, row_view<T> to)
{
    const int64_t all = v.batches * v.channels * v.steps;
    const int64_t step = static_cast<int64_t>(gridDim.x) * REST_BLOCK;
    const bool by_channels = to.t != 1;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < all; i += step) {
        const int64_t inner = by_channels ? v.channels : v.steps;
        const int64_t outer = by_channels ? v.steps : v.channels;
        const int64_t low = i % inner, high = i / inner % outer, b = i / inner / outer;
        const int64_t c = by_channels ? low : high, k = by_channels ? high : low;
        const int64_t t = v.from + k - v.kept;
        T value = stored_as<T>(value_type<T>(0));
        if (t >= 0) {
            value = v.x.row(b, c)[t * v.x.t];
        }
        else if (v.state.p) {
            value = v.state.row(b, c)[(v.kept + t) * v.state.t];
        }
        to.row(b, c)[k * to.t] = value;
    }
}

template <typename T>
gpo_status
join_rows(gpo_call *call, const joined_rows<T> &rows, row_view<T> to)
{
    const int64_t all = rows.batches * rows.channels * rows.steps;
    if (all == 0) {
        return GPO_OK;
    }
    return GPO_LAUNCH(call, grid_of(ceil_div(all, REST_BLOCK)), REST_BLOCK, 0,
                      (causal_conv1d_join_rows<T>), rows, to);
}

#define REST(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const lag_view<T> &);
#define PARTS(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const lag_view<T> &, int64_t);
#define AXES(T, launcher)                                                         \
    template gpo_status launcher<T>(gpo_call *, const T *, T *, int64_t, int64_t, \
                                    int64_t);
#define JOIN(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const joined_rows<T> &, row_view<T>);
GPO_EVERY_FLOAT(JOIN, join_rows)
GPO_EVERY_FLOAT(REST, make_rest)
GPO_EVERY_FLOAT(PARTS, add_parts)
GPO_EVERY_FLOAT(AXES, swap_axes)
