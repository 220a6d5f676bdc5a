/*
 * v0  One owner per stretch of a plane.
 * Now:   a warp owns 8 KB of sums in shared memory and goes through all gradients of
 *        the plane, 32 at a time; it adds those whose index lies in its stretch, and
 *        lanes with the same element take turns in the order of dy.
 * Cost:  every stretch reads all indices of its plane: plane / 2048 times for float32.
 *        Works without knowing the windows.
 * Left:  with known windows, an element need only check those that contain it -> v1.
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_V0_OWNER_CUH
#define GPO_MAX_POOL3D_BACKWARD_V0_OWNER_CUH

#include "../indices.cuh"

template <typename T>
__global__ void
__launch_bounds__(OWNERS *WARP)
    max_pool3d_backward_v0_owner(gradient_view<T> v, int64_t stretches, int64_t items)
{
    using V = value_type<T>;
    constexpr int LENGTH = 8192 / sizeof(V);
    GPO_SHARED(V, sums, [OWNERS][LENGTH]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    V *const mine = sums[warp];
    const unsigned below = (1u << lane) - 1;
    for (int64_t item = static_cast<int64_t>(blockIdx.x) * OWNERS + warp; item < items;
         item += static_cast<int64_t>(gridDim.x) * OWNERS) {
        const int64_t plane = item / stretches;
        const int64_t first = (item - plane * stretches) * LENGTH;
        const int n = static_cast<int>(least_of(LENGTH, v.plane - first));
        for (int e = lane; e < n; e += WARP) {
            mine[e] = 0;
        }
        __syncwarp();
        for (int64_t start = 0; start < v.outputs; start += WARP) {
            const int64_t i = start + lane;
            int64_t index = -1;
            V gradient = 0;
            if (i < v.outputs) {
                index = v.indices[plane * v.outputs + i];
                gradient = value_of(v.dy[plane * v.outputs + i]);
                index = v.has_windows ? index_in_window(v, i, index) : index;
            }
            const int64_t past = index - first;
            const bool counts = index >= 0 && past >= 0 && past < n;
            if (!__any_sync(ALL_LANES, counts)) {
                continue;
            }
            const int place = counts ? static_cast<int>(past) : -1 - lane;
            const unsigned peers = __match_any_sync(ALL_LANES, place);
            const int turn = __popc(peers & below);
            for (int k = 0; __any_sync(ALL_LANES, counts && turn >= k); k++) {
                if (counts && turn == k) {
                    mine[place] += gradient;
                }
                __syncwarp();
            }
        }
        for (int e = lane; e < n; e += WARP) {
            v.dx[plane * v.plane + first + e] = stored_as<T>(mine[e]);
        }
        __syncwarp();
    }
}

template <typename T>
gpo_status
max_pool3d_backward_v0(gpo_call *call)
{
    const gpo_status status = check_indices(call);
    if (status) {
        return status;
    }
    const gradient_view<T> v = gradient_view_of<T>(call);
    constexpr int64_t LENGTH = 8192 / sizeof(value_type<T>);
    const int64_t stretches = ceil_div(v.plane, LENGTH), items = v.planes * stretches;
    const dim3 grid = grid_of(ceil_div(items, OWNERS));
    return GPO_LAUNCH(call, grid, OWNERS * WARP, 0, (max_pool3d_backward_v0_owner<T>),
                      v, stretches, items);
}

#endif
