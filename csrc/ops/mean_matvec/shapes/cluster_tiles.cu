/*
 * cluster_tiles.cu  few_tiles where up to 8 blocks share the depth of a tile and are a
 * cluster (sm_90a): they add their sums in shared memory, in the order of the depth.
 * Cost:  as few_tiles, without the sums in L2 and their launch.
 */
#include "../clusters.cuh"

template <typename T, int OUTPUTS, int BATCHES>
__global__ void
__launch_bounds__(THREADS, blocks_of_tile(OUTPUTS, BATCHES))
    mean_matvec_cluster_tiles_product(mean_matvec_view<T> v, int64_t across,
                                      int64_t blocks, shared_depth<value_type<T>> s)
{
#ifdef GPO_HOPPER
    using product = product_stages<value_type<T>, OUTPUTS, BATCHES>;
    GPO_DYN_SHARED(product, stages);
    each_share<OUTPUTS, BATCHES>(v, across, blocks, s, [&](const tile_share &share) {
        const value_type<T> *const sums = sum_tile<OUTPUTS, BATCHES>(
            v, share.output, share.batch, share.begin, share.end, *stages);
        put_sums_of_cluster<OUTPUTS, BATCHES>(
            v, s, share, shared_tile<value_type<T>>{sums, product::PITCH, 1});
    });
#endif
}

/* ---- launch ---- */

template <int KIND, typename T>
static gpo_status
multiply_in_clusters(gpo_call *call, const mean_matvec_view<T> &v,
                     const shared_depth<value_type<T>> &s)
{
    using V = value_type<T>;
    constexpr tile_kind SIZE = TILE_KINDS[sizeof(V) == 8][KIND];
    constexpr int SHARED = sizeof(product_stages<V, SIZE.outputs, SIZE.batches>);
    const int64_t across = ceil_div(v.outputs, int64_t{SIZE.outputs});
    const int64_t blocks =
        across * ceil_div(v.batches, int64_t{SIZE.batches}) * s.splits;
    gpo_allow_shared(mean_matvec_cluster_tiles_product<T, SIZE.outputs, SIZE.batches>,
                     SHARED);
    return GPO_LAUNCH_CLUSTERS(
        call, static_cast<unsigned>(s.splits), grid_of(blocks), THREADS, SHARED,
        (mean_matvec_cluster_tiles_product<T, SIZE.outputs, SIZE.batches>), v, across,
        blocks, s);
}

template <typename T>
gpo_status
mean_matvec_cluster_product(gpo_call *call, const mean_matvec_view<T> &v, int kind,
                            const shared_depth<value_type<T>> &s)
{
    return kind == 0   ? multiply_in_clusters<0>(call, v, s)
           : kind == 1 ? multiply_in_clusters<1>(call, v, s)
           : kind == 2 ? multiply_in_clusters<2>(call, v, s)
                       : multiply_in_clusters<3>(call, v, s);
}

#define INSTANTIATE(T)                                           \
    template gpo_status mean_matvec_cluster_product<T>(          \
        gpo_call * call, const mean_matvec_view<T> &v, int kind, \
        const shared_depth<value_type<T>> &s);
INSTANTIATE(float)
