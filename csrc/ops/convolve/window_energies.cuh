/*
 * window_energies.cuh  Which blocks of results of a pass are wide (guard.cuh), by the
 * energies of their inputs.
 */
#ifndef GPO_CONVOLVE_WINDOW_ENERGIES_CUH
#define GPO_CONVOLVE_WINDOW_ENERGIES_CUH

#include "passes.cuh"

constexpr int EXACT = 50; /* bits that a block's inputs may lie below their tile's */

/* Energies of all inputs of a block of results, and of those common to the windows. */
template <int CHUNKS>
struct window_energies {
    double all, inside[CHUNKS];

    static __device__ __forceinline__ window_energies combine(window_energies a,
                                                              window_energies b)
    {
        a.all += b.all;
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
            a.inside[c] += b.inside[c];
        }
        return a;
    }
};

/* The thread's part for result `k` of row `row` of a pass. */
template <typename FFT>
__device__ __forceinline__ window_energies<CHUNKS<FFT>>
energies_of(const spectral_pass &pass, int64_t taps, int64_t row, int64_t k)
{
    constexpr int C = CHUNKS<FFT>;
    const int64_t origin = (k + pass.lead) * C, common = taps / (FFT::POINTS / C) - 1;
    const int64_t reach = origin - pass.filter_blocks * C;
    const int64_t end = origin + C < pass.blocks * C ? origin + C : pass.blocks * C;
    const double *const from = pass.energies + row * pass.blocks * C;
    window_energies<C> sum = {};
    for (int64_t i = (reach > 0 ? reach : 0) + threadIdx.x; i < end;
         i += FFT::THREADS) {
        const double energy = from[i];
        sum.all += energy;
#pragma unroll
        for (int c = 0; c < C; c++) {
            const int64_t past = origin + c - i;
            sum.inside[c] += past > 0 && past <= common ? energy : 0;
        }
    }
    return sum;
}

/*
 * As windows_hold, for `length` results of row `row` from `begin` on.  Spectra that are
 * scaled to far larger ones lose bits, so inputs far below 2^x_exponent do not hold.
 */
template <int CHUNKS>
__device__ __forceinline__ bool
spectra_hold(const spectral_rows &rows, const spectral_pass &pass,
             const window_energies<CHUNKS> &energies, int64_t row, int64_t begin,
             int length, int x_exponent)
{
    const double most = power_of_two(x_exponent) / static_cast<double>(1LL << EXACT);
    double inside = no_window();
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
        const int64_t sum = rows.c.first + begin + c * (length / CHUNKS);
        if (is_judged(rows.c, sum) && energies.inside[c] < inside) {
            inside = energies.inside[c];
        }
    }
    return energies.all <= rows.growth * inside &&
           ends_hold(rows, begin, length, energies.all / rows.growth,
                     pass.ends + 2 * row) &&
           (energies.all >= most * most || energies.all == 0);
}

#endif
