/*
 * cpu_spectra.c  causal_conv1d and its backward on the CPU by Fourier transforms.
 * Order: one transform, the inner loops, the transforms of a job, magnitudes and
 * checks, blocks of results, blocks of wide rows, convolution, gradients of the
 * filters, cost model, start.  See spectra.inc (for each instruction set) and
 * spectra_scalar.inc for the loops.
 *
 * Each lane of a vector holds a channel, so that one pass transforms a row of each;
 * long rows are divided into blocks.  A filter's gradient is the sum of the spectra of
 * all blocks, transformed back once.
 *
 * The error of a transform is spread evenly over its block, relative to the norm of all
 * its inputs; the result at t may err by the norm of the inputs up to t alone
 * (NOTES.md, "The causal bound").  So a block is checked: if the inputs up to its
 * first result have too little energy, the block is computed by transforms of strictly
 * earlier inputs ("wide").
 */
#include "../../core/cells.h"
#include "../../core/elements.h"
#include "cpu.h"

#include <string.h>

/* ---- one transform ---- */

/*
 * The convolution of a row with a filter of `lags` in blocks of 2 * cells inputs: a
 * block begins lags - 1 inputs before the first of its `steps` results (overlap-save).
 */
typedef struct spectra_plan {
    int64_t cells;        /* a power of two, 4 or more */
    int64_t steps;        /* 2 * cells - lags + 1 */
    int64_t blocks;       /* of a row */
    int exponent;         /* multiply products of two spectra by 2^exponent */
    const void *roots;    /* exp(-2 pi i k / (2 cells)), k in [0, cells); triples */
    const int32_t *place; /* the position of bin k */
} spectra_plan;

typedef struct spectra_loops {
    int64_t lanes; /* rows that are transformed at once */
    double (*largest)(const void *row, int64_t n, bool *no_number);
    double (*squares)(const void *row, int64_t n);
    double (*scaled_squares)(const void *row, int64_t n, double factor);
    void (*transform)(const spectra_plan *s, const void *const *rows, int64_t step,
                      int64_t before, int64_t n, const int *exponents, void *cells);
    void (*from_spectrum)(const spectra_plan *s, void *cells);
    void (*multiply)(int64_t n, void *cells, const void *factor);
    void (*correlate)(int64_t n, void *sum, const void *y, const void *x);
    void (*collect)(const void *cells, int64_t first, int64_t n, const int *exponents,
                    int64_t pitch, void *rows);
    void (*add)(const void *cells, int64_t first, int64_t n, const int *exponents,
                void *sums);
} spectra_loops;

enum { LANES = 32 }; /* partial sums of a sum of squares */

/* 2^e for e in [-1022, 1023] */
static inline double
two_to(int e)
{
    const union {
        uint64_t u;
        double d;
    } value = {.u = (uint64_t)(e + 1023) << 52};
    return value.d;
}

/* ---- the inner loops ---- */

#define GPO_LOOPS "../ops/causal_conv1d/spectra.inc"
#include "../../core/each_isa.h"

#define V float
#include "spectra_scalar.inc"

#define V double
#include "spectra_scalar.inc"

/* ---- the transforms of a job ---- */

typedef struct spectra {
    const spectra_loops *loops;
    spectra_plan plan;
    int64_t groups;       /* of channels, one per lane */
    int64_t slices;       /* of batches */
    int64_t units, tasks; /* a unit: a slice of a group; a task: some units */
    int64_t buffer;       /* bytes of the cells of a group */
    double allowed;       /* most energy of a block relative to its early inputs */
    int least, most;      /* exponents e for which 2^e and 2^-e are in range */
    char *memory;         /* task_bytes per task */
    int64_t task_bytes;
    int *sizes; /* exponents of the rows of x and of the gradient, by c, then b */
} spectra;

enum {
    BUFFERS = 4,
    IN_A_ROW = 64, /* spectra summed before they are added to the total */
    AT_ONCE = 128, /* steps transposed out of the lanes at a time */
    MOST_LANE_BYTES = 64,
    MOST_LANES = MOST_LANE_BYTES / sizeof(float),
    UNITS = 3, /* wanted per thread: with few groups, batches are split, too */
    MOST_MEMORY = 1 << 29, /* bytes of buffers of all tasks: limits their number */
    BASE = AT_ONCE,        /* tile of a wide row that is summed directly */
    MOST_LEVELS = 40,
    MOST_ODD = 16, /* inf and nan per row that are added separately */
};

/*
 * A result errs by at most TRANSFORM_ERROR u log2(2 cells) |w| |x|, x the inputs of its
 * block.  The largest observed is 0.58, over 15 shapes from T = 130 to 65536 and all
 * pairs of 14 kinds of rows and filters (constant, cosines, chirps, noise, impulses,
 * growth, decay, and each row with itself reversed), in either type; cosines come
 * nearest.
 */
#define TRANSFORM_ERROR 0.75

/* Sets place[] of bins first, first + step, ..: n cells that start at `base`. */
static void
fill_places(int32_t *place, int64_t base, int64_t n, int64_t first, int64_t step)
{
    if (n <= 8) {
        for (int64_t k = 0; k < n; k++) {
            place[first + (n == 8 ? gpo_bins_of_eight[k] : k) * step] =
                (int32_t)(base + k);
        }
        return;
    }
    for (int64_t r = 0; r < 4; r++) {
        fill_places(place, base + r * (n / 4), n / 4, first + r * step, 4 * step);
    }
}

/* The workspace of a task. */
typedef struct workspace {
    char *filter, *cells, *sums; /* BUFFERS buffers, the last is `spectra_of` */
    char *spectra_of; /* of the first 2 m lags of the filters, m = BASE, 2 BASE .. */
    char *roots;
    int32_t *place;
    spectra_plan level[MOST_LEVELS]; /* of m cells; .cells is 0 until first used */
    uint64_t made;                   /* bit i: level i has the spectra of this group */
    int filter_exponents[MOST_LANES];
} workspace;

static bool
are_finite(const conv_job *j, const void *x, int64_t n)
{
    return j->dtype == GPO_F64 ? finite_double(x, n) : finite_float(x, n);
}

static double
value_at(const conv_job *j, const char *row, int64_t i)
{
    return j->dtype == GPO_F64 ? ((const double *)row)[i]
                               : (double)((const float *)row)[i];
}

/* The channel of a lane; spare lanes repeat the last channel. */
static int64_t
channel_of(const conv_job *j, int64_t group, int64_t lane)
{
    const int64_t c = group * j->spectra->loops->lanes + lane;
    return c < j->plan.channels ? c : j->plan.channels - 1;
}

static int64_t
channels_of(const conv_job *j, int64_t group)
{
    const int64_t lanes = j->spectra->loops->lanes;
    const int64_t left = j->plan.channels - group * lanes;
    return left < lanes ? left : lanes;
}

/* Row b of each lane's channel, from element `offset`. */
static void
rows_of_group(const conv_job *j, const value_rows *rows, int64_t b, int64_t group,
              int64_t offset, const void **at)
{
    for (int64_t lane = 0; lane < j->spectra->loops->lanes; lane++) {
        at[lane] =
            row_of(rows, b, channel_of(j, group, lane)) + offset * j->value_bytes;
    }
}

static value_rows
filter_rows(const conv_job *j)
{
    return (value_rows){j->filters + PAD * j->value_bytes, 0,
                        j->filter_pitch * j->value_bytes};
}

/* sum[lane] = more + a[lane] + b[lane] */
static void
add_exponents(const conv_job *j, const int *a, const int *b, int more, int *sum)
{
    for (int64_t lane = 0; lane < j->spectra->loops->lanes; lane++) {
        sum[lane] = more + a[lane] + b[lane];
    }
}

/* The inputs of block h before its results: lags - 1, or 0 for the first block. */
static int64_t
history_of(const conv_job *j, int64_t h)
{
    return h > 0 ? j->plan.lags - 1 : 0;
}

/*
 * Transforms the inputs of block h of row b of a group, with its history, up to `end`.
 * Before the beginning of the row the history is 0.
 */
static void
transform_inputs(const conv_job *j, const value_rows *rows, int64_t b, int64_t group,
                 int64_t h, int64_t end, const int *exponents, void *cells)
{
    const spectra *s = j->spectra;
    const int64_t begin = h * s->plan.steps, start = begin - history_of(j, h);
    const int64_t before = start < 0 ? -start : 0, first = start + before;
    const int64_t past = begin + s->plan.steps, stop = past < end ? past : end;
    const void *at[MOST_LANES];
    int down[MOST_LANES] = {0};
    rows_of_group(j, rows, b, group, first, at);
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        down[lane] = -exponents[lane];
    }
    s->loops->transform(&s->plan, at, 1, before, stop - first, down, cells);
}

/* ---- magnitudes and checks ---- */

/* A sum of squares: square * 4^exponent. */
typedef struct energy {
    double square;
    int exponent;
} energy;

static energy
add_energies(energy a, energy b)
{
    if (a.square == 0 || b.square == 0) {
        return a.square == 0 ? b : a;
    }
    const int most = a.exponent > b.exponent ? a.exponent : b.exponent;
    return (energy){ldexp(a.square, 2 * (a.exponent - most)) +
                        ldexp(b.square, 2 * (b.exponent - most)),
                    most};
}

static int
exponent_of(const spectra *s, double size)
{
    int e = 0;
    (void)frexp(size, &e);
    return e < s->least ? s->least : e > s->most ? s->most : e;
}

/* The exponent of the largest finite value of n; sets *odd for inf and nan. */
static int
size_of(const conv_job *j, const char *row, int64_t n, bool *odd)
{
    return exponent_of(j->spectra, j->spectra->loops->largest(row, n, odd));
}

static energy
energy_of(const conv_job *j, const char *row, int64_t n, bool *odd)
{
    const spectra_loops *loops = j->spectra->loops;
    const double largest = loops->largest(row, n, odd);
    if (largest == 0) {
        return (energy){.square = 0};
    }
    const int e = exponent_of(j->spectra, largest);
    return (energy){loops->scaled_squares(row, n, two_to(-e)), e};
}

/* The properties of a row of inputs. */
typedef struct row_facts {
    int64_t first;    /* its first input that is not 0 */
    int64_t head_end; /* [first, head_end) are summed directly */
    bool plain;       /* all blocks pass the check */
    int exponent;     /* of a plain row */
    /* if not plain: */
    int64_t odd, odd_at[MOST_ODD]; /* number of inf and nan, and the first positions */
    energy early;                  /* of inputs [0, measured) */
    int64_t measured;
} row_facts;

static int64_t
first_of_row(const conv_job *j, const char *row)
{
    const int64_t n = j->plan.steps;
    int64_t i = 0;
    if (j->dtype == GPO_F64) {
        while (i < n && ((const double *)row)[i] == 0) {
            i++;
        }
    }
    else {
        while (i < n && ((const float *)row)[i] == 0) {
            i++;
        }
    }
    return i;
}

static void
find_odd(const conv_job *j, const char *row, row_facts *f)
{
    bool odd = false;
    (void)j->spectra->loops->largest(row, j->plan.steps, &odd);
    for (int64_t i = f->first; odd && i < j->plan.steps; i++) {
        const double x = value_at(j, row, i);
        if (x - x != 0) {
            if (f->odd < MOST_ODD) {
                f->odd_at[f->odd] = i;
            }
            f->odd++;
        }
    }
}

/*
 * The energy of a prefix only grows: if the whole row passes against the inputs up to
 * its first transformed result, every block does.  If the squares neither overflow nor
 * underflow they need no scaling.
 */
static void
inspect_row(const conv_job *j, const char *row, row_facts *f)
{
    const spectra *s = j->spectra;
    const int64_t steps = j->plan.steps;
    *f = (row_facts){.first = first_of_row(j, row), .plain = true};
    f->head_end = f->first + HEAD < steps ? f->first + HEAD : steps;
    if (f->head_end == steps) {
        return;
    }
    const int64_t split = f->head_end + 1;
    const double least = two_to(s->least / 2), most = two_to(s->most / 2);
    const double early =
        s->loops->squares(row + f->first * j->value_bytes, split - f->first);
    const double all =
        early + s->loops->squares(row + split * j->value_bytes, steps - split);
    if (early > least && all < most && all <= s->allowed * early) {
        (void)frexp(all, &f->exponent);
        f->exponent /= 2;
        return;
    }
    f->plain = false;
    find_odd(j, row, f);
}

/*
 * Whether block h of a row may be transformed, and with which exponent.  Must be called
 * in increasing order of h.
 */
static bool
may_transform(const conv_job *j, const char *row, row_facts *f, int64_t h,
              int *exponent)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    *exponent = f->exponent;
    if (f->plain) {
        return true;
    }
    const int64_t begin = h * s->plan.steps, past = begin + s->plan.steps;
    const int64_t end = past < p->steps ? past : p->steps;
    const int64_t from = begin > f->head_end ? begin : f->head_end;
    const int64_t start = begin > p->lags - 1 ? begin - (p->lags - 1) : 0;
    if (from >= end) { /* every result is 0 or direct */
        return true;
    }
    bool odd = false, ignored = false;
    const energy all = energy_of(j, row + start * j->value_bytes, end - start, &odd);
    const energy more = energy_of(j, row + f->measured * j->value_bytes,
                                  from + 1 - f->measured, &ignored);
    f->early = add_energies(f->early, more);
    f->measured = from + 1;
    *exponent = all.exponent;
    return !odd && ldexp(all.square, 2 * (all.exponent - f->early.exponent)) <=
                       s->allowed * f->early.square;
}

/* ---- blocks of results ---- */

/* Whether an inf or nan of the row is a term of the result at t. */
static bool
has_odd_term(const conv_job *j, const row_facts *f, int64_t t)
{
    for (int64_t i = 0; i < f->odd && i < MOST_ODD; i++) {
        if (f->odd_at[i] <= t && t - f->odd_at[i] < j->plan.lags) {
            return true;
        }
    }
    return false;
}

/*
 * Finishes n results from step t, given their sums, except those of the head, which are
 * already done.  Sums that overflowed in the transform are recomputed directly.
 */
static void
finish_sums(const conv_job *j, int64_t b, int64_t c, const row_facts *f, int64_t t,
            int64_t n, char *sums)
{
    const int64_t zeros = f->first <= t ? 0 : f->first - t < n ? f->first - t : n;
    const int64_t skip = f->head_end <= t      ? 0
                         : f->head_end - t < n ? f->head_end - t
                                               : n;
    char *rest = sums + skip * j->value_bytes;
    if (zeros > 0) {
        memset(sums, 0, (size_t)(zeros * j->value_bytes));
        conv_finish(j, b, c, t, zeros, sums);
    }
    if (skip == n) {
        return;
    }
    if (are_finite(j, rest, n - skip)) {
        conv_finish(j, b, c, t + skip, n - skip, rest);
        return;
    }
    for (int64_t i = skip; i < n; i++) {
        char *sum = sums + i * j->value_bytes;
        if (are_finite(j, sum, 1) || has_odd_term(j, f, t + i)) {
            conv_finish(j, b, c, t + i, 1, sum);
        }
        else {
            conv_sum_rows(j, b, 1, c, t + i, t + i + 1, f->first);
        }
    }
}

/*
 * Finishes the results of a block, cells times 2^exponents, in the wanted lanes.  Not
 * inlined, because its buffer is too large for its caller's stack frame.
 */
static __attribute__((noinline)) void
finish_block(const conv_job *j, int64_t b, int64_t group, int64_t h,
             const row_facts *facts, const bool *wanted, const int *exponents,
             const void *cells)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t first = h * s->plan.steps, left = p->steps - first;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    _Alignas(64) char sums[MOST_LANE_BYTES * AT_ONCE];
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        const int64_t some = n - k < AT_ONCE ? n - k : AT_ONCE;
        s->loops->collect(cells, history_of(j, h) + k, some, exponents, AT_ONCE, sums);
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            if (wanted[lane]) {
                finish_sums(j, b, channel_of(j, group, lane), &facts[lane], first + k,
                            some, sums + lane * AT_ONCE * j->value_bytes);
            }
        }
    }
}

/* ---- blocks of wide rows ---- */

/*
 * For m = BASE, 2 BASE, .. and lo a multiple of 2 m, a transform of 2 m steps adds the
 * terms of inputs [lo, lo + m) of a block in its results [lo + m, lo + 2 m).  What
 * remains are inputs and results in the same BASE steps, which are summed directly.
 */

/* Appends the twiddle factors of cells.h to n roots. */
static void
fill_triples(const conv_job *j, int64_t n, void *roots)
{
    if (j->dtype == GPO_F64) {
        triples_double(n, roots);
    }
    else {
        triples_float(n, roots);
    }
}

static void
make_level(const conv_job *j, workspace *work, int i)
{
    const spectra *s = j->spectra;
    const int64_t m = (int64_t)BASE << i, step = s->plan.cells / m;
    const int64_t offset = 2 * m - 2 * BASE, root = 2 * j->value_bytes;
    char *roots = work->roots + offset * root;
    int32_t *place = work->place + m - BASE;
    for (int64_t k = 0; k < m; k++) {
        memcpy(roots + k * root, (const char *)s->plan.roots + k * step * root,
               (size_t)root);
    }
    fill_triples(j, m, roots);
    fill_places(place, 0, m, 0, 1);
    work->level[i] = s->plan;
    work->level[i].cells = m;
    work->level[i].exponent += floor_log2(s->plan.cells) - floor_log2(m);
    work->level[i].roots = roots;
    work->level[i].place = place;
}

/* The plan for transforms of m cells; *filter: the spectra of the group's filters. */
static const spectra_plan *
level_of(const conv_job *j, workspace *work, int64_t group, int64_t m,
         const void **filter)
{
    const spectra *s = j->spectra;
    if (m == s->plan.cells) {
        *filter = work->filter;
        return &s->plan;
    }
    const int i = floor_log2(m) - floor_log2(BASE);
    char *spectrum =
        work->spectra_of + (2 * m - 2 * BASE) * s->loops->lanes * j->value_bytes;
    *filter = spectrum;
    if (work->level[i].cells == 0) {
        make_level(j, work, i);
    }
    if (!(work->made >> i & 1)) {
        const value_rows filters = filter_rows(j);
        const void *at[MOST_LANES];
        int down[MOST_LANES] = {0};
        rows_of_group(j, &filters, 0, group, 0, at);
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            down[lane] = -work->filter_exponents[lane];
        }
        s->loops->transform(&work->level[i], at, 1, 0,
                            j->plan.lags < 2 * m ? j->plan.lags : 2 * m, down,
                            spectrum);
        work->made |= (uint64_t)1 << i;
    }
    return &work->level[i];
}

/* The exponents of n inputs in the wanted lanes; false if all inputs are 0. */
static bool
measure_inputs(const conv_job *j, int64_t b, int64_t group, int64_t from, int64_t n,
               const bool *wanted, int *exponents)
{
    const spectra *s = j->spectra;
    bool any = false;
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        exponents[lane] = 0;
        if (wanted[lane]) {
            bool odd = false;
            const char *row = row_of(j->from, b, channel_of(j, group, lane));
            const double largest =
                s->loops->largest(row + from * j->value_bytes, n, &odd);
            exponents[lane] = exponent_of(s, largest);
            any = any || largest > 0;
        }
    }
    return any;
}

/* Adds the terms of the inputs before block h to its sums. */
static void
add_history(const conv_job *j, workspace *work, int64_t b, int64_t group, int64_t h,
            int64_t n, const bool *wanted)
{
    const spectra *s = j->spectra;
    const int64_t begin = h * s->plan.steps, before = j->plan.lags - 1;
    const int64_t from = begin > before ? begin - before : 0;
    int exponents[MOST_LANES] = {0};
    if (h == 0 || from == begin ||
        !measure_inputs(j, b, group, from, begin - from, wanted, exponents)) {
        return;
    }
    transform_inputs(j, j->from, b, group, h, begin, exponents, work->cells);
    s->loops->multiply(s->plan.cells, work->cells, work->filter);
    s->loops->from_spectrum(&s->plan, work->cells);
    add_exponents(j, exponents, work->filter_exponents, s->plan.exponent, exponents);
    s->loops->add(work->cells, before, n, exponents, work->sums);
}

/*
 * Adds the terms of inputs [lo, lo + m) to results [lo + m, lo + 2 m); with fewer lags
 * than m only the last inputs and the first results have terms in common.
 */
static void
add_pair(const conv_job *j, workspace *work, int64_t b, int64_t group, int64_t begin,
         int64_t n, int64_t lo, int64_t m, const bool *wanted)
{
    const spectra *s = j->spectra;
    int64_t size = BASE;
    while (size < m && size < j->plan.lags) {
        size *= 2;
    }
    const int64_t to = lo + m, left = n - to, from = begin + to - size;
    const spectra_plan *plan;
    const void *at[MOST_LANES], *filter;
    int exponents[MOST_LANES] = {0}, down[MOST_LANES] = {0};
    if (!measure_inputs(j, b, group, from, size, wanted, exponents)) {
        return;
    }
    plan = level_of(j, work, group, size, &filter);
    rows_of_group(j, j->from, b, group, from, at);
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        down[lane] = -exponents[lane];
    }
    s->loops->transform(plan, at, 1, 0, size, down, work->cells);
    s->loops->multiply(size, work->cells, filter);
    s->loops->from_spectrum(plan, work->cells);
    add_exponents(j, exponents, work->filter_exponents, plan->exponent, exponents);
    s->loops->add(work->cells, size, left < size ? left : size, exponents,
                  work->sums + to * s->loops->lanes * j->value_bytes);
}

/* Finishes n sums from step t, which already have the terms of inputs before t. */
static void
finish_wide_sums(const conv_job *j, int64_t b, int64_t c, const row_facts *f, int64_t t,
                 int64_t n, char *sums)
{
    if (f->odd > MOST_ODD && t + n > f->odd_at[0]) {
        conv_sum_rows(j, b, 1, c, t, t + n, f->first);
        return;
    }
    conv_add_inputs(j, b, c, t, n, t, t + n, sums);
    for (int64_t i = 0; i < f->odd && f->odd_at[i] < t; i++) {
        if (t - f->odd_at[i] < j->plan.lags) {
            conv_add_inputs(j, b, c, t, n, f->odd_at[i], f->odd_at[i] + 1, sums);
        }
    }
    finish_sums(j, b, c, f, t, n, sums);
}

/* Computes block h of the wanted lanes' rows b from transforms of earlier inputs. */
static __attribute__((noinline)) void
wide_block(const conv_job *j, workspace *work, int64_t b, int64_t group, int64_t h,
           const row_facts *facts, const bool *wanted)
{
    static const int as_it_is[MOST_LANES] = {0};
    const spectra *s = j->spectra;
    const int64_t begin = h * s->plan.steps, left = j->plan.steps - begin;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    const int64_t lane_bytes = s->loops->lanes * j->value_bytes;
    memset(work->sums, 0, (size_t)(n * lane_bytes));
    add_history(j, work, b, group, h, n, wanted);
    for (int64_t m = BASE; m < n; m *= 2) {
        for (int64_t lo = 0; lo + m < n; lo += 2 * m) {
            add_pair(j, work, b, group, begin, n, lo, m, wanted);
        }
    }
    _Alignas(64) char sums[MOST_LANE_BYTES * AT_ONCE];
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        const int64_t some = n - k < AT_ONCE ? n - k : AT_ONCE;
        s->loops->collect(work->sums, k, some, as_it_is, AT_ONCE, sums);
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            if (wanted[lane]) {
                finish_wide_sums(j, b, channel_of(j, group, lane), &facts[lane],
                                 begin + k, some,
                                 sums + lane * AT_ONCE * j->value_bytes);
            }
        }
    }
}

/* ---- convolution ---- */

/* The spectra of a group's filters; good[lane]: the filter is finite. */
static void
transform_filters(const conv_job *j, workspace *work, int64_t group, bool *good)
{
    const spectra *s = j->spectra;
    const value_rows filters = filter_rows(j);
    const void *at[MOST_LANES];
    int down[MOST_LANES] = {0};
    rows_of_group(j, &filters, 0, group, 0, at);
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        bool odd = false;
        work->filter_exponents[lane] = size_of(j, at[lane], j->plan.lags, &odd);
        down[lane] = -work->filter_exponents[lane];
        good[lane] = !odd;
    }
    s->loops->transform(&s->plan, at, 1, 0, j->plan.lags, down, work->filter);
    work->made = 0;
}

/* Directly sums the heads of `count` rows of a channel, count <= ROWS. */
static void
sum_heads(const conv_job *j, int64_t b, int64_t count, int64_t c,
          const row_facts *const *facts)
{
    bool same = true;
    for (int64_t r = 1; r < count; r++) {
        same = same && facts[r]->first == facts[0]->first;
    }
    for (int64_t r = 0; r < count; r += same ? count : 1) {
        if (facts[r]->first < facts[r]->head_end) {
            conv_sum_rows(j, b + r, same ? count : 1, c, facts[r]->first,
                          facts[r]->head_end, facts[r]->first);
        }
    }
}

static void
sum_whole_rows(const conv_job *j, int64_t b, int64_t count, int64_t c)
{
    for (int64_t t = 0; t < j->plan.steps; t += RANGE) {
        const int64_t left = j->plan.steps - t;
        conv_sum_rows(j, b, count, c, t, t + (left < RANGE ? left : RANGE), 0);
    }
}

/* Computes all blocks of rows b of a group, in the lanes with good[lane]. */
static void
convolve_row(const conv_job *j, workspace *work, int64_t b, int64_t group,
             const bool *good, row_facts *facts)
{
    const spectra *s = j->spectra;
    const int64_t channels = channels_of(j, group);
    for (int64_t h = 0; h < s->plan.blocks; h++) {
        bool plain[MOST_LANES] = {false}, wide[MOST_LANES] = {false};
        bool any_plain = false, any_wide = false;
        int exponents[MOST_LANES] = {0};
        for (int64_t lane = 0; lane < channels; lane++) {
            const char *row = row_of(j->from, b, channel_of(j, group, lane));
            if (good[lane]) {
                plain[lane] = may_transform(j, row, &facts[lane], h, &exponents[lane]);
                wide[lane] = !plain[lane];
                any_plain = any_plain || plain[lane];
                any_wide = any_wide || wide[lane];
            }
        }
        if (any_plain) {
            transform_inputs(j, j->from, b, group, h, j->plan.steps, exponents,
                             work->cells);
            s->loops->multiply(s->plan.cells, work->cells, work->filter);
            s->loops->from_spectrum(&s->plan, work->cells);
            add_exponents(j, exponents, work->filter_exponents, s->plan.exponent,
                          exponents);
            finish_block(j, b, group, h, facts, plain, exponents, work->cells);
        }
        if (any_wide) {
            wide_block(j, work, b, group, h, facts, wide);
        }
    }
}

/* Convolves a slice of the batches of a group. */
static void
convolve_unit(const conv_job *j, int64_t unit, workspace *work)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t group = unit % s->groups, slice = unit / s->groups;
    const int64_t end = (slice + 1) * p->batches / s->slices;
    bool good[MOST_LANES] = {false};
    transform_filters(j, work, group, good);
    for (int64_t b = slice * p->batches / s->slices; b < end; b += ROWS) {
        row_facts facts[ROWS][MOST_LANES];
        const int64_t count = end - b < ROWS ? end - b : ROWS;
        for (int64_t lane = 0; lane < channels_of(j, group); lane++) {
            const int64_t c = channel_of(j, group, lane);
            const row_facts *rows[ROWS];
            if (!good[lane]) {
                sum_whole_rows(j, b, count, c);
                continue;
            }
            for (int64_t r = 0; r < count; r++) {
                inspect_row(j, row_of(j->from, b + r, c), &facts[r][lane]);
                rows[r] = &facts[r][lane];
            }
            sum_heads(j, b, count, c, rows);
        }
        for (int64_t r = 0; r < count; r++) {
            convolve_row(j, work, b + r, group, good, facts[r]);
        }
    }
}

static workspace
workspace_of(const conv_job *j, int64_t task)
{
    const spectra *s = j->spectra;
    workspace work = {.filter = s->memory + task * s->task_bytes};
    work.cells = work.filter + s->buffer;
    work.sums = work.cells + s->buffer;
    work.spectra_of = work.sums + s->buffer;
    work.roots = work.spectra_of + s->buffer;
    work.place = (int32_t *)(work.roots + 4 * s->plan.cells * j->value_bytes);
    return work;
}

/* Task i: a range of units. */
static void
convolve_units(void *context, int64_t i)
{
    const conv_job *j = context;
    const spectra *s = j->spectra;
    workspace work = workspace_of(j, i);
    for (int64_t u = i * s->units / s->tasks; u < (i + 1) * s->units / s->tasks; u++) {
        convolve_unit(j, u, &work);
    }
}

void
conv_spectra_convolve(conv_job *j)
{
    gpo_cpu_loop(j->parallel, j->spectra->tasks, convolve_units, j);
}

/* ---- gradients of the filters ---- */

/* total += sum; sum = 0 */
static void
fold_spectra(const conv_job *j, void *restrict total, void *restrict sum)
{
    const int64_t bytes = j->spectra->buffer;
    if (j->dtype == GPO_F64) {
        fold_double(bytes, total, sum);
    }
    else {
        fold_float(bytes, total, sum);
    }
}

/* The exponents of the rows of channel c: of x (which = 0) or of the gradient (1). */
static int *
sizes_of(const conv_job *j, int64_t c, int which)
{
    return j->spectra->sizes + (2 * c + which) * j->plan.batches;
}

/*
 * Measures the rows of channel c.  Returns the exponent of its largest product, to
 * which all rows are scaled; *odd counts its inf and nan, up to MOST_ODD + 1.
 */
static int
measure_channel(const conv_job *j, int64_t c, int64_t *odd)
{
    const value_rows *rows[2] = {&j->x, &j->reversed};
    const int64_t n = j->plan.steps;
    int most = 2 * j->spectra->least;
    *odd = 0;
    for (int64_t b = 0; b < j->plan.batches; b++) {
        int both = 0;
        for (int which = 0; which < 2; which++) {
            const char *row = row_of(rows[which], b, c);
            bool has_odd = false;
            const int e = size_of(j, row, n, &has_odd);
            sizes_of(j, c, which)[b] = e;
            both += e;
            for (int64_t i = 0; has_odd && i < n && *odd <= MOST_ODD; i++) {
                *odd += !are_finite(j, row + i * j->value_bytes, 1);
            }
        }
        most = both > most ? both : most;
    }
    return most;
}

/* Sums the spectra of all blocks of a group over the batch into `total`. */
static void
sum_spectra(const conv_job *j, int64_t group, const int *most, char *total)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    char *sum = total + s->buffer;
    char *x = sum + s->buffer, *dy = x + s->buffer;
    int64_t added = 0;
    memset(total, 0, (size_t)(2 * s->buffer));
    for (int64_t b = 0; b < p->batches; b++) {
        int of_x[MOST_LANES] = {0}, of_dy[MOST_LANES] = {0};
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            const int64_t c = channel_of(j, group, lane);
            of_x[lane] = sizes_of(j, c, 0)[b];
            /* a row far below the largest may underflow */
            const int down = of_x[lane] - most[lane], least = 2 * s->least;
            of_dy[lane] = down > least ? down : least;
        }
        for (int64_t h = 0; h < s->plan.blocks; h++) {
            const int64_t first = h * s->plan.steps, left = p->steps - first;
            const void *at[MOST_LANES];
            transform_inputs(j, &j->x, b, group, h, p->steps, of_x, x);
            rows_of_group(j, &j->reversed, b, group, p->steps - 1 - first, at);
            s->loops->transform(&s->plan, at, -1, history_of(j, h),
                                left < s->plan.steps ? left : s->plan.steps, of_dy, dy);
            s->loops->correlate(s->plan.cells, sum, dy, x);
            if (++added % IN_A_ROW == 0) {
                fold_spectra(j, total, sum);
            }
        }
    }
    fold_spectra(j, total, sum);
}

/* Adds the products of inf and nan, which the transforms took as 0. */
static void
add_odd_terms(const conv_job *j, int64_t c, void *lags)
{
    if (j->dtype == GPO_F64) {
        add_odd_terms_double(j, c, lags);
    }
    else {
        add_odd_terms_float(j, c, lags);
    }
}

/* The gradients of a group's filters, from the sum of the spectra of all blocks. */
static void
gradient_unit(conv_job *j, int64_t group, char *memory)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t lanes = s->loops->lanes, channels = channels_of(j, group);
    int most[MOST_LANES] = {0}, exponents[MOST_LANES] = {0};
    int64_t odd[MOST_LANES] = {0};
    for (int64_t lane = 0; lane < channels; lane++) {
        most[lane] = measure_channel(j, channel_of(j, group, lane), &odd[lane]);
    }
    for (int64_t lane = channels; lane < lanes; lane++) {
        most[lane] = most[channels - 1];
    }
    sum_spectra(j, group, most, memory);
    s->loops->from_spectrum(&s->plan, memory);
    for (int64_t lane = 0; lane < lanes; lane++) {
        exponents[lane] = most[lane] + s->plan.exponent;
    }
    char *rows = memory + s->buffer;
    const int64_t pitch = s->buffer / lanes / j->value_bytes;
    s->loops->collect(memory, 0, p->lags, exponents, pitch, rows);
    for (int64_t lane = 0; lane < channels; lane++) {
        const int64_t c = channel_of(j, group, lane);
        char *lags = rows + lane * pitch * j->value_bytes;
        if (odd[lane] > MOST_ODD || !are_finite(j, lags, p->lags)) {
            conv_sum_gradient(j, c);
            continue;
        }
        if (odd[lane] > 0) {
            add_odd_terms(j, c, lags);
        }
        conv_put(j, j->arrays.dw, c * p->taps + p->taps - 1, -1, p->lags, lags);
    }
}

/* Task i: a range of groups. */
static void
gradient_units(void *context, int64_t i)
{
    conv_job *j = context;
    const spectra *s = j->spectra;
    for (int64_t g = i * s->groups / s->tasks; g < (i + 1) * s->groups / s->tasks;
         g++) {
        gradient_unit(j, g, s->memory + i * s->task_bytes);
    }
}

void
conv_spectra_gradient(conv_job *j)
{
    gpo_cpu_loop(j->parallel, j->spectra->tasks, gradient_units, j);
}

/* ---- cost model ---- */

/*
 * Nanoseconds for float32 on one thread of an EPYC with AVX2: a forward and an inverse
 * transform per cell of eight rows, and the products per sum.  float64 takes about 2.5
 * times as long for both.  The costs depend on the sizes alone, so that neither the
 * number of threads nor the vector width affects the choice of a variant.
 */
static double
cell_ns(int64_t cells, int64_t levels)
{
    enum { IN_L2 = 1024 };
    return (8 + 1.2 * (double)levels) * (cells > IN_L2 ? 2 : 1);
}

/* For `batches` rows with the same filter: four, two or one at a time. */
static double
product_ns(int64_t batches)
{
    static const double left[ROWS] = {0, 0.1, 0.13, 0.16};
    const int64_t fours = batches / ROWS;
    return 0.16 * (double)fours + left[batches % ROWS];
}

/* Finds the cheapest block length; returns the cost of convolving all rows. */
static double
plan_blocks(const conv_plan *p, spectra_plan *s)
{
    enum { GROUP = 8, CALL_NS = 5000, ROOT_NS = 6 };
    const double groups = (double)ceil_div(p->channels, GROUP);
    double least = INFINITY;
    *s = (spectra_plan){.cells = 0};
    int64_t blocks = 0;
    for (int64_t cells = 4, levels = 2; blocks != 1; cells *= 2, levels++) {
        const int64_t steps = 2 * cells - p->lags + 1;
        if (steps < 1) {
            continue;
        }
        blocks = ceil_div(p->steps, steps);
        const double transforms = 1 + 2 * (double)(p->batches * blocks);
        const double cost =
            CALL_NS + (double)cells *
                          (2 * ROOT_NS + groups * transforms * cell_ns(cells, levels));
        if (cost < least) {
            least = cost;
            s->cells = cells;
            s->steps = steps;
            s->blocks = blocks;
        }
    }
    return least;
}

bool
conv_spectra_pay(const conv_plan *p)
{
    const double terms =
        (double)p->lags * ((double)p->steps - ((double)p->lags - 1) / 2);
    const double channels = (double)p->channels * terms;
    double products = channels * product_ns(p->batches), transforms = 1;
    if (p->backward) {
        const double before_silu = p->silu ? 1 : 0;
        products *= 1 + before_silu;
        products += channels * (double)p->batches * product_ns(1);
        transforms = 2 + before_silu;
    }
    spectra_plan s;
    return p->lags > SHORT_LAGS && p->batches * p->channels > 0 &&
           transforms * plan_blocks(p, &s) < 0.8 * products;
}

/* ---- start ---- */

gpo_status
conv_spectra_start(gpo_call *call, conv_job *j)
{
    static const spectra_loops *const *const tables[GPO_NISA] = GPO_EACH_ISA(spectra);
    const conv_plan *p = &j->plan;
    if (p->batches * p->channels * p->lags == 0 || p->steps <= HEAD) {
        return GPO_OK;
    }
    spectra s = {.loops = tables[gpo_cpu_isa()][j->dtype == GPO_F64]};
    plan_blocks(p, &s.plan);
    const int64_t length = 2 * s.plan.cells, threads = gpo_cpu_threads();
    s.plan.exponent = -2 - floor_log2(length);
    /* 2 sqrt(T) u must cover TRANSFORM_ERROR log2(length) u; see NOTES.md */
    const double passes = TRANSFORM_ERROR * floor_log2(length);
    s.allowed = 4 * (double)p->steps / (passes * passes);
    s.most = j->dtype == GPO_F64 ? 1022 : 126;
    s.least = -s.most;
    s.groups = ceil_div(p->channels, s.loops->lanes);
    s.slices = ceil_div(UNITS * threads, s.groups);
    s.slices = s.slices < p->batches ? s.slices : p->batches;
    s.units = s.groups * s.slices;
    s.buffer = length * s.loops->lanes * j->value_bytes;
    s.task_bytes =
        BUFFERS * s.buffer + ceil_div((2 * length * j->value_bytes +
                                       s.plan.cells * (int64_t)sizeof(int32_t)),
                                      MOST_LANE_BYTES) *
                                 MOST_LANE_BYTES;
    const int64_t room = MOST_MEMORY / s.task_bytes;
    s.tasks = s.units < 2 * threads ? s.units : 2 * threads;
    s.tasks = room < 1 ? 1 : s.tasks < room ? s.tasks : room;
    void *own = NULL, *memory = NULL, *roots = NULL, *place = NULL, *sizes = NULL;
    gpo_status status = gpo_scratch(call, sizeof s, &own);
    if (!status) {
        status = gpo_scratch(call, (size_t)(s.tasks * s.task_bytes), &memory);
    }
    if (!status) {
        status = gpo_scratch(call, (size_t)(2 * length * j->value_bytes), &roots);
    }
    if (!status) {
        status =
            gpo_scratch(call, (size_t)s.plan.cells * sizeof(*s.plan.place), &place);
    }
    if (!status) {
        status = gpo_scratch(
            call, (size_t)(2 * p->batches * p->channels) * sizeof(*s.sizes), &sizes);
    }
    if (status) {
        return status;
    }
    if (j->dtype == GPO_F64) {
        roots_double(s.plan.cells, roots);
    }
    else {
        roots_float(s.plan.cells, roots);
    }
    fill_triples(j, s.plan.cells, roots);
    fill_places(place, 0, s.plan.cells, 0, 1);
    s.memory = memory;
    s.sizes = sizes;
    s.plan.roots = roots;
    s.plan.place = place;
    memcpy(own, &s, sizeof s);
    j->spectra = own;
    return GPO_OK;
}
