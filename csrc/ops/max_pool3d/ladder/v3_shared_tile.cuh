/*
 * v3  A tile in shared memory.
 * Was:   v2 loads an element once for each window that has it.
 * Now:   a block copies what its 4 x 8 x 8 windows span into shared memory, once, and
 *        scans them there; where that is more than 48 KB it reads global memory.
 * Cost:  one load of each element, a barrier that waits for the slowest of them, and
 *        still kernel^3 reads and comparisons per output.
 * Measured: 12.5 ms where v2 takes 3.15 ((16, 64, 32, 32, 32) float32, kernel 8, stride
 *        1, on an H200), 0.248 and 0.050 with kernel 2, stride 2; the report measures 5
 *        to 10 times v2's time.  L1 already held the shared elements, and there are as
 *        many reads from shared memory as there were from L1.
 * Left:  the cost is kernel^3 reads, wherever from; first a better block shape -> v4.
 */
#ifndef GPO_MAX_POOL3D_V3_SHARED_TILE_CUH
#define GPO_MAX_POOL3D_V3_SHARED_TILE_CUH

#include "v1_register_cache.cuh"

struct shared_tile {
    int64_t tiles[POOL_AXES], count;
    divider per_tile[POOL_AXES];
    int span[POOL_AXES]; /* elements along each axis; 0 where they do not fit */
};

template <typename T>
__global__ void
__launch_bounds__(BLOCK) max_pool3d_v3_shared_tile(pool_view<T> v, shared_tile s)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(T, tile);
    const pool_axis *a = v.axis;
    const int tid = threadIdx.x;
    for (int64_t item = blockIdx.x; item < s.count; item += gridDim.x) {
        const int64_t row = s.per_tile[POOL_W].of(item);
        const int64_t slice = s.per_tile[POOL_H].of(row);
        const int64_t plane = s.per_tile[POOL_T].of(slice);
        const int64_t w0 = (item - row * s.tiles[POOL_W]) * TILE_W;
        const int64_t h0 = (row - slice * s.tiles[POOL_H]) * TILE_H;
        const int64_t t0 = (slice - plane * s.tiles[POOL_T]) * TILE_T;
        const place at = {plane, t0 + tid / (TILE_H * TILE_W),
                          h0 + tid / TILE_W % TILE_H, w0 + tid % TILE_W};
        const T *x = v.plane(at.plane);
        const int64_t from_t = t0 * a[POOL_T].stride - a[POOL_T].padding;
        const int64_t from_h = h0 * a[POOL_H].stride - a[POOL_H].padding;
        const int64_t from_w = w0 * a[POOL_W].stride - a[POOL_W].padding;
        const int rows = s.span[POOL_H], cols = s.span[POOL_W];
        const bool is_mine =
            at.t < a[POOL_T].out && at.h < a[POOL_H].out && at.w < a[POOL_W].out;
        if (cols == 0) {
            if (is_mine) {
                store_best(v, output_of(v, at), scan_window(v, x, at));
            }
            continue;
        }
        __syncthreads(); /* the previous tile has been read */
        for (int e = tid; e < s.span[POOL_T] * rows * cols; e += BLOCK) {
            const int64_t t = from_t + e / (rows * cols), h = from_h + e / cols % rows;
            const int64_t w = from_w + e % cols;
            T element = stored_as<T>(least_value<V>());
            if (t >= 0 && t < a[POOL_T].in && h >= 0 && h < a[POOL_H].in && w >= 0 &&
                w < a[POOL_W].in) {
                element = x[t * v.by[POOL_T] + h * v.by[POOL_H] + w * v.by[POOL_W]];
            }
            tile[e] = element;
        }
        __syncthreads();
        if (is_mine) {
            const stretch t = stretch_of(a[POOL_T], at.t);
            const stretch h = stretch_of(a[POOL_H], at.h);
            const stretch w = stretch_of(a[POOL_W], at.w);
            running<V> best = {least_value<V>(), -1};
            for (int64_t i = t.first; i < t.end; i += a[POOL_T].dilation) {
                for (int64_t j = h.first; j < h.end; j += a[POOL_H].dilation) {
                    const T *row =
                        tile + ((i - from_t) * rows + j - from_h) * cols - from_w;
                    for (int64_t k = w.first; k < w.end; k += a[POOL_W].dilation) {
                        best.take(value_of(row[k]),
                                  (i * a[POOL_H].in + j) * a[POOL_W].in + k);
                    }
                }
            }
            store_best(v, output_of(v, at), best);
        }
    }
}

/* The tiles of a call; *bytes is the size of a tile with elements of `size` bytes. */
inline shared_tile
plan_shared_tile(const max_pool3d_plan &plan, size_t size, size_t *bytes)
{
    constexpr int64_t SIDES[POOL_AXES] = {TILE_T, TILE_H, TILE_W};
    shared_tile s = {};
    s.count = plan.planes;
    double wanted = static_cast<double>(size);
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        const int64_t windows = least_of(SIDES[d], a.out);
        const int64_t span = (windows - 1) * a.stride + pool_extent(&a);
        s.tiles[d] = ceil_div(a.out, SIDES[d]);
        s.per_tile[d] = divider_of(s.tiles[d]);
        s.count *= s.tiles[d];
        s.span[d] = static_cast<int>(least_of(span, TILE_BYTES));
        wanted *= static_cast<double>(span);
    }
    const bool fits = wanted <= TILE_BYTES;
    for (int d = 0; d < POOL_AXES && !fits; d++) {
        s.span[d] = 0;
    }
    *bytes = fits ? static_cast<size_t>(wanted) : 0;
    return s;
}

template <typename T>
gpo_status
max_pool3d_v3(gpo_call *call)
{
    size_t bytes;
    const shared_tile s =
        plan_shared_tile(*max_pool3d_plan_of(call), sizeof(T), &bytes);
    return GPO_LAUNCH(call, grid_of(s.count), BLOCK, bytes,
                      (max_pool3d_v3_shared_tile<T>), view_of<T>(call), s);
}

#endif
