/*
 * gradient.c  The gradient of max_pool3d on the CPU.  Order: the job, which indices
 * count, one plane, the variants, choose.  Each plane is one task that adds in the
 * order of dy, so the number of threads changes no bit.  See plane.inc for the loops
 * over a plane, cpu.c for pooling.
 *
 * Without windows all indices are checked before dx is written, and again when they are
 * used: another thread may have changed the array in between.
 */
#include "keys.h"

#include "../../backend/backend.h"
#include "../../core/once.h"

#include <stdlib.h>
#include <string.h>

/* ---- the job: what every part of one call reads ---- */

typedef struct gradient_job gradient_job;

struct gradient_job {
    const pool_gradient_plan *plan;
    const void *dy;
    const int64_t *indices;
    void *dx;
    int64_t (*plane)(const gradient_job *j, int64_t plane, void *memory);
    int64_t memory; /* bytes of separate sums; 0 if dx holds the sums */
    int64_t tasks;
    int64_t *bad; /* per task: the first bad index; -1 if none */
    bool *failed;
};

/* ---- which indices count ---- */

/* The first index that names no element of a plane; -1 if all do. */
static int64_t
first_bad(const gradient_job *j, int64_t begin, int64_t n)
{
    const int64_t *index = j->indices + begin, plane = j->plan->plane;
    bool bad = false;
    for (int64_t i = 0; i < n; i++) {
        bad |= index[i] < -1 || index[i] >= plane;
    }
    for (int64_t i = 0; bad && i < n; i++) {
        if (index[i] < -1 || index[i] >= plane) {
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

/* The element that takes the gradient of output (k, h, w); -1 if none does. */
static int64_t
element_of(const pool_gradient_plan *p, int64_t index, int64_t k, int64_t h, int64_t w)
{
    if (index < 0 || index >= p->plane) {
        return -1;
    }
    if (!p->has_windows) {
        return index;
    }
    const int64_t height = p->axis[POOL_H].in, width = p->axis[POOL_W].in;
    int64_t row, at;
    if (index <= UINT32_MAX && width <= UINT32_MAX &&
        height <= UINT32_MAX) { /* divisions of 32 bits take half the time */
        const uint32_t narrow = (uint32_t)index, cols = (uint32_t)width;
        const uint32_t rows = (uint32_t)height;
        row = narrow / cols;
        at = (uint32_t)row / rows;
        row -= at * rows;
        index = narrow % cols;
    }
    else {
        row = index / width;
        index %= width;
        at = row / height;
        row %= height;
    }
    const bool inside = is_in_window(&p->axis[POOL_T], k, at) &&
                        is_in_window(&p->axis[POOL_H], h, row) &&
                        is_in_window(&p->axis[POOL_W], w, index);
    return inside ? (at * height + row) * width + index : -1;
}

/* ---- one plane ---- */

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
    for (int64_t plane = task; plane < j->plan->planes; plane += j->tasks) {
        const int64_t bad = j->plane(j, plane, memory);
        j->bad[task] = j->bad[task] < 0 ? bad : j->bad[task];
    }
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
run_planes(gpo_call *call, bool parallel)
{
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
        .plane = planes[dtype],
        .memory = halves ? p->plane * (int64_t)sizeof(float) : 0,
        .bad = bad,
        .failed = failed,
    };
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
    return run_planes(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run_planes(call, true);
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
    return run_planes(call, false);
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
    [GPO_CPU_SIMD] = {"simd",
                      "all indices are looked at in vectors, then plane by plane",
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
        variants, call->in[0].size >= PAYS,
        "under 2^15 gradients, starting threads costs more than it saves",
        "there are enough gradients for several threads", why);
}

const gpo_table max_pool3d_backward_cpu = {variants, choose};
