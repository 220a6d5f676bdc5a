/*
 * few_batches.cu  Products too small to fill the GPU with tiles of 64 by 64: a block
 * has 4 outputs of 4 batches, and its threads share the depth.  The means come from a
 * kernel before it, or where x is small from x itself.
 * Cost:  reads the matrix and the means N / 4 and L2 / 4 times, from L2; x once, or
 *        L2 / 4 times where it is small, in one launch.
 */
#include "../short_rows.cuh"
#include "../walk.cuh"

#include <math.h>

/* ---- means ---- */

/* As v4's, with the ends of rows loaded early. */
template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_few_batches_means(mean_matvec_view<T> v, row_walk walk, int64_t items)
{
    for (int64_t k = blockIdx.x; k < items; k += gridDim.x) {
        stream_item<T, true>(v, walk, k / walk.streams,
                             static_cast<unsigned>(k % walk.streams));
    }
}

/* A block per row, where rows are few and long. */
template <typename T>
__global__ void
__launch_bounds__(THREADS)
    mean_matvec_few_batches_long_rows(mean_matvec_view<T> v, int64_t rows)
{
    using V = value_type<T>;
    constexpr int WARPS = THREADS / WARP;
    GPO_SHARED(V, parts, [WARPS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t batch = row / v.rows;
        const T *x = v.x + batch * v.x_batch + (row - batch * v.rows) * v.x_row;
        row_sum<V> sum;
#pragma unroll 8
        for (int64_t m = threadIdx.x; m < v.cols; m += THREADS) {
            sum.add(value_of(x[m * v.x_col]));
        }
        const V part = sum_lanes(sum.value(), WARP);
        if (lane == 0) {
            parts[warp] = part;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            V total = 0;
            for (int k = 0; k < WARPS; k++) {
                total += parts[k];
            }
            v.means[row] = total / static_cast<V>(v.cols);
        }
        __syncthreads();
    }
}

/* ---- the product ---- */

constexpr int FEW_SUMS = FEW_OUTPUTS * FEW_BATCHES;
static_assert(FEW_SUMS == WARP / 2, "two lanes for each sum of a tile");

/* Lanes 2 * HALF apart each give the half of their 2 * HALF values that they drop. */
template <int HALF, typename V>
__device__ __forceinline__ void
halve(V (&v)[FEW_SUMS], int lane)
{
    const bool upper = lane & 2 * HALF;
#pragma unroll
    for (int j = 0; j < HALF; j++) {
        const V kept = upper ? v[j + HALF] : v[j];
        const V given = upper ? v[j] : v[j + HALF];
        v[j] = kept + __shfl_xor_sync(ALL_LANES, given, 2 * HALF);
    }
}

/* The sums over a warp of its lanes' values: lane k gets that of value k / 2. */
template <typename V>
__device__ __forceinline__ V
sum_of_each(V (&v)[FEW_SUMS], int lane)
{
    halve<8>(v, lane); /* not a loop, which would put the values into local memory */
    halve<4>(v, lane);
    halve<2>(v, lane);
    halve<1>(v, lane);
    return v[0] + __shfl_xor_sync(ALL_LANES, v[0], 1);
}

/* Means l of some batches from x, several elements of each in flight at once. */
template <typename T>
__device__ __forceinline__ void
means_of(const mean_matvec_view<T> &v, int64_t batch, int batches, int64_t l,
         value_type<T> (&mean)[FEW_BATCHES])
{
    using V = value_type<T>;
    constexpr int AT_ONCE = sizeof(T) == 2 ? 4 : 8;
    const T *const x = v.x + batch * v.x_batch + l * v.x_row;
    const int cols = static_cast<int>(v.cols);
    row_sum<V> sum[FEW_BATCHES];
#pragma unroll 1
    for (int m = 0; m < cols; m += AT_ONCE) {
        V loaded[FEW_BATCHES][AT_ONCE] = {};
#pragma unroll
        for (int n = 0; n < FEW_BATCHES; n++) {
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (n < batches && m + k < cols) {
                    loaded[n][k] = value_of(x[n * v.x_batch + (m + k) * v.x_col]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < FEW_BATCHES; n++) {
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                sum[n].add(loaded[n][k]);
            }
        }
    }
#pragma unroll
    for (int n = 0; n < FEW_BATCHES; n++) {
        mean[n] = sum[n].value() / static_cast<V>(v.cols);
    }
}

/* FROM_X: the means are computed here, of at most FEW_COLS elements, a lane each. */
template <typename T, bool FROM_X, int MOST_WARPS>
__global__ void
__launch_bounds__(MOST_WARPS *WARP)
    mean_matvec_few_batches_product(mean_matvec_view<T> v, int64_t across,
                                    int64_t tiles, int warps)
{
    using V = value_type<T>;
    GPO_SHARED(V, parts, [MOST_WARPS][FEW_SUMS]);
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t output = tile % across * FEW_OUTPUTS;
        const int64_t batch = tile / across * FEW_BATCHES;
        const int outputs = static_cast<int>(
            v.outputs - output < FEW_OUTPUTS ? v.outputs - output : FEW_OUTPUTS);
        const int batches = static_cast<int>(
            v.batches - batch < FEW_BATCHES ? v.batches - batch : FEW_BATCHES);
        V sum[FEW_SUMS] = {};
#pragma unroll(FROM_X ? 1 : 2)
        for (int64_t l = tid; l < v.rows; l += warps * WARP) {
            V factor[FEW_OUTPUTS] = {}, mean[FEW_BATCHES] = {};
#pragma unroll
            for (int i = 0; i < FEW_OUTPUTS; i++) {
                if (i < outputs) {
                    factor[i] = v.matrix_at(output + i, l);
                }
            }
            if (FROM_X) {
                means_of(v, batch, batches, l, mean);
            }
#pragma unroll
            for (int n = 0; n < FEW_BATCHES; n++) {
                if (!FROM_X && n < batches) {
                    mean[n] = v.means[(batch + n) * v.rows + l];
                }
            }
#pragma unroll
            for (int k = 0; k < FEW_SUMS; k++) {
                sum[k] += factor[k / FEW_BATCHES] * mean[k % FEW_BATCHES];
            }
        }
        const V mine = sum_of_each(sum, lane);
        if (lane % 2 == 0) {
            parts[warp][lane / 2] = mine;
        }
        __syncthreads();
        const int i = tid / FEW_BATCHES, n = tid % FEW_BATCHES;
        if (i < outputs && n < batches) {
            V total = parts[0][tid];
            for (int k = 1; k < warps; k++) {
                total += parts[k][tid];
            }
            v.put(output + i, batch + n, total);
        }
        __syncthreads(); /* before the next tile's parts */
    }
}

/* ---- launch ---- */

template <typename T>
gpo_status
mean_matvec_find_means(gpo_call *call, const mean_matvec_view<T> &v)
{
    const int64_t rows = v.batches * v.rows;
    if (v.cols >= LONG_COLS && rows <= gpo_processors(call) * LONG_ROWS) {
        return GPO_LAUNCH(call, grid_of(rows), THREADS, 0,
                          (mean_matvec_few_batches_long_rows<T>), v, rows);
    }
    if (has_uneven_rows(call)) {
        return mean_matvec_short_means(call, v);
    }
    const row_walk walk = walk_of(call, pack<T>::SIZE);
    const int64_t items = ceil_div(v.batches, TILE_BATCHES) * walk.streams;
    return GPO_LAUNCH(call, grid_of(items), THREADS, 0,
                      (mean_matvec_few_batches_means<T>), v, walk, items);
}

template <typename T>
gpo_status
mean_matvec_few_batches(gpo_call *call)
{
    mean_matvec_view<T> v;
    gpo_status status = view_of(call, &v);
    if (status || v.batches * v.outputs == 0) {
        return status;
    }
    const int64_t across = ceil_div(v.outputs, FEW_OUTPUTS);
    const int64_t tiles = across * ceil_div(v.batches, FEW_BATCHES);
    const bool from_x = multiplies_from_x(call);
    const int warps = plan_few_batches(call, from_x).warps;
    const dim3 grid = grid_of(tiles), block(static_cast<unsigned>(warps * WARP));
    if (from_x) {
        return GPO_LAUNCH(call, grid, block, 0,
                          (mean_matvec_few_batches_product<T, true, THREADS / WARP>), v,
                          across, tiles, warps);
    }
    status = mean_matvec_find_means(call, v);
    if (status) {
        return status;
    }
    if (warps > THREADS / WARP) {
        return GPO_LAUNCH(call, grid, block, 0,
                          (mean_matvec_few_batches_product<T, false, FEW_MOST_WARPS>),
                          v, across, tiles, warps);
    }
    return GPO_LAUNCH(call, grid, block, 0,
                      (mean_matvec_few_batches_product<T, false, THREADS / WARP>), v,
                      across, tiles, warps);
}

#define INSTANTIATE(T)                                               \
    template gpo_status mean_matvec_few_batches<T>(gpo_call * call); \
    template gpo_status mean_matvec_find_means<T>(gpo_call * call,   \
                                                  const mean_matvec_view<T> &v);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
