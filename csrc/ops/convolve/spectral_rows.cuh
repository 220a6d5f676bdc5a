/*
 * spectral_rows.cuh  The rows of a convolve call for the kernels of v3: operands,
 * blocks of operands, and results from an inverse transform.
 * See guard.cuh and ends.cuh for which results those are, device/spectral.cuh for
 * ranges and elements of rows.
 */
#ifndef GPO_CONVOLVE_SPECTRAL_ROWS_CUH
#define GPO_CONVOLVE_SPECTRAL_ROWS_CUH

#include "../../device/spectral.cuh"
#include "products.cuh"

/* ---- rows in blocks ---- */

/*
 * The rows of a call whose elements are of `dtype`.  Transforms compute results
 * [low, high) of a row, ends.cuh the others.  guard.cuh defines `growth`.
 */
struct spectral_rows {
    convolve_view<float> c;
    spectrum_dtype dtype;
    float growth;
    int64_t low, high;
};

/* The same view for other elements: one kernel serves all dtypes computed in float. */
template <typename T>
__device__ __forceinline__ const convolve_view<T> &
seen_as(const convolve_view<float> &c)
{
    static_assert(sizeof(convolve_view<T>) == sizeof c,
                  "they differ in pointers' types");
    return reinterpret_cast<const convolve_view<T> &>(c); /* a copy would be 1.6 KB */
}

struct spectral_operands {
    spectrum_row a, v;
};

template <typename T>
__device__ __forceinline__ spectral_operands
operands_as(const convolve_view<T> &c, int64_t row)
{
    const row_operands<T> found = find_row(c, row);
    return {{const_cast<T *>(found.a), c.a_step, c.n},
            {const_cast<T *>(found.v), c.v_step, c.m}};
}

__device__ __forceinline__ spectral_operands
operands_of(const spectral_rows &rows, int64_t row)
{
    return rows.dtype == SPECTRUM_F32 ? operands_as(rows.c, row)
                                      : operands_as(seen_as<f16>(rows.c), row);
}

template <typename T, int THREADS, int V>
__device__ __forceinline__ void
load_values_within(const spectrum_row &row, int64_t first, float (&x)[V])
{
    const T *p = static_cast<const T *>(row.p);
#pragma unroll
    for (int e = 0; e < V; e++) {
        const int64_t i = first + e * THREADS;
        x[e] = i >= 0 && i < row.n ? static_cast<float>(value_of(p[i * row.stride]))
                                   : 0.0f;
    }
}

/* x[e] = element begin + threadIdx.x + e * THREADS, zeros outside of the row. */
template <int THREADS, int V>
__device__ __forceinline__ void
load_block(spectrum_dtype dtype, const spectrum_row &row, int64_t begin, float (&x)[V])
{
    const int64_t first = begin + threadIdx.x;
    if (begin >= 0) {
        load_row<THREADS>(dtype, row, first, x);
        return;
    }
    with_dtype(dtype, [&](auto element) {
        load_values_within<decltype(element), THREADS>(row, first, x);
    });
}

/* What scales values of such a range to about 1; nan if not all are finite. */
__device__ __forceinline__ float
factor_of(const row_range &range)
{
    return range.is_finite() ? power_of_two(-range.exponent())
                             : __int_as_float(0x7fc00000);
}

template <typename T, int THREADS, int V>
__device__ __forceinline__ void
store_results_as(const spectral_rows &rows, int64_t row, int64_t first,
                 const float (&y)[V])
{
    T *const p = reinterpret_cast<T *>(rows.c.out) + row * rows.c.count + first;
    const uint64_t from = static_cast<uint64_t>(first - rows.low);
    const uint64_t length = static_cast<uint64_t>(rows.high - rows.low);
    if (first >= rows.low && first + (V - 1) * THREADS < rows.high) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            p[e * THREADS] = stored_as<T>(y[e]);
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        if (from + e * THREADS < length) { /* false before `low`, too */
            p[e * THREADS] = stored_as<T>(y[e]);
        }
    }
}

/* Stores y[e] as result first + e * THREADS of a row, if within [low, high). */
template <int THREADS, int V>
__device__ __forceinline__ void
store_results(const spectral_rows &rows, int64_t row, int64_t first,
              const float (&y)[V])
{
    with_dtype(rows.dtype, [&](auto element) {
        store_results_as<decltype(element), THREADS>(rows, row, first, y);
    });
}

/*
 * Stores y * 2^exponent as results begin + threadIdx.x + e * THREADS of a row.  Returns
 * whether all of this thread's values are finite.
 */
template <typename FFT>
__device__ __forceinline__ bool
put_block(const spectral_rows &rows, int64_t row, int64_t begin, int exponent,
          float (&y)[FFT::V])
{
    spectrum_block<FFT>::scale_back(y, exponent, 0.0f);
    bool good = true;
#pragma unroll
    for (int e = 0; e < FFT::V; e++) {
        good = good && is_finite(y[e]);
    }
    store_results<FFT::THREADS>(rows, row, begin + threadIdx.x, y);
    return good;
}

#endif
