/*
 * choice.cu  Which kernel a call of reduce runs on CUDA.  Several rows that are a run of
 * memory each: the kernel with the least estimated time (row_costs.cuh).  Other calls have
 * lists of rules, the first of which that holds decides: for every call, for runs of memory,
 * for elements that have gaps or lie across memory.  From times of some 2,600 random calls,
 * each by every variant, on an H200; see NOTES.md.
 * Order: the rules of every call, of one row, of few_down, of one_wave, of columns, of rows
 * with gaps, the lists.
 */
#include "choice.cuh"
#include "few_down.cuh"
#include "look.cuh"
#include "memory_order.cuh"
#include "narrow.cuh"
#include "one_wave.cuh"
#include "row_costs.cuh"

#include <stdio.h>

/* ---- of every call ---- */

static bool
has_only_zeros(const reduce_look &look)
{
    return are_zeros(*look.plan);
}

static bool
has_many_axes(const reduce_look &look)
{
    return !has_few_axes(*look.plan);
}

/*
 * Whether so many results are transposed that each would be a write of a sector, and
 * neighbours in memory share sectors: lanes read (16, 2, 43, 55400) int32, reversed axes,
 * along (0, 1), whose rows are 128 bytes, in 1,581 us on an H100 (CuPy 267).
 */
static bool
are_many_transposed(const reduce_look &look)
{
    constexpr int64_t SECTOR = 32;
    /* min of (1485, 4, 8, 46) float32, reversed axes, along axis 2, 273,240 results:
       few_down 13.9 us, transposed 33 on an H100; of 1,092,960 33 and 42, of 2,185,920
       float16 46 and 34. */
    constexpr int64_t MANY_TRANSPOSED = 1 << 20;
    const reduce_plan &plan = *look.plan;
    const reduce_axes &kept = plan.kept;
    const int nearest = nearest_axis(kept);
    const int64_t stride = kept.strides[nearest];
    return look.rows >= MANY_TRANSPOSED && look.cols <= SHORT_TRANSPOSED &&
           are_transposed(plan) && kept.shape[nearest] >= TRANSPOSED_SIDE &&
           kept.shape[kept.ndim - 1] >= TRANSPOSED_SIDE &&
           (stride < 0 ? -stride : stride) * look.element < SECTOR;
}

/* ---- one row along memory ---- */

/* Elements that the eight SMs of a cluster add sooner than more of them, from times in
   NOTES.md. */
constexpr int64_t CLUSTER_ELEMENTS = 1 << 18;

/* Elements of one row that a cluster adds sooner than a block, whatever their bytes, and
   of argmin and argmax: min of 61,844 uint8 6.0 us on an H200, one_block 7.2, argmax of
   16,128 float32 6.3 and 7.1, but the sum of 10,624 float32 6.0 and 5.6. */
constexpr int64_t MANY_FOR_BLOCK = 24 << 10, MANY_PLACES_FOR_BLOCK = 1 << 13;

static bool
is_for_one_cluster(const reduce_look &look)
{
    const int64_t many = look.has_places ? MANY_PLACES_FOR_BLOCK : MANY_FOR_BLOCK;
    return is_cluster_row(*look.plan, look.element) && look.cols <= CLUSTER_ELEMENTS &&
           (look.cols >= many || !has_block_rows(look)) &&
           !gpo_lacks(look.call->backend, look.call->device, CLUSTER_NEEDS);
}

static bool
is_block_row(const reduce_look &look)
{
    return look.rows == 1 && has_block_rows(look);
}

/* ---- few_down: a thread for each result, or for several neighbours ---- */

/* Threads of few_down per SM, below which columns share out what is down a column: any of
   (32, 64, 512, 8) bool, every second, along axis 0, 248 of them: 18.3 us on an H100. */
constexpr int64_t FEWEST_DOWN = 512;

/* Results per SM of bytes and halves up to which few_down beats columns, whose blocks do
   not fill the device: any of (10, 237696) along axis 0 7.9 us on an H200, columns 13.3,
   max of (23, 282688) uint8 9.8 and 16.9, of (22, 451331) bfloat16 13.8 and 17.6; any of
   (26, 600960) 16.4 and 13.8. */
constexpr int64_t FEW_OF_BYTES = 4096;

/*
 * Contiguous rows: many of no whole packs, whose threads share lines, of more than 8
 * elements those that narrow_rows leaves, of up to 4 bytes each: (4000000, 19) float32
 * 136 us on an H100, short_rows 253; on an H200 (5000000, 7) float32 43.9, columns 98.6,
 * (3000000, 5) float64 39.4 and 78.4.
 */
static bool
are_rows_of_threads(const reduce_look &look)
{
    return are_few_down(*look.plan) && look.cols > 1 && look.is_many &&
           look.is_uneven && (look.element <= 4 || look.cols <= FEW_DOWN);
}

/*
 * Whether neighbours share loads of 16 bytes as columns do not: results two apart, of a
 * short axis, of narrow elements.  Columns have packs of 16 bytes of any and all: any of
 * (11, 8388608) along axis 0 43.5 us on an H200, by few_down, of 8 bytes a load, 53; but
 * max of (11, 4924992) uint8, whose elements columns take one by one, 34 and 25.
 */
static bool
share_loads(const reduce_look &look, const few_beside &beside, const reduce_axes &whole)
{
    const reduce_plan &plan = *look.plan;
    const bool are_wider = (plan.op == REDUCE_ANY || plan.op == REDUCE_ALL) &&
                           look.element == 1 && beside.step == 1 &&
                           whole.shape[whole.ndim - 1] % 16 == 0 &&
                           are_aligned(whole, whole.ndim - 1, 16) &&
                           are_aligned(plan.reduced, plan.reduced.ndim, 16);
    return look.rows / beside.count >= look.processors * FEWEST_DOWN && !are_wider &&
           (beside.step > 1 || look.element <= 2 || whole.ndim < plan.kept.ndim);
}

/*
 * Other rows: of up to 8 elements, a wave of threads or some of them; of up to 32 what is
 * one wave here and two of columns.  Beyond, where neighbours share no loads, columns have
 * none either, but of narrow elements: (1024, 4, 10375) float16 along axis 1, (16,
 * 2207239) float32 along axis 0.
 */
static bool
are_for_few_down(const reduce_look &look)
{
    const reduce_plan &plan = *look.plan;
    const bool are_short = look.cols <= FEW_DOWN, has_runs = are_runs(plan);
    if (!are_few_down(plan) || (has_runs && look.cols > 1)) {
        return false;
    }
    if (are_short && look.rows <= look.processors * FEW_RESULTS) {
        return true;
    }
    if (look.rows <= look.processors * FEW_AT_ONCE) {
        return !has_runs && look.rows > look.processors * BLOCKS_PER_PROCESSOR * BLOCK;
    }
    reduce_axes kept = plan.kept;
    sort_by_distance(&kept);
    const reduce_axes whole = merged(kept);
    const few_beside beside =
        few_beside_of(plan, whole, static_cast<int>(look.element));
    const bool are_few =
        look.element <= 2 && look.rows <= look.processors * FEW_OF_BYTES;
    if (beside.count > 1) {
        return are_short || are_few || share_loads(look, beside, whole);
    }
    /* columns load single elements here: any of (12, 855389) of every second along axis 0
       16.2 us on an H200, columns 24.5 */
    const bool have_gaps = llabs(kept.strides[kept.ndim - 1]) > 1;
    return look.element > 1 || are_few || look.cols <= FEW_IN_APART || have_gaps;
}

/* ---- one_wave: loads of single elements, all on their way at once ---- */

/*
 * Threads of one_wave, in percent of those that run at once, up to which its single loads
 * are sooner than columns.  Of 1 and 2 bytes whatever columns load: any of (256, 6738) along
 * axis 0, of 160, 8.1 us on an H200, columns 12.5, min of (7787, 383) uint8, of 280, 11.4
 * and 14.1, (8192, 256) bfloat16, of 190, 11.2 and 14.1; beyond (860, 512, 26) bool 165 and
 * 67, (704, 8192) bfloat16 30 and 21.  Of wider ones where columns have no packs: prod of
 * (43, 28267) float32, of 170, 6.8 and 8.1, of (573, 2503), of 240, 10.9 and 10.2.
 */
constexpr int64_t NEARLY_OF_BYTES = 450, NEARLY_OF_TWO = 220, NEARLY_A_WAVE = 200;

static bool
are_for_one_wave(const reduce_look &look)
{
    return is_for_one_wave(look.call);
}

static bool
are_nearly_one_wave(const reduce_look &look)
{
    const reduce_plan &plan = *look.plan;
    if (look.element > 8 || !are_one_wave(plan)) {
        return false;
    }
    const reduce_axes &kept = plan.kept;
    const int near = kept.ndim > 0 ? nearest_axis(kept) : 0;
    const bool has_packs = look.element > 2 && kept.ndim > 0 &&
                           kept.strides[near] == 1 &&
                           kept.shape[near] * look.element % 16 == 0;
    const wave_grid g = wave_grid_of(look.call);
    const int64_t percent = look.element == 1   ? NEARLY_OF_BYTES
                            : look.element == 2 ? NEARLY_OF_TWO
                                                : NEARLY_A_WAVE;
    return !has_packs && (g.rounds == 1 ? run_at_once(look.call, g, percent)
                                        : g.rounds == 2 && run_at_once(look.call, g));
}

/* Elements of a row of every second one, of which a load of one_wave brings as much as
   lanes of other kernels.  On an H200 65,883 rows of 72 float32 19.3 us, short_rows 24.4,
   186,760 of 33 float64 28.3 and 32.6, 159,101 of 64 bfloat16 16.8 and 22.6; but 37,410 of
   313 float16 35 and 26. */
constexpr int64_t MOST_STEPS = 256, MOST_STEPS_WIDE = 1024, MOST_STEPS_OF_TWO = 64;

static bool
are_steps_in_waves(const reduce_look &look)
{
    const reduce_plan &plan = *look.plan;
    const int64_t most = look.element == 8   ? MOST_STEPS_WIDE
                         : look.element == 4 ? MOST_STEPS
                         : look.element == 2 ? MOST_STEPS_OF_TWO
                                             : 0;
    return are_stepped(plan) && plan.reduced.ndim == 1 && !are_columns(plan) &&
           look.cols <= most && look.cols > FEW_DOWN &&
           look.rows > look.processors * BLOCKS_PER_PROCESSOR && are_one_wave(plan);
}

/*
 * Rows of several runs are for one_wave, which finds elements by additions, or columns.
 * one_wave: elements of all, of bytes half as many; of a row, in runs of so many bytes, of
 * one byte each RUN_OF_BYTES.  columns: bytes of runs, above which blocks of v9 fill them
 * and below which a load of columns is mostly empty.  84 random calls on an H200 lose 1 %
 * of the fastest variant's time by these, 24 % without: sum of (56, 740, 1120) float32
 * along (0, 2) 65 us by columns, v9 170, of (3, 2146, 655) float64 14 by one_wave, v9 35,
 * max of (17, 7074, 1569) float16 223 by columns, v9 464.
 */
constexpr int64_t FEW_IN_RUNS = 6000000, SHORT_IN_RUNS = 1024;
constexpr int64_t RUN_BYTES = 400, RUN_OF_BYTES = 32;
constexpr int64_t SHORT_RUN_BYTES = 64, MIDDLE_RUN_BYTES = 32 << 10;

static bool
are_runs_in_waves(const reduce_look &look)
{
    const bool is_byte = look.element == 1;
    return look.plan->reduced.ndim > 1 && look.element <= 8 &&
           look.run <= MIDDLE_RUN_BYTES &&
           (look.rows * look.cols <= (is_byte ? FEW_IN_RUNS / 2 : FEW_IN_RUNS) ||
            (look.cols <= SHORT_IN_RUNS &&
             look.run <= (is_byte ? RUN_OF_BYTES : RUN_BYTES))) &&
           are_one_wave(*look.plan);
}

/* ---- columns ---- */

static bool
are_out_of_order(const reduce_look &look)
{
    return is_out_of_order(*look.plan);
}

static bool
are_many_copied(const reduce_look &look)
{
    return look.cols == 1 && look.rows >= MANY_COPIED && has_neighbours(*look.plan);
}

static bool
are_middle_runs(const reduce_look &look)
{
    return look.plan->reduced.ndim > 1 && look.run > SHORT_RUN_BYTES &&
           look.run <= MIDDLE_RUN_BYTES;
}

/* Rows of several runs for parts of warps: many of up to 32 KiB, others of up to 12, or 8 of
   8-byte elements. */
static bool
are_short_rows(const reduce_look &look)
{
    const int64_t few = SHORT_ROW_BYTES * (look.element < 8 ? 3 : 2);
    return look.rows > 1 && look.row <= (look.is_many ? WARP_ROW_BYTES : few);
}

/* Runs that v9 has a tile each for: min of (2, 8575346) int8 in runs of 2, 26.8 ms by v9 on
   an H200, columns 28 us. */
static bool
are_short_runs(const reduce_look &look)
{
    return look.plan->reduced.ndim > 1 && look.run <= SHORT_RUN_BYTES;
}

static bool
are_few_flat(const reduce_look &look)
{
    return are_for_flat_columns(look.call);
}

static bool
always(const reduce_look &)
{
    return true;
}

/* ---- rows with gaps between elements ---- */

/* Memory that a row of stepped_rows walks: a load for each thread; of several runs each
   walks half of the loads of a thread: sum of (32, 886, 512) of every second float32 along
   (0, 2) 64 us on an H200, columns 37, of (24, 1067, 807) 72 and 50, (25, 2716, 1028) 168
   and 164, (13, 1653, 1341) 68 and 73. */
constexpr int64_t STEPPED_BYTES = BLOCK * 16;

/* Elements of a row of every second one, up to which many such rows are for short_rows: of
   4 bytes, SHORT_GAPPED of 2; of 8 bytes, for which stepped_rows has no kernel, of half as
   many rows.  (20000, 2600) float32 157 us on an H100, stepped_rows 163, (6000, 4000) 79
   and 73; (8192, 1280) float16 18.0 on an H200, stepped_rows 31.6; (20000, 2600) float64
   289, columns 380, (3000, 5001) 98 and 114. */
constexpr int64_t SHORT_STEPPED = 3072, SHORT_STEPPED_WIDE = 5120;

static bool
are_short_steps(const reduce_look &look)
{
    const int64_t many = look.processors * MANY_ROWS / (look.element == 8 ? 2 : 1);
    const int64_t longest = look.element == 2   ? SHORT_GAPPED
                            : look.element == 4 ? SHORT_STEPPED
                            : look.element == 8 ? SHORT_STEPPED_WIDE
                                                : 0;
    return are_stepped(*look.plan) && !are_columns(*look.plan) && look.rows >= many &&
           look.cols <= longest;
}

static bool
are_long_steps(const reduce_look &look)
{
    const reduce_plan &plan = *look.plan;
    const bool is_float = gpo_dtypes[look.call->in[0].dtype].kind == 'f';
    const int64_t least = STEPPED_BYTES * (plan.reduced.ndim > 1 ? TILE_ITEMS / 2 : 1);
    return has_stepped_packs(look.element, is_float) && are_stepped(plan) &&
           !are_columns(plan) && 2 * look.run >= least && !are_short_steps(look);
}

static bool
are_short_with_gaps(const reduce_look &look)
{
    return !are_columns(*look.plan) &&
           (look.cols <= SHORT_GAPPED || are_short_steps(look)) &&
           look.rows > look.processors * BLOCKS_PER_PROCESSOR;
}

/* Elements of columns per SM, of few of which lanes of short_rows go down rows each, from
   times in NOTES.md. */
constexpr int64_t FEW_IN_COLUMNS = 4096;

static bool
are_few_in_all(const reduce_look &look)
{
    return look.element <= 4 && look.cols <= SHORT_GAPPED &&
           look.rows >= look.processors &&
           look.cols <= look.processors * FEW_IN_COLUMNS / look.rows;
}

/* ---- rows along memory ---- */

static bool
are_narrow(const reduce_look &look)
{
    return are_for_narrow_rows(look.call);
}

/* ---- the lists ---- */

struct reduce_rule {
    reduce_kernel kernel;
    bool (*holds)(const reduce_look &look);
    const char *why;
};

constexpr reduce_rule RULES_OF_ALL[] = {
    {FEW, has_only_zeros, "few_down: the places of one element each are zeros"},
    {V9, has_many_axes, "v9 is the last rung, and takes any number of axes"},
    {TRANSPOSED, are_many_transposed,
     "transposed: results in another order than their elements"},
};

/* Of rows, or runs of them, whose elements are neighbours in memory. */
constexpr reduce_rule RULES_OF_RUNS[] = {
    {ONE_CLUSTER, is_for_one_cluster,
     "one_cluster: a row that a cluster loads at once"},
    {ONE_BLOCK, is_block_row, "one_block: a row that is on its way at once"},
    {FEW, are_rows_of_threads, "few_down: threads with a row each, between packs"},
    {FEW, are_for_few_down, "few_down: threads with a result each"},
    {ONE_WAVE, are_for_one_wave, "one_wave: all elements are on their way at once"},
    {COLUMNS, are_out_of_order, "columns: all elements, in the order of memory"},
    {COLUMNS, are_many_copied, "columns: results of one element, beside each other"},
    {ONE_WAVE, are_runs_in_waves, "one_wave: rows in several short runs"},
    {COLUMNS, are_middle_runs, "columns: rows in several runs"},
    {SHORT_ROWS, are_short_rows, "short_rows: part of a warp does a row"},
    {COLUMNS, are_short_runs, "columns: long rows in very short runs"},
    {V9, always, "v9 is the fastest rung for long contiguous rows"},
};

/* Of rows whose elements lie across memory or have gaps. */
constexpr reduce_rule RULES_OF_GAPS[] = {
    {ONE_WAVE, are_steps_in_waves, "one_wave: short rows of every second element"},
    {NARROW_ROWS, are_narrow, "narrow_rows: short rows of every second element"},
    {FEW, are_for_few_down, "few_down: threads with a result each, or with neighbours"},
    {ONE_WAVE, are_for_one_wave, "one_wave: all elements are on their way at once"},
    {COLUMNS, are_out_of_order, "columns: all elements, in the order of memory"},
    {FLAT, are_few_flat, "flat_columns: few columns, no whole packs"},
    {STEPPED_ROWS, are_long_steps, "stepped_rows: every second element of memory"},
    {SHORT_ROWS, are_short_with_gaps, "short_rows: many rows with gaps"},
    {SHORT_ROWS, are_few_in_all, "short_rows: lanes down rows of few elements in all"},
    {ONE_WAVE, are_nearly_one_wave, "one_wave: nearly all on their way at once"},
    {COLUMNS, always, "columns: the elements of a row lie across memory or have gaps"},
};

/* The first rule of a list that holds; nullptr if none does. */
template <int N>
static const reduce_rule *
first_rule(const reduce_rule (&rules)[N], const reduce_look &look)
{
    for (const reduce_rule &rule : rules) {
        if (rule.holds(look)) {
            return &rule;
        }
    }
    return nullptr;
}

reduce_kernel
choose_reduce(const gpo_call *call, char why[GPO_MESSAGE])
{
    const reduce_look look = look_at(call);
    const reduce_plan &plan = *look.plan;
    const reduce_rule *rule = first_rule(RULES_OF_ALL, look);
    reduce_kernel kernel = rule != nullptr ? rule->kernel : V9;
    const char *reason = rule != nullptr ? rule->why : nullptr;
    if (rule == nullptr && are_runs(plan) && plan.reduced.ndim == 1 && plan.rows > 1 &&
        plan.cols > 0) {
        const row_cost *cost = least_cost(look);
        kernel = cost->kernel;
        reason = cost->why;
    }
    else if (rule == nullptr) {
        rule = are_runs(plan) ? first_rule(RULES_OF_RUNS, look)
                              : first_rule(RULES_OF_GAPS, look);
        kernel = rule->kernel;
        reason = rule->why;
    }
    GPO_SAY(why, "%s (%lld of %lld elements)", reason,
            static_cast<long long>(look.rows), static_cast<long long>(look.cols));
    return kernel;
}
