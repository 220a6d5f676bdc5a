/*
 * v4  In rounds.
 * Was:   v3 sums along three axes for each slice of x.
 * Now:   a block has a tile of dx in shared memory and goes once through the windows
 *        that reach into it.  A round takes rows of windows that have no element in
 *        common, one row per warp, one window per lane.  Gradients of lanes that name
 *        the same element are added by shuffles.  The next rounds' rows are in flight
 *        meanwhile.
 * Cost:  reads dy and indices once for each tile a window reaches into; (kernel /
 *        stride)^2 rounds with a barrier each.  Where windows are dilated, or a row
 *        does not fit into shared memory, v3 runs.
 * Left:  64 barriers with a kernel of 8, between which 8 warps have a row each.
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_V4_ROUNDS_CUH
#define GPO_MAX_POOL3D_BACKWARD_V4_ROUNDS_CUH

#include "../rounds.cuh"
#include "backward_v3_slices.cuh"

template <typename T, int SLOTS>
__global__ void
__launch_bounds__(ROUND_WARPS *WARP, 2)
    max_pool3d_backward_v4_rounds(gradient_view<T> v, round_plan s)
{
    using V = value_type<T>;
    constexpr int DEPTH = SLOTS > 1 ? 1 : 4; /* rounds in flight */
    GPO_DYN_SHARED(V, sums);
    const int tid = threadIdx.x, lane = tid % WARP, threads = blockDim.x;
    const int width = static_cast<int>(v.per_row.by);
    const int cols = static_cast<int>(v.out[POOL_W]);
    const int stride = static_cast<int>(v.axis[POOL_W].stride);
    const int padding = static_cast<int>(v.axis[POOL_W].padding);
    for (int64_t item = blockIdx.x; item < s.items; item += gridDim.x) {
        const round_tile tile = tile_of(v, s, item, SLOTS * threads / WARP);
        const int rows = tile.n[POOL_H] * width, all = tile.n[POOL_T] * rows;
        round_walk<T, SLOTS> walk(v, s, tile);
        coming_rows<V, SLOTS> ring[DEPTH];
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            ring[d] = walk.next();
        }
#pragma unroll 4
        for (int e = tid; e < all; e += threads) {
            sums[e] = 0;
        }
        __syncthreads();
        /* after the last round no slot has a row */
        while (ring[0].begin < cols) {
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                const coming_rows<V, SLOTS> &now = ring[d];
                const int ow = now.begin + lane;
#pragma unroll
                for (int slot = 0; slot < SLOTS; slot++) {
                    if (now.t[slot] != NO_ROW) {
                        const lane_window<V> o = {
                            ow < cols,   now.found[slot], now.gradient[slot],
                            now.t[slot], now.h[slot],     ow * stride - padding};
                        add_row(v, tile, o, s.apart[POOL_W], sums);
                    }
                }
                ring[d] = walk.next();
                __syncthreads();
            }
        }
        const bool is_whole =
            tile.n[POOL_H] == v.in[POOL_H]; /* slices are contiguous */
        const int slices = is_whole ? 1 : tile.n[POOL_T], slice = is_whole ? all : rows;
        T *dx = v.dx + tile.plane * v.plane +
                (tile.from[POOL_T] * v.in[POOL_H] + tile.from[POOL_H]) * width;
        for (int t = 0; t < slices; t++) {
#pragma unroll 4
            for (int e = tid; e < slice; e += threads) {
                dx[e] = stored_as<T>(sums[t * slice + e]);
            }
            dx += v.per_slice.by;
        }
        __syncthreads(); /* before the sums are cleared for another tile */
    }
}

template <typename T, int SLOTS>
gpo_status
run_rounds(gpo_call *call, const gradient_view<T> &v, const round_plan &s, int warps)
{
    const size_t bytes = static_cast<size_t>(s.side[POOL_T]) *
                         static_cast<size_t>(s.side[POOL_H] * v.in[POOL_W]) *
                         sizeof(value_type<T>);
    gpo_allow_shared(max_pool3d_backward_v4_rounds<T, SLOTS>, bytes);
    return GPO_LAUNCH(call, grid_of(s.items), dim3(static_cast<unsigned>(warps * WARP)),
                      bytes, (max_pool3d_backward_v4_rounds<T, SLOTS>), v, s);
}

template <typename T>
gpo_status
max_pool3d_backward_v4(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    round_plan s = {};
    if (!plan.has_windows ||
        !plan_rounds(plan, least_of(ROUNDS_BYTES, shared_room(call)),
                     sizeof(value_type<T>), &s)) {
        return max_pool3d_backward_v3<T>(call);
    }
    const gradient_view<T> v = gradient_view_of<T>(call);
    if (s.rows > ROUND_WARPS) {
        return run_rounds<T, 4>(call, v, s, ROUND_WARPS);
    }
    return run_rounds<T, 1>(call, v, s, round_warps(s));
}

#endif
