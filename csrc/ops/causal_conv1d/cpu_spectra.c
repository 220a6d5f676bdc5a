/*
 * cpu_spectra.c  causal_conv1d and its backward on the CPU by Fourier transforms.
 * Order: one transform, the inner loops, the transforms of a job, magnitudes and
 * checks, blocks of results, blocks of wide rows, convolution, gradients of the
 * filters, cost model, start.  See spectra.inc (for each instruction set) and
 * spectra_scalar.inc for the loops.
 *
 * A row is transformed by itself, in lanes of its own, so that few channels and few
 * batches cost no more per row; long rows are divided into blocks.  A filter's gradient
 * is the sum of the spectra of all blocks, transformed back once.
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
    int64_t cells;     /* complex numbers of a block, a power of two, at least BASE */
    int64_t steps;     /* 2 * cells - lags + 1 */
    int64_t blocks;    /* of a row */
    int exponent;      /* multiply products of two spectra by 2^exponent */
    const void *roots; /* see fill_roots */
} spectra_plan;

typedef struct spectra_loops {
    double (*largest)(const void *row, int64_t n, bool *no_number);
    double (*squares)(const void *row, int64_t n);
    double (*scaled_squares)(const void *row, int64_t n, double factor);
    void (*transform)(const spectra_plan *s, const void *row, int64_t step,
                      int64_t before, int64_t n, int exponent, void *cells);
    void (*from_spectrum)(const spectra_plan *s, const void *factor, void *cells);
    void (*correlate)(int64_t cells, void *sum, const void *y, const void *x);
    void (*collect)(const spectra_plan *s, const void *cells, int64_t first, int64_t n,
                    int exponent, void *to);
    void (*add)(const spectra_plan *s, const void *cells, int64_t first, int64_t n,
                int exponent, void *to);
} spectra_loops;

enum {
    LANES = 32,    /* partial sums of a sum of squares */
    BRANCHES = 16, /* see transforms.inc */
    BASE = 256,    /* the least cells, and the tile of a wide row summed directly */
    POWERS = 6,    /* factors of a cell in a radix-16 step */
    POWER_VALUES = 2 * POWERS * BRANCHES, /* of that many cells */
    LINE = 64,                            /* bytes: alignment of buffers and tables */
};

/* The tables of m cells per branch, in values: less than 16 m. */
#define TURNS_AT(m) (2 * POWERS * (m))
#define TRIPLES_AT(m) (TURNS_AT(m) + 2 * (m))

/* exp(2 pi i r / 16), r < 4 */
static const double eighths[] = {
    1.0,
    0.0,
    0.9238795325112867,
    0.3826834323650898,
    0.7071067811865476,
    0.7071067811865476,
    0.3826834323650898,
    0.9238795325112867,
};

/* exp(-2 pi i k / 16), k < 10 */
static const double sixteenths[] = {
    1.0,
    0.0,
    0.9238795325112867,
    -0.3826834323650898,
    0.7071067811865476,
    -0.7071067811865476,
    0.3826834323650898,
    -0.9238795325112867,
    0.0,
    -1.0,
    -0.3826834323650898,
    -0.9238795325112867,
    -0.7071067811865476,
    -0.7071067811865476,
    -0.9238795325112867,
    -0.3826834323650898,
    -1.0,
    0.0,
    -0.9238795325112867,
    0.3826834323650898,
};

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
    int64_t slices, ranges; /* of the batches of a channel, of the blocks of a row */
    int64_t units, tasks;   /* a unit: a slice and a range; a task: some units */
    int64_t parts;          /* of the sum of a filter's gradient */
    int64_t buffer;         /* bytes of the cells of a block */
    double allowed;         /* most energy of a block relative to its early inputs */
    int least, most;        /* exponents e for which 2^e and 2^-e are in range */
    gpo_root_tables source;
    char *memory; /* task_bytes per task */
    int64_t task_bytes;
    char *sums;              /* a buffer per part, or NULL where one part is all */
    struct row_sizes *sizes; /* by c, then b */
} spectra;

enum {
    BUFFERS = 4,
    IN_A_ROW = 64,  /* spectra summed before they are added to the total */
    AT_ONCE = BASE, /* results finished at a time */
    UNITS = 3,      /* wanted per thread: with few channels, batches are split, too */
    WANTED = 8,     /* rows or parts of rows, as far as blocks can be split */
    PARTS = 64,     /* of the gradients of all filters, if their sums fit into.. */
    MOST_SUMS = 1 << 26,   /* ..bytes */
    MOST_MEMORY = 1 << 29, /* bytes of buffers of all tasks: limits their number */
    MOST_LEVELS = 40,
    MOST_ODD = 16, /* inf and nan per row that are added separately */
};

/*
 * A result errs by at most transform_error u |w| |x|, x the inputs of its block.  The
 * largest observed is 8.1, over 12 lengths from T = 256 to 65536 and pairs of up to 120
 * rows of constants, cosines and their signs: rows whose energy is in few bins come
 * nearest, because their rounding errors are alike in all branches.
 */
static double
transform_error(int64_t cells)
{
    return 5 + 0.5 * floor_log2(2 * cells);
}

/* The workspace of a task. */
typedef struct workspace {
    char *filter, *cells, *sums; /* BUFFERS buffers, the last is `spectra_of` */
    char *spectra_of; /* of the first 2 m lags of the filter, m = BASE, 2 BASE .. */
    char *roots;      /* of those levels */
    spectra_plan level[MOST_LEVELS]; /* of m cells; .cells is 0 until first used */
    uint64_t made;   /* bit i: level i has the spectrum of this filter */
    int64_t channel; /* of the filter; -1: none yet */
    bool good;       /* the filter is finite */
    int exponent;    /* of the filter */
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

static const char *
filter_of(const conv_job *j, int64_t c)
{
    return j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
}

/* The inputs of block h before its results: lags - 1, or 0 for the first block. */
static int64_t
history_of(const conv_job *j, int64_t h)
{
    return h > 0 ? j->plan.lags - 1 : 0;
}

/*
 * Transforms the inputs of block h of a row, with its history, up to `end`.  Before the
 * beginning of the row the history is 0.
 */
static void
transform_inputs(const conv_job *j, const char *row, int64_t h, int64_t end,
                 int exponent, void *cells)
{
    const spectra *s = j->spectra;
    const int64_t begin = h * s->plan.steps, start = begin - history_of(j, h);
    const int64_t before = start < 0 ? -start : 0, first = start + before;
    const int64_t past = begin + s->plan.steps, stop = past < end ? past : end;
    s->loops->transform(&s->plan, row + first * j->value_bytes, 1, before, stop - first,
                        -exponent, cells);
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
 * Finishes the results of a block, cells times 2^exponent.  Not inlined, because its
 * buffer is too large for its caller's stack frame.
 */
static __attribute__((noinline)) void
finish_block(const conv_job *j, int64_t b, int64_t c, int64_t h, const row_facts *facts,
             int exponent, const void *cells)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t first = h * s->plan.steps, left = p->steps - first;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    _Alignas(LINE) char sums[AT_ONCE * sizeof(double)];
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        const int64_t some = n - k < AT_ONCE ? n - k : AT_ONCE;
        s->loops->collect(&s->plan, cells, history_of(j, h) + k, some, exponent, sums);
        finish_sums(j, b, c, facts, first + k, some, sums);
    }
}

/* ---- blocks of wide rows ---- */

/*
 * For m = BASE, 2 BASE, .. and lo a multiple of 2 m, a transform of 2 m steps adds the
 * terms of inputs [lo, lo + m) of a block in its results [lo + m, lo + 2 m).  What
 * remains are inputs and results in the same BASE steps, which are summed directly.
 */

static void
fill_roots(const conv_job *j, const gpo_root_tables *source, int64_t cells, void *roots)
{
    if (j->dtype == GPO_F64) {
        fill_roots_double(source, cells, roots);
    }
    else {
        fill_roots_float(source, cells, roots);
    }
}

static void
make_level(const conv_job *j, workspace *work, int i)
{
    const spectra *s = j->spectra;
    const int64_t m = (int64_t)BASE << i;
    char *roots = work->roots + (m - BASE) * j->value_bytes;
    fill_roots(j, &s->source, m, roots);
    work->level[i] = s->plan;
    work->level[i].cells = m;
    work->level[i].exponent += floor_log2(s->plan.cells) - floor_log2(m);
    work->level[i].roots = roots;
}

/* The plan for transforms of m cells; *filter: the spectrum of the channel's filter. */
static const spectra_plan *
level_of(const conv_job *j, workspace *work, int64_t m, const void **filter)
{
    const spectra *s = j->spectra;
    if (m == s->plan.cells) {
        *filter = work->filter;
        return &s->plan;
    }
    const int i = floor_log2(m) - floor_log2(BASE);
    char *spectrum = work->spectra_of + (2 * m - 2 * BASE) * j->value_bytes;
    *filter = spectrum;
    if (work->level[i].cells == 0) {
        make_level(j, work, i);
    }
    if (!(work->made >> i & 1)) {
        s->loops->transform(&work->level[i], filter_of(j, work->channel), 1, 0,
                            j->plan.lags < 2 * m ? j->plan.lags : 2 * m,
                            -work->exponent, spectrum);
        work->made |= (uint64_t)1 << i;
    }
    return &work->level[i];
}

/* The exponent of n inputs of a row; false if all are 0. */
static bool
measure_inputs(const conv_job *j, const char *row, int64_t from, int64_t n,
               int *exponent)
{
    bool odd = false;
    const double largest =
        j->spectra->loops->largest(row + from * j->value_bytes, n, &odd);
    *exponent = exponent_of(j->spectra, largest);
    return largest > 0;
}

/* Adds the terms of the inputs before block h to its sums. */
static void
add_history(const conv_job *j, workspace *work, const char *row, int64_t h, int64_t n)
{
    const spectra *s = j->spectra;
    const int64_t begin = h * s->plan.steps, before = j->plan.lags - 1;
    const int64_t from = begin > before ? begin - before : 0;
    int exponent = 0;
    if (h == 0 || from == begin ||
        !measure_inputs(j, row, from, begin - from, &exponent)) {
        return;
    }
    transform_inputs(j, row, h, begin, exponent, work->cells);
    s->loops->from_spectrum(&s->plan, work->filter, work->cells);
    s->loops->add(&s->plan, work->cells, before, n,
                  exponent + work->exponent + s->plan.exponent, work->sums);
}

/*
 * Adds the terms of inputs [lo, lo + m) to results [lo + m, lo + 2 m); with fewer lags
 * than m only the last inputs and the first results have terms in common.
 */
static void
add_pair(const conv_job *j, workspace *work, const char *row, int64_t begin, int64_t n,
         int64_t lo, int64_t m)
{
    const spectra *s = j->spectra;
    int64_t size = BASE;
    while (size < m && size < j->plan.lags) {
        size *= 2;
    }
    const int64_t to = lo + m, left = n - to, from = begin + to - size;
    const void *filter;
    int exponent = 0;
    if (!measure_inputs(j, row, from, size, &exponent)) {
        return;
    }
    const spectra_plan *plan = level_of(j, work, size, &filter);
    s->loops->transform(plan, row + from * j->value_bytes, 1, 0, size, -exponent,
                        work->cells);
    s->loops->from_spectrum(plan, filter, work->cells);
    s->loops->add(plan, work->cells, size, left < size ? left : size,
                  exponent + work->exponent + plan->exponent,
                  work->sums + to * j->value_bytes);
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

/* Computes block h of row b from transforms of earlier inputs. */
static void
wide_block(const conv_job *j, workspace *work, int64_t b, int64_t h,
           const row_facts *facts)
{
    const spectra *s = j->spectra;
    const char *row = row_of(j->from, b, work->channel);
    const int64_t begin = h * s->plan.steps, left = j->plan.steps - begin;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    memset(work->sums, 0, (size_t)(n * j->value_bytes));
    add_history(j, work, row, h, n);
    for (int64_t m = BASE; m < n; m *= 2) {
        for (int64_t lo = 0; lo + m < n; lo += 2 * m) {
            add_pair(j, work, row, begin, n, lo, m);
        }
    }
    for (int64_t k = 0; k < n; k += BASE) {
        finish_wide_sums(j, b, work->channel, facts, begin + k,
                         n - k < BASE ? n - k : BASE, work->sums + k * j->value_bytes);
    }
}

/* ---- convolution ---- */

/* The spectrum of the filter of channel c, unless the task has it already. */
static void
transform_filter(const conv_job *j, workspace *work, int64_t c)
{
    const spectra *s = j->spectra;
    bool odd = false;
    if (work->channel == c) {
        return;
    }
    work->exponent = size_of(j, filter_of(j, c), j->plan.lags, &odd);
    work->channel = c;
    work->good = !odd;
    work->made = 0;
    s->loops->transform(&s->plan, filter_of(j, c), 1, 0, j->plan.lags, -work->exponent,
                        work->filter);
}

/* Directly sums the heads of `count` rows of a channel, count <= ROWS. */
static void
sum_heads(const conv_job *j, int64_t b, int64_t count, int64_t c,
          const row_facts *facts)
{
    bool same = true;
    for (int64_t r = 1; r < count; r++) {
        same = same && facts[r].first == facts[0].first;
    }
    for (int64_t r = 0; r < count; r += same ? count : 1) {
        if (facts[r].first < facts[r].head_end) {
            conv_sum_rows(j, b + r, same ? count : 1, c, facts[r].first,
                          facts[r].head_end, facts[r].first);
        }
    }
}

/* Directly sums steps [begin, end) of `count` rows of a channel, count <= ROWS. */
static void
sum_steps(const conv_job *j, int64_t b, int64_t count, int64_t c, int64_t begin,
          int64_t end)
{
    for (int64_t t = begin; t < end; t += RANGE) {
        conv_sum_rows(j, b, count, c, t, end - t < RANGE ? end : t + RANGE, 0);
    }
}

/* Computes blocks [begin, end) of row b. */
static void
convolve_row(const conv_job *j, workspace *work, int64_t b, int64_t begin, int64_t end,
             row_facts *facts)
{
    const spectra *s = j->spectra;
    const char *row = row_of(j->from, b, work->channel);
    for (int64_t h = begin; h < end; h++) {
        int exponent = 0;
        if (!may_transform(j, row, facts, h, &exponent)) {
            wide_block(j, work, b, h, facts);
            continue;
        }
        transform_inputs(j, row, h, j->plan.steps, exponent, work->cells);
        s->loops->from_spectrum(&s->plan, work->filter, work->cells);
        finish_block(j, b, work->channel, h, facts,
                     exponent + work->exponent + s->plan.exponent, work->cells);
    }
}

/* Convolves a range of the blocks of a slice of the batches of a channel. */
static void
convolve_unit(const conv_job *j, int64_t unit, workspace *work)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t slice = unit % s->slices, range = unit / s->slices % s->ranges;
    const int64_t c = unit / s->slices / s->ranges;
    const int64_t end = (slice + 1) * p->batches / s->slices;
    const int64_t first = range * s->plan.blocks / s->ranges;
    const int64_t past = (range + 1) * s->plan.blocks / s->ranges;
    const int64_t stop = past * s->plan.steps;
    transform_filter(j, work, c);
    for (int64_t b = slice * p->batches / s->slices; b < end; b += ROWS) {
        row_facts facts[ROWS];
        const int64_t count = end - b < ROWS ? end - b : ROWS;
        if (!work->good) {
            sum_steps(j, b, count, c, first * s->plan.steps,
                      stop < p->steps ? stop : p->steps);
            continue;
        }
        for (int64_t r = 0; r < count; r++) {
            inspect_row(j, row_of(j->from, b + r, c), &facts[r]);
        }
        if (range == 0) {
            sum_heads(j, b, count, c, facts);
        }
        for (int64_t r = 0; r < count; r++) {
            convolve_row(j, work, b + r, first, past, &facts[r]);
        }
    }
}

static workspace
workspace_of(const conv_job *j, int64_t task)
{
    const spectra *s = j->spectra;
    workspace work = {.filter = s->memory + task * s->task_bytes, .channel = -1};
    work.cells = work.filter + s->buffer;
    work.sums = work.cells + s->buffer;
    work.spectra_of = work.sums + s->buffer;
    work.roots = work.spectra_of + s->buffer;
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

/* Of a row of x and of its gradient: exponents, and their inf and nan. */
typedef struct row_sizes {
    int x, dy, odd; /* odd: at most MOST_ODD + 1 of each are counted */
} row_sizes;

static row_sizes *
sizes_of(const conv_job *j, int64_t c)
{
    return j->spectra->sizes + c * j->plan.batches;
}

static int
measure_row(const conv_job *j, const char *row, int *odd)
{
    const int64_t n = j->plan.steps;
    bool has_odd = false;
    const int e = size_of(j, row, n, &has_odd), most = *odd + MOST_ODD + 1;
    for (int64_t i = 0; has_odd && i < n && *odd < most; i++) {
        *odd += !are_finite(j, row + i * j->value_bytes, 1);
    }
    return e;
}

/* Task i: the sizes of row i, by c, then b. */
static void
measure_rows(void *context, int64_t i)
{
    const conv_job *j = context;
    const int64_t c = i / j->plan.batches, b = i % j->plan.batches;
    row_sizes *to = sizes_of(j, c) + b;
    to->odd = 0;
    to->x = measure_row(j, row_of(&j->x, b, c), &to->odd);
    to->dy = measure_row(j, row_of(&j->reversed, b, c), &to->odd);
}

/*
 * The exponent of the largest product of channel c, to which all rows are scaled; *odd
 * counts its inf and nan.
 */
static int
size_of_channel(const conv_job *j, int64_t c, int64_t *odd)
{
    const row_sizes *sizes = sizes_of(j, c);
    int most = 2 * j->spectra->least;
    *odd = 0;
    for (int64_t b = 0; b < j->plan.batches; b++) {
        const int both = sizes[b].x + sizes[b].dy;
        most = both > most ? both : most;
        *odd += sizes[b].odd;
    }
    return most;
}

/* Sums the spectra of blocks [begin, end), of one batch after the other, in `total`. */
static void
sum_spectra(const conv_job *j, int64_t c, int64_t begin, int64_t end, char *total,
            char *sum)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    char *x = sum + s->buffer, *dy = x + s->buffer;
    int64_t odd;
    const int most = size_of_channel(j, c, &odd), least = 2 * s->least;
    memset(total, 0, (size_t)s->buffer);
    memset(sum, 0, (size_t)s->buffer);
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / s->plan.blocks, h = i % s->plan.blocks;
        const int64_t first = h * s->plan.steps, left = p->steps - first;
        const int of_x = sizes_of(j, c)[b].x;
        /* a row far below the largest may underflow */
        const int of_dy = of_x - most > least ? of_x - most : least;
        transform_inputs(j, row_of(&j->x, b, c), h, p->steps, of_x, x);
        s->loops->transform(
            &s->plan, row_of(&j->reversed, b, c) + (left - 1) * j->value_bytes, -1,
            history_of(j, h), left < s->plan.steps ? left : s->plan.steps, of_dy, dy);
        s->loops->correlate(s->plan.cells, sum, dy, x);
        if ((i - begin + 1) % IN_A_ROW == 0) {
            fold_spectra(j, total, sum);
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

/* The gradient of the filter of channel c, from the sum of the spectra of all blocks. */
static void
finish_gradient(conv_job *j, int64_t c, char *total, char *lags)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    int64_t odd;
    const int most = size_of_channel(j, c, &odd);
    s->loops->from_spectrum(&s->plan, NULL, total);
    s->loops->collect(&s->plan, total, 0, p->lags, most + s->plan.exponent, lags);
    if (odd > MOST_ODD || !are_finite(j, lags, p->lags)) {
        conv_sum_gradient(j, c);
        return;
    }
    if (odd > 0) {
        add_odd_terms(j, c, lags);
    }
    conv_put(j, j->arrays.dw, c * p->taps + p->taps - 1, -1, p->lags, lags);
}

/* Task i: some units, each a part of the sum of a channel, or all of its gradient. */
static void
gradient_units(void *context, int64_t i)
{
    conv_job *j = context;
    const spectra *s = j->spectra;
    const int64_t blocks = j->plan.batches * s->plan.blocks;
    const int64_t units = j->plan.channels * s->parts;
    char *memory = s->memory + i * s->task_bytes;
    for (int64_t u = i * units / s->tasks; u < (i + 1) * units / s->tasks; u++) {
        const int64_t c = u / s->parts, part = u % s->parts;
        char *total = s->sums ? s->sums + u * s->buffer : memory;
        for (int64_t b = 0; b < j->plan.batches && !s->sums; b++) {
            measure_rows(j, c * j->plan.batches + b);
        }
        sum_spectra(j, c, part * blocks / s->parts, (part + 1) * blocks / s->parts,
                    total, memory + s->buffer);
        if (!s->sums) {
            finish_gradient(j, c, total, memory + s->buffer);
        }
    }
}

/* Task i: the gradient of some filters from the parts of their sums. */
static void
unite_parts(void *context, int64_t i)
{
    conv_job *j = context;
    const spectra *s = j->spectra;
    const int64_t channels = j->plan.channels;
    for (int64_t c = i * channels / s->tasks; c < (i + 1) * channels / s->tasks; c++) {
        char *total = s->sums + c * s->parts * s->buffer;
        for (int64_t part = 1; part < s->parts; part++) {
            fold_spectra(j, total, total + part * s->buffer);
        }
        finish_gradient(j, c, total, s->memory + i * s->task_bytes);
    }
}

void
conv_spectra_gradient(conv_job *j)
{
    const spectra *s = j->spectra;
    if (s->sums) {
        gpo_cpu_loop(j->parallel, j->plan.channels * j->plan.batches, measure_rows, j);
    }
    gpo_cpu_loop(j->parallel, s->tasks, gradient_units, j);
    if (s->sums) {
        gpo_cpu_loop(j->parallel, s->tasks, unite_parts, j);
    }
}

/* ---- cost model ---- */

/*
 * Nanoseconds for float32 on one thread of an EPYC with AVX-512: a forward and an
 * inverse transform per cell, and products per step and lag.  With AVX2 all take 1.7
 * times as long, float64 about twice.  The costs depend on the sizes alone, so that
 * neither the number of threads nor the vector width affects the choice of a variant.
 */
static double
cell_ns(int64_t levels)
{
    return 0.17 * (double)(levels - 7);
}

enum { TILE = 64 }; /* products with as many zeros around a filter, too */

/* Of all rows, in fours with the same filter and two or one at a time. */
static double
product_ns(int64_t batches)
{
    static const double left[ROWS] = {0, 0.022, 0.034, 0.040};
    const int64_t fours = batches / ROWS;
    return 0.040 * (double)fours + left[batches % ROWS];
}

/* Finds the cheapest block length; returns the cost of convolving all rows. */
static double
plan_blocks(const conv_plan *p, spectra_plan *s)
{
    enum { BLOCK_NS = 100, ROW_NS = 150 };
    const double step_ns = 0.35; /* checks and results */
    const double channels = (double)p->channels, rows = channels * (double)p->batches;
    const int64_t products = HEAD * (TILE + HEAD / 2);
    const double head = channels * (double)products * product_ns(p->batches);
    double least = INFINITY;
    *s = (spectra_plan){.cells = 0};
    int64_t blocks = 0;
    for (int64_t cells = BASE, levels = 8; blocks != 1; cells *= 2, levels++) {
        const int64_t steps = 2 * cells - p->lags + 1;
        if (steps < 1) {
            continue;
        }
        blocks = ceil_div(p->steps, steps);
        const double pair = (double)cells * cell_ns(levels);
        const double cost = head + channels * pair / 2 +
                            rows * (ROW_NS + (double)p->steps * step_ns +
                                    (double)blocks * (BLOCK_NS + pair));
        if (s->cells == 0 || cost < least) {
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
    enum { CALL_NS = 1500 }; /* besides a nanosecond per cell for its roots */
    const double lags = (double)p->lags, steps = (double)p->steps;
    const double terms = TILE + lags * (1 - (lags - 1) / 2 / steps);
    const double channels = (double)p->channels * steps * terms;
    double products = channels * product_ns(p->batches), transforms = 1;
    if (p->backward) {
        const double before_silu = p->silu ? 1 : 0;
        products *= 1 + before_silu;
        products += channels * (double)p->batches * 0.015;
        transforms = 1.8 + before_silu; /* dw has no heads */
    }
    if (p->lags <= SHORT_LAGS || p->steps <= HEAD || p->batches * p->channels == 0) {
        return false;
    }
    spectra_plan s;
    transforms *= plan_blocks(p, &s);
    return CALL_NS + (double)s.cells + transforms < 0.85 * products;
}

/* ---- start ---- */

/* Depends on the sizes alone, because the sum of a filter's gradient depends on it. */
static int64_t
parts_of_gradient(const conv_plan *p, const spectra *s)
{
    const int64_t blocks = p->batches * s->plan.blocks;
    const int64_t room = s->buffer > 0 ? MOST_SUMS / s->buffer / p->channels : 1;
    int64_t parts = ceil_div(PARTS, p->channels);
    parts = parts < room ? parts : room;
    parts = parts < blocks / 2 ? parts : blocks / 2;
    return p->backward && parts > 1 ? parts : 1;
}

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
    s.plan.exponent = -floor_log2(s.plan.cells);
    /* 2 sqrt(T) u must cover the error of a transform; see NOTES.md */
    const double error = transform_error(s.plan.cells);
    s.allowed = 4 * (double)p->steps / (error * error);
    s.most = j->dtype == GPO_F64 ? 1022 : 126;
    s.least = -s.most;
    s.ranges = ceil_div(WANTED, p->batches * p->channels);
    s.ranges = s.ranges < s.plan.blocks ? s.ranges : s.plan.blocks;
    s.slices = ceil_div(UNITS * threads, p->channels * s.ranges);
    s.slices = s.slices < p->batches ? s.slices : p->batches;
    s.units = p->channels * s.slices * s.ranges;
    s.buffer = length * j->value_bytes;
    s.parts = parts_of_gradient(p, &s);
    s.task_bytes = BUFFERS * s.buffer + s.buffer / 2;
    const int64_t room = MOST_MEMORY / s.task_bytes;
    const int64_t most =
        s.units > p->channels * s.parts ? s.units : p->channels * s.parts;
    s.tasks = most < 2 * threads ? most : 2 * threads;
    s.tasks = room < 1 ? 1 : s.tasks < room ? s.tasks : room;
    void *own = NULL, *memory = NULL, *roots = NULL, *angles = NULL, *sizes = NULL;
    void *sums = NULL;
    const int64_t turn = 4 * s.plan.cells, rows = p->batches * p->channels;
    gpo_status status = gpo_scratch(call, sizeof s, &own);
    if (!status) {
        status = gpo_scratch(call, (size_t)(s.tasks * s.task_bytes), &memory);
    }
    if (!status) {
        status = gpo_scratch(call, (size_t)(s.buffer / 2), &roots);
    }
    if (!status) {
        status =
            gpo_scratch(call, (size_t)gpo_root_doubles(turn) * sizeof(double), &angles);
    }
    if (!status && p->backward) {
        status = gpo_scratch(call, (size_t)rows * sizeof *s.sizes, &sizes);
    }
    if (!status && s.parts > 1) {
        status = gpo_scratch(call, (size_t)(p->channels * s.parts * s.buffer), &sums);
    }
    if (status) {
        return status;
    }
    s.source = gpo_root_tables_of(turn, angles);
    gpo_fill_root_tables(&s.source);
    fill_roots(j, &s.source, s.plan.cells, roots);
    s.memory = memory;
    s.sums = sums;
    s.sizes = sizes;
    s.plan.roots = roots;
    memcpy(own, &s, sizeof s);
    j->spectra = own;
    return GPO_OK;
}
