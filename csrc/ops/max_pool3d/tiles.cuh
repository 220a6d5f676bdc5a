/*
 * tiles.cuh  Tiles of v6 of max_pool3d: their choice, and a column of keys in
 * registers, loaded from x and written to shared memory.
 * See keys.cuh for keys, ladder/v6_separable.cuh for how a tile is pooled.
 */
#ifndef GPO_MAX_POOL3D_TILES_CUH
#define GPO_MAX_POOL3D_TILES_CUH

#include "keys.cuh"

/* ---- tiles ---- */

struct tile_plan : tiling {
    pool_axis axis[POOL_AXES];
    int64_t planes; /* of a tile */
    int64_t count;  /* tiles of all planes */
    int lanes;      /* for a row */
    int64_t least, least_code;
};

/* Whether a window spans more than a tile of n x n x 32 elements. */
inline bool
spans_tiles(const max_pool3d_plan &plan, const axis_order &order, int n)
{
    const int64_t most[POOL_AXES] = {n, n, WARP};
    bool spans = false;
    for (int d = 0; d < POOL_AXES; d++) {
        spans = spans || pool_extent(&plan.axis[order.of[d]]) > most[d];
    }
    return spans;
}

/* Whether windows span more than v6's tiles, so that wide_windows takes the call. */
inline bool
takes_wide_windows(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const axis_order order = order_of(plan);
    bool spans = false;
    with_keys(call, [&](auto, auto side) {
        spans = spans_tiles(plan, order, decltype(side)::value);
        return GPO_OK;
    });
    return spans;
}

/* Tiles of at most n x n x 32 elements, for n rows of lanes; `bytes` of a key. */
inline tile_plan
plan_tiles(const gpo_call *call, const axis_order &order, int n, int64_t bytes)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const int64_t most[POOL_AXES] = {n, n, WARP};
    tile_plan s = {};
    for (int d = 0; d < POOL_AXES; d++) {
        s.axis[d] = plan.axis[order.of[d]];
        cut_axis(&s, s.axis[d], d, windows_in(s.axis[d], most[d]));
    }
    s.lanes = lanes_for(s.span[POOL_W]);
    const int64_t fit = n * WARP / s.lanes / s.span[POOL_H];
    s.planes = least_of(fit, plan.planes);
    s.planes = s.planes > 0 ? s.planes : 1;
    const int64_t row = s.span[POOL_H] * s.lanes * bytes;
    const int64_t room = shared_room(call);
    while (s.windows[POOL_T] > 1 && s.planes * s.windows[POOL_T] * row > room) {
        cut_axis(&s, s.axis[POOL_T], POOL_T, ceil_div(s.windows[POOL_T], 2));
    }
    s.count = ceil_div(plan.planes, s.planes) * count_tiles(&s);
    return s;
}

/* ---- a column in registers ---- */

/*
 * a[i] = larger(a[i], a[i + ahead]).  Tries `ahead` = S, S + 1, ..., so that registers
 * have constant indices.
 */
template <int S, typename K, int N>
__device__ __forceinline__ void
take_ahead(K (&a)[N], int ahead)
{
    if constexpr (S < N) {
        if (ahead == S) {
#pragma unroll
            for (int i = 0; i + S < N; i++) {
                a[i] = larger(a[i], a[i + S]);
            }
            return;
        }
        take_ahead<S + 1>(a, ahead);
    }
}

/* The elements `inside` of a column of N, as keys; all loads before the first key. */
template <typename K, int N>
__device__ __forceinline__ void
load_column(K (&a)[N], const key_source &x, int64_t offset, int64_t position,
            unsigned inside)
{
    by_width<K>(x.bytes, [&](auto bits) {
        const auto *p = static_cast<const decltype(bits) *>(x.x) + offset;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (inside >> i & 1) {
                bits = *p;
                memcpy(&a[i], &bits, sizeof bits);
            }
            p += x.by[POOL_T];
        }
    });
    by_dtype<K>(x.dtype, [&](auto e) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (inside >> i & 1) {
                memcpy(&e, &a[i], sizeof e);
                a[i] = key_of<K>(e, x.with_code, position);
            }
            position += x.position[POOL_T];
        }
    });
}

template <typename K>
void
set_least(tile_plan *s, K least)
{
    if constexpr (std::is_same_v<K, coded>) {
        s->least = least.key;
        s->least_code = least.code;
    }
    else {
        s->least = least;
    }
}

template <typename K>
__device__ __forceinline__ K
least_of_tile(const tile_plan &s)
{
    if constexpr (std::is_same_v<K, coded>) {
        return {s.least, s.least_code};
    }
    else {
        return static_cast<K>(s.least);
    }
}

/* Writes every `stride`th of a column, n of them, `pitch` apart. */
template <typename K, int N>
__device__ __forceinline__ void
thin_out(const K (&a)[N], int stride, int n, K *to, int pitch)
{
    int next = 0, made = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (i == next && made < n) {
            to[made * pitch] = a[i];
            next += stride;
            made++;
        }
    }
}

/* The place of a tile, for the threads of a block. */
struct tile_start {
    int64_t plane, from[POOL_AXES];
    int64_t out; /* of its first window, in a plane of y */
    int n[POOL_AXES];
};

__device__ __forceinline__ tile_start
start_of_tile(const tile_plan &s, const key_target &y, int64_t item)
{
    const tile_place at = place_of_tile(s, s.axis, item);
    tile_start start;
    start.plane = at.group * s.planes;
    start.out = 0;
#pragma unroll
    for (int d = 0; d < POOL_AXES; d++) {
        start.from[d] = at.from[d];
        start.n[d] = at.n[d];
        start.out += at.begin[d] * y.by[d];
    }
    return start;
}

/* ---- the shape kernel, for the table and for v6 (shapes/) ---- */

gpo_status max_pool3d_wide_windows(gpo_call *call);

#endif
