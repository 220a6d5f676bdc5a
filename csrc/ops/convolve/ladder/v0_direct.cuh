/*
 * v0  Direct.
 * Now:   one thread per sum of the result; it loops over the terms that exist.
 * Cost:  two loads per product, both from L1 where the filter is short.
 * Left:  all threads use the same filter and nearly the same part of the signal, but
 *        every product loads both -> v1.
 */
#ifndef GPO_CONVOLVE_V0_DIRECT_CUH
#define GPO_CONVOLVE_V0_DIRECT_CUH

#include "../../../device/grid.cuh"
#include "../products.cuh"
#include "../tuning.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) convolve_v0_direct(convolve_view<T> c)
{
    const int64_t all = c.count_rows * c.count;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t u = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; u < all;
         u += step) {
        const int64_t row = quotient(u, c.count);
        const int64_t i = u - row * c.count;
        c.out[u] = result_of<T>(exact_sum(c, find_row(c, row), c.first + i));
    }
}

template <typename T>
static gpo_status
convolve_v0(gpo_call *call)
{
    const convolve_view<T> c = view_of<T>(call);
    const dim3 grid = grid_of(ceil_div(c.count_rows * c.count, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (convolve_v0_direct<T>), c);
}

#endif
