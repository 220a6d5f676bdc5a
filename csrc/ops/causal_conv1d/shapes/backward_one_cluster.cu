/*
 * backward_one_cluster.cu  The gradients of few channels and filters of at most SHORT taps:
 * as one_block, but a cluster of eight blocks has a channel, so eight SMs load its rows at
 * once.  Each has as many elements of them, and the taps - 1 before and after.  A thread
 * adds all lags of its steps in registers; sums of dw go to the shared memory of the first
 * block, which is a shorter way than parts in L2 and a ticket.
 * Cost:  reads x and dy once, element by element, and writes dx once.
 */
#include "../../../device/hopper.cuh"
#include "one_channel.cuh"

/* What the blocks of a channel have in shared memory, besides its elements. */
template <int LAGS>
struct cluster_sums {
    float warps[MOST_OF_ONE_BLOCK / WARP][LAGS + 1], parts[CHANNEL_CLUSTER][LAGS + 1];
};

/* g of the elements from `begin` on, with SiLU: those of the block and LAGS - 1 after. */
template <int LAGS, typename T>
__device__ __forceinline__ void
multiply_slopes(float *g, const float *x, const float *tap, const conv_view<T> &v,
                int64_t c, const channel_work &work, int begin, int count)
{
    const int steps = static_cast<int>(v.steps), lags = static_cast<int>(v.lags);
    const float offset = v.offset(c);
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += static_cast<int>(blockDim.x)) {
        const int t = begin + i - work.steps.narrow(begin + i) * steps;
        const int terms = t + 1 < lags ? t + 1 : lags;
        float sum = offset;
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s < terms) {
                sum += tap[s] * x[i - s];
            }
        }
        g[i] *= silu_slope<T>(sum);
    }
}

/* dx of a block's elements, and what they add to the sums. */
template <int LAGS, typename T>
__device__ __forceinline__ void
add_channel_steps(float (&total)[LAGS + 1], const float *g, const float *x,
                  const float *tap, const conv_view<T> &v, int64_t c,
                  const channel_work &work, int begin, int count)
{
    const int steps = static_cast<int>(v.steps), lags = static_cast<int>(v.lags);
    T *const dx = v.out.row(0, c);
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += static_cast<int>(blockDim.x)) {
        const int b = work.steps.narrow(begin + i), t = begin + i - b * steps;
        const int left = steps - t, terms = left < lags ? left : lags;
        float sum = 0;
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s < terms) {
                sum += tap[s] * g[i + s];
                total[s] += x[i] * g[i + s];
            }
        }
        total[LAGS] += g[i];
        dx[b * work.out.b + t * work.out.t] = stored_as<T>(sum);
    }
}

template <typename T, int LAGS>
__global__ void
__launch_bounds__(MOST_OF_ONE_BLOCK)
    causal_conv1d_backward_one_cluster(conv_view<T> v, lag_view<T> to,
                                       channel_work work)
{
    constexpr int HALO = LAGS - 1;
    GPO_DYN_SHARED(float, memory);
    GPO_SHARED(float, tap, [LAGS]);
    GPO_SHARED(cluster_sums<LAGS>, sums, [1]);
    const int tid = static_cast<int>(threadIdx.x),
              rank = static_cast<int>(cluster_rank());
    const int warps = static_cast<int>(blockDim.x) / WARP;
    const int64_t c = blockIdx.x / CHANNEL_CLUSTER;
    const int lags = static_cast<int>(v.lags), begin = rank * work.share;
    const int left = work.elements - begin;
    const int count = left < work.share ? (left > 0 ? left : 0) : work.share;
    const int after = left - count < HALO ? left - count : HALO;
    const int before = begin < HALO ? begin : HALO;
    float *const x = memory + HALO, *const g = x + work.share + 2 * HALO;
    const float own = tid < lags ? v.w_at(c, tid) : 0;
    if (count > 0) {
        stage_channel(x - before, g - before, v, c, work, begin - before,
                      before + count + after);
    }
    if (tid < LAGS) {
        tap[tid] = own;
    }
    cluster_sync(); /* the first block has begun: others may write its memory */
    if (v.finish == FINISH_SILU) {
        multiply_slopes<LAGS>(g, x, tap, v, c, work, begin,
                              count > 0 ? count + after : 0);
        __syncthreads();
    }
    float total[LAGS + 1] = {};
    add_channel_steps<LAGS>(total, g, x, tap, v, c, work, begin, count);
#pragma unroll
    for (int s = 0; s <= LAGS; s++) {
        const float sum = warp_combine<add>(total[s]);
        if (tid % WARP == 0) {
            sums->warps[tid / WARP][s] = sum;
        }
    }
    __syncthreads();
    if (tid <= LAGS) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < MOST_OF_ONE_BLOCK / WARP; k++) {
            if (k < warps) {
                sum += sums->warps[k][tid];
            }
        }
        uint32_t word;
        memcpy(&word, &sum, sizeof(word));
        store_peer(peer_address(shared_address(&sums->parts[rank][tid]), 0), word);
    }
    cluster_sync();
    if (rank > 0) {
        return;
    }
    if (tid < lags || tid == LAGS) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < CHANNEL_CLUSTER; k++) {
            sum += sums->parts[k][tid];
        }
        put_short_part(to, 1, 0, c, tid < lags ? tid : to.lags, sum);
    }
    for (int64_t k = tid; k < to.taps - lags; k += static_cast<int>(blockDim.x)) {
        to.dw[c * to.taps + k] = stored_as<T>(0.0F);
    }
}

template <typename T>
gpo_status
gradients_one_cluster(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    channel_work work = {};
    if (v.batches * v.steps == 0) {
        return add_short_parts(call, lags, 0);
    }
    if (!plan_channel(&work, v)) {
        return gradients_short_filters(call, v, lags);
    }
    work.share = static_cast<int>(ceil_div(work.elements, CHANNEL_CLUSTER));
    const int block = work.share <= 512    ? 128
                      : work.share <= 1024 ? 256
                                           : MOST_OF_ONE_BLOCK;
    const dim3 grid(static_cast<unsigned>(v.channels * CHANNEL_CLUSTER));
#define WITH(LAGS)                                                         \
    GPO_LAUNCH_CLUSTERS(call, CHANNEL_CLUSTER, grid, block,                \
                        2 * (work.share + 2 * (LAGS - 1)) * sizeof(float), \
                        (causal_conv1d_backward_one_cluster<T, LAGS>), v, lags, work)
    return v.lags <= 4 ? WITH(4) : WITH(16);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_one_cluster)
