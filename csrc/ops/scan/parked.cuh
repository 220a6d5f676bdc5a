/*
 * parked.cuh  A tile of a long row that is copied to shared memory and waits there, in
 * v4 and v5, for ops that keep elements as read (Op::AS_READ).  See
 * ladder/v4_parked.cuh and ladder/v5_ahead.cu for which block takes which tile, and for
 * its prefix.
 */
#ifndef GPO_SCAN_PARKED_CUH
#define GPO_SCAN_PARKED_CUH

#include "copies.cuh"
#include "rows.cuh"

constexpr int PARKED_BYTES = PARKED * THREADS * 16;

/* Whether results are four times as wide as elements, or more. */
template <typename Op>
constexpr bool IS_SPREAD = sizeof(typename Op::Out) >= 4 * sizeof(typename Op::Raw);

template <typename Op>
struct parked_tile {
    using Raw = typename Op::Raw;
    static constexpr int VEC = Op::VEC, ALL = PARKED * THREADS;

    tile_place place;
    pack<Raw> *mine; /* the thread's first pack; the next is `step` packs further */
    int step;

    /*
     * All threads: starts to copy tile `id` to `memory` with an L2 eviction policy, and
     * loads partial packs; after await_arrival all packs are in `memory`.
     */
    __device__ __forceinline__ void start(const Op &op,
                                          const scan_view<typename Op::Out> &a,
                                          int64_t across, int64_t id, pack<Raw> *memory,
                                          uint64_t *arrival, uint64_t policy)
    {
        const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
        place = place_of<Op, false, PARKED>(op, a, across, 1, id);

        /* Packs [whole, end) of the tile are copied in memory order. */
        const bool back = a.stride < 0;
        const int own = warp * (PARKED * WARP) + lane; /* the thread's first pack */
        const int64_t tile = place.begin - own * VEC, left = (place.n - tile) / VEC;
        const int whole = tile < 0;
        const int end = !place.packed ? whole : left < ALL ? left : ALL;
        const Raw *const x = static_cast<const Raw *>(a.x) + place.at.x;
        copy_in<THREADS>(memory + (back ? ALL - end : whole),
                         back ? x - tile - end * VEC + 1 : x + tile + whole * VEC,
                         end > whole ? (end - whole) * 16 : 0, arrival, policy);
        mine = memory + (back ? ALL - 1 - own : own);
        step = back ? -WARP : WARP;
#pragma unroll 1
        for (int j = 0; j < PARKED; j++) {
            const int q = own + j * WARP;
            if (q < whole || q >= end) {
                pack<Raw> raw;
                load_elements(op, a, place, tile + q * VEC, raw.v);
                if (back) {
                    turn_round(raw.v);
                }
                mine[j * step] = raw;
            }
        }
    }

    /* The thread's pack j. */
    __device__ __forceinline__ pack<Raw> operator()(int j) const
    {
        pack<Raw> raw = mine[j * step];
        if (step < 0) {
            turn_round(raw.v);
        }
        return raw;
    }
};

#endif
