/*
 * v3  Products of spectra.
 * Was:   v2 makes every product of the formula, one by one.
 * Now:   a row is cut into blocks of N = 512 to 4096 values, which are transformed in
 *        registers and shared memory to N spectral values each.  The spectrum of a
 *        block minus i times the one before it, multiplied by the filter's, has an
 *        inverse with N results in its real part: blocks are independent and nothing is
 *        zero-padded.  The spectrum of a filter of up to 4096 taps stays in shared
 *        memory while a block of threads walks along the row.
 * Cost:  one forward and one inverse transform per N results.  The rounding error of a
 *        transform is relative to the norm of all its inputs: blocks where that is much
 *        more than the norm of a sum's own terms are computed again (guard.cuh), by 512
 *        to 1023 products per sum.
 * Left:  filters of fewer than 192 taps are left to v2, and those of more than 4096 to
 *        shapes/long_filters.cu (v2, where this rung is called by name).
 */
#ifndef GPO_CONVOLVE_V3_SPECTRAL_BLOCKS_CUH
#define GPO_CONVOLVE_V3_SPECTRAL_BLOCKS_CUH

#include "../mend_blocks.cuh"
#include "../spectral_plan.cuh"
#include "v2_register_window.cuh"

/*
 * Slots of spectrum_block::tell, aligned so that those of one set are read by loads that
 * touch no other set: racecheck reports a word that a load reads along and drops.
 */
template <int N>
struct alignas(16) told_ranges {
    row_range slot[N];
};

/*
 * Everything counts from `first`, the first sum that the result keeps: block k of a row
 * is a[first + k N + n], n < N, and zero outside the row.
 *
 * A block of threads computes `share` consecutive blocks of results; each row has
 * work.blocks of them.  A block of the row is read once, prefetched during an inverse.
 * Then it computes again those that the transform's error bound excludes.  The first
 * `work.ends` blocks of threads add up the ends of the rows.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_v3_spectral_blocks(const __grid_constant__ spectral_rows rows,
                                const __grid_constant__ block_share work,
                                bool one_filter)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS;
    constexpr int ENERGIES = block_type::WARPS * CHUNKS<FFT>;
    constexpr int64_t N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(told_ranges<2 * block_type::WARPS>, ranges, [1]);
    GPO_SHARED(float, energies, [2 * ENERGIES]);
    GPO_SHARED(double, end_energies, [2]);
    GPO_SHARED(int, is_wide, [MARKS]);
    GPO_SHARED(int, has_wide, [1]);
    row_range *const slots = ranges[0].slot;
    const convolve_view<float> &c = rows.c;
    if (static_cast<int>(blockIdx.x) < work.ends) {
        static_assert(block_type::WARPS * END_FLOATS <= 2 * FFT::SHARED,
                      "room for each warp");
        put_ends<THREADS>(rows, 0, c.count_rows, static_cast<int>(blockIdx.x),
                          work.ends, reinterpret_cast<float *>(space), nullptr);
        return;
    }
    const block_type block(space, slots, rows.dtype);
    const int64_t from = work.first();
    int left = work.count(c.count_rows);
    int64_t row = quotient(from, work.blocks);
    int k = static_cast<int>(from - row * work.blocks);
    int *mark = is_wide;
    bool has_filter = false;
    int filter_exponent = 0;
    c64 *const filter = space + FFT::SHARED + threadIdx.x; /* registers would spill */
    c64 f[V];
    if (threadIdx.x == 0) {
        has_wide[0] = 0;
    }

    for (; left > 0; row++, k = 0) {
        const spectral_operands in = operands_of(rows, row);
        const int stop = left < work.blocks - k ? k + left : work.blocks;
        left -= stop - k;
        if (threadIdx.x < WARP) {
            store_ends(rows, in.a, k * N, (stop - k) * N, end_energies);
        }
        float x[V], before[V];
        if (!has_filter) {
            block.load(in.v, 0, x);
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range range = block.told(0);
            filter_exponent = range.exponent();
            block.scale(x, factor_of(range) / FFT::POINTS); /* inverse scales by N */
            block.fft.forward(x, f);
#pragma unroll
            for (int i = 0; i < V; i++) {
                filter[i * THREADS] = f[i]; /* read by this thread only */
            }
            has_filter = one_filter;
        }
        load_block<THREADS>(rows.dtype, in.a, c.first + (k - 1) * N, before);
        load_row<THREADS>(rows.dtype, in.a, c.first + k * N + threadIdx.x, x);
        block.tell(block.range_of(before), 1);
        __syncthreads();
        row_range last = block.told(1);
        store_energies<FFT>(before, factor_of(last), energies + (k + 1) % 2 * ENERGIES);

        for (; k < stop; k++, mark++) {
            float y[V], unused[V];
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range own = block.told(0), both = row_range::combine(own, last);
            const int exponent = both.exponent();
            float *const now = energies + k % 2 * ENERGIES;
            store_energies<FFT>(x, factor_of(own), now);
            block.fft.forward(x, before, factor_of(both), f);
            if (threadIdx.x < WARP) {
                const bool holds = windows_hold<FFT>(
                    rows, k * N, now, own.exponent() - exponent,
                    energies + (k + 1) % 2 * ENERGIES, last.exponent() - exponent,
                    exponent, end_energies);
                if (threadIdx.x == 0) {
                    *mark = !holds;
                    if (!holds) {
                        has_wide[0] = 1;
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
                atomicOr(mark, 1);
                atomicOr(has_wide, 1);
            }
        }
    }
    __syncthreads();
    if (has_wide[0]) {
        mend_blocks<FFT>(rows, work, is_wide, slots);
    }
}

template <typename FFT, int RESIDENT>
gpo_status
convolve_by_block(gpo_call *call, const spectral_rows &rows, bool one_filter)
{
    constexpr size_t SHARED = WITH_FILTER<FFT> * sizeof(c64);
    int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int ends = end_blocks(rows, rows.c.count_rows, resident, FFT::THREADS);
    const int64_t blocks = ceil_div(rows.c.count, FFT::POINTS);
    const int64_t all = blocks * rows.c.count_rows;
    resident -= ends; /* so that all start at once */
    const int64_t turns = ceil_div(all, resident * MARKS);
    const int64_t share = all > 0 ? ceil_div(all, resident * turns) : 1;
    const dim3 grid = grid_of(ends + ceil_div(all, share));
    gpo_allow_shared(convolve_v3_spectral_blocks<FFT, RESIDENT>, SHARED);
    const block_share work = {static_cast<int>(blocks), static_cast<int>(share), ends};
    return GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                      (convolve_v3_spectral_blocks<FFT, RESIDENT>), rows, work,
                      one_filter);
}

/* convolve_by_block of 512 and 1024 points, of 2048 and 4096: one file per pair. */
gpo_status convolve_by_small_block(gpo_call *call, const spectral_rows &rows,
                                   bool one_filter, int points);
gpo_status convolve_by_large_block(gpo_call *call, const spectral_rows &rows,
                                   bool one_filter, int points);

template <typename T>
static gpo_status
convolve_v3(gpo_call *call)
{
    if (!is_one_block(call)) {
        return convolve_v2<T>(call);
    }
    const bool one_filter = convolve_plan_of(call)->one_filter;
    const int points = plan_one_block(call).points;
    const spectral_rows rows = rows_of<T>(call, points);
    return points <= 1024 ? convolve_by_small_block(call, rows, one_filter, points)
                          : convolve_by_large_block(call, rows, one_filter, points);
}

#endif
