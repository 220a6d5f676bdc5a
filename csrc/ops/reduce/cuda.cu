/*
 * cuda.cu  The table of reduce on CUDA: the ladder (ladder/), the shape kernels
 * (shapes/) and the choice.  Up to v8 each block stores one part and the shared finish
 * (rows.cuh) combines the parts; v9 needs no second kernel.  See reductions.cuh for the
 * reductions, op.c for the contract.
 */
#include "ladder/v0_interleaved.cuh"
#include "ladder/v1_strided.cuh"
#include "ladder/v2_sequential.cuh"
#include "ladder/v3_add_on_load.cuh"
#include "ladder/v4_last_warp.cuh"
#include "ladder/v5_unrolled.cuh"
#include "ladder/v6_fixed_grid.cuh"
#include "ladder/v7_warp_shuffle.cuh"
#include "ladder/v8_packs.cuh"
#include "memory_order.cuh"
#include "narrow.cuh"
#include "one_row.cuh"
#include "one_wave.cuh"

#include <stdio.h>

/* For v9, another translation unit, which falls back to v8. */
#define INSTANTIATE(T) template gpo_status reduce_v8<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)

/* ---- table ---- */

#define RUNG(rung) \
    [](auto t) -> gpo_run { return reduce_with<rung, typename decltype(t)::type>; }

static bool
takes_few_axes(const gpo_call *call)
{
    return has_few_axes(*reduce_plan_of(call));
}

static bool
takes_transposed(const gpo_call *call)
{
    return are_transposed(*reduce_plan_of(call));
}

/*
 * Whether so many results are transposed that each would be a write of a sector, and
 * neighbours in memory share sectors: lanes read (16, 2, 43, 55400) int32, reversed axes,
 * along (0, 1), whose rows are 128 bytes, in 1,581 us on an H100 (CuPy 267).
 */
static bool
are_many_transposed(const reduce_plan &plan, int64_t element)
{
    constexpr int64_t SECTOR = 32;
    /* min of (1485, 4, 8, 46) float32, reversed axes, along axis 2, 273,240 results:
       few_down 13.9 us, transposed 33 on an H100; of 1,092,960 33 and 42, of 2,185,920
       float16 46 and 34. */
    constexpr int64_t MANY_TRANSPOSED = 1 << 20;
    const reduce_axes &kept = plan.kept;
    const int nearest = nearest_axis(kept);
    const int64_t stride = kept.strides[nearest];
    return plan.rows >= MANY_TRANSPOSED && plan.cols <= SHORT_TRANSPOSED &&
           are_transposed(plan) && kept.shape[nearest] >= TRANSPOSED_SIDE &&
           kept.shape[kept.ndim - 1] >= TRANSPOSED_SIDE &&
           (stride < 0 ? -stride : stride) * element < SECTOR;
}

static bool
takes_few_down(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return are_few_down(plan) || are_zeros(plan);
}

static bool
takes_narrow_rows(const gpo_call *call)
{
    return are_narrow_rows(*reduce_plan_of(call), gpo_dtypes[call->in[0].dtype].bytes);
}

static bool
takes_flat_columns(const gpo_call *call)
{
    return are_flat_columns(*reduce_plan_of(call));
}

static bool
takes_one_block(const gpo_call *call)
{
    return are_block_rows(*reduce_plan_of(call), gpo_dtypes[call->in[0].dtype].bytes);
}

static bool
takes_one_cluster(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return plan.kept.ndim == 0 && plan.rows == 1 && are_runs(plan) &&
           plan.reduced.ndim <= 1 && plan.cols > 0 &&
           plan.cols <= ONE_CLUSTER_BYTES / gpo_dtypes[call->in[0].dtype].bytes;
}

static bool
takes_one_wave(const gpo_call *call)
{
    return are_one_wave(*reduce_plan_of(call));
}

/* Lanes on neighbouring results; or argmin and argmax of all in the order of memory. */
template <typename T>
static gpo_status
reduce_columns_or_memory(gpo_call *call)
{
    return is_out_of_order(*reduce_plan_of(call)) ? reduce_memory_order<T>(call)
                                                  : reduce_columns<T>(call);
}

static bool
has_stepped_packs(const gpo_call *call)
{
    const auto &dtype = gpo_dtypes[call->in[0].dtype];
    return has_stepped_packs(dtype.bytes, dtype.kind == 'f');
}

static bool
takes_stepped_rows(const gpo_call *call)
{
    return are_stepped(*reduce_plan_of(call));
}

enum {
    V9 = 9,
    SHORT_ROWS,
    COLUMNS,
    TRANSPOSED,
    FEW,
    ONE_BLOCK,
    ONE_CLUSTER,
    ONE_WAVE,
    STEPPED_ROWS,
    NARROW_ROWS,
    FLAT
};

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "interleaved addressing, divergent", RUNG(reduce_v0)),
    gpo_row<every_type>("v1", "strided index, bank conflicts", RUNG(reduce_v1)),
    gpo_row<every_type>("v2", "sequential addressing", RUNG(reduce_v2)),
    gpo_row<every_type>("v3", "first add during load", RUNG(reduce_v3)),
    gpo_row<every_type>("v4", "last warp unrolled", RUNG(reduce_v4)),
    gpo_row<every_type>("v5", "complete unroll by template", RUNG(reduce_v5)),
    gpo_row<every_type>("v6", "many elements per thread, fixed grid", RUNG(reduce_v6)),
    gpo_row<every_type>("v7", "warp shuffle", RUNG(reduce_v7)),
    gpo_row<every_type>("v8", "16-byte packs", GPO_RUN(reduce_v8)),
    gpo_row<every_type>("v9", "one launch, many loads in flight", GPO_RUN(reduce_v9)),
    gpo_shape(gpo_row<every_type>("short_rows", "part of a warp for each row",
                                  GPO_RUN(reduce_short_rows)),
              "arrays of at most 6 axes, kept or reduced, after merging",
              takes_few_axes),
    gpo_shape(gpo_row<every_type>("columns", "lanes on neighbouring results walk down",
                                  GPO_RUN(reduce_columns_or_memory)),
              "arrays of at most 6 axes, kept or reduced, after merging",
              takes_few_axes),
    gpo_shape(gpo_row<every_type>("transposed", "tiles of results in shared memory",
                                  GPO_RUN(reduce_transposed)),
              "transposed arrays of at most 6 axes", takes_transposed),
    gpo_shape(
        gpo_row<every_type>("few_down", "a thread for a result, all loads at once",
                            GPO_RUN(reduce_few_down)),
        "at most 2^30 results of up to 8 elements, along at most 3 axes; of up to "
        "32 down one axis; argmin and argmax of one",
        takes_few_down),
    gpo_shape(gpo_row<every_type>("one_block", "all loads of a row at once",
                                  GPO_RUN(reduce_one_block)),
              "contiguous rows of at most 64 KiB that start 16 bytes apart or more",
              takes_one_block),
    gpo_shape(gpo_row<every_type>("one_cluster", "a cluster of blocks for a row",
                                  GPO_RUN(reduce_one_cluster), "run-to-run", "sm_90a"),
              "one contiguous row of at most 512 KiB", takes_one_cluster),
    gpo_shape(gpo_row<every_type>("one_wave", "all loads of all threads at once",
                                  GPO_RUN(reduce_one_wave)),
              "views that span fewer than 2^27 elements, of at most 3 kept and 2 "
              "reduced axes after merging",
              takes_one_wave),
    gpo_shape(
        gpo_row<every_type>("stepped_rows", "half of each load of 16 bytes",
                            GPO_RUN(reduce_stepped_rows)),
        "rows of elements two apart, at most 6 axes, kept or reduced, after merging",
        takes_stepped_rows),
    gpo_shape(gpo_row<every_type>("narrow_rows", "stretches of rows in shared memory",
                                  GPO_RUN(reduce_narrow_rows)),
              "rows at equal distances of up to 512 bytes, of elements that are, too",
              takes_narrow_rows),
    gpo_shape(gpo_row<every_type>("flat_columns", "packs of whole rows of few columns",
                                  GPO_RUN(reduce_flat_columns)),
              "up to 32 columns without gaps; no argmin and argmax",
              takes_flat_columns),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, from times on an H200: benchmarks/results/h200-reduce.json ---- */

/* From times in NOTES.md: elements that the eight SMs of a cluster add sooner than more
   of them; small blocks of one_block that an SM runs at once, of 40 registers; elements
   of columns per SM, of few of which lanes of short_rows go down rows each. */
constexpr int64_t CLUSTER_ELEMENTS = 1 << 18, SMALL_AT_ONCE = 12;
constexpr int64_t FEW_IN_COLUMNS = 4096;

/* Elements of one row that a cluster adds sooner than a block, whatever their bytes, and
   of argmin and argmax: min of 61,844 uint8 6.0 us on an H200, one_block 7.2, argmax of
   16,128 float32 6.3 and 7.1, but the sum of 10,624 float32 6.0 and 5.6. */
constexpr int64_t MANY_FOR_BLOCK = 24 << 10, MANY_PLACES_FOR_BLOCK = 1 << 13;

/* Threads of one_wave for columns of no whole packs, as a multiple of those that run at
   once.  On an H200 prod of (14125, 79) along axis 0, of 1.1 times as many, 10.0 us, columns
   11.0, float16 9.7 and 13.8, any of bool 9.5 and 16.9; of (17300, 79) 11.6, 11.9, 10.3,
   14.8, 10.0 and 17.8. */
constexpr int64_t WAVES_NUMERATOR = 3, WAVES_DENOMINATOR = 2;

/* Memory that a row of stepped_rows walks: a load for each thread; of several runs each
   walks half of the loads of a thread: sum of (32, 886, 512) of every second float32 along
   (0, 2) 64 us on an H200, columns 37, of (24, 1067, 807) 72 and 50, (25, 2716, 1028) 168
   and 164, (13, 1653, 1341) 68 and 73. */
constexpr int64_t STEPPED_BYTES = BLOCK * 16;

/* Many rows of every second element that are up to so long are for short_rows.  Of 4 bytes
   a tile and a half of stepped_rows: (20000, 2600) float32 157 us on an H100, stepped_rows
   163, (20000, 700) int32 54 and 68, (6000, 4000) float32 79 and 73; (8192, 1280) float16
   18.0 on an H200, stepped_rows 31.6; of 8 bytes, for which
   that has no kernel: (20000, 2600) float64 289, columns 380, (3000, 5001) 98 and 114, of
   half as many rows. */
constexpr int64_t SHORT_STEPPED = 3072, SHORT_STEPPED_WIDE = 5120;

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

/* Elements of a row that begins between packs for one_wave, of which a load brings as much
   as lanes of other kernels.  On an H200 of 8 bytes: 163,328 rows of 241 float64 78 us,
   short_rows 134, 212,963 of 55 27.9, narrow_rows 30.3, but 33,477 of 1,109 112 and 84; of
   few rows 2,121 of 1,079 13.6, v9 19.6; of 4 bytes where a thread has a round: 284,553 of
   167 float32 92 us, short_rows 108, but 15,732 of 278 18.2 and 14.6.
   The same of every second element: 65,883 rows of 72 float32 19.3 us, short_rows 24.4,
   186,760 of 33 float64 28.3 and 32.6; but 37,410 of 313 float16 35 and 26. */
constexpr int64_t FEWEST_UNEVEN = 129, MOST_UNEVEN = 256, MOST_UNEVEN_WIDE = 1024;
constexpr int64_t MOST_UNEVEN_OF_FEW = 2048, FEW_UNEVEN = 8; /* rows per SM */

/* Threads of few_down per SM, below which columns share out what is down a column: any of
   (32, 64, 512, 8) bool, every second, along axis 0, 248 of them: 18.3 us on an H100. */
constexpr int64_t FEWEST_DOWN = 512;

/* Results per SM of bytes and halves up to which few_down beats columns, whose blocks do
   not fill the device: any of (10, 237696) along axis 0 7.9 us on an H200, columns 13.3,
   max of (23, 282688) uint8 9.8 and 16.9, of (22, 451331) bfloat16 13.8 and 17.6; any of
   (26, 600960) 16.4 and 13.8. */
constexpr int64_t FEW_OF_BYTES = 4096;

/*
 * Whether a thread has a result or several: of up to 8 elements, a wave or some of them;
 * more where neighbours share loads of 16 bytes, which columns do not do for results two
 * apart, or along a short axis, and with less in flight for narrow elements, and where
 * neither does, (1024, 4, 10375) float16 along axis 1, (16, 2207239) float32 along axis
 * 0; of up to 32 elements what is one wave here and two of columns.  Of contiguous rows
 * many of no whole packs, whose threads share lines: of more than 8 elements those that
 * narrow_rows leaves, of up to 4 bytes each.
 */
static bool
are_for_few_down(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t processors = gpo_processors(call);
    const int element = gpo_dtypes[call->in[0].dtype].bytes;
    const bool are_short = plan.cols <= FEW_DOWN;
    const bool is_uneven =
        plan.rows >= processors * MANY_ROWS && plan.cols * element % 16 != 0;
    if (!are_few_down(plan) || (are_runs(plan) && plan.cols > 1 && !is_uneven)) {
        return false;
    }
    /* (4000000, 19) float32 136 us on an H100, short_rows 253; on an H200
       (5000000, 7) float32 43.9, columns 98.6, (3000000, 5) float64 39.4 and 78.4. */
    if (are_runs(plan) && plan.cols > 1) {
        return element <= 4 || plan.cols <= FEW_DOWN;
    }
    if (are_short && plan.rows <= processors * FEW_RESULTS) {
        return true;
    }
    if (plan.rows <= processors * FEW_AT_ONCE) {
        return !are_runs(plan) && plan.rows > processors * BLOCKS_PER_PROCESSOR * BLOCK;
    }
    reduce_axes kept = plan.kept;
    sort_by_distance(&kept);
    const reduce_axes whole = merged(kept);
    const few_beside beside = few_beside_of(plan, whole, element);
    const bool are_few = element <= 2 && plan.rows <= processors * FEW_OF_BYTES;
    if (beside.count == 1) { /* columns have packs of them only if they are narrow */
        const bool fits = element > 1 ? are_short || element <= 8 : are_few;
        return fits && !are_runs(plan);
    }
    /* Columns have packs of 16 bytes: any of (11, 8388608) along axis 0 43.5 us on an
       H200, by few_down, of 8 bytes a load, 53; but max of (11, 4924992) uint8, whose
       elements columns take one by one, 34 and 25. */
    const bool are_wider = (plan.op == REDUCE_ANY || plan.op == REDUCE_ALL) &&
                           element == 1 && beside.step == 1 &&
                           whole.shape[whole.ndim - 1] % 16 == 0 &&
                           are_aligned(whole, whole.ndim - 1, 16) &&
                           are_aligned(plan.reduced, plan.reduced.ndim, 16);
    const bool fills = plan.rows / beside.count >= processors * FEWEST_DOWN;
    return are_short || are_few ||
           (fills && !are_wider &&
            (beside.step > 1 || element <= 2 || whole.ndim < kept.ndim));
}

/* Whether all threads of one_wave nearly run at once, and columns would load each element
   by itself: it has little else to wait for. */
static bool
are_nearly_one_wave(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->in[0].dtype].bytes;
    if (bytes > 8 || are_runs(plan) || !are_one_wave(plan)) {
        return false;
    }
    const reduce_axes &kept = plan.kept;
    const int near = kept.ndim > 0 ? nearest_axis(kept) : 0;
    const bool has_packs =
        kept.ndim > 0 && kept.strides[near] == 1 && kept.shape[near] * bytes % 16 == 0;
    const wave_grid g = wave_grid_of(call);
    const int64_t blocks = ceil_div(plan.rows, g.across) * g.split;
    return !has_packs && g.rounds == 1 &&
           blocks * g.across * g.height * WAVES_DENOMINATOR <=
               gpo_processors(call) * WAVE_THREADS * WAVES_NUMERATOR;
}

/* Whether one_wave loads rows that begin between packs element by element. */
static bool
are_uneven_in_waves(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const auto &dtype = gpo_dtypes[call->in[0].dtype];
    const int64_t processors = gpo_processors(call);
    const bool many = plan.rows >= processors * MANY_ROWS;
    if (!are_runs(plan) || plan.reduced.ndim != 1 || dtype.kind == 'c' ||
        plan.cols * dtype.bytes % 16 == 0 || plan.cols <= FEW_DOWN) {
        return false;
    }
    const bool fits = dtype.bytes == 8
                          ? plan.cols <= (many ? MOST_UNEVEN_WIDE : MOST_UNEVEN_OF_FEW)
                          : dtype.bytes == 4 && many && plan.cols >= FEWEST_UNEVEN &&
                                plan.cols <= MOST_UNEVEN;
    return fits && plan.rows >= processors * FEW_UNEVEN && are_one_wave(plan);
}

/* Whether rows of several runs are for one_wave. */
static bool
are_runs_in_waves(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const reduce_axes &reduced = plan.reduced;
    const int64_t element = gpo_dtypes[call->in[0].dtype].bytes;
    if (!are_runs(plan) || reduced.ndim <= 1 || element > 8 || !are_one_wave(plan)) {
        return false;
    }
    const int64_t run = reduced.shape[reduced.ndim - 1] * element;
    const int64_t few = element > 1 ? FEW_IN_RUNS : FEW_IN_RUNS / 2;
    return run <= MIDDLE_RUN_BYTES &&
           (plan.rows * plan.cols <= few ||
            (plan.cols <= SHORT_IN_RUNS &&
             run <= (element > 1 ? RUN_BYTES : RUN_OF_BYTES)));
}

/* narrow_rows; or the kernels whose threads all run at once, with all they read on its
   way; or none. */
static const gpo_variant *
choose_at_once(const gpo_call *call, char why[GPO_MESSAGE])
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const bool has_cluster =
        takes_one_cluster(call) && plan.cols <= CLUSTER_ELEMENTS &&
        !gpo_lacks(call->backend, call->device, variants[ONE_CLUSTER].needs);
    const bool has_places = plan.op == REDUCE_ARGMIN || plan.op == REDUCE_ARGMAX;
    if (plan.rows == 1 && takes_one_block(call) &&
        !(has_cluster &&
          plan.cols >= (has_places ? MANY_PLACES_FOR_BLOCK : MANY_FOR_BLOCK))) {
        GPO_SAY(why, "one_block: a row of %lld elements, all on their way at once",
                static_cast<long long>(plan.cols));
        return &variants[ONE_BLOCK];
    }
    if (has_cluster) {
        GPO_SAY(why,
                "one_cluster: a row of %lld elements, which a cluster loads at once",
                static_cast<long long>(plan.cols));
        return &variants[ONE_CLUSTER];
    }
    const int64_t processors = gpo_processors(call);
    const int64_t bytes = plan.cols * gpo_dtypes[call->in[0].dtype].bytes;
    if (are_uneven_in_waves(call)) {
        GPO_SAY(why, "one_wave: %lld rows of %lld elements that begin between packs",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    if (are_for_narrow_rows(call)) {
        GPO_SAY(why, "narrow_rows: %lld rows of %lld bytes that begin anywhere",
                static_cast<long long>(plan.rows), static_cast<long long>(bytes));
        return &variants[NARROW_ROWS];
    }
    if (are_for_few_down(call)) {
        GPO_SAY(why, "few_down: threads with all of %lld results of %lld elements",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[FEW];
    }
    const bool is_small = bytes >= SMALL_BLOCK * 16 && bytes <= SMALL_BLOCK_BYTES;
    const int64_t at_once = is_small ? SMALL_AT_ONCE
                            : bytes <= ROW_BLOCK * TILE_ITEMS * 16
                                ? BLOCKS_PER_PROCESSOR
                                : 2;
    if (takes_one_block(call) && bytes >= BLOCK_ROW_BYTES &&
        plan.rows <= processors * at_once) {
        GPO_SAY(why, "one_block: %lld rows of %lld elements, all on their way at once",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_BLOCK];
    }
    if (is_for_one_wave(call)) {
        GPO_SAY(why,
                "one_wave: %lld results of %lld elements, all on their way at once",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    return nullptr;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const reduce_axes &reduced = plan.reduced;
    if (are_zeros(plan)) {
        GPO_SAY(why, "few_down: %lld zeros, the places of one element each",
                static_cast<long long>(plan.rows));
        return &variants[FEW];
    }
    if (!has_few_axes(plan)) {
        GPO_SAY(why, "v9 is the last rung, and takes any number of axes");
        return &variants[V9];
    }
    if (are_many_transposed(plan, gpo_dtypes[call->in[0].dtype].bytes)) {
        GPO_SAY(why, "transposed: %lld results in another order than their elements",
                static_cast<long long>(plan.rows));
        return &variants[TRANSPOSED];
    }
    const gpo_variant *at_once = choose_at_once(call, why);
    if (at_once != nullptr) {
        return at_once;
    }
    const int64_t processors = gpo_processors(call);
    const int element = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t bytes = plan.cols * element, many = processors * MANY_ROWS;
    const bool is_uneven = plan.rows >= many && bytes % 16 != 0;
    if (is_out_of_order(plan)) {
        GPO_SAY(why, "columns: all of %lld elements, read in the order of memory",
                static_cast<long long>(plan.cols));
        return &variants[COLUMNS];
    }
    if (are_for_flat_columns(call)) {
        GPO_SAY(why, "flat_columns: %lld columns of %lld elements, no whole packs",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[FLAT];
    }
    const bool are_short_steps =
        are_stepped(plan) && !are_columns(plan) &&
        (((element == 2 || element == 4) && plan.rows >= many &&
          plan.cols <= (element == 2 ? SHORT_GAPPED : SHORT_STEPPED)) ||
         (element == 8 && plan.rows >= many / 2 && plan.cols <= SHORT_STEPPED_WIDE));
    if (has_stepped_packs(call) && are_stepped(plan) && !are_columns(plan) &&
        !are_short_steps &&
        2 * reduced.shape[reduced.ndim - 1] * element >=
            STEPPED_BYTES * (reduced.ndim > 1 ? TILE_ITEMS / 2 : 1)) {
        GPO_SAY(why, "stepped_rows: rows of %lld elements, every second one of memory",
                static_cast<long long>(plan.cols));
        return &variants[STEPPED_ROWS];
    }
    const int64_t short_in_waves = element == 4   ? MOST_UNEVEN
                                   : element == 8 ? MOST_UNEVEN_WIDE
                                                  : 0;
    if (are_stepped(plan) && reduced.ndim == 1 && !are_columns(plan) &&
        plan.cols <= short_in_waves && plan.rows > processors * BLOCKS_PER_PROCESSOR &&
        are_one_wave(plan)) {
        GPO_SAY(why, "one_wave: %lld rows of %lld elements, every second one of memory",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    if (!are_runs(plan) && !are_columns(plan) &&
        (are_short_steps || plan.cols <= SHORT_GAPPED) &&
        plan.rows > processors * BLOCKS_PER_PROCESSOR) {
        GPO_SAY(why, "short_rows: %lld rows of %lld elements with gaps",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[SHORT_ROWS];
    }
    if (!are_runs(plan) && element <= 4 && plan.cols <= SHORT_GAPPED &&
        plan.rows >= processors &&
        plan.cols <= processors * FEW_IN_COLUMNS / plan.rows) {
        GPO_SAY(why, "short_rows: lanes down %lld rows of %lld elements, few in all",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[SHORT_ROWS];
    }
    if (are_nearly_one_wave(call)) {
        GPO_SAY(why, "one_wave: %lld results of %lld elements, nearly all at once",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    if (!are_runs(plan)) {
        GPO_SAY(why, "columns: the elements of a row lie across memory or have gaps");
        return &variants[COLUMNS];
    }
    if (plan.cols == 1 && plan.rows >= MANY_COPIED && has_neighbours(plan)) {
        GPO_SAY(why, "columns: many results of one element each, beside each other");
        return &variants[COLUMNS];
    }
    if (plan.cols > 1 && plan.cols <= FEW_DOWN && is_uneven) {
        GPO_SAY(why, "columns: a thread for each of %lld rows of %lld elements",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[COLUMNS];
    }
    const int64_t length = reduced.ndim > 0 ? reduced.shape[reduced.ndim - 1] : 1;
    if (are_runs_in_waves(call)) {
        GPO_SAY(why, "one_wave: %lld rows of %lld elements in several runs",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    if (reduced.ndim > 1 && length * element > SHORT_RUN_BYTES &&
        length * element <= MIDDLE_RUN_BYTES) {
        GPO_SAY(why, "columns: %lld rows of %lld elements in several runs",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[COLUMNS];
    }
    const bool has_block = takes_one_block(call); /* rows begin at 16 bytes */
    const int64_t few_short = SHORT_ROW_BYTES * (has_block ? 1 : element < 8 ? 3 : 2);
    const int64_t short_row = plan.rows < many ? few_short : WARP_ROW_BYTES;
    if (plan.rows > 1 && bytes <= short_row) {
        GPO_SAY(why, "short_rows: part of a warp does a row of %lld bytes, up to %lld",
                static_cast<long long>(bytes), static_cast<long long>(short_row));
        return &variants[SHORT_ROWS];
    }
    /* 4,000 rows of 2,500 float32 19.1 us on an H100, v9 28.0, 3,000 of 5,000 float64 43.3
       and 47.6; 2,182 of 1,817 float32, which begin anywhere, short_rows 13.4, v9 17.8. */
    if (has_block && (bytes <= SMALL_BLOCK_BYTES || plan.rows < many)) {
        GPO_SAY(why, "one_block: %lld rows of %lld elements, a block for each",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_BLOCK];
    }
    GPO_SAY(why, "v9 is the fastest rung for long contiguous rows");
    return &variants[V9];
}

extern "C" const gpo_table reduce_cuda = {variants, choose};
