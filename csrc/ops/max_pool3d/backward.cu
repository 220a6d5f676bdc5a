/*
 * backward.cu  The table of max_pool3d_backward on CUDA: its ladder (ladder/backward_*),
 * the shape kernels (shapes/) and the choice.  No rung adds by atomics: each sum has
 * one owner, which adds in an order that depends on the sizes alone.
 * See gradient.cuh for what the rungs share, op.c for the contract.
 */
#include "deep.cuh"
#include "dense.cuh"
#include "gradient_costs.cuh"
#include "marching.cuh"
#include "ladder/backward_v4_rounds.cuh"

#include <stdio.h>

/* ---- table ---- */

enum {
    V0,
    V1,
    V2,
    V3,
    V4,
    ANY_WINDOWS,
    OVERLAPPING_WINDOWS,
    SEPARATE_WINDOWS,
    DEEP_WINDOWS,
    PAIRED_WINDOWS,
    MARCHING_WINDOWS,
    DENSE_WINDOWS
};

static const gpo_variant variants[] = {
    gpo_row<float_types>(
        "v0", "a warp owns a stretch of a plane and walks through its gradients",
        GPO_RUN(max_pool3d_backward_v0)),
    gpo_row<float_types>("v1", "an element asks the windows that have it",
                         GPO_RUN(max_pool3d_backward_v1)),
    gpo_row<float_types>("v2", "a window fills its own cell where none overlap",
                         GPO_RUN(max_pool3d_backward_v2)),
    gpo_row<float_types>("v3",
                         "axis by axis: what the windows of a line name is one element",
                         GPO_RUN(max_pool3d_backward_v3)),
    gpo_row<float_types>("v4", "in rounds of rows of windows that share no element",
                         GPO_RUN(max_pool3d_backward_v4)),
    gpo_shape(gpo_row<float_types>("any_windows",
                                   "runs of dx ask their windows, counted in 32 bits",
                                   GPO_RUN(max_pool3d_backward_any_windows)),
              "kernel_size given, and at most 2^30 elements of x", takes_any_windows),
    gpo_shape(gpo_row<float_types>("overlapping_windows",
                                   "windows read once; elements named ask them",
                                   GPO_RUN(max_pool3d_backward_overlapping_windows)),
              "as any_windows, where windows overlap, and a row of them fits a block",
              takes_overlapping_windows),
    gpo_shape(gpo_row<float_types>("separate_windows",
                                   "zeros, then each window stores its gradient",
                                   GPO_RUN(max_pool3d_backward_separate_windows)),
              "as any_windows, where no two windows have a common element",
              takes_separate_windows),
    gpo_shape(
        gpo_row<float_types>("deep_windows",
                             "a cell for the windows (., ., w') of a row of dx",
                             GPO_RUN(max_pool3d_backward_deep_windows)),
        "as any_windows, where windows overlap, are not dilated, and rows have up "
        "to 256 of them",
        takes_deep_windows),
    gpo_shape(
        gpo_row<float_types>("paired_windows",
                             "elements load their one or two windows of each axis "
                             "at once",
                             GPO_RUN(max_pool3d_backward_paired_windows)),
        "as any_windows, where windows overlap, are not dilated, and at most two "
        "of each axis have an element",
        takes_paired_windows),
    gpo_shape(gpo_row<float_types>("marching_windows",
                                   "columns of elements keep the windows they had "
                                   "before",
                                   GPO_RUN(max_pool3d_backward_marching_windows)),
              "as any_windows, where at most two windows of each axis have an element, "
              "or three of planes of one slice",
              takes_marching_windows),
    gpo_shape(
        gpo_row<float_types>("dense_windows",
                             "windows read once; sums of whole numbers in any "
                             "order",
                             GPO_RUN(max_pool3d_backward_dense_windows)),
        "as any_windows, where windows overlap and span at most 32 elements, at most "
        "1000 have one, and a row of them fits a block",
        takes_dense_windows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by gradient_costs.cuh ---- */

/*
 * Of the estimates of overlapping_windows (of float64: the same), others and v4, by which
 * those of dense_windows and marching_windows may be larger or have to be less to be taken,
 * by 736 calls on an H200 (NOTES.md).  Elements of 16 bits leave marching_windows, which loads
 * one at a time, more of its time where windows are dilated.
 */
static constexpr double OF_OVERLAPPING[2] = {1.09, 0.95}, OF_OTHERS = 0.95, OF_V4 = 1.1;
static constexpr double NARROW_GAPS = 1.2;

/*
 * Windows that do not overlap, by 138 calls on an H200 (NOTES.md): elements per window up
 * to which v2 and marching_windows are for them, and bytes: v2's of small calls,
 * marching_windows' of rows and of planes.
 */
static constexpr double PAIRED_CELL = 8, SMALL_CELL = 6, SMALL_BYTES = 2e6;
static constexpr double MARCHED_CELL = 4, MARCHED_BYTES[2] = {64e6, 16e6};

static const gpo_variant *
choose_apart(const gpo_call *call, double cell, bool marches, char why[GPO_MESSAGE])
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    if (!takes_any_windows(call) || (cell <= PAIRED_CELL && has_pairs(plan))) {
        GPO_SAY(why,
                "windows do not overlap: each fills its own cell, pairs as one word");
        return &variants[V2];
    }
    const double bytes = moved_bytes(call);
    const double elements =
        static_cast<double>(plan.plane) / static_cast<double>(plan.outputs);
    if (bytes < SMALL_BYTES && elements <= SMALL_CELL) {
        GPO_SAY(why, "few windows, which do not overlap: each fills its own cell");
        return &variants[V2];
    }
    const bool is_row = plan.axis[POOL_T].in == 1 && plan.axis[POOL_H].in == 1;
    if (marches && cell <= MARCHED_CELL && bytes < MARCHED_BYTES[!is_row]) {
        GPO_SAY(why,
                "windows do not overlap and are short: rows of dx are stored whole");
        return &variants[MARCHING_WINDOWS];
    }
    if (takes_separate_windows(call)) {
        GPO_SAY(why, "windows do not overlap: a block clears its part of dx, and each "
                     "window stores its gradient");
        return &variants[SEPARATE_WINDOWS];
    }
    return nullptr;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    if (!plan.has_windows) {
        GPO_SAY(why, "without kernel_size every gradient may belong to any element");
        return &variants[V0];
    }
    double windows = 1; /* that contain one element */
    double cell = 1;    /* elements per window */
    for (int d = 0; d < POOL_AXES; d++) {
        windows *= windows_per_element(plan.axis[d]);
        cell *= static_cast<double>(plan.axis[d].stride);
    }
    const bool asks = takes_any_windows(call);
    march_plan march;
    const bool marches = plan_march(call, &march);
    const gpo_variant *const apart =
        plan.is_apart ? choose_apart(call, cell, marches, why) : nullptr;
    if (apart) {
        return apart;
    }
    int pick = V4;
    const char *because =
        "many windows have one element: rows that share none at the same time";
    /* v4's rounds are long where rows or windows have no neighbours above: (16, 10, 15200) k7
       s2 104 us on an H100, any_windows 23; (10, 12, 80, 87, 64) k4 s4 166, separate_windows 84 */
    const bool is_line = plan.axis[POOL_T].out * plan.axis[POOL_H].out == 1;
    const bool has_rounds =
        !plan.has_gaps && !(is_line && asks) && !takes_separate_windows(call);
    double us = has_rounds ? rounds_us(call) : INFINITY;
    if (us == INFINITY && windows <= 4) {
        pick = V1;
        because = "at most 4 windows have one element";
    }
    else if (plan.has_gaps) {
        pick = V3;
        because = "many windows have one element, with gaps: one axis at a time";
    }
    const double asking_us = asks ? gather_us(call) : INFINITY;
    if (asking_us < us) {
        pick = ANY_WINDOWS;
        because = "an element is in few windows, or there are few elements: they ask "
                  "their windows, in one pass";
        us = asking_us;
    }
    const double separate = takes_separate_windows(call) ? separate_us(call) : INFINITY;
    if (separate < us) {
        pick = SEPARATE_WINDOWS;
        because = "windows do not overlap: a block clears its part of dx, and each "
                  "window stores its gradient";
        us = separate;
    }
    const double caution = overlap_caution(call);
    overlap_plan boxes;
    if (!plan.is_apart && !(is_line && asks) && us > OVERLAP_LEAST_US &&
        plan_overlap(call, &boxes) && boxes.us * caution < us) {
        pick = OVERLAPPING_WINDOWS;
        because = "windows overlap: a block reads its own once, and the elements that "
                  "they name ask them";
        us = boxes.us * caution;
    }
    deep_plan deep;
    if (us > DEEP_LEAST_US && has_deep_rows(call) && plan_deep(call, &deep) &&
        deep.us < us) {
        pick = DEEP_WINDOWS;
        because = "many windows have one element: those above and behind each other "
                  "name the same one of a row, and have one sum";
        us = deep.us;
    }
    /* where marching_windows takes a call it took less time in eight of nine on an H200 */
    overlap_plan dense;
    const bool is_wide = gpo_dtypes[call->out[0].dtype].bytes == 8;
    const double of_others =
        pick == OVERLAPPING_WINDOWS ? OF_OVERLAPPING[is_wide] : OF_OTHERS;
    if (!plan.is_apart && !marches && us > DENSE_LEAST_US && plan_dense(call, &dense) &&
        dense.us < of_others * us) {
        pick = DENSE_WINDOWS;
        because = "windows overlap: each adds a whole number to the element that it "
                  "names, in any order";
        us = dense.us;
    }
    if (takes_paired_windows(call) && paired_us(call) < us) {
        pick = PAIRED_WINDOWS;
        because = "one or two windows of each axis have an element, which loads all of "
                  "them at once";
        us = paired_us(call);
    }
    const bool is_narrow = gpo_dtypes[call->out[0].dtype].bytes == 2;
    const double marched = march.us * (is_narrow && plan.has_gaps ? NARROW_GAPS : 1);
    if (marches && marched < (pick == V4 ? OF_V4 : 1) * us) {
        pick = MARCHING_WINDOWS;
        because =
            "few windows of each axis have an element: a thread goes along one and "
            "loads each window once";
    }
    GPO_SAY(why, "%s", because);
    return &variants[pick];
}

extern "C" const gpo_table max_pool3d_backward_cuda;
const gpo_table max_pool3d_backward_cuda = {variants, choose};
