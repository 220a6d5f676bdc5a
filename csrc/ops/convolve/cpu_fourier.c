/*
 * cpu_fourier.c  convolve's long floating filters on the CPU, by Fourier transforms in
 * float64.  Order: what they cost, the transforms of a row, elements, what a block may
 * give, blocks of results, wide blocks, batches of blocks, rows.
 *
 * A transform errs evenly, by the norm of all its inputs; a sum may err by the norm of its
 * own terms alone (NOTES.md, "Overlap-save").  So of each block the sums are taken whose
 * own inputs weigh enough beside all of them.  Others are added up directly if they are
 * few; else the block is made of transforms whose inputs are terms of every sum they reach.
 */
#include "../../core/elements.h"
#include "../../core/fft.h"
#include "cpu.h"

#include <string.h>

enum {
    LEAST_TAPS = 64,          /* of a filter that is transformed */
    BASE = 64,                /* of a wide block: inputs and sums that meet directly */
    MOST_ODD = 16,            /* inf and nan of a block that are added for themselves */
    BATCH_ELEMENTS = 1 << 16, /* of the blocks that are transformed together */
};

/*
 * A sum of a block errs by at most so much u log2(length) |v| |a|, u = 2^-53 and a the
 * inputs of the block: the largest seen of NumPy 2.4's transforms is 0.54, over 15 lengths
 * from 256 to 2^18 and all pairs of 11 kinds of rows and filters, real and complex.
 */
#define TRANSFORM_ERROR 0.75

/* What becomes of the sums of a chunk. */
enum { TAKE, IS_ZERO, DIRECT };

typedef struct block_facts {
    int exponent;                  /* its inputs were multiplied by 2^-exponent */
    bool wide;                     /* made of smaller transforms */
    int64_t odd, odd_at[MOST_ODD]; /* inf and nan of its inputs, and where in the row */
} block_facts;

/* ---- what they cost ---- */

/*
 * ns for an element of a block of `length`, there, multiplied and back; NumPy 2.4 on an
 * EPYC with AVX-512.
 */
static double
transform_cost(const job *j, double length)
{
    const double ns = length <= 1 << 14   ? 9
                      : length <= 1 << 17 ? 16
                      : length <= 1 << 20 ? 26
                                          : 45;
    return j->lanes == 2 ? 2.5 * ns : ns;
}

/* Products in a ns. */
static double
product_rate(const job *j)
{
    return (j->lane == LANE_DOUBLE ? 20.0 : 40.0) / (j->lanes * j->lanes);
}

/* Elements of a chunk, whose norm is taken. */
static int64_t
chunk_of(int64_t m)
{
    enum { PARTS = 8, MOST = 64 };
    return m / PARTS < MOST ? m / PARTS : MOST;
}

/*
 * The square of how far the norm of a block's inputs may pass that of a sum's: sqrt(m) eps
 * is to cover TRANSFORM_ERROR log2(length) 2^-53.
 */
static double
allowed_of(const job *j, int64_t length)
{
    const double eps = j->lane == LANE_DOUBLE ? 0x1p-52 : 0x1p-23;
    const double passes = TRANSFORM_ERROR * log2((double)length) * 0x1p-53;
    return (double)j->plan->m * (eps / passes) * (eps / passes);
}

/* Whether noise of one size, which half the allowance is for, keeps a block's sums. */
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
    double least = (double)p->count * (double)p->m / product_rate(j);
    *f = (fourier_plan){.length = 0};
    if (j->lane < LANE_FLOAT || p->m < LEAST_TAPS || !gpo_fft) {
        return false;
    }
    const int64_t whole = p->n + p->m - 1;
    for (int64_t power = 256; power / 2 < whole; power *= 2) {
        for (int k = 0; k < 3; k++) { /* 2^k, 3 2^k and 5 2^k */
            const int64_t length = k == 0   ? power
                                   : k == 1 ? power / 4 * 3
                                            : power / 8 * 5;
            const bool fits = length >= whole;
            const int64_t lead = fits ? 0 : p->m - 1;
            if (length <= 2 * lead || !suits_noise(j, length)) {
                continue;
            }
            const int64_t blocks = fits ? 1 : ceil_div(p->count, length - lead);
            const double filters = p->one_filter ? 0 : 0.5;
            const double cost = CALL_NS + ((double)blocks + filters) * (double)length *
                                              transform_cost(j, (double)length);
            if (cost < least) {
                least = cost;
                f->length = length;
                f->lead = lead;
                f->per_block = fits ? p->count : length - lead;
                f->blocks = blocks;
            }
        }
    }
    return f->length > 0;
}

/* ---- the transforms of a row ---- */

typedef struct fourier {
    gpo_call *call;
    const job *job;
    fourier_plan plan;
    int64_t first; /* sum of the row that starts the batch, and its row */
    int64_t row;
    const char *a, *v;
    double *signal, *spectrum; /* of a batch of blocks */
    double *filter;            /* spectrum of v times 2^-v_exponent */
    int v_exponent;
    double allowed;        /* the square of how far a block's inputs may pass a sum's */
    int64_t chunk, chunks; /* elements of a chunk, chunks of a block */
    double *energies;      /* of a block's chunks, and two rows for their sums */
    block_facts *facts;    /* of the batch's blocks */
    char *verdicts;        /* of their chunks */
    /* of a wide block; NULL until there is one */
    double *sums;
    double *pairs, *pair_spectra, *pair_filter;
    int64_t room; /* elements of `pairs` */
    double *ends; /* the first and the last BASE taps, times 2^-v_exponent */
} fourier;

static int64_t
spectrum_doubles(const job *j, int64_t length)
{
    return 2 * (j->lanes == 2 ? length : length / 2 + 1);
}

static gpo_status
forward(const fourier *f, int64_t rows, int64_t n, const double *from, double *to)
{
    return gpo_fft(f->call, f->job->lanes == 2 ? GPO_FFT_FORWARD : GPO_RFFT_FORWARD,
                   rows, n, from, to);
}

static gpo_status
inverse(const fourier *f, int64_t rows, int64_t n, const double *from, double *to)
{
    return gpo_fft(f->call, f->job->lanes == 2 ? GPO_FFT_INVERSE : GPO_RFFT_INVERSE,
                   rows, n, from, to);
}

/* `rows` spectra of n numbers, each times y. */
static void
multiply_spectra(int64_t rows, int64_t n, double *spectra, const double *restrict y)
{
    for (int64_t r = 0; r < rows; r++) {
        double *restrict x = spectra + r * n;
        for (int64_t i = 0; i < n; i += 2) {
            const double re = x[i] * y[i] - x[i + 1] * y[i + 1];
            x[i + 1] = x[i] * y[i + 1] + x[i + 1] * y[i];
            x[i] = re;
        }
    }
}

/* ---- elements ---- */

/* Elements [start, start + n) of a row as doubles; zeros beyond its ends. */
static void
read_doubles(const job *j, const char *row, int64_t length, int64_t step, int64_t start,
             int64_t n, double *to)
{
    enum { AT_ONCE = 512 };
    _Alignas(64) float lanes[AT_ONCE * 2];
    if (j->lane == LANE_DOUBLE) {
        convolve_read_window(j, row, length, step, start, n, (char *)to);
        return;
    }
    for (int64_t i = 0; i < n; i += AT_ONCE) {
        const int64_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
        convolve_read_window(j, row, length, step, start + i, some, (char *)lanes);
        for (int64_t k = 0; k < some * j->lanes; k++) {
            to[i * j->lanes + k] = (double)lanes[k];
        }
    }
}

static void
read_taps(const fourier *f, int64_t first, int64_t n, double *to)
{
    const job *j = f->job;
    read_doubles(j, f->v, j->plan->m, j->plan->v_step, first, n, to);
}

/* n doubles, two for a complex number, as elements of the result. */
static void
write_doubles(const job *j, const double *restrict from, int64_t n, void *restrict to)
{
    gpo_f16 *f16 = to;
    gpo_bf16 *bf16 = to;
    float *f32 = to;
    switch (j->dtype) {
        case GPO_F16:
            for (int64_t i = 0; i < n; i++) {
                f16[i] = f16_of_f64(from[i]);
            }
            return;
        case GPO_BF16:
            for (int64_t i = 0; i < n; i++) {
                bf16[i] = bf16_of_f64(from[i]);
            }
            return;
        case GPO_F32:
        case GPO_C64:
            for (int64_t i = 0; i < n; i++) {
                f32[i] = (float)from[i];
            }
            return;
        default:
            memcpy(to, from, (size_t)n * sizeof(double));
    }
}

/* x[i] *= 2^e, which may be no number by itself. */
static void
scale(double *x, int64_t n, int e)
{
    if (e != 0) {
        const double half = ldexp(1, e / 2), rest = ldexp(1, e - e / 2);
        for (int64_t i = 0; i < n; i++) {
            x[i] = x[i] * half * rest;
        }
    }
}

/* The exponent of the largest of n numbers but inf and nan; 0 if all are 0. */
static int
exponent_of(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = x[i] - x[i] == 0 ? fabs(x[i]) : 0;
        most = size > most ? size : most;
    }
    int e = 0;
    (void)frexp(most, &e);
    return e;
}

static void
drop_odd(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = x[i] - x[i] == 0 ? x[i] : 0;
    }
}

/* ---- what a block may give ---- */

static double
sum_of_squares(const double *x, int64_t n)
{
    enum { AT_ONCE = 8 };
    double sum[AT_ONCE] = {0}, total = 0;
    int64_t i = 0;
    for (; i + AT_ONCE <= n; i += AT_ONCE) {
        for (int k = 0; k < AT_ONCE; k++) {
            sum[k] += x[i + k] * x[i + k];
        }
    }
    for (; i < n; i++) {
        sum[0] += x[i] * x[i];
    }
    for (int k = 0; k < AT_ONCE; k++) {
        total += sum[k];
    }
    return total;
}

/* The sum of squares; 0 for zeros alone. */
static double
energy_of(const double *x, int64_t n)
{
    const double all = sum_of_squares(x, n);
    for (int64_t i = 0; i < n && all == 0; i++) {
        if (x[i] != 0) {
            return 0x1p-1022;
        }
    }
    return all;
}

/* The energies of the chunks of a block; gives their sum. */
static double
measure_chunks(const fourier *f, const double *x)
{
    double all = 0;
    for (int64_t c = 0; c < f->chunks; c++) {
        const int64_t at = c * f->chunk, left = f->plan.length - at;
        const int64_t n = left < f->chunk ? left : f->chunk;
        f->energies[c] = energy_of(x + at * f->job->lanes, n * f->job->lanes);
        all += f->energies[c];
    }
    return all;
}

/*
 * Brings a block that begins with element `start` of the row to about 1, without its inf
 * and nan, which are noted.
 */
static void
tame_block(const fourier *f, int64_t start, double *x, block_facts *facts)
{
    const int lanes = f->job->lanes;
    const int64_t n = f->plan.length;
    for (int64_t i = 0; i < n; i++) {
        if (!finite_double(x + i * lanes, lanes)) {
            if (facts->odd < MOST_ODD) {
                facts->odd_at[facts->odd] = start + i;
            }
            facts->odd++;
            memset(x + i * lanes, 0, (size_t)lanes * sizeof(double));
        }
    }
    facts->exponent = exponent_of(x, n * lanes);
    const double half = ldexp(1, -facts->exponent / 2);
    const double rest = ldexp(1, -facts->exponent - -facts->exponent / 2);
    for (int64_t i = 0; i < n * lanes; i++) { /* a number stays one, if the smallest */
        const double y = x[i] * half * rest;
        x[i] = y == 0 && x[i] != 0 ? 0x1p-1074 : y;
    }
}

/*
 * sums[c] = the energy of the `count` chunks before c, in groups of so many: the end of
 * one and the beginning of the next.  Nothing is subtracted: after a large energy a small
 * one would be gone.
 */
static void
slide_energies(const fourier *f, int64_t count, double *sums, double *ends)
{
    const double *e = f->energies;
    double before = 0;
    for (int64_t c = f->chunks; c-- > 0;) {
        const bool last = (c + 1) % count == 0 || c + 1 == f->chunks;
        ends[c] = e[c] + (last ? 0 : ends[c + 1]);
    }
    for (int64_t c = 0; c < f->chunks; c++) {
        before = c % count == 0 ? 0 : before + e[c - 1];
        sums[c] = before + (c >= count ? ends[c - count] : 0);
    }
}

/*
 * Decides about the sums [skip, skip + n) of a block, by its inputs at x: those of a chunk
 * have at least the chunks that lie in the windows of all of them.
 */
static void
judge_block(const fourier *f, int64_t b, double *x, int64_t start, int64_t skip,
            int64_t n)
{
    const job *j = f->job;
    block_facts *facts = &f->facts[b];
    char *verdicts = f->verdicts + b * f->chunks;
    double *inside = f->energies + f->chunks;
    /* the windows of the first sum of a chunk and of the last share so many chunks */
    const int64_t common = j->plan->m / f->chunk - 1;
    int64_t direct = 0, seen = 0, zeros_from = 0; /* chunks [zeros_from, c] are 0 */
    *facts = (block_facts){.exponent = 0};
    double all = measure_chunks(f, x);
    if (!(all < 0x1p800) || all < 0x1p-800) {
        tame_block(f, start, x, facts);
        all = measure_chunks(f, x);
    }
    slide_energies(f, common, inside, inside + f->chunks);
    for (int64_t c = skip / f->chunk; c * f->chunk < skip + n; c++) {
        const int64_t begin = c * f->chunk < skip ? skip : c * f->chunk;
        const int64_t past = (c + 1) * f->chunk,
                      end = past < skip + n ? past : skip + n;
        const int64_t reach = c - common - 2;
        for (; seen <= c; seen++) {
            zeros_from = f->energies[seen] > 0 ? seen + 1 : zeros_from;
        }
        verdicts[c] = facts->odd > MOST_ODD ? DIRECT
                      : facts->odd == 0 && zeros_from <= (reach > 0 ? reach : 0)
                          ? IS_ZERO
                      : all <= f->allowed * inside[c] ? TAKE
                                                      : DIRECT;
        direct += verdicts[c] == DIRECT ? end - begin : 0;
    }
    const double products = (double)direct * (double)j->plan->m / product_rate(j);
    facts->wide = j->plan->m >= 2 * BASE && facts->odd <= MOST_ODD &&
                  products > 0.5 * (double)f->plan.length *
                                 transform_cost(j, (double)f->plan.length);
}

/* ---- blocks of results ---- */

/* Whether an inf or nan of the block is a term of sum i. */
static bool
has_odd_term(const fourier *f, const block_facts *facts, int64_t i)
{
    for (int64_t k = 0; k < facts->odd && k < MOST_ODD; k++) {
        if (facts->odd_at[k] <= i && i - facts->odd_at[k] < f->job->plan->m) {
            return true;
        }
    }
    return false;
}

/* to[i] += x * y[i] for n numbers */
static void
add_products(const job *j, const double *x, const double *restrict y, int64_t n,
             double *restrict to)
{
    if (j->lanes == 1) {
        for (int64_t i = 0; i < n; i++) {
            to[i] += x[0] * y[i];
        }
        return;
    }
    for (int64_t i = 0; i < 2 * n; i += 2) {
        to[i] += x[0] * y[i] - x[1] * y[i + 1];
        to[i + 1] += x[1] * y[i] + x[0] * y[i + 1];
    }
}

/* Adds what inf and nan give to the sums [first, first + n) at x. */
static void
add_odd_terms(const fourier *f, const block_facts *facts, int64_t first, int64_t n,
              double *x)
{
    enum { AT_ONCE = 256 };
    const job *j = f->job;
    for (int64_t k = 0; k < facts->odd; k++) {
        double odd[2] = {0}, taps[2 * AT_ONCE] = {0};
        const int64_t at = facts->odd_at[k];
        const int64_t past = at + j->plan->m, end = past < first + n ? past : first + n;
        read_doubles(j, f->a, j->plan->n, j->plan->a_step, at, 1, odd);
        for (int64_t i = at > first ? at : first; i < end; i += AT_ONCE) {
            const int64_t some = end - i < AT_ONCE ? end - i : AT_ONCE;
            read_taps(f, i - at, some, taps);
            add_products(j, odd, taps, some, x + (i - first) * j->lanes);
        }
    }
}

/* Sums [i, i + n) of the row as elements; those that overflowed on the way once more. */
static void
write_sums(const fourier *f, const block_facts *facts, const double *x, int64_t i,
           int64_t n)
{
    const job *j = f->job;
    const int64_t to = i - j->plan->first;
    write_doubles(j, x, n * j->lanes, convolve_result_at(j, f->row, to));
    if (finite_double(x, n * j->lanes)) {
        return;
    }
    for (int64_t k = 0; k < n;) {
        int64_t bad = 0;
        while (k + bad < n && !finite_double(x + (k + bad) * j->lanes, j->lanes) &&
               !has_odd_term(f, facts, i + k + bad)) {
            bad++;
        }
        if (bad > 0) {
            convolve_sum_stretch(j, f->row, to + k, bad);
        }
        k += bad + 1;
    }
}

/* The n sums from `first` on that a block holds from x on. */
static void
write_block(const fourier *f, int64_t b, int64_t first, int64_t n, int64_t skip,
            double *x)
{
    const job *j = f->job;
    const block_facts *facts = &f->facts[b];
    const char *verdicts = f->verdicts + b * f->chunks;
    if (facts->odd > 0 && facts->odd <= MOST_ODD) {
        add_odd_terms(f, facts, first, n, x);
    }
    if (facts->wide) {
        write_sums(f, facts, x, first, n);
        return;
    }
    for (int64_t k = 0; k < n;) {
        const char verdict = verdicts[(skip + k) / f->chunk];
        int64_t end = k; /* of a run of chunks with one verdict */
        while (end < n && verdicts[(skip + end) / f->chunk] == verdict) {
            end += f->chunk - (skip + end) % f->chunk;
        }
        end = end < n ? end : n;
        if (verdict == DIRECT) {
            convolve_sum_stretch(j, f->row, first + k - j->plan->first, end - k);
        }
        else {
            if (verdict == IS_ZERO) {
                memset(x + k * j->lanes, 0,
                       (size_t)((end - k) * j->lanes) * sizeof(double));
            }
            write_sums(f, facts, x + k * j->lanes, first + k, end - k);
        }
        k = end;
    }
}

/* ---- wide blocks: every input of a transform is a term of every sum that it reaches ---- */

/*
 * Sum n has the inputs n - m + 1 .. n.  Windows of W inputs, BASE 2^k and at most m / 2:
 * those of a window meet all sums from the window's end on to m after its begin.  What is
 * left are two triangles, sums n and inputs i <= n in one window, and sums m + n and inputs
 * i > n in one window.  Each is made of squares of half its size, and so on, down to BASE
 * by BASE, where inputs and sums meet directly.
 */
typedef struct pass {
    int64_t size,
        period;         /* inputs of a square; squares begin at multiples of period, */
    int64_t in, out;    /* with input lo + in and sum lo + out, */
    int64_t count;      /* and have so many sums */
    int64_t length, at; /* of a transform, and where its first sum stands */
    int64_t first_tap, taps;
} pass;

static gpo_status
transform_taps(const fourier *f, const pass *p)
{
    const job *j = f->job;
    read_taps(f, p->first_tap, p->taps, f->pairs);
    scale(f->pairs, p->taps * j->lanes, -f->v_exponent);
    memset(f->pairs + p->taps * j->lanes, 0,
           (size_t)((p->length - p->taps) * j->lanes) * sizeof(double));
    return forward(f, 1, p->length, f->pairs, f->pair_filter);
}

/* Adds the squares that meet sums [begin, end) to those at f->sums. */
static gpo_status
run_pass(const fourier *f, const pass *p, int64_t begin, int64_t end)
{
    enum { MOST_PAIRS = 512 };
    const job *j = f->job;
    const int64_t room = f->room / p->length, lanes = j->lanes;
    const int64_t most = room < MOST_PAIRS ? room : MOST_PAIRS;
    const int64_t before = begin - p->out - p->count; /* the last that ends too early */
    int64_t lo = before < 0 ? 0 : (before / p->period + 1) * p->period;
    gpo_status status = transform_taps(f, p);
    while (!status && lo + p->out < end && lo + p->in < j->plan->n) {
        int64_t rows = 0, at[MOST_PAIRS];
        int exponents[MOST_PAIRS] = {0};
        for (; rows < most && lo + p->out < end && lo + p->in < j->plan->n;
             lo += p->period) {
            double *x = f->pairs + rows * p->length * lanes;
            read_doubles(j, f->a, j->plan->n, j->plan->a_step, lo + p->in, p->size, x);
            drop_odd(x, p->size * lanes);
            exponents[rows] = exponent_of(x, p->size * lanes);
            scale(x, p->size * lanes, -exponents[rows]);
            memset(x + p->size * lanes, 0,
                   (size_t)((p->length - p->size) * lanes) * sizeof(double));
            at[rows++] = lo + p->out;
        }
        status = forward(f, rows, p->length, f->pairs, f->pair_spectra);
        if (!status) {
            multiply_spectra(rows, spectrum_doubles(j, p->length), f->pair_spectra,
                             f->pair_filter);
            status = inverse(f, rows, p->length, f->pair_spectra, f->pairs);
        }
        for (int64_t r = 0; r < rows && !status; r++) {
            const int64_t from = at[r] > begin ? at[r] : begin;
            const int64_t past = at[r] + p->count, to = past < end ? past : end;
            double *x = f->pairs + (r * p->length + p->at + from - at[r]) * lanes;
            double *sums = f->sums + (from - begin) * lanes;
            scale(x, (to - from) * lanes, exponents[r] + f->v_exponent);
            for (int64_t i = 0; i < (to - from) * lanes; i++) {
                sums[i] += x[i];
            }
        }
    }
    return status;
}

/* The products of a tap and n inputs or sums that lie in [begin, end), if any do. */
static void
add_clipped(const fourier *f, const double *x, const double *taps, int64_t first,
            int64_t n, int64_t begin, int64_t end)
{
    const int64_t from = first > begin ? first : begin;
    const int64_t to = first + n < end ? first + n : end;
    if (from < to) {
        const int64_t lanes = f->job->lanes;
        add_products(f->job, x, taps + (from - first) * lanes, to - from,
                     f->sums + (from - begin) * lanes);
    }
}

/* Inputs [lo, lo + BASE) and the sums in the same places, and m after them. */
static void
add_corners(const fourier *f, int64_t lo, int64_t begin, int64_t end)
{
    const job *j = f->job;
    const int64_t m = j->plan->m, lanes = j->lanes;
    const double *head = f->ends, *tail = head + BASE * lanes;
    double x[2 * BASE] = {0};
    if ((lo + BASE <= begin || lo >= end) &&
        (m + lo + BASE <= begin || m + lo >= end)) {
        return;
    }
    read_doubles(j, f->a, j->plan->n, j->plan->a_step, lo, BASE, x);
    drop_odd(x, BASE * lanes);
    for (int64_t q = 0; q < BASE; q++) {
        add_clipped(f, x + q * lanes, head, lo + q, BASE - q, begin, end);
        add_clipped(f, x + q * lanes, tail + (BASE - q) * lanes, m + lo, q, begin, end);
    }
}

/* The least 2^k, 3 2^k or 5 2^k that is not less than n, n > 4. */
static int64_t
good_length(int64_t n)
{
    int64_t power = 8;
    while (power < n) {
        power *= 2;
    }
    return n <= power / 8 * 5   ? power / 8 * 5
           : n <= power / 4 * 3 ? power / 4 * 3
                                : power;
}

static gpo_status
make_room(fourier *f)
{
    const job *j = f->job;
    const int64_t longest = good_length(j->plan->m);
    const int64_t room = longest > BATCH_ELEMENTS ? longest : BATCH_ELEMENTS;
    const int64_t sizes[] = {f->plan.per_block * j->lanes, room * j->lanes,
                             room * j->lanes + room / BASE + 2,
                             spectrum_doubles(j, longest), 2 * BASE * j->lanes};
    double **const to[] = {&f->sums, &f->pairs, &f->pair_spectra, &f->pair_filter,
                           &f->ends};
    f->room = room;
    for (int i = 0; i < 5; i++) {
        void *memory = NULL;
        const gpo_status status =
            gpo_scratch(f->call, (size_t)sizes[i] * sizeof(double), &memory);
        if (status) {
            return status;
        }
        *to[i] = memory;
    }
    return GPO_OK;
}

/* The sums [begin, end) of the row, in f->sums. */
static gpo_status
sum_wide_block(fourier *f, int64_t begin, int64_t end)
{
    const job *j = f->job;
    const int64_t m = j->plan->m, lanes = j->lanes;
    gpo_status status = f->ends ? GPO_OK : make_room(f);
    if (status) {
        return status;
    }
    int64_t window = BASE;
    while (4 * window <= m) {
        window *= 2;
    }
    memset(f->sums, 0, (size_t)((end - begin) * lanes) * sizeof(double));
    const pass middle = {window,         window, 0, window, m - window,
                         good_length(m), window, 0, m};
    status = run_pass(f, &middle, begin, end);
    for (int64_t size = BASE; size < window && !status; size *= 2) {
        const pass near = {size, 2 * size, 0, size, size, 2 * size, size, 0, 2 * size};
        const pass far = {size,     2 * size, size,         m,       size,
                          2 * size, size,     m - 2 * size, 2 * size};
        status = run_pass(f, &near, begin, end);
        status = status ? status : run_pass(f, &far, begin, end);
    }
    read_taps(f, 0, BASE, f->ends);
    read_taps(f, m - BASE, BASE, f->ends + BASE * lanes);
    const int64_t first = begin - m - BASE;
    for (int64_t lo = first < 0 ? 0 : first / BASE * BASE;
         lo < end && lo < j->plan->n && !status; lo += BASE) {
        add_corners(f, lo, begin, end);
    }
    return status;
}

/* ---- batches of blocks ---- */

/* The spectrum of the filter; `signal` holds it meanwhile. */
static gpo_status
transform_filter(fourier *f)
{
    const job *j = f->job;
    const int64_t n = f->plan.length * j->lanes;
    read_doubles(j, f->v, j->plan->m, j->plan->v_step, 0, f->plan.length, f->signal);
    const double all = sum_of_squares(f->signal, n);
    f->v_exponent = all < 0x1p800 && all > 0x1p-800 ? 0 : exponent_of(f->signal, n);
    scale(f->signal, n, -f->v_exponent);
    return forward(f, 1, f->plan.length, f->signal, f->filter);
}

/* One thread: the transforms take most of the time, and NumPy's are serial. */
static gpo_status
transform_batch(fourier *f, int64_t blocks)
{
    const job *j = f->job;
    const fourier_plan *plan = &f->plan;
    const int64_t skip = plan->lead > 0 ? plan->lead : f->first;
    const int64_t left = j->plan->count - (f->first - j->plan->first);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t rest = left - b * plan->per_block;
        const int64_t start =
            plan->lead > 0 ? f->first + b * plan->per_block - plan->lead : 0;
        double *x = f->signal + b * plan->length * j->lanes;
        read_doubles(j, f->a, j->plan->n, j->plan->a_step, start, plan->length, x);
        judge_block(f, b, x, start, skip,
                    rest < plan->per_block ? rest : plan->per_block);
    }
    gpo_status status = forward(f, blocks, plan->length, f->signal, f->spectrum);
    if (!status) {
        multiply_spectra(blocks, spectrum_doubles(j, plan->length), f->spectrum,
                         f->filter);
        status = inverse(f, blocks, plan->length, f->spectrum, f->signal);
    }
    for (int64_t b = 0; b < blocks && !status; b++) {
        const int64_t rest = left - b * plan->per_block;
        const int64_t n = rest < plan->per_block ? rest : plan->per_block;
        const int64_t first = f->first + b * plan->per_block;
        double *x = f->signal + (b * plan->length + skip) * j->lanes;
        if (f->facts[b].wide) {
            status = sum_wide_block(f, first, first + n);
            x = f->sums;
        }
        else {
            scale(x, n * j->lanes, f->facts[b].exponent + f->v_exponent);
        }
        if (!status) {
            write_block(f, b, first, n, skip, x);
        }
    }
    return status;
}

/* ---- rows ---- */

gpo_status
convolve_run_fourier(gpo_call *call, const job *j, const fourier_plan *plan)
{
    enum { LEAST_BLOCKS = 2 };
    const convolve_plan *p = j->plan;
    fourier f = {.call = call, .job = j, .plan = *plan};
    int64_t batch = BATCH_ELEMENTS / plan->length;
    batch = batch > LEAST_BLOCKS ? batch : LEAST_BLOCKS;
    batch = batch < plan->blocks ? batch : plan->blocks;
    f.chunk = chunk_of(p->m);
    f.chunks = ceil_div(plan->length, f.chunk);
    f.allowed = allowed_of(j, plan->length);
    const int64_t of_batch = batch * spectrum_doubles(j, plan->length);
    const int64_t doubles = batch * plan->length * j->lanes + of_batch +
                            spectrum_doubles(j, plan->length) + 3 * f.chunks;
    void *memory = NULL;
    gpo_status status =
        gpo_scratch(call,
                    (size_t)(doubles * (int64_t)sizeof(double) +
                             batch * ((int64_t)sizeof(block_facts) + f.chunks)),
                    &memory);
    if (status) {
        return status;
    }
    f.signal = memory;
    f.spectrum = f.signal + batch * plan->length * j->lanes;
    f.filter = f.spectrum + of_batch;
    f.energies = f.filter + spectrum_doubles(j, plan->length);
    f.facts = (block_facts *)(f.energies + 3 * f.chunks);
    f.verdicts = (char *)(f.facts + batch);
    const char *transformed = NULL;
    for (f.row = 0; f.row < p->count_rows && !status; f.row++) {
        convolve_find_row(j, f.row, &f.a, &f.v);
        if (f.v != transformed) {
            status = transform_filter(&f);
            transformed = f.v;
        }
        for (int64_t b = 0; b < plan->blocks && !status; b += batch) {
            f.first = p->first + b * plan->per_block;
            status = transform_batch(&f, plan->blocks - b < batch ? plan->blocks - b
                                                                  : batch);
        }
    }
    return status;
}
