/*
 * transposed.cu  Many short rows of a transposed view: neighbours in memory are results
 * of one kept axis, neighbours among the results lie along another.  A block has a tile
 * of both; its lanes walk along memory when they load, and along the results, which
 * wait in shared memory, when they store.
 * Cost:  each byte once; columns.cu writes a sector of 32 bytes for each result here.
 */
#include "../views.cuh"

/* The sides of a tile: rows along the nearest elements, columns along the results. */
template <typename Op>
struct result_tile {
    static constexpr bool IS_NARROW =
        sizeof(typename Op::T) <= 4 && sizeof(typename Op::Fold) <= 8;
    static constexpr int SIDE = IS_NARROW ? 64 : 32;
    static constexpr int PITCH = SIDE + 1; /* no bank conflicts */
    static constexpr int STEP = BLOCK / SIDE, ITEMS = SIDE / STEP;
    /* one copy of a store that has a case for every dtype of results */
    static constexpr int STORES = std::is_same_v<typename Op::Part, uint64_t> ? 1 : 4;
};

/* x, its two sides, and the kept axes that are the same for a tile. */
template <typename T>
struct transposed_view {
    const T *x;
    int64_t first, cols;              /* the launch's first tile; elements of a row */
    int64_t down, from_down, to_down; /* results along memory, strides of x and out */
    int64_t across, from_across;      /* results along out */
    divider tiles_down, tiles_across;
    few_axes outer, reduced;
    int64_t places[FEW_AXES]; /* strides of results along `outer` */
};

template <typename Op>
__global__ void
__launch_bounds__(BLOCK, 3)
    reduce_transposed_kernel(Op op, transposed_view<typename Op::T> v, reduce_result to)
{
    using T = typename Op::T;
    using tile = result_tile<Op>;
    constexpr int SIDE = tile::SIDE, STEP = tile::STEP, ITEMS = tile::ITEMS;
    constexpr int GROUP = ITEMS < 8 ? ITEMS : 8;                /* in flight together */
    GPO_SHARED(typename Op::Part, staged, [SIDE][tile::PITCH]); /* across, then down */
    const int lane = threadIdx.x % SIDE, line = threadIdx.x / SIDE;
    const int64_t number = v.first + blockIdx.x;
    const int64_t rest = v.tiles_down.of(number), outer = v.tiles_across.of(rest);
    const int64_t i = (number - rest * v.tiles_down.by) * SIDE;
    const int64_t j = (rest - outer * v.tiles_across.by) * SIDE;
    const T *const p = v.x + offset_of(v.outer, outer) + (i + lane) * v.from_down +
                       (j + line) * v.from_across;
    const bool is_inside = i + lane < v.down;

#pragma unroll 1
    for (int first = 0; first < ITEMS; first += GROUP) {
        const int64_t begin = j + line + first * STEP;
        typename Op::Fold fold[GROUP];
#pragma unroll 1
        for (int64_t k = 0; k < v.cols; k++) {
            const T *const at =
                p + offset_of(v.reduced, k) + first * STEP * v.from_across;
            T loaded[GROUP];
#pragma unroll
            for (int u = 0; u < GROUP; u++) {
                if (is_inside && begin + u * STEP < v.across) {
                    loaded[u] = at[u * STEP * v.from_across];
                }
            }
#pragma unroll
            for (int u = 0; u < GROUP; u++) {
                if (is_inside && begin + u * STEP < v.across) {
                    fold[u].add(Op::widen(op.lift(loaded[u], k)));
                }
            }
        }
#pragma unroll
        for (int u = 0; u < GROUP; u++) {
            staged[line + (first + u) * STEP][lane] = fold[u].value();
        }
    }
    __syncthreads();

    const int64_t place = offset_of(v.outer, v.places, outer) + j + lane;
#pragma unroll(tile::STORES)
    for (int u = line; u < SIDE; u += STEP) {
        if (i + u < v.down && j + lane < v.across) {
            op.store(to, place + (i + u) * v.to_down, staged[lane][u], v.cols);
        }
    }
}

struct reduce_transposed_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        constexpr int SIDE = result_tile<Op>::SIDE;
        const reduce_plan &plan = *reduce_plan_of(call);
        if (plan.rows == 0) {
            return GPO_OK;
        }
        const reduce_axes &kept = plan.kept;
        const int along = nearest_axis(kept), last = kept.ndim - 1;
        transposed_view<typename Op::T> v = {};
        reduce_axes outer = {};
        int64_t step = 1;
        for (int d = 0; d < kept.ndim; d++) {
            step *= kept.shape[d];
        }
        for (int d = 0; d < kept.ndim; d++) {
            step /= kept.shape[d];
            if (d == along) {
                v.to_down = step;
            }
            else if (d != last) {
                outer.shape[outer.ndim] = kept.shape[d];
                outer.strides[outer.ndim] = kept.strides[d];
                v.places[outer.ndim++] = step;
            }
        }
        v.x = origin_of<typename Op::T>(call);
        v.cols = plan.cols;
        v.down = kept.shape[along];
        v.from_down = kept.strides[along];
        v.across = kept.shape[last];
        v.from_across = kept.strides[last];
        v.tiles_down = divider_of(ceil_div(v.down, SIDE));
        v.tiles_across = divider_of(ceil_div(v.across, SIDE));
        v.outer = few_axes_of(outer);
        v.reduced = few_axes_of(plan.reduced);
        const int64_t tiles =
            plan.rows / v.down / v.across * v.tiles_down.by * v.tiles_across.by;
        const reduce_result to = result_of(call);
        gpo_status status = GPO_OK;
        for (; !status && v.first < tiles; v.first += MAX_GRID_X) {
            status = GPO_LAUNCH(call, grid_of(tiles - v.first), BLOCK, 0,
                                (reduce_transposed_kernel<Op>), op, v, to);
        }
        return status;
    }
};

template <typename T>
gpo_status
reduce_transposed(gpo_call *call)
{
    return are_transposed(*reduce_plan_of(call))
               ? reduce_with<reduce_transposed_launcher, T>(call)
               : reduce_v9<T>(call); /* a host array, packed after the choice */
}

#define INSTANTIATE(T) template gpo_status reduce_transposed<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
