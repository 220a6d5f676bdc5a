/*
 * packs.cuh  Combines packs (16 bytes of a row) into one accumulator.
 */
#ifndef GPO_REDUCE_PACKS_CUH
#define GPO_REDUCE_PACKS_CUH

#include "rows.cuh"

/* Combines the elements of one pack in a tree, neighbours first. */
template <typename Op, int N>
__device__ __forceinline__ typename Op::Acc
combine_pack(const Op &op, const typename Op::T *v, int64_t k)
{
    if constexpr (N == 1) {
        return op.lift(v[0], k);
    }
    else {
        return Op::combine(combine_pack<Op, N / 2>(op, v, k),
                           combine_pack<Op, N / 2>(op, v + N / 2, k + N / 2));
    }
}

/* Combines N packs, STEP elements apart, in a tree. */
template <typename Op, int N, int STEP>
__device__ __forceinline__ typename Op::Acc
combine_packs(const Op &op, const pack<typename Op::T> *v, int64_t k)
{
    if constexpr (N == 1) {
        return combine_pack<Op, pack<typename Op::T>::SIZE>(op, v[0].v, k);
    }
    else {
        return Op::combine(
            combine_packs<Op, N / 2, STEP>(op, v, k),
            combine_packs<Op, N / 2, STEP>(op, v + N / 2, k + N / 2 * STEP));
    }
}

#endif
