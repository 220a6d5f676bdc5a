/*
 * one_block.cu  A short contiguous row, or some: a block loads all of one at once.  The
 * code is short, as it is on the way of a small call: no divisions, no tickets, one
 * barrier.
 * Cost:  a wait for memory, and for the warps.  Rows that do not start on a boundary of
 *        16 bytes are v9's.
 */
#include "../one_row.cuh"

template <typename Op, int THREADS>
__global__ void
__launch_bounds__(THREADS)
    reduce_one_block_kernel(Op op, const typename Op::T *x, int length, int64_t apart,
                            reduce_result to)
{
    constexpr int STEP = THREADS * pack<typename Op::T>::SIZE;
    GPO_SHARED(typename Op::Part, slots, [THREADS / WARP]);
    uint4 loaded[TILE_ITEMS] = {};
    x += blockIdx.x * apart;
    load_row<STEP>(x, threadIdx.x, length, loaded);
    const typename Op::Part own = fold_row<STEP>(op, x, threadIdx.x, length, loaded);
    const typename Op::Part total = block_combine<Op, THREADS>(own, slots);
    if (threadIdx.x == 0) {
        op.store(to, blockIdx.x, total, length);
    }
}

struct reduce_one_block_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        const auto *x = origin_of<typename Op::T>(call);
        const int length = static_cast<int>(plan.cols);
        const int64_t apart = plan.kept.ndim > 0 ? plan.kept.strides[0] : 0;
        const reduce_result to = result_of(call);
        const dim3 grid = grid_of(plan.rows);
        const int64_t bytes = length * static_cast<int64_t>(sizeof(*x));
        if (plan.rows > gpo_processors(call) * BLOCKS_PER_PROCESSOR &&
            bytes <= SMALL_BLOCK_BYTES) {
            return GPO_LAUNCH(call, grid, SMALL_BLOCK, 0,
                              (reduce_one_block_kernel<Op, SMALL_BLOCK>), op, x, length,
                              apart, to);
        }
        if (bytes <= ROW_BLOCK * TILE_ITEMS * 16) {
            return GPO_LAUNCH(call, grid, ROW_BLOCK, 0,
                              (reduce_one_block_kernel<Op, ROW_BLOCK>), op, x, length,
                              apart, to);
        }
        return GPO_LAUNCH(call, grid, LARGE_BLOCK, 0,
                          (reduce_one_block_kernel<Op, LARGE_BLOCK>), op, x, length,
                          apart, to);
    }
};

template <typename T>
gpo_status
reduce_one_block(gpo_call *call)
{
    return is_aligned(origin_of<T>(call)) &&
                   are_block_rows(*reduce_plan_of(call), sizeof(T))
               ? reduce_with<reduce_one_block_launcher, T>(call)
               : reduce_v9<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_one_block<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
