/*
 * few_tiles.cu  Long sums for few results: v4's tiles of 64 by 64 would leave most SMs
 * idle, so several blocks share the depth of each.  The last of them to finish adds
 * their sums, in the order of the depth.
 * Cost:  reads the matrix N / 64 times and the means L2 / 64 times, as v4 does; writes
 *        and reads a tile of sums per block, in L2.
 */
#include "../product.cuh"
#include "../short_rows.cuh"

template <typename V>
struct shared_depth {
    int64_t length; /* terms of a block, in whole stages */
    int splits;
    V *part; /* sums of split s of tile t: from (t * splits + s) * TILE_SUMS on */
    unsigned *tickets;
};

constexpr int TILE_SUMS = TILE_OUTPUTS * TILE_BATCHES;

template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    mean_matvec_few_tiles_product(mean_matvec_view<T> v, int64_t across,
                                  shared_depth<value_type<T>> s)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(product_stages<V>, stages);
    GPO_SHARED(bool, last, [1]);
    const int64_t tile = blockIdx.x / s.splits, split = blockIdx.x - tile * s.splits;
    const int64_t output = tile % across * TILE_OUTPUTS;
    const int64_t batch = tile / across * TILE_BATCHES;
    const int64_t begin = split * s.length, rest = v.rows - begin;
    const V *const sums = sum_tile(
        v, output, batch, begin, begin + (rest < s.length ? rest : s.length), *stages);
    V *const parts = s.part + tile * s.splits * TILE_SUMS;
    for (int e = threadIdx.x; e < TILE_SUMS; e += THREADS) {
        parts[split * TILE_SUMS + e] =
            sums[e / TILE_BATCHES * TILE_PITCH + e % TILE_BATCHES];
    }
    if (!is_last_block(&s.tickets[tile], static_cast<unsigned>(s.splits), last)) {
        return;
    }
    each_of_tile(v, output, batch, [&](int i, int n) {
        const V *const part = parts + i * TILE_BATCHES + n;
        V total = part[0];
#pragma unroll 8
        for (int k = 1; k < s.splits; k++) {
            total += part[k * TILE_SUMS];
        }
        v.put(output + i, batch + n, total);
    });
}

/* ---- launch ---- */

template <typename T>
static gpo_status
multiply(gpo_call *call, const mean_matvec_view<T> &v)
{
    using V = value_type<T>;
    constexpr int SHARED = sizeof(product_stages<V>);
    constexpr int64_t STAGE = tile_factors<T>::STAGE;
    const int64_t across = ceil_div(v.outputs, TILE_OUTPUTS);
    const int64_t tiles = across * ceil_div(v.batches, TILE_BATCHES);
    const int64_t stages = ceil_div(v.rows, STAGE);
    const int64_t each = stages > 0 ? ceil_div(stages, splits_of(call)) : 1;
    shared_depth<V> s = {};
    s.length = each * STAGE;
    s.splits = stages > 0 ? static_cast<int>(ceil_div(stages, each)) : 1;
    void *part = nullptr;
    gpo_status status = gpo_scratch(
        call, static_cast<size_t>(tiles * s.splits * TILE_SUMS) * sizeof(V), &part);
    if (!status) {
        status = gpo_tickets(call, &s.tickets);
    }
    s.part = static_cast<V *>(part);
    gpo_allow_shared(mean_matvec_few_tiles_product<T>, SHARED);
    return status ? status
                  : GPO_LAUNCH(call, grid_of(tiles * s.splits), THREADS, SHARED,
                               (mean_matvec_few_tiles_product<T>), v, across, s);
}

template <typename T>
gpo_status
mean_matvec_few_tiles(gpo_call *call)
{
    mean_matvec_view<T> v = view_without_means<T>(call);
    if (v.batches * v.outputs == 0) {
        return GPO_OK;
    }
    gpo_status status = GPO_OK;
    if (v.rows > 0 && (has_short_rows(call) || pads_factors(call))) {
        status = mean_matvec_pad_factors(call, &v);
    }
    else {
        status = view_of(call, &v);
        status = status ? status : mean_matvec_find_means(call, v);
    }
    return status ? status : multiply(call, v);
}

#define INSTANTIATE(T) template gpo_status mean_matvec_few_tiles<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
