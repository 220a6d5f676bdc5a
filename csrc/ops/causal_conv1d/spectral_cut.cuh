/*
 * spectral_cut.cuh  How v7 divides a call: the transform for its rows, splits of the
 * batch, workspace for spectra.
 * See ladder/v7_* for the kernels, early_steps.cu for the rows that they leave.
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRAL_CUT_CUH
#define GPO_CAUSAL_CONV1D_SPECTRAL_CUT_CUH

#include "spectral_rows.cuh"

/* Where a filter's spectrum is kept: registers; memory; memory, rows of many blocks. */
enum spectrum_place { SPECTRUM_HELD, SPECTRUM_STORED, SPECTRUM_BLOCKS };

/* The transform for a call, by the longest row that it holds. */
enum spectrum_size {
    SPECTRUM_512,
    SPECTRUM_1024,
    SPECTRUM_2048,
    SPECTRUM_4096,
    SPECTRUM_8192,
    SPECTRUM_16384,
    SPECTRUM_LONGER, /* in blocks of 4096 */
};

inline spectrum_size
size_for(const gpo_call *call, int64_t steps, int64_t lags)
{
    if (steps > 4096) {
        if (steps <= 8192 && fits_in_shared(call, block_fft<32, 8>::SHARED)) {
            return SPECTRUM_8192;
        }
        return steps <= 16384 && lags > 4096 &&
                       fits_in_shared(call, block_fft<32, 16>::SHARED)
                   ? SPECTRUM_16384
                   : SPECTRUM_LONGER;
    }
    return steps <= 512    ? SPECTRUM_512
           : steps <= 1024 ? SPECTRUM_1024
           : steps <= 2048 ? SPECTRUM_2048
                           : SPECTRUM_4096;
}

inline gpo_status
too_many_steps(gpo_call *call)
{
    return gpo_fail(&call->error, GPO_EVARIANT,
                    "%s(): v7 takes at most 2**30 steps; v5 takes any number",
                    call->op->name);
}

/* v7_spectra_gradients: c64 values of transform, filter's and row's spectra. */
template <typename FFT>
constexpr int GRADIENTS_SHARED = FFT::SHARED + 2 * FFT::POINTS;

/* Splits of the batch, and blocks of rows and filters. */
template <typename FFT, int RESIDENT, typename View>
spectrum_cut
cut_call(const gpo_call *call, const View &v, spectrum_dtype dtype)
{
    const float growth = growth_of(v.steps, LOG<FFT::POINTS>);
    const int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int64_t batches = v.batches > 0 ? v.batches : 1;
    const int64_t splits = ceil_div(2 * resident, v.channels);
    spectrum_cut cut = {};
    cut.dtype = dtype;
    cut.growth = growth * growth;
    cut.share = ceil_div(batches, splits < batches ? splits : batches);
    cut.splits = ceil_div(batches, cut.share);
    cut.row_blocks = ceil_div(v.steps, FFT::POINTS);
    cut.w_blocks = ceil_div(v.lags, FFT::POINTS);
    return cut;
}

/* Workspace for `spectra` spectra per block; cuts the grid to the resident blocks. */
template <typename FFT, int RESIDENT>
gpo_status
make_slab(gpo_call *call, int64_t spectra, spectrum_cut *cut, dim3 *grid)
{
    void *memory = nullptr;
    const unsigned resident = static_cast<unsigned>(gpo_processors(call)) * RESIDENT;
    grid->x = grid->x < resident ? grid->x : resident;
    cut->spectra = spectra * FFT::POINTS;
    const gpo_status status =
        gpo_scratch(call, grid->x * cut->spectra * sizeof(c64), &memory);
    cut->slab = static_cast<c64 *>(memory);
    return status;
}

/* ---- launchers of early_steps.cu ---- */

/* Allocates `spans` sets of starts. */
gpo_status make_starts(gpo_call *call, const conv_view<float> &v, int64_t spans,
                       int **starts);

/*
 * Computes the heads and wide rows that v7 has left; always launched, as the host does
 * not know whether there are any.
 */
gpo_status convolve_early(gpo_call *call, const conv_view<float> &v,
                          spectrum_dtype dtype, int head, int spans, const int *starts);

#endif
