/*
 * row_costs.cuh  The kernel for several rows that are a run of memory each: of those that
 * take them the one with the least time.
 * Order: the work of each kernel, the times, the least.
 */
#ifndef GPO_REDUCE_ROW_COSTS_CUH
#define GPO_REDUCE_ROW_COSTS_CUH

#include "choice.cuh"
#include "look.cuh"
#include "narrow.cuh"
#include "one_row.cuh"
#include "one_wave.cuh"
#include "short_rows.cuh"

/*
 * What a kernel has to do for rows that are a run each: rounds of loads that a thread waits
 * for, one after the other, of all waves of threads; loads of all lanes.
 */
struct row_work {
    bool takes; /* the kernel, these rows */
    double waits, loads;
    bool shared; /* blocks share rows: the last one waits for the others' parts */
};

/*
 * Microseconds on an H200: of a call, of each wait, of each microsecond of memory at 4 TB/s,
 * of a million loads by the bytes of elements, elements of argmin and argmax, and rows; where
 * blocks share rows.  Fitted to 164 random calls, each timed by every kernel: HELD
 */
struct row_us {
    double start, wait, memory, load[4], place, row, shared;
};

struct row_cost {
    reduce_kernel kernel;
    row_work (*work)(const reduce_look &look);
    const char *why;
    row_us us;
};

inline double
waves_of(int64_t threads, int64_t resident)
{
    const double waves = static_cast<double>(threads) / static_cast<double>(resident);
    return waves > 1 ? waves : 1;
}

inline double
as_double(int64_t n)
{
    return static_cast<double>(n);
}

/* Elements of a row of one_wave, where threads do not all run at once: warps that combine
   longer ones take more than loads, (7928, 1190) float64 35.7 us on an H200, one_block 28.7;
   of packs (621, 626) int64 6.1 and 5.4. */
constexpr int64_t LONGEST_IN_WAVES = 1024, LONGEST_OF_PACKS = 512;

inline row_work
one_wave_work(const reduce_look &look)
{
    if (look.element > 8 || gpo_dtypes[look.call->in[0].dtype].kind == 'c' ||
        !are_one_wave(*look.plan)) {
        return {};
    }
    const wave_grid g = wave_grid_of(look.call);
    const int64_t loads = ceil_div(look.cols, WAVE_ITEMS);
    const int64_t rounds = ceil_div(loads, static_cast<int64_t>(g.height) * g.split);
    const int64_t threads =
        ceil_div(look.rows, g.across) * g.split * g.across * g.height;
    const double waves = waves_of(threads, look.processors * WAVE_THREADS);
    const int64_t longest = has_block_rows(look) ? LONGEST_OF_PACKS : LONGEST_IN_WAVES;
    return {look.cols <= longest || is_for_one_wave(look.call),
            waves * as_double(rounds), as_double(look.rows * look.cols), g.split > 1};
}

inline row_work
narrow_rows_work(const reduce_look &look)
{
    return {are_for_narrow_rows(look.call), 0, as_double(look.rows * look.cols), false};
}

/* Of more than 8 elements those of no whole packs that narrow_rows leaves, of up to 4 bytes
   each: loads of a warp look up lines for every few rows. */
inline row_work
few_down_work(const reduce_look &look)
{
    const bool is_for_others =
        look.element > 4 || !look.is_uneven || are_for_narrow_rows(look.call);
    const double waves = waves_of(look.rows, look.processors * FEW_AT_ONCE);
    return {are_few_down(*look.plan) && (look.cols <= FEW_DOWN || !is_for_others),
            waves * as_double(ceil_div(look.cols, FEW_DOWN)),
            as_double(look.rows * look.cols), false};
}

/* Blocks of one_block that an SM runs at once: small ones, of 40 registers, and others. */
constexpr int64_t SMALL_AT_ONCE = 12, LARGE_AT_ONCE = 2;

inline row_work
one_block_work(const reduce_look &look)
{
    const bool is_small = look.rows > look.processors * BLOCKS_PER_PROCESSOR &&
                          look.row <= SMALL_BLOCK_BYTES;
    const bool is_large = look.row > ROW_BLOCK * TILE_ITEMS * 16;
    const int64_t at_once = is_small   ? SMALL_AT_ONCE
                            : is_large ? LARGE_AT_ONCE
                                       : BLOCKS_PER_PROCESSOR;
    const double waves = waves_of(look.rows, look.processors * at_once);
    return {has_block_rows(look), is_large ? 1.5 * waves : waves,
            as_double(look.rows * look.cols), false};
}

/* Lanes with packs or elements of a row, or with a pack and an element beside packs. */
inline row_work
lanes_work(const reduce_look &look, bool with_edges)
{
    const int size = 16 / static_cast<int>(look.element);
    const bool packed = size > 1 && are_whole_packs(*look.plan, size);
    const bool edges = size > 1 && !packed && are_packs_with_edges(*look.plan, size);
    const bool has_packs = packed || edges;
    const int64_t lanes = lanes_of_short_rows(look.call, has_packs ? size : 1);
    const int64_t loads = has_packs ? look.cols / size : look.cols;
    const int64_t rounds = ceil_div(loads, lanes * (has_packs ? 1 : LOADS_AT_ONCE));
    const double waves = waves_of(look.rows * lanes / ROWS_AT_ONCE,
                                  look.processors * BLOCKS_PER_PROCESSOR * BLOCK);
    if (edges) {
        return {with_edges, waves * (as_double(rounds) + 0.5),
                as_double(look.rows * look.cols), false};
    }
    const int64_t each = rounds * lanes * (has_packs ? 1 : LOADS_AT_ONCE);
    return {!with_edges, waves * as_double(rounds), as_double(each * look.rows), false};
}

inline row_work
short_rows_work(const reduce_look &look)
{
    return lanes_work(look, false);
}

inline row_work
edged_rows_work(const reduce_look &look)
{
    return lanes_work(look, true);
}

inline row_work
v9_work(const reduce_look &look)
{
    const int64_t room = look.processors * BLOCKS_PER_PROCESSOR;
    const int64_t tiles = ceil_div(look.row, ROW_BLOCK * TILE_ITEMS * 16);
    int64_t blocks = 1;
    if (look.rows < room && tiles > TILES_ALONE) {
        blocks = room / look.rows < tiles ? room / look.rows : tiles;
        blocks = blocks > 1 ? blocks : 1;
    }
    const double waves = waves_of(look.rows * blocks, room);
    return {true, waves * as_double(ceil_div(tiles, blocks)),
            as_double(look.rows * look.cols), blocks > 1};
}

constexpr row_cost ROW_COSTS[] = {
    {ONE_WAVE,
     one_wave_work,
     "one_wave: all loads are of single elements",
     {4.26, 0.51, 0.74, {0.85, 0.40, 0.36, 0.00}, 0.55, 0.00, 0.00}},
    {NARROW_ROWS,
     narrow_rows_work,
     "narrow_rows: short rows that begin anywhere",
     {5.43, 0.00, 0.20, {0.49, 0.56, 0.81, 0.00}, 0.40, 1.97, 0.00}},
    {FEW,
     few_down_work,
     "few_down: threads with a row each",
     {4.53, 0.07, 0.60, {0.34, 0.27, 0.14, 0.00}, 1.01, 1.84, 0.00}},
    {ONE_BLOCK,
     one_block_work,
     "one_block: a block with all of a row on its way",
     {4.25, 0.17, 0.30, {0.00, 0.00, 0.06, 1.16}, 0.80, 436, 0.00}},
    {SHORT_ROWS,
     short_rows_work,
     "short_rows: part of a warp does a row",
     {4.71, 0.48, 0.34, {3.41, 0.93, 1.30, 0.97}, 0.49, 1.58, 0.00}},
    {SHORT_ROWS,
     edged_rows_work,
     "short_rows: packs, and elements beside them",
     {4.62, 0.61, 0.40, {0.45, 0.03, 0.23, 0.00}, 0.57, 130, 0.00}},
    {V9,
     v9_work,
     "v9: blocks with tiles of long rows",
     {4.43, 0.74, 0.66, {0.06, 0.03, 0.08, 0.00}, 0.57, 3353, 2.25}},
};

/* On another device as if its memory were as fast for each of its SMs. */
inline double
us_of(const row_us &us, const row_work &work, const reduce_look &look)
{
    constexpr double MILLION = 1e6, BYTES_PER_US = 4e6, SMS_OF_H200 = 132;
    const int size = look.element == 1   ? 0
                     : look.element == 2 ? 1
                     : look.element == 4 ? 2
                                         : 3;
    const double places = look.has_places ? as_double(look.rows * look.cols) : 0;
    const double shares = us.memory * as_double(look.rows * look.row) / BYTES_PER_US +
                          (us.load[size] * work.loads + us.place * places +
                           us.row * as_double(look.rows)) /
                              MILLION;
    return us.start + us.wait * work.waits +
           shares * SMS_OF_H200 / as_double(look.processors) +
           (work.shared ? us.shared : 0);
}

/* The kernel for several rows, each of which is one run. */
inline const row_cost *
least_cost(const reduce_look &look)
{
    const row_cost *least = nullptr;
    double us = 0;
    for (const row_cost &cost : ROW_COSTS) {
        const row_work work = cost.work(look);
        if (work.takes) {
            const double own = us_of(cost.us, work, look);
            if (least == nullptr || own < us) {
                least = &cost;
                us = own;
            }
        }
    }
    return least;
}

#endif
