/*
 * rounds.cuh  The gradient of max_pool3d in rounds, v4: the choice of tiles of dx, the
 * rows of windows of a round, and how a warp adds one row.
 * See ladder/backward_v4_rounds.cuh for the kernel.
 *
 * Rows of windows that lie a window apart along T or H have no element in common: warps
 * add them at the same time to sums in shared memory, without conflicts, and the next
 * rows after a barrier.  Within a row the windows that name one element are adjacent,
 * since the position of the maximum never moves back as the window moves on: their
 * gradients are added by shuffles, and one lane adds the sum.
 */
#ifndef GPO_MAX_POOL3D_ROUNDS_CUH
#define GPO_MAX_POOL3D_ROUNDS_CUH

#include "gradient.cuh"

#include <limits.h>

/* ---- tiles of dx ---- */

struct round_plan {
    int side[2]; /* slices of a tile, and its rows of a slice; rows are whole */
    divider tiles[2];
    int64_t items;
    int apart[POOL_AXES]; /* windows this far apart share no element */
    divider per_round[2]; /* the same, as divisors */
    int rows;             /* of windows in a round, at most */
};

/* Windows that reach into n elements of an axis, at most: fewer at its ends. */
inline int64_t
windows_of(const pool_axis &a, int64_t n)
{
    const bool has_inner = 2 * n < a.in;
    const int64_t reach = has_inner ? n + a.kernel - 2 : n - 1 + a.padding;
    return least_of(reach / a.stride + 1, a.out);
}

/*
 * Chooses tiles of up to `room` bytes, for sums of `size` bytes, that read the fewest
 * windows: every tile that a window reaches into reads it.  False if a row does not fit
 * or windows are dilated.
 */
inline bool
plan_rounds(const pool_gradient_plan &plan, int64_t room, size_t size, round_plan *s)
{
    const pool_axis *a = plan.axis;
    const int64_t row = a[POOL_W].in * static_cast<int64_t>(size);
    const bool fits = row <= room && plan.outputs > 0 && plan.plane <= INT32_MAX &&
                      plan.outputs <= INT32_MAX && !plan.has_gaps;
    for (int d = 0; d < POOL_AXES; d++) {
        s->apart[d] = static_cast<int>(ceil_div(a[d].kernel, a[d].stride));
    }
    double least = INFINITY;
    for (int64_t h = a[POOL_H].in; fits && h > 0; h /= 2) {
        const int64_t most = least_of(room / (row * h), a[POOL_T].in);
        if (most == 0) {
            continue;
        }
        const int64_t high = ceil_div(a[POOL_T].in, most);
        const int64_t t = ceil_div(a[POOL_T].in, high);
        const int64_t wide = ceil_div(a[POOL_H].in, h);
        const double looked = static_cast<double>(high * windows_of(a[POOL_T], t)) *
                              static_cast<double>(wide * windows_of(a[POOL_H], h));
        if (looked < least) {
            least = looked;
            s->side[POOL_T] = static_cast<int>(t);
            s->side[POOL_H] = static_cast<int>(h);
            s->tiles[POOL_T] = divider_of(high);
            s->tiles[POOL_H] = divider_of(wide);
        }
    }
    s->per_round[POOL_T] = divider_of(s->apart[POOL_T]);
    s->per_round[POOL_H] = divider_of(s->apart[POOL_H]);
    s->rows = 1;
    for (int d = POOL_T; fits && d <= POOL_H; d++) {
        s->rows *=
            static_cast<int>(ceil_div(windows_of(a[d], s->side[d]), s->apart[d]));
    }
    s->items = plan.planes * s->tiles[POOL_T].by * s->tiles[POOL_H].by;
    return fits && s->items > 0;
}

/* Warps of a block. */
inline int
round_warps(const round_plan &s)
{
    return s.rows > ROUND_WARPS / 2 ? ROUND_WARPS : ROUND_WARPS / 2;
}

/* A tile: its plane, its elements, the windows that reach into them. */
struct round_tile {
    int64_t plane;
    int from[2], n[2];
    int first[2], end[2];
    int rows[2]; /* of windows in a round, along T and H, at most */
    int batches; /* of rows, one for each slot of the warps */
};

template <typename T>
__device__ __forceinline__ round_tile
tile_of(const gradient_view<T> &v, const round_plan &s, int64_t item, int slots)
{
    round_tile tile;
    const int64_t line = s.tiles[POOL_H].of(item);
    tile.plane = s.tiles[POOL_T].of(line);
    tile.from[POOL_T] =
        static_cast<int>(line - tile.plane * s.tiles[POOL_T].by) * s.side[POOL_T];
    tile.from[POOL_H] =
        static_cast<int>(item - line * s.tiles[POOL_H].by) * s.side[POOL_H];
#pragma unroll
    for (int d = POOL_T; d <= POOL_H; d++) {
        const int from = tile.from[d];
        tile.n[d] = static_cast<int>(least_of(s.side[d], v.in[d] - from));
        const window_range one = windows_with(v.axis[d], v.stride[d], from);
        const window_range other =
            windows_with(v.axis[d], v.stride[d], from + tile.n[d] - 1);
        tile.first[d] = static_cast<int>(one.first);
        tile.end[d] = static_cast<int>(other.last) + 1;
        const int n = tile.end[d] - tile.first[d];
        tile.rows[d] = n > 0 ? s.per_round[d].narrow(n + s.apart[d] - 1) : 1;
    }
    tile.batches = (tile.rows[POOL_T] * tile.rows[POOL_H] + slots - 1) / slots;
    return tile;
}

/* ---- the rows of windows of a round ---- */

/* SLOTS rows of windows in flight from memory to a warp, a window per lane. */
template <typename V, int SLOTS>
struct coming_rows {
    int64_t found[SLOTS]; /* the index */
    V gradient[SLOTS];
    int t[SLOTS], h[SLOTS]; /* where its windows begin; t is NO_ROW if there is none */
    int begin;              /* the first window of the row that a lane has */
};

constexpr int NO_ROW = INT_MIN;

/*
 * Goes through one warp's rows of a tile in rounds: over the columns, 32 windows at a
 * time, and over rows along T and H.  A round with more rows than the warps have slots
 * is done in batches.
 */
template <typename T, int SLOTS>
struct round_walk {
    const gradient_view<T> &v;
    const round_plan &s;
    const round_tile &tile;
    const T *dy; /* of the plane */
    const int64_t *indices;
    int begin, round_t, round_h, batch; /* of the next step */
    int t[SLOTS], h[SLOTS];             /* windows of the batch, in round (0, 0) */
    int warp, warps;

    __device__ __forceinline__ round_walk(const gradient_view<T> &v,
                                          const round_plan &s, const round_tile &tile)
        : v(v), s(s), tile(tile)
    {
        warp = threadIdx.x / WARP;
        warps = blockDim.x / WARP;
        dy = v.dy + tile.plane * v.outputs;
        indices = v.indices + tile.plane * v.outputs;
        begin = round_t = round_h = 0;
        take_batch(0);
    }

    __device__ __forceinline__ void take_batch(int number)
    {
        batch = number;
        for (int slot = 0; slot < SLOTS; slot++) {
            const int row = (number * SLOTS + slot) * warps + warp;
            const int i = row / tile.rows[POOL_H], j = row - i * tile.rows[POOL_H];
            t[slot] = tile.first[POOL_T] + i * s.apart[POOL_T];
            h[slot] = tile.first[POOL_H] + j * s.apart[POOL_H];
        }
    }

    __device__ __forceinline__ coming_rows<value_type<T>, SLOTS> next()
    {
        const int lane = threadIdx.x % WARP, cols = static_cast<int>(v.out[POOL_W]);
        coming_rows<value_type<T>, SLOTS> c;
        c.begin = begin;
#pragma unroll
        for (int slot = 0; slot < SLOTS; slot++) {
            const int ot = t[slot] + round_t, oh = h[slot] + round_h;
            const bool is_row =
                ot < tile.end[POOL_T] && oh < tile.end[POOL_H] && begin < cols;
            const int row = (ot * static_cast<int>(v.out[POOL_H]) + oh) * cols;
            /* an unused load of element 0 avoids a branch */
            const int at = is_row && begin + lane < cols ? row + begin + lane : 0;
            c.found[slot] = indices[at];
            c.gradient[slot] = value_of(dy[at]);
            c.h[slot] = oh * static_cast<int>(v.axis[POOL_H].stride) -
                        static_cast<int>(v.axis[POOL_H].padding);
            const int begin_t = ot * static_cast<int>(v.axis[POOL_T].stride) -
                                static_cast<int>(v.axis[POOL_T].padding);
            c.t[slot] = is_row ? begin_t : NO_ROW;
        }
        if (tile.batches > 1) {
            take_batch(batch + 1 < tile.batches ? batch + 1 : 0);
        }
        if (batch == 0 && ++round_h == s.apart[POOL_H]) {
            round_h = 0;
            if (++round_t == s.apart[POOL_T]) {
                round_t = 0;
                begin += WARP;
            }
        }
        return c;
    }
};

/* ---- how a warp adds one row ---- */

template <typename V>
struct lane_window {
    bool is_there;
    int64_t found; /* the index */
    V gradient;
    int t, h, w; /* where it begins */
};

/*
 * Adds the gradients of adjacent windows, a lane each, to the sums of a tile.  Adjacent
 * lanes that name one element form a run of up to `longest` lanes.  If an element lies
 * to the left of the one before, the indices come from no pooling: lanes then add one
 * by one.
 */
template <typename T, typename V>
__device__ __forceinline__ void
add_row(const gradient_view<T> &v, const round_tile &tile, const lane_window<V> &o,
        int longest, V *sums)
{
    const int lane = threadIdx.x % WARP, width = static_cast<int>(v.per_row.by);
    const bool is_in_plane = o.found >> 32 == 0 && static_cast<unsigned>(o.found) <
                                                       static_cast<unsigned>(v.plane);
    const int index = is_in_plane ? static_cast<int>(o.found) : 0;
    const coordinates at = coordinates_of(v, index);
    const bool is_own = is_in_plane && is_within(at.t - o.t, v.axis[POOL_T].kernel) &&
                        is_within(at.h - o.h, v.axis[POOL_H].kernel) &&
                        is_within(at.w - o.w, v.axis[POOL_W].kernel);
    const int before = __shfl_up_sync(ALL_LANES, index, 1);
    const int w_before = __shfl_up_sync(ALL_LANES, at.w, 1);
    const bool is_first = lane == 0 || index != before;
    const bool is_right = is_own && (!is_first || lane == 0 || at.w > w_before);
    const unsigned firsts = __ballot_sync(ALL_LANES, is_first || !o.is_there);
    const bool is_run = __all_sync(ALL_LANES, is_right || !o.is_there);

    const int in_t = at.t - tile.from[POOL_T], in_h = at.h - tile.from[POOL_H];
    const bool is_here = o.is_there && is_own && is_within(in_t, tile.n[POOL_T]) &&
                         is_within(in_h, tile.n[POOL_H]);
    V gradient = o.gradient;
    V *const sum = sums + (in_t * tile.n[POOL_H] + in_h) * width + at.w;
    if (is_run) {
        const unsigned behind = firsts >> lane >> 1; /* first lanes of later runs */
        const int more = behind ? __ffs(static_cast<int>(behind)) - 1 : WARP - 1 - lane;
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            if (d < longest) {
                const V other = shuffle_down(gradient, d);
                gradient += d <= more ? other : V(0);
            }
        }
        if (is_here && is_first) {
            *sum += gradient;
        }
    }
    else {
        for (int turn = 0; turn < WARP; turn++) {
            if (turn == lane && is_here) {
                *sum += gradient;
            }
            __syncwarp();
        }
    }
}

#endif
