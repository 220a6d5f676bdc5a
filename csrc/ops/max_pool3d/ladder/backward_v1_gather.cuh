/*
 * v1  Each element checks its windows.
 * Was:   v0 reads all indices of a plane for each stretch of it.
 * Now:   a thread per element of x goes through the windows that contain it and adds
 *        the gradients of those whose index names it.
 * Cost:  one index per window and element: (kernel / stride)^3 per element, from L1
 *        and L2; dy where the index matches.  Without kernel_size v0 runs.
 * Measured: 2.51 ms where v0 takes 4.71 ((16, 64, 32, 32, 32) float32, kernel 3, stride
 *        1, on an H200), but 13.1 and 2.83 with kernel 8: 512 comparisons per element.
 * Left:  where windows do not overlap, all elements of one read the same index -> v2.
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_V1_GATHER_CUH
#define GPO_MAX_POOL3D_BACKWARD_V1_GATHER_CUH

#include "backward_v0_owner.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v1_gather(gradient_view<T> v, int64_t n)
{
    using V = value_type<T>;
    const pool_axis *a = v.axis;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t e = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; e < n;
         e += step) {
        const int64_t plane = v.per_plane.of(e), index = e - plane * v.plane;
        const int64_t t = v.per_slice.of(index), rest = index - t * v.per_slice.by;
        const int64_t h = v.per_row.of(rest), w = rest - h * v.per_row.by;
        const window_range rt = windows_with(a[POOL_T], v.stride[POOL_T], t);
        const window_range rh = windows_with(a[POOL_H], v.stride[POOL_H], h);
        const window_range rw = windows_with(a[POOL_W], v.stride[POOL_W], w);
        const bool gaps =
            a[POOL_T].dilation > 1 || a[POOL_H].dilation > 1 || a[POOL_W].dilation > 1;
        V sum = 0;
        for (int64_t ot = rt.first; ot <= rt.last; ot++) {
            for (int64_t oh = rh.first; oh <= rh.last; oh++) {
                const int64_t row =
                    plane * v.outputs + (ot * v.out[POOL_H] + oh) * v.out[POOL_W];
#pragma unroll 4
                for (int64_t ow = rw.first; ow <= rw.last; ow++) {
                    if (v.indices[row + ow] == index) {
                        const bool has = !gaps || (is_element(v, POOL_T, ot, t) &&
                                                   is_element(v, POOL_H, oh, h) &&
                                                   is_element(v, POOL_W, ow, w));
                        sum += has ? value_of(v.dy[row + ow]) : V(0);
                    }
                }
            }
        }
        v.dx[e] = stored_as<T>(sum);
    }
}

template <typename T>
gpo_status
max_pool3d_backward_v1(gpo_call *call)
{
    if (!pool_gradient_plan_of(call)->has_windows) {
        return max_pool3d_backward_v0<T>(call);
    }
    const gradient_view<T> v = gradient_view_of<T>(call);
    const int64_t n = v.planes * v.plane;
    const dim3 grid = grid_of(ceil_div(n, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_backward_v1_gather<T>), v, n);
}

#endif
