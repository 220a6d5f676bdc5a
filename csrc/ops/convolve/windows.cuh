/*
 * windows.cuh  Which sums rung v3 of convolve takes from a transform, and how it makes the
 * others.  Order: the guard, the ends of a row, terms that are added up, sums in wide
 * blocks, what a filter of one block leaves.
 * Not here: the kernels (spectra.cuh), rows (spectral_rows.cuh), the transform
 * (device/fft.cuh).
 *
 * A sum may err by sqrt(M) 2^-23 |v| |the inputs in its window|.  A transform errs evenly,
 * by the norm of all inputs of its blocks.  So the energy of those is held against the
 * least that a window has; the first and last sums of a row, whose windows are short, are
 * added up.  A block that does not pass is wide, and is made of blocks of 512: sum block r
 * gets
 *
 *     inputs of blocks r - 1 .. r - D, D = M / 512 - 1, by products of spectra: they are
 *     wholly in all its windows, so that what is rounded there belongs to every sum;
 *     the rest, 512 + M % 512 terms a sum, one by one: those of block r, and those at the
 *     far end of its windows.
 */
#ifndef GPO_CONVOLVE_WINDOWS_CUH
#define GPO_CONVOLVE_WINDOWS_CUH

#include "spectral_rows.cuh"

#include <cmath>

/* ---- the guard ---- */

/*
 * The energy of a block is taken in so many chunks.  The windows of all sums of a chunk
 * have M / chunk - 1 chunks before it in common: SPAN at least where the filter is one
 * block of the transform and has LEAST_TAPS.
 */
template <typename FFT>
constexpr int CHUNKS = FFT::POINTS == 512 ? 8 : 4;
template <typename FFT>
constexpr int SPAN = CHUNKS<FFT> / 4;

constexpr int64_t LEAST_TAPS = 192; /* fewer are v2's */
constexpr int ENDS = 128;           /* sums at either end of a row that are added up */

constexpr float NOTHING = -1.0f; /* no energy is wanted of the ends */
constexpr int WIDE_BITS = 0x7f800000;

__device__ __forceinline__ float
wide_block()
{
    return __int_as_float(WIDE_BITS); /* infinite: nothing is enough */
}

/*
 * The square of how far the norm of a block's inputs may pass a window's.  A sum whose
 * window has an eighth of the energy or less errs by at most 0.6 log2(2N) 2^-24 |v| |a|
 * (0.44 is the most seen, NOTES.md), one with more by at most 0.9 (0.88), which is inside
 * its bound from LEAST_TAPS on.
 */
static float
growth_of(int64_t taps, int points)
{
    const double passes = 0.6 * (std::log2(static_cast<double>(points)) + 1);
    return static_cast<float>(4 * static_cast<double>(taps) / (passes * passes));
}

/* Whether the guard asks at sum i, the first of a chunk: its window reaches far enough. */
template <typename T>
__device__ __forceinline__ bool
is_judged(const convolve_view<T> &c, int64_t i)
{
    const int64_t end = c.first + c.count;
    return i >= ENDS && i < (end < c.n ? end : c.n);
}

/* Whether some of the results [begin, begin + length) have short windows. */
template <typename T>
__device__ __forceinline__ bool
has_ends(const convolve_view<T> &c, int64_t begin, int length)
{
    const int64_t end = begin + length < c.count ? begin + length : c.count;
    return c.first + begin < ENDS || c.first + end > c.n;
}

/*
 * The squares of a warp's values times `by`: lane i gets the sum over chunk
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
    for (int left = C / 2; left > 0; left /= 2) { /* half of the chunks for each half */
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

/* Those of a block of threads; WARPS * CHUNKS slots, behind a barrier. */
template <typename FFT>
__device__ __forceinline__ void
tell_energies(const float (&x)[FFT::V], float by, float *slots)
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
told_energy(int chunk, const float *slots)
{
    float all = slots[chunk];
#pragma unroll
    for (int w = 1; w < FFT::THREADS / WARP; w++) {
        all += slots[w * CHUNKS<FFT> + chunk];
    }
    return all;
}

/*
 * By one warp: the energy that the ends of a row must have, for results from `begin` on
 * whose inputs have the energies told at `own` times 4^own_shift, and `last` for the block
 * before.  NOTHING if there are no ends, infinite if the block is wide.
 */
template <typename FFT>
__device__ __forceinline__ float
judge_block(const spectral_rows &rows, int64_t begin, const float *own, int own_shift,
            const float *last, int last_shift)
{
    constexpr int C = CHUNKS<FFT>, LENGTH = FFT::POINTS / C;
    const int chunk = static_cast<int>(threadIdx.x) % C;
    const float now = told_energy<FFT>(chunk, own) * power_of_two(2 * own_shift);
    const float before = told_energy<FFT>(chunk, last) * power_of_two(2 * last_shift);
    float inside = 0, all = now + before;
#pragma unroll
    for (int d = 1; d <= SPAN<FFT>; d++) {
        const int from = (chunk - d) & (C - 1);
        const float a = __shfl_sync(ALL_LANES, now, from);
        const float b = __shfl_sync(ALL_LANES, before, from);
        inside += chunk >= d ? a : b;
    }
    const bool asks = is_judged(rows.c, rows.c.first + begin + chunk * LENGTH);
    inside = asks ? inside : wide_block();
#pragma unroll
    for (int d = C / 2; d > 0; d /= 2) {
        all += __shfl_xor_sync(ALL_LANES, all, d);
        const float other = __shfl_xor_sync(ALL_LANES, inside, d);
        inside = other < inside ? other : inside;
    }
    return !(all <= rows.growth * inside)         ? wide_block()
           : has_ends(rows.c, begin, FFT::POINTS) ? all / rows.growth
                                                  : NOTHING;
}

/* ---- the ends of a row ---- */

__device__ __forceinline__ spectrum_row
reversed(spectrum_dtype dtype, const spectrum_row &row)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    return {static_cast<char *>(row.p) + (row.n - 1) * row.stride * bytes, -row.stride,
            row.n};
}

struct added {
    double x;

    static __device__ __forceinline__ added combine(added a, added b)
    {
        return {a.x + b.x};
    }
};

/*
 * Terms that are added in order, and then such sums: a chain of n equal terms errs by up
 * to n / 2 u times its sum, and the bound of the shortest filters has room for 27 u.
 */
constexpr int CHAIN = 32;

/* Shared floats that one side of put_end takes: taps, zeros, inputs. */
constexpr int END_FLOATS = 3 * ENDS;

/*
 * By one warp: the first ENDS sums of a row, or the last, as far as they are results
 * [begin, begin + length); a lane has four.  Whether their inputs have the energy `least`.
 */
__device__ __forceinline__ bool
put_end(const spectral_rows &rows, int64_t row, const spectral_operands &in, bool last,
        int64_t begin, int length, double least, float *space)
{
    const convolve_view<float> &c = rows.c;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    float *const taps = space, *const zeros = taps + ENDS, *const inputs = zeros + ENDS;
    float x[4], t[4];
    load_row<WARP>(rows.dtype, last ? reversed(rows.dtype, in.a) : in.a, lane, x);
    load_row<WARP>(rows.dtype, last ? reversed(rows.dtype, in.v) : in.v, lane, t);
    added energy = {0};
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        taps[k * WARP + lane] = t[k];
        zeros[k * WARP + lane] = 0;
        inputs[k * WARP + lane] = x[k];
        energy.x += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    }
    __syncwarp();
    energy = warp_combine<added>(energy);
    const float *const own = inputs + 4 * lane;
    pack<float> late = *reinterpret_cast<const pack<float> *>(own);
    float all[4] = {};
#pragma unroll 1
    for (int first = 0; first < ENDS && first <= 4 * lane + 3; first += CHAIN) {
        float sum[4] = {};
#pragma unroll 4
        for (int s = first; s < first + CHAIN; s += 4) {
            if (s > 4 * lane + 3) {
                break;
            }
            const pack<float> early =
                *reinterpret_cast<const pack<float> *>(own - s - 4);
            const pack<float> tap = *reinterpret_cast<const pack<float> *>(taps + s);
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
#pragma unroll
        for (int i = 0; i < 4; i++) {
            all[i] += sum[i];
        }
    }
    const int64_t end = begin + length < c.count ? begin + length : c.count;
    with_dtype(rows.dtype, [&](auto element) {
        const auto &view = seen_as<decltype(element)>(c);
        const auto operands = find_row(view, row);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t from_end = 4 * lane + i;
            const int64_t sum = last ? c.n + c.m - 2 - from_end : from_end;
            const int64_t at = sum - c.first;
            if (at >= begin && at < end) {
                put(view, operands, row, at, all[i]);
            }
        }
    });
    return __shfl_sync(ALL_LANES, energy.x >= least ? 1 : 0, 0) != 0;
}

/*
 * By a block of threads: the ends that are among the results [begin, begin + length).
 * Whether they have the energy `least`, in every thread.  `space` has 2 END_FLOATS.
 */
template <int THREADS>
__device__ __forceinline__ bool
put_ends(const spectral_rows &rows, int64_t row, const spectral_operands &in,
         int64_t begin, int length, double least, float *space)
{
    const convolve_view<float> &c = rows.c;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const int64_t end = begin + length < c.count ? begin + length : c.count;
    bool good = true;
#pragma unroll 1
    for (int side = warp; side < 2; side += THREADS / WARP) {
        if (side == 0 ? c.first + begin < ENDS : c.first + end > c.n) {
            good = put_end(rows, row, in, side == 1, begin, length, least,
                           space + side * END_FLOATS) &&
                   good;
        }
    }
    return !__syncthreads_or(!good);
}

/* ---- terms that are added up ---- */

using square_fft = block_fft<16, 2>; /* of one warp */
constexpr int SQUARE = square_fft::POINTS, SQUARE_V = square_fft::V;

constexpr int STAGE_LAGS = 128; /* in shared memory at a time */
static_assert(CHAIN == 2 * SUMS<float>, "two rows of the window");
constexpr int STAGE_ROWS = (SQUARE + STAGE_LAGS) / SUMS<float>;
constexpr int STAGE_FLOATS = STAGE_ROWS * PITCH<float> + 2 * STAGE_LAGS;
static_assert(STAGE_FLOATS <= 2 * square_fft::SECOND,
              "a stage leaves the factors of the transform in place");

/* The taps that `now` meets and those that `before` meets may lie at different lags. */
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
 * By one warp, y += terms of the sums from + lane + 32 e: of sum from + s the lags
 * lag + l, l < lags, for inputs from `from` - lag on; for those before them the lags
 * lag + back + l.  So with back = 512 D, lag = 0, lags = 512: block r's own inputs, and
 * the far end of the windows.
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
            /* `now` begins with input `p`; far taps meet those before 0. */
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
 * By one warp, results begin + lane + 32 e: y, which whole blocks gave, and the other
 * terms.  Sums that are not finite are added up by themselves.
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
    store_row<WARP>(rows.dtype, results_of(rows, row), first, y);
    unsigned odd = 0;
#pragma unroll
    for (int e = 0; e < SQUARE_V; e++) {
        const bool is_odd = !is_finite(y[e]) && first + e * WARP < c.count;
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

/* ---- what a filter of one block leaves ---- */

/* What a block of results wants: energy of the ends / 4^exponent, as judge_block gives. */
struct block_mark {
    float least;
    int exponent;
};

constexpr int MARKS = 64; /* the most blocks of results of a block of threads */

/* The spectra of the whole blocks of a filter, and what brings them back. */
template <typename FFT>
__device__ __forceinline__ int
transform_squares(const spectral_rows &rows, const spectrum_row &v,
                  const square_fft &fft, row_range *slots, c64 *spectra)
{
    constexpr int WARPS = FFT::THREADS / WARP;
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const int whole = static_cast<int>(whole_blocks(v.n));
    float all[FFT::V];
    load_row<FFT::THREADS>(rows.dtype, v, threadIdx.x, all);
    spectrum_block<FFT>::tell(spectrum_block<FFT>::range_of(all), slots);
    __syncthreads();
    const row_range range = spectrum_block<FFT>::told(slots);
    for (int d = warp; d < whole; d += WARPS) {
        float x[SQUARE_V], before[SQUARE_V];
        c64 f[SQUARE_V];
        load_row<WARP>(rows.dtype, v, int64_t{d + 1} * SQUARE + lane, x);
        load_row<WARP>(rows.dtype, v, int64_t{d} * SQUARE + lane, before);
        __syncwarp();
        fft.forward(x, before, factor_of(range) / SQUARE, f);
#pragma unroll
        for (int k = 0; k < SQUARE_V; k++) {
            spectra[d * SQUARE + k * WARP + lane] = f[k];
        }
    }
    __syncthreads();
    return range.exponent();
}

/* y = what the whole blocks before input `from` give, by one warp. */
__device__ __forceinline__ void
bring_whole_blocks(spectrum_dtype dtype, const spectrum_row &a, int64_t from, int whole,
                   const square_fft &fft, const c64 *spectra, int filter_exponent,
                   float (&y)[SQUARE_V])
{
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int64_t first = from - int64_t{whole} * SQUARE + lane;
    float unused[SQUARE_V];
    row_range range = NO_RANGE;
#pragma unroll 1
    for (int q = 0; q < whole; q++) {
        with_dtype(dtype, [&](auto element) {
            load_values_within<decltype(element), WARP>(a, first + q * SQUARE, y);
        });
        range = spectrum_block<square_fft>::range_of(y, range);
    }
    range = warp_combine<row_range>(range);
    range.most = __shfl_sync(ALL_LANES, range.most, 0);
    const float by = factor_of(range);
    c64 sum[SQUARE_V];
#pragma unroll
    for (int k = 0; k < SQUARE_V; k++) {
        sum[k] = {0, 0};
    }
#pragma unroll 1
    for (int q = 0; q < whole; q++) {
        c64 f[SQUARE_V];
        with_dtype(dtype, [&](auto element) {
            load_values_within<decltype(element), WARP>(a, first + q * SQUARE, y);
        });
        spectrum_block<square_fft>::scale(y, by);
        __syncwarp();
        fft.forward(y, f);
        const c64 *const h = spectra + (whole - 1 - q) * SQUARE + lane;
#pragma unroll
        for (int k = 0; k < SQUARE_V; k++) {
            sum[k] = add_times(sum[k], f[k], h[k * WARP]);
        }
    }
    fft.inverse_begin(sum);
    fft.template inverse_end<false>(sum, y, unused);
    spectrum_block<square_fft>::scale_back(y, range.exponent() + filter_exponent, 0.0f);
}

/*
 * By a block of threads: ends and wide blocks among its share of the blocks of results,
 * of which a row has `blocks`.  Takes the shared memory of the launch, whose end holds the spectra of
 * a filter of FFT::POINTS taps.  A function of its own, as its registers would spill
 * those of the kernel.
 */
template <typename FFT>
static __device__ __noinline__ void
mend_blocks(const spectral_rows &rows, int blocks, int share, const block_mark *marks,
            row_range *slots)
{
    GPO_DYN_SHARED(c64, space);
    const convolve_view<float> &c = rows.c;
    const int64_t from = static_cast<int64_t>(blockIdx.x) * share;
    const int64_t rest = c.count_rows * blocks - from;
    const int count = rest < share ? static_cast<int>(rest) : share;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    c64 *const own = space + warp * square_fft::SHARED;
    c64 *const spectra = space + FFT::SHARED;
    static_assert(FFT::THREADS / WARP * square_fft::SHARED <= FFT::SHARED,
                  "each warp has a transform of its own");
    const int whole = static_cast<int>(whole_blocks(c.m));
    const square_fft fft(own, threadIdx.x % WARP);
    int64_t transformed = -1; /* row whose filter is at `spectra` */
    int filter_exponent = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        const block_mark mark = marks[i];
        if (mark.least < 0) {
            continue;
        }
        const int64_t row = quotient(from + i, blocks);
        const int64_t begin = (from + i - row * blocks) * FFT::POINTS;
        const spectral_operands in = operands_of(rows, row);
        __syncthreads();
        if (is_finite(mark.least)) {
            const double unit = power_of_two(mark.exponent);
            if (put_ends<FFT::THREADS>(rows, row, in, begin, FFT::POINTS,
                                       mark.least * unit * unit,
                                       reinterpret_cast<float *>(space))) {
                continue;
            }
        }
        if (FFT::POINTS > SQUARE && whole > 0 && transformed != row) {
            filter_exponent = transform_squares<FFT>(rows, in.v, fft, slots, spectra);
            transformed = row;
        }
        const int64_t mine = begin + warp * SQUARE;
        if (mine < c.count) {
            float y[SQUARE_V] = {};
            if (FFT::POINTS > SQUARE && whole > 0) {
                bring_whole_blocks(rows.dtype, in.a, c.first + mine, whole, fft,
                                   spectra, filter_exponent, y);
            }
            put_wide_sums(rows, row, in, mine, reinterpret_cast<float *>(own), y);
        }
    }
}

#endif
