/*
 * cpu.c  max_pool3d on the CPU.  Order: the three instruction sets, tiles, the passes of
 * one tile, sharing the tiles out, the formula itself, the variants, choose.  Elements
 * become keys in keys.h, the inner loops stand in cpu.inc, the gradient in gradient.c.
 *
 * The maximum of a window is that of its planes' maxima, theirs that of their rows': a
 * tile is loaded as keys and pooled along T, then H, then W, in place.  A window of k
 * elements along an axis is made of two overlapping ones of a power of two, so its cost
 * is the logarithm of k; where windows step by more than one, each is made by itself.
 * Keys are totally ordered with their position, so no order of the passes matters.
 */
#include "keys.h"

#include "../../backend/backend.h"

#include <stdlib.h>
#include <string.h>

typedef struct loops {
    /* n elements of x as keys; position `first` of a plane is the first of them */
    void (*load)(const void *x, int64_t stride, int64_t n, int64_t first, void *keys,
                 void *codes);
    void (*pack)(const void *x, int64_t stride, int64_t n, int64_t first, void *keys,
                 void *codes);
    void (*store)(const void *keys, int64_t step, int64_t n, void *y);
    /* keys[i] = the larger of keys[i] and keys[i + ahead] */
    void (*take)(void *keys, void *codes, int64_t ahead, int64_t n);
    void (*take_packed)(void *keys, void *codes, int64_t ahead, int64_t n);
    /* keys[i] = the largest of keys[i + k * ahead], k in [0, 4); NULL: not in one go */
    void (*take_three)(void *keys, int64_t ahead, int64_t n);
    void (*take_three_packed)(void *keys, int64_t ahead, int64_t n);
    int64_t bytes, key_bytes; /* of an element, of a key without a position */
    bool has_codes;           /* positions lie beside the keys, not in them */
} loops;

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
#define table_v3 table_base
#define table_v4 table_base
#endif

/* ---- tiles: how many windows along each axis are made at once ---- */

enum {
    TILE_KEYS = 1 << 18, /* 1 MiB of 32-bit keys: in L2 */
    TILE_ROW = 1 << 12,  /* windows of a row */
    TASKS = 4,           /* per thread */
    TASK_KEYS = 1 << 12, /* fewer are not worth a task of their own */
};

typedef struct job {
    max_pool3d_plan plan;
    const loops *loops;
    gpo_dtype dtype;
    bool with_indices;
    int64_t key_bytes; /* of a key as it is held */
    int64_t least;     /* its value where x has no element */
    int64_t windows[POOL_AXES], tiles[POOL_AXES], extent[POOL_AXES];
    int64_t items, tasks; /* tiles of all planes */
    bool *failed;         /* per task: no memory */
} job;

static int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t
least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements that n windows of an axis span, outside of x included. */
static int64_t
span_of(const pool_axis *a, int64_t n)
{
    return (n - 1) * a->stride + pool_extent(a);
}

/* Windows that span twice as much as one are made in one tile, however large. */
static void
choose_tiles(job *j)
{
    const pool_axis *axis = j->plan.axis;
    int64_t held = 1;
    j->items = j->plan.batches * j->plan.channels;
    for (int d = POOL_W; d >= POOL_T; d--) {
        const int64_t twice = 2 * pool_extent(&axis[d]);
        int64_t n = axis[d].out;
        if (d == POOL_W && n > TILE_ROW) {
            n = twice > TILE_ROW ? least_of(n, twice) : TILE_ROW;
        }
        while (n > 1 && held * span_of(&axis[d], n) > TILE_KEYS &&
               span_of(&axis[d], n) > twice) {
            n = ceil_div(n, 2);
        }
        j->windows[d] = n;
        j->tiles[d] = ceil_div(axis[d].out, n);
        j->extent[d] = span_of(&axis[d], n);
        held *= j->extent[d];
        j->items *= j->tiles[d];
    }
}

/* ---- the passes of one tile ---- */

typedef struct tile {
    char *keys, *codes;
    const char *x; /* of the plane */
    char *y;
    int64_t *indices;
    int64_t begin[POOL_AXES], windows[POOL_AXES], extent[POOL_AXES];
} tile;

static void
fill_least(const job *j, const tile *t, int64_t at, int64_t n)
{
    if (j->key_bytes == 4) {
        int32_t *keys = (int32_t *)t->keys + at;
        for (int64_t i = 0; i < n; i++) {
            keys[i] = (int32_t)j->least;
        }
        return;
    }
    int64_t *keys = (int64_t *)t->keys + at;
    for (int64_t i = 0; i < n; i++) {
        keys[i] = j->least;
    }
    if (j->loops->has_codes && j->with_indices) {
        int64_t *codes = (int64_t *)t->codes + at;
        for (int64_t i = 0; i < n; i++) {
            codes[i] = INT64_MIN;
        }
    }
}

/* n elements of x from position (p[T], p[H], p[W]) on, into the tile at `at`. */
static void
load_run(const job *j, const tile *t, const int64_t *p, int64_t n, int64_t at)
{
    const max_pool3d_plan *plan = &j->plan;
    const int64_t *by = plan->by;
    const int64_t offset = p[0] * by[0] + p[1] * by[1] + p[2] * by[2];
    const int64_t first =
        (p[0] * plan->axis[POOL_H].in + p[1]) * plan->axis[POOL_W].in + p[2];
    char *codes = t->codes ? t->codes + at * 8 : NULL;
    (j->with_indices ? j->loops->pack
                     : j->loops->load)(t->x + offset * j->loops->bytes, by[POOL_W], n,
                                       first, t->keys + at * j->key_bytes, codes);
}

static void
load_tile(const job *j, const tile *t)
{
    const pool_axis *axis = j->plan.axis;
    const int64_t *by = j->plan.by;
    int64_t from[POOL_AXES], lo[POOL_AXES], hi[POOL_AXES];
    for (int d = 0; d < POOL_AXES; d++) { /* the part of the tile that x has */
        from[d] = t->begin[d] * axis[d].stride - axis[d].padding;
        lo[d] = least_of(from[d] < 0 ? -from[d] : 0, t->extent[d]);
        hi[d] = least_of(t->extent[d], axis[d].in - from[d]);
        hi[d] = hi[d] < lo[d] ? lo[d] : hi[d];
    }
    const int64_t rows = t->extent[POOL_H], cols = t->extent[POOL_W];
    const bool whole = lo[2] == 0 && hi[2] == cols && lo[1] == 0 && hi[1] == rows;
    const bool gapless = whole && by[1] == cols * by[2]; /* a plane lies in one run */
    for (int64_t k = 0; k < t->extent[POOL_T]; k++) {
        const int64_t at = k * rows * cols;
        if (k < lo[0] || k >= hi[0]) {
            fill_least(j, t, at, rows * cols);
            continue;
        }
        int64_t p[POOL_AXES] = {from[0] + k, from[1], from[2] + lo[2]};
        if (gapless) {
            load_run(j, t, p, rows * cols, at);
            continue;
        }
        for (int64_t h = 0; h < rows; h++, p[1]++) {
            const int64_t row = at + h * cols;
            if (h < lo[1] || h >= hi[1]) {
                fill_least(j, t, row, cols);
                continue;
            }
            fill_least(j, t, row, lo[2]);
            load_run(j, t, p, hi[2] - lo[2], row + lo[2]);
            fill_least(j, t, row + hi[2], cols - hi[2]);
        }
    }
}

/*
 * Windows along axis d, whose neighbours lie `unit` keys apart, in the n keys from `at`
 * on: window o is then at o * stride * unit.
 */
static void
pool_axis_of(const job *j, const tile *t, int d, int64_t at, int64_t unit, int64_t n)
{
    const pool_axis *a = &j->plan.axis[d];
    char *keys = t->keys + at * j->key_bytes;
    char *codes = t->codes ? t->codes + at * 8 : NULL;
    void (*take)(void *, void *, int64_t, int64_t) =
        j->with_indices ? j->loops->take_packed : j->loops->take;
    void (*take_three)(void *, int64_t, int64_t) =
        j->with_indices ? j->loops->take_three_packed : j->loops->take_three;
    if (a->stride == 1 || d == POOL_W) {
        int64_t made = 1; /* elements of a window so far */
        for (; take_three && 4 * made <= a->kernel; made *= 4) {
            const int64_t ahead = made * a->dilation * unit;
            n -= 3 * ahead;
            take_three(keys, ahead, n);
        }
        while (made < a->kernel) {
            const int64_t more = least_of(made, a->kernel - made);
            const int64_t ahead = more * a->dilation * unit;
            n -= ahead;
            take(keys, codes, ahead, n);
            made += more;
        }
        return;
    }
    for (int64_t o = 0; o < t->windows[d]; o++) { /* later windows read later keys */
        const int64_t first = o * a->stride * unit;
        for (int64_t k = 1; k < a->kernel; k++) {
            take(keys + first * j->key_bytes, codes ? codes + first * 8 : NULL,
                 k * a->dilation * unit, unit);
        }
    }
}

/* Where the element stands that a key comes from; -1 if x has none. */
static int64_t
position_of(const job *j, const tile *t, int64_t at)
{
    int64_t code;
    if (j->loops->has_codes) {
        memcpy(&code, t->codes + at * 8, 8);
        return code == INT64_MIN ? -1 : code < 0 ? ~code : code;
    }
    memcpy(&code, t->keys + at * 8, 8);
    const int32_t low = (int32_t)((uint32_t)code ^ 0x80000000u);
    return low == INT32_MIN ? -1 : low < 0 ? ~low : low;
}

/* The least element of a dtype, for windows outside of x. */
static void
store_least(gpo_dtype dtype, char *y)
{
    switch (dtype) {
#define LEAST_CASE(dtype, K, V)                \
    case GPO_##dtype: {                        \
        const T_##dtype least = least_##dtype; \
        memcpy(y, &least, sizeof least);       \
        return;                                \
    }
        POOL_ALL(LEAST_CASE)
        default:
            return;
    }
}

/* Element `at` of a plane of x into y. */
static void
copy_element(const job *j, const char *x, int64_t at, char *y)
{
    const pool_axis *axis = j->plan.axis;
    const int64_t *by = j->plan.by;
    if (at < 0) {
        store_least(j->dtype, y);
        return;
    }
    const int64_t w = at % axis[POOL_W].in, row = at / axis[POOL_W].in;
    const int64_t h = row % axis[POOL_H].in, k = row / axis[POOL_H].in;
    const int64_t bytes = j->loops->bytes;
    memcpy(y, x + (k * by[0] + h * by[1] + w * by[2]) * bytes, (size_t)bytes);
}

static void
store_row(const job *j, const tile *t, int64_t at, int64_t out)
{
    const int64_t step = j->plan.axis[POOL_W].stride, n = t->windows[POOL_W];
    const int64_t bytes = j->loops->bytes;
    if (!t->indices) {
        j->loops->store(t->keys + at * j->key_bytes, step, n, t->y + out * bytes);
        return;
    }
    for (int64_t o = 0; o < n; o++) {
        const int64_t place = position_of(j, t, at + o * step);
        t->indices[out + o] = place;
        copy_element(j, t->x, place, t->y + (out + o) * bytes);
    }
}

static void
pool_tile(const job *j, const tile *t)
{
    const pool_axis *axis = j->plan.axis;
    const int64_t rows = t->extent[POOL_H], cols = t->extent[POOL_W];
    load_tile(j, t);
    pool_axis_of(j, t, POOL_T, 0, rows * cols, t->extent[POOL_T] * rows * cols);
    for (int64_t k = 0; k < t->windows[POOL_T]; k++) {
        const int64_t at = k * axis[POOL_T].stride * rows * cols;
        const int64_t apart = axis[POOL_H].stride * cols;
        pool_axis_of(j, t, POOL_H, at, cols, rows * cols);
        /* rows that lie side by side are pooled as one: what runs over is not used */
        const int64_t all = t->windows[POOL_H];
        const int64_t at_once = axis[POOL_H].stride == 1 ? all : 1;
        for (int64_t h = 0; h < all; h += at_once) {
            pool_axis_of(j, t, POOL_W, at + h * apart, 1, at_once * cols);
        }
        for (int64_t h = 0; h < all; h++) {
            const int64_t out =
                ((t->begin[0] + k) * axis[POOL_H].out + t->begin[1] + h) *
                    axis[POOL_W].out +
                t->begin[2];
            store_row(j, t, at + h * apart, out);
        }
    }
}

/* ---- sharing the tiles out ---- */

static void
run_item(const job *j, int64_t item, char *keys, char *codes)
{
    const max_pool3d_plan *plan = &j->plan;
    tile t = {.keys = keys, .codes = codes};
    for (int d = POOL_W; d >= POOL_T; d--) {
        t.begin[d] = item % j->tiles[d] * j->windows[d];
        item /= j->tiles[d];
        t.windows[d] = least_of(j->windows[d], plan->axis[d].out - t.begin[d]);
        t.extent[d] = span_of(&plan->axis[d], t.windows[d]);
    }
    const int64_t n = item / plan->channels, c = item % plan->channels;
    const int64_t offset = n * plan->by_batch + c * plan->by_channel;
    t.x = (const char *)plan->x + offset * j->loops->bytes;
    t.y = (char *)plan->y + item * plan->outputs * j->loops->bytes;
    t.indices = plan->indices ? plan->indices + item * plan->outputs : NULL;
    pool_tile(j, &t);
}

static void
run_task(void *context, int64_t task)
{
    const job *j = context;
    const int64_t held = j->extent[0] * j->extent[1] * j->extent[2];
    const bool coded = j->loops->has_codes && j->with_indices;
    char *keys = malloc((size_t)(held * (j->key_bytes + (coded ? 8 : 0))));
    if (!keys) {
        j->failed[task] = true;
        return;
    }
    char *codes = coded ? keys + held * j->key_bytes : NULL;
    for (int64_t i = task; i < j->items; i += j->tasks) {
        run_item(j, i, keys, codes);
    }
    free(keys);
}

static int64_t
least_key(gpo_dtype dtype)
{
    switch (dtype) {
#define LEAST_KEY(dtype, K, V)                 \
    case GPO_##dtype: {                        \
        const T_##dtype least = least_##dtype; \
        return key_##dtype(least);             \
    }
        POOL_ALL(LEAST_KEY)
        default:
            return 0;
    }
}

static gpo_status run_formula(gpo_call *call);

static gpo_status
run_tiles(gpo_call *call, bool parallel)
{
    static const loops *const tables[GPO_NISA] = {table_base, table_v3, table_v4};
    const gpo_dtype dtype = call->in[0].dtype;
    job j = {.loops = &tables[gpo_cpu_isa()][dtype], .dtype = dtype};
    max_pool3d_make_plan(call, &j.plan);
    j.with_indices = j.plan.indices != NULL;
    j.key_bytes = j.with_indices ? 8 : j.loops->key_bytes;
    j.least = least_key(dtype);
    if (j.with_indices && !j.loops->has_codes) {
        int64_t plane = 1;
        for (int d = 0; d < POOL_AXES; d++) {
            plane *= j.plan.axis[d].in;
        }
        if (plane >= INT32_MAX) { /* a position does not fit beside the key */
            return run_formula(call);
        }
        j.least *= (int64_t)1 << 32; /* code 0 is less than any element's */
    }
    choose_tiles(&j);
    const double held = (double)j.extent[0] * (double)j.extent[1] * (double)j.extent[2];
    if (held > 0x1p40) { /* windows far larger than x */
        return run_formula(call);
    }
    enum { MOST_TASKS = 1024 };
    bool failed[MOST_TASKS] = {false};
    const double pays =
        held * (double)j.items / TASK_KEYS; /* tasks worth their start */
    int64_t wanted = parallel ? (int64_t)TASKS * gpo_cpu_threads() : 1;
    wanted = pays < (double)wanted ? (int64_t)pays + 1 : wanted;
    j.tasks = least_of(least_of(wanted, j.items), MOST_TASKS);
    j.failed = failed;
    gpo_cpu_loop(j.tasks > 1, j.tasks, run_task, &j);
    for (int64_t i = 0; i < j.tasks; i++) {
        if (failed[i]) {
            return gpo_fail(call, GPO_EMEMORY, "no memory for a tile of keys");
        }
    }
    return GPO_OK;
}

static gpo_status
run_simd(gpo_call *call)
{
    return run_tiles(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run_tiles(call, true);
}

/* ---- the formula itself ---- */

/* PyTorch's test, element by element in C order, nan included. */
#define DEFINE_FORMULA(dtype, K, V)                                          \
    static int64_t best_##dtype(const max_pool3d_plan *p, const void *from,  \
                                const int64_t *first, const int64_t *end)    \
    {                                                                        \
        const T_##dtype *x = from;                                           \
        const pool_axis *a = p->axis;                                        \
        int64_t best = -1;                                                   \
        V most = 0;                                                          \
        for (int64_t k = first[0]; k < end[0]; k += a[0].dilation) {         \
            for (int64_t h = first[1]; h < end[1]; h += a[1].dilation) {     \
                const T_##dtype *row = x + k * p->by[0] + h * p->by[1];      \
                for (int64_t w = first[2]; w < end[2]; w += a[2].dilation) { \
                    const V value = (V)value_##dtype(row[w * p->by[2]]);     \
                    if (best < 0 || value > most || value != value) {        \
                        most = value;                                        \
                        best = (k * a[1].in + h) * a[2].in + w;              \
                    }                                                        \
                }                                                            \
            }                                                                \
        }                                                                    \
        return best;                                                         \
    }
POOL_ALL(DEFINE_FORMULA)

typedef int64_t (*best_of)(const max_pool3d_plan *, const void *, const int64_t *,
                           const int64_t *);

#define BEST_ENTRY(dtype, K, V) [GPO_##dtype] = best_##dtype,
static const best_of formulas[GPO_NDTYPES] = {POOL_ALL(BEST_ENTRY)};

static gpo_status
run_formula(gpo_call *call)
{
    const gpo_dtype dtype = call->in[0].dtype;
    job j = {.loops = &table_base[dtype], .dtype = dtype};
    max_pool3d_make_plan(call, &j.plan);
    const max_pool3d_plan *p = &j.plan;
    const pool_axis *a = p->axis;
    int64_t i = 0, first[POOL_AXES], end[POOL_AXES];
    for (int64_t plane = 0; plane < p->batches * p->channels; plane++) {
        const int64_t n = plane / p->channels, c = plane % p->channels;
        const char *x =
            (const char *)p->x + (n * p->by_batch + c * p->by_channel) * j.loops->bytes;
        for (int64_t k = 0; k < a[POOL_T].out; k++) {
            pool_window(&a[POOL_T], k, &first[POOL_T], &end[POOL_T]);
            for (int64_t h = 0; h < a[POOL_H].out; h++) {
                pool_window(&a[POOL_H], h, &first[POOL_H], &end[POOL_H]);
                for (int64_t w = 0; w < a[POOL_W].out; w++, i++) {
                    pool_window(&a[POOL_W], w, &first[POOL_W], &end[POOL_W]);
                    const int64_t best = formulas[dtype](p, x, first, end);
                    copy_element(&j, x, best, (char *)p->y + i * j.loops->bytes);
                    if (p->indices) {
                        p->indices[i] = best;
                    }
                }
            }
        }
    }
    return GPO_OK;
}

/* ---- choose ---- */

enum { SCALAR, SIMD, THREADS };

#define SCALAR_ENTRY(dtype, K, V) [GPO_##dtype] = run_formula,
#define SIMD_ENTRY(dtype, K, V) [GPO_##dtype] = run_simd,
#define THREADS_ENTRY(dtype, K, V) [GPO_##dtype] = run_threads,

static const gpo_variant variants[] = {
    [SCALAR] = {"scalar",
                "the formula: each window element by element",
                "",
                "run-to-run",
                {POOL_ALL(SCALAR_ENTRY)}},
    [SIMD] = {"simd",
              "keys in tiles, one axis after the other, windows by doubling",
              "",
              "run-to-run",
              {POOL_ALL(SIMD_ENTRY)}},
    [THREADS] = {"threads",
                 "simd on tiles of several planes at once",
                 "",
                 "run-to-run",
                 {POOL_ALL(THREADS_ENTRY)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char alone[] = "the thread team has one thread";
    static const char small[] = "under 2^16 elements of x, starting threads costs more "
                                "than it saves";
    static const char large[] = "x is large enough for several threads";
    enum { PAYS = 1 << 16 };
    if (call->in[0].size < PAYS) {
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

const gpo_table max_pool3d_cpu = {variants, choose};
