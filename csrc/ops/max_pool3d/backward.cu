/*
 * backward.cu  The table of max_pool3d_backward on CUDA: its ladder (ladder/backward_*)
 * and the choice.  No rung adds by atomics: each sum has one owner, which adds in an
 * order that depends on the sizes alone.
 * See gradient.cuh for what the rungs share, op.c for the contract.
 */
#include "ladder/backward_v4_rounds.cuh"

#include <stdio.h>

/* ---- table ---- */

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
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by benchmarks/results/h200-max_pool3d_backward.json ---- */

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    if (!plan.has_windows) {
        snprintf(why, GPO_MESSAGE,
                 "without kernel_size every gradient may belong to any element");
        return &variants[0];
    }
    if (plan.is_apart) {
        snprintf(why, GPO_MESSAGE, "windows do not overlap: each fills its own cell");
        return &variants[2];
    }
    double windows = 1; /* that contain one element */
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        windows *= static_cast<double>(ceil_div(a.kernel, a.stride));
    }
    if (windows <= 4) {
        snprintf(why, GPO_MESSAGE, "at most 4 windows have one element");
        return &variants[1];
    }
    if (plan.has_gaps) {
        snprintf(why, GPO_MESSAGE,
                 "many windows have one element, with gaps: one axis at a time");
        return &variants[3];
    }
    snprintf(why, GPO_MESSAGE,
             "many windows have one element: rows that share none at the same time");
    return &variants[4];
}

extern "C" const gpo_table max_pool3d_backward_cuda;
const gpo_table max_pool3d_backward_cuda = {variants, choose};
