/*
 * cuda.cu  The ladders of causal_conv1d and causal_conv1d_backward on CUDA, v0 to v5, then
 * the tables and the choice.  Each rung is a comment, a kernel that convolves rows, one
 * that finds the gradient of the filters, and their launchers; dx is the convolution of
 * the reversed gradient, by the same kernel.
 * Not here: views and staging (rows.cuh), products in registers (tiles.cuh), the contract
 * (op.c).
 */
#include "tiles.cuh"

#include <stdio.h>

/*
 * v0  One output per thread.
 * Now:   a thread adds up the terms of one element of the result, or of one lag over the
 *        whole batch; every operand comes from global memory.
 * Cost:  two loads per product; L1 serves most of them.
 * Left:  neighbours read the same rows again and again -> v1.
 */
constexpr int BLOCK = 128; /* threads of v0 and v1 */

template <typename T>
__global__ void
conv_v0_one_output(conv_view<T> v)
{
    const int64_t all = v.batches * v.channels * v.steps;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < all;
         k += step) {
        const int64_t t = k % v.steps, row = k / v.steps;
        const int64_t b = row / v.channels, c = row % v.channels;
        v.put(b, c, t, plain_step<4>(v, v.x.row(b, c), v.x.t, c, t));
    }
}

template <typename T>
__global__ void
lag_v0_one_output(lag_view<T> v)
{
    const int64_t all = v.channels * v.lags;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < all;
         k += step) {
        const int64_t s = k % v.lags, c = k / v.lags;
        v.put(c, s, plain_lag<4>(v, 0, v.batches, c, s));
    }
}

template <typename T>
static gpo_status
conv_v0(gpo_call *call, const conv_view<T> &v)
{
    const dim3 grid = grid_of(ceil_div(v.batches * v.channels * v.steps, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (conv_v0_one_output<T>), v);
}

template <typename T>
static gpo_status
lag_v0(gpo_call *call, const lag_view<T> &v)
{
    const dim3 grid = grid_of(ceil_div(v.channels * v.lags, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (lag_v0_one_output<T>), v);
}

/*
 * v1  Rows of w and x in shared memory.
 * Was:   v0 reads both operands of every product from global memory.
 * Now:   a block takes 128 steps of a row; pieces of 256 inputs and the lags that these
 *        can meet lie in shared memory, so a row may be of any length.
 * Cost:  two 4-byte shared loads per product; x is read T / 256 times, out of L2.
 * Left:  a load per operand: the multiplier waits for them -> v2.
 */
constexpr int PIECE = 256; /* inputs staged at a time */

template <typename T>
__global__ void
conv_v1_shared_rows(conv_view<T> v, int64_t tiles, int64_t works)
{
    using V = value_type<T>;
    GPO_SHARED(V, x, [PIECE]);
    GPO_SHARED(V, lag, [PIECE + BLOCK]);
    const int tid = threadIdx.x;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t row = work / tiles, t0 = (tiles - 1 - work % tiles) * BLOCK;
        const int64_t b = row / v.channels, c = row % v.channels, t = t0 + tid;
        const int64_t end = t0 + BLOCK < v.steps ? t0 + BLOCK : v.steps;
        V total = 0;
        for (int64_t u0 = t0 < v.lags ? 0 : (t0 - v.lags + 1) / PIECE * PIECE; u0 < end;
             u0 += PIECE) {
            __syncthreads();
            stage_row<BLOCK>(x, v.x.row(b, c), v.x.t, u0, PIECE, v.steps);
            stage_lags<BLOCK>(lag, v, c, t0 - u0 - PIECE + 1, PIECE + BLOCK);
            __syncthreads();
            const int64_t low = t - v.lags + 1 - u0, high = t + 1 - u0;
            const int from = low > 0 ? static_cast<int>(low < PIECE ? low : PIECE) : 0;
            const int to = high < PIECE ? static_cast<int>(high) : PIECE;
            V sum = 0;
            for (int j = from; j < to; j++) {
                sum += lag[tid - j + PIECE - 1] * x[j];
            }
            total += sum;
        }
        if (t < v.steps) {
            v.put(b, c, t, total);
        }
    }
}

template <typename T>
__global__ void
lag_v1_shared_rows(lag_view<T> v, int64_t tiles, int64_t works)
{
    using V = value_type<T>;
    GPO_SHARED(V, x, [PIECE]);
    GPO_SHARED(V, g, [PIECE + BLOCK]);
    const int tid = threadIdx.x;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t c = work / tiles, s0 = work % tiles * BLOCK, s = s0 + tid;
        V total = 0;
        for (int64_t b = 0; b < v.batches; b++) {
            for (int64_t u0 = 0; u0 < v.steps - s0; u0 += PIECE) {
                __syncthreads();
                stage_row<BLOCK>(x, v.x.row(b, c), v.x.t, u0, PIECE, v.steps);
                stage_row<BLOCK>(g, v.g.row(b, c), v.g.t, u0 + s0, PIECE + BLOCK,
                                 v.steps);
                __syncthreads();
                const int64_t left = v.steps - s - u0;
                const int to = left < PIECE ? static_cast<int>(left) : PIECE;
                V sum = 0;
                for (int j = 0; j < to; j++) {
                    sum += x[j] * g[j + tid];
                }
                total += sum;
            }
        }
        if (s < v.lags) {
            v.put(c, s, total);
        }
    }
}

template <typename T>
static gpo_status
conv_v1(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, BLOCK);
    const int64_t works = v.batches * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), BLOCK, 0, (conv_v1_shared_rows<T>), v,
                      tiles, works);
}

template <typename T>
static gpo_status
lag_v1(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, BLOCK), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), BLOCK, 0, (lag_v1_shared_rows<T>), v, tiles,
                      works);
}

/*
 * v2  Four outputs per thread, 16-byte loads.
 * Was:   v1 loads two operands for each product.
 * Now:   four steps meet four inputs in registers: 16 products for 4 inputs and 4 new lags,
 *        two 16-byte loads; the other 4 lags stay from the four inputs before.
 * Cost:  an eighth of v1's shared loads.
 * Left:  every batch reads the filter of the channel again -> v3.
 */
template <typename T, int ROWS, int INPUTS_AT_ONCE>
__global__ void
__launch_bounds__(QUADS, 8)
    conv_v2_four_outputs(conv_view<T> v, int64_t tiles, int64_t works)
{
    using memory = quad_stage<value_type<T>, ROWS, INPUTS_AT_ONCE>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t rest = work / tiles, tile = tiles - 1 - work % tiles;
        conv_quads(v, stage[0], rest % v.channels, rest / v.channels * ROWS,
                   tile * QUAD_STEPS, threadIdx.x, true);
    }
}

template <typename T, int ROWS, int INPUTS_AT_ONCE>
__global__ void
lag_v2_four_outputs(lag_view<T> v, int64_t tiles, int64_t works)
{
    using memory = lag_stage<value_type<T>, ROWS, INPUTS_AT_ONCE>;
    GPO_SHARED(memory, stage, [1]);
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        lag_quads(v, stage[0], work / tiles, work % tiles * QUAD_STEPS, threadIdx.x,
                  true);
    }
}

template <typename T>
static gpo_status
conv_v2(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, QUAD_STEPS);
    const int64_t works = v.batches * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (conv_v2_four_outputs<T, 1, PIECE>), v, tiles, works);
}

template <typename T>
static gpo_status
lag_v2(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, QUAD_STEPS), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (lag_v2_four_outputs<T, 1, PIECE>), v, tiles, works);
}

/*
 * v3  Eight batches share one row of w.
 * Was:   v2 takes one batch at a time.
 * Now:   the same kernel with the rows of eight batches (four of float64): a window of lags
 *        meets all of them.  The gradient of the filters has no such row to share; two
 *        batches at a time halve its barriers.
 * Cost:  9 loads of 16 bytes for 128 products.
 * Left:  step t has t + 1 terms: the threads of early steps wait for those of late ones
 *        -> v4.
 */
template <typename T>
constexpr int SHARING = sizeof(T) == 8 ? 4 : 8; /* batches of a block */
constexpr int LAG_ROWS = 2, LAG_PIECE = 128;

template <typename T>
static gpo_status
conv_v3(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(v.steps, QUAD_STEPS);
    const int64_t works = ceil_div(v.batches, SHARING<T>) * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (conv_v2_four_outputs<T, SHARING<T>, PIECE>), v, tiles, works);
}

template <typename T>
static gpo_status
lag_v3(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(v.lags, QUAD_STEPS), works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (lag_v2_four_outputs<T, LAG_ROWS, LAG_PIECE>), v, tiles, works);
}

/*
 * v4  Balanced work.
 * Was:   v3's threads have between one and T terms per step.
 * Now:   a thread takes the four steps around t and those around T - 1 - t, one after the
 *        other: all threads, and all blocks, have the same number of products.  Lags s and
 *        K - 1 - s are paired in the same way.
 * Cost:  as v3, with half as many blocks of twice the work.
 * Left:  the window of lags is loaded for every 4 inputs; 4 steps use it -> v5.
 */
template <typename T, int ROWS, int INPUTS_AT_ONCE>
__global__ void
__launch_bounds__(QUADS, 6)
    conv_v4_balanced(conv_view<T> v, int64_t tiles, int64_t works)
{
    using memory = quad_stage<value_type<T>, ROWS, INPUTS_AT_ONCE>;
    GPO_SHARED(memory, stage, [1]);
    const int tid = threadIdx.x;
    const int64_t quads = (v.steps + 3) / 4, half = (quads + 1) / 2;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t rest = work / tiles, first = work % tiles * QUADS;
        const int64_t c = rest % v.channels, batch = rest / v.channels * ROWS;
        const int64_t mine = first + tid, mirrored = quads - 1 - mine;
#pragma unroll 1
        for (int late = 0; late < 2; late++) {
            const int64_t t0 = 4 * (late ? quads - first - QUADS : first);
            conv_quads(v, stage[0], c, batch, t0, late ? QUADS - 1 - tid : tid,
                       mine < half && (!late || mirrored > mine));
        }
    }
}

template <typename T, int ROWS, int INPUTS_AT_ONCE>
__global__ void
lag_v4_balanced(lag_view<T> v, int64_t tiles, int64_t works)
{
    using memory = lag_stage<value_type<T>, ROWS, INPUTS_AT_ONCE>;
    GPO_SHARED(memory, stage, [1]);
    const int tid = threadIdx.x;
    const int64_t quads = (v.lags + 3) / 4, half = (quads + 1) / 2;
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t c = work / tiles, first = work % tiles * QUADS;
        const int64_t mine = first + tid, mirrored = quads - 1 - mine;
#pragma unroll 1
        for (int late = 0; late < 2; late++) {
            const int64_t s0 = 4 * (late ? quads - first - QUADS : first);
            lag_quads(v, stage[0], c, s0, late ? QUADS - 1 - tid : tid,
                      mine < half && (!late || mirrored > mine));
        }
    }
}

template <typename T>
static gpo_status
conv_v4(gpo_call *call, const conv_view<T> &v)
{
    const int64_t tiles = ceil_div(ceil_div(ceil_div(v.steps, 4), 2), QUADS);
    const int64_t works = ceil_div(v.batches, SHARING<T>) * v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (conv_v4_balanced<T, SHARING<T>, PIECE>), v, tiles, works);
}

template <typename T>
static gpo_status
lag_v4(gpo_call *call, const lag_view<T> &v)
{
    const int64_t tiles = ceil_div(ceil_div(ceil_div(v.lags, 4), 2), QUADS);
    const int64_t works = v.channels * tiles;
    return GPO_LAUNCH(call, grid_of(works), QUADS, 0,
                      (lag_v4_balanced<T, LAG_ROWS, LAG_PIECE>), v, tiles, works);
}

/*
 * v5  Register tile of 16 steps by 8 inputs; short filters stream.
 * Was:   v4 has 16 products for each pair of 16-byte loads, and tests every one of them.
 * Now:   a lane takes a row of its own and 16 of its steps: 8 inputs and a window of 23 lags
 *        make 128 products; the window slides, so 8 lags are new each time, and they are the
 *        same for all 32 lanes.  Only tiles on an edge of the filter test or leave out
 *        products.  Rows are (batch, segment of 128 steps), so that few batches fill the
 *        lanes, too.  The next 64 inputs are on their way while these are multiplied.
 *        Lags: 8 inputs meet a window of the gradient; lanes are added at the end.
 *        Channels are taken in shares whose rows fit L2.
 *        A filter of at most 8 taps reads x once, in packs, as fast as memory gives it.
 * Cost:  4 loads of 16 bytes for 128 products; x is read T / 256 times.
 * Left:  the multipliers themselves: 0.217 ms for B32 C768 T768 in float32 at 67 TFLOP/s.
 */
constexpr int TILE_WARPS = 8, TILE_BLOCK = TILE_WARPS * WARP;
constexpr int SEGMENT = TILE_WARPS * STEPS; /* steps of a virtual row */
constexpr int CHUNK = 64;                   /* inputs staged at a time */
constexpr int SUBSTEPS = 4;                 /* unrolled, with the window in registers */
constexpr int64_t FAR = INT64_MAX / 4;      /* first step of a row that is not there */

template <typename T>
__global__ void
__launch_bounds__(TILE_BLOCK, sizeof(T) == 8 ? 1 : 2)
    conv_v5_tile(conv_view<T> v, int64_t rows, int64_t groups, bool even)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<T>::SIZE, ROW_PACKS = CHUNK / SIZE;
    constexpr int EACH = CHUNK * WARP / TILE_BLOCK; /* inputs that a thread stages */
    using x_row = row_stage<V, CHUNK>;
    GPO_SHARED(x_row, x, [WARP]);
    GPO_SHARED(pack<V>, lag_packs, [(CHUNK + SEGMENT) / pack<V>::SIZE]);
    GPO_SHARED(int64_t, row_offset, [WARP]); /* of a row's batch and channel */
    GPO_SHARED(int64_t, row_first, [WARP]);  /* step where its segment begins */
    V *const lags = lag_packs[0].v;
    const int tid = threadIdx.x, lane = tid % WARP;
    const int local = tid / WARP * STEPS; /* the thread's first step in the segment */

    for (int64_t work = blockIdx.x; work < groups * v.channels; work += gridDim.x) {
        const conv_work here = work_at(work, v.channels, groups);
        const int64_t c = here.c, group = groups - 1 - here.unit; /* long ones first */
        const int64_t row = group * WARP + lane;
        const int64_t last = group * WARP + WARP < rows ? group * WARP + WARP : rows;
        const int64_t b = row < rows ? row % v.batches : 0;
        const int64_t first = row < rows ? row / v.batches * SEGMENT : FAR;
        __syncthreads();
        if (tid < WARP) {
            row_offset[lane] = b * v.x.b + c * v.x.c;
            row_first[lane] = first;
        }
        __syncthreads();

        /* Inputs are counted from the beginning of each row's segment. */
        const int64_t reach = (last - 1) / v.batches * SEGMENT;
        const int64_t back = reach < v.lags - 1 ? reach : v.lags - 1;
        V total[STEPS] = {}, sum[STEPS] = {};
        T next[EACH] = {}, next_lag = {};
        for (int64_t u0 = -((back + CHUNK - 1) / CHUNK * CHUNK) - CHUNK; u0 < SEGMENT;
             u0 += CHUNK) {
            /* In the first round there is nothing yet but the request for the next. */
            const bool begun = u0 >= -((back + CHUNK - 1) / CHUNK * CHUNK);
            if (begun) {
                __syncthreads();
                if (tid < CHUNK + SEGMENT) {
                    lags[tid] = value_of(next_lag);
                }
#pragma unroll
                for (int k = 0; k < EACH; k += SIZE) {
                    const int i = k / SIZE * TILE_BLOCK + tid;
                    store_values<SIZE>(x[i / ROW_PACKS].v + i % ROW_PACKS * SIZE,
                                       next + k);
                }
                __syncthreads();
            }
            if (u0 + CHUNK < SEGMENT) {
                const int64_t ahead = u0 + CHUNK;
                if (tid < CHUNK + SEGMENT) { /* lags[i]: lag i - u0 - (CHUNK - 1) */
                    const int64_t s = tid - ahead - (CHUNK - 1);
                    next_lag = stored_as<T>(V(0));
                    if (s >= 0 && s < v.lags) {
                        next_lag = v.w[c * v.w_c + s * v.w_s];
                    }
                }
#pragma unroll
                for (int k = 0; k < EACH; k += SIZE) {
                    const int i = k / SIZE * TILE_BLOCK + tid, r = i / ROW_PACKS;
                    load_steps(next + k, v.x.p + row_offset[r], v.x.t,
                               row_first[r] + ahead + i % ROW_PACKS * SIZE, v.steps,
                               even);
                }
            }
            if (!begun || first + u0 < 0 || first == FAR) {
                continue; /* before the row's first input */
            }
            const int64_t from = local - u0; /* lag of the first step and input u0 */
            const V *window = lags + local + CHUNK - INPUTS; /* of the first 8 inputs */
            const V *inputs = x[lane].v;
            if (from - (CHUNK - 1) >= 0 && from + STEPS - 1 < v.lags) {
                constexpr int TOP = (SUBSTEPS - 1) * INPUTS;
#pragma unroll 1
                for (int q = 0; q < CHUNK; q += SUBSTEPS * INPUTS) {
                    V lag[TOP + WINDOW];
                    shared_values<STEPS>(lag + TOP + INPUTS, window - q + INPUTS);
#pragma unroll
                    for (int k = 0; k < SUBSTEPS; k++) {
                        V in[INPUTS];
                        shared_values<INPUTS>(in, inputs + q + k * INPUTS);
                        shared_values<INPUTS>(lag + TOP - k * INPUTS,
                                              window - q - k * INPUTS);
                        conv_products<-INPUTS>(sum, lag + TOP - k * INPUTS, in);
                    }
                }
            }
            else {
#pragma unroll 1
                for (int q = 0; q < CHUNK; q += INPUTS) {
                    conv_edge(sum, window - q, inputs + q, from - q, v.lags);
                }
            }
            fold(total, sum);
        }
        if (first + local < v.steps) {
            store_steps(v, b, c, first + local, total);
        }
    }
}

/* The tile of 4-byte and of 8-byte values: shared memory is as large. */
template <typename V>
struct lag_tile {
    static constexpr int WARPS = sizeof(V) == 8 ? 4 : 8, BLOCK = WARPS * WARP;
    static constexpr int LAGS = WARPS * STEPS;              /* of a block */
    static constexpr int STAGED = sizeof(V) == 8 ? 32 : 64; /* inputs at a time */
    static constexpr int RING = sizeof(V) == 8 ? 128 : 256; /* >= STAGED + LAGS */
};
constexpr int LAG_SEGMENT = 256; /* inputs of a virtual row */

/* How the work on lags is divided: row groups part, part + splits, ... */
struct lag_split {
    int64_t rows, groups; /* virtual rows, groups of 32 of them */
    int64_t tiles, splits;
    bool even;
};

template <typename T>
__global__ void
__launch_bounds__(lag_tile<value_type<T>>::BLOCK, 2)
    lag_v5_tile(lag_view<T> v, lag_split split)
{
    using V = value_type<T>;
    using tile = lag_tile<V>;
    using x_row = row_stage<V, tile::STAGED>;
    using g_row = row_stage<V, tile::RING>;
    constexpr int STAGED = tile::STAGED, RING = tile::RING, THREADS = tile::BLOCK;
    GPO_SHARED(x_row, x, [WARP]);
    GPO_SHARED(g_row, g, [WARP]); /* step first + s0 + u stands in column u % RING */
    GPO_SHARED(int64_t, x_offset, [WARP]);
    GPO_SHARED(int64_t, g_offset, [WARP]);
    GPO_SHARED(int64_t, row_first, [WARP]);
    const int tid = threadIdx.x, lane = tid % WARP;
    const int local = tid / WARP * STEPS; /* the thread's first lag in the tile */
    const int64_t units = split.tiles * split.splits;

    for (int64_t work = blockIdx.x; work < v.channels * units; work += gridDim.x) {
        const conv_work here = work_at(work, v.channels, units);
        const int64_t c = here.c, part = here.unit % split.splits;
        const int64_t s0 = here.unit / split.splits * tile::LAGS;
        V total[STEPS] = {}, sum[STEPS] = {};
        for (int64_t group = part; group < split.groups; group += split.splits) {
            const int64_t row = group * WARP + lane;
            const int64_t nearest = group * WARP / v.batches * LAG_SEGMENT;
            const int64_t end = v.steps - s0 - nearest; /* inputs that a lag meets */
            const int64_t b = row < split.rows ? row % v.batches : 0;
            const int64_t first =
                row < split.rows ? row / v.batches * LAG_SEGMENT : FAR;
            __syncthreads();
            if (tid < WARP) {
                x_offset[lane] = b * v.x.b + c * v.x.c;
                g_offset[lane] = b * v.g.b + c * v.g.c;
                row_first[lane] = first;
            }
            for (int u0 = 0; u0 < LAG_SEGMENT && u0 < end; u0 += STAGED) {
                __syncthreads();
                stage_rows<THREADS, STAGED>(x, v.x, x_offset, row_first, u0, 0, RING,
                                            v.steps, split.even);
                if (u0 == 0) {
                    stage_rows<THREADS, tile::LAGS>(g, v.g, g_offset, row_first, s0, 0,
                                                    RING, v.steps, split.even);
                }
                stage_rows<THREADS, STAGED>(g, v.g, g_offset, row_first,
                                            u0 + s0 + tile::LAGS, u0 + tile::LAGS, RING,
                                            v.steps, split.even);
                __syncthreads();
                const int64_t left = v.steps - first - u0 - s0 - local;
                const V *gradients = g[lane].v, *inputs = x[lane].v;
                const int at = u0 + local;
                if (left >= STAGED + STEPS - 1) {
#pragma unroll 1
                    for (int q = 0; q < STAGED; q += SUBSTEPS * INPUTS) {
                        V near[STEPS + SUBSTEPS * INPUTS];
                        ring_values<STEPS, RING>(near, gradients, at + q);
#pragma unroll
                        for (int k = 0; k < SUBSTEPS * INPUTS; k += INPUTS) {
                            V in[INPUTS];
                            shared_values<INPUTS>(in, inputs + q + k);
                            ring_values<INPUTS, RING>(near + STEPS + k, gradients,
                                                      at + q + k + STEPS);
                            lag_products(sum, near + k, in);
                        }
                    }
                }
                else {
#pragma unroll 1
                    for (int q = 0; q < STAGED && q < left; q += INPUTS) {
                        V near[WINDOW], in[INPUTS];
                        ring_values<WINDOW, RING>(near, gradients, at + q);
                        shared_values<INPUTS>(in, inputs + q);
                        if (left - q >= WINDOW - 1) {
                            lag_products(sum, near, in);
                        }
                        else {
                            lag_products_below(sum, near, in, left - q);
                        }
                    }
                }
                fold(total, sum);
            }
        }
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            const int64_t s = s0 + local + i;
            const V all = warp_combine<add>(total[i]);
            if (lane == 0 && s < v.lags) {
                put_part(v, split.splits, part, c, s, all);
            }
        }
    }
}

constexpr int SHORT = 8;         /* most lags of a short filter */
constexpr int SHORT_BLOCK = 128; /* threads that stream */
constexpr int SHORT_ITEMS = 4;   /* packs of a thread, all loads before the first use */
constexpr int MARCH = 32;        /* steps of a thread across strided rows */

/* Rows of whole packs: a thread makes a pack of the result out of 2 or 3 packs of x. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK)
    conv_v5_short_packs(conv_view<T> v, unsigned packs, int64_t all)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<T>::SIZE, HALO = (SHORT - 2 + SIZE) / SIZE;
    constexpr int64_t SHARE = SHORT_BLOCK * SHORT_ITEMS;
    const bool backwards = v.x.t < 0, out_backwards = v.out.t < 0;
    for (int64_t share = blockIdx.x; share * SHARE < all; share += gridDim.x) {
        const int64_t row0 = share * SHARE / packs;
        const unsigned begin =
            static_cast<unsigned>(share * SHARE % packs) + threadIdx.x;
        pack<T> in[SHORT_ITEMS][HALO + 1];
#pragma unroll
        for (int k = 0; k < SHORT_ITEMS; k++) {
            const unsigned at = begin + k * SHORT_BLOCK;
            const int64_t row = row0 + at / packs;
            const bool there = row < v.batches * v.channels;
            const int64_t b = row / v.channels, c = row % v.channels;
            const int64_t t = static_cast<int64_t>(at % packs) * SIZE;
            const T *p = there ? v.x.row(b, c) : v.x.p;
#pragma unroll
            for (int h = 0; h <= HALO; h++) {
                in[k][h] =
                    even_pack(p, backwards, t + (h - HALO) * SIZE, there ? v.steps : 0);
            }
        }
#pragma unroll
        for (int k = 0; k < SHORT_ITEMS; k++) {
            const unsigned at = begin + k * SHORT_BLOCK;
            const int64_t row = row0 + at / packs;
            if (row >= v.batches * v.channels) {
                break;
            }
            const int64_t b = row / v.channels, c = row % v.channels;
            const int64_t t = static_cast<int64_t>(at % packs) * SIZE;
            const int before = t < SHORT ? static_cast<int>(t) : SHORT;
            V sum[SIZE] = {};
#pragma unroll
            for (int s = 0; s < SHORT; s++) {
                if (s < v.lags) {
                    const V tap = v.w_at(c, s);
#pragma unroll
                    for (int i = 0; i < SIZE; i++) {
                        const int from = HALO * SIZE + i - s;
                        if (before + i >= s) {
                            sum[i] += tap * static_cast<V>(value_of(
                                                in[k][from / SIZE].v[from % SIZE]));
                        }
                    }
                }
            }
            const V offset = v.offset(c);
            pack<T> done, out;
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                done.v[i] = v.finished(sum[i] + offset, b, c, t + i);
            }
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                out.v[i] = out_backwards ? done.v[SIZE - 1 - i] : done.v[i];
            }
            T *to = v.out.row(b, c) + (out_backwards ? -t - (SIZE - 1) : t);
            *reinterpret_cast<pack<T> *>(to) = out;
        }
    }
}

/* Channels side by side: a thread marches along MARCH steps of one, 8 at a time. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK)
    conv_v5_short_march(conv_view<T> v, int64_t marches, int64_t all)
{
    using V = value_type<T>;
    const int64_t step = static_cast<int64_t>(gridDim.x) * SHORT_BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHORT_BLOCK + threadIdx.x;
         k < all; k += step) {
        const int64_t c = k % v.channels, rest = k / v.channels;
        const int64_t t0 = rest % marches * MARCH, b = rest / marches;
        const T *x = v.x.row(b, c);
        T *out = v.out.row(b, c);
        const V offset = v.offset(c);
        V tap[SHORT], value[2 * SHORT - 1];
#pragma unroll
        for (int s = 0; s < SHORT; s++) {
            tap[s] = s < v.lags ? v.w_at(c, s) : V(0);
        }
#pragma unroll
        for (int i = 0; i < SHORT - 1; i++) {
            value[i] = step_or_zero(x, v.x.t, t0 + i - (SHORT - 1), v.steps);
        }
        for (int64_t t = t0; t < t0 + MARCH && t < v.steps; t += SHORT) {
#pragma unroll
            for (int i = 0; i < SHORT; i++) {
                value[SHORT - 1 + i] = step_or_zero(x, v.x.t, t + i, v.steps);
            }
#pragma unroll
            for (int i = 0; i < SHORT; i++) {
                V sum = 0;
#pragma unroll
                for (int s = 0; s < SHORT; s++) {
                    if (s < v.lags && s <= t + i) {
                        sum += tap[s] * value[SHORT - 1 + i - s];
                    }
                }
                if (t + i < v.steps) {
                    out[(t + i) * v.out.t] = v.finished(sum + offset, b, c, t + i);
                }
            }
#pragma unroll
            for (int i = 0; i < SHORT - 1; i++) {
                value[i] = value[SHORT + i];
            }
        }
    }
}

/*
 * A block adds up the lags of a channel over a share of its packs (single steps where
 * packs are not even), in threads, then in lanes and warps.
 */
template <typename T, int SIZE>
__global__ void
__launch_bounds__(TILE_BLOCK, 2)
    lag_v5_short(lag_view<T> v, unsigned packs, int64_t splits, int64_t share)
{
    using V = value_type<T>;
    constexpr int HALO = (SHORT - 2 + SIZE) / SIZE, TERMS_AT_ONCE = 64 / SIZE;
    GPO_SHARED(V, slots, [SHORT][TILE_BLOCK / WARP]);
    const int64_t all = v.batches * packs;
    for (int64_t work = blockIdx.x; work < v.channels * splits; work += gridDim.x) {
        const int64_t c = work / splits, part = work % splits;
        const int64_t begin = part * share;
        const int64_t left = all - begin < share ? all - begin : share;
        const int64_t batch = begin / packs;
        const unsigned before = static_cast<unsigned>(begin % packs);
        V total[SHORT] = {}, sum[SHORT] = {};
        int folded = 0;
        for (unsigned k = threadIdx.x; k < left; k += TILE_BLOCK) {
            const int64_t b = batch + (before + k) / packs;
            const int64_t t = static_cast<int64_t>((before + k) % packs) * SIZE;
            V g[SIZE], x[(HALO + 1) * SIZE];
            lag_short_inputs<SIZE, HALO>(v, b, c, t, g, x);
            const int behind = t < SHORT ? static_cast<int>(t) : SHORT;
#pragma unroll
            for (int s = 0; s < SHORT; s++) {
                if (s < v.lags) {
#pragma unroll
                    for (int i = 0; i < SIZE; i++) {
                        if (behind + i >= s) {
                            sum[s] += g[i] * x[HALO * SIZE + i - s];
                        }
                    }
                }
            }
            if (++folded == TERMS_AT_ONCE) {
                folded = 0;
#pragma unroll
                for (int s = 0; s < SHORT; s++) {
                    total[s] += sum[s];
                    sum[s] = 0;
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < SHORT; s++) {
            const V lag = block_combine<add, TILE_BLOCK>(total[s] + sum[s], slots[s]);
            if (threadIdx.x == 0 && s < v.lags) {
                put_part(v, splits, part, c, s, lag);
            }
        }
    }
}

/* Channels side by side: a thread adds up the lags of one over a share of the marches. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK, 3)
    lag_v5_short_march(lag_view<T> v, int64_t marches, int64_t splits, int64_t share)
{
    using V = value_type<T>;
    const int64_t step = static_cast<int64_t>(gridDim.x) * SHORT_BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHORT_BLOCK + threadIdx.x;
         k < v.channels * splits; k += step) {
        const int64_t c = k % v.channels, part = k / v.channels;
        const int64_t all = v.batches * marches;
        const int64_t end = all - part * share < share ? all : (part + 1) * share;
        V total[SHORT] = {};
        for (int64_t m = part * share; m < end; m++) {
            const int64_t b = m / marches, t0 = m % marches * MARCH;
            const T *x = v.x.row(b, c), *g = v.g.row(b, c);
            V sum[SHORT] = {}, value[2 * SHORT - 1], gradient[SHORT];
#pragma unroll
            for (int i = 0; i < SHORT - 1; i++) {
                value[i] = step_or_zero(x, v.x.t, t0 + i - (SHORT - 1), v.steps);
            }
            for (int64_t t = t0; t < t0 + MARCH && t < v.steps; t += SHORT) {
#pragma unroll
                for (int i = 0; i < SHORT; i++) {
                    value[SHORT - 1 + i] = step_or_zero(x, v.x.t, t + i, v.steps);
                    gradient[i] = step_or_zero(g, v.g.t, t + i, v.steps);
                }
#pragma unroll
                for (int i = 0; i < SHORT; i++) {
#pragma unroll
                    for (int s = 0; s < SHORT; s++) {
                        if (s < v.lags && s <= t + i && t + i < v.steps) {
                            sum[s] += gradient[i] * value[SHORT - 1 + i - s];
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < SHORT - 1; i++) {
                    value[i] = value[SHORT + i];
                }
            }
#pragma unroll
            for (int s = 0; s < SHORT; s++) {
                total[s] += sum[s];
            }
        }
#pragma unroll
        for (int s = 0; s < SHORT; s++) {
            if (s < v.lags) {
                put_part(v, splits, part, c, s, total[s]);
            }
        }
    }
}

template <typename T>
static gpo_status
conv_v5(gpo_call *call, const conv_view<T> &v)
{
    const bool even = packs_are_even(v.x, v.steps);
    if (v.lags <= SHORT) {
        const int64_t packs = v.steps / pack<T>::SIZE;
        if (even && packs_are_even(v.out, v.steps) && packs < 1 << 30) {
            const int64_t all = v.batches * v.channels * packs;
            const dim3 grid = grid_of(ceil_div(all, SHORT_BLOCK * SHORT_ITEMS));
            return GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, (conv_v5_short_packs<T>), v,
                              static_cast<unsigned>(packs), all);
        }
        if (v.x.t != 1 && v.x.t != -1) {
            const int64_t marches = ceil_div(v.steps, MARCH);
            const int64_t all = v.batches * v.channels * marches;
            return GPO_LAUNCH(call, grid_of(ceil_div(all, SHORT_BLOCK)), SHORT_BLOCK, 0,
                              (conv_v5_short_march<T>), v, marches, all);
        }
        return conv_v0(call,
                       v); /* a thread per output reads its few inputs out of L1 */
    }
    const int64_t rows = v.batches * ceil_div(v.steps, SEGMENT);
    const int64_t groups = ceil_div(rows, WARP);
    return GPO_LAUNCH(call, grid_of(groups * v.channels), TILE_BLOCK, 0,
                      (conv_v5_tile<T>), v, rows, groups, even);
}

/* Groups of rows that make `wanted` units of work out of `works`, at most `most`. */
static int64_t
splits_for(int64_t wanted, int64_t works, int64_t pieces, int64_t most)
{
    int64_t splits = ceil_div(wanted, works);
    splits = splits < most ? splits : most;
    splits = splits < pieces ? splits : pieces;
    return splits > 1 ? splits : 1;
}

constexpr int64_t MOST_SPLITS = 64, MOST_SHORT_SPLITS = 512;
constexpr int64_t BLOCKS_WANTED = 4;     /* of a processor */
constexpr int64_t THREADS_WANTED = 1536; /* of a processor */
constexpr int64_t SHARE_LIMIT = 1 << 30; /* packs of a share, which are unsigned */

/* At most 8 lags: dy and x are read once. */
template <typename T>
static gpo_status
lag_v5_short_filter(gpo_call *call, lag_view<T> *view, int64_t *splits)
{
    lag_view<T> &v = *view;
    const bool even = packs_are_even(v.x, v.steps) && packs_are_even(v.g, v.steps) &&
                      v.x.t == 1 && v.g.t == 1;
    const int64_t processors = gpo_processors(call);
    if (v.x.t != 1 && v.x.t != -1 && v.g.t != 1 && v.g.t != -1) {
        const int64_t marches = ceil_div(v.steps, MARCH), all = v.batches * marches;
        *splits =
            splits_for(processors * THREADS_WANTED, v.channels, all, MOST_SHORT_SPLITS);
        const int64_t share = ceil_div(all, *splits);
        const gpo_status status = make_parts(call, *splits, &v);
        const dim3 grid = grid_of(ceil_div(v.channels * *splits, SHORT_BLOCK));
        return status ? status
                      : GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, (lag_v5_short_march<T>),
                                   v, marches, *splits, share);
    }
    const int64_t packs = even ? v.steps / pack<T>::SIZE : v.steps;
    const int64_t all = v.batches * packs, least = ceil_div(all, SHARE_LIMIT);
    *splits = splits_for(processors * BLOCKS_WANTED, v.channels,
                         ceil_div(all, 4 * TILE_BLOCK), MOST_SHORT_SPLITS);
    *splits = *splits < least ? least : *splits;
    const int64_t share = ceil_div(all, *splits);
    const gpo_status status = make_parts(call, *splits, &v);
    const dim3 grid = grid_of(v.channels * *splits);
    const unsigned packs_of_row = static_cast<unsigned>(packs);
    if (status) {
        return status;
    }
    return even
               ? GPO_LAUNCH(call, grid, TILE_BLOCK, 0, (lag_v5_short<T, pack<T>::SIZE>),
                            v, packs_of_row, *splits, share)
               : GPO_LAUNCH(call, grid, TILE_BLOCK, 0, (lag_v5_short<T, 1>), v,
                            packs_of_row, *splits, share);
}

template <typename T>
static gpo_status
lag_v5(gpo_call *call, const lag_view<T> &view)
{
    using tile = lag_tile<value_type<T>>;
    lag_view<T> v = view;
    int64_t splits = 1;
    gpo_status status;
    if (v.lags <= SHORT && v.steps < SHARE_LIMIT) {
        status = lag_v5_short_filter(call, &v, &splits);
    }
    else {
        lag_split split;
        split.rows = v.batches * ceil_div(v.steps, LAG_SEGMENT);
        split.groups = ceil_div(split.rows, WARP);
        split.tiles = ceil_div(v.lags, tile::LAGS);
        split.even = packs_are_even(v.x, v.steps) && packs_are_even(v.g, v.steps);
        splits = splits_for(gpo_processors(call) * BLOCKS_WANTED,
                            v.channels * split.tiles, split.groups, MOST_SPLITS);
        split.splits = splits;
        status = make_parts(call, splits, &v);
        if (!status) {
            const dim3 grid = grid_of(v.channels * split.tiles * splits);
            status = GPO_LAUNCH(call, grid, tile::BLOCK, 0, (lag_v5_tile<T>), v, split);
        }
    }
    return status ? status : add_parts(call, v, splits);
}

/*
 * v6  Tensor cores of sm_90a.
 * Was:   v5 multiplies on the CUDA cores, whose rate alone costs 0.22 ms at
 *        B 32, C 768, T 768.
 * Now:   an item is a channel and 16 batches (8 where there are few); its 192 columns of
 *        64 values multiply a Toeplitz band made from the filter in registers.  float32
 *        goes as three products of rows scaled by a power of two and split into two
 *        float16, and the sums leave the tensor cores, which truncate, after two lags.
 *        The gradient of the filter is a 64 x 64 product for each lag of 64, summed along
 *        its diagonals.  Rows with an infinity, a nan or a wide range are summed in the
 *        plain order.
 * Cost:  each input is read once where T <= 768 (16 batches); 62 KB of shared memory,
 *        three blocks per multiprocessor.
 * Left:  three warps per scheduler issue an instruction in 8 cycles, so each phase is as
 *        long as its instructions: longer products for each fragment, a warpgroup that
 *        brings the next rows while others multiply.  Work grows with
 *        T * min(K, T) -> v7.
 */
#include "tensor.cuh"
#include "tensor_dw.cuh"

/*
 * v7  The transform of a row stays in one block.
 * Was:   v6 makes T^2 / 2 products per row, on one architecture.
 * Now:   a row of up to N steps goes through registers and shared memory to its spectrum,
 *        is multiplied by that of its filter, which serves all batches, and comes back:
 *        T log T.  Longer rows are blocks of N steps.  Both gradients share the spectrum
 *        of dy; the products for a filter are added up over the batch before they come
 *        back.  The next row is on its way during an inverse.
 * Cost:  x is read once and the result written once; two exchanges of 8 N bytes through
 *        shared memory each way.  Rounding is relative to the row, not to the element:
 *        rows with an infinity, a nan or more than 2^40 between their sizes are summed
 *        in the plain order.
 * Left:  lengths between powers of two are filled up with zeros; from 8192 steps on,
 *        spectra wait in global memory.
 */
#include "spectrum.cuh"

/* ---- tables and choice ---- */

/* A launcher for the variant table: one rung of one ladder for T. */
template <typename T, conv_launch<T> CONV>
static gpo_status
forward(gpo_call *call)
{
    return run_forward<T>(call, CONV);
}

/* The same; GRADIENT makes dw, or dw and dx at once. */
template <typename T, conv_launch<T> CONV, auto GRADIENT>
static gpo_status
backward(gpo_call *call)
{
    if constexpr (std::is_same_v<decltype(GRADIENT), gradients_launch<T>>) {
        return run_backward<T>(call, CONV, nullptr, GRADIENT);
    }
    else {
        return run_backward<T>(call, CONV, GRADIENT);
    }
}

#define NO_INTEGERS \
    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr
#define FORWARD(conv)                                                            \
    {                                                                            \
        NO_INTEGERS, forward<f16, conv<f16>>, forward<bf16, conv<bf16>>,         \
            forward<float, conv<float>>, forward<double, conv<double>>, nullptr, \
            nullptr                                                              \
    }
/* The rungs that compute in float32: not for float64. */
#define FORWARD_FLOAT(conv)                                              \
    {                                                                    \
        NO_INTEGERS, forward<f16, conv<f16>>, forward<bf16, conv<bf16>>, \
            forward<float, conv<float>>, nullptr, nullptr, nullptr       \
    }
#define BACKWARD_FLOAT(conv, gradient)                                               \
    {                                                                                \
        NO_INTEGERS, backward<f16, conv<f16>, gradient<f16>>,                        \
            backward<bf16, conv<bf16>, gradient<bf16>>,                              \
            backward<float, conv<float>, gradient<float>>, nullptr, nullptr, nullptr \
    }
#define BACKWARD(conv, gradient)                                               \
    {                                                                          \
        NO_INTEGERS, backward<f16, conv<f16>, gradient<f16>>,                  \
            backward<bf16, conv<bf16>, gradient<bf16>>,                        \
            backward<float, conv<float>, gradient<float>>,                     \
            backward<double, conv<double>, gradient<double>>, nullptr, nullptr \
    }

static const gpo_variant forward_variants[] = {
    {"v0", "one output per thread", "", "run-to-run", FORWARD(conv_v0), "exact"},
    {"v1", "rows of w and x in shared memory", "", "run-to-run", FORWARD(conv_v1),
     "exact"},
    {"v2", "four outputs per thread, 16-byte loads", "", "run-to-run", FORWARD(conv_v2),
     "exact"},
    {"v3", "eight batches share one row of w", "", "run-to-run", FORWARD(conv_v3),
     "exact"},
    {"v4", "balanced work: step t with T - 1 - t", "", "run-to-run", FORWARD(conv_v4),
     "exact"},
    {"v5", "register tile of 16 steps by 8 inputs; short filters stream", "",
     "run-to-run", FORWARD(conv_v5), "exact"},
    {"v6", "tensor cores multiply a Toeplitz band held in registers", "sm_90a",
     "run-to-run", FORWARD_FLOAT(conv_v6), "to rounding"},
    {"v7", "products of spectra, a row's transform in one block", "", "run-to-run",
     FORWARD_FLOAT(conv_v7), "to rounding"},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant backward_variants[] = {
    {"v0", "one output per thread", "", "run-to-run", BACKWARD(conv_v0, lag_v0),
     "exact"},
    {"v1", "rows of w, x and dy in shared memory", "", "run-to-run",
     BACKWARD(conv_v1, lag_v1), "exact"},
    {"v2", "four outputs per thread, 16-byte loads", "", "run-to-run",
     BACKWARD(conv_v2, lag_v2), "exact"},
    {"v3", "eight batches share one row of w; two for the gradient of w", "",
     "run-to-run", BACKWARD(conv_v3, lag_v3), "exact"},
    {"v4", "balanced work: step t with T - 1 - t, lag s with K - 1 - s", "",
     "run-to-run", BACKWARD(conv_v4, lag_v4), "exact"},
    {"v5", "register tile of 16 outputs by 8 inputs; short filters stream", "",
     "run-to-run", BACKWARD(conv_v5, lag_v5), "exact"},
    {"v6", "tensor cores: dx by a Toeplitz band, dw by blocks and their diagonals",
     "sm_90a", "run-to-run", BACKWARD_FLOAT(conv_v6, lag_v6), "to rounding"},
    {"v7", "products of spectra, both gradients in one launch", "", "run-to-run",
     BACKWARD_FLOAT(conv_v7, gradients_v7), "to rounding"},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/*
 * Whether v6 is the fastest rung for a call, by the times in NOTES.md.  It takes at least 8
 * batches at a time, and one product for 16-bit values where float32 wants three.
 */
static bool
wants_tensor_cores(const gpo_call *call, const conv_plan &p, bool backward)
{
    const gpo_dtype dtype = call->in[call->op->by].dtype;
    if (!forward_variants[6].run[dtype] || gpo_lacks(call, forward_variants[6].needs) ||
        !tensor_counts(p.batches, p.channels, p.steps)) {
        return false;
    }
    if (dtype == GPO_F32) {
        return p.batches > 8 && p.steps > (backward ? 512 : 128) && p.steps <= 768;
    }
    const bool most_idle = p.batches <= 2 && p.channels >= 2 * gpo_processors(call);
    return !most_idle && (p.steps <= (backward ? 768 : 1536) || p.lags <= 256);
}

/* Whether v7 is faster than v5; for a few dozen steps they are even. */
static bool
wants_spectra(const gpo_call *call, const conv_plan &p, bool backward)
{
    if (!forward_variants[7].run[call->in[call->op->by].dtype] || p.steps <= 32 ||
        p.steps > MOST_STEPS) {
        return false;
    }
    if (p.steps <= 128) {
        return p.batches <= 8;
    }
    return !backward || p.steps <= 8192 || p.lags > 128;
}

/* The rung for a call, and why. */
static int
rung_for(const gpo_call *call, bool backward, char why[GPO_MESSAGE])
{
    constexpr int64_t FEW_ROWS = 8;
    conv_plan p;
    conv_make_plan(call, &p);
    if (p.lags <= SHORT) {
        snprintf(why, GPO_MESSAGE, "a filter of at most %d taps: v5 reads x once",
                 SHORT);
        return 5;
    }
    if (!p.exact_causality && wants_tensor_cores(call, p, backward)) {
        snprintf(why, GPO_MESSAGE,
                 "v6 multiplies on tensor cores, which pays for %lld batches of %lld "
                 "steps",
                 static_cast<long long>(p.batches), static_cast<long long>(p.steps));
        return 6;
    }
    if (!p.exact_causality && wants_spectra(call, p, backward)) {
        snprintf(why, GPO_MESSAGE,
                 "v7 multiplies spectra: T log T for %lld steps and %lld taps",
                 static_cast<long long>(p.steps), static_cast<long long>(p.taps));
        return 7;
    }
    if (p.batches * ceil_div(p.steps, SEGMENT) < FEW_ROWS) {
        snprintf(why, GPO_MESSAGE,
                 "fewer than %d rows of %d steps: v5 would leave most lanes idle",
                 static_cast<int>(FEW_ROWS), SEGMENT);
        return 2;
    }
    snprintf(why, GPO_MESSAGE, "v5 has 128 products for 4 loads of 16 bytes");
    return 5;
}

static const gpo_variant *
choose_forward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &forward_variants[rung_for(call, false, why)];
}

static const gpo_variant *
choose_backward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &backward_variants[rung_for(call, true, why)];
}

extern "C" const gpo_table causal_conv1d_cuda = {forward_variants, choose_forward};
extern "C" const gpo_table causal_conv1d_backward_cuda = {backward_variants,
                                                          choose_backward};
