/*
 * spectral_lags.cuh  Sums of products of spectra over a batch, for the gradient of the
 * filters: their scale, and where they are stored.  See ladder/v7_* for the kernels.
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRAL_LAGS_CUH
#define GPO_CAUSAL_CONV1D_SPECTRAL_LAGS_CUH

#include "spectral_cut.cuh"

/* The scale of a sum over a batch: that of the largest products so far. */
struct spectrum_sum {
    int exponent;
    bool plain; /* a row has inf or nan: the sums are computed again directly */

    /* Adds rows of these ranges; returns the factors for the sum and for the rows. */
    __device__ __forceinline__ float2 take(row_range x, row_range g)
    {
        const int own = x.exponent() + g.exponent(), above = own - exponent;
        plain = plain || !x.is_finite() || !g.is_finite();
        exponent = above > 0 ? own : exponent;
        return {power_of_two(above > 0 ? -above : 0),
                power_of_two(above < 0 ? above : 0)};
    }
};

constexpr spectrum_sum NO_SUM = {-8192, false};

/* Where sums of channel c are stored: dw, or the partial sums of a split. */
__device__ __forceinline__ spectrum_row
lags_of(const spectrum_cut &cut, const lag_view<float> &v, int64_t split, int64_t c)
{
    if (cut.splits > 1) {
        return {v.parts + (split * v.channels + c) * v.lags, 1, v.lags};
    }
    const row_view<float> rows = {v.dw, 0, v.taps, 1};
    spectrum_row row = reversed_row_of(cut.dtype, rows, 0, c, v.taps);
    row.n = v.lags;
    return row;
}

/* Stores the sums over a split's batches from lag `first` on. */
template <typename FFT>
__device__ __forceinline__ void
put_lags(const spectrum_cut &cut, const lag_view<float> &v, int64_t split, int64_t c,
         int64_t first, const float (&y)[FFT::V])
{
    store_row<FFT::THREADS>(cut.splits > 1 ? SPECTRUM_F32 : cut.dtype,
                            lags_of(cut, v, split, c), first + threadIdx.x, y);
}

template <typename FFT>
__device__ __forceinline__ void
put_direct_lags(const spectrum_cut &cut, const lag_view<float> &v, int64_t split,
                int64_t c, int64_t first, int64_t last)
{
    for (int64_t s = threadIdx.x; s < v.lags; s += FFT::THREADS) {
        const float sum[1] = {correlate_directly(cut.dtype, v, first, last, c, s)};
        store_row<FFT::THREADS>(cut.splits > 1 ? SPECTRUM_F32 : cut.dtype,
                                lags_of(cut, v, split, c), s, sum);
    }
}

/* Whether value `e` of a thread is 0. */
template <int V>
__device__ __forceinline__ bool
begins_with_zero(const float (&x)[V], int e)
{
    bool is_zero = false;
#pragma unroll
    for (int k = 0; k < V; k++) {
        is_zero = is_zero || (k == e && x[k] == 0.0f);
    }
    return is_zero;
}

/* Only dw, with spectra in global memory; leaves cut->splits partial sums to add. */
gpo_status lag_v7(gpo_call *call, spectrum_size size, lag_view<float> *v,
                  spectrum_cut *cut);

#endif
