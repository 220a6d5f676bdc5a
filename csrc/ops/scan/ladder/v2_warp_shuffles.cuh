/*
 * v2  Warp shuffles, reduce then scan.
 * Was:   v1 writes a local scan and reads it again, with a barrier at every step.
 * Now:   the first kernel stores only totals; the third reads x again and starts from
 *        the prefix of its tile.  Warps scan 32 elements in five shuffles; one barrier
 *        is left.
 * Cost:  reads x twice, writes out: 12 bytes per 4-byte element.
 * Left:  x is read twice, in three launches -> v3.  A row is walked along its stride,
 *        so reads of columns are not coalesced: shapes/columns.cu.
 */
#ifndef GPO_SCAN_V2_WARP_SHUFFLES_CUH
#define GPO_SCAN_V2_WARP_SHUFFLES_CUH

#include "../totals.cuh"

constexpr int REDUCED = ITEMS * BLOCK; /* elements of a tile */

/* v[j] = element (warp * ITEMS + j) * 32 + lane of a tile. */
template <typename Op>
__device__ __forceinline__ void
read_striped(const Op &op, const scan_view<typename Op::Out> &a, int64_t row, int64_t k,
             typename Op::Acc (&v)[ITEMS])
{
    const int64_t x = offset_of(a, row).x;
#pragma unroll
    for (int j = 0; j < ITEMS; j++, k += WARP) {
        v[j] =
            k < a.cols ? op.lift(op.read(a.x, x + k * a.stride)) : Op::Fold::identity();
    }
}

__device__ __forceinline__ int64_t
first_striped(int64_t tile)
{
    const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    return tile * REDUCED + warp * (ITEMS * WARP) + lane;
}

template <typename Op>
__global__ void
scan_v2_reduce(Op op, scan_view<typename Op::Out> a, typename Op::Part *part,
               int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    GPO_SHARED(Acc, slots, [BLOCK / WARP]);
    const int64_t id = first + blockIdx.x;

    Acc v[ITEMS];
    read_striped(op, a, id / tiles, first_striped(id % tiles), v);
    Acc total = warp_scan<Fold>(v[0]);
#pragma unroll
    for (int j = 1; j < ITEMS; j++) {
        total = Fold::combine(total, warp_scan<Fold>(v[j]));
    }
    if (threadIdx.x % WARP == WARP - 1) {
        slots[threadIdx.x / WARP] = total;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < BLOCK / WARP; w++) {
            slots[0] = Fold::combine(slots[0], slots[w]);
        }
        part[id] = Op::widen(slots[0]);
    }
}

template <typename Op>
__global__ void
scan_v2_warp_shuffles(Op op, scan_view<typename Op::Out> a,
                      const typename Op::Part *part, int64_t tiles, int64_t first)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    using Fold = typename Op::Fold;
    GPO_SHARED(Acc, slots, [BLOCK / WARP]);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / tiles, k = first_striped(id % tiles);

    Acc v[ITEMS], before[ITEMS], total = Fold::identity();
    read_striped(op, a, row, k, v);
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const Acc scanned = warp_scan<Fold>(v[j]);
        const Acc up = shuffle_up(scanned, 1);
        before[j] = lane > 0 ? Fold::combine(total, up) : total;
        v[j] = Fold::combine(total, scanned);
        total = shuffle_from(v[j], WARP - 1);
    }
    if (lane == 0) {
        slots[warp] = total;
    }
    __syncthreads();
    Acc prefix = Fold::identity();
    for (int w = 0; w < warp; w++) {
        prefix = Fold::combine(prefix, slots[w]);
    }
    const Part base = Op::PartFold::combine(part[id], Op::widen(prefix));
    const int64_t out = offset_of(a, row).out;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (k + j * WARP < a.cols) {
            const Acc own = a.exclusive ? before[j] : v[j];
            a.out[out + (k + j * WARP) * a.step] =
                op.finish(Op::narrow(Op::PartFold::combine(base, Op::widen(own))));
        }
    }
}

struct scan_v2 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using Part = typename Op::Part;
        return for_each_view(call, op, [&](const scan_view<typename Op::Out> &a) {
            const int64_t tiles = ceil_div(a.cols, REDUCED), all = a.rows * tiles;
            void *memory = nullptr;
            gpo_status status = gpo_scratch(call, all * sizeof(Part), &memory);
            Part *part = static_cast<Part *>(memory);
            for (int64_t first = 0; !status && first < all; first += MAX_GRID_X) {
                const dim3 grid = grid_of(all - first);
                status = GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v2_reduce<Op>), op, a,
                                    part, tiles, first);
            }
            if (!status) {
                status = scan_all_totals(call, op, part, a.rows, tiles);
            }
            for (int64_t first = 0; !status && first < all; first += MAX_GRID_X) {
                const dim3 grid = grid_of(all - first);
                status =
                    GPO_LAUNCH(call, grid, BLOCK, 0, (scan_v2_warp_shuffles<Op>), op, a,
                               static_cast<const Part *>(part), tiles, first);
            }
            return status;
        });
    }
};

#endif
