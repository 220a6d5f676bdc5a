/*
 * rows.cuh  Shared by all rungs of reduce: x as rows of elements, the load of one
 * element, and the finish that combines the blocks' parts into results.
 */
#ifndef GPO_REDUCE_ROWS_CUH
#define GPO_REDUCE_ROWS_CUH

#include "../../device/grid.cuh"
#include "reductions.cuh"
#include "tuning.cuh"

/* ---- x as rows ---- */

/* The offset of element number i of these axes from the first, in elements. */
__device__ __forceinline__ int64_t
offset_of(const reduce_axes &axes, int64_t i)
{
    if (axes.ndim <= 1) {
        return axes.ndim == 0 ? 0 : i * axes.strides[0];
    }
    int64_t offset = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d >= 0; d--) {
        offset += i % axes.shape[d] * axes.strides[d];
        i /= axes.shape[d];
    }
    return offset;
}

/* The plan as a kernel argument.  A launch covers the rows from first_row on. */
template <typename T>
struct reduce_rows {
    const T *x;
    int64_t rows, cols, first_row;
    reduce_axes kept, reduced;
};

/* The address of element 0 of result 0. */
template <typename T>
const T *
origin_of(const gpo_call *call)
{
    return static_cast<const T *>(call->in[0].data) + reduce_plan_of(call)->first;
}

template <typename T>
reduce_rows<T>
rows_of(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return {origin_of<T>(call), plan.rows, plan.cols, 0, plan.kept, plan.reduced};
}

/* Element k of a row as an accumulator; the identity past the end. */
template <typename Op>
__device__ __forceinline__ typename Op::Acc
load(const Op &op, const reduce_rows<typename Op::T> &x, int64_t row, int64_t k)
{
    if (k >= x.cols) {
        return Op::identity();
    }
    return op.lift(x.x[offset_of(x.kept, row) + offset_of(x.reduced, k)], k);
}

/* ---- the finish ---- */

constexpr int64_t FINISH = 16 * BLOCK; /* parts per block */

/* Block (g, r) combines FINISH parts of row r; a single block stores the result. */
template <typename Op>
__global__ void
__launch_bounds__(BLOCK)
    reduce_finish(Op op, const typename Op::Part *part, int64_t chunks,
                  typename Op::Part *next, reduce_result to, int64_t cols,
                  int64_t first_row)
{
    GPO_SHARED(typename Op::Part, slots, [BLOCK / WARP]);
    const int64_t row = first_row + blockIdx.y;
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * FINISH;
    const int64_t end = begin + FINISH < chunks ? begin + FINISH : chunks;

    typename Op::Fold fold;
    for (int64_t i = begin + threadIdx.x; i < end; i += BLOCK) {
        fold.add(part[row * chunks + i]);
    }
    const typename Op::Part total = block_combine<Op, BLOCK>(fold.value(), slots);
    if (threadIdx.x == 0) {
        if (gridDim.x == 1) {
            op.store(to, row, total, cols);
        }
        else {
            next[row * gridDim.x + blockIdx.x] = total;
        }
    }
}

/* ---- the launcher for rungs that need a second kernel ---- */

inline reduce_result
result_of(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return {call->out[0].data, call->out[0].dtype, plan.op == REDUCE_MEAN,
            plan.initial};
}

template <typename Op>
gpo_status
finish(gpo_call *call, const Op &op, typename Op::Part *part, int64_t chunks)
{
    using Part = typename Op::Part;
    const reduce_plan &plan = *reduce_plan_of(call);
    const reduce_result to = result_of(call);
    gpo_status status = GPO_OK;
    while (!status && chunks > 0) {
        const int64_t groups = ceil_div(chunks, FINISH);
        void *next = nullptr;
        if (groups > 1) {
            status = gpo_scratch(call, plan.rows * groups * sizeof(Part), &next);
        }
        for (int64_t row = 0; !status && row < plan.rows; row += MAX_GRID_YZ) {
            const int64_t rows =
                plan.rows - row < MAX_GRID_YZ ? plan.rows - row : MAX_GRID_YZ;
            const dim3 grid(groups, rows);
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_finish<Op>), op, part,
                                chunks, static_cast<Part *>(next), to, plan.cols, row);
        }
        part = static_cast<Part *>(next);
        chunks = groups > 1 ? groups : 0;
    }
    return status;
}

/* Launches a rung's kernel; a plain function, so that all rungs share what follows. */
template <typename Op>
using reduce_launch = gpo_status (*)(gpo_call *call, dim3 grid, const Op &op,
                                     const reduce_rows<typename Op::T> &x,
                                     typename Op::Part *part);

/*
 * Calls launch(call, grid, op, rows, part), in which block (c, r) stores the part of
 * chunk c of row = first_row + r in part[row * chunks + c], then runs the finish.
 */
template <typename Op>
gpo_status
reduce_in_chunks(gpo_call *call, const Op &op, int64_t chunks, reduce_launch<Op> launch)
{
    using Part = typename Op::Part;
    reduce_rows<typename Op::T> x = rows_of<typename Op::T>(call);
    void *part = nullptr;
    if (x.rows == 0) {
        return GPO_OK;
    }
    gpo_status status = gpo_scratch(call, x.rows * chunks * sizeof(Part), &part);
    for (; !status && x.first_row < x.rows; x.first_row += MAX_GRID_YZ) {
        const int64_t left = x.rows - x.first_row;
        const dim3 grid(chunks, grid_extent(left, MAX_GRID_YZ));
        status = launch(call, grid, op, x, static_cast<Part *>(part));
    }
    return status ? status : finish(call, op, static_cast<Part *>(part), chunks);
}

/* Chunks of a row at `per_block` elements per block; an empty row has one. */
inline int64_t
chunks_of(const gpo_call *call, int64_t per_block)
{
    const int64_t cols = reduce_plan_of(call)->cols;
    return cols > 0 ? ceil_div(cols, per_block) : 1;
}

#endif
