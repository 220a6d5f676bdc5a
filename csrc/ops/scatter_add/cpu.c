/*
 * cpu.c  scatter_add on the CPU.  Order: the three instruction sets, reading an array in
 * pieces, one chunk, the whole job, the variants, choose.  What an element is stands in
 * elements.h, the inner loops in cpu.inc.
 *
 * Elements are taken in pieces that stay in the first cache: values become the type of
 * their sum in a loop of vectors, then a plain loop looks at each index and adds.  Each
 * chunk of fixed size has tables of its own, which meet in order: neither the number of
 * threads nor the instruction set changes a bit.
 */
#include "elements.h"

#include "../../backend/backend.h"
#include "../../core/prefetch.h"

#include <stdlib.h>

enum {
    WAYS = 4,        /* tables that a chunk may take turns in */
    FEW = 8 << 10,   /* bytes of WAYS tables: a quarter of a first cache */
    PIECE = 1024,    /* elements read at a time, a multiple of WAYS */
    CHUNK = 1 << 16, /* elements, at least, in a chunk of the threads */
    MOST_CHUNKS = 64,
    SHARE = 4,   /* elements in a chunk for each place of its table */
    STRIP = 512, /* places combined at a time */
};

typedef int64_t (*add_loop)(void *tables, int64_t size, int ways, int64_t shift,
                            const void *index, const void *v, int64_t n);

typedef struct loops {
    int64_t (*locate[GPO_NDTYPES])(const void *index, int64_t n, int64_t size,
                                   scatter_add_mode mode, int64_t *to);
    void (*widen[GPO_NDTYPES])(const void *x, int64_t n, void *to);
    void (*narrow[GPO_NDTYPES])(const void *v, int64_t n, void *to);
    add_loop add[GPO_NDTYPES], add_narrow[GPO_NDTYPES]; /* index of 64 and 32 bits */
    void (*fold[GPO_NDTYPES])(void *a, const void *b, int64_t n); /* a[k] += b[k] */
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

/* ---- reading an array in pieces ---- */

typedef struct reader {
    const gpo_array *array;
    int64_t bytes;  /* of an element */
    bool is_line;   /* all elements at one distance: */
    int64_t stride; /* in elements */
} reader;

static reader
reader_of(const gpo_array *a)
{
    reader r = {.array = a, .bytes = gpo_dtypes[a->dtype].bytes};
    r.is_line = scatter_add_is_line(a, &r.stride);
    return r;
}

#define GATHER(type)                                        \
    for (int64_t i = 0; i < n; i++) {                       \
        ((type *)to)[i] = ((const type *)from)[i * stride]; \
    }

static void
gather(void *restrict to, const void *from, int64_t n, int64_t stride, int64_t bytes)
{
    switch (bytes) {
        case 1:
            GATHER(uint8_t)
            return;
        case 2:
            GATHER(uint16_t)
            return;
        case 4:
            GATHER(uint32_t)
            return;
        case 8:
            GATHER(uint64_t)
            return;
        default:
            GATHER(gpo_c128)
            return;
    }
}

/* Elements [first, first + n) side by side: where they are, or packed into `buffer`. */
static const void *
take(const reader *r, int64_t first, int64_t n, char *buffer)
{
    const gpo_array *a = r->array;
    if (r->is_line) {
        const char *from = (const char *)a->data + first * r->stride * r->bytes;
        if (r->stride == 1) {
            return from;
        }
        gather(buffer, from, n, r->stride, r->bytes);
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
    scatter_add_plan plan;
    const loops *loops;
    reader values, index;
    gpo_dtype sum; /* U64, F64 or C128 */
    int64_t sum_bytes;
    int ways;              /* tables of a chunk */
    int64_t chunk, chunks; /* elements of a chunk, and how many there are */
    char *tables;          /* chunks x ways x size */
    int64_t *good;         /* of each chunk: elements before the first bad index */
    void *out;
    gpo_dtype dtype;
} job;

static char *
table_of(const job *j, int64_t chunk)
{
    return j->tables + chunk * j->ways * j->plan.size * j->sum_bytes;
}

static void
fill_chunk(void *context, int64_t i)
{
    const job *j = context;
    const loops *f = j->loops;
    const gpo_dtype from = j->values.array->dtype;
    const gpo_dtype index = j->index.array->dtype;
    const bool same = from == j->sum || (j->sum == GPO_U64 && from == GPO_I64);
    const int64_t first = i * j->chunk;
    const int64_t left = j->plan.n - first;
    const int64_t n = left < j->chunk ? left : j->chunk;
    char *tables = table_of(j, i);
    memset(tables, 0, (size_t)(j->ways * j->plan.size * j->sum_bytes));

    const int64_t size = j->plan.size;
    const bool negative = j->plan.mode == SCATTER_ADD_RAISE && !j->plan.is_unsigned;
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
        const int64_t done = add(tables, size, j->ways, shift, places, v, m);
        k += done;
        if (done < m) { /* some are outside: what 'wrap' and 'clip' make of them */
            const int64_t held = f->locate[index](places + done * j->index.bytes,
                                                  m - done, size, j->plan.mode, at);
            f->add[j->sum](tables, size, j->ways, 0, at, v + done * j->sum_bytes, held);
            k += held;
            if (done + held < m) {
                break;
            }
        }
    }
    j->good[i] = k;
}

/* ---- the whole job ---- */

/* All tables of some places, in order, into the first one; then the result. */
static void
combine_strip(void *context, int64_t i)
{
    const job *j = context;
    const int64_t first = i * STRIP;
    const int64_t left = j->plan.size - first;
    const int64_t n = left < STRIP ? left : STRIP;
    const int64_t table_bytes = j->plan.size * j->sum_bytes;
    char *total = j->tables + first * j->sum_bytes;
    for (int64_t t = 1; t < j->chunks * j->ways; t++) {
        j->loops->fold[j->sum](total, total + t * table_bytes, n);
    }
    if ((char *)j->out != j->tables) {
        j->loops->narrow[j->dtype](total, n,
                                   (char *)j->out + first * gpo_dtypes[j->dtype].bytes);
    }
}

/* The first index out of bounds, if there is one, as an error. */
static gpo_status
check_indices(gpo_call *call, const job *j)
{
    for (int64_t i = 0; i < j->chunks; i++) {
        const int64_t position = i * j->chunk + j->good[i];
        const int64_t end = (i + 1) * j->chunk;
        if (position < (end < j->plan.n ? end : j->plan.n)) {
            uint64_t pack = 0;
            const void *raw = take(&j->index, position, 1, (char *)&pack);
            int64_t index;
            if (j->index.array->dtype == GPO_I32) {
                index = *(const int32_t *)raw;
            }
            else {
                memcpy(&index, raw, sizeof index);
            }
            return scatter_add_refuse(call, &j->plan, index, position);
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
run(gpo_call *call, gpo_isa isa, bool several_tables, bool parallel)
{
    static const loops *const tables[GPO_NISA] = {&table_base, &table_v3, &table_v4};
    job j = {.loops = tables[isa],
             .values = reader_of(&call->in[SCATTER_ADD_VALUES]),
             .index = reader_of(&call->in[SCATTER_ADD_INDEX]),
             .out = call->out[0].data,
             .dtype = call->out[0].dtype};
    scatter_add_make_plan(call, &j.plan);
    const int64_t n = j.plan.n, size = j.plan.size;
    j.sum = sum_of(j.dtype);
    j.sum_bytes = gpo_dtypes[j.sum].bytes;

    /* By n and size alone, so that the order of additions is. */
    const bool few = size <= FEW / (WAYS * j.sum_bytes) && n / (WAYS * SHARE) >= size;
    j.ways = several_tables && few ? WAYS : 1;
    j.chunk = n > 0 ? n : 1;
    if (parallel) {
        j.chunk = CHUNK;
        j.chunk = j.chunk < n / MOST_CHUNKS ? n / MOST_CHUNKS + 1 : j.chunk;
        j.chunk = j.chunk / SHARE < size ? size * SHARE : j.chunk;
        j.chunk = (j.chunk + PIECE - 1) / PIECE * PIECE;
    }
    j.chunks = n > 0 ? (n + j.chunk - 1) / j.chunk : 1;
    parallel = parallel && j.chunks > 1;

    void *memory = NULL;
    gpo_status status = gpo_scratch(call, (size_t)j.chunks * sizeof *j.good, &memory);
    if (status) {
        return status;
    }
    j.good = memory;
    const bool direct = j.chunks * j.ways == 1 && !j.plan.late &&
                        gpo_dtypes[j.dtype].bytes == j.sum_bytes;
    if (direct) {
        j.tables = j.out;
    }
    else {
        const size_t of_a_chunk = (size_t)(j.ways * j.sum_bytes) * (size_t)size;
        status = gpo_scratch(call, (size_t)j.chunks * of_a_chunk, &memory);
        j.tables = memory;
    }
    if (!status) {
        gpo_cpu_loop(parallel, j.chunks, fill_chunk, &j);
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
    return run(call, GPO_ISA_BASE, false, false);
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, gpo_cpu_isa(), true, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, gpo_cpu_isa(), true, true);
}

/* ---- choose ---- */

enum { SCALAR, SIMD, THREADS };

static const gpo_variant variants[] = {
    [SCALAR] = {"scalar",
                "one element after the other into one table",
                "",
                "run-to-run",
                {
#define GPO_DTYPE(suffix, type, name, bytes, kind) [GPO_##suffix] = run_scalar,
#include "../../core/dtypes.def"
#undef GPO_DTYPE
                }},
    [SIMD] = {"simd",
              "values widened in vectors, four tables in turn if they are small",
              "",
              "run-to-run",
              {
#define GPO_DTYPE(suffix, type, name, bytes, kind) [GPO_##suffix] = run_simd,
#include "../../core/dtypes.def"
#undef GPO_DTYPE
              }},
    [THREADS] = {"threads",
                 "simd on chunks of fixed size with tables of their own",
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
    static const char small[] = "there is one chunk of work: 65,536 elements, or four "
                                "for each place of the result";
    static const char large[] = "several chunks of elements are worth tables of their "
                                "own";
    const int64_t n = call->in[SCATTER_ADD_INDEX].size;
    if (n <= CHUNK || n / SHARE <= call->out[0].size) {
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

const gpo_table scatter_add_cpu = {variants, choose};
