/*
 * march.cuh  Pooling of max_pool3d that marches along T, v7: tiles and how they are
 * chosen, the windows of a register array, a warp's columns.
 * Not here: kernels and launchers (cuda.cu).
 *
 * A thread has ROWS rows of one column of x, slice after slice.  Along T it keeps what
 * windows to come need of the slices behind, along H it asks the next warp for the rows
 * it lacks, along W its neighbours: nothing is loaded twice, and no slice is waited for
 * but by the warps of one small block.
 */
#ifndef GPO_MAX_POOL3D_MARCH_CUH
#define GPO_MAX_POOL3D_MARCH_CUH

#include "../../device/ptx.cuh"
#include "../../device/warp.cuh"
#include "windows.cuh"

constexpr int ROWS = 8;       /* of a thread */
constexpr int MOST_ROWS = 64; /* of a block: warps along H */
constexpr int ALONE = 4;      /* warps of a block that have nothing to share */

/* ---- tiles ---- */

struct march_plan : tiling {
    int64_t count; /* tiles of all planes */
    int planes;    /* that share a warp */
    int lanes;     /* for a row */
    int warps;     /* along H */
};

/*
 * Tiles that fill the device: the axis that is marched along is cut only where there are
 * few planes, for a tile loads `kernel - stride` slices of the one before it again.
 */
template <typename T>
static march_plan
plan_march(const gpo_call *call, const pool_view<T> &v)
{
    march_plan s = {};
    const pool_axis &t = v.axis[POOL_T], &h = v.axis[POOL_H], &w = v.axis[POOL_W];
    cut_axis(&s, w, POOL_W, windows_in(w, WARP));
    s.lanes = lanes_for(s.span[POOL_W]);
    s.planes = WARP / s.lanes;

    /* few warps that meet, unless many load a tenth less */
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

    const int64_t groups = ceil_div(v.planes, s.planes);
    const int64_t flat = groups * s.tiles[POOL_H] * s.tiles[POOL_W];
    const int64_t wanted = 32 * gpo_processors(call) / s.warps;
    const int64_t most = t.out * t.stride / (8 * t.kernel); /* an eighth is halo */
    int64_t cuts = least_of(ceil_div(wanted, flat > 0 ? flat : 1), most);
    cuts = cuts > 0 ? cuts : 1;
    cut_axis(&s, t, POOL_T, ceil_div(t.out, cuts));
    s.count = groups * count_tiles(&s);
    return s;
}

/* ---- windows of K in registers and lanes ---- */

/* a[i] becomes the largest of a[i] to a[i + K - 1], which MADE of them are already. */
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

/* Lane w gets the largest of lanes w to w + K - 1. */
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

/* What windows of K slices to come need of those behind: by doubling, as pool_array. */
template <int K, typename V>
struct trail {
    V past[K > 1 ? K - 1 : 1][ROWS];

    __device__ __forceinline__ trail()
    {
#pragma unroll
        for (int i = 0; i < K - 1; i++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                past[i][r] = least_value<V>();
            }
        }
    }

    /* The next slice becomes the largest of it and the K - 1 behind it. */
    template <int MADE = 1>
    __device__ __forceinline__ void take(V (&a)[ROWS])
    {
        if constexpr (MADE < K) {
            constexpr int MORE = more_of(K, MADE);
            constexpr int FIRST = MADE - 1, LAST = FIRST + MORE - 1; /* of this step */
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const V now = a[r];
                a[r] = largest(now, past[LAST][r]);
#pragma unroll
                for (int i = LAST; i > FIRST; i--) {
                    past[i][r] = past[i - 1][r];
                }
                past[FIRST][r] = now;
            }
            take<MADE + MORE>(a);
        }
    }
};

/* ---- a tile ---- */

/* Where a thread's rows lie in x and in y, and which of them there are. */
template <typename T>
struct march_place {
    const T *x;      /* of the first slice, which may lie before x begins */
    T *y;            /* of the first window */
    unsigned inside; /* a bit for each row of x */
    int slices;      /* that the windows look at */
    int first, end;  /* those of them that x has */
    int outputs;     /* rows of y; 0 where the thread has no column of y */
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
    int64_t end[POOL_AXES]; /* of what windows look at and x has */
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
 * The rows that x has of slice k; the others are the least value.  As x stores them: a
 * conversion here would wait for a slice that is to be on its way.
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

/* Maxima along T of a thread's rows and of those `beyond`: along H, along W, into y. */
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

/* Windows of K elements along each axis, S apart. */
template <typename T, int K, int S>
__device__ __forceinline__ void
march(const pool_view<T> &v, const march_plan &s)
{
    using V = value_type<T>;
    constexpr int BEYOND = K > S ? K - S : 1; /* rows that a warp lacks, or none */
    constexpr int STEPS = S > 4 ? S : 4; /* written out: what is kept changes place */
    constexpr int AHEAD = K <= 3 && K > S ? 4 : 2; /* slices on their way */
    GPO_SHARED(V, edge, [2][MOST_ROWS / ROWS][BEYOND][WARP]);
    const int lane = threadIdx.x % WARP;
    const bool is_alone = s.warps == 1;
    const int64_t items = is_alone ? ALONE : 1, own = threadIdx.x / WARP;
    const int64_t item = blockIdx.x * items + (is_alone ? own : 0);
    const int warp = is_alone ? 0 : static_cast<int>(own);
    if (item >= s.count) { /* of warps that are alone: no barrier waits for them */
        return;
    }
    const march_place<T> at = place_of_march<S>(v, s, item, warp);
    const int64_t by_row = v.axis[POOL_W].out, by_slice = by_row * v.axis[POOL_H].out;
    T *y = at.y;
    trail<(K > S ? K : 1), V> behind;
    T next[AHEAD][ROWS];
    V most[ROWS], beyond[BEYOND];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        most[r] = least_value<V>();
    }
#pragma unroll
    for (int i = 0; i < BEYOND; i++) {
        beyond[i] = least_value<V>();
    }
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        load_slice(next[k], v, at, k);
    }
    for (int k0 = 0; k0 < at.slices; k0 += STEPS) {
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            const int k = k0 + j;
            V a[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                a[r] = value_of(next[j % AHEAD][r]);
            }
            load_slice(next[j % AHEAD], v, at, k + AHEAD);
            if constexpr (K > S) {
                behind.take(a);
            }
            else { /* windows that share no slice */
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    a[r] = j % S == 0 ? a[r] : largest(most[r], a[r]);
                    most[r] = a[r];
                }
            }
            if ((j - (K - 1)) % S != 0 || k < K - 1 || k >= at.slices) {
                continue;
            }
            if (K > S && !is_alone) {
                const int turn = (k / S) % 2;
#pragma unroll
                for (int i = 0; i < BEYOND; i++) {
                    edge[turn][warp][i][lane] = a[i];
                }
                __syncthreads();
                if (warp + 1 < s.warps) {
#pragma unroll
                    for (int i = 0; i < BEYOND; i++) {
                        beyond[i] = edge[turn][warp + 1][i][lane];
                    }
                }
            }
            store_slice<K, S>(a, beyond, y, by_row, at.outputs, s.lanes);
            y += by_slice;
        }
    }
}

#endif
