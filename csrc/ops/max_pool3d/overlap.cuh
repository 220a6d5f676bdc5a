/*
 * overlap.cuh  How shapes/backward_overlapping_windows.cu shares out a call: boxes of
 * elements, the windows that reach into them, what that is estimated to take.  For the
 * kernel's launcher, and the table, which compares the estimate with others.
 */
#ifndef GPO_MAX_POOL3D_OVERLAP_CUH
#define GPO_MAX_POOL3D_OVERLAP_CUH

#include "gradient_shapes.cuh"

#include <math.h>

/* No call takes less than that, so that nothing need be planned where others do. */
constexpr double OVERLAP_LEAST_US = GRADIENT_LAUNCH_US + 2 * WAIT_US;

/* What a block owns: planes as they are, or a box of one, and its windows. */
struct overlap_plan {
    int together;         /* planes */
    int side[POOL_AXES];  /* elements of a box */
    int reach[POOL_AXES]; /* windows that reach into it, at most */
    int tiles[POOL_AXES]; /* boxes of a plane */
    int64_t blocks;
    int log_words;    /* words of 32 elements each, one bit for an element named */
    int log_lanes;    /* that ask the windows of one element */
    bool shares_rows; /* lanes have different rows of windows, not columns */
    int threads;      /* of a block */
    int64_t listed;   /* elements named that a block lists at once, a multiple of 32 */
    double chained;   /* elements per window that names one: of more, chains */
    int64_t bytes;    /* of shared memory */
    double us;        /* estimated */
};

constexpr int NO_ELEMENT = 0xffff; /* elements of a block are numbered in 16 bits */

/* Windows of an axis that have one element: no more than that, and on average. */
struct window_count {
    double most, mean;
};

inline window_count
windows_naming(const pool_axis &a)
{
    const double out = static_cast<double>(a.out);
    const double kernel = static_cast<double>(a.kernel);
    const double steps = static_cast<double>(pool_extent(&a)) /
                         static_cast<double>(a.stride * step_of(a));
    return {fmin(ceil(steps), out),
            fmin(kernel * out / static_cast<double>(a.in + 2 * a.padding), out)};
}

/* Windows that reach into n elements of an axis, at most. */
inline int64_t
windows_reaching(const pool_axis &a, int64_t n)
{
    return n >= a.in ? a.out
                     : least_of((n + pool_extent(&a) - 2) / a.stride + 1, a.out);
}

/* What a block has at most. */
struct box_counts {
    double elements, windows;
};

/* Counts the blocks and windows of a plan whose boxes are known. */
inline box_counts
count_boxes(const gpo_call *call, overlap_plan *s)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    box_counts n = {static_cast<double>(s->together), static_cast<double>(s->together)};
    s->blocks = ceil_div(plan.planes, s->together);
    for (int d = 0; d < POOL_AXES; d++) {
        s->reach[d] = static_cast<int>(windows_reaching(plan.axis[d], s->side[d]));
        n.elements *= s->side[d];
        n.windows *= s->reach[d];
        s->blocks *= s->tiles[d];
    }
    return n;
}

/*
 * Whether 16 bits count elements and windows, and gradients of `size` bytes leave room.
 */
inline bool
may_fit(const box_counts &n, int64_t size, int64_t room)
{
    return n.elements < NO_ELEMENT && n.windows < NO_ELEMENT &&
           n.windows * static_cast<double>(size) <= static_cast<double>(room);
}

/*
 * What instructions, waits and bytes take together: blocks beside each other hide what
 * does not take longest, and a block alone about half of it.
 */
inline double
together_us(const double (&parts)[3], double resident)
{
    const double most = fmax(fmax(parts[0], parts[1]), parts[2]);
    return most + (parts[0] + parts[1] + parts[2] - most) / (resident + 1);
}

/* Completes a plan whose boxes are known; false if a block has more than `room`. */
inline bool
measure_boxes(const gpo_call *call, int64_t room, overlap_plan *s)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t size = gpo_dtypes[call->out[0].dtype].bytes;
    double most = 1, mean = 1;
    double named_by = 1; /* windows that name one element */
    double rows = 1, mean_rows = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        const window_count w = windows_naming(plan.axis[d]);
        most *= w.most;
        mean *= w.mean;
        named_by *= (fmax(w.mean, 1) + 1) / 2;
        rows *= d < POOL_W ? w.most : 1;
        mean_rows *= d < POOL_W ? fmax(w.mean, 1) : 1;
    }
    const box_counts n = count_boxes(call, s);
    if (!may_fit(n, size, room)) {
        return false;
    }
    const double elements = n.elements, windows = n.windows;
    s->log_words = 0;
    while (elements > 32.0 * (1 << s->log_words)) {
        s->log_words++;
    }
    const double usual = windows * fmax(LISTED_SHARE, LISTED_OVER / named_by);
    s->listed = ceil_div(static_cast<int64_t>(fmin(elements, usual)), 32) * 32;
    s->bytes = (static_cast<int64_t>(windows) * (size + 2) + 7) / 8 * 8 +
               (int64_t{4} << s->log_words) + 2 * s->listed;
    if (s->bytes > room) {
        return false;
    }
    const double resident = fmin(OVERLAP_BLOCKS, floor(static_cast<double>(room) /
                                                       static_cast<double>(s->bytes)));
    const double sms = gpo_processors(call), blocks = static_cast<double>(s->blocks);
    const double beside = fmin(resident, ceil(blocks / sms));
    s->threads = OVERLAP_BLOCK;
    while (2 * s->threads * beside <= OVERLAP_THREADS &&
           s->threads * IN_FLIGHT < windows) {
        s->threads *= 2;
    }
    s->log_lanes = 0;
    s->shares_rows = rows > 1;
    const double shares = s->shares_rows ? rows : most;
    while (2 << s->log_lanes <= shares && s->log_lanes < MOST_LOG_ASKING &&
           most > ASKED_BY_LANE * (1 << s->log_lanes)) {
        s->log_lanes++;
    }
    const double asked = ASKED_ROW_WORK * mean_rows + ASKED_WORK * mean;
    const double named = NAMED_WORK + asked;
    s->chained = CHAINED_WORK / named;
    const double work = s->threads * THREAD_WORK + windows * WINDOW_WORK +
                        elements * ZERO_WORK + windows / named_by * named;
    const double waits = (2 + windows / (s->threads * IN_FLIGHT)) * WAIT_US;
    const double parts[] = {ceil(blocks / sms) * work / GRADIENT_RATE,
                            ceil(blocks / (sms * resident)) * waits,
                            moved_bytes(call) / (GRADIENT_BYTES * sms)};
    s->us = OVERLAP_MEASURED * (GRADIENT_LAUNCH_US + together_us(parts, resident));
    return true;
}

/* Halves of halves of an axis, as the next length to try; 0 after the last. */
inline int64_t
next_side(const pool_axis &a, int64_t side)
{
    const int64_t pieces = 2 * ceil_div(a.in, side);
    return side > 1 ? ceil_div(a.in, least_of(pieces, a.in)) : 0;
}

/*
 * The boxes that take the least time by estimate; false if none fits.  measure(call,
 * room, &plan) completes a plan, and says whether it fits.
 */
template <typename Measure>
inline bool
plan_boxes(const gpo_call *call, Measure measure, overlap_plan *best)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis *a = plan.axis;
    const int64_t room = shared_room(call);
    best->us = INFINITY;
    if (plan.planes * plan.plane == 0 || !takes_any_windows(call)) {
        return false;
    }
    const auto consider = [&](int64_t planes, int64_t t, int64_t h, int64_t w) {
        const int64_t side[POOL_AXES] = {t, h, w};
        overlap_plan s = {};
        s.together = static_cast<int>(planes);
        for (int d = 0; d < POOL_AXES; d++) {
            s.side[d] = static_cast<int>(side[d]);
            s.tiles[d] = static_cast<int>(ceil_div(a[d].in, side[d]));
        }
        const bool fits = measure(call, room, &s);
        if (fits && s.us < best->us) {
            *best = s;
        }
        return fits;
    };
    int64_t planes = 1;
    while (consider(planes, a[POOL_T].in, a[POOL_H].in, a[POOL_W].in) &&
           planes < plan.planes) {
        planes = least_of(2 * planes, plan.planes);
    }
    const bool is_line = a[POOL_T].in == 1 && a[POOL_H].in == 1; /* rows may be cut */
    for (int64_t t = a[POOL_T].in; t > 0; t = next_side(a[POOL_T], t)) {
        for (int64_t h = a[POOL_H].in; h > 0; h = next_side(a[POOL_H], h)) {
            for (int64_t w = a[POOL_W].in; w > 0;
                 w = is_line ? next_side(a[POOL_W], w) : 0) {
                consider(1, t, h, w);
            }
        }
    }
    return best->us < INFINITY;
}

inline bool
plan_overlap(const gpo_call *call, overlap_plan *best)
{
    return plan_boxes(call, measure_boxes, best);
}

/* Windows overlap, and boxes of them fit by a plan_*(call, &boxes). */
template <typename Plan>
inline bool
takes_boxes(const gpo_call *call, Plan plan)
{
    overlap_plan s;
    return !pool_gradient_plan_of(call)->is_apart && plan(call, &s);
}

/* Windows overlap and are known, and 16 bits count what a block has. */
inline bool
takes_overlapping_windows(const gpo_call *call)
{
    return takes_boxes(call, plan_overlap);
}

template <typename T>
gpo_status max_pool3d_backward_overlapping_windows(gpo_call *call);

#endif
