/*
 * one_block.cu  Short arrays: one block of 1024 threads has all loads in flight and adds
 * all products, so no block waits for the parts of others, which costs a store, a ticket
 * and a load, one after the other.  Sums as in v3.
 * Cost:  reads 2 * n * sizeof(T) bytes once, through one SM; one launch.
 */
#include "../packs.cuh"
#include "../parts.cuh"

template <typename S, bool SHIFTED>
__global__ void
__launch_bounds__(ONE_BLOCK)
    dot_one_block_kernel(dot_packs<typename S::T> a, typename S::T *out)
{
    using T = typename S::T;
    constexpr int N = SHIFTED ? SHIFTED_ITEMS : ITEMS;
    constexpr int TILE = ONE_BLOCK * N;
    GPO_SHARED(typename S::Part, slots, [ONE_BLOCK / WARP]);
    const uint64_t policy = l2_policy(true);
    const int tid = static_cast<int>(threadIdx.x);
    const char *const start = reinterpret_cast<const char *>(a.y + a.head);
    const uint4 *const x = reinterpret_cast<const uint4 *>(a.x + a.head);
    const uint4 *const y =
        reinterpret_cast<const uint4 *>(SHIFTED ? start - a.shift : start);

    dot_ends<S> ends;
    ends.load(a, tid);
    typename S::Fold fold;
    for (int64_t k = tid; k < a.packs; k += TILE) {
        fold.add(S::widen(sum_packs<S, SHIFTED, N, false>(
            x + k, y + k, ONE_BLOCK, a.packs - k, a.shift, policy)));
    }
    fold.add(S::widen(ends.sum()));
    const typename S::Part total = block_combine<S, ONE_BLOCK>(fold.value(), slots);
    if (tid == 0) {
        store_element(out, S::store(total));
    }
}

template <typename T>
gpo_status
dot_one_block(gpo_call *call)
{
    using S = sum_of<T>;
    using E = typename S::T;
    dot_view<E> a = view_of<E>(call);
    if (!peels(&a)) {
        return dot_strided<T>(call);
    }
    const dot_packs<E> packs = packs_of(a);
    E *out = static_cast<E *>(call->out[0].data);
    return packs.shift ? GPO_LAUNCH(call, 1, ONE_BLOCK, 0,
                                    (dot_one_block_kernel<S, true>), packs, out)
                       : GPO_LAUNCH(call, 1, ONE_BLOCK, 0,
                                    (dot_one_block_kernel<S, false>), packs, out);
}

#define INSTANTIATE(T) template gpo_status dot_one_block<T>(gpo_call * call);
INSTANTIATE(int16_t)
INSTANTIATE(uint16_t)
INSTANTIATE(int32_t)
INSTANTIATE(uint32_t)
INSTANTIATE(int64_t)
INSTANTIATE(uint64_t)
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(c64)
INSTANTIATE(c128)
