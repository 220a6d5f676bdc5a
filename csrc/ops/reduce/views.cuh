/*
 * views.cuh  Shared by the kernels of a single launch (v9 and the shape kernels): x
 * with few axes, whose offsets take multiplications instead of divisions, and how many
 * blocks share a result.
 */
#ifndef GPO_REDUCE_VIEWS_CUH
#define GPO_REDUCE_VIEWS_CUH

#include "../../device/divide.cuh"
#include "../../device/total.cuh"
#include "rows.cuh"

/* ---- x with few axes ---- */

/* Axes as a kernel argument: two reduce_axes, 2 KiB, would cost 0.3 us a launch. */
constexpr int FEW_AXES = 6;

struct few_axes {
    int ndim;
    divider length[FEW_AXES];
    int64_t strides[FEW_AXES];
};

inline few_axes
few_axes_of(const reduce_axes &axes)
{
    few_axes few = {axes.ndim, {}, {}};
    for (int d = 0; d < axes.ndim; d++) {
        few.length[d] = divider_of(axes.shape[d] > 0 ? axes.shape[d] : 1);
        few.strides[d] = axes.strides[d];
    }
    return few;
}

inline bool
has_few_axes(const reduce_plan &plan)
{
    return plan.kept.ndim <= FEW_AXES && plan.reduced.ndim <= FEW_AXES;
}

/* Whether the rows are contiguous runs. */
inline bool
are_runs(const reduce_plan &plan)
{
    const reduce_axes &reduced = plan.reduced;
    return reduced.ndim == 0 || reduced.strides[reduced.ndim - 1] == 1;
}

/* Elements that stepped_rows.cu has kernels for: of wider ones, and of 16-bit integers,
   which are rare, columns load one by one. */
constexpr bool
has_stepped_packs(int64_t bytes, bool is_float)
{
    return bytes == 1 || bytes == 4 || (bytes == 2 && is_float);
}

/* Whether the elements of a row, or of its runs, are two apart, for stepped_rows.cu. */
inline bool
are_stepped(const reduce_plan &plan)
{
    const reduce_axes &reduced = plan.reduced;
    return plan.rows > 0 && plan.cols > 0 && has_few_axes(plan) && reduced.ndim > 0 &&
           reduced.strides[reduced.ndim - 1] == 2;
}

/* Whether the rows are runs that start 16 bytes apart, if the first does, for one_block.cu. */
inline bool
are_block_rows(const reduce_plan &plan, int bytes)
{
    const reduce_axes &kept = plan.kept;
    return kept.ndim <= 1 && are_runs(plan) && plan.reduced.ndim <= 1 &&
           plan.rows > 0 && plan.rows <= INT32_MAX && plan.cols > 0 &&
           plan.cols <= ONE_BLOCK_BYTES / bytes &&
           (kept.ndim == 0 || kept.strides[0] % (16 / bytes) == 0);
}

/* Whether the next result is of the next element. */
inline bool
has_neighbours(const reduce_plan &plan)
{
    const reduce_axes &kept = plan.kept;
    return kept.ndim > 0 && kept.strides[kept.ndim - 1] == 1;
}

/* The axis along which elements are nearest to each other; there is one. */
inline int
nearest_axis(const reduce_axes &axes)
{
    int nearest = 0;
    for (int d = 1; d < axes.ndim; d++) {
        if (llabs(axes.strides[d]) <= llabs(axes.strides[nearest])) {
            nearest = d;
        }
    }
    return nearest;
}

/* Whether neighbouring results are not the nearest elements, for transposed.cu. */
inline bool
are_transposed(const reduce_plan &plan)
{
    const reduce_axes &kept = plan.kept;
    return has_few_axes(plan) && kept.ndim > 1 && nearest_axis(kept) < kept.ndim - 1;
}

/* Whether a thread may have a row, for few_down.cu. */
inline bool
are_few_down(const reduce_plan &plan)
{
    return plan.kept.ndim > 0 && plan.kept.ndim <= MOST_FEW_AXES && plan.rows > 0 &&
           plan.rows <= 1 << 30 && plan.cols > 0 &&
           plan.cols <= (plan.reduced.ndim > 1 ? FEW_DOWN : MORE_DOWN);
}

/* Whether every result is the place of one element among one: none is read. */
inline bool
are_zeros(const reduce_plan &plan)
{
    return plan.cols == 1 && (plan.op == REDUCE_ARGMIN || plan.op == REDUCE_ARGMAX);
}

/*
 * Whether neighbouring threads take neighbouring results, for columns.cu: these are
 * closer together in memory than the elements of a row, or a row has few.
 */
inline bool
are_columns(const reduce_plan &plan)
{
    const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
    if (kept.ndim == 0 || plan.cols <= FEW_DOWN) {
        return kept.ndim > 0;
    }
    return reduced.ndim == 0 || llabs(kept.strides[nearest_axis(kept)]) <=
                                    llabs(reduced.strides[reduced.ndim - 1]);
}

/* Where result number i of a reduce_view is stored. */
struct result_places {
    bool in_order; /* result i is out[i] */
    int64_t strides[FEW_AXES];
};

/* The kept axes with the nearest elements last, and where their results are. */
inline result_places
sort_by_distance(reduce_axes *kept)
{
    result_places places = {true, {}};
    int64_t step = 1;
    for (int d = kept->ndim - 1; d >= 0; d--) {
        places.strides[d] = step;
        step *= kept->shape[d];
    }
    for (int d = 1; d < kept->ndim; d++) { /* an insertion sort */
        const int64_t length = kept->shape[d], stride = kept->strides[d];
        const int64_t place = places.strides[d];
        int k = d;
        for (; k > 0 && llabs(kept->strides[k - 1]) < llabs(stride); k--) {
            kept->shape[k] = kept->shape[k - 1];
            kept->strides[k] = kept->strides[k - 1];
            places.strides[k] = places.strides[k - 1];
            places.in_order = false;
        }
        kept->shape[k] = length;
        kept->strides[k] = stride;
        places.strides[k] = place;
    }
    return places;
}

/* Sorted axes, in which those that one stride can walk are one. */
inline reduce_axes
merged(const reduce_axes &sorted)
{
    reduce_axes axes = {};
    for (int d = 0; d < sorted.ndim; d++) {
        reduce_push_axis(&axes, sorted.shape[d], sorted.strides[d]);
    }
    return axes;
}

/* Whether the strides of the first n axes are multiples of `size` elements. */
inline bool
are_aligned(const reduce_axes &axes, int n, int size)
{
    bool aligned = true;
    for (int d = 0; d < n; d++) {
        aligned = aligned && axes.strides[d] % size == 0;
    }
    return aligned;
}

/* Neighbouring results of a thread of few_down, and how far their elements are apart. */
struct few_beside {
    int count, step;
};

/*
 * As many as a load of 16 bytes has, 8 of bytes; every second element where they are two
 * apart, but not along negative strides: the load of the last ones would end beyond x.
 * One where loads would not be aligned.  `kept` is sorted and merged.
 */
inline few_beside
few_beside_of(const reduce_plan &plan, const reduce_axes &kept, int bytes)
{
    const reduce_axes &reduced = plan.reduced;
    const int last = kept.ndim - 1;
    const int step = last >= 0 && kept.strides[last] == 2 ? 2 : 1;
    const int size = step == 1 && bytes == 1 ? 8 : 16 / bytes;
    bool fits = size > step && last >= 0 && kept.strides[last] == step &&
                (last == 0 || kept.shape[last] % (size / step) == 0) &&
                are_aligned(kept, last, size) &&
                are_aligned(reduced, reduced.ndim, size);
    for (int d = 0; d < kept.ndim; d++) {
        fits = fits && (step == 1 || kept.strides[d] >= 0);
    }
    for (int d = 0; d < reduced.ndim; d++) {
        fits = fits && (step == 1 || reduced.strides[d] >= 0);
    }
    return fits ? few_beside{size / step, step} : few_beside{1, 1};
}

/* The offset of element number i of these axes from the first, for these strides. */
__device__ inline int64_t
offset_of(const few_axes &axes, const int64_t (&strides)[FEW_AXES], int64_t i)
{
    int64_t offset = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d > 0; d--) {
        const int64_t quotient = axes.length[d].of(i);
        offset += (i - quotient * axes.length[d].by) * strides[d];
        i = quotient;
    }
    return axes.ndim > 0 ? offset + i * strides[0] : 0;
}

/* The same for their own strides: elements from the first. */
__device__ inline int64_t
offset_of(const few_axes &axes, int64_t i)
{
    return offset_of(axes, axes.strides, i);
}

/* The plan as a kernel argument; `first` is the launch's first row or tile. */
template <typename T>
struct reduce_view {
    const T *x;
    int64_t rows, cols, first;
    bool keep_l2;
    few_axes kept, reduced;
};

template <typename T>
reduce_view<T>
view_of(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t fits = KEEP_L2_BYTES / static_cast<int64_t>(sizeof(T));
    return {origin_of<T>(call),
            plan.rows,
            plan.cols,
            0,
            plan.cols <= fits / plan.rows,
            few_axes_of(plan.kept),
            few_axes_of(plan.reduced)};
}

inline bool
is_aligned(const void *x)
{
    return reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

inline int
power_of_two_from(int64_t n, int most)
{
    int p = 1;
    while (p < n && p < most) {
        p *= 2;
    }
    return p;
}

/* ---- blocks that share a result ---- */

/*
 * Blocks that share one of `n` rows (or tiles of columns), at most `most`: as many as
 * fill the GPU, an SM with `resident` of them, if there is room for their parts of
 * `bytes` bytes each.
 */
inline int64_t
blocks_per(const gpo_call *call, int64_t n, int64_t bytes, int64_t most,
           int resident = BLOCKS_PER_PROCESSOR)
{
    const int64_t room = gpo_processors(call) * resident;
    if (n >= room || n > GPO_TICKETS) {
        return 1;
    }
    const int64_t fits = GPO_PARTIALS / (n * bytes);
    int64_t blocks = room / n < most ? room / n : most;
    blocks = blocks < fits ? blocks : fits;
    return blocks > 1 ? blocks : 1;
}

/* Stores the result of a row, of which each thread of its blocks (b, row) has a part. */
template <typename Op, int THREADS>
__device__ __forceinline__ void
store_row(const Op &op, typename Op::Part part, block_parts<typename Op::Part> parts,
          int64_t row, const reduce_result &to, int64_t cols)
{
    if (gridDim.x > 1) {
        parts.part += row * gridDim.x;
        parts.ticket += row;
    }
    if (combine_blocks<Op, THREADS>(&part, parts)) {
        op.store(to, row, part, cols);
    }
}

/* Calls launch(grid, x, parts) for all rows of x, with at most `most` blocks for each. */
template <typename Op, typename Launch>
gpo_status
launch_rows(gpo_call *call, reduce_view<typename Op::T> x, int64_t most, Launch launch)
{
    using Part = typename Op::Part;
    const int64_t blocks = blocks_per(call, x.rows, sizeof(Part), most);
    block_parts<Part> parts;
    gpo_status status = parts_for(call, blocks, &parts);
    for (; !status && x.first < x.rows; x.first += MAX_GRID_YZ) {
        const dim3 grid(blocks, grid_extent(x.rows - x.first, MAX_GRID_YZ));
        status = launch(grid, x, parts);
    }
    return status;
}

/* ---- in other translation units: v8 and v9, and the shape kernels (shapes/) ---- */

template <typename T>
gpo_status reduce_v8(gpo_call *call);

template <typename T>
gpo_status reduce_v9(gpo_call *call);

template <typename T>
gpo_status reduce_short_rows(gpo_call *call);

template <typename T>
gpo_status reduce_columns(gpo_call *call);

template <typename T>
gpo_status reduce_transposed(gpo_call *call);

template <typename T>
gpo_status reduce_few_down(gpo_call *call);

template <typename T>
gpo_status reduce_one_block(gpo_call *call);

template <typename T>
gpo_status reduce_one_cluster(gpo_call *call);

template <typename T>
gpo_status reduce_stepped_rows(gpo_call *call);

#endif
