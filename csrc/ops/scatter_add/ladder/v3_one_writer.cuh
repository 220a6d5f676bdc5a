/*
 * v3  One writer per table, no atomics.
 * Was:   many threads write each of v2's copies.
 * Now:   each warp has a table and takes its elements in order.  Lanes with the same
 *        place find each other by __match_any_sync; the lowest adds their values in
 *        lane order, and it alone writes (device/ordered_sums.cuh).  Tables are summed
 *        in order: the same bits each run.
 * Cost:  reads every value and index once per tile of places.  A tile is what four
 *        tables in 48 KB hold: 1,536 places of 8 bytes.
 * Left:  a long result takes many tiles -> v4.
 */
#ifndef GPO_SCATTER_ADD_V3_ONE_WRITER_CUH
#define GPO_SCATTER_ADD_V3_ONE_WRITER_CUH

#include "../copies.cuh"

constexpr int ORDERED_WARPS = ORDERED_BLOCK / WARP;

template <typename Sum>
constexpr int64_t TILE_PLACES = TABLES_BYTES /
                                static_cast<int64_t>(ORDERED_WARPS * sizeof(Sum));

template <typename Input, typename Sum>
__global__ void
__launch_bounds__(ORDERED_BLOCK)
    scatter_add_v3_one_writer(Input x, Sum *copies, int64_t first_tile, int64_t width,
                              int64_t per_warp)
{
    GPO_DYN_SHARED(Sum, tables);
    const int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP;
    const int64_t first = (first_tile + blockIdx.y) * width;
    const int64_t places = x.size - first < width ? x.size - first : width;
    Sum *const table = tables + warp * width;
    for (int64_t b = lane; b < places; b += WARP) {
        table[b] = Sum{};
    }
    __syncwarp();

    const int64_t start =
        (static_cast<int64_t>(blockIdx.x) * ORDERED_WARPS + warp) * per_warp;
    const int64_t end = start + per_warp < x.n ? start + per_warp : x.n;
    for (int64_t base = start; base < end; base += WARP * STEPS_AT_ONCE) {
        Sum v[STEPS_AT_ONCE];
        int b[STEPS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < STEPS_AT_ONCE; u++) {
            const int64_t i = base + u * WARP + lane;
            int64_t at = -1;
            v[u] = Sum{};
            if (i < end) {
                at = x.place(x.raw(i), i) - first;
                v[u] = x.lift(x.values[i * x.values_stride]);
            }
            b[u] = at >= 0 && at < places ? static_cast<int>(at) : -1;
        }
#pragma unroll
        for (int u = 0; u < STEPS_AT_ONCE; u++) {
            add_in_order(table, b[u], v[u], lane);
        }
    }
    __syncthreads();

    for (int64_t b = tid; b < places; b += ORDERED_BLOCK) {
        Sum sum = tables[b];
        for (int w = 1; w < ORDERED_WARPS; w++) {
            sum = sum + tables[w * width + b];
        }
        copies[blockIdx.x * x.size + first + b] = sum;
    }
}

struct scatter_add_v3 {
    static constexpr bool DETERMINISTIC = true;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        constexpr int64_t MOST = TILE_PLACES<Sum>;
        const int64_t width = x.size < MOST ? x.size : MOST;
        const int64_t tiles = width > 0 ? ceil_div(x.size, width) : 1;
        const int64_t items = clamp(x.size / 4, ORDERED_ITEMS, MOST_ORDERED);
        const int64_t blocks = clamp(ceil_div(x.n, ORDERED_WARPS * items), 1,
                                     ORDERED_BLOCKS * gpo_processors(call));
        const int64_t copy_bytes = x.size * static_cast<int64_t>(sizeof(Sum));
        const int64_t count = copies_of(copy_bytes, blocks);
        const int64_t step = WARP * STEPS_AT_ONCE;
        const int64_t per_warp = ceil_div(x.n, count * ORDERED_WARPS * step) * step;
        const int64_t bytes = count * copy_bytes;
        void *copies = nullptr;
        gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &copies);
        if (!status) {
            status = clear(call, nullptr, 0, x.fresh);
        }
        for (int64_t tile = 0; tile < tiles && !status; tile += MAX_GRID_YZ) {
            const dim3 grid(static_cast<unsigned>(count),
                            static_cast<unsigned>(clamp(tiles - tile, 0, MAX_GRID_YZ)));
            status = GPO_LAUNCH(call, grid, ORDERED_BLOCK,
                                ORDERED_WARPS * width * sizeof(Sum),
                                (scatter_add_v3_one_writer<Input, Sum>), x,
                                static_cast<Sum *>(copies), tile, width, per_warp);
        }
        return status
                   ? status
                   : sum_copies(call, static_cast<Sum *>(copies), count, x.size, total);
    }
};

#endif
