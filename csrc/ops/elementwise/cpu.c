/*
 * cpu.c  elementwise on the CPU.  Order: the instruction sets, tables of 16-bit floats,
 * the job, operands in blocks, one chunk, the variants, choose.  See arithmetic.h for
 * elements, casts.h for casts, loops.inc for the inner loops, tiles.inc for tiles.
 *
 * An inner loop takes contiguous elements of every operand.  A contiguous operand is
 * read in place; a scalar is repeated through a block once; any other operand is packed
 * into a block that stays in L1.  So there is one loop per functor and dtype, and all
 * share the handling of strides and broadcasting.
 */
#include "casts.h"

#include "../../backend/backend.h"
#include "../../core/gather.h"
#include "../../core/prefetch.h"
#include "../../core/turn.h"

#include <stdatomic.h>
#include <stdlib.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    BLOCK = 512,         /* elements in a block: 8 KiB of the widest */
    KEYS = 1024,         /* elements whose keys are found at once */
    SCALAR_BYTES = 8192, /* of all blocks, if they hold nothing but scalars */
    LONG_RUN = 64,       /* elements on the last axis that justify a call of the loop */
    CHUNK = 1 << 15,     /* elements per task, at most: 32 KiB to 512 KiB of result */
    LEAST_CHUNK = 1 << 12,   /* the same, at least */
    SHARES = 8,              /* tasks, if they are not shorter than that */
    TILE_WIDTH = 256,        /* elements of the rows of a tile, about, */
    TILE_COLUMN_BYTES = 128, /* whose columns are few cache lines */
    LEAST_TALL = 4,          /* rows that are worth a tile, */
    WORTH_TILES = 1 << 13,   /* and bytes of the operand */
    STEP_BYTES = 2048,       /* of the widest operand, prefetched at once */
    WORTH_STEPS = 1 << 20,   /* of all operands: half of an L2 cache */
};

/* ---- the instruction sets, and none ---- */

/* in[k] points to n contiguous elements of operand k; out may be one of the in[k]. */
typedef void (*loop)(int64_t n, const void *const *in, void *out);

/* Computes element i of the n. */
typedef void (*element)(const void *const *in, int64_t i, void *out);

/* Packs n elements of one operand. */
typedef void (*packer)(int64_t n, const void *in, void *out);

/* Operands of each kind of functor in functors.def. */
enum { COUNT_UNARY = 1, COUNT_BINARY, COUNT_TERNARY, COUNT_BOUNDS = COUNT_TERNARY };

/*
 * Arrays are aligned to 16 bytes only: every load of 64 bytes crosses a cache line,
 * which costs a tenth of the time of a bandwidth-bound loop.
 */
#define GPO_NARROW_V4
#define GPO_LOOPS "../ops/elementwise/loops.inc"
#include "../../core/each_isa.h"
#undef GPO_NARROW_V4

#ifndef __clang__
#pragma GCC push_options
#pragma GCC optimize("no-tree-vectorize")
#define ISA(name) GPO_PASTE(name, plain)
#include "loops.inc"
#undef ISA
#pragma GCC pop_options
#else
#define functors_plain functors_base
#define casts_plain casts_base
#define seconds_plain seconds_base
#endif

typedef const loop (*loop_table)[GPO_NDTYPES];

static const loop_table functor_tables[GPO_NISA] = GPO_EACH_ISA(functors);
static const loop_table cast_tables[GPO_NISA] = GPO_EACH_ISA(casts);
static const loop_table held_tables[GPO_NISA] = GPO_EACH_ISA(held);
static const packer *const seconds_tables[GPO_NISA] = GPO_EACH_ISA(seconds);

/* ---- tables: a smooth function of a 16-bit float has 65536 values ---- */

enum { VALUES = 1 << 16, WORTH_FILLING = VALUES / 4, WORTH_A_TABLE = VALUES / 16 };

/* An element of a smooth functor takes as long as so many of another one. */
enum { SMOOTH_COST = 2, SMOOTH_COST_F64 = 8 };

/* The lists of functors.def; only the smooth functors cost more than a load. */
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
#define FUNCTOR(name, inputs, types, expression) \
    [ELEMENTWISE_##name] = LIST_##types == LIST_SMOOTH,
#include "functors.def"
#undef FUNCTOR
};

/* [1] is bfloat16's; filled when it pays, never freed. */
static _Atomic(uint16_t *) tables[ELEMENTWISE_NFUNCTORS][2];
static atomic_int_least64_t computed[ELEMENTWISE_NFUNCTORS][2]; /* without a table */

/*
 * The table of a functor, for a call of `size` elements; NULL if it is not filled yet
 * and they are too few, or if there is no memory for it.  The one call that also fills
 * the table, by `f`, takes at most five times the time of its loop; or smaller calls so
 * far have computed as many elements as the table has, so that it at most doubles what
 * they took together.
 */
static const uint16_t *
table_of(elementwise_functor functor, gpo_dtype type, int64_t size, loop f)
{
    const int which = type == GPO_BF16;
    _Atomic(uint16_t *) *place = &tables[functor][which];
    uint16_t *table = atomic_load(place), *first = NULL;
    if (table) {
        return table;
    }
    if (size < WORTH_FILLING &&
        atomic_fetch_add_explicit(&computed[functor][which], size,
                                  memory_order_relaxed) < VALUES) {
        return NULL;
    }
    if (!(table = malloc(VALUES * sizeof *table))) {
        return NULL;
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
    const elementwise_plan *plan;
    const char *in[ELEMENTWISE_INPUTS]; /* element 0 of each operand */
    char *out;
    loop loop;             /* on the operands, or on the result of `widen` */
    loop widen;            /* for a cast in two steps, to the carrier; else NULL */
    const uint16_t *table; /* replaces the loop; or NULL */
    const packer *seconds; /* of every second element, by bytes */
    int out_bytes;
    bool scalar[ELEMENTWISE_INPUTS];
    bool whole[ELEMENTWISE_INPUTS]; /* the operand has the layout of the result */
    bool row[ELEMENTWISE_INPUTS];   /* all rows along the last axis are the same one */
    bool any_scalar;                /* in a block */
    bool held;    /* the loop reads operands but the first in place: one element each */
    bool flat;    /* operands that are not scalars are read in place */
    bool direct;  /* all are, run by run */
    int64_t step; /* elements to prefetch at once; 0: none */
    int64_t chunk;       /* elements of a task */
    int64_t block;       /* elements of a block */
    int64_t block_bytes; /* of all blocks of a task */
    int across; /* the axis that transposed operands walk with their least stride, or -1 */
    bool crossed[ELEMENTWISE_INPUTS];  /* the operand is one of them */
    int64_t inner;                     /* elements of the axes after that one */
    int64_t tall, wide;                /* rows of a tile, and elements of each */
    int64_t pitch[ELEMENTWISE_INPUTS]; /* from row to row of a tile, in elements */
    bool ahead;                        /* what a tile needs is prefetched */
    bool aligned; /* the other operands are read in place, row by row */
} job;

/* Sets whole and row of operand k. */
static void
find_layout(job *j, int k)
{
    const elementwise_plan *plan = j->plan;
    int64_t size = 1;
    j->whole[k] = j->row[k] = true;
    for (int d = plan->ndim - 1; d >= 0; d--) {
        j->whole[k] = j->whole[k] && plan->strides[k][d] == size;
        j->row[k] = j->row[k] && (d == plan->ndim - 1 || plan->strides[k][d] == 0);
        size *= plan->shape[d];
    }
}

/* The axis along which the elements of operand k are closest. */
static int
closest_axis(const elementwise_plan *plan, int k)
{
    int closest = plan->ndim - 1;
    for (int d = closest - 1; d >= 0; d--) {
        const int64_t stride = llabs(plan->strides[k][d]);
        closest = stride > 0 && stride < llabs(plan->strides[k][closest]) ? d : closest;
    }
    return closest;
}

/* Sets the sides and the pitch of tiles, whose rows are about equally long. */
static void
size_tiles(job *j, int widest)
{
    enum { PAD_BYTES = 64, EVEN = 64 }; /* of a row: a pitch that is no power of two */
    const int64_t most = TILE_COLUMN_BYTES / widest, all = j->plan->shape[j->across];
    const int64_t along = (j->inner + TILE_WIDTH / 2 - 1) / TILE_WIDTH;
    j->tall = all < most ? all : most;
    j->wide = along > 1 ? (j->inner + along - 1) / along : j->inner;
    for (int k = 0; k < j->plan->inputs; k++) {
        const int64_t bytes = (j->wide * j->plan->bytes[k] + EVEN - 1) & -EVEN;
        j->pitch[k] = (bytes + PAD_BYTES) / j->plan->bytes[k];
    }
    j->ahead = j->step > 0;
    j->step = 0;
}

/*
 * Sets across, crossed, inner and the sides of tiles.  The elements of a cache line of a
 * transposed operand belong to as many rows of the result: tiles of such rows use all of
 * them.
 */
static void
find_tiles(job *j)
{
    const elementwise_plan *plan = j->plan;
    int widest = 1;
    j->across = -1;
    for (int k = 0; k < plan->inputs; k++) {
        const int d = closest_axis(plan, k);
        j->crossed[k] = d < plan->ndim - 1 && (j->across < 0 || d == j->across) &&
                        plan->shape[d] >= LEAST_TALL &&
                        plan->size * plan->bytes[k] >= WORTH_TILES;
        if (j->crossed[k]) {
            j->across = d;
            widest = plan->bytes[k] > widest ? plan->bytes[k] : widest;
        }
    }
    j->inner = 1;
    for (int d = j->across + 1; d < plan->ndim; d++) {
        j->inner *= plan->shape[d];
    }
    if (j->inner < LONG_RUN) {
        j->across = -1;
    }
    j->aligned = true;
    for (int k = 0; k < plan->inputs; k++) {
        j->crossed[k] = j->crossed[k] && j->across >= 0;
        j->aligned =
            j->aligned && (j->crossed[k] || j->whole[k] || (j->scalar[k] && j->held));
    }
    if (j->across >= 0) {
        size_tiles(j, widest);
    }
}

/* Whether operand k, or a part of it, is copied to a block. */
static bool
has_block(const job *j, int k)
{
    return j->scalar[k] || (j->held && k > 0) ? !j->held : !j->flat;
}

/*
 * Sets flat, block and block_bytes.  Blocks of scalars alone are longer: for 512 float32
 * the call of the loop and the steps around it take as long as the loop.
 */
static void
size_blocks(job *j)
{
    const elementwise_plan *plan = j->plan;
    int64_t bytes = 0;
    j->flat = !j->widen && plan->ndim == 1;
    for (int k = 0; k < plan->inputs; k++) {
        j->flat = j->flat && (j->scalar[k] || plan->strides[k][0] == 1);
    }
    for (int k = 0; k < plan->inputs; k++) {
        bytes += has_block(j, k) ? plan->bytes[k] : 0;
    }
    j->block = BLOCK;
    if (j->flat && bytes > 0 && SCALAR_BYTES / bytes > BLOCK) {
        j->block = SCALAR_BYTES / bytes;
    }
    j->block_bytes = j->block * bytes + (j->widen ? BLOCK * WIDEST : 0);
}

/* Sets step. */
static void
size_steps(job *j)
{
    const elementwise_plan *plan = j->plan;
    int64_t bytes = j->out_bytes;
    int widest = j->out_bytes;
    for (int k = 0; k < plan->inputs; k++) {
        bytes += j->scalar[k] ? 0 : plan->bytes[k];
        widest = plan->bytes[k] > widest ? plan->bytes[k] : widest;
    }
    j->step = plan->size * bytes >= WORTH_STEPS ? STEP_BYTES / widest : 0;
}

/* Whether every operand but the first is a scalar, or along long rows one element. */
static bool
is_array_and_scalars(const elementwise_plan *plan)
{
    const int last = plan->ndim - 1;
    const bool is_long = last >= 0 && plan->shape[last] >= LONG_RUN;
    bool found = plan->inputs > 1 && !elementwise_is_scalar(plan, 0);
    for (int k = 1; k < plan->inputs; k++) {
        found = found && (elementwise_is_scalar(plan, k) ||
                          (is_long && plan->strides[k][last] == 0));
    }
    return found;
}

/* Sets direct. */
static void
find_direct(job *j)
{
    const elementwise_plan *plan = j->plan;
    const int last = plan->ndim - 1;
    j->direct = last >= 0 && (last == 0 || plan->shape[last] >= LONG_RUN) &&
                j->across < 0 && !j->widen;
    for (int k = 0; k < plan->inputs; k++) {
        j->direct = j->direct && (plan->strides[k][last] == 1 || (j->held && k > 0));
    }
}

/* The cost of the elements of a call, in elements of a sum. */
static int64_t
cost_of(const elementwise_plan *plan)
{
    const int each = !is_smooth[plan->functor] ? 1
                     : plan->type == GPO_F64   ? SMOOTH_COST_F64
                                               : SMOOTH_COST;
    return plan->size * each;
}

static void
start(job *j, const gpo_call *call, bool plain)
{
    const loop_table functors = plain ? functors_plain : functor_tables[gpo_cpu_isa()];
    const loop_table casts = plain ? casts_plain : cast_tables[gpo_cpu_isa()];
    const elementwise_plan *plan = j->plan = elementwise_plan_of(call);
    j->widen = NULL;
    j->table = NULL;
    j->seconds = plain ? seconds_plain : seconds_tables[gpo_cpu_isa()];
    if (plan->functor == ELEMENTWISE_cast) {
        j->loop = casts[plan->type][plan->to];
        if (!j->loop) {
            const gpo_dtype carrier = carrier_of(plan->type);
            j->widen = casts[plan->type][carrier];
            j->loop = casts[carrier][plan->to];
        }
    }
    else {
        j->loop = functors[plan->functor][plan->type];
    }
    const loop held = held_tables[gpo_cpu_isa()][plan->functor][plan->type];
    j->held = !plain && held && is_array_and_scalars(plan);
    if (j->held) {
        j->loop = held;
    }
    if (is_smooth[plan->functor] && gpo_dtypes[plan->type].bytes == 2 && !plain &&
        plan->size >= WORTH_A_TABLE) {
        j->table = table_of(plan->functor, plan->type, plan->size, j->loop);
    }
    j->out_bytes = gpo_dtypes[plan->to].bytes;
    j->out = call->out[0].data;
    j->any_scalar = false;
    for (int k = 0; k < plan->inputs; k++) {
        j->in[k] = call->in[plan->input[k]].data;
        j->scalar[k] = elementwise_is_scalar(plan, k);
        j->any_scalar = j->any_scalar || (j->scalar[k] && !j->held);
        find_layout(j, k);
        j->crossed[k] = false;
    }
    const int64_t share = (plan->size / SHARES + LEAST_CHUNK) & -LEAST_CHUNK;
    j->chunk = share < CHUNK ? share : CHUNK;
    size_blocks(j);
    size_steps(j);
    j->across = -1;
    if (!plain && plan->ndim > 1) {
        find_tiles(j);
    }
    find_direct(j);
}

/* ---- operands in blocks ---- */

/* A position in the result and the corresponding element of each operand. */
typedef struct cursor {
    const char *at[ELEMENTWISE_INPUTS];
    int64_t index[GPO_MAX_DIMS];
} cursor;

static void
seek(cursor *c, const job *j, int64_t i)
{
    const elementwise_plan *plan = j->plan;
    c->index[0] = 0; /* also without axes */
    for (int k = 0; k < plan->inputs; k++) {
        c->at[k] = j->in[k];
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

/* Advances by n steps along axis d, at most to its end. */
static void
advance(cursor *c, const elementwise_plan *plan, int d, int64_t n)
{
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

/* ---- one chunk: the elements [begin, begin + n) of the result, n > 0 ---- */

/*
 * The loop, step by step if the operands come from memory: those of the next step, and
 * the lines it writes to, are fetched meanwhile.
 */
static void
run_steps(const job *j, int64_t n, const void *const *in, void *out)
{
    if (j->step == 0) {
        j->loop(n, in, out);
        return;
    }
    const void *at[ELEMENTWISE_INPUTS] = {in[0], in[1], in[2]};
    char *to = out;
    for (int64_t left = n; left > 0;) {
        const int64_t m = left < j->step ? left : j->step;
        const void *next[ELEMENTWISE_INPUTS] = {at[0], at[1], at[2]};
        for (int k = 0; k < j->plan->inputs; k++) {
            if (!j->scalar[k] && !(j->held && k > 0)) {
                next[k] = (const char *)at[k] + m * j->plan->bytes[k];
                prefetch_lines(next[k], m * j->plan->bytes[k]);
            }
        }
        prefetch_lines_to_write(to + m * j->out_bytes, m * j->out_bytes);
        j->loop(m, at, to);
        memcpy(at, next, sizeof at);
        to += m * j->out_bytes;
        left -= m;
    }
}

/*
 * The same, on few elements first if the rest of the result then begins with a cache
 * line: no store crosses two, and seldom a load, because large arrays begin equally far
 * from a line.
 */
static void
run_loop(const job *j, int64_t n, const void *const *in, void *out)
{
    enum { CACHE_LINE = 64, WORTH_ALIGNING = 4096 };
    const uint64_t past = (uintptr_t)out % CACHE_LINE;
    if (n < WORTH_ALIGNING || past == 0 || past % (uint64_t)j->out_bytes != 0) {
        run_steps(j, n, in, out);
        return;
    }
    const int64_t head = (int64_t)(CACHE_LINE - past) / j->out_bytes;
    const void *rest[ELEMENTWISE_INPUTS];
    for (int k = 0; k < ELEMENTWISE_INPUTS; k++) {
        const bool moves = k < j->plan->inputs && !(j->held && k > 0);
        rest[k] = moves ? (const char *)in[k] + head * j->plan->bytes[k] : in[k];
    }
    j->loop(head, in, out);
    run_steps(j, n - head, rest, (char *)out + head * j->out_bytes);
}

static void
compute(const job *j, int64_t n, const void *const *in, void *out, void *carrier)
{
    if (j->table) {
        look_up(j->table, n, in[0], out);
        return;
    }
    if (!j->widen) {
        run_loop(j, n, in, out);
        return;
    }
    const void *wide[] = {carrier};
    j->widen(n, in, carrier);
    j->loop(n, wide, out);
}

/* The blocks of a chunk, and what is in them. */
typedef struct blocks {
    char *packed[ELEMENTWISE_INPUTS];
    const void *in[ELEMENTWISE_INPUTS];     /* the operands of the next block */
    const char *source[ELEMENTWISE_INPUTS]; /* of a block of one repeated element */
    int64_t filled[ELEMENTWISE_INPUTS];     /* so many are valid */
} blocks;

/* Points b->in to the next elements of a row, at most m; returns how many. */
static int64_t
take_run(const job *j, cursor *c, int64_t m, blocks *b)
{
    const elementwise_plan *plan = j->plan;
    const int last = plan->ndim - 1;
    const int64_t run = run_left(c, plan);
    m = m < run ? m : run;
    for (int k = 0; k < plan->inputs; k++) {
        const int64_t stride = plan->ndim > 0 ? plan->strides[k][last] : 0;
        const bool in_place = stride == 1 || (j->held && k > 0);
        b->in[k] = in_place ? c->at[k] : b->packed[k];
        if (in_place || j->scalar[k] || j->crossed[k] ||
            (stride == 0 && b->filled[k] >= m && b->source[k] == c->at[k])) {
            continue;
        }
        if (stride == 2) {
            j->seconds[plan->bytes[k]](m, c->at[k], b->packed[k]);
        }
        else {
            gather(b->packed[k], c->at[k], m, stride, plan->bytes[k]);
        }
        b->source[k] = stride == 0 ? c->at[k] : NULL;
        b->filled[k] = stride == 0 ? m : 0;
    }
    advance(c, plan, last, m);
    return m;
}

/* The same for whole rows, at most m elements. */
static int64_t
take_rows(const job *j, cursor *c, int64_t m, blocks *b)
{
    const elementwise_plan *plan = j->plan;
    const int last = plan->ndim - 1;
    const int64_t n = plan->shape[last], rows = m / n;
    bool gathers[ELEMENTWISE_INPUTS];
    for (int k = 0; k < plan->inputs; k++) {
        b->in[k] = j->whole[k] ? c->at[k] : b->packed[k];
        gathers[k] = !j->whole[k] && !j->scalar[k] && !j->crossed[k] &&
                     !(j->row[k] && b->filled[k] >= rows * n);
        if (gathers[k]) {
            b->source[k] = NULL;
            b->filled[k] = j->row[k] ? rows * n : 0;
        }
    }
    for (int64_t done = 0; done < rows;) {
        const int64_t left = plan->shape[last - 1] - c->index[last - 1];
        const int64_t part = left < rows - done ? left : rows - done;
        for (int k = 0; k < plan->inputs; k++) {
            if (gathers[k]) {
                gather_rows(b->packed[k] + done * n * plan->bytes[k], c->at[k], part, n,
                            plan->strides[k][last - 1], plan->strides[k][last],
                            plan->bytes[k]);
            }
        }
        advance(c, plan, last - 1, part);
        done += part;
    }
    return rows * n;
}

/* A chunk whose operands are all read in place, run by run. */
static void
chunk_direct(const job *j, int64_t begin, int64_t n, char *out)
{
    const elementwise_plan *plan = j->plan;
    const int last = plan->ndim - 1, walked = last > 0 ? last - 1 : 0;
    cursor c;
    seek(&c, j, begin);
    while (n > 0) {
        const int64_t run = run_left(&c, plan), m = n < run ? n : run;
        const int64_t left = plan->shape[walked] - c.index[walked];
        const bool whole = last > 0 && m == plan->shape[last];
        const int64_t rows = !whole ? 1 : n / m < left ? n / m : left;
        const void *in[ELEMENTWISE_INPUTS] = {NULL};
        for (int k = 0; k < plan->inputs; k++) {
            in[k] = c.at[k];
        }
        for (int64_t r = 0; r < rows; r++, out += m * j->out_bytes) {
            compute(j, m, in, out, NULL);
            for (int k = 0; k < plan->inputs; k++) {
                in[k] = (const char *)in[k] + plan->strides[k][walked] * plan->bytes[k];
            }
        }
        advance(&c, plan, whole ? walked : last, whole ? rows : m);
        n -= rows * m;
    }
}

/*
 * `memory` holds a block for each input, and another one if the cast widens; `tile` has
 * the elements of the crossed operands.
 */
static void
chunk(const job *j, int64_t begin, int64_t n, char *memory, const char *const *tile)
{
    const elementwise_plan *plan = j->plan;
    char *out = j->out + begin * j->out_bytes, *carrier = memory;
    cursor c;
    blocks b = {.filled = {0}};
    if (plan->inputs < 1) { /* every operator has inputs */
        return;
    }
    if (j->direct) {
        chunk_direct(j, begin, n, out);
        return;
    }
    seek(&c, j, begin);
    for (int k = 0; k < ELEMENTWISE_INPUTS; k++) {
        b.packed[k] = carrier;
        if (k < plan->inputs && has_block(j, k)) {
            carrier += j->block * plan->bytes[k];
        }
        if (k < plan->inputs && j->scalar[k] && j->held) {
            b.packed[k] = (char *)j->in[k]; /* read only */
        }
        else if (k < plan->inputs && j->scalar[k]) {
            gather(b.packed[k], j->in[k], n < j->block ? n : j->block, 0,
                   plan->bytes[k]);
        }
    }
    for (int64_t done = 0; n > 0;) {
        const int64_t run = run_left(&c, plan);
        int64_t m = n < j->block ? n : j->block;
        const bool rows = plan->ndim > 1 && run < LONG_RUN && run <= m &&
                          c.index[plan->ndim - 1] == 0;
        m = rows ? take_rows(j, &c, m, &b) : take_run(j, &c, m, &b);
        for (int k = 0; k < plan->inputs; k++) {
            b.in[k] = tile && j->crossed[k] ? tile[k] + done * plan->bytes[k] : b.in[k];
        }
        compute(j, m, b.in, out, carrier);
        out += m * j->out_bytes;
        n -= m;
        done += m;
    }
}

static void
task(void *context, int64_t i, void *memory)
{
    const job *j = context;
    const int64_t begin = i * j->chunk, left = j->plan->size - begin;
    chunk(j, begin, left < j->chunk ? left : j->chunk, memory, NULL);
}

static void
task_of_all(void *context, int64_t i, void *memory)
{
    const job *j = context;
    (void)i;
    chunk(j, 0, j->plan->size, memory, NULL);
}

#include "tiles.inc"

/* In one piece, or in chunks divided among the threads. */
static gpo_status
run(gpo_call *call, job *j, bool parallel)
{
    const int64_t size = j->plan->size;
    if (j->across >= 0 && size > 0) {
        return run_tiles(call, j, parallel);
    }
    return parallel ? gpo_cpu_work(call, true, (size + j->chunk - 1) / j->chunk,
                                   (size_t)j->block_bytes, task, j)
                    : gpo_cpu_work(call, false, size > 0, (size_t)j->block_bytes,
                                   task_of_all, j);
}

/* ---- the variants ---- */

static gpo_status
run_scalar(gpo_call *call)
{
    job j;
    start(&j, call, true);
    return run(call, &j, false);
}

static gpo_status
run_simd(gpo_call *call)
{
    job j;
    start(&j, call, false);
    return run(call, &j, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    job j;
    start(&j, call, false);
    return run(call, &j, true);
}

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] = {"simd",
                      "vector registers; strided operands are packed block by block",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] =
        {"threads",
         "simd on chunks of up to 32768 elements, shared out among threads",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    return gpo_cpu_choose(
        variants, cost_of(elementwise_plan_of(call)) >= 2 * CHUNK,
        "for less than 65536 sums starting threads costs more than they save",
        "from the time of 65536 sums on several threads pay", why);
}

const gpo_table elementwise_cpu = {variants, choose};
