/*
 * march.cuh  Parts of v7 of max_pool3d: the choice of tiles, which instance of the
 * kernel serves a call, windows in a register array, a thread's place in x and y.
 * See ladder/v7_march.cuh for the kernel.
 *
 * A thread has ROWS rows of one column of x, slice after slice.  Along T it keeps what
 * later windows need of past slices, along H it gets the rows it lacks from the next
 * warp, along W from the lanes beside it: nothing is loaded twice, and only the warps
 * of one small block wait for each other.
 */
#ifndef GPO_MAX_POOL3D_MARCH_CUH
#define GPO_MAX_POOL3D_MARCH_CUH

#include "../../device/ptx.cuh"
#include "../../device/warp.cuh"
#include "windows.cuh"

/* ---- tiles ---- */

struct march_plan : tiling {
    int64_t count; /* tiles of all planes */
    int planes;    /* that share a warp */
    int lanes;     /* for a row */
    int warps;     /* along H */
};

/*
 * Tiles that fill the device.  T is cut only where there are few planes, since a tile
 * loads `kernel - stride` slices of the one before it again.
 */
inline march_plan
plan_march(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H];
    const pool_axis &w = plan.axis[POOL_W];
    march_plan s = {};
    cut_axis(&s, w, POOL_W, windows_in(w, WARP));
    s.lanes = lanes_for(s.span[POOL_W]);
    s.planes = WARP / s.lanes;

    /* few warps per block, unless more of them load a tenth less */
    int64_t least = INT64_MAX / 16, best = MOST_ROWS;
    for (int64_t rows = 4 * ROWS; rows <= MOST_ROWS; rows += ROWS) {
        cut_axis(&s, h, POOL_H, windows_in(h, rows));
        const int64_t loaded = s.tiles[POOL_H] * ceil_div(s.span[POOL_H], ROWS);
        if (10 * loaded < 9 * least) {
            least = loaded;
            best = rows;
        }
    }
    cut_axis(&s, h, POOL_H, windows_in(h, best));
    s.warps = static_cast<int>(ceil_div(s.span[POOL_H], ROWS));

    const int64_t groups = ceil_div(plan.planes, s.planes);
    const int64_t flat = groups * s.tiles[POOL_H] * s.tiles[POOL_W];
    const int64_t wanted = 32 * gpo_processors(call) / s.warps;
    const int64_t most = t.out * t.stride / (8 * t.kernel); /* an eighth is halo */
    int64_t cuts = least_of(ceil_div(wanted, flat > 0 ? flat : 1), most);
    cuts = cuts > 0 ? cuts : 1;
    cut_axis(&s, t, POOL_T, ceil_div(t.out, cuts));
    s.count = groups * count_tiles(&s);
    return s;
}

/*
 * Kernel and stride, a hexadecimal digit each, of the instance that serves a call,
 * whose windows must have one kernel and stride along all axes; 0 if there is none.
 * Where a plane has one window its stride does not matter, and the instance with stride
 * = kernel serves, which keeps no past slices.
 */
inline int64_t
march_of(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const gpo_dtype dtype = call->in[0].dtype;
    const pool_axis *a = plan.axis;
    bool fits = dtype == GPO_F32 || dtype == GPO_F16 || dtype == GPO_BF16;
    fits = fits && !plan.with_indices && plan.cube > 0 && a[0].stride <= 15;
    for (int d = 0; d < POOL_AXES; d++) {
        fits = fits && a[d].stride == a[0].stride && a[d].in <= INT32_MAX / 2;
    }
    const bool is_alone = plan.outputs == 1 && plan.cube != 3;
    const int64_t march = plan.cube << 4 | (is_alone ? plan.cube : a[0].stride);
    const bool is_made = march == 0x21 || march == 0x22 || march == 0x31 ||
                         march == 0x32 || march == 0x81 || march == 0x88;
    return fits && is_made ? march : 0;
}

/* ---- windows of K in registers and lanes ---- */

/* a[i] becomes the maximum of a[i..i + K); on entry it is that of a[i..i + MADE). */
template <int K, int MADE = 1, typename V, int N>
__device__ __forceinline__ void
pool_array(V (&a)[N])
{
    if constexpr (MADE < K) {
        constexpr int MORE = more_of(K, MADE);
#pragma unroll
        for (int i = 0; i + MORE < N; i++) {
            a[i] = largest(a[i], a[i + MORE]);
        }
        pool_array<K, MADE + MORE>(a);
    }
}

/* Lane w gets the maximum of lanes w to w + K - 1. */
template <int K, int MADE = 1, typename V>
__device__ __forceinline__ V
pool_row(V v, int lanes)
{
    if constexpr (MADE < K) {
        constexpr int MORE = more_of(K, MADE);
        return pool_row<K, MADE + MORE>(largest(v, shuffle_down(v, MORE, lanes)),
                                        lanes);
    }
    else {
        return v;
    }
}

/* ---- a tile ---- */

/* Where a thread's rows lie in x and in y, and which of them exist. */
template <typename T>
struct march_place {
    const T *x;      /* of the first slice, which may lie before x begins */
    T *y;            /* of the first window */
    unsigned inside; /* a bit for each row of x */
    int slices;      /* that the windows span */
    int first, end;  /* those of them that lie in x */
    int outputs;     /* rows of y; 0 if the thread has no column of y */
};

template <int S, typename T>
__device__ __forceinline__ march_place<T>
place_of_march(const pool_view<T> &v, const march_plan &s, int64_t item, int warp)
{
    const int lane = threadIdx.x % WARP, w = lane & (s.lanes - 1);
    const pool_axis *a = v.axis;
    const tile_place tile = place_of_tile(s, a, item);
    const int64_t *begin = tile.begin, *from = tile.from;
    const int *n = tile.n;
    const int64_t plane = tile.group * s.planes + lane / s.lanes;
    const bool is_plane = plane < v.planes;
    const int64_t at_h = from[POOL_H] + warp * ROWS, at_w = from[POOL_W] + w;
    int64_t end[POOL_AXES]; /* of what the windows span in x */
#pragma unroll
    for (int d = 0; d < POOL_AXES; d++) {
        end[d] = least_of(from[d] + (n[d] - 1) * S + a[d].kernel, a[d].in);
    }
    march_place<T> at;
    at.x = v.plane(is_plane ? plane : 0) + from[POOL_T] * v.by[POOL_T] +
           at_h * v.by[POOL_H] + at_w * v.by[POOL_W];
    at.inside = 0;
    if (is_plane && at_w >= 0 && at_w < end[POOL_W]) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const bool is_in = at_h + r >= 0 && at_h + r < end[POOL_H];
            at.inside |= static_cast<unsigned>(is_in) << r;
        }
    }
    at.slices = (n[POOL_T] - 1) * S + static_cast<int>(a[POOL_T].kernel);
    at.first = from[POOL_T] < 0 ? static_cast<int>(-from[POOL_T]) : 0;
    at.end = static_cast<int>(end[POOL_T] - from[POOL_T]);

    const int first_row = warp * (ROWS / S);
    const bool has_column = is_plane && w % S == 0 && w / S < n[POOL_W];
    at.outputs = has_column ? n[POOL_H] - first_row : 0;
    at.y = v.y + output_of(v, {plane, begin[POOL_T], begin[POOL_H] + first_row,
                               begin[POOL_W] + w / S});
    return at;
}

/*
 * Loads the rows of slice k that lie in x; the others become the least value.  They
 * stay as x stores them: a conversion here would wait for a slice that is to be in
 * flight.
 */
template <typename T>
__device__ __forceinline__ void
load_slice(T (&a)[ROWS], const pool_view<T> &v, const march_place<T> &at, int k)
{
    const unsigned inside = k >= at.first && k < at.end ? at.inside : 0;
    const T *x = at.x + k * v.by[POOL_T];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        a[r] = stored_as<T>(least_value<value_type<T>>());
        if (inside >> r & 1) {
            a[r] = *x;
        }
        x += v.by[POOL_H];
    }
}

/* Pools maxima along T, of a thread's rows and those `beyond`, along H and W into y. */
template <int K, int S, typename T, typename V, int BEYOND>
__device__ __forceinline__ void
store_slice(const V (&a)[ROWS], const V (&beyond)[BEYOND], T *y, int64_t by,
            int outputs, int lanes)
{
    V b[ROWS + BEYOND];
#pragma unroll
    for (int r = 0; r < ROWS + BEYOND; r++) {
        b[r] = r < ROWS ? a[r] : beyond[r - ROWS];
    }
    pool_array<K>(b);
#pragma unroll
    for (int o = 0; o < ROWS / S; o++) {
        const V best = pool_row<K>(b[o * S], lanes);
        if (o < outputs) {
            *y = stored_as<T>(best);
        }
        y += by;
    }
}

#endif
