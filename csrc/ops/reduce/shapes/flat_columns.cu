/*
 * flat_columns.cu  A few columns without gaps, too few for a load of 16 bytes to be of one
 * row: x is read as one run.  The columns that a load touches depend on its place, and a
 * block walks by whole numbers of rows, so each element of a thread's loads stays in one
 * column.  Those of a column are combined in shared memory, then those of all blocks.
 * Cost:  reads n * sizeof(T) bytes once; four loads of 16 bytes of a thread in flight.
 * Order: the walk, the combination, the kernel, the launch.
 */
#include "../narrow.cuh"

template <typename T>
struct flat_view {
    const T *x;
    int64_t n, cols; /* elements; those of a column */
    int width;       /* columns */
    int walkers;     /* threads that load: their packs are whole rows */
    int across;      /* threads that combine, a whole number for each column */
    bool keep_l2;
};

/* ---- the walk: the elements of a thread's packs, each in a column of its own ---- */

template <typename Op, int SIZE>
__device__ __forceinline__ void
walk_flat(const Op &op, const flat_view<typename Op::T> &v,
          typename Op::Fold (&fold)[SIZE])
{
    using T = typename Op::T;
    const uint64_t policy = l2_policy(v.keep_l2);
    const int64_t packs = v.n / SIZE,
                  step = static_cast<int64_t>(gridDim.x) * v.walkers;
    const uint4 *const p = reinterpret_cast<const uint4 *>(v.x);
    int64_t i = static_cast<int64_t>(blockIdx.x) * v.walkers + threadIdx.x;
    if (static_cast<int>(threadIdx.x) >= v.walkers) {
        return;
    }
#pragma unroll 1
    for (; i < packs; i += TILE_ITEMS * step) {
        uint4 loaded[TILE_ITEMS];
#pragma unroll
        for (int u = 0; u < TILE_ITEMS; u++) { /* past the end: the first one again */
            loaded[u] =
                load_streamed(p + (i + u * step < packs ? i + u * step : i), policy);
        }
        pack<T> first = pack_of<T>(loaded[0]);
        typename Op::Acc acc[SIZE];
#pragma unroll
        for (int e = 0; e < SIZE; e++) {
            acc[e] = op.lift(first.v[e], 0);
        }
#pragma unroll
        for (int u = 1; u < TILE_ITEMS; u++) {
            if (i + u * step < packs) {
                const pack<T> next = pack_of<T>(loaded[u]);
#pragma unroll
                for (int e = 0; e < SIZE; e++) {
                    acc[e] = Op::combine(acc[e], op.lift(next.v[e], 0));
                }
            }
        }
#pragma unroll
        for (int e = 0; e < SIZE; e++) {
            fold[e].add(Op::widen(acc[e]));
        }
    }
}

/* ---- the combination ---- */

/* Thread `tid` of v.across has a part of column tid % width in fold; thread c < width gets
   the total of column c.  `slots` are BLOCK parts in shared memory. */
template <typename Op, typename T>
__device__ __forceinline__ typename Op::Part
combine_flat(const flat_view<T> &v, typename Op::Part own, typename Op::Part *slots)
{
    const int tid = static_cast<int>(threadIdx.x);
    slots[tid] = own;
    __syncthreads();
    int count = v.across / v.width;
#pragma unroll 1
    while (count > 1) {
        const int half = (count + 1) / 2;
        if (tid < (count - half) * v.width) {
            slots[tid] = Op::combine(slots[tid], slots[tid + half * v.width]);
        }
        __syncthreads();
        count = half;
    }
    return slots[tid];
}

/* ---- the kernel ---- */

/* Blocks of an SM, by the registers of a thread's columns. */
template <typename Op>
constexpr int FLAT_BLOCKS = pack<typename Op::T>::SIZE * sizeof(typename Op::Fold) <= 64
                                ? 4
                                : 2;

template <typename Op>
__global__ void
__launch_bounds__(BLOCK, FLAT_BLOCKS<Op>)
    reduce_flat_columns_kernel(Op op, flat_view<typename Op::T> v,
                               block_parts<typename Op::Part> parts, reduce_result to)
{
    using Part = typename Op::Part;
    constexpr int SIZE = pack<typename Op::T>::SIZE;
    constexpr int PITCH = BLOCK + 1; /* neighbours of a pack in different banks */
    GPO_DYN_SHARED(Part, shared);    /* SIZE * PITCH parts, then BLOCK */
    GPO_SHARED(bool, last, [1]);
    Part *const slots = shared + SIZE * PITCH;
    const int tid = static_cast<int>(threadIdx.x);
    typename Op::Fold fold[SIZE];
    walk_flat(op, v, fold);
#pragma unroll
    for (int e = 0; e < SIZE; e++) {
        shared[e * PITCH + tid] = fold[e].value();
    }
    __syncthreads();
    /* Element f of the block's packs, the first of which begin at a row, is in column
       f % width. */
    typename Op::Fold own;
#pragma unroll 4
    for (int f = tid; tid < v.across && f < v.walkers * SIZE; f += v.across) {
        own.add(shared[f % SIZE * PITCH + f / SIZE]);
    }
    const int64_t rest = v.n / SIZE * SIZE; /* fewer than a pack after these */
    if (blockIdx.x == 0) {
        const int first = static_cast<int>(rest % v.width);
        for (int k = 0; k < static_cast<int>(v.n - rest); k++) {
            if ((first + k) % v.width == tid) {
                own.add(Op::widen(op.lift(v.x[rest + k], 0)));
            }
        }
    }
    Part total = combine_flat<Op>(v, own.value(), slots);
    if (gridDim.x > 1) {
        if (tid < v.width) {
            parts.part[blockIdx.x * v.width + tid] = total;
        }
        if (!is_last_block(parts.ticket, gridDim.x, last)) {
            return;
        }
        typename Op::Fold all;
        const int end = static_cast<int>(gridDim.x) * v.width;
#pragma unroll 8
        for (int f = tid; tid < v.across && f < end; f += v.across) {
            all.add(parts.part[f]);
        }
        total = combine_flat<Op>(v, all.value(), slots);
    }
    if (tid < v.width) {
        op.store(to, tid, total, v.cols);
    }
}

/* ---- the launch ---- */

struct reduce_flat_columns_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        if constexpr (std::is_same_v<Op, reduce_arg<T>>) {
            return reduce_columns<T>(call); /* no places */
        }
        else {
            return launch_flat(call, op);
        }
    }

  private:
    template <typename Op>
    static gpo_status launch_flat(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int SIZE = pack<T>::SIZE;
        const reduce_plan &plan = *reduce_plan_of(call);
        flat_view<T> v = {};
        v.x = origin_of<T>(call);
        v.n = plan.rows * plan.cols;
        v.cols = plan.cols;
        v.width = static_cast<int>(plan.rows);
        int period = v.width; /* packs that are whole rows */
        for (int size = SIZE; size > 1 && period % 2 == 0; size /= 2) {
            period /= 2;
        }
        v.walkers = BLOCK / period * period;
        v.across = BLOCK / v.width * v.width;
        v.keep_l2 = v.n <= KEEP_L2_BYTES / static_cast<int64_t>(sizeof(T));
        /* Few rounds of loads of the last block; one or more of all others. */
        const int64_t most = FLAT_PARTS * BLOCK / v.width;
        const int64_t room = gpo_processors(call) * FLAT_BLOCKS<Op>;
        int64_t blocks = ceil_div(v.n / SIZE, v.walkers * TILE_ITEMS);
        blocks = blocks < most ? blocks : most;
        blocks = blocks < room ? blocks : room;
        blocks = blocks > 1 ? blocks : 1;
        block_parts<Part> parts;
        const gpo_status status = parts_for(call, blocks, &parts);
        return status ? status
                      : GPO_LAUNCH(call, grid_of(blocks), BLOCK,
                                   (SIZE * (BLOCK + 1) + BLOCK) * sizeof(Part),
                                   (reduce_flat_columns_kernel<Op>), op, v, parts,
                                   result_of(call));
    }
};

template <typename T>
gpo_status
reduce_flat_columns(gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    if (are_flat_columns(plan) && is_aligned(origin_of<T>(call))) {
        return reduce_with<reduce_flat_columns_launcher, T>(call);
    }
    return has_few_axes(plan) ? reduce_columns<T>(call) : reduce_v9<T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_flat_columns<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
