/*
 * windows.cuh  What the kernels of max_pool3d share: the view of a call, the running
 * maximum, the part of a window that lies in x, tiles of windows and windows made by
 * doubling (v6, v7).  See tiles.cuh for tiles of v6, march.cuh for v7, gradient.cuh for
 * the gradient.
 */
#ifndef GPO_MAX_POOL3D_WINDOWS_CUH
#define GPO_MAX_POOL3D_WINDOWS_CUH

#include "../../device/grid.cuh"
#include "../../device/divide.cuh"
#include "../../device/number.cuh"
#include "max_pool3d.h"
#include "tuning.cuh"

#include <type_traits>

__host__ __device__ __forceinline__ int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Dynamic shared memory that a block may have beside its kernel's static arrays. */
inline int64_t
shared_room(const gpo_call *call)
{
    constexpr int64_t DECLARED = 1 << 10;
    return gpo_shared_room(call) - DECLARED;
}

template <typename T>
using value_type = decltype(value_of(T()));

/* ---- the view of a call ---- */

template <typename T>
struct pool_view {
    const T *x;
    T *y;
    int64_t *indices; /* NULL if not wanted */
    int64_t channels, planes;
    int64_t by_batch, by_channel, by[POOL_AXES];
    pool_axis axis[POOL_AXES];
    int64_t outputs;
    divider per_batch, per_plane, per_slice, per_row; /* channels; outputs of each */
    int cube; /* the size of a window that is a gapless cube inside of x; else 0 */

    __device__ __forceinline__ const T *plane(int64_t p) const
    {
        const int64_t n = per_batch.of(p);
        return x + n * by_batch + (p - n * channels) * by_channel;
    }
};

template <typename T>
pool_view<T>
view_of(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    pool_view<T> v = {};
    v.x = static_cast<const T *>(call->in[0].data);
    v.y = static_cast<T *>(call->out[0].data);
    v.indices = max_pool3d_indices_of(call);
    v.channels = plan.channels;
    v.planes = plan.planes;
    v.by_batch = plan.by_batch;
    v.by_channel = plan.by_channel;
    for (int d = 0; d < POOL_AXES; d++) {
        v.by[d] = plan.by[d];
        v.axis[d] = plan.axis[d];
    }
    v.outputs = plan.outputs;
    v.per_batch = divider_of(plan.channels > 0 ? plan.channels : 1);
    v.per_plane = divider_of(plan.outputs);
    v.per_slice = divider_of(plan.axis[POOL_H].out * plan.axis[POOL_W].out);
    v.per_row = divider_of(plan.axis[POOL_W].out);
    v.cube = plan.is_padded ? 0 : static_cast<int>(plan.cube);
    return v;
}

/* Output i of all planes. */
struct place {
    int64_t plane, t, h, w;
};

template <typename T>
__device__ __forceinline__ place
place_of(const pool_view<T> &v, int64_t i)
{
    place at;
    at.plane = v.per_plane.of(i);
    i -= at.plane * v.outputs;
    at.t = v.per_slice.of(i);
    i -= at.t * v.per_slice.by;
    at.h = v.per_row.of(i);
    at.w = i - at.h * v.per_row.by;
    return at;
}

template <typename T>
__device__ __forceinline__ int64_t
output_of(const pool_view<T> &v, const place &at)
{
    const pool_axis *a = v.axis;
    return at.plane * v.outputs + (at.t * a[POOL_H].out + at.h) * a[POOL_W].out + at.w;
}

/* ---- the running maximum ---- */

/* The result of a window without elements. */
template <typename V>
__device__ __forceinline__ V
least_value()
{
    if constexpr (V(0.5) != V(0)) {
        return -static_cast<V>(INFINITY);
    }
    else {
        return static_cast<V>(V(1) << (8 * sizeof(V) - 1));
    }
}

/*
 * PyTorch's test: the first of equal maxima stays, and a nan replaces whatever came
 * before.  A running fmax() from the lowest float would drop the nan.
 */
template <typename V>
struct running {
    V most;
    int64_t at; /* position in the plane; -1 before the first element */

    __device__ __forceinline__ void take(V value, int64_t position)
    {
        const bool better = value > most || value != value || at < 0;
        most = better ? value : most;
        at = better ? position : at;
    }
};

template <typename T>
__device__ __forceinline__ void
store_best(const pool_view<T> &v, int64_t i, const running<value_type<T>> &best)
{
    v.y[i] = stored_as<T>(best.most);
    if (v.indices) {
        v.indices[i] = best.at;
    }
}

/* ---- a window along one axis ---- */

/* The part of window o that lies in x: [first, end) in steps of the dilation. */
struct stretch {
    int64_t first, end;
};

__device__ __forceinline__ stretch
stretch_of(const pool_axis &a, int64_t o)
{
    const int64_t start = o * a.stride - a.padding;
    const int64_t stop = start + (a.kernel - 1) * a.dilation + 1;
    const unsigned step = static_cast<unsigned>(a.dilation); /* 31 bits each */
    const int64_t steps =
        start < 0 ? (static_cast<unsigned>(-start) + step - 1) / step : 0;
    return {start + steps * a.dilation, least_of(stop, a.in)};
}

/* ---- tiles of windows ---- */

struct tiling {
    int64_t windows[POOL_AXES]; /* of a tile, along each axis */
    int64_t span[POOL_AXES];    /* elements that these span */
    int64_t tiles[POOL_AXES];
    divider per_tile[POOL_AXES]; /* tiles of an axis */
};

/* How many adjacent windows fit into `span` elements. */
inline int64_t
windows_in(const pool_axis &a, int64_t span)
{
    return (span - pool_extent(&a)) / a.stride + 1;
}

/* Cuts axis d into tiles of one size, of at most `most` windows. */
inline void
cut_axis(tiling *s, const pool_axis &a, int d, int64_t most)
{
    s->windows[d] = ceil_div(a.out, ceil_div(a.out, most));
    s->tiles[d] = ceil_div(a.out, s->windows[d]);
    s->span[d] = (s->windows[d] - 1) * a.stride + pool_extent(&a);
}

/* The tiles of a plane; no axis is cut anew afterwards. */
inline int64_t
count_tiles(tiling *s)
{
    int64_t count = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        s->per_tile[d] = divider_of(s->tiles[d]);
        count *= s->tiles[d];
    }
    return count;
}

/* Lanes for rows of `span` elements: a power of two. */
inline int
lanes_for(int64_t span)
{
    int lanes = 1;
    while (lanes < span) {
        lanes *= 2;
    }
    return lanes;
}

struct tile_place {
    int64_t group;            /* which of the groups of planes that share a tile */
    int64_t begin[POOL_AXES]; /* the first window */
    int64_t from[POOL_AXES];  /* where that begins in x */
    int n[POOL_AXES];         /* windows that the tile has */
};

__device__ __forceinline__ tile_place
place_of_tile(const tiling &s, const pool_axis *axis, int64_t item)
{
    tile_place at;
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int64_t next = s.per_tile[d].of(item);
        at.begin[d] = (item - next * s.tiles[d]) * s.windows[d];
        at.from[d] = at.begin[d] * axis[d].stride - axis[d].padding;
        at.n[d] = static_cast<int>(least_of(s.windows[d], axis[d].out - at.begin[d]));
        item = next;
    }
    at.group = item;
    return at;
}

/*
 * Windows of `kernel` elements are made by doubling: windows of `made` elements are
 * joined with those more_of() elements further, which is less than `made` the last
 * time.
 */
__host__ __device__ constexpr int
more_of(int kernel, int made)
{
    return made < kernel - made ? made : kernel - made;
}

#endif
