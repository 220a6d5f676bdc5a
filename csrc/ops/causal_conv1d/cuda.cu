/*
 * cuda.cu  The tables of causal_conv1d and causal_conv1d_backward on CUDA: the ladder
 * (ladder/), a shape kernel (shapes/) and the choice.  A rung has a kernel that
 * convolves rows and one that computes the gradient of the filters; dx is the
 * convolution of the reversed gradient, by the former kernel.
 * See rows.cuh for views, calls.cuh for the steps of a call, op.c for the contract.
 */
#include "calls.cuh"
#include "costs.cuh"
#include "ladder/v1_shared_rows.cuh"
#include "ladder/v2_four_outputs.cuh"
#include "ladder/v3_batches_together.cuh"
#include "ladder/v4_balanced.cuh"
#include "limits.cuh"
#include "shapes/few_taps.cuh"
#include "shapes/middle_filters.cuh"
#include "shapes/short_filters.cuh"

#include <stdio.h>

/* ---- tables ---- */

using float32_types = gpo_types<f16, bf16, float>; /* computed in float32 */
using float16_types = gpo_types<f16, bf16>;

static bool
has_short_filters(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    return p.lags <= SHORT && p.steps < MOST_SHORT_STEPS;
}

/* Whether a block has room for x and g of a channel. */
static bool
has_one_block(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->in[call->op->by].dtype].bytes;
    const int64_t most = MOST_BYTES_OF_ONE / (bytes == 8 ? 16 : 8);
    return p.lags <= LAGS_OF_ONE_BLOCK && !p.segments && p.batches <= most &&
           p.steps <= most && p.batches * p.steps <= most;
}

/* Whether the blocks of a cluster have. */
static bool
has_one_cluster(const gpo_call *call)
{
    constexpr int64_t MOST = (1 << 28) - 1; /* channels */
    const conv_plan &p = *conv_plan_of(call);
    return p.lags <= SHORT && !p.segments && p.batches <= MOST_OF_CLUSTER &&
           p.steps <= MOST_OF_CLUSTER && p.batches * p.steps <= MOST_OF_CLUSTER &&
           p.channels <= MOST;
}

/* Whether offsets in arrays of these strides fit into 32 bits. */
static bool
has_narrow_offsets(const conv_plan &p, const conv_strides &of)
{
    const auto reach = [](int64_t n, int64_t stride) {
        return static_cast<double>(n) * fabs(static_cast<double>(stride));
    };
    return reach(p.batches, of.b) + reach(p.channels, of.c) + reach(p.steps, of.t) <
           INT32_MAX;
}

static bool
has_few_outputs(const gpo_call *call)
{
    constexpr int64_t MOST = 65535; /* blocks in grid y and z */
    const conv_plan &p = *conv_plan_of(call);
    const conv_strides w = {0, p.w_c, p.w_k}, bias = {0, p.bias_c, 0};
    return p.lags >= 1 && p.lags <= FEW_OUTPUT_LAGS && !p.segments && !p.has_state &&
           p.batches <= MOST && p.channels <= MOST && p.steps <= MOST &&
           has_narrow_offsets(p, p.x) && has_narrow_offsets(p, p.out) &&
           has_narrow_offsets(p, w) && has_narrow_offsets(p, bias);
}

/* Whether few_taps takes the arrays of a call, forward. */
static bool
has_whole_rows(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    if (!has_short_filters(call) || p.segments || p.has_state) {
        return false;
    }
    switch (gpo_dtypes[call->in[call->op->by].dtype].bytes) {
        case 2:
            return takes_whole_rows(conv_of<f16>(call));
        case 4:
            return takes_whole_rows(conv_of<float>(call));
        default:
            return false;
    }
}

/* Whether contiguous_rows takes them. */
static bool
has_contiguous_rows(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    if (!has_short_filters(call) || p.segments || p.has_state) {
        return false;
    }
    switch (gpo_dtypes[call->in[call->op->by].dtype].bytes) {
        case 2:
            return takes_contiguous_rows(conv_of<f16>(call));
        case 4:
            return takes_contiguous_rows(conv_of<float>(call));
        default:
            return false;
    }
}

/*
 * Whether few_taps' warps, which walk through rows, take less time than short_filters,
 * which has nothing to skip within a long row: where rows are short, a warp has few items,
 * or 16-bit floats have so many taps that instructions count.  Of 64 steps of bfloat16 and
 * 4 taps 42 us on an H100, 57 in short_filters; of 768 steps 34.6 and 33.1, with 8 taps
 * 38.9 and 40.7.  contiguous_rows takes less than both for rows of several items: B1 C50
 * T30000 K4 float32 8.6 us on an H200, few_taps 9.1, B64 C768 T128 bfloat16 17.2 and 12.5.
 */
static bool
walks_pay(const gpo_call *call, const conv_plan &p, bool is_contiguous)
{
    constexpr int64_t FEW_ITEMS = 128, LAGS_FOR_MEMORY = 4; /* items for an SM */
    const int64_t bytes = gpo_dtypes[call->in[call->op->by].dtype].bytes;
    const int64_t items = ceil_div(p.steps * bytes, WARP * 16);
    return items == 1 || (bytes == 2 && p.lags > LAGS_FOR_MEMORY) ||
           (!is_contiguous &&
            p.batches * p.channels * items <= gpo_processors(call) * FEW_ITEMS);
}

/* Whether few_taps, or few_taps_channels_last, takes the arrays of a call, backward. */
static bool
has_few_taps(const gpo_call *call, bool by_channels)
{
    const bool is_cut = conv_plan_of(call)->segments != SEGMENTS_NONE;
    switch (gpo_dtypes[call->in[call->op->by].dtype].bytes) {
        case 2:
            return takes_few_taps(conv_of<f16>(call), by_channels, is_cut);
        case 4:
            return takes_few_taps(conv_of<float>(call), by_channels, is_cut);
        default:
            return false;
    }
}

/* Whether few_taps goes by items in a call that it takes. */
static bool
has_items(const gpo_call *call)
{
    const bool is_cut = conv_plan_of(call)->segments != SEGMENTS_NONE;
    return gpo_dtypes[call->in[call->op->by].dtype].bytes == 2
               ? goes_by_items(conv_of<f16>(call), is_cut)
               : goes_by_items(conv_of<float>(call), is_cut);
}

static bool
has_few_taps_rows(const gpo_call *call)
{
    return has_short_filters(call) && has_few_taps(call, false);
}

static bool
has_few_taps_columns(const gpo_call *call)
{
    return has_short_filters(call) && has_few_taps(call, true);
}

static bool
has_middle_filters(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    return p.lags <= MIDDLE && !p.segments;
}

static bool
has_few_steps(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    return p.steps + (p.has_state ? p.taps : 0) < MOST_SHORT_STEPS;
}

static bool
has_large_transforms(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    const int64_t steps = p.steps + (p.has_state ? p.taps - 1 : 0);
    return !p.segments && steps >= FEWEST_STEPS && steps <= MOST_STEPS &&
           p.lags <= MOST_LAGS;
}

static bool
has_one_stage(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    return p.steps <= TOEPLITZ_STEPS && p.steps % 8 == 0 && !p.segments;
}

/* The table rows that row_for returns. */
enum {
    V0,
    V1,
    V2,
    V5 = 5,
    V6,
    V7,
    SHORT_FILTERS,
    CHANNELS_LAST,
    SEGMENTS,
    LARGE,
    MIDDLE_FILTERS,
    PERSISTENT,
    FEW_OUTPUTS, /* forward alone */
    FORWARD_FEW_TAPS,
    CONTIGUOUS_ROWS,
    FEW_TAPS_ROWS = FEW_OUTPUTS, /* from here on backward alone */
    FEW_TAPS_LAST,
    ONE_BLOCK,
    ONE_CLUSTER
};

static const gpo_variant forward_variants[] = {
    gpo_row<float_types>("v0", "one output per thread", FORWARD(conv_v0), "run-to-run",
                         "", "exact"),
    gpo_row<float_types>("v1", "rows of w and x in shared memory", FORWARD(conv_v1),
                         "run-to-run", "", "exact"),
    gpo_row<float_types>("v2", "four outputs per thread, 16-byte loads",
                         FORWARD(conv_v2), "run-to-run", "", "exact"),
    gpo_row<float_types>("v3", "eight batches share one row of w", FORWARD(conv_v3),
                         "run-to-run", "", "exact"),
    gpo_row<float_types>("v4", "balanced work: step t with T - 1 - t", FORWARD(conv_v4),
                         "run-to-run", "", "exact"),
    gpo_row<float_types>("v5", "register tile of 16 steps by 8 inputs",
                         FORWARD(conv_v5), "run-to-run", "", "exact"),
    gpo_row<float32_types>("v6",
                           "tensor cores multiply a Toeplitz band held in registers",
                           FORWARD(conv_v6), "run-to-run", "sm_90a", "to rounding"),
    gpo_row<float32_types>("v7", "products of spectra, a row's transform in one block",
                           FORWARD(conv_v7), "run-to-run", "", "to rounding"),
    gpo_shape(gpo_row<float_types>(
                  "short_filters", "x is read once, in packs of neighbouring steps",
                  FORWARD_BEHIND_STATES(conv_short_filters), "run-to-run", "", "exact"),
              "filters of at most 16 lags", has_short_filters),
    gpo_shape(
        gpo_row<float_types>("short_filters_channels_last",
                             "x is read once, in tiles of steps and channels",
                             FORWARD_WITH_STATES(conv_short_filters_channels_last),
                             "run-to-run", "", "exact"),
        "filters of at most 16 lags", has_short_filters),
    gpo_shape(gpo_row<float_types>("segments",
                                   "one output per thread, within its segment",
                                   FORWARD(conv_by_segment), "run-to-run", "", "exact"),
              "rows of fewer than 2**30 steps", has_few_steps),
    gpo_shape(gpo_row<float32_types>(
                  "large_transforms", "products of spectra, transforms through memory",
                  FORWARD(conv_large_transforms), "run-to-run", "", "to rounding"),
              "whole rows of 64 to 2**30 steps and at most 2**24 lags",
              has_large_transforms),
    gpo_shape(gpo_row<float32_types>(
                  "middle_filters", "a lane per row, and eight steps in registers",
                  FORWARD(conv_middle_filters), "run-to-run", "", "exact"),
              "whole rows and filters of at most 128 lags", has_middle_filters),
    gpo_shape(gpo_row<float16_types>(
                  "persistent_tensor_cores",
                  "as v6, by a block per SM whose warps load, multiply and store",
                  FORWARD(conv_persistent), "run-to-run", "sm_90a", "to rounding"),
              "rows of at most 768 steps, a multiple of 8", has_one_stage),
    gpo_shape(gpo_row<float32_types>(
                  "few_outputs", "an output per thread, all of its loads at once",
                  FORWARD(conv_few_outputs), "run-to-run", "", "exact"),
              "whole rows, at most 8 lags, offsets that 32 bits hold", has_few_outputs),
    gpo_shape(gpo_row<float32_types>(
                  "few_taps", "2 to 8 taps, loaded once for the rows of a channel",
                  FORWARD(conv_few_taps), "run-to-run", "", "exact"),
              "filters of 2 to 8 lags and rows of whole aligned 16 bytes",
              has_whole_rows),
    gpo_shape(gpo_row<float32_types>(
                  "contiguous_rows", "2 to 4 taps, rows cut into packs as one array",
                  FORWARD(conv_contiguous_rows), "run-to-run", "", "exact"),
              "filters of 2 to 4 lags, rows of at least 16 bytes, one after the other "
              "from an aligned address, and at most 2^30 elements",
              has_contiguous_rows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant backward_variants[] = {
    gpo_row<float_types>("v0", "one output per thread", BACKWARD(conv_v0, lag_v0),
                         "run-to-run", "", "exact"),
    gpo_row<float_types>("v1", "rows of w, x and dy in shared memory",
                         BACKWARD(conv_v1, lag_v1), "run-to-run", "", "exact"),
    gpo_row<float_types>("v2", "four outputs per thread, 16-byte loads",
                         BACKWARD(conv_v2, lag_v2), "run-to-run", "", "exact"),
    gpo_row<float_types>("v3",
                         "eight batches share one row of w; two for the gradient of w",
                         BACKWARD(conv_v3, lag_v3), "run-to-run", "", "exact"),
    gpo_row<float_types>("v4",
                         "balanced work: step t with T - 1 - t, lag s with K - 1 - s",
                         BACKWARD(conv_v4, lag_v4), "run-to-run", "", "exact"),
    gpo_row<float_types>("v5", "register tile of 16 outputs by 8 inputs",
                         BACKWARD_TURNED(conv_v5, lag_v5, TURNS_ALL), "run-to-run", "",
                         "exact"),
    gpo_row<float32_types>(
        "v6", "tensor cores: dx by a Toeplitz band, dw by blocks and their diagonals",
        BACKWARD(conv_v6, lag_v6), "run-to-run", "sm_90a", "to rounding"),
    gpo_row<float32_types>("v7", "products of spectra, both gradients in one launch",
                           BACKWARD_TURNED(conv_v7, gradients_v7, TURNS_ALL),
                           "run-to-run", "", "to rounding"),
    gpo_shape(gpo_row<float_types>(
                  "short_filters", "one pass over x and dy, in packs of steps",
                  BACKWARD_AT_ONCE(gradients_short_filters), "run-to-run", "", "exact"),
              "filters of at most 16 lags", has_short_filters),
    gpo_shape(
        gpo_row<float_types>("short_filters_channels_last",
                             "one pass over x and dy, in chunks of channels",
                             BACKWARD_AT_ONCE(gradients_short_filters_channels_last),
                             "run-to-run", "", "exact"),
        "filters of at most 16 lags", has_short_filters),
    gpo_shape(gpo_row<float_types>(
                  "segments", "one output or lag per thread or block, within segments",
                  BACKWARD_AT_ONCE(gradients_by_segment), "run-to-run", "", "exact"),
              "rows of fewer than 2**30 steps", has_few_steps),
    gpo_shape(gpo_row<float32_types>(
                  "large_transforms", "products of spectra, transforms through memory",
                  BACKWARD(conv_large_transforms, lag_large_transforms), "run-to-run",
                  "", "to rounding"),
              "whole rows of 64 to 2**30 steps and at most 2**24 lags",
              has_large_transforms),
    gpo_shape(gpo_row<float32_types>(
                  "middle_filters", "dx with a lane per row, dw by the tile of v5",
                  BACKWARD_TURNED(conv_middle_filters, lag_v5, TURNS_LAGS),
                  "run-to-run", "", "exact"),
              "whole rows and filters of at most 128 lags", has_middle_filters),
    gpo_shape(gpo_row<float16_types>(
                  "persistent_tensor_cores",
                  "dx as v6, by a block per SM whose warps load, multiply and store",
                  BACKWARD(conv_persistent, lag_v6), "run-to-run", "sm_90a",
                  "to rounding"),
              "rows of at most 768 steps, a multiple of 8", has_one_stage),
    gpo_shape(gpo_row<float32_types>(
                  "few_taps", "one launch for 2 to 8 taps, two items under way",
                  BACKWARD_AT_ONCE(gradients_few_taps), "run-to-run", "", "exact"),
              "filters of 2 to 8 lags and rows of whole aligned 16 bytes, or of 2 to 4 "
              "without "
              "SiLU and segments and rows that begin alike",
              has_few_taps_rows),
    gpo_shape(
        gpo_row<float32_types>("few_taps_channels_last",
                               "one launch for 2 to 8 taps, in chunks of channels",
                               BACKWARD_AT_ONCE(gradients_few_taps_channels_last),
                               "run-to-run", "", "exact"),
        "filters of 2 to 8 lags and aligned fours of channels", has_few_taps_columns),
    gpo_shape(gpo_row<float_types>(
                  "one_block", "one launch, the rows of a channel in shared memory",
                  BACKWARD_AT_ONCE(gradients_one_block), "run-to-run", "", "exact"),
              "few elements of a channel and at most 128 lags, without segments",
              has_one_block),
    gpo_shape(gpo_row<float32_types>("one_cluster",
                                     "one launch, a cluster of blocks for each channel",
                                     BACKWARD_AT_ONCE(gradients_one_cluster),
                                     "run-to-run", "sm_90a", "exact"),
              "at most 40,720 elements of a channel and 16 lags, without segments",
              has_one_cluster),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by the times in NOTES.md ---- */

/* Whether elements have 16 bits. */
static bool
has_halves(const gpo_call *call)
{
    return gpo_dtypes[call->in[call->op->by].dtype].bytes == 2;
}

/* Whether v6 can run the call, and may: its results are causal to rounding. */
static bool
takes_tensor_cores(const gpo_call *call, const conv_plan &p)
{
    return !p.exact_causality &&
           forward_variants[V6].run[call->in[call->op->by].dtype] &&
           !gpo_lacks(call->backend, call->device, forward_variants[V6].needs) &&
           tensor_counts(p.batches, p.channels, p.steps);
}

/* Whether channels, and not steps, are neighbours in the arrays of a call. */
static bool
is_channels_last(const conv_plan &p)
{
    const bool by_steps = p.x.t == 1 && p.out.t == 1;
    return p.channels > 1 && !by_steps && (p.x.c == 1 || p.out.c == 1);
}

/* Whether persistent_tensor_cores would not hand the call to v6, and is faster. */
static bool
wants_persistent(const gpo_call *call, const conv_plan &p)
{
    const bool is_whole = (p.x.t == 1 && p.out.t == 1) || is_channels_last(p);
    return has_halves(call) && has_one_stage(call) && is_whole && !p.silu &&
           !p.has_state && takes_tensor_cores(call, p) &&
           time_of_persistent(p) < time_of_v6_in_halves(p);
}

static double
time_of_tensor_cores(const gpo_call *call, const conv_plan &p)
{
    return wants_persistent(call, p) ? time_of_persistent(p)
           : has_halves(call)        ? time_of_v6_in_halves(p)
                                     : time_of_v6(p);
}

static int
row_of_tensor_cores(const gpo_call *call, const conv_plan &p)
{
    return wants_persistent(call, p) ? PERSISTENT : V6;
}

/* Whether v6, which works on eight batches and more, has one or two of many channels. */
static bool
leaves_most_idle(const gpo_call *call, const conv_plan &p)
{
    return p.batches <= 2 && p.channels >= 2 * gpo_processors(call);
}

/*
 * Whether v6 is the fastest rung for a call, by the times in NOTES.md.  It always works
 * on at least 8 batches, and makes one product for 16-bit values, three for float32.
 */
static bool
wants_tensor_cores(const gpo_call *call, const conv_plan &p)
{
    if (!takes_tensor_cores(call, p)) {
        return false;
    }
    if (call->in[call->op->by].dtype == GPO_F32) {
        if (p.steps > TOEPLITZ_STEPS || p.steps % 4 != 0) {
            return false;
        }
        if (!p.backward) {
            return p.steps > 128 && time_of_v6(p) < time_of_v7(p);
        }
        return millions(p, p.batches) < SMALL ? time_of_v6_gradients(p) < V7_GRADIENTS
                                              : p.batches > 8 && p.steps > 512;
    }
    return !leaves_most_idle(call, p) &&
           (p.steps <= (p.backward ? 768 : 1536) || p.lags <= 256);
}

/* Whether v7 can run the call, and may. */
static bool
takes_spectra(const gpo_call *call, const conv_plan &p)
{
    return !p.exact_causality &&
           forward_variants[V7].run[call->in[call->op->by].dtype] &&
           p.steps <= MOST_STEPS;
}

/* Whether v7 is faster than v5; for a few dozen steps they are equally fast. */
static bool
wants_spectra(const gpo_call *call, const conv_plan &p)
{
    if (!takes_spectra(call, p) || p.steps <= 32) {
        return false;
    }
    if (p.steps <= 128) {
        return p.batches <= 8;
    }
    return !p.backward || p.steps <= 8192 || p.lags > 128;
}

/* Whether transforms through memory take less time than v7, which cuts these rows. */
static bool
wants_large_transforms(const gpo_call *call, const conv_plan &p)
{
    return takes_spectra(call, p) && has_large_transforms(call) &&
           p.steps > LONG_STEPS && p.batches * p.channels > 0 &&
           time_of_large_transforms(call, p) < time_of_v7_in_blocks(call, p);
}

/* ---- filters of more than SHORT lags, up to MIDDLE ---- */

/* The variant with the least estimated time for a convolution. */
static int
row_for_middle(const gpo_call *call, const conv_plan &p)
{
    const bool is_half = has_halves(call);
    int row = MIDDLE_FILTERS;
    double time = time_of_middle_filters(p);
    const auto consider = [&](int other, double its) {
        if (its < time) {
            row = other;
            time = its;
        }
    };
    consider(V0, time_of_v0(p));
    consider(V1, time_of_v1(p));
    consider(V2, time_of_v2(p));
    consider(V5, time_of_v5(p));
    if (takes_tensor_cores(call, p) && (is_half || p.steps <= TOEPLITZ_STEPS)) {
        consider(row_of_tensor_cores(call, p), time_of_tensor_cores(call, p));
    }
    if (takes_spectra(call, p)) {
        consider(V7, time_of_v7(p));
    }
    return row;
}

/* The fastest variant for both gradients. */
static int
row_for_middle_backward(const gpo_call *call, const conv_plan &p)
{
    const int64_t processors = gpo_processors(call);
    const bool tensor = takes_tensor_cores(call, p);
    const int direct = p.steps <= 128 || p.lags <= 64 ? MIDDLE_FILTERS : V5;
    if (has_one_block(call) &&
        time_of_one_block(p, processors) <
            fmin(time_of_middle_gradients(p), time_of_v6_gradients_in_halves(p))) {
        return ONE_BLOCK; /* others take several launches */
    }
    if (has_halves(call) && tensor) {
        const bool is_slow =
            p.steps <= GRADIENT_STEPS &&
            time_of_v6_gradients_in_halves(p) > time_of_middle_gradients(p);
        const int64_t most = p.batches > 8 ? 8192 : 4096; /* v6 takes 16 at once */
        return p.steps <= most && !is_slow ? row_of_tensor_cores(call, p) : direct;
    }
    if (p.steps <= 128) {
        return p.batches <= 2 ? V2 : direct;
    }
    if (tensor && p.steps <= TOEPLITZ_STEPS && p.steps % 4 == 0 &&
        p.channels * ceil_div(p.batches, 8) <= processors) {
        return V6;
    }
    /* both gradients are one launch; times of both layouts in NOTES.md */
    int64_t whole = 512; /* steps of a transform */
    while (whole < p.steps) {
        whole *= 2;
    }
    const bool is_full =
        4 * p.steps >= 3 * whole && p.batches * p.channels >= 4 * processors;
    const bool has_rows = p.channels >= processors || is_full;
    return takes_spectra(call, p) && p.steps <= 4096 && has_rows ? V7 : direct;
}

/* Whether v1 has made its products before v6 and v7 have a result. */
static bool
is_small(const gpo_call *call, const conv_plan &p)
{
    const bool tensor =
        takes_tensor_cores(call, p) &&
        (has_halves(call) || (p.steps <= TOEPLITZ_STEPS && p.steps % 4 == 0));
    if (p.backward) {
        const double others =
            tensor && !has_halves(call) ? time_of_v6_gradients(p) : V7_GRADIENTS;
        return millions(p, p.batches) < SMALL && !(tensor && has_halves(call)) &&
               takes_spectra(call, p) && time_of_v1_gradients(p) < others;
    }
    double others = takes_spectra(call, p) ? time_of_v7(p) : time_of_v2(p);
    if (tensor && !(has_halves(call) && leaves_most_idle(call, p))) {
        others = fmin(others, time_of_tensor_cores(call, p));
    }
    return time_of_v1(p) < others;
}

/*
 * Whether short_filters_channels_last takes a call of few lags.  Its threads each take 16
 * bytes of channels.  Fewer cost less than steps that are apart (32 of 10,456 steps, K4
 * float16: 6 channels 14.0 us on an H100, short_filters 44.5, 2 10.1 and 17.7), but
 * gradients of few elements or few channels wait for the sums of dw.
 */
static bool
goes_by_channels(const gpo_call *call, const conv_plan &p)
{
    const int64_t bytes = p.channels * gpo_dtypes[call->in[call->op->by].dtype].bytes;
    return is_channels_last(p) &&
           (p.backward ? bytes >= 64 && millions(p, p.batches) >= SMALL : bytes >= 4);
}

/* The kernel for both gradients of few lags, by the least estimated time. */
static int
row_for_few_backward(const gpo_call *call, const conv_plan &p)
{
    const int64_t bytes = gpo_dtypes[call->in[call->op->by].dtype].bytes;
    const bool by_channels = is_channels_last(p), last = goes_by_channels(call, p);
    int row = last ? CHANNELS_LAST : SHORT_FILTERS;
    double time = time_of_short_gradients(p, bytes, by_channels);
    const int64_t processors = gpo_processors(call);
    if (has_few_taps(call, by_channels)) {
        const bool by_items = !by_channels && has_items(call);
        const double its =
            by_channels ? time_of_few_taps_by_channels(p, bytes)
            : by_items ? time_of_item_walks(p, bytes, processors, !has_whole_rows(call))
                       : time_of_few_taps(p, bytes, processors);
        if (by_items || its < time) { /* items took less time in every call */
            row = by_channels ? FEW_TAPS_LAST : FEW_TAPS_ROWS;
            time = its;
        }
    }
    if (has_one_block(call) && time_of_one_block(p, processors) < time) {
        row = ONE_BLOCK;
        time = time_of_one_block(p, processors);
    }
    const gpo_variant &cluster = backward_variants[ONE_CLUSTER];
    const bool has_clusters = bytes < 8 && has_one_cluster(call) &&
                              !gpo_lacks(call->backend, call->device, cluster.needs);
    return has_clusters && time_of_one_cluster(p, processors) < time ? ONE_CLUSTER
                                                                     : row;
}

/* The table row for a call, and the reason. */
static int
row_for(const gpo_call *call, char why[GPO_MESSAGE])
{
    const conv_plan &p = *conv_plan_of(call);
    if (has_short_filters(call)) {
        if (p.backward) {
            const int row = row_for_few_backward(call, p);
            GPO_SAY(why,
                    "a filter of at most %d lags: %s is the fastest, by an estimate",
                    SHORT, backward_variants[row].name);
            return row;
        }
        const bool last = goes_by_channels(call, p);
        const gpo_dtype dtype = call->in[0].dtype;
        const double usual = time_of_short_filters(p, gpo_dtypes[dtype].bytes, last);
        const bool has_row = forward_variants[FEW_OUTPUTS].run[dtype];
        if (has_row && has_few_outputs(call) &&
            time_of_few_outputs(p, gpo_dtypes[dtype].bytes, is_channels_last(p)) <
                usual) {
            GPO_SAY(why, "few outputs and lags: few_outputs, the shortest kernel");
            return FEW_OUTPUTS;
        }
        if (!p.segments && !p.has_state && time_of_v0(p) < usual) {
            GPO_SAY(why, "few outputs and lags: v0 has little code");
            return V0;
        }
        const bool is_contiguous = !last && has_contiguous_rows(call);
        if (has_whole_rows(call) && walks_pay(call, p, is_contiguous)) {
            GPO_SAY(why, "2 to 8 lags and rows of whole packs: few_taps has no edges");
            return FORWARD_FEW_TAPS;
        }
        if (is_contiguous) {
            GPO_SAY(why,
                    "2 to 4 lags and rows without gaps: contiguous_rows has packs");
            return CONTIGUOUS_ROWS;
        }
        GPO_SAY(why,
                "a filter of at most %d lags: %s reads x once, as %s are neighbours in "
                "memory",
                SHORT, last ? "short_filters_channels_last" : "short_filters",
                last ? "channels" : "steps");
        return last ? CHANNELS_LAST : SHORT_FILTERS;
    }
    if (p.segments) {
        GPO_SAY(why,
                "segments, and a filter of more than %d lags: segments adds term by "
                "term",
                SHORT);
        return SEGMENTS;
    }
    if (p.lags <= MIDDLE && call->in[call->op->by].dtype != GPO_F64) {
        const int row =
            p.backward ? row_for_middle_backward(call, p) : row_for_middle(call, p);
        GPO_SAY(why, "%lld lags, %lld steps: %s is the fastest variant, by an estimate",
                static_cast<long long>(p.lags), static_cast<long long>(p.steps),
                (p.backward ? backward_variants : forward_variants)[row].name);
        return row;
    }
    if (is_small(call, p)) {
        GPO_SAY(why, "v1: so few products that the shortest code is the fastest");
        return V1;
    }
    if (wants_tensor_cores(call, p)) {
        const int row = row_of_tensor_cores(call, p);
        GPO_SAY(why,
                "%s multiplies on tensor cores, which pays for %lld batches of %lld "
                "steps",
                forward_variants[row].name, static_cast<long long>(p.batches),
                static_cast<long long>(p.steps));
        return row;
    }
    if (wants_large_transforms(call, p)) {
        GPO_SAY(
            why,
            "%lld steps and %lld taps: large_transforms takes less time than v7, by "
            "an estimate",
            static_cast<long long>(p.steps), static_cast<long long>(p.taps));
        return LARGE;
    }
    if (wants_spectra(call, p)) {
        GPO_SAY(why, "v7 multiplies spectra: T log T for %lld steps and %lld taps",
                static_cast<long long>(p.steps), static_cast<long long>(p.taps));
        return V7;
    }
    if (p.batches * ceil_div(p.steps, SEGMENT) < FEW_ROWS) {
        GPO_SAY(why, "fewer than %d rows of %d steps: v5 would leave most lanes idle",
                static_cast<int>(FEW_ROWS), SEGMENT);
        return V2;
    }
    GPO_SAY(why, "v5 has 128 products for 4 loads of 16 bytes");
    return V5;
}

static const gpo_variant *
choose_forward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &forward_variants[row_for(call, why)];
}

static const gpo_variant *
choose_backward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &backward_variants[row_for(call, why)];
}

extern "C" const gpo_table causal_conv1d_cuda = {forward_variants, choose_forward};
extern "C" const gpo_table causal_conv1d_backward_cuda = {backward_variants,
                                                          choose_backward};
