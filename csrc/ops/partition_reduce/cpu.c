/*
 * cpu.c  partition_reduce on the CPU.  Order: the inner loops of three instruction
 * sets, the job, one chunk of a tile, results, the variants, scalar, choose.  See
 * terms.inc for what an element contributes.
 *
 * The index is cut in two.  The low bits number the elements of a row, which are
 * contiguous; the kept high bits number the tiles, the reduced ones the rows of a tile.
 * The rows of a tile are added pairwise; the row that is left is then halved for each
 * reduced low bit, the highest first.  Both are elementwise loops.  A row that keeps at
 * most the bits of a lane is folded from end to end instead.  If it keeps others, but not
 * the three bits above a lane, one fold of each row comes first: rows are then eight times
 * as long, and memory is read in longer stretches.
 * A chunk has a fixed number of rows, so that neither the number of threads nor the
 * instruction set changes a bit of the result.
 */
#include "terms.h"

#include "../../backend/backend.h"
#include "../../core/prefetch.h"

#include <string.h>

enum {
    ROW_BYTES = 8192, /* of the sums of a row, a node */
    MERGED = 3,       /* nodes that a row is merged with in one pass */
};

/* The inner loops of one term: an element T, the sum A. */
typedef struct loops {
    int bytes, sum_bytes; /* of T and A */

    /*
     * rows[k] merges a row of w terms of x with k nodes, the first at a, the others
     * after it: rows[0] stores the terms to a; rows[3] makes a[i] become
     * a[i] + (b[i] + (c[i] + the term of x[i])).
     */
    void (*rows[MERGED + 1])(const void *x, int64_t w, void *a);
    void (*add)(void *a, const void *b, int64_t w); /* a[i] += b[i] */
    /* row i of t = the sum of rows 2 i and 2 i + 1 of x; n rows of w; t may be x */
    void (*halve)(const void *x, int64_t n, int64_t w, void *t);
    /* adds each 8 of 8 n groups of LANES terms, or sums, to one group; t may be x */
    void (*fold)(const void *x, int64_t n, void *t);
    void (*fold_sums)(const void *x, int64_t n, void *t);
} loops;

enum { LANE_BITS = 3, LANES = 1 << LANE_BITS };

/* ---- the inner loops of three instruction sets ---- */

/* The node that is `rows` nodes after the one at `to`. */
static inline const void *
behind(const void *to, int rows)
{
    return (const char *)to + rows * ROW_BYTES;
}

#define GPO_LOOPS "../ops/partition_reduce/loops.inc"
#include "../../core/each_isa.h"

static int
find_term(const partition_plan *plan)
{
    switch (plan->dtype) {
        case GPO_I32:
            return plan->square ? TERM_I32_SQ : TERM_I32;
        case GPO_I64:
            return plan->square ? TERM_I64_SQ : TERM_I64;
        case GPO_F16:
            return plan->square ? TERM_F16_SQ : TERM_F16;
        case GPO_BF16:
            return plan->square ? TERM_BF16_SQ : TERM_BF16;
        case GPO_F32:
            return plan->square ? TERM_F32_SQ : TERM_F32;
        case GPO_F64:
            return plan->square ? TERM_F64_SQ : TERM_F64;
        case GPO_C64:
            return TERM_C64_SQ;
        default:
            return TERM_C128_SQ;
    }
}

static const loops *
find_loops(gpo_isa isa, const partition_plan *plan)
{
    static const loops *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    return &tables[isa][find_term(plan)];
}

/* ---- the job: what every part of one call reads ---- */

enum {
    CHUNK_ROWS = 32, /* of a tile in one task */
    COMBINE = 1024,  /* sums combined in one task */
    DIRECT_BITS = 2, /* reduced bits below it: a row is halved directly from x */
};

typedef struct job {
    const partition_plan *plan;
    const char *x;
    char *out;
    const loops *loops;
    bool packed;                  /* elements are contiguous */
    int low;                      /* bits of the index within a row */
    int64_t row;                  /* 2^low */
    int64_t sums;                 /* left of a row: 2^(kept low bits) */
    uint64_t kept, reduced;       /* masks of the high bits */
    int64_t tiles, rows, chunk;   /* rows of a tile, and of them in a chunk */
    int64_t chunks;               /* of a tile */
    bool direct;                  /* a tile is one row, halved directly from x */
    bool fold;                    /* all but the bits of a lane are reduced in a row */
    bool ahead;                   /* one fold of each row comes first */
    int64_t group;                /* tiles of a task */
    int64_t flip[PARTITION_BITS]; /* of outputs, from tile to tile: see scalar */
    char *part;                   /* sums, chunks x tiles x sums; NULL if chunks == 1 */
    int64_t *place; /* sum c of a row goes to output place[c] of its tile */
    bool in_order;  /* place[c] == c */
    /* of the nodes of a chunk's tree, ROW_BYTES apart, and of a packed row */
    int64_t nodes_bytes, pack_bytes;
} job;

/* The bits of `i` spread over the set bits of `mask`, lowest first. */
static int64_t
deposit(int64_t i, uint64_t mask)
{
    uint64_t spread = 0;
    for (; mask; mask &= mask - 1, i >>= 1) {
        spread |= i & 1 ? mask & -mask : 0;
    }
    return (int64_t)spread;
}

/* The output that element i adds to. */
static int64_t
output_of(const partition_plan *plan, int64_t i)
{
    uint64_t o = 0;
    for (int b = 0; b < plan->n; b++) {
        if (plan->to[b] >= 0) {
            o |= (uint64_t)(i >> b & 1) << plan->to[b];
        }
    }
    return (int64_t)o;
}

static const char *
address(const job *j, int64_t i)
{
    const partition_plan *plan = j->plan;
    const int64_t at =
        plan->pairs ? (i >> 1) * plan->stride + (i & 1) : i * plan->stride;
    return j->x + at * j->loops->bytes;
}

/* Packs a row of strided elements. */
static void
gather(const job *j, const void *restrict from, void *restrict to)
{
    const bool pairs = j->plan->pairs;
    const int64_t n = pairs ? j->row / 2 : j->row;
    const int64_t stride = pairs ? j->plan->stride / 2 : j->plan->stride;
    switch (pairs ? 2 * j->loops->bytes : j->loops->bytes) {
        case 2:
            for (int64_t i = 0; i < n; i++) {
                ((uint16_t *)to)[i] = ((const uint16_t *)from)[i * stride];
            }
            return;
        case 4:
            for (int64_t i = 0; i < n; i++) {
                ((uint32_t *)to)[i] = ((const uint32_t *)from)[i * stride];
            }
            return;
        case 8:
            for (int64_t i = 0; i < n; i++) {
                ((uint64_t *)to)[i] = ((const uint64_t *)from)[i * stride];
            }
            return;
        default:
            for (int64_t i = 0; i < n; i++) {
                ((gpo_c128 *)to)[i] = ((const gpo_c128 *)from)[i * stride];
            }
            return;
    }
}

/* ---- one chunk of a tile ---- */

/*
 * nodes[0] = the pairwise sum of the rows of a chunk: row r is merged with as many
 * nodes as r ends in ones.  One row is read after the other, each from end to end.
 */
static void
add_rows(const job *j, int64_t first, char *nodes, char *pack)
{
    const loops *f = j->loops;
    int64_t off = 0;
    int depth = 0;
    for (int64_t r = 0; r < j->chunk; r++) {
        const char *x = address(j, first + off);
        off = (int64_t)(((uint64_t)off - j->reduced) & j->reduced);
        if (!j->packed) {
            gather(j, x, pack);
            x = pack;
        }
        int sums = __builtin_ctzll(~(unsigned long long)r);
        const int joined = sums < MERGED ? sums : MERGED;
        f->rows[joined](x, j->row, nodes + (depth - joined) * ROW_BYTES);
        for (depth += 1 - joined; sums > joined; sums--) {
            depth--;
            f->add(nodes + (depth - 1) * ROW_BYTES, nodes + depth * ROW_BYTES, j->row);
        }
    }
}

/*
 * nodes = the sum of the rows of a chunk in LANES lanes, which are read from end to
 * end, the best order for the hardware prefetcher.
 */
static void
fold_rows(const job *j, int64_t first, char *nodes)
{
    const loops *f = j->loops;
    int64_t off = 0, left = 0;
    for (int64_t r = 0; r < j->chunk; r++) {
        f->fold(address(j, first + off), j->row / (8 * LANES),
                nodes + left * f->sum_bytes);
        left += j->row / 8;
        off = (int64_t)(((uint64_t)off - j->reduced) & j->reduced);
    }
    for (; left >= 8 * LANES; left /= 8) {
        f->fold_sums(nodes, left / (8 * LANES), nodes);
    }
    for (; left > LANES; left /= 2) {
        f->halve(nodes, left / (2 * LANES), LANES, nodes);
    }
}

/* nodes[0] = the pairwise sum of the rows of a chunk, each of which is folded once. */
static void
fold_and_add_rows(const job *j, int64_t first, char *nodes)
{
    const loops *f = j->loops;
    int64_t off = 0;
    int depth = 0;
    for (int64_t r = 0; r < j->chunk; r++) {
        f->fold(address(j, first + off), j->row / (8 * LANES),
                nodes + depth * ROW_BYTES);
        off = (int64_t)(((uint64_t)off - j->reduced) & j->reduced);
        for (int64_t k = r; k & 1; k >>= 1) {
            depth--;
            f->add(nodes + depth * ROW_BYTES, nodes + (depth + 1) * ROW_BYTES,
                   j->row / 8);
        }
        depth++;
    }
}

/* Whether bit b is one of those that a fold has summed ahead of all others. */
static bool
is_folded(const job *j, int b)
{
    return j->ahead && b >= LANE_BITS && b < 2 * LANE_BITS;
}

/* Halves a row for each reduced low bit, the highest first; returns what is left. */
static const char *
halve_row(const job *j, const char *row, int bits, char *to)
{
    int64_t w = 1; /* sums below bit b */
    for (int b = 0; b < bits; b++) {
        w *= is_folded(j, b) ? 1 : 2;
    }
    int64_t left = w;
    for (int b = bits - 1; b >= 0 && w > 1; b--) {
        if (is_folded(j, b)) {
            continue;
        }
        w /= 2;
        if (j->plan->to[b] < 0) {
            left /= 2;
            j->loops->halve(row, left / w, w, to);
            row = to;
        }
    }
    return row;
}

/* ---- results ---- */

/* to[place[c]] = the result of sum c of n; `place` is NULL if they are in order. */
static void
put(gpo_dtype dtype, const void *sums, int64_t n, const int64_t *place, void *to)
{
    switch (dtype) {
        case GPO_F16:
            for (int64_t c = 0; c < n; c++) {
                ((gpo_f16 *)to)[place ? place[c] : c] =
                    f16_of_float(((const float *)sums)[c]);
            }
            return;
        case GPO_BF16:
            for (int64_t c = 0; c < n; c++) {
                ((gpo_bf16 *)to)[place ? place[c] : c] =
                    bf16_of_float(((const float *)sums)[c]);
            }
            return;
        case GPO_F32:
            for (int64_t c = 0; c < n; c++) {
                ((float *)to)[place ? place[c] : c] = ((const float *)sums)[c];
            }
            return;
        case GPO_F64:
            for (int64_t c = 0; c < n; c++) {
                ((double *)to)[place ? place[c] : c] = ((const double *)sums)[c];
            }
            return;
        default:
            for (int64_t c = 0; c < n; c++) {
                ((uint64_t *)to)[place ? place[c] : c] = ((const uint64_t *)sums)[c];
            }
            return;
    }
}

/* Sums `first` to first + n of a tile, whose outputs begin at `o`. */
static void
put_tile(const job *j, int64_t o, const void *sums, int64_t first, int64_t n)
{
    const partition_plan *plan = j->plan;
    char *to = j->out + o * gpo_dtypes[plan->out_dtype].bytes;
    if (j->in_order) {
        put(plan->out_dtype, sums, n, NULL,
            to + first * gpo_dtypes[plan->out_dtype].bytes);
    }
    else {
        put(plan->out_dtype, sums, n, j->place + first, to);
    }
}

/* Task i: a chunk of a group of tiles. */
static void
sum_chunk(void *context, int64_t i, void *memory)
{
    const job *j = context;
    const int64_t groups = j->tiles / j->group;
    const int64_t chunk = i / groups, first = i % groups * j->group;
    const int64_t down = deposit(chunk * j->chunk, j->reduced);
    char *nodes = memory, *pack = nodes + j->nodes_bytes;
    int64_t next = deposit(first, j->kept);
    int64_t o = output_of(j->plan, next);
    for (int64_t tile = first; tile < first + j->group; tile++) {
        const int64_t at = next | down;
        const char *row = nodes;
        next = (int64_t)(((uint64_t)next - j->kept) & j->kept);
        if (j->direct) {
            row = address(j, at);
        }
        else if (j->fold) {
            fold_rows(j, at, nodes);
        }
        else if (j->ahead) {
            fold_and_add_rows(j, at, nodes);
        }
        else {
            add_rows(j, at, nodes, pack);
        }
        row = halve_row(j, row, j->fold ? LANE_BITS : j->low, nodes);
        if (j->part) {
            const int64_t bytes = j->sums * j->loops->sum_bytes;
            memcpy(j->part + (chunk * j->tiles + tile) * bytes, row, (size_t)bytes);
        }
        else {
            put_tile(j, o, row, 0, j->sums);
        }
        o ^= j->flip[__builtin_ctzll((unsigned long long)tile + 1)];
    }
}

/* Task i: COMBINE sums of all chunks, pairwise. */
static void
combine(void *context, int64_t i)
{
    const job *j = context;
    const int64_t all = j->tiles * j->sums;
    const int64_t first = i * COMBINE,
                  n = all - first < COMBINE ? all - first : COMBINE;
    const int64_t bytes = j->loops->sum_bytes;
    char *part = j->part + first * bytes;
    for (int64_t step = 1; step < j->chunks; step *= 2) {
        for (int64_t k = 0; k + step < j->chunks; k += 2 * step) {
            j->loops->add(part + k * all * bytes, part + (k + step) * all * bytes, n);
        }
    }
    for (int64_t c = 0; c < n;) {
        const int64_t at = (first + c) % j->sums;
        const int64_t w = j->sums - at < n - c ? j->sums - at : n - c;
        const int64_t tile = (first + c) / j->sums;
        put_tile(j, output_of(j->plan, deposit(tile, j->kept)), part + c * bytes, at,
                 w);
        c += w;
    }
}

/* ---- the variants ---- */

/* Whether all bits in [from, end) are reduced. */
static bool
are_reduced(const partition_plan *plan, int from, int end)
{
    for (int b = from; b < end && b < plan->n; b++) {
        if (plan->to[b] >= 0) {
            return false;
        }
    }
    return true;
}

/*
 * Sets low, row, sums, fold and ahead.  A kept bit just above a short row would have its tile
 * skip every second row or so, which halves the speed of reading from memory.
 */
static void
find_row(job *j)
{
    const partition_plan *plan = j->plan;
    const int widest = floor_log2(ROW_BYTES / j->loops->sum_bytes);
    const int longest = widest + LANE_BITS; /* a fold of it is a node */
    j->low = plan->n < widest ? plan->n : widest;
    const bool folds = j->packed && j->low >= 2 * LANE_BITS;
    j->fold = folds && are_reduced(plan, LANE_BITS, longest);
    j->ahead = folds && !j->fold && are_reduced(plan, LANE_BITS, 2 * LANE_BITS);
    if (j->ahead) {
        j->low = plan->n < longest ? plan->n : longest;
    }
    j->row = (int64_t)1 << j->low;
    j->sums = 1;
    for (int b = 0; b < j->low; b++) {
        j->sums *= plan->to[b] >= 0 ? 2 : 1;
    }
}

/* Sets place, which takes as long to fill as a row to add, so only where it is read. */
static gpo_status
find_places(job *j, gpo_call *call)
{
    if (j->in_order) {
        j->place = NULL;
        return GPO_OK;
    }
    void *memory = NULL;
    const gpo_status status =
        gpo_scratch(call, (size_t)j->sums * sizeof *j->place, &memory);
    if (status) {
        return status;
    }
    j->place = memory;
    j->place[0] = 0;
    int64_t half = 1;
    for (int b = 0; b < j->low; b++) {
        const int to = j->plan->to[b];
        for (int64_t c = 0; to >= 0 && c < half; c++) {
            j->place[half + c] = j->place[c] + (int64_t)((uint64_t)1 << to);
        }
        half *= to >= 0 ? 2 : 1;
    }
    return GPO_OK;
}

static gpo_status
start(job *j, gpo_call *call, gpo_isa isa)
{
    const partition_plan *plan = partition_plan_of(call);
    j->plan = plan;
    j->x = call->in[0].data;
    j->out = call->out[0].data;
    j->loops = find_loops(isa, plan);
    j->packed = plan->n == 0 || plan->stride == (plan->pairs ? 2 : 1);
    find_row(j);

    const bool plain =
        !plan->square &&
        (plan->dtype == GPO_I64 || plan->dtype == GPO_F32 || plan->dtype == GPO_F64);

    int kept_low = 0, widest_halved = 0;
    j->in_order = true;
    for (int b = 0; b < j->low; b++) {
        if (plan->to[b] >= 0) {
            j->in_order = j->in_order && plan->to[b] == kept_low;
            kept_low++;
        }
        else {
            widest_halved = b;
        }
    }
    const gpo_status status = find_places(j, call);
    if (status) {
        return status;
    }
    j->kept = j->reduced = 0;
    for (int b = j->low; b < plan->n; b++) {
        *(plan->to[b] < 0 ? &j->reduced : &j->kept) |= (uint64_t)1 << b;
    }
    const int high = plan->n - j->low;
    const int kept = plan->k > kept_low ? plan->k - kept_low : 0;
    for (int b = 0; b <= kept; b++) { /* past the last bit: back to tile 0 */
        const int64_t ones = (int64_t)(((uint64_t)2 << b) - 1);
        j->flip[b] = output_of(plan, deposit(ones, j->kept));
    }
    j->tiles = (int64_t)1 << kept;
    j->rows = (int64_t)1 << (high > kept ? high - kept : 0);
    j->direct = plain && j->packed && j->rows == 1 && widest_halved < DIRECT_BITS;
    const int64_t chunk = j->ahead ? CHUNK_ROWS / LANES : CHUNK_ROWS;
    j->chunk = j->rows < chunk ? j->rows : chunk;
    j->chunks = j->rows / j->chunk;
    const int64_t most = chunk / j->chunk;
    j->group = j->tiles < most ? j->tiles : most;
    j->part = NULL;
    /* The nodes of a pairwise sum; a fold leaves an eighth of the rows, which fit. */
    const int levels = floor_log2(j->chunk) > 1 ? floor_log2(j->chunk) : 1;
    j->nodes_bytes = (levels - 1) * ROW_BYTES + j->row * j->loops->sum_bytes;
    if (j->ahead) { /* a node of each size, and the next */
        j->nodes_bytes = (floor_log2(j->chunk) + 1) * ROW_BYTES;
    }
    j->pack_bytes = j->packed ? 0 : j->row * j->loops->bytes;
    return GPO_OK;
}

static gpo_status
run(gpo_call *call, bool parallel)
{
    job j;
    gpo_status status = start(&j, call, gpo_cpu_isa());
    if (status) {
        return status;
    }
    if (j.chunks > 1) {
        const int64_t sums = j.chunks * j.tiles * j.sums;
        void *memory = NULL;
        status = gpo_scratch(call, (size_t)(sums * j.loops->sum_bytes), &memory);
        if (status) {
            return status;
        }
        j.part = memory;
    }
    const int64_t tasks = j.chunks * (j.tiles / j.group);
    const int64_t combines =
        j.chunks > 1 ? (j.tiles * j.sums + COMBINE - 1) / COMBINE : 0;
    status = gpo_cpu_work(call, parallel, tasks, (size_t)(j.nodes_bytes + j.pack_bytes),
                          sum_chunk, &j);
    if (!status && combines > 0) {
        gpo_cpu_loop(parallel, combines, combine, &j);
    }
    return status;
}

static gpo_status
run_simd(gpo_call *call)
{
    return run(call, false);
}

static gpo_status
run_threads(gpo_call *call)
{
    return run(call, true);
}

/* ---- scalar: one element after the other ---- */

/* Floats are summed in double and rounded once. */
typedef union total {
    uint64_t sum_U64;
    double sum_F32, sum_F64;
    float once; /* sum_F32 rounded */
} total;

#define FOR_EACH "plain.inc"
#include "terms.inc"

typedef void (*plain_loop)(const partition_plan *plan, const void *from,
                           const int64_t *flip, total *sums);

#define PLAIN_ROW(name) [TERM_##name] = plain_##name
static const plain_loop plain[NTERMS] = {
    PLAIN_ROW(I32),    PLAIN_ROW(I64),     PLAIN_ROW(F16),    PLAIN_ROW(BF16),
    PLAIN_ROW(F32),    PLAIN_ROW(F64),     PLAIN_ROW(I32_SQ), PLAIN_ROW(I64_SQ),
    PLAIN_ROW(F16_SQ), PLAIN_ROW(BF16_SQ), PLAIN_ROW(F32_SQ), PLAIN_ROW(F64_SQ),
    PLAIN_ROW(C64_SQ), PLAIN_ROW(C128_SQ),
};
#undef PLAIN_ROW

static gpo_status
run_scalar(gpo_call *call)
{
    const partition_plan *plan = partition_plan_of(call);
    const int64_t outputs = (int64_t)1 << plan->k;
    int64_t flip[PARTITION_BITS];
    for (int b = 0; b < plan->n; b++) {
        flip[b] = output_of(plan, (int64_t)(((uint64_t)2 << b) - 1));
    }
    void *memory = NULL;
    const gpo_status status =
        gpo_scratch(call, (size_t)outputs * sizeof(total), &memory);
    if (status) {
        return status;
    }
    total *sums = memory;
    memset(sums, 0, (size_t)outputs * sizeof *sums); /* all bits 0 are 0.0, too */
    plain[find_term(plan)](plan, call->in[0].data, flip, sums);
    const gpo_dtype dtype = plan->out_dtype;
    char *out = call->out[0].data;
    if (dtype == GPO_F64 || dtype == GPO_I64) {
        put(dtype, sums, outputs, NULL, out);
        return GPO_OK;
    }
    for (int64_t o = 0; o < outputs; o++) {
        const total value = {.once = (float)sums[o].sum_F32};
        put(dtype, &value, 1, NULL, out + o * gpo_dtypes[dtype].bytes);
    }
    return GPO_OK;
}

/* ---- choose ---- */

#define RUNS(run)                                                            \
    {                                                                        \
        [GPO_I32] = run, [GPO_I64] = run, [GPO_F16] = run, [GPO_BF16] = run, \
        [GPO_F32] = run, [GPO_F64] = run, [GPO_C64] = run, [GPO_C128] = run, \
    }

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other; a table says which bits flip", "",
                        "run-to-run", RUNS(run_scalar)},
    [GPO_CPU_SIMD] = {"simd",
                      "whole rows added pairwise, then their low bits halved away", "",
                      "run-to-run", RUNS(run_simd)},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on chunks of fixed size, shared out among threads", "",
                         "run-to-run", RUNS(run_threads)},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 19 };
    const gpo_array *x = &call->in[0];
    return gpo_cpu_choose(
        variants, x->size >= PAYS / gpo_dtypes[x->dtype].bytes,
        "under 512 KiB of input starting threads costs more than they save",
        "from 512 KiB of input on several threads pay", why);
}

const gpo_table partition_reduce_cpu = {variants, choose};
