/*
 * clusters.cuh  Tiles of the product whose depth the blocks of a cluster share: they
 * read each other's sums from shared memory, so there is no second launch.  For
 * shapes/cluster_tiles.cu and shapes/warpgroup_tiles.cu, on sm_90a.
 */
#ifndef GPO_MEAN_MATVEC_CLUSTERS_CUH
#define GPO_MEAN_MATVEC_CLUSTERS_CUH

#include "splits.cuh"
#include "../../device/hopper.cuh"

/* A value in the shared memory of a block of the cluster, at an address by peer_address. */
template <typename V>
__device__ __forceinline__ V
peer_value(uint32_t address)
{
    constexpr int WORDS = sizeof(V) / 4;
    uint32_t words[WORDS];
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        words[k] = load_peer(address + 4 * k);
    }
    V value;
    memcpy(static_cast<void *>(&value), words, sizeof(V));
    return value;
}

/*
 * Adds the sums of the cluster's blocks, a split each, in the order of the depth, and
 * stores the results: every block those of some lines.
 */
template <int OUTPUTS, int BATCHES, typename T>
__device__ __forceinline__ void
put_sums_of_cluster(const mean_matvec_view<T> &v, const shared_depth<value_type<T>> &s,
                    const tile_share &share, const shared_tile<value_type<T>> &tile)
{
    using V = value_type<T>;
    static_assert(THREADS % OUTPUTS == 0 && THREADS % BATCHES == 0, "whole lines");
    const int splits = static_cast<int>(s.splits);
    const int line = s.along_outputs ? OUTPUTS : BATCHES;
    const int lines = s.along_outputs ? BATCHES : OUTPUTS;
    const int64_t outputs = v.outputs - share.output, batches = v.batches - share.batch;
    const int64_t exist = s.along_outputs ? batches : outputs;
    const int end = static_cast<int>(exist < lines ? exist : lines);
    const int at = threadIdx.x % line, step = THREADS / line;
    const int along = s.along_outputs ? tile.per_output : tile.per_batch;
    const int across = s.along_outputs ? tile.per_batch : tile.per_output;
    cluster_sync(); /* all sums are in shared memory */
    if (at < (s.along_outputs ? outputs : batches)) {
        uint32_t from[MOST_IN_CLUSTER];
#pragma unroll
        for (int r = 0; r < MOST_IN_CLUSTER; r++) {
            from[r] = r < splits ? peer_address(shared_address(tile.sums), r) : 0;
        }
        for (int k = threadIdx.x / line + static_cast<int>(share.split) * step; k < end;
             k += step * splits) {
            const int place = (at * along + k * across) * static_cast<int>(sizeof(V));
            V part[MOST_IN_CLUSTER] = {};
#pragma unroll
            for (int r = 0; r < MOST_IN_CLUSTER; r++) {
                if (r < splits) {
                    part[r] = peer_value<V>(from[r] + place);
                }
            }
            V total = part[0];
#pragma unroll
            for (int r = 1; r < MOST_IN_CLUSTER; r++) {
                total += part[r];
            }
            v.put(share.output + (s.along_outputs ? at : k),
                  share.batch + (s.along_outputs ? k : at), total);
        }
    }
    cluster_sync(); /* before this block's memory is used again, or it ends */
}

#endif
