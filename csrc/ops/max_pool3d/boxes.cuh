/*
 * boxes.cuh  Which calls shapes/overlapping_windows.cu takes, and the box of windows that
 * a block has: some planes as they are, or a part of one.  For the kernel's launcher,
 * and the table, which compares an estimate with others (costs.cuh).
 */
#ifndef GPO_MAX_POOL3D_BOXES_CUH
#define GPO_MAX_POOL3D_BOXES_CUH

#include "keys.cuh"
#include "taps.cuh"

struct box_plan : tiling {
    int64_t planes;            /* of a box */
    int64_t count;             /* boxes */
    int64_t keep[POOL_AXES];   /* elements of an axis that a box has in x, at most */
    bool is_pooled[POOL_AXES]; /* windows of an axis are more than its elements */
    int64_t loaded, first;     /* keys of a box; of those, the first of two arrays */
    int64_t after_t, after_h;  /* of them when T, and H, have been pooled */
    int64_t bytes;             /* of shared memory */
    bool is_flat;              /* a box's elements lie beside each other, in order */
};

/* Completes a plan whose axes are cut. */
inline void
measure_box(const max_pool3d_plan &plan, int64_t key_bytes, box_plan *s)
{
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        s->keep[d] = least_of(s->span[d], a.in);
        s->is_pooled[d] =
            a.kernel > 1 || a.stride > 1 || a.padding != 0 || a.out != a.in;
    }
    const int64_t *n = s->windows, *k = s->keep;
    s->loaded = s->planes * k[POOL_T] * k[POOL_H] * k[POOL_W];
    s->after_t = s->planes * n[POOL_T] * k[POOL_H] * k[POOL_W];
    s->after_h = s->planes * n[POOL_T] * n[POOL_H] * k[POOL_W];
    const int64_t other = s->is_pooled[POOL_T]   ? s->after_t
                          : s->is_pooled[POOL_H] ? s->after_h
                                                 : 0;
    const bool meets = s->is_pooled[POOL_T] && s->is_pooled[POOL_H];
    s->first = meets && s->after_h > s->loaded ? s->after_h : s->loaded;
    s->bytes = (s->first + other) * key_bytes;
}

/* Whether the planes of x, and their elements, lie beside each other in C order. */
inline bool
is_packed(const max_pool3d_plan &plan)
{
    int64_t by = 1;
    bool packed = true;
    for (int d = POOL_W; d >= POOL_T; d--) {
        packed = packed && (plan.axis[d].in == 1 || plan.by[d] == by);
        by *= plan.axis[d].in;
    }
    return packed && (plan.channels == 1 || plan.by_channel == by) &&
           (plan.planes <= plan.channels || plan.by_batch == by * plan.channels);
}

/*
 * As many planes as BOX_BYTES hold, unless that leaves SMs without a box; planes that do
 * not fit, or are fewer than SMs, are cut where the elements that two boxes load are the
 * fewest, the latter while these are no more than a box's own.  False if one window does
 * not fit.
 */
inline bool
plan_boxes(const gpo_call *call, int64_t key_bytes, box_plan *s)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const pool_axis *a = plan.axis;
    const int64_t room = least_of(BOX_BYTES, shared_room(call));
    constexpr double MOST_BOXED = 1e12; /* elements of a plane: no product overflows */
    if (static_cast<double>(plan.plane) > MOST_BOXED) {
        return false;
    }
    s->planes = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        cut_axis(s, a[d], d, a[d].out);
    }
    measure_box(plan, key_bytes, s);
    while (s->bytes > room || plan.planes * count_tiles(s) < gpo_processors(call)) {
        const bool fits = s->bytes <= room;
        int axis = -1;
        double most = 0;
        for (int d = 0; d < POOL_AXES; d++) {
            /* rows are loaded and stored in whole sectors: they are cut last */
            const double weight = d == POOL_W ? 0.25 : 1;
            const double steps = static_cast<double>(s->windows[d] * a[d].stride) /
                                 static_cast<double>(pool_extent(&a[d])) * weight;
            if (s->windows[d] > 1 && steps > most) {
                most = steps;
                axis = d;
            }
        }
        if (fits && most < 2) {
            break;
        }
        if (axis < 0) {
            return false;
        }
        cut_axis(s, a[axis], axis, ceil_div(s->windows[axis], 2));
        measure_box(plan, key_bytes, s);
    }
    const int64_t tiles = count_tiles(s);
    if (tiles == 1) {
        const int64_t fit = BOX_BYTES / 2 / s->bytes;
        const int64_t fill = plan.planes / (2 * gpo_processors(call));
        s->planes = least_of(fit, fill);
        s->planes = s->planes > 1 ? s->planes : 1;
        measure_box(plan, key_bytes, s);
    }
    s->count = ceil_div(plan.planes, s->planes) * tiles;
    s->is_flat = tiles == 1 && s->loaded == s->planes * plan.plane && is_packed(plan);
    return true;
}

/* Bytes of a key of v6, and of overlapping_windows. */
inline int64_t
key_bytes_of(const gpo_call *call)
{
    int64_t bytes = 0;
    with_keys(call, [&](auto key, auto) {
        bytes = sizeof key;
        return GPO_OK;
    });
    return bytes;
}

/* Some windows overlap, each fits into shared memory, and 31 bits count an axis. */
inline bool
takes_overlapping_pool(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    bool overlap = false, fits = true;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        overlap = overlap || (a.out > 1 && a.stride < pool_extent(&a));
        fits = fits && reach_of(a) < 1 << 30;
    }
    box_plan s = {};
    return overlap && fits && plan_boxes(call, key_bytes_of(call), &s) &&
           s.count <= MAX_GRID_X;
}

gpo_status max_pool3d_overlapping_windows(gpo_call *call);

#endif
