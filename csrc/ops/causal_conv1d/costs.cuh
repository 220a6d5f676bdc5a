/*
 * costs.cuh  Estimated microseconds of variants for filters of SHORT to MIDDLE lags,
 * fitted to the times on an H200 in benchmarks/results/h200-middle-filters.json, to
 * those of rows of 32 to 128 steps and up to 8,192 channels in NOTES.md, and v1,
 * middle_filters and all for filters of at most SHORT lags to some dozen calls on an H100;
 * and for rows of more steps than v7 has in one block of threads.
 */
#ifndef GPO_CAUSAL_CONV1D_COSTS_CUH
#define GPO_CAUSAL_CONV1D_COSTS_CUH

#include "causal_conv1d.h"
#include "large_plan.cuh"
#include "shapes/item_walks.cuh"
#include "tuning.cuh"

#include <math.h>

constexpr int64_t MIDDLE = 128;         /* lags */
constexpr int64_t TOEPLITZ_STEPS = 768; /* v6 in float32: most steps of its estimate */
constexpr int64_t GRADIENT_STEPS = 512; /* v6 backward in 16 bits: the same */
constexpr int64_t TIMED_SMS = 132;      /* of the cards whose times these are */
constexpr double SMALL = 0.3; /* million elements: the gradients of small calls */

/* A million elements of x, of `batches` batches. */
inline double
millions(const conv_plan &p, int64_t batches)
{
    return 1e-6 * static_cast<double>(p.steps) * static_cast<double>(p.channels) *
           static_cast<double>(batches);
}

/* What these take for a row of this many steps, they take for a shorter one. */
constexpr int64_t V1_STEPS = 128, V2_STEPS = 128, V7_STEPS = 190;

/* A million elements of x if every row had a multiple of `whole` steps. */
inline double
padded_millions(const conv_plan &p, int64_t whole)
{
    return 1e-6 * static_cast<double>(ceil_div(p.steps, whole) * whole) *
           static_cast<double>(p.channels * p.batches);
}

/* What a variant adds where channels and not steps are neighbours: first, per million. */
inline double
time_by_channels(const conv_plan &p, double first, double each)
{
    const bool by_channels = p.channels > 1 && p.x.c == 1 && p.x.t != 1;
    return by_channels ? first + each * millions(p, p.batches) : 0;
}

/* A thread for each output: the shortest code, but two loads a product. */
inline double
time_of_v0(const conv_plan &p)
{
    const double lags = static_cast<double>(p.lags);
    return 5.1 + 0.033 * lags + millions(p, p.batches) * (0.27 * lags + 11) +
           time_by_channels(p, 0, 20);
}

/* A thread loads lag after lag; with many blocks of 128 steps, two loads a product. */
inline double
time_of_v1(const conv_plan &p)
{
    const double lags = static_cast<double>(p.lags);
    const double more = p.steps > V1_STEPS && p.lags <= MIDDLE ? 2 : 0;
    return 5.3 + more + 0.016 * lags +
           padded_millions(p, V1_STEPS) * (0.27 * lags + 12);
}

/*
 * Both gradients of small calls.  A lag of a channel is a sum over its rows, which few
 * channels leave to few blocks: B64 C2 T148 K148 float32 took 157 us on an H100, v5 33.
 */
inline double
time_of_v1_gradients(const conv_plan &p)
{
    const double lags = static_cast<double>(p.lags);
    const double of_channel =
        static_cast<double>(p.batches) * static_cast<double>(p.steps) * 1e-6;
    return 13.5 + 0.016 * lags + millions(p, p.batches) * (0.6 * lags + 40) +
           100 * of_channel * lags;
}

/*
 * Small calls of at most SHORT lags by the kernels that read x once; large ones take what
 * memory does.  Channels that are no whole pack, of elements of `bytes`, are loaded one by
 * one: 24,000 float32 of 3 7.3 us on an H100, v0 6.7.
 */
inline double
time_of_short_filters(const conv_plan &p, int64_t bytes, bool channels_last)
{
    const double more = p.lags > 4 ? 0.14 * static_cast<double>(p.lags - 4) : 0;
    const double all = millions(p, p.batches);
    const double starts = p.channels * bytes < 16 ? 7.2 : 4.7;
    return more + (channels_last ? starts + 4 * all : 5.5 + 1.8 * all);
}

/*
 * A thread for each output, in warps along steps or channels, and all loads at once: no
 * code is shorter.  Along channels each lag of taps is a sector for a few of them.
 */
inline double
time_of_few_outputs(const conv_plan &p, int64_t bytes, bool by_channels)
{
    const double lags = static_cast<double>(p.lags);
    const int64_t inner = by_channels ? p.channels : p.steps;
    const double threads =
        1e-6 * static_cast<double>(ceil_div(inner, WARP) * WARP * p.batches *
                                   (by_channels ? p.steps : p.channels));
    const double sectors = by_channels ? 0.15 * static_cast<double>(bytes) : 0;
    return 4.1 + 0.03 * lags + threads * (3.6 + (0.3 + sectors) * lags);
}

/*
 * The gradients by short_filters, whose sums of dw mostly take a second launch; elements of
 * `bytes`.  Packs at the ends of a row are made element by element, and all of those of
 * rows in segments have tests.
 */
inline double
time_of_short_gradients(const conv_plan &p, int64_t bytes, bool channels_last)
{
    constexpr double ENDS = 400; /* steps of a row that are at its ends */
    if (channels_last) {
        return 18 + 4.4 * millions(p, p.batches);
    }
    const double lags = static_cast<double>(p.lags);
    const double steps = static_cast<double>(p.steps);
    const double ends = 0.45 * lags * (steps > ENDS ? ENDS / steps : 1);
    const double each = 1.05 * static_cast<double>(bytes) + ends;
    return 11 + 0.35 * (lags > 4 ? lags - 4 : 0) +
           (p.segments ? 1.5 : 1) * each * millions(p, p.batches);
}

/* The same in one launch, compiled for the number of taps, where channels are neighbours. */
inline double
time_of_few_taps_by_channels(const conv_plan &p, int64_t bytes)
{
    constexpr double LONG = 2000; /* elements of a channel, whose sums are in parts */
    const double elements = static_cast<double>(p.batches * p.steps);
    const double sums = 4 * (elements < LONG ? elements / LONG : 1);
    const double more = p.lags > 4 ? 0.3 * static_cast<double>(p.lags - 4) : 0;
    return 6.5 + sums + more +
           0.9 * static_cast<double>(bytes) * millions(p, p.batches);
}

/*
 * The same for rows of whole packs: what memory or, in 16 bits, the products take, in whole
 * waves of blocks, or the eight items that a warp walks at least.  Blocks take groups of
 * channels; a few batches leave nothing to divide, so the last wave may be almost empty.
 * More than one block for a channel, a part of its sums each, wait for the last one.
 */
inline double
time_of_few_taps(const conv_plan &p, int64_t bytes, int64_t processors)
{
    constexpr double LEAST_FULL = 0.7; /* of the places in waves, if rows are many */
    constexpr int WARPS = SHORT_BLOCK / WARP, WALK = 8;
    const int64_t packs = ceil_div(p.steps * bytes, int64_t{16});
    const double channels_of_block = WARP >> lanes_of_row(packs);
    const double groups = ceil(static_cast<double>(p.channels) / channels_of_block);
    const bool is_small = bytes == 4 && !p.segments; /* fewer registers */
    const int resident = is_small               ? (p.lags > 4 ? 6 : 8)
                         : p.silu || p.segments ? (p.lags > 4 ? 5 : 6)
                                                : (p.lags > 6 ? 6 : 7);
    const double slots = static_cast<double>(processors * resident);
    const double waves = groups / slots;
    double full = waves > 1 ? waves / ceil(waves) : 1;
    full = p.batches > WARPS && full < LEAST_FULL ? LEAST_FULL : full;
    const double lags = static_cast<double>(p.lags), all = millions(p, p.batches);
    const double traffic = 0.93 * static_cast<double>(bytes), products = 0.26 * lags;
    const double walked = static_cast<double>(p.batches * packs) * channels_of_block /
                          (WARPS * WARP * WALK);
    const double walk = (p.lags <= 4 ? 4 : 2.8) * (walked < 1 ? walked : 1);
    const double most = all * fmax(traffic, bytes == 2 ? products : 0) / full;
    const bool has_parts = walked > 1 && waves < LEAST_FULL;
    return 6 + 0.3 * (lags > 4 ? lags - 4 : 0) + fmax(most, walk) + (has_parts ? 4 : 0);
}

/*
 * The same without SiLU and segments, where blocks have any share of a channel's items.
 * Elements in no whole pack, `has_ends`, are another wait and some work for each row.
 */
inline double
time_of_item_walks(const conv_plan &p, int64_t bytes, int64_t processors, bool has_ends)
{
    const int64_t size = 16 / bytes,
                  packs = ceil_div(p.steps, size) + (has_ends ? 1 : 0);
    const int64_t groups = ceil_div(p.channels, WARP >> lanes_of_row(packs));
    const int resident = bytes == 4 ? 8 : 7;
    const int64_t total = p.batches * ceil_div(packs, WARP);
    const int64_t parts = parts_of_items(groups, total, processors * resident);
    const double turns = static_cast<double>(ceil_div(total, parts * BLOCK_WARPS));
    const double traffic = static_cast<double>(bytes) * millions(p, p.batches);
    const double rows = 1e-6 * static_cast<double>(p.batches * p.channels);
    return 6.5 + fmax(traffic, 0.4 * turns) + (parts > 1 ? 3 : 0) +
           (has_ends ? 1.5 + 130 * rows : 0);
}

/*
 * A block for each channel of `processors`, one or more; two loads, a product of dx and
 * one of dw for each tap; and where channels are neighbours a sector for each element.
 */
inline double
time_of_one_block(const conv_plan &p, int64_t processors)
{
    const double rows = 1e-6 * static_cast<double>(p.batches * p.steps);
    const double waves =
        static_cast<double>(p.channels) / static_cast<double>(processors);
    const double channels = (waves > 1 ? waves : 1) * static_cast<double>(TIMED_SMS);
    return 5.5 + rows * channels * (4 + 1.2 * static_cast<double>(p.lags)) +
           time_by_channels(p, 1.5, 20);
}

/*
 * The same by a cluster of eight blocks for each channel.  Four blocks of an SM start
 * together; each after them waits for the start, the barriers and the sums of another.
 */
inline double
time_of_one_cluster(const conv_plan &p, int64_t processors)
{
    constexpr double TOGETHER = 4, ANOTHER = 0.36;
    const double rows = 1e-6 / 8 * static_cast<double>(p.batches * p.steps);
    const double of_each =
        static_cast<double>(8 * p.channels) / static_cast<double>(processors);
    const double blocks = (of_each > 1 ? of_each : 1) * static_cast<double>(processors);
    return 6.5 + rows * blocks * (2.8 + 0.8 * static_cast<double>(p.lags)) +
           (of_each > TOGETHER ? ANOTHER * (of_each - TOGETHER) : 0) +
           time_by_channels(p, 1.5, 20);
}

/* 2.6e12 products a second, and as many more as if there were 29 lags more. */
inline double
time_of_v2(const conv_plan &p)
{
    return (p.steps <= 128 ? 7 : 11) +
           padded_millions(p, V2_STEPS) * static_cast<double>(p.lags + 29) / 2.58;
}

/* A thread adds lag after lag; with many rows, 11e12 products a second and the bytes. */
inline double
time_of_middle_filters(const conv_plan &p)
{
    const double lags = static_cast<double>(p.lags);
    return 8.3 + 0.06 * lags + millions(p, p.batches) * (0.09 * (lags + 12) + 4.5);
}

/* Both gradients; dw is that of v5, in which threads add up to 512 steps in a row. */
inline double
time_of_middle_gradients(const conv_plan &p)
{
    const double steps = static_cast<double>(p.steps < 512 ? p.steps : 512);
    return 13 + 0.035 * steps +
           millions(p, p.batches) * (20 + 0.36 * static_cast<double>(p.lags));
}

/* Lanes without a row cost as much as others, but no memory. */
inline double
time_of_v5(const conv_plan &p)
{
    const int64_t rows = p.batches * ceil_div(p.steps, SEGMENT);
    const double padded = 1e-6 * static_cast<double>(p.channels) *
                          static_cast<double>(ceil_div(rows, WARP) * WARP * SEGMENT);
    const double lags = static_cast<double>(p.lags);
    const double more = 0.027 * (lags - 20) + (lags > 64 ? 0.06 * (lags - 64) : 0);
    return (p.steps <= 128 ? 9 : 12) + padded * (6 + (more > 0 ? more : 0)) +
           4.5 * millions(p, p.batches) + time_by_channels(p, 0, 9);
}

/* Blocks of 64 lags that are not zero, as v6 counts them. */
inline int64_t
blocks_of_lags(const conv_plan &p)
{
    const int64_t lags = (p.lags + 62) / 64 + 1, blocks = ceil_div(p.steps, 64);
    return lags < blocks ? lags : blocks;
}

/* v6 has a unit of work for 16 batches of a channel; the least time of each, us. */
inline double
time_of_v6_units(const conv_plan &p, double each)
{
    return each * static_cast<double>(p.channels * ceil_div(p.batches, 16));
}

/* float32: three products of halves, of whole eights of batches. */
inline double
time_of_v6(const conv_plan &p)
{
    const double all = 4.9 / 768 * static_cast<double>(p.steps) *
                       millions(p, ceil_div(p.batches, 8) * 8);
    const double units = time_of_v6_units(p, p.steps % 4 == 0 ? 0.0195 : 0.034);
    const double alone = 0.007 * static_cast<double>(p.steps);
    const double most = units > all ? units : all;
    return (p.steps % 4 == 0 ? 12.5 : 23) + (most > alone ? most : alone) +
           time_by_channels(p, 6.5, 5);
}

/* Both gradients of small calls in float32, of rows of whole fours of steps. */
inline double
time_of_v6_gradients(const conv_plan &p)
{
    return 23.4 + 0.0113 * static_cast<double>(p.steps) +
           2 * time_of_v6_units(p, 0.0195);
}

/*
 * Products of blocks of 64 lags with 48 columns of results that v6 makes for an item of
 * a whole row: 96 columns at a time, and lags that reach only the later half of them.
 */
inline double
products_of_v6(const conv_plan &p)
{
    const int64_t group = p.batches > 8 ? 6 : 12; /* blocks */
    const int64_t blocks = ceil_div(p.steps, 64), lags = blocks_of_lags(p);
    const auto up_to = [&](int64_t n) { return lags < n ? lags : n; };
    int64_t products = 0;
    for (int64_t first = 0; first < blocks; first += group) {
        products += up_to(first + group / 2) + up_to(first + group);
    }
    return static_cast<double>(products);
}

/* The same of persistent_tensor_cores, whose columns are of three blocks and 16 batches. */
inline double
products_of_persistent(const conv_plan &p)
{
    const int64_t tuples = ceil_div(ceil_div(p.steps, 64), 3), lags = blocks_of_lags(p);
    int64_t products = 0;
    for (int64_t lag = 0; lag < lags; lag++) {
        products += tuples - lag / 3;
    }
    return static_cast<double>(products);
}

/*
 * 16-bit values.  Whole rows by the items of an SM, at least one, and the bytes; times
 * of an H100 in NOTES.md.  Rows that do not begin at 16 bytes are copied first.
 */
inline double
time_of_v6_in_halves(const conv_plan &p)
{
    if (p.steps <= TOEPLITZ_STEPS && p.steps % 8 == 0) {
        const double items = static_cast<double>(p.channels * ceil_div(p.batches, 16)) /
                             static_cast<double>(TIMED_SMS);
        const double products =
            (items > 1 ? items : 1) * (0.78 + 0.067 * products_of_v6(p));
        const double bytes = 1.29 * millions(p, p.batches);
        return 5.9 + 0.002 * static_cast<double>(p.steps) +
               (products > bytes ? products : bytes) + time_by_channels(p, 6.5, 5);
    }
    const double all = 2.3 * millions(p, ceil_div(p.batches, 8) * 8);
    const double units = time_of_v6_units(p, 0.0075);
    return (p.steps % 8 == 0 ? 6.5 : 13) + (units > all ? units : all) +
           time_by_channels(p, 6.5, 5);
}

/* The same in whole items of an SM: fewer clocks of each, but it begins later. */
inline double
time_of_persistent(const conv_plan &p)
{
    const int64_t items = ceil_div(p.channels * ceil_div(p.batches, 16), TIMED_SMS);
    const double products =
        static_cast<double>(items) * (0.53 + 0.0657 * products_of_persistent(p));
    const double bytes = 0.9 * millions(p, p.batches);
    return 6.5 + 0.004 * static_cast<double>(p.steps) +
           (products > bytes ? products : bytes) + time_by_channels(p, 6.5, 5);
}

/* Both gradients of 16-bit values, for rows of up to GRADIENT_STEPS. */
inline double
time_of_v6_gradients_in_halves(const conv_plan &p)
{
    return 12.5 + time_of_v6_units(p, p.steps % 8 == 0 ? 0.033 : 0.075) +
           time_by_channels(p, 15, 10);
}

inline double
time_of_v7(const conv_plan &p)
{
    const double steps = static_cast<double>(p.steps);
    const double most =
        p.steps < V7_STEPS ? padded_millions(p, V7_STEPS) : millions(p, p.batches);
    const double one_row = 19 * sqrt(steps > 2048 ? steps / 2048 : 1);
    const double all = (steps <= 2048 ? 22 : 13.6) * most;
    return (one_row > all ? one_row : all) + time_by_channels(p, 0, 14);
}

/* Both gradients of small calls. */
constexpr double V7_GRADIENTS = 33;

/* ---- rows that v7 cuts into blocks of 4096 steps ---- */

constexpr int64_t LONG_STEPS = 16384; /* rows of more are cut whatever the filter */

/* What is convolved: rows with the steps of a state before them, and how often. */
struct long_rows {
    double rows, steps, lags, convolutions;
    bool has_lags;
};

inline long_rows
long_rows_of(const conv_plan &p)
{
    return {static_cast<double>(p.batches * p.channels),
            static_cast<double>(p.steps + (p.has_state ? p.taps - 1 : 0)),
            static_cast<double>(p.lags), p.backward && p.silu ? 2.0 : 1.0, p.backward};
}

/*
 * A transform of a block there and back takes 6.4 us, 264 at a time.  A product of two
 * spectra, by the times in NOTES.md: 0.021 us forward (0.415 ms for B2 C64 T65536) but
 * 1.6 where there are so few rows that it does not wait for L2 (3.5 ms for 64 rows of
 * 262,144), and 0.067 for lags (1.68 ms for both gradients of B2 C64 T65536).
 */
inline double
time_of_v7_in_blocks(const gpo_call *call, const conv_plan &p)
{
    constexpr double BLOCK_STEPS = 4096, THERE_AND_BACK = 6.4, ALONE = 1.6;
    const long_rows r = long_rows_of(p);
    const double resident = 2.0 * gpo_processors(call), rate = 264 / resident;
    const double at_once = r.rows < resident ? r.rows : resident;
    const double blocks = ceil(r.steps / BLOCK_STEPS);
    const double filters = ceil(r.lags / BLOCK_STEPS);
    const double products = filters * blocks - filters * (filters - 1) / 2;
    const auto all = [&](double alone, double product, double transforms) {
        const double each = alone / at_once > product ? alone / at_once : product;
        return r.rows *
               (transforms * blocks * THERE_AND_BACK / at_once + products * each);
    };
    return r.convolutions * all(ALONE, 0.021 * rate, 1) +
           (r.has_lags ? all(2 * ALONE, 0.067 * rate, 1) : 0);
}

inline double
time_of_large_transforms(const gpo_call *call, const conv_plan &p)
{
    const int64_t steps = p.steps + (p.has_state ? p.taps - 1 : 0);
    const double results =
        plan_row_blocks(call,
                        transforms_of_results(p.batches, p.channels, steps, p.lags))
            .microseconds;
    const double lags =
        plan_row_blocks(call, transforms_of_lags(p.batches, p.channels, steps, p.lags))
            .microseconds;
    const long_rows r = long_rows_of(p);
    return r.convolutions * results + (r.has_lags ? lags : 0);
}

#endif
