/*
 * cpu.c  causal_conv1d and its backward on the CPU.  Order: elements, the three
 * instruction sets, the job, packing, elements of a result, convolution of rows, gradients
 * of the filters, Fourier transforms, the variants, scalar, choose.  Inner loops stand in
 * cpu.inc, those of the transforms in spectra.inc.
 *
 * Everything is one operation, rows times filters: dx is the convolution of the reversed
 * gradient, read backwards, and a filter's gradient that of x with the reversed gradient,
 * of which the last elements are wanted.
 */
#include "../../backend/backend.h"
#include "../../core/elements.h"
#include "causal_conv1d.h"

#include <string.h>

enum {
    BLOCK = 256,     /* steps whose sum is not yet part of a total */
    PAD = 64,        /* zeros around a filter: a tile has no more elements */
    MOST_TILE = 64,  /* elements of a row of a tile */
    ROWS = 4,        /* rows that share what is read of a filter */
    SHORT_LAGS = 32, /* up to here a filter runs along the row as a whole */
    LANES = 32,      /* partial sums of a dot product */
    RANGE = 1024,    /* steps of a task */
};

/* See DEFINE_TILE. */
typedef void (*tile_loop)(const void *const *rows, const void *filter, int64_t t0,
                          int64_t begin, int64_t end, int64_t lags, void *total);

typedef struct loops {
    int64_t tile; /* elements of a row of a tile */
    tile_loop tile1, tile2, tile4;
    void (*few)(const void *row, const void *filter, int64_t t0, int64_t n,
                int64_t lags, void *to);
    void (*dot)(const void *a, const void *b, int64_t n, void *total);
} loops;

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

/* ---- elements ---- */

#define load_F16(x) float_of_f16(x)
#define load_BF16(x) float_of_bf16(x)
#define load_F32(x) (x)
#define load_F64(x) (x)
#define store_F16(x) f16_of_float(x)
#define store_BF16(x) bf16_of_float(x)
#define store_F32(x) (x)
#define store_F64(x) (x)

/* 1 / (1 + exp(-v)), from an exponential that does not overflow. */
static inline float
sigmoid_float(float v)
{
    const float e = expf(v < 0 ? v : -v);
    return (v < 0 ? e : 1) / (1 + e);
}

static inline double
sigmoid_double(double v)
{
    const double e = exp(v < 0 ? v : -v);
    return (v < 0 ? e : 1) / (1 + e);
}

/* F(dtype, the type it is computed in) */
#define ELEMENTS(F) \
    F(F16, float)   \
    F(BF16, float)  \
    F(F32, float)   \
    F(F64, double)

/* ---- the three instruction sets ---- */

#define ISA(name) name##_base
#define VECTOR_BYTES 16
#define VECTORS 2
#include "cpu.inc"
#include "spectra.inc"
#undef VECTOR_BYTES
#undef ISA

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define ISA(name) name##_v3
#define VECTOR_BYTES 32
#define VECTORS 2
#include "cpu.inc"
#include "spectra.inc"
#undef VECTOR_BYTES
#undef ISA
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define ISA(name) name##_v4
#define VECTOR_BYTES 64
#define VECTORS 4
#include "cpu.inc"
#include "spectra.inc"
#undef VECTOR_BYTES
#undef ISA
#pragma GCC pop_options
#else
#define table_v3 table_base
#define table_v4 table_base
#define spectra_v3 spectra_base
#define spectra_v4 spectra_base
#endif

/* ---- the job: what every part of one call reads ---- */

/* Rows of values, side by side along T. */
typedef struct value_rows {
    char *data;
    int64_t b, c; /* strides in bytes */
} value_rows;

typedef struct job {
    conv_plan plan;
    const loops *loops;
    gpo_dtype dtype;
    bool parallel;
    int64_t bytes, value_bytes; /* of an element, of a value that is computed with */
    char *filters; /* of channel c, the value of lag s: c * pitch + PAD + s */
    int64_t filter_pitch;
    value_rows x;        /* forward */
    value_rows reversed; /* the gradient, last step first, PAD zeros around a row */
    value_rows x_back;   /* x, last step first; only for short filters */

    /* What a convolution in hand reads and where its elements go. */
    const value_rows *from;
    conv_rows to;
    bool backwards, with_bias, gradient;
    bool silu;
} job;

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static char *
row_of(const value_rows *rows, int64_t b, int64_t c)
{
    return rows->data + b * rows->b + c * rows->c;
}

/* ---- packing ---- */

#define GATHER(dtype, V)                                                        \
    case GPO_##dtype:                                                           \
        for (int64_t i = 0; i < n; i++) {                                       \
            ((V *)to)[i] = load_##dtype(((const T_##dtype *)from)[i * stride]); \
        }                                                                       \
        return;

/* n elements, `stride` apart, as values side by side. */
static void
gather(const job *j, void *to, const void *from, int64_t n, int64_t stride)
{
    switch (j->dtype) {
        ELEMENTS(GATHER)
        default:
            return;
    }
}

static const char *
element(const job *j, const conv_rows *rows, int64_t b, int64_t c, int64_t t)
{
    return (const char *)rows->data +
           (b * rows->b + c * rows->c + t * rows->t) * j->bytes;
}

/* Task i: the filter of channel i, by lag. */
static void
pack_filter(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    char *to = j->filters + i * j->filter_pitch * j->value_bytes;
    const char *last =
        (const char *)p->w + (i * p->w_c + (p->taps - 1) * p->w_k) * j->bytes;
    memset(to, 0, (size_t)(j->filter_pitch * j->value_bytes));
    gather(j, to + PAD * j->value_bytes, last, p->lags, -p->w_k);
}

/* Task i: row i of x. */
static void
pack_x(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t b = i / p->channels, c = i % p->channels;
    gather(j, row_of(&j->x, b, c), element(j, &p->x, b, c, 0), p->steps, p->x.t);
}

static void
pack_x_back(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t b = i / p->channels, c = i % p->channels;
    gather(j, row_of(&j->x_back, b, c), element(j, &p->x, b, c, p->steps - 1), p->steps,
           -p->x.t);
}

/* Task i: row i of dy, last step first. */
static void
pack_reversed(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t b = i / p->channels, c = i % p->channels;
    gather(j, row_of(&j->reversed, b, c), element(j, &p->dy, b, c, p->steps - 1),
           p->steps, -p->dy.t);
}

/* ---- elements of a result ---- */

/* n elements of row (b, c) from step t on, out of the sums of their terms. */
#define DEFINE_FINISH(dtype, V)                                                   \
    static void finish_##dtype(const job *j, int64_t b, int64_t c, int64_t t,     \
                               int64_t n, const V *sum)                           \
    {                                                                             \
        const conv_plan *p = &j->plan;                                            \
        V add = 0;                                                                \
        if (j->with_bias) {                                                       \
            add = (V)p->eps;                                                      \
            if (p->bias) {                                                        \
                add += load_##dtype(((const T_##dtype *)p->bias)[c * p->bias_c]); \
            }                                                                     \
        }                                                                         \
        const int64_t turn = j->backwards ? -1 : 1;                               \
        const int64_t first = j->backwards ? p->steps - 1 - t : t;                \
        T_##dtype *out = (T_##dtype *)element(j, &j->to, b, c, first);            \
        if (j->gradient) { /* of SiLU, times dy, into the reversed rows */        \
            const T_##dtype *dy = (const T_##dtype *)element(j, &p->dy, b, c, t); \
            V *g = (V *)row_of(&j->reversed, b, c) + (p->steps - 1 - t);          \
            for (int64_t i = 0; i < n; i++) {                                     \
                const V v = sum[i] + add;                                         \
                const V share = sigmoid_##V(v);                                   \
                const V slope = share * (1 + v * (1 - share));                    \
                g[-i] = load_##dtype(                                             \
                    store_##dtype(load_##dtype(dy[i * p->dy.t]) * slope));        \
            }                                                                     \
            return;                                                               \
        }                                                                         \
        if (j->silu) {                                                            \
            for (int64_t i = 0; i < n; i++) {                                     \
                const V v = sum[i] + add;                                         \
                out[i * turn * j->to.t] = store_##dtype(v * sigmoid_##V(v));      \
            }                                                                     \
            return;                                                               \
        }                                                                         \
        if (turn * j->to.t == 1) {                                                \
            for (int64_t i = 0; i < n; i++) {                                     \
                out[i] = store_##dtype(sum[i] + add);                             \
            }                                                                     \
            return;                                                               \
        }                                                                         \
        for (int64_t i = 0; i < n; i++) {                                         \
            out[i * turn * j->to.t] = store_##dtype(sum[i] + add);                \
        }                                                                         \
    }

ELEMENTS(DEFINE_FINISH)

#define FINISH(dtype, V)                    \
    case GPO_##dtype:                       \
        finish_##dtype(j, b, c, t, n, sum); \
        return;

static void
finish(const job *j, int64_t b, int64_t c, int64_t t, int64_t n, const void *sum)
{
    switch (j->dtype) {
        ELEMENTS(FINISH)
        default:
            return;
    }
}

/* ---- convolution of rows ---- */

#define DEFINE_HEAD(V)                                                              \
    static void head_##V(const void *row, const void *filter, int64_t t, int64_t n, \
                         void *to)                                                  \
    {                                                                               \
        for (int64_t i = 0; i < n; i++) {                                           \
            V sum = 0;                                                              \
            for (int64_t s = 0; s <= t + i; s++) {                                  \
                sum += ((const V *)row)[t + i - s] * ((const V *)filter)[s];        \
            }                                                                       \
            ((V *)to)[i] = sum;                                                     \
        }                                                                           \
    }

DEFINE_HEAD(float)
DEFINE_HEAD(double)

/* Steps [begin, end) of row (b, c), for a filter of few lags. */
static void
short_row(const job *j, int64_t b, int64_t c, int64_t begin, int64_t end)
{
    const int64_t lags = j->plan.lags;
    const char *row = row_of(j->from, b, c);
    const char *filter = j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
    _Alignas(64) char sum[RANGE * sizeof(double)];
    int64_t early = lags - 1 - begin; /* steps with fewer terms */
    early = early < 0 ? 0 : early < end - begin ? early : end - begin;
    if (j->dtype == GPO_F64) {
        head_double(row, filter, begin, early, sum);
    }
    else {
        head_float(row, filter, begin, early, sum);
    }
    const int64_t first = begin + early;
    if (first < end) {
        j->loops->few(row, filter, first, end - first, lags,
                      sum + early * j->value_bytes);
    }
    finish(j, b, c, begin, end - begin, sum);
}

/* Steps [begin, end), at most RANGE, of `count` rows of channel c from row b on. */
static void
convolve_range(const job *j, int64_t b, int64_t count, int64_t c, int64_t begin,
               int64_t end)
{
    const conv_plan *p = &j->plan;
    if (p->lags <= SHORT_LAGS) {
        for (int64_t r = 0; r < count; r++) {
            short_row(j, b + r, c, begin, end);
        }
        return;
    }
    const char *filter = j->filters + (c * j->filter_pitch + PAD) * j->value_bytes;
    const void *rows[ROWS];
    for (int64_t r = 0; r < ROWS; r++) { /* past the end: the last */
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
        add_tile(rows, filter, t, early > 0 ? early : 0, t + n, p->lags, total);
        for (int64_t r = 0; r < count; r++) {
            finish(j, b + r, c, t, n, total + r * tile * j->value_bytes);
        }
    }
}

/* Task i: a range of steps of some rows of a channel. */
static void
convolve_rows(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    const int64_t ranges = ceil_div(p->steps, RANGE),
                  groups = ceil_div(p->batches, ROWS);
    const int64_t begin = i % ranges * RANGE;
    const int64_t b = i / ranges % groups * ROWS, c = i / ranges / groups;
    const int64_t end = p->steps - begin < RANGE ? p->steps : begin + RANGE;
    const int64_t count = p->batches - b < ROWS ? p->batches - b : ROWS;
    convolve_range(j, b, count, c, begin, end);
}

/* ---- gradients of the filters ---- */

#define PUT(dtype, V)                                                        \
    case GPO_##dtype:                                                        \
        ((T_##dtype *)to)[i] = store_##dtype(value ? *(const V *)value : 0); \
        return;

/* to[i] = value, or 0 where there is none. */
static void
put(const job *j, void *to, int64_t i, const void *value)
{
    switch (j->dtype) {
        ELEMENTS(PUT)
        default:
            return;
    }
}

/* Task i: some lags of a channel, in the order of the last element of x they meet. */
static void
filter_gradient(void *context, int64_t i)
{
    const job *j = context;
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
    for (int64_t k = 0; k < n; k++) { /* element `first + k` is lag T - 1 - first - k */
        put(j, p->dw, c * p->taps + p->taps - p->steps + first + k,
            total + k * j->value_bytes);
    }
}

/* Task i: channel i of a short filter, a dot product per lag and row. */
static void
short_filter_gradient(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    for (int64_t s = 0; s < p->lags; s++) {
        double total = 0; /* all bytes 0: a float 0, too */
        for (int64_t b = 0; b < p->batches; b++) {
            j->loops->dot(row_of(&j->x_back, b, i) + s * j->value_bytes,
                          row_of(&j->reversed, b, i), p->steps - s, &total);
        }
        put(j, p->dw, i * p->taps + p->taps - 1 - s, &total);
    }
}

/* Task i: what of channel i is no lag's: 0 before them, and the gradient of the bias. */
static void
channel_rest(void *context, int64_t i)
{
    const job *j = context;
    const conv_plan *p = &j->plan;
    for (int64_t k = 0; k < p->taps - p->lags; k++) {
        put(j, p->dw, i * p->taps + k, NULL);
    }
    if (!p->dbias) {
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
    put(j, p->dbias, i, j->dtype == GPO_F64 ? (const void *)&total : &narrow);
}

/* ---- Fourier transforms ---- */

typedef struct spectra_job {
    job *job;
    const spectra_loops *loops;
    spectra_plan plan;
    int64_t groups;       /* of channels, a lane each */
    int64_t slices;       /* of batches */
    int64_t units, tasks; /* a unit is a slice of a group, a task some of them */
    int64_t buffer;       /* bytes of the cells of a group */
    char *memory;         /* BUFFERS for each task */
} spectra_job;

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
are_finite(const job *j, const void *x, int64_t n)
{
    return j->dtype == GPO_F64 ? finite_double(x, n) : finite_float(x, n);
}

/* Row b of each lane's channel, `offset` values on; lanes without one have the last. */
static void
rows_of_group(const spectra_job *s, const value_rows *rows, int64_t b, int64_t group,
              int64_t offset, const void **at)
{
    const job *j = s->job;
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        const int64_t c = group * s->loops->lanes + lane, last = j->plan.channels - 1;
        at[lane] = row_of(rows, b, c < last ? c : last) + offset * j->value_bytes;
    }
}

/* Adds to wide[lane] whether row b of the lane's channel holds n values that are. */
static void
find_wide(const spectra_job *s, const value_rows *rows, int64_t b, int64_t group,
          int64_t n, bool *wide)
{
    const void *at[MOST_LANES];
    rows_of_group(s, rows, b, group, 0, at);
    for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
        wide[lane] = wide[lane] || s->loops->is_wide(at[lane], n);
    }
}

/* Block h of row b of a group, and the lags - 1 inputs before it. */
static void
read_inputs(const spectra_job *s, const value_rows *rows, int64_t b, int64_t group,
            int64_t h, void *cells)
{
    const conv_plan *p = &s->job->plan;
    const int64_t start = h * s->plan.steps - (p->lags - 1);
    const int64_t before = start < 0 ? -start : 0, first = start + before;
    const int64_t left = p->steps - first, room = 2 * s->plan.cells - before;
    const void *at[MOST_LANES];
    rows_of_group(s, rows, b, group, first, at);
    s->loops->spread(&s->plan, at, 1, before, left < room ? left : room, cells);
    s->loops->to_spectrum(&s->plan, cells);
}

/*
 * What a block in `cells` holds of a group's rows.  Wide rows are convolved anew, term by
 * term, and so are values that have become no number on the way.
 */
static void
finish_block(const spectra_job *s, int64_t b, int64_t group, int64_t h,
             const bool *wide, const void *cells)
{
    const job *j = s->job;
    const conv_plan *p = &j->plan;
    const int64_t first = h * s->plan.steps, left = p->steps - first;
    const int64_t n = left < s->plan.steps ? left : s->plan.steps;
    _Alignas(64) char sums[MOST_LANE_BYTES * AT_ONCE];
    for (int64_t k = 0; k < n; k += AT_ONCE) {
        const int64_t some = n - k < AT_ONCE ? n - k : AT_ONCE, t = first + k;
        s->loops->collect(&s->plan, cells, p->lags - 1 + k, some, AT_ONCE, sums);
        for (int64_t lane = 0; lane < s->loops->lanes; lane++) {
            const int64_t c = group * s->loops->lanes + lane;
            const char *sum = sums + lane * AT_ONCE * j->value_bytes;
            if (c < p->channels && !wide[lane] && are_finite(j, sum, some)) {
                finish(j, b, c, t, some, sum);
            }
            else if (c < p->channels) {
                convolve_range(j, b, 1, c, t, t + some);
            }
        }
    }
}

static void
convolve_unit(const spectra_job *s, int64_t unit, char *memory)
{
    const job *j = s->job;
    const conv_plan *p = &j->plan;
    const int64_t group = unit % s->groups, slice = unit / s->groups;
    const value_rows filters = {j->filters + PAD * j->value_bytes, 0,
                                j->filter_pitch * j->value_bytes};
    char *filter = memory, *cells = memory + s->buffer;
    const void *at[MOST_LANES];
    rows_of_group(s, &filters, 0, group, 0, at);
    s->loops->spread(&s->plan, at, 1, 0, p->lags, filter);
    s->loops->to_spectrum(&s->plan, filter);
    bool wide_filters[MOST_LANES] = {false};
    find_wide(s, &filters, 0, group, p->lags, wide_filters);
    const int64_t end = (slice + 1) * p->batches / s->slices;
    for (int64_t b = slice * p->batches / s->slices; b < end; b++) {
        bool wide[MOST_LANES];
        memcpy(wide, wide_filters, sizeof wide);
        find_wide(s, j->from, b, group, p->steps, wide);
        for (int64_t h = 0; h < s->plan.blocks; h++) {
            read_inputs(s, j->from, b, group, h, cells);
            s->loops->multiply(s->plan.cells, cells, filter);
            s->loops->from_spectrum(&s->plan, cells);
            finish_block(s, b, group, h, wide, cells);
        }
    }
}

#define FOLD(V)                                                    \
    for (int64_t i = 0; i < s->buffer / (int64_t)sizeof(V); i++) { \
        ((V *)total)[i] += ((V *)sum)[i];                          \
        ((V *)sum)[i] = 0;                                         \
    }

/* total += sum, which begins anew */
static void
fold_spectra(const spectra_job *s, void *restrict total, void *restrict sum)
{
    if (s->job->dtype == GPO_F64) {
        FOLD(double)
    }
    else {
        FOLD(float)
    }
}

/* The gradients of a group's filters, out of the sum of the spectra of all blocks. */
static void
gradient_unit(const spectra_job *s, int64_t group, char *memory)
{
    job *j = s->job;
    const conv_plan *p = &j->plan;
    char *total = memory, *sum = total + s->buffer;
    char *x = sum + s->buffer, *dy = x + s->buffer;
    bool wide[MOST_LANES] = {false};
    int64_t added = 0;
    memset(total, 0, (size_t)(2 * s->buffer));
    for (int64_t b = 0; b < p->batches; b++) {
        find_wide(s, &j->x, b, group, p->steps, wide);
        find_wide(s, &j->reversed, b, group, p->steps, wide);
        for (int64_t h = 0; h < s->plan.blocks; h++) {
            const int64_t first = h * s->plan.steps, left = p->steps - first;
            const void *at[MOST_LANES];
            read_inputs(s, &j->x, b, group, h, x);
            rows_of_group(s, &j->reversed, b, group, p->steps - 1 - first, at);
            s->loops->spread(&s->plan, at, -1, p->lags - 1,
                             left < s->plan.steps ? left : s->plan.steps, dy);
            s->loops->to_spectrum(&s->plan, dy);
            s->loops->correlate(s->plan.cells, sum, dy, x);
            if (++added % IN_A_ROW == 0) {
                fold_spectra(s, total, sum);
            }
        }
    }
    fold_spectra(s, total, sum);
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
            for (int64_t i = 0; i < some; i++) {
                put(j, p->dw, c * p->taps + p->taps - 1 - k - i,
                    lag + i * j->value_bytes);
            }
        }
    }
    const int64_t tiles = ceil_div(p->lags, j->loops->tile);
    for (int64_t lane = 0; lane < channels; lane++) {
        for (int64_t i = 0; i < tiles && wide[lane]; i++) {
            filter_gradient(j, (group * lanes + lane) * tiles + i);
        }
    }
}

/* Task i: some units of the convolution in hand. */
static void
convolve_units(void *context, int64_t i)
{
    const spectra_job *s = context;
    for (int64_t u = i * s->units / s->tasks; u < (i + 1) * s->units / s->tasks; u++) {
        convolve_unit(s, u, s->memory + i * BUFFERS * s->buffer);
    }
}

/* Task i: some groups of the filters. */
static void
gradient_units(void *context, int64_t i)
{
    const spectra_job *s = context;
    for (int64_t g = i * s->groups / s->tasks; g < (i + 1) * s->groups / s->tasks;
         g++) {
        gradient_unit(s, g, s->memory + i * BUFFERS * s->buffer);
    }
}

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

/* Whether transforms cost clearly less than the products, which are the more accurate. */
static bool
spectra_pay(const conv_plan *p, bool backward)
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

static gpo_status
start_spectra(gpo_call *call, job *j, spectra_job *s)
{
    static const spectra_loops *const tables[GPO_NISA] = {spectra_base, spectra_v3,
                                                          spectra_v4};
    const conv_plan *p = &j->plan;
    *s = (spectra_job){.job = j, .loops = &tables[gpo_cpu_isa()][j->dtype == GPO_F64]};
    plan_blocks(p, &s->plan);
    const int64_t length = 2 * s->plan.cells, threads = gpo_cpu_threads();
    s->plan.scale = 1 / (4 * (double)length);
    s->groups = ceil_div(p->channels, s->loops->lanes);
    s->slices = ceil_div(UNITS, s->groups);
    s->slices = s->slices < p->batches ? s->slices : p->batches;
    s->units = s->groups * s->slices;
    s->buffer = length * s->loops->lanes * j->value_bytes;
    const int64_t room = MOST_MEMORY / (BUFFERS * s->buffer);
    s->tasks = s->units < 2 * threads ? s->units : 2 * threads;
    s->tasks = room < 1 ? 1 : s->tasks < room ? s->tasks : room;
    void *memory = NULL, *roots = NULL, *place = NULL;
    gpo_status status =
        gpo_scratch(call, (size_t)(s->tasks * BUFFERS * s->buffer), &memory);
    if (!status) {
        status = gpo_scratch(call, (size_t)(2 * length * j->value_bytes), &roots);
    }
    if (!status) {
        status =
            gpo_scratch(call, (size_t)s->plan.cells * sizeof(*s->plan.place), &place);
    }
    if (!status) {
        s->memory = memory;
        if (j->dtype == GPO_F64) {
            roots_double(length, roots);
        }
        else {
            roots_float(length, roots);
        }
        s->plan.roots = roots;
        fill_places(place, 0, s->plan.cells, 0, 1);
        s->plan.place = place;
    }
    return status;
}

/* ---- the variants ---- */

/* Memory for rows of values with `pad` zeros around each; sets `rows`. */
static gpo_status
make_rows(gpo_call *call, const job *j, int64_t pad, value_rows *rows)
{
    const conv_plan *p = &j->plan;
    const int64_t pitch = (p->steps + 2 * pad) * j->value_bytes;
    const size_t bytes = (size_t)(p->batches * p->channels * pitch);
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, bytes, &memory);
    if (status) {
        return status;
    }
    if (pad > 0) {
        memset(memory, 0, bytes);
    }
    *rows =
        (value_rows){(char *)memory + pad * j->value_bytes, p->channels * pitch, pitch};
    return GPO_OK;
}

static gpo_status
prepare(gpo_call *call, job *j, bool parallel)
{
    static const loops *const tables[GPO_NISA] = {table_base, table_v3, table_v4};
    const int first = call->op->member;
    *j = (job){.dtype = call->in[first].dtype, .parallel = parallel};
    conv_plan *p = &j->plan;
    conv_make_plan(call, p);
    j->loops = &tables[gpo_cpu_isa()][j->dtype == GPO_F64];
    j->bytes = gpo_dtypes[j->dtype].bytes;
    j->value_bytes = j->dtype == GPO_F64 ? sizeof(double) : sizeof(float);
    j->filter_pitch = p->lags + 2 * PAD;
    void *memory = NULL;
    gpo_status status = gpo_scratch(
        call, (size_t)(p->channels * j->filter_pitch * j->value_bytes), &memory);
    if (status) {
        return status;
    }
    j->filters = memory;
    gpo_cpu_loop(j->parallel, p->channels, pack_filter, j);
    if (p->x.t == 1 && j->bytes == j->value_bytes) {
        j->x = (value_rows){p->x.data, p->x.b * j->bytes, p->x.c * j->bytes};
        return GPO_OK;
    }
    status = make_rows(call, j, 0, &j->x);
    if (!status) {
        gpo_cpu_loop(j->parallel, p->batches * p->channels, pack_x, j);
    }
    return status;
}

enum { SCALAR, SIMD, THREADS, SPECTRA };

/* Prepares a job and, for SPECTRA, where there is anything to transform, `s`. */
static gpo_status
start(gpo_call *call, int variant, job *j, spectra_job *s)
{
    gpo_status status = prepare(call, j, variant != SIMD);
    const conv_plan *p = &j->plan;
    s->tasks = 0;
    if (!status && variant == SPECTRA && p->batches * p->channels * p->lags > 0) {
        status = start_spectra(call, j, s);
    }
    return status;
}

static void
convolve(job *j, spectra_job *s, const value_rows *from, conv_rows to)
{
    const conv_plan *p = &j->plan;
    j->from = from;
    j->to = to;
    if (s->tasks > 0) {
        gpo_cpu_loop(j->parallel, s->tasks, convolve_units, s);
        return;
    }
    gpo_cpu_loop(j->parallel,
                 p->channels * ceil_div(p->batches, ROWS) * ceil_div(p->steps, RANGE),
                 convolve_rows, j);
}

static gpo_status
run_forward(gpo_call *call, int variant)
{
    job j;
    spectra_job s;
    const gpo_status status = start(call, variant, &j, &s);
    if (status) {
        return status;
    }
    j.with_bias = true;
    j.silu = j.plan.silu;
    convolve(&j, &s, &j.x, j.plan.out);
    return GPO_OK;
}

static gpo_status
run_backward(gpo_call *call, int variant)
{
    job j;
    spectra_job s;
    gpo_status status = start(call, variant, &j, &s);
    if (!status) {
        status = make_rows(call, &j, PAD, &j.reversed);
    }
    const conv_plan *p = &j.plan;
    const bool few = !status && p->lags <= SHORT_LAGS && s.tasks == 0;
    if (few) {
        status = make_rows(call, &j, 0, &j.x_back);
    }
    if (status) {
        return status;
    }
    if (p->silu) {
        j.with_bias = j.gradient = true;
        convolve(&j, &s, &j.x, p->out);
        j.with_bias = j.gradient = false;
    }
    else {
        gpo_cpu_loop(j.parallel, p->batches * p->channels, pack_reversed, &j);
    }
    j.backwards = true;
    convolve(&j, &s, &j.reversed, p->out);
    if (s.tasks > 0) {
        gpo_cpu_loop(j.parallel, s.tasks, gradient_units, &s);
    }
    else if (few) {
        gpo_cpu_loop(j.parallel, p->batches * p->channels, pack_x_back, &j);
        gpo_cpu_loop(j.parallel, p->channels, short_filter_gradient, &j);
    }
    else {
        gpo_cpu_loop(j.parallel, p->channels * ceil_div(p->lags, j.loops->tile),
                     filter_gradient, &j);
    }
    gpo_cpu_loop(j.parallel, p->channels, channel_rest, &j);
    return GPO_OK;
}

static gpo_status
run(gpo_call *call, int variant)
{
    return call->op->member ? run_backward(call, variant) : run_forward(call, variant);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, SIMD);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, THREADS);
}

static gpo_status
run_spectra(gpo_call *call)
{
    return run(call, SPECTRA);
}

/* ---- scalar: one element after the other ---- */

/* out[t] = sum over the lags s <= t of w[s] * x[t - s], in blocks of BLOCK. */
#define DEFINE_SCALAR_ROW(V)                                                        \
    static void scalar_row_##V(const V *x, const V *w, int64_t n, int64_t lags,     \
                               V *out)                                              \
    {                                                                               \
        for (int64_t t = 0; t < n; t++) {                                           \
            V total = 0;                                                            \
            const int64_t terms = t + 1 < lags ? t + 1 : lags;                      \
            for (int64_t k = 0; k < terms; k += BLOCK) {                            \
                const int64_t stop = terms - k < BLOCK ? terms : k + BLOCK;         \
                V sum = 0;                                                          \
                for (int64_t s = k; s < stop; s++) {                                \
                    sum += w[s] * x[t - s];                                         \
                }                                                                   \
                total += sum;                                                       \
            }                                                                       \
            out[t] = total;                                                         \
        }                                                                           \
    }                                                                               \
    /* total[s] += sum over u of x[u] * g[u + s], g last step first. */             \
    static void scalar_lags_##V(const V *x, const V *back, int64_t n, int64_t lags, \
                                V *total)                                           \
    {                                                                               \
        for (int64_t s = 0; s < lags; s++) {                                        \
            for (int64_t k = 0; k < n - s; k += BLOCK) {                            \
                const int64_t stop = n - s - k < BLOCK ? n - s : k + BLOCK;         \
                V sum = 0;                                                          \
                for (int64_t u = k; u < stop; u++) {                                \
                    sum += x[u] * back[n - 1 - s - u];                              \
                }                                                                   \
                total[s] += sum;                                                    \
            }                                                                       \
        }                                                                           \
    }

DEFINE_SCALAR_ROW(float)
DEFINE_SCALAR_ROW(double)

#define DEFINE_SCALAR(dtype, V)                                                    \
    static gpo_status scalar_##dtype(gpo_call *call)                               \
    {                                                                              \
        job j;                                                                     \
        gpo_status status = prepare(call, &j, false);                              \
        const conv_plan *p = &j.plan;                                              \
        const bool backward = call->op->member == 1;                               \
        void *memory = NULL;                                                       \
        if (!status && backward) {                                                 \
            status = make_rows(call, &j, 0, &j.reversed);                          \
        }                                                                          \
        if (!status) {                                                             \
            status = gpo_scratch(call, 2 * (size_t)p->steps * sizeof(V), &memory); \
        }                                                                          \
        if (status) {                                                              \
            return status;                                                         \
        }                                                                          \
        V *sum = memory, *total = sum + p->steps;                                  \
        for (int64_t c = 0; c < p->channels; c++) {                                \
            const V *w = (const V *)j.filters + c * j.filter_pitch + PAD;          \
            memset(total, 0, (size_t)p->lags * sizeof(V));                         \
            for (int64_t b = 0; b < p->batches; b++) {                             \
                const V *x = (const V *)row_of(&j.x, b, c);                        \
                j.backwards = false;                                               \
                j.with_bias = true;                                                \
                j.gradient = backward;                                             \
                j.silu = p->silu;                                                  \
                j.to = p->out;                                                     \
                if (!backward || p->silu) {                                        \
                    scalar_row_##V(x, w, p->steps, p->lags, sum);                  \
                    finish_##dtype(&j, b, c, 0, p->steps, sum);                    \
                }                                                                  \
                if (!backward) {                                                   \
                    continue;                                                      \
                }                                                                  \
                if (!p->silu) {                                                    \
                    pack_reversed(&j, b * p->channels + c);                        \
                }                                                                  \
                const V *back = (const V *)row_of(&j.reversed, b, c);              \
                j.backwards = true;                                                \
                j.with_bias = j.gradient = j.silu = false;                         \
                scalar_row_##V(back, w, p->steps, p->lags, sum);                   \
                finish_##dtype(&j, b, c, 0, p->steps, sum);                        \
                scalar_lags_##V(x, back, p->steps, p->lags, total);                \
            }                                                                      \
            for (int64_t s = 0; backward && s < p->lags; s++) {                    \
                put(&j, p->dw, c * p->taps + p->taps - 1 - s, &total[s]);          \
            }                                                                      \
            if (backward) {                                                        \
                channel_rest(&j, c);                                               \
            }                                                                      \
        }                                                                          \
        return GPO_OK;                                                             \
    }

ELEMENTS(DEFINE_SCALAR)

/* ---- choose ---- */

#define SCALAR_ENTRY(dtype, V) [GPO_##dtype] = scalar_##dtype,
#define SIMD_ENTRY(dtype, V) [GPO_##dtype] = run_simd,
#define THREADS_ENTRY(dtype, V) [GPO_##dtype] = run_threads,
#define SPECTRA_ENTRY(dtype, V) [GPO_##dtype] = run_spectra,

static const gpo_variant variants[] = {
    [SCALAR] = {"scalar",
                "one element after the other",
                "",
                "run-to-run",
                {ELEMENTS(SCALAR_ENTRY)}},
    [SIMD] = {"simd",
              "four rows by a tile of steps in registers; short filters along the row",
              "",
              "run-to-run",
              {ELEMENTS(SIMD_ENTRY)}},
    [THREADS] = {"threads",
                 "simd on ranges of steps of groups of rows, then on groups of lags",
                 "",
                 "run-to-run",
                 {ELEMENTS(THREADS_ENTRY)}},
    [SPECTRA] = {"spectra",
                 "Fourier transforms of a channel in each lane, blocks by overlap-save",
                 "",
                 "run-to-run",
                 {ELEMENTS(SPECTRA_ENTRY)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char alone[] = "the thread team has one thread";
    static const char small[] =
        "under 2^19 products, starting threads costs more than it "
        "saves";
    static const char large[] = "the work is enough for several threads";
    static const char long_filter[] =
        "Fourier transforms cost less than as many products";
    enum { PAYS = 1 << 20 };
    conv_plan plan;
    conv_make_plan(call, &plan);
    if (spectra_pay(&plan, call->op->member == 1)) {
        memcpy(why, long_filter, sizeof long_filter);
        return &variants[SPECTRA];
    }
    gpo_cost work;
    call->op->cost(call, &work);
    if (work.flops < PAYS) {
        memcpy(why, small, sizeof small);
        return &variants[SIMD];
    }
    if (gpo_cpu_threads() == 1) {
        memcpy(why, alone, sizeof alone);
        return &variants[SIMD];
    }
    memcpy(why, large, sizeof large);
    return &variants[THREADS];
}

const gpo_table causal_conv1d_cpu = {variants, choose};
const gpo_table causal_conv1d_backward_cpu = {variants, choose};
