/*
 * three_kernels.cuh  Shared by v0 and v1, whose kernels scan tiles into a local array:
 * the scan of the tiles' totals, and the addition of each tile's prefix.
 */
#ifndef GPO_SCAN_THREE_KERNELS_CUH
#define GPO_SCAN_THREE_KERNELS_CUH

#include "totals.cuh"

/* Adds to each element the prefix of its tile. */
template <typename Op>
__global__ void
scan_add(Op op, scan_view<typename Op::Out> a, const typename Op::Acc *local,
         const typename Op::Part *part, int64_t tile, int64_t tiles, int64_t first)
{
    using Part = typename Op::Part;
    const int64_t blocks = ceil_div(a.cols, BLOCK);
    const int64_t id = first + blockIdx.x;
    const int64_t row = id / blocks, k = id % blocks * BLOCK + threadIdx.x;
    if (k >= a.cols) {
        return;
    }
    Part v = part[row * tiles + k / tile];
    const bool begins = k % tile == 0;
    if (!a.exclusive || !begins) {
        const typename Op::Acc own = local[row * a.cols + k - a.exclusive];
        v = Op::PartFold::combine(v, Op::widen(own));
    }
    a.out[offset_of(a, row).out + k * a.step] = op.finish(Op::narrow(v));
}

/*
 * v0 and v1: launch(grid, view, local, part, tiles, first) stores the scan of tile `t`
 * of row `r` in `local`, row after row, and its total in part[r * tiles + t].
 */
template <typename Op, typename Launch>
gpo_status
scan_in_three(gpo_call *call, const Op &op, int64_t tile, Launch launch)
{
    using Acc = typename Op::Acc;
    using Part = typename Op::Part;
    return for_each_view(call, op, [&](const scan_view<typename Op::Out> &a) {
        const int64_t tiles = ceil_div(a.cols, tile);
        void *local = nullptr, *part = nullptr;
        gpo_status status = gpo_scratch(call, a.rows * a.cols * sizeof(Acc), &local);
        if (!status) {
            status = gpo_scratch(call, a.rows * tiles * sizeof(Part), &part);
        }
        for (int64_t first = 0; !status && first < a.rows * tiles;
             first += MAX_GRID_X) {
            status =
                launch(grid_of(a.rows * tiles - first), a, static_cast<Acc *>(local),
                       static_cast<Part *>(part), tiles, first);
        }
        if (!status) {
            status =
                scan_all_totals(call, op, static_cast<Part *>(part), a.rows, tiles);
        }
        const int64_t blocks = a.rows * ceil_div(a.cols, BLOCK);
        for (int64_t first = 0; !status && first < blocks; first += MAX_GRID_X) {
            status = GPO_LAUNCH(call, grid_of(blocks - first), BLOCK, 0, (scan_add<Op>),
                                op, a, static_cast<const Acc *>(local),
                                static_cast<const Part *>(part), tile, tiles, first);
        }
        return status;
    });
}

#endif
