/*
 * sums.cuh  What all rungs of partition_reduce share: what an element contributes, long
 * sums, x as a kernel argument, the bits of indices, and the small kernels before and
 * after the rungs with atomics.
 */
#ifndef GPO_PARTITION_REDUCE_SUMS_CUH
#define GPO_PARTITION_REDUCE_SUMS_CUH

#include <type_traits>

#include "../../device/sum.cuh"
#include "../../device/number.cuh"
#include "../../device/grid.cuh"
#include "../../device/atomic.cuh"
#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "partition_reduce.h"
#include "tuning.cuh"

/* ---- terms: T in memory, Acc to add in, Out in the result ---- */

template <typename Element>
struct plain_term {
    static constexpr bool HALF =
        std::is_same_v<Element, f16> || std::is_same_v<Element, bf16>;
    using T = Element;
    using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t,
                                   std::conditional_t<HALF, float, T>>;
    using Out = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;

    static __device__ __forceinline__ Acc of(T x, bool square)
    {
        const Acc v = static_cast<Acc>(value_of(x)); /* integers wrap modulo 2^64 */
        return square ? v * v : v;
    }
};

template <typename Real>
struct norm_term {
    using T = complex<Real>;
    using Acc = Real;
    using Out = Real;

    static __device__ __forceinline__ Acc of(T x, bool)
    {
        return x.re * x.re + x.im * x.im;
    }
};

/* The result of a sum: float sums are float64 between threads and blocks. */
template <typename Term, typename V>
__device__ __forceinline__ typename Term::Out
result_of(V v)
{
    if constexpr (std::is_same_v<typename Term::Acc, float>) {
        return stored_as<typename Term::Out>(static_cast<float>(v));
    }
    else {
        return v;
    }
}

/* A long sum of partial sums; for doubles it is compensated. */
template <typename Acc>
struct chain {
    part_of<Acc> total = 0;

    __device__ __forceinline__ void add(part_of<Acc> p)
    {
        total += p;
    }

    __device__ __forceinline__ part_of<Acc> value() const
    {
        return total;
    }
};

template <>
struct chain<double> : compensated_sum<double> {
};

/* ---- x as a kernel argument ---- */

/* Element i lies at x[place(i)]: see partition_plan. */
template <typename T>
struct partition_view {
    const T *x;
    int64_t stride;
    int n, k, pairs;
    bool square;
    int from[PARTITION_BITS]; /* bit b of an output's index is bit from[b] of i */

    __host__ __device__ __forceinline__ int64_t place(int64_t i) const
    {
        return (i >> pairs) * stride + (i & pairs);
    }
};

template <typename T>
partition_view<T>
view_of(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    partition_view<T> view = {static_cast<const T *>(call->in[0].data),
                              plan.stride,
                              plan.n,
                              plan.k,
                              plan.pairs,
                              plan.square,
                              {}};
    for (int b = 0; b < plan.n; b++) {
        if (plan.to[b] >= 0) {
            view.from[plan.to[b]] = b;
        }
    }
    return view;
}

/* ---- indices ---- */

/* The output of element i. */
template <typename T>
__device__ __forceinline__ int64_t
output_of(const partition_view<T> &x, int64_t i)
{
    int64_t o = 0;
    for (int b = 0; b < x.k; b++) {
        o |= (i >> x.from[b] & 1) << b;
    }
    return o;
}

/* The bits of i spread over the set bits of `mask`, lowest first. */
__host__ __device__ __forceinline__ int64_t
deposit(int64_t i, uint64_t mask)
{
    uint64_t spread = 0;
    for (; i; i >>= 1, mask &= mask - 1) {
        spread |= i & 1 ? mask & (~mask + 1) : 0;
    }
    return static_cast<int64_t>(spread);
}

/* ---- before and after the rungs with atomics ---- */

template <typename Acc>
__global__ void
partition_reduce_zero(Acc *sums, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t o = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; o < n;
         o += step) {
        sums[o] = 0;
    }
}

/* out[o] = the sum of `copies` sums, `outputs` apart. */
template <typename Term>
__global__ void
partition_reduce_finish(const typename Term::Acc *sums, int64_t copies, int64_t outputs,
                        typename Term::Out *out)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t o = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         o < outputs; o += step) {
        part_of<typename Term::Acc> total = sums[o];
        for (int64_t c = 1; c < copies; c++) {
            total += sums[c * outputs + o];
        }
        out[o] = result_of<Term>(total);
    }
}

/* Blocks for n threads, at most 16 per SM. */
inline int64_t
grid_for(const gpo_call *call, int64_t n)
{
    const int64_t all = ceil_div(n, BLOCK);
    const int64_t full = static_cast<int64_t>(gpo_processors(call)) * 16;
    return all < full ? all : full;
}

/*
 * `copies` times the outputs' sums for atomics, zeroed: the result itself for one copy
 * of the result's type, else scratch memory.
 */
template <typename Term>
gpo_status
zeroed_sums(gpo_call *call, int64_t copies, typename Term::Acc **sums)
{
    using Acc = typename Term::Acc;
    const int64_t n = copies << partition_plan_of(call)->k;
    void *memory = call->out[0].data;
    if (copies > 1 || !std::is_same_v<Acc, typename Term::Out>) {
        const gpo_status status =
            gpo_scratch(call, static_cast<size_t>(n) * sizeof(Acc), &memory);
        if (status) {
            return status;
        }
    }
    *sums = static_cast<Acc *>(memory);
    return GPO_LAUNCH(call, grid_for(call, n), BLOCK, 0, (partition_reduce_zero<Acc>),
                      *sums, n);
}

template <typename Term>
gpo_status
finish_sums(gpo_call *call, int64_t copies, const typename Term::Acc *sums)
{
    void *const out = call->out[0].data;
    if (sums == out) {
        return GPO_OK;
    }
    const int64_t outputs = static_cast<int64_t>(1) << partition_plan_of(call)->k;
    return GPO_LAUNCH(call, grid_for(call, outputs), BLOCK, 0,
                      (partition_reduce_finish<Term>), sums, copies, outputs,
                      static_cast<typename Term::Out *>(out));
}

/* ---- dispatch: from the dtype of the caller's array to a term ---- */

template <typename Rung, typename T>
gpo_status
run_rung(gpo_call *call)
{
    if constexpr (std::is_same_v<T, c64> || std::is_same_v<T, c128>) {
        using Real = std::conditional_t<std::is_same_v<T, c64>, float, double>;
        if (partition_plan_of(call)->pairs) {
            return Rung::template run<plain_term<Real>>(call);
        }
        return Rung::template run<norm_term<Real>>(call);
    }
    else {
        return Rung::template run<plain_term<T>>(call);
    }
}

#endif
