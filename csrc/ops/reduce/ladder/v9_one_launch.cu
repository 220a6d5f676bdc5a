/*
 * v9  One launch, many loads in flight.
 * Was:   v8 waits for each load before the next and starts a second kernel to finish.
 * Now:   4 independent 16-byte loads per thread and tile, the last one included; at most
 *        as many blocks as fit on the GPU at once; the block that takes the last ticket
 *        combines all parts in a fixed order.  Long chains go through Op::Fold, so the error does not grow
 *        with the length.  Rows that are not made of contiguous runs are read as in v8.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread.
 * Left:  sending a part through L2 to the last block takes about 2 us of a launch.
 *        Short rows and columns leave most of a block idle: shapes/ has kernels for
 *        them.
 */
#include "../views.cuh"
#include "../packs.cuh"

/* A row as contiguous runs; the last tile of a run is what whole tiles leave. */
struct reduce_runs {
    int64_t count, length;
    divider tiles; /* per run */
};

/*
 * Folds what whole tiles leave of a run: `count` packs from element k on, and the
 * elements before and after all packs, one per thread.  All loads are in flight at
 * once, as in a whole tile.
 */
template <typename Op>
__device__ __forceinline__ void
fold_rest(const Op &op, typename Op::Fold &fold, const typename Op::T *p, int64_t first,
          int64_t length, int64_t k, int count, uint64_t policy)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE, STEP = ROW_BLOCK * SIZE;
    const int tid = threadIdx.x;
    int64_t end = k + count * SIZE + tid - SIZE; /* past the packs */
    if (tid < SIZE) {
        end = tid < elements_to_boundary(p, length) ? tid : length;
    }
    T alone = {};
    if (end < length) {
        alone = p[end];
    }
    uint4 loaded[TILE_ITEMS] =
        {}; /* words: moving elements would take a register each */
    k += tid * SIZE;
#pragma unroll
    for (int u = 0; u < TILE_ITEMS; u++) {
        if (tid + u * ROW_BLOCK < count) {
            const T *at = p + k + u * STEP;
            loaded[u] = load_streamed(reinterpret_cast<const uint4 *>(at), policy);
        }
    }
    if (end < length) {
        fold.add(Op::widen(op.lift(alone, first + end)));
    }
    k += first;
#pragma unroll 1 /* unrolled, the kernel would take 51 registers */
    for (int i = tid; i < count; i += ROW_BLOCK) {
        const pack<T> next = pack_of<T>(loaded[0]);
        fold.add(Op::widen(combine_pack<Op, SIZE>(op, next.v, k)));
        k += STEP;
#pragma unroll
        for (int u = 1; u < TILE_ITEMS; u++) {
            loaded[u - 1] = loaded[u];
        }
    }
}

/* Folds one tile of the run that begins at p with element `first` of the row. */
template <typename Op>
__device__ __forceinline__ void
fold_tile(const Op &op, typename Op::Fold &fold, const typename Op::T *p, int64_t first,
          int64_t length, int64_t tile, uint64_t policy)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE, STEP = ROW_BLOCK * SIZE;
    constexpr int64_t TILE = ROW_BLOCK * TILE_ITEMS;
    const int64_t head = elements_to_boundary(p, length);
    const int64_t packs = (length - head) / SIZE;
    const int64_t whole = packs / TILE;
    if (tile < whole) {
        const int64_t k = head + (tile * TILE + threadIdx.x) * SIZE;
        pack<T> loaded[TILE_ITEMS];
#pragma unroll
        for (int u = 0; u < TILE_ITEMS; u++) {
            loaded[u] = load_pack(p + k + u * STEP, policy);
        }
        fold.add(Op::widen(combine_packs<Op, TILE_ITEMS, STEP>(op, loaded, first + k)));
    }
    else if (tile == whole) {
        fold_rest(op, fold, p, first, length, head + whole * TILE * SIZE,
                  static_cast<int>(packs - whole * TILE), policy);
    }
}

/* Rows of contiguous runs; x.reduced holds the axes from run to run. */
template <typename Op>
__global__ void
__launch_bounds__(ROW_BLOCK, ROW_BLOCKS)
    reduce_v9_one_launch(Op op, reduce_view<typename Op::T> x, reduce_runs runs,
                         block_parts<typename Op::Part> parts, reduce_result to)
{
    const int64_t row = x.first + blockIdx.y;
    const typename Op::T *p = x.x + offset_of(x.kept, row);
    const uint64_t policy = l2_policy(x.keep_l2);
    const int64_t tiles = runs.count * runs.tiles.by;

    typename Op::Fold fold;
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t run = runs.tiles.of(tile);
        fold_tile(op, fold, p + offset_of(x.reduced, run), run * runs.length,
                  runs.length, tile - run * runs.tiles.by, policy);
    }
    store_row<Op, ROW_BLOCK>(op, fold.value(), parts, row, to, x.cols);
}

/* The runs of a row, in tiles of `tile` elements. */
static reduce_runs
runs_of(const reduce_plan &plan, int64_t tile)
{
    const reduce_axes &reduced = plan.reduced;
    const int64_t length = reduced.ndim > 0 ? reduced.shape[reduced.ndim - 1] : 1;
    return {length > 0 ? plan.cols / length : 0, length, divider_of(length / tile + 1)};
}

/* The last tile of a run, when it is usually empty, gets no block of its own. */
static int64_t
tiles_to_share(const reduce_runs &runs, int64_t tile)
{
    return runs.count * ceil_div(runs.length, tile);
}

struct reduce_v9_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int64_t TILE = ROW_BLOCK * TILE_ITEMS * pack<T>::SIZE;
        const reduce_plan &plan = *reduce_plan_of(call);
        if (plan.rows == 0) {
            return GPO_OK;
        }
        reduce_view<T> x = view_of<T>(call);
        x.reduced.ndim -= x.reduced.ndim > 0; /* the axes from run to run */
        const reduce_runs runs = runs_of(plan, TILE);
        const int64_t tiles = tiles_to_share(runs, TILE);
        return launch_rows<Op>(
            call, x, tiles > TILES_ALONE ? tiles : 1,
            [&](dim3 grid, const reduce_view<T> &part, block_parts<Part> parts) {
                return GPO_LAUNCH(call, grid, ROW_BLOCK, 0, (reduce_v9_one_launch<Op>),
                                  op, part, runs, parts, result_of(call));
            });
    }
};

template <typename T>
gpo_status
reduce_v9(gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return are_runs(plan) && has_few_axes(plan)
               ? reduce_with<reduce_v9_launcher, T>(call)
               : reduce_v8<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_v9<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
