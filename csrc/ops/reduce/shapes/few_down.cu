/*
 * few_down.cu  A wave or two of results of a few elements each, in the order of memory:
 * a thread has one, all of its loads in flight at once.  Code is short, as it is on the
 * way of a small call: offsets of elements come as arguments, places of results by
 * multiplications of 32 bits, and no thread waits for another.
 * Cost:  reads n * sizeof(T) bytes once, an element per load.
 */
#include "../views.cuh"

/* Kept axes, and the elements of a row. */
template <typename T>
struct few_view {
    const T *x;
    int rows, cols, ndim;
    divider length[MOST_FEW_AXES];
    int64_t strides[MOST_FEW_AXES];
    int64_t offsets[FEW_DOWN];
};

/* Blocks per SM, for the launch bound: FEW_DOWN elements of a thread take registers. */
template <typename Op>
__host__ __device__ constexpr int
few_blocks()
{
    constexpr int BYTES = sizeof(typename Op::T) + sizeof(typename Op::Fold) / 8;
    return BYTES > 8 ? 6 : BYTES > 4 ? 8 : 12;
}

template <typename Op>
__global__ void
__launch_bounds__(FEW_BLOCK, (few_blocks<Op>()))
    reduce_few_down_kernel(Op op, few_view<typename Op::T> v, reduce_result to)
{
    const int row = blockIdx.x * FEW_BLOCK + threadIdx.x;
    if (row >= v.rows) {
        return;
    }
    int rest = row;
    const typename Op::T *p = v.x;
#pragma unroll
    for (int d = MOST_FEW_AXES - 1; d > 0; d--) {
        if (d < v.ndim) {
            const int above = v.length[d].narrow(rest);
            p += (rest - above * static_cast<int>(v.length[d].by)) * v.strides[d];
            rest = above;
        }
    }
    p += rest * v.strides[0];
    typename Op::T loaded[FEW_DOWN];
#pragma unroll
    for (int k = 0; k < FEW_DOWN; k++) {
        if (k < v.cols) {
            loaded[k] = p[v.offsets[k]];
        }
    }
    typename Op::Fold fold;
#pragma unroll
    for (int k = 0; k < FEW_DOWN; k++) {
        if (k < v.cols) {
            fold.add(Op::widen(op.lift(loaded[k], k)));
        }
    }
    op.store(to, row, fold.value(), v.cols);
}

struct reduce_few_down_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
        few_view<typename Op::T> v = {};
        v.x = origin_of<typename Op::T>(call);
        v.rows = static_cast<int>(plan.rows);
        v.cols = static_cast<int>(plan.cols);
        v.ndim = kept.ndim;
        for (int d = 0; d < kept.ndim; d++) {
            v.length[d] = divider_of(kept.shape[d]);
            v.strides[d] = kept.strides[d];
        }
        for (int k = 0; k < v.cols; k++) {
            int64_t rest = k;
            for (int d = reduced.ndim - 1; d >= 0; d--) {
                v.offsets[k] += rest % reduced.shape[d] * reduced.strides[d];
                rest /= reduced.shape[d];
            }
        }
        return GPO_LAUNCH(call, grid_of(ceil_div(plan.rows, FEW_BLOCK)), FEW_BLOCK, 0,
                          (reduce_few_down_kernel<Op>), op, v, result_of(call));
    }
};

template <typename T>
gpo_status
reduce_few_down(gpo_call *call)
{
    return are_few_down(*reduce_plan_of(call))
               ? reduce_with<reduce_few_down_launcher, T>(call)
               : reduce_v9<T>(call); /* a host array, packed after the choice */
}

#define INSTANTIATE(T) template gpo_status reduce_few_down<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
