/*
 * one_writer.cu  Rows of one element for each of few destinations, deterministic and not
 * sorted: each warp has a table of float64 sums, to which it alone adds its rows, those of
 * one destination in their order.  Tables of a block, then those of blocks, are added up in
 * order and rounded to out once.
 * Cost:  reads the source and the index once; a match of lanes for each 32 rows; a table of
 *        each block, written and read.
 */
#include "../../../device/ordered_sums.cuh"
#include "../separate_sums.cuh"

template <typename T>
__global__ void
__launch_bounds__(WRITER_BLOCK)
    index_add_one_writer_kernel(index_add_view<T> a, double *copies, int64_t per_warp)
{
    constexpr int WARPS = WRITER_BLOCK / WARP, ITEMS = 4; /* rows of a lane in flight */
    GPO_DYN_SHARED(double, tables);
    const int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP;
    const int places = static_cast<int>(a.length);
    double *const table = tables + warp * places;
    for (int b = lane; b < places; b += WARP) {
        table[b] = 0;
    }
    __syncwarp();
    const int64_t start = (static_cast<int64_t>(blockIdx.x) * WARPS + warp) * per_warp;
    const int64_t end = start + per_warp < a.count ? start + per_warp : a.count;
    for (int64_t base = start; base < end; base += WARP * ITEMS) {
        int64_t entry[ITEMS] = {};
        T v[ITEMS] = {};
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            const int64_t s = base + u * WARP + lane;
            if (s < end) {
                entry[u] = entry_of(a.index, s);
                v[u] = a.source[s * a.by_row];
            }
        }
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            const int64_t s = base + u * WARP + lane;
            const int64_t k = s < end ? destination_of(a.index, entry[u], s) : -1;
            add_in_order(table, static_cast<int>(k), wide_scaled(v[u], a.wide_alpha),
                         lane);
        }
    }
    __syncthreads();
    for (int b = tid; b < places; b += WRITER_BLOCK) {
        double sum = tables[b];
        for (int w = 1; w < WARPS; w++) {
            sum += tables[w * places + b];
        }
        copies[blockIdx.x * a.length + b] = sum;
    }
}

struct index_add_writers {
    static constexpr index_add_traits TRAITS = {true, true, true, false};

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int64_t WARPS = WRITER_BLOCK / WARP;
        const int64_t most = int64_t{gpo_processors(call)} * WRITER_BLOCKS;
        const int64_t wanted = ceil_div(a.count, WARPS * WARP_ROWS);
        const int64_t blocks = wanted < most ? wanted : most;
        const int64_t per_warp = ceil_div(a.count, blocks * WARPS);
        const size_t table = static_cast<size_t>(a.length) * sizeof(double);
        void *memory = nullptr;
        gpo_status status =
            gpo_scratch(call, static_cast<size_t>(blocks + 1) * table, &memory);
        double *const sums = static_cast<double *>(memory);
        double *const copies = sums + a.length;
        if (!status) {
            gpo_allow_shared(index_add_one_writer_kernel<T>, WARPS * table);
            status = GPO_LAUNCH(call, grid_of(blocks), WRITER_BLOCK, WARPS * table,
                                (index_add_one_writer_kernel<T>), a, copies, per_warp);
        }
        if (!status) {
            status = sum_copies(call, copies, blocks, a.length, sums);
        }
        return status ? status : index_add_round_sums(call, a, {0, a.length}, sums);
    }
};

template <typename T>
gpo_status
index_add_one_writer(gpo_call *call)
{
    return index_add_with<index_add_writers, T>(call);
}

template gpo_status index_add_one_writer<f16>(gpo_call *call);
template gpo_status index_add_one_writer<bf16>(gpo_call *call);
template gpo_status index_add_one_writer<float>(gpo_call *call);
