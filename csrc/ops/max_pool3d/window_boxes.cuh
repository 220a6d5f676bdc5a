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

template <typename T>
struct overlap_view : narrow_view<T> {
    int step[POOL_AXES]; /* windows apart that have a common element */
    int together;
    divider tiles[POOL_AXES];                  /* boxes of a plane */
    divider side[POOL_AXES], reach[POOL_AXES]; /* elements, windows of a box */
    int log_words, log_lanes;
    bool shares_rows; /* lanes have different rows of windows, not columns */
    int windows;      /* of a block, at most */
    int listed;       /* elements that it lists at once */
    float chained;    /* elements per window that names one: of more, chains */
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

/* As many as a box may have; not all of them exist. */
template <typename T>
__device__ __forceinline__ int
windows_of_box(const overlap_view<T> &v, const box &b)
{
    return b.planes * static_cast<int>(v.reach[POOL_T].by) *
           static_cast<int>(v.reach[POOL_H].by) * static_cast<int>(v.reach[POOL_W].by);
}

/* The numbers that elements of a box may have. */
template <typename T>
__device__ __forceinline__ int
elements_of_box(const overlap_view<T> &v, const box &b)
{
    return b.planes * static_cast<int>(v.side[POOL_T].by) *
           static_cast<int>(v.side[POOL_H].by) * static_cast<int>(v.side[POOL_W].by);
}

/* The window in place p of a box, if there is one; the first one's index and gradient. */
template <typename T>
__device__ __forceinline__ coming_window<T>
bring_from_box(const overlap_view<T> &v, const box &b, const int64_t *indices,
               const T *dy, const box_place &p, bool is_in_box)
{
    const int *const at = p.at;
    const bool is_there = is_in_box && at[POOL_T] < b.count[POOL_T] &&
                          at[POOL_H] < b.count[POOL_H] && at[POOL_W] < b.count[POOL_W];
    const int line = at[POOL_T] * v.axis[POOL_H].out + at[POOL_H];
    const int from = p.plane * v.outputs + line * v.axis[POOL_W].out + at[POOL_W];
    return bring_window(indices, dy, is_there, from);
}

/* ---- elements ---- */

/*
 * A box of dx is `pieces` of `piece` elements: one, unless slices are cut into rows.
 */
struct box_pieces {
    bool is_cut;
    int pieces, piece, begin; /* in the first plane */
};

template <typename T>
__device__ __forceinline__ box_pieces
pieces_of(const overlap_view<T> &v, const box &b)
{
    const gather_axis &h = v.axis[POOL_H], &w = v.axis[POOL_W];
    const bool is_cut = b.n[POOL_H] < h.in;
    const int rows = b.n[POOL_H] * b.n[POOL_W];
    const int begin = (b.from[POOL_T] * h.in + b.from[POOL_H]) * w.in + b.from[POOL_W];
    const int pieces = is_cut ? b.n[POOL_T] : 1;
    const int piece = is_cut ? rows : b.planes * b.n[POOL_T] * rows;
    return {is_cut, pieces, piece, begin};
}

/* ---- the view of a call ---- */

template <typename T>
overlap_view<T>
overlap_view_of(const gpo_call *call, const overlap_plan &s)
{
    overlap_view<T> v = {};
    set_narrow<T>(call, &v);
    v.together = s.together;
    v.windows = s.together;
    for (int d = 0; d < POOL_AXES; d++) {
        v.step[d] = static_cast<int>(step_of(pool_gradient_plan_of(call)->axis[d]));
        v.tiles[d] = divider_of(s.tiles[d]);
        v.side[d] = divider_of(s.side[d]);
        v.reach[d] = divider_of(s.reach[d]);
        v.windows *= s.reach[d];
    }
    return v;
}

#endif
