/*
 * overlapping_windows.cu  Windows that overlap.  A block loads a box of x, some planes or
 * a part of one, into shared memory as keys, and pools it there one axis at a time.
 * Cost:  each element once for each box that has it; (T + H + W) comparisons of shared
 *        memory for a window of T x H x W, fewer where the stride drops windows; a
 *        barrier for each axis.  What lies outside of x is neither stored nor read.
 */
#include "../boxes.cuh"

struct box_view {
    key_source x;
    key_target y;
    tap_axis axis[POOL_AXES];
    int out[POOL_AXES]; /* windows */
    bool has_gaps;
    box_plan plan;
    divider keep[POOL_AXES];    /* elements of a box */
    divider windows[POOL_AXES]; /* of a box */
    divider per_plane;          /* elements of a plane of x, where boxes are flat */
    divider together;           /* planes of a box */
    bool takes_planes;          /* lanes have planes beside each other, not columns */
    int64_t by_row, by_slice;   /* outputs */
};

/* Where a box is. */
struct box_start {
    int64_t plane;
    int begin[POOL_AXES]; /* the first window */
    int low[POOL_AXES];   /* the first element that lies in x */
    int n[POOL_AXES];     /* windows */
};

__device__ __forceinline__ box_start
start_of_box(const box_view &v, int64_t item)
{
    box_start b;
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int64_t next = v.plan.per_tile[d].of(item);
        const int windows = static_cast<int>(v.plan.windows[d]);
        b.begin[d] = static_cast<int>(item - next * v.plan.tiles[d]) * windows;
        const int from = b.begin[d] * v.axis[d].stride - v.axis[d].padding;
        b.low[d] = from > 0 ? from : 0;
        const int left = v.out[d] - b.begin[d];
        b.n[d] = left < windows ? left : windows;
        item = next;
    }
    b.plane = item * v.plan.planes;
    return b;
}

/* ---- loading ---- */

/* An element of a box: its place in x, if it has one, and its position in a plane. */
struct box_element {
    int64_t offset, position;
    int to;     /* in shared memory */
    bool is_in; /* x has it */
};

__device__ __forceinline__ box_element
element_of_box(const box_view &v, const box_start &b, int i)
{
    if (v.plan.is_flat) {
        const int plane = v.per_plane.narrow(i);
        const bool is_in = b.plane + plane < v.x.planes;
        return {b.plane * v.per_plane.by + i,
                i - plane * static_cast<int>(v.per_plane.by), i, is_in};
    }
    int plane = 0, rest = i;
    if (v.takes_planes) {
        rest = v.together.narrow(i);
        plane = i - rest * static_cast<int>(v.together.by);
    }
    int at[POOL_AXES];
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int above = v.keep[d].narrow(rest);
        at[d] = rest - above * static_cast<int>(v.keep[d].by);
        rest = above;
    }
    plane = v.takes_planes ? plane : rest;
    box_element e = {v.x.plane(b.plane + plane), 0, i, b.plane + plane < v.x.planes};
    int line = plane;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const int in_x = b.low[d] + at[d];
        e.is_in = e.is_in && in_x < v.axis[d].in;
        e.offset += in_x * v.x.by[d];
        e.position += in_x * v.x.position[d];
        line = line * static_cast<int>(v.keep[d].by) + at[d];
    }
    e.to = v.takes_planes ? line : i;
    return e;
}

template <typename K>
__device__ __forceinline__ void
load_box(const box_view &v, const box_start &b, K least, K *keys)
{
    const int all = static_cast<int>(v.plan.loaded), threads = blockDim.x;
    by_dtype<K>(v.x.dtype, [&](auto type) {
        using T = decltype(type);
        const T *const x = static_cast<const T *>(v.x.x);
        for (int base = threadIdx.x; base < all; base += BOX_IN_FLIGHT * threads) {
            T e[BOX_IN_FLIGHT] = {};
            box_element at[BOX_IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < BOX_IN_FLIGHT; k++) {
                const int i = base + k * threads;
                at[k] = element_of_box(v, b, i < all ? i : all - 1);
                if (at[k].is_in) {
                    e[k] = x[at[k].offset];
                }
            }
#pragma unroll
            for (int k = 0; k < BOX_IN_FLIGHT; k++) {
                if (base + k * threads < all) {
                    keys[at[k].to] =
                        at[k].is_in ? key_of<K>(e[k], v.x.with_code, at[k].position)
                                    : least;
                }
            }
        }
    });
}

/* ---- pooling ---- */

/* The largest key of window o of an axis: of its elements, `inner` keys apart. */
template <typename K>
__device__ __forceinline__ K
pool_line(const box_view &v, const box_start &b, int d, int o, const K *line, int inner,
          K least)
{
    const tap_axis &a = v.axis[d];
    const tap_range w = v.has_gaps ? taps_of<true>(a, b.begin[d] + o)
                                   : taps_of<false>(a, b.begin[d] + o);
    const K *p = line + (w.count > 0 ? (w.first - b.low[d]) * inner : 0);
    const int step = inner * a.dilation;
    K best = least;
#pragma unroll 4
    for (int k = 0; k < w.count; k++) {
        best = larger(best, p[k * step]);
    }
    return best;
}

/* Pools T or H: `all` keys are made. */
template <typename K>
__device__ __forceinline__ void
pool_axis_of_box(const box_view &v, const box_start &b, int d, int all, const K *from,
                 K *to, K least)
{
    const int keep = static_cast<int>(v.keep[d].by);
    for (int i = threadIdx.x; i < all; i += blockDim.x) {
        int line = v.keep[POOL_W].narrow(i),
            inner = static_cast<int>(v.keep[POOL_W].by);
        int r = i - line * inner;
        if (d == POOL_T) {
            const int row = line;
            line = v.keep[POOL_H].narrow(row);
            r += (row - line * static_cast<int>(v.keep[POOL_H].by)) * inner;
            inner *= static_cast<int>(v.keep[POOL_H].by);
        }
        const int outer = v.windows[d].narrow(line);
        const int o = line - outer * static_cast<int>(v.windows[d].by);
        to[i] = pool_line(v, b, d, o, from + outer * keep * inner + r, inner, least);
    }
}

/* Pools W into y. */
template <typename K>
__device__ __forceinline__ void
store_box(const box_view &v, const box_start &b, const K *keys, K least)
{
    const int all = static_cast<int>(v.plan.planes * v.plan.windows[POOL_T] *
                                     v.plan.windows[POOL_H] * v.plan.windows[POOL_W]);
    by_dtype<K>(v.y.dtype, [&](auto type) {
        using T = decltype(type);
        T *const y = static_cast<T *>(v.y.y);
        for (int i = threadIdx.x; i < all; i += blockDim.x) {
            int rest = i, at[POOL_AXES];
#pragma unroll
            for (int d = POOL_W; d >= POOL_T; d--) {
                const int above = v.windows[d].narrow(rest);
                at[d] = rest - above * static_cast<int>(v.windows[d].by);
                rest = above;
            }
            const int64_t plane = b.plane + rest;
            if (plane >= v.x.planes || at[POOL_T] >= b.n[POOL_T] ||
                at[POOL_H] >= b.n[POOL_H] || at[POOL_W] >= b.n[POOL_W]) {
                continue;
            }
            const int line = v.windows[POOL_W].narrow(i);
            const K *row = keys + line * static_cast<int>(v.keep[POOL_W].by);
            const found best = found_in(
                pool_line(v, b, POOL_W, at[POOL_W], row, 1, least), v.x.with_code);
            const int64_t to = plane * v.y.outputs +
                               (b.begin[POOL_T] + at[POOL_T]) * v.by_slice +
                               (b.begin[POOL_H] + at[POOL_H]) * v.by_row +
                               b.begin[POOL_W] + at[POOL_W];
            y[to] = element_of<T>(best.key);
            if (v.y.indices) {
                v.y.indices[to] = best.position;
            }
        }
    });
}

template <typename K>
__global__ void
__launch_bounds__(BOX_BLOCK, 4)
    max_pool3d_overlapping_windows_kernel(box_view v, K least)
{
    GPO_DYN_SHARED(K, keys);
    const box_start b = start_of_box(v, blockIdx.x);
    K *now = keys, *next = keys + v.plan.first;
    load_box(v, b, least, now);
    __syncthreads();
    const int64_t made[] = {v.plan.after_t, v.plan.after_h};
#pragma unroll
    for (int d = POOL_T; d <= POOL_H; d++) {
        if (v.plan.is_pooled[d]) {
            pool_axis_of_box(v, b, d, static_cast<int>(made[d]), now, next, least);
            __syncthreads();
            K *const other = now;
            now = next;
            next = other;
        }
    }
    store_box(v, b, now, least);
}

/* ---- launch ---- */

template <typename K>
static gpo_status
run(gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const axis_order order = {{POOL_T, POOL_H, POOL_W}};
    box_view v = {};
    plan_boxes(call, sizeof(K), &v.plan);
    v.x = source_of(call, order);
    v.y = target_of(call, order);
    for (int d = 0; d < POOL_AXES; d++) {
        v.axis[d] = tap_axis_of(plan.axis[d], 0);
        v.out[d] = static_cast<int>(plan.axis[d].out);
        v.has_gaps = v.has_gaps || plan.axis[d].dilation > 1;
        v.keep[d] = divider_of(v.plan.keep[d]);
        v.windows[d] = divider_of(v.plan.windows[d]);
    }
    v.per_plane = divider_of(plan.plane);
    v.together = divider_of(v.plan.planes);
    v.takes_planes = v.plan.planes > 1 && takes_channels(plan);
    v.by_row = plan.axis[POOL_W].out;
    v.by_slice = plan.axis[POOL_H].out * v.by_row;
    const size_t bytes = static_cast<size_t>(v.plan.bytes);
    gpo_allow_shared(max_pool3d_overlapping_windows_kernel<K>, bytes);
    return GPO_LAUNCH(call, grid_of(v.plan.count), BOX_BLOCK, bytes,
                      (max_pool3d_overlapping_windows_kernel<K>), v,
                      least_key_of<K>(call));
}

gpo_status
max_pool3d_overlapping_windows(gpo_call *call)
{
    return with_keys(call, [&](auto k, auto) { return run<decltype(k)>(call); });
}
