/*
 * cuda.cu  The table of max_pool3d on CUDA: the ladder (ladder/), the shape kernels
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

#include "costs.cuh"

#include <stdio.h>

/* ---- table ---- */

using report_types = gpo_types<int32_t, f16, bf16, float, double>;
using pooled_types = gpo_types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                               int64_t, uint64_t, f16, bf16, float, double>;

/* A launcher that reads the dtype at run time. */
#define RUN(f) [](auto) -> gpo_run { return f; }

/* A launcher that serves integers by their width. */
#define RUN_AS_CARRIER(f) \
    [](auto t) -> gpo_run { return f<carrier_of<typename decltype(t)::type>>; }

enum { V6 = 6, V7, WIDE_WINDOWS, ANY_WINDOWS, CHANNELS_LAST, OVERLAPPING_WINDOWS };

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
    gpo_shape(gpo_row<pooled_types>("any_windows",
                                    "an output per thread, 8 or 9 loads in flight",
                                    RUN_AS_CARRIER(max_pool3d_any_windows)),
              "up to 2^30 outputs, of planes of less than 1 GiB", takes_any_pool),
    gpo_shape(gpo_row<float_types>("channels_last",
                                   "packs of channels; planes of y by shared memory",
                                   GPO_RUN(max_pool3d_channels_last)),
              "channels beside each other in x, and up to 2^30 outputs of a plane",
              takes_channels_last),
    gpo_shape(gpo_row<pooled_types>("overlapping_windows",
                                    "boxes in shared memory, one axis at a time",
                                    RUN(max_pool3d_overlapping_windows)),
              "windows that overlap, each of which fits into shared memory",
              takes_overlapping_pool),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by costs.cuh ---- */

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
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    int pick = V6;
    const char *because = "windows overlap or are large: one maximum per element and "
                          "doubling, whatever the kernel";
    double us = 0;
    if (takes_wide_windows(call)) {
        pick = WIDE_WINDOWS;
        because = "windows span more than a tile of v6: one axis at a time";
        us = wide_windows_us(call);
    }
    else if (march_of(call)) {
        pick = V7;
        because =
            "cubes of 2, 3 or 8 elements: marched through, each element loaded once";
        us = march_us(call);
    }
    else {
        us = separable_us(call);
    }
    const auto consider = [&](int other, double other_us, const char *reason) {
        if (other_us < us) {
            pick = other;
            us = other_us;
            because = reason;
        }
    };
    if (takes_any_pool(call)) {
        consider(ANY_WINDOWS, any_windows_us(call),
                 "windows have few elements, or there are few of them: each thread "
                 "reads its own");
    }
    if (us > BOX_LEAST_US && takes_overlapping_pool(call)) {
        consider(
            OVERLAPPING_WINDOWS, overlapping_windows_us(call),
            "windows overlap: boxes are pooled in shared memory, one axis at a time");
    }
    if (variants[CHANNELS_LAST].run[call->in[0].dtype] && takes_channels_last(call)) {
        consider(CHANNELS_LAST, channels_last_us(call),
                 "channels lie beside each other: threads read packs of them");
    }
    GPO_SAY(
        why,
        "%s; of v4 and v5 the report's rule (v4 for a kernel of 8 with stride 1, an "
        "input of 8, or 64 channels of 32) takes v%d",
        because, report_takes_v4(plan) ? 4 : 5);
    return &variants[pick];
}

extern "C" const gpo_table max_pool3d_cuda;
const gpo_table max_pool3d_cuda = {variants, choose};
