/*
 * few_tiles.cu  Products whose tiles of 64 by 64, v4's, are too few to fill the GPU or
 * mostly padding: tiles of 16 or 32 batches for few of them, larger ones for many, and
 * several blocks share the depth of a tile.  A second kernel adds their sums, in the
 * order of the depth.
 * Cost:  reads the matrix once for all batches of a tile, and the means once for all its
 *        outputs; writes and reads a result per split, in L2.
 */
#include "../splits.cuh"
#include "../../../device/follow.cuh"

template <typename T, int OUTPUTS, int BATCHES>
__global__ void
__launch_bounds__(THREADS, blocks_of_tile(OUTPUTS, BATCHES))
    mean_matvec_few_tiles_product(mean_matvec_view<T> v, int64_t across, int64_t blocks,
                                  shared_depth<value_type<T>> s)
{
    using product = product_stages<value_type<T>, OUTPUTS, BATCHES>;
    GPO_DYN_SHARED(product, stages);
    /* The largest tile of doubles has no registers left for it. */
    constexpr bool CAN = sizeof(value_type<T>) < 8 || OUTPUTS <= 64;
    const bool ahead = CAN && s.ahead;
    let_next_start();
    if (!ahead) {
        wait_for_before();
    }
    each_share<OUTPUTS, BATCHES>(v, across, blocks, s, [&](const tile_share &share) {
        put_share<OUTPUTS, BATCHES>(
            v, s, share,
            sum_tile<OUTPUTS, BATCHES>(v, share.output, share.batch, share.begin,
                                       share.end, *stages, ahead));
    });
}

template <typename T>
__global__ void
__launch_bounds__(THREADS)
    mean_matvec_few_tiles_sum(mean_matvec_view<T> v, shared_depth<value_type<T>> s)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * THREADS;
    wait_for_before();
    for (int64_t e = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
         e < s.all; e += step) {
        value_type<T> total = s.part[e];
#pragma unroll 8
        for (int64_t k = 1; k < s.splits; k++) {
            total += s.part[k * s.all + e];
        }
        const int64_t line = s.per_line.of(e), at = e - line * s.per_line.by;
        v.put(s.along_outputs ? at : line, s.along_outputs ? line : at, total);
    }
}

/* ---- launch ---- */

/*
 * Shared memory that keeps all but `per_sm` blocks off an SM: those that start while means
 * are still found would go where there is room, several to one SM and none to others.
 */
static int64_t
shared_of_few(const gpo_call *call, int64_t per_sm)
{
    constexpr int64_t RESERVED = 1024; /* of an SM, for each block */
    return (gpo_shared_room(call) + RESERVED) / (per_sm + 1) / 16 * 16;
}

template <int KIND, typename T>
static gpo_status
multiply(gpo_call *call, const mean_matvec_view<T> &v,
         const shared_depth<value_type<T>> &s)
{
    using V = value_type<T>;
    constexpr tile_kind SIZE = TILE_KINDS[sizeof(V) == 8][KIND];
    constexpr int SHARED = sizeof(product_stages<V, SIZE.outputs, SIZE.batches>);
    static_assert(SHARED == stage_bytes(SIZE, sizeof(V) == 8),
                  "the plan knows what a tile needs");
    const int64_t across = ceil_div(v.outputs, int64_t{SIZE.outputs});
    const int64_t blocks =
        across * ceil_div(v.batches, int64_t{SIZE.batches}) * s.splits;
    const int64_t per_sm = ceil_div(blocks, int64_t{gpo_processors(call)});
    const int64_t few = per_sm < SIZE.blocks ? shared_of_few(call, per_sm) : 0;
    const size_t shared = static_cast<size_t>(few > SHARED ? few : SHARED);
    gpo_allow_shared(mean_matvec_few_tiles_product<T, SIZE.outputs, SIZE.batches>,
                     shared);
    return GPO_FOLLOW(call, v.rows > 0, grid_of(blocks), THREADS, shared,
                      (mean_matvec_few_tiles_product<T, SIZE.outputs, SIZE.batches>), v,
                      across, blocks, s);
}

template <typename T>
static gpo_status
multiply_kind(gpo_call *call, const mean_matvec_view<T> &v, int kind,
              const shared_depth<value_type<T>> &s)
{
    if constexpr (std::is_same_v<T, double>) {
        if (kind == SMALL_KIND) {
            return multiply<SMALL_KIND>(call, v, s);
        }
    }
    return kind == 0   ? multiply<0>(call, v, s)
           : kind == 1 ? multiply<1>(call, v, s)
           : kind == 2 ? multiply<2>(call, v, s)
                       : multiply<3>(call, v, s);
}

template <typename T>
static gpo_status
multiply_in_tiles(gpo_call *call, const mean_matvec_view<T> &v, const tile_plan &plan)
{
    using V = value_type<T>;
    constexpr int64_t STAGE = STAGE_PACKS<V> * pack<V>::SIZE;
    const int64_t stages = ceil_div(v.rows, STAGE);
    const int64_t each = stages > 0 ? ceil_div(stages, plan.splits) : 1;
    shared_depth<V> s = {};
    s.length = each * STAGE;
    s.splits = plan.in_clusters ? plan.splits : stages > 0 ? ceil_div(stages, each) : 1;
    s.in_clusters = plan.in_clusters;
    s.ahead = v.matrix == call->in[1].data;
    s.all = v.outputs * v.batches;
    s.along_outputs = v.out_output == 1 && v.out_batch != 1;
    s.per_line = divider_of(s.along_outputs ? v.outputs : v.batches);
    void *part = nullptr;
    gpo_status status = GPO_OK;
    if (s.splits > 1 && !s.in_clusters) {
        const size_t sums = static_cast<size_t>(s.splits * s.all);
        status = gpo_scratch(call, sums * sizeof(V), &part);
    }
    s.part = static_cast<V *>(part);
    if constexpr (!std::is_same_v<T, double>) {
        if (!status && plan.unit == TENSOR_CORES) {
            status = mean_matvec_tensor_product(call, v, plan.kind, s);
        }
        if (!status && plan.unit == WARPGROUPS) {
            status = mean_matvec_warpgroup_product(call, v, plan.kind, s);
        }
    }
    if constexpr (std::is_same_v<T, float>) {
        if (!status && plan.unit == ORDINARY && s.in_clusters) {
            return mean_matvec_cluster_product(call, v, plan.kind, s);
        }
    }
    if (!status && plan.unit == ORDINARY) {
        status = multiply_kind(call, v, plan.kind, s);
    }
    if (status || s.splits == 1 || s.in_clusters) {
        return status;
    }
    return GPO_FOLLOW(call, true, grid_of(ceil_div(s.all, int64_t{THREADS})), THREADS,
                      0, (mean_matvec_few_tiles_sum<T>), v, s);
}

template <typename T>
gpo_status
mean_matvec_multiply(gpo_call *call, const mean_matvec_view<T> &v,
                     const product_plan &plan)
{
    if (plan.batches == 0) {
        return multiply_in_tiles(call, v, plan.tiles);
    }
    mean_matvec_view<T> first = v, rest = v;
    first.batches = plan.batches;
    rest.batches = v.batches - plan.batches;
    rest.means += plan.batches * v.rows;
    rest.out += plan.batches * v.out_batch;
    const gpo_status status = multiply_in_tiles(call, first, plan.tiles);
    return status ? status : multiply_in_tiles(call, rest, plan.rest);
}

template <typename T>
gpo_status
mean_matvec_planned(gpo_call *call, bool pads, const product_plan &plan)
{
    mean_matvec_view<T> v = view_without_means<T>(call);
    if (v.batches * v.outputs == 0) {
        return GPO_OK;
    }
    gpo_status status = GPO_OK;
    if (v.rows > 0 && pads) {
        status = mean_matvec_pad_factors(call, &v);
    }
    else {
        status = view_of(call, &v);
        status = status ? status : mean_matvec_find_means(call, v);
    }
    return status ? status : mean_matvec_multiply(call, v, plan);
}

template <typename T>
gpo_status
mean_matvec_few_tiles(gpo_call *call)
{
    const factors_plan factors = plan_factors(call);
    return mean_matvec_planned<T>(call, factors.pads, factors.product);
}

#define INSTANTIATE(T)                                                     \
    template gpo_status mean_matvec_few_tiles<T>(gpo_call * call);         \
    template gpo_status mean_matvec_planned<T>(gpo_call * call, bool pads, \
                                               const product_plan &plan);  \
    template gpo_status mean_matvec_multiply<T>(                           \
        gpo_call * call, const mean_matvec_view<T> &v, const product_plan &plan);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
