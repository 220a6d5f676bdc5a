/*
 * cuda.cu  The tables of upsample_nearest and its backward on CUDA: their ladders
 * (ladder/), their shape kernels (shapes/) and the choice.
 * See rows.cuh and walks.cuh for what the kernels share, upsample_nearest.h for the
 * rule, op.c for the contract.
 */
#include "ladder/backward_v0_input.cuh"
#include "ladder/backward_v1_pairs.cuh"
#include "ladder/backward_v2_halved.cuh"
#include "ladder/v0_output.cuh"
#include "ladder/v1_pairs.cuh"
#include "ladder/v2_doubled.cuh"

#include "tiles.cuh"

#include <stdio.h>

/* ---- tables ---- */

template <gpo_status (*RUNG)(gpo_call *)>
static gpo_status
run(gpo_call *call)
{
    return upsample_nearest_plan_of(call)->size == 0 ? GPO_OK : RUNG(call);
}

/* Forward copies elements by their size alone. */
template <typename T>
using moved_as = std::conditional_t<sizeof(T) == 16, uint4, unsigned_of<sizeof(T)>>;

using added_types = gpo_types<int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t,
                              int64_t, uint64_t, f16, bf16, float, double, c64, c128>;

#define RUN(f, as) \
    [](auto t) -> gpo_run { return run<f<as<typename decltype(t)::type>>>; }

static const char any_rows[] = "fewer than 2^31 rows, elements of a row and blocks";

enum {
    V0,
    V1,
    V2,
    ALIGNED_ROWS,
    ANY_ROWS,
    WHOLE_SCALES,
    SMALL_SCALES,
    CONTIGUOUS_ROWS,
    LONG_ROWS,
    FEW_ELEMENTS
};
enum { ONE_EACH = ANY_ROWS + 1 }; /* forward */

static const gpo_variant forward_variants[] = {
    gpo_row<every_type>("v0", "one output per thread",
                        RUN(upsample_nearest_v0, moved_as)),
    gpo_row<every_type>("v1", "one input per thread, pairs of outputs",
                        RUN(upsample_nearest_v1, moved_as)),
    gpo_row<every_type>("v2", "16-byte stores on all rows, no division",
                        RUN(upsample_nearest_v2, moved_as)),
    gpo_shape(gpo_row<every_type>("aligned_rows", "16-byte stores, rows by carrying",
                                  RUN(upsample_nearest_aligned_rows, moved_as)),
              "results with rows on 16-byte boundaries and no fewer of them than x has",
              takes_aligned_rows),
    gpo_shape(gpo_row<every_type>("any_rows", "16 bytes of the result, across rows",
                                  RUN(upsample_nearest_any_rows, moved_as)),
              any_rows, takes_any_rows),
    gpo_shape(gpo_row<every_type>("one_each",
                                  "an element per thread, by multiplications",
                                  RUN(upsample_nearest_one_each, moved_as)),
              "up to 2^30 elements", takes_one_each),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant backward_variants[] = {
    gpo_row<added_types>("v0", "one input per thread gathers",
                         RUN(upsample_nearest_backward_v0, carrier_of)),
    gpo_row<added_types>("v1", "pairs of dy",
                         RUN(upsample_nearest_backward_v1, carrier_of)),
    gpo_row<added_types>("v2", "16-byte loads on all rows, no division",
                         RUN(upsample_nearest_backward_v2, carrier_of)),
    gpo_shape(
        gpo_row<added_types>("aligned_rows", "16-byte loads, rows by carrying",
                             RUN(upsample_nearest_backward_aligned_rows, carrier_of)),
        "rows of dy in words of 16 bytes: whole pixels, or twice as long as dx's",
        takes_aligned_rows_of_dy),
    gpo_shape(gpo_row<added_types>("any_rows", "an element of dx for each of 4 rows",
                                   RUN(upsample_nearest_backward_any_rows, carrier_of)),
              any_rows, takes_any_rows),
    gpo_shape(
        gpo_row<added_types>("whole_scales", "a box of dy for each element of dx",
                             RUN(upsample_nearest_backward_whole_scales, carrier_of)),
        "whole scales of axes with fewer than 2^20 outputs, up to 2^30 elements",
        takes_whole_scales),
    gpo_shape(
        gpo_row<float_types>("small_scales", "one element of dy or none for each of dx",
                             RUN(upsample_nearest_backward_small_scales, carrier_of)),
        "scales of 1 and less of axes with fewer than 2^20 elements, up to 2^30 of "
        "them",
        takes_small_scales),
    gpo_shape(
        gpo_row<added_types>(
            "contiguous_rows", "boxes of dy in shared memory, first outputs known",
            RUN(upsample_nearest_backward_contiguous_rows, carrier_of)),
        "rows of dy contiguous, of axes with fewer than 2^20 elements, up to 2^30 "
        "of them",
        takes_contiguous_rows),
    gpo_shape(
        gpo_row<float_types>("long_rows", "a column of one axis, row after row",
                             RUN(upsample_nearest_backward_long_rows, carrier_of)),
        "channels first, one axis of fewer than 2^20 elements, with gradients beside "
        "each other and rows evenly spaced",
        takes_long_rows),
    gpo_shape(
        gpo_row<added_types>("few_elements", "an element of dx per thread",
                             RUN(upsample_nearest_backward_few_elements, carrier_of)),
        "axes of fewer than 2^20 outputs, up to 2^30 elements", takes_few_elements),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by benchmarks/results/h200-upsample_nearest*.json ---- */

static const gpo_variant *
choose_from(const gpo_variant *variants, const gpo_call *call, bool aligned,
            char why[GPO_MESSAGE])
{
    if (!takes_any_rows(call)) {
        GPO_SAY(why, "v0 counts in 64 bits, v2 and the others in 32");
        return &variants[V0];
    }
    if (takes_doubles(call)) {
        GPO_SAY(why, "v2 moves 16 bytes at a time of rows twice as many and as long");
        return &variants[V2];
    }
    if (aligned) {
        GPO_SAY(why,
                "aligned_rows moves 16 bytes at a time and divides once per thread");
        return &variants[ALIGNED_ROWS];
    }
    GPO_SAY(why, "any_rows divides once per thread, and asks for nothing");
    return &variants[ANY_ROWS];
}

/* Whether the result is so small that any_rows, the shortest code, is the fastest. */
static bool
is_small(const gpo_call *call)
{
    const int bytes = gpo_dtypes[call->out[0].dtype].bytes;
    return bytes >= 4 && upsample_nearest_plan_of(call)->size <= SMALL_BYTES / bytes;
}

/* Whether a thread for each element of the result runs at once. */
static bool
fills_one_wave(const gpo_call *call)
{
    return upsample_nearest_plan_of(call)->size <=
           static_cast<int64_t>(gpo_processors(call)) * THREADS_OF_SM;
}

/* Whether a small gradient has few outputs for each of its elements. */
static bool
has_small_boxes(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    bool small = takes_few_elements(call) && fills_one_wave(call);
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        small = small && p.axis[k].inverse * MOST_SCALE >= 1;
    }
    return small;
}

/* Whether most threads of long_rows have a column of dx. */
static bool
has_busy_columns(const gpo_call *call)
{
    const int64_t columns = upsample_nearest_plan_of(call)->axis[2].in;
    return 4 * columns >= 3 * BLOCK * ceil_div(columns, BLOCK);
}

/* Results of elements of 4 bytes and more up to which one_each takes 2 to 14 % less, but
   where rows are twice as wide, by 100 calls on an H200. */
static constexpr int64_t ONE_EACH_BYTES = 1 << 19;

/* Whether one_each takes less than packs: results that are small for their elements. */
static bool
is_for_one_each(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const bool is_few = bytes < 4 ? fills_one_wave(call)
                                  : p.size * bytes <= ONE_EACH_BYTES &&
                                        p.axis[2].out != 2 * p.axis[2].in;
    return is_few && takes_one_each(call) && !takes_doubles(call);
}

static const gpo_variant *
choose_forward(const gpo_call *call, char why[GPO_MESSAGE])
{
    const bool aligned = !is_small(call) && takes_aligned_rows(call);
    if (is_for_one_each(call)) {
        GPO_SAY(why, "one_each, the shortest code, as all its threads run at once");
        return &forward_variants[ONE_EACH];
    }
    return choose_from(forward_variants, call, aligned, why);
}

static const gpo_variant *
choose_backward(const gpo_call *call, char why[GPO_MESSAGE])
{
    const bool is_float = gpo_dtypes[call->in[0].dtype].kind == 'f';
    /* small gradients of rows twice as wide take packs on end, of pixels an element each */
    const bool is_few = upsample_nearest_plan_of(call)->inner > 1 &&
                        fills_one_wave(call) &&
                        (has_small_boxes(call) || takes_whole_scales(call));
    const bool is_moved =
        takes_doubles(call) || (takes_aligned_rows_of_dy(call) && !is_few);
    if (takes_any_rows(call) && !is_moved && is_float && takes_long_rows(call) &&
        fills_one_wave(call)) {
        GPO_SAY(why, "long_rows, the shortest code, as all its threads run at once");
        return &backward_variants[LONG_ROWS];
    }
    if (takes_any_rows(call) && !is_moved && is_float && takes_small_scales(call)) {
        GPO_SAY(why, "small_scales stores 16 bytes of dx per thread, mostly zeros");
        return &backward_variants[SMALL_SCALES];
    }
    if (takes_any_rows(call) && !is_moved && is_float && takes_long_rows(call) &&
        has_busy_columns(call)) {
        GPO_SAY(why, "long_rows finds the outputs of a column once for many rows");
        return &backward_variants[LONG_ROWS];
    }
    if (takes_any_rows(call) && !is_moved && takes_whole_scales(call)) {
        GPO_SAY(why,
                "whole_scales sums a box of dy per thread, found without divisions");
        return &backward_variants[WHOLE_SCALES];
    }
    if (!is_moved && has_small_boxes(call)) {
        GPO_SAY(why, "few_elements, which waits once, in a wave or two of threads");
        return &backward_variants[FEW_ELEMENTS];
    }
    if (takes_any_rows(call) && !is_moved && takes_contiguous_rows(call)) {
        GPO_SAY(why,
                "contiguous_rows copies boxes of dy 16 bytes at a time, and finds the "
                "outputs of a row and of a column once for all sums of a tile");
        return &backward_variants[CONTIGUOUS_ROWS];
    }
    return choose_from(backward_variants, call, takes_aligned_rows_of_dy(call), why);
}

extern "C" const gpo_table upsample_nearest_cuda = {forward_variants, choose_forward};
extern "C" const gpo_table upsample_nearest_backward_cuda = {backward_variants,
                                                             choose_backward};
