/*
 * mend_blocks.cuh  How v3 recomputes the wide blocks of its results.
 */
#ifndef GPO_CONVOLVE_MEND_BLOCKS_CUH
#define GPO_CONVOLVE_MEND_BLOCKS_CUH

#include "wide_blocks.cuh"

/* Stores the spectra of the whole blocks of a filter; returns their exponent. */
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

/* For one warp: y = the contribution of the whole blocks before input `from`. */
__device__ __forceinline__ void
convolve_whole_blocks(spectrum_dtype dtype, const spectrum_row &a, int64_t from,
                      int whole, const square_fft &fft, const c64 *spectra,
                      int filter_exponent, float (&y)[SQUARE_V])
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

/* Blocks of results of a call, and the share of them that a block of threads has. */
struct block_share {
    int blocks; /* per row */
    int share;  /* per block of threads */
    int ends;   /* blocks of threads that add up ends of rows; they come first */

    __device__ __forceinline__ int64_t first() const
    {
        return (static_cast<int64_t>(blockIdx.x) - ends) * share;
    }

    __device__ __forceinline__ int count(int64_t rows) const
    {
        const int64_t rest = rows * blocks - first();
        return rest < share ? static_cast<int>(rest) : share;
    }
};

/*
 * For a block of threads: recomputes the blocks of its share that `is_wide` marks.
 * Uses the dynamic shared memory of the launch, whose end holds the spectra of a filter
 * of FFT::POINTS taps.  Inlined, its registers would make the kernel spill.
 */
template <typename FFT>
static __device__ __noinline__ void
mend_blocks(const spectral_rows &rows, const block_share &work, const int *is_wide,
            row_range *slots)
{
    GPO_DYN_SHARED(c64, space);
    const convolve_view<float> &c = rows.c;
    const int64_t from = work.first();
    const int count = work.count(c.count_rows);
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    c64 *const own = space + warp * square_fft::SHARED;
    c64 *const spectra = space + FFT::SHARED;
    static_assert(FFT::THREADS / WARP * square_fft::SHARED <= FFT::SHARED,
                  "each warp has a transform of its own");
    const int whole = static_cast<int>(whole_blocks(c.m));
    const square_fft fft(own, threadIdx.x % WARP);
    int64_t transformed = -1; /* row whose filter `spectra` holds */
    int filter_exponent = 0;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
        if (!is_wide[i]) {
            continue;
        }
        const int64_t row = quotient(from + i, work.blocks);
        const int64_t begin = (from + i - row * work.blocks) * FFT::POINTS;
        const spectral_operands in = operands_of(rows, row);
        __syncthreads();
        if (FFT::POINTS > SQUARE && whole > 0 && transformed != row) {
            filter_exponent = transform_squares<FFT>(rows, in.v, fft, slots, spectra);
            transformed = row;
        }
        const int64_t mine = begin + warp * SQUARE;
        if (mine < c.count) {
            float y[SQUARE_V] = {};
            if (FFT::POINTS > SQUARE && whole > 0) {
                convolve_whole_blocks(rows.dtype, in.a, c.first + mine, whole, fft,
                                      spectra, filter_exponent, y);
            }
            put_wide_sums(rows, row, in, mine, reinterpret_cast<float *>(own), y);
        }
    }
}

#endif
