/*
 * v0  Naive, with bounds.
 * Now:   a thread per output goes through every element of its window and tests each,
 *        along each axis, against the bounds of x.
 * Cost:  kernel^3 tests and up to as many loads per output, each waiting for the test
 *        before it.
 * Left:  the bounds are the same for all elements of a window -> v1.
 */
#ifndef GPO_MAX_POOL3D_V0_NAIVE_CUH
#define GPO_MAX_POOL3D_V0_NAIVE_CUH

#include "../windows.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v0_naive(pool_view<T> v, int64_t outputs)
{
    using V = value_type<T>;
    const pool_axis *a = v.axis;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i < outputs; i += step) {
        const place at = place_of(v, i);
        const T *x = v.plane(at.plane);
        running<V> best = {least_value<V>(), -1};
        for (int64_t kt = 0; kt < a[POOL_T].kernel; kt++) {
            for (int64_t kh = 0; kh < a[POOL_H].kernel; kh++) {
                for (int64_t kw = 0; kw < a[POOL_W].kernel; kw++) {
                    const int64_t t = at.t * a[POOL_T].stride - a[POOL_T].padding +
                                      kt * a[POOL_T].dilation;
                    const int64_t h = at.h * a[POOL_H].stride - a[POOL_H].padding +
                                      kh * a[POOL_H].dilation;
                    const int64_t w = at.w * a[POOL_W].stride - a[POOL_W].padding +
                                      kw * a[POOL_W].dilation;
                    if (t >= 0 && t < a[POOL_T].in && h >= 0 && h < a[POOL_H].in &&
                        w >= 0 && w < a[POOL_W].in) {
                        best.take(value_of(x[t * v.by[POOL_T] + h * v.by[POOL_H] +
                                             w * v.by[POOL_W]]),
                                  (t * a[POOL_H].in + h) * a[POOL_W].in + w);
                    }
                }
            }
        }
        store_best(v, i, best);
    }
}

template <typename T>
gpo_status
max_pool3d_v0(gpo_call *call)
{
    const pool_view<T> v = view_of<T>(call);
    const int64_t outputs = v.planes * v.outputs;
    const dim3 grid = grid_of(ceil_div(outputs, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_v0_naive<T>), v, outputs);
}

#endif
