/*
 * choice.cu  Which kernel a call of scan runs on CUDA: two lists of rules, for scans whose
 * neighbours in memory belong to other scans, and for rows along memory.  The first rule
 * that holds decides.  From times of some 1,000 random calls, each by every variant, on an
 * H200; see NOTES.md and benchmarks/results/h200-scan.json.
 * Order: what rules see, the rules of columns, of rows, the lists.
 */
#include "choice.cuh"
#include "prepare.cuh"

#include <stdio.h>

/* ---- what rules see ---- */

struct scan_look {
    const gpo_call *call;
    int64_t rows, cols, all, processors;
    int64_t in, out;    /* bytes of an element and of a result */
    int64_t beside;     /* bytes of results that are neighbours down columns */
    bool fits_one_tile; /* of v3, wherever rows begin */
};

static scan_look
look_at(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const int64_t in = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t out = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t size = pack_size(call);
    return {call,
            plan.rows,
            plan.cols,
            plan.rows * plan.cols,
            gpo_processors(call),
            in,
            out,
            plan.inner * out,
            plan.cols + size - 1 <= THREADS * PACKS * size};
}

static bool
always(const scan_look &)
{
    return true;
}

static bool
has_single_elements(const scan_look &look)
{
    return has_one_element(look.call);
}

/* ---- columns: neighbours in memory belong to neighbouring scans ---- */

/*
 * Nanoseconds of three kernels on an H200, fitted to 165 random calls each timed by all:
 * lanes down a column each, threads down packs of columns, blocks that share columns.
 * moved_ns: of bytes at 4 TB/s.
 */
static int64_t
moved_ns(const scan_look &look)
{
    return look.all * (look.in + look.out) / 4000;
}

/* The shortest code; a lane waits for its elements, and reads sectors of its own. */
static int64_t
lanes_ns(const scan_look &look)
{
    return 4300 + look.cols * (look.in < look.out ? 26 : 10) + look.all * 12 / 1000;
}

/* An element down takes 83, of 8 bytes 100, and less than half of the time of memory; or
   all of it. */
static int64_t
walked_ns(const scan_look &look)
{
    const int64_t moved = moved_ns(look);
    const int64_t down =
        5500 + look.cols * (look.in == 8 ? 100 : 83) + moved * 45 / 100;
    const int64_t least = 6000 + moved * 105 / 100;
    return down > least ? down : least;
}

/* Twice the time of memory and more, where packs of narrow elements are not whole; columns
   of one chunk wait for no other block. */
static int64_t
shared_ns(const scan_look &look)
{
    constexpr int64_t CHUNK = THREADS / WARP * DEPTH;
    const bool whole = look.beside % 16 == 0;
    const int64_t percent = look.in < look.out ? 310
                            : look.out == 2    ? (whole ? 300 : 450)
                            : look.out == 4    ? (whole ? 160 : 220)
                                               : 180;
    const int64_t start = look.out == 8             ? 11000
                          : look.out == 2 && !whole ? 12000
                          : look.cols <= CHUNK      ? 6000
                                                    : 8000;
    return start + moved_ns(look) * percent / 100;
}

static bool
are_few_columns(const scan_look &look)
{
    const int64_t lanes = lanes_ns(look);
    return has_warp_rows(look.call) && lanes < walked_ns(look) &&
           lanes < shared_ns(look);
}

/* Whether columns fill the device, or are short, or are walked sooner than shared. */
static bool
are_walked(const scan_look &look)
{
    const int64_t size = pack_size(look.call) < 4 ? pack_size(look.call) : 4;
    const int64_t packs = look.rows / size, many = PACKS_PER_SM * look.processors;
    const bool wide = look.beside >= SECTOR_BYTES;
    if (look.cols <= SHORT_COLUMN || packs >= many) {
        return true;
    }
    if (wide && look.out >= 2 && look.out <= 8) {
        return walked_ns(look) < shared_ns(look);
    }
    return (look.cols <= MIDDLE_COLUMN && packs >= many / 4) ||
           (wide && look.cols <= FEW_DOWN && look.rows >= many);
}

/* Where fewer than a sector are neighbours, and few elements in all, parts of sectors cost
   little. */
static bool
are_few_in_parts(const scan_look &look)
{
    return look.beside < SECTOR_BYTES && look.all <= FEW_IN_PARTS &&
           look.cols <= LONG_IN_PARTS;
}

/* Where half a sector is, and many elements, blocks share lines: 2,097,152 x 4 float32 67.9
   us on an H200, v2 120.5, 1,424,300 x 15 float16 196 and 536; but 978,221 x 3 float16 53.5
   and 32.3, and of 8-byte elements 270 x 9,835 x 3 int64 129 and 98.9. */
static bool
are_many_in_parts(const scan_look &look)
{
    constexpr int64_t MANY_IN_PARTS = 1 << 20;
    return 2 * look.beside >= SECTOR_BYTES && look.out < 8 && look.all >= MANY_IN_PARTS;
}

static bool
are_parts_for_warps(const scan_look &look)
{
    return look.beside < SECTOR_BYTES && has_warp_rows(look.call);
}

static bool
are_parts(const scan_look &look)
{
    return look.beside < SECTOR_BYTES;
}

/* ---- rows along memory ---- */

/* Rows for cluster_rows although a tile has room for each: few, or of more bytes than a
   round of one_wave has.  On an H200 3,990 float32 6.8 us, v3 8.1, 4 of 1,401 7.0 and 8.3;
   16 of 1,073 6.8, one_wave 8.0, 32 of 1,063 float64 6.3 and 7.9; 6 of 329 float32 6.9 and
   6.5. */
constexpr int64_t FEW_FOR_CLUSTERS = 40, SHORT_IN_CLUSTER = 4096;

/* Elements of one byte in all, up to which warp_rows beat short_rows, of which each thread
   has 64 elements: 3,039 rows of 508 uint8 13.0 us on an H200, short_rows 22.8, 260,479 of
   10 27.9 and 23.1. */
constexpr int64_t FEW_BYTES = 1 << 21;

static bool
are_clusters_at_once(const scan_look &look)
{
    return has_cluster_rows(look.call) && look.cols * look.in <= CLUSTER_ROW_BYTES &&
           look.rows * CLUSTER <= CLUSTERS_AT_ONCE * look.processors &&
           !gpo_lacks(look.call->backend, look.call->device, CLUSTER_NEEDS);
}

static bool
are_tiles_for_clusters(const scan_look &look)
{
    return look.fits_one_tile && look.cols >= WAVE_SHORTEST &&
           look.rows <= FEW_FOR_CLUSTERS &&
           (look.rows < WAVE_FEW || look.cols * look.in > SHORT_IN_CLUSTER) &&
           are_clusters_at_once(look);
}

static bool
are_short_in_a_wave(const scan_look &look)
{
    return look.cols >= WAVE_SHORTEST && look.cols <= WAVE_SHORT &&
           look.rows >= WAVE_FEW && look.rows <= 2 * look.processors &&
           has_one_wave(look.call);
}

/* An axis of one element, (2, 1, 4194304) int64: 48.7 us on an H100, short_rows 69. */
static bool
are_wide_copies(const scan_look &look)
{
    return look.cols == 1 && look.out >= 8 && has_warp_rows(look.call);
}

static bool
are_few_for_warps(const scan_look &look)
{
    return (look.cols <= FEW_IN_WARP && look.all <= FEW_ELEMENTS) ||
           (look.cols <= MORE_IN_WARP && look.all <= FEW_ELEMENTS / 2) ||
           (look.out == 1 && look.rows > 1 && look.all <= FEW_BYTES &&
            has_warp_rows(look.call));
}

/* Whether few lanes of a warp have no element of a row. */
static bool
fills_lanes(int64_t cols)
{
    int64_t lanes = 1;
    while (lanes < cols) {
        lanes *= 2;
    }
    return cols >= WARP || 4 * cols > 3 * lanes;
}

/* 81,984 rows of 512 float64 229 us on an H100, short_rows 374, float32 123 and 148;
   35,465 of 93 int64 21.8 and 30.6, 81,984 of 512 int32, whose sums are int64, 229 and 384;
   on an H200 949,748 of 8 int64 48.8 and 61.9, but 666,973 of 20 144 and 104. */
static bool
are_many_for_warps(const scan_look &look)
{
    const bool is_wide = look.out >= 8;
    return has_warp_rows(look.call) && (look.in >= 4 || is_wide) &&
           look.rows >= MANY_IN_WARPS * look.processors &&
           (is_wide ? fills_lanes(look.cols)
                    : look.cols >= LONG_IN_WARP && look.all >= MANY_IN_ALL);
}

static bool
share_tiles(const scan_look &look)
{
    return has_short_rows(look.call);
}

static bool
fit_one_tile(const scan_look &look)
{
    return look.fits_one_tile;
}

/* Products of short integers; sums of many bytes, of which a thread of v4 and v5 stores 128
   bytes apart from its neighbours': 20,067,432 uint8 187 us by v3 on an H200, v5 195; rows
   of them that leave half of a tile of v4 empty: 8,192 of 3,751 int16 248 and 295. */
static bool
are_not_parked(const scan_look &look)
{
    constexpr int64_t MANY_BYTES = 1 << 20;
    const int64_t tile = THREADS * PARKED * parked_size(look.call);
    return !can_park(look.call) ||
           (look.in < look.out && look.rows > FEW_FOR_CLUSTERS &&
            2 * look.cols < tile) ||
           (look.in == 1 && look.out == 8 && look.all > MANY_BYTES);
}

/* Rows that a tile of v4 has no room for; of 2 bytes up to 5 million: 4,158,219 float16 13.2
   us on an H200, v4 14.1, 5,696,318 bfloat16 19.0 and 17.0. */
static bool
are_in_a_wave(const scan_look &look)
{
    constexpr int64_t MOST_OF_TWO = 5000000;
    const bool is_one = look.cols <= THREADS * PARKED * parked_size(look.call);
    return !is_one && look.all * look.in <= WAVE_BYTES &&
           (look.out != 2 || look.all <= MOST_OF_TWO) && has_one_wave(look.call);
}

/* Above both sizes, of a row and of x and out, v5 is faster than v4; the second is larger of
   2-byte elements.  On an H200 6,693,862 float32 26.8 us in v4, 28.6 in v5, 8,123,676 35.4
   and 33.4; 3,861,412 float64 37.5 and 34.3, 5,057,951 int32, whose sums are int64, 37.9 and
   35.3; 62,510,126 float16 93.6 and 92.8, max of 55,732,575 bfloat16 108 and 115. */
constexpr int64_t LONG_ROW_BYTES = 256 << 10, LARGE_MOVED = 52 << 20;
constexpr int64_t LARGE_OF_TWO = 240 << 20;

static bool
are_long(const scan_look &look)
{
    return look.in > 1 && look.cols * look.in > LONG_ROW_BYTES &&
           look.all * (look.in + look.out) >
               (look.out > 2 ? LARGE_MOVED : LARGE_OF_TWO);
}

/* ---- the lists ---- */

struct scan_rule {
    scan_kernel kernel;
    bool (*holds)(const scan_look &look);
    const char *why;
};

constexpr scan_rule RULES_OF_COLUMNS[] = {
    {WARP_ROWS, are_few_columns, "warp_rows: few in all, for the shortest code"},
    {WALKED_COLUMNS, are_walked, "walked_columns: threads down columns, no look-back"},
    {COLUMNS, are_few_in_parts, "columns: few elements, parts of sectors cost little"},
    {WARP_ROWS, are_parts_for_warps, "warp_rows: few scans are neighbours in memory"},
    {COLUMNS, are_many_in_parts, "columns: half sectors of many elements"},
    {V2, are_parts, "v2: few long scans are neighbours in memory"},
    {COLUMNS, always, "columns: neighbours in memory belong to neighbouring scans"},
};

constexpr scan_rule RULES_OF_ROWS[] = {
    {ONE_ELEMENT, has_single_elements, "one_element: scans of one element, a copy"},
    {CLUSTER_ROWS, are_tiles_for_clusters, "cluster_rows: blocks share a tile"},
    {ONE_WAVE, are_short_in_a_wave, "one_wave: a block or more for each row"},
    {WARP_ROWS, are_wide_copies, "warp_rows: wide elements, almost a copy"},
    {WARP_ROWS, are_few_for_warps, "warp_rows: few elements in all"},
    {WARP_ROWS, are_many_for_warps, "warp_rows: rows, none of which waits for others"},
    {SHORT_ROWS, share_tiles, "short_rows: rows share tiles"},
    {V3, fit_one_tile, "v3 waits for nothing where a row fits one tile"},
    {V3, are_not_parked, "v3 widens what it reads; v4 and v5 keep the elements of x"},
    {CLUSTER_ROWS, are_clusters_at_once, "cluster_rows: totals go through clusters"},
    {ONE_WAVE, are_in_a_wave, "one_wave: all blocks run at once"},
    {V5, are_long, "v5 waits for no tile of a long row, and reads x again out of L2"},
    {V4, always, "v4 reads and writes every element once, most bytes on their way"},
};

/* The first rule of a list that holds; the last one does. */
template <int N>
static const scan_rule &
first_rule(const scan_rule (&rules)[N], const scan_look &look)
{
    int k = 0;
    while (k < N - 1 && !rules[k].holds(look)) {
        k++;
    }
    return rules[k];
}

scan_kernel
choose_scan(const gpo_call *call, char why[GPO_MESSAGE])
{
    const scan_look look = look_at(call);
    const scan_rule &rule = has_columns(call) ? first_rule(RULES_OF_COLUMNS, look)
                                              : first_rule(RULES_OF_ROWS, look);
    GPO_SAY(why, "%s (%lld of %lld elements)", rule.why,
            static_cast<long long>(look.rows), static_cast<long long>(look.cols));
    return rule.kernel;
}
