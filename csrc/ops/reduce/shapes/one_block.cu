/*
 * one_block.cu  One short contiguous row: a block loads all of it at once.  The code is
 * short, as it is on the way of a small call: no divisions, no tickets, one barrier.
 * Cost:  a wait for memory, and for the warps.  A row that does not start on a boundary
 *        of 16 bytes is v9's.
 */
#include "../packs.cuh"
#include "../views.cuh"

template <typename Op>
__global__ void
__launch_bounds__(ROW_BLOCK) reduce_one_block_kernel(Op op, const typename Op::T *x,
                                                     int length, reduce_result to)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE, STEP = ROW_BLOCK * SIZE;
    GPO_SHARED(typename Op::Part, slots, [ROW_BLOCK / WARP]);
    const int tid = threadIdx.x, whole = length / SIZE * SIZE;
    uint4 loaded[TILE_ITEMS] = {};
#pragma unroll
    for (int u = 0; u < TILE_ITEMS; u++) {
        const int k = tid * SIZE + u * STEP;
        if (k < whole) {
            loaded[u] = *reinterpret_cast<const uint4 *>(x + k);
        }
    }
    typename Op::Fold fold;
    if (whole + tid < length) { /* what is left of a pack */
        fold.add(Op::widen(op.lift(x[whole + tid], whole + tid)));
    }
#pragma unroll 1 /* one copy of the arithmetic */
    for (int k = tid * SIZE; k < whole; k += STEP) {
        const pack<T> next = pack_of<T>(loaded[0]);
        fold.add(Op::widen(combine_pack<Op, SIZE>(op, next.v, k)));
#pragma unroll
        for (int u = 1; u < TILE_ITEMS; u++) {
            loaded[u - 1] = loaded[u];
        }
    }
    const typename Op::Part total = block_combine<Op, ROW_BLOCK>(fold.value(), slots);
    if (tid == 0) {
        op.store(to, 0, total, length);
    }
}

struct reduce_one_block_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const auto *x = origin_of<typename Op::T>(call);
        const int length = static_cast<int>(reduce_plan_of(call)->cols);
        return GPO_LAUNCH(call, dim3(1), ROW_BLOCK, 0, (reduce_one_block_kernel<Op>),
                          op, x, length, result_of(call));
    }
};

template <typename T>
gpo_status
reduce_one_block(gpo_call *call)
{
    return is_aligned(origin_of<T>(call))
               ? reduce_with<reduce_one_block_launcher, T>(call)
               : reduce_v9<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_one_block<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
