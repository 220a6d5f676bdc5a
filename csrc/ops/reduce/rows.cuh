/*
 * rows.cuh  What all rungs of reduce share: x as rows of elements, one element by its
 * number, and the finish that turns the blocks' parts into results.
 */
#ifndef GPO_REDUCE_ROWS_CUH
#define GPO_REDUCE_ROWS_CUH

#include "reductions.cuh"

constexpr int BLOCK = 256;

/* ---- x as rows ---- */

/* Where element number i of a group of axes lies, in elements from the first. */
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

/* The plan as a kernel argument.  A launch covers rows from first_row on. */
template <typename T>
struct reduce_rows {
    const T *x;
    int64_t rows, cols, first_row;
    reduce_axes kept, reduced;
};

template <typename T>
reduce_rows<T>
rows_of(const reduce_plan &plan)
{
    return {static_cast<const T *>(plan.origin),
            plan.rows,
            plan.cols,
            0,
            plan.kept,
            plan.reduced};
}

/* Element k of a row as an accumulator; beyond the end, the identity. */
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

constexpr int64_t FINISH = 16 * BLOCK; /* parts one block combines */

/* Block (g, r) combines its FINISH parts of row r: into the result if it is alone. */
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

/* ---- the launcher of the rungs that need a second kernel ---- */

constexpr int64_t MAX_GRID_X = 2147483647, MAX_GRID_Y = 65535;

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

inline reduce_result
result_of(const gpo_call *call, const reduce_plan &plan)
{
    return {call->out[0].data, call->out[0].dtype, plan.op == REDUCE_MEAN};
}

template <typename Op>
gpo_status
finish(gpo_call *call, const reduce_plan &plan, const Op &op, typename Op::Part *part,
       int64_t chunks)
{
    using Part = typename Op::Part;
    const reduce_result to = result_of(call, plan);
    gpo_status status = GPO_OK;
    while (!status && chunks > 0) {
        const int64_t groups = ceil_div(chunks, FINISH);
        void *next = nullptr;
        if (groups > 1) {
            status = gpo_scratch(call, plan.rows * groups * sizeof(Part), &next);
        }
        for (int64_t row = 0; !status && row < plan.rows; row += MAX_GRID_Y) {
            const int64_t rows =
                plan.rows - row < MAX_GRID_Y ? plan.rows - row : MAX_GRID_Y;
            const dim3 grid(groups, rows);
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_finish<Op>), op, part,
                                chunks, static_cast<Part *>(next), to, plan.cols, row);
        }
        part = static_cast<Part *>(next);
        chunks = groups > 1 ? groups : 0;
    }
    return status;
}

/*
 * Runs launch(grid, rows, part) so that block (c, r) leaves the part of chunk c of row
 * first_row + r in part[row * chunks + c], then the finish.
 */
template <typename Op, typename Launch>
gpo_status
reduce_in_chunks(gpo_call *call, const reduce_plan &plan, const Op &op, int64_t chunks,
                 Launch launch)
{
    using Part = typename Op::Part;
    reduce_rows<typename Op::T> x = rows_of<typename Op::T>(plan);
    void *part = nullptr;
    if (plan.rows == 0) {
        return GPO_OK;
    }
    gpo_status status = gpo_scratch(call, plan.rows * chunks * sizeof(Part), &part);
    for (; !status && x.first_row < plan.rows; x.first_row += MAX_GRID_Y) {
        const int64_t left = plan.rows - x.first_row;
        const dim3 grid(chunks, left < MAX_GRID_Y ? left : MAX_GRID_Y);
        status = launch(grid, x, static_cast<Part *>(part));
    }
    return status ? status : finish(call, plan, op, static_cast<Part *>(part), chunks);
}

/* Chunks of a row when each block takes `per_block` elements; an empty row has one. */
inline int64_t
chunks_of(const reduce_plan &plan, int64_t per_block)
{
    return plan.cols > 0 ? ceil_div(plan.cols, per_block) : 1;
}

#endif
