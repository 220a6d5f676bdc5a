/*
 * columns.cu  Rows whose elements are not contiguous: columns, or rows with gaps.
 * Elements of neighbouring results are close together, so neighbouring threads take
 * neighbouring columns and walk down together, coalesced where the columns are
 * contiguous.  Results are numbered by the places of their elements in memory, so
 * neighbours may be of several tiles of narrow columns.  A long row with gaps is a
 * column of width 1.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread where columns
 *        start on 16-byte boundaries, else 8 elements.
 * Order: the walk down, the fold, the kernel, the grid, the launch.
 */
#include "../views.cuh"

/* ---- the walk down: the offset of element k of a row, then of k + step, ... ---- */

/* Along at most two axes: additions, and no division for each element. */
struct near_walk {
    int64_t offset, jump, carry;
    int inner, inner_step, length; /* places along the last axis */

    __device__ __forceinline__ near_walk(const few_axes &axes, int64_t k, int64_t step)
    {
        const bool two = axes.ndim == 2;
        const int64_t own = axes.strides[two];
        length = two ? static_cast<int>(axes.length[1].by) : INT32_MAX;
        const int64_t outer = two ? axes.length[1].of(k) : 0;
        const int64_t outer_step = two ? axes.length[1].of(step) : 0;
        inner = two ? static_cast<int>(k - outer * length) : 0;
        inner_step = two ? static_cast<int>(step - outer_step * length) : 0;
        const int64_t across = two ? axes.strides[0] : 0;
        offset = outer * across + (two ? inner : k) * own;
        jump = outer_step * across + (two ? inner_step : step) * own;
        carry = across - length * own;
    }

    __device__ __forceinline__ int64_t next()
    {
        const int64_t at = offset;
        offset += jump;
        inner += inner_step;
        if (inner >= length) {
            inner -= length;
            offset += carry;
        }
        return at;
    }
};

/* Whether a near_walk can take these axes: `inner` stays below 2^31. */
__device__ __forceinline__ bool
are_near(const few_axes &axes)
{
    return axes.ndim < 2 || (axes.ndim == 2 && axes.length[1].by < 1 << 30);
}

/* Along any axes. */
struct far_walk {
    const few_axes &axes;
    int64_t k, step;

    __device__ __forceinline__ far_walk(const few_axes &axes, int64_t k, int64_t step)
        : axes(axes), k(k), step(step)
    {
    }

    __device__ __forceinline__ int64_t next()
    {
        const int64_t at = offset_of(axes, k);
        k += step;
        return at;
    }
};

/* ---- the fold ---- */

/* An element of each of VEC columns, as one load of 16 bytes where VEC > 1. */
template <int VEC, typename T>
__device__ __forceinline__ void
load_columns(const T *p, uint64_t policy, T (&loaded)[VEC])
{
    if constexpr (VEC > 1) {
        const pack<T> row = load_pack(p, policy);
        memcpy(loaded, row.v, sizeof row.v);
    }
    else {
        loaded[0] = *p;
    }
}

/* Values of VEC columns that a thread loads together, as many as registers allow. */
template <int VEC, typename Part>
constexpr int loads_of_parts = VEC * sizeof(Part) >= 64   ? 1
                               : VEC * sizeof(Part) >= 32 ? 2
                               : VEC * sizeof(Part) >= 16 ? 4
                                                          : 8;

/* Loads of a thread in flight; DEEP: twice as many, for packs of float64. */
template <int VEC, bool DEEP>
constexpr int column_loads = VEC > 1 && !DEEP ? TILE_ITEMS : 2 * TILE_ITEMS;

/*
 * Elements k, k + step, ... of VEC columns, of which the first begins at p; `walk`
 * begins at k.
 */
template <typename Op, int VEC, bool DEEP, typename Walk>
__device__ __forceinline__ void
fold_columns(const Op &op, typename Op::Fold *fold, const typename Op::T *p, Walk walk,
             int64_t k, int64_t step, int64_t cols, uint64_t policy)
{
    using T = typename Op::T;
    constexpr int ITEMS = column_loads<VEC, DEEP>;
    T loaded[ITEMS][VEC];
    for (; k + (ITEMS - 1) * step < cols; k += ITEMS * step) {
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            load_columns<VEC>(p + walk.next(), policy, loaded[u]);
        }
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            typename Op::Acc acc = op.lift(loaded[0][v], k);
#pragma unroll
            for (int u = 1; u < ITEMS; u++) {
                acc = Op::combine(acc, op.lift(loaded[u][v], k + u * step));
            }
            fold[v].add(Op::widen(acc));
        }
    }
    constexpr int MOST = loads_of_parts<VEC, typename Op::Part>;
    constexpr int REST =
        sizeof(T) > 8 || MOST < 4 ? (MOST < 4 ? MOST : 4) : column_loads<VEC, false>;
#pragma unroll 1
    for (; k < cols; k += REST * step) {
#pragma unroll
        for (int u = 0; u < REST; u++) { /* all before the first is used */
            const int64_t at = walk.next();
            if (k + u * step < cols) {
                load_columns<VEC>(p + at, policy, loaded[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < REST; u++) {
            const int64_t i = k + u * step;
#pragma unroll
            for (int v = 0; v < VEC && i < cols; v++) {
                fold[v].add(Op::widen(op.lift(loaded[u][v], i)));
            }
        }
    }
}

/* The parts of VEC columns from blocks b, b + height, ..., `rows` parts apart. */
template <typename Op, int VEC>
__device__ __forceinline__ void
fold_parts(typename Op::Fold *fold, const typename Op::Part *part, int64_t rows, int b,
           int height, int blocks)
{
    constexpr int LOADS = loads_of_parts<VEC, typename Op::Part>;
#pragma unroll 1
    for (; b < blocks; b += LOADS * height) {
        typename Op::Part loaded[LOADS][VEC];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
#pragma unroll
            for (int v = 0; v < VEC && b + u * height < blocks; v++) {
                loaded[u][v] = part[(b + u * height) * rows + v];
            }
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
#pragma unroll
            for (int v = 0; v < VEC && b + u * height < blocks; v++) {
                fold[v].add(loaded[u][v]);
            }
        }
    }
}

/* ---- the kernel ---- */

/* Blocks per SM, for the launch bound: each column of a thread takes registers. */
template <typename Op, int VEC, bool DEEP>
__host__ __device__ constexpr int
column_blocks()
{
    constexpr int PART = sizeof(typename Op::Part), FOLD = sizeof(typename Op::Fold);
    constexpr bool WIDE = VEC == 1 ? PART + sizeof(typename Op::T) > 20
                                   : VEC > 2 && FOLD > PART; /* means of integers */
    return VEC > 8 ? 1 : (VEC == 8 || DEEP ? 3 : 4) - WIDE;
}

/*
 * Results are numbered along x.kept; for VEC > 1 the next one is of the next element.
 * Threads (lane, y) of a block share a tile of `used` lanes * VEC results and split its
 * height; blocks (tile, s) split it further, and the last one to take the tile's ticket
 * combines their parts.
 */
template <typename Op, int VEC, bool DEEP>
__global__ void
__launch_bounds__(BLOCK, (column_blocks<Op, VEC, DEEP>()))
    reduce_columns_kernel(Op op, reduce_view<typename Op::T> x, result_places places,
                          int lanes, int used, block_parts<typename Op::Part> parts,
                          reduce_result to)
{
    using T = typename Op::T;
    using Part = typename Op::Part;
    constexpr int HALF = BLOCK / 2;
    GPO_DYN_SHARED(Part,
                   shared); /* HALF * VEC parts; none if all threads have columns */
    GPO_SHARED(bool, last, [1]);
    const int lane = threadIdx.x % lanes, y = threadIdx.x / lanes;
    const int height = BLOCK / lanes;
    const int64_t tile = x.first + blockIdx.x;
    const int64_t row = (tile * used + lane) * VEC;
    const bool inside = lane < used && row < x.rows;
    const T *p = x.x + (inside ? offset_of(x.kept, row) : 0);
    const int64_t cols = inside ? x.cols : 0;
    const int64_t step = static_cast<int64_t>(height) * gridDim.y;
    const int64_t begin = static_cast<int64_t>(blockIdx.y) * height + y;
    const uint64_t policy = l2_policy(x.keep_l2);

    typename Op::Fold fold[VEC];
    if (are_near(x.reduced)) {
        fold_columns<Op, VEC, DEEP>(op, fold, p, near_walk(x.reduced, begin, step),
                                    begin, step, cols, policy);
    }
    else {
        fold_columns<Op, VEC, DEEP>(op, fold, p, far_walk(x.reduced, begin, step),
                                    begin, step, cols, policy);
    }

    /* Combine a column's threads in shared memory; the last block, then all parts. */
    Part total[VEC];
#pragma unroll 1
    for (unsigned blocks = gridDim.y;; blocks = 1) {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            total[v] = fold[v].value();
        }
        int d = height / 2;
        for (; d * lanes >= WARP; d /= 2) {
            if (y >= d && y < 2 * d) {
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                    shared[v * HALF + threadIdx.x - d * lanes] = total[v];
                }
            }
            __syncthreads();
            if (y < d) {
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                    total[v] = Op::combine(total[v], shared[v * HALF + threadIdx.x]);
                }
            }
            __syncthreads();
        }
        for (; d > 0; d /= 2) { /* y < 2 * d is within the first warp */
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                const Part other = shuffle_down(total[v], d * lanes);
                total[v] = y < d ? Op::combine(total[v], other) : total[v];
            }
        }
        if (blocks == 1) {
            break;
        }
        if (y == 0 && inside) {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                parts.part[blockIdx.y * x.rows + row + v] = total[v];
            }
        }
        if (!is_last_block(&parts.ticket[tile], blocks, last)) {
            return;
        }
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            fold[v] = typename Op::Fold();
        }
        if (inside) {
            fold_parts<Op, VEC>(fold, parts.part + row, x.rows, y, height,
                                static_cast<int>(blocks));
        }
    }
    if (y > 0 || !inside) {
        return;
    }
    int64_t place = row, apart = 1;
    if (!places.in_order) {
        place = offset_of(x.kept, places.strides, row);
        apart = VEC > 1 ? places.strides[x.kept.ndim - 1] : 1;
    }
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        op.store(to, place + v * apart, total[v], x.cols);
    }
}

/* ---- the grid ---- */

/* How columns are divided: threads across, those that have columns, blocks across and
   down. */
struct column_grid {
    int lanes, used;
    int64_t tiles, split;
};

/*
 * The grid for threads of `vec` results, `beside` threads on neighbours in memory, and
 * parts of `bytes` bytes.  Wide tiles read longer runs and split fewer columns; lanes
 * are doubled until all tiles run at once, and while one round of loads is enough.  A
 * block may have several rows with gaps, but some lanes of a warp stay on each.  Long
 * columns that have few neighbours get lanes of their own, some without a column: lanes
 * on those of the next neighbours would read sectors that other blocks read as well.
 */
static column_grid
column_grid_of(const gpo_call *call, int64_t beside, int vec, int64_t bytes)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t room = gpo_processors(call) * BLOCKS_PER_PROCESSOR;
    const int64_t threads = plan.rows / vec, items = (vec > 1 ? 1 : 2) * TILE_ITEMS;
    const bool columns = are_columns(plan);
    const int most = power_of_two_from(threads, columns ? BLOCK : ROWS_WITH_GAPS);
    int lanes = power_of_two_from(columns ? beside : 1, most < WARP ? most : WARP);
    while (lanes < most && (ceil_div(threads, lanes) > room ||
                            BLOCK / lanes / 2 * items >= plan.cols)) {
        lanes *= 2;
    }
    const bool apart = columns && plan.cols >= LONG_COLUMN && beside < threads &&
                       beside < lanes && lanes < 2 * beside &&
                       ceil_div(threads, beside) <= room;
    const int used = apart ? static_cast<int>(beside) : lanes;
    const int64_t tiles = ceil_div(threads, used), height = BLOCK / lanes;
    const bool alone = plan.cols <= ROUNDS_ALONE * height * items;
    int64_t deepest = alone ? 1 : plan.cols / (height * TILE_ITEMS);
    if (deepest > room) {
        deepest = room;
    }
    while (deepest * deepest > 2 * plan.cols) {
        deepest /= 2; /* the last block would take longer for the parts */
    }
    return {lanes, used, tiles, blocks_per(call, tiles, lanes * vec * bytes, deepest)};
}

/* ---- the launch ---- */

struct reduce_columns_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int SIZE = pack<T>::SIZE;
        const reduce_plan &plan = *reduce_plan_of(call);
        if (plan.rows == 0) {
            return GPO_OK;
        }
        reduce_axes kept = plan.kept;
        const result_places places = sort_by_distance(&kept);
        reduce_view<T> x = view_of<T>(call);
        x.kept = few_axes_of(kept);
        const bool packed =
            SIZE > 1 && !are_few(call, SIZE) && are_packed(plan, kept, x.x, SIZE);
        const int vec = packed ? SIZE : 1;
        const int64_t width = kept.ndim > 0 ? kept.shape[kept.ndim - 1] : 1;
        const column_grid g =
            column_grid_of(call, ceil_div(width, vec), vec, sizeof(Part));
        const size_t shared_bytes =
            g.lanes < BLOCK ? BLOCK / 2 * vec * sizeof(Part) : 0;
        const reduce_result to = result_of(call);
        block_parts<Part> parts;
        gpo_status status = parts_for(call, g.split, &parts);
        for (; !status && x.first < g.tiles; x.first += MAX_GRID_X) {
            const dim3 grid(grid_extent(g.tiles - x.first, MAX_GRID_X), g.split);
            if constexpr (std::is_same_v<T, double>) {
                if (packed && are_deep(call, SIZE)) {
                    status = GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                        (reduce_columns_kernel<Op, SIZE, true>), op, x,
                                        places, g.lanes, g.used, parts, to);
                    continue;
                }
            }
            status = packed ? GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                         (reduce_columns_kernel<Op, SIZE, false>), op,
                                         x, places, g.lanes, g.used, parts, to)
                            : GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                         (reduce_columns_kernel<Op, 1, false>), op, x,
                                         places, g.lanes, g.used, parts, to);
        }
        return status;
    }

  private:
    /*
     * Whether threads of one result each have no more than a few rounds of loads, where
     * threads of `size` results do not fill the device: there are more of them, and less
     * to combine.
     */
    static bool are_few(const gpo_call *call, int size)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        constexpr int64_t LOADS = ROUNDS_ALONE * 2 * TILE_ITEMS;
        const int64_t threads = gpo_processors(call) * BLOCKS_PER_PROCESSOR * BLOCK;
        return plan.rows / size < threads && plan.cols <= LOADS * BLOCK / WARP &&
               plan.rows * plan.cols <= LOADS * threads;
    }

    /*
     * Whether threads have long columns and no others share these: of float64 each has
     * twice the loads in flight ((537, 368218) 551 us on an H100, 574 without).
     */
    static bool are_deep(const gpo_call *call, int size)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        const int64_t threads = gpo_processors(call) * BLOCKS_PER_PROCESSOR * BLOCK;
        return plan.rows / size >= threads && plan.cols >= DEEP_COLUMN;
    }

    /* Whether threads may load `size` neighbouring columns as 16 bytes. */
    static bool are_packed(const reduce_plan &plan, const reduce_axes &kept,
                           const void *x, int size)
    {
        const int last = kept.ndim - 1;
        return last >= 0 && kept.strides[last] == 1 && kept.shape[last] % size == 0 &&
               is_aligned(x) && are_aligned(kept, last, size) &&
               are_aligned(plan.reduced, plan.reduced.ndim, size);
    }
};

template <typename T>
gpo_status
reduce_columns(gpo_call *call)
{
    return reduce_with<reduce_columns_launcher, T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_columns<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
