/*
 * warp_rows.cu  Few short rows: as many lanes as a row has elements, up to a warp, scan
 * it, 32 elements at a time.  The code is short: a kernel of a few microseconds spends
 * many of them on its first instructions.  Longer rows have LOADS of these in flight.
 * Cost:  reads x once, writes out once, an element per lane; any strides.
 */
#include "../prepare.cuh"

template <typename Op, int LOADS>
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
    for (int first = 0; first < cols; first += LOADS * WARP) {
        typename Op::Raw raw[LOADS];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const int k = first + u * WARP + place;
            raw[u] =
                there && k < cols ? op.read(a.x, at.x + k * a.stride) : op.nothing();
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
            const int begin = first + u * WARP, k = begin + place;
            if (begin >= cols) { /* once if lanes are fewer than a warp */
                break;
            }
            const Acc own = op.lift(raw[u]);
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
            if (there && k < cols) {
                a.out[at.out + k * a.step] = op.finish(a.exclusive ? before : sum);
            }
            carried = Fold::combine(carried, all); /* used by whole warps alone */
        }
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
            if (a.cols > 2 * WARP) {
                return GPO_LAUNCH(call, grid, BLOCK, 0,
                                  (scan_warp_rows_kernel<Op, LOADS_IN_WARP>), op, a,
                                  shift);
            }
            return GPO_LAUNCH(call, grid, BLOCK, 0, (scan_warp_rows_kernel<Op, 1>), op,
                              a, shift);
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
