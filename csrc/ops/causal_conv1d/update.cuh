/*
 * update.cuh  The arguments of the kernels of causal_conv1d_update.
 * See update.cu for the steps of a call, ladder/update_v* for the kernels.
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_CUH

#include "states.cuh"

constexpr int UPDATE_BLOCK = 128;

template <typename T>
struct update_view {
    conv_view<T> v; /* x, y as `out`, w by lag, bias; lags is K */
    row_view<const T> state;
    row_view<T> next; /* the new state; may be the memory of the state */
    int64_t kept;
    const void *index; /* NULL: row b */
    bool index_wide;
    int64_t index_b, rows;   /* of the state */
    unsigned long long *bad; /* the first b whose row there is not; or NULL */

    /* The row of the state that row b of x continues, or -1 if there is no such row. */
    __device__ __forceinline__ int64_t row_of(int64_t b) const
    {
        if (!index) {
            return b;
        }
        const int64_t row = index_wide
                                ? static_cast<const int64_t *>(index)[b * index_b]
                                : static_cast<const int32_t *>(index)[b * index_b];
        return row >= 0 && row < rows ? row : -1;
    }

    /* A row of x that continues none is left out. */
    __device__ __forceinline__ void note(int64_t b) const
    {
        if (bad != nullptr) {
            atomicMin(bad, static_cast<unsigned long long>(b));
        }
    }

    /* Step k of a row, counted from the first of its state. */
    __device__ __forceinline__ T step(const T *row, const T *x, int64_t k) const
    {
        return k < kept ? row[k * state.t] : x[(k - kept) * v.x.t];
    }
};

#endif
