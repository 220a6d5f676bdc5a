/*
 * cpu.c  index_add on the CPU.  Order: the kind of sums, the copy of x, a stretch of the
 * source, the plain loop, the ways to share the work, an ascending index, the variants,
 * choose.  See job.h for what they all read, buckets.h for a few short rows,
 * core/ascending.h for an ascending index.
 *
 * Rows are added in the order of the source, so a destination has the same bits in
 * every run.  Threads share slices, columns or destinations, which keeps that order.
 * Where a row has too few columns, the source is cut into stretches with separate sums,
 * which are merged in order.  The number of stretches depends on the sizes alone and
 * simd makes the same ones, so that simd and threads give the same bits.
 */
#include "buckets.h"
#include "job.h"

#include "../../backend/backend.h"

/* ---- the kind of sums ---- */

/*
 * Counts rows by the `last` bits of their destinations, perhaps all bits: *many = whether
 * one count is more than a few; *bad = the first bad position.  `seen` holds a zero for
 * each count.
 */
static void
count_rows(const job *j, uint16_t *seen, int64_t last, bool *many, int64_t *bad)
{
    const index_add_plan *p = j->plan;
    int64_t k[BLOCK];
    *many = false;
    for (int64_t s = 0; s < p->count; s += BLOCK) {
        const int64_t n = p->count - s < BLOCK ? p->count - s : BLOCK;
        const int64_t good = positions_of(j, s, n, k);
        for (int64_t i = 0; i < good; i++) {
            *many |= ++seen[k[i] & last] > INDEX_ADD_FEW_ROWS;
        }
        if (good < n) {
            *bad = s + good;
            return;
        }
    }
    *bad = p->count;
}

/*
 * *many = whether more than a few rows share a destination.  Destinations that end with
 * the same bits are counted together first, in L1; mostly that shows that they are few.
 */
static gpo_status
find_many(gpo_call *call, job *j, bool *many)
{
    const index_add_plan *p = j->plan;
    uint16_t together[TOGETHER] = {0};
    int64_t bad;
    count_rows(j, together, TOGETHER - 1, many, &bad);
    gpo_status status = raise_bad(call, j, bad);
    if (!status && *many) {
        const size_t bytes = (size_t)p->length * sizeof(uint16_t);
        void *seen = NULL;
        status = gpo_scratch(call, bytes, &seen);
        if (!status) {
            memset(seen, 0, bytes);
            count_rows(j, seen, INT64_MAX, many, &bad);
            status = raise_bad(call, j, bad);
        }
    }
    return status;
}

/*
 * Chooses the kind of sums.  Float64 sums of many short rows cost little; those of long
 * rows take twice the memory, and of a few rows most of the time goes to destinations
 * without any, so there the rows of each destination are counted first.  A few short rows
 * are counted by buckets while they are added: see add_counted.
 */
static gpo_status
take_sums(gpo_call *call, job *j, int variant)
{
    static const loops *const tables[GPO_NISA] = GPO_EACH_ISA(table);
    const index_add_plan *p = j->plan;
    const gpo_isa isa = variant == GPO_CPU_SCALAR ? GPO_ISA_BASE : gpo_cpu_isa();
    bool many = p->count > INDEX_ADD_FEW_ROWS;
    gpo_status status = GPO_OK;
    j->loops = tables[isa]; /* for positions, which need no kind of sums */
    const bool sure = p->count > INDEX_ADD_FEW_ROWS * p->length; /* one has many */
    const bool counts = many && !sure && is_narrow_float(p->dtype) && p->outer > 0;
    const bool few = counts && p->count <= p->length * p->inner / SPARSE;
    const bool by_bucket = few && p->inner < COUNTED && p->outer == 1 &&
                           p->count <= BUCKETED && variant != GPO_CPU_SCALAR;
    j->buckets = NULL;
    if (by_bucket) {
        status = take_buckets(call, j);
        many = false;
    }
    j->is_checked = counts && !by_bucket && (p->inner >= COUNTED || few);
    if (j->is_checked) {
        status = find_many(call, j, &many);
    }
    j->kind = sums_of(p->dtype, many);
    j->loops = &tables[isa][j->kind];
    return status;
}

/* ---- the copy of x ---- */

/* Elements [begin, begin + n) of x in C order, to `to`. */
static void
copy_strided(const job *j, int64_t begin, int64_t n, char *to)
{
    const gpo_array *x = j->x;
    int64_t at[GPO_MAX_DIMS], rest = begin, offset = 0;
    for (int d = x->ndim - 1; d >= 0; d--) {
        at[d] = rest % x->shape[d];
        rest /= x->shape[d];
        offset += at[d] * x->strides[d];
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * j->bytes, (const char *)x->data + offset * j->bytes,
               (size_t)j->bytes);
        for (int d = x->ndim - 1; d >= 0; d--) {
            offset += x->strides[d];
            if (++at[d] < x->shape[d]) {
                break;
            }
            offset -= at[d] * x->strides[d];
            at[d] = 0;
        }
    }
}

/* Piece i of the copy of x into out, or of its conversion into sums. */
static void
open_piece(void *context, int64_t i)
{
    job *j = context;
    const int64_t step = SMALL / j->bytes;
    const int64_t begin = i * step;
    const int64_t n = j->out->size - begin < step ? j->out->size - begin : step;
    const char *x = (const char *)j->x->data + begin * j->bytes;
    char *out = (char *)j->out->data + begin * j->bytes;
    const bool apart = j->sums != j->out->data && !j->is_sparse;
    if (j->x->data != j->out->data && !gpo_array_is_contiguous(j->x)) {
        copy_strided(j, begin, n, out);
        x = out;
    }
    else if (j->x->data != j->out->data && !apart) {
        memcpy(out, x, (size_t)(n * j->bytes));
    }
    if (apart) {
        const int64_t parts = j->bytes / j->part_bytes;
        j->loops->open(j->sums + begin * parts * j->loops->bytes, x, n * parts);
    }
}

static void
close_piece(void *context, int64_t i)
{
    job *j = context;
    const int64_t step = SMALL / j->bytes;
    const int64_t begin = i * step;
    const int64_t n = j->out->size - begin < step ? j->out->size - begin : step;
    const int64_t parts = j->bytes / j->part_bytes;
    j->loops->close((char *)j->out->data + begin * j->bytes,
                    j->sums + begin * parts * j->loops->bytes, n * parts);
}

/* ---- a stretch of the source ---- */

/* Adds rows [begin, end), columns [c, c + w) of slice o; returns the first bad row. */
static int64_t
add_stretch(const job *j, char *to, int64_t o, int64_t begin, int64_t end, int64_t c,
            int64_t w)
{
    const index_add_plan *p = j->plan;
    const char *from = j->source + (o * p->by_outer + c * p->by_inner) * j->part_bytes;
    const bool lone = p->inner == 1 && o == 0;
    int64_t k[BLOCK];
    for (int64_t s = begin; s < end; s += BLOCK) {
        if (lone) {
            s += j->loops->lone(to, entry(j, s), from + s * p->by_row * j->part_bytes,
                                end - s, p, NULL);
        }
        const int64_t n = end - s < BLOCK ? end - s : BLOCK;
        const int64_t good = positions_of(j, s, n, k);
        if (good < n) {
            return s + good;
        }
        j->loops->add(to + c * j->loops->bytes, p->inner, k, NULL, n,
                      from + s * p->by_row * j->part_bytes, w, p);
    }
    return p->count;
}

/* As add_stretch for all rows, of which it adds those of one range of destinations. */
static int64_t
add_range(const job *j, char *to, int64_t o, int64_t range, int64_t c, int64_t w)
{
    const index_add_plan *p = j->plan;
    const int64_t first = range * p->length / j->ranges;
    const uint64_t length = (uint64_t)((range + 1) * p->length / j->ranges - first);
    const char *from = j->source + (o * p->by_outer + c * p->by_inner) * j->part_bytes;
    int64_t k[BLOCK], rows[BLOCK];
    for (int64_t s = 0; s < p->count; s += BLOCK) {
        const int64_t n = p->count - s < BLOCK ? p->count - s : BLOCK;
        const int64_t good = positions_of(j, s, n, k);
        if (good < n) {
            return s + good;
        }
        int64_t some = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = k[i];
            k[some] = at;
            rows[some] = i;
            some += (uint64_t)(at - first) < length;
        }
        j->loops->add(to + c * j->loops->bytes, p->inner, k, rows, some,
                      from + s * p->by_row * j->part_bytes, w, p);
    }
    return p->count;
}

/*
 * As add_stretch for all short rows, which are counted by buckets.  Rows of one element are
 * counted where they are added.
 */
static int64_t
add_counted(const job *j)
{
    const index_add_plan *p = j->plan;
    int64_t k[BUCKET_ROWS];
    for (int64_t s = 0; s < p->count;) {
        const char *from = j->source + s * p->by_row * j->part_bytes;
        if (p->inner == 1) {
            const int64_t some =
                j->loops->lone(j->sums, entry(j, s), from, p->count - s, p, j->buckets);
            s += some;
            from += some * p->by_row * j->part_bytes;
        }
        const int64_t n = p->count - s < BUCKET_ROWS ? p->count - s : BUCKET_ROWS;
        const int64_t good = positions_of(j, s, n, k);
        if (good < n) {
            return s + good;
        }
        count_in_buckets(j, n, k);
        j->loops->add(j->sums, p->inner, k, NULL, n, from, p->inner, p);
        s += n;
    }
    move_back(j);
    return p->count;
}

/*
 * Converts the destinations of all rows, columns [c, c + w) of slice o, from out, which
 * holds x, to sums, or back; returns the first bad row.
 */
static int64_t
convert_rows(const job *j, char *sums, int64_t o, int64_t c, int64_t w, bool back)
{
    const index_add_plan *p = j->plan;
    char *out = (char *)j->out->data + (o * p->length * p->inner + c) * j->part_bytes;
    int64_t k[BLOCK];
    sums += c * j->loops->bytes;
    for (int64_t s = 0; s < p->count; s += BLOCK) {
        const int64_t n = p->count - s < BLOCK ? p->count - s : BLOCK;
        const int64_t good = positions_of(j, s, n, k);
        if (good < n) {
            return s + good;
        }
        if (back) {
            j->loops->close_rows(out, sums, p->inner, k, n, w);
        }
        else {
            j->loops->open_rows(sums, out, p->inner, k, n, w);
        }
    }
    return p->count;
}

/* Piece i: a slice, some of its columns and destinations. */
static void
add_columns(void *context, int64_t i)
{
    job *j = context;
    const index_add_plan *p = j->plan;
    const int64_t pieces = p->outer * j->slices * j->ranges;
    for (int64_t u = i; u < pieces; u += MAX_PIECES) {
        const int64_t o = u / j->ranges / j->slices;
        const int64_t slice = u / j->ranges % j->slices;
        const int64_t begin = slice * p->inner / j->slices;
        const int64_t end = (slice + 1) * p->inner / j->slices;
        char *to = j->sums + o * p->length * p->inner * j->loops->bytes;
        const int64_t w = end - begin;
        if (j->is_sparse) {
            j->bad[i] = convert_rows(j, to, o, begin, w, false);
            if (j->bad[i] < p->count) {
                return;
            }
        }
        j->bad[i] = j->buckets      ? add_counted(j)
                    : j->ranges > 1 ? add_range(j, to, o, u % j->ranges, begin, w)
                                    : add_stretch(j, to, o, 0, p->count, begin, w);
        if (j->is_sparse && j->bad[i] == p->count) {
            j->bad[i] = convert_rows(j, to, o, begin, w, true);
        }
        if (j->bad[i] < p->count) {
            return;
        }
    }
}

/* Adds stretch i of the rows; the first adds to the sums, another to `own`, cleared. */
static void
add_a_stretch(job *j, int64_t i, char *own)
{
    const index_add_plan *p = j->plan;
    const int64_t begin = i * p->count / j->stretches;
    const int64_t end = (i + 1) * p->count / j->stretches;
    const int64_t table = p->length * p->inner * j->loops->bytes;
    char *to = j->sums + j->o * table;
    if (i > 0) {
        to = own;
        memset(to, 0, (size_t)table);
    }
    j->bad[i] = add_stretch(j, to, j->o, begin, end, 0, p->inner);
}

/* Piece i: a stretch, with sums of its own unless it is the first. */
static void
add_rows(void *context, int64_t i)
{
    job *j = context;
    const int64_t table = j->plan->length * j->plan->inner * j->loops->bytes;
    add_a_stretch(j, i, j->own + (i - 1) * table);
}

/* Piece i of the sums: adds the sums of the stretches, in order. */
static void
merge_piece(void *context, int64_t i)
{
    job *j = context;
    const int64_t sums = j->plan->length * j->plan->inner;
    const int64_t step = SMALL / j->loops->bytes;
    const int64_t begin = i * step, n = sums - begin < step ? sums - begin : step;
    char *to = j->sums + (j->o * sums + begin) * j->loops->bytes;
    for (int64_t r = 1; r < j->stretches; r++) {
        j->loops->merge(to, j->own + ((r - 1) * sums + begin) * j->loops->bytes, n);
    }
}

/* ---- the plain loop: one element after the other ---- */

#define FOR_EACH "plain.inc"
#include "sums.inc"

typedef void (*plain_walk)(const index_add_plan *p, const void *source, void *sums,
                           int64_t o, int64_t s, int64_t k);

static int64_t
add_plainly(const job *j)
{
#define PLAIN_ROW(kind, type) [SUMS_##kind] = plain_##kind,
    static const plain_walk plain[NSUMS] = {SUMS(PLAIN_ROW)};
#undef PLAIN_ROW
    const index_add_plan *p = j->plan;
    for (int64_t o = 0; o < p->outer; o++) {
        for (int64_t s = 0; s < p->count; s++) {
            const int64_t k = position_of(p, index_value(j, s));
            if (k < 0) {
                return s;
            }
            plain[j->kind](p, j->source, j->sums, o, s, k);
        }
    }
    return p->count;
}

/* ---- the ways to share the work ---- */

/*
 * The number of stretches.  It depends on the sizes alone, so that the number of
 * threads changes no bit: one where there are enough slices or columns to share, else a
 * power of two, which two or four threads share evenly.  The first needs no sums of its
 * own.
 */
static int64_t
stretches_of(const job *j)
{
    const index_add_plan *p = j->plan;
    const int64_t columns = p->inner * j->part_bytes / SLICE_BYTES;
    if (p->outer * (columns > 1 ? columns : 1) >= MAX_STRETCHES || columns >= 4) {
        return 1;
    }
    const int64_t pays = 1 + p->count / (ADDED_PER_SUM * p->length);
    int64_t stretches = 1;
    while (2 * stretches <= pays && stretches < MAX_STRETCHES) {
        stretches *= 2;
    }
    return stretches;
}

/* Adds the stretches of slice j->o, merged in order; returns the first bad position. */
static int64_t
add_stretches(job *j, bool parallel)
{
    const index_add_plan *p = j->plan;
    const int64_t sums = p->length * p->inner;
    if (!parallel) { /* one stretch after the other needs one table */
        char *to = j->sums + j->o * sums * j->loops->bytes;
        for (int64_t i = 0; i < j->stretches; i++) {
            add_a_stretch(j, i, j->own);
            if (j->bad[i] < p->count) {
                return j->bad[i];
            }
            if (i > 0) {
                j->loops->merge(to, j->own, sums);
            }
        }
        return p->count;
    }
    gpo_cpu_loop(true, j->stretches, add_rows, j);
    const int64_t bad = first_bad(j, j->stretches);
    if (bad == p->count) {
        gpo_cpu_loop(true, (sums * j->loops->bytes + SMALL - 1) / SMALL, merge_piece,
                     j);
    }
    return bad;
}

/*
 * Cuts the columns into slices, one per thread; where rows are long, the destinations
 * into ranges: a thread may start late, so pieces must be small, and parts of rows are
 * read more slowly than rows.  Each piece goes through the whole index.
 */
static void
cut_rows(job *j, bool parallel)
{
    const index_add_plan *p = j->plan;
    const int64_t bytes = p->inner * j->part_bytes, columns = bytes / SLICE_BYTES;
    const int64_t threads = parallel ? gpo_cpu_threads() : 1;
    j->ranges = 1;
    while (parallel && !j->is_sparse && p->outer < MOST_RANGES && bytes >= LONG_ROW &&
           j->ranges < MOST_RANGES && j->ranges * RANGE_BYTES < bytes &&
           j->ranges < p->length) {
        j->ranges *= 2;
    }
    const int64_t slices = j->ranges > 1 ? 1 : columns < threads ? columns : threads;
    j->slices = slices > 1 ? slices : 1;
}

static int64_t
add_all(job *j, bool parallel)
{
    const index_add_plan *p = j->plan;
    if (j->stretches > 1) {
        for (j->o = 0; j->o < p->outer; j->o++) {
            const int64_t bad = add_stretches(j, parallel);
            if (bad < p->count) {
                return bad;
            }
        }
        return p->count;
    }
    cut_rows(j, parallel);
    const int64_t pieces = p->outer * j->slices * j->ranges;
    const int64_t shared = pieces < MAX_PIECES ? pieces : MAX_PIECES;
    gpo_cpu_loop(parallel, shared, add_columns, j);
    return first_bad(j, shared);
}

/* ---- an ascending index ---- */

/*
 * Adds rows of one element whose index ascends; false if it does not, and where it must be
 * known to be good before, nothing is written then.
 */
static bool
add_ascending(const job *j, bool parallel)
{
    static const runs *const tables[GPO_NISA] = GPO_EACH_ISA(&runs);
    const index_add_plan *p = j->plan;
    const runs *loops = tables[gpo_cpu_isa()];
    ascending_call c = {.index = {.index = j->index,
                                  .is_wide = p->is_wide,
                                  .n = p->count,
                                  .size = p->length},
                        .check = loops->ascends,
                        .sum = loops->sum[p->dtype],
                        .values = j->source,
                        .x = j->x->data,
                        .alpha = p->alpha,
                        .out = j->out->data};
    if (p->inner != 1 || p->outer != 1 || p->by_row != 1 || p->step != 1 || !c.sum ||
        p->length * (int64_t)sizeof(double) <= KEPT_BYTES ||
        (c.x != c.out && p->count < p->length / MOSTLY_COPIED) ||
        !gpo_array_is_contiguous(j->x) || !ascending_look(&c.index)) {
        return false;
    }
    const bool first = p->is_first || c.x == c.out;
    return (!first || ascending_take(&c, false, parallel, gpo_cpu_loop)) &&
           (ascending_take(&c, true, parallel, gpo_cpu_loop) || first);
}

/* ---- the variants ---- */

static gpo_status
run(gpo_call *call, int variant)
{
    job j;
    const index_add_plan *p = index_add_plan_of(call);
    j.plan = p;
    j.x = &call->in[0];
    j.index = call->in[1].data;
    j.source = call->in[2].data;
    j.out = &call->out[0];
    const int64_t elements = j.out->size + p->outer * p->inner * p->count;
    const bool large = variant != GPO_CPU_SCALAR && elements >= WORTH_A_TEAM;
    const bool parallel = variant == GPO_CPU_THREADS && large;
    if (variant != GPO_CPU_SCALAR && add_ascending(&j, parallel)) {
        return GPO_OK;
    }
    gpo_status status = take_sums(call, &j, variant);
    j.bytes = gpo_dtypes[j.x->dtype].bytes;
    j.part_bytes = gpo_dtypes[p->dtype].bytes;
    j.sums = j.out->data;
    j.own = NULL;
    const bool nothing = p->outer * p->inner * p->count == 0;
    j.stretches = large && !nothing && !j.buckets ? stretches_of(&j) : 1;

    if (!status && !j.is_checked && p->mode == GPO_INDEX_RAISE &&
        (p->is_first || nothing)) {
        status = raise_bad(call, &j, check(&j, 0, p->count));
    }
    void *memory = NULL;
    const size_t of_a_slice = (size_t)(p->length * p->inner) * (size_t)j.loops->bytes;
    if (!status && !nothing && j.loops->bytes != j.part_bytes) {
        status = gpo_scratch(call, (size_t)p->outer * of_a_slice, &memory);
        j.sums = memory;
    }
    j.is_sparse = variant != GPO_CPU_SCALAR && j.sums != j.out->data &&
                  j.stretches == 1 && p->count <= p->length / SPARSE;
    if (!status && !nothing && j.stretches > 1) {
        const int64_t own = parallel ? j.stretches - 1 : 1;
        status = gpo_scratch(call, (size_t)own * of_a_slice, &memory);
        j.own = memory;
    }
    if (status) {
        return status;
    }
    const int64_t step = SMALL / j.bytes, pieces = (j.out->size + step - 1) / step;
    if (j.x->data != j.out->data || (j.sums != j.out->data && !j.is_sparse)) {
        gpo_cpu_loop(parallel, pieces, open_piece, &j);
    }
    if (nothing) {
        return GPO_OK;
    }
    status = raise_bad(
        call, &j, variant == GPO_CPU_SCALAR ? add_plainly(&j) : add_all(&j, parallel));
    if (!status && j.sums != j.out->data && !j.is_sparse) {
        gpo_cpu_loop(parallel, pieces, close_piece, &j);
    }
    return status;
}

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
                        "one element after the other",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] = {"simd",
                      "a thousand positions at once, then rows in vector registers",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] =
        {"threads",
         "simd's slices, columns or stretches, shared out among threads",
         "",
         "run-to-run",
         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 16, COPIED_FOR_ONE_ADDED = 4 };
    const int64_t work = call->in[0].size / COPIED_FOR_ONE_ADDED + call->in[2].size;
    return gpo_cpu_choose(variants, work >= PAYS,
                          "under 2^16 elements of the source, or four times as many of "
                          "x, starting threads costs more than they save",
                          "from 2^16 elements of the source, or four times as many of "
                          "x, on several threads pay",
                          why);
}

const gpo_table index_add_cpu = {variants, choose};
