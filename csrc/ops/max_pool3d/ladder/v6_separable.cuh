/*
 * v6  Separable running maximum.
 * Was:   v5 compares kernel^3 elements per output.
 * Now:   the maximum of a cube is the maximum over its planes, each the maximum over
 *        its rows.  A thread pools a column along T in registers; the block transposes
 *        the tile through shared memory; a thread pools a column along H; lanes pool
 *        along W by shuffles.  A window of k is two overlapping windows whose size is a
 *        power of two, made by doubling.
 * Cost:  each element is loaded once, except for the halo of tiles: 8 to 32 loads in
 *        flight per thread; log2(k) + 1 maxima per element and axis, one write and one
 *        read of shared memory before the stride drops windows, one of each after.
 *        With indices a key carries its position in the low half of 64 bits.  Windows
 *        that span more than a tile go to wide_windows (shapes/), since earlier rungs
 *        serve fewer dtypes.
 * Measured: 0.159 ms where v5 takes 0.582 ((16, 64, 32, 32, 32) float32, kernel 3,
 *        stride 1, on an H200), but 0.110 and 0.054 with kernel 2, stride 2, where no
 *        two windows share an element and there is nothing to save.
 * Left:  one block of 32 x 32 columns per SM, which has no loads in flight while it
 *        computes -> v7.
 */
#ifndef GPO_MAX_POOL3D_V6_SEPARABLE_CUH
#define GPO_MAX_POOL3D_V6_SEPARABLE_CUH

#include "../tiles.cuh"

/* a[i] becomes the maximum of the window that begins at i. */
template <typename K, int N>
__device__ __forceinline__ void
pool_column(K (&a)[N], const pool_axis &axis)
{
    const int kernel = static_cast<int>(axis.kernel);
    const int dilation = static_cast<int>(axis.dilation);
    for (int made = 1; made < kernel;) {
        const int more = more_of(kernel, made);
        take_ahead<1>(a, more * dilation);
        made += more;
    }
}

/* Lane w gets the maximum of the window that begins at lane w. */
template <typename K>
__device__ __forceinline__ K
pool_lanes(K v, const pool_axis &axis, int lanes)
{
    const int kernel = static_cast<int>(axis.kernel);
    const int dilation = static_cast<int>(axis.dilation);
    for (int made = 1; made < kernel;) {
        const int more = more_of(kernel, made);
        v = larger(v, shuffle_down(v, more * dilation, lanes));
        made += more;
    }
    return v;
}

template <typename K, int N, int ROWS>
__global__ void
__launch_bounds__(ROWS *WARP)
    max_pool3d_v6_separable(key_source x, key_target y, tile_plan s)
{
    GPO_DYN_SHARED(K, tile);
    GPO_SHARED(tile_start, where, [1]);
    const int lanes = s.lanes, w = threadIdx.x & (lanes - 1);
    const int rows = ROWS * WARP / lanes, r = threadIdx.x / lanes;
    const int span_t = static_cast<int>(s.span[POOL_T]);
    const int span_h = static_cast<int>(s.span[POOL_H]);
    const int slices = static_cast<int>(s.windows[POOL_T]);
    const int stride_w = static_cast<int>(s.axis[POOL_W].stride);
    const K least = least_of_tile<K>(s);
    const bool is_kept = w % stride_w == 0;

    for (int64_t item = blockIdx.x; item < s.count; item += gridDim.x) {
        __syncthreads(); /* the previous tile has been read */
        if (threadIdx.x == 0) {
            where[0] = start_of_tile(s, y, item);
        }
        __syncthreads();

        /* T: a thread holds a column */
        const int p = r / span_h, h = r - p * span_h;
        K a[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            a[i] = least;
        }
        {
            const int64_t t0 = where[0].from[POOL_T];
            const int64_t at_h = where[0].from[POOL_H] + h;
            const int64_t at_w = where[0].from[POOL_W] + w;
            const int64_t plane = where[0].plane + p;
            if (p < s.planes && plane < x.planes && at_h >= 0 && at_h < x.in[POOL_H] &&
                at_w >= 0 && at_w < x.in[POOL_W] && w < s.span[POOL_W]) {
                const int lo = t0 < 0 ? static_cast<int>(-t0) : 0;
                const int hi = static_cast<int>(least_of(span_t, x.in[POOL_T] - t0));
                const int64_t offset = x.plane(plane) + t0 * x.by[POOL_T] +
                                       at_h * x.by[POOL_H] + at_w * x.by[POOL_W];
                const int64_t position =
                    t0 * x.position[POOL_T] + at_h * x.position[POOL_H] + at_w;
                const unsigned below = ~0u >> (WARP - hi);
                load_column(a, x, offset, position, below >> lo << lo);
            }
        }
        pool_column(a, s.axis[POOL_T]);
        if (p < s.planes) {
            thin_out(a, static_cast<int>(s.axis[POOL_T].stride), where[0].n[POOL_T],
                     tile + (p * slices * span_h + h) * lanes + w, span_h * lanes);
        }
        __syncthreads();

        /* H, then W: a thread holds a column of a slice, lanes hold a row */
        const int all = static_cast<int>(s.planes) * slices;
        for (int q0 = 0; q0 < all; q0 += rows) {
            const int q = q0 + r, plane = q / slices, t = q - plane * slices;
            const bool is_mine =
                q < all && t < where[0].n[POOL_T] && where[0].plane + plane < x.planes;
            K *column = tile + (is_mine ? q : 0) * span_h * lanes + w;
#pragma unroll
            for (int i = 0; i < N; i++) {
                a[i] = is_mine && i < span_h ? column[i * lanes] : least;
            }
            pool_column(a, s.axis[POOL_H]);
            const int n = where[0].n[POOL_H];
            if (is_mine) {
                thin_out(a, static_cast<int>(s.axis[POOL_H].stride), n, column, lanes);
            }
            const int64_t out = (where[0].plane + plane) * y.outputs + where[0].out +
                                t * y.by[POOL_T] + w / stride_w;
            const bool is_stored =
                is_mine && is_kept && w / stride_w < where[0].n[POOL_W];
            by_dtype<K>(y.dtype, [&](auto type) {
                using T = decltype(type);
                T *to = static_cast<T *>(y.y) + out;
                int64_t *index = y.indices ? y.indices + out : nullptr;
#pragma unroll 4
                for (int o = 0; o < n; o++) {
                    K v = is_mine ? column[o * lanes] : least;
                    v = pool_lanes(v, s.axis[POOL_W], lanes);
                    if (is_stored) {
                        const found best = found_in(v, x.with_code);
                        *to = element_of<T>(best.key);
                        if (y.indices) {
                            *index = best.position;
                        }
                    }
                    to += y.by[POOL_H];
                    index += y.indices ? y.by[POOL_H] : 0;
                }
            });
        }
    }
}

struct run_tiles {
    gpo_call *call;

    template <typename K, int N>
    gpo_status operator()(K, std::integral_constant<int, N>) const
    {
        const axis_order order = order_of(*max_pool3d_plan_of(call));
        tile_plan s = plan_tiles(call, order, N, sizeof(K));
        set_least(&s, least_key_of<K>(call));
        const int64_t keys = s.planes * s.windows[0] * s.span[1] * s.lanes;
        const size_t bytes = static_cast<size_t>(keys) * sizeof(K);
        gpo_allow_shared(max_pool3d_v6_separable<K, N, N>, bytes);
        return GPO_LAUNCH(call, grid_of(s.count), dim3(N * WARP), bytes,
                          (max_pool3d_v6_separable<K, N, N>), source_of(call, order),
                          target_of(call, order), s);
    }
};

inline gpo_status
max_pool3d_v6(gpo_call *call)
{
    return takes_wide_windows(call) ? max_pool3d_wide_windows(call)
                                    : with_keys(call, run_tiles{call});
}

#endif
