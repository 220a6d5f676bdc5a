/*
 * guard.cuh  Which sums v3 and long_filters take from a transform.
 *
 * A sum may err by sqrt(M) 2^-23 |v| |the inputs in its window|.  A transform spreads
 * its error evenly, in proportion to the norm of all inputs of its blocks.  So the
 * energy of those is compared with the least energy of any window.  The first and last
 * sums of a row, whose windows are short, are added up by separate warps while others
 * transform (ends.cuh).  A block that fails the test is called wide and is computed
 * again (wide_blocks.cuh).
 * See spectral_rows.cuh for rows, device/fft.cuh for the transform.
 */
#ifndef GPO_CONVOLVE_GUARD_CUH
#define GPO_CONVOLVE_GUARD_CUH

#include "spectral_rows.cuh"
#include "tuning.cuh"

#include <cmath>

/*
 * The energy of a block is taken in CHUNKS chunks.  The windows of all sums of a chunk
 * share the M / chunk - 1 chunks before it: at least SPAN where the filter is one block
 * of the transform and has LEAST_TAPS.
 */
template <typename FFT>
constexpr int CHUNKS = FFT::POINTS == 512 ? 8 : 4;
template <typename FFT>
constexpr int SPAN = CHUNKS<FFT> / 4;

constexpr int ENDS = 128; /* sums at either end of a row, added term by term */

__device__ __forceinline__ float
no_window()
{
    return __int_as_float(0x7f800000); /* infinite: more energy than any window has */
}

/*
 * The largest allowed ratio of the energy of a block's inputs to a window's.  A sum
 * whose window has an eighth of the energy or less errs by at most 0.6 log2(2N) 2^-24
 * |v| |a| (0.44 is the most seen, NOTES.md), one with more by at most 0.9 (0.88), which
 * is within its bound from LEAST_TAPS on.
 */
static inline float
growth_of(int64_t taps, int points)
{
    const double passes = 0.6 * (std::log2(static_cast<double>(points)) + 1);
    return static_cast<float>(4 * static_cast<double>(taps) / (passes * passes));
}

/* Whether the guard tests sum i, the first of a chunk: its window is long enough. */
template <typename T>
__device__ __forceinline__ bool
is_judged(const convolve_view<T> &c, int64_t i)
{
    const int64_t end = c.first + c.count;
    return i >= ENDS && i < (end < c.n ? end : c.n);
}

/* Whether a row has short windows at its beginning or, if `last`, at its end. */
template <typename T>
__host__ __device__ __forceinline__ bool
has_end(const convolve_view<T> &c, bool last)
{
    return last ? c.first + c.count > c.n : c.first < ENDS;
}

/* Whether results [begin, begin + length) have such windows. */
template <typename T>
__device__ __forceinline__ bool
reaches_end(const convolve_view<T> &c, bool last, int64_t begin, int64_t length)
{
    const int64_t end = begin + length < c.count ? begin + length : c.count;
    return last ? c.first + end > c.n : c.first + begin < ENDS;
}

__device__ __forceinline__ spectrum_row
reversed(spectrum_dtype dtype, const spectrum_row &row)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    return {static_cast<char *>(row.p) + (row.n - 1) * row.stride * bytes, -row.stride,
            row.n};
}

/*
 * Sums the squares of a warp's values times `by`; lane i gets the sum over chunk
 * i / (WARP / CHUNKS).
 */
template <typename FFT>
__device__ __forceinline__ float
energy_of_chunks(const float (&x)[FFT::V], float by)
{
    constexpr int C = CHUNKS<FFT>, EACH = FFT::V / C;
    const unsigned lane = threadIdx.x % WARP;
    float sum[C];
#pragma unroll
    for (int c = 0; c < C; c++) {
        sum[c] = 0;
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const float y = x[c * EACH + e] * by;
            sum[c] = fmaf(y, y, sum[c]);
        }
    }
    int d = WARP / 2;
#pragma unroll
    for (int left = C / 2; left > 0; left /= 2) { /* half the chunks per half warp */
        const bool upper = (lane & static_cast<unsigned>(d)) != 0;
#pragma unroll
        for (int c = 0; c < left; c++) {
            const float given = upper ? sum[c] : sum[c + left];
            const float kept = upper ? sum[c + left] : sum[c];
            sum[c] = kept + __shfl_xor_sync(ALL_LANES, given, d);
        }
        d /= 2;
    }
#pragma unroll
    for (; d > 0; d /= 2) {
        sum[0] += __shfl_xor_sync(ALL_LANES, sum[0], d);
    }
    return sum[0];
}

/* Writes each warp's sums to WARPS * CHUNKS slots; a barrier must follow. */
template <typename FFT>
__device__ __forceinline__ void
store_energies(const float (&x)[FFT::V], float by, float *slots)
{
    constexpr unsigned C = CHUNKS<FFT>, EACH = WARP / C;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const float mine = energy_of_chunks<FFT>(x, by);
    if (lane % EACH == 0) {
        slots[warp * C + lane / EACH] = mine;
    }
}

template <typename FFT>
__device__ __forceinline__ float
sum_energy(int chunk, const float *slots)
{
    float all = slots[chunk];
#pragma unroll
    for (int w = 1; w < FFT::THREADS / WARP; w++) {
        all += slots[w * CHUNKS<FFT> + chunk];
    }
    return all;
}

struct added {
    double x;

    static __device__ __forceinline__ added combine(added a, added b)
    {
        return {a.x + b.x};
    }
};

/* For one warp: the energy of the first or last ENDS inputs of a row, in lane 0. */
__device__ __forceinline__ double
energy_of_end(const spectral_rows &rows, const spectrum_row &a, bool last)
{
    float x[ENDS / WARP];
    load_row<WARP>(rows.dtype, last ? reversed(rows.dtype, a) : a, threadIdx.x % WARP,
                   x);
    added energy = {0};
#pragma unroll
    for (int e = 0; e < ENDS / WARP; e++) {
        energy.x += static_cast<double>(x[e]) * static_cast<double>(x[e]);
    }
    return warp_combine<added>(energy).x;
}

/* Stores the energies of the ends that results [begin, begin + length) reach. */
__device__ __forceinline__ void
store_ends(const spectral_rows &rows, const spectrum_row &a, int64_t begin,
           int64_t length, double *ends)
{
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        if (reaches_end(rows.c, side == 1, begin, length)) {
            const double energy = energy_of_end(rows, a, side == 1);
            if (threadIdx.x == 0) {
                ends[side] = energy;
            }
        }
    }
}

/* Whether the ends that results [begin, begin + length) reach have `least` energy. */
__device__ __forceinline__ bool
ends_hold(const spectral_rows &rows, int64_t begin, int length, double least,
          const double *ends)
{
    bool holds = true;
#pragma unroll 1
    for (int side = 0; side < 2; side++) {
        if (reaches_end(rows.c, side == 1, begin, length)) {
            holds = ends[side] >= least && holds;
        }
    }
    return holds;
}

/*
 * For one warp: whether the results from `begin` on may be taken from a transform.  The
 * energies of their block's inputs are `own` times 4^own_shift, those of the block
 * before `last` times 4^last_shift, in units of 4^exponent; `ends` has those of the
 * row's ends.
 */
template <typename FFT>
__device__ __forceinline__ bool
windows_hold(const spectral_rows &rows, int64_t begin, const float *own, int own_shift,
             const float *last, int last_shift, int exponent, const double *ends)
{
    constexpr int C = CHUNKS<FFT>, LENGTH = FFT::POINTS / C;
    const int chunk = static_cast<int>(threadIdx.x) % C;
    const float now = sum_energy<FFT>(chunk, own) * power_of_two(2 * own_shift);
    const float before = sum_energy<FFT>(chunk, last) * power_of_two(2 * last_shift);
    float inside = 0, all = now + before;
#pragma unroll
    for (int d = 1; d <= SPAN<FFT>; d++) {
        const int from = (chunk - d) & (C - 1);
        const float a = __shfl_sync(ALL_LANES, now, from);
        const float b = __shfl_sync(ALL_LANES, before, from);
        inside += chunk >= d ? a : b;
    }
    const bool asks = is_judged(rows.c, rows.c.first + begin + chunk * LENGTH);
    inside = asks ? inside : no_window();
#pragma unroll
    for (int d = C / 2; d > 0; d /= 2) {
        all += __shfl_xor_sync(ALL_LANES, all, d);
        const float other = __shfl_xor_sync(ALL_LANES, inside, d);
        inside = other < inside ? other : inside;
    }
    const double unit = power_of_two(exponent);
    return all <= rows.growth * inside &&
           ends_hold(rows, begin, FFT::POINTS, all / rows.growth * unit * unit, ends);
}

#endif
