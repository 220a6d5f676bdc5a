/*
 * short_filters.cu  Filters of at most 8 lags, where a register tile would be mostly
 * empty.  These are bandwidth-bound, so x is read once, in packs.
 * - Rows of whole packs: a thread computes a pack of the result from its pack of x and
 *   those before it.
 * - Interleaved channels (layout BTC): a thread walks along 32 steps of one channel,
 *   and neighbouring threads take neighbouring channels.
 * - Anything else runs v0, whose threads find their few inputs in L1.
 * Cost:  reads x once and writes the result once; the gradient of the filters reads x
 *        and dy once, and groups of rows write partial sums.
 */
#include "../../../device/block.cuh"
#include "../staging.cuh"

/* ---- a convolution ---- */

/* Rows of whole packs: a thread makes a pack of the result from HALO + 1 packs of x. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK)
    causal_conv1d_short_filters_packs(conv_view<T> v, unsigned packs, int64_t all)
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

/* Interleaved channels: a thread walks along STRETCH steps of one, SHORT at a time. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK)
    causal_conv1d_short_filters_strided(conv_view<T> v, int64_t stretches, int64_t all)
{
    using V = value_type<T>;
    const int64_t step = static_cast<int64_t>(gridDim.x) * SHORT_BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHORT_BLOCK + threadIdx.x;
         k < all; k += step) {
        const int64_t c = k % v.channels, rest = k / v.channels;
        const int64_t t0 = rest % stretches * STRETCH, b = rest / stretches;
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
        for (int64_t t = t0; t < t0 + STRETCH && t < v.steps; t += SHORT) {
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

template <typename T>
gpo_status
conv_short_filters(gpo_call *call, const conv_view<T> &v)
{
    const int64_t packs = v.steps / pack<T>::SIZE;
    if (packs_are_even(v.x, v.steps) && packs_are_even(v.out, v.steps) &&
        packs < 1 << 30) {
        const int64_t all = v.batches * v.channels * packs;
        const dim3 grid = grid_of(ceil_div(all, SHORT_BLOCK * SHORT_ITEMS));
        return GPO_LAUNCH(call, grid, SHORT_BLOCK, 0,
                          (causal_conv1d_short_filters_packs<T>), v,
                          static_cast<unsigned>(packs), all);
    }
    if (v.x.t != 1 && v.x.t != -1) {
        const int64_t stretches = ceil_div(v.steps, STRETCH);
        const int64_t all = v.batches * v.channels * stretches;
        return GPO_LAUNCH(call, grid_of(ceil_div(all, SHORT_BLOCK)), SHORT_BLOCK, 0,
                          (causal_conv1d_short_filters_strided<T>), v, stretches, all);
    }
    return conv_v0(call, v);
}

/* ---- the gradient of the filters ---- */

/* The gradient at SIZE steps from t on, and x there and HALO packs before. */
template <int SIZE, int HALO, typename T>
__device__ __forceinline__ void
load_lag_inputs(const lag_view<T> &v, int64_t b, int64_t c, int64_t t,
                value_type<T> (&g)[SIZE], value_type<T> (&x)[(HALO + 1) * SIZE])
{
    const T *rows[2] = {v.x.row(b, c), v.g.row(b, c)};
    if constexpr (SIZE == pack<T>::SIZE) {
        pack<T> in[HALO + 1];
#pragma unroll
        for (int h = 0; h <= HALO; h++) {
            in[h] = even_pack(rows[0], false, t + (h - HALO) * SIZE, v.steps);
        }
        const pack<T> own = even_pack(rows[1], false, t, v.steps);
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            g[i] = value_of(own.v[i]);
        }
#pragma unroll
        for (int i = 0; i < (HALO + 1) * SIZE; i++) {
            x[i] = value_of(in[i / SIZE].v[i % SIZE]);
        }
    }
    else {
#pragma unroll
        for (int i = 0; i < (HALO + 1) * SIZE; i++) {
            x[i] = i >= HALO * SIZE - (v.lags - 1)
                       ? step_or_zero(rows[0], v.x.t, t + i - HALO * SIZE, v.steps)
                       : value_type<T>(0);
        }
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            g[i] = step_or_zero(rows[1], v.g.t, t + i, v.steps);
        }
    }
}

/*
 * A block sums the lags of a channel over a share of its packs (single steps where rows
 * are not whole packs), per thread, then across lanes and warps.
 */
template <typename T, int SIZE>
__global__ void
__launch_bounds__(TILE_BLOCK, 2)
    causal_conv1d_backward_short_filters(lag_view<T> v, unsigned packs, int64_t splits,
                                         int64_t share)
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
            load_lag_inputs<SIZE, HALO>(v, b, c, t, g, x);
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

/* Interleaved channels: a thread sums the lags of one over a share of the stretches. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_BLOCK, 3)
    causal_conv1d_backward_short_filters_strided(lag_view<T> v, int64_t stretches,
                                                 int64_t splits, int64_t share)
{
    using V = value_type<T>;
    const int64_t step = static_cast<int64_t>(gridDim.x) * SHORT_BLOCK;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHORT_BLOCK + threadIdx.x;
         k < v.channels * splits; k += step) {
        const int64_t c = k % v.channels, part = k / v.channels;
        const int64_t all = v.batches * stretches;
        const int64_t end = all - part * share < share ? all : (part + 1) * share;
        V total[SHORT] = {};
        for (int64_t m = part * share; m < end; m++) {
            const int64_t b = m / stretches, t0 = m % stretches * STRETCH;
            const T *x = v.x.row(b, c), *g = v.g.row(b, c);
            V sum[SHORT] = {}, value[2 * SHORT - 1], gradient[SHORT];
#pragma unroll
            for (int i = 0; i < SHORT - 1; i++) {
                value[i] = step_or_zero(x, v.x.t, t0 + i - (SHORT - 1), v.steps);
            }
            for (int64_t t = t0; t < t0 + STRETCH && t < v.steps; t += SHORT) {
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

constexpr int64_t SHARE_LIMIT = 1 << 30; /* packs of a share, counted as unsigned */

/* dy and x are read once; leaves *splits partial sums to add. */
template <typename T>
static gpo_status
launch_lags(gpo_call *call, lag_view<T> *view, int64_t *splits)
{
    lag_view<T> &v = *view;
    const bool even = packs_are_even(v.x, v.steps) && packs_are_even(v.g, v.steps) &&
                      v.x.t == 1 && v.g.t == 1;
    const int64_t processors = gpo_processors(call);
    if (v.x.t != 1 && v.x.t != -1 && v.g.t != 1 && v.g.t != -1) {
        const int64_t stretches = ceil_div(v.steps, STRETCH),
                      all = v.batches * stretches;
        *splits =
            splits_for(processors * THREADS_WANTED, v.channels, all, MOST_SHORT_SPLITS);
        const int64_t share = ceil_div(all, *splits);
        const gpo_status status = make_parts(call, *splits, &v);
        const dim3 grid = grid_of(ceil_div(v.channels * *splits, SHORT_BLOCK));
        return status ? status
                      : GPO_LAUNCH(call, grid, SHORT_BLOCK, 0,
                                   (causal_conv1d_backward_short_filters_strided<T>), v,
                                   stretches, *splits, share);
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
    return even ? GPO_LAUNCH(call, grid, TILE_BLOCK, 0,
                             (causal_conv1d_backward_short_filters<T, pack<T>::SIZE>),
                             v, packs_of_row, *splits, share)
                : GPO_LAUNCH(call, grid, TILE_BLOCK, 0,
                             (causal_conv1d_backward_short_filters<T, 1>), v,
                             packs_of_row, *splits, share);
}

template <typename T>
gpo_status
lag_short_filters(gpo_call *call, const lag_view<T> &view)
{
    if (view.lags == 0) {
        return GPO_OK;
    }
    if (view.steps >= SHARE_LIMIT) {
        return lag_v5(call, view);
    }
    lag_view<T> v = view;
    int64_t splits = 1;
    const gpo_status status = launch_lags(call, &v, &splits);
    return status ? status : add_parts(call, v, splits);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_short_filters)
GPO_EVERY_FLOAT(GPO_LAG_OF, lag_short_filters)
