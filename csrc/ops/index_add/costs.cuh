/*
 * costs.cuh  Estimated picoseconds of index_add's variants, for the choice (cuda.cu), by
 * times on an H200 and an H100: see NOTES.md.
 */
#ifndef GPO_INDEX_ADD_COSTS_CUH
#define GPO_INDEX_ADD_COSTS_CUH

#include "owning.cuh"
#include "separate_sums.cuh"
#include "sharing.cuh"

/* The memory of out is not known yet; a caller that gives it gives x, as a rule. */
inline bool
is_in_place(const index_add_plan &plan)
{
    return plan.is_first;
}

/*
 * Estimated picoseconds of v4 and v5, or of the shape kernels in their place.  v4
 * starts a dozen kernels, sorts 8 bits of a position per pass and gathers at 3 TB/s,
 * after a copy of x where rows are fewer than destinations; v5 sends each 32 bytes of a
 * row's sums to L2, clears and reads all sums, and reads the source for each range.
 * few_rows also claims a slot for each row, clears and reads two, and goes to x at random.
 */
constexpr double COPY = 0.6, SECTOR = 16; /* a byte of x, 32 bytes of sums */
constexpr double RANGE = 9e6;             /* the launches of another range of sums */
constexpr double WIDE_SUM = 6; /* a float64 sum apart from x, by seven calls */
/* Three launches, each following the one before, for rungs whose estimates leave them
   out: 2 less than what 16,384 rows into 524,288 took in v5 on an H100. */
constexpr double LAUNCHES = 11e6;

inline double
time_of_v4(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double STARTS = 30e6, PASS = 18, BYTE = 0.33;
    constexpr double ROW = 50; /* of few columns: 8,423,775 of 12 float32 637 us */
    constexpr double HOT_ROW = 1000; /* of one destination, by ten skewed indices */
    constexpr double THREAD = 30;    /* of those that wait for a row, a warp 1 ns */
    int passes = 1;
    while (passes < 4 && (plan.length - 1) >> (8 * passes) > 0) {
        passes++;
    }
    const double rows = static_cast<double>(plan.count);
    const double row =
        static_cast<double>(plan.outer * plan.inner * gpo_dtypes[plan.dtype].bytes);
    const bool skips = is_in_place(plan) && plan.count < plan.length;
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const int64_t units = skips || plan.length < plan.count ? plan.length : plan.count;
    const int64_t threads = plan.outer * units * ceil_div(plan.inner, 8);
    const bool narrow = plan.inner > SHORT_ROW && plan.inner * bytes % 16 != 0;
    const double of_row = plan.inner > 1 && BYTE * row < ROW ? ROW : BYTE * row;
    const double gather = of_row * rows;
    const double wait = narrow ? THREAD * static_cast<double>(threads) : 0;
    const double hot = HOT_ROW * static_cast<double>(index_add_most(call));
    const double longer = wait > hot ? wait : hot;
    return STARTS + PASS * passes * rows + (gather > longer ? gather : longer) +
           (skips ? 0 : COPY * row * static_cast<double>(plan.length));
}

/*
 * one_element: rows are sorted with their elements, or positions of 8-byte ones, and hot
 * destinations cost no more: 25,526,069 skewed float32 into 5,622 848 us on an H200, 8,388,608 into 43
 * 212, 34,694,464 float64 into 8,192 1,511.
 */
inline double
time_of_one_element(const index_add_plan &plan)
{
    constexpr double STARTS = 10e6, START = 12e6, ROW = 16, PASS = 8, WIDE_ROW = 11;
    int passes = 1;
    while (passes < 4 && (plan.length - 1) >> (8 * passes) > 0) {
        passes++;
    }
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const bool skips = is_in_place(plan) && plan.count < plan.length;
    return STARTS + START * passes +
           (ROW + PASS * passes + (bytes == 8 ? WIDE_ROW : 0)) *
               static_cast<double>(plan.outer * plan.count) +
           (skips ? 0 : COPY * static_cast<double>(plan.outer * plan.length * bytes));
}

/* The parts of 32 bytes of all rows' sums. */
inline double
sectors_of(const index_add_plan &plan)
{
    return static_cast<double>(plan.outer * ceil_div(plan.inner, 4)) *
           static_cast<double>(plan.count);
}

inline double
time_of_v5(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double BYTE = 0.3, ELEMENT = 5;
    const double rows = static_cast<double>(plan.count);
    const double outer = static_cast<double>(plan.outer);
    const double inner = static_cast<double>(plan.inner);
    const double sectors = sectors_of(plan);
    const double bytes = 8 + outer * inner * gpo_dtypes[plan.dtype].bytes;
    const double more = static_cast<double>(index_add_ranges(call) - 1);
    const double elements = ELEMENT * outer * inner * rows;
    return fmax(SECTOR * sectors, elements) +
           WIDE_SUM * outer * inner * static_cast<double>(plan.length) +
           more * fmax(BYTE * bytes * rows, elements);
}

inline double
time_of_few_rows(const index_add_plan &plan)
{
    constexpr double STARTS =
        6e6;                     /* 20,000 bfloat16 into 1e6 23 us on an H100, v5 16 */
    constexpr double SLOT = 1.2; /* a byte of two, written and read */
    const double columns = static_cast<double>(plan.outer * plan.inner);
    const double rows = static_cast<double>(plan.count);
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const int64_t parts = plan.outer * (1 + ceil_div(plan.inner * bytes, 32));
    const double x = columns * static_cast<double>(plan.length * bytes);
    const double adds = SECTOR * (sectors_of(plan) + static_cast<double>(parts) * rows);
    const double copy = is_in_place(plan) ? 0 : COPY * x; /* meanwhile */
    return STARTS + fmax(adds, copy) + SECTOR * static_cast<double>(parts) * rows +
           SLOT * (8 * columns + 4) * rows;
}

/*
 * Known rows that share a place: picoseconds of the atomics to the line of L2 that takes
 * most, 2.2 ns each on an H100, if `joined` one for all lanes of a warp with one
 * destination.  Rows of sorted indices that run at the same time, as many as the GPU has
 * lanes, go to few lines: 67,108,864 into 262,144 float32 4,647 us in v0.
 */
inline double
time_of_line(const gpo_call *call, const index_add_plan &plan, int64_t sum_bytes,
             bool joined)
{
    constexpr int64_t LINE_BYTES = 128, LANES = 270000, FULL = INDEX_ADD_BEHIND_PARTS;
    /* Of a row: requests of warps, and sectors of a line, which L2 adds to in turn: 65,536
       skewed rows of 17 float32, of which 9,200 have one place, 141 us in v5. */
    constexpr double SECTORS = 4;
    const double warps = static_cast<double>(plan.inner) / WARP;
    const double sectors =
        fmin(static_cast<double>(plan.inner * sum_bytes) / 32, SECTORS);
    const double requests = fmax(1, fmax(warps, sectors));
    const double rows = static_cast<double>(plan.outer * plan.count);
    const double lines = static_cast<double>(
        ceil_div(plan.outer * plan.length * plan.inner * sum_bytes, LINE_BYTES));
    const double behind = static_cast<double>(index_add_behind(call)) / FULL;
    const double turns = rows * static_cast<double>(plan.inner) / LANES;
    /* A warp sends its rows of one line together, as often as a place has most of them,
       some twice the mean: 4,279 float32 into 10 1.7 us. */
    const double together = lines < WARP && plan.inner == 1 ? WARP / lines : 1;
    const double met = behind < 1 ? 2 / (1 - behind) : together;
    const double alone = !joined && met < together ? met / together : 1;
    const double spread = alone * (joined ? 1 - behind : 1) * rows * requests / lines *
                          (behind > 0.5 && turns > 1 ? turns : 1);
    const double most = static_cast<double>(index_add_most(call)) * requests;
    const double hot = joined && most > rows * warps ? rows * warps : most;
    return ONE_ROW * (spread > hot ? spread : hot);
}

/*
 * Estimated picoseconds of v0, of short_rows and of v2 for a known index with short rows,
 * by times on an H100: 3,611,911 uniform into 77,670 58.7 and 78.4 us, 1,370,508 sorted
 * into 8,192 84, 31 and 66, 11,448,121 into 800 266 in short_rows, 211 in v2, 8,225,784
 * float64 skewed into 9,000 564 and 345.
 */
struct index_add_times {
    double v0, short_rows, v2;
};

/* By so much short_rows must be faster where nearby rows are not sorted: estimates of
   skewed ones are rough. */
constexpr double SURE = 1.3;

inline index_add_times
times_of_atomics(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double V0 = 15, JOIN = 13, FLUSH = 4000, HOT_TABLE = 100;
    /* An element in a table, and where no destination has far more rows than others:
       39,891,940 float64 into 4,930 356 us on an H200, v0 985. */
    constexpr double TABLE = 18, EVEN_TABLE = 9, EVEN = 4;
    constexpr double BESIDE = 5; /* of v0: an element whose neighbours share a sector */
    constexpr double STARTS_SHORT = 0.5e6, STARTS_V2 = 3e6;
    const double n = static_cast<double>(plan.outer * plan.count * plan.inner);
    const double sums = static_cast<double>(plan.outer * plan.length * plan.inner);
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const double line = time_of_line(call, plan, bytes, false);
    const double joined = time_of_line(call, plan, bytes, true);
    const double sectors =
        static_cast<double>(plan.outer * plan.count * ceil_div(plan.inner * bytes, 32));
    const double v0 = fmax(V0 * sectors, BESIDE * n);
    const double most = static_cast<double>(index_add_most(call));
    const bool is_even = most > 0 && most * static_cast<double>(plan.length) <
                                         EVEN * static_cast<double>(plan.count);
    return {v0 > line ? v0 : line,
            STARTS_SHORT + (JOIN * n > joined ? JOIN * n : joined),
            STARTS_V2 + (is_even ? EVEN_TABLE : TABLE) * n + FLUSH * sums +
                HOT_TABLE * most};
}

/* Estimated picoseconds of joined_sums: three launches for each range of sums. */
inline double
time_of_joined_sums(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double JOIN = 5, BYTE = 0.6, ALONE = 18, SINGLES = 0.9e6;
    constexpr double SINGLE_BYTE = 0.25;
    const int64_t sum_bytes =
        index_add_float32_does(call) ? sizeof(float) : sizeof(double);
    const double ranges = static_cast<double>(index_add_ranges(call, sum_bytes));
    const double rows = static_cast<double>(plan.outer * plan.count);
    const double sums = static_cast<double>(plan.outer * plan.length * plan.inner);
    const int64_t packs = ceil_div(plan.inner * sum_bytes, 32);
    const bool joined = index_add_joins_lanes(call);
    const double behind = static_cast<double>(index_add_behind(call));
    const double sent = joined ? 1 - behind / INDEX_ADD_BEHIND_PARTS : 1;
    const bool packed = plan.inner == 1 || plan.inner * sum_bytes % 16 == 0;
    const double elements = rows * static_cast<double>(plan.inner);
    const bool paired = !packed && sum_bytes == 4 && plan.inner % 2 == 0;
    const double atomics = paired ? elements / 2 : elements; /* if not packed */
    /* A warp sends those of short rows together: 30,000,000 of 3 float16 into 2,022,900 559 us. */
    const double sectors = SECTOR * rows * static_cast<double>(packs);
    const double apart = plan.inner <= SHORT_ROW ? fmin(ALONE * atomics, 1.25 * sectors)
                                                 : ALONE * atomics;
    const double add =
        sent * (packed ? sectors : apart) + (joined ? JOIN * elements : 0);
    const int64_t bytes = 2 * sum_bytes + gpo_dtypes[plan.dtype].bytes;
    const double look = 0.3 * 8 * atomics;
    const double line = time_of_line(call, plan, sum_bytes, joined);
    /* 65,536 float16 into 4,393,506 18.9 us on an H200, few_rows 21.2, 262,144 25.3, v5 34.4; a
       thread for each row 8.6 into 14,427, v5 10.0, else 200,000 into 6,683 15.1 and 13.1. */
    const bool singles = !joined && ranges == 1 && plan.outer == 1 && plan.inner == 1;
    const double starts = !singles                          ? 0
                          : index_add_has_few_singles(plan) ? -SINGLES
                                                            : SINGLES;
    return starts + (ranges - 1) * (RANGE + look) + (add > line ? add : line) +
           (singles ? SINGLE_BYTE : BYTE) * static_cast<double>(bytes) * sums;
}

/*
 * Estimated picoseconds of one_launch with all of its launch: 1,024 rows of 169 bfloat16
 * into 21,801 in place 18 us on an H100, 1,000 of 200 into 66 11.8, 2,048 zipf of 7
 * float16 into 262,144 26.8, 370 of 128 bfloat16 into 900 18.2; in pairs 4.9 to 6.1.
 */
inline double
time_of_one_launch(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double PAIRS = 6e6, STARTS = 8e6, TURN = 3e6, COPY_TURN = 3e6;
    constexpr double ROW = 1500; /* of a pass of the sort */
    const bool in_place = is_in_place(plan);
    if (index_add_is_for_pairs(plan, !in_place)) {
        return PAIRS;
    }
    const int64_t x = plan.outer * plan.inner * plan.length;
    const bool copies = !in_place && x <= COPIED_AT_ONCE;
    const index_add_share share = index_add_share_of(call, copies);
    const int64_t turns =
        ceil_div(index_add_sharers(plan, share), gpo_processors(call));
    const int passes = index_add_is_sorted(call)         ? 0
                       : plan.count <= RANKED_FOR_PASSES ? 1
                                                         : share.key.passes;
    const double sort = ROW * passes * static_cast<double>(plan.count);
    const double before = in_place || copies ? 0 : COPY * static_cast<double>(x);
    return STARTS + before +
           static_cast<double>(turns) * (TURN + (copies ? COPY_TURN : 0) + sort);
}

/*
 * Estimated picoseconds of gathered_rows with all its launches: the source, an atomic for each
 * sector of a row at most, and those of all blocks to one destination, one after the other; a
 * block walks along its chains of rows once for each 32 columns.  16,384 skewed rows of 200
 * float32 40 us on an H200, 22,246 of 100 27, 50,000 of 128 30, 40,000 of 282 54.
 */
inline double
time_of_gathered(const gpo_call *call, const index_add_plan &plan)
{
    constexpr double STARTS = 4e6, BYTE = 0.4, CHAINS = 11.5e6, TILE = 4.1e6;
    const int64_t bytes = gpo_dtypes[plan.dtype].bytes;
    const double rows = static_cast<double>(plan.count);
    const double sectors = static_cast<double>(ceil_div(plan.inner * bytes, 32));
    const double blocks = static_cast<double>(ceil_div(plan.count, GATHERED_ROWS));
    const double hot = fmin(static_cast<double>(index_add_most(call)), blocks);
    const double row = static_cast<double>(plan.inner * bytes);
    const double walks =
        CHAINS + TILE * static_cast<double>(ceil_div(plan.inner, WARP));
    const double adds = STARTS + BYTE * row * rows + SECTOR * sectors * rows +
                        ONE_ROW / 2 * sectors * hot;
    return fmax(walks, adds) +
           (is_in_place(plan) ? 0 : COPY * row * static_cast<double>(plan.length));
}

/* Estimated picoseconds of v0's atomics to the destination of the most known rows. */
inline double
time_of_one(const gpo_call *call, const index_add_plan &plan)
{
    const double row = static_cast<double>(plan.inner * gpo_dtypes[plan.dtype].bytes);
    return static_cast<double>(index_add_most(call)) * (ONE_ROW + ONE_BYTE * row);
}

#endif
