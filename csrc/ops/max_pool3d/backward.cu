/*
 * backward.cu  The table of max_pool3d_backward on CUDA: its ladder (ladder/backward_*),
 * the shape kernels (shapes/) and the choice.  No rung adds by atomics: each sum has
 * one owner, which adds in an order that depends on the sizes alone.
 * See gradient.cuh for what the rungs share, op.c for the contract.
 */
#include "any_windows.cuh"
#include "ladder/backward_v4_rounds.cuh"

#include <stdio.h>

/* ---- table ---- */

enum { V0, V1, V2, V3, V4, ANY_WINDOWS, STRIDED_WINDOWS };

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
    gpo_shape(
        gpo_row<float_types>("strided_windows",
                             "zeros, and sums by the first window that names them",
                             GPO_RUN(max_pool3d_backward_strided_windows)),
        "as any_windows, at least twice as many elements as windows, in slices or rows "
        "of at most 2^16",
        takes_strided_windows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by benchmarks/results/h200-max_pool3d_backward.json ---- */

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
    const double size = static_cast<double>(plan.planes) * plan.plane;
    if (plan.is_apart && (cell <= 8 || !takes_any_windows(call))) {
        GPO_SAY(why, "windows do not overlap and are short: each fills its own cell");
        return &variants[V2];
    }
    const double count = static_cast<double>(plan.planes) * plan.outputs;
    if (!plan.is_apart && takes_strided_windows(call) &&
        windows * count * ASKED_US <= ROUNDS_US + count * ROUNDS_WINDOW_US) {
        GPO_SAY(why,
                "there are fewer windows than elements: they ask each other, and the "
                "rest of dx is zeros");
        return &variants[STRIDED_WINDOWS];
    }
    if (takes_any_windows(call) &&
        (windows <= GATHER_WINDOWS || windows * size <= GATHER_WORK)) {
        GPO_SAY(why,
                "an element is in few windows, or there are few elements: they ask "
                "their windows, in one pass");
        return &variants[ANY_WINDOWS];
    }
    if (windows <= 4) {
        GPO_SAY(why, "at most 4 windows have one element");
        return &variants[V1];
    }
    if (plan.has_gaps) {
        GPO_SAY(why, "many windows have one element, with gaps: one axis at a time");
        return &variants[V3];
    }
    GPO_SAY(why,
            "many windows have one element: rows that share none at the same time");
    return &variants[V4];
}

extern "C" const gpo_table max_pool3d_backward_cuda;
const gpo_table max_pool3d_backward_cuda = {variants, choose};
