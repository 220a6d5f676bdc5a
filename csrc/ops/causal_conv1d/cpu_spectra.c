/*
 * cpu_spectra.c  causal_conv1d and its backward on the CPU by Fourier transforms.  Order:
 * one transform, the three instruction sets, the transforms of a job, convolution,
 * gradients of the filters, what they cost, start.  Inner loops stand in cpu_spectra.inc.
 *
 * Channels go into the lanes of a vector, so that one pass transforms a row of each; long
 * rows go block by block.  A filter's gradient is the sum of the spectra of all blocks,
 * transformed back once.
 */
#include "../../core/elements.h"
#include "cpu.h"

#include <string.h>

/* ---- one transform ---- */

/*
 * The convolution of a row with a filter of `lags` in blocks of 2 * cells inputs: a block
 * begins lags - 1 inputs before the first of its `steps` results (overlap-save).
 */
typedef struct spectra_plan {
    int64_t cells;        /* a power of two, 4 or more */
    int64_t steps;        /* 2 * cells - lags + 1 */
    int64_t blocks;       /* of a row */
    double scale;         /* what a product of two spectra is too large by */
    const void *roots;    /* exp(-2 pi i k / (2 cells)), k in [0, 2 cells) */
    const int32_t *place; /* where bin k stands */
} spectra_plan;

typedef struct spectra_loops {
    int64_t lanes; /* rows that are transformed at once */
    void (*to_spectrum)(const spectra_plan *s, void *cells);
    void (*from_spectrum)(const spectra_plan *s, void *cells);
    void (*multiply)(int64_t n, void *cells, const void *factor);
    void (*correlate)(int64_t n, void *sum, const void *y, const void *x);
    bool (*is_wide)(const void *row, int64_t n);
    void (*spread)(const spectra_plan *s, const void *const *rows, int64_t step,
                   int64_t before, int64_t n, void *cells);
    void (*collect)(const spectra_plan *s, const void *cells, int64_t first, int64_t n,
                    int64_t pitch, void *to);
} spectra_loops;

enum { SIGNIFICAND_float = 23, SIGNIFICAND_double = 52 };
#define SIGN_float INT32_MIN
#define SIGN_double INT64_MIN

/* ---- the three instruction sets ---- */

#define ISA(name) name##_base
#define VECTOR_BYTES 16
#include "cpu_spectra.inc"
#undef ISA

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define ISA(name) name##_v3
#define VECTOR_BYTES 32
#include "cpu_spectra.inc"
#undef ISA
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define ISA(name) name##_v4
#define VECTOR_BYTES 64
#include "cpu_spectra.inc"
#undef ISA
#pragma GCC pop_options
#else
#define spectra_v3 spectra_base
#define spectra_v4 spectra_base
#endif

/* ---- the transforms of a job ---- */

typedef struct spectra {
    const spectra_loops *loops;
    spectra_plan plan;
    int64_t groups;       /* of channels, a lane each */
    int64_t slices;       /* of batches */
    int64_t units, tasks; /* a unit is a slice of a group, a task some of them */
    int64_t buffer;       /* bytes of the cells of a group */
    char *memory;         /* BUFFERS for each task */
} spectra;

enum {
    BUFFERS = 4,
    IN_A_ROW = 64, /* spectra that are added before they go into a total */
    AT_ONCE = 128, /* steps that are taken out of the lanes together */
    MOST_LANE_BYTES = 64,
    MOST_LANES = MOST_LANE_BYTES / sizeof(float),
    UNITS = 16, /* as many are wanted: with few groups, batches are cut, too */
    MOST_MEMORY = 1 << 29, /* bytes of buffers: fewer tasks where they are long */
};

static bool
are_finite(const conv_job *j, const void *x, int64_t n)
{
    return j->dtype == GPO_F64 ? finite_double(x, n) : finite_float(x, n);
}

/* Row b of each lane's channel, `offset` values on; lanes without one have the last. */
static void
rows_of_group(const conv_job *j, const value_rows *rows, int64_t b, int64_t group,
              int64_t offset, const void **at)
{
    const spectra *s = j->spectra;
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        const int64_t c = group * s->loops->lanes + lane, last = j->plan.channels - 1;
        at[lane] = row_of(rows, b, c < last ? c : last) + offset * j->value_bytes;
    }
}

/* Adds to wide[lane] whether row b of the lane's channel holds n values that are. */
static void
find_wide(const conv_job *j, const value_rows *rows, int64_t b, int64_t group,
          int64_t n, bool *wide)
{
    const spectra *s = j->spectra;
    const void *at[MOST_LANES];
    rows_of_group(j, rows, b, group, 0, at);
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        wide[lane] = wide[lane] || s->loops->is_wide(at[lane], n);
    }
}

/* Block h of row b of a group, and the lags - 1 inputs before it. */
static void
read_inputs(const conv_job *j, const value_rows *rows, int64_t b, int64_t group,
            int64_t h, void *cells)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t start = h * s->plan.steps - (p->lags - 1);
    const int64_t before = start < 0 ? -start : 0, first = start + before;
    const int64_t left = p->steps - first, room = 2 * s->plan.cells - before;
    const void *at[MOST_LANES];
    rows_of_group(j, rows, b, group, first, at);
    s->loops->spread(&s->plan, at, 1, before, left < room ? left : room, cells);
    s->loops->to_spectrum(&s->plan, cells);
}

/*
 * What a block in `cells` holds of a group's rows.  Wide rows are convolved anew, term by
 * term, and so are values that have become no number on the way.
 */
static void
finish_block(const conv_job *j, int64_t b, int64_t group, int64_t h, const bool *wide,
             const void *cells)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t first = h * s->plan.steps, left = p->steps - first;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    _Alignas(64) char sums[MOST_LANE_BYTES * AT_ONCE];
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        const int64_t some = n - k < AT_ONCE ? n - k : AT_ONCE, t = first + k;
        s->loops->collect(&s->plan, cells, p->lags - 1 + k, some, AT_ONCE, sums);
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            const int64_t c = group * s->loops->lanes + lane;
            char *sum = sums + lane * AT_ONCE * j->value_bytes;
            if (c < p->channels && !wide[lane] && are_finite(j, sum, some)) {
                conv_finish(j, b, c, t, some, sum);
            }
            else if (c < p->channels) {
                conv_sum_rows(j, b, 1, c, t, t + some);
            }
        }
    }
}

/* ---- convolution ---- */

/* All blocks of a slice of batches of a group. */
static void
convolve_unit(const conv_job *j, int64_t unit, char *memory)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    const int64_t group = unit % s->groups, slice = unit / s->groups;
    const value_rows filters = {j->filters + PAD * j->value_bytes, 0,
                                j->filter_pitch * j->value_bytes};
    char *filter = memory, *cells = memory + s->buffer;
    const void *at[MOST_LANES];
    rows_of_group(j, &filters, 0, group, 0, at);
    s->loops->spread(&s->plan, at, 1, 0, p->lags, filter);
    s->loops->to_spectrum(&s->plan, filter);
    bool wide_filters[MOST_LANES] = {false};
    find_wide(j, &filters, 0, group, p->lags, wide_filters);
    const int64_t end = (slice + 1) * p->batches / s->slices;
    for (int64_t b = slice * p->batches / s->slices; b < end; b++) {
        bool wide[MOST_LANES];
        memcpy(wide, wide_filters, sizeof wide);
        find_wide(j, j->from, b, group, p->steps, wide);
        for (int64_t h = 0; h < s->plan.blocks; h++) {
            read_inputs(j, j->from, b, group, h, cells);
            s->loops->multiply(s->plan.cells, cells, filter);
            s->loops->from_spectrum(&s->plan, cells);
            finish_block(j, b, group, h, wide, cells);
        }
    }
}

/* Task i: some units of the convolution in hand. */
static void
convolve_units(void *context, int64_t i)
{
    const conv_job *j = context;
    const spectra *s = j->spectra;
    for (int64_t u = i * s->units / s->tasks; u < (i + 1) * s->units / s->tasks; u++) {
        convolve_unit(j, u, s->memory + i * BUFFERS * s->buffer);
    }
}

void
conv_spectra_convolve(conv_job *j)
{
    gpo_cpu_loop(j->parallel, j->spectra->tasks, convolve_units, j);
}

/* ---- gradients of the filters ---- */

#define FOLD(V)                                                    \
    for (int64_t i = 0; i < s->buffer / (int64_t)sizeof(V); i++) { \
        ((V *)total)[i] += ((V *)sum)[i];                          \
        ((V *)sum)[i] = 0;                                         \
    }

/* total += sum, which begins anew */
static void
fold_spectra(const conv_job *j, void *restrict total, void *restrict sum)
{
    const spectra *s = j->spectra;
    if (j->dtype == GPO_F64) {
        FOLD(double)
    }
    else {
        FOLD(float)
    }
}

/* The gradients of a group's filters, out of the sum of the spectra of all blocks. */
static void
gradient_unit(conv_job *j, int64_t group, char *memory)
{
    const spectra *s = j->spectra;
    const conv_plan *p = &j->plan;
    char *total = memory, *sum = total + s->buffer;
    char *x = sum + s->buffer, *dy = x + s->buffer;
    bool wide[MOST_LANES] = {false};
    int64_t added = 0;
    memset(total, 0, (size_t)(2 * s->buffer));
    for (int64_t b = 0; b < p->batches; b++) {
        find_wide(j, &j->x, b, group, p->steps, wide);
        find_wide(j, &j->reversed, b, group, p->steps, wide);
        for (int64_t h = 0; h < s->plan.blocks; h++) {
            const int64_t first = h * s->plan.steps, left = p->steps - first;
            const void *at[MOST_LANES];
            read_inputs(j, &j->x, b, group, h, x);
            rows_of_group(j, &j->reversed, b, group, p->steps - 1 - first, at);
            s->loops->spread(&s->plan, at, -1, p->lags - 1,
                             left < s->plan.steps ? left : s->plan.steps, dy);
            s->loops->to_spectrum(&s->plan, dy);
            s->loops->correlate(s->plan.cells, sum, dy, x);
            if (++added % IN_A_ROW == 0) {
                fold_spectra(j, total, sum);
            }
        }
    }
    fold_spectra(j, total, sum);
    s->loops->from_spectrum(&s->plan, total);
    _Alignas(64) char lags[MOST_LANE_BYTES * AT_ONCE];
    const int64_t lanes = s->loops->lanes, left = p->channels - group * lanes;
    const int64_t channels = left < lanes ? left : lanes;
    for (int64_t k = 0; k < p->lags; k += AT_ONCE) {
        const int64_t some = p->lags - k < AT_ONCE ? p->lags - k : AT_ONCE;
        s->loops->collect(&s->plan, total, k, some, AT_ONCE, lags);
        for (int64_t lane = 0; lane < channels; lane++) {
            const int64_t c = group * lanes + lane;
            const char *lag = lags + lane * AT_ONCE * j->value_bytes;
            wide[lane] = wide[lane] || !are_finite(j, lag, some);
            conv_put(j, p->dw, c * p->taps + p->taps - 1 - k, -1, some, lag);
        }
    }
    for (int64_t lane = 0; lane < channels; lane++) {
        if (wide[lane]) {
            conv_sum_gradient(j, group * lanes + lane);
        }
    }
}

/* Task i: some groups of the filters. */
static void
gradient_units(void *context, int64_t i)
{
    conv_job *j = context;
    const spectra *s = j->spectra;
    for (int64_t g = i * s->groups / s->tasks; g < (i + 1) * s->groups / s->tasks;
         g++) {
        gradient_unit(j, g, s->memory + i * BUFFERS * s->buffer);
    }
}

void
conv_spectra_gradient(conv_job *j)
{
    gpo_cpu_loop(j->parallel, j->spectra->tasks, gradient_units, j);
}

/* ---- what they cost ---- */

/*
 * What a thread of an EPYC with AVX2 takes, in nanoseconds of float32: the transforms of a
 * cell of eight rows, there and back, and a sum's products.  float64 takes some 2.5 times
 * as long either way.  Both are functions of the sizes alone, so that neither the number of
 * threads nor the machine's vectors choose a variant.
 */
static double
cell_ns(int64_t cells, int64_t levels)
{
    enum { IN_L2 = 1024 };
    return (8 + 1.2 * (double)levels) * (cells > IN_L2 ? 2 : 1);
}

/* Of `batches` rows that meet one filter: four, two or one at a time. */
static double
product_ns(int64_t batches)
{
    static const double left[ROWS] = {0, 0.1, 0.13, 0.16};
    const int64_t fours = batches / ROWS;
    return 0.16 * (double)fours + left[batches % ROWS];
}

/* Blocks of the length that costs least; gives the cost of a convolution of all rows. */
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
conv_spectra_pay(const conv_plan *p, bool backward)
{
    const double terms =
        (double)p->lags * ((double)p->steps - ((double)p->lags - 1) / 2);
    const double channels = (double)p->channels * terms;
    double products = channels * product_ns(p->batches), transforms = 1;
    if (backward) {
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

/* roots[k] = exp(-2 pi i k / n), k in [0, n), from products of two of fewer. */
#define DEFINE_ROOTS(V)                                                        \
    static void roots_##V(int64_t n, V *roots)                                 \
    {                                                                          \
        enum { FINE = 64 };                                                    \
        const double step = -6.283185307179586 / (double)n;                    \
        double re[FINE], im[FINE];                                             \
        for (int k = 0; k < FINE; k++) {                                       \
            re[k] = cos(step * k);                                             \
            im[k] = sin(step * k);                                             \
        }                                                                      \
        for (int64_t k = 0; k < n; k += FINE) {                                \
            const double c = cos(step * (double)k), s = sin(step * (double)k); \
            for (int64_t i = 0; i < FINE && k + i < n; i++) {                  \
                roots[2 * (k + i)] = (V)(c * re[i] - s * im[i]);               \
                roots[2 * (k + i) + 1] = (V)(c * im[i] + s * re[i]);           \
            }                                                                  \
        }                                                                      \
    }

DEFINE_ROOTS(float)
DEFINE_ROOTS(double)

/* Bins first, first + step, .. of n cells stand at `place` from `base` on. */
static void
fill_places(int32_t *place, int64_t base, int64_t n, int64_t first, int64_t step)
{
    if (n <= 2) {
        for (int64_t k = 0; k < n; k++) {
            place[first + k * step] = (int32_t)(base + k);
        }
        return;
    }
    for (int64_t r = 0; r < 4; r++) {
        fill_places(place, base + r * (n / 4), n / 4, first + r * step, 4 * step);
    }
}

gpo_status
conv_spectra_start(gpo_call *call, conv_job *j)
{
    static const spectra_loops *const tables[GPO_NISA] = {spectra_base, spectra_v3,
                                                          spectra_v4};
    const conv_plan *p = &j->plan;
    if (p->batches * p->channels * p->lags == 0) {
        return GPO_OK;
    }
    spectra s = {.loops = &tables[gpo_cpu_isa()][j->dtype == GPO_F64]};
    plan_blocks(p, &s.plan);
    const int64_t length = 2 * s.plan.cells, threads = gpo_cpu_threads();
    s.plan.scale = 1 / (4 * (double)length);
    s.groups = ceil_div(p->channels, s.loops->lanes);
    s.slices = ceil_div(UNITS, s.groups);
    s.slices = s.slices < p->batches ? s.slices : p->batches;
    s.units = s.groups * s.slices;
    s.buffer = length * s.loops->lanes * j->value_bytes;
    const int64_t room = MOST_MEMORY / (BUFFERS * s.buffer);
    s.tasks = s.units < 2 * threads ? s.units : 2 * threads;
    s.tasks = room < 1 ? 1 : s.tasks < room ? s.tasks : room;
    void *own = NULL, *memory = NULL, *roots = NULL, *place = NULL;
    gpo_status status = gpo_scratch(call, sizeof s, &own);
    if (!status) {
        status = gpo_scratch(call, (size_t)(s.tasks * BUFFERS * s.buffer), &memory);
    }
    if (!status) {
        status = gpo_scratch(call, (size_t)(2 * length * j->value_bytes), &roots);
    }
    if (!status) {
        status =
            gpo_scratch(call, (size_t)s.plan.cells * sizeof(*s.plan.place), &place);
    }
    if (status) {
        return status;
    }
    if (j->dtype == GPO_F64) {
        roots_double(length, roots);
    }
    else {
        roots_float(length, roots);
    }
    fill_places(place, 0, s.plan.cells, 0, 1);
    s.memory = memory;
    s.plan.roots = roots;
    s.plan.place = place;
    memcpy(own, &s, sizeof s);
    j->spectra = own;
    return GPO_OK;
}
