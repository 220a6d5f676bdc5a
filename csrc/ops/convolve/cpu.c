/*
 * cpu.c  convolve on the CPU, as sums of products.  Order: the inner loops, rows and
 * elements, one sum after the other, pieces of a row, the variants, choose.  See
 * loops.inc for the loops and cpu_fourier.h for Fourier transforms.
 *
 * A task computes a piece of the result, 512 terms at a time.  The elements of `a` are
 * read in place, or copied to a zero-padded window.  A padding zero times inf or nan is
 * a nan, so results of padded windows that are not finite are recomputed from their own
 * terms.
 */
#include "cpu.h"

#include "../../core/elements.h"

#include <string.h>

enum {
    CHUNK = CONVOLVE_CHUNK, /* terms of a sum that are added up in order */
    PIECE_BYTES = 8192,     /* of sums per piece: with its part of a, half of L1 */
    DOT_BYTES = 256,        /* of partial sums of a dot product */
    FEW_BYTES = 128,        /* rows with fewer bytes of sums use dot products */
    LEAST_DOT = 128,        /* fewest terms of such a sum */
    BOOL_CHUNK = 64,        /* terms between checks for true sums */
    WINDOW_BYTES = CHUNK * sizeof(gpo_c128), /* of a, beyond the piece's own */
    TASK_TERMS = 1 << 18,                    /* products that justify a task */
};

/* ---- the inner loops ---- */

typedef struct loops {
    /* to[i] = sum over m < terms of window[i + m * step] * taps[m], i in [0, sums) */
    void (*block)(const void *window, const void *taps, int64_t sums, int64_t terms,
                  int64_t step, void *to);
    /* *to = sum over m < terms of window[m] * taps[m] */
    void (*dot)(const void *window, const void *taps, int64_t terms, void *to);
    /* the same for complex numbers; NULL if the lane type has none */
    void (*pair)(const void *window, const void *taps, int64_t terms, void *to);
    /* high[i] + low[i] += from[i]; integers have no low part */
    void (*total)(const void *from, int64_t n, void *high, void *low);
    void (*settle)(void *high, const void *low, int64_t n); /* high[i] += low[i] */
} loops;

#define GPO_LOOPS "../ops/convolve/loops.inc"
#include "../../core/each_isa.h"

/* ---- rows and elements ---- */

void
convolve_find_row(const job *j, int64_t row, const char **a, const char **v)
{
    const convolve_plan *p = j->plan;
    *a = j->a;
    *v = j->v;
    for (int d = 0; d < p->rows.naxes; d++) {
        const convolve_axis *axis = &p->rows.axes[d];
        const int64_t at = row % axis->length;
        row /= axis->length;
        *a += at * axis->a * j->bytes;
        *v += at * axis->v * j->bytes;
    }
}

char *
convolve_result_at(const job *j, int64_t row, int64_t i)
{
    return j->out + (row * j->plan->count + i) * j->bytes;
}

/*
 * Reads n elements, `step` apart, as contiguous lanes.  The loops are vectorized only
 * where this is inlined with a constant `step`.
 */
static inline __attribute__((always_inline)) void
read_steps(const job *j, const void *from, const int64_t step, int64_t n, void *to)
{
    if (j->dtype == GPO_BOOL) {
        const uint8_t *restrict x = from;
        uint8_t *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step] != 0;
        }
    }
    else if (j->dtype == GPO_F16) {
        const gpo_f16 *restrict x = from;
        float *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = float_of_f16(x[i * step]);
        }
    }
    else if (j->dtype == GPO_BF16) {
        const gpo_bf16 *restrict x = from;
        float *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = float_of_bf16(x[i * step]);
        }
    }
    else if (j->bytes == 1) {
        const uint8_t *restrict x = from;
        uint16_t *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step];
        }
    }
    else if (j->bytes == 2) {
        const uint16_t *restrict x = from;
        uint16_t *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step];
        }
    }
    else if (j->bytes == 4) {
        const uint32_t *restrict x = from;
        uint32_t *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step];
        }
    }
    else if (j->bytes == 8) {
        const uint64_t *restrict x = from;
        uint64_t *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step];
        }
    }
    else {
        const gpo_c128 *restrict x = from;
        gpo_c128 *restrict y = to;
        for (int64_t i = 0; i < n; i++) {
            y[i] = x[i * step];
        }
    }
}

/* The same for any step. */
static void
read_elements(const job *j, const void *from, int64_t step, int64_t n, void *to)
{
    if (step == 1) {
        read_steps(j, from, 1, n, to);
    }
    else if (step == -1) {
        read_steps(j, from, -1, n, to);
    }
    else {
        read_steps(j, from, step, n, to);
    }
}

/* Writes n lanes as contiguous elements; complex numbers need no conversion. */
static void
write_elements(const job *j, const void *from, int64_t n, void *to)
{
    const float *restrict floats = from;
    const uint16_t *restrict words = from;
    gpo_f16 *restrict f16 = to;
    gpo_bf16 *restrict bf16 = to;
    uint8_t *restrict bytes = to;
    switch (j->dtype) {
        case GPO_F16:
            for (int64_t i = 0; i < n; i++) {
                f16[i] = f16_of_float(floats[i]);
            }
            return;
        case GPO_BF16:
            for (int64_t i = 0; i < n; i++) {
                bf16[i] = bf16_of_float(floats[i]);
            }
            return;
        case GPO_I8:
        case GPO_U8:
            for (int64_t i = 0; i < n; i++) {
                bytes[i] = (uint8_t)words[i];
            }
            return;
        default:
            memcpy(to, from, (size_t)(n * j->bytes));
    }
}

void
convolve_read_window(const job *j, const char *row, int64_t length, int64_t step,
                     int64_t start, int64_t n, char *to)
{
    const int64_t wide = j->lanes * j->lane_bytes;
    int64_t before = start < 0 ? -start : 0;
    before = before < n ? before : n;
    int64_t inside = length - (start + before);
    inside = inside < 0 ? 0 : inside < n - before ? inside : n - before;
    memset(to, 0, (size_t)(before * wide));
    if (inside > 0) {
        read_elements(j, row + (start + before) * step * j->bytes, step, inside,
                      to + before * wide);
    }
    memset(to + (before + inside) * wide, 0, (size_t)((n - before - inside) * wide));
}

/* ---- one sum after the other ---- */

#define V uint32_t
#include "total.inc"

#define V uint64_t
#include "total.inc"

#define V float
#include "total.inc"

#define V double
#include "total.inc"

/* Counts true products, in 64 bits: 2^32 of them would overflow to 0. */
#define DTYPE BOOL
#define T gpo_bool
#define V uint64_t
#define LOAD(x) ((x) != 0)
#define STORE(x) ((x) != 0)
#include "exact.inc"

#define DTYPE U8
#define T uint8_t
#define V uint32_t
#define LOAD(x) (uint32_t)(x)
#define STORE(x) (uint8_t)(x)
#include "exact.inc"

#define DTYPE U16
#define T uint16_t
#define V uint32_t
#define LOAD(x) (uint32_t)(x)
#define STORE(x) (uint16_t)(x)
#include "exact.inc"

#define DTYPE U32
#define T uint32_t
#define V uint32_t
#define LOAD(x) (x)
#define STORE(x) (x)
#include "exact.inc"

#define DTYPE U64
#define T uint64_t
#define V uint64_t
#define LOAD(x) (x)
#define STORE(x) (x)
#include "exact.inc"

#define DTYPE F16
#define T gpo_f16
#define V float
#define LOAD float_of_f16
#define STORE f16_of_float
#include "exact.inc"

#define DTYPE BF16
#define T gpo_bf16
#define V float
#define LOAD float_of_bf16
#define STORE bf16_of_float
#include "exact.inc"

#define DTYPE F32
#define T float
#define V float
#define LOAD(x) (x)
#define STORE(x) (x)
#include "exact.inc"

#define DTYPE F64
#define T double
#define V double
#define LOAD(x) (x)
#define STORE(x) (x)
#include "exact.inc"

#define DTYPE C64
#define T gpo_c64
#define V float
#include "complex.inc"

#define DTYPE C128
#define T gpo_c128
#define V double
#include "complex.inc"

static const struct {
    lane lane;
    int8_t lanes, lane_bytes;
    bool in_place;
    exact_sum exact;
} kinds[GPO_NDTYPES] = {
    [GPO_BOOL] = {LANE_BOOL, 1, 1, false, exact_BOOL},
    [GPO_I8] = {LANE_U16, 1, 2, false, exact_U8},
    [GPO_U8] = {LANE_U16, 1, 2, false, exact_U8},
    [GPO_I16] = {LANE_U16, 1, 2, true, exact_U16},
    [GPO_U16] = {LANE_U16, 1, 2, true, exact_U16},
    [GPO_I32] = {LANE_U32, 1, 4, true, exact_U32},
    [GPO_U32] = {LANE_U32, 1, 4, true, exact_U32},
    [GPO_I64] = {LANE_U64, 1, 8, true, exact_U64},
    [GPO_U64] = {LANE_U64, 1, 8, true, exact_U64},
    [GPO_F16] = {LANE_FLOAT, 1, 4, false, exact_F16},
    [GPO_BF16] = {LANE_FLOAT, 1, 4, false, exact_BF16},
    [GPO_F32] = {LANE_FLOAT, 1, 4, true, exact_F32},
    [GPO_F64] = {LANE_DOUBLE, 1, 8, true, exact_F64},
    [GPO_C64] = {LANE_FLOAT, 2, 4, true, exact_C64},
    [GPO_C128] = {LANE_DOUBLE, 2, 8, true, exact_C128},
};

/* ---- pieces of a row ---- */

/*
 * Reads n taps of v in reverse order.  Complex taps become real parts followed by
 * imaginary parts, except for dot products, which take them interleaved.
 */
static void
read_taps(const job *j, const char *v, int64_t first, int64_t n, char *to)
{
    const int64_t step = j->plan->v_step;
    const char *from = v + (first + n - 1) * step * j->bytes;
    if (j->dtype == GPO_C64 && !j->few) {
        read_parts_C64(from, step, n, to);
        return;
    }
    if (j->dtype == GPO_C128 && !j->few) {
        read_parts_C128(from, step, n, to);
        return;
    }
    read_elements(j, from, -step, n, to);
}

/* The stride in bytes between taps, or between parts of complex taps. */
static int64_t
tap_bytes(const job *j)
{
    return j->few ? j->lanes * j->lane_bytes : j->lane_bytes;
}

static void
combine_parts(const job *j, void *by_re, const void *by_im, int64_t n)
{
    if (j->lane == LANE_FLOAT) {
        combine_C64(by_re, by_im, n);
    }
    else {
        combine_C128(by_re, by_im, n);
    }
}

/* Sums `terms` products into each of n sums; complex ones use `by_im` as a buffer. */
static void
add_products(const job *j, const char *window, const char *taps, int64_t to_imaginary,
             int64_t n, int64_t terms, char *to, char *by_im)
{
    const int64_t wide = j->lanes * j->lane_bytes;
    if (j->few) {
        for (int64_t i = 0; i < n; i++) {
            (j->lanes == 2 ? j->loops->pair : j->loops->dot)(window + i * wide, taps,
                                                             terms, to + i * wide);
        }
        return;
    }
    j->loops->block(window, taps, n * j->lanes, terms, j->lanes, to);
    if (j->lanes == 2) {
        j->loops->block(window, taps + to_imaginary, n * 2, terms, 2, by_im);
        combine_parts(j, to, by_im, n);
    }
}

static bool
are_finite(const job *j, const void *lanes, int64_t n)
{
    return j->lane == LANE_FLOAT ? finite_float(lanes, n) : finite_double(lanes, n);
}

/* The workspace of a task. */
typedef struct piece_work {
    _Alignas(64) char window[PIECE_BYTES + WINDOW_BYTES + FEW_BYTES];
    _Alignas(64) char taps[2 * WINDOW_BYTES];
    _Alignas(64) char sums[PIECE_BYTES], high[PIECE_BYTES], low[PIECE_BYTES];
    _Alignas(64) char by_im[PIECE_BYTES];
} piece_work;

/* Computes sums [i, i + n) of a row of the result, n <= j->piece. */
static void
compute_piece(const job *j, int64_t row, int64_t i, int64_t n, piece_work *work)
{
    const convolve_plan *p = j->plan;
    char *window = work->window, *own_taps = work->taps;
    char *sums = work->sums, *high = work->high, *low = work->low;
    const int64_t wide = j->lanes * j->lane_bytes, first = p->first + i;
    const bool floating = j->lane >= LANE_FLOAT;
    const char *a, *v;
    int64_t start, end, ignored;
    convolve_find_row(j, row, &a, &v);
    convolve_terms(p->n, p->m, first, &start, &ignored);
    convolve_terms(p->n, p->m, first + n - 1, &ignored, &end);
    const bool single = end - start <= j->chunk;
    char *target = convolve_result_at(j, row, i),
         *to = single && j->in_place ? target : sums;
    bool padded = false;
    if (!single) {
        memset(high, 0, (size_t)(n * wide));
        memset(low, 0, (size_t)(n * wide));
    }
    for (int64_t k = start; k < end; k += j->chunk) {
        const int64_t terms = end - k < j->chunk ? end - k : j->chunk;
        /* The sums that have any of these terms; for bool, that are not yet true. */
        int64_t begin = k > first ? k - first : 0, stop = k + terms + p->n - 1 - first;
        stop = stop < n ? stop : n;
        if (j->lane == LANE_BOOL && !single) {
            const char *untrue =
                begin < stop ? memchr(high + begin, 0, (size_t)(stop - begin)) : NULL;
            begin = untrue ? untrue - high : stop;
        }
        const int64_t some = stop - begin;
        if (some <= 0) {
            continue;
        }
        const int64_t from = first + begin - k - (terms - 1), length = some + terms - 1;
        const bool outside = from < 0 || from + length > p->n;
        const char *x = window, *taps = own_taps;
        int64_t to_imaginary = terms * tap_bytes(j);
        padded = padded || outside;
        if (outside || p->a_step != 1 || !j->in_place) {
            convolve_read_window(j, a, p->n, p->a_step, from, length, window);
        }
        else {
            x = a + from * j->bytes;
        }
        if (j->taps) {
            taps = j->taps + (p->m - k - terms) * tap_bytes(j);
            to_imaginary = p->m * tap_bytes(j);
        }
        else {
            read_taps(j, v, k, terms, own_taps);
        }
        add_products(j, x, taps, to_imaginary, some, terms, to, work->by_im);
        if (!single) {
            j->loops->total(sums, some * j->lanes, high + begin * wide,
                            low + begin * wide);
        }
    }
    if (!single) {
        j->loops->settle(high, low, n * j->lanes);
        to = high;
    }
    if (to != target) {
        write_elements(j, to, n, target);
    }
    if (padded && floating && !are_finite(j, to, n * j->lanes)) {
        for (int64_t c = 0; c < n; c++) {
            if (!are_finite(j, to + c * wide, j->lanes)) {
                j->exact(p, a, v, first + c, target + c * j->bytes);
            }
        }
    }
}

/* Sums [i, i + n) of a row, in `parts` pieces by `tasks` tasks. */
typedef struct stretch {
    const job *job;
    piece_work *work; /* of each task */
    int64_t row, i, n, parts, tasks;
} stretch;

static void
compute_parts(void *context, int64_t t)
{
    const stretch *s = context;
    const job *j = s->job;
    for (int64_t part = t; part < s->parts; part += s->tasks) {
        const int64_t at = part * j->piece, left = s->n - at;
        compute_piece(j, s->row, s->i + at, left < j->piece ? left : j->piece,
                      &s->work[t]);
    }
}

size_t
convolve_piece_bytes(void)
{
    return sizeof(piece_work);
}

void
convolve_sum_stretch(const job *j, void *work, int64_t workers, int64_t row, int64_t i,
                     int64_t n)
{
    stretch s = {j, work, row, i, n, .parts = ceil_div(n, j->piece), .tasks = 1};
    if (n > TASK_TERMS / j->plan->m) {
        s.tasks = s.parts < workers ? s.parts : workers;
    }
    gpo_cpu_loop(s.tasks > 1, s.tasks, compute_parts, &s);
}

/* Task t: a range of pieces, numbered over all rows. */
static void
compute_task(void *context, int64_t t, void *work)
{
    const job *j = context;
    const int64_t all = j->plan->count_rows * j->pieces, first = t * j->per_task;
    const int64_t end = all - first < j->per_task ? all : first + j->per_task;
    for (int64_t u = first; u < end; u++) {
        const int64_t i = u % j->pieces * j->piece, left = j->plan->count - i;
        compute_piece(j, u / j->pieces, i, left < j->piece ? left : j->piece, work);
    }
}

/* ---- the variants ---- */

/* Fills in a job except its addresses, which choose does not have yet. */
static void
describe_job(const gpo_call *call, bool parallel, job *j)
{
    static const loops *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    const convolve_plan *p = convolve_plan_of(call);
    j->plan = p;
    j->a = j->v = j->out = NULL;
    j->dtype = call->out[0].dtype;
    j->bytes = gpo_dtypes[j->dtype].bytes;
    j->lane = kinds[j->dtype].lane;
    j->lanes = kinds[j->dtype].lanes;
    j->lane_bytes = kinds[j->dtype].lane_bytes;
    j->in_place = kinds[j->dtype].in_place;
    j->exact = kinds[j->dtype].exact;
    j->loops = &tables[gpo_cpu_isa()][j->lane];
    j->parallel = parallel;
    j->pieces = ceil_div(p->count * j->lanes * j->lane_bytes, PIECE_BYTES);
    j->piece = ceil_div(p->count, j->pieces);
    j->per_task = TASK_TERMS / j->piece / p->m;
    j->per_task = j->per_task > 1 ? j->per_task : 1;
    const int64_t wide = j->lanes * j->lane_bytes;
    j->few = p->count * wide < FEW_BYTES && p->m >= LEAST_DOT;
    j->chunk = j->few                 ? 2 * WINDOW_BYTES / wide
               : j->lane == LANE_BOOL ? BOOL_CHUNK
                                      : CHUNK;
    j->taps = NULL;
}

static void
start_job(const gpo_call *call, bool parallel, job *j)
{
    describe_job(call, parallel, j);
    j->a = call->in[j->plan->in_a].data;
    j->v = call->in[j->plan->in_v].data;
    j->out = call->out[0].data;
}

static gpo_status
run_pieces(gpo_call *call, job *j)
{
    const convolve_plan *p = j->plan;
    if (p->one_filter && p->count_rows > 0) {
        void *taps = NULL;
        const gpo_status status =
            gpo_scratch(call, (size_t)(p->m * j->lanes * tap_bytes(j)), &taps);
        if (status) {
            return status;
        }
        j->taps = taps;
        read_taps(j, j->v, 0, p->m, j->taps);
    }
    return gpo_cpu_work(call, j->parallel,
                        ceil_div(p->count_rows * j->pieces, j->per_task),
                        sizeof(piece_work), compute_task, j);
}

static gpo_status
run_scalar(gpo_call *call)
{
    job j;
    start_job(call, false, &j);
    for (int64_t r = 0; r < j.plan->count_rows; r++) {
        const char *a, *v;
        convolve_find_row(&j, r, &a, &v);
        for (int64_t i = 0; i < j.plan->count; i++) {
            j.exact(j.plan, a, v, j.plan->first + i, convolve_result_at(&j, r, i));
        }
    }
    return GPO_OK;
}

static gpo_status
run_simd(gpo_call *call)
{
    job j;
    start_job(call, false, &j);
    return run_pieces(call, &j);
}

static gpo_status
run_threads(gpo_call *call)
{
    job j;
    fourier_plan f;
    start_job(call, true, &j);
    if (!convolve_plan_fourier(&j, &f)) {
        return run_pieces(call, &j);
    }
    return convolve_run_fourier(call, &j, &f);
}

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one sum after the other",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] = {"simd",
                      "eight vectors of sums in registers while the terms go by",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] =
        {"threads",
         "simd on pieces of the rows; long floating filters by overlap-save",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char long_filter[] =
        "Fourier transforms cost less than as many products";
    enum { PAYS = 1 << 22 };
    job j;
    fourier_plan f;
    describe_job(call, true, &j);
    if (convolve_plan_fourier(&j, &f)) {
        GPO_SAY(why, "%s", long_filter);
        return &variants[GPO_CPU_THREADS];
    }
    const double products =
        (double)call->out[0].size * (double)(j.plan->m + 16); /* 16: read and written */
    return gpo_cpu_choose(
        variants, products >= PAYS,
        "under 2^22 products starting threads costs more than it saves",
        "the work is enough for several threads", why);
}

const gpo_table convolve_cpu = {variants, choose};
