/*
 * v1  Loops unrolled, a cache in registers.
 * Was:   v0 tests each element and waits for each load.
 * Now:   the bounds of a window are computed once, multiplications become additions,
 *        and eight elements of a row are loaded before the first is compared; past the
 *        end a select, not a branch, replaces the load by the lowest value.
 * Cost:  kernel^3 loads per output, eight in flight.
 * Measured: 13.1 ms where v0 takes 14.4 ((16, 64, 32, 32, 32) float32, kernel 8, stride
 *        1, on an H200), but 3.66 and 2.66 with kernel 3: then only three of the eight
 *        loads are in the window; a cache pays only where it fits the windows.
 * Left:  where no window leaves x, bounds are not needed at all -> v2.
 */
#ifndef GPO_MAX_POOL3D_V1_REGISTER_CACHE_CUH
#define GPO_MAX_POOL3D_V1_REGISTER_CACHE_CUH

#include "../windows.cuh"

/* Elements of a row that are loaded before the first is used. */
template <typename V>
constexpr int CACHE = sizeof(V) == 8 ? 4 : 8;

/* Any window: bounds once, then rows through a cache in registers. */
template <typename T>
__device__ __forceinline__ running<value_type<T>>
scan_window(const pool_view<T> &v, const T *x, const place &at)
{
    using V = value_type<T>;
    const stretch t = stretch_of(v.axis[POOL_T], at.t);
    const stretch h = stretch_of(v.axis[POOL_H], at.h);
    const stretch w = stretch_of(v.axis[POOL_W], at.w);
    const int64_t rows = v.axis[POOL_H].in, cols = v.axis[POOL_W].in;
    const int64_t dt = v.axis[POOL_T].dilation, dh = v.axis[POOL_H].dilation;
    const int64_t dw = v.axis[POOL_W].dilation;
    running<V> best = {least_value<V>(), -1};
    for (int64_t i = t.first; i < t.end; i += dt) {
        for (int64_t j = h.first; j < h.end; j += dh) {
            const T *row = x + i * v.by[POOL_T] + j * v.by[POOL_H];
            const int64_t start = (i * rows + j) * cols;
            for (int64_t k = w.first; k < w.end; k += CACHE<V> * dw) {
                V cache[CACHE<V>];
#pragma unroll
                for (int c = 0; c < CACHE<V>; c++) {
                    const int64_t e = k + c * dw;
                    cache[c] =
                        e < w.end ? value_of(row[e * v.by[POOL_W]]) : least_value<V>();
                }
#pragma unroll
                for (int c = 0; c < CACHE<V>;
                     c++) { /* past the end nothing is larger */
                    best.take(cache[c], start + k + c * dw);
                }
            }
        }
    }
    return best;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v1_register_cache(pool_view<T> v, int64_t outputs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        const place at = place_of(v, i);
        store_best(v, i, scan_window(v, v.plane(at.plane), at));
    }
}

template <typename T>
gpo_status
max_pool3d_v1(gpo_call *call)
{
    const pool_view<T> v = view_of<T>(call);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid = grid_of(ceil_div(outputs, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_v1_register_cache<T>), v,
                      outputs);
}

#endif
