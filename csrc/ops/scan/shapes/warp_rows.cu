/*
 * warp_rows.cu  Few short rows: as many lanes as a row has elements, up to a warp, scan
 * it, 32 elements at a time.  The code is short: a kernel of a few microseconds spends
 * many of them on its first instructions.
 * Cost:  reads x once, writes out once, an element per lane; any strides.
 */
#include "../prepare.cuh"

template <typename Op>
__global__ void
__launch_bounds__(BLOCK)
    scan_warp_rows_kernel(Op op, scan_view<typename Op::Out> a, int shift)
{
    using Acc = typename Op::Acc;
    using Fold = typename Op::Fold;
    const int lane = threadIdx.x % WARP, size = 1 << shift, place = lane & (size - 1);
    const int64_t thread = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t row = thread >> shift;
    const bool there = row < a.rows;
    const row_offset at = offset_of(a, there ? row : 0);
    const int cols = static_cast<int>(a.cols);
    Acc carried = op.first;
#pragma unroll 1
    for (int begin = 0; begin < cols; begin += WARP) { /* once if lanes are fewer */
        const int k = begin + place;
        const bool inside = there && k < cols;
        const Acc own =
            op.lift(inside ? op.read(a.x, at.x + k * a.stride) : op.nothing());
        Acc sum = own;
#pragma unroll 1
        for (int d = 1; d < size; d *= 2) {
            const Acc before = shuffle_up(sum, d);
            sum = place >= d ? Fold::combine(before, sum) : sum;
        }
        const Acc up = shuffle_up(sum, 1);
        const Acc before = place > 0 ? Fold::combine(carried, up) : carried;
        const Acc all = shuffle_from(sum, WARP - 1);
        sum = Fold::combine(carried, sum);
        if (inside) {
            a.out[at.out + k * a.step] = op.finish(a.exclusive ? before : sum);
        }
        carried = Fold::combine(carried, all); /* used by whole warps alone */
    }
}

struct warp_rows {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_view(call, op, [&](const scan_view<typename Op::Out> &a) {
            int shift = 0;
            while (shift < 5 && a.cols > 1 << shift) {
                shift++;
            }
            const dim3 grid = grid_of(ceil_div(a.rows << shift, BLOCK));
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_warp_rows_kernel<Op>), op, a,
                              shift);
        });
    }
};

template <typename T>
gpo_status
scan_warp_rows(gpo_call *call)
{
    return scan_with<warp_rows, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_warp_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
