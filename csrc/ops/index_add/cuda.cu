/*
 * cuda.cu  The table of index_add on CUDA: the ladder (ladder/), the shape kernels
 * (shapes/) and the choice.
 * See frame.cuh for setup and checks, op.c for the contract.
 */
#include "../../device/number.cuh"
#include "../../device/verdict.cuh"
#include "costs.cuh"
#include "ladder/v0_atomic.cuh"
#include "ladder/v1_vector.cuh"
#include "ladder/v2_shared.cuh"
#include "ladder/v3_rows.cuh"
#include "ladder/v4_gather.cuh"
#include "ladder/v5_float64_sums.cuh"

#include <stdio.h>

/* ---- table ---- */

/* The type a dtype is added as: integers modulo 2^bits, complex numbers by parts. */
template <typename T>
struct adder_of {
    using type = std::conditional_t<std::is_integral_v<T>, carrier_of<T>, T>;
};
template <typename Real>
struct adder_of<complex<Real>> {
    using type = Real;
};
template <typename T>
using added_as = typename adder_of<typename T::type>::type;

#define RUNG(rung) \
    [](auto t) -> gpo_run { return index_add_with<rung, added_as<decltype(t)>>; }
#define SHAPE(run) [](auto t) -> gpo_run { return run<added_as<decltype(t)>>; }

/* The dtypes that the hardware adds atomically. */
using atomic_types = gpo_types<int32_t, uint32_t, int64_t, uint64_t, f16, bf16, float,
                               double, c64, c128>;

/* The floats, complex ones by parts. */
using all_floats = gpo_types<f16, bf16, float, double, c64, c128>;

using halves = gpo_types<f16, bf16>;

/* The dtypes that float64 holds exactly, with room for sums. */
using narrow_floats = gpo_types<f16, bf16, float, c64>;
using narrow_reals = gpo_types<f16, bf16, float>;

using wide_reals = gpo_types<float, double>;

/* The dtypes whose rows may end within a pack of 16 bytes. */
using below_a_pack =
    gpo_types<b8, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
              uint64_t, f16, bf16, float, double, c64>;

static bool
takes_gathered_rows(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.outer == 1 && plan.length < INT64_C(1) << 31 &&
           ceil_div(plan.count, int64_t{GATHERED_ROWS}) < MAX_GRID;
}

static bool
takes_short_rows(const gpo_call *call)
{
    return index_add_plan_of(call)->inner <= SHORT_ROW;
}

static bool
takes_one_element(const gpo_call *call)
{
    return index_add_plan_of(call)->inner == 1;
}

static bool
takes_one_writer(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.inner == 1 && plan.outer == 1 && plan.length <= WRITER_PLACES;
}

/* Whether a table of sums of `sum_bytes` bytes fits into shared memory, and pays. */
static bool
fits_table(const gpo_call *call, int64_t sum_bytes)
{
    index_add_table t;
    size_t bytes = 0;
    return plan_table(call, sum_bytes, &t, &bytes);
}

/* Whether a table of float64 sums does, of one column to a thread or of two. */
static bool
takes_few_destinations(const gpo_call *call)
{
    index_add_table t;
    size_t bytes = 0;
    return fits_table(call, sizeof(double)) || plan_pairs(call, &t, &bytes);
}

static bool
takes_few_rows(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.count < plan.length && plan.length < INT64_C(1) << 31 &&
           plan.outer * plan.count * plan.inner <= SPARSE_ELEMENTS;
}

static bool
takes_own_places(const gpo_call *call)
{
    return index_add_fits_own_places(*index_add_plan_of(call));
}

static bool
takes_own_rows(const gpo_call *call)
{
    return index_add_fits_own_rows(*index_add_plan_of(call));
}

static bool
takes_one_by_one(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.outer == 1 && plan.count * plan.inner < INT64_C(1) << 31;
}

static bool
takes_joined_sums(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.inner <= SHORT_ROW || gpo_dtypes[plan.dtype].bytes == 2;
}

static bool
takes_unpacked_rows(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.inner > 1 && plan.inner * gpo_dtypes[plan.dtype].bytes % 16 != 0;
}

enum {
    V0,
    V1,
    V2,
    V3,
    V4,
    V5,
    SHORT_ROWS,
    ONE_ELEMENT,
    FEW_DESTINATIONS,
    FEW_ROWS,
    ONE_LAUNCH,
    OWN_PLACES,
    JOINED_SUMS,
    ONE_BY_ONE,
    OWN_ROWS,
    SORTED_ROWS,
    ONE_WRITER,
    SKEWED,
    UNPACKED_ROWS
};

static const gpo_variant variants[] = {
    gpo_row<atomic_types>("v0", "one atomic per element", RUNG(index_add_v0), "no"),
    gpo_row<atomic_types>("v1", "vector and packed half atomics", RUNG(index_add_v1),
                          "no"),
    gpo_row<atomic_types>("v2", "hot destinations pre-summed in shared memory",
                          RUNG(index_add_v2), "no"),
    gpo_row<atomic_types>("v3", "a warp per source row", RUNG(index_add_v3), "no"),
    gpo_row<every_type>("v4", "sorted by destination, no atomics", RUNG(index_add_v4)),
    gpo_row<narrow_floats>("v5", "sums in float64, rounded once", RUNG(index_add_v5),
                           "no"),
    gpo_shape(gpo_row<atomic_types>("short_rows",
                                    "lanes of one destination send one sum",
                                    SHAPE(index_add_short_rows), "no"),
              "rows of at most 16 elements", takes_short_rows),
    gpo_shape(gpo_row<real_types>("one_element",
                                  "sorted by destination, summed by tiles",
                                  SHAPE(index_add_one_element)),
              "rows of one element", takes_one_element),
    gpo_shape(gpo_row<narrow_floats>("few_destinations",
                                     "sums in float64, first in shared memory",
                                     SHAPE(index_add_few_destinations), "no"),
              "two rows and more for each destination, whose sums, or those of half of "
              "a short row, fit into shared memory",
              takes_few_destinations),
    gpo_shape(
        gpo_row<narrow_floats>("few_rows",
                               "sums in float64, of destinations that have rows",
                               SHAPE(index_add_few_rows), "no"),
        "fewer rows than destinations (below 2^31), and at most 2^26 elements in all",
        takes_few_rows),
    gpo_shape(gpo_row<every_type>("one_launch",
                                  "each block checks, sorts and adds: no second launch",
                                  SHAPE(index_add_one_launch)),
              "at most 4,096 rows and a million elements", index_add_is_few),
    gpo_shape(gpo_row<all_floats>("own_places",
                                  "each block sums the rows of its own destinations",
                                  SHAPE(index_add_own_places), "no"),
              "at most 4,096 rows (65,536 of one element) and 2^21 elements of x",
              takes_own_places),
    gpo_shape(gpo_row<narrow_floats>("joined_sums",
                                     "sums in float64 or float32, from joined lanes",
                                     SHAPE(index_add_joined_sums), "no"),
              "rows of at most 16 elements, or 16-bit floats", takes_joined_sums),
    gpo_shape(gpo_row<atomic_types>("one_by_one",
                                    "one atomic per element, without divisions",
                                    SHAPE(index_add_one_by_one), "no"),
              "one slice of less than 2^31 elements", takes_one_by_one),
    gpo_shape(gpo_row<halves>("own_rows",
                              "each block ranks the rows of its own destinations",
                              SHAPE(index_add_own_rows)),
              "at most 4,096 rows of less than 2^30 elements", takes_own_rows),
    gpo_shape(gpo_row<halves>("sorted_rows",
                              "the first row of a destination adds those behind it",
                              SHAPE(index_add_sorted_rows), "no"),
              "one slice of less than 2^31 elements", takes_one_by_one),
    gpo_shape(gpo_row<narrow_reals>("one_writer",
                                    "a table for each warp, which alone writes to it",
                                    SHAPE(index_add_one_writer)),
              "rows of one element in one slice, at most 1,536 destinations",
              takes_one_writer),
    gpo_shape(gpo_row<wide_reals>("gathered_rows",
                                  "blocks send one sum for each destination they meet",
                                  SHAPE(index_add_gathered_rows), "no"),
              "one slice, fewer than 2^31 destinations", takes_gathered_rows),
    gpo_shape(gpo_row<below_a_pack>("unpacked_rows",
                                    "as v4, with several parts of a row to a thread",
                                    SHAPE(index_add_unpacked_rows)),
              "rows of several elements that are no whole packs of 16 bytes",
              takes_unpacked_rows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by times on an H200: benchmarks/results/h200-index_add.json ---- */

/* Whether the host waits for a check of the index, which one_launch does by the way. */
static bool
waits(const gpo_call *call, const index_add_plan &plan)
{
    return plan.mode == GPO_INDEX_RAISE && !is_known(call, plan.length);
}

/* Whether few_destinations takes one launch. */
static bool
tables_finish_alone(const gpo_call *call, const index_add_plan &plan)
{
    index_add_table t = {};
    size_t bytes = 0;
    return plan_table(call, sizeof(double), &t, &bytes, true) &&
           is_finished_alone(plan, t);
}

/*
 * Whether few_destinations takes one launch where own_places and own_rows add many rows
 * to each sum, one by one: 4,338 of one float16 into 100 10.2 us, own_places 11.3.
 */
static bool
table_pays(const gpo_call *call, const index_add_plan &plan)
{
    constexpr int64_t ONE_BY_ONE_AT_MOST = 32;
    return plan.count > ROWS_FOR_SORT &&
           plan.count > ONE_BY_ONE_AT_MOST * plan.length &&
           tables_finish_alone(call, plan);
}

/*
 * Whether own_places takes less time than what else there is: each block reads the whole
 * index at some 100 bytes a nanosecond, and shared memory adds rows of one place one by
 * one.  It saves the launches of sums that are rounded once; where rows may be added one by
 * one, a copy of x and one_by_one take less (512 float32 into 418 6.7 us, own_places 8.9).
 */
static bool
own_places_pays(const gpo_call *call, const index_add_plan &plan, gpo_dtype dtype,
                bool one_by_one)
{
    /* 7,000 bfloat16 10.0 us on an H200, v5 10.3, 12,000 14.8 and 11.5; where joined_sums has a
       thread for each row, 8.7, 4,096 9.0 and 9.1. */
    constexpr int64_t IN_TURN = 128, MINE = 4096, FOR_SUMS = 100 << 10, ROWS = 8192;
    const int64_t most = index_add_most(call), warps = ceil_div(plan.count, WARP);
    const bool joins = plan.inner == 1 && index_add_joins_lanes(call);
    const int64_t in_turn = joins && warps < most ? warps : most;
    if (is_in_place(plan) && index_add_is_for_pairs(plan, false)) {
        return false; /* 40 rows of 32 bfloat16 into 32,768 9.3 us, one_launch 5 */
    }
    if (plan.is_deterministic || variants[OWN_PLACES].run[dtype] == nullptr ||
        !index_add_fits_own_places(plan) || most == 0 || in_turn > IN_TURN ||
        one_by_one || table_pays(call, plan)) {
        return false;
    }
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const index_add_owning own = index_add_owning_of(
        call,
        bytes == 8 || !index_add_float32_does(call) ? OWNED<double> : OWNED<float>);
    const int64_t blocks = index_add_owners(plan, own);
    const int64_t turns = ceil_div(blocks, gpo_processors(call));
    const int64_t mine = plan.count * plan.inner / blocks; /* of the source */
    const int64_t of_row = (plan.is_wide ? 8 : 4) + (plan.inner == 1 ? bytes : 0);
    const int64_t read = turns * (plan.count * of_row + mine * bytes);
    const bool has_others = bytes == 2 && index_add_fits_own_rows(plan);
    const int64_t most_rows = plan.inner == 1 && !joins ? MOST_ROWS : ROWS;
    return plan.count <= most_rows && mine <= MINE && turns <= (has_others ? 1 : 4) &&
           read <= FOR_SUMS;
}

/*
 * Whether own_rows does, for 16-bit floats whose sums would have to be made apart or in a
 * sort: 1,024 rows of 169 bfloat16 into 21,801 in place 8.4 us, one_launch 18.0.  Where many
 * wide rows share a destination they wait for each other: 4,000 of 200 into 41 27 us on an
 * H200, joined_sums 14.
 */
static bool
own_rows_pays(const gpo_call *call, const index_add_plan &plan, gpo_dtype dtype,
              bool one_by_one)
{
    constexpr int64_t IN_TURN = 128, WIDE_IN_TURN = 48, ELEMENTS = INT64_C(1) << 22;
    const int64_t most = index_add_most(call);
    const int64_t in_turn = plan.inner == 1 ? IN_TURN : WIDE_IN_TURN;
    return !one_by_one && variants[OWN_ROWS].run[dtype] != nullptr &&
           index_add_fits_own_rows(plan) && !waits(call, plan) && most > 0 &&
           most <= in_turn && plan.outer * plan.count * plan.inner <= ELEMENTS &&
           !(is_in_place(plan) && index_add_is_for_pairs(plan, false)) &&
           !table_pays(call, plan);
}

/*
 * Whether few_rows takes less time than v5, which clears and reads the sum of every
 * destination.
 */
static bool
few_rows_pays(const gpo_call *call, const index_add_plan &plan)
{
    return plan.count > 0 && takes_few_rows(call) &&
           time_of_few_rows(plan) < time_of_v5(call, plan);
}

/* Whether unpacked_rows does: several elements to a thread leave SMs full, and no destination
   is hot, whose lanes read longer one after the other; where nobody has looked, as their mean
   tells: 1,048,576 of 79 bfloat16 into 8,000 703 us on an H200, v4 322. */
static bool
unpacked_rows_pay(const gpo_call *call, const index_add_plan &plan)
{
    constexpr int64_t PARTS = 8; /* 4 of 8 bytes: twice as many lanes */
    const bool skips = is_in_place(plan) && plan.count < plan.length;
    const int64_t units =
        2 * ceil_div(plan.count, CHUNK) + (skips ? plan.count : plan.length);
    return takes_unpacked_rows(call) && plan.inner > WARP / 2 &&
           index_add_most(call) <= HOT && plan.count <= HOT / 2 * plan.length &&
           plan.outer * units * lanes_for(ceil_div(plan.inner, PARTS)) >=
               gpo_processors(call) * THREADS_OF_PARTS;
}

/* v4, one_element for rows of one element, or unpacked_rows. */
static int
sorted_for(const gpo_call *call, const index_add_plan &plan)
{
    return plan.inner == 1                 ? ONE_ELEMENT
           : unpacked_rows_pay(call, plan) ? UNPACKED_ROWS
                                           : V4;
}

/*
 * Whether v2's tables take float32 as few_destinations' do, in less time: no value
 * passes more than 1,024 additions, which are those of a copy of a table, of the copies
 * and of the blocks.  v2 writes to out as it adds, so in place it waits for the check.
 */
static bool
float32_tables_pay(const gpo_call *call, const index_add_plan &plan)
{
    index_add_table t = {};
    size_t bytes = 0;
    return plan.dtype == GPO_F32 &&
           plan.outer * plan.count * plan.inner <= FEW_FOR_TABLES &&
           !(plan.is_first && waits(call, plan)) &&
           plan_table(call, sizeof(float), &t, &bytes) &&
           ceil_div(t.rows, t.copies) + t.copies + t.slices <= INDEX_ADD_FEW_ROWS;
}

/* A variant, and its time in ps without LAUNCHES. */
struct index_add_estimate {
    int variant;
    double time;
};

/*
 * few_destinations on an H100: 131,072 rows of 36 float32 into 128 37 us, 1,538,509 of 20
 * into 18, skewed, 164, 8,423,775 of 12 into 128 407; 16,777,216 of 4 into 8,192 361, and
 * 1,644 where 15 % have one destination (v4 3,015): the rows of an SM wait for each other.
 * So do those of tables of some columns: 16,384 skewed rows of 200 into 806 60 us on an H200,
 * 60,000 of 256 into 512 140, 25,422 of 256 into 200 58.
 */
constexpr double STARTS_TABLES = 14e6, OF_TABLES = 5, HOT_TABLE_ROW = 65e3;
constexpr double HOT_TILE_ROW = 100e3;
/* Of rows of one element, which wait for those of their copy of a table: 25,526,069 skewed into
   5,622 1,204 us on an H200; neighbours of a sorted index wait in their warp: 2,097,152 into
   1,024 47. */
constexpr double HOT_WORD = 34e3, NEIGHBOURS = 2;

static double
time_of_tables(const gpo_call *call, const index_add_plan &plan)
{
    const double elements = static_cast<double>(plan.outer * plan.count * plan.inner);
    index_add_table t = {};
    size_t bytes = 0;
    const double most = static_cast<double>(index_add_most(call));
    double hot =
        0; /* for each block, where neither copies nor all columns keep rows apart */
    if (plan_pairs(call, &t, &bytes)) {
        hot = HOT_TABLE_ROW * most / static_cast<double>(gpo_processors(call));
    }
    else if (plan_table(call, sizeof(double), &t, &bytes, true) && t.tiles > 1) {
        hot = HOT_TILE_ROW * most / static_cast<double>(t.slices);
    }
    else if (plan.inner == 1) {
        hot = HOT_WORD * most / (static_cast<double>(t.slices) * t.copies);
    }
    const double behind =
        plan.inner == 1 ? static_cast<double>(index_add_behind(call)) : 0;
    const double each = OF_TABLES * (1 + NEIGHBOURS * behind / INDEX_ADD_BEHIND_PARTS);
    return STARTS_TABLES + each * elements + hot;
}

/* Estimates of the variants that may take a call. */
struct index_add_estimates {
    static constexpr int MOST = 4;
    index_add_estimate of[MOST];
    int n;

    void add(bool may, int variant, double time)
    {
        if (may) {
            of[n++] = {variant, time};
        }
    }

    /* The first of the least ones. */
    index_add_estimate least() const
    {
        index_add_estimate found = of[0];
        for (int k = 1; k < n; k++) {
            found = of[k].time < found.time ? of[k] : found;
        }
        return found;
    }
};

/*
 * v5 or few_rows in its place, whose sums are in memory: known rows wait for those that share a
 * destination with them.
 */
static index_add_estimate
time_of_sums_in_memory(const gpo_call *call, const index_add_plan &plan, bool sparse)
{
    const bool pairs = sparse && index_add_joins_lanes(call);
    double time = sparse ? time_of_few_rows(plan) : time_of_v5(call, plan);
    if (index_add_most(call) > 0) {
        const double line =
            time_of_line(call, plan, sizeof(double), pairs) - SECTOR * sectors_of(plan);
        const double ranges = static_cast<double>(index_add_ranges(call) - 1);
        time += fmax(line, 0) + (sparse ? 0 : RANGE * ranges);
    }
    return {sparse ? FEW_ROWS : V5, time};
}

/*
 * The least of v5 or the shape kernels in its place, joined_sums, and v4 or one_element.  Where
 * nobody has looked at the index, some destination may be hot: then tables take v5's place.
 */
static index_add_estimate
least_of_bounded(const gpo_call *call, const index_add_plan &plan)
{
    const bool is_counted = index_add_most(call) > 0;
    const bool sparse = few_rows_pays(call, plan);
    const bool tables = !sparse && takes_few_destinations(call);
    const bool joins = is_counted && takes_joined_sums(call) &&
                       (index_add_joins_lanes(call) || index_add_float32_does(call));
    const index_add_estimate in_memory = time_of_sums_in_memory(call, plan, sparse);
    index_add_estimates all = {};
    all.add(is_counted || !tables, in_memory.variant, in_memory.time);
    all.add(tables, FEW_DESTINATIONS,
            tables ? time_of_tables(call, plan) - LAUNCHES : 0);
    all.add(plan.length <= INT64_C(1) << 32, sorted_for(call, plan),
            plan.inner == 1 ? time_of_one_element(plan) : time_of_v4(call, plan));
    all.add(joins, JOINED_SUMS, time_of_joined_sums(call, plan));
    return all.least();
}

/*
 * Whether sorted_rows take less time: a thread adds all rows of a destination, and none waits
 * for the host or for others.  1,587,175 of one float16 into 889,627 36.5 us on an H200,
 * joined_sums 25.5, 212,076 of 256 bfloat16 into 16,384 129, v4 90.
 */
static bool
sorted_rows_pay(const gpo_call *call, const index_add_plan &plan, gpo_dtype dtype,
                bool one_by_one)
{
    constexpr int64_t IN_TURN = 32;
    constexpr double STARTS = 5e6, ROW = 20, PAIR = 4.7;
    const double rows = static_cast<double>(plan.count);
    const double pairs = static_cast<double>(ceil_div(plan.inner, 2));
    const double time = STARTS + (plan.inner == 1 ? ROW : PAIR * pairs) * rows;
    const int64_t most = index_add_most(call);
    return !plan.is_deterministic && variants[SORTED_ROWS].run[dtype] != nullptr &&
           !one_by_one && index_add_is_sorted(call) && most > 0 && most <= IN_TURN &&
           takes_one_by_one(call) &&
           !(is_in_place(plan) && index_add_is_for_pairs(plan, false)) &&
           time < LAUNCHES + least_of_bounded(call, plan).time;
}

/* Whether gathered_rows take less than `time`, for an index that is known to be skewed. */
static bool
gathered_rows_pay(const gpo_call *call, const index_add_plan &plan, double time)
{
    return variants[SKEWED].run[call->in[0].dtype] != nullptr &&
           takes_gathered_rows(call) && plan.inner >= GATHERED_FROM &&
           index_add_most(call) > INDEX_ADD_FEW_ROWS &&
           (plan.dtype == GPO_F64 || plan.count <= GATHERED_FLOATS) &&
           time_of_gathered(call, plan) < time;
}

/*
 * Whether few_destinations, or v5, is taken without a comparison: where it takes one launch, or
 * where rows for each of few destinations are many and nobody has looked how many.  Where the
 * look bounds them, larger tables are compared: 8,192 zipf bfloat16 into 1,000 13.7 us, v5 11.1.
 */
static bool
tables_pay_at_once(const gpo_call *call, const index_add_plan &plan, bool is_hot)
{
    constexpr int64_t LANES =
        8; /* a lane for a column: tables wait where few rows are hot */
    const double elements = static_cast<double>(plan.outer * plan.count * plan.inner);
    if (plan.inner >= LANES &&
        time_of_v4(call, plan) * SURE < STARTS_TABLES + OF_TABLES * elements) {
        return false;
    }
    const bool fits = plan.inner * plan.length * 8 <= gpo_shared_room(call);
    const bool is_counted = index_add_most(call) > 0;
    const bool are_few = !is_counted || plan.inner * plan.length <= PLACES_ALONE;
    return (are_few && tables_finish_alone(call, plan)) ||
           (is_hot && fits && !is_counted);
}

/*
 * For floats below float64 where more than a few rows may share a destination, and
 * always for 16-bit floats: sums by a sort or in float64, whose error does not grow
 * with the number of rows.
 */
static const gpo_variant *
choose_bounded(const gpo_call *call, const index_add_plan &plan, bool is_hot,
               char why[GPO_MESSAGE])
{
    const index_add_times times = times_of_atomics(call, plan);
    if (index_add_joins_lanes(call) && plan.dtype == GPO_F32 &&
        plan.outer * plan.count * plan.inner <= JOINED_FLOATS &&
        (!is_hot || times.short_rows < SURE * times.v2)) {
        GPO_SAY(why, "at most 1,000 warps, each of which sends one float32 sum to a "
                     "destination: short_rows");
        return &variants[SHORT_ROWS];
    }
    if (is_hot && float32_tables_pay(call, plan)) {
        GPO_SAY(why,
                "%d rows and more for each destination: v2 sums at most %d at once "
                "in shared memory",
                INDEX_ADD_MANY_ROWS, INDEX_ADD_FEW_ROWS);
        return &variants[V2];
    }
    if (tables_pay_at_once(call, plan, is_hot)) {
        const bool tables = takes_few_destinations(call);
        const gpo_variant *const wide = &variants[tables ? FEW_DESTINATIONS : V5];
        GPO_SAY(why, "many rows for each of few destinations: %s sums them in float64",
                wide->name);
        return wide;
    }
    const index_add_estimate bounded = least_of_bounded(call, plan);
    if (gathered_rows_pay(call, plan, LAUNCHES + bounded.time)) {
        GPO_SAY(why,
                "skewed: gathered_rows sends one sum for each destination of a block");
        return &variants[SKEWED];
    }
    const gpo_variant *const least = &variants[bounded.variant];
    GPO_SAY(why, "%s: by estimates the least time of rungs that round once",
            least->name);
    return least;
}

static bool
is_half(gpo_dtype dtype)
{
    return dtype == GPO_F16 || dtype == GPO_BF16;
}

/*
 * Whether rows of dtype `dtype` may be added one by one: see INDEX_ADD_FEW_ROWS.  16-bit
 * floats only if a sum is rounded once: a row for each destination at most, and no factor.
 */
static bool
may_add_one_by_one(const gpo_call *call, const index_add_plan &plan, gpo_dtype dtype)
{
    const int64_t most = index_add_most(call);
    const bool few = index_add_float32_does(call);
    return !plan.is_deterministic && variants[V1].run[dtype] != nullptr &&
           (is_half(dtype) ? most == 1 && !plan.is_scaled
                           : plan.dtype != GPO_F32 || few);
}

/* Where the host need not wait, atomics may take as long as the sort or less, but if x
   is copied that is a launch more than that of few rows in slots; and sums
   apart may, where a block sorts many rows or blocks take turns. */
static bool
one_launch_pays(const gpo_call *call, const index_add_plan &plan, gpo_dtype dtype)
{
    const bool has_atomics = !plan.is_deterministic && variants[V5].run[dtype];
    const bool in_place = is_in_place(plan);
    const bool one_by_one = may_add_one_by_one(call, plan, dtype);
    const bool copy_pays = /* and one_by_one: 256 float32 into 262,144 6.5 us, 7.4 */
        one_by_one && plan.outer * plan.inner * plan.length > COPIED_BY_COLUMNS;
    return waits(call, plan) ||
           (!in_place && index_add_is_for_pairs(plan, true) && !copy_pays) ||
           (!one_by_one && !own_rows_pays(call, plan, dtype, false) &&
            !own_places_pays(call, plan, dtype, false) &&
            (!has_atomics || time_of_one_launch(call, plan) <
                                 LAUNCHES + least_of_bounded(call, plan).time));
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const gpo_dtype dtype = call->in[0].dtype;
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes, row = plan.inner * bytes;
    const bool is_hot = /* many rows for each of few destinations */
        index_add_has_many_rows(&plan) && row * plan.length <= TABLE_BYTES;
    const gpo_variant *const sorted = &variants[sorted_for(call, plan)];
    if (index_add_is_few(call) && one_launch_pays(call, plan, dtype)) {
        GPO_SAY(why, "few rows: one_launch starts one kernel");
        return &variants[ONE_LAUNCH];
    }
    const bool one_by_one = may_add_one_by_one(call, plan, dtype);
    const bool owns = own_places_pays(call, plan, dtype, one_by_one);
    const bool copies_few = !is_in_place(plan) && plan.count <= MOST_ROWS;
    if (sorted_rows_pay(call, plan, dtype, one_by_one) && !(owns && copies_few)) {
        GPO_SAY(why, "16-bit floats, sorted: sorted_rows sums them in registers");
        return &variants[SORTED_ROWS];
    }
    if (owns && !(is_in_place(plan) && plan.inner > 1 &&
                  own_rows_pays(call, plan, dtype, one_by_one))) {
        GPO_SAY(why, "few known rows: own_places starts one kernel");
        return &variants[OWN_PLACES];
    }
    if (own_rows_pays(call, plan, dtype, one_by_one)) {
        GPO_SAY(why, "few known rows: own_rows sums them in registers, in one kernel");
        return &variants[OWN_ROWS];
    }
    if (plan.is_deterministic && variants[ONE_WRITER].run[dtype] &&
        takes_one_writer(call) && plan.count >= WRITER_ROWS) {
        GPO_SAY(why, "deterministic=True, few destinations: one_writer does not sort");
        return &variants[ONE_WRITER];
    }
    if (plan.is_deterministic) {
        GPO_SAY(why, "deterministic=True: %s adds without atomics", sorted->name);
        return sorted;
    }
    if (variants[V1].run[dtype] == nullptr) {
        GPO_SAY(why, "no hardware adds '%s' atomically; %s needs none",
                gpo_dtypes[dtype].name, sorted->name);
        return sorted;
    }
    if (!one_by_one) {
        return choose_bounded(call, plan, is_hot, why);
    }
    const bool half = is_half(dtype);
    const gpo_variant *const one = &variants[takes_one_by_one(call) ? ONE_BY_ONE : V0];
    if (bytes == 4 && row >= WIDE && plan.outer * plan.count * row >= LARGE &&
        plan.count >= SORT_FROM * plan.length) {
        GPO_SAY(why,
                "%d MiB of rows of %d bytes and more, many of a destination: %s sorts "
                "for less than the atomics cost",
                static_cast<int>(LARGE >> 20), static_cast<int>(WIDE), sorted->name);
        return sorted;
    }
    const bool small = plan.outer * plan.count * plan.inner <= FOR_V0;
    if (half && plan.inner <= SHORT_ROW && plan.inner % 8 != 0 &&
        !(small && takes_one_by_one(call))) {
        GPO_SAY(why, "16-bit floats, short rows for as many destinations: short_rows "
                     "adds them in pairs");
        return &variants[SHORT_ROWS];
    }
    const index_add_times times = times_of_atomics(call, plan);
    const bool has_tables = index_add_has_many_rows(&plan) && fits_table(call, bytes);
    if (has_tables && index_add_most(call) > 0 && times.v2 * SURE < times.v0 &&
        times.v2 < times.short_rows) {
        GPO_SAY(why, "destinations of many rows: v2 sums first in shared memory");
        return &variants[V2];
    }
    if (has_tables && index_add_most(call) > 0 && variants[V5].run[dtype] != nullptr &&
        takes_few_destinations(call) &&
        time_of_tables(call, plan) * SURE < fmin(times.v0, times.v2)) {
        GPO_SAY(why, "many rows for each of few destinations: few_destinations sums "
                     "first in shared memory");
        return &variants[FEW_DESTINATIONS];
    }
    const bool near = 2 * index_add_behind(call) >= INDEX_ADD_BEHIND_PARTS;
    if (index_add_joins_lanes(call) &&
        times.short_rows * (near && !small ? 1 : SURE) < times.v0 &&
        (!has_tables || times.short_rows * SURE < times.v2)) {
        GPO_SAY(why, "neighbours share destinations: lanes of short_rows send one sum");
        return &variants[SHORT_ROWS];
    }
    const bool waits_for_few = /* destinations, which tables in shared memory avoid */
        is_hot && (index_add_most(call) == 0 || times.v2 < times.v0);
    if (small &&
        !(waits_for_few && (index_add_most(call) > 0 || plan.count > HOT_FOR_V0))) {
        GPO_SAY(why, "few elements: %s, whose kernel is the shortest", one->name);
        return one;
    }
    if (bytes == 8 && gathered_rows_pay(call, plan, time_of_one(call, plan) / 2)) {
        GPO_SAY(why,
                "skewed: gathered_rows sends one sum for each destination of a block");
        return &variants[SKEWED];
    }
    if ((row >= WARP_WIDE || bytes == 8) &&
        time_of_one(call, plan) > 2 * time_of_v4(call, plan)) {
        GPO_SAY(why,
                "many rows for one destination: %s sorts for less than their atomics "
                "cost",
                sorted->name);
        return sorted;
    }
    if (waits_for_few && row < WARP_WIDE) {
        const bool more_tables = plan.inner <= SHORT_ROW && !fits_table(call, bytes);
        GPO_SAY(why, more_tables
                         ? "short_rows: more tables in shared memory than a grid has "
                           "blocks"
                         : "many rows for each destination, which fit into shared "
                           "memory: v2 sums there first");
        return &variants[more_tables ? SHORT_ROWS : V2];
    }
    if (bytes == 8 && plan.inner <= SHORT_ROW && index_add_most(call) == 0 &&
        plan.count >= MANY_NEARBY * plan.length) {
        GPO_SAY(why, "short_rows: lanes of one destination send one sum");
        return &variants[SHORT_ROWS];
    }
    const bool packs = bytes < 8 && plan.inner > 1 && (half || row % 16 == 0);
    if (!packs && (row < WARP_WIDE || bytes == 8 || takes_one_by_one(call))) {
        GPO_SAY(why, "no whole packs of 16 bytes that one atomic adds: %s", one->name);
        return one;
    }
    const int64_t warps = static_cast<int64_t>(gpo_processors(call)) * WARPS_AT_LEAST;
    if (row >= WARP_WIDE && plan.outer * plan.count >= warps) {
        GPO_SAY(why, "rows of %d bytes or more: v3 gives each a warp",
                static_cast<int>(WARP_WIDE));
        return &variants[V3];
    }
    GPO_SAY(why, "short rows, or few: v1 takes 16 bytes a thread");
    return &variants[V1];
}

extern "C" const gpo_table index_add_cuda = {variants, choose};
