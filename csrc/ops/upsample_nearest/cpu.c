/*
 * cpu.c  upsample_nearest and its backward on the CPU.  Order: kinds of elements, the
 * three instruction sets, the job, forward, backward, scalar, the variants, choose.
 * Inner loops stand in cpu.inc.
 *
 * Work goes by rows of the smaller side: a row of x is read once, makes one row of the
 * result, and the other rows it feeds are copies of that one; a row of dx collects the
 * rows of dy in the order they lie.  Rows are cut into pieces that stay in the cache.
 */
#include "upsample_nearest.h"

#include "../../backend/backend.h"
#include "../../core/elements.h"

#include <string.h>

/* ---- kinds of elements ---- */

/* What is only moved has a size; complex numbers are not aligned as integers are. */
typedef enum kind {
    BYTES_1,
    BYTES_2,
    BYTES_4,
    BYTES_8,
    COMPLEX_8,
    COMPLEX_16,
    NKINDS
} kind;

#define MOVES(f)                                                                       \
    f(BYTES_1, uint8_t) f(BYTES_2, uint16_t) f(BYTES_4, uint32_t) f(BYTES_8, uint64_t) \
        f(COMPLEX_8, gpo_c64) f(COMPLEX_16, gpo_c128)

static kind
kind_of(gpo_dtype dtype)
{
    if (gpo_dtypes[dtype].kind == 'c') {
        return dtype == GPO_C64 ? COMPLEX_8 : COMPLEX_16;
    }
    static const kind by_bytes[] = {
        [1] = BYTES_1, [2] = BYTES_2, [4] = BYTES_4, [8] = BYTES_8};
    return by_bytes[gpo_dtypes[dtype].bytes];
}

/* What is added up; whole numbers wrap around, so their sign does not matter. */
#define WIDE_SUMS(f) f(U8) f(U16) f(U32) f(U64) f(F32) f(F64) f(C64) f(C128)
#define HALF_SUMS(f) f(F16) f(BF16)
#define SUMS(f) WIDE_SUMS(f) HALF_SUMS(f)

#define widened_F16 float_of_f16
#define widened_BF16 float_of_bf16

typedef uint8_t V_U8;
typedef uint16_t V_U16;
typedef uint32_t V_U32;
typedef uint64_t V_U64;
typedef float V_F16;
typedef float V_BF16;
typedef float V_F32;
typedef double V_F64;
typedef gpo_c64 V_C64;
typedef gpo_c128 V_C128;

#define DEFINE_PLUS(dtype, value)                                \
    static inline void plus_##dtype(V_##dtype *sum, T_##dtype y) \
    {                                                            \
        *sum = (V_##dtype)(*sum + (value));                      \
    }
#define DEFINE_PLUS_COMPLEX(dtype)                               \
    static inline void plus_##dtype(V_##dtype *sum, T_##dtype y) \
    {                                                            \
        sum->re += y.re;                                         \
        sum->im += y.im;                                         \
    }
#define DEFINE_ROUNDED(dtype, value)                       \
    static inline T_##dtype rounded_##dtype(V_##dtype sum) \
    {                                                      \
        return value;                                      \
    }

DEFINE_PLUS(U8, y)
DEFINE_PLUS(U16, y)
DEFINE_PLUS(U32, y)
DEFINE_PLUS(U64, y)
DEFINE_PLUS(F16, widened_F16(y))
DEFINE_PLUS(BF16, widened_BF16(y))
DEFINE_PLUS(F32, y)
DEFINE_PLUS(F64, y)
DEFINE_PLUS_COMPLEX(C64)
DEFINE_PLUS_COMPLEX(C128)
DEFINE_ROUNDED(U8, sum)
DEFINE_ROUNDED(U16, sum)
DEFINE_ROUNDED(U32, sum)
DEFINE_ROUNDED(U64, sum)
DEFINE_ROUNDED(F16, f16_of_float(sum))
DEFINE_ROUNDED(BF16, bf16_of_float(sum))
DEFINE_ROUNDED(F32, sum)
DEFINE_ROUNDED(F64, sum)
DEFINE_ROUNDED(C64, sum)
DEFINE_ROUNDED(C128, sum)

static gpo_dtype
sum_of(gpo_dtype dtype)
{
    switch (dtype) {
        case GPO_I8:
            return GPO_U8;
        case GPO_I16:
            return GPO_U16;
        case GPO_I32:
            return GPO_U32;
        case GPO_I64:
            return GPO_U64;
        default:
            return dtype;
    }
}

typedef struct moves {
    void (*twice)(void *to, const void *from, int64_t n);
    void (*pick)(void *to, const void *from, const int32_t *at, int64_t n);
} moves;

typedef struct sums {
    void (*add)(void *acc, const void *y, int64_t n);
    void (*add_pairs)(void *acc, const void *y, int64_t n);
    /* see cpu.inc */
    void (*collect)(void *acc, int64_t step, const void *y, int64_t across,
                    const int64_t *first, int64_t n);
    void (*round)(void *to, const void *acc, int64_t n);
} sums;

enum { PIECE = 256 }; /* pairs of 16-bit floats that are widened at once */

/* ---- the three instruction sets ---- */

#define ISA(name) name##_base
#include "cpu.inc"

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define ISA(name) name##_v3
#include "cpu.inc"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=512")
#define ISA(name) name##_v4
#include "cpu.inc"
#pragma GCC pop_options
#else
#define moves_v3 moves_base
#define moves_v4 moves_base
#define sums_v3 sums_base
#define sums_v4 sums_base
#endif

static const moves *const moves_of[GPO_NISA] = {
    [GPO_ISA_BASE] = moves_base,
    [GPO_ISA_V3] = moves_v3,
    [GPO_ISA_V4] = moves_v4,
};
static const sums *const sums_of[GPO_NISA] = {
    [GPO_ISA_BASE] = sums_base,
    [GPO_ISA_V3] = sums_v3,
    [GPO_ISA_V4] = sums_v4,
};

/* ---- the job: what every task of one call reads ---- */

enum {
    TASK_BYTES = 1 << 16, /* of the larger side, in one task: a row stays in L2 */
    PIXEL_BYTES = 32,     /* channels side by side that are worth a call of their own */
    BLOCK = 512,          /* sums at once: 8 KiB of the widest */
};

/* How a row of `from` becomes a row of `to`. */
typedef enum row_mode { SAME, TWICE, PIXELS, ANY } row_mode;

typedef struct job {
    upsample_plan plan;
    moves moves;
    sums sums;
    int64_t bytes, value_bytes; /* of an element, of a sum */
    row_mode mode;
    int32_t *at;    /* ANY forward: where each element of a row comes from */
    int64_t *first; /* backward: the first output of each element of W, and the end */
    int64_t rows;   /* of the smaller side */
    int64_t group;  /* rows of a task */
    int64_t piece;  /* elements of W of a task, on the larger side; even */
    int64_t pieces; /* of a row */
} job;

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t
least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Row t counted through images, channels, D and H of length d and h. */
typedef struct row_index {
    int64_t a, b, d, h;
} row_index;

static row_index
row_of(const upsample_plan *p, int64_t t, int64_t d, int64_t h)
{
    row_index r;
    r.h = t % h;
    t /= h;
    r.d = t % d;
    t /= d;
    r.b = t % p->channels;
    r.a = t / p->channels;
    return r;
}

static const char *
row_from(const job *j, const row_index *r, int64_t d, int64_t h)
{
    const int64_t *stride = j->plan.stride;
    return (const char *)j->plan.from +
           (r->a * stride[UPSAMPLE_A] + r->b * stride[UPSAMPLE_B] +
            d * stride[UPSAMPLE_D] + h * stride[UPSAMPLE_H]) *
               j->bytes;
}

/* Whether elements of `from` that are neighbours in a row lie side by side. */
static bool
is_packed(const upsample_plan *p, int64_t width)
{
    const bool channels = p->inner == 1 || p->stride[UPSAMPLE_I] == 1;
    return channels && (width == 1 || p->stride[UPSAMPLE_W] == p->inner);
}

static row_mode
mode_of(const job *j, int64_t width)
{
    const upsample_plan *p = &j->plan;
    const upsample_axis *w = &p->axis[2];
    if (is_packed(p, width) && w->log == 0) {
        return SAME;
    }
    if (is_packed(p, width) && w->log == 1 && p->inner == 1) {
        return TWICE;
    }
    if (p->stride[UPSAMPLE_I] == 1 && p->inner * j->bytes >= PIXEL_BYTES) {
        return PIXELS;
    }
    return ANY;
}

static void
cut(job *j, int64_t rows, int64_t fed)
{
    const upsample_plan *p = &j->plan;
    const int64_t width = p->axis[2].out;
    const int64_t pixel = p->inner * j->bytes;
    const int64_t piece = (TASK_BYTES / pixel + 2) & ~(int64_t)1;
    j->rows = rows;
    j->piece = least(piece, width + (width & 1));
    j->pieces = ceil_div(width, j->piece);
    j->group = j->pieces > 1 ? 1 : TASK_BYTES / (width * pixel * (fed + 1)) + 1;
}

static void
run_tasks(job *j, bool parallel, void (*body)(void *context, int64_t i))
{
    const int64_t tasks = ceil_div(j->rows, j->group) * j->pieces;
    gpo_cpu_loop(parallel, tasks, body, j);
}

/* ---- forward ---- */

/* Outputs [w, end) of a row. */
static void
forward_piece(const job *j, char *to, const char *from, int64_t w, int64_t end)
{
    const upsample_plan *p = &j->plan;
    const int64_t pixel = p->inner * j->bytes;
    switch (j->mode) {
        case SAME:
            memcpy(to, from + w * pixel, (size_t)((end - w) * pixel));
            break;
        case TWICE: /* w and end are even */
            j->moves.twice(to, from + w / 2 * j->bytes, (end - w) / 2);
            break;
        case PIXELS:
            for (int64_t i = w; i < end; i++) {
                memcpy(to + (i - w) * pixel,
                       from + upsample_source(&p->axis[2], i) * p->stride[UPSAMPLE_W] *
                                  j->bytes,
                       (size_t)pixel);
            }
            break;
        case ANY:
            j->moves.pick(to, from, j->at + w * p->inner, (end - w) * p->inner);
            break;
    }
}

/* Task i: a piece of a group of rows of x, and all rows of the result they feed. */
static void
forward_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_plan *p = &j->plan;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1];
    const int64_t pixel = p->inner * j->bytes, width = p->axis[2].out;
    const int64_t row_bytes = width * pixel;
    const int64_t start = i / j->pieces * j->group;
    const int64_t stop = least(start + j->group, j->rows);
    const int64_t w = i % j->pieces * j->piece, end = least(w + j->piece, width);
    for (int64_t t = start; t < stop; t++) {
        const row_index r = row_of(p, t, depth->in, height->in);
        const int64_t d0 = upsample_first(depth, r.d),
                      d1 = upsample_first(depth, r.d + 1);
        const int64_t h0 = upsample_first(height, r.h);
        const int64_t h1 = upsample_first(height, r.h + 1);
        const char *made = NULL;
        for (int64_t d = d0; d < d1; d++) {
            const int64_t plane =
                ((r.a * p->channels + r.b) * depth->out + d) * height->out;
            for (int64_t h = h0; h < h1; h++) {
                char *to = (char *)p->to + (plane + h) * row_bytes + w * pixel;
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

static gpo_status scalar_forward(gpo_call *call);

/* Whether a row's elements are within 32-bit offsets of its first. */
static bool
fits_offsets(const upsample_plan *p, int64_t width)
{
    const double reach = (double)width * fabs((double)p->stride[UPSAMPLE_W]) +
                         (double)p->inner * fabs((double)p->stride[UPSAMPLE_I]);
    return reach < INT32_MAX;
}

static gpo_status
forward(gpo_call *call, bool parallel)
{
    job j;
    memset(&j, 0, sizeof j);
    upsample_plan *p = &j.plan;
    upsample_make_plan(call, p);
    const gpo_dtype dtype = call->out[0].dtype;
    const upsample_axis *w = &p->axis[2];
    if (p->size == 0) {
        return GPO_OK;
    }
    j.bytes = gpo_dtypes[dtype].bytes;
    j.moves = moves_of[gpo_cpu_isa()][kind_of(dtype)];
    j.mode = mode_of(&j, w->in);
    if (j.mode == ANY) {
        if (!fits_offsets(p, w->in)) {
            return scalar_forward(call);
        }
        void *memory = NULL;
        gpo_status status =
            gpo_scratch(call, (size_t)(w->out * p->inner) * sizeof *j.at, &memory);
        if (status) {
            return status;
        }
        j.at = memory;
        for (int64_t i = 0, e = 0; i < w->out; i++) {
            const int64_t source = upsample_source(w, i) * p->stride[UPSAMPLE_W];
            for (int64_t c = 0; c < p->inner; c++, e++) {
                j.at[e] = (int32_t)(source + c * p->stride[UPSAMPLE_I]);
            }
        }
    }
    const int64_t planes = p->images * p->channels;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1];
    cut(&j, planes * depth->in * height->in,
        depth->out / depth->in * (height->out / height->in));
    run_tasks(&j, parallel, forward_task);
    return GPO_OK;
}

/* ---- backward ---- */

/* Adds what one row of dy gives to elements [e, e + n) of a row of dx. */
static void
backward_add(const job *j, char *acc, const char *y, int64_t e, int64_t n)
{
    const upsample_plan *p = &j->plan;
    const int64_t across = p->stride[UPSAMPLE_W] * j->bytes;
    switch (j->mode) {
        case SAME:
            j->sums.add(acc, y + e * j->bytes, n);
            return;
        case TWICE:
            j->sums.add_pairs(acc, y + 2 * e * j->bytes, n);
            return;
        default:
            break;
    }
    if (j->mode == PIXELS) { /* the rest of a pixel at a time */
        int64_t w = e / p->inner, c = e % p->inner;
        for (int64_t k = 0; k < n; w++) {
            const int64_t run = least(p->inner - c, n - k);
            for (int64_t i = j->first[w]; i < j->first[w + 1]; i++) {
                j->sums.add(acc + k * j->value_bytes, y + i * across + c * j->bytes,
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
                            y + c * p->stride[UPSAMPLE_I] * j->bytes,
                            p->stride[UPSAMPLE_W], j->first + w,
                            ceil_div(n - at, p->inner));
        }
    }
}

/* Task i: a piece of a group of rows of dx. */
static void
backward_task(void *context, int64_t i)
{
    const job *j = context;
    const upsample_plan *p = &j->plan;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1];
    const int64_t row = p->axis[2].in * p->inner;
    const int64_t start = i / j->pieces * j->group;
    const int64_t stop = least(start + j->group, j->rows);
    const int64_t begin = i % j->pieces * j->piece, end = least(begin + j->piece, row);
    _Alignas(64) char acc[BLOCK * sizeof(gpo_c128)];
    for (int64_t t = start; t < stop; t++) {
        const row_index r = row_of(p, t, depth->in, height->in);
        const int64_t d0 = upsample_first(depth, r.d),
                      d1 = upsample_first(depth, r.d + 1);
        const int64_t h0 = upsample_first(height, r.h);
        const int64_t h1 = upsample_first(height, r.h + 1);
        char *to = (char *)p->to + t * row * j->bytes;
        for (int64_t e = begin; e < end; e += BLOCK) {
            const int64_t n = least(BLOCK, end - e);
            memset(acc, 0, (size_t)(n * j->value_bytes));
            for (int64_t d = d0; d < d1; d++) {
                for (int64_t h = h0; h < h1; h++) {
                    backward_add(j, acc, row_from(j, &r, d, h), e, n);
                }
            }
            j->sums.round(to + e * j->bytes, acc, n);
        }
    }
}

static gpo_status
backward(gpo_call *call, bool parallel)
{
    job j;
    memset(&j, 0, sizeof j);
    upsample_plan *p = &j.plan;
    upsample_make_plan(call, p);
    const gpo_dtype dtype = call->out[0].dtype;
    const bool is_half = dtype == GPO_F16 || dtype == GPO_BF16;
    const upsample_axis *w = &p->axis[2];
    const int64_t row = w->in * p->inner; /* elements of dx */
    if (p->size == 0 || row == 0) {
        return GPO_OK;
    }
    j.bytes = gpo_dtypes[dtype].bytes;
    j.value_bytes = is_half ? (int64_t)sizeof(float) : j.bytes;
    j.sums = sums_of[gpo_cpu_isa()][sum_of(dtype)];
    j.mode = mode_of(&j, w->out);
    void *memory = NULL;
    gpo_status status =
        gpo_scratch(call, (size_t)(w->in + 1) * sizeof *j.first, &memory);
    if (status) {
        return status;
    }
    j.first = memory;
    for (int64_t s = 0; s <= w->in && j.mode != SAME && j.mode != TWICE; s++) {
        j.first[s] = upsample_first(w, s);
    }
    const int64_t planes = p->images * p->channels;
    const upsample_axis *depth = &p->axis[0], *height = &p->axis[1];
    const double fed = (double)depth->out * (double)height->out * (double)w->out /
                       ((double)depth->in * (double)height->in * (double)w->in);
    const int64_t elements = (int64_t)(TASK_BYTES / ((fed + 1) * (double)j.bytes)) + 1;
    j.rows = planes * depth->in * height->in;
    j.piece = least(ceil_div(elements, BLOCK) * BLOCK, row);
    j.pieces = ceil_div(row, j.piece);
    j.group = j.pieces > 1 ? 1 : elements / row + 1;
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

/* ---- scalar: one result after the other, straight from the rule ---- */

/* Runs BODY for each row of `to`, whose D, H and W are d, h and width long. */
#define EACH_ROW(p, side, BODY)                                                  \
    for (int64_t a = 0; a < (p).images; a++) {                                   \
        for (int64_t b = 0; b < (p).channels; b++) {                             \
            for (int64_t d = 0; d < (p).axis[0].side; d++) {                     \
                for (int64_t h = 0; h < (p).axis[1].side; h++) {                 \
                    const int64_t plane =                                        \
                        a * (p).stride[UPSAMPLE_A] + b * (p).stride[UPSAMPLE_B]; \
                    BODY                                                         \
                }                                                                \
            }                                                                    \
        }                                                                        \
    }

#define MOVE_KIND(kind, T)                                                            \
    case kind: {                                                                      \
        T *to = p.to;                                                                 \
        const T *from = p.from;                                                       \
        EACH_ROW(p, out, {                                                            \
            const T *row = from + plane +                                             \
                           upsample_source(&p.axis[0], d) * p.stride[UPSAMPLE_D] +    \
                           upsample_source(&p.axis[1], h) * p.stride[UPSAMPLE_H];     \
            for (int64_t w = 0; w < p.axis[2].out; w++) {                             \
                const int64_t s = upsample_source(&p.axis[2], w);                     \
                for (int64_t c = 0; c < p.inner; c++) {                               \
                    *to++ = row[s * p.stride[UPSAMPLE_W] + c * p.stride[UPSAMPLE_I]]; \
                }                                                                     \
            }                                                                         \
        })                                                                            \
        break;                                                                        \
    }

static gpo_status
scalar_forward(gpo_call *call)
{
    upsample_plan p;
    upsample_make_plan(call, &p);
    if (p.size == 0) {
        return GPO_OK;
    }
    switch (kind_of(call->out[0].dtype)) {
        MOVES(MOVE_KIND)
        case NKINDS:
            break;
    }
    return GPO_OK;
}

#define DEFINE_SCALAR(dtype)                                                 \
    static gpo_status scalar_backward_##dtype(gpo_call *call)                \
    {                                                                        \
        upsample_plan p;                                                     \
        upsample_make_plan(call, &p);                                        \
        T_##dtype *to = p.to;                                                \
        const T_##dtype *from = p.from;                                      \
        if (p.size == 0) {                                                   \
            return GPO_OK;                                                   \
        }                                                                    \
        EACH_ROW(p, in, {                                                    \
            const int64_t d0 = upsample_first(&p.axis[0], d);                \
            const int64_t d1 = upsample_first(&p.axis[0], d + 1);            \
            const int64_t h0 = upsample_first(&p.axis[1], h);                \
            const int64_t h1 = upsample_first(&p.axis[1], h + 1);            \
            for (int64_t e = 0; e < p.axis[2].in * p.inner; e++) {           \
                const int64_t w = e / p.inner;                               \
                const int64_t w0 = upsample_first(&p.axis[2], w);            \
                const int64_t w1 = upsample_first(&p.axis[2], w + 1);        \
                const T_##dtype *y =                                         \
                    from + plane + e % p.inner * p.stride[UPSAMPLE_I];       \
                V_##dtype sum;                                               \
                memset(&sum, 0, sizeof sum);                                 \
                for (int64_t i = d0; i < d1; i++) {                          \
                    for (int64_t k = h0; k < h1; k++) {                      \
                        for (int64_t l = w0; l < w1; l++) {                  \
                            plus_##dtype(&sum, y[i * p.stride[UPSAMPLE_D] +  \
                                                 k * p.stride[UPSAMPLE_H] +  \
                                                 l * p.stride[UPSAMPLE_W]]); \
                        }                                                    \
                    }                                                        \
                }                                                            \
                *to++ = rounded_##dtype(sum);                                \
            }                                                                \
        })                                                                   \
        return GPO_OK;                                                       \
    }

SUMS(DEFINE_SCALAR)

/* ---- the variants ---- */

enum { SCALAR, SIMD, THREADS };

/* clang-format off */
#define EVERY(f) {f, f, f, f, f, f, f, f, f, f, f, f, f, f, f}
#define BUT_BOOL(f) {NULL, f, f, f, f, f, f, f, f, f, f, f, f, f, f}
/* clang-format on */

static const gpo_variant forward_variants[] = {
    [SCALAR] = {"scalar", "one element of the result after the other", "", "run-to-run",
                EVERY(scalar_forward)},
    [SIMD] = {"simd",
              "a row of x makes one row of the result, the others are copies of it", "",
              "run-to-run", EVERY(forward_simd)},
    [THREADS] = {"threads", "simd on pieces of rows", "", "run-to-run",
                 EVERY(forward_threads)},
    {.name = NULL},
};

static const gpo_variant backward_variants[] = {
    [SCALAR] = {"scalar",
                "one element of the result after the other",
                "",
                "run-to-run",
                {NULL, scalar_backward_U8, scalar_backward_U8, scalar_backward_U16,
                 scalar_backward_U16, scalar_backward_U32, scalar_backward_U32,
                 scalar_backward_U64, scalar_backward_U64, scalar_backward_F16,
                 scalar_backward_BF16, scalar_backward_F32, scalar_backward_F64,
                 scalar_backward_C64, scalar_backward_C128}},
    [SIMD] = {"simd", "a row of sums collects rows of dy in the order they lie", "",
              "run-to-run", BUT_BOOL(backward_simd)},
    [THREADS] = {"threads", "simd on pieces of rows", "", "run-to-run",
                 BUT_BOOL(backward_threads)},
    {.name = NULL},
};

/* ---- choose ---- */

static const gpo_variant *
choose(const gpo_call *call, const gpo_variant *variants, char why[GPO_MESSAGE])
{
    static const char alone[] = "the thread team has one thread";
    static const char small[] =
        "under 512 KiB, starting threads costs more than it saves";
    static const char large[] = "the work is enough for several threads";
    enum { PAYS_BYTES = 1 << 19 };
    const int64_t elements =
        call->in[0].size > call->out[0].size ? call->in[0].size : call->out[0].size;
    if (elements < PAYS_BYTES / gpo_dtypes[call->in[0].dtype].bytes) {
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
