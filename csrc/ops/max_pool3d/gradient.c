/*
 * gradient.c  The gradient of max_pool3d on the CPU.  Order: which indices count, one
 * plane, the variants, choose.  Each plane is one task that adds in the order of dy, so
 * no number of threads changes a bit.  Not here: pooling (cpu.c).
 *
 * Without windows all indices are looked at before dx is written, and again as they are
 * used: another thread may have changed the array in between.
 */
#include "keys.h"

#include "../../backend/backend.h"
#include "../../core/once.h"

#include <stdlib.h>
#include <string.h>

/* ---- which indices count ---- */

/* The first index that names no element of a plane; -1 if all do. */
static int64_t
first_bad(const pool_gradient_plan *p, int64_t begin, int64_t n)
{
    const int64_t *index = p->indices + begin;
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        bad |= index[i] < -1 || index[i] >= p->plane;
    }
    for (int64_t i = 0; bad && i < n; i++) {
        if (index[i] < -1 || index[i] >= p->plane) {
            return begin + i;
        }
    }
    return -1;
}

/* Whether position `at` of an axis is an element of window o. */
static bool
is_in_window(const pool_axis *a, int64_t o, int64_t at)
{
    const int64_t past = at - (o * a->stride - a->padding);
    return past >= 0 && past < pool_extent(a) &&
           (a->dilation == 1 || past % a->dilation == 0);
}

/* What counts for output (k, h, w): an element of the plane; -1 if none does. */
static int64_t
element_of(const pool_gradient_plan *p, int64_t index, int64_t k, int64_t h, int64_t w)
{
    if (index < 0 || index >= p->plane) {
        return -1;
    }
    if (!p->has_windows) {
        return index;
    }
    int64_t row, at;
    if (index <= UINT32_MAX && p->in[POOL_W] <= UINT32_MAX &&
        p->in[POOL_H] <= UINT32_MAX) { /* divisions of 32 bits take half the time */
        const uint32_t narrow = (uint32_t)index, cols = (uint32_t)p->in[POOL_W];
        const uint32_t rows = (uint32_t)p->in[POOL_H];
        row = narrow / cols;
        at = (uint32_t)row / rows;
        row -= at * rows;
        index = narrow % cols;
    }
    else {
        row = index / p->in[POOL_W];
        index %= p->in[POOL_W];
        at = row / p->in[POOL_H];
        row %= p->in[POOL_H];
    }
    const bool inside = is_in_window(&p->axis[POOL_T], k, at) &&
                        is_in_window(&p->axis[POOL_H], h, row) &&
                        is_in_window(&p->axis[POOL_W], w, index);
    return inside ? (at * p->in[POOL_H] + row) * p->in[POOL_W] + index : -1;
}

/* ---- one plane ---- */

#define GRADIENT_DTYPES(F)                       \
    F(F16, float, float_of_f16, f16_of_float)    \
    F(BF16, float, float_of_bf16, bf16_of_float) \
    F(F32, float, , )                            \
    F(F64, double, , )

/*
 * `sums` are the plane's own elements, or values that are rounded at the end.  Gives the
 * first output whose index names no element although it was found good; -1 if none.
 */
#define DEFINE_PLANE(dtype, V, LOAD, STORE)                                  \
    static int64_t plane_##dtype(const pool_gradient_plan *p, int64_t plane, \
                                 void *memory)                               \
    {                                                                        \
        T_##dtype *dx = (T_##dtype *)p->dx + plane * p->plane;               \
        const T_##dtype *dy = (const T_##dtype *)p->dy + plane * p->outputs; \
        const int64_t *index = p->indices + plane * p->outputs;              \
        V *sums = memory ? memory : (void *)dx;                              \
        memset(sums, 0, (size_t)p->plane * sizeof(V));                       \
        int64_t i = 0, bad = -1;                                             \
        for (int64_t k = 0; k < p->out[POOL_T]; k++) {                       \
            for (int64_t h = 0; h < p->out[POOL_H]; h++) {                   \
                for (int64_t w = 0; w < p->out[POOL_W]; w++, i++) {          \
                    const int64_t found = ONCE(index + i);                   \
                    const int64_t at = element_of(p, found, k, h, w);        \
                    if (at >= 0) {                                           \
                        sums[at] += LOAD(dy[i]);                             \
                    }                                                        \
                    else if (found != -1 && bad < 0) {                       \
                        bad = plane * p->outputs + i;                        \
                    }                                                        \
                }                                                            \
            }                                                                \
        }                                                                    \
        if (memory) {                                                        \
            for (int64_t at = 0; at < p->plane; at++) {                      \
                dx[at] = STORE(sums[at]);                                    \
            }                                                                \
        }                                                                    \
        return p->has_windows ? -1 : bad;                                    \
    }
GRADIENT_DTYPES(DEFINE_PLANE)

typedef struct gradient_job {
    pool_gradient_plan plan;
    int64_t (*plane)(const pool_gradient_plan *p, int64_t plane, void *memory);
    int64_t memory; /* bytes of sums beside dx; 0 where dx holds them */
    int64_t tasks;
    int64_t *bad; /* per task: the first bad index; -1 if none */
    bool *failed;
} gradient_job;

static void
look_at_task(void *context, int64_t task)
{
    gradient_job *j = context;
    const int64_t n = j->plan.planes * j->plan.outputs;
    const int64_t begin = n / j->tasks * task;
    const int64_t end = task + 1 < j->tasks ? begin + n / j->tasks : n;
    j->bad[task] = first_bad(&j->plan, begin, end - begin);
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
    for (int64_t plane = task; plane < j->plan.planes; plane += j->tasks) {
        const int64_t bad = j->plane(&j->plan, plane, memory);
        j->bad[task] = j->bad[task] < 0 ? bad : j->bad[task];
    }
    free(memory);
}

/* IndexError for the first bad index that a task met, if any did. */
static gpo_status
refuse_bad(gpo_call *call, const gradient_job *j)
{
    int64_t first = -1;
    for (int64_t i = 0; i < j->tasks; i++) {
        if (j->bad[i] >= 0 && (first < 0 || j->bad[i] < first)) {
            first = j->bad[i];
        }
    }
    return first < 0 ? GPO_OK
                     : max_pool3d_out_of_range(call, j->plan.plane,
                                               j->plan.indices[first], first);
}

static gpo_status
run_planes(gpo_call *call, bool parallel)
{
    enum { TASKS = 4, MOST_TASKS = 1024, TASK_ELEMENTS = 1 << 12 };
#define PLANE_ENTRY(dtype, V, LOAD, STORE) [GPO_##dtype] = plane_##dtype,
    static int64_t (*const planes[GPO_NDTYPES])(
        const pool_gradient_plan *, int64_t, void *) = {GRADIENT_DTYPES(PLANE_ENTRY)};
    const gpo_dtype dtype = call->in[0].dtype;
    int64_t bad[MOST_TASKS];
    for (int64_t i = 0; i < MOST_TASKS; i++) {
        bad[i] = -1;
    }
    bool failed[MOST_TASKS] = {false};
    gradient_job j = {.plane = planes[dtype], .bad = bad, .failed = failed};
    max_pool3d_make_gradient_plan(call, &j.plan);
    const bool halves = gpo_dtypes[dtype].bytes == 2;
    j.memory = halves ? j.plan.plane * (int64_t)sizeof(float) : 0;
    const int64_t pays =
        j.plan.planes * (j.plan.plane + j.plan.outputs) / TASK_ELEMENTS;
    int64_t wanted = parallel ? (int64_t)TASKS * gpo_cpu_threads() : 1;
    wanted = pays < wanted ? pays + 1 : wanted; /* few are not worth a task each */
    j.tasks = wanted < MOST_TASKS ? wanted : MOST_TASKS;
    if (!j.plan.has_windows) {
        gpo_cpu_loop(j.tasks > 1, j.tasks, look_at_task, &j);
        const gpo_status status = refuse_bad(call, &j);
        if (status) {
            return status;
        }
    }
    gpo_cpu_loop(j.tasks > 1, j.tasks, gradient_task, &j);
    for (int64_t i = 0; i < j.tasks; i++) {
        if (failed[i]) {
            return gpo_fail(call, GPO_EMEMORY, "no memory for the sums of a plane");
        }
    }
    return refuse_bad(call, &j);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run_planes(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run_planes(call, true);
}

/* The formula: one index after the other. */
static gpo_status
run_scalar(gpo_call *call)
{
    pool_gradient_plan p;
    max_pool3d_make_gradient_plan(call, &p);
    for (int64_t i = 0; !p.has_windows && i < p.planes * p.outputs; i++) {
        if (p.indices[i] < -1 || p.indices[i] >= p.plane) {
            return max_pool3d_out_of_range(call, p.plane, p.indices[i], i);
        }
    }
    return run_planes(call, false);
}

/* ---- choose ---- */

enum { SCALAR, SIMD, THREADS };

#define SCALAR_ENTRY(dtype, V, LOAD, STORE) [GPO_##dtype] = run_scalar,
#define SIMD_ENTRY(dtype, V, LOAD, STORE) [GPO_##dtype] = run_simd,
#define THREADS_ENTRY(dtype, V, LOAD, STORE) [GPO_##dtype] = run_threads,

static const gpo_variant variants[] = {
    [SCALAR] = {"scalar",
                "one gradient after the other",
                "",
                "run-to-run",
                {GRADIENT_DTYPES(SCALAR_ENTRY)}},
    [SIMD] = {"simd",
              "all indices are looked at in vectors, then plane by plane",
              "",
              "run-to-run",
              {GRADIENT_DTYPES(SIMD_ENTRY)}},
    [THREADS] = {"threads",
                 "several planes at once, each by one thread",
                 "",
                 "run-to-run",
                 {GRADIENT_DTYPES(THREADS_ENTRY)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char alone[] = "the thread team has one thread";
    static const char small[] =
        "under 2^15 gradients, starting threads costs more than "
        "it saves";
    static const char large[] = "there are enough gradients for several threads";
    enum { PAYS = 1 << 15 };
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

const gpo_table max_pool3d_backward_cpu = {variants, choose};
