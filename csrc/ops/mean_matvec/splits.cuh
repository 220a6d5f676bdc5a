/*
 * splits.cuh  Tiles of the product whose depth several blocks share.  For
 * shapes/few_tiles.cu, which also adds their sums, shapes/tensor_tiles.cu and
 * shapes/warpgroup_tiles.cu.
 */
#ifndef GPO_MEAN_MATVEC_SPLITS_CUH
#define GPO_MEAN_MATVEC_SPLITS_CUH

#include "product.cuh"
#include "short_rows.cuh"
#include "../../device/divide.cuh"

template <typename V>
struct shared_depth {
    int64_t length; /* terms of a block, in whole stages */
    int64_t splits;
    int64_t all;        /* results */
    V *part;            /* those of split s: from s * all on, in the order of `out` */
    bool in_clusters;   /* the splits of a tile are a cluster's blocks; no part */
    bool ahead;         /* the matrix is an input, not a copy: see sum_tile */
    divider per_line;   /* results that lie beside each other */
    bool along_outputs; /* that is how they lie, else batches do */
};

/* A block's share of the depth of a tile: terms [begin, end). */
struct tile_share {
    int64_t output, batch, begin, end, split;
};

/* Calls f(share) for each of a block, of tiles of which `across` have all outputs. */
template <int OUTPUTS, int BATCHES, typename T, typename F>
__device__ __forceinline__ void
each_share(const mean_matvec_view<T> &v, int64_t across, int64_t blocks,
           const shared_depth<value_type<T>> &s, F f)
{
    for (int64_t k = blockIdx.x; k < blocks; k += gridDim.x) {
        const int64_t tile = k / s.splits, split = k - tile * s.splits;
        const int64_t begin = split * s.length, rest = v.rows - begin;
        f(tile_share{tile % across * OUTPUTS, tile / across * BATCHES, begin,
                     begin + (rest < s.length ? rest : s.length), split});
        __syncthreads(); /* before the next tile is staged */
    }
}

/* Sums of a tile in shared memory, and how far apart those of neighbours are. */
template <typename V>
struct shared_tile {
    const V *sums;
    int per_output, per_batch;
};

/*
 * Stores a tile; to[i * row + n * column] is its output i of batch n.  Adjacent threads
 * have adjacent outputs or batches, and each keeps its own.
 */
template <int OUTPUTS, int BATCHES, typename U, typename V>
__device__ __forceinline__ void
put_tile(const shared_tile<V> &tile, U *to, int64_t row, int64_t column,
         int64_t outputs, int64_t batches, bool along_outputs)
{
    static_assert(THREADS % OUTPUTS == 0 && THREADS % BATCHES == 0, "whole lines");
    const int line = along_outputs ? OUTPUTS : BATCHES;
    const int lines = along_outputs ? BATCHES : OUTPUTS;
    const int64_t exist = along_outputs ? batches : outputs;
    const int at = threadIdx.x % line, first = threadIdx.x / line;
    const int step = THREADS / line;
    if (at >= (along_outputs ? outputs : batches)) {
        return;
    }
    const int along = along_outputs ? tile.per_output : tile.per_batch;
    const int across = along_outputs ? tile.per_batch : tile.per_output;
    const V *from = tile.sums + at * along + first * across;
    const int64_t apart = along_outputs ? column : row;
    to += at * (along_outputs ? row : column) + first * apart;
    const int end = static_cast<int>(exist < lines ? exist : lines);
#pragma unroll 4
    for (int k = first; k < end; k += step) {
        *to = stored_as<U>(*from);
        to += step * apart;
        from += step * across;
    }
}

/* Stores the sums of a share: results, or parts of them. */
template <int OUTPUTS, int BATCHES, typename T>
__device__ __forceinline__ void
put_share(const mean_matvec_view<T> &v, const shared_depth<value_type<T>> &s,
          const tile_share &share, const shared_tile<value_type<T>> &tile)
{
    const int64_t outputs = v.outputs - share.output, batches = v.batches - share.batch;
    if (s.splits == 1) {
        put_tile<OUTPUTS, BATCHES>(
            tile, v.out + share.output * v.out_output + share.batch * v.out_batch,
            v.out_output, v.out_batch, outputs, batches, s.along_outputs);
        return;
    }
    const int64_t row = s.along_outputs ? 1 : v.batches;
    const int64_t column = s.along_outputs ? v.outputs : 1;
    put_tile<OUTPUTS, BATCHES>(
        tile, s.part + share.split * s.all + share.output * row + share.batch * column,
        row, column, outputs, batches, s.along_outputs);
}

/* The same of sums by sum_tile. */
template <int OUTPUTS, int BATCHES, typename T>
__device__ __forceinline__ void
put_share(const mean_matvec_view<T> &v, const shared_depth<value_type<T>> &s,
          const tile_share &share, const value_type<T> *sums)
{
    constexpr int PITCH = product_stages<value_type<T>, OUTPUTS, BATCHES>::PITCH;
    put_share<OUTPUTS, BATCHES>(v, s, share,
                                shared_tile<value_type<T>>{sums, PITCH, 1});
}

/* cluster_tiles' launch for tiles of the product of one of TILE_KINDS. */
template <typename T>
gpo_status mean_matvec_cluster_product(gpo_call *call, const mean_matvec_view<T> &v,
                                       int kind, const shared_depth<value_type<T>> &s);

/* tensor_tiles' launch for tiles of the product of one of TILE_KINDS. */
template <typename T>
gpo_status mean_matvec_tensor_product(gpo_call *call, const mean_matvec_view<T> &v,
                                      int kind, const shared_depth<float> &s);

/* warpgroup_tiles' launch for tiles of 128 by 128, or by 64 if not LARGE_KIND. */
template <typename T>
gpo_status mean_matvec_warpgroup_product(gpo_call *call, const mean_matvec_view<T> &v,
                                         int kind, const shared_depth<float> &s);

#endif
