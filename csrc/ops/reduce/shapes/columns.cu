/*
 * columns.cu  Rows whose elements are not contiguous: columns, or rows with gaps.
 * Elements of neighbouring results are close together, so the lanes of a warp take
 * neighbouring columns and walk down together, coalesced where the columns are
 * contiguous.  A long row with gaps is a column of width 1.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread where columns
 *        start on 16-byte boundaries, else 8 elements.
 */
#include "../views.cuh"

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

/*
 * Elements k, k + step, ... of VEC columns from p on; element k of the first column is
 * p[where(k)].
 */
template <typename Op, int VEC, typename Where>
__device__ __forceinline__ void
fold_columns(const Op &op, typename Op::Fold *fold, const typename Op::T *p, int64_t k,
             int64_t step, int64_t cols, uint64_t policy, Where where)
{
    using T = typename Op::T;
    constexpr int ITEMS = VEC > 1 ? TILE_ITEMS : 2 * TILE_ITEMS;
    T loaded[ITEMS][VEC];
    for (; k + (ITEMS - 1) * step < cols; k += ITEMS * step) {
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            load_columns<VEC>(p + where(k + u * step), policy, loaded[u]);
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
    constexpr int SUMS = VEC * static_cast<int>(sizeof(typename Op::Part));
    constexpr int REST = /* as many as registers allow */
        SUMS >= 64      ? 1
        : SUMS >= 32    ? 2
        : sizeof(T) > 8 ? 4
                        : ITEMS;
#pragma unroll 1
    for (; k < cols; k += REST * step) {
#pragma unroll
        for (int u = 0; u < REST; u++) { /* all before the first is used */
            if (k + u * step < cols) {
                load_columns<VEC>(p + where(k + u * step), policy, loaded[u]);
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

/* Blocks per SM, for the launch bound: each column of a thread takes registers. */
__host__ __device__ constexpr int
column_blocks(int vec)
{
    return vec <= 4 ? 4 : vec == 8 ? 3 : 1;
}

/*
 * Columns: `width` neighbouring rows are `across` elements apart, for VEC > 1 one, so
 * each thread takes VEC of them and walks down.  Threads (lane, y) of a block share a tile of lanes * VEC
 * columns and split its height; blocks (tile, s) split it further, and the last one to
 * take the tile's ticket combines their parts.  A row with gaps is a column of width 1.
 */
template <typename Op, int VEC>
__global__ void
__launch_bounds__(BLOCK, column_blocks(VEC))
    reduce_columns_kernel(Op op, reduce_view<typename Op::T> x, int64_t width,
                          int64_t across, int64_t tiles_across, int lanes,
                          block_parts<typename Op::Part> parts, reduce_result to)
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
    const int64_t outer = tile / tiles_across;
    const int64_t column = (tile % tiles_across * lanes + lane) * VEC;
    const bool inside = column < width;
    const T *p =
        x.x + offset_of(x.kept, outer * width) + (inside ? column * across : 0);
    const int64_t cols = inside ? x.cols : 0;
    const int64_t step = static_cast<int64_t>(height) * gridDim.y;
    const int64_t begin = static_cast<int64_t>(blockIdx.y) * height + y;
    const uint64_t policy = l2_policy(x.keep_l2);

    typename Op::Fold fold[VEC];
    if (x.reduced.ndim == 1) {
        const int64_t stride = x.reduced.strides[0];
        fold_columns<Op, VEC>(op, fold, p, begin, step, cols, policy,
                              [=](int64_t k) { return k * stride; });
    }
    else {
        fold_columns<Op, VEC>(op, fold, p, begin, step, cols, policy,
                              [&](int64_t k) { return offset_of(x.reduced, k); });
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
        Part *part = parts.part + outer * width + column;
        if (y == 0 && inside) {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                part[blockIdx.y * x.rows + v] = total[v];
            }
        }
        if (!is_last_block(&parts.ticket[tile], blocks, last)) {
            return;
        }
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            fold[v] = typename Op::Fold();
        }
#pragma unroll 2
        for (int64_t b = y; b < (inside ? blocks : 0); b += height) {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                fold[v].add(part[b * x.rows + v]);
            }
        }
    }
    if (y == 0 && inside) {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            op.store(to, outer * width + column + v, total[v], x.cols);
        }
    }
}

/* How columns are divided: threads across and down, blocks across and down. */
struct column_grid {
    int64_t width; /* neighbouring columns */
    int lanes;
    int64_t tiles_across, tiles, split;
};

/* The grid for threads of `vec` columns and parts of `bytes` bytes. */
static column_grid
column_grid_of(const gpo_call *call, int64_t width, int vec, int64_t bytes)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t room = gpo_processors(call) * BLOCKS_PER_PROCESSOR;
    const int64_t outer = plan.rows / width, across = ceil_div(width, vec);
    int lanes = power_of_two_from(across, WARP);
    while (lanes < BLOCK && outer * (across / (2 * lanes)) >= room) {
        lanes *= 2; /* wide tiles read longer runs and split fewer columns */
    }
    const int64_t tiles_across = ceil_div(across, lanes);
    const int64_t tiles = outer * tiles_across;
    const int64_t height = BLOCK / lanes, items = (vec > 1 ? 1 : 2) * TILE_ITEMS;
    const bool alone = plan.cols <= ROUNDS_ALONE * height * items;
    const int64_t deepest = alone ? 1 : plan.cols / (height * TILE_ITEMS);
    const int64_t split = blocks_per(call, tiles, lanes * vec * bytes, deepest);
    return {width, lanes, tiles_across, tiles, split};
}

struct reduce_columns_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int SIZE = pack<T>::SIZE;
        if (reduce_plan_of(call)->rows == 0) {
            return GPO_OK;
        }
        reduce_view<T> x = view_of<T>(call);
        const reduce_axes &kept = reduce_plan_of(call)->kept;
        const bool many = are_columns(*reduce_plan_of(call));
        const int64_t width = many ? kept.shape[kept.ndim - 1] : 1;
        const int64_t across = many ? kept.strides[kept.ndim - 1] : 1;
        const bool packed =
            SIZE > 1 && across == 1 && are_packed(call, x.x, width, SIZE);
        const int vec = packed ? SIZE : 1;
        const column_grid g = column_grid_of(call, width, vec, sizeof(Part));
        const size_t shared_bytes =
            g.lanes < BLOCK ? BLOCK / 2 * vec * sizeof(Part) : 0;
        const reduce_result to = result_of(call);
        block_parts<Part> parts;
        gpo_status status = parts_for(call, g.split, &parts);
        for (; !status && x.first < g.tiles; x.first += MAX_GRID_X) {
            const dim3 grid(grid_extent(g.tiles - x.first, MAX_GRID_X), g.split);
            status = packed
                         ? GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                      (reduce_columns_kernel<Op, SIZE>), op, x, width,
                                      across, g.tiles_across, g.lanes, parts, to)
                         : GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                      (reduce_columns_kernel<Op, 1>), op, x, width,
                                      across, g.tiles_across, g.lanes, parts, to);
        }
        return status;
    }

  private:
    /*
     * Whether threads take results along the last kept axis: its elements are closer
     * together than those of a row, or a row is too short for the threads of a block.
     */
    static bool are_columns(const reduce_plan &plan)
    {
        const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
        if (kept.ndim == 0 || are_runs(plan)) {
            return plan.cols == 1 && has_neighbours(plan);
        }
        const int64_t apart = llabs(kept.strides[kept.ndim - 1]);
        return apart <= llabs(reduced.strides[reduced.ndim - 1]) ||
               plan.cols <= SHORT_GAPPED;
    }

    /* Whether threads may load `size` neighbouring columns as 16 bytes. */
    static bool are_packed(const gpo_call *call, const void *x, int64_t width, int size)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        return width % size == 0 && is_aligned(x) &&
               are_aligned(plan.kept, plan.kept.ndim - 1, size) &&
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
