/*
 * v2  A window fills its cell.
 * Was:   v1 computes the windows of each element, and all elements of a window read the
 *        same index.
 * Now:   where windows do not overlap they cut a plane into cells; a thread reads one
 *        index and one gradient and writes its cell, including the zeros, in pairs
 *        where a row of the cell is two elements.
 * Cost:  reads dy and indices once, coalesced; writes dx once.  With overlapping
 *        windows v1 runs.
 * Left:  overlapping windows: with kernel 8, stride 1, 512 contain an element -> v3.
 */
#ifndef GPO_MAX_POOL3D_BACKWARD_V2_CELLS_CUH
#define GPO_MAX_POOL3D_BACKWARD_V2_CELLS_CUH

#include "backward_v1_gather.cuh"

template <typename T>
struct alignas(2 * sizeof(T)) pair_of {
    T v[2];
};

/* Rows of cells are two elements, and begin at even ones. */
inline bool
has_pairs(const pool_gradient_plan &plan)
{
    const pool_axis &w = plan.axis[POOL_W];
    return w.stride == 2 && w.padding == 0 && w.in == 2 * w.out;
}

/* Elements [first, end) that belong to window o alone. */
__device__ __forceinline__ stretch
cell_of(const pool_axis &a, int64_t o)
{
    const int64_t start = o * a.stride - a.padding;
    return {o > 0 ? start : 0, o + 1 < a.out ? start + a.stride : a.in};
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_backward_v2_cells(gradient_view<T> v, int64_t n,
                                                      bool is_tight, bool in_pairs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t found = v.indices[i];
        const T gradient = v.dy[i];
        const int64_t plane = v.of_plane.of(i), out = i - plane * v.outputs;
        const int64_t ot = v.of_slice.of(out), rest = out - ot * v.of_slice.by;
        const int64_t oh = v.of_row.of(rest), ow = rest - oh * v.of_row.by;
        const stretch t = cell_of(v.axis[POOL_T], ot);
        const stretch h = cell_of(v.axis[POOL_H], oh);
        const stretch w = cell_of(v.axis[POOL_W], ow);
        int64_t index = found;
        if (!is_tight) { /* a cell may have elements outside of its window */
            index = index_of_window(v, ot, oh, ow, found);
        }
        const T zero = stored_as<T>(value_type<T>(0));
        T *const dx = v.dx + plane * v.plane;
        for (int64_t k = t.first; k < t.end; k++) {
            for (int64_t j = h.first; j < h.end; j++) {
                int64_t at = (k * v.in[POOL_H] + j) * v.in[POOL_W] + w.first;
                if (in_pairs) {
                    pair_of<T> both;
                    both.v[0] = at == index ? gradient : zero;
                    both.v[1] = at + 1 == index ? gradient : zero;
                    *reinterpret_cast<pair_of<T> *>(dx + at) = both;
                    continue;
                }
                for (int64_t e = w.first; e < w.end; e++, at++) {
                    dx[at] = at == index ? gradient : zero;
                }
            }
        }
    }
}

template <typename T>
gpo_status
max_pool3d_backward_v2(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    if (!plan.has_windows || !plan.is_apart) {
        return max_pool3d_backward_v1<T>(call);
    }
    const gradient_view<T> v = gradient_view_of<T>(call);
    const int64_t n = v.planes * v.outputs;
    bool is_tight = true; /* every cell is its window */
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        is_tight = is_tight && a.stride == a.kernel && a.dilation == 1 &&
                   a.padding == 0 && a.in == a.out * a.stride;
    }
    const bool in_pairs =
        has_pairs(plan) && reinterpret_cast<uintptr_t>(v.dx) % (2 * sizeof(T)) == 0;
    const dim3 grid = grid_of(ceil_div(n, BLOCK));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (max_pool3d_backward_v2_cells<T>), v, n,
                      is_tight, in_pairs);
}

#endif
