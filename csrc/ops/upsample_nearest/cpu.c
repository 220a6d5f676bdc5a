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

/* A row of dy, and the row of dx that it goes to. */
typedef struct line {
    void *to;
    const void *from;
} line;

/* What adding 0 does to the bits of a float: -0 becomes 0, a nan a quiet one. */
typedef struct zero_added {
    uint64_t minus_zero, size, inf; /* size: the bits without the sign; 0: no float */
    uint64_t kept, quiet;           /* a nan becomes bits & kept | quiet */
} zero_added;

/* Loops that copy elements: see move.inc. */
typedef struct moves {
    void (*twice)(void *to, const void *from, int64_t n);
    void (*pick)(void *to, const void *from, const int32_t *at, int64_t n);
    void (*spread)(const line *lines, int64_t count, const int64_t *at, int64_t n,
                   int64_t step, int64_t run, const zero_added *bits);
} moves;

/* Rows of dx, one after the other, and how rows of dy are added to them. */
typedef struct row_runs {
    const int64_t *rows;  /* row r of dx has the rows [rows[r], rows[r + 1]) of dy, */
    int64_t count;        /* so many rows of dx, */
    int64_t apart;        /* which are so many elements apart, */
    int64_t n;            /* and so many elements of each of its rows */
    const int64_t *first; /* element k has the elements [first[k], first[k + 1]) */
    int64_t regular;      /* the first so many as in runs[run] */
    int run;
} row_runs;

/* Loops that add elements: see sum.inc. */
typedef struct sums {
    void (*add)(void *acc, const void *y, int64_t n);
    void (*add_rows)(void *acc, const void *y, const row_runs *of);
    void (*add_pixels)(void *acc, const void *y, int64_t inner, const int64_t *first,
                       int64_t n);
    void (*collect)(void *acc, int64_t step, const void *y, int64_t across,
                    const int64_t *first, int64_t n);
    void (*round)(void *to, const void *acc, int64_t n);
    void (*widen)(const void *y, int64_t n, void *to); /* of 16-bit floats */
} sums;

/* The outputs of even and of odd elements that vectors add. */
static const int runs[][2] = {{1, 1}, {2, 2}, {2, 1}, {1, 0}, {3, 3}, {4, 4}};

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
typedef enum row_mode { SAME, TWICE, LINES, PIXELS, ANY } row_mode;

typedef struct job {
    const upsample_nearest_plan *plan;
    const char *from;
    char *to;
    gpo_dtype dtype; /* of backward */
    moves moves;
    sums sums;
    int64_t value_bytes; /* of a sum */
    row_mode mode;
    int32_t *at; /* ANY forward: where each element of a row comes from */
    int64_t
        *first[UPSAMPLE_SPATIAL]; /* the first output of each element, and the end */
    int run;                      /* LINES: see runs[]... */
    int64_t regular;              /* ...of the first so many elements */
    int64_t at_once;              /* LINES: rows of dx */
    int64_t wide;                 /* pixels of dx whose 16-bit floats are widened */
    const int64_t *goes_to; /* where each pixel of dy goes; NULL: to every second */
    bool is_pixel;          /* the channels of a pixel are contiguous */
    int64_t block;          /* sums at once: whole pixels, if these are packed */
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

/* Adds one row of dy to elements [e, e + n) of a row of dx. */
static void
backward_add(const job *j, char *acc, const char *y, int64_t e, int64_t n)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t across = p->stride[UPSAMPLE_W] * p->bytes;
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

/* Task i is a piece, [begin, end), of a group of rows of dx, [start, stop). */
typedef struct piece {
    int64_t start, stop, begin, end;
} piece;

static piece
piece_of(const job *j, int64_t i)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t start = i / j->pieces * j->group;
    const int64_t begin = i % j->pieces * j->piece;
    return (piece){start, least(start + j->group, p->rows), begin,
                   least(begin + j->piece, p->row)};
}

static void
backward_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_nearest_plan *p = j->plan;
    const piece of = piece_of(j, i);
    _Alignas(64) char acc[BLOCK * sizeof(gpo_c128)];
    row_index r = row_of(p, of.start);
    for (int64_t t = of.start; t < of.stop; t++, next_row(p, &r)) {
        const int64_t d0 = j->first[0][r.d], d1 = j->first[0][r.d + 1];
        const int64_t h0 = j->first[1][r.h], h1 = j->first[1][r.h + 1];
        char *to = j->to + t * p->row * p->bytes;
        for (int64_t e = of.begin; e < of.end; e += j->block) {
            const int64_t n = least(j->block, of.end - e);
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

/* The most outputs of an element. */
static int64_t
longest_run(const int64_t *first, int64_t n)
{
    int64_t longest = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t run = first[k + 1] - first[k];
        longest = run > longest ? run : longest;
    }
    return longest;
}

/* Looks at the outputs of each pixel of W. */
static void
take_pixels(job *j)
{
    enum { FEW = 7 }; /* channels that are added in one loop for each */
    const upsample_nearest_plan *p = j->plan;
    const int64_t longest = longest_run(j->first[2], p->axis[2].in);
    j->block = BLOCK;
    j->wide = p->inner > BLOCK ? 0 : WIDE / p->inner / (longest > 1 ? longest : 1);
    j->is_packed = p->packed && (j->wide > 0 || (!j->sums.widen && p->inner <= BLOCK));
    j->is_packed = j->is_packed && (j->sums.widen || p->inner == 1 || p->inner >= FEW);
    if (j->is_packed) {
        j->block = BLOCK / p->inner * p->inner;
    }
}

/* ---- backward: rows of contiguous elements ---- */

/*
 * Adds what belongs to elements [e, e + n) of `count` rows of dx from *r on, in plane d
 * of dy; the rows of dy lie one after the other, or are one.
 */
static void
add_lines(const job *j, char *acc, const row_index *r, int64_t d, int64_t count,
          int64_t e, int64_t n)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t *rows = j->first[1] + r->h, *first = j->first[2];
    const int64_t from = first ? first[e] : e, to = first ? first[e + n] : e + n;
    const int64_t left = j->regular - e;
    row_runs of = {.rows = rows,
                   .count = count,
                   .apart = p->stride[UPSAMPLE_H],
                   .n = n,
                   .first = first ? first + e : NULL,
                   .regular = left < n ? (left > 0 ? left : 0) : n,
                   .run = j->run};
    const char *y = row_from(j, r, d, rows[0]) + from * p->bytes;
    const int64_t stretch = rows[count] - rows[0];
    if (!j->sums.widen) {
        j->sums.add_rows(acc, y, &of);
        return;
    }
    const sums *wide_sums = &sums_of[gpo_cpu_isa()][GPO_F32];
    _Alignas(64) float wide[WIDE];
    if (count > 1) { /* whole rows */
        j->sums.widen(y, stretch * of.apart, wide);
        wide_sums->add_rows(acc, wide, &of);
        return;
    }
    static const int64_t one[] = {0, 1};
    of.rows = one;
    for (int64_t h = 0; h < stretch; h++) {
        j->sums.widen(y + h * of.apart * p->bytes, to - from, wide);
        wide_sums->add_rows(acc, wide, &of);
    }
}

static void
lines_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_nearest_plan *p = j->plan;
    const piece of = piece_of(j, i);
    _Alignas(64) char acc[BLOCK * sizeof(gpo_c128)];
    row_index r = row_of(p, of.start);
    for (int64_t t = of.start; t < of.stop;) {
        const int64_t d0 = j->first[0][r.d], d1 = j->first[0][r.d + 1];
        const int64_t rows = least(j->at_once, least(of.stop - t, p->axis[1].in - r.h));
        char *to = j->to + t * p->row * p->bytes;
        for (int64_t e = of.begin; e < of.end; e += j->block) {
            const int64_t n = least(j->block, of.end - e);
            memset(acc, 0, (size_t)(rows * n * j->value_bytes));
            for (int64_t d = d0; d < d1; d++) {
                add_lines(j, acc, &r, d, rows, e, n);
            }
            j->sums.round(to + e * p->bytes, acc, rows * n);
        }
        t += rows;
        r.h += rows - 1;
        next_row(p, &r);
    }
}

/*
 * Looks at the outputs of each element of W: as many for all, or for even and for odd
 * ones, but perhaps for a few at the end, or any number.  Returns false where the rows
 * are no LINES.
 */
static bool
take_lines(job *j)
{
    const upsample_nearest_plan *p = j->plan;
    const int64_t *first = j->first[2], width = p->axis[2].in;
    if (!p->packed || p->inner > 1) {
        return false;
    }
    const int64_t longest = first ? longest_run(first, width) : 1;
    const int64_t wide = longest > 0 ? WIDE / longest : WIDE;
    j->block = j->sums.widen ? least(BLOCK, wide) & ~(int64_t)1 : BLOCK;
    if (j->block == 0) {
        return false;
    }
    const int64_t even = first ? first[1] : 1;
    const int64_t odd = first && width > 1 ? first[2] - first[1] : even;
    j->regular = first ? 0 : width;
    for (size_t k = 0; first && k < sizeof runs / sizeof *runs; k++) {
        int64_t w = 0;
        while (runs[k][0] == even && runs[k][1] == odd && w < width &&
               first[w + 1] - first[w] == (w & 1 ? odd : even)) {
            w++;
        }
        w -= even != odd ? w & 1 : 0;
        if (w > 1) {
            j->run = (int)k;
            j->regular = w;
        }
    }
    const int64_t dy_row = p->axis[2].out,
                  most = longest_run(j->first[1], p->axis[1].in);
    j->at_once = 1;
    if (p->stride[UPSAMPLE_H] == dy_row && p->row <= j->block) {
        j->at_once = BLOCK / p->row;
        if (j->sums.widen && most > 0) {
            j->at_once = least(j->at_once, WIDE / (most * dy_row));
        }
        j->at_once = j->at_once < 1 ? 1 : j->at_once;
    }
    j->mode = LINES;
    return true;
}

/* ---- backward: no element has two outputs ---- */

static const zero_added *
zero_added_to(gpo_dtype dtype)
{
    static const zero_added none = {0};
    static const zero_added f16 = {0x8000, 0x7fff, 0x7c00, 0x8000, 0x7e00};
    static const zero_added bf16 = {0x8000, 0x7fff, 0x7f80, 0, 0x7fc0};
    static const zero_added f32 = {0x80000000, 0x7fffffff, 0x7f800000, 0xffffffff,
                                   0x00400000};
    static const zero_added f64 = {UINT64_C(1) << 63, INT64_MAX, UINT64_C(0x7ff) << 52,
                                   UINT64_MAX, UINT64_C(1) << 51};
    switch (dtype) {
        case GPO_F16:
            return &f16;
        case GPO_BF16:
            return &bf16;
        case GPO_F32:
        case GPO_C64:
            return &f32;
        case GPO_F64:
        case GPO_C128:
            return &f64;
        default:
            return &none;
    }
}

enum {
    LINES_AT_ONCE = 64,
    CLEARED_BYTES = 1 << 14, /* of dx: still in L1 when elements are put there */
};

/* Elements [of->begin, of->end) of some rows of dx, from their rows of dy. */
static void
spread_lines(const job *j, const piece *of, line *lines, int64_t count)
{
    const upsample_nearest_plan *p = j->plan;
    const gpo_dtype dtype = j->dtype;
    const zero_added *bits = zero_added_to(dtype);
    const int64_t parts = gpo_dtypes[dtype].kind == 'c' ? 2 : 1;
    if (j->mode == SAME) {
        static const int64_t here = 0;
        for (int64_t k = 0; k < count; k++) {
            lines[k].to = (char *)lines[k].to + of->begin * p->bytes;
            lines[k].from = (const char *)lines[k].from + of->begin * p->bytes;
        }
        j->moves.spread(lines, count, &here, 1, 0, (of->end - of->begin) * parts, bits);
        return;
    }
    const int64_t first = j->first[2][of->begin / p->inner];
    const int64_t n = j->first[2][of->end / p->inner] - first;
    const int64_t by = p->stride[UPSAMPLE_W], pixel = j->is_pixel ? p->inner : 1;
    for (int64_t k = 0; k < count; k++) {
        lines[k].from = (const char *)lines[k].from + first * by * p->bytes;
        if (!j->goes_to) {
            lines[k].to = (char *)lines[k].to + 2 * first * p->bytes;
        }
    }
    for (int64_t c = 0; c < p->inner; c += pixel) {
        j->moves.spread(lines, count, j->goes_to ? j->goes_to + first : NULL, n,
                        by * parts, pixel * parts, bits);
        for (int64_t k = 0; k < count; k++) {
            lines[k].to = (char *)lines[k].to + p->bytes;
            lines[k].from =
                (const char *)lines[k].from + p->stride[UPSAMPLE_I] * p->bytes;
        }
    }
}

/* Task i: a piece of a group of rows of dx, most of whose elements are 0. */
static void
spread_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_nearest_plan *p = j->plan;
    const piece of = piece_of(j, i);
    const int64_t bytes = (of.end - of.begin) * p->bytes;
    const int64_t fits = CLEARED_BYTES / bytes, most = fits > 1 ? fits : 1;
    line lines[LINES_AT_ONCE];
    row_index r = row_of(p, of.start);
    for (int64_t t = of.start, next; t < of.stop; t = next) {
        next = least(t + (j->pieces > 1 ? 1 : least(most, LINES_AT_ONCE)), of.stop);
        int64_t count = 0;
        memset(j->to + (t * p->row + of.begin) * p->bytes, 0,
               (size_t)((next - t) * bytes));
        for (int64_t k = t; k < next; k++, next_row(p, &r)) {
            const int64_t d = j->first[0][r.d], h = j->first[1][r.h];
            if (d < j->first[0][r.d + 1] && h < j->first[1][r.h + 1]) {
                lines[count].to = j->to + k * p->row * p->bytes;
                lines[count++].from = row_from(j, &r, d, h);
            }
        }
        spread_lines(j, &of, lines, count);
    }
}

/* Whether each element of dx is one of dy, or 0. */
static bool
is_spread(const job *j)
{
    const upsample_axis *axis = j->plan->axis;
    return longest_run(j->first[0], axis[0].in) <= 1 &&
           longest_run(j->first[1], axis[1].in) <= 1 &&
           (!j->first[2] || longest_run(j->first[2], axis[2].in) <= 1);
}

/* Where each pixel of a row of dy goes. */
static void
take_places(job *j, int64_t *at)
{
    const upsample_nearest_plan *p = j->plan;
    const upsample_axis *w = &p->axis[2];
    const int64_t parts = gpo_dtypes[j->dtype].kind == 'c' ? 2 : 1;
    j->is_pixel = p->inner == 1 || p->stride[UPSAMPLE_I] == 1;
    j->block = p->inner;
    if (j->mode == SAME) {
        return;
    }
    bool doubled = p->packed && p->inner * parts == 1 && 2 * w->out <= w->in;
    for (int64_t i = 0; i < w->out; i++) {
        const int64_t source = source_of(w, i);
        at[i] = source * p->inner * parts;
        doubled = doubled && source == 2 * i;
    }
    j->goes_to = doubled ? NULL : at;
}

/* ---- backward: start ---- */

/*
 * Rows whose elements are not moved along W are rows of more elements, and contiguous
 * planes of one row are the rows of one plane.
 */
static void
fold(upsample_nearest_plan *p)
{
    static const upsample_axis same = {.inverse = 1.0F, .log = 0};
    upsample_axis *axis = p->axis;
    if (p->packed && axis[2].log == 0) {
        axis[2] = same;
        axis[2].in = axis[2].out = p->row;
        p->inner = p->stride[UPSAMPLE_W] = 1;
    }
    if (p->inner == 1 && p->images == 1 && axis[0].out == 1 && axis[0].in == 1 &&
        axis[1].out == 1 && axis[1].in == 1) {
        axis[1] = same;
        axis[1].in = axis[1].out = p->channels;
        p->stride[UPSAMPLE_H] = p->stride[UPSAMPLE_B];
        p->channels = 1;
    }
}

static gpo_status
backward(gpo_call *call, bool parallel)
{
    upsample_nearest_plan plan = *upsample_nearest_plan_of(call);
    const upsample_nearest_plan *p = &plan;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1], *w = &p->axis[2];
    const gpo_dtype dtype = call->out[0].dtype;
    const bool is_half = dtype == GPO_F16 || dtype == GPO_BF16;
    if (p->size == 0) {
        return GPO_OK;
    }
    fold(&plan);
    job j = {
        .plan = p,
        .from = call->in[0].data,
        .to = call->out[0].data,
        .dtype = dtype,
        .moves = moves_of[gpo_cpu_isa()][part_of(dtype)],
        .sums = sums_of[gpo_cpu_isa()][gpo_unsigned_of(dtype)],
        .value_bytes = is_half ? (int64_t)sizeof(float) : p->bytes,
        .mode = mode_of(p),
    };
    void *memory = NULL;
    const bool same = j.mode == SAME;
    gpo_status status = set_first(
        call, &j, !same, same ? 0 : (size_t)w->out * sizeof *j.goes_to, &memory);
    if (status) {
        return status;
    }
    j.first[2] = same ? NULL : j.first[2];
    void (*task)(void *context, int64_t i) = backward_task;
    if (is_spread(&j)) {
        task = spread_task;
        take_places(&j, memory);
    }
    else if (take_lines(&j)) {
        task = lines_task;
    }
    else {
        take_pixels(&j);
    }
    const double fed = (double)depth->out * (double)height->out * (double)w->out /
                       ((double)depth->in * (double)height->in * (double)w->in);
    const int64_t elements = (int64_t)(TASK_BYTES / ((fed + 1) * (double)p->bytes)) + 1;
    j.piece = least(ceil_div(elements, j.block) * j.block, p->row);
    j.pieces = ceil_div(p->row, j.piece);
    j.group = j.pieces > 1 ? 1 : elements / p->row + 1;
    run_tasks(&j, parallel, task);
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
