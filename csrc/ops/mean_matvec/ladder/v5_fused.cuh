/*
 * v5  The product runs while other blocks stream.
 * Was:   v4 reads memory, then computes; its product waits for the last row of x.
 * Now:   one launch; blocks take items of work in order from a queue: 128 KiB of x, or
 *        a tile of the product, which comes enough items after its batches that it
 *        rarely waits for them.  A ticket per tile of batches counts the finished
 *        items.  An item waits only for earlier ones, which running blocks hold, so
 *        there is no deadlock; what an item computes does not depend on which block
 *        runs it, or when.
 * Cost:  as v4 with one launch and the product hidden behind the stream, except for the
 *        tiles of the last batches; an atomic per item.
 * Measured: N1024 L512 M512 float64 0.531 ms, v4 0.502; N16384 L256 M64 float32 0.321,
 *        v4 0.338 (benchmarks/results/h200-mean_matvec.json): the hidden time must
 *        exceed the cost of waiting.
 * Left:  a block that waits for its means to become visible loads no rows meanwhile:
 *        with long rows and a short product, v4 is faster.
 */
#ifndef GPO_MEAN_MATVEC_V5_FUSED_CUH
#define GPO_MEAN_MATVEC_V5_FUSED_CUH

#include "../product.cuh"
#include "../walk.cuh"

/* Of doubles two stages: with three L1 has no room for the loads of x in flight. */
template <typename V>
using fused_stages =
    product_stages<V, TILE_OUTPUTS, TILE_BATCHES, sizeof(V) == 8 ? RING - 1 : RING>;

struct work_queue {
    unsigned items;     /* of this launch */
    unsigned tiles;     /* of batches */
    unsigned lag;       /* tiles of batches between a tile's rows and its product */
    unsigned streams;   /* items of x per tile of batches */
    unsigned products;  /* items of the product per tile of batches */
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
    GPO_DYN_SHARED(fused_stages<value_type<T>>, stages);
    GPO_SHARED(unsigned, taken, [2]); /* the current item and the next one */
    unsigned *done = tickets + 1;
    const unsigned last_take =
        q.items + gridDim.x - 1; /* each block takes one past the last */
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
            product_tile<TILE_OUTPUTS, TILE_BATCHES>(
                v, static_cast<int64_t>(item.part) * TILE_OUTPUTS, tile * TILE_BATCHES,
                *stages);
            if (threadIdx.x == 0) {
                taken[1] = atomicInc(tickets, last_take);
            }
        }
        else {
            if (threadIdx.x == 0) { /* completes while x is read */
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

constexpr int64_t MOST_ITEMS = 1 << 30; /* per launch: they are numbered by unsigned */

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
    const row_walk walk = walk_of(call, pack<T>::SIZE);
    const int64_t blocks = gpo_processors(call) * BLOCKS;
    const int64_t all_tiles = ceil_div(v.batches, TILE_BATCHES);
    const int64_t streams = walk.streams, products = ceil_div(v.outputs, TILE_OUTPUTS);
    const int64_t fits = MOST_ITEMS / (streams + products);
    const int64_t per_launch = fits < GPO_TICKETS - 1 ? fits : GPO_TICKETS - 1;
    /* At least the items that blocks hold, including those taken ahead. */
    const int64_t lag = streams > 0 ? ceil_div(2 * blocks, streams) + 1 : 1;
    constexpr int SHARED = sizeof(fused_stages<value_type<T>>);
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

#endif
