/*
 * parked_packs.cuh  The part of a row that a block of any size scans (cluster_rows,
 * one_wave), parked in shared memory.  The loops over a thread's packs are not unrolled: a
 * call of a few microseconds waits for its first instructions from memory.
 */
#ifndef GPO_SCAN_PARKED_PACKS_CUH
#define GPO_SCAN_PARKED_PACKS_CUH

#include "rows.cuh"

/* A thread has `packs` packs, WARP packs apart; all threads make and use it. */
template <typename Op>
struct parked_packs {
    using Acc = typename Op::Acc;
    using Raw = typename Op::Raw;
    using Fold = typename Op::Fold;
    static constexpr int VEC = Op::VEC;

    tile_place place;
    pack<Raw> *mine; /* the thread's first pack in `memory` */
    int packs;
    bool back;

    /* Part `t` of row `row`: starts to load it; it is there after await_copies(). */
    __device__ __forceinline__ parked_packs(const Op &op,
                                            const scan_view<typename Op::Out> &a,
                                            int64_t row, int64_t t, int count,
                                            pack<Raw> *memory)
    {
        const int lane = threadIdx.x % WARP;
        const int own = threadIdx.x / WARP * (count * WARP) + lane;
        packs = count;
        mine = memory + own;
        back = a.stride < 0;
        place = place_of<Op, false, 0>(op, a, 1, 1, row);
        place.begin += (t * count * blockDim.x + own - lane) * VEC;
        const Raw *const x = static_cast<const Raw *>(a.x) + place.at.x;
        const uint64_t policy = l2_evict_first();
#pragma unroll 1
        for (int j = 0; j < packs; j++) {
            const int64_t f = first_of(j);
            if (place.packed && f >= 0 && f + VEC <= place.n) {
                start_copy(mine + j * WARP, x + (back ? -f - (VEC - 1) : f), policy);
            }
            else {
                pack<Raw> raw;
                load_elements(op, a, place, f, raw.v);
                if (back) {
                    turn_round(raw.v);
                }
                mine[j * WARP] = raw;
            }
        }
    }

    /* The place in the row of pack j. */
    __device__ __forceinline__ int64_t first_of(int j) const
    {
        return place.begin + j * (WARP * VEC);
    }

    __device__ __forceinline__ pack<Raw> operator()(int j) const
    {
        pack<Raw> raw = mine[j * WARP];
        if (back) {
            turn_round(raw.v);
        }
        return raw;
    }

    /*
     * The sums of the warps up to lane's, in each warp, after two steps: the thread's
     * packs, then the warp; `slots` is shared memory.
     */
    __device__ __forceinline__ Acc sums_of_warps(const Op &op, Acc (&slots)[WARP]) const
    {
        const int lane = threadIdx.x % WARP;
        Acc sum = Fold::identity();
#pragma unroll 1
        for (int j = 0; j < packs; j++) {
            const pack<Raw> raw = (*this)(j);
#pragma unroll
            for (int i = 0; i < VEC; i++) {
                sum = Fold::combine(sum, op.lift(raw.v[i]));
            }
        }
        sum = warp_scan<Fold>(sum);
        if (lane == WARP - 1) {
            slots[threadIdx.x / WARP] = sum;
        }
        __syncthreads();
        const int warps = static_cast<int>(blockDim.x / WARP);
        return warp_scan<Fold>(lane < warps ? slots[lane] : Fold::identity());
    }

    /* Scans and stores; `sums` are those of sums_of_warps, `before` is the block's prefix. */
    __device__ __forceinline__ void store(const Op &op,
                                          const scan_view<typename Op::Out> &a,
                                          Acc sums, Acc before) const
    {
        using Run = stretch<Fold, Acc, false>;
        const int warp = threadIdx.x / WARP;
        const Acc up = shuffle_from(sums, warp > 0 ? warp - 1 : 0);
        const Acc prefix = warp > 0 ? Fold::combine(before, up) : before;
        Run total = Run::identity();
#pragma unroll 1
        for (int j = 0; j < packs; j++) {
            const pack<Raw> raw = (*this)(j);
            const Run above = scan_pack<Op, false>(op, a, first_of(j), raw.v, &total);
            store_pack<Op, false>(op, a, place, first_of(j), raw.v,
                                  Fold::combine(prefix, above.v));
        }
    }
};

#endif
