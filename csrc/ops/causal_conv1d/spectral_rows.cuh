/*
 * spectral_rows.cuh  What the kernels of v7 are made of: the rows of a view, sums in the
 * plain order for rows that are wide, where spectra wait.
 * Order: rows, sums in the plain order, what a block does.
 * Not here: the kernels (spectrum.cuh), ranges and elements of rows
 * (device/spectral.cuh), the transform (device/fft.cuh).
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH
#define GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH

#include "../../device/spectral.cuh"
#include "rows.cuh"

/* ---- rows ---- */

/* Row (b, c) of a view whose elements are of `dtype`. */
template <typename T>
__device__ __forceinline__ spectrum_row
row_of(spectrum_dtype dtype, const row_view<T> &rows, int64_t b, int64_t c, int64_t n)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    const char *first = reinterpret_cast<const char *>(rows.p);
    return {const_cast<char *>(first) + (b * rows.b + c * rows.c) * bytes, rows.t, n};
}

/* The same with the last step first. */
template <typename T>
__device__ __forceinline__ spectrum_row
reversed_row_of(spectrum_dtype dtype, const row_view<T> &rows, int64_t b, int64_t c,
                int64_t n)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    const spectrum_row row = row_of(dtype, rows, b, c, n);
    return {static_cast<char *>(row.p) + (n - 1) * rows.t * bytes, -rows.t, n};
}

/* ---- sums in the plain order, for rows that are wide ---- */

template <typename T>
__device__ __forceinline__ void
convolve_plainly(const conv_view<T> &v, int64_t b, int64_t c, int threads)
{
    for (int64_t t = threadIdx.x; t < v.steps; t += threads) {
        v.put(b, c, t, plain_step<1>(v, v.x.row(b, c), v.x.t, c, t));
    }
}

__device__ __forceinline__ void
convolve_plainly(spectrum_dtype dtype, const conv_view<float> &v, int64_t b, int64_t c,
                 int threads)
{
    with_dtype(dtype, [&](auto element) {
        convolve_plainly(view_as<conv_view<decltype(element)>>(v), b, c, threads);
    });
}

__device__ __forceinline__ float
correlate_plainly(spectrum_dtype dtype, const lag_view<float> &v, int64_t first,
                  int64_t last, int64_t c, int64_t s)
{
    return with_dtype(dtype, [&](auto element) {
        return plain_lag<1>(view_as<lag_view<decltype(element)>>(v), first, last, c, s);
    });
}

/* ---- what a block does ---- */

/* How work is cut: channels x splits of the batch, and rows and filters in blocks. */
struct spectrum_cut {
    spectrum_dtype dtype;
    int64_t splits, share;        /* batches of a split */
    int64_t row_blocks, w_blocks; /* of N steps, of N lags */
    c64 *slab;                    /* memory for spectra, `spectra` for each block */
    int64_t spectra;
};

/* Spectra and carries in memory; a thread reads only what it has written itself. */
template <typename FFT>
struct spectrum_store {
    c64 *base;

    __device__ __forceinline__ c64 &at(int64_t i, int k) const
    {
        return base[(i * FFT::V + k) * FFT::THREADS + threadIdx.x];
    }

    __device__ __forceinline__ void put(int64_t i, const c64 (&f)[FFT::V]) const
    {
#pragma unroll
        for (int k = 0; k < FFT::V; k++) {
            at(i, k) = f[k];
        }
    }
};

/* The values y of row (b, c) from step `first` on after the activation. */
template <int THREADS, int V>
__device__ __forceinline__ void
finish_row(spectrum_dtype dtype, const conv_view<float> &v, int64_t b, int64_t c,
           int64_t first, float (&y)[V])
{
    if (v.finish != FINISH_NONE) {
        float g[V] = {};
        if (v.finish == FINISH_SLOPE) {
            load_row<THREADS>(dtype, row_of(dtype, v.dy, b, c, v.steps), first, g);
        }
#pragma unroll
        for (int e = 0; e < V; e++) {
            y[e] = v.after(y[e], g[e]);
        }
    }
}

__device__ __forceinline__ spectrum_row
filter_of(spectrum_dtype dtype, const conv_view<float> &v, int64_t c)
{
    const row_view<const float> rows = {v.w, 0, v.w_c, v.w_s};
    return row_of(dtype, rows, 0, c, v.lags);
}

/* What is added to each sum of channel c. */
__device__ __forceinline__ float
offset_of(spectrum_dtype dtype, const conv_view<float> &v, int64_t c)
{
    return with_dtype(dtype, [&](auto element) {
        return view_as<conv_view<decltype(element)>>(v).offset(c);
    });
}

#endif
