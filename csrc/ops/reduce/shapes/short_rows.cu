/*
 * short_rows.cu  Rows too short to fill a block of v9: part of a warp reduces one, or
 * up to a block where the rows are so few that all lanes are resident at once.
 * Each group of lanes has several rows in flight and combines by shuffles; only groups
 * of several warps go through shared memory, and no block waits for another.
 * Cost:  reads n * sizeof(T) bytes once; 32 bytes in flight per thread where rows start
 *        on 16-byte boundaries, or are long enough to have edges beside their packs; else
 *        4 elements of 2 rows.
 */
#include "../packs.cuh"
#include "../short_rows.cuh"

/* Lane 0 of each group of `lanes` lanes, up to a block, gets the group's totals. */
template <typename Op>
__device__ __forceinline__ void
group_combine(typename Op::Part (&total)[ROWS_AT_ONCE], int lanes,
              typename Op::Part (&slots)[ROWS_AT_ONCE][BLOCK / WARP])
{
    const int warp = threadIdx.x / WARP;
    int width = lanes < WARP ? lanes : WARP;
#pragma unroll 1
    for (;;) {
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            total[r] = warp_combine<Op>(total[r], width);
        }
        if (lanes <= WARP) {
            return;
        }
        if (threadIdx.x % WARP == 0) {
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                slots[r][warp] = total[r];
            }
        }
        __syncthreads();
        width = lanes / WARP; /* once more, over the totals of the group's warps */
        lanes = WARP;
        const int own = warp / width * width + threadIdx.x % width;
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            total[r] = slots[r][own];
        }
    }
}

/* A contiguous row that starts and ends anywhere: packs, and elements beside them. */
struct row_edges {
    int64_t head, packs,
        rest; /* before the packs; their number; the first after them */
};

template <typename T>
__device__ __forceinline__ row_edges
edges_of(const T *p, int64_t cols)
{
    constexpr int SIZE = pack<T>::SIZE;
    const int64_t head = elements_to_boundary(p, cols), packs = (cols - head) / SIZE;
    return {head, packs, head + packs * SIZE};
}

/* Folds such rows: an element of the edges and a pack of each row at a time. */
template <typename Op>
__device__ __forceinline__ void
fold_with_edges(const Op &op, typename Op::Fold (&fold)[ROWS_AT_ONCE],
                const typename Op::T *const (&p)[ROWS_AT_ONCE], int64_t cols, int lane,
                int lanes, uint64_t policy)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE;
    row_edges row[ROWS_AT_ONCE];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
        row[r] = edges_of(p[r], cols);
    }
#pragma unroll 1
    for (int64_t i = lane; i < 2 * SIZE - 2 || i * SIZE < cols; i += lanes) {
        T beside[ROWS_AT_ONCE];
        pack<T> loaded[ROWS_AT_ONCE];
        int64_t at[ROWS_AT_ONCE];
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            at[r] = i < row[r].head ? i : row[r].rest + i - row[r].head;
            if (at[r] < cols) {
                beside[r] = p[r][at[r]];
            }
            if (i < row[r].packs) {
                loaded[r] = load_pack(p[r] + row[r].head + i * SIZE, policy);
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++) {
            if (at[r] < cols) {
                fold[r].add(Op::widen(op.lift(beside[r], at[r])));
            }
            if (i < row[r].packs) {
                const int64_t k = row[r].head + i * SIZE;
                fold[r].add(Op::widen(combine_pack<Op, SIZE>(op, loaded[r].v, k)));
            }
        }
    }
}

/*
 * A group of `lanes` lanes reduces ROWS_AT_ONCE rows at a time, with VEC elements per
 * load; VEC > 1 needs rows that start on 16-byte boundaries, or EDGES.
 */
template <typename Op, int VEC, bool EDGES>
__global__ void
__launch_bounds__(BLOCK) reduce_short_rows_kernel(Op op, reduce_view<typename Op::T> x,
                                                  int lanes, reduce_result to)
{
    using T = typename Op::T;
    using Part = typename Op::Part;
    GPO_SHARED(Part, slots, [ROWS_AT_ONCE][BLOCK / WARP]);
    const uint64_t policy = l2_policy(x.keep_l2);
    const int lane = threadIdx.x % lanes;
    const int64_t groups = BLOCK / lanes;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * groups * ROWS_AT_ONCE + threadIdx.x / lanes;
    const T *p[ROWS_AT_ONCE];
    typename Op::Fold fold[ROWS_AT_ONCE];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) { /* rows past the end repeat the last one */
        const int64_t row = first + r * groups;
        p[r] = x.x + offset_of(x.kept, row < x.rows ? row : x.rows - 1);
    }
    if constexpr (EDGES) {
        fold_with_edges(op, fold, p, x.cols, lane, lanes, policy);
    }
    else if constexpr (VEC > 1) {
        for (int64_t k = lane * VEC; k < x.cols; k += lanes * VEC) {
            pack<T> loaded[ROWS_AT_ONCE];
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                loaded[r] = load_pack(p[r] + k, policy);
            }
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                fold[r].add(Op::widen(combine_pack<Op, VEC>(op, loaded[r].v, k)));
            }
        }
    }
    else {
        for (int64_t k = lane; k < x.cols; k += lanes * LOADS_AT_ONCE) {
            T loaded[ROWS_AT_ONCE][LOADS_AT_ONCE];
#pragma unroll
            for (int u = 0; u < LOADS_AT_ONCE;
                 u++) { /* past the end: element k again */
                const int64_t i = k + u * lanes;
                const int64_t offset = offset_of(x.reduced, i < x.cols ? i : k);
#pragma unroll
                for (int r = 0; r < ROWS_AT_ONCE; r++) {
                    loaded[r][u] = p[r][offset];
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                typename Op::Acc acc = op.lift(loaded[r][0], k);
#pragma unroll
                for (int u = 1; u < LOADS_AT_ONCE; u++) {
                    if (k + u * lanes < x.cols) {
                        acc = Op::combine(acc, op.lift(loaded[r][u], k + u * lanes));
                    }
                }
                fold[r].add(Op::widen(acc));
            }
        }
    }
    Part total[ROWS_AT_ONCE];
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
        total[r] = fold[r].value();
    }
    group_combine<Op>(total, lanes, slots);
#pragma unroll 1 /* one copy of a store, which has a case for every dtype of results */
    for (int64_t row = first; row < first + ROWS_AT_ONCE * groups; row += groups) {
        if (lane == 0 && row < x.rows) {
            op.store(to, row, total[0], x.cols);
        }
#pragma unroll
        for (int r = 1; r < ROWS_AT_ONCE; r++) {
            total[r - 1] = total[r];
        }
    }
}

struct reduce_short_rows_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        constexpr int SIZE = pack<T>::SIZE;
        if (reduce_plan_of(call)->rows == 0) {
            return GPO_OK;
        }
        const reduce_view<T> x = view_of<T>(call);
        const reduce_plan &plan = *reduce_plan_of(call);
        const bool packed = SIZE > 1 && is_aligned(x.x) && are_whole_packs(plan, SIZE);
        const bool edges = SIZE > 1 && !packed && are_packs_with_edges(plan, SIZE);
        const int lanes = lanes_of_short_rows(call, packed || edges ? SIZE : 1);
        const dim3 grid(ceil_div(x.rows, BLOCK / lanes * ROWS_AT_ONCE));
        const reduce_result to = result_of(call);
        if (packed) {
            return GPO_LAUNCH(call, grid, BLOCK, 0,
                              (reduce_short_rows_kernel<Op, SIZE, false>), op, x, lanes,
                              to);
        }
        if constexpr (SIZE > 1) {
            if (edges) {
                return GPO_LAUNCH(call, grid, BLOCK, 0,
                                  (reduce_short_rows_kernel<Op, SIZE, true>), op, x,
                                  lanes, to);
            }
        }
        return GPO_LAUNCH(call, grid, BLOCK, 0,
                          (reduce_short_rows_kernel<Op, 1, false>), op, x, lanes, to);
    }
};

template <typename T>
gpo_status
reduce_short_rows(gpo_call *call)
{
    return reduce_with<reduce_short_rows_launcher, T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_short_rows<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
