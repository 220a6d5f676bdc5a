/*
 * spectral_plan.cuh  Which transform a call uses, and an estimate of its time.
 * choose() reads both, v3 and long_filters the former.
 */
#ifndef GPO_CONVOLVE_SPECTRAL_PLAN_CUH
#define GPO_CONVOLVE_SPECTRAL_PLAN_CUH

#include "../../device/grid.cuh"
#include "../../device/spectral.cuh"
#include "convolve.h"
#include "tuning.cuh"

/* Shared c64 values of a transform together with the spectrum of a filter. */
template <typename FFT>
constexpr int WITH_FILTER = FFT::SHARED + FFT::POINTS;

/* Points of a transform, and the estimated microseconds of a call that uses it. */
struct spectral_plan {
    int points;
    double microseconds;
};

/* Whether transforms may be used for a filter of this length. */
inline bool
has_spectra(const gpo_call *call)
{
    const int64_t taps = convolve_plan_of(call)->m;
    return taps >= LEAST_TAPS && taps <= MOST_TAPS;
}

/* Whether v3 may be used: the filter is one block, its spectrum fits shared memory. */
inline bool
is_one_block(const gpo_call *call)
{
    return has_spectra(call) && convolve_plan_of(call)->m <= BLOCK_TAPS &&
           fits_in_shared(call, WITH_FILTER<block_fft<16, 16>>);
}

/*
 * Times of an H200 (NOTES.md): an SM transforms two blocks of 4096 values, or as many
 * values in smaller ones, in 3.2 us one way; it makes 0.15 M products of spectra per
 * microsecond; each kernel takes 3 us to start.
 */
constexpr double ONE_WAY = 3.2, KERNEL_BEGIN = 3.0, SPECTRAL_PRODUCTS = 0.15e6;

inline spectral_plan
plan_one_block(const gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    const int64_t resident = 2 * int64_t{gpo_processors(call)} * BLOCK_TAPS;
    int points = 512;
    while (points < p.m) {
        points *= 2;
    }
    const int64_t blocks = ceil_div(p.count, points) * p.count_rows;
    const int64_t turns = ceil_div(blocks, resident / points);
    return {points, KERNEL_BEGIN + (1.0 + 2.0 * static_cast<double>(turns)) * ONE_WAY};
}

inline spectral_plan
plan_blocks(const gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    const int64_t processors = gpo_processors(call);
    const int64_t resident = 2 * processors * BLOCK_TAPS;
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
        const double us =
            3 * KERNEL_BEGIN + static_cast<double>(turns) * one_way +
            products / (SPECTRAL_PRODUCTS * static_cast<double>(processors));
        /* Smaller blocks fill the GPU sooner, which this estimate leaves out. */
        if (best.points == 0 || us < 0.9 * best.microseconds) {
            best = {points, us};
        }
    }
    return best;
}

/* ---- the shape kernel, for the table (shapes/) ---- */

template <typename T>
gpo_status convolve_long_filters(gpo_call *call);

#endif
