/*
 * cuda.cu  The table of scan on CUDA: the ladder (ladder/), whose v5 is another
 * translation unit, the shape kernels (shapes/) and the choice.
 * See scans.cuh for the scans, op.c for the contract.
 */
#include "ladder/v0_hillis_steele.cuh"
#include "ladder/v1_blelloch.cuh"
#include "ladder/v2_warp_shuffles.cuh"
#include "ladder/v3_single_pass.cuh"
#include "ladder/v4_parked.cuh"

#include <stdio.h>

/* ---- table ---- */

#define RUNG(rung) \
    [](auto t) -> gpo_run { return scan_with<rung, typename decltype(t)::type>; }

/* v5, or v3 where v5 does not apply: rows of one tile, columns, widened sums. */
template <typename T>
static gpo_status
scan_v5_or_v3(gpo_call *call)
{
    return has_many_tiles(call) ? scan_v5<T>(call) : scan_with<scan_v3, T>(call);
}

enum {
    V2 = 2,
    V3,
    V4,
    V5,
    SHORT_ROWS,
    COLUMNS,
    WALKED_COLUMNS,
    WARP_ROWS,
    CLUSTER_ROWS,
    ONE_WAVE,
    ONE_ELEMENT
};

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "Hillis and Steele, three kernels", RUNG(scan_v0)),
    gpo_row<every_type>("v1", "Blelloch's two sweeps, padded banks", RUNG(scan_v1)),
    gpo_row<every_type>("v2", "warp shuffles, reduce then scan", RUNG(scan_v2)),
    gpo_row<every_type>("v3", "single pass, look-back in a fixed order", RUNG(scan_v3)),
    gpo_row<every_type>("v4", "tiles wait in shared memory", RUNG(scan_v4)),
    gpo_row<every_type>("v5", "totals taken a quarter of L2 ahead: nobody waits",
                        GPO_RUN(scan_v5_or_v3)),
    gpo_shape(gpo_row<every_type>("short_rows", "rows share a tile, a segmented scan",
                                  GPO_RUN(scan_short_rows)),
              "two or more rows along memory, two of which fit 16 KiB of results",
              has_short_rows),
    gpo_shape(gpo_row<every_type>("columns",
                                  "a pack of neighbouring columns per thread",
                                  GPO_RUN(scan_columns)),
              "scans along an axis that is not the innermost", has_columns),
    gpo_shape(gpo_row<every_type>("walked_columns",
                                  "a thread walks down a pack of neighbouring columns",
                                  GPO_RUN(scan_walked_columns)),
              "scans along an axis that is not the innermost", has_columns),
    gpo_shape(gpo_row<every_type>("warp_rows", "a warp or a part of it for each row",
                                  GPO_RUN(scan_warp_rows)),
              "rows of at most 1,024 elements, at most 2^24 of them", has_warp_rows),
    gpo_shape(gpo_row<every_type>("cluster_rows", "a cluster of blocks for each row",
                                  GPO_RUN(scan_cluster_rows), "run-to-run", "sm_90a"),
              "rows along memory of at most 1 MiB, but not sums of short integers",
              has_cluster_rows),
    gpo_shape(gpo_row<every_type>("one_wave",
                                  "all blocks of a row run at once and read all totals",
                                  GPO_RUN(scan_one_wave)),
              "rows along memory of at most 20 MiB, but not sums of short integers",
              has_one_wave),
    gpo_shape(gpo_row<every_type>("one_element", "an axis of one element: a copy",
                                  GPO_RUN(scan_one_element)),
              "an axis of one element, of an array in the order of memory",
              has_one_element),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, from times on an H200: benchmarks/results/h200-scan.json ---- */

/* Rows for cluster_rows although a tile has room for each: few, or of more bytes than a
   round of one_wave has.  On an H200 3,990 float32 6.8 us, v3 8.1, 4 of 1,401 7.0 and 8.3;
   16 of 1,073 6.8, one_wave 8.0, of 887 bfloat16 7.3 both; 6 of 329 float32 6.9 and 6.5. */
constexpr int64_t FEW_FOR_CLUSTERS = 16, SHORT_IN_CLUSTER = 4096;

/* Elements of one byte in all, up to which warp_rows beat short_rows, of which each thread
   has 64 elements: 3,039 rows of 508 uint8 13.0 us on an H200, short_rows 22.8, 260,479 of
   10 27.9 and 23.1. */
constexpr int64_t FEW_BYTES = 1 << 21;

/*
 * Whether a thread down each pack of columns takes less time than blocks that share them,
 * in nanoseconds, fitted to 116 random calls on an H200: an element down 83, of 8 bytes
 * 100, and less than half of the time of memory, at 4 TB/s, or all of it; columns twice
 * that and more, where packs of narrow elements are not whole.
 */
static bool
are_walked_sooner(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const int64_t in = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t out = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t moved = plan.rows * plan.cols * (in + out) / 4000;
    const int64_t down = 5500 + plan.cols * (in == 8 ? 100 : 83) + moved * 45 / 100;
    const int64_t least = 6000 + moved * 105 / 100;
    const bool whole = plan.inner * out % 16 == 0;
    const int64_t percent = in < out   ? 310
                            : out == 2 ? (whole ? 300 : 450)
                            : out == 4 ? (whole ? 160 : 220)
                                       : 220;
    return (down > least ? down : least) < 8000 + moved * percent / 100;
}

/* Whether columns fill the device, or are short. */
static bool
are_walked(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const int64_t packs = plan.rows / (pack_size(call) < 4 ? pack_size(call) : 4);
    const int64_t many = PACKS_PER_SM * gpo_processors(call);
    const bool wide = plan.inner * gpo_dtypes[call->out[0].dtype].bytes >= SECTOR_BYTES;
    if (plan.cols <= SHORT_COLUMN || packs >= many) {
        return true;
    }
    const int64_t bytes = gpo_dtypes[call->out[0].dtype].bytes;
    if (wide && bytes >= 2 && bytes <= 8) {
        return are_walked_sooner(call);
    }
    return (plan.cols <= MIDDLE_COLUMN && packs >= many / 4) ||
           (wide && plan.cols <= FEW_DOWN && plan.rows >= many);
}

/* Whether columns are so few that the shortest code is the fastest. */
static bool
are_few_columns(const scan_plan &plan)
{
    const int64_t all = plan.rows * plan.cols;
    return (plan.cols <= FEW_DOWN && all <= FEW_IN_COLUMNS) ||
           (plan.cols <= FEWEST_DOWN && all <= MORE_IN_COLUMNS) ||
           (plan.cols <= MORE_DOWN && all <= FEWEST_IN_COLUMNS);
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const scan_plan &plan = *scan_plan_of(call);
    if (has_one_element(call)) {
        GPO_SAY(why, "one_element: %lld scans of one element each, a copy",
                static_cast<long long>(plan.rows));
        return &variants[ONE_ELEMENT];
    }
    if (has_columns(call) && are_few_columns(plan)) {
        GPO_SAY(why,
                "warp_rows: %lld scans of %lld elements, few in all: the shortest code",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[WARP_ROWS];
    }
    if (has_columns(call) && are_walked(call)) {
        GPO_SAY(why, "walked_columns: %lld scans of %lld elements need no look-back",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[WALKED_COLUMNS];
    }
    const int64_t neighbours = plan.inner * gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t all = plan.rows * plan.cols;
    if (has_columns(call) && neighbours < SECTOR_BYTES && all <= FEW_IN_PARTS &&
        plan.cols <= LONG_IN_PARTS) {
        GPO_SAY(why, "columns: few elements, so parts of sectors cost little");
        return &variants[COLUMNS];
    }
    if (has_columns(call) && has_warp_rows(call) && neighbours < SECTOR_BYTES) {
        GPO_SAY(why, "warp_rows: only %lld scans are neighbours in memory",
                static_cast<long long>(plan.inner));
        return &variants[WARP_ROWS];
    }
    if (has_columns(call) && neighbours < SECTOR_BYTES) {
        GPO_SAY(why, "v2: only %lld long scans are neighbours in memory",
                static_cast<long long>(plan.inner));
        return &variants[V2];
    }
    if (has_columns(call)) {
        GPO_SAY(why, "columns: neighbours in memory belong to neighbouring scans");
        return &variants[COLUMNS];
    }
    /* An axis of one element, (2, 1, 4194304) int64: 48.7 us on an H100, short_rows 69. */
    const bool is_wide_copy = plan.cols == 1 &&
                              gpo_dtypes[call->out[0].dtype].bytes >= 8 &&
                              has_warp_rows(call);
    const int64_t bytes = gpo_dtypes[call->in[0].dtype].bytes;
    const bool has_clusters =
        has_cluster_rows(call) && plan.cols * bytes <= CLUSTER_ROW_BYTES &&
        plan.rows * CLUSTER <= CLUSTERS_AT_ONCE * gpo_processors(call) &&
        !gpo_lacks(call->backend, call->device, variants[CLUSTER_ROWS].needs);
    const int size = pack_size(call), spare = size - 1;
    if (has_clusters && plan.cols >= WAVE_SHORTEST &&
        plan.cols + spare <= THREADS * PACKS * size && plan.rows <= FEW_FOR_CLUSTERS &&
        (plan.rows < WAVE_FEW || plan.cols * bytes > SHORT_IN_CLUSTER)) {
        GPO_SAY(why, "cluster_rows: %lld rows of a tile each, which blocks share",
                static_cast<long long>(plan.rows));
        return &variants[CLUSTER_ROWS];
    }
    if (plan.cols >= WAVE_SHORTEST && plan.cols <= WAVE_SHORT &&
        plan.rows >= WAVE_FEW && plan.rows <= 2 * gpo_processors(call) &&
        has_one_wave(call)) {
        GPO_SAY(why, "one_wave: %lld rows of %lld elements, a block or more for each",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[ONE_WAVE];
    }
    if (is_wide_copy || (plan.cols <= FEW_IN_WARP && all <= FEW_ELEMENTS) ||
        (plan.cols <= MORE_IN_WARP && all <= FEW_ELEMENTS / 2) ||
        (is_as_wide_as_x(call) && bytes == 1 && plan.rows > 1 && has_warp_rows(call) &&
         all <= FEW_BYTES)) {
        GPO_SAY(why, "warp_rows: %lld rows of %lld elements, few in all or wide",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[WARP_ROWS];
    }
    /* 81,984 rows of 512 float64 229 us on an H100, short_rows 374, float32 123 and 148;
       35,465 of 93 int64 21.8 and 30.6, 81,984 of 512 int32, whose sums are int64, 229 and
       384. */
    const bool is_wide = gpo_dtypes[call->out[0].dtype].bytes >= 8;
    if (has_warp_rows(call) && (bytes >= 4 || is_wide) &&
        plan.rows >= MANY_IN_WARPS * gpo_processors(call) &&
        (is_wide || (plan.cols >= LONG_IN_WARP && all >= MANY_IN_ALL))) {
        GPO_SAY(why,
                "warp_rows: %lld rows of %lld elements, none of which waits for others",
                static_cast<long long>(plan.rows), static_cast<long long>(plan.cols));
        return &variants[WARP_ROWS];
    }
    if (has_short_rows(call)) {
        GPO_SAY(why, "short_rows: rows of %lld elements share tiles",
                static_cast<long long>(plan.cols));
        return &variants[SHORT_ROWS];
    }
    if (plan.cols + spare <= THREADS * PACKS * size) {
        GPO_SAY(why, "v3 waits for nothing where a row fits one tile");
        return &variants[V3];
    }
    if (!is_as_wide_as_x(call)) {
        GPO_SAY(why, "v3 widens what it reads; v4 and v5 keep the elements of x");
        return &variants[V3];
    }
    const bool is_one = plan.cols <= THREADS * PARKED * size; /* tile of v4 */
    if (has_clusters) {
        GPO_SAY(why,
                "cluster_rows: %lld rows, whose blocks exchange totals by clusters",
                static_cast<long long>(plan.rows));
        return &variants[CLUSTER_ROWS];
    }
    if (!is_one && has_one_wave(call) && plan.rows * plan.cols * bytes <= WAVE_BYTES) {
        GPO_SAY(why, "one_wave: %lld rows, whose blocks all run at once",
                static_cast<long long>(plan.rows));
        return &variants[ONE_WAVE];
    }
    if (bytes > 1 && plan.cols * bytes > LONG_ROW_BYTES &&
        plan.rows * plan.cols * bytes >
            (bytes > 2 ? LARGE_BYTES : LARGE_BYTES_OF_TWO)) {
        GPO_SAY(why, "v5 waits for no tile of a long row, and reads x again out of L2");
        return &variants[V5];
    }
    GPO_SAY(why, "v4 reads and writes every element once, most bytes on their way");
    return &variants[V4];
}

extern "C" const gpo_table scan_cuda = {variants, choose};
