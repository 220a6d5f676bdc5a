/*
 * memory_order.cu  What `columns` does for argmin and argmax of a whole view that fills a
 * run of memory, but whose axes are in another order, as of a transposed array.  Memory is
 * read in its own order; the place of an element in the order of the axes takes
 * divisions, so only elements that are not worse than the best so far pay for it.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread.
 * Order: the fold, the kernel, the launch.
 */
#include "memory_order.cuh"
#include "packs.cuh"

/* ---- the fold ---- */

/* Combines element j in the order of memory, whose place is along `axes`. */
template <typename Op>
__device__ __forceinline__ void
note(const Op &op, typename Op::Acc &best, typename Op::T x, const few_axes &axes,
     int64_t j)
{
    const auto key = op.key.from(x);
    if (!beats(best.key, key)) {
        best = Op::combine(best, {key, offset_of(axes, j)});
    }
}

/* The best key of a pack. */
template <typename Op, int N>
__device__ __forceinline__ typename Op::Key
best_of(const Op &op, const typename Op::T *v)
{
    if constexpr (N == 1) {
        return op.key.from(v[0]);
    }
    else {
        const auto a = best_of<Op, N / 2>(op, v), b = best_of<Op, N / 2>(op, v + N / 2);
        return beats(b, a) ? b : a;
    }
}

/* ---- the kernel ---- */

template <typename Op>
__global__ void
__launch_bounds__(BLOCK, BLOCKS_PER_PROCESSOR)
    reduce_memory_order_kernel(Op op, const typename Op::T *x, int64_t n, few_axes axes,
                               block_parts<typename Op::Part> parts, reduce_result to)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE, TILE = BLOCK * TILE_ITEMS;
    const int64_t packs = n / SIZE;
    const uint64_t policy = l2_policy(n <= KEEP_L2_BYTES / static_cast<int>(sizeof(T)));
    typename Op::Acc best = Op::identity();
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * TILE + threadIdx.x;
         first < packs; first += static_cast<int64_t>(gridDim.x) * TILE) {
        uint4 loaded[TILE_ITEMS] = {};
#pragma unroll
        for (int u = 0; u < TILE_ITEMS; u++) {
            if (first + u * BLOCK < packs) {
                loaded[u] = load_streamed(
                    reinterpret_cast<const uint4 *>(x) + first + u * BLOCK, policy);
            }
        }
#pragma unroll 1 /* one copy of the arithmetic */
        for (int u = 0; u < TILE_ITEMS && first + u * BLOCK < packs; u++) {
            const pack<T> next = pack_of<T>(loaded[0]);
            if (!beats(best.key, best_of<Op, SIZE>(op, next.v))) {
#pragma unroll
                for (int i = 0; i < SIZE; i++) {
                    note(op, best, next.v[i], axes, (first + u * BLOCK) * SIZE + i);
                }
            }
#pragma unroll
            for (int k = 1; k < TILE_ITEMS; k++) {
                loaded[k - 1] = loaded[k];
            }
        }
    }
    const int64_t rest = packs * SIZE + threadIdx.x;
    if (blockIdx.x == 0 && rest < n) {
        note(op, best, x[rest], axes, rest);
    }
    store_row<Op, BLOCK>(op, Op::widen(best), parts, 0, to, n);
}

/* ---- the launch ---- */

struct reduce_memory_order_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        if constexpr (std::is_same_v<Op, reduce_arg<T>>) {
            const reduce_plan &plan = *reduce_plan_of(call);
            constexpr int64_t TILE = BLOCK * TILE_ITEMS * pack<T>::SIZE;
            const int64_t tiles = ceil_div(plan.cols, TILE);
            const int64_t blocks = blocks_per(call, 1, sizeof(Part), tiles);
            block_parts<Part> parts;
            const gpo_status status = parts_for(call, blocks, &parts);
            return status ? status
                          : GPO_LAUNCH(call, grid_of(blocks), BLOCK, 0,
                                       (reduce_memory_order_kernel<Op>), op,
                                       origin_of<T>(call), plan.cols,
                                       places_of(plan.reduced), parts, result_of(call));
        }
        else {
            return GPO_OK; /* is_out_of_order has refused it */
        }
    }

  private:
    /* The axes in the order of memory; their strides are in the order of elements. */
    static few_axes places_of(reduce_axes axes)
    {
        const result_places places = sort_by_distance(&axes);
        few_axes few = few_axes_of(axes);
        for (int d = 0; d < axes.ndim; d++) {
            few.strides[d] = places.strides[d];
        }
        return few;
    }
};

template <typename T>
gpo_status
reduce_memory_order(gpo_call *call)
{
    return is_aligned(origin_of<T>(call)) && is_out_of_order(*reduce_plan_of(call))
               ? reduce_with<reduce_memory_order_launcher, T>(call)
               : reduce_columns<T>(call); /* a host array, packed since */
}

#define INSTANTIATE(T) template gpo_status reduce_memory_order<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
