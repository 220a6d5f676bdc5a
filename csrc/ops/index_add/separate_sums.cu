/*
 * separate_sums.cu  Float64 and float32 sums of index_add: cleared first, rounded to out
 * at the end.
 */
#include "separate_sums.cuh"

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

template <typename T, typename Sum>
__global__ void
__launch_bounds__(BLOCK) index_add_round(const T *x, const Sum *sums, T *out, int64_t n,
                                         const unsigned long long *verdict)
{
    if (verdict != nullptr && *verdict != NONE_BAD) {
        return;
    }
    wait_for_before();
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const T old = x[i];
        const Sum sum = sums[i];
        const Sum both = static_cast<Sum>(value_of(old)) + sum;
        if (sum != 0 || x != out) {
            out[i] = sum != 0 ? stored_as<T>(static_cast<float>(both)) : old;
        }
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
    return GPO_FOLLOW(call, true, grid_for(range.n), BLOCK, 0,
                      (index_add_round<T, Sum>), a.base + range.begin, sums,
                      a.out + range.begin, range.n, a.verdict);
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
