/*
 * cpu.c  elementwise on the CPU.  Order: the instruction sets, tables of 16-bit floats,
 * the job, operands in blocks, one chunk, the variants, choose.  What an element is
 * stands in arithmetic.h, casts in casts.h, the inner loops in cpu.inc.
 *
 * An inner loop takes neighbouring elements of every operand.  An operand that lies as
 * the result does is read in place; a scalar is repeated through a block once; any other
 * is packed into a block that stays in the first cache.  So there is one loop per functor
 * and dtype, and strides and broadcasting are the same for all.
 */
#include "casts.h"

#include "../../backend/backend.h"

#include <stdatomic.h>
#include <stdlib.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    BLOCK = 512,     /* elements in a block: 8 KiB of the widest */
    WIDEST = 16,     /* bytes of an element */
    LONG_RUN = 64,   /* elements on the last axis that are worth a call of the loop */
    CHUNK = 1 << 15, /* elements of a task: 32 KiB to 512 KiB of result */
};

/* in[k] are n neighbouring elements of operand k; out may be one of them. */
typedef void (*loop)(int64_t n, const void *const *in, void *out);

/* ---- the instruction sets, and none ---- */

#define ISA(name) name##_base
#include "cpu.inc"

#if defined(__x86_64__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v3")
#define ISA(name) name##_v3
#include "cpu.inc"
#pragma GCC pop_options

/*
 * Arrays lie at multiples of 16 bytes: every load of 64 bytes crosses a line, which costs a
 * tenth of the time where memory is the limit.
 */
#pragma GCC push_options
#pragma GCC target("arch=x86-64-v4,prefer-vector-width=256")
#define LONGEST_VECTORS __attribute__((target("prefer-vector-width=512")))
#define ISA(name) name##_v4
#include "cpu.inc"
#pragma GCC pop_options
#else
#define functors_v3 functors_base
#define casts_v3 casts_base
#define functors_v4 functors_base
#define casts_v4 casts_base
#endif

#ifndef __clang__
#pragma GCC push_options
#pragma GCC optimize("no-tree-vectorize")
#define ISA(name) name##_plain
#include "cpu.inc"
#pragma GCC pop_options
#else
#define functors_plain functors_base
#define casts_plain casts_base
#endif

enum { PLAIN = GPO_NISA, NLEVELS };

typedef const loop (*loop_table)[GPO_NDTYPES];

static const loop_table functor_tables[NLEVELS] = {
    [GPO_ISA_BASE] = functors_base,
    [GPO_ISA_V3] = functors_v3,
    [GPO_ISA_V4] = functors_v4,
    [PLAIN] = functors_plain,
};
static const loop_table cast_tables[NLEVELS] = {
    [GPO_ISA_BASE] = casts_base,
    [GPO_ISA_V3] = casts_v3,
    [GPO_ISA_V4] = casts_v4,
    [PLAIN] = casts_plain,
};

/* ---- tables: a smooth function of a 16-bit float has 65536 values ---- */

enum { VALUES = 1 << 16 };

/* The lists of functors.def; of their functors the smooth ones cost more than a load. */
enum {
    LIST_NUMBERS,
    LIST_FRACTIONS,
    LIST_ORDERED,
    LIST_FUSED,
    LIST_SELECT,
    LIST_MAGNITUDES,
    LIST_SMOOTH,
    LIST_ROOTS,
    LIST_SIGNED,
    LIST_CAST
};

static const bool is_smooth[ELEMENTWISE_NFUNCTORS] = {
#define FUNCTOR(name, inputs, types, expression, summary) \
    [ELEMENTWISE_##name] = LIST_##types == LIST_SMOOTH,
#include "functors.def"
#undef FUNCTOR
};

/* [1] of bfloat16; filled at first use, never freed. */
static _Atomic(uint16_t *) tables[ELEMENTWISE_NFUNCTORS][2];

/* The values of a functor, which `f` computes; NULL where there is no memory for them. */
static const uint16_t *
table_of(elementwise_functor functor, gpo_dtype type, loop f)
{
    _Atomic(uint16_t *) *place = &tables[functor][type == GPO_BF16];
    uint16_t *table = atomic_load(place), *first = NULL;
    if (table || !(table = malloc(VALUES * sizeof *table))) {
        return table;
    }
    for (int i = 0; i < VALUES; i++) {
        table[i] = (uint16_t)i;
    }
    f(VALUES, (const void *const[]){table}, table);
    if (!atomic_compare_exchange_strong(place, &first, table)) {
        free(table); /* another thread was faster */
        return first;
    }
    return table;
}

/* Eight at a time: two loads of four elements, one store of eight values. */
static void
look_up(const uint16_t *table, int64_t n, const uint16_t *x, uint16_t *y)
{
    typedef uint16_t eight __attribute__((vector_size(16)));
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t a, b;
        memcpy(&a, x + i, sizeof a);
        memcpy(&b, x + i + 4, sizeof b);
        const eight values = {table[a & 0xffff],       table[a >> 16 & 0xffff],
                              table[a >> 32 & 0xffff], table[a >> 48],
                              table[b & 0xffff],       table[b >> 16 & 0xffff],
                              table[b >> 32 & 0xffff], table[b >> 48]};
        memcpy(y + i, &values, sizeof values);
    }
    for (; i < n; i++) {
        y[i] = table[x[i]];
    }
}

/* ---- the job: what every chunk of one call reads ---- */

typedef struct job {
    elementwise_plan plan;
    loop loop;             /* of the operands, or of what `widen` leaves */
    loop widen;            /* a cast that needs two: into the carrier; else NULL */
    const uint16_t *table; /* takes the place of the loop; or NULL */
    int out_bytes;
    bool scalar[ELEMENTWISE_INPUTS];
    bool any_scalar;
} job;

static void
start(job *j, const gpo_call *call, int level)
{
    elementwise_make_plan(call, &j->plan);
    const elementwise_plan *plan = &j->plan;
    j->widen = NULL;
    j->table = NULL;
    if (plan->functor == ELEMENTWISE_cast) {
        const loop_table casts = cast_tables[level];
        j->loop = casts[plan->type][plan->to];
        if (!j->loop) {
            const gpo_dtype carrier = carrier_of(plan->type);
            j->widen = casts[plan->type][carrier];
            j->loop = casts[carrier][plan->to];
        }
    }
    else {
        j->loop = functor_tables[level][plan->functor][plan->type];
    }
    /* A call that fills the table as well takes twice the time of its loop at most. */
    if (is_smooth[plan->functor] && gpo_dtypes[plan->type].bytes == 2 &&
        level != PLAIN && plan->size >= VALUES) {
        j->table = table_of(plan->functor, plan->type, j->loop);
    }
    j->out_bytes = gpo_dtypes[plan->to].bytes;
    j->any_scalar = false;
    for (int k = 0; k < plan->inputs; k++) {
        j->scalar[k] = elementwise_is_scalar(plan, k);
        j->any_scalar = j->any_scalar || j->scalar[k];
    }
}

/* ---- operands in blocks ---- */

/* A position of the result, and the element of each operand that belongs to it. */
typedef struct cursor {
    const char *at[ELEMENTWISE_INPUTS];
    int64_t index[GPO_MAX_DIMS];
} cursor;

static void
seek(cursor *c, const elementwise_plan *plan, int64_t i)
{
    for (int k = 0; k < plan->inputs; k++) {
        c->at[k] = plan->data[k];
    }
    for (int d = plan->ndim - 1; d >= 0; d--) {
        c->index[d] = d > 0 ? i % plan->shape[d] : i;
        i = d > 0 ? i / plan->shape[d] : 0;
        for (int k = 0; k < plan->inputs; k++) {
            c->at[k] += c->index[d] * plan->strides[k][d] * plan->bytes[k];
        }
    }
}

/* Elements left on the last axis. */
static int64_t
run_left(const cursor *c, const elementwise_plan *plan)
{
    const int last = plan->ndim - 1;
    return last < 0 ? 1 : plan->shape[last] - c->index[last];
}

/* Moves on by n <= run_left() elements. */
static void
advance(cursor *c, const elementwise_plan *plan, int64_t n)
{
    int d = plan->ndim - 1;
    if (d < 0) {
        return;
    }
    c->index[d] += n;
    for (int k = 0; k < plan->inputs; k++) {
        c->at[k] += n * plan->strides[k][d] * plan->bytes[k];
    }
    for (; d > 0 && c->index[d] == plan->shape[d]; d--) {
        c->index[d] = 0;
        c->index[d - 1]++;
        for (int k = 0; k < plan->inputs; k++) {
            c->at[k] +=
                (plan->strides[k][d - 1] - plan->shape[d] * plan->strides[k][d]) *
                plan->bytes[k];
        }
    }
}

#define GATHER(type)                                        \
    for (int64_t i = 0; i < n; i++) {                       \
        ((type *)to)[i] = ((const type *)from)[i * stride]; \
    }                                                       \
    break

/* n elements `stride` apart, side by side. */
static void
gather(void *to, const void *from, int64_t n, int64_t stride, int bytes)
{
    if (stride == 1) {
        memcpy(to, from, (size_t)(n * bytes));
        return;
    }
    switch (bytes) {
        case 1:
            GATHER(uint8_t);
        case 2:
            GATHER(uint16_t);
        case 4:
            GATHER(uint32_t);
        case 8:
            GATHER(uint64_t);
        default:
            GATHER(gpo_c128);
    }
}

/* ---- one chunk: the elements [begin, begin + n) of the result, n > 0 ---- */

static void
compute(const job *j, int64_t n, const void *const *in, void *out, void *carrier)
{
    if (j->table) {
        look_up(j->table, n, in[0], out);
        return;
    }
    if (!j->widen) {
        j->loop(n, in, out);
        return;
    }
    const void *wide[] = {carrier};
    j->widen(n, in, carrier);
    j->loop(n, wide, out);
}

/* `memory` holds a block for each input, and for a widened one another. */
static void
chunk(const job *j, int64_t begin, int64_t n, char *memory)
{
    const elementwise_plan *plan = &j->plan;
    const int last = plan->ndim - 1;
    char *out = (char *)plan->out + begin * j->out_bytes;
    cursor c;
    if (plan->inputs < 1) { /* no operator has none */
        return;
    }
    char *packed[ELEMENTWISE_INPUTS], *carrier = memory;
    seek(&c, plan, begin);
    for (int k = 0; k < plan->inputs; k++) {
        packed[k] = carrier;
        carrier += BLOCK * plan->bytes[k];
        if (j->scalar[k]) {
            gather(packed[k], plan->data[k], n < BLOCK ? n : BLOCK, 0, plan->bytes[k]);
        }
    }
    while (n > 0) {
        const void *in[ELEMENTWISE_INPUTS];
        const int64_t run = run_left(&c, plan);
        int64_t m = n < BLOCK ? n : BLOCK;
        if (run >= m || run >= LONG_RUN) {
            bool in_place = !j->any_scalar && !j->widen;
            for (int k = 0; k < plan->inputs; k++) {
                in_place = in_place && plan->ndim > 0 && plan->strides[k][last] == 1;
            }
            m = in_place ? n : m;
            m = m < run ? m : run;
            for (int k = 0; k < plan->inputs; k++) {
                const int64_t stride = plan->ndim > 0 ? plan->strides[k][last] : 0;
                in[k] = packed[k];
                if (stride == 1) {
                    in[k] = c.at[k];
                }
                else if (!j->scalar[k]) {
                    gather(packed[k], c.at[k], m, stride, plan->bytes[k]);
                }
            }
            advance(&c, plan, m);
        }
        else {
            for (int64_t done = 0; done < m;) {
                const int64_t left = run_left(&c, plan);
                const int64_t part = left < m - done ? left : m - done;
                for (int k = 0; k < plan->inputs; k++) {
                    if (!j->scalar[k]) {
                        gather(packed[k] + done * plan->bytes[k], c.at[k], part,
                               plan->strides[k][last], plan->bytes[k]);
                    }
                }
                advance(&c, plan, part);
                done += part;
            }
            for (int k = 0; k < plan->inputs; k++) {
                in[k] = packed[k];
            }
        }
        compute(j, m, in, out, carrier);
        out += m * j->out_bytes;
        n -= m;
    }
}

static void
task(void *context, int64_t i, void *memory)
{
    const job *j = context;
    const int64_t begin = i * CHUNK, left = j->plan.size - begin;
    chunk(j, begin, left < CHUNK ? left : CHUNK, memory);
}

static void
task_of_all(void *context, int64_t i, void *memory)
{
    const job *j = context;
    (void)i;
    chunk(j, 0, j->plan.size, memory);
}

/* Bytes of the blocks that a task needs: none where it reads and writes in place. */
static size_t
block_bytes(const job *j)
{
    const elementwise_plan *plan = &j->plan;
    bool in_place = !j->any_scalar && !j->widen && plan->ndim == 1;
    size_t bytes = j->widen ? BLOCK * WIDEST : 0;
    for (int k = 0; k < plan->inputs; k++) {
        in_place = in_place && plan->strides[k][0] == 1;
        bytes += BLOCK * (size_t)plan->bytes[k];
    }
    return in_place ? 0 : bytes;
}

/* In one piece, or in chunks shared out among the threads. */
static gpo_status
run(gpo_call *call, job *j, bool parallel)
{
    const int64_t size = j->plan.size;
    return parallel
               ? gpo_cpu_work(call, true, (size + CHUNK - 1) / CHUNK, block_bytes(j),
                              task, j)
               : gpo_cpu_work(call, false, size > 0, block_bytes(j), task_of_all, j);
}

/* ---- the variants ---- */

static gpo_status
run_scalar(gpo_call *call)
{
    job j;
    start(&j, call, PLAIN);
    return run(call, &j, false);
}

static gpo_status
run_simd(gpo_call *call)
{
    job j;
    start(&j, call, gpo_cpu_isa());
    return run(call, &j, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    job j;
    start(&j, call, gpo_cpu_isa());
    return run(call, &j, true);
}

/* ---- choose ---- */

enum { SCALAR, SIMD, THREADS };

static const gpo_variant variants[] = {
    [SCALAR] = {"scalar",
                "one element after the other",
                "",
                "run-to-run",
                {
#define GPO_DTYPE(suffix, type, name, bytes, kind) [GPO_##suffix] = run_scalar,
#include "../../core/dtypes.def"
#undef GPO_DTYPE
                }},
    [SIMD] = {"simd",
              "vector registers; strided operands are packed block by block",
              "",
              "run-to-run",
              {
#define GPO_DTYPE(suffix, type, name, bytes, kind) [GPO_##suffix] = run_simd,
#include "../../core/dtypes.def"
#undef GPO_DTYPE
              }},
    [THREADS] = {"threads",
                 "simd on chunks of 32768 elements, shared out among threads",
                 "",
                 "run-to-run",
                 {
#define GPO_DTYPE(suffix, type, name, bytes, kind) [GPO_##suffix] = run_threads,
#include "../../core/dtypes.def"
#undef GPO_DTYPE
                 }},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    static const char alone[] = "the thread team has one thread";
    static const char small[] = "up to 65536 elements starting threads costs more than "
                                "they save";
    static const char large[] = "from 65536 elements on several threads pay";
    if (call->out[0].size < 2 * CHUNK) {
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

const gpo_table elementwise_cpu = {variants, choose};
