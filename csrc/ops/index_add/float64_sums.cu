/*
 * float64_sums.cu  Float64 sums of index_add: cleared first, rounded to out at the end.
 */
#include "float64_sums.cuh"

__global__ void
__launch_bounds__(BLOCK) index_add_clear(double *sums, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        sums[i] = 0;
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_round(const T *x, const double *sums, T *out,
                                         int64_t n, const unsigned long long *verdict)
{
    if (verdict != nullptr && *verdict != NONE_BAD) {
        return;
    }
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const T old = x[i];
        const double sum = sums[i];
        const double both = static_cast<double>(value_of(old)) + sum;
        if (sum != 0 || x != out) {
            out[i] = sum != 0 ? stored_as<T>(static_cast<float>(both)) : old;
        }
    }
}

gpo_status
index_add_clear_sums(gpo_call *call, index_add_range range, double *sums)
{
    return GPO_LAUNCH(call, grid_for(range.n), BLOCK, 0, index_add_clear, sums,
                      range.n);
}

template <typename T>
gpo_status
index_add_round_sums(gpo_call *call, const index_add_view<T> &a, index_add_range range,
                     const double *sums)
{
    return GPO_LAUNCH(call, grid_for(range.n), BLOCK, 0, (index_add_round<T>),
                      a.base + range.begin, sums, a.out + range.begin, range.n,
                      a.verdict);
}

#define INSTANTIATE(T)                                                                 \
    template gpo_status index_add_round_sums<T>(gpo_call *, const index_add_view<T> &, \
                                                index_add_range, const double *);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
