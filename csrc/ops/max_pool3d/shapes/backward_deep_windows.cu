/*
 * backward_deep_windows.cu  The gradient of windows that overlap along T and H, in rows
 * of up to 256.  The windows (., ., w') that name an element of row (t, h) name the same
 * one, as they agree on the largest element of what they share: so they have one sum, a
 * cell.  A block goes down the rows of its slices of dx and keeps the cells of as many
 * as a window is high.  A thread adds the windows of one w' to their cells, T after T,
 * without atomics, while other warps finish rows that no later window reaches: lanes
 * whose cells name one element add them up.
 * Cost:  reads each index and gradient once if a block has a plane, and stores dx once;
 *        a barrier per row of windows.  Where a cell gets two elements, which no pooling
 *        does, the block sums its elements anew, window by window.
 */
#include "../deep.cuh"
#include "../gather.cuh"

template <typename T>
struct deep_view : narrow_view<T> {
    divider slice_tiles, row_tiles; /* blocks of a plane, of its slices */
    int slices, rows, pitch;        /* of a block; windows of a row, in whole words */
    divider depth;                  /* rows of cells */
};

/* What a block has: elements of dx, and the windows that reach into them. */
struct deep_tile {
    int64_t plane;
    int t0, t1, h0, h1;
    int_range over_t, over_h; /* windows */
};

template <typename T>
__device__ __forceinline__ deep_tile
deep_tile_of(const deep_view<T> &v, int block)
{
    const int above = v.row_tiles.narrow(block);
    const int plane = v.slice_tiles.narrow(above);
    deep_tile b;
    b.plane = plane;
    b.t0 = (above - plane * static_cast<int>(v.slice_tiles.by)) * v.slices;
    b.h0 = (block - above * static_cast<int>(v.row_tiles.by)) * v.rows;
    const int t = b.t0 + v.slices, h = b.h0 + v.rows;
    b.t1 = t < v.axis[POOL_T].in ? t : v.axis[POOL_T].in;
    b.h1 = h < v.axis[POOL_H].in ? h : v.axis[POOL_H].in;
    b.over_t = windows_over(v.axis[POOL_T], b.t0, b.t1 - 1);
    b.over_h = windows_over(v.axis[POOL_H], b.h0, b.h1 - 1);
    return b;
}

/* A block's shared memory: the cells of `depth` rows of its slices. */
template <typename V>
struct deep_room {
    V *cells;       /* 0 if they are empty */
    uint8_t *names; /* the element's place in window w' of the row, or DEEP_EMPTY */
};

/* ---- windows to cells ---- */

/* The windows of one w', which a thread brings and adds. */
template <typename T>
struct deep_column {
    const int64_t *indices; /* of window (0, 0, w') */
    const T *dy;
    int start; /* where its windows begin in a row of dx */
    bool is_there;

    __device__ __forceinline__ coming_window<T>
    bring(const deep_view<T> &v, const deep_tile &b, int ot, int oh) const
    {
        coming_window<T> o = {-1, stored_as<T>(value_type<T>(0))};
        if (is_there && ot <= b.over_t.last && oh <= b.over_h.last) {
            const int at = (ot * v.axis[POOL_H].out + oh) * v.axis[POOL_W].out;
            o.found = indices[at];
            o.gradient = dy[at];
        }
        return o;
    }
};

/* Whether 0 <= n < end. */
__device__ __forceinline__ bool
is_below(int n, int end)
{
    return static_cast<unsigned>(n) < static_cast<unsigned>(end);
}

/* A window's cell, of those of its w', and the element's place in the window. */
struct deep_place {
    int cell; /* -1 if the element is not the block's or not in the window */
    int name;
};

/* Of a window that begins at (t, h, w), with h in row `slot` of cells. */
template <typename T>
__device__ __forceinline__ deep_place
place_of_window(const deep_view<T> &v, const deep_tile &b, int64_t found, int t, int h,
                int w, int slot)
{
    const found_element e = element_of(v, found);
    const int at_t = e.at.t, at_h = e.at.h, name = e.at.w - w;
    const bool is_own = e.is_in_plane & is_below(at_t - t, v.axis[POOL_T].kernel) &
                        is_below(at_h - h, v.axis[POOL_H].kernel) &
                        is_below(name, v.axis[POOL_W].kernel) &
                        is_below(at_t - b.t0, b.t1 - b.t0) &
                        is_below(at_h - b.h0, b.h1 - b.h0);
    const int depth = static_cast<int>(v.depth.by), past = slot + at_h - h;
    const int row = past < depth ? past : past - depth;
    const int cell = (row * v.slices + at_t - b.t0) * v.pitch;
    return {is_own ? cell : -1, name};
}

/* ---- cells to elements ---- */

/*
 * The places that a lane has of a row of cells: up to four of each 128, a byte each.
 */
struct deep_names {
    uint64_t left;

    __device__ __forceinline__ static int column(int k)
    {
        return k / 4 * 4 * WARP + static_cast<int>(threadIdx.x % WARP) * 4 + k % 4;
    }

    /* The element of its k-th window, or -1. */
    __device__ __forceinline__ int element(const gather_axis &a, int k) const
    {
        const int name = static_cast<int>(left >> 8 * k & 255);
        return name == DEEP_EMPTY ? -1 : column(k) * a.stride - a.padding + name;
    }
};

/*
 * Finishes row h of slice t, by a warp: lanes whose cells name one element add them in
 * an order that depends on the sizes alone.  The cells are empty afterwards.
 */
template <typename T>
__device__ __forceinline__ void
finish_row(const deep_view<T> &v, const deep_tile &b,
           const deep_room<value_type<T>> &room, int t, int h, bool has_cells)
{
    using V = value_type<T>;
    const gather_axis &aw = v.axis[POOL_W];
    const int lane = threadIdx.x % WARP;
    T *const dx = v.dx + b.plane * v.plane +
                  (t * v.axis[POOL_H].in + h) * static_cast<int64_t>(aw.in);
    const int slot = h - v.depth.narrow(h) * static_cast<int>(v.depth.by);
    const int cells = (slot * v.slices + t - b.t0) * v.pitch, words = v.pitch / 4;
    unsigned *const names = reinterpret_cast<unsigned *>(room.names + cells);
    const bool is_long = words > WARP; /* uniform */
    const unsigned low = has_cells && lane < words ? names[lane] : ~0u;
    const unsigned high = has_cells && lane + WARP < words ? names[lane + WARP] : ~0u;
#pragma unroll 4
    for (int w = lane; w < aw.in; w += WARP) {
        dx[w] = stored_as<T>(V(0));
    }
    if (__ballot_sync(ALL_LANES, (low & high) != ~0u) == 0) {
        return;
    }
    if (low != ~0u) {
        names[lane] = ~0u;
    }
    if (high != ~0u) {
        names[lane + WARP] = ~0u;
    }
    __syncwarp(); /* zeros before sums */
    deep_names n = {static_cast<uint64_t>(high) << 32 | low};
    for (;;) {
        const unsigned lanes = __ballot_sync(ALL_LANES, n.left != ~uint64_t{0});
        if (lanes == 0) {
            break;
        }
        const int leader = __ffs(static_cast<int>(lanes)) - 1;
        const int k = (__ffsll(static_cast<long long>(~n.left)) - 1) / 8;
        const int wanted = __shfl_sync(ALL_LANES, n.element(aw, k < 0 ? 0 : k), leader);
        V sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if ((i < 4 || is_long) && n.element(aw, i) == wanted) {
                V &cell = room.cells[cells + deep_names::column(i)];
                sum += cell;
                cell = 0;
                n.left |= uint64_t{255} << 8 * i;
            }
        }
#pragma unroll
        for (int d = WARP / 2; d > 0; d /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        }
        if (lane == leader) {
            dx[wanted] = stored_as<T>(sum);
        }
    }
}

/* ---- any indices ---- */

/* Sums a block's elements window by window. */
template <typename T>
__device__ void
sum_anew(const deep_view<T> &v, const deep_tile &b)
{
    const int width = v.axis[POOL_W].in, rows = b.h1 - b.h0;
    const int high = v.axis[POOL_H].out, wide = v.axis[POOL_W].out;
    const int all = (b.t1 - b.t0) * rows * width;
    for (int e = threadIdx.x; e < all; e += blockDim.x) {
        const int line = e / width, w = e - line * width;
        const int t = b.t0 + line / rows, h = b.h0 + line % rows;
        const int64_t own =
            (static_cast<int64_t>(t) * v.axis[POOL_H].in + h) * width + w;
        const int_range over_t = windows_over(v.axis[POOL_T], t, t);
        const int_range over_h = windows_over(v.axis[POOL_H], h, h);
        const int_range over_w = windows_over(v.axis[POOL_W], w, w);
        value_type<T> sum = 0;
        for (int ot = over_t.first; ot <= over_t.last; ot++) {
            for (int oh = over_h.first; oh <= over_h.last; oh++) {
                for (int ow = over_w.first; ow <= over_w.last; ow++) {
                    const int64_t at =
                        b.plane * v.outputs + (ot * high + oh) * wide + ow;
                    if (v.indices[at] == own) {
                        sum += value_of(v.dy[at]);
                    }
                }
            }
        }
        v.dx[b.plane * v.plane + own] = stored_as<T>(sum);
    }
}

/* ---- the kernel ---- */

template <typename T>
__global__ void
__launch_bounds__(DEEP_WARPS *WARP, DEEP_BLOCKS)
    max_pool3d_backward_deep_windows_kernel(deep_view<T> v)
{
    using V = value_type<T>;
    GPO_DYN_SHARED(unsigned char, memory);
    GPO_SHARED(int, taken, [2]); /* lines of a phase that warps have taken */
    GPO_SHARED(int, mixed, [1]);
    const deep_tile b = deep_tile_of(v, blockIdx.x);
    const gather_axis &at = v.axis[POOL_T], &ah = v.axis[POOL_H], &aw = v.axis[POOL_W];
    const int tid = threadIdx.x, lane = tid % WARP;
    const int cells = static_cast<int>(v.depth.by) * v.slices * v.pitch;
    V *const sums = reinterpret_cast<V *>(memory);
    const deep_room<V> room = {sums, reinterpret_cast<uint8_t *>(sums + cells)};
    const bool adds = tid / WARP * WARP < aw.out; /* windows, with its warp */
    const int slices = b.t1 - b.t0;
    constexpr int FLIGHT = sizeof(T) == 8 ? DEEP_FLIGHT / 2 : DEEP_FLIGHT;
    const int64_t from = b.plane * v.outputs + tid;
    const deep_column<T> column = {v.indices + from, v.dy + from,
                                   tid * aw.stride - aw.padding, tid < aw.out};
    coming_window<T> ring[FLIGHT];
    if (adds) {
#pragma unroll
        for (int k = 0; k < FLIGHT; k++) {
            ring[k] = column.bring(v, b, b.over_t.first + k, b.over_h.first);
        }
    }
    for (int k = tid; k < cells; k += blockDim.x) {
        sums[k] = 0;
        room.names[k] = DEEP_EMPTY;
    }
    if (tid == 0) {
        taken[0] = 0;
        mixed[0] = 0;
    }
    __syncthreads();

    /* rows of dx below `done` are stored; those from `covered` on have no window */
    const int covered = b.over_h.last * ah.stride - ah.padding + ah.kernel;
    int done = b.h0, phase = 0;
    for (int oh = b.over_h.first; done < b.h1; oh++, phase = 1 - phase) {
        const int begin = oh * ah.stride - ah.padding; /* of this phase's windows */
        if (tid == 0) {
            taken[1 - phase] = 0;
        }
        if (adds && oh <= b.over_h.last) {
            const int depth = static_cast<int>(v.depth.by);
            const int slot = (begin + depth) % depth; /* begin is above -depth */
            bool is_good = true;
            for (int first = b.over_t.first; first <= b.over_t.last; first += FLIGHT) {
                const bool is_last = first + FLIGHT > b.over_t.last;
                const int next = is_last ? b.over_t.first : first + FLIGHT;
                deep_place place[FLIGHT];
                V gradient[FLIGHT];
#pragma unroll
                for (int k = 0; k < FLIGHT; k++) {
                    place[k] = place_of_window(v, b, ring[k].found,
                                               (first + k) * at.stride - at.padding,
                                               begin, column.start, slot);
                    gradient[k] = value_of(ring[k].gradient);
                    ring[k] = column.bring(v, b, next + k, oh + is_last);
                }
#pragma unroll
                for (int k = 0; k < FLIGHT; k++) {
                    if (place[k].cell >= 0) {
                        const int cell = place[k].cell + tid;
                        const int before = room.names[cell];
                        const V sum = sums[cell] + gradient[k];
                        const bool is_one =
                            before == DEEP_EMPTY || before == place[k].name;
                        if (is_one) {
                            room.names[cell] = static_cast<uint8_t>(place[k].name);
                            sums[cell] = sum;
                        }
                        is_good &= is_one;
                    }
                }
            }
            if (!is_good) {
                atomicOr(&mixed[0], 1);
            }
        }
        int end = oh > b.over_h.last || begin > b.h1 ? b.h1 : begin;
        end = end > done ? end : done;
        const int lines = (end - done) * slices;
        for (;;) {
            int first = lane == 0 ? atomicAdd(&taken[phase], DEEP_LINES) : 0;
            first = __shfl_sync(ALL_LANES, first, 0);
            if (first >= lines) {
                break;
            }
            for (int line = first; line < first + DEEP_LINES && line < lines; line++) {
                const int row = slices > 1 ? line / slices : line, h = done + row;
                finish_row(v, b, room, b.t0 + line - row * slices, h, h < covered);
            }
        }
        done = end;
        __syncthreads();
    }
    if (mixed[0]) { /* the same for all threads */
        sum_anew(v, b);
    }
}

/* ---- launch ---- */

template <typename T>
gpo_status
max_pool3d_backward_deep_windows(gpo_call *call)
{
    deep_plan s = {};
    if (!has_deep_rows(call) || !plan_deep(call, &s)) {
        return GPO_OK; /* dx is empty: its row of the table takes no other */
    }
    deep_view<T> v = {};
    set_narrow<T>(call, &v);
    v.slice_tiles = divider_of(s.slice_tiles);
    v.row_tiles = divider_of(s.row_tiles);
    v.slices = s.slices;
    v.rows = s.rows;
    v.pitch = s.pitch;
    v.depth = divider_of(s.depth);
    const size_t bytes = static_cast<size_t>(s.bytes);
    gpo_allow_shared(max_pool3d_backward_deep_windows_kernel<T>, bytes);
    return GPO_LAUNCH(call, grid_of(s.blocks), DEEP_WARPS * WARP, bytes,
                      (max_pool3d_backward_deep_windows_kernel<T>), v);
}

#define INSTANTIATE(T) \
    template gpo_status max_pool3d_backward_deep_windows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
