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
    divider per_line;   /* results that lie beside each other */
    bool along_outputs; /* that is how they lie, else batches do */
};

/*
 * The blocks' shares of the depth of tiles, `across` of them for all outputs.
 * sum_of(output, batch, begin, end) sums terms of a tile, as sum_tile.
 */
template <int OUTPUTS, int BATCHES, typename T, typename F>
__device__ __forceinline__ void
multiply_shares(const mean_matvec_view<T> &v, int64_t across, int64_t blocks,
                const shared_depth<value_type<T>> &s, F sum_of)
{
    using V = value_type<T>;
    constexpr int PITCH = product_stages<V, OUTPUTS, BATCHES>::PITCH;
    for (int64_t k = blockIdx.x; k < blocks; k += gridDim.x) {
        const int64_t tile = k / s.splits, split = k - tile * s.splits;
        const int64_t output = tile % across * OUTPUTS;
        const int64_t batch = tile / across * BATCHES;
        const int64_t begin = split * s.length, rest = v.rows - begin;
        const V *const sums =
            sum_of(output, batch, begin, begin + (rest < s.length ? rest : s.length));
        V *const part = s.part + split * s.all;
        each_of_tile<OUTPUTS, BATCHES>(v, output, batch, [&](int i, int n) {
            const V sum = sums[i * PITCH + n];
            if (s.splits == 1) {
                v.put(output + i, batch + n, sum);
            }
            else {
                part[s.along_outputs ? (batch + n) * v.outputs + output + i
                                     : (output + i) * v.batches + batch + n] = sum;
            }
        });
        __syncthreads(); /* before the next tile is staged */
    }
}

/* tensor_tiles' launch for tiles of the product of one of TILE_KINDS. */
template <typename T>
gpo_status mean_matvec_tensor_product(gpo_call *call, const mean_matvec_view<T> &v,
                                      int kind, const shared_depth<float> &s);

/* warpgroup_tiles' launch for tiles of 128 by 128. */
template <typename T>
gpo_status mean_matvec_warpgroup_product(gpo_call *call, const mean_matvec_view<T> &v,
                                         const shared_depth<float> &s);

#endif
