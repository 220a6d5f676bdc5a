/*
 * cpu.c  max_pool3d on the CPU.  Order: the size of tiles, sharing the tiles, the
 * formula itself, choose.  See tile.h for what is done with a tile, keys.h for how
 * elements become keys, take.inc and keys.inc for the inner loops, gradient.c for the
 * gradient.
 *
 * The maximum of a window is the maximum over its planes, each the maximum over its
 * rows: keys are pooled along T, then H, then W, in place.  A window of k elements
 * along an axis is made of smaller overlapping ones, so its cost is the logarithm of k;
 * where the stride is more than one, each window is made on its own.  Keys are totally
 * ordered with their position, so the order of the passes does not matter.
 *
 * A tile is processed slice by slice: a ring holds as many as one window spans, so each
 * is loaded once.  A slice goes through all passes a few rows at a time, which stay in
 * L1; only the slices of the ring that a pass along T joins come from L2.  Where windows
 * share few rows there is no ring: the rows of each window are joined as they are loaded.
 */
#include "tile.h"

#include "../../backend/backend.h"

#include <stdlib.h>

/* ---- tiles: how many windows along each axis are made at once ---- */

/* Elements that n windows of an axis span, outside of x included. */
static int64_t
span_of(const pool_axis *a, int64_t n)
{
    return (n - 1) * a->stride + pool_extent(a);
}

static void
cut_axis(job *j, int d, int64_t windows)
{
    const pool_axis *a = &j->plan->axis[d];
    j->windows[d] = windows;
    j->tiles[d] = ceil_div(a->out, windows);
    j->extent[d] = span_of(a, windows);
    j->items *= j->tiles[d];
}

/*
 * A tile whose windows span at most twice as much as one is not cut, however large.
 * Along T a tile may have any length: it is cut only if there are fewer tiles than
 * `wanted`.
 */
static void
choose_tiles(job *j, int64_t wanted)
{
    const pool_axis *axis = j->plan->axis;
    int64_t held = j->slots = pool_extent(&axis[POOL_T]);
    j->items = j->plan->planes;
    for (int d = POOL_W; d >= POOL_H; d--) {
        const int64_t twice = 2 * pool_extent(&axis[d]);
        int64_t n = axis[d].out;
        if (d == POOL_W && n > TILE_ROW) {
            n = twice > TILE_ROW ? least_of(n, twice) : TILE_ROW;
        }
        while (n > 1 && held * span_of(&axis[d], n) > TILE_KEYS &&
               span_of(&axis[d], n) > twice) {
            n = ceil_div(n, 2);
        }
        if (d == POOL_H && j->is_folded) {
            const int64_t share = ceil_div(n, wanted), least = TASK_KEYS / held + 1;
            n = least_of(n, most_of(share, least));
        }
        cut_axis(j, d, n);
        held *= j->extent[d];
    }
    int64_t n = axis[POOL_T].out;
    for (int64_t tiles = 1;
         j->items * tiles < wanted && span_of(&axis[POOL_T], n) > 2 * j->slots &&
         n * j->extent[POOL_H] * j->extent[POOL_W] > 2 * TASK_KEYS;
         tiles *= 2) {
        n = ceil_div(n, 2);
    }
    cut_axis(j, POOL_T, n);
    j->at_once = 1;
    if (held / j->slots * j->extent[POOL_T] <= STRIP_KEYS) {
        j->at_once = j->slots = j->extent[POOL_T];
    }
}

/*
 * The most keys a ring may hold, in proportion to a plane of x and of y.  Windows that
 * reach far outside of x, as the last one may with ceil_mode, would take more.
 */
static double
most_keys(const max_pool3d_plan *plan)
{
    return 64 * ((double)plan->plane + (double)plan->outputs) + 4 * TILE_KEYS;
}

/* ---- sharing the tiles ---- */

static job
job_of(const gpo_call *call, gpo_isa isa)
{
    static const loops *const *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    const gpo_dtype dtype = call->in[0].dtype;
    return (job){
        .plan = max_pool3d_plan_of(call),
        .x = call->in[0].data,
        .y = call->out[0].data,
        .indices = max_pool3d_indices_of(call),
        .loops = tables[isa][dtype],
        .dtype = dtype,
    };
}

/* Where a plane of x begins. */
static const char *
plane_of(const job *j, int64_t plane)
{
    const max_pool3d_plan *plan = j->plan;
    const int64_t n = plane / plan->channels, c = plane % plan->channels;
    return j->x + (n * plan->by_batch + c * plan->by_channel) * j->loops->bytes;
}

static void
run_item(const job *j, int64_t item, char *keys, char *codes)
{
    const max_pool3d_plan *plan = j->plan;
    tile t = {.keys = keys, .codes = codes};
    for (int d = POOL_W; d >= POOL_T; d--) {
        t.begin[d] = item % j->tiles[d] * j->windows[d];
        item /= j->tiles[d];
        const pool_axis *a = &plan->axis[d];
        t.windows[d] = least_of(j->windows[d], a->out - t.begin[d]);
        t.extent[d] = span_of(a, t.windows[d]);
        t.from[d] = t.begin[d] * a->stride - a->padding;
        t.lo[d] = least_of(most_of(-t.from[d], 0), t.extent[d]);
        t.hi[d] = most_of(least_of(t.extent[d], a->in - t.from[d]), t.lo[d]);
    }
    t.x = plane_of(j, item);
    t.y = j->y + item * plan->outputs * j->loops->bytes;
    t.indices = j->indices ? j->indices + item * plan->outputs : NULL;
    pool_tile(j, &t);
}

static void
run_task(void *context, int64_t task)
{
    const job *j = context;
    const int64_t rows = j->extent[POOL_H];
    const int64_t kept = j->is_strip ? least_of(rows, strip_of(j)) : rows;
    const int64_t held = j->slots * kept * j->extent[POOL_W];
    const bool coded = j->loops->has_codes && j->plan->with_indices;
    const size_t bytes = (size_t)(held * (j->key_bytes + (coded ? 8 : 0)));
    char *keys = aligned_alloc(LINE, (bytes + LINE - 1) / LINE * LINE);
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

static gpo_status run_formula(gpo_call *call);

/* Whether all elements of an axis are one window. */
static bool
is_single(const pool_axis *a)
{
    return a->in == 1 && a->out == 1 && a->kernel == 1 && a->padding == 0;
}

static bool
is_packed(const max_pool3d_plan *p)
{
    int64_t by = 1;
    bool packed = true;
    for (int d = POOL_W; d >= POOL_T; d--) {
        packed = packed && (p->axis[d].in == 1 || p->by[d] == by);
        by *= p->axis[d].in;
    }
    return packed;
}

/* Makes planes of one row the rows of one plane, so that a tile has many of them. */
static void
fold_planes(job *j, max_pool3d_plan *p)
{
    const bool even =
        p->planes == p->channels || p->by_batch == p->channels * p->by_channel;
    const bool fits = p->plane <= INT32_MAX / 2 / (p->planes > 0 ? p->planes : 1);
    pool_axis *h = &p->axis[POOL_H];
    if (!even || !fits || p->planes < 2 || !is_single(&p->axis[POOL_T]) ||
        !is_single(h)) {
        return;
    }
    j->is_folded = true;
    h->in = h->out = p->planes;
    h->stride = 1;
    p->by[POOL_H] = p->by_channel;
    p->plane *= p->planes;
    p->outputs *= p->planes;
    p->planes = p->channels = 1;
}

/*
 * Channels that are contiguous, as with channels last, become the axis W, whose windows
 * are one element, and H and W become T and H: x is read as it lies.  The results go to
 * their planes one by one.
 */
static void
turn_channels(job *j, max_pool3d_plan *p)
{
    enum { PAYS = 4 };
    if (p->with_indices || p->by_channel != 1 || p->channels < PAYS ||
        p->by[POOL_W] == 1 || !is_single(&p->axis[POOL_T])) {
        return;
    }
    j->apart = p->outputs;
    p->axis[POOL_T] = p->axis[POOL_H];
    p->by[POOL_T] = p->by[POOL_H];
    p->axis[POOL_H] = p->axis[POOL_W];
    p->by[POOL_H] = p->by[POOL_W];
    p->axis[POOL_W] = (pool_axis){
        .in = p->channels, .out = p->channels, .kernel = 1, .stride = 1, .dilation = 1};
    p->by[POOL_W] = 1;
    p->plane *= p->channels;
    p->outputs *= p->channels;
    p->planes /= p->channels;
    p->channels = 1;
}

static gpo_status
run_tiles(gpo_call *call, bool parallel)
{
    job j = job_of(call, gpo_cpu_isa());
    max_pool3d_plan plan = *j.plan;
    j.plan = &plan;
    fold_planes(&j, &plan);
    turn_channels(&j, &plan);
    j.key_bytes = j.plan->with_indices ? 8 : j.loops->key_bytes;
    j.least = least_key(j.dtype);
    if (j.plan->with_indices && !j.loops->has_codes) {
        if (j.plan->plane >= INT32_MAX) { /* a position does not fit into the key */
            return run_formula(call);
        }
        j.least *= (int64_t)1 << 32; /* code 0 is less than any element's */
    }
    j.is_packed = is_packed(&plan);
    int64_t wanted = parallel ? (int64_t)TASKS * gpo_cpu_threads() : 1;
    choose_tiles(&j, wanted);
    j.is_direct = is_direct(&j);
    const pool_axis *w = &plan.axis[POOL_W];
    j.ends_alone = !plan.with_indices && w->kernel > 1 && w->kernel <= MOST_ALONE &&
                   w->stride == w->kernel && w->dilation == 1;
    j.is_strip = !j.is_direct && j.slots == 1 && plan.axis[POOL_H].kernel == 1;
    const double rows = (double)j.extent[POOL_H] * (double)j.extent[POOL_W];
    const max_pool3d_plan *alone = j.is_folded ? max_pool3d_plan_of(call) : &plan;
    if ((double)j.slots * rows > most_keys(alone)) { /* windows far apart */
        return run_formula(call);
    }
    enum { MOST_TASKS = 1024 };
    bool failed[MOST_TASKS] = {false};
    const double pays = /* tasks that are worth starting */
        (double)j.extent[POOL_T] * rows * (double)j.items / TASK_KEYS;
    wanted = pays < (double)wanted ? (int64_t)pays + 1 : wanted;
    j.tasks = least_of(least_of(wanted, j.items), MOST_TASKS);
    j.failed = failed;
    gpo_cpu_loop(j.tasks > 1, j.tasks, run_task, &j);
    for (int64_t i = 0; i < j.tasks; i++) {
        if (failed[i]) {
            return gpo_fail(&call->error, GPO_EMEMORY, "no memory for a tile of keys");
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

#define DTYPE I8
#include "formula.inc"
#define DTYPE U8
#include "formula.inc"
#define DTYPE I16
#include "formula.inc"
#define DTYPE U16
#include "formula.inc"
#define DTYPE I32
#include "formula.inc"
#define DTYPE U32
#include "formula.inc"
#define DTYPE I64
#include "formula.inc"
#define DTYPE U64
#include "formula.inc"
#define DTYPE F16
#include "formula.inc"
#define DTYPE BF16
#include "formula.inc"
#define DTYPE F32
#include "formula.inc"
#define DTYPE F64
#include "formula.inc"

typedef int64_t (*best_of)(const max_pool3d_plan *p, const void *from,
                           const int64_t *first, const int64_t *end);

static const best_of formulas[GPO_NDTYPES] = {
    [GPO_I8] = best_I8,     [GPO_U8] = best_U8,   [GPO_I16] = best_I16,
    [GPO_U16] = best_U16,   [GPO_I32] = best_I32, [GPO_U32] = best_U32,
    [GPO_I64] = best_I64,   [GPO_U64] = best_U64, [GPO_F16] = best_F16,
    [GPO_BF16] = best_BF16, [GPO_F32] = best_F32, [GPO_F64] = best_F64,
};

static gpo_status
run_formula(gpo_call *call)
{
    const job j = job_of(call, GPO_ISA_BASE);
    const max_pool3d_plan *p = j.plan;
    const pool_axis *a = p->axis;
    int64_t i = 0, first[POOL_AXES], end[POOL_AXES];
    for (int64_t plane = 0; plane < p->planes; plane++) {
        const char *x = plane_of(&j, plane);
        for (int64_t k = 0; k < a[POOL_T].out; k++) {
            pool_window(&a[POOL_T], k, &first[POOL_T], &end[POOL_T]);
            for (int64_t h = 0; h < a[POOL_H].out; h++) {
                pool_window(&a[POOL_H], h, &first[POOL_H], &end[POOL_H]);
                for (int64_t w = 0; w < a[POOL_W].out; w++, i++) {
                    pool_window(&a[POOL_W], w, &first[POOL_W], &end[POOL_W]);
                    const int64_t best = formulas[j.dtype](p, x, first, end);
                    copy_element(&j, x, best, j.y + i * j.loops->bytes);
                    if (j.indices) {
                        j.indices[i] = best;
                    }
                }
            }
        }
    }
    return GPO_OK;
}

/* ---- choose ---- */

/* clang-format off */
#define REAL_NUMBERS GPO_I8 ... GPO_F64 /* neither bools nor complex numbers */
/* clang-format on */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "the formula: each window element by element",
                        "",
                        "run-to-run",
                        {[REAL_NUMBERS] = run_formula}},
    [GPO_CPU_SIMD] = {"simd",
                      "keys in tiles, one axis after the other, windows by doubling",
                      "",
                      "run-to-run",
                      {[REAL_NUMBERS] = run_simd}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on tiles of several planes at once",
                         "",
                         "run-to-run",
                         {[REAL_NUMBERS] = run_threads}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 16, ROW = 16 }; /* elements; a row costs as much as so many */
    const max_pool3d_plan *p = max_pool3d_plan_of(call);
    const int64_t lines = p->axis[POOL_T].in * p->axis[POOL_H].in;
    const int64_t rows = lines > 1 ? p->planes * lines : 0; /* else they are folded */
    return gpo_cpu_choose(
        variants, call->in[0].size + ROW * rows >= PAYS,
        "under 2^16 elements, and 16 for each row, threads cost more than they save",
        "x is large enough for several threads", why);
}

const gpo_table max_pool3d_cpu = {variants, choose};
