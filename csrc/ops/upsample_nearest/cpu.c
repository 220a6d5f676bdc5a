/*
 * cpu.c  upsample_nearest and its backward on the CPU.  Order: the inner loops of three
 * instruction sets, the job, forward, backward, the variants, choose.
 * See elements.h for element types, rows.h for rows and the tables of first outputs,
 * move.inc and sum.inc for the inner loops, scalar.h for the variants `scalar`.
 *
 * Work goes by rows of the smaller side: a row of x is read once and makes one row of
 * the result, of which the other rows from it are copies; a row of dx collects rows of
 * dy in memory order.  Rows are cut into pieces that stay in the cache.
 */
#include "elements.h"
#include "rows.h"

#include "../../backend/backend.h"
#include "../../core/integers.h"
#include "../../core/prefetch.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* ---- the inner loops of three instruction sets ---- */

/* Loops that copy elements: see move.inc. */
typedef struct moves {
    void (*twice)(void *to, const void *from, int64_t n);
    void (*pick)(void *to, const void *from, const int32_t *at, int64_t n);
} moves;

/* Loops that add elements: see sum.inc. */
typedef struct sums {
    void (*add)(void *acc, const void *y, int64_t n);
    void (*add_runs)(void *acc, const void *y, int run, int64_t n);
    void (*add_pixels)(void *acc, const void *y, int64_t inner, const int64_t *first,
                       int64_t n);
    void (*collect)(void *acc, int64_t step, const void *y, int64_t across,
                    const int64_t *first, int64_t n);
    void (*round)(void *to, const void *acc, int64_t n);
    void (*widen)(const void *y, int64_t n, void *to); /* of 16-bit floats */
} sums;

/* The outputs of even and of odd elements that vectors add. */
static const int runs[][2] = {{2, 2}, {2, 1}, {1, 0}, {3, 3}, {4, 4}};
enum {
    LONGEST = 4,
    PIECE = 256, /* runs of 16-bit floats that are widened at once */
};

#define GPO_LOOPS "../ops/upsample_nearest/loops.inc"
#include "../../core/each_isa.h"

#include "scalar.h"

static const moves *const moves_of[GPO_NISA] = GPO_EACH_ISA(moves);
static const sums *const sums_of[GPO_NISA] = GPO_EACH_ISA(sums);

/* ---- the job: what every task of one call reads ---- */

enum {
    TASK_BYTES = 1 << 16, /* of the larger side, in one task: a row stays in L2 */
    PIXEL_BYTES = 32,     /* of contiguous channels that are worth a separate call */
    BLOCK = 512,          /* sums at once: 8 KiB of the widest */
    WIDE = 2048,          /* 16-bit floats that are widened at once */
};

/* How a row of `from` becomes a row of `to`. */
typedef enum row_mode { SAME, TWICE, RUNS, PIXELS, ANY } row_mode;

typedef struct job {
    const upsample_nearest_plan *plan;
    const char *from;
    char *to;
    moves moves;
    sums sums;
    int64_t value_bytes; /* of a sum */
    row_mode mode;
    int32_t *at; /* ANY forward: where each element of a row comes from */
    int64_t
        *first[UPSAMPLE_SPATIAL]; /* the first output of each element, and the end */
    int run;                      /* RUNS: see runs[]... */
    int64_t regular;              /* ...of the first so many elements */
    int64_t wide;                 /* pixels of dx whose 16-bit floats are widened */
    int64_t block;                /* sums at once: whole pixels, if these are packed */
    bool is_packed;
    int64_t group;  /* rows of a task */
    int64_t piece;  /* elements of W of a task, on the larger side; even */
    int64_t pieces; /* of a row */
} job;

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static const char *
row_from(const job *j, const row_index *r, int64_t d, int64_t h)
{
    const int64_t *stride = j->plan->stride;
    return j->from + (r->a * stride[UPSAMPLE_A] + r->b * stride[UPSAMPLE_B] +
                      d * stride[UPSAMPLE_D] + h * stride[UPSAMPLE_H]) *
                         j->plan->bytes;
}

/* Fills first[], of W only if `wide`, and returns `more` bytes of memory as well. */
static gpo_status
set_first(gpo_call *call, job *j, bool wide, size_t more, void **memory)
{
    const upsample_axis *axis = j->plan->axis;
    const int64_t depth = axis[0].in + 1, height = axis[1].in + 1;
    const int64_t width = wide ? axis[2].in + 1 : 0;
    gpo_status status = gpo_scratch(
        call, (size_t)(depth + height + width) * sizeof *j->first[0] + more, memory);
    if (status) {
        return status;
    }
    j->first[0] = *memory;
    j->first[1] = j->first[0] + depth;
    j->first[2] = j->first[1] + height;
    *memory = j->first[2] + width;
    for (int d = 0; d < (wide ? 3 : 2); d++) {
        fill_first(&axis[d], j->first[d]);
    }
    return GPO_OK;
}

static row_mode
mode_of(const upsample_nearest_plan *p)
{
    const upsample_axis *w = &p->axis[2];
    if (p->packed && w->log == 0) {
        return SAME;
    }
    if (p->packed && w->log == 1 && p->inner == 1) {
        return TWICE;
    }
    if (p->stride[UPSAMPLE_I] == 1 && p->inner * p->bytes >= PIXEL_BYTES) {
        return PIXELS;
    }
    return ANY;
}

static void
run_tasks(job *j, bool parallel, void (*body)(void *context, int64_t i))
{
    const int64_t tasks = ceil_div(j->plan->rows, j->group) * j->pieces;
    gpo_cpu_loop(parallel, tasks, body, j);
}

/* ---- forward ---- */

/* Outputs [w, end) of a row. */
static void
forward_piece(const job *j, char *to, const char *from, int64_t w, int64_t end)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t pixel = p->inner * p->bytes;
    switch (j->mode) {
        case SAME:
            memcpy(to, from + w * pixel, (size_t)((end - w) * pixel));
            break;
        case TWICE: /* w and end are even */
            j->moves.twice(to, from + w / 2 * p->bytes, (end - w) / 2);
            break;
        case PIXELS:
            for (int64_t i = w; i < end; i++) {
                memcpy(to + (i - w) * pixel,
                       from +
                           source_of(&p->axis[2], i) * p->stride[UPSAMPLE_W] * p->bytes,
                       (size_t)pixel);
            }
            break;
        default:
            j->moves.pick(to, from, j->at + w * p->inner, (end - w) * p->inner);
            break;
    }
}

/* Task i: a piece of a group of rows of x, and all rows of the result from them. */
static void
forward_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_nearest_plan *p = j->plan;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1];
    const int64_t pixel = p->inner * p->bytes, width = p->axis[2].out;
    const int64_t row_bytes = p->row * p->bytes;
    const int64_t start = i / j->pieces * j->group;
    const int64_t stop = least(start + j->group, p->rows);
    const int64_t w = i % j->pieces * j->piece, end = least(w + j->piece, width);
    row_index r = row_of(p, start);
    for (int64_t t = start; t < stop; t++, next_row(p, &r)) {
        const int64_t d0 = j->first[0][r.d], d1 = j->first[0][r.d + 1];
        const int64_t h0 = j->first[1][r.h], h1 = j->first[1][r.h + 1];
        const char *made = NULL;
        for (int64_t d = d0; d < d1; d++) {
            const int64_t plane =
                ((r.a * p->channels + r.b) * depth->out + d) * height->out;
            for (int64_t h = h0; h < h1; h++) {
                char *to = j->to + (plane + h) * row_bytes + w * pixel;
                if (made) {
                    memcpy(to, made, (size_t)((end - w) * pixel));
                    continue;
                }
                forward_piece(j, to, row_from(j, &r, r.d, r.h), w, end);
                made = to;
            }
        }
    }
}

/* Cuts rows of the result, of which `fed` are made from one row of x. */
static void
cut(job *j, int64_t fed)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t width = p->axis[2].out;
    const int64_t piece = (TASK_BYTES / (p->inner * p->bytes) + 2) & ~(int64_t)1;
    j->piece = least(piece, width + (width & 1));
    j->pieces = ceil_div(width, j->piece);
    j->group = j->pieces > 1 ? 1 : TASK_BYTES / (p->row * p->bytes * (fed + 1)) + 1;
}

static gpo_status
forward(gpo_call *call, bool parallel)
{
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1], *w = &p->axis[2];
    if (p->size == 0) {
        return GPO_OK;
    }
    job j = {
        .plan = p,
        .from = call->in[0].data,
        .to = call->out[0].data,
        .moves = moves_of[gpo_cpu_isa()][mover_of(call->out[0].dtype)],
        .mode = mode_of(p),
    };
    const bool picks = j.mode == ANY;
    if (picks && p->reach >= INT32_MAX) { /* beyond what j.at can hold */
        return scalar_forward(call);
    }
    void *memory = NULL;
    gpo_status status =
        set_first(call, &j, false, picks ? (size_t)p->row * sizeof *j.at : 0, &memory);
    if (status) {
        return status;
    }
    j.at = memory;
    for (int64_t i = 0, e = 0; picks && i < w->out; i++) {
        const int64_t source = source_of(w, i) * p->stride[UPSAMPLE_W];
        for (int64_t c = 0; c < p->inner; c++, e++) {
            j.at[e] = (int32_t)(source + c * p->stride[UPSAMPLE_I]);
        }
    }
    cut(&j, depth->out / depth->in * (height->out / height->in));
    run_tasks(&j, parallel, forward_task);
    return GPO_OK;
}

/* ---- backward ---- */

/* Adds one packed row of dy to pixels [w, w + n) of a row of dx. */
static void
add_packed(const job *j, char *acc, const char *y, int64_t w, int64_t n)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t *first = j->first[2] + w;
    if (!j->sums.widen) {
        j->sums.add_pixels(acc, y + first[0] * p->inner * p->bytes, p->inner, first, n);
        return;
    }
    const sums *wide_sums = &sums_of[gpo_cpu_isa()][GPO_F32];
    _Alignas(64) float wide[WIDE];
    for (int64_t k = 0; k < n; k += j->wide) {
        const int64_t some = least(j->wide, n - k), from = first[k] * p->inner;
        j->sums.widen(y + from * p->bytes, first[k + some] * p->inner - from, wide);
        wide_sums->add_pixels(acc + k * p->inner * j->value_bytes, wide, p->inner,
                              first + k, some);
    }
}

/* Adds one row of dy to elements [e, e + n) of a row of dx, most of them regular. */
static void
add_row_of_runs(const job *j, char *acc, const char *y, int64_t e, int64_t n)
{
    const int64_t from = e == 0 ? 0 : j->first[2][e];
    const int64_t left = j->regular - e, some = left < n ? (left > 0 ? left : 0) : n;
    j->sums.add_runs(acc, y + from * j->plan->bytes, j->run, some);
    if (some < n) {
        add_packed(j, acc + some * j->value_bytes, y, e + some, n - some);
    }
}

/* Adds one row of dy to elements [e, e + n) of a row of dx. */
static void
backward_add(const job *j, char *acc, const char *y, int64_t e, int64_t n)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t across = p->stride[UPSAMPLE_W] * p->bytes;
    switch (j->mode) {
        case SAME:
            j->sums.add(acc, y + e * p->bytes, n);
            return;
        case RUNS:
            add_row_of_runs(j, acc, y, e, n);
            return;
        default:
            break;
    }
    if (j->is_packed) {
        add_packed(j, acc, y, e / p->inner, n / p->inner);
        return;
    }
    if (j->mode == PIXELS) { /* the rest of a pixel at a time */
        int64_t w = e / p->inner, c = e % p->inner;
        for (int64_t k = 0; k < n; w++) {
            const int64_t run = least(p->inner - c, n - k);
            for (int64_t i = j->first[2][w]; i < j->first[2][w + 1]; i++) {
                j->sums.add(acc + k * j->value_bytes, y + i * across + c * p->bytes,
                            run);
            }
            k += run;
            c = 0;
        }
        return;
    }
    for (int64_t c = 0; c < p->inner; c++) { /* a channel at a time */
        const int64_t w = ceil_div(e > c ? e - c : 0, p->inner);
        const int64_t at = w * p->inner + c - e;
        if (at < n) {
            j->sums.collect(acc + at * j->value_bytes, p->inner,
                            y + c * p->stride[UPSAMPLE_I] * p->bytes,
                            p->stride[UPSAMPLE_W], j->first[2] + w,
                            ceil_div(n - at, p->inner));
        }
    }
}

/* Task i: a piece of a group of rows of dx. */
static void
backward_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_nearest_plan *p = j->plan;
    const int64_t start = i / j->pieces * j->group;
    const int64_t stop = least(start + j->group, p->rows);
    const int64_t begin = i % j->pieces * j->piece;
    const int64_t end = least(begin + j->piece, p->row);
    _Alignas(64) char acc[BLOCK * sizeof(gpo_c128)];
    row_index r = row_of(p, start);
    for (int64_t t = start; t < stop; t++, next_row(p, &r)) {
        const int64_t d0 = j->first[0][r.d], d1 = j->first[0][r.d + 1];
        const int64_t h0 = j->first[1][r.h], h1 = j->first[1][r.h + 1];
        char *to = j->to + t * p->row * p->bytes;
        for (int64_t e = begin; e < end; e += j->block) {
            const int64_t n = least(j->block, end - e);
            memset(acc, 0, (size_t)(n * j->value_bytes));
            for (int64_t d = d0; d < d1; d++) {
                for (int64_t h = h0; h < h1; h++) {
                    backward_add(j, acc, row_from(j, &r, d, h), e, n);
                }
            }
            j->sums.round(to + e * p->bytes, acc, n);
        }
    }
}

/*
 * Looks at the outputs of each element of W: as many for all, or for even and for odd
 * ones, but perhaps for a few at the end, or any number.
 */
static void
take_runs(job *j)
{
    enum { FEW = 7 }; /* channels that are added in one loop for each */
    const upsample_nearest_plan *p = j->plan;
    const int64_t *first = j->first[2], width = p->axis[2].in;
    j->block = BLOCK;
    if (j->mode == SAME) {
        return;
    }
    int64_t longest = 1;
    for (int64_t w = 0; w < width; w++) {
        const int64_t run = first[w + 1] - first[w];
        longest = run > longest ? run : longest;
    }
    j->wide = p->inner > BLOCK ? 0 : WIDE / p->inner / longest;
    j->is_packed = p->packed && (j->wide > 0 || (!j->sums.widen && p->inner <= BLOCK));
    j->is_packed = j->is_packed && (j->sums.widen || p->inner == 1 || p->inner >= FEW);
    if (!j->is_packed) {
        return;
    }
    j->block = BLOCK / p->inner * p->inner;
    const int64_t even = first[1], odd = width > 1 ? first[2] - first[1] : even;
    for (size_t k = 0; p->inner == 1 && k < sizeof runs / sizeof *runs; k++) {
        int64_t w = 0;
        while (runs[k][0] == even && runs[k][1] == odd && w < width &&
               first[w + 1] - first[w] == (w & 1 ? odd : even)) {
            w++;
        }
        w -= even != odd ? w & 1 : 0;
        if (w > 1) {
            j->mode = RUNS;
            j->run = (int)k;
            j->regular = w;
        }
    }
}

static gpo_status
backward(gpo_call *call, bool parallel)
{
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1], *w = &p->axis[2];
    const gpo_dtype dtype = call->out[0].dtype;
    const bool is_half = dtype == GPO_F16 || dtype == GPO_BF16;
    if (p->size == 0) {
        return GPO_OK;
    }
    job j = {
        .plan = p,
        .from = call->in[0].data,
        .to = call->out[0].data,
        .sums = sums_of[gpo_cpu_isa()][gpo_unsigned_of(dtype)],
        .value_bytes = is_half ? (int64_t)sizeof(float) : p->bytes,
        .mode = mode_of(p),
    };
    void *memory = NULL;
    gpo_status status = set_first(call, &j, j.mode != SAME, 0, &memory);
    if (status) {
        return status;
    }
    take_runs(&j);
    const double fed = (double)depth->out * (double)height->out * (double)w->out /
                       ((double)depth->in * (double)height->in * (double)w->in);
    const int64_t elements = (int64_t)(TASK_BYTES / ((fed + 1) * (double)p->bytes)) + 1;
    j.piece = least(ceil_div(elements, j.block) * j.block, p->row);
    j.pieces = ceil_div(p->row, j.piece);
    j.group = j.pieces > 1 ? 1 : elements / p->row + 1;
    run_tasks(&j, parallel, backward_task);
    return GPO_OK;
}

static gpo_status
forward_simd(gpo_call *call)
{
    return forward(call, false);
}

static gpo_status
forward_threads(gpo_call *call)
{
    return forward(call, true);
}

static gpo_status
backward_simd(gpo_call *call)
{
    return backward(call, false);
}

static gpo_status
backward_threads(gpo_call *call)
{
    return backward(call, true);
}

/* ---- the variants ---- */

static const gpo_variant forward_variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element of the result after the other",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(scalar_forward)}},
    [GPO_CPU_SIMD] = {"simd",
                      "a row of x makes one row of the result, "
                      "the others are copies of it",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(forward_simd)}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on pieces of rows",
                         "",
                         "run-to-run",
                         {GPO_EVERY_DTYPE(forward_threads)}},
    {.name = NULL},
};

/* Bools have no gradient. */
#define ALL_BUT_BOOL GPO_BOOL + 1 ... GPO_NDTYPES - 1

static const gpo_variant backward_variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element of the result after the other",
                        "",
                        "run-to-run",
                        {[ALL_BUT_BOOL] = scalar_backward}},
    [GPO_CPU_SIMD] = {"simd",
                      "a row of sums collects rows of dy in the order they lie",
                      "",
                      "run-to-run",
                      {[ALL_BUT_BOOL] = backward_simd}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on pieces of rows",
                         "",
                         "run-to-run",
                         {[ALL_BUT_BOOL] = backward_threads}},
    {.name = NULL},
};

/* ---- choose ---- */

static const gpo_variant *
choose(const gpo_call *call, const gpo_variant *variants, char why[GPO_MESSAGE])
{
    enum { PAYS_BYTES = 1 << 19 };
    const upsample_nearest_plan *p = upsample_nearest_plan_of(call);
    const int64_t elements = p->from_size > p->size ? p->from_size : p->size;
    return gpo_cpu_choose(variants, elements >= PAYS_BYTES / p->bytes,
                          "under 512 KiB, starting threads costs more than it saves",
                          "the work is enough for several threads", why);
}

static const gpo_variant *
choose_forward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return choose(call, forward_variants, why);
}

static const gpo_variant *
choose_backward(const gpo_call *call, char why[GPO_MESSAGE])
{
    return choose(call, backward_variants, why);
}

const gpo_table upsample_nearest_cpu = {forward_variants, choose_forward};
const gpo_table upsample_nearest_backward_cpu = {backward_variants, choose_backward};
