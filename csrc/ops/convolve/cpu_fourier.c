/*
 * cpu_fourier.c  convolve's long floating filters on the CPU, by Fourier transforms in
 * float64.  Order: cost model, transforms and threads, memory of a block, filters,
 * blocks, rows.
 *
 * The error of a transform is spread evenly, relative to the norm of all its inputs; a
 * sum may err by the norm of its own terms alone (NOTES.md, "Overlap-save").  So only
 * those sums of a block are used whose inputs have enough of its energy.  If the others
 * are few they are summed directly; else the block is recomputed by transforms whose
 * inputs are terms of every sum they reach.
 */
#include "cpu_fourier.h"

#include <math.h>
#include <string.h>

enum {
    LEAST_TAPS = 64,       /* shortest filter that is transformed */
    LEAST_LENGTH = 256,    /* shortest block, in elements */
    TASKS = 4,             /* per thread, for load balance */
    MOST_MEMORY = 1 << 29, /* bytes of concurrent blocks; above it, threads share one */
};

/*
 * A sum of a block errs by at most TRANSFORM_ERROR u log2(length) |v| |a|, u = 2^-53
 * and a the inputs of the block.  The largest observed is 0.63, over lengths from 64 to
 * 2^17 and all pairs of 13 kinds of real and 16 kinds of complex rows and filters.
 */
#define TRANSFORM_ERROR 0.75

/* ---- cost model ---- */

/* Measured on one thread of an EPYC with AVX-512. */
double
convolve_transform_cost(const job *j, int64_t length)
{
    const int64_t points = points_of(j, length);
    const double ns = points <= 1 << 12   ? 4
                      : points <= 1 << 14 ? 5
                      : points <= 1 << 16 ? 6
                      : points <= 1 << 18 ? 9
                                          : 16;
    return j->lanes == 2 ? 2 * ns : ns;
}

double
convolve_product_rate(const job *j)
{
    return (j->lane == LANE_DOUBLE ? 20.0 : 40.0) / (j->lanes * j->lanes);
}

/* Elements per chunk, the unit in which energies are measured. */
static int64_t
chunk_of(int64_t m)
{
    enum { PARTS = 8, MOST = 64 };
    return m / PARTS < MOST ? m / PARTS : MOST;
}

/*
 * The most energy (squared norm) of a block's inputs relative to that of a sum's inputs
 * at which sqrt(m) eps still covers TRANSFORM_ERROR log2(length) 2^-53.
 */
static double
allowed_of(const job *j, int64_t length)
{
    const double eps = j->lane == LANE_DOUBLE ? 0x1p-52 : 0x1p-23;
    const double passes = TRANSFORM_ERROR * log2((double)length) * 0x1p-53;
    return (double)j->plan->m * (eps / passes) * (eps / passes);
}

/* Whether rows of uniform magnitude pass, at half the allowance. */
static bool
suits_noise(const job *j, int64_t length)
{
    const int64_t m = j->plan->m, sure = m - chunk_of(m) - m % chunk_of(m);
    const int64_t inputs = length < j->plan->n ? length : j->plan->n;
    return (double)inputs <= allowed_of(j, length) / 2 * (double)sure;
}

bool
convolve_plan_fourier(const job *j, fourier_plan *f)
{
    enum { CALL_NS = 20000 };
    const convolve_plan *p = j->plan;
    double least = (double)p->count * (double)p->m / convolve_product_rate(j);
    const double rows = p->count_rows > 0 ? (double)p->count_rows : 1;
    /* per row, in block transforms: its share of the tables and of the filter */
    const double once = 0.4 / rows + (p->one_filter ? 0.5 / rows : 0.5);
    *f = (fourier_plan){.length = 0};
    if (j->lane < LANE_FLOAT || p->m < LEAST_TAPS) {
        return false;
    }
    const int64_t whole = p->n + p->m - 1;
    for (int64_t length = LEAST_LENGTH; length / 2 < whole; length *= 2) {
        const bool fits = length >= whole;
        const int64_t lead = fits ? 0 : p->m - 1;
        if (length <= 2 * lead || !suits_noise(j, length)) {
            continue;
        }
        const int64_t blocks = fits ? 1 : ceil_div(p->count, length - lead);
        const double cost = CALL_NS + ((double)blocks + once) * (double)length *
                                          convolve_transform_cost(j, length);
        if (cost < least) {
            least = cost;
            f->length = length;
            f->lead = lead;
            f->per_block = fits ? p->count : length - lead;
            f->blocks = blocks;
        }
    }
    return f->length > 0;
}

/* ---- transforms and threads ---- */

typedef struct step {
    const gpo_transform_work *work;
    int number;
} step;

static void
run_part(void *context, int64_t part)
{
    const step *s = context;
    gpo_transform_part(s->work, s->number, part);
}

void
convolve_transform(const job *j, const gpo_transform_work *work)
{
    step s = {work, 0};
    int64_t parts;
    while ((parts = gpo_transform_parts(work, s.number)) > 0) {
        gpo_cpu_loop(j->parallel, parts, run_part, &s);
        s.number++;
    }
}

static void
fill_part(void *context, int64_t part)
{
    gpo_transform_fill(context, part);
}

void
convolve_fill_tables(const job *j, const gpo_transform *t)
{
    gpo_transform own = *t;
    gpo_transform_start(&own);
    gpo_cpu_loop(j->parallel, gpo_transform_table_parts(&own), fill_part, &own);
}

/* ---- memory of a block ---- */

static int64_t
block_doubles(const fourier *f)
{
    return 2 * f->transform.points;
}

/* Rounds bytes up to a multiple of the alignment. */
static size_t
aligned(int64_t bytes)
{
    return (size_t)ceil_div(bytes, GPO_TRANSFORM_ALIGNMENT) * GPO_TRANSFORM_ALIGNMENT;
}

/* Workspace per task: pieces, block, cells, own filter's cells, energies, verdicts. */
static size_t
task_bytes(const fourier *f)
{
    const int64_t spectra = f->own_filters ? 3 : 2;
    return aligned(f->workers * (int64_t)convolve_piece_bytes()) +
           aligned(spectra * block_doubles(f) * (int64_t)sizeof(double)) +
           aligned(3 * f->chunks * (int64_t)sizeof(double)) + aligned(f->chunks);
}

static block
block_in(const fourier *f, void *memory)
{
    block b = {.pieces = memory};
    b.x = (double *)((char *)memory +
                     aligned(f->workers * (int64_t)convolve_piece_bytes()));
    b.cells = b.x + block_doubles(f);
    b.energies = b.cells + block_doubles(f);
    if (f->own_filters) {
        b.filter.cells = b.energies;
        b.energies += block_doubles(f);
    }
    b.verdicts = (char *)b.energies + aligned(3 * f->chunks * (int64_t)sizeof(double));
    return b;
}

/* ---- filters ---- */

/* Computes the spectrum of v in b->filter, using b->x as a buffer. */
static void
transform_filter(const fourier *f, const char *v, block *b)
{
    const gpo_transform_work work = {&f->transform, b->x, b->filter.cells, NULL};
    b->filter.exponent = convolve_read_filter(f, v, b->x);
    convolve_transform(f->job, &work);
}

/* Computes the spectrum of row `row`'s filter in f->filters. */
static void
keep_filter(void *context, int64_t row, void *memory)
{
    const fourier *f = context;
    const char *a, *v;
    block b = block_in(f, memory);
    convolve_find_row(f->job, row, &a, &v);
    b.filter.cells = f->filters[row].cells;
    transform_filter(f, v, &b);
    f->filters[row].exponent = b.filter.exponent;
}

static gpo_status
keep_filters(fourier *f, bool side_by_side)
{
    const int64_t count = f->job->plan->one_filter ? 1 : f->job->plan->count_rows;
    void *cells = NULL, *filters = NULL;
    gpo_status status =
        gpo_scratch(f->call, (size_t)count * sizeof *f->filters, &filters);
    if (!status) {
        status = gpo_scratch(
            f->call, (size_t)(count * block_doubles(f)) * sizeof(double), &cells);
    }
    if (status) {
        return status;
    }
    f->filters = filters;
    for (int64_t k = 0; k < count; k++) {
        f->filters[k].cells = (double *)cells + k * block_doubles(f);
    }
    return gpo_cpu_work(f->call, side_by_side, count, task_bytes(f), keep_filter, f);
}

/* ---- blocks ---- */

/* Reads block `number` of row b->row, whose addresses and filter are known. */
static void
read_block(const fourier *f, block *b, int64_t number)
{
    const fourier_plan *plan = &f->plan;
    const convolve_plan *p = f->job->plan;
    const int64_t done = number * plan->per_block, left = p->count - done;
    b->first = p->first + done;
    b->n = left < plan->per_block ? left : plan->per_block;
    b->start = plan->lead > 0 ? b->first - plan->lead : 0;
    b->skip = plan->lead > 0 ? plan->lead : b->first;
    convolve_read_block(f, b);
}

static void
convolve_block(const fourier *f, block *b, int64_t number)
{
    const gpo_transform_work work = {&f->transform, b->x, b->cells, b->filter.cells};
    const int lanes = f->job->lanes;
    read_block(f, b, number);
    f->wide[b->row * f->plan.blocks + number] = b->wide;
    if (!b->wide) {
        double *sums = b->x + b->skip * lanes;
        convolve_transform(f->job, &work);
        convolve_scale(sums, b->n * lanes, b->exponent + b->filter.exponent);
        convolve_write_block(f, b, sums);
    }
}

/* Computes block `item`, counted over all rows, with a spectrum of f->filters. */
static void
run_block(void *context, int64_t item, void *memory)
{
    const fourier *f = context;
    block b = block_in(f, memory);
    b.row = item / f->plan.blocks;
    b.filter = f->filters[f->job->plan->one_filter ? 0 : b.row];
    convolve_find_row(f->job, b.row, &b.a, &b.v);
    convolve_block(f, &b, item % f->plan.blocks);
}

/* Computes a range of rows; adjacent rows with the same filter transform it once. */
static void
run_rows(void *context, int64_t task, void *memory)
{
    const fourier *f = context;
    const int64_t rows = f->job->plan->count_rows;
    const char *transformed = NULL;
    block b = block_in(f, memory);
    for (b.row = task * rows / f->tasks; b.row < (task + 1) * rows / f->tasks;
         b.row++) {
        convolve_find_row(f->job, b.row, &b.a, &b.v);
        if (b.v != transformed) {
            transform_filter(f, b.v, &b);
            transformed = b.v;
        }
        for (int64_t number = 0; number < f->plan.blocks; number++) {
            convolve_block(f, &b, number);
        }
    }
}

/* ---- rows ---- */

/* Whether `count` tasks run concurrently; if not, threads share each transform. */
static bool
are_side_by_side(fourier *f, int64_t count)
{
    const int64_t threads = f->job->parallel ? gpo_cpu_threads() : 1;
    const int64_t bytes = threads * (int64_t)task_bytes(f);
    const bool side_by_side =
        f->transform.points < SHARED ||
        (count >= TASKS * threads && bytes <= (int64_t)MOST_MEMORY);
    f->workers = side_by_side ? 1 : threads;
    return f->job->parallel && side_by_side;
}

/* Computes all blocks except the wide ones, which are marked in f->wide. */
static gpo_status
run_plain_blocks(fourier *f)
{
    const convolve_plan *p = f->job->plan;
    const int64_t threads = gpo_cpu_threads(), most = 2 * TASKS * threads;
    f->own_filters = !p->one_filter && p->count_rows >= 2 * threads;
    if (f->own_filters) {
        f->tasks = p->count_rows < most ? p->count_rows : most;
        const bool side_by_side = are_side_by_side(f, f->tasks);
        return gpo_cpu_work(f->call, side_by_side, f->tasks, task_bytes(f), run_rows,
                            f);
    }
    const int64_t blocks = p->count_rows * f->plan.blocks;
    const gpo_status status = keep_filters(f, are_side_by_side(f, p->count_rows));
    if (status) {
        return status;
    }
    const bool side_by_side = are_side_by_side(f, blocks);
    return gpo_cpu_work(f->call, side_by_side, blocks, task_bytes(f), run_block, f);
}

/* Computes the blocks marked in f->wide one at a time, each on all threads. */
static gpo_status
run_wide_blocks(fourier *f)
{
    const int64_t blocks = f->job->plan->count_rows * f->plan.blocks;
    const char *at = memchr(f->wide, 1, (size_t)blocks), *end = f->wide + blocks;
    wide_room *room = NULL;
    void *memory = NULL;
    gpo_status status = GPO_OK;
    f->own_filters = false;
    f->workers = f->job->parallel ? gpo_cpu_threads() : 1;
    if (at) {
        status = gpo_scratch(f->call, task_bytes(f), &memory);
    }
    while (at && !status) {
        block b = block_in(f, memory);
        b.row = (at - f->wide) / f->plan.blocks;
        convolve_find_row(f->job, b.row, &b.a, &b.v);
        b.filter.exponent = convolve_read_filter(f, b.v, b.x);
        read_block(f, &b, (at - f->wide) % f->plan.blocks);
        status = convolve_run_wide(f, &room, &b);
        at = memchr(at + 1, 1, (size_t)(end - (at + 1)));
    }
    return status;
}

gpo_status
convolve_run_fourier(gpo_call *call, const job *j, const fourier_plan *plan)
{
    const convolve_plan *p = j->plan;
    fourier f = {.call = call, .job = j, .plan = *plan, .workers = 1};
    void *tables = NULL, *wide = NULL;
    f.transform =
        gpo_transform_plan(points_of(j, plan->length), j->lanes == 1, gpo_cpu_isa());
    f.chunk = chunk_of(p->m);
    f.chunks = ceil_div(plan->length, f.chunk);
    f.allowed = allowed_of(j, plan->length);
    if (p->count_rows == 0) {
        return GPO_OK;
    }
    gpo_status status = gpo_scratch(
        call, (size_t)gpo_transform_doubles(&f.transform) * sizeof(double), &tables);
    if (!status) {
        status = gpo_scratch(call, (size_t)(p->count_rows * plan->blocks), &wide);
    }
    if (!status) {
        f.transform.tables = tables;
        f.wide = wide;
        convolve_fill_tables(j, &f.transform);
        status = run_plain_blocks(&f);
    }
    return status ? status : run_wide_blocks(&f);
}
