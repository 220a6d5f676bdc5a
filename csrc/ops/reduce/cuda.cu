/*
 * cuda.cu  The ladder of reduce on CUDA, v0 to v9, then the table and the choice.
 * Each rung is a comment, a kernel and a launcher; blocks leave one part each, and the
 * shared finish (rows.cuh) combines the parts, until v9 needs no second kernel.
 * Not here: what a reduction is (reductions.cuh), the contract (op.c).
 */
#include "../../device/divide.cuh"
#include "rows.cuh"

#include <stdio.h>

/*
 * v0  Interleaved addressing.
 * Was:   nothing; the first parallel reduction one would write.
 * Now:   a tree in shared memory, neighbours first; one element per thread.
 * Cost:  reads n * sizeof(T) bytes once; half of the threads of every warp idle from the
 *        first step on, and `%` is a long instruction sequence.
 * Left:  working threads are spread over all warps -> v1.
 */
template <typename Op>
__global__ void
reduce_v0_interleaved(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
    __syncthreads();
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        if (tid % (2 * d) == 0) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v0 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v0_interleaved<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, BLOCK), launch);
    }
};

/*
 * v1  Strided index.
 * Was:   v0 keeps every second thread of each warp busy, then every fourth, ...
 * Now:   the working threads are the first ones; whole warps retire.
 * Cost:  as v0 without the divergence, but lanes are 2 * d words apart: up to 32 of them
 *        meet in one bank.
 * Left:  bank conflicts -> v2.
 */
template <typename Op>
__global__ void
reduce_v1_strided(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
    __syncthreads();
    for (unsigned d = 1; d < BLOCK; d *= 2) {
        const unsigned i = 2 * d * tid;
        if (i < BLOCK) {
            s[i] = Op::combine(s[i], s[i + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v1 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v1_strided<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, BLOCK), launch);
    }
};

/*
 * v2  Sequential addressing.
 * Was:   v1's lanes stride through shared memory.
 * Now:   the upper half is added onto the lower half; lanes touch neighbouring words.
 * Cost:  as v1, one wavefront per request for types of 4 bytes.
 * Left:  half of the threads only load and then idle -> v3.
 */
template <typename Op>
__global__ void
reduce_v2_sequential(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = load(op, x, row, static_cast<int64_t>(blockIdx.x) * BLOCK + tid);
    __syncthreads();
    for (unsigned d = BLOCK / 2; d > 0; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v2 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v2_sequential<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, BLOCK), launch);
    }
};

/*
 * v3  First add during load.
 * Was:   v2 spends a thread on every element.
 * Now:   each thread loads two elements and combines them in registers; half the blocks.
 * Cost:  as v2 with half the shared-memory work per element.
 * Left:  the last six steps use one warp and still pay a barrier each -> v4.
 */
template <typename Op>
__global__ void
reduce_v3_add_on_load(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * BLOCK) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + BLOCK));
    __syncthreads();
    for (unsigned d = BLOCK / 2; d > 0; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v3 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v3_add_on_load<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, 2 * BLOCK), launch);
    }
};

/*
 * v4  Last warp unrolled.
 * Was:   v3's last six steps need barriers of the whole block.
 * Now:   they run in warp 0 alone, six steps without a loop.  Each step reads, meets,
 *        writes, meets: lanes of a warp have run independently since Volta, and the
 *        published `volatile` version without __syncwarp is a race there.
 * Cost:  as v3 with three barriers instead of nine.
 * Left:  the loop above still counts at run time -> v5.
 */
template <typename Op>
__device__ __forceinline__ void
combine_last_warp(typename Op::Acc *s, unsigned tid)
{
    typename Op::Acc v = s[tid];
#pragma unroll
    for (unsigned d = WARP; d > 0; d /= 2) {
        v = Op::combine(v, s[tid + d]);
        __syncwarp();
        s[tid] = v;
        __syncwarp();
    }
}

template <typename Op>
__global__ void
reduce_v4_last_warp(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * BLOCK) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + BLOCK));
    __syncthreads();
    for (unsigned d = BLOCK / 2; d > WARP; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid < WARP) {
        combine_last_warp<Op>(s, tid);
    }
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v4 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v4_last_warp<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, 2 * BLOCK), launch);
    }
};

/*
 * v5  Complete unroll.
 * Was:   v4 computes and tests its step width at run time.
 * Now:   the block size is a template parameter; every step is a constant.
 * Cost:  as v4 with no loop instructions.
 * Left:  a block does 512 elements and dies; starting it costs more -> v6.
 */
template <typename Op, unsigned THREADS>
__device__ __forceinline__ void
combine_block_unrolled(typename Op::Acc *s, unsigned tid)
{
    static_assert(THREADS >= 64 && THREADS <= 1024, "steps below cover 64 to 1024");
#pragma unroll
    for (unsigned d = THREADS / 2; d > WARP; d /= 2) {
        if (tid < d) {
            s[tid] = Op::combine(s[tid], s[tid + d]);
        }
        __syncthreads();
    }
    if (tid < WARP) {
        combine_last_warp<Op>(s, tid);
    }
}

template <typename Op, unsigned THREADS>
__global__ void
reduce_v5_unrolled(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [THREADS]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t k = static_cast<int64_t>(blockIdx.x) * (2 * THREADS) + tid;

    s[tid] = Op::combine(load(op, x, row, k), load(op, x, row, k + THREADS));
    __syncthreads();
    combine_block_unrolled<Op, THREADS>(s, tid);
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v5 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v5_unrolled<Op, BLOCK>), op,
                              x, part);
        };
        return reduce_in_chunks(call, plan, op, chunks_of(plan, 2 * BLOCK), launch);
    }
};

/*
 * v6  Many elements per thread, fixed grid.
 * Was:   v5 starts one block per 512 elements and leaves as many parts to finish.
 * Now:   at most 1,024 blocks stride through a row; the tree is paid once per block.
 * Cost:  reads n * sizeof(T) bytes once; shared-memory work no longer grows with n.
 * Left:  the tree still goes through shared memory -> v7.
 */
constexpr int64_t FIXED_GRID = 1024, ITEMS_PER_THREAD = 32;

inline int64_t
fixed_grid(const reduce_plan &plan)
{
    const int64_t chunks = chunks_of(plan, BLOCK * ITEMS_PER_THREAD);
    return chunks < FIXED_GRID ? chunks : FIXED_GRID;
}

/* The elements of this thread when the grid strides through a row. */
template <typename Op>
__device__ __forceinline__ typename Op::Acc
combine_strided(const Op &op, const reduce_rows<typename Op::T> &x, int64_t row)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    typename Op::Acc v = Op::identity();
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; k < x.cols;
         k += step) {
        v = Op::combine(v, load(op, x, row, k));
    }
    return v;
}

template <typename Op>
__global__ void
reduce_v6_fixed_grid(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, s, [BLOCK]);
    const unsigned tid = threadIdx.x;
    const int64_t row = x.first_row + blockIdx.y;

    s[tid] = combine_strided(op, x, row);
    __syncthreads();
    combine_block_unrolled<Op, BLOCK>(s, tid);
    if (tid == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(s[0]);
    }
}

struct rung_v6 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v6_fixed_grid<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, fixed_grid(plan), launch);
    }
};

/*
 * v7  Warp shuffle.
 * Was:   v6 combines 256 values through shared memory.
 * Now:   each warp combines its 32 in registers; 8 values and one barrier remain.
 * Cost:  as v6 with BLOCK / 32 values of shared memory.
 * Left:  each load is one element wide -> v8.
 */
template <typename Op>
__global__ void
reduce_v7_warp_shuffle(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    GPO_SHARED(typename Op::Acc, slots, [BLOCK / WARP]);
    const int64_t row = x.first_row + blockIdx.y;

    typename Op::Acc v = combine_strided(op, x, row);
    v = block_combine<Op, BLOCK>(v, slots);
    if (threadIdx.x == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(v);
    }
}

struct rung_v7 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v7_warp_shuffle<Op>), op, x,
                              part);
        };
        return reduce_in_chunks(call, plan, op, fixed_grid(plan), launch);
    }
};

/*
 * v8  16-byte packs.
 * Was:   v7 loads one element per instruction.
 * Now:   one load brings 16 bytes; the elements before the first 16-byte boundary and
 *        after the last go to the first threads one by one.  A row whose elements are
 *        not neighbours in memory is read as in v7.
 * Cost:  as v7 with 16 / sizeof(T) times fewer load instructions.
 * Left:  one load in flight per thread, and a second kernel to finish -> v9.
 */

/* The elements of one pack, neighbours first. */
template <typename Op, int N>
__device__ __forceinline__ typename Op::Acc
combine_pack(const Op &op, const typename Op::T *v, int64_t k)
{
    if constexpr (N == 1) {
        return op.lift(v[0], k);
    }
    else {
        return Op::combine(combine_pack<Op, N / 2>(op, v, k),
                           combine_pack<Op, N / 2>(op, v + N / 2, k + N / 2));
    }
}

template <typename T>
__device__ __forceinline__ bool
is_contiguous(const reduce_rows<T> &x)
{
    return x.reduced.ndim == 0 || (x.reduced.ndim == 1 && x.reduced.strides[0] == 1);
}

template <typename Op>
__global__ void
reduce_v8_packs(Op op, reduce_rows<typename Op::T> x, typename Op::Part *part)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE;
    GPO_SHARED(typename Op::Acc, slots, [BLOCK / WARP]);
    const int64_t row = x.first_row + blockIdx.y;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;

    typename Op::Acc v = Op::identity();
    if (is_contiguous(x)) {
        const T *p = x.x + offset_of(x.kept, row);
        const int64_t head = elements_to_boundary(p, x.cols);
        const int64_t packs = (x.cols - head) / SIZE;
        const int64_t tail = head + packs * SIZE;
        for (int64_t i = first; i < packs; i += step) {
            const int64_t k = head + i * SIZE;
            const pack<T> loaded = load_pack(p + k);
            v = Op::combine(v, combine_pack<Op, SIZE>(op, loaded.v, k));
        }
        if (first < head) {
            v = Op::combine(v, op.lift(p[first], first));
        }
        if (first < x.cols - tail) {
            v = Op::combine(v, op.lift(p[tail + first], tail + first));
        }
    }
    else {
        v = combine_strided(op, x, row);
    }
    v = block_combine<Op, BLOCK>(v, slots);
    if (threadIdx.x == 0) {
        part[row * gridDim.x + blockIdx.x] = Op::widen(v);
    }
}

struct rung_v8 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        const auto launch = [=](dim3 grid, const auto &x, typename Op::Part *part) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v8_packs<Op>), op, x, part);
        };
        return reduce_in_chunks(call, plan, op, fixed_grid(plan), launch);
    }
};

/*
 * v9  One launch, many loads in flight.
 * Was:   v8 waits for each load before the next and starts a second kernel to finish.
 * Now:   4 independent 16-byte loads per thread and tile; the grid is as large as the
 *        card holds at once; the block that takes the last ticket combines all parts in
 *        a fixed order.  Long chains go through Op::Fold, so the error does not grow
 *        with the length.  Three kernels: for contiguous rows, for short rows, and for
 *        rows that lie across memory or have gaps (columns).  Where an element lies on
 *        several axes takes multiplications instead of divisions.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread.
 * Left:  the way of a part through L2 to the last block, about 2 us of a launch.
 */
constexpr int ROW_BLOCK = 512, TILE_ITEMS = 4; /* 32 KiB; NOTES.md has the sweep */
constexpr int BLOCKS_PER_PROCESSOR = 4;

/* Blocks of rows a processor is to hold: all its threads, in 32 registers each. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int ROW_BLOCKS = 2;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && \
    (__CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1100)
constexpr int ROW_BLOCKS = 3;
#else
constexpr int ROW_BLOCKS = 4;
#endif

constexpr int64_t SHORT_ROW_BYTES = 4096; /* up to here part of a warp does a row */
constexpr int64_t WARP_ROW_BYTES = 32768; /* up to here a warp, if rows are many */
constexpr int MANY_ROWS = 32;             /* per processor */
constexpr int ROWS_AT_ONCE = 2;  /* short rows a group of lanes loads together */
constexpr int LOADS_AT_ONCE = 4; /* of one short row, where loads are single elements */

/*
 * Up to here reads leave L2 what was in it.  A larger array drives that out in any
 * case, and then a stream that may use only part of L2 is the slower one.
 */
constexpr int64_t KEEP_L2_BYTES = static_cast<int64_t>(256) << 20;

/* Axes as a kernel argument: reduce_axes twice would be 2 KiB, 0.3 us of a launch. */
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

/* Where element number i of these axes lies, in elements from the first. */
__device__ __forceinline__ int64_t
offset_of(const few_axes &axes, int64_t i)
{
    int64_t offset = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d > 0; d--) {
        const int64_t quotient = axes.length[d].of(i);
        offset += (i - quotient * axes.length[d].by) * axes.strides[d];
        i = quotient;
    }
    return axes.ndim > 0 ? offset + i * axes.strides[0] : 0;
}

/* The plan as v9's kernels take it; `first` is the launch's first row or tile. */
template <typename T>
struct reduce_view {
    const T *x;
    int64_t rows, cols, first;
    bool keep_l2;
    few_axes kept, reduced;
};

/* What the last block needs to finish: where the parts lie and who has arrived. */
template <typename Part>
struct reduce_meeting {
    Part *part;
    unsigned *ticket;
};

/* The packs of one tile, a tree over all of them. */
template <typename Op, int N, int STEP>
__device__ __forceinline__ typename Op::Acc
combine_packs(const Op &op, const pack<typename Op::T> *v, int64_t k)
{
    if constexpr (N == 1) {
        return combine_pack<Op, pack<typename Op::T>::SIZE>(op, v[0].v, k);
    }
    else {
        return Op::combine(
            combine_packs<Op, N / 2, STEP>(op, v, k),
            combine_packs<Op, N / 2, STEP>(op, v + N / 2, k + N / 2 * STEP));
    }
}

/* A row in contiguous runs; the last tile of a run is what whole ones leave over. */
struct reduce_runs {
    int64_t count, length;
    divider tiles; /* of a run */
};

/* A run's tile of this number; the run begins at p with element `first` of the row. */
template <typename Op>
__device__ __forceinline__ void
fold_tile(const Op &op, typename Op::Fold &fold, const typename Op::T *p, int64_t first,
          int64_t length, int64_t tile, uint64_t policy)
{
    using T = typename Op::T;
    constexpr int SIZE = pack<T>::SIZE, STEP = ROW_BLOCK * SIZE;
    constexpr int64_t TILE = ROW_BLOCK * TILE_ITEMS;
    const int64_t tid = threadIdx.x;
    const int64_t head = elements_to_boundary(p, length);
    const int64_t packs = (length - head) / SIZE;
    const int64_t whole = packs / TILE;
    if (tile < whole) {
        const int64_t k = head + (tile * TILE + tid) * SIZE;
        pack<T> loaded[TILE_ITEMS];
#pragma unroll
        for (int u = 0; u < TILE_ITEMS; u++) {
            loaded[u] = load_pack(p + k + u * STEP, policy);
        }
        fold.add(Op::widen(combine_packs<Op, TILE_ITEMS, STEP>(op, loaded, first + k)));
    }
    else if (tile == whole) {
#pragma unroll 1 /* else the whole kernel takes 51 registers */
        for (int64_t i = whole * TILE + tid; i < packs; i += ROW_BLOCK) {
            const int64_t k = head + i * SIZE;
            const pack<T> alone = load_pack(p + k, policy);
            fold.add(Op::widen(combine_pack<Op, SIZE>(op, alone.v, first + k)));
        }
        const int64_t tail = head + packs * SIZE;
        if (tid < head) {
            fold.add(Op::widen(op.lift(p[tid], first + tid)));
        }
        if (tid < length - tail) {
            fold.add(Op::widen(op.lift(p[tail + tid], first + tail + tid)));
        }
    }
}

/* Rows of contiguous runs; x.reduced are the axes from run to run. */
template <typename Op>
__global__ void
__launch_bounds__(ROW_BLOCK, ROW_BLOCKS)
    reduce_v9_rows(Op op, reduce_view<typename Op::T> x, reduce_runs runs,
                   reduce_meeting<typename Op::Part> meeting, reduce_result to)
{
    using Part = typename Op::Part;
    GPO_SHARED(Part, slots, [ROW_BLOCK / WARP]);
    GPO_SHARED(bool, last, [1]);
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
    Part total = block_combine<Op, ROW_BLOCK>(fold.value(), slots);
    if (gridDim.x > 1) {
        Part *parts = meeting.part + row * gridDim.x;
        if (threadIdx.x == 0) {
            parts[blockIdx.x] = total;
        }
        if (!is_last_block(&meeting.ticket[row], gridDim.x, last)) {
            return;
        }
        typename Op::Fold all;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += ROW_BLOCK) {
            all.add(parts[b]);
        }
        total = block_combine<Op, ROW_BLOCK>(all.value(), slots);
    }
    if (threadIdx.x == 0) {
        op.store(to, row, total, x.cols);
    }
}

/*
 * A group of `lanes` lanes does a row, ROWS_AT_ONCE rows at a time.  VEC elements per
 * load; VEC > 1 needs rows that start on 16-byte boundaries.
 */
template <typename Op, int VEC>
__global__ void
__launch_bounds__(BLOCK) reduce_v9_short_rows(Op op, reduce_view<typename Op::T> x,
                                              int lanes, reduce_result to)
{
    using T = typename Op::T;
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
    if constexpr (VEC > 1) {
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
#pragma unroll
    for (int r = 0; r < ROWS_AT_ONCE; r++) {
        const int64_t row = first + r * groups;
        const typename Op::Part total = warp_combine<Op>(fold[r].value(), lanes);
        if (lane == 0 && row < x.rows) {
            op.store(to, row, total, x.cols);
        }
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
    for (; k + (ITEMS - 1) * step < cols; k += ITEMS * step) {
        T loaded[ITEMS][VEC];
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            const T *q = p + where(k + u * step);
            if constexpr (VEC > 1) {
                const pack<T> row = load_pack(q, policy);
                memcpy(loaded[u], row.v, sizeof row.v);
            }
            else {
                loaded[u][0] = *q;
            }
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
#pragma unroll 1
    for (; k < cols; k += step) {
        const T *q = p + where(k);
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            fold[v].add(Op::widen(op.lift(q[v], k)));
        }
    }
}

/* Blocks of columns a processor is to hold: a column of a thread takes registers. */
__host__ __device__ constexpr int
column_blocks(int vec)
{
    return vec <= 4 ? 4 : vec == 8 ? 3 : 1;
}

/*
 * Columns: `width` neighbouring rows are neighbours in memory, so each thread takes VEC
 * of them and walks down; threads (lane, y) of a block share a tile of lanes * VEC
 * columns and split the height, blocks (tile, s) split it further and meet in the
 * tile's ticket.  A row with gaps is a column of width 1.
 */
template <typename Op, int VEC>
__global__ void
__launch_bounds__(BLOCK, column_blocks(VEC))
    reduce_v9_columns(Op op, reduce_view<typename Op::T> x, int64_t width,
                      int64_t tiles_across, int lanes,
                      reduce_meeting<typename Op::Part> meeting, reduce_result to)
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
    const T *p = x.x + offset_of(x.kept, outer * width) + (inside ? column : 0);
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

    /* The threads of a column meet in shared memory; the last block, over all parts. */
    Part total[VEC];
#pragma unroll 1
    for (unsigned blocks = gridDim.y;; blocks = 1) {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            total[v] = fold[v].value();
        }
        for (int d = height / 2; d > 0; d /= 2) {
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
        if (blocks == 1) {
            break;
        }
        Part *part = meeting.part + outer * width + column;
        if (y == 0 && inside) {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                part[blockIdx.y * x.rows + v] = total[v];
            }
        }
        if (!is_last_block(&meeting.ticket[tile], blocks, last)) {
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

struct rung_v9 {
    template <typename Op>
    static gpo_status run(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        constexpr int SIZE = pack<typename Op::T>::SIZE;
        const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
        if (plan.rows == 0) {
            return GPO_OK;
        }
        if (kept.ndim > FEW_AXES || reduced.ndim > FEW_AXES) {
            return rung_v8::run(call, plan, op);
        }
        const bool gapless =
            reduced.ndim == 0 || reduced.strides[reduced.ndim - 1] == 1;
        if (!gapless && kept.ndim > 0 && kept.strides[kept.ndim - 1] == 1) {
            return columns(call, plan, op, kept.shape[kept.ndim - 1]);
        }
        const int64_t bytes = plan.cols * static_cast<int64_t>(sizeof(typename Op::T));
        const int64_t many = static_cast<int64_t>(gpo_processors(call)) * MANY_ROWS;
        if (plan.rows > 1 &&
            bytes <= (plan.rows < many ? SHORT_ROW_BYTES : WARP_ROW_BYTES)) {
            return short_rows(call, plan, op);
        }
        const int64_t length = reduced.ndim > 0 ? reduced.shape[reduced.ndim - 1] : 1;
        if (gapless && (reduced.ndim <= 1 || length >= ROW_BLOCK * SIZE / 4)) {
            return long_rows(call, plan, op);
        }
        return columns(call, plan, op, 1);
    }

  private:
    template <typename T>
    static reduce_view<T> view_of(const reduce_plan &plan)
    {
        const int64_t fits = KEEP_L2_BYTES / static_cast<int64_t>(sizeof(T));
        return {static_cast<const T *>(plan.origin),
                plan.rows,
                plan.cols,
                0,
                plan.cols <= fits / plan.rows,
                few_axes_of(plan.kept),
                few_axes_of(plan.reduced)};
    }

    /* Whether steps along the first n axes keep an address on its 16-byte boundary. */
    template <typename T>
    static bool are_aligned(const reduce_axes &axes, int n)
    {
        bool aligned = true;
        for (int d = 0; d < n; d++) {
            aligned = aligned && axes.strides[d] % pack<T>::SIZE == 0;
        }
        return aligned;
    }

    static int power_of_two_from(int64_t n, int most)
    {
        int p = 1;
        while (p < n && p < most) {
            p *= 2;
        }
        return p;
    }

    /*
     * Blocks that share one of `n` rows (or tiles of columns), at most `most`: as many
     * as fill the card, if there is room for their parts, of `width` results each.
     */
    template <typename Part>
    static int64_t blocks_per(const gpo_call *call, int64_t n, int64_t width,
                              int64_t most)
    {
        const int64_t room = gpo_processors(call) * BLOCKS_PER_PROCESSOR;
        if (n >= room || n > GPO_TICKETS) {
            return 1;
        }
        const int64_t fits =
            GPO_PARTIALS / (n * width * static_cast<int64_t>(sizeof(Part)));
        int64_t blocks = room / n < most ? room / n : most;
        blocks = blocks < fits ? blocks : fits;
        return blocks > 1 ? blocks : 1;
    }

    template <typename Part>
    static gpo_status meet(gpo_call *call, int64_t blocks,
                           reduce_meeting<Part> *meeting)
    {
        *meeting = {nullptr, nullptr};
        const gpo_status status =
            blocks > 1 ? gpo_tickets(call, &meeting->ticket) : GPO_OK;
        if (blocks > 1 && !status) {
            meeting->part = reinterpret_cast<Part *>(meeting->ticket + GPO_TICKETS);
        }
        return status;
    }

    template <typename Op>
    static gpo_status long_rows(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int64_t TILE = ROW_BLOCK * TILE_ITEMS * pack<T>::SIZE;
        reduce_view<T> x = view_of<T>(plan);
        const int last = plan.reduced.ndim - 1;
        const int64_t length = last < 0 ? 1 : plan.reduced.shape[last];
        x.reduced.ndim = last < 0 ? 0 : last;
        reduce_runs runs = {length > 0 ? plan.cols / length : 0, length,
                            divider_of(length / TILE + 1)};
        /* As a rule whole tiles leave nothing over: no block for that alone. */
        const int64_t tiles = runs.count * ceil_div(length, TILE);
        const int64_t blocks = blocks_per<Part>(call, plan.rows, 1, tiles);
        reduce_meeting<Part> meeting;
        gpo_status status = meet(call, blocks, &meeting);
        for (; !status && x.first < plan.rows; x.first += MAX_GRID_Y) {
            const int64_t left = plan.rows - x.first;
            const dim3 grid(blocks, left < MAX_GRID_Y ? left : MAX_GRID_Y);
            status = GPO_LAUNCH(call, grid, ROW_BLOCK, 0, (reduce_v9_rows<Op>), op, x,
                                runs, meeting, result_of(call, plan));
        }
        return status;
    }

    template <typename Op>
    static gpo_status short_rows(gpo_call *call, const reduce_plan &plan, const Op &op)
    {
        using T = typename Op::T;
        constexpr int SIZE = pack<T>::SIZE;
        const reduce_view<T> x = view_of<T>(plan);
        const bool packed = plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1 &&
                            plan.cols % SIZE == 0 &&
                            reinterpret_cast<uintptr_t>(plan.origin) % 16 == 0 &&
                            are_aligned<T>(plan.kept, plan.kept.ndim);
        const int64_t loads = packed ? plan.cols / SIZE : plan.cols;
        /* Several loads per lane: fewer lanes, fewer shuffles. */
        const int64_t per_lane = loads <= 8 ? 1 : packed ? 2 : LOADS_AT_ONCE;
        const int lanes = power_of_two_from(ceil_div(loads, per_lane), WARP);
        const dim3 grid(ceil_div(plan.rows, BLOCK / lanes * ROWS_AT_ONCE));
        const reduce_result to = result_of(call, plan);
        if (SIZE > 1 && packed) {
            return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v9_short_rows<Op, SIZE>),
                              op, x, lanes, to);
        }
        return GPO_LAUNCH(call, grid, BLOCK, 0, (reduce_v9_short_rows<Op, 1>), op, x,
                          lanes, to);
    }

    template <typename Op>
    static gpo_status columns(gpo_call *call, const reduce_plan &plan, const Op &op,
                              int64_t width)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int SIZE = pack<T>::SIZE;
        reduce_view<T> x = view_of<T>(plan);
        const bool packed = SIZE > 1 && width % SIZE == 0 &&
                            reinterpret_cast<uintptr_t>(plan.origin) % 16 == 0 &&
                            are_aligned<T>(plan.kept, plan.kept.ndim - 1) &&
                            are_aligned<T>(plan.reduced, plan.reduced.ndim);
        const int vec = packed ? SIZE : 1;
        const int64_t room = gpo_processors(call) * BLOCKS_PER_PROCESSOR;
        const int64_t outer = plan.rows / width, across = ceil_div(width, vec);
        int lanes = power_of_two_from(across, WARP);
        while (lanes < BLOCK && outer * (across / (2 * lanes)) >= room) {
            lanes *= 2; /* wide tiles read long stretches and share fewer columns */
        }
        const int64_t tiles_across = ceil_div(across, lanes);
        const int64_t tiles = outer * tiles_across;
        const int64_t deepest = plan.cols / (BLOCK / lanes * TILE_ITEMS);
        const int64_t split =
            blocks_per<Part>(call, tiles, static_cast<int64_t>(lanes) * vec, deepest);
        const size_t shared_bytes = lanes < BLOCK ? BLOCK / 2 * vec * sizeof(Part) : 0;
        const reduce_result to = result_of(call, plan);
        reduce_meeting<Part> meeting;
        gpo_status status = meet(call, split, &meeting);
        for (; !status && x.first < tiles; x.first += MAX_GRID_X) {
            const int64_t left = tiles - x.first;
            const dim3 grid(left < MAX_GRID_X ? left : MAX_GRID_X, split);
            status = SIZE > 1 && packed
                         ? GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                      (reduce_v9_columns<Op, SIZE>), op, x, width,
                                      tiles_across, lanes, meeting, to)
                         : GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                      (reduce_v9_columns<Op, 1>), op, x, width,
                                      tiles_across, lanes, meeting, to);
        }
        return status;
    }
};

/* ---- table and choice ---- */

#define RUNG(v)                                  \
    template <typename T>                        \
    static gpo_status reduce_##v(gpo_call *call) \
    {                                            \
        return reduce_with<rung_##v, T>(call);   \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)
RUNG(v3)
RUNG(v4)
RUNG(v5)
RUNG(v6)
RUNG(v7)
RUNG(v8)
RUNG(v9)

static const gpo_variant variants[] = {
    {"v0", "interleaved addressing, divergent", "", "run-to-run", GPO_ALL(reduce_v0)},
    {"v1", "strided index, bank conflicts", "", "run-to-run", GPO_ALL(reduce_v1)},
    {"v2", "sequential addressing", "", "run-to-run", GPO_ALL(reduce_v2)},
    {"v3", "first add during load", "", "run-to-run", GPO_ALL(reduce_v3)},
    {"v4", "last warp unrolled", "", "run-to-run", GPO_ALL(reduce_v4)},
    {"v5", "complete unroll by template", "", "run-to-run", GPO_ALL(reduce_v5)},
    {"v6", "many elements per thread, fixed grid", "", "run-to-run",
     GPO_ALL(reduce_v6)},
    {"v7", "warp shuffle", "", "run-to-run", GPO_ALL(reduce_v7)},
    {"v8", "16-byte packs", "", "run-to-run", GPO_ALL(reduce_v8)},
    {"v9", "one launch, many loads in flight", "", "run-to-run", GPO_ALL(reduce_v9)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *, char why[GPO_MESSAGE])
{
    snprintf(why, GPO_MESSAGE,
             "v9 is the fastest rung at every size and axis that was measured");
    return &variants[9];
}

extern "C" const gpo_table reduce_cuda = {variants, choose};
