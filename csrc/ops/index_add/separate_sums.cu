/*
 * separate_sums.cu  Float64 and float32 sums of index_add: cleared first, rounded to out
 * at the end.
 */
#include "separate_sums.cuh"

static constexpr int ROUNDED_AT_ONCE =
    4; /* elements of a thread: 16 bytes of float32 */

/* packs: of 16 bytes, which hold all sums. */
static __global__ void
__launch_bounds__(BLOCK) index_add_clear(uint4 *sums, int64_t packs)
{
    let_next_start();
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < packs;
         i += step) {
        sums[i] = make_uint4(0, 0, 0, 0);
    }
}

/* Elements [i, i + V) of out. */
template <typename T, typename Sum, int V>
static __device__ __forceinline__ void
round_pack(const T *x, const Sum *sums, T *out, int64_t i)
{
    values<T, V> v = *reinterpret_cast<const values<T, V> *>(x + i);
    const values<Sum, V> sum = *reinterpret_cast<const values<Sum, V> *>(sums + i);
    bool changes = x != out;
#pragma unroll
    for (int e = 0; e < V; e++) {
        const Sum both = static_cast<Sum>(value_of(v.v[e])) + sum.v[e];
        const bool has_sum = sum.v[e] != 0;
        v.v[e] = has_sum ? stored_as<T>(static_cast<float>(both)) : v.v[e];
        changes = changes || has_sum;
    }
    if (changes) {
        *reinterpret_cast<values<T, V> *>(out + i) = v;
    }
}

/* n elements in packs of V, then the rest one by one. */
template <typename T, typename Sum, int V>
__global__ void
__launch_bounds__(BLOCK) index_add_round(const T *x, const Sum *sums, T *out, int64_t n,
                                         const unsigned long long *verdict)
{
    if (verdict != nullptr && *verdict != NONE_BAD) {
        return;
    }
    wait_for_before();
    const int64_t packs = n / V, step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t p = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; p < packs;
         p += step) {
        round_pack<T, Sum, V>(x, sums, out, p * V);
    }
    if (blockIdx.x == 0 && threadIdx.x < n - packs * V) {
        round_pack<T, Sum, 1>(x, sums, out, packs * V + threadIdx.x);
    }
}

gpo_status
index_add_clear_sums(gpo_call *call, void *sums, int64_t bytes)
{
    const int64_t packs = ceil_div(bytes, 16);
    return GPO_LAUNCH(call, grid_for(packs), BLOCK, 0, index_add_clear,
                      static_cast<uint4 *>(sums), packs);
}

template <typename T, typename Sum>
gpo_status
index_add_round_sums(gpo_call *call, const index_add_view<T> &a, index_add_range range,
                     const Sum *sums)
{
    const T *const x = a.base + range.begin;
    T *const out = a.out + range.begin;
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(out);
    return addresses % (ROUNDED_AT_ONCE * sizeof(T)) == 0
               ? GPO_FOLLOW(call, true, grid_for(ceil_div(range.n, ROUNDED_AT_ONCE)),
                            BLOCK, 0, (index_add_round<T, Sum, ROUNDED_AT_ONCE>), x,
                            sums, out, range.n, a.verdict)
               : GPO_FOLLOW(call, true, grid_for(range.n), BLOCK, 0,
                            (index_add_round<T, Sum, 1>), x, sums, out, range.n,
                            a.verdict);
}

#define INSTANTIATE(T, Sum)                           \
    template gpo_status index_add_round_sums<T, Sum>( \
        gpo_call *, const index_add_view<T> &, index_add_range, const Sum *);
INSTANTIATE(f16, float)
INSTANTIATE(f16, double)
INSTANTIATE(bf16, float)
INSTANTIATE(bf16, double)
INSTANTIATE(float, float)
INSTANTIATE(float, double)
