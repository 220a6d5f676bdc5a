/*
 * exact_rows.cuh  Rows of v6 that the tensor cores' products cannot represent, and
 * early steps that the row's scale may round away: the block sums them directly in
 * float32.
 * See toeplitz_item.cuh for which rows those are.
 */
#ifndef GPO_CAUSAL_CONV1D_EXACT_ROWS_CUH
#define GPO_CAUSAL_CONV1D_EXACT_ROWS_CUH

#include "tensor.cuh"

#include "toeplitz.cuh"

/*
 * The whole block sums steps [from, to) of the batches in `rows` in the order of v0:
 * rows with inf, NaN or a size that no power of two scales into range.
 */
template <typename T>
static __device__ __noinline__ void
exact_rows(const tensor_conv<T> &p, int c, int first_batch, unsigned rows, int from,
           int to)
{
    for (; rows; rows &= rows - 1) {
        const int64_t b = first_batch + __ffs(rows) - 1;
        const int64_t last = p.reversed ? p.steps - 1 : 0;
        const T *const x = p.x.row(b, c) + last * p.x.t;
        const int64_t stride = p.reversed ? -p.x.t : p.x.t;
        for (int64_t t = from + threadIdx.x; t < to; t += blockDim.x) {
            p.put(b, c, t, direct_step<1>(p, x, stride, c, p.reversed ? last - t : t));
        }
    }
}

/*
 * A value is exact to 2^-40 of its row's largest, but the error bound of an early
 * result depends on early inputs only.  Where these are below this share of the
 * largest, the early results are computed again.
 */
constexpr float LEAST_FIRST = 0x1p-17f;

/* Results 4 q .. 4 q + 3 of a warp's head; takes four taps and eight inputs a turn. */
__device__ __forceinline__ void
add_up_four(const float *taps, int lags, const float *inputs, int q, float (&sum)[4])
{
    const float *const x = inputs + 4 * q;
    pack<float> late = shared_pack(x);
#pragma unroll 4
    for (int s = 0; s <= 4 * q && s < lags; s += 4) {
        const pack<float> early = shared_pack(x - s - 4), tap = shared_pack(taps + s);
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i] = fmaf(tap.v[j],
                              i >= j ? late.v[i >= j ? i - j : 0]
                                     : early.v[i >= j ? 0 : 4 + i - j],
                              sum[i]);
            }
        }
        late = early;
    }
}

/*
 * The early steps of rows that begin with values which the row's scale may round away:
 * those from the first nonzero input up to the first that has LEAST_FIRST of the row's
 * largest, if there are any.  A warp takes a row, finds these steps, and sums them from
 * its `room` floats of shared memory, or in the order of v0 where they do not fit.
 */
static __device__ __noinline__ void
exact_heads(const tensor_conv<float> &p, int c, int first_batch, unsigned rows,
            int from, int to, float *space, int room)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int steps = static_cast<int>(p.steps), last = p.reversed ? steps - 1 : 0;
    const int64_t stride = p.reversed ? -p.x.t : p.x.t;
    const float *const w = p.w + c * p.w_c;
    constexpr int AHEAD = 8; /* loads in flight */
    for (int k = 0; rows; k++, rows &= rows - 1) {
        if (k % (TOEPLITZ_THREADS / WARP) != warp) {
            continue;
        }
        const int64_t b = first_batch + __ffs(rows) - 1;
        const float *const x = p.x.row(b, c) + last * p.x.t;
        const auto size_at = [&](int t) {
            return t < steps ? fabsf(x[t * stride]) : 0;
        };
        float most = 0;
        for (int t = lane; t < steps; t += AHEAD * WARP) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                most = fmaxf(most, size_at(t + i * WARP));
            }
        }
        const float least = most_of_warp(most) * LEAST_FIRST;
        int begin = -1, end = steps;
        for (int t = 0; t < steps && end == steps; t += AHEAD * WARP) {
            float size[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                size[i] = size_at(t + i * WARP + lane);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const unsigned some = __ballot_sync(ALL_LANES, size[i] > 0);
                const unsigned large =
                    __ballot_sync(ALL_LANES, size[i] > 0 && size[i] >= least);
                const int at = t + i * WARP - 1;
                begin = begin < 0 && some ? at + __ffs(some) : begin;
                end = end == steps && large ? at + __ffs(large) : end;
            }
        }
        if (begin < 0) {
            continue;
        }
        const int n = end - begin, fours = (n + 3) / 4;
        const int lags = static_cast<int>(p.lags < n ? p.lags : n);
        if (8 * fours + 4 > room) {
            for (int64_t t = from + lane; t < to; t += WARP) {
                const int64_t own = p.reversed ? last - t : t;
                if (own >= begin && own < end) {
                    p.put(b, c, t, direct_step<1>(p, x, stride, c, own));
                }
            }
            continue;
        }
        float *const taps = space, *const inputs = space + 4 * fours + 4;
        __syncwarp();
        for (int i = lane; i < 4 * fours + 4; i += WARP) { /* 4 zeros end the taps */
            taps[i] = i < lags ? w[i * p.w_s] : 0.0f;
        }
        for (int i = lane; i < 4 * fours; i += WARP) {
            inputs[i] = i < n ? x[(begin + i) * stride] : 0.0f;
        }
        __syncwarp();
        for (int q = lane; q < fours; q += WARP) {
            float sum[4] = {};
            add_up_four(taps, lags, inputs, q, sum);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int own = begin + 4 * q + i;
                const int t = p.reversed ? last - own : own;
                if (own < end && t >= from && t < to) {
                    p.put(b, c, t, sum[i]);
                }
            }
        }
    }
}

#endif
