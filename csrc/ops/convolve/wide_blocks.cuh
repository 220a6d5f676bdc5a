/*
 * wide_blocks.cuh  Sums in wide blocks, whose inputs differ too much in size for a
 * transform of the whole block (guard.cuh).
 * Order: terms that are added up, sums in wide blocks.
 *
 * They are computed in blocks of 512.  Block r of sums gets
 * - the inputs of blocks r - 1 .. r - D, D = M / 512 - 1, by products of spectra: these
 *   lie wholly in all its windows, so their rounding error is relative to terms of
 *   every sum;
 * - the other 512 + M % 512 terms per sum one by one: those of block r, and those at
 *   the far end of its windows.
 */
#ifndef GPO_CONVOLVE_WIDE_BLOCKS_CUH
#define GPO_CONVOLVE_WIDE_BLOCKS_CUH

#include "ends.cuh"
#include "register_rows.cuh"

/* ---- terms that are added up ---- */

using square_fft = block_fft<16, 2>; /* of one warp */
constexpr int SQUARE = square_fft::POINTS, SQUARE_V = square_fft::V;

constexpr int STAGE_LAGS = 128; /* in shared memory at a time */
static_assert(CHAIN == 2 * SUMS<float>, "two rows of the window");
constexpr int STAGE_ROWS = (SQUARE + STAGE_LAGS) / SUMS<float>;
constexpr int STAGE_FLOATS = STAGE_ROWS * PITCH<float> + 2 * STAGE_LAGS;
static_assert(STAGE_FLOATS <= 2 * square_fft::SECOND,
              "a stage leaves the factors of the transform in place");

/* As v2's slide(), but `now` and `before` have separate taps, `near` and `far`. */
__device__ __forceinline__ void
slide_between(float (&sum)[SUMS<float>], const float (&now)[SUMS<float>],
              const float (&before)[SUMS<float>], const float *near, const float *far)
{
    constexpr int N = SUMS<float>, SIZE = pack<float>::SIZE;
#pragma unroll
    for (int q = 0; q < N / SIZE; q++) {
        const pack<float> t = *reinterpret_cast<const pack<float> *>(near + q * SIZE);
        const pack<float> s = *reinterpret_cast<const pack<float> *>(far + q * SIZE);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            const int k = q * SIZE + u;
#pragma unroll
            for (int j = 0; j < N; j++) {
                sum[j] = j >= k ? fmaf(now[j >= k ? j - k : 0], t.v[u], sum[j])
                                : fmaf(before[j >= k ? 0 : N + j - k], s.v[u], sum[j]);
            }
        }
    }
}

template <typename T>
__device__ __forceinline__ float
element_of(const spectrum_row &row, int64_t i)
{
    const T *p = static_cast<const T *>(row.p);
    return i >= 0 && i < row.n ? static_cast<float>(value_of(p[i * row.stride])) : 0.0f;
}

/*
 * For one warp: adds terms to y, the sums from + lane + 32 e.  For each l < lags, sum
 * from + s gets its term of lag lag + l if l <= s, else that of lag lag + back + l.
 * With back = 512 D, lag = 0 and lags = 512 these are block r's own inputs and the
 * far end of the windows.
 */
__device__ __forceinline__ void
add_terms(spectrum_dtype dtype, const spectral_operands &in, int64_t from, int64_t lag,
          int lags, int64_t back, float *space, float (&y)[SQUARE_V])
{
    constexpr int N = SUMS<float>, P = PITCH<float>;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    float *const signal = space, *const near = space + STAGE_ROWS * P;
    float *const far = near + STAGE_LAGS;
    float all[N] = {};
#pragma unroll 1
    for (int first = 0; first < lags; first += STAGE_LAGS) {
        __syncwarp();
        with_dtype(dtype, [&](auto element) {
            using T = decltype(element);
            const int64_t origin = from - lag - back;
#pragma unroll
            for (int e = 0; e < (SQUARE + STAGE_LAGS) / WARP; e++) {
                const int place = e * WARP + lane, p = place - STAGE_LAGS - first;
                signal[place_of<float>(place)] =
                    element_of<T>(in.a, p < 0 ? origin + p : from - lag + p);
            }
#pragma unroll
            for (int e = 0; e < STAGE_LAGS / WARP; e++) {
                const int l = first + e * WARP + lane;
                const bool is_tap = l < lags;
                near[l - first] = is_tap ? element_of<T>(in.v, lag + l) : 0.0f;
                far[l - first] = is_tap ? element_of<T>(in.v, lag + back + l) : 0.0f;
            }
        });
        __syncwarp();
        float now[N], before[N];
        const float *at = signal + (STAGE_LAGS / N + lane) * P;
        load_row(now, at);
#pragma unroll 1
        for (int b = 0; b < STAGE_LAGS; b += CHAIN) {
            /* `now` begins with input p; inputs before 0 take the far taps. */
            const int p = N * lane - first - b;
            const float *const own = (p >= 0 ? near : far) + b;
            const float *const next = (p >= N ? near : far) + b;
            const float *const third = (p >= 2 * N ? near : far) + b + N;
            float sum[N] = {};
            load_row(before, at - P);
            slide_between(sum, now, before, own, next);
            load_row(now, at - 2 * P);
            slide_between(sum, before, now, next + N, third);
            at -= 2 * P;
#pragma unroll
            for (int j = 0; j < N; j++) {
                all[j] += sum[j];
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int q = 0; q < N / 4; q++) {
        *reinterpret_cast<pack<float> *>(signal + lane * P + 4 * q) = {
            {all[4 * q], all[4 * q + 1], all[4 * q + 2], all[4 * q + 3]}};
    }
    __syncwarp();
#pragma unroll
    for (int e = 0; e < SQUARE_V; e++) {
        y[e] += signal[place_of<float>(lane + e * WARP)];
    }
}

/* ---- sums in wide blocks ---- */

/* D: the blocks of inputs that are wholly in every window of a block of sums. */
__host__ __device__ __forceinline__ int64_t
whole_blocks(int64_t m)
{
    return m / SQUARE - 1;
}

/*
 * For one warp: stores results begin + lane + 32 e: y, the contribution of whole
 * blocks, plus the other terms.  Sums that are not finite are computed again from their
 * own terms.
 */
__device__ __forceinline__ void
put_wide_sums(const spectral_rows &rows, int64_t row, const spectral_operands &in,
              int64_t begin, float *space, float (&y)[SQUARE_V])
{
    const convolve_view<float> &c = rows.c;
    const int64_t whole = whole_blocks(c.m), from = c.first + begin;
    int64_t lag = 0;
    if (whole > 0) {
        add_terms(rows.dtype, in, from, 0, SQUARE, whole * SQUARE, space, y);
        lag = (whole + 1) * SQUARE;
    }
    if (lag < c.m) {
        add_terms(rows.dtype, in, from, lag, static_cast<int>(c.m - lag), 0, space, y);
    }
    const int64_t first = begin + threadIdx.x % WARP;
    store_results<WARP>(rows, row, first, y);
    unsigned odd = 0;
#pragma unroll
    for (int e = 0; e < SQUARE_V; e++) {
        const int64_t i = first + e * WARP;
        const bool is_odd = !is_finite(y[e]) && i >= rows.low && i < rows.high;
        odd |= is_odd ? 1u << e : 0u;
    }
    if (odd) {
        with_dtype(rows.dtype, [&](auto element) {
            using T = decltype(element);
            const auto &view = seen_as<T>(c);
            const auto operands = find_row(view, row);
#pragma unroll 1
            for (; odd; odd &= odd - 1) {
                const int64_t i = first + (__ffs(static_cast<int>(odd)) - 1) * WARP;
                view.out[row * c.count + i] =
                    result_of<T>(exact_sum(view, operands, c.first + i));
            }
        });
    }
}

#endif
