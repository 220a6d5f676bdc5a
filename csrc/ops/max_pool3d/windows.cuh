/*
 * windows.cuh  What the rungs of max_pool3d share: the view of a call, the running maximum,
 * a window read by one thread (v0 to v5), tiles of windows and windows made by doubling
 * (v6, v7).
 * Not here: rungs (cuda.cu), a tile of v6 (tiles.cuh), of v7 (march.cuh), the gradient
 * (backward.cuh).
 */
#ifndef GPO_MAX_POOL3D_WINDOWS_CUH
#define GPO_MAX_POOL3D_WINDOWS_CUH

#include "../../device/divide.cuh"
#include "../../device/types.cuh"
#include "max_pool3d.h"

#include <type_traits>

constexpr int BLOCK = 256;
constexpr int64_t MAX_GRID_X = 2147483647, MAX_GRID_YZ = 65535;

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

__host__ __device__ __forceinline__ int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

inline unsigned
grid_of(int64_t n, int64_t most)
{
    return static_cast<unsigned>(least_of(n, most));
}

/* Dynamic shared memory that a block may have beside what its kernel declares. */
static int64_t
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
    int64_t *indices; /* NULL where not asked for */
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
static pool_view<T>
view_of(const max_pool3d_plan &plan)
{
    pool_view<T> v = {};
    v.x = static_cast<const T *>(plan.x);
    v.y = static_cast<T *>(plan.y);
    v.indices = plan.indices;
    v.channels = plan.channels;
    v.planes = plan.batches * plan.channels;
    v.by_batch = plan.by_batch;
    v.by_channel = plan.by_channel;
    const int64_t kernel = plan.axis[0].kernel;
    bool is_cube = !max_pool3d_is_padded(&plan);
    for (int d = 0; d < POOL_AXES; d++) {
        v.by[d] = plan.by[d];
        v.axis[d] = plan.axis[d];
        is_cube =
            is_cube && plan.axis[d].kernel == kernel && plan.axis[d].dilation == 1;
    }
    v.outputs = plan.outputs;
    v.per_batch = divider_of(plan.channels > 0 ? plan.channels : 1);
    v.per_plane = divider_of(plan.outputs);
    v.per_slice = divider_of(plan.axis[POOL_H].out * plan.axis[POOL_W].out);
    v.per_row = divider_of(plan.axis[POOL_W].out);
    v.cube = is_cube ? static_cast<int>(kernel) : 0;
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

/* What a window without elements gives. */
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

/* ---- a window read by one thread ---- */

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

/* Elements of a row that are loaded before the first is used. */
template <typename V>
constexpr int CACHE = sizeof(V) == 8 ? 4 : 8;

/* Any window: bounds once, then rows through a cache in registers. */
template <typename T>
__device__ __forceinline__ running<value_type<T>>
scan_window(const pool_view<T> &v, const T *x, const place &at)
{
    using V = value_type<T>;
    const stretch t = stretch_of(v.axis[POOL_T], at.t);
    const stretch h = stretch_of(v.axis[POOL_H], at.h);
    const stretch w = stretch_of(v.axis[POOL_W], at.w);
    const int64_t rows = v.axis[POOL_H].in, cols = v.axis[POOL_W].in;
    const int64_t dt = v.axis[POOL_T].dilation, dh = v.axis[POOL_H].dilation;
    const int64_t dw = v.axis[POOL_W].dilation;
    running<V> best = {least_value<V>(), -1};
    for (int64_t i = t.first; i < t.end; i += dt) {
        for (int64_t j = h.first; j < h.end; j += dh) {
            const T *row = x + i * v.by[POOL_T] + j * v.by[POOL_H];
            const int64_t start = (i * rows + j) * cols;
            for (int64_t k = w.first; k < w.end; k += CACHE<V> * dw) {
                V cache[CACHE<V>];
#pragma unroll
                for (int c = 0; c < CACHE<V>; c++) {
                    const int64_t e = k + c * dw;
                    cache[c] =
                        e < w.end ? value_of(row[e * v.by[POOL_W]]) : least_value<V>();
                }
#pragma unroll
                for (int c = 0; c < CACHE<V>;
                     c++) { /* behind the end nothing is larger */
                    best.take(cache[c], start + k + c * dw);
                }
            }
        }
    }
    return best;
}

/*
 * A cube of K elements a side inside of x: no bounds, every load at a constant offset
 * from one of its planes.  The element is counted by its number in the window.
 */
template <typename T, int K>
__device__ __forceinline__ running<value_type<T>>
scan_cube(const pool_view<T> &v, const T *x, const place &at)
{
    using V = value_type<T>;
    constexpr int ROWS = K <= 3 ? K : 1; /* rows of loads in flight */
    const int64_t t = at.t * v.axis[POOL_T].stride, h = at.h * v.axis[POOL_H].stride;
    const int64_t w = at.w * v.axis[POOL_W].stride;
    const int64_t bh = v.by[POOL_H], bw = v.by[POOL_W];
    const T *plane = x + t * v.by[POOL_T] + h * bh + w * bw;
    V most = least_value<V>();
    int number = 0;
#pragma unroll(K <= 3 ? K : 1)
    for (int i = 0; i < K; i++, plane += v.by[POOL_T]) {
#pragma unroll(K <= 3 ? K : 2)
        for (int j = 0; j < K; j += ROWS) {
            V cache[ROWS * K];
#pragma unroll
            for (int c = 0; c < ROWS * K; c++) {
                cache[c] = value_of(plane[(j + c / K) * bh + c % K * bw]);
            }
#pragma unroll
            for (int c = 0; c < ROWS * K; c++) {
                const bool better = cache[c] > most || cache[c] != cache[c];
                most = better ? cache[c] : most;
                number = better ? (i * K + j) * K + c : number;
            }
        }
    }
    const int64_t rows = v.axis[POOL_H].in, cols = v.axis[POOL_W].in;
    const int64_t first = (t * rows + h) * cols + w;
    const int i = number / (K * K), j = number / K % K;
    return {most, first + (i * rows + j) * cols + number % K};
}

/* The window of one output; CUBE is v.cube where scan_cube is written out for it. */
template <typename T, int CUBE>
__device__ __forceinline__ void
pool_one(const pool_view<T> &v, const place &at)
{
    const T *x = v.plane(at.plane);
    const int64_t i = output_of(v, at);
    if constexpr (CUBE > 0) {
        store_best(v, i, scan_cube<T, CUBE>(v, x, at));
    }
    else {
        store_best(v, i, scan_window(v, x, at));
    }
}

/* f(number) with the compile-time CUBE that serves the windows of v. */
template <typename T, typename F>
static gpo_status
with_cube(const pool_view<T> &v, F f)
{
    switch (v.cube) {
        case 2:
            return f(std::integral_constant<int, 2>());
        case 3:
            return f(std::integral_constant<int, 3>());
        case 8:
            return f(std::integral_constant<int, 8>());
        default:
            return f(std::integral_constant<int, 0>());
    }
}

/* ---- tiles of windows ---- */

struct tiling {
    int64_t windows[POOL_AXES]; /* of a tile, along each axis */
    int64_t span[POOL_AXES];    /* elements those look at */
    int64_t tiles[POOL_AXES];
    divider per_tile[POOL_AXES]; /* tiles of an axis */
};

/* Windows that look at no more than `span` elements in a row. */
static int64_t
windows_in(const pool_axis &a, int64_t span)
{
    return (span - pool_extent(&a)) / a.stride + 1;
}

/* Cuts axis d into tiles of one size, of at most `most` windows. */
static void
cut_axis(tiling *s, const pool_axis &a, int d, int64_t most)
{
    s->windows[d] = ceil_div(a.out, ceil_div(a.out, most));
    s->tiles[d] = ceil_div(a.out, s->windows[d]);
    s->span[d] = (s->windows[d] - 1) * a.stride + pool_extent(&a);
}

/* The tiles of a plane; no axis is cut anew afterwards. */
static int64_t
count_tiles(tiling *s)
{
    int64_t count = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        s->per_tile[d] = divider_of(s->tiles[d]);
        count *= s->tiles[d];
    }
    return count;
}

/* Lanes for rows of so many elements: a power of two. */
static int
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
    int n[POOL_AXES];         /* windows there are */
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
 * Windows of `kernel` elements are made by doubling, the last time by less: where windows
 * of `made` are there, those so many elements on make the next larger ones.
 */
__host__ __device__ constexpr int
more_of(int kernel, int made)
{
    return made < kernel - made ? made : kernel - made;
}

#endif
