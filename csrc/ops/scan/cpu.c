/*
 * cpu.c  scan on the CPU.  Order: the three instruction sets, walking an array, one
 * row, long rows, the variants, choose.  See folds.h for elements and folds, loops.inc
 * for the inner loops, columns.inc for columns.
 *
 * A single chain of additions is latency-bound.  So sums of contiguous elements go eight
 * elements at a time (add_up.inc), extremes a register at a time (follow.inc); otherwise
 * four chains run at once, on four rows or on four pieces of a row whose totals are
 * computed first, while they are in cache; or one chain per column of
 * a strip.  A long row is cut into chunks of fixed size, reduced, and scanned from the
 * carries, so that the number of threads does not change a bit of the result.  An
 * exclusive scan is an inclusive one of one element less, stored one step further.
 */
#include "../../core/integers.h"
#include "../../core/turn.h"
#include "folds.h"

#include "../../backend/backend.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    CHAINS = 4,
    LANE_BYTES = 256, /* of partial results of a total */
    PIECE = 512,
    BLOCK = CHAINS * PIECE,
    SOME = 256,            /* of a block that changes an extreme, looked at alone */
    SHORT_ROW = 512,       /* rows up to this length run four at once */
    CHUNK = 16 * BLOCK,    /* of a long row */
    WAVE_BYTES = 1 << 20,  /* of x per thread between totals and results */
    GROUP = 128,           /* float64: so many elements without error terms, */
    GROUP_ROWS = 32,       /* or rows of a few columns */
    MANY_ROWS = 64,        /* enough rows for every thread */
    STRIP = 256,           /* columns per task */
    CARRIES = 128,         /* columns carried at a time: thread stacks are small */
    LEAST_COLUMNS = 4,     /* fewer columns are walked as rows */
    NARROW = 16,           /* fewer are walked by line.down, all at once, */
    NARROW_ROWS = 128,     /* if they have as many elements */
    FILLED = 5,            /* extremes of fewer columns are filled in blocks, */
    FILLED_ROWS = 1 << 11, /* if they have as many elements */
    STRIP_CHUNK = 1 << 14, /* elements of a strip per chunk */
    MANY_STRIPS = 64,
    GROUP_BYTES = 1 << 17, /* of whole rows per task */
    ACC = sizeof(gpo_c128),
    FIRSTS = 16,
    TURNED_ROWS = 64, /* so many short rows are turned together, */
    TURNED = 8,       /* so many elements of each */
    TURNED_LEAST = 8,
    TURNED_SUMS = 16,     /* longer ones run one by one: line.line */
    COPY_BYTES = 1 << 16, /* per task */
};

/* Sums along contiguous elements, with contiguous results: line.inc. */
typedef struct line_loops {
    void (*line)(const void *x, void *out, int64_t n, int64_t step, void *hi, void *lo);
    void (*lines)(const void *x, void *out, int64_t count, int64_t n, int64_t w,
                  int64_t step);
    void (*down)(const void *x, void *out, int64_t rows, int64_t w, int64_t step,
                 void *hi, void *lo);
} line_loops;

/* Runs whole registers of n neighbours, from *hi on; returns how many elements: follow.inc. */
typedef int64_t (*follow)(const void *x, void *out, int64_t n, void *hi);

/*
 * The inner loops of one fold; T is the element, O the result, A the running result.  A
 * chain is a pair of A: `hi`, and `lo`, the rounding error of hi.
 */
typedef struct loops {
    int bytes, out_bytes, acc_bytes; /* of T, O and A */

    void (*start)(void *hi, void *lo, int64_t w); /* w chains: the identity */
    void (*store)(const void *hi, const void *lo, void *out, int64_t w);
    /* folds the value of chain c of `more` into chain c */
    void (*step)(void *hi, void *lo, const void *more_hi, const void *more_lo,
                 int64_t w);
    /* one chain along n elements; CHAINS chains; only the final value of a chain */
    void (*chain)(const void *x, int64_t sx, void *out, int64_t so, int64_t n, void *hi,
                  void *lo);
    void (*chains)(const void *const *x, int64_t sx, void *const *out, int64_t so,
                   int64_t n, void *hi, void *lo);
    void (*total)(const void *x, int64_t sx, int64_t n, void *hi, void *lo);
    /* w chains across w contiguous elements; the same without results */
    void (*columns)(const void *x, void *out, int64_t w, void *hi, void *lo);
    void (*totals)(const void *x, int64_t w, void *hi, void *lo);
} loops;

/* ---- the three instruction sets ---- */

#define GPO_LOOPS "../ops/scan/loops.inc"
#include "../../core/each_isa.h"

typedef const loops *const (*loops_table)[GPO_NDTYPES];

static const loops *
find_loops(gpo_isa isa, scan_op op, gpo_dtype dtype)
{
    static const loops_table tables[GPO_NISA] = GPO_EACH_ISA(table);
    const bool total = op == SCAN_SUM || op == SCAN_PROD;
    return tables[isa][op][total && dtype == GPO_I64 ? GPO_U64 : dtype];
}

/* Without loops unless these are sums of real numbers. */
static line_loops
find_line(gpo_isa isa, scan_op op, gpo_dtype dtype)
{
    static const line_loops *const tables[GPO_NISA] = GPO_EACH_ISA(sum_lines);
    static const line_loops none;
    return op == SCAN_SUM
               ? tables[isa][gpo_unsigned_of(dtype) == GPO_U64 ? GPO_U64 : dtype]
               : none;
}

/* NULL if there are none, or elements are no neighbours. */
static follow
find_follow(gpo_isa isa, scan_op op, gpo_dtype dtype, bool ascending)
{
    typedef const follow(*table)[GPO_NDTYPES];
    static const table tables[GPO_NISA] = GPO_EACH_ISA(follows);
    return ascending ? tables[isa][op][dtype] : NULL;
}

/* ---- the job: what every part of one call reads ---- */

typedef struct chain {
    _Alignas(16) char hi[ACC];
    _Alignas(16) char lo[ACC];
} chain;

typedef struct job {
    const scan_plan
        *plan; /* &own, which is that of the call but for rows of one element */
    scan_plan own;
    const char *x; /* element 0 of row 0 */
    char *out;     /* result 0 of row 0 */
    const loops *loops;
    line_loops line; /* of neighbours; without loops: four chains */
    follow follow;   /* the same for extremes, or NULL */
    bool matrices;   /* small ones, one after the other, for line.lines */
    bool few;        /* columns, neighbours in the order of the results, */
    bool narrow;     /* for line.down */
    bool turned;     /* short rows whose elements become columns */
    bool parallel;
    int64_t n; /* elements of a row that are read: cols, less one if exclusive */
    int64_t group, chunk, chunks;
    int64_t wave;         /* the first chunk of the current wave, */
    int64_t together;     /* which has so many, if these are strips */
    int64_t strips;       /* columns: strips per outer group */
    int64_t width_stride; /* stride of x between columns */
    char *hi, *lo;        /* carries of the chunks: rows x chunks, or chunks x rows, */
                          /* where a chunk more has the sums so far */
    _Alignas(16) char first[ACC * FIRSTS]; /* FIRSTS times the `hi` a row begins with */
} job;

/* Element 0 of row r of x. */
static const char *
row_of_x(const job *j, int64_t r)
{
    const scan_axes *axes = &j->plan->kept;
    int64_t offset = 0;
    for (int d = axes->ndim - 1; d > 0;
         d--) { /* a division takes as long as an element */
        offset += r % axes->shape[d] * axes->strides[d];
        r /= axes->shape[d];
    }
    offset += axes->ndim > 0 ? r * axes->strides[0] : 0;
    return j->x + offset * j->loops->bytes;
}

/* Result 0 of row r. */
static char *
row_of_out(const job *j, int64_t r)
{
    const int64_t inner = j->plan->inner;
    if (inner == 1) {
        return j->out + r * j->plan->cols * j->loops->out_bytes;
    }
    return j->out +
           (r / inner * j->plan->cols * inner + r % inner) * j->loops->out_bytes;
}

/* The w chains of rows that begin here; chains within a row begin with f->start. */
static void
begin_chains(const job *j, char *hi, char *lo, int64_t w)
{
    const int64_t bytes = j->loops->acc_bytes;
    memset(lo, 0, (size_t)(w * bytes));
    for (int64_t c = 0; c < w; c += FIRSTS) {
        const int64_t some = w - c < FIRSTS ? w - c : FIRSTS;
        memcpy(hi + c * bytes, j->first, (size_t)(some * bytes));
    }
}

/* Stores what rows begin with, the first result of exclusive scans, w times. */
static void
store_first(const job *j, char *to, int64_t w)
{
    static const char lo[ACC * FIRSTS];
    for (int64_t c = 0; c < w; c += FIRSTS) {
        j->loops->store(j->first, lo, to + c * j->loops->out_bytes,
                        w - c < FIRSTS ? w - c : FIRSTS);
    }
}

/* Returns where row r's results go; an exclusive scan's first is stored here. */
static char *
begin_row(const job *j, int64_t r, int64_t w)
{
    char *out = row_of_out(j, r);
    if (j->plan->exclusive) {
        store_first(j, out, w);
        out += j->plan->step * j->loops->out_bytes;
    }
    return out;
}

static bool
is_extreme(const job *j)
{
    return j->plan->op == SCAN_MIN || j->plan->op == SCAN_MAX;
}

/* ---- one row ---- */

#define FILL(type)                                  \
    if (so == 1) {                                  \
        const type same = *(type *)value;           \
        for (int64_t i = 0; i < n; i++) {           \
            ((type *)out)[i] = same;                \
        }                                           \
    }                                               \
    else {                                          \
        for (int64_t i = 0; i < n; i++) {           \
            ((type *)out)[i * so] = *(type *)value; \
        }                                           \
    }

/*
 * If the extreme of n elements does not change the chain, no element does: fills their
 * results with its value.  Otherwise returns false and does nothing.
 */
static bool
fill_settled(const job *j, const char *x, char *out, int64_t n, const chain *c)
{
    const loops *f = j->loops;
    int64_t so = j->plan->step;
    if (!is_extreme(j)) {
        return false;
    }
    chain after = *c;
    f->total(x, j->plan->stride, n, after.hi, after.lo);
    if (memcmp(after.hi, c->hi, (size_t)f->acc_bytes) != 0) {
        return false;
    }
    _Alignas(16) char value[ACC];
    f->store(c->hi, c->lo, value, 1);
    if (so == -1) { /* from the other end, in vectors */
        out -= (n - 1) * f->out_bytes;
        so = 1;
    }
    switch (f->out_bytes) {
        case 1:
            FILL(uint8_t)
            break;
        case 2:
            FILL(uint16_t)
            break;
        case 4:
            FILL(uint32_t)
            break;
        default:
            FILL(uint64_t)
    }
    return true;
}

/* Scans n elements of a row from the chain c, in blocks of four pieces. */
static void
scan_run(const job *j, const char *x, char *out, int64_t n, chain *c)
{
    const loops *f = j->loops;
    const int64_t sx = j->plan->stride, so = j->plan->step;
    _Alignas(16) char hi[CHAINS * ACC], lo[CHAINS * ACC];
    if (j->line.line) {
        j->line.line(x, out, n, sx, c->hi, c->lo);
        return;
    }
    const bool looks_closer = is_extreme(j) && !j->follow && (sx == 1 || sx == -1) &&
                              f->acc_bytes == f->bytes; /* quickly */
    int64_t changing = 0; /* elements of a block, in whole SOMEs */
    for (int64_t piece; n >= 2 * CHAINS; x += CHAINS * piece * sx * f->bytes,
                                         out += CHAINS * piece * so * f->out_bytes,
                                         n -= CHAINS * piece) {
        piece = n < BLOCK ? n / CHAINS : PIECE;
        if (changing < BLOCK && fill_settled(j, x, out, CHAINS * piece, c)) {
            changing = 0;
            continue;
        }
        if (j->follow) {
            const int64_t some = j->follow(x, out, n < BLOCK ? n : BLOCK, c->hi);
            if (some < BLOCK) {
                f->chain(x + some * f->bytes, 1, out + some * f->out_bytes, 1, n - some,
                         c->hi, c->lo);
                return;
            }
            continue;
        }
        if (looks_closer && n > SOME && changing < BLOCK) {
            piece = SOME / CHAINS;
            if (fill_settled(j, x, out, SOME, c)) {
                changing = 0;
                continue;
            }
            changing += SOME;
        }
        const void *from[CHAINS];
        void *to[CHAINS];
        for (int i = 0; i < CHAINS; i++) {
            char *h = hi + i * f->acc_bytes, *l = lo + i * f->acc_bytes;
            from[i] = x + i * piece * sx * f->bytes;
            to[i] = out + i * piece * so * f->out_bytes;
            memcpy(h, i ? h - f->acc_bytes : c->hi, (size_t)f->acc_bytes);
            memcpy(l, i ? l - f->acc_bytes : c->lo, (size_t)f->acc_bytes);
            if (i > 0) {
                f->total(from[i - 1], sx, piece, h, l);
            }
        }
        f->chains(from, sx, to, so, piece, hi, lo);
        memcpy(c->hi, hi + (CHAINS - 1) * f->acc_bytes, (size_t)f->acc_bytes);
        memcpy(c->lo, lo + (CHAINS - 1) * f->acc_bytes, (size_t)f->acc_bytes);
    }
    f->chain(x, sx, out, so, n, c->hi, c->lo);
}

/*
 * Rows [r, r + rows), at most TURNED_ROWS, turned, so that each row is a column: a chain in
 * a lane of its own.
 */
static __attribute__((noinline)) void
turned_rows(const job *j, int64_t r, int64_t rows)
{
    enum { WIDE = sizeof(uint64_t) };
    const loops *f = j->loops;
    const int64_t step = j->plan->step; /* of x as well: 1 or -1 */
    const int64_t row = j->plan->kept.ndim > 0 ? j->plan->kept.strides[0] : 0;
    const char *x = row_of_x(j, r);
    char *out = row_of_out(j, r);
    _Alignas(64) char hi[TURNED_ROWS * ACC], lo[TURNED_ROWS * ACC];
    _Alignas(64) char from[TURNED * TURNED_ROWS * WIDE],
        to[TURNED * TURNED_ROWS * WIDE];
    begin_chains(j, hi, lo, rows);
    for (int64_t k = 0; k < j->n; k += TURNED) {
        const int64_t some = j->n - k < TURNED ? j->n - k : TURNED;
        const int64_t first = step > 0 ? k : 1 - k - some;
        turn(from, TURNED_ROWS, x + first * f->bytes, row, rows, some, f->bytes);
        for (int64_t i = 0; i < some; i++) {
            const int64_t at = (step > 0 ? i : some - 1 - i) * TURNED_ROWS;
            f->columns(from + at * f->bytes, to + at * f->bytes, rows, hi, lo);
        }
        turn(out + first * f->bytes, j->plan->cols, to, TURNED_ROWS, some, rows,
             f->bytes);
    }
}

/* Group i of whole rows. */
static void
row_group(void *context, int64_t i)
{
    const job *j = context;
    const loops *f = j->loops;
    const int64_t end =
        j->plan->rows - i * j->group < j->group ? j->plan->rows : (i + 1) * j->group;
    int64_t r = i * j->group;
    for (; j->turned && r + TURNED_LEAST <= end; r += TURNED_ROWS) {
        turned_rows(j, r, end - r < TURNED_ROWS ? end - r : TURNED_ROWS);
    }
    for (; !j->line.line && j->n <= SHORT_ROW && r + CHAINS <= end; r += CHAINS) {
        _Alignas(16) char hi[CHAINS * ACC], lo[CHAINS * ACC];
        const void *from[CHAINS];
        void *to[CHAINS];
        for (int k = 0; k < CHAINS; k++) {
            from[k] = row_of_x(j, r + k);
            to[k] = begin_row(j, r + k, 1);
        }
        begin_chains(j, hi, lo, CHAINS);
        f->chains(from, j->plan->stride, to, j->plan->step, j->n, hi, lo);
    }
    for (; r < end; r++) {
        chain c;
        begin_chains(j, c.hi, c.lo, 1);
        scan_run(j, row_of_x(j, r), begin_row(j, r, 1), j->n, &c);
    }
}

/* Group i of matrices, or of short rows, which are one column each. */
static void
matrix_group(void *context, int64_t i)
{
    const job *j = context;
    const int64_t w = j->plan->inner, size = j->n * w, all = j->plan->rows / w;
    const int64_t begin = i * j->group, left = all - begin;
    const int64_t at = begin * size + (j->plan->step < 0 ? w - size : 0);
    j->line.lines(j->x + at * j->loops->bytes, j->out + at * j->loops->out_bytes,
                  left < j->group ? left : j->group, j->n, w,
                  j->plan->step < 0 ? -1 : 1);
}

/* ---- long rows, one chunk per task: waves of totals, carries, results ---- */

static int64_t
chunk_length(const job *j, int64_t chunk)
{
    const int64_t left = j->n - chunk * j->chunk;
    return left < j->chunk ? left : j->chunk;
}

/* Task i: the total of chunk i of the wave. */
static void
chunk_total(void *context, int64_t i)
{
    const job *j = context;
    const loops *f = j->loops;
    i += j->wave;
    const int64_t chunk = i % j->chunks, n = chunk_length(j, chunk);
    const char *x =
        row_of_x(j, i / j->chunks) + chunk * j->chunk * j->plan->stride * f->bytes;
    char *hi = j->hi + i * f->acc_bytes, *lo = j->lo + i * f->acc_bytes;
    f->start(hi, lo, 1);
    for (int64_t k = 0; k < n; k += PIECE) {
        f->total(x + k * j->plan->stride * f->bytes, j->plan->stride,
                 n - k < PIECE ? n - k : PIECE, hi, lo);
    }
}

/* Replaces w totals by their prefixes, `run`, and folds the totals into `run`. */
static void
carry(const job *j, char *hi, char *lo, int64_t w, char *run_hi, char *run_lo)
{
    const loops *f = j->loops;
    _Alignas(64) char hold_hi[CARRIES * ACC], hold_lo[CARRIES * ACC];
    for (int64_t k = 0; k < w; k += CARRIES) {
        const int64_t some = w - k < CARRIES ? w - k : CARRIES, at = k * f->acc_bytes;
        const size_t bytes = (size_t)(some * f->acc_bytes);
        memcpy(hold_hi, hi + at, bytes);
        memcpy(hold_lo, lo + at, bytes);
        memcpy(hi + at, run_hi + at, bytes);
        memcpy(lo + at, run_lo + at, bytes);
        f->step(run_hi + at, run_lo + at, hold_hi, hold_lo, some);
    }
}

/* Task i: the results of chunk i of the wave. */
static void
chunk_scan(void *context, int64_t i)
{
    const job *j = context;
    const loops *f = j->loops;
    i += j->wave;
    const int64_t row = i / j->chunks, chunk = i % j->chunks;
    const int64_t k = chunk * j->chunk;
    char *out = row_of_out(j, row);
    if (j->plan->exclusive) {
        if (chunk == 0) {
            store_first(j, out, 1);
        }
        out += j->plan->step * f->out_bytes;
    }
    chain c;
    memcpy(c.hi, j->hi + i * f->acc_bytes, (size_t)f->acc_bytes);
    memcpy(c.lo, j->lo + i * f->acc_bytes, (size_t)f->acc_bytes);
    scan_run(j, row_of_x(j, row) + k * j->plan->stride * f->bytes,
             out + k * j->plan->step * f->out_bytes, chunk_length(j, chunk), &c);
}

/*
 * Totals come first, so that threads need not wait for each other; only a few chunks
 * per thread at a time, so that their elements are still in cache for the results.
 */
static void
scan_chunks(job *j)
{
    const loops *f = j->loops;
    const int64_t chunks = j->plan->rows * j->chunks;
    const int64_t each = ceil_div(WAVE_BYTES, j->chunk * f->bytes);
    const int64_t wave = each * (j->parallel ? gpo_cpu_threads() : 1);
    chain run;
    for (j->wave = 0; j->wave < chunks; j->wave += wave) {
        const int64_t left = chunks - j->wave, count = left < wave ? left : wave;
        gpo_cpu_loop(j->parallel, count, chunk_total, j);
        for (int64_t i = j->wave; i < j->wave + count; i++) {
            if (i % j->chunks == 0) {
                begin_chains(j, run.hi, run.lo, 1);
            }
            carry(j, j->hi + i * f->acc_bytes, j->lo + i * f->acc_bytes, 1, run.hi,
                  run.lo);
        }
        gpo_cpu_loop(j->parallel, count, chunk_scan, j);
    }
}

#include "columns.inc"

/* ---- the variants ---- */

/* The `hi` that a row begins with: the initial value, else the identity. */
static void
set_first(job *j, gpo_dtype dtype)
{
    const gpo_initial *initial = &j->plan->initial;
    const bool total = j->plan->op == SCAN_SUM || j->plan->op == SCAN_PROD;
    const char kind = gpo_dtypes[dtype].kind;
    const gpo_c128 pair = {initial->real, 0};
    const float single = (float)initial->real;
    char lo[ACC * FIRSTS];
    j->loops->start(j->first, lo, FIRSTS);
    for (int i = 0; initial->given && i < FIRSTS; i++) {
        const void *from = &initial->whole; /* its lowest bytes come first */
        if (kind == 'f' || kind == 'c') {
            from = total || dtype == GPO_F64 ? (const void *)&pair : &single;
        }
        memcpy(j->first + i * j->loops->acc_bytes, from, (size_t)j->loops->acc_bytes);
    }
}

/* Whether x is one matrix, or row, after the other, small ones, whose scans begin anew. */
static bool
is_matrices(const job *j, gpo_dtype dtype)
{
    const scan_axes *kept = &j->plan->kept;
    const int64_t w = j->plan->inner, size = j->n * w;
    const bool near =
        w == 1 ? kept->ndim == 1
               : kept->ndim == 2 && j->plan->inner_ndim == 1 && kept->strides[1] == 1;
    return near && kept->strides[0] == size && j->plan->stride == j->plan->step &&
           j->n > 0 && j->n == j->plan->cols && !j->plan->initial.given &&
           size <= PIECE / 2 && (dtype != GPO_F64 || w == 1 || j->n <= GROUP_ROWS);
}

static void
start(job *j, const gpo_call *call, gpo_isa isa, bool parallel)
{
    j->own = *scan_plan_of(call);
    j->plan = &j->own;
    if (j->own.cols == 1 && j->own.kept.ndim == 1) { /* one row of columns */
        j->own.inner = j->own.rows;
        j->own.inner_ndim = 1;
        j->own.step = j->own.rows;
    }
    j->loops = find_loops(isa, j->plan->op, call->in[0].dtype);
    j->x = (const char *)call->in[0].data + j->plan->x_first * j->loops->bytes;
    j->out = (char *)call->out[0].data + j->plan->out_first * j->loops->out_bytes;
    const int64_t inner = j->plan->inner, step = j->plan->step;
    const line_loops line = find_line(isa, j->plan->op, call->in[0].dtype);
    const bool neighbours = j->plan->stride == step && (step == 1 || step == -1);
    const scan_axes *kept = &j->plan->kept;
    j->n = j->plan->cols - (j->plan->exclusive && j->plan->cols > 0);
    const int64_t many = line.down ? NARROW : is_extreme(j) ? FILLED : 0;
    j->few = inner > 1 && inner < many && j->own.inner_ndim == 1 &&
             kept->strides[kept->ndim - 1] == 1 && j->plan->stride == step &&
             j->plan->cols * inner >= (line.down ? NARROW_ROWS : FILLED_ROWS);
    j->narrow = j->few && line.down;
    j->line = neighbours || j->narrow ? line : (line_loops){NULL, NULL, NULL};
    j->matrices = line.lines && is_matrices(j, call->in[0].dtype);
    if (j->matrices) {
        j->line = line;
    }
    j->follow =
        find_follow(isa, j->plan->op, call->in[0].dtype, neighbours && step == 1);
    j->parallel = parallel;
    j->turned = neighbours && (!j->line.line || call->in[0].dtype == GPO_F64) &&
                j->n == j->plan->cols && j->n > 1 &&
                j->n <= (j->plan->op == SCAN_SUM ? TURNED_SUMS : SHORT_ROW) &&
                kept->ndim <= 1 && j->loops->bytes > 1 && j->loops->bytes < ACC &&
                j->loops->bytes == j->loops->out_bytes;
    j->chunk = j->n > 0 ? j->n : 1;
    j->chunks = j->together = 1;
    j->wave = 0;
    j->hi = NULL;
    j->lo = NULL;
    set_first(j, call->in[0].dtype);
}

/* Cuts rows into chunks if there are too few tasks: by shape, not thread count. */
static gpo_status
cut(job *j, gpo_call *call, int64_t chunk)
{
    if (!j->parallel || j->n < 2 * chunk) {
        return GPO_OK;
    }
    j->chunk = chunk;
    j->chunks = ceil_div(j->n, chunk);
    const size_t bytes =
        (size_t)((j->chunks + 1) * j->plan->rows) * (size_t)j->loops->acc_bytes;
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, 2 * bytes, &memory);
    j->hi = memory;
    j->lo = status ? NULL : j->hi + bytes;
    return status;
}

static gpo_status
run_columns(job *j, gpo_call *call)
{
    const int64_t rows = j->plan->rows;
    j->width_stride = j->plan->kept.strides[j->plan->kept.ndim - 1];
    j->strips = ceil_div(j->plan->inner, STRIP);
    const int64_t tasks = rows / j->plan->inner * j->strips;
    const int64_t chunk =
        STRIP_CHUNK / (j->plan->inner < STRIP ? j->plan->inner : STRIP);
    const gpo_status status = tasks < MANY_STRIPS ? cut(j, call, chunk) : GPO_OK;
    if (status) {
        return status;
    }
    if (j->chunks > 1) {
        scan_strips(j, tasks);
    }
    else {
        gpo_cpu_loop(j->parallel, tasks, strip_scan, j);
    }
    return GPO_OK;
}

static gpo_status
run_rows(job *j, gpo_call *call)
{
    const gpo_status status = j->plan->rows < MANY_ROWS ? cut(j, call, CHUNK) : GPO_OK;
    if (status) {
        return status;
    }
    if (j->chunks > 1) {
        scan_chunks(j);
        return GPO_OK;
    }
    j->group = GROUP_BYTES / (j->plan->cols * j->loops->out_bytes) + 1;
    if (j->n <= SHORT_ROW) { /* longer ones run one by one */
        j->group = ceil_div(j->group, CHAINS) * CHAINS;
    }
    gpo_cpu_loop(j->parallel, ceil_div(j->plan->rows, j->group), row_group, j);
    return GPO_OK;
}

/* Task i of rows of one element, which are their results. */
static void
copy_some(void *context, int64_t i)
{
    const job *j = context;
    const int64_t bytes = j->plan->rows * j->loops->bytes, at = i * COPY_BYTES;
    memcpy(j->out + at, j->x + at,
           (size_t)(bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES));
}

static bool
is_copy(const job *j, const gpo_call *call)
{
    const scan_axes *kept = &j->plan->kept;
    return j->n == 1 && j->plan->cols == 1 && !j->plan->initial.given &&
           call->in[0].dtype == call->out[0].dtype &&
           (kept->ndim == 0 || (kept->ndim == 1 && kept->strides[0] == 1));
}

static gpo_status
run(gpo_call *call, bool parallel)
{
    job j;
    start(&j, call, gpo_cpu_isa(), parallel);
    if (j.plan->rows == 0 || j.plan->cols == 0) {
        return GPO_OK;
    }
    if (is_copy(&j, call)) {
        const int64_t bytes = j.plan->rows * j.loops->bytes;
        gpo_cpu_loop(parallel, ceil_div(bytes, COPY_BYTES), copy_some, &j);
        return GPO_OK;
    }
    if (j.matrices) {
        j.group = GROUP_BYTES / (j.n * j.plan->inner * j.loops->out_bytes) + 1;
        gpo_cpu_loop(parallel, ceil_div(j.plan->rows / j.plan->inner, j.group),
                     matrix_group, &j);
        return GPO_OK;
    }
    const bool columns =
        (j.plan->inner >= LEAST_COLUMNS && j.plan->inner_ndim == 1) || j.few;
    return columns ? run_columns(&j, call) : run_rows(&j, call);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, true);
}

/* One element after the other: one chain per row. */
static gpo_status
run_scalar(gpo_call *call)
{
    job j;
    start(&j, call, GPO_ISA_BASE, false);
    for (int64_t r = 0; r < j.plan->rows && j.plan->cols > 0; r++) {
        chain c;
        begin_chains(&j, c.hi, c.lo, 1);
        j.loops->chain(row_of_x(&j, r), j.plan->stride, begin_row(&j, r, 1),
                       j.plan->step, j.n, c.hi, c.lo);
    }
    return GPO_OK;
}

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] =
        {"simd",
         "sums eight elements at a time, else four chains, or a strip of columns",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] =
        {"threads",
         "chunks of fixed size: reduced, then scanned, shared out among threads",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 16 }; /* elements */
    return gpo_cpu_choose(
        variants, call->in[0].size >= PAYS,
        "under 2^16 elements starting threads costs more than they save",
        "from 2^16 elements on several threads pay", why);
}

const gpo_table scan_cpu = {variants, choose};
