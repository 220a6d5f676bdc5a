/*
 * cpu.c  scatter_add on the CPU.  Order: the inner loops of three instruction sets,
 * reading an array in pieces, one chunk, the whole job, the variants, choose.
 *
 * Elements are taken in pieces that stay in L1: a vector loop converts the values to
 * the type of their sum, then a plain loop checks each index and adds.  Each chunk of
 * fixed size has its own tables, which are summed in order, whether one thread fills
 * them or several: neither the number of threads nor the instruction set changes a bit,
 * and simd gives the bits of threads.
 */
#include "scatter_add.h"

#include "../../backend/backend.h"
#include "../../core/ascending.h"
#include "../../core/elements.h"
#include "../../core/gather.h"
#include "../../core/once.h"
#include "../../core/prefetch.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    WAYS = 4,        /* tables that the elements of a chunk may alternate between */
    FEW = 8 << 10,   /* bytes of WAYS tables: a quarter of L1 */
    PIECE = 256,     /* elements read at a time, a multiple of WAYS: 12 KB of stack */
    CHUNK = 1 << 16, /* elements, at least, in a chunk of the threads */
    MOST_CHUNKS = 64,
    ENOUGH_CHUNKS = 8,
    SHARE = 4,         /* elements in a chunk for each place of its table, at least */
    WORTH = 16,        /* where there are enough chunks */
    STRIP = 512,       /* places combined at a time */
    CLEARED = 1 << 16, /* bytes cleared at a time */
    WORTH_A_TEAM = 1 << 20, /* bytes of sums that threads share to clear and to round */
};

typedef int64_t (*add_loop)(void *tables, int64_t size, int ways, int64_t shift,
                            const void *index, const void *v, int64_t n, int64_t more);

typedef struct loops {
    int64_t (*locate[GPO_NDTYPES])(const void *index, int64_t n, int64_t size,
                                   gpo_index_mode mode, int64_t *to);
    void (*widen[GPO_NDTYPES])(const void *x, int64_t n, void *to);
    void (*narrow[GPO_NDTYPES])(const void *v, int64_t n, void *to);
    add_loop add[GPO_NDTYPES], add_narrow[GPO_NDTYPES]; /* index of 64 and 32 bits */
    void (*fold[GPO_NDTYPES])(void *a, const void *b, int64_t n); /* a[k] += b[k] */
    ascending_check ascends;
    ascending_sum sum_runs[GPO_NDTYPES]; /* of the dtype of values; NULL: none */
} loops;

/* ---- the inner loops of three instruction sets ---- */

static inline gpo_c128
c128_of_c64(gpo_c64 x)
{
    return (gpo_c128){x.re, x.im};
}

static inline gpo_c64
c64_of_c128(gpo_c128 x)
{
    return (gpo_c64){(float)x.re, (float)x.im};
}

static inline gpo_c128
add_c128(gpo_c128 a, gpo_c128 b)
{
    return (gpo_c128){a.re + b.re, a.im + b.im};
}

#define GPO_LOOPS "../ops/scatter_add/loops.inc"
#include "../../core/each_isa.h"

/* ---- reading an array in pieces ---- */

typedef struct reader {
    const gpo_array *array;
    int64_t bytes; /* of an element */
    scatter_add_line line;
} reader;

/* Of an input: SCATTER_ADD_VALUES or SCATTER_ADD_INDEX. */
static reader
reader_of(const gpo_call *call, int input)
{
    const gpo_array *a = &call->in[input];
    return (reader){a, gpo_dtypes[a->dtype].bytes,
                    scatter_add_plan_of(call)->line[input]};
}

/* Elements [first, first + n), contiguous: in place, or packed into `buffer`. */
static const void *
take(const reader *r, int64_t first, int64_t n, char *buffer)
{
    const gpo_array *a = r->array;
    if (r->line.is_line) {
        const int64_t stride = r->line.stride;
        const char *from = (const char *)a->data + first * stride * r->bytes;
        if (stride == 1) {
            return from;
        }
        gather(buffer, from, n, stride, r->bytes);
        return buffer;
    }
    const int last = a->ndim - 1;
    for (int64_t done = 0; done < n;) {
        int64_t rest = first + done, offset = 0;
        const int64_t along = rest % a->shape[last];
        for (int d = last; d >= 0; d--) {
            offset += rest % a->shape[d] * a->strides[d];
            rest /= a->shape[d];
        }
        const int64_t left = a->shape[last] - along;
        const int64_t run = n - done < left ? n - done : left;
        gather(buffer + done * r->bytes, (const char *)a->data + offset * r->bytes, run,
               a->strides[last], r->bytes);
        done += run;
    }
    return buffer;
}

/* ---- one chunk ---- */

typedef struct job {
    const scatter_add_plan *plan;
    const loops *loops;
    reader values, index;
    gpo_dtype sum; /* U64, F64 or C128 */
    int64_t sum_bytes;
    int ways;              /* tables of a chunk */
    int64_t apart;         /* tables that are still to be combined */
    int64_t chunk, chunks; /* elements of a chunk, and how many there are */
    bool is_clear;         /* the only table is */
    char *tables;          /* chunks x ways x size, or of two chunks without a team */
    int64_t good[MOST_CHUNKS + 1]; /* of each: elements before the first bad index */
    void *out;
    gpo_dtype dtype;
} job;

/* Fills the tables of chunk i. */
static void
fill_tables(job *j, int64_t i, char *tables)
{
    const loops *f = j->loops;
    const gpo_dtype from = j->values.array->dtype;
    const gpo_dtype index = j->index.array->dtype;
    const bool same = from == j->sum || (j->sum == GPO_U64 && from == GPO_I64);
    const int64_t first = i * j->chunk;
    const int64_t left = j->plan->n - first;
    const int64_t n = left < j->chunk ? left : j->chunk;
    if (!j->is_clear) {
        memset(tables, 0, (size_t)(j->ways * j->plan->size * j->sum_bytes));
    }

    const int64_t size = j->plan->size;
    const bool negative = j->plan->mode == GPO_INDEX_RAISE && !j->plan->is_unsigned;
    const int64_t shift = negative ? size : 0;
    const add_loop add = index == GPO_I32 ? f->add_narrow[j->sum] : f->add[j->sum];

    _Alignas(64) int64_t at[PIECE], indices[PIECE];
    _Alignas(64) char pack[PIECE * sizeof(gpo_c128)];
    _Alignas(64) gpo_c128 wide[PIECE];
    int64_t k = 0;
    while (k < n) {
        const int64_t m = n - k < PIECE ? n - k : PIECE;
        const char *places = take(&j->index, first + k, m, (char *)indices);
        const char *v = take(&j->values, first + k, m, pack);
        if (!same) {
            f->widen[from](v, m, wide);
            v = (const char *)wide;
        }
        const int64_t more = places == (const char *)indices ? 0 : n - k - m;
        const int64_t done = add(tables, size, j->ways, shift, places, v, m, more);
        k += done;
        if (done < m) { /* some are out of bounds: 'wrap' and 'clip' move them */
            const int64_t held = f->locate[index](places + done * j->index.bytes,
                                                  m - done, size, j->plan->mode, at);
            f->add[j->sum](tables, size, j->ways, 0, at, v + done * j->sum_bytes, held,
                           0);
            k += held;
            if (done + held < m) {
                break;
            }
        }
    }
    j->good[i] = k;
}

static void
clear_strip(void *context, int64_t i)
{
    const job *j = context;
    const int64_t bytes = j->plan->size * j->sum_bytes, begin = i * CLEARED;
    const int64_t left = bytes - begin;
    memset(j->tables + begin, 0, (size_t)(left < CLEARED ? left : CLEARED));
}

static int64_t
bytes_of_a_chunk(const job *j)
{
    return j->ways * j->plan->size * j->sum_bytes;
}

static void
fill_chunk(void *context, int64_t i)
{
    job *j = context;
    fill_tables(j, i, j->tables + i * bytes_of_a_chunk(j));
}

/* ---- the whole job ---- */

/* Fills all chunks one after the other and adds each to the first table. */
static void
fill_in_turn(job *j)
{
    const int64_t table_bytes = j->plan->size * j->sum_bytes;
    char *spare = j->tables + bytes_of_a_chunk(j);
    fill_tables(j, 0, j->tables);
    for (int way = 1; way < j->ways; way++) {
        j->loops->fold[j->sum](j->tables, j->tables + way * table_bytes, j->plan->size);
    }
    for (int64_t i = 1; i < j->chunks; i++) {
        fill_tables(j, i, spare);
        for (int way = 0; way < j->ways; way++) {
            j->loops->fold[j->sum](j->tables, spare + way * table_bytes, j->plan->size);
        }
    }
}

/* Adds all tables of some places, in order, to the first; then writes the result. */
static void
combine_strip(void *context, int64_t i)
{
    const job *j = context;
    const int64_t first = i * STRIP;
    const int64_t left = j->plan->size - first;
    const int64_t n = left < STRIP ? left : STRIP;
    const int64_t table_bytes = j->plan->size * j->sum_bytes;
    char *total = j->tables + first * j->sum_bytes;
    for (int64_t t = 1; t < j->apart; t++) {
        j->loops->fold[j->sum](total, total + t * table_bytes, n);
    }
    if ((char *)j->out != j->tables) {
        j->loops->narrow[j->dtype](total, n,
                                   (char *)j->out + first * gpo_dtypes[j->dtype].bytes);
    }
}

/* ---- an ascending index ---- */

/* Sums the runs of an index that ascends; false if it does not: then all starts over. */
static bool
sum_ascending(const job *j, bool parallel)
{
    const scatter_add_line *line = j->plan->line;
    for (int i = 0; i < 2; i++) {
        if (!line[i].is_line || line[i].stride != 1) {
            return false;
        }
    }
    ascending_call c = {.index = {.index = j->index.array->data,
                                  .is_wide = j->index.array->dtype != GPO_I32,
                                  .n = j->plan->n,
                                  .size = j->plan->size},
                        .check = j->loops->ascends,
                        .sum = j->loops->sum_runs[j->values.array->dtype],
                        .values = j->values.array->data,
                        .alpha = 1,
                        .out = j->out};
    const bool kept = j->plan->size * j->sum_bytes <= KEPT_BYTES;
    return c.sum && !kept && ascending_look(&c.index) &&
           (!j->plan->late || ascending_take(&c, false, parallel, gpo_cpu_loop)) &&
           ascending_take(&c, true, parallel, gpo_cpu_loop);
}

/* IndexError for the first index out of bounds, if there is one. */
static gpo_status
check_indices(gpo_call *call, const job *j)
{
    for (int64_t i = 0; i < j->chunks; i++) {
        const int64_t position = i * j->chunk + j->good[i];
        const int64_t end = (i + 1) * j->chunk;
        if (position < (end < j->plan->n ? end : j->plan->n)) {
            uint64_t pack = 0;
            const void *raw = take(&j->index, position, 1, (char *)&pack);
            int64_t index;
            if (j->index.array->dtype == GPO_I32) {
                index = *(const int32_t *)raw;
            }
            else {
                memcpy(&index, raw, sizeof index);
            }
            return scatter_add_refuse(call, index, position);
        }
    }
    return GPO_OK;
}

static gpo_dtype
sum_of(gpo_dtype out)
{
    switch (gpo_dtypes[out].kind) {
        case 'f':
            return GPO_F64;
        case 'c':
            return GPO_C128;
        default:
            return GPO_U64;
    }
}

static gpo_status
run(gpo_call *call, int variant)
{
    static const loops *const tables[GPO_NISA] = GPO_EACH_ISA(&table);
    const gpo_isa isa = variant == GPO_CPU_SCALAR ? GPO_ISA_BASE : gpo_cpu_isa();
    job j = {.plan = scatter_add_plan_of(call),
             .loops = tables[isa],
             .values = reader_of(call, SCATTER_ADD_VALUES),
             .index = reader_of(call, SCATTER_ADD_INDEX),
             .out = call->out[0].data,
             .dtype = call->out[0].dtype};
    const int64_t n = j.plan->n, size = j.plan->size;
    j.sum = sum_of(j.dtype);
    j.sum_bytes = gpo_dtypes[j.sum].bytes;

    if (variant != GPO_CPU_SCALAR && sum_ascending(&j, variant == GPO_CPU_THREADS)) {
        return GPO_OK;
    }

    /* n and size alone decide, so that they decide the order of additions. */
    const bool few = size <= FEW / (WAYS * j.sum_bytes) && n / (WAYS * SHARE) >= size;
    j.ways = variant != GPO_CPU_SCALAR && few ? WAYS : 1;
    j.chunk = n > 0 ? n : 1;
    if (variant != GPO_CPU_SCALAR) {
        j.chunk = CHUNK;
        j.chunk = j.chunk < n / MOST_CHUNKS ? n / MOST_CHUNKS + 1 : j.chunk;
        j.chunk = j.chunk / SHARE < size ? size * SHARE : j.chunk;
        /* where enough chunks are left, each is worth more than its table */
        const int64_t most = n / ENOUGH_CHUNKS, more = size * WORTH;
        j.chunk =
            j.chunk < most && j.chunk < more ? (most < more ? most : more) : j.chunk;
        /* all of one length, as two threads have two of them */
        const int64_t chunks = n > 0 ? (n + j.chunk - 1) / j.chunk : 1;
        j.chunk = n / chunks + (n % chunks > 0);
        j.chunk = (j.chunk + PIECE - 1) / PIECE * PIECE;
    }
    if (variant == GPO_CPU_SIMD && j.sum == GPO_U64) { /* their order changes no bit */
        j.chunk = n > 0 ? n : 1;
    }
    j.chunks = n > 0 ? (n + j.chunk - 1) / j.chunk : 1;
    const bool parallel = variant == GPO_CPU_THREADS &&
                          (j.chunks > 1 || size * j.sum_bytes >= WORTH_A_TEAM);
    const bool in_turn = !parallel && j.chunks > 1;
    const int64_t kept = in_turn ? 2 : j.chunks; /* chunks with tables in memory */
    j.apart = in_turn ? 1 : j.chunks * j.ways;

    void *memory = NULL;
    gpo_status status = GPO_OK;
    const bool direct = j.chunks * j.ways == 1 && !j.plan->late &&
                        gpo_dtypes[j.dtype].bytes == j.sum_bytes;
    if (direct) {
        j.tables = j.out;
    }
    else {
        const size_t of_a_chunk = (size_t)(j.ways * j.sum_bytes) * (size_t)size;
        status = gpo_scratch(call, (size_t)kept * of_a_chunk, &memory);
        j.tables = memory;
    }
    if (!status) {
        j.is_clear = parallel && j.chunks * j.ways == 1;
        if (j.is_clear) {
            const int64_t bytes = size * j.sum_bytes;
            gpo_cpu_loop(true, (bytes + CLEARED - 1) / CLEARED, clear_strip, &j);
        }
        if (in_turn) {
            fill_in_turn(&j);
        }
        else {
            gpo_cpu_loop(parallel, j.chunks, fill_chunk, &j);
        }
        status = check_indices(call, &j);
    }
    if (!status && !direct) {
        gpo_cpu_loop(parallel, (size + STRIP - 1) / STRIP, combine_strip, &j);
    }
    return status;
}

/* ---- the variants ---- */

static gpo_status
run_scalar(gpo_call *call)
{
    return run(call, GPO_CPU_SCALAR);
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

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other into one table",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] =
        {"simd",
         "values widened in vectors, four tables in turn if they are small",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on chunks of fixed size with tables of their own",
                         "",
                         "run-to-run",
                         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const scatter_add_plan *plan = scatter_add_plan_of(call);
    const int64_t bytes = plan->size * gpo_dtypes[sum_of(call->out[0].dtype)].bytes;
    const bool chunks = plan->n > CHUNK && plan->n / SHARE > plan->size;
    const bool long_result = bytes >= WORTH_A_TEAM;
    return gpo_cpu_choose(
        variants, chunks || long_result,
        "there is one chunk of work: 65,536 elements, or four for each place of the "
        "result, whose sums are below 1 MiB",
        chunks ? "several chunks of elements are worth tables of their own"
               : "from 1 MiB of sums on several threads pay",
        why);
}

const gpo_table scatter_add_cpu = {variants, choose};
