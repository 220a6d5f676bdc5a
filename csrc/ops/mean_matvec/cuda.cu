/*
 * cuda.cu  The ladder of mean_matvec on CUDA, v0 to v5, then the table and the choice.
 * Each rung is a comment, a kernel and a launcher.  The means of all rungs go through
 * global memory: no block's shared memory holds the rows of any x.
 * Not here: rows at full width (rows.cuh), a tile of the product (product.cuh), the
 * contract (op.c).
 */
#include "product.cuh"

#include <stdio.h>

constexpr int BLOCK = 128; /* threads of v0 to v3 */
constexpr int64_t MAX_GRID_X = 2147483647;

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- what v0 to v3 share ---- */

/* Thread t takes rows t, t + BLOCK, ... of a batch, one element after the other. */
template <typename T>
__device__ __forceinline__ void
means_by_thread(const mean_matvec_view<T> &v, int64_t n)
{
    for (int64_t l = threadIdx.x; l < v.rows; l += BLOCK) {
        const T *p = v.x + n * v.x_batch + l * v.x_row;
        row_sum<value_type<T>> sum;
        for (int64_t m = 0; m < v.cols; m++) {
            sum.add(value_of(p[m * v.x_col]));
        }
        v.means[n * v.rows + l] = sum.value() / static_cast<value_type<T>>(v.cols);
    }
}

/* A warp takes a row: lanes read neighbours and meet in registers. */
template <typename T>
__device__ __forceinline__ void
means_by_warp(const mean_matvec_view<T> &v, int64_t n)
{
    const int lane = threadIdx.x % WARP;
    for (int64_t l = threadIdx.x / WARP; l < v.rows; l += BLOCK / WARP) {
        const T *p = v.x + n * v.x_batch + l * v.x_row;
        row_sum<value_type<T>> sum;
        for (int64_t m = lane; m < v.cols; m += WARP) {
            sum.add(value_of(p[m * v.x_col]));
        }
        const value_type<T> total = warp_combine<add>(sum.value());
        if (lane == 0) {
            v.means[n * v.rows + l] = total / static_cast<value_type<T>>(v.cols);
        }
    }
}

/* This thread's share of output i of batch n. */
template <typename T>
__device__ __forceinline__ value_type<T>
product_share(const mean_matvec_view<T> &v, int64_t i, int64_t n)
{
    value_type<T> acc = 0;
    for (int64_t l = threadIdx.x; l < v.rows; l += BLOCK) {
        acc += v.matrix_at(i, l) * v.means[n * v.rows + l];
    }
    return acc;
}

/*
 * A tree in shared memory per output.  The barrier after `s` is written and the one in
 * every step are what the published first version lacks: there one output's sum races
 * with the next one's products.
 */
template <typename T>
__device__ __forceinline__ void
product_by_tree(const mean_matvec_view<T> &v, int64_t n, value_type<T> *s)
{
    const unsigned tid = threadIdx.x;
    for (int64_t i = 0; i < v.outputs; i++) {
        s[tid] = product_share(v, i, n);
        __syncthreads();
        for (unsigned d = BLOCK / 2; d > 0; d /= 2) {
            if (tid < d) {
                s[tid] += s[tid + d];
            }
            __syncthreads();
        }
        if (tid == 0) { /* the only thread that writes s[0], so it may read it late */
            v.put(i, n, s[0]);
        }
    }
}

template <typename T>
static gpo_status
view_of(gpo_call *call, mean_matvec_view<T> *v)
{
    using V = value_type<T>;
    mean_matvec_plan p;
    mean_matvec_make_plan(call, &p);
    void *means = nullptr;
    gpo_status status = GPO_OK;
    if (p.batches * p.outputs > 0 && p.rows > 0) {
        status = gpo_scratch(call, p.batches * p.rows * sizeof(V), &means);
    }
    *v = {static_cast<const T *>(p.x),
          static_cast<const T *>(p.matrix),
          static_cast<T *>(p.out),
          static_cast<V *>(means),
          p.batches,
          p.rows,
          p.cols,
          p.outputs,
          p.x_batch,
          p.x_row,
          p.x_col,
          p.matrix_output,
          p.matrix_row,
          p.out_output,
          p.out_batch};
    return status;
}

/* Blocks for `n` pieces of work: a kernel strides over more than a grid may have. */
inline dim3
grid_of(int64_t n)
{
    return dim3(static_cast<unsigned>(n < MAX_GRID_X ? n : MAX_GRID_X));
}

/*
 * v0  One block.
 * Now:   one block does all batches; a thread adds up a row, a tree in shared memory
 *        adds up the terms of an output.
 * Cost:  reads x once, in columns: lanes are M elements apart, so a request touches as
 *        many sectors as it has lanes; the matrix once per batch; eight barriers per
 *        output.
 * Left:  one processor of the card works -> v1.
 */
template <typename T>
__global__ void
mean_matvec_v0_one_block(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = 0; n < v.batches; n++) {
        means_by_thread(v, n); /* a thread multiplies the means it wrote: no barrier */
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v0(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid(v.batches * v.outputs > 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v0_one_block<T>), v);
}

/*
 * v1  One block per batch.
 * Was:   v0 walks through the batches one after the other.
 * Now:   a block for each; the rest is v0's.
 * Cost:  as v0, on all processors.
 * Left:  the lanes of a warp still read M elements apart -> v2.
 */
template <typename T>
__global__ void
mean_matvec_v1_block_per_batch(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_thread(v, n);
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v1(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0,
                               (mean_matvec_v1_block_per_batch<T>), v);
}

/*
 * v2  Coalesced rows, warp shuffle.
 * Was:   v1's lanes each walk along a row of their own.
 * Now:   a warp takes a row; its lanes read neighbours, and shuffles add their sums.
 * Cost:  reads x once in whole sectors; the product is v1's.
 * Left:  the product of an output takes eight barriers -> v3.
 */
template <typename T>
__global__ void
mean_matvec_v2_warp_per_row(mean_matvec_view<T> v)
{
    GPO_SHARED(value_type<T>, s, [BLOCK]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_warp(v, n);
        __syncthreads();
        product_by_tree(v, n, s);
    }
}

template <typename T>
static gpo_status
mean_matvec_v2(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status
               ? status
               : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v2_warp_per_row<T>), v);
}

/*
 * v3  Two-stage shuffle for the product.
 * Was:   v2 adds up the terms of an output in shared memory, in seven steps.
 * Now:   each warp adds its 32 in registers, then one warp adds the warps' sums; the
 *        sums of two outputs in turn have places of their own, so that one barrier per
 *        output is enough.
 * Cost:  as v2 with one barrier per output and BLOCK / 32 shared values.
 * Left:  every batch reads the whole matrix, N * L2 * L values in all -> v4.
 */
template <typename T>
__global__ void
mean_matvec_v3_two_stage(mean_matvec_view<T> v)
{
    constexpr int WARPS = BLOCK / WARP;
    GPO_SHARED(value_type<T>, slots, [2][WARPS]);
    for (int64_t n = blockIdx.x; n < v.batches; n += gridDim.x) {
        means_by_warp(v, n);
        __syncthreads();
        for (int64_t i = 0; i < v.outputs; i++) {
            const value_type<T> sum =
                block_combine<add, BLOCK>(product_share(v, i, n), slots[i % 2]);
            if (threadIdx.x == 0) {
                v.put(i, n, sum);
            }
        }
        __syncthreads();
    }
}

template <typename T>
static gpo_status
mean_matvec_v3(gpo_call *call)
{
    mean_matvec_view<T> v;
    const gpo_status status = view_of(call, &v);
    const dim3 grid = grid_of(v.outputs > 0 ? v.batches : 0);
    return status ? status
                  : GPO_LAUNCH(call, grid, BLOCK, 0, (mean_matvec_v3_two_stage<T>), v);
}

/*
 * v4  Mean kernel, then a GEMM.
 * Was:   v3 reads the whole matrix for each batch, one value per multiplication.
 * Now:   one kernel streams x, 8 loads of 16 bytes in flight per thread, the next ones
 *        started before the sums of these meet; a second one multiplies tiles of 64
 *        outputs by 64 batches, 2 x 8 of them in the registers of a thread, or in float64
 *        32 x 16 in those of a warp, by tensor cores.
 * Cost:  reads x once; the means once written and read L2 / 64 times; the matrix N / 64
 *        times, out of L2.
 * Left:  the memory rests while the product runs -> v5.
 */
template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_v4_means(mean_matvec_view<T> v, row_walk walk, int64_t items)
{
    for (int64_t k = blockIdx.x; k < items; k += gridDim.x) {
        stream_item(v, walk, k / walk.streams, static_cast<unsigned>(k % walk.streams));
    }
}

template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_v4_product(mean_matvec_view<T> v, int64_t across, int64_t tiles)
{
    GPO_DYN_SHARED(product_stages<value_type<T>>, stages);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int64_t output = tile % across * TILE_OUTPUTS;
        const int64_t batch = tile / across * TILE_BATCHES;
        product_tile(v, output, batch, *stages);
    }
}

/*
 * The walk over x.  An item is as long as keeps all processors busy, and as is needed
 * for a tile of batches to have fewer than 2^30.
 */
template <typename T>
static row_walk
walk_of(const gpo_call *call, const mean_matvec_view<T> &v)
{
    constexpr int64_t SIZE = pack<T>::SIZE, MOST = 1 << 24;
    row_walk walk = {};
    walk.packed = v.x_col == 1 || v.cols <= 1;
    walk.even = reinterpret_cast<uintptr_t>(v.x) % 16 == 0 && v.x_batch % SIZE == 0 &&
                v.x_row % SIZE == 0 && v.cols % SIZE == 0;
    const int64_t packs = ceil_div(v.cols, SIZE);
    walk.lanes = FEWEST_LANES;
    while (walk.lanes < WARP && walk.lanes * SLOTS < packs) {
        walk.lanes *= 2;
    }
    while (1 << walk.shift < SLOTS && walk.lanes << walk.shift < packs) {
        walk.shift++;
    }
    walk.chunks = packs > 0 ? ceil_div(packs, walk.lanes << walk.shift) : 1;
    walk.per_step = THREADS / walk.lanes * (SLOTS >> walk.shift);
    walk.full = walk.even && packs == walk.chunks * (walk.lanes << walk.shift);
    for (int u = 0; u < SLOTS; u++) {
        const int64_t row = (u >> walk.shift) * (THREADS / walk.lanes);
        const int64_t pack = (u & ((1 << walk.shift) - 1)) * walk.lanes;
        walk.jump[u] = row * v.x_row + pack * SIZE;
    }

    const int64_t most = v.batches < TILE_BATCHES ? v.batches : TILE_BATCHES;
    const bool gapless = v.x_batch == v.rows * v.x_row;
    walk.span_batches = gapless ? most : 1;
    const int64_t span = walk.span_batches * v.rows;
    const int64_t share =
        ceil_div(v.batches * v.rows, walk.per_step) / (gpo_processors(call) * BLOCKS);
    int64_t per_item = walk.per_step * (share < 1 ? 1 : share < STEPS ? share : STEPS);
    while (ceil_div(span, per_item) > MOST) { /* means for 2^54 rows are never had */
        per_item *= 2;
    }
    walk.per_item = static_cast<int>(per_item);
    walk.per_span = static_cast<unsigned>(ceil_div(span, walk.per_item));
    walk.streams = walk.per_span * static_cast<unsigned>(most / walk.span_batches);
    return walk;
}

template <typename T>
static gpo_status
mean_matvec_v4(gpo_call *call)
{
    mean_matvec_view<T> v;
    gpo_status status = view_of(call, &v);
    if (status || v.batches * v.outputs == 0) {
        return status;
    }
    const row_walk walk = walk_of(call, v);
    const int64_t down = ceil_div(v.batches, TILE_BATCHES);
    const int64_t across = ceil_div(v.outputs, TILE_OUTPUTS);
    const int64_t items = down * walk.streams, tiles = down * across;
    status = GPO_LAUNCH(call, grid_of(items), THREADS, 0, (mean_matvec_v4_means<T>), v,
                        walk, items);
    constexpr int SHARED = sizeof(product_stages<value_type<T>>);
    gpo_allow_shared(mean_matvec_v4_product<T>, SHARED);
    return status ? status
                  : GPO_LAUNCH(call, grid_of(tiles), THREADS, SHARED,
                               (mean_matvec_v4_product<T>), v, across, tiles);
}

/*
 * v5  The product runs while the others stream.
 * Was:   v4 reads memory, then computes; its means wait for the last row of x.
 * Now:   one launch; blocks take items of work in order from a queue: 128 KiB of x, or a
 *        tile of the product, which comes so many items after its batches that they are
 *        rarely waited for.  A ticket per tile of batches counts the items that are
 *        done.  An item only ever waits for earlier ones, and those are with blocks that
 *        run, so none waits for ever; what an item computes does not depend on who does
 *        it when.
 * Cost:  as v4 with one launch and the product hidden behind the stream, but for the
 *        tiles of the last batches; an atomic per item.
 * Left:  a block that waits for its means to be seen loads no rows meanwhile: where rows
 *        are long and the product is short, v4 is faster.
 */
struct work_queue {
    unsigned items;     /* of this launch */
    unsigned tiles;     /* of batches */
    unsigned lag;       /* tiles of batches that a product comes later */
    unsigned streams;   /* items of x of a tile of batches */
    unsigned products;  /* items of the product of a tile of batches */
    int64_t first_tile; /* of this launch */
    int64_t rows_per_tile;
};

struct work_item {
    bool product;
    unsigned tile, part;
};

/* Item k: streams of the first `lag` tiles, then both kinds in turn, then products. */
__device__ __forceinline__ work_item
item_at(const work_queue &q, unsigned k)
{
    const unsigned both = q.streams + q.products;
    const unsigned early = q.lag * q.streams, middle = (q.tiles - q.lag) * both;
    if (k < early) {
        return {false, k / q.streams, k % q.streams};
    }
    k -= early;
    if (k < middle) {
        const unsigned tile = k / both, part = k % both;
        return part < q.streams ? work_item{false, tile + q.lag, part}
                                : work_item{true, tile, part - q.streams};
    }
    k -= middle;
    return {true, q.tiles - q.lag + k / q.products, k % q.products};
}

template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_v5_fused(mean_matvec_view<T> v, row_walk walk, work_queue q,
                         unsigned *tickets)
{
    GPO_DYN_SHARED(product_stages<value_type<T>>, stages);
    GPO_SHARED(unsigned, taken, [2]); /* the item in hand and the next one */
    unsigned *done = tickets + 1;
    const unsigned last_take =
        q.items + gridDim.x - 1; /* each block takes one too many */
    const unsigned last_done = q.streams + q.products - 1;

    if (threadIdx.x == 0) {
        taken[0] = atomicInc(tickets, last_take);
    }
    __syncthreads();
    while (taken[0] < q.items) {
        const work_item item = item_at(q, taken[0]);
        const int64_t tile = q.first_tile + item.tile;
        if (item.product) {
            if (threadIdx.x == 0) {
                while (atomicAdd(&done[item.tile], 0) < q.streams) {
                    __nanosleep(100);
                }
            }
            __syncthreads();
            __threadfence();
            product_tile(v, static_cast<int64_t>(item.part) * TILE_OUTPUTS,
                         tile * TILE_BATCHES, *stages);
            if (threadIdx.x == 0) {
                taken[1] = atomicInc(tickets, last_take);
            }
        }
        else {
            if (threadIdx.x == 0) { /* its answer comes while x is read */
                taken[1] = atomicInc(tickets, last_take);
            }
            stream_item(v, walk, tile, item.part);
            __threadfence();
            __syncthreads();
        }
        if (threadIdx.x == 0) { /* all are done; the last item leaves the ticket at 0 */
            atomicInc(&done[item_at(q, taken[0]).tile], last_done);
            taken[0] = taken[1];
        }
        __syncthreads();
    }
}

constexpr int64_t MOST_ITEMS = 1 << 30; /* of a launch: they are numbered by unsigned */

template <typename T>
static gpo_status
mean_matvec_v5(gpo_call *call)
{
    mean_matvec_view<T> v;
    unsigned *tickets = nullptr;
    gpo_status status = view_of(call, &v);
    if (status || v.batches * v.outputs == 0) {
        return status;
    }
    const row_walk walk = walk_of(call, v);
    const int64_t blocks = gpo_processors(call) * BLOCKS;
    const int64_t all_tiles = ceil_div(v.batches, TILE_BATCHES);
    const int64_t streams = walk.streams, products = ceil_div(v.outputs, TILE_OUTPUTS);
    const int64_t fits = MOST_ITEMS / (streams + products);
    const int64_t per_launch = fits < GPO_TICKETS - 1 ? fits : GPO_TICKETS - 1;
    /* Items that blocks hold, the ones they took ahead included. */
    const int64_t lag = streams > 0 ? ceil_div(2 * blocks, streams) + 1 : 1;
    constexpr int SHARED = sizeof(product_stages<value_type<T>>);
    gpo_allow_shared(mean_matvec_v5_fused<T>, SHARED);
    status = gpo_tickets(call, &tickets);
    for (int64_t tile = 0; !status && tile < all_tiles; tile += per_launch) {
        const int64_t left = all_tiles - tile;
        const int64_t tiles = left < per_launch ? left : per_launch;
        const work_queue q = {static_cast<unsigned>(tiles * (streams + products)),
                              static_cast<unsigned>(tiles),
                              static_cast<unsigned>(lag < tiles ? lag : tiles),
                              static_cast<unsigned>(streams),
                              static_cast<unsigned>(products),
                              tile,
                              TILE_BATCHES * v.rows};
        const dim3 grid(static_cast<unsigned>(q.items < blocks ? q.items : blocks));
        status = GPO_LAUNCH(call, grid, THREADS, SHARED, (mean_matvec_v5_fused<T>), v,
                            walk, q, tickets);
    }
    return status;
}

/* ---- table and choice ---- */

/* Integers and bools arrive as float64, see op.c. */
#define REAL(f)                                                                 \
    {                                                                           \
        nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
            nullptr, f<f16>, f<bf16>, f<float>, f<double>, nullptr, nullptr     \
    }

static const gpo_variant variants[] = {
    {"v0", "one block", "", "run-to-run", REAL(mean_matvec_v0)},
    {"v1", "one block per batch", "", "run-to-run", REAL(mean_matvec_v1)},
    {"v2", "coalesced rows, warp shuffle", "", "run-to-run", REAL(mean_matvec_v2)},
    {"v3", "two-stage shuffle for the product", "", "run-to-run", REAL(mean_matvec_v3)},
    {"v4", "mean kernel, then a GEMM", "", "run-to-run", REAL(mean_matvec_v4)},
    {"v5", "the product runs while the others stream", "", "run-to-run",
     REAL(mean_matvec_v5)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* By times on an H200, benchmarks/results/h200-mean_matvec.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    constexpr int64_t SHORT = 128; /* elements of a mean */
    const gpo_array *x = &call->in[0];
    if (x->shape[2] <= SHORT) {
        snprintf(why, GPO_MESSAGE,
                 "means of %d elements or fewer: v5 hides the product behind them",
                 static_cast<int>(SHORT));
        return &variants[5];
    }
    snprintf(why, GPO_MESSAGE, "v4 reads x in one kernel at the speed of memory");
    return &variants[4];
}

extern "C" const gpo_table mean_matvec_cuda = {variants, choose};
