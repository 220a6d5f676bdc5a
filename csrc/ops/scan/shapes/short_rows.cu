/*
 * short_rows.cu  Consecutive rows of half a tile or less, which share tiles.
 * A tile is one segmented scan: the flag "a row begins here" is carried with each sum.
 * No tile waits for another.
 * Cost:  reads x once, writes out once.  A view not in the order of out is copied
 *        first.
 */
#include "../prepare.cuh"
#include "../rows.cuh"

/* A block scans `together` rows. */
template <typename Op>
__global__ void
__launch_bounds__(THREADS, row_blocks<Op>)
    scan_short_rows_kernel(Op op, scan_view<typename Op::Out> a, int together,
                           int64_t first)
{
    using Run = stretch<typename Op::Fold, typename Op::Acc, true>;
    GPO_SHARED(Run, slots, [WARPS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const tile_place p =
        place_of<Op, true, PACKS>(op, a, 1, together, first + blockIdx.x);

    pack<typename Op::Raw> raw[PACKS];
    load_packs(op, a, p, raw);
    const auto read = [&](int j) -> const pack<typename Op::Raw> & { return raw[j]; };
    Run before[PACKS];
    const Run sum = scan_packs<Op, true>(op, a, p, read, before);
    if (lane == 0) {
        slots[warp] = sum;
    }
    __syncthreads();
    Run total;
    const Run prefix = sum_before_warp(slots, &total);
    store_packs<Op, true>(op, a, p, read, before, prefix);
}

/* Whether x is in the order of out: consecutive rows, walked in the same direction. */
static bool
is_in_order(const scan_plan &plan)
{
    return plan.stride == plan.step && plan.kept.ndim == 1 &&
           plan.kept.strides[0] == plan.cols;
}

struct short_rows {
    template <typename Op>
    static gpo_status launch(gpo_call *call, scan_view<typename Op::Out> a,
                             const Op &op)
    {
        if (a.step < 0) { /* the scan begins with the last row */
            const int64_t last = (a.rows - 1) * a.cols;
            a.x = static_cast<const char *>(a.x) + last * op.bytes();
            a.out += last;
            a.x_strides[0] = -a.cols;
            a.out_strides[0] = -a.cols;
        }
        const int64_t together = (TILE<Op> - (Op::VEC - 1)) / a.cols;
        const int64_t tiles = ceil_div(a.rows, together);
        gpo_status status = GPO_OK;
        for (int64_t first = 0; !status && first < tiles; first += MAX_GRID_X) {
            status = GPO_LAUNCH(call, grid_of(tiles - first), THREADS, 0,
                                (scan_short_rows_kernel<Op>), op, a,
                                static_cast<int>(together), first);
        }
        return status;
    }

    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_ordered_view(
            call, op, is_in_order(*scan_plan_of(call)),
            [&](const scan_view<typename Op::Out> &a) { return launch(call, a, op); });
    }
};

template <typename T>
gpo_status
scan_short_rows(gpo_call *call)
{
    return scan_with<short_rows, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_short_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
