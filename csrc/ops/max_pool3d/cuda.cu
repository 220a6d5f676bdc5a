/*
 * cuda.cu  The table of max_pool3d on CUDA: the ladder (ladder/), the shape kernel
 * (shapes/) and the choice.  The number of planes, batches times channels, is not
 * limited by the grid: blocks loop over what it cannot hold.
 * See windows.cuh for what the kernels share, backward.cu for the gradient.
 */
#include "ladder/v0_naive.cuh"
#include "ladder/v1_register_cache.cuh"
#include "ladder/v2_branch_free.cuh"
#include "ladder/v3_shared_tile.cuh"
#include "ladder/v4_rows.cuh"
#include "ladder/v5_boxes.cuh"
#include "ladder/v6_separable.cuh"
#include "ladder/v7_march.cuh"

#include <stdio.h>

/* ---- table ---- */

using report_types = gpo_types<int32_t, f16, bf16, float, double>;
using pooled_types = gpo_types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                               int64_t, uint64_t, f16, bf16, float, double>;

/* A launcher that reads the dtype at run time. */
#define RUN(f) [](auto) -> gpo_run { return f; }

enum { V4 = 4, V5, V6, V7, WIDE_WINDOWS };

static const gpo_variant variants[] = {
    gpo_row<report_types>("v0",
                          "naive: each element of a window tested against the bounds",
                          GPO_RUN(max_pool3d_v0)),
    gpo_row<report_types>("v1",
                          "loops unrolled, eight elements of a row cached in registers",
                          GPO_RUN(max_pool3d_v1)),
    gpo_row<report_types>("v2", "branch-free where nothing is padded",
                          GPO_RUN(max_pool3d_v2)),
    gpo_row<report_types>("v3", "a tile in shared memory, which does not pay",
                          GPO_RUN(max_pool3d_v3)),
    gpo_row<report_types>("v4", "threads over (w, h), planes and slices shared",
                          GPO_RUN(max_pool3d_v4)),
    gpo_row<report_types>("v5", "threads over (w, h, t) of one plane",
                          GPO_RUN(max_pool3d_v5)),
    gpo_row<pooled_types>(
        "v6", "separable: T in registers, H through shared memory, W by shuffles",
        RUN(max_pool3d_v6)),
    gpo_row<pooled_types>("v7", "separable, marching along T with slices on their way",
                          GPO_RUN(max_pool3d_v7)),
    gpo_shape(gpo_row<pooled_types>("wide_windows",
                                    "one axis at a time through global memory",
                                    RUN(max_pool3d_wide_windows)),
              "windows that span more than 8 to 32 elements of an axis, a tile of v6",
              takes_wide_windows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by benchmarks/results/h200-max_pool3d.json ---- */

/* The report's rule for its two versions, by kernel, stride and size. */
static bool
report_takes_v4(const max_pool3d_plan &plan)
{
    const pool_axis &w = plan.axis[POOL_W];
    return w.kernel == 8 &&
           (w.stride == 1 || w.in == 8 || (plan.channels == 64 && w.in == 32));
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    constexpr double FEW = 8; /* comparisons per output that need not be saved */
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    double apart = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        apart *= static_cast<double>(plan.axis[d].stride);
    }
    const gpo_dtype dtype = call->in[0].dtype;
    const bool listed = variants[0].run[dtype] != nullptr;
    const bool small_planes = plan.outputs < 512;
    const int by_report = report_takes_v4(plan) ? 4 : 5;
    const bool wide = takes_wide_windows(call);
    int pick = wide ? WIDE_WINDOWS : V6;
    const char *because = "windows overlap or are large: one maximum per element and "
                          "doubling, whatever the kernel";
    if (wide) {
        because = "windows span more than a tile of v6: one axis at a time";
    }
    if (!listed) {
        because = wide ? because : "the only rung for this dtype";
    }
    else if (march_of(call)) {
        pick = V7;
        because =
            "cubes of 2, 3 or 8 elements: marched through, each element loaded once";
    }
    else if (plan.axis[POOL_T].in * plan.axis[POOL_H].in == 1 && plan.taps <= 4 * FEW) {
        pick = V4;
        because =
            "rows alone, and windows are short: v6 would have one load per thread";
    }
    else if (plan.taps <= FEW && plan.taps <= apart) {
        pick = small_planes ? V4 : V5;
        because = small_planes
                      ? "windows are small and do not overlap, planes are small"
                      : "windows are small and do not overlap";
    }
    snprintf(
        why, GPO_MESSAGE,
        "%s; of v4 and v5 the report's rule (v4 for a kernel of 8 with stride 1, an "
        "input of 8, or 64 channels of 32) takes v%d",
        because, by_report);
    return &variants[pick];
}

extern "C" const gpo_table max_pool3d_cuda;
const gpo_table max_pool3d_cuda = {variants, choose};
