/*
 * float64_sums.cuh  Float64 sums of the shape of x (v5, few_destinations): they start
 * at zero; at the end they are added to x and rounded to out once (float64_sums.cu).
 */
#ifndef GPO_INDEX_ADD_FLOAT64_SUMS_CUH
#define GPO_INDEX_ADD_FLOAT64_SUMS_CUH

#include "frame.cuh"

/* Traits of such rungs: atomics in any order; the rounding at the end reads x. */
struct index_add_wide_atomics {
    static constexpr index_add_traits TRAITS = {false, true, true};
};

/* alpha * v: a product of two floats is exact in double. */
template <typename T>
__device__ __forceinline__ double
wide_scaled(T v, double alpha)
{
    return static_cast<double>(value_of(v)) * alpha;
}

/* Zeros, one for each element of x. */
gpo_status index_add_clear_sums(gpo_call *call, double **sums);

/*
 * out = x + sums, rounded once; where the sum is 0, x keeps its bits.  Nothing, if the
 * call's verdict tells of a bad index.
 */
template <typename T>
gpo_status index_add_round_sums(gpo_call *call, const index_add_view<T> &a,
                                const double *sums);

#endif
