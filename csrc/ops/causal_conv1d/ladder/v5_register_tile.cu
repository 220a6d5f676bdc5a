/*
 * v5  Register tile of 16 steps by 8 inputs.
 * Was:   v4 has 16 products for each pair of 16-byte loads, and tests each of them.
 * Now:   each lane has its own row and computes 16 of its steps: 8 inputs and a window
 *        of 23 lags make 128 products.  The window slides, so 8 lags are new each time,
 *        and they are the same for all 32 lanes.  Only tiles on an edge of the filter
 *        test or skip products.  A row is a (batch, segment of 128 steps), so that few
 *        batches fill a warp, too.  The next 64 inputs are in flight while these are
 *        multiplied.  Channels are processed in groups whose rows fit in L2.
 * Cost:  4 loads of 16 bytes for 128 products; x is read T / 256 times.
 * Left:  the multiplications take 0.217 ms for B32 C768 T768 in float32 at 67 TFLOP/s
 *        -> v6.  A short filter leaves most of a tile empty: see
 *        shapes/short_filters.cu.
 */
#include "../tiles.cuh"

/* sum[i] += lag[7 + i - j] * x[j] for every i and j with i - j >= LEAST. */
template <int LEAST, typename V>
__device__ __forceinline__ void
conv_products(V (&sum)[STEPS], const V *lag, const V (&x)[INPUTS])
{
#pragma unroll
    for (int j = 0; j < INPUTS; j++) {
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            if (i - j >= LEAST) {
                sum[i] += lag[INPUTS - 1 + i - j] * x[j];
            }
        }
    }
}

/*
 * Tiles on an edge of the filter: `first` is the lag of step 0 and input 0, a multiple
 * of 8; `all` the number of lags.  Products whose lag is outside the filter are
 * skipped, not multiplied by zero: an infinite input must not spread.
 */
template <typename V>
__device__ __forceinline__ void
conv_edge(V (&sum)[STEPS], const V *lags, const V *inputs, int64_t first, int64_t all)
{
    if (first + STEPS - 1 < 0 || first - (INPUTS - 1) >= all) {
        return;
    }
    V x[INPUTS], lag[WINDOW];
    shared_values<INPUTS>(x, inputs);
    shared_values<WINDOW>(lag, lags);
    if (first + STEPS - 1 >= all) {
        conv_products_between(sum, lag, x, -first, all - first);
    }
    else if (first == 0) {
        conv_products<0>(sum, lag, x);
    }
    else if (first == -INPUTS) {
        conv_products<INPUTS>(sum, lag, x);
    }
    else {
        conv_products<-INPUTS>(sum, lag, x);
    }
}

template <typename T>
__global__ void
__launch_bounds__(TILE_BLOCK, sizeof(T) == 8 ? 1 : 2)
    causal_conv1d_v5_register_tile(conv_view<T> v, int64_t rows, int64_t groups,
                                   bool even)
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
            /* The first iteration only loads the inputs of the next one. */
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

template <typename T>
gpo_status
conv_v5(gpo_call *call, const conv_view<T> &v)
{
    const bool even = packs_are_even(v.x, v.steps);
    const int64_t rows = v.batches * ceil_div(v.steps, SEGMENT);
    const int64_t groups = ceil_div(rows, WARP);
    return GPO_LAUNCH(call, grid_of(groups * v.channels), TILE_BLOCK, 0,
                      (causal_conv1d_v5_register_tile<T>), v, rows, groups, even);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_v5)
