/*
 * v2  Branch-free where nothing is padded.
 * Was:   v1 computes where a window begins and ends, and selects.
 * Now:   windows of 2, 3 or 8 floats a side that never leave x have all their loads
 *        unrolled, at offsets that are constants times a stride; others, integers and
 *        float64 use v1's loop.
 * Cost:  kernel^3 loads per output, 8, 27 or 8 of them in flight.
 * Left:  neighbouring outputs load the same elements again -> v3.
 */
#ifndef GPO_MAX_POOL3D_V2_BRANCH_FREE_CUH
#define GPO_MAX_POOL3D_V2_BRANCH_FREE_CUH

#include "v1_register_cache.cuh"

/*
 * A cube of K elements a side inside x: no bounds, every load at a constant offset from
 * one of its planes.  The largest element is known by its number in the window.
 */
template <typename T, int K>
__device__ __forceinline__ running<value_type<T>>
scan_cube(const pool_view<T> &v, const T *x, const place &at)
{
    using V = value_type<T>;
    constexpr int ROWS = K <= 3 ? K : 1; /* rows of loads in flight */
    const int64_t t = at.t * v.axis[POOL_T].stride, h = at.h * v.axis[POOL_H].stride;
    const int64_t w = at.w * v.axis[POOL_W].stride;
    const int64_t bh = v.by[POOL_H], bw = v.by[POOL_W];
    const T *plane = x + t * v.by[POOL_T] + h * bh + w * bw;
    V most = least_value<V>();
    int number = 0;
#pragma unroll(K <= 3 ? K : 1)
    for (int i = 0; i < K; i++, plane += v.by[POOL_T]) {
#pragma unroll(K <= 3 ? K : 2)
        for (int j = 0; j < K; j += ROWS) {
            V cache[ROWS * K];
#pragma unroll
            for (int c = 0; c < ROWS * K; c++) {
                cache[c] = value_of(plane[(j + c / K) * bh + c % K * bw]);
            }
#pragma unroll
            for (int c = 0; c < ROWS * K; c++) {
                const bool better = cache[c] > most || cache[c] != cache[c];
                most = better ? cache[c] : most;
                number = better ? (i * K + j) * K + c : number;
            }
        }
    }
    const int64_t rows = v.axis[POOL_H].in, cols = v.axis[POOL_W].in;
    const int64_t first = (t * rows + h) * cols + w;
    const int i = number / (K * K), j = number / K % K;
    return {most, first + (i * rows + j) * cols + number % K};
}

/* The window of one output; CUBE is v.cube if scan_cube serves it, else 0. */
template <typename T, int CUBE>
__device__ __forceinline__ void
pool_one(const pool_view<T> &v, const place &at)
{
    const T *x = v.plane(at.plane);
    const int64_t i = output_of(v, at);
    if constexpr (CUBE > 0) {
        store_best(v, i, scan_cube<T, CUBE>(v, x, at));
    }
    else {
        store_best(v, i, scan_window(v, x, at));
    }
}

/*
 * f(number) with the compile-time CUBE that serves the windows of v.  For integers and
 * float64 any_windows (shapes/) has the loads in flight.
 */
template <typename T, typename F>
gpo_status
with_cube(const pool_view<T> &v, F f)
{
    if constexpr (IS_FLOAT<T> && sizeof(T) <= 4) {
        switch (v.cube) {
            case 2:
                return f(std::integral_constant<int, 2>());
            case 3:
                return f(std::integral_constant<int, 3>());
            case 8:
                return f(std::integral_constant<int, 8>());
            default:
                break;
        }
    }
    return f(std::integral_constant<int, 0>());
}

template <typename T, int CUBE>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v2_branch_free(pool_view<T> v, int64_t outputs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        pool_one<T, CUBE>(v, place_of(v, i));
    }
}

template <typename T>
gpo_status
max_pool3d_v2(gpo_call *call)
{
    const pool_view<T> v = view_of<T>(call);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid = grid_of(ceil_div(outputs, BLOCK));
    return with_cube(v, [&](auto cube) {
        return GPO_LAUNCH(call, grid, BLOCK, 0,
                          (max_pool3d_v2_branch_free<T, decltype(cube)::value>), v,
                          outputs);
    });
}

#endif
