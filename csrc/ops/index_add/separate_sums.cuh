/*
 * separate_sums.cuh  Sums of the shape of x, apart from it: of float64 (v5,
 * few_destinations) or of either float (joined_sums).  They start at zero; at the end they
 * are added to x and rounded to out once (separate_sums.cu).
 */
#ifndef GPO_INDEX_ADD_SEPARATE_SUMS_CUH
#define GPO_INDEX_ADD_SEPARATE_SUMS_CUH

#include "frame.cuh"

/* Traits of such rungs and of few_rows: atomics in any order; the rounding at the end reads x. */
struct index_add_wide_atomics {
    static constexpr index_add_traits TRAITS = {false, true, true, false};
};

/* alpha * v: a product of two floats is exact in double. */
template <typename T>
__device__ __forceinline__ double
wide_scaled(T v, double alpha)
{
    return static_cast<double>(value_of(v)) * alpha;
}

/* Elements [begin, begin + n) of out. */
struct index_add_range {
    int64_t begin, n;
};

/* alpha * v as a sum of type Sum takes it. */
template <typename Sum, typename T>
__device__ __forceinline__ Sum
index_add_term(T v, const index_add_view<T> &a)
{
    if constexpr (is_same<Sum, double> && !is_same<T, double>) {
        return wide_scaled(v, a.wide_alpha);
    }
    else {
        return scaled(v, a.alpha);
    }
}

/* So many ranges of out have sums of `sum_bytes` bytes each that L2 holds. */
inline int64_t
index_add_ranges(const gpo_call *call, int64_t sum_bytes = sizeof(double))
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t bytes = plan.outer * plan.length * plan.inner * sum_bytes;
    const int64_t most = gpo_l2_bytes(call) / L2_PARTS * L2_OF_SUMS;
    return bytes <= most ? 1 : ceil_div(bytes, most);
}

/* Whether joined_sums has a thread for each row. */
inline bool
index_add_has_few_singles(const index_add_plan &plan)
{
    return plan.outer == 1 && plan.inner == 1 && plan.count <= FEW_SINGLES;
}

/* `bytes` of scratch memory, and up to 16 in all, become 0. */
gpo_status index_add_clear_sums(gpo_call *call, void *sums, int64_t bytes);

/*
 * out = x + sums in a range, rounded once; where the sum is 0, x keeps its bits.
 * Nothing, if the call's verdict tells of a bad index.
 */
template <typename T, typename Sum>
gpo_status index_add_round_sums(gpo_call *call, const index_add_view<T> &a,
                                index_add_range range, const Sum *sums);

/*
 * Calls add(range, sums) for each range of out, between the two, each kernel following the
 * one before: `sums` is scratch memory, and ranges begin with whole packs.
 */
template <typename Sum, typename T, typename Add>
gpo_status
index_add_in_ranges(gpo_call *call, const index_add_view<T> &a, const Add &add)
{
    constexpr int64_t WHOLE = 16;
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t part = ceil_div(size, index_add_ranges(call, sizeof(Sum)));
    const int64_t each = ceil_div(part, WHOLE) * WHOLE;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, each * sizeof(Sum), &memory);
    Sum *const sums = static_cast<Sum *>(memory);
    for (int64_t begin = 0; begin < size && !status; begin += each) {
        const index_add_range range = {begin,
                                       begin + each < size ? each : size - begin};
        status = index_add_clear_sums(call, sums, each * sizeof(Sum));
        if (!status) {
            status = add(range, sums);
        }
        if (!status) {
            status = index_add_round_sums(call, a, range, sums);
        }
    }
    return status;
}

#endif
