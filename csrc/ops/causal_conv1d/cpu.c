/*
 * cpu.c  causal_conv1d and its backward on the CPU, as sums of products.  Order: the
 * inner loops, packing, elements of a result, convolution of rows, gradients of the
 * filters, the variants, scalar, choose.
 * See loops.inc (for each instruction set) and scalar.inc for the loops, cpu_short.c for
 * filters of few lags, cpu_spectra.c for Fourier transforms.
 *
 * Here everything is one operation, a convolution of rows with filters: dx is the
 * convolution of the reversed gradient, read backwards, and a filter's gradient is the
 * last elements of the convolution of x with the reversed gradient.
 */
#include "../../core/smooth.h"
#include "cpu.h"

#include <string.h>

/* ---- the inner loops ---- */

enum {
    BLOCK = 256,    /* terms added up before they go into a total */
    MOST_TILE = 64, /* elements per row of a tile */
    LANES = 32,     /* partial sums of a filter's gradient along a row */
};

/* Masks: the LANES that begin at [n] take the last n of LANES values. */
static const int32_t last_float[2 * LANES] = {[LANES... 2 * LANES - 1] = -1};
static const int64_t last_double[2 * LANES] = {[LANES... 2 * LANES - 1] = -1};

#define GPO_LOOPS "../ops/causal_conv1d/loops.inc"
#include "../../core/each_isa.h"

#define V float
#include "scalar.inc"

#define V double
#include "scalar.inc"

/* ---- packing ---- */

/* Task i: the filter of channel i, by lag. */
static void
pack_filter(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    char *to = j->filters + i * j->filter_pitch * j->value_bytes;
    const char *last =
        (const char *)j->arrays.w + (i * p->w_c + (p->taps - 1) * p->w_k) * j->bytes;
    memset(to, 0, (size_t)(j->filter_pitch * j->value_bytes));
    j->loops->read(last, -p->w_k, p->lags, to + PAD * j->value_bytes);
}

/* Task i: row i of x, behind its state. */
static void
pack_x(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t b = i / p->channels, c = i % p->channels, before = j->skipped;
    char *to = row_of(&j->x, b, c);
    if (before > 0) {
        j->loops->read(conv_element(j, j->arrays.state, &p->state, b, c, 0), p->state.t,
                       before, to);
    }
    j->loops->read(conv_element(j, j->arrays.x, &p->x, b, c, 0), p->x.t,
                   p->steps - before, to + before * j->value_bytes);
}

/* Task i: row i of dy, last step first. */
static void
pack_reversed(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t b = i / p->channels, c = i % p->channels;
    j->loops->read(conv_element(j, j->arrays.dy, &p->dy, b, c, p->steps - 1), -p->dy.t,
                   p->steps, row_of(&j->reversed, b, c));
}

/* ---- elements of a result ---- */

double
conv_more(const conv_job *j, int64_t c)
{
    const conv_plan *p = &j->plan;
    union {
        float f;
        double d;
    } value = {.d = 0};
    if (p->has_bias) {
        const char *bias = j->arrays.bias;
        j->loops->read(bias + c * p->bias_c * j->bytes, 1, 1, &value);
    }
    return p->eps + (j->dtype == GPO_F64 ? value.d : (double)value.f);
}

void
conv_fill_more(const conv_job *j, int64_t channels, void *to)
{
    const conv_plan *p = &j->plan;
    memset(to, 0, (size_t)(channels * j->value_bytes));
    if (p->has_bias) {
        j->loops->read(j->arrays.bias, p->bias_c, channels, to);
    }
    for (int64_t c = 0; c < channels; c++) {
        if (j->dtype == GPO_F64) {
            ((double *)to)[c] += p->eps;
        }
        else {
            ((float *)to)[c] = (float)(p->eps + (double)((float *)to)[c]);
        }
    }
}

void
conv_finish(const conv_job *j, int64_t b, int64_t c, int64_t t, int64_t n, void *sum)
{
    const conv_plan *p = &j->plan;
    const loops *f = j->loops;
    double more = j->with_bias ? conv_more(j, c) : 0;
    if (t < j->skipped) {
        const int64_t drop = j->skipped - t < n ? j->skipped - t : n;
        sum = (char *)sum + drop * j->value_bytes;
        t += drop;
        n -= drop;
    }
    if (j->gradient) { /* of SiLU, times dy, into the reversed rows */
        char *last = row_of(&j->reversed, b, c) + (p->steps - 1 - t) * j->value_bytes;
        f->silu_slope(sum, more, n);
        f->turn_back(sum, conv_element(j, j->arrays.dy, &p->dy, b, c, t), p->dy.t, n,
                     last);
        return;
    }
    if (j->silu) {
        f->silu(sum, more, n);
        more = ADD_NOTHING;
    }
    const int64_t first = j->backwards ? p->steps - 1 - t : t - j->skipped;
    f->write(sum, more, j->backwards ? -p->out.t : p->out.t, n,
             conv_element(j, j->arrays.out, &p->out, b, c, first));
}

/* ---- convolution of rows ---- */

void
conv_sum_rows(const conv_job *j, int64_t b, int64_t count, int64_t c, int64_t begin,
              int64_t end, int64_t first)
{
    const conv_plan *p = &j->plan;
    const char *filter = j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
    const void *rows[ROWS];
    for (int64_t r = 0; r < ROWS; r++) { /* beyond `count`: the last row */
        rows[r] = row_of(j->from, b + (r < count ? r : count - 1), c);
    }
    const int64_t tile = j->loops->tile;
    const tile_loop add_tile = count == 1   ? j->loops->tile1
                               : count == 2 ? j->loops->tile2
                                            : j->loops->tile4;
    _Alignas(64) char total[ROWS * MOST_TILE * sizeof(double)];
    for (int64_t t = begin; t < end; t += tile) {
        const int64_t n = end - t < tile ? end - t : tile;
        const int64_t early = t - p->lags + 1;
        memset(total, 0, sizeof total);
        add_tile(rows, filter, t, early > first ? early : first, t + n, p->lags, total);
        for (int64_t r = 0; r < count; r++) {
            conv_finish(j, b + r, c, t, n, total + r * tile * j->value_bytes);
        }
    }
}

void
conv_add_inputs(const conv_job *j, int64_t b, int64_t c, int64_t t, int64_t n,
                int64_t begin, int64_t end, char *sums)
{
    const char *filter = j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
    const void *row = row_of(j->from, b, c);
    const int64_t tile = j->loops->tile;
    for (int64_t k = 0; k < n; k += tile) {
        _Alignas(64) char total[MOST_TILE * sizeof(double)];
        const int64_t some = n - k < tile ? n - k : tile;
        const int64_t early = t + k - j->plan.lags + 1, past = t + k + some;
        const size_t bytes = (size_t)(some * j->value_bytes);
        memset(total, 0, sizeof total);
        memcpy(total, sums + k * j->value_bytes, bytes);
        j->loops->tile1(&row, filter, t + k, early > begin ? early : begin,
                        past < end ? past : end, j->plan.lags, total);
        memcpy(sums + k * j->value_bytes, total, bytes);
    }
}

/* Task i: a range of steps of some rows of a channel. */
static void
convolve_rows(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t ranges = ceil_div(p->steps, RANGE),
                  groups = ceil_div(p->batches, ROWS);
    const int64_t begin = i % ranges * RANGE;
    const int64_t b = i / ranges % groups * ROWS, c = i / ranges / groups;
    const int64_t end = p->steps - begin < RANGE ? p->steps : begin + RANGE;
    const int64_t count = p->batches - b < ROWS ? p->batches - b : ROWS;
    conv_sum_rows(j, b, count, c, begin, end, 0);
}

/* ---- gradients of the filters ---- */

void
conv_put(const conv_job *j, void *to, int64_t i, int64_t stride, int64_t n,
         const void *values)
{
    j->loops->write(values, ADD_NOTHING, stride, n, (char *)to + i * j->bytes);
}

/* Task i: a tile of lags of a channel; a later element is a smaller lag. */
static void
filter_gradient(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t tile = j->loops->tile, tiles = ceil_div(p->lags, tile);
    const int64_t c = i / tiles, first = p->steps - p->lags + i % tiles * tile;
    const int64_t n = p->steps - first < tile ? p->steps - first : tile;
    _Alignas(64) char total[MOST_TILE * sizeof(double)];
    memset(total, 0, sizeof total);
    for (int64_t b = 0; b < p->batches; b++) {
        const void *row = row_of(&j->x, b, c);
        j->loops->tile1(&row, row_of(&j->reversed, b, c), first, 0, first + n, p->steps,
                        total);
    }
    /* element `first + k` is lag T - 1 - first - k */
    conv_put(j, j->arrays.dw, c * p->taps + p->taps - p->steps + first, 1, n, total);
}

void
conv_sum_gradient(conv_job *j, int64_t c)
{
    const int64_t tiles = ceil_div(j->plan.lags, j->loops->tile);
    for (int64_t i = 0; i < tiles; i++) {
        filter_gradient(j, c * tiles + i);
    }
}

/* Task i: for channel i, the zeros of dw before its lags, and the gradient of bias. */
static void
channel_rest(void *context, int64_t i)
{
    const conv_job *j = context;
    const conv_plan *p = &j->plan;
    memset((char *)j->arrays.dw + i * p->taps * j->bytes, 0,
           (size_t)((p->taps - p->lags) * j->bytes));
    if (!p->has_bias) {
        return;
    }
    double total = 0;
    for (int64_t b = 0; b < p->batches; b++) {
        const char *row = row_of(&j->reversed, b, i);
        for (int64_t k = 0; k < p->steps; k += BLOCK) {
            const int64_t stop = p->steps - k < BLOCK ? p->steps : k + BLOCK;
            double sum = 0;
            for (int64_t t = k; t < stop; t++) {
                sum += j->dtype == GPO_F64 ? ((const double *)row)[t]
                                           : (double)((const float *)row)[t];
            }
            total += sum;
        }
    }
    const float narrow = (float)total;
    conv_put(j, j->arrays.dbias, i, 1, 1,
             j->dtype == GPO_F64 ? (const void *)&total : &narrow);
}

/* ---- the variants ---- */

/* Memory for rows of values with `pad` zeros around each; sets `rows`. */
static gpo_status
make_rows(gpo_call *call, const conv_job *j, int64_t pad, value_rows *rows)
{
    const conv_plan *p = &j->plan;
    const int64_t pitch = (p->steps + 2 * pad) * j->value_bytes;
    const size_t bytes = (size_t)(p->batches * p->channels * pitch);
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, bytes, &memory);
    if (status) {
        return status;
    }
    *rows =
        (value_rows){(char *)memory + pad * j->value_bytes, p->channels * pitch, pitch};
    const size_t around = (size_t)(pad * j->value_bytes);
    for (char *row = memory; row < (char *)memory + bytes && pad > 0; row += pitch) {
        memset(row, 0, around);
        memset(row + pitch - around, 0, around);
    }
    return GPO_OK;
}

void
conv_set_dtype(conv_job *j, gpo_dtype dtype)
{
    static const loops *const *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    j->dtype = dtype;
    j->loops = tables[gpo_cpu_isa()][dtype];
    j->bytes = gpo_dtypes[dtype].bytes;
    j->value_bytes = dtype == GPO_F64 ? sizeof(double) : sizeof(float);
}

static gpo_status
start_job(gpo_call *call, conv_job *j, bool parallel)
{
    *j = (conv_job){.plan = *conv_plan_of(call),
                    .arrays = conv_arrays_of(call),
                    .parallel = parallel};
    conv_set_dtype(j, call->in[call->op->by].dtype);
    gpo_status status = conv_check_causality(call);
    if (!status) {
        status = conv_find_segments(call, j);
    }
    if (!status) {
        conv_return_state(j);
    }
    return status;
}

/* The filters and the rows of x as values. */
static gpo_status
pack(gpo_call *call, conv_job *j)
{
    const conv_plan *p = &j->plan;
    j->filter_pitch = p->lags + 2 * PAD;
    void *memory = NULL;
    gpo_status status = gpo_scratch(
        call, (size_t)(p->channels * j->filter_pitch * j->value_bytes), &memory);
    if (status) {
        return status;
    }
    j->filters = memory;
    gpo_cpu_loop(j->parallel, p->channels, pack_filter, j);
    if (p->has_state) { /* x and results are those of longer rows */
        j->skipped = p->taps - 1;
        j->plan.steps += j->skipped;
        j->plan.has_state = false;
    }
    else if (p->x.t == 1 && j->bytes == j->value_bytes) {
        j->x = (value_rows){(char *)j->arrays.x, p->x.b * j->bytes, p->x.c * j->bytes};
        return GPO_OK;
    }
    status = make_rows(call, j, 0, &j->x);
    if (!status) {
        gpo_cpu_loop(j->parallel, p->batches * p->channels, pack_x, j);
    }
    return status;
}

enum { SPECTRA = GPO_CPU_THREADS + 1 }; /* after the common variants */

static void
convolve(conv_job *j, const value_rows *from)
{
    const conv_plan *p = &j->plan;
    j->from = from;
    if (j->spectra) {
        conv_spectra_convolve(j);
        return;
    }
    gpo_cpu_loop(j->parallel,
                 p->channels * ceil_div(p->batches, ROWS) * ceil_div(p->steps, RANGE),
                 convolve_rows, j);
}

static gpo_status
run_forward(conv_job *j)
{
    j->with_bias = true;
    j->silu = j->plan.silu;
    convolve(j, &j->x);
    return GPO_OK;
}

static gpo_status
run_backward(gpo_call *call, conv_job *j)
{
    const conv_plan *p = &j->plan;
    const gpo_status status = make_rows(call, j, PAD, &j->reversed);
    if (status) {
        return status;
    }
    if (p->silu) {
        j->with_bias = j->gradient = true;
        convolve(j, &j->x);
        j->with_bias = j->gradient = false;
    }
    else {
        gpo_cpu_loop(j->parallel, p->batches * p->channels, pack_reversed, j);
    }
    j->backwards = true;
    convolve(j, &j->reversed);
    if (j->spectra) {
        conv_spectra_gradient(j);
    }
    else {
        gpo_cpu_loop(j->parallel, p->channels * ceil_div(p->lags, j->loops->tile),
                     filter_gradient, j);
    }
    gpo_cpu_loop(j->parallel, p->channels, channel_rest, j);
    return GPO_OK;
}

static gpo_status
run(gpo_call *call, int variant)
{
    conv_job j;
    gpo_status status = start_job(call, &j, variant != GPO_CPU_SIMD);
    const bool few = variant != SPECTRA && j.plan.lags <= SHORT_LAGS;
    if (!status && (few || j.plan.segments)) {
        return conv_short(call, &j);
    }
    if (!status) {
        status = pack(call, &j);
    }
    if (!status && variant == SPECTRA) {
        status = conv_spectra_start(call, &j);
    }
    if (status) {
        return status;
    }
    return j.plan.backward ? run_backward(call, &j) : run_forward(&j);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, GPO_CPU_SIMD);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, GPO_CPU_THREADS);
}

static gpo_status
run_spectra(gpo_call *call)
{
    return run(call, SPECTRA);
}

/* ---- scalar: one element after the other ---- */

static void
scalar_row(const conv_job *j, const void *row, int64_t n, int64_t c, void *to)
{
    const char *filter = j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
    if (j->dtype == GPO_F64) {
        scalar_row_double(row, filter, n, j->plan.lags, to);
    }
    else {
        scalar_row_float(row, filter, n, j->plan.lags, to);
    }
}

static void
scalar_lags(const conv_job *j, const void *x, const void *reversed, int64_t n, void *to)
{
    if (j->dtype == GPO_F64) {
        scalar_lags_double(x, reversed, n, j->plan.lags, to);
    }
    else {
        scalar_lags_float(x, reversed, n, j->plan.lags, to);
    }
}

/* The results of a whole segment of row (b, c); adds to the gradient of its filter. */
static void
scalar_span(conv_job *j, int64_t b, int64_t c, const conv_span *span, void *sum,
            void *lags)
{
    const conv_plan *p = &j->plan;
    const int64_t n = span->to - span->from, last = p->steps - span->to;
    const char *x = row_of(&j->x, b, c) + span->from * j->value_bytes;
    j->backwards = false;
    j->with_bias = true;
    j->gradient = p->backward;
    j->silu = p->silu;
    if (!p->backward || p->silu) {
        scalar_row(j, x, n, c, sum);
        conv_finish(j, b, c, span->from, n, sum);
    }
    if (!p->backward) {
        return;
    }
    const char *reversed = row_of(&j->reversed, b, c) + last * j->value_bytes;
    j->backwards = true;
    j->with_bias = j->gradient = j->silu = false;
    scalar_row(j, reversed, n, c, sum);
    conv_finish(j, b, c, last, n, sum);
    scalar_lags(j, x, reversed, n, lags);
}

static gpo_status
run_scalar(gpo_call *call)
{
    conv_job j;
    gpo_status status = start_job(call, &j, false);
    const conv_plan *p = &j.plan;
    const bool backward = p->backward;
    void *memory = NULL;
    if (!status) {
        status = pack(call, &j); /* which may lengthen the rows */
    }
    const int64_t sum_bytes = p->steps * j.value_bytes;
    if (!status && backward) {
        status = make_rows(call, &j, 0, &j.reversed);
    }
    if (!status) {
        status =
            gpo_scratch(call, (size_t)(sum_bytes + p->lags * j.value_bytes), &memory);
    }
    if (status) {
        return status;
    }
    char *total = (char *)memory + sum_bytes;
    for (int64_t c = 0; c < p->channels; c++) {
        memset(total, 0, (size_t)(p->lags * j.value_bytes));
        for (int64_t b = 0; b < p->batches; b++) {
            if (backward && !p->silu) {
                pack_reversed(&j, b * p->channels + c);
            }
            for (int64_t t = 0; t < p->steps;) {
                const conv_span span = conv_span_at(&j, b, t, p->steps);
                scalar_span(&j, b, c, &span, memory, total);
                t = span.to;
            }
        }
        if (backward) {
            conv_put(&j, j.arrays.dw, (c + 1) * p->taps - 1, -1, p->lags, total);
            channel_rest(&j, c);
        }
    }
    return GPO_OK;
}

/* ---- choose ---- */

#define FLOATS(run) [GPO_F16] = run, [GPO_BF16] = run, [GPO_F32] = run, [GPO_F64] = run

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other",
                        "",
                        "run-to-run",
                        {FLOATS(run_scalar)},
                        "exact"},
    [GPO_CPU_SIMD] =
        {"simd",
         "four rows by a tile of steps in registers; short filters read x once",
         "",
         "run-to-run",
         {FLOATS(run_simd)},
         "exact"},
    [GPO_CPU_THREADS] =
        {"threads",
         "simd on ranges of steps of groups of rows, then on groups of lags",
         "",
         "run-to-run",
         {FLOATS(run_threads)},
         "exact"},
    [SPECTRA] = {"spectra",
                 "Fourier transforms of a row in 16 branches, blocks by overlap-save",
                 "",
                 "run-to-run",
                 {FLOATS(run_spectra)},
                 "to rounding"},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char long_filter[] =
        "Fourier transforms cost less than as many products";
    enum { PAYS = 1 << 20 };
    conv_plan p = *conv_plan_of(call);
    p.steps += p.has_state ? p.taps - 1 : 0;
    if (!p.exact_causality && !p.segments && conv_spectra_pay(&p)) {
        GPO_SAY(why, "%s", long_filter);
        return &variants[SPECTRA];
    }
    gpo_cost work;
    call->op->cost(call, &work);
    return gpo_cpu_choose(
        variants, work.flops >= PAYS,
        "under 2^19 products, starting threads costs more than it saves",
        "the work is enough for several threads", why);
}

const gpo_table causal_conv1d_cpu = {variants, choose};
const gpo_table causal_conv1d_backward_cpu = {variants, choose};
