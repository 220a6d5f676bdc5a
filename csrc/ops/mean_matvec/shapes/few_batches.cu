/*
 * few_batches.cu  Products too small to fill the GPU with tiles of 64 by 64: a block
 * has 4 outputs of 4 batches, and its threads share the depth.  The means come from a
 * kernel before it, or where x is small from x itself.
 * Cost:  reads the matrix and the means N / 4 and L2 / 4 times, from L2; x once, or
 *        L2 / 4 times where it is small, in one launch.
 */
#include "../short_rows.cuh"
#include "../walk.cuh"
#include "../../../device/follow.cuh"
#include "../../../device/quotient.cuh"

#include <math.h>

/* ---- means ---- */

/* As v4's, with the ends of rows loaded early. */
template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_few_batches_means(mean_matvec_view<T> v, row_walk walk, int64_t items)
{
    let_next_start();
    for (int64_t k = blockIdx.x; k < items; k += gridDim.x) {
        const int64_t tile = quotient(k, walk.streams);
        stream_item<T, true>(v, walk, tile,
                             static_cast<unsigned>(k - tile * walk.streams));
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
    let_next_start();
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const int64_t batch = quotient(row, v.rows);
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

/* A warp per row of at most SHORT_COLS elements, each a load: of 8 bytes, as fast as packs. */
template <typename T>
__global__ void
__launch_bounds__(THREADS, WIDE_BLOCKS)
    mean_matvec_few_batches_wide_elements(mean_matvec_view<T> v, int64_t rows)
{
    using V = value_type<T>;
    constexpr int WARPS = THREADS / WARP, AT_ONCE = SHORT_COLS_OF_LANE;
    const int lane = threadIdx.x % WARP, cols = static_cast<int>(v.cols);
    let_next_start();
    const int64_t step = static_cast<int64_t>(gridDim.x) * WARPS;
    for (int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
         row < rows; row += step) {
        const T *const x = v.x + row * v.cols;
        T loaded[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            loaded[u] = lane + u * WARP < cols ? x[lane + u * WARP] : T(0);
        }
        row_sum<V> sum;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            sum.add(loaded[u]);
        }
        const V total = sum_lanes(sum.value(), WARP);
        if (lane == 0) {
            v.means[row] = total / static_cast<V>(v.cols);
        }
    }
}

/* ---- the product ---- */

/* Lanes WARP / SUMS * HALF apart each give the half of their values that they drop. */
template <int HALF, typename V, int SUMS>
__device__ __forceinline__ void
halve(V (&v)[SUMS], int lane)
{
    constexpr int APART = WARP / SUMS * HALF;
    const bool upper = lane & APART;
#pragma unroll
    for (int j = 0; j < HALF; j++) {
        const V kept = upper ? v[j + HALF] : v[j];
        const V given = upper ? v[j] : v[j + HALF];
        v[j] = kept + __shfl_xor_sync(ALL_LANES, given, APART);
    }
}

/* The sums over a warp of its lanes' values: lane k gets that of value k SUMS / WARP. */
template <typename V, int SUMS>
__device__ __forceinline__ V
sum_of_each(V (&v)[SUMS], int lane)
{
    static_assert(SUMS == WARP || SUMS == WARP / 2, "a lane or two for each sum");
    if constexpr (SUMS == WARP) {
        halve<16>(v, lane);
    }
    halve<8>(v, lane); /* not a loop, which would put the values into local memory */
    halve<4>(v, lane);
    halve<2>(v, lane);
    halve<1>(v, lane);
    return SUMS == WARP ? v[0] : v[0] + __shfl_xor_sync(ALL_LANES, v[0], 1);
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

/* Results of a block, and how many of them exist. */
struct few_tile {
    int64_t output, batch;
    int outputs, batches;
};

/* Batches of the same outputs are neighbours where the matrix is larger than the means. */
template <int BATCHES, typename T>
__device__ __forceinline__ few_tile
few_tile_of(const mean_matvec_view<T> &v, int64_t across, int64_t down, int64_t tile)
{
    few_tile t;
    const bool by_output = v.outputs > v.batches;
    const int64_t line = by_output ? down : across, own = quotient(tile, line);
    const int64_t rest = tile - own * line;
    t.output = (by_output ? own : rest) * FEW_OUTPUTS;
    t.batch = (by_output ? rest : own) * BATCHES;
    const int64_t outputs = v.outputs - t.output, batches = v.batches - t.batch;
    t.outputs = static_cast<int>(outputs < FEW_OUTPUTS ? outputs : FEW_OUTPUTS);
    t.batches = static_cast<int>(batches < BATCHES ? batches : BATCHES);
    return t;
}

/* Adds the sums of a block's lanes in `parts`, a row for each warp, and stores them. */
template <typename T, int SUMS>
__device__ __forceinline__ void
put_few_tile(const mean_matvec_view<T> &v, const few_tile &t, int warps,
             value_type<T> (&sum)[SUMS], value_type<T> (*parts)[SUMS])
{
    using V = value_type<T>;
    constexpr int LANES = WARP / SUMS, BATCHES = SUMS / FEW_OUTPUTS;
    const int tid = threadIdx.x, lane = tid % WARP;
    const V mine = sum_of_each(sum, lane);
    if (lane % LANES == 0) {
        parts[tid / WARP][lane / LANES] = mine;
    }
    __syncthreads();
    const int i = tid / BATCHES, n = tid % BATCHES;
    if (i < t.outputs && n < t.batches) {
        V total = parts[0][tid];
        for (int k = 1; k < warps; k++) {
            total += parts[k][tid];
        }
        v.put(t.output + i, t.batch + n, total);
    }
    __syncthreads(); /* before the next tile's parts */
}

/* The means, of at most FEW_COLS elements, are computed here, a lane each. */
template <typename T>
__global__ void
__launch_bounds__(THREADS)
    mean_matvec_few_batches_from_x(mean_matvec_view<T> v, int64_t across, int64_t down,
                                   int warps)
{
    using V = value_type<T>;
    constexpr int SUMS = FEW_OUTPUTS * FEW_BATCHES;
    GPO_SHARED(V, parts, [THREADS / WARP][SUMS]);
    for (int64_t tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        const few_tile t = few_tile_of<FEW_BATCHES>(v, across, down, tile);
        V sum[SUMS] = {};
#pragma unroll 1
        for (int64_t l = threadIdx.x; l < v.rows; l += warps * WARP) {
            V factor[FEW_OUTPUTS] = {}, mean[FEW_BATCHES] = {};
#pragma unroll
            for (int i = 0; i < FEW_OUTPUTS; i++) {
                if (i < t.outputs) {
                    factor[i] = v.matrix_at(t.output + i, l);
                }
            }
            means_of(v, t.batch, t.batches, l, mean);
#pragma unroll
            for (int k = 0; k < SUMS; k++) {
                sum[k] += factor[k / FEW_BATCHES] * mean[k % FEW_BATCHES];
            }
        }
        put_few_tile(v, t, warps, sum, parts);
    }
}

/* Neighbouring values of a row, as they are loaded: a pack or more, or one. */
template <typename T, int LENGTH>
struct alignas(LENGTH * sizeof(T) < 16 ? sizeof(T) : 16) few_values {
    T v[LENGTH];
};

/* A lane has LENGTH terms at a time, and AT_ONCE of these in flight. */
template <typename T, int LENGTH, int BATCHES, int AT_ONCE, int MOST_WARPS>
__global__ void
__launch_bounds__(MOST_WARPS *WARP)
    mean_matvec_few_batches_product(mean_matvec_view<T> v, int64_t across, int64_t down,
                                    int warps)
{
    using V = value_type<T>;
    constexpr int SUMS = FEW_OUTPUTS * BATCHES;
    GPO_SHARED(V, parts, [MOST_WARPS][SUMS]);
    using factors = few_values<T, LENGTH>;
    using some_means = few_values<V, LENGTH>;
    const int64_t step = warps * WARP * LENGTH;
    const int64_t apart = LENGTH > 1 ? step : step * v.matrix_row;
    bool waits = BATCHES == FEW_BATCHES; /* for the means; else no register is left */
    if (BATCHES > FEW_BATCHES) {
        wait_for_before();
    }
    for (int64_t tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        const few_tile t = few_tile_of<BATCHES>(v, across, down, tile);
        int64_t left = v.rows - threadIdx.x * LENGTH;
        const T *row[FEW_OUTPUTS]; /* one that does not exist is the first */
#pragma unroll
        for (int i = 0; i < FEW_OUTPUTS; i++) {
            row[i] = v.matrix + (t.output + (i < t.outputs ? i : 0)) * v.matrix_output +
                     threadIdx.x * LENGTH * (LENGTH > 1 ? 1 : v.matrix_row);
        }
        const V *means = v.means + t.batch * v.rows + threadIdx.x * LENGTH;
        V sum[SUMS] = {};
#pragma unroll 1
        while (left > 0) {
            factors factor[AT_ONCE][FEW_OUTPUTS];
            some_means mean[AT_ONCE][BATCHES];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
#pragma unroll
                for (int i = 0; i < FEW_OUTPUTS; i++) {
                    factor[u][i] = {};
                    if (u * step < left) {
                        factor[u][i] = *reinterpret_cast<const factors *>(row[i]);
                    }
                    row[i] += apart;
                }
            }
            if (waits) { /* these factors come while the means are found */
                wait_for_before();
                waits = false;
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
#pragma unroll
                for (int n = 0; n < BATCHES; n++) {
                    mean[u][n] = {};
                    if (u * step < left && n < t.batches) {
                        mean[u][n] =
                            *reinterpret_cast<const some_means *>(means + n * v.rows);
                    }
                }
                means += step;
            }
            left -= AT_ONCE * step;
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
#pragma unroll
                for (int e = 0; e < LENGTH; e++) {
#pragma unroll
                    for (int k = 0; k < SUMS; k++) {
                        sum[k] += value_of(factor[u][k / BATCHES].v[e]) *
                                  mean[u][k % BATCHES].v[e];
                    }
                }
            }
        }
        if (waits) { /* a thread without terms, before it stores */
            wait_for_before();
            waits = false;
        }
        put_few_tile(v, t, warps, sum, parts);
    }
}

/* ---- launch ---- */

template <typename T>
gpo_status
mean_matvec_find_means(gpo_call *call, const mean_matvec_view<T> &v)
{
    const int64_t rows = v.batches * v.rows;
    if (rows == 0) {
        return GPO_OK; /* the walks below divide by the number of rows */
    }
    if (v.cols >= LONG_COLS && rows <= gpo_processors(call) * LONG_ROWS) {
        return GPO_LAUNCH(call, grid_of(rows), THREADS, 0,
                          (mean_matvec_few_batches_long_rows<T>), v, rows);
    }
    const mean_rows kind = rows_of(call);
    if constexpr (sizeof(T) == 8) {
        if (kind == BY_ELEMENTS) {
            const int64_t blocks = gpo_processors(call) * WIDE_BLOCKS;
            const int64_t all = ceil_div(rows, int64_t{THREADS / WARP});
            return GPO_LAUNCH(call, grid_of(all < blocks ? all : blocks), THREADS, 0,
                              (mean_matvec_few_batches_wide_elements<T>), v, rows);
        }
    }
    if (kind == IN_STRETCHES) {
        return mean_matvec_short_means(call, v);
    }
    const row_walk walk = walk_of(call, pack<T>::SIZE);
    const int64_t items = ceil_div(v.batches, TILE_BATCHES) * walk.streams;
    return GPO_LAUNCH(call, grid_of(items), THREADS, 0,
                      (mean_matvec_few_batches_means<T>), v, walk, items);
}

/* Right behind the launch that finds the means, if there are any. */
template <int LENGTH, int BATCHES, typename T>
static gpo_status
multiply_tiles(gpo_call *call, const mean_matvec_view<T> &v, int warps)
{
    constexpr int AT_ONCE = few_at_once(sizeof(T), LENGTH > 1, BATCHES);
    const int64_t across = ceil_div(v.outputs, FEW_OUTPUTS);
    const int64_t down = ceil_div(v.batches, BATCHES);
    const dim3 grid = grid_of(across * down),
               block(static_cast<unsigned>(warps * WARP));
    if constexpr (BATCHES == FEW_BATCHES) {
        if (warps > THREADS / WARP) {
            return GPO_FOLLOW(
                call, v.rows > 0, grid, block, 0,
                (mean_matvec_few_batches_product<T, LENGTH, BATCHES, AT_ONCE,
                                                 FEW_MOST_WARPS>),
                v, across, down, warps);
        }
    }
    return GPO_FOLLOW(
        call, v.rows > 0, grid, block, 0,
        (mean_matvec_few_batches_product<T, LENGTH, BATCHES, AT_ONCE, THREADS / WARP>),
        v, across, down, warps);
}

template <int LENGTH, typename T>
static gpo_status
multiply_few(gpo_call *call, const mean_matvec_view<T> &v, int warps)
{
    return few_batches_of(v.batches) > FEW_BATCHES
               ? multiply_tiles<LENGTH, 2 * FEW_BATCHES>(call, v, warps)
               : multiply_tiles<LENGTH, FEW_BATCHES>(call, v, warps);
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
    const bool from_x = multiplies_from_x(call);
    const int warps = plan_few_batches(call, from_x).warps;
    if (from_x) {
        const int64_t across = ceil_div(v.outputs, FEW_OUTPUTS);
        const int64_t down = ceil_div(v.batches, FEW_BATCHES);
        return GPO_LAUNCH(call, grid_of(across * down), dim3(warps * WARP), 0,
                          (mean_matvec_few_batches_from_x<T>), v, across, down, warps);
    }
    status = mean_matvec_find_means(call, v);
    if (status) {
        return status;
    }
    return has_packed_rows(call) ? multiply_few<pack<T>::SIZE>(call, v, warps)
                                 : multiply_few<1>(call, v, warps);
}

#define INSTANTIATE(T)                                               \
    template gpo_status mean_matvec_few_batches<T>(gpo_call * call); \
    template gpo_status mean_matvec_find_means<T>(gpo_call * call,   \
                                                  const mean_matvec_view<T> &v);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
