/*
 * window_boxes.cuh  What shapes/backward_overlapping_windows.cu and
 * shapes/backward_dense_windows.cu share: the box of dx that a block owns, the windows
 * that reach into it, and which element of it a window names.
 * See overlap.cuh for the choice of boxes.
 */
#ifndef GPO_MAX_POOL3D_WINDOW_BOXES_CUH
#define GPO_MAX_POOL3D_WINDOW_BOXES_CUH

#include "gather.cuh"
#include "overlap.cuh"

#include <limits.h>

template <typename T>
struct overlap_view {
    const T *dy;
    const int64_t *indices;
    T *dx;
    int planes, plane, outputs; /* elements of a plane of dx, of dy */
    gather_axis axis[POOL_AXES];
    divider dilation[POOL_AXES];
    int step[POOL_AXES];        /* windows apart that have a common element */
    divider per_slice, per_row; /* elements of a plane */
    int together;
    divider tiles[POOL_AXES];                  /* boxes of a plane */
    divider side[POOL_AXES], reach[POOL_AXES]; /* elements, windows of a box */
    int log_words, log_lanes;
    bool shares_rows; /* lanes have different rows of windows, not columns */
    int windows;      /* of a block, at most */
};

/* ---- what a block owns ---- */

struct box {
    int64_t plane; /* the first */
    int planes;
    int from[POOL_AXES], n[POOL_AXES];      /* elements */
    int first[POOL_AXES], count[POOL_AXES]; /* windows */
    int start[POOL_AXES]; /* where the first window begins, in elements of the box */
    int64_t window;       /* the first one's offset in dy */
};

template <typename T>
__device__ __forceinline__ box
box_of(const overlap_view<T> &v, int block)
{
    box b;
    int at[POOL_AXES];
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int above = v.tiles[d].narrow(block);
        at[d] = block - above * static_cast<int>(v.tiles[d].by);
        block = above;
    }
    const int first = block * v.together, left = v.planes - first;
    b.plane = first;
    b.planes = left < v.together ? left : v.together;
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int side = static_cast<int>(v.side[d].by);
        b.from[d] = at[d] * side;
        b.n[d] = a.in - b.from[d] < side ? a.in - b.from[d] : side;
        const int_range over = windows_over(a, b.from[d], b.from[d] + b.n[d] - 1);
        b.first[d] = over.first;
        b.count[d] = over.last - over.first + 1; /* perhaps none, or less */
        b.start[d] = over.first * a.stride - a.padding - b.from[d];
    }
    const int line = b.first[POOL_T] * v.axis[POOL_H].out + b.first[POOL_H];
    b.window = b.plane * v.outputs + line * v.axis[POOL_W].out + b.first[POOL_W];
    return b;
}

/* ---- windows ---- */

struct box_place {
    int plane, at[POOL_AXES];
};

/* Number q of a box's windows or elements, `pitch` along each axis. */
__device__ __forceinline__ box_place
place_of(const divider (&pitch)[POOL_AXES], int q)
{
    box_place p;
#pragma unroll
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int above = pitch[d].narrow(q);
        p.at[d] = q - above * static_cast<int>(pitch[d].by);
        q = above;
    }
    p.plane = q;
    return p;
}

/* A window in flight from memory: its index, its gradient, its place in the box. */
template <typename T>
struct coming_window {
    int64_t found; /* -1 if there is none */
    T gradient;
    unsigned t_h, w_plane; /* 16 bits each */
};

template <typename T>
__device__ __forceinline__ coming_window<T>
bring_window(const overlap_view<T> &v, const box &b, const int64_t *indices,
             const T *dy, int windows, int q)
{
    const box_place p = place_of(v.reach, q);
    const int *const at = p.at;
    coming_window<T> o = {-1, stored_as<T>(value_type<T>(0)),
                          static_cast<unsigned>(at[POOL_T] | at[POOL_H] << 16),
                          static_cast<unsigned>(at[POOL_W] | p.plane << 16)};
    if (q < windows && at[POOL_T] < b.count[POOL_T] && at[POOL_H] < b.count[POOL_H] &&
        at[POOL_W] < b.count[POOL_W]) {
        const int line = at[POOL_T] * v.axis[POOL_H].out + at[POOL_H];
        const int from = p.plane * v.outputs + line * v.axis[POOL_W].out + at[POOL_W];
        o.found = indices[from];
        o.gradient = dy[from];
    }
    return o;
}

/* The number in the box of the element that a window names, or NO_ELEMENT. */
template <typename T, bool GAPS>
__device__ __forceinline__ int
name_of(const overlap_view<T> &v, const box &b, const coming_window<T> &o)
{
    const bool is_in_plane =
        static_cast<uint64_t>(o.found) < static_cast<uint64_t>(v.plane);
    const int index = static_cast<int>(o.found) & INT_MAX,
              t = v.per_slice.narrow(index);
    const int rest = index - t * static_cast<int>(v.per_slice.by);
    const int h = v.per_row.narrow(rest);
    const int at[POOL_AXES] = {t - b.from[POOL_T], h - b.from[POOL_H],
                               rest - h * static_cast<int>(v.per_row.by) -
                                   b.from[POOL_W]};
    const int window[POOL_AXES] = {static_cast<int>(o.t_h & 0xffff),
                                   static_cast<int>(o.t_h >> 16),
                                   static_cast<int>(o.w_plane & 0xffff)};
    bool is_own = is_in_plane;
    int name = static_cast<int>(o.w_plane >> 16);
#pragma unroll
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const gather_axis &a = v.axis[d];
        const int past = at[d] - (b.start[d] + window[d] * a.stride);
        const unsigned extent =
            static_cast<unsigned>(GAPS ? (a.kernel - 1) * a.dilation + 1 : a.kernel);
        is_own = is_own && static_cast<unsigned>(past) < extent &&
                 static_cast<unsigned>(at[d]) < static_cast<unsigned>(b.n[d]);
        if (GAPS) {
            is_own =
                is_own && v.dilation[d].narrow(past & INT_MAX) * a.dilation == past;
        }
        name = name * static_cast<int>(v.side[d].by) + at[d];
    }
    return is_own ? name : NO_ELEMENT;
}

/* ---- the view of a call ---- */

template <typename T>
overlap_view<T>
overlap_view_of(const gpo_call *call, const overlap_plan &s)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    overlap_view<T> v = {};
    v.dy = static_cast<const T *>(call->in[0].data);
    v.indices = static_cast<const int64_t *>(call->in[1].data);
    v.dx = static_cast<T *>(call->out[0].data);
    v.planes = static_cast<int>(plan.planes);
    v.plane = static_cast<int>(plan.plane);
    v.outputs = static_cast<int>(plan.outputs);
    v.together = s.together;
    v.windows = s.together;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        v.axis[d] = gather_axis_of(a);
        v.dilation[d] = divider_of(a.dilation);
        v.step[d] = static_cast<int>(step_of(a));
        v.tiles[d] = divider_of(s.tiles[d]);
        v.side[d] = divider_of(s.side[d]);
        v.reach[d] = divider_of(s.reach[d]);
        v.windows *= s.reach[d];
    }
    v.per_slice = divider_of(plan.axis[POOL_H].in * plan.axis[POOL_W].in);
    v.per_row = divider_of(plan.axis[POOL_W].in);
    return v;
}

#endif
