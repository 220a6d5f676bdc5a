/*
 * spectra.cuh  Rung v3 of convolve: sums out of products of spectra.
 * Order: filters of one block, how a call is done.
 * Not here: the rung's story and the choice (cuda.cu), filters of many blocks
 * (passes.cuh), which sums a transform may make (windows.cuh), rows (spectral_rows.cuh),
 * the transform (device/fft.cuh).
 *
 * Everything counts from `first`, the first sum that the result keeps: block k of a row
 * is a[first + k N + n], n < N, zeros where the row has none.  Block k of the result is
 * the sum over j of h_j with the blocks k - j and k - j - 1 of the row, and is the real
 * part of one inverse: that of the sum of H_j F(x_(k-j) - i x_(k-j-1)).
 */
#ifndef GPO_CONVOLVE_SPECTRA_CUH
#define GPO_CONVOLVE_SPECTRA_CUH

#include "passes.cuh"

/* ---- filters of one block ---- */

/*
 * A block of threads makes `share` blocks of results of all `blocks` of each row, one
 * after the other: a block of the row is read once, and is on its way during an inverse.
 * Then it makes what of them the transform may not.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_v3_one_filter_block(const __grid_constant__ spectral_rows rows, int blocks,
                                 int share, bool one_filter)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS;
    constexpr int ENERGIES = block_type::WARPS * CHUNKS<FFT>;
    constexpr int64_t N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [2 * block_type::WARPS]);
    GPO_SHARED(float, energies, [2 * ENERGIES]);
    GPO_SHARED(block_mark, marks, [MARKS]);
    GPO_SHARED(int, has_marks, [1]);
    const block_type block(space, slots, rows.dtype);
    const convolve_view<float> &c = rows.c;
    const int64_t from = static_cast<int64_t>(blockIdx.x) * share;
    const int64_t rest = c.count_rows * blocks - from;
    int left = rest < share ? static_cast<int>(rest) : share;
    int64_t row = quotient(from, blocks);
    int k = static_cast<int>(from - row * blocks);
    block_mark *mark = marks;
    bool has_filter = false;
    int filter_exponent = 0;
    c64 *const filter = space + FFT::SHARED + threadIdx.x; /* registers are full */
    c64 f[V];
    if (threadIdx.x == 0) {
        has_marks[0] = 0;
    }

    for (; left > 0; row++, k = 0) {
        const spectral_operands in = operands_of(rows, row);
        const int stop = left < blocks - k ? k + left : blocks;
        left -= stop - k;
        float x[V], before[V];
        if (!has_filter) {
            block.load(in.v, 0, x);
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range range = block.told(0);
            filter_exponent = range.exponent();
            block.scale(x, factor_of(range) / FFT::POINTS); /* the inverse brings it */
            block.fft.forward(x, f);
#pragma unroll
            for (int i = 0; i < V; i++) {
                filter[i * THREADS] = f[i]; /* which this thread alone reads */
            }
            has_filter = one_filter;
        }
        load_block<THREADS>(rows.dtype, in.a, c.first + (k - 1) * N, before);
        load_row<THREADS>(rows.dtype, in.a, c.first + k * N + threadIdx.x, x);
        block.tell(block.range_of(before), 1);
        __syncthreads();
        row_range last = block.told(1);
        tell_energies<FFT>(before, factor_of(last), energies + (k + 1) % 2 * ENERGIES);

        for (; k < stop; k++, mark++) {
            float y[V], unused[V];
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range own = block.told(0), both = row_range::combine(own, last);
            const int exponent = both.exponent();
            float *const now = energies + k % 2 * ENERGIES;
            tell_energies<FFT>(x, factor_of(own), now);
            block.fft.forward(x, before, factor_of(both), f);
            if (threadIdx.x < WARP) {
                const float least = judge_block<FFT>(
                    rows, k * N, now, own.exponent() - exponent,
                    energies + (k + 1) % 2 * ENERGIES, last.exponent() - exponent);
                if (threadIdx.x == 0) {
                    *mark = {least, exponent};
                    if (least >= 0) {
                        has_marks[0] = 1;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < V; i++) {
                f[i] = times(f[i], filter[i * THREADS]);
                before[i] = x[i];
            }
            last = own;
            block.fft.inverse_begin(f);
            if (k + 1 < stop) {
                load_row<THREADS>(rows.dtype, in.a, c.first + (k + 1) * N + threadIdx.x,
                                  x);
            }
            block.fft.template inverse_end<false>(f, y, unused);
            if (!put_block<FFT>(rows, row, k * N, exponent + filter_exponent, y)) {
                atomicMax(reinterpret_cast<int *>(&mark->least), WIDE_BITS);
                atomicOr(has_marks, 1);
            }
        }
    }
    __syncthreads();
    if (has_marks[0]) {
        mend_blocks<FFT>(rows, blocks, share, marks, slots);
    }
}

/* With the spectrum of a filter beside the transform. */
template <typename FFT>
constexpr int WITH_FILTER = FFT::SHARED + FFT::POINTS;

template <typename FFT, int RESIDENT>
static gpo_status
convolve_by_block(gpo_call *call, const spectral_rows &rows, bool one_filter)
{
    constexpr size_t SHARED = WITH_FILTER<FFT> * sizeof(c64);
    const int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int64_t blocks = ceil_div(rows.c.count, FFT::POINTS);
    const int64_t all = blocks * rows.c.count_rows;
    const int64_t turns = ceil_div(all, resident * MARKS);
    const int64_t share = all > 0 ? ceil_div(all, resident * turns) : 1;
    const dim3 grid = grid_of(ceil_div(all, share));
    gpo_allow_shared(convolve_v3_one_filter_block<FFT, RESIDENT>, SHARED);
    return GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                      (convolve_v3_one_filter_block<FFT, RESIDENT>), rows,
                      static_cast<int>(blocks), static_cast<int>(share), one_filter);
}

/* ---- how a call is done ---- */

/* How v3 does a call: points of its transform, and the microseconds that may take. */
struct spectral_plan {
    bool one_block; /* the filter is */
    int points;
    double microseconds;
};

constexpr int64_t BLOCK_TAPS = 4096;            /* the longest filter of one block */
constexpr int64_t MOST_TAPS = int64_t{1} << 28; /* beyond, spectra fill a card */

/* Whether v3 has a transform for such filters. */
static bool
has_spectra(int64_t taps)
{
    return taps >= LEAST_TAPS && taps <= MOST_TAPS;
}

/*
 * By an H200's times (NOTES.md): a multiprocessor transforms two blocks of 4096 values,
 * or as many smaller ones, in 3.2 us one way; it makes 0.15 M products of spectra in a
 * microsecond; and each kernel takes 3 us to begin.
 */
static spectral_plan
plan_spectra(const gpo_call *call, const convolve_plan &p)
{
    constexpr double ONE_WAY = 3.2, BEGIN = 3.0, PRODUCTS = 0.15e6;
    const int64_t processors = gpo_processors(call);
    const int64_t resident = 2 * processors * BLOCK_TAPS;
    if (p.m <= BLOCK_TAPS && fits_in_shared(call, WITH_FILTER<block_fft<16, 16>>)) {
        int points = 512;
        while (points < p.m) {
            points *= 2;
        }
        const int64_t blocks = ceil_div(p.count, points) * p.count_rows;
        const int64_t turns = ceil_div(blocks, resident / points);
        return {true, points,
                BEGIN + (1.0 + 2.0 * static_cast<double>(turns)) * ONE_WAY};
    }
    spectral_plan best = {};
    const int most = fits_in_shared(call, block_fft<32, 8>::SHARED) ? 8192 : 4096;
    const int64_t filters = p.one_filter ? 1 : p.count_rows;
    for (int points = 512; points <= most; points *= 2) {
        const int64_t h = ceil_div(p.m, points), y = ceil_div(p.count, points);
        const int64_t x =
            y + h - 1 < ceil_div(p.n, points) + 1 ? y + h - 1 : p.n / points + 1;
        const double blocks =
            static_cast<double>(x < h ? x : h) * static_cast<double>(y);
        const double pairs = static_cast<double>(x) * static_cast<double>(h);
        const int64_t at_once =
            points > BLOCK_TAPS ? resident / BLOCK_TAPS : resident / points;
        const int64_t turns = ceil_div(p.count_rows * x + filters * h, at_once) +
                              ceil_div(p.count_rows * y, at_once);
        const double one_way = points > BLOCK_TAPS ? 2.4 * ONE_WAY : ONE_WAY;
        const double products = 4.0 * points * static_cast<double>(p.count_rows) *
                                (blocks < pairs ? blocks : pairs);
        const double us = 3 * BEGIN + static_cast<double>(turns) * one_way +
                          products / (PRODUCTS * static_cast<double>(processors));
        /* Smaller blocks fill the card sooner, which these times do not say. */
        if (best.points == 0 || us < 0.9 * best.microseconds) {
            best = {false, points, us};
        }
    }
    return best;
}

static gpo_status
convolve_spectra(gpo_call *call, const convolve_plan &p, spectral_rows rows)
{
    const spectral_plan plan = plan_spectra(call, p);
    rows.growth = growth_of(p.m, plan.points);
    if (plan.one_block) {
        switch (plan.points) {
            case 512:
                return convolve_by_block<block_fft<16, 2>, 16>(call, rows,
                                                               p.one_filter);
            case 1024:
                return convolve_by_block<block_fft<16, 4>, 8>(call, rows, p.one_filter);
            case 2048:
                return convolve_by_block<block_fft<16, 8>, 4>(call, rows, p.one_filter);
            default:
                return convolve_by_block<block_fft<16, 16>, 2>(call, rows,
                                                               p.one_filter);
        }
    }
    switch (plan.points) {
        case 512:
            return convolve_by_blocks<block_fft<16, 2>, 16>(call, rows, p.one_filter);
        case 1024:
            return convolve_by_blocks<block_fft<16, 4>, 8>(call, rows, p.one_filter);
        case 2048:
            return convolve_by_blocks<block_fft<16, 8>, 4>(call, rows, p.one_filter);
        case 4096:
            return convolve_by_blocks<block_fft<16, 16>, 2>(call, rows, p.one_filter);
        default:
            return convolve_by_blocks<block_fft<32, 8>, 2>(call, rows, p.one_filter);
    }
}

#endif
