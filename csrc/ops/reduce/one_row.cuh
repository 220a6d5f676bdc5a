/*
 * one_row.cuh  Shared by one_block and one_cluster: all loads of a contiguous row, then
 * its fold.  Thread `tid` of STEP / SIZE threads has a pack in every STEP elements.
 */
#ifndef GPO_REDUCE_ONE_ROW_CUH
#define GPO_REDUCE_ONE_ROW_CUH

#include "packs.cuh"
#include "views.cuh"

/* one_block: threads of a block where rows of up to four packs of each are more than
   blocks of v9 that run at once. */
constexpr int SMALL_BLOCK = 128;
constexpr int64_t SMALL_BLOCK_BYTES = SMALL_BLOCK * TILE_ITEMS * 16;

template <int STEP, typename T>
__device__ __forceinline__ void
load_row(const T *x, int tid, int length, uint4 (&loaded)[TILE_ITEMS])
{
    constexpr int SIZE = pack<T>::SIZE;
    const int whole = length / SIZE * SIZE;
#pragma unroll
    for (int u = 0; u < TILE_ITEMS; u++) {
        const int k = tid * SIZE + u * STEP;
        if (k < whole) {
            loaded[u] = *reinterpret_cast<const uint4 *>(x + k);
        }
    }
}

/* The packs of load_row, and what is left of a pack. */
template <int STEP, typename Op>
__device__ __forceinline__ typename Op::Part
fold_row(const Op &op, const typename Op::T *x, int tid, int length,
         uint4 (&loaded)[TILE_ITEMS])
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE;
    const int whole = length / SIZE * SIZE;
    typename Op::Fold fold;
    if (whole + tid < length) {
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
    return fold.value();
}

#endif
