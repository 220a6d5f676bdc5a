/*
 * large_plan.cuh  How large_transforms divides a call among transforms that go through
 * memory, how much memory they take, and an estimate of their time.
 */
#ifndef GPO_CONVOLVE_LARGE_PLAN_CUH
#define GPO_CONVOLVE_LARGE_PLAN_CUH

#include "../../device/grid.cuh"
#include "../../device/large_fft.cuh"
#include "convolve.h"

#include <cmath>

/* Inputs whose largest size and energy are measured together; a block begins at one. */
constexpr int CHUNK = 256;
/* Chunks whose sum is also kept, and where blocks of many chunks begin. */
constexpr int GROUP = 16 * CHUNK;
constexpr int64_t FEW_CHUNKS = 512; /* that a block of threads adds up by itself */

/*
 * Float32 sums of more terms that a transform may not compute are left to the second
 * passes of long_filters, which have smaller transforms.
 */
constexpr int64_t MOST_ADDED = 2048;
constexpr int WIDE_SUMS = 512; /* that those compute together */

constexpr int64_t FEWEST_TAPS = 2 * CHUNK; /* whose windows share a chunk */

/* The largest magnitude of numbers, 2^exponent, and their energy over 4^exponent. */
struct amount {
    static constexpr int NOTHING = -8192, INFINITE = 8192; /* exponents of zeros; inf */

    double energy;
    int exponent;
};

/*
 * A transform has N = 2^log points, as a matrix of 2^log_rows rows.  Block k of a row
 * has the sums from begin + k step on, made of the `length` inputs from `lead` before
 * the first sum on: length N, or 2 N where they are real.  All are multiples of
 * `grain`, CHUNK or GROUP.
 */
struct large_plan {
    int log, log_rows;
    int grain;
    int64_t length, lead, begin, step, blocks;
    int64_t together, of_row; /* of one pass: rows, and blocks of each */
    int64_t spectra_bytes;    /* at the beginning of the workspace */
    int64_t bytes;            /* of workspace */
    double microseconds;
};

/* Entries of one row or filter, and of all of them. */
struct large_counts {
    int64_t chunks, groups, tap_groups, sums, filters; /* sums: chunks of sums */
};

inline large_counts
counts_of(const convolve_plan &p)
{
    return {ceil_div(p.n, CHUNK), ceil_div(p.n, GROUP), ceil_div(p.m, GROUP),
            ceil_div(p.n + p.m - 1, CHUNK), p.one_filter ? 1 : p.count_rows};
}

/* Whether a call has sums for long_filters, and flags for them: any, then which. */
inline bool
may_have_wide(const gpo_call *call)
{
    return call->out[0].dtype == GPO_F32 && convolve_plan_of(call)->m > MOST_ADDED;
}

inline int64_t
wide_flags(const convolve_plan &p)
{
    return p.count_rows * ceil_div(p.count, WIDE_SUMS) + 1;
}

/* Of long_filters: the workspace of its second passes, and these for the marked sums. */
size_t convolve_wide_bytes(const gpo_call *call);
gpo_status convolve_wide_blocks(gpo_call *call, int *flags, void *memory);

/*
 * The largest allowed ratio of the energy of a block's inputs to a window's: a transform
 * errs by at most 0.75 log2(2N) u |v| |a| (NOTES.md), a sum may err by 2 sqrt(M) u |v|
 * |its own terms|.
 */
inline float
large_growth(int64_t taps, int log)
{
    const double passes = 0.75 * (log + 1);
    return static_cast<float>(4 * static_cast<double>(taps) / (passes * passes));
}

/* The inputs of the whole chunks that the windows of a chunk of sums share. */
inline int64_t
shared_inputs(int64_t taps)
{
    return (taps / CHUNK - 1) * CHUNK;
}

/*
 * Whether the guard lets a row of noise pass: a block has at most `growth` times the
 * energy of the inputs that windows share, even where that is 4 deviations of normal
 * numbers below its mean; and sums whose window has an eighth of the block's energy or
 * more are within their bound as they are (0.9 sqrt(8) log2(2N) <= 2 sqrt(M), NOTES.md).
 */
inline bool
passes_if_even(int64_t length, int64_t taps, int log)
{
    const double shared = static_cast<double>(shared_inputs(taps));
    const double least = shared - 4 * std::sqrt(2 * shared);
    const double passes = log + 1;
    return static_cast<double>(taps) >= 1.62 * passes * passes &&
           static_cast<double>(length) <= large_growth(taps, log) * least;
}

inline int64_t
rounded_up(int64_t x, int64_t to)
{
    return ceil_div(x, to) * to;
}

/* The blocks of rows for transforms of 2^log points; without a step if there are none. */
inline large_plan
blocks_of(const convolve_plan &p, int log, bool is_complex)
{
    large_plan l = {};
    l.log = log;
    l.log_rows = log_of_rows(log);
    l.length = (is_complex ? int64_t{1} : int64_t{2}) << log;
    l.grain = l.length / CHUNK > FEW_CHUNKS ? GROUP : CHUNK;
    const int64_t end = p.first + p.count;
    const int64_t wraps = p.n + p.m - 1 - l.length; /* sums that others are added to */
    if (end <= l.length && p.n <= l.length && wraps <= p.first) {
        l.step = l.length;
        l.blocks = 1;
        return l;
    }
    l.lead = rounded_up(p.m - 1, l.grain);
    if (l.lead > l.length / 4 * 3) {
        return l;
    }
    l.begin = p.first / l.grain * l.grain;
    l.step = l.length - l.lead;
    l.blocks = ceil_div(end - l.begin, l.step);
    return l;
}

/*
 * Microseconds of 27 random calls on an H100 and an H200 (results/sweep-h*.json), within
 * a fifth for all but one, less what v2 and v3 take beside their estimates, too: a cold
 * start of 11 us, operands and result.  Five launches wait for each other, each further
 * pass adds three that are queued, wide sums three that return at once; the numbers go
 * through three launches.
 */
template <typename Real>
inline double
microseconds_of(int64_t processors, bool has_wide, double passes, double numbers)
{
    constexpr double BEGIN = 25, WIDE = 7, PASS = 5;
    constexpr double NUMBER = sizeof(Real) == 4 ? 18e-6 : 45e-6; /* of 132 SMs */
    return BEGIN + (has_wide ? WIDE : 0) + PASS * (passes - 1) +
           numbers * NUMBER * 132 / static_cast<double>(processors);
}

/* Sets what a pass has, the workspace and the estimated time. */
template <typename Real>
inline void
pass_of(const gpo_call *call, const convolve_plan &p, large_plan &l)
{
    const large_counts c = counts_of(p);
    const int64_t processors = gpo_processors(call);
    const int64_t bytes = static_cast<int64_t>(sizeof(complex<Real>)) << l.log;
    const int64_t each = PASS_BYTES * processors / bytes;
    const int64_t most = each > 1 ? each : 1;
    l.of_row = l.blocks < most ? l.blocks : most;
    l.together = most / l.of_row < p.count_rows ? most / l.of_row : p.count_rows;
    l.together = l.together > 1 ? l.together : 1;
    const int64_t filters = p.one_filter ? 1 : l.together;
    const int64_t amounts = p.count_rows * (c.chunks + c.groups + l.blocks) +
                            c.filters * (c.tap_groups + 1);
    int64_t spectra = (l.together * l.of_row + filters) * bytes;
    int64_t flags = p.count_rows * c.sums;
    if (may_have_wide(call)) {
        const int64_t wide = static_cast<int64_t>(convolve_wide_bytes(call));
        spectra = spectra > wide ? spectra : rounded_up(wide, sizeof(amount));
        flags += wide_flags(p);
    }
    l.spectra_bytes = spectra;
    l.bytes = spectra + amounts * static_cast<int64_t>(sizeof(amount)) +
              flags * static_cast<int64_t>(sizeof(int));

    const double passes = static_cast<double>(ceil_div(p.count_rows, l.together) *
                                              ceil_div(l.blocks, l.of_row));
    const int64_t numbers = (p.count_rows * l.blocks + c.filters) << l.log;
    l.microseconds = microseconds_of<Real>(processors, may_have_wide(call), passes,
                                           static_cast<double>(numbers));
}

/* Workspace is at most twice the operands and the result, and 4 MiB. */
inline bool
has_room(const gpo_call *call, const large_plan &l)
{
    constexpr double MORE = 4 << 20;
    const gpo_array &out = call->out[0];
    const double numbers = static_cast<double>(call->in[0].size) +
                           static_cast<double>(call->in[1].size) +
                           static_cast<double>(out.size);
    const double most = 2 * numbers * gpo_dtypes[out.dtype].bytes;
    return static_cast<double>(l.bytes) <= most + MORE;
}

/* The cheapest transform for a call; without blocks if there is none. */
template <typename Real>
large_plan
plan_large_as(const gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    const bool is_complex = gpo_dtypes[call->out[0].dtype].kind == 'c';
    large_plan best = {};
    int least = 0;
    while (1 << least < TILE_NUMBERS) {
        least++;
    }
    if (p.m < FEWEST_TAPS || p.count_rows == 0) {
        return best;
    }
    const int64_t room = gpo_shared_room(call);
    for (int log = least; log <= MOST_LOG; log++) {
        large_plan l = blocks_of(p, log, is_complex);
        const size_t shared = large_shared<Real>(log - l.log_rows) + (6 << 10);
        if (l.blocks == 0 || static_cast<int64_t>(shared) > room ||
            !passes_if_even(l.length, p.m, log)) {
            continue;
        }
        pass_of<Real>(call, p, l);
        if (has_room(call, l) &&
            (best.blocks == 0 || l.microseconds < best.microseconds)) {
            best = l;
        }
        if (l.blocks == 1) {
            break; /* longer transforms have nothing more to do */
        }
    }
    return best;
}

inline large_plan
plan_large(const gpo_call *call)
{
    const gpo_dtype dtype = call->out[0].dtype;
    return dtype == GPO_F64 || dtype == GPO_C128 ? plan_large_as<double>(call)
                                                 : plan_large_as<float>(call);
}

/* For the table: a result of no rows is of no length, too. */
inline bool
takes_large(const gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    return p.m >= FEWEST_TAPS && (p.count_rows == 0 || plan_large(call).blocks > 0);
}

template <typename T>
gpo_status convolve_large_transforms(gpo_call *call);

#endif
