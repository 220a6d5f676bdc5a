/*
 * v4  Threads over (w, h), the rest shared.
 * Was:   v2 finds each output's place by three divisions; v3 spends its time copying.
 * Now:   x and y of a block are w and h of the output; z of block and grid covers
 *        planes times slices, so that blocks are full where planes are small.
 * Cost:  as v2 with one division.  Keeps to 64 threads along z and 65,535 blocks along
 *        y and z, and loops over rows wider than a block; the published version omits
 *        these.
 * Left:  the slices of one block may lie far apart -> v5.
 */
#ifndef GPO_MAX_POOL3D_V4_ROWS_CUH
#define GPO_MAX_POOL3D_V4_ROWS_CUH

#include "v2_branch_free.cuh"

template <typename T, int CUBE>
__global__ void
__launch_bounds__(FULL_BLOCK) max_pool3d_v4_rows(pool_view<T> v, divider slices)
{
    const int64_t w0 = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t h0 = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const int64_t z0 = static_cast<int64_t>(blockIdx.z) * blockDim.z + threadIdx.z;
    const int64_t step_w = static_cast<int64_t>(gridDim.x) * blockDim.x;
    const int64_t step_h = static_cast<int64_t>(gridDim.y) * blockDim.y;
    const int64_t step_z = static_cast<int64_t>(gridDim.z) * blockDim.z;
    for (int64_t z = z0; z < v.planes * slices.by; z += step_z) {
        const int64_t plane = slices.of(z);
        for (int64_t h = h0; h < v.axis[POOL_H].out; h += step_h) {
            for (int64_t w = w0; w < v.axis[POOL_W].out; w += step_w) {
                pool_one<T, CUBE>(v, {plane, z - plane * slices.by, h, w});
            }
        }
    }
}

/* A block and the grid of them. */
struct block_grid {
    dim3 block, grid;
};

inline block_grid
rows_of_blocks(const max_pool3d_plan &plan)
{
    const pool_axis &h = plan.axis[POOL_H], &w = plan.axis[POOL_W];
    const int64_t tx = least_of(FULL_BLOCK, w.out);
    const int64_t ty = least_of(FULL_BLOCK / tx, h.out);
    const int64_t tz = least_of(MOST_Z, FULL_BLOCK / tx / ty);
    const int64_t slices = plan.planes * plan.axis[POOL_T].out;
    return {dim3(static_cast<unsigned>(tx), static_cast<unsigned>(ty),
                 static_cast<unsigned>(tz)),
            dim3(grid_extent(ceil_div(w.out, tx), MAX_GRID_X),
                 grid_extent(ceil_div(h.out, ty), MAX_GRID_YZ),
                 grid_extent(ceil_div(slices, tz), MAX_GRID_YZ))};
}

template <typename T>
gpo_status
max_pool3d_v4(gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_view<T> v = view_of<T>(call);
    const block_grid g = rows_of_blocks(plan);
    const divider by_slices = divider_of(plan.axis[POOL_T].out);
    return with_cube(v, [&](auto cube) {
        return GPO_LAUNCH(call, g.grid, g.block, 0,
                          (max_pool3d_v4_rows<T, decltype(cube)::value>), v, by_slices);
    });
}

#endif
