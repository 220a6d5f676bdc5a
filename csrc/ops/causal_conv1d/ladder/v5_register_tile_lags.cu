/*
 * v5  Register tile of 16 lags by 8 inputs, for the gradient of the filters.
 * Was:   v4 has 16 products for each pair of 16-byte loads, and tests each of them.
 * Now:   each lane has its own row and 16 lags: 8 inputs are multiplied by a window of
 *        23 steps of the gradient, which slides along a ring buffer in shared memory;
 *        lanes are reduced at the end.  Where there are few channels and lags, groups
 *        of rows write partial sums, which a second kernel adds in a fixed order.
 * Cost:  4 loads of 16 bytes for 128 products.
 * Left:  the multiplications: with those of dx, twice as many as forward -> v6.
 */
#include "../../../device/block.cuh"
#include "../tiles.cuh"

/* sum[i] += x[j] * g[i + j]. */
template <typename V>
__device__ __forceinline__ void
lag_products(V (&sum)[STEPS], const V *g, const V (&x)[INPUTS])
{
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            sum[i] += x[j] * g[i + j];
        }
    }
}

/* How the work on lags is divided: row groups part, part + splits, ... */
struct lag_split {
    int64_t rows, groups; /* (batch, segment) rows, groups of 32 */
    int64_t tiles, splits;
    bool even;
};

template <typename T>
__global__ void
__launch_bounds__(lag_tile<value_type<T>>::BLOCK, 2)
    causal_conv1d_backward_v5_register_tile_lags(lag_view<T> v, lag_split split)
{
    using V = value_type<T>;
    using tile = lag_tile<V>;
    using x_row = row_stage<V, tile::STAGED>;
    using g_row = row_stage<V, tile::RING>;
    constexpr int STAGED = tile::STAGED, RING = tile::RING, THREADS = tile::BLOCK;
    GPO_SHARED(x_row, x, [WARP]);
    GPO_SHARED(g_row, g, [WARP]); /* step first + s0 + u is in column u % RING */
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
            const int64_t end = v.steps - s0 - nearest; /* inputs of lag s0 */
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

template <typename T>
gpo_status
lag_v5(gpo_call *call, const lag_view<T> &view)
{
    using tile = lag_tile<value_type<T>>;
    lag_view<T> v = view;
    if (v.lags == 0) {
        return GPO_OK;
    }
    lag_split split;
    split.rows = v.batches * ceil_div(v.steps, LAG_SEGMENT);
    split.groups = ceil_div(split.rows, WARP);
    split.tiles = ceil_div(v.lags, tile::LAGS);
    split.even = packs_are_even(v.x, v.steps) && packs_are_even(v.g, v.steps);
    split.splits = splits_for(gpo_processors(call) * BLOCKS_WANTED,
                              v.channels * split.tiles, split.groups, MOST_SPLITS);
    gpo_status status = make_parts(call, split.splits, &v);
    if (!status) {
        const dim3 grid = grid_of(v.channels * split.tiles * split.splits);
        status =
            GPO_LAUNCH(call, grid, tile::BLOCK, 0,
                       (causal_conv1d_backward_v5_register_tile_lags<T>), v, split);
    }
    return status ? status : add_parts(call, v, split.splits);
}

GPO_EVERY_FLOAT(GPO_LAG_OF, lag_v5)
