/*
 * deep.cuh  How shapes/backward_deep_windows.cu shares out a call: slices and rows of a
 * block, its shared memory, what that is estimated to take.  For the kernel's launcher,
 * and the table, which compares the estimate with others.
 */
#ifndef GPO_MAX_POOL3D_DEEP_CUH
#define GPO_MAX_POOL3D_DEEP_CUH

#include "overlap.cuh"

#include <math.h>

/* Calls that take less by other estimates are left to those. */
constexpr double DEEP_LEAST_US = 20;

/* What a block owns: some slices of a plane, some rows of each, whole rows. */
struct deep_plan {
    int slices, rows; /* of dx */
    int64_t slice_tiles, row_tiles;
    int pitch;             /* windows of a row, in whole words of 4 */
    int depth;             /* rows of sums in shared memory */
    int64_t blocks, bytes; /* bytes of shared memory */
    double us;             /* estimated */
};

/* Completes a plan whose slices and rows are known. */
inline void
measure_deep(const gpo_call *call, int64_t room, deep_plan *s)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H],
                    &w = plan.axis[POOL_W];
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t size = bytes == 8 ? 8 : 4; /* of a sum; with a byte for its name */
    s->depth = static_cast<int>(h.kernel + h.stride);
    s->pitch = static_cast<int>(ceil_div(w.out, 4) * 4);
    s->bytes = int64_t{s->depth} * s->slices * s->pitch * (size + 1);
    s->slice_tiles = ceil_div(t.in, s->slices);
    s->row_tiles = ceil_div(h.in, s->rows);
    s->blocks = plan.planes * s->slice_tiles * s->row_tiles;
    const double sms = gpo_processors(call), blocks = static_cast<double>(s->blocks);
    const double resident = fmin(
        DEEP_BLOCKS, floor(static_cast<double>(room) / static_cast<double>(s->bytes)));
    const double phases = static_cast<double>(windows_reaching(h, s->rows)) + 1;
    const double chunks = static_cast<double>(ceil_div(w.out, WARP)) * WARP;
    const double deep = static_cast<double>(windows_reaching(t, s->slices));
    const double steps = ceil(deep / DEEP_FLIGHT) * DEEP_FLIGHT;
    double named = static_cast<double>(plan.outputs) / static_cast<double>(plan.plane);
    for (int d = 0; d < POOL_AXES; d++) {
        named /= (fmax(windows_naming(plan.axis[d]).mean, 1) + 1) / 2;
    }
    const double lines = static_cast<double>(s->slices) * s->rows;
    const double elements = lines * static_cast<double>(w.in);
    const double work = phases * chunks * steps * DEEP_WINDOW_WORK +
                        lines * WARP * DEEP_LINE_WORK + elements * DEEP_ELEMENT_WORK +
                        elements * named * WARP * DEEP_NAMED_WORK;
    const double waves = ceil(blocks / (sms * resident));
    const double longest = phases * (DEEP_PHASE_US + steps * DEEP_STEP_US);
    s->us = DEEP_CAUTION *
            (GRADIENT_LAUNCH_US + WAIT_US +
             fmax(fmax(ceil(blocks / sms) * work / GRADIENT_RATE, waves * longest),
                  moved_bytes(call) / (GRADIENT_BYTES * sms)));
}

/* The slices and rows that take the least time by estimate; false if none fit. */
inline bool
plan_deep(const gpo_call *call, deep_plan *best)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H];
    const int64_t room = shared_room(call) - DEEP_STATIC;
    const int64_t wide = gpo_processors(call) * int64_t{DEEP_BLOCKS};
    best->us = INFINITY;
    for (int64_t pieces = 1; pieces <= least_of(t.in, MOST_DEEP_PIECES); pieces *= 2) {
        for (int64_t parts = 1; parts <= least_of(h.in, MOST_DEEP_PIECES); parts *= 2) {
            if (parts > 1 && plan.planes * pieces * parts > wide) {
                break; /* enough of them */
            }
            deep_plan s = {};
            s.slices = static_cast<int>(ceil_div(t.in, pieces));
            s.rows = static_cast<int>(ceil_div(h.in, parts));
            measure_deep(call, room, &s);
            if (s.bytes <= room && s.us < best->us) {
                *best = s;
            }
        }
    }
    return best->us < INFINITY;
}

/* Rows of windows that a block's warps hold, and 8 bits count a window's columns. */
inline bool
has_deep_rows(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &w = plan.axis[POOL_W];
    return takes_any_windows(call) && !plan.is_apart && !plan.has_gaps &&
           plan.planes * plan.plane > 0 && plan.outputs > 0 &&
           w.out <= DEEP_WARPS * WARP && w.kernel < DEEP_EMPTY &&
           w.in <= MOST_DEEP_ROW &&
           plan.axis[POOL_H].kernel + plan.axis[POOL_H].stride <= MOST_DEEP_ROW;
}

/* Windows overlap, are not dilated, and rows have up to 256 of them. */
inline bool
takes_deep_windows(const gpo_call *call)
{
    deep_plan s;
    return has_deep_rows(call) && plan_deep(call, &s);
}

template <typename T>
gpo_status max_pool3d_backward_deep_windows(gpo_call *call);

#endif
