/*
 * v4  Mean kernel, then a GEMM.
 * Was:   v3 reads the whole matrix for each batch, one value per multiplication.
 * Now:   one kernel streams x with 8 loads of 16 bytes in flight per thread, the next
 *        ones issued before the sums of these are combined; a second one multiplies
 *        tiles of 64 outputs by 64 batches, 2 x 8 sums in the registers of a thread, or
 *        in float64 32 x 16 in those of a warp, on tensor cores.
 * Cost:  reads x once; writes the means once and reads them L2 / 64 times; reads the
 *        matrix N / 64 times, from L2.
 * Left:  memory is idle while the product runs -> v5.
 */
#ifndef GPO_MEAN_MATVEC_V4_PRODUCT_CUH
#define GPO_MEAN_MATVEC_V4_PRODUCT_CUH

#include "../product.cuh"
#include "../walk.cuh"

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
        product_tile<TILE_OUTPUTS, TILE_BATCHES>(v, output, batch, *stages);
    }
}

template <typename T>
static gpo_status
mean_matvec_v4_multiply(gpo_call *call, const mean_matvec_view<T> &v)
{
    constexpr int SHARED = sizeof(product_stages<value_type<T>>);
    const int64_t across = ceil_div(v.outputs, TILE_OUTPUTS);
    const int64_t tiles = ceil_div(v.batches, TILE_BATCHES) * across;
    gpo_allow_shared(mean_matvec_v4_product<T>, SHARED);
    return GPO_LAUNCH(call, grid_of(tiles), THREADS, SHARED,
                      (mean_matvec_v4_product<T>), v, across, tiles);
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
    const row_walk walk = walk_of(call, pack<T>::SIZE);
    const int64_t items = ceil_div(v.batches, TILE_BATCHES) * walk.streams;
    status = GPO_LAUNCH(call, grid_of(items), THREADS, 0, (mean_matvec_v4_means<T>), v,
                        walk, items);
    return status ? status : mean_matvec_v4_multiply(call, v);
}

#endif
