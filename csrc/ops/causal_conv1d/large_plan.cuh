/*
 * large_plan.cuh  How large_transforms divides a call among transforms that go through
 * memory, how much memory they take, and an estimate of their time.
 * See device/large_fft.cuh for the transforms and the origin of the times.
 */
#ifndef GPO_CAUSAL_CONV1D_LARGE_PLAN_CUH
#define GPO_CAUSAL_CONV1D_LARGE_PLAN_CUH

#include "../../device/large_fft.cuh"
#include "limits.cuh"

/* Steps whose largest size and energy are measured together; blocks begin at them. */
constexpr int MEASURED = 256;

/* The error bound of dw allows a transform of 2^12 points from so many steps on. */
constexpr int64_t FEWEST_STEPS = 64;
constexpr int64_t MOST_LAGS = int64_t{1} << MOST_LOG; /* blocks can be twice as long */

/*
 * A transform has N = 2^log points for `length` = 2N steps.  A row is one block if it
 * fits with its filter; else block k has the results of `step` steps from k step on,
 * made of these and of the `lead` steps before them.  A pass has some blocks, counted
 * along the batch, of each of some channels.
 */
struct row_blocks_plan {
    int log, log_rows;
    int64_t length, lead, step, blocks; /* blocks of a row */
    int64_t channels, units;            /* of one pass: channels, blocks of each */
    int64_t shares;                     /* blocks of threads for those, side by side */
    int64_t spectra_bytes;
    double microseconds;
};

/* What is transformed: rows and filters for results, two sets of rows for lags. */
struct row_transforms {
    int64_t batches, channels, steps, lags;
    int64_t of_block; /* matrices of a block: 1, or 2 for lags */
    double launches;  /* of a call, besides those of its passes */
};

static inline row_transforms
transforms_of_results(int64_t batches, int64_t channels, int64_t steps, int64_t lags)
{
    return {batches, channels, steps, lags, 1, 3};
}

static inline row_transforms
transforms_of_lags(int64_t batches, int64_t channels, int64_t steps, int64_t lags)
{
    return {batches, channels, steps, lags, 2, 3};
}

/* Blocks of rows for transforms of 2^log points; without a step if there are none. */
static inline row_blocks_plan
row_blocks_of(const row_transforms &r, int log)
{
    row_blocks_plan l = {};
    l.log = log;
    l.log_rows = log_of_rows(log);
    l.length = int64_t{2} << log;
    if (r.steps + r.lags - 1 <= l.length) {
        l.step = l.length;
        l.blocks = 1;
        return l;
    }
    l.lead = ceil_div(r.lags - 1, MEASURED) * MEASURED;
    if (l.lead > l.length / 4 * 3) {
        return l;
    }
    l.step = l.length - l.lead;
    l.blocks = ceil_div(r.steps, l.step);
    return l;
}

/*
 * The cheapest transforms; without blocks if there are none.  The matrices of a pass take
 * PASS_BYTES per SM, or what one block and its filter need if that is more, at most
 * 3 * 2^27 bytes; and sums of lags side by side a tile for each resident block of threads.
 */
static inline row_blocks_plan
plan_row_blocks(const gpo_call *call, const row_transforms &r)
{
    constexpr int LEAST_LOG = 12;
    static_assert(1 << LEAST_LOG == TILE_NUMBERS, "a whole tile");
    const int64_t processors = gpo_processors(call), room = gpo_shared_room(call);
    row_blocks_plan best = {};
    for (int log = LEAST_LOG; log <= MOST_LOG; log++) {
        row_blocks_plan l = row_blocks_of(r, log);
        const size_t shared = large_shared<float>(log - l.log_rows) + (6 << 10);
        if (l.blocks == 0 || static_cast<int64_t>(shared) > room) {
            continue;
        }
        const int64_t bytes = static_cast<int64_t>(sizeof(c64)) << log;
        const int64_t most = PASS_BYTES * processors / bytes;
        const int64_t all = r.batches * l.blocks, each = all * r.of_block + 1;
        l.channels = each < most ? most / each : 1;
        l.channels = l.channels < r.channels ? l.channels : r.channels;
        l.channels = l.channels > 1 ? l.channels : 1;
        l.units = each <= most ? all : (most - 1) / r.of_block;
        l.units = l.units > 1 ? l.units : 1;
        const int64_t tiles = (int64_t{1} << log) / TILE_NUMBERS;
        const int64_t wanted =
            ceil_div(TILE_BLOCKS<float> * processors, l.channels * tiles);
        l.shares = l.units < wanted ? l.units : wanted;
        const int64_t others = r.of_block > 1 ? l.shares : 1; /* sums, or filters */
        l.spectra_bytes = l.channels * (l.units * r.of_block + others) * bytes;
        const double passes = static_cast<double>(
            ceil_div(r.channels, l.channels) * (all > 0 ? ceil_div(all, l.units) : 1));
        l.microseconds = large_microseconds<float>(processors, r.launches, passes,
                                                   r.channels * each << log);
        if (best.blocks == 0 || l.microseconds < best.microseconds) {
            best = l;
        }
        if (l.blocks == 1) {
            break; /* longer transforms have nothing more to do */
        }
    }
    return best;
}

#endif
