/*
 * gradient.c  The gradient of max_pool3d on the CPU.  Order: a plane one
 * gradient after the other, a plane in blocks, the tasks, the variants, choose.  Each
 * plane is one task that adds in the order of dy, so the number of threads changes no
 * bit.  See plane.inc for the loop of the former, gradient_loops.inc for those of the
 * latter, gradient_job.h for what they all read, cpu.c for pooling.
 *
 * A block of indices is checked against its windows in vectors, then its gradients are
 * added one by one.  dx is cleared a little ahead of the windows, while it is in cache.
 *
 * Without windows all indices are checked before dx is written, and again when they are
 * used: another thread may have changed the array in between.
 */
#include "gradient_job.h"

#include "../../backend/backend.h"

#include <stdlib.h>

/* ---- a plane, one gradient after the other ---- */

#define T gpo_f16
#define PLANE plane_F16
#define SUM float
#define LOAD float_of_f16
#define STORE f16_of_float
#include "plane.inc"

#define T gpo_bf16
#define PLANE plane_BF16
#define SUM float
#define LOAD float_of_bf16
#define STORE bf16_of_float
#include "plane.inc"

#define T float
#define PLANE plane_F32
#define SUM float
#define LOAD
#define STORE
#include "plane.inc"

#define T double
#define PLANE plane_F64
#define SUM double
#define LOAD
#define STORE
#include "plane.inc"

/* ---- a plane in blocks ---- */

/* The elements from the first of n rows, or slices, to the end of the last. */
static double
elements_of(const pool_gradient_plan *p, double slices, double rows, double n)
{
    return (slices * (double)p->axis[POOL_H].in + rows) * (double)p->axis[POOL_W].in +
           n;
}

/* Whether float32 finds rows of windows exactly, and int32 holds all positions. */
static bool
fits_blocks(const pool_gradient_plan *p)
{
    enum { EXACT = 1 << 21, FAR = 1 << 29 };
    double extent[POOL_AXES], reach[POOL_AXES];
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis *a = &p->axis[d];
        extent[d] = (double)pool_extent(a);
        reach[d] = (double)a->out * (double)a->stride + (double)a->padding + extent[d];
    }
    return p->plane < FAR && elements_of(p, extent[0], extent[1], extent[2]) < EXACT &&
           elements_of(p, reach[0], reach[1], reach[2]) < FAR;
}

/* Whether every window of an axis is its only element. */
static bool
is_single(const pool_axis *a)
{
    return a->in == 1 && a->out == 1 && a->kernel == 1 && a->padding == 0;
}

static void
begin_plane(const pool_gradient_plan *p, block *b)
{
    b->plane = p->plane;
    b->windows = (windows){b->own[0], b->own[1], b->own[2]};
    b->row = (int32_t)p->axis[POOL_W].in;
    b->slice = (int32_t)(p->axis[POOL_H].in * p->axis[POOL_W].in);
    b->shift = 0;
    b->in_line = false;
    b->step = (int32_t)p->axis[POOL_W].stride;
    b->has_gaps = p->has_gaps;
    b->axes = !is_single(&p->axis[POOL_T]) ? 3 : !is_single(&p->axis[POOL_H]) ? 2 : 1;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis *a = &p->axis[d];
        b->dilation[d] = (int32_t)a->dilation;
        b->last[d] = (int32_t)pool_extent(a) - 1;
        b->inverse[d] = 1.0f / (float)a->dilation;
    }
}

/* to[at[i]] += dy[i] in order; -1 is no element */
#define DEFINE_ADD(T)                                                               \
    static void add_##T(T *to, const int32_t *at, bool all, const T *dy, int64_t n) \
    {                                                                               \
        for (int64_t i = 0; i < n; i++) {                                           \
            if (all || at[i] >= 0) {                                                \
                to[at[i]] += dy[i];                                                 \
            }                                                                       \
        }                                                                           \
    }                                                                               \
    /* the same where no element is named twice: a sum of one is 0 + dy */          \
    static void put_##T(T *to, const int32_t *at, bool all, const T *dy, int64_t n) \
    {                                                                               \
        for (int64_t i = 0; i < n; i++) {                                           \
            if (all || at[i] >= 0) {                                                \
                to[at[i]] = dy[i] + 0;                                              \
            }                                                                       \
        }                                                                           \
    }

DEFINE_ADD(float)
DEFINE_ADD(double)
#undef DEFINE_ADD

static void
put_half(uint16_t *to, const int32_t *at, bool all, const uint16_t *dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (all || at[i] >= 0) {
            to[at[i]] = dy[i];
        }
    }
}

/* Whether no element is named twice, so that no sums are needed. */
static bool
is_apart(const pool_gradient_plan *p)
{
    return p->has_windows && p->is_apart;
}

/* Adds n gradients, from element `from` of dy on, to the sums of a plane. */
static void
add_some(const gradient_job *j, void *sums, int64_t from, const int32_t *at, bool all,
         int64_t n)
{
    const bool apart = is_apart(j->plan);
    if (j->dtype == GPO_F64) {
        (apart ? put_double : add_double)(sums, at, all, (const double *)j->dy + from,
                                          n);
        return;
    }
    const float *dy = (const float *)j->dy + from;
    float wide[AT_ONCE];
    if (j->loops->widen) {
        if (apart) {
            uint16_t halves[AT_ONCE];
            j->loops->alone((const gpo_f16 *)j->dy + from, n, halves);
            put_half(sums, at, all, halves, n);
            return;
        }
        j->loops->widen((const gpo_f16 *)j->dy + from, n, wide);
        dy = wide;
    }
    (apart ? put_float : add_float)(sums, at, all, dy, n);
}

/*
 * Adds a block, and meanwhile prefetches what the next one reads, a few lines at a
 * time: its indices, its gradients, and `more` bytes of sums from `next` on.
 */
static void
add_block(const gradient_job *j, void *sums, int64_t from, const int32_t *at, bool all,
          int64_t n, const char *next, int64_t more)
{
    const int64_t bytes = gpo_dtypes[j->dtype].bytes;
    const int64_t share = ceil_div(more, BLOCK / AT_ONCE * LINE) * LINE;
    for (int64_t i = 0; i < n; i += AT_ONCE, next += share) {
        const int64_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
        const int64_t later = from + i + BLOCK;
        prefetch_lines((const char *)(j->indices + later), AT_ONCE * 8);
        prefetch_lines((const char *)j->dy + later * bytes, AT_ONCE * bytes);
        for (int64_t k = 0; k < share; k += LINE) {
            __builtin_prefetch(next + k, 1);
        }
        add_some(j, sums, from + i, at + i, all, some);
    }
}

/* Finds the elements at[] of the n gradients from `first` of dy on; whether all are. */
static bool
find_elements(const gradient_job *j, block *b, int64_t first, int64_t n, int32_t *at,
              int64_t *bad)
{
    const int64_t *index = j->indices + first;
    if (j->plan->has_windows) {
        return j->loops->in_windows(b, index, n, at);
    }
    const bool all = j->loops->elements(b, index, n, at);
    for (int64_t k = 0; !all && *bad < 0 && k < n; k++) {
        *bad = at[k] < 0 && b->index[k] != -1 ? first + k : -1;
    }
    return all;
}

/* From window i on. */
static windows
windows_from(const windows *w, int64_t i)
{
    return (windows){w->origin + i, w->last_w + i, w->last_h + i};
}

/* The windows of the first slices of outputs, which serve all slices and planes. */
typedef struct known_windows {
    windows windows;
    int64_t slices, outputs; /* so many slices, which have so many outputs */
    int64_t reach[]; /* of each block: the end of the elements that it reaches */
} known_windows;

/* NULL if they would not pay.  As many slices as are one block, or a larger one. */
static known_windows *
know_windows(const gradient_job *j, const block *b)
{
    enum { MOST = 1 << 14, SLICES = 4 }; /* 192 KiB stay in L2 */
    const pool_gradient_plan *p = j->plan;
    const int64_t slice = p->axis[POOL_H].out * p->axis[POOL_W].out;
    const int64_t depth = p->axis[POOL_T].out;
    if (!p->has_windows || b->axes == 1 || slice > MOST ||
        p->planes * depth < SLICES * j->tasks) {
        return NULL;
    }
    const int64_t share = slice < BLOCK ? BLOCK / slice : 1;
    const int64_t slices = share < depth ? share : depth, outputs = slices * slice;
    const int64_t blocks = ceil_div(outputs, BLOCK), n = blocks * BLOCK + SPARE;
    known_windows *known =
        malloc(sizeof *known + (size_t)(blocks * (int64_t)sizeof(int64_t) +
                                        3 * n * (int64_t)sizeof(int32_t)));
    if (!known) {
        return NULL;
    }
    int32_t *memory = (int32_t *)(known->reach + blocks);
    known->windows = (windows){memory, memory + n, memory + 2 * n};
    known->slices = slices;
    known->outputs = outputs;
    place o = {0, 0, 0};
    for (int64_t i = 0; i < outputs; i += BLOCK) {
        const int64_t some = outputs - i < BLOCK ? outputs - i : BLOCK;
        known->reach[i / BLOCK] = j->loops->set_windows(
            p, b->axes, windows_from(&known->windows, i), some, &o);
    }
    return known;
}

/* Takes the windows of a block from output i on; returns their reach, at most. */
static int64_t
take_windows(const gradient_job *j, block *b, const known_windows *known, int64_t i)
{
    const int64_t k = i / known->outputs * known->slices, at = i % known->outputs;
    const int64_t further = k * j->plan->axis[POOL_T].stride * b->slice;
    const int64_t reach = known->reach[at / BLOCK] + further;
    b->windows = windows_from(&known->windows, at);
    b->shift = (int32_t)further;
    return reach < b->plane ? reach : b->plane;
}

/* As plane.inc: the gradient of one plane, with its sums in `memory` if there is any. */
static int64_t
plane_in_blocks(const gradient_job *j, block *b, const known_windows *known,
                int64_t plane, void *memory)
{
    const pool_gradient_plan *p = j->plan;
    const int64_t bytes = gpo_dtypes[j->dtype].bytes;
    const int64_t sum_bytes = memory ? (int64_t)sizeof(float) : bytes;
    char *dx = (char *)j->dx + plane * p->plane * bytes;
    char *sums = memory ? memory : dx;
    const int64_t first = plane * p->outputs;
    int64_t cleared = 0, bad = -1;
    place o = {0, 0, 0};
    int32_t at[BLOCK];
    const int64_t whole = known ? known->outputs : p->outputs;
    for (int64_t i = 0, n; i < p->outputs; i += n) {
        const int64_t most = whole - i % whole, rest = p->outputs - i;
        const int64_t left = most < rest ? most : rest;
        n = left < BLOCK ? left : BLOCK;
        int64_t reach = p->plane;
        if (b->in_line) {
            const pool_axis *w = &p->axis[POOL_W];
            const int64_t begin = i * w->stride - w->padding;
            const int64_t end = begin + (n - 1) * w->stride + pool_extent(w);
            b->first = (int32_t)begin;
            reach = end < reach ? end : reach;
        }
        else if (known) {
            reach = take_windows(j, b, known, i);
        }
        else if (p->has_windows) {
            reach = j->loops->set_windows(p, b->axes, b->windows, n, &o);
        }
        const bool all = find_elements(j, b, first + i, n, at, &bad);
        const int64_t more = reach > cleared ? (reach - cleared) * sum_bytes : 0;
        if (reach > cleared) {
            memset(sums + cleared * sum_bytes, 0, (size_t)more);
            cleared = reach;
        }
        add_block(j, sums, first + i, at, all, n, sums + cleared * sum_bytes,
                  memory ? 0 : more);
    }
    memset(sums + cleared * sum_bytes, 0, (size_t)((p->plane - cleared) * sum_bytes));
    if (memory) {
        j->loops->narrow(memory, p->plane, dx);
    }
    return bad;
}

/* The gradient of several small planes, whose outputs are one block. */
static int64_t
planes_in_a_block(const gradient_job *j, block *b, int64_t plane, int64_t planes,
                  void *memory)
{
    const pool_gradient_plan *p = j->plan;
    const int64_t bytes = gpo_dtypes[j->dtype].bytes;
    const int64_t sum_bytes = memory ? (int64_t)sizeof(float) : bytes;
    const int64_t first = plane * p->outputs, n = planes * p->outputs;
    char *dx = (char *)j->dx + plane * p->plane * bytes;
    char *sums = memory ? memory : dx;
    int64_t bad = -1;
    int32_t at[BLOCK];
    const bool all = find_elements(j, b, first, n, at, &bad);
    j->loops->add_base(b, n, at);
    memset(sums, 0, (size_t)(planes * p->plane * sum_bytes));
    add_block(j, sums, first, at, all, n, sums, 0);
    if (memory) {
        j->loops->narrow(memory, planes * p->plane, dx);
    }
    return bad;
}

/* The windows and planes of a block of small planes: the same for each block. */
static void
set_planes(const gradient_job *j, block *b)
{
    const pool_gradient_plan *p = j->plan;
    for (int64_t i = 0; i < j->group; i++) {
        const int64_t at = i * p->outputs;
        place o = {0, 0, 0};
        for (int64_t k = 0; k < p->outputs; k++) {
            b->base[at + k] = (int32_t)(i * p->plane);
        }
        j->loops->set_windows(p, b->axes, windows_from(&b->windows, at), p->outputs,
                              &o);
    }
}

/* How many planes are one block: more than one only if they are small. */
static int64_t
group_of(const pool_gradient_plan *p)
{
    enum { GROUP_ELEMENTS = 1 << 14 };
    const int64_t by_outputs = BLOCK / p->outputs, by_plane = GROUP_ELEMENTS / p->plane;
    const int64_t group = by_outputs < by_plane ? by_outputs : by_plane;
    return group < 1 ? 1 : group < p->planes ? group : p->planes;
}

/* ---- the tasks ---- */

static void
look_at_task(void *context, int64_t task)
{
    gradient_job *j = context;
    const int64_t n = j->plan->planes * j->plan->outputs;
    const int64_t begin = n / j->tasks * task;
    const int64_t end = task + 1 < j->tasks ? begin + n / j->tasks : n;
    j->bad[task] = first_bad(j, begin, end - begin);
}

static void
gradient_task(void *context, int64_t task)
{
    gradient_job *j = context;
    void *memory = j->memory > 0 ? malloc((size_t)j->memory) : NULL;
    if (j->memory > 0 && !memory) {
        j->failed[task] = true;
        return;
    }
    const int64_t planes = j->plan->planes;
    block b = {.in_line = false};
    if (j->in_blocks) {
        begin_plane(j->plan, &b);
    }
    known_windows *known = NULL;
    if (j->group > 1) {
        set_planes(j, &b);
    }
    else if (j->in_blocks) {
        b.in_line = j->plan->has_windows && b.axes == 1;
        known = know_windows(j, &b);
    }
    for (int64_t at = task * j->group; at < planes; at += j->tasks * j->group) {
        const int64_t n = planes - at < j->group ? planes - at : j->group;
        const int64_t bad = !j->in_blocks  ? j->plane(j, at, memory)
                            : j->group > 1 ? planes_in_a_block(j, &b, at, n, memory)
                                           : plane_in_blocks(j, &b, known, at, memory);
        j->bad[task] = j->bad[task] < 0 ? bad : j->bad[task];
    }
    free(known);
    free(memory);
}

/* IndexError for the first bad index that a task found, if there is one. */
static gpo_status
refuse_bad(gpo_call *call, const gradient_job *j)
{
    int64_t first = -1;
    for (int64_t i = 0; i < j->tasks; i++) {
        if (j->bad[i] >= 0 && (first < 0 || j->bad[i] < first)) {
            first = j->bad[i];
        }
    }
    return first < 0 ? GPO_OK : max_pool3d_out_of_range(call, j->indices[first], first);
}

static gpo_status
run_planes(gpo_call *call, bool parallel, bool in_blocks)
{
    static const gradient_loops *const tables[GPO_NISA] = GPO_EACH_ISA(gradient_table);
    enum { TASKS = 4, MOST_TASKS = 1024, TASK_ELEMENTS = 1 << 12 };
    static int64_t (*const planes[GPO_NDTYPES])(const gradient_job *, int64_t,
                                                void *) = {
        [GPO_F16] = plane_F16,
        [GPO_BF16] = plane_BF16,
        [GPO_F32] = plane_F32,
        [GPO_F64] = plane_F64,
    };
    const gpo_dtype dtype = call->in[0].dtype;
    int64_t bad[MOST_TASKS];
    for (int64_t i = 0; i < MOST_TASKS; i++) {
        bad[i] = -1;
    }
    bool failed[MOST_TASKS] = {false};
    const pool_gradient_plan *p = pool_gradient_plan_of(call);
    const bool halves = gpo_dtypes[dtype].bytes == 2;
    gradient_job j = {
        .plan = p,
        .dy = call->in[0].data,
        .indices = call->in[1].data,
        .dx = call->out[0].data,
        .loops = &tables[gpo_cpu_isa()][dtype],
        .dtype = dtype,
        .in_blocks = in_blocks && fits_blocks(p),
        .group = 1,
        .plane = planes[dtype],
        .bad = bad,
        .failed = failed,
    };
    j.memory = halves && !(j.in_blocks && is_apart(p)) ? p->plane * 4 : 0;
    if (j.in_blocks && p->outputs <= BLOCK && p->planes > 0) {
        j.group = group_of(p);
        j.memory *= j.group;
    }
    const int64_t pays = p->planes * (p->plane + p->outputs) / TASK_ELEMENTS;
    int64_t wanted = parallel ? (int64_t)TASKS * gpo_cpu_threads() : 1;
    wanted = pays < wanted ? pays + 1 : wanted; /* a task needs enough elements */
    j.tasks = wanted < MOST_TASKS ? wanted : MOST_TASKS;
    if (!p->has_windows) {
        gpo_cpu_loop(j.tasks > 1, j.tasks, look_at_task, &j);
        const gpo_status status = refuse_bad(call, &j);
        if (status) {
            return status;
        }
    }
    gpo_cpu_loop(j.tasks > 1, j.tasks, gradient_task, &j);
    for (int64_t i = 0; i < j.tasks; i++) {
        if (failed[i]) {
            return gpo_fail(&call->error, GPO_EMEMORY,
                            "no memory for the sums of a plane");
        }
    }
    return refuse_bad(call, &j);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run_planes(call, false, true);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run_planes(call, true, true);
}

/* Checks one index after the other. */
static gpo_status
run_scalar(gpo_call *call)
{
    const pool_gradient_plan *p = pool_gradient_plan_of(call);
    const int64_t *indices = call->in[1].data;
    for (int64_t i = 0; !p->has_windows && i < p->planes * p->outputs; i++) {
        if (indices[i] < -1 || indices[i] >= p->plane) {
            return max_pool3d_out_of_range(call, indices[i], i);
        }
    }
    return run_planes(call, false, false);
}

/* ---- choose ---- */

/* clang-format off */
#define REAL_FLOATS GPO_F16 ... GPO_F64
/* clang-format on */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one gradient after the other",
                        "",
                        "run-to-run",
                        {[REAL_FLOATS] = run_scalar}},
    [GPO_CPU_SIMD] =
        {"simd",
         "indices are checked in vectors, blocks of them, then added in order",
         "",
         "run-to-run",
         {[REAL_FLOATS] = run_simd}},
    [GPO_CPU_THREADS] = {"threads",
                         "several planes at once, each by one thread",
                         "",
                         "run-to-run",
                         {[REAL_FLOATS] = run_threads}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 15 };
    return gpo_cpu_choose(
        variants, call->in[0].size >= PAYS || call->out[0].size >= 8 * PAYS,
        "under 2^15 gradients, starting threads costs more than it saves",
        "there are enough gradients for several threads", why);
}

const gpo_table max_pool3d_backward_cpu = {variants, choose};
