/*
 * marching.cuh  Which calls shapes/backward_marching_windows.cu takes, and how it shares
 * them out: cells of elements that have the same windows, marches over cells.  For its
 * launcher and the table, with its estimate.
 */
#ifndef GPO_MAX_POOL3D_MARCHING_CUH
#define GPO_MAX_POOL3D_MARCHING_CUH

#include "overlap.cuh"

/* Elements beside each other share a march along T, along T or H alone, over planes. */
enum march_kind {
    MARCH_APART,
    MARCH_PLANES,
    MARCH_SHORT,
    MARCH_LONG,
    MARCH_DEEP,
    NO_MARCH
};

/* Windows of each axis that have an element, at most; steps whose loads are in flight. */
struct march_size {
    int along, across, row, steps;
};

constexpr march_size MARCH_SIZES[] = {
    {1, 1, 1, 4}, {1, 1, 3, 2}, {2, 1, 2, 3}, {3, 1, 3, 2}, {2, 2, 2, 2}};

/* Cells along and across of one element, of more; of elements between those of windows. */
enum march_cells { CELLS_OF_ONE, CELLS_OF_MORE, CELLS_WITH_GAPS };

/*
 * Cell o of an axis: the elements o * stride - padding + dilation * j + r, for all j
 * below stride / gap and r below gap = gcd(stride, dilation).  Cells share out the axis.
 * Of windows a cell has o, o - step, o - 2 step, ...; only elements of r = 0 have any.
 */
struct cell_axis {
    int64_t gap, turns, step; /* turns: stride / gap; step: dilation / gap */
    int64_t first, cells;     /* the first cell, perhaps below 0 */
    int64_t windows;          /* that have an element, at most */
};

inline cell_axis
cells_of(const pool_axis &a)
{
    const int64_t step = step_of(a), gap = a.dilation / step, turns = a.stride / gap;
    const int64_t first = -((a.dilation * (turns - 1) + gap - 1) / a.stride);
    return {gap,
            turns,
            step,
            first,
            (a.in - 1 + a.padding) / a.stride - first + 1,
            ceil_div(a.kernel, turns)};
}

/* How a call is shared out. */
struct march_plan {
    pool_axis along, across;
    bool over_planes;            /* along: planes, each with its own indices */
    int64_t planes;              /* beside that */
    int64_t along_in, along_out; /* elements of dx, of dy to the next one along */
    march_kind kind;
    march_cells cells;
    int64_t length, pieces; /* cells of a thread; marches along an axis */
    int64_t units;          /* threads */
    double us;              /* estimated */
};

/* Axes and kind; false if windows or elements are too many. */
inline bool
plan_march_axes(const gpo_call *call, march_plan *s)
{
    constexpr int64_t MOST = 1 << 14; /* their products fit 31 bits */
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H],
                    &w = plan.axis[POOL_W];
    const pool_axis one = {1, 1, 1, 1, 0, 1};
    if (!takes_any_windows(call) || plan.planes * plan.plane == 0 ||
        static_cast<double>(plan.planes) * static_cast<double>(plan.outputs) >=
            1 << 30) {
        return false;
    }
    for (int d = 0; d < POOL_AXES; d++) {
        if (plan.axis[d].stride >= MOST || plan.axis[d].dilation >= MOST) {
            return false;
        }
    }
    const bool has_t = t.in > 1 || t.out > 1, has_h = h.in > 1 || h.out > 1;
    s->over_planes = !has_t && !has_h;
    s->planes = s->over_planes ? 1 : plan.planes;
    s->along = s->over_planes ? pool_axis{plan.planes, plan.planes, 1, 1, 0, 1}
               : has_t        ? t
                              : h;
    s->across = has_t && has_h ? h : one;
    s->along_in = s->across.in * w.in;
    s->along_out = s->across.out * w.out;
    const int64_t counts[] = {cells_of(s->along).windows, cells_of(s->across).windows,
                              cells_of(w).windows};
    const int64_t gap = cells_of(s->along).gap * cells_of(s->across).gap;
    s->cells = s->along.stride * s->across.stride == 1 ? CELLS_OF_ONE
               : gap == 1                              ? CELLS_OF_MORE
                                                       : CELLS_WITH_GAPS;
    s->kind = NO_MARCH;
    for (int k = MARCH_DEEP; k >= MARCH_APART; k--) {
        const march_size &m = MARCH_SIZES[k];
        const bool has_cells =
            k == MARCH_DEEP || (k == MARCH_PLANES ? s->cells == CELLS_OF_ONE
                                                  : s->cells != CELLS_WITH_GAPS);
        if (has_cells && counts[0] <= m.along && counts[1] <= m.across &&
            counts[2] <= m.row) {
            s->kind = static_cast<march_kind>(k);
        }
    }
    return s->kind != NO_MARCH;
}

/* Marches whose threads take the least time by estimate; false as above. */
inline bool
plan_march(const gpo_call *call, march_plan *best)
{
    march_plan s = {};
    best->us = INFINITY;
    if (!plan_march_axes(call, &s)) {
        return false;
    }
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &w = plan.axis[POOL_W];
    const cell_axis along = cells_of(s.along), across = cells_of(s.across);
    const march_size &size = MARCH_SIZES[s.kind];
    const double sms = gpo_processors(call), resident = sms * MARCH_THREADS;
    const double loads = size.across * size.row;
    const double places = static_cast<double>(s.along.stride * s.across.stride);
    const double asked = fmin(static_cast<double>(s.along.kernel), size.along) *
                         fmin(static_cast<double>(s.across.kernel), size.across) *
                         size.row;
    const int64_t most = ceil_div(along.cells, along.step);
    for (int64_t length = 1; length < 2 * most; length *= 2) {
        s.length = least_of(length, most);
        s.pieces = ceil_div(most, s.length) * along.step;
        const double units = static_cast<double>(s.planes * s.pieces * across.cells) *
                             static_cast<double>(w.in);
        const double steps = static_cast<double>(s.length);
        const double work = MARCH_WORK +
                            (steps + size.along - 1) * loads * MARCH_LOAD_WORK +
                            steps * places * (MARCH_ELEMENT_WORK + 2 * asked);
        const double waves = ceil(units / resident);
        const double waits = WAIT_US * (1 + ceil(steps / size.steps));
        const double us =
            fmax(fmax(units * work / (GRADIENT_RATE * sms), waves * waits),
                 moved_bytes(call) / (GRADIENT_BYTES * sms));
        s.us = GRADIENT_LAUNCH_US + WAIT_US + MARCH_MEASURED * us;
        s.units = static_cast<int64_t>(units);
        if (units < 1 << 30 && s.us < best->us) {
            *best = s;
        }
    }
    return best->us < INFINITY;
}

inline bool
takes_marching_windows(const gpo_call *call)
{
    march_plan s;
    return plan_march(call, &s);
}

template <typename T>
gpo_status max_pool3d_backward_marching_windows(gpo_call *call);

#endif
