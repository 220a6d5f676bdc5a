/*
 * cpu_block.c  A block of convolve's Fourier transforms: reads its inputs, checks which
 * sums the transform may compute, writes the sums.  Order: elements, checks, sums of a
 * block.
 */
#include "../../core/elements.h"
#include "cpu_fourier.h"

#include <string.h>

/* How the sums of a chunk are computed: by the transform, all 0, or directly. */
enum { TAKE, IS_ZERO, DIRECT };

/* ---- elements ---- */

void
convolve_read_doubles(const job *j, const char *row, int64_t length, int64_t step,
                      int64_t start, int64_t n, double *to)
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

/* Converts n doubles, two per complex number, to elements of the result. */
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

void
convolve_scale(double *x, int64_t n, int e)
{
    if (e != 0) {
        const double half = ldexp(1, e / 2), rest = ldexp(1, e - e / 2);
        for (int64_t i = 0; i < n; i++) {
            x[i] = x[i] * half * rest;
        }
    }
}

int
convolve_exponent_of(const double *x, int64_t n)
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

/* ---- checks ---- */

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

/* The sum of squares, which is 0 only if all of x is 0, even on underflow. */
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

/* Computes the energies of the chunks of a block; returns their sum. */
static double
measure_chunks(const fourier *f, block *b)
{
    double all = 0;
    for (int64_t c = 0; c < f->chunks; c++) {
        const int64_t at = c * f->chunk, left = f->plan.length - at;
        const int64_t n = left < f->chunk ? left : f->chunk;
        b->energies[c] = energy_of(b->x + at * f->job->lanes, n * f->job->lanes);
        all += b->energies[c];
    }
    return all;
}

/* Scales the inputs of a block to about 1; records inf and nan and sets them to 0. */
static void
tame_block(const fourier *f, block *b)
{
    const int lanes = f->job->lanes;
    const int64_t n = f->plan.length;
    double *x = b->x;
    for (int64_t i = 0; i < n; i++) {
        if (!finite_double(x + i * lanes, lanes)) {
            if (b->odd < MOST_ODD) {
                b->odd_at[b->odd] = b->start + i;
            }
            b->odd++;
            memset(x + i * lanes, 0, (size_t)lanes * sizeof(double));
        }
    }
    b->exponent = convolve_exponent_of(x, n * lanes);
    const double half = ldexp(1, -b->exponent / 2);
    const double rest = ldexp(1, -b->exponent - -b->exponent / 2);
    for (int64_t i = 0; i < n * lanes; i++) { /* a nonzero number stays nonzero */
        const double y = x[i] * half * rest;
        x[i] = y == 0 && x[i] != 0 ? 0x1p-1074 : y;
    }
}

/* Chunks that lie in the windows of all sums of a chunk. */
static int64_t
common_chunks(const fourier *f)
{
    return f->job->plan->m / f->chunk - 1;
}

/*
 * sums[c] = the energy of the `count` chunks before c, as the end of one group of
 * `count` chunks plus the beginning of the next.  A running sum with subtraction would
 * lose small energies after a large one.
 */
static void
slide_energies(const fourier *f, const double *e, int64_t count, double *sums,
               double *ends)
{
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
 * The verdict on chunk c.  `all`: the energy of the block; `inside`: of the chunks in
 * the windows of all sums of c.  The inputs are 0 from chunk `zeros_from` to c.
 */
static char
verdict_of(const fourier *f, const block *b, int64_t c, int64_t zeros_from, double all,
           double inside)
{
    const int64_t reach = c - common_chunks(f) - 2;
    return b->odd > MOST_ODD                                      ? DIRECT
           : b->odd == 0 && zeros_from <= (reach > 0 ? reach : 0) ? IS_ZERO
           : all <= f->allowed * inside                           ? TAKE
                                                                  : DIRECT;
}

/* The number of terms of sum i of the row. */
static int64_t
terms_of(const convolve_plan *p, int64_t i)
{
    int64_t low, high;
    convolve_terms(p->n, p->m, i, &low, &high);
    return high - low;
}

/* The products in the sums of chunk c, at most; fewer at the ends of a row. */
static double
products_of(const fourier *f, const block *b, int64_t c)
{
    const int64_t end = b->skip + b->n, past = (c + 1) * f->chunk;
    const int64_t from = c * f->chunk < b->skip ? b->skip : c * f->chunk;
    const int64_t to = past < end ? past : end;
    const int64_t first = terms_of(f->job->plan, b->start + from);
    const int64_t last = terms_of(f->job->plan, b->start + to - 1);
    return (double)(to - from) * (double)(first > last ? first : last);
}

/* Sets the verdict of each chunk, and whether the block is wide. */
static void
judge_block(const fourier *f, block *b, double all)
{
    const job *j = f->job;
    const int64_t end = b->skip + b->n;
    double *inside = b->energies + f->chunks;
    int64_t seen = 0, zeros_from = 0;
    double products = 0;
    slide_energies(f, b->energies, common_chunks(f), inside, inside + f->chunks);
    for (int64_t c = b->skip / f->chunk; c * f->chunk < end; c++) {
        for (; seen <= c; seen++) {
            zeros_from = b->energies[seen] > 0 ? seen + 1 : zeros_from;
        }
        b->verdicts[c] = verdict_of(f, b, c, zeros_from, all, inside[c]);
        if (b->verdicts[c] == DIRECT) {
            products += products_of(f, b, c);
        }
    }
    b->wide =
        j->plan->m >= 2 * BASE && b->odd <= MOST_ODD &&
        products / convolve_product_rate(j) >
            0.5 * (double)f->plan.length * convolve_transform_cost(j, f->plan.length);
}

void
convolve_read_block(const fourier *f, block *b)
{
    const convolve_plan *p = f->job->plan;
    convolve_read_doubles(f->job, b->a, p->n, p->a_step, b->start, f->plan.length,
                          b->x);
    b->exponent = 0;
    b->odd = 0;
    double all = measure_chunks(f, b);
    if (!(all < 0x1p800) || all < 0x1p-800) {
        tame_block(f, b);
        all = measure_chunks(f, b);
    }
    judge_block(f, b, all);
}

int
convolve_read_filter(const fourier *f, const char *v, double *x)
{
    const job *j = f->job;
    const int64_t n = f->plan.length * j->lanes;
    convolve_read_doubles(j, v, j->plan->m, j->plan->v_step, 0, f->plan.length, x);
    const double all = sum_of_squares(x, n);
    const int exponent =
        all < 0x1p800 && all > 0x1p-800 ? 0 : convolve_exponent_of(x, n);
    convolve_scale(x, n, -exponent);
    return exponent;
}

/* ---- sums of a block ---- */

/* Whether an inf or nan of the block is a term of sum i. */
static bool
has_odd_term(const fourier *f, const block *b, int64_t i)
{
    for (int64_t k = 0; k < b->odd && k < MOST_ODD; k++) {
        if (b->odd_at[k] <= i && i - b->odd_at[k] < f->job->plan->m) {
            return true;
        }
    }
    return false;
}

void
convolve_add_products(const job *j, const double *x, const double *restrict y,
                      int64_t n, double *restrict to)
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

/* Adds the products of the block's inf and nan to its sums at x. */
static void
add_odd_terms(const fourier *f, const block *b, double *x)
{
    enum { AT_ONCE = 256 };
    const job *j = f->job;
    const convolve_plan *p = j->plan;
    for (int64_t k = 0; k < b->odd; k++) {
        double odd[2] = {0}, taps[2 * AT_ONCE] = {0};
        const int64_t at = b->odd_at[k], past = at + p->m;
        const int64_t end = past < b->first + b->n ? past : b->first + b->n;
        convolve_read_doubles(j, b->a, p->n, p->a_step, at, 1, odd);
        for (int64_t i = at > b->first ? at : b->first; i < end; i += AT_ONCE) {
            const int64_t some = end - i < AT_ONCE ? end - i : AT_ONCE;
            convolve_read_doubles(j, b->v, p->m, p->v_step, i - at, some, taps);
            convolve_add_products(j, odd, taps, some, x + (i - b->first) * j->lanes);
        }
    }
}

/* Computes and writes sums [k, k + n) of a block directly. */
static void
sum_directly(const fourier *f, const block *b, int64_t k, int64_t n)
{
    const int64_t to = b->first - f->job->plan->first + k;
    convolve_sum_stretch(f->job, b->pieces, f->workers, b->row, to, n);
}

/* Writes sums [k, k + n) of a block; recomputes directly those that overflowed. */
static void
write_sums(const fourier *f, const block *b, const double *sums, int64_t k, int64_t n)
{
    const job *j = f->job;
    const double *x = sums + k * j->lanes;
    const int64_t to = b->first - j->plan->first + k;
    write_doubles(j, x, n * j->lanes, convolve_result_at(j, b->row, to));
    if (finite_double(x, n * j->lanes)) {
        return;
    }
    for (int64_t i = 0; i < n;) {
        int64_t bad = 0;
        while (i + bad < n && !finite_double(x + (i + bad) * j->lanes, j->lanes) &&
               !has_odd_term(f, b, b->first + k + i + bad)) {
            bad++;
        }
        if (bad > 0) {
            sum_directly(f, b, k + i, bad);
        }
        i += bad + 1;
    }
}

void
convolve_write_block(const fourier *f, block *b, double *x)
{
    const job *j = f->job;
    if (b->odd > 0 && b->odd <= MOST_ODD) {
        add_odd_terms(f, b, x);
    }
    if (b->wide) {
        write_sums(f, b, x, 0, b->n);
        return;
    }
    for (int64_t k = 0; k < b->n;) {
        const char verdict = b->verdicts[(b->skip + k) / f->chunk];
        int64_t end = k; /* of a run of chunks with the same verdict */
        while (end < b->n && b->verdicts[(b->skip + end) / f->chunk] == verdict) {
            end += f->chunk - (b->skip + end) % f->chunk;
        }
        end = end < b->n ? end : b->n;
        if (verdict == IS_ZERO) {
            memset(x + k * j->lanes, 0,
                   (size_t)((end - k) * j->lanes) * sizeof(double));
        }
        if (verdict == DIRECT) {
            sum_directly(f, b, k, end - k);
        }
        else {
            write_sums(f, b, x, k, end - k);
        }
        k = end;
    }
}
