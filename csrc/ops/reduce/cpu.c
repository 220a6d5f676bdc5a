/*
 * cpu.c  reduce on the CPU.  Order: the three instruction sets, one chunk of a row,
 * strips of columns, finish, tasks, the variants, choose.  See folds.h for elements and
 * folds, loops.inc for the inner loops, walk.inc for the walk over an array, copies.inc
 * for rows of one element.
 *
 * The idea: arrange the elements as rows of equal width and add whole rows, pairwise.
 * A long row is first cut into short ones; columns are arranged that way already.  The
 * steps are partial (one chunk -> one state per result), combine (states pairwise, in
 * order) and finish (state -> result).  Chunks have a fixed size, so that neither the
 * number of threads nor the instruction set changes a bit of the result.
 */
#include "../../core/integers.h"
#include "folds.h"

#include "../../backend/backend.h"
#include "../../core/gather.h"
#include "../../core/prefetch.h"
#include "../../core/turn.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    LANE_BYTES = 512, /* a long row is cut into rows of this width */
    FOLD_ROWS = 8,    /* rows that `fold_rows` folds */
    SHORT_ROW = 256,  /* longest row, in elements, for `short_rows` */
    SHORT_ROW_LANES = 16,
    MOST_LOADS = 64,          /* of a short row */
    LEAST_TOGETHER = 8,       /* short rows that are folded together, */
    TOGETHER_BYTES = 1 << 13, /* or as many as fill so many bytes */
    ALONE_BYTES = 512,   /* longer ones are read one by one, as prefetchers like it */
    NEAR_AHEAD = 1024,   /* bytes that a single stream prefetches ahead, into L1 */
    EXTREME_BYTES = 512, /* of a row: from here on `extreme` uses vectors, */
    PLACE_BYTES = 256,   /* and from here on `place` */
};

/*
 * How a short row is folded: by loads of SHORT_ROW_LANES elements, the last of which may not be
 * its own; lanes are folded until as many are left as the row has results.  With more results
 * than lanes there are several blocks of lanes.
 */
typedef struct row_loads {
    int full, part;         /* loads, and loads with new elements from lane `old` on */
    int old;                /* these come after the others */
    int64_t at[MOST_LOADS]; /* where they begin */
    int64_t lanes, period;  /* lanes in use; those of one result are `period` apart */
    int64_t step;           /* lanes from one result to the next */
    int64_t pitch;          /* results from row to row */
    int64_t blocks;         /* of lanes */
    int64_t reach; /* elements from the start of a row to the end of its loads */
} row_loads;

/* The inner loops of one fold; T is the element, A the partial result, S the state. */
typedef struct loops {
    int bytes, acc_bytes; /* of T and A */
    gpo_dtype state;      /* S: U64, I64, F64 or C128 */

    /* t[c] = the fold of rows[0..7][c], pairwise, for c in [0, w) */
    void (*fold_rows)(const void *const *rows, int64_t w, void *t);
    void (*load)(const void *x, int64_t w, void *t);    /* t[c] = x[c] */
    void (*add_row)(void *t, const void *x, int64_t w); /* t[c] = fold of t[c], x[c] */
    void (*fold)(void *a, const void *b, int64_t w);    /* a[c] = fold of a[c], b[c] */
    /* t[c] = the fold of every keep-th of t[c..w), c in [0, keep) */
    void (*lanes)(void *t, int64_t w, int64_t keep);
    /* t[r] = the fold of the n elements from x + r * stride, n < SHORT_ROW_LANES, or n <=
       SHORT_ROW for ANY and ALL */
    void (*short_rows)(const void *x, int64_t rows, int64_t stride, int64_t n, void *t);
    /* t[r * pitch + c] = result c < keep of the row from x + r * stride on; SHORT_ROW_LANES
       of them are written if keep > 1 */
    void (*load_rows)(const void *x, int64_t rows, int64_t stride,
                      const row_loads *loads, int64_t keep, void *t);
    void (*widen)(const void *t, int64_t w, void *s); /* s[c] = t[c], A to S */
    /* x[i] = the element of a[i], if a partial result is not its own value; else NULL */
    void (*elements)(const void *a, int64_t n, void *x);
    /* MIN and MAX: *acc, an A, = the extreme of n elements, n > 0 */
    void (*extreme)(const void *x, int64_t n, void *acc);
    /* the same and its place among the n elements; NULL if `find` is to search for it */
    int64_t (*place)(const void *x, int64_t n, void *acc);
    /*
     * MIN and MAX of floats: best[c], the rank of the extreme of column c so far, and
     * place[c], the number of its row, after n <= FOLD_ROWS rows of w columns, of which
     * rows[0] is number `first`; both are as wide as an element.  False if a nan was seen
     * that has no rank.
     */
    bool (*places)(const void *const *rows, int64_t n, int64_t w, int64_t first,
                   void *best, void *place);
    /* the states s[c] and places index[c], `first` added, of best and place[c * stride] */
    void (*settle)(const void *best, const void *place, int64_t stride, int64_t w,
                   int64_t first, void *s, int64_t *index);
    /* ANY and ALL: whether one of n elements decides */
    bool (*decides)(const void *x, int64_t n);
    /* MIN and MAX: the first of n elements that equals *value, an A; n if none does */
    int64_t (*find)(const void *x, int64_t n, int64_t stride, const void *value);
    /* *acc, an A, = the fold of n elements in order; NULL except for base */
    void (*plain)(const void *x, int64_t n, int64_t stride, void *acc);
} loops;

/*
 * t[0..LANE_BYTES) = the fold of FOLD_ROWS consecutive rows of LANE_BYTES bytes, in the
 * order of `fold_rows`.
 */
typedef void (*stream)(const void *x, void *t);

/* Packs every second of n elements; false if there is no loop for their size. */
typedef bool (*gather_two)(void *restrict to, const void *from, int64_t n,
                           int64_t bytes);

/* y[i] = x[i] rounded once */
typedef void (*narrow)(int64_t n, const double *x, gpo_f16 *y);

/* ---- the three instruction sets ---- */

#define GPO_LOOPS "../ops/reduce/loops.inc"
#include "../../core/each_isa.h"

typedef const loops *const (*loops_table)[GPO_NDTYPES];
typedef const stream (*stream_table)[GPO_NDTYPES];

/* Replaces a reduction and dtype by those whose loops it uses. */
static void
find_fold(reduce_op *op, gpo_dtype *dtype)
{
    static const gpo_dtype by_size[] = {
        [1] = GPO_U8, [2] = GPO_U16, [4] = GPO_U32, [8] = GPO_U64};
    const gpo_dtype_info *info = &gpo_dtypes[*dtype];
    const bool whole = info->kind != 'f' && info->kind != 'c';
    switch (*op) {
        case REDUCE_MEAN:
            *op = whole ? REDUCE_MEAN : REDUCE_SUM;
            break;
        case REDUCE_SUM:
        case REDUCE_PROD:
            *dtype = *dtype == GPO_I64 ? GPO_U64 : *dtype; /* the same modulo 2^64 */
            break;
        case REDUCE_ANY:
        case REDUCE_ALL:
            *dtype = whole ? by_size[info->bytes] : *dtype;
            *dtype = *dtype == GPO_BF16 ? GPO_F16 : *dtype;
            break;
        case REDUCE_ARGMIN:
            *op = REDUCE_MIN;
            break;
        case REDUCE_ARGMAX:
            *op = REDUCE_MAX;
            break;
        default:
            break;
    }
}

static const loops *
find_loops(gpo_isa isa, reduce_op op, gpo_dtype dtype)
{
    static const loops_table tables[GPO_NISA] = GPO_EACH_ISA(table);
    find_fold(&op, &dtype);
    return tables[isa][op][dtype];
}

/*
 * NULL if there is no stream: then the loops are used.  Memory beyond L2 is read front to
 * back in registers of 32 bytes, but on processors by Intel, whose L1 has more places for
 * lines on their way.
 */
static stream
find_stream(gpo_isa isa, bool beyond_l2, reduce_op op, gpo_dtype dtype)
{
    static const stream_table near[GPO_NISA] = GPO_EACH_ISA(near_streams);
    find_fold(&op, &dtype);
#ifdef GPO_HAS_ISAS
    if (beyond_l2 && !__builtin_cpu_is("intel")) {
        return (isa == GPO_ISA_BASE ? far_streams_base : far_streams_v3)[op][dtype];
    }
#else
    if (beyond_l2) {
        return far_streams_base[op][dtype];
    }
#endif
    return near[isa][op][dtype];
}

static const narrow narrows[GPO_NISA] = GPO_EACH_ISA(narrow_doubles);

/* ---- the job: what every part of one call reads ---- */

enum {
    CHUNK_BLOCKS = 32,     /* blocks of FOLD_ROWS rows in a chunk: 128 KiB */
    PIECE_BYTES = 8192,    /* of a row searched at once for an extreme */
    STRIP_BYTES = 16384,   /* most bytes of partial results of a strip */
    STRIP_COLUMNS = 4096,  /* most columns of a strip */
    STRIPS = 16,           /* with fewer tasks than this, strips are halved, */
    LEAST_STRIP = 1024,    /* down to this many columns */
    NARROW_BYTES = 32,     /* narrower columns are gathered into rows, */
    GROUPED_BYTES = 128,   /* and wider ones up to this width, */
    GROUPED = 64,          /* of fewer columns, */
    WIDEST_GROUP = 64,     /* likewise if a row is folded by loads */
    GROUPS_BYTES = 4096,   /* and has at most so many bytes */
    FEW_ROWS = 16,         /* of more rows */
    STRIP_ROWS = 512,      /* rows of a strip in one chunk */
    BATCH = 256,           /* results finished together */
    GROUP_BYTES = 1 << 17, /* of whole rows in one task */
    COMBINE = 1024,        /* results combined in one task */
    SHORT_RUN = 16,        /* shorter runs of elements are packed several at once */
    GAPS_BYTES = 4,        /* of an element: smaller ones take longer to fold */
    CACHED = 1 << 20,      /* bytes that L2 may hold */
};

typedef union state {
    uint64_t u;
    int64_t i;
    double f;
    gpo_c128 c;
} state;

typedef struct job {
    const reduce_plan *plan;
    int64_t rows, cols; /* those of the plan, or of groups */
    int64_t keep;       /* neighbouring results of a row of groups; 1 for other rows */
    int64_t step; /* of the elements of a row, or run, that is read with its gaps */
    const reduce_axes *kept, *reduced; /* those of the plan, or of groups; ndim >= 1 */
    const char *origin;                /* element 0 of result 0 */
    const loops *loops;
    const loops *combine; /* folds states */
    stream stream;        /* for contiguous elements, or NULL */
    narrow narrow;
    bool arg;           /* argmin, argmax */
    bool early;         /* any, all: a state that is not 0 decides */
    uint64_t magnitude; /* the bits of an element that make it true */
    bool parallel;
    bool direct;      /* the partial results are the results: is_direct */
    bool gaps;        /* columns two apart are read with those between them */
    bool interleaved; /* neighbouring results are closer than the elements of one */
    int64_t state_bytes;
    int64_t lanes;                        /* elements of a row of a block */
    int64_t levels;                       /* nodes of the tree of a chunk */
    int64_t node_bytes;                   /* of a node's partial results */
    int64_t pack_bytes;                   /* of packed elements */
    int64_t chunk;                        /* elements, or rows of a strip, of a chunk */
    int64_t chunks;                       /* of a result */
    int64_t outers, width, strip, strips; /* columns: groups, columns of each, ... */
    int64_t group;                        /* rows of a task */
    row_loads loads;                      /* of a row, packed or */
    bool by_loads;                        /* in place */
    const char *end;                      /* of the array */
    reduce_axes runs;                     /* of a row, if it is folded run by run, */
    int64_t run;                          /* each of so many elements; or 0 */
    char *value;                          /* states, chunks x rows */
    int64_t *index;                       /* likewise, for arg */
    atomic_bool decided;                  /* the only result is known (early) */
    const void *initial;                  /* BATCH equal states, or NULL */
    void *out;                            /* of all results, in the order of kept */
    gpo_dtype out_dtype;
} job;

#include "walk.inc"

/* ---- the tree: pairwise, equal halves first, for any number of leaves ---- */

typedef struct tree {
    const loops *loops;
    int64_t w, node_bytes, leaves;
    int depth;
    char *nodes;
} tree;

static char *
tree_node(const tree *t, int level)
{
    return t->nodes + level * t->node_bytes;
}

/* Adds the leaf that was written to tree_node(t, t->depth). */
static void
tree_push(tree *t)
{
    for (int64_t k = t->leaves++; k & 1; k >>= 1) {
        t->depth--;
        t->loops->fold(tree_node(t, t->depth), tree_node(t, t->depth + 1), t->w);
    }
    t->depth++;
}

/* Folds all leaves into node 0. */
static void
tree_finish(tree *t)
{
    for (; t->depth > 1; t->depth--) {
        t->loops->fold(tree_node(t, t->depth - 2), tree_node(t, t->depth - 1), t->w);
    }
}

/* ---- rows: one chunk ---- */

static bool
is_zero(const char *bytes, int n)
{
    uint64_t value = 0;
    memcpy(&value, bytes, (size_t)n);
    return value == 0;
}

/* Sets *acc to whether one of the next n elements decides, which is often an early one. */
static void
row_decides(const job *j, cursor *c, int64_t n, void *acc, char *pack)
{
    enum { FIRST_BYTES = 1024, PACK_BYTES = FOLD_ROWS * LANE_BYTES };
    const loops *f = j->loops;
    const int last = j->reduced->ndim - 1;
    const bool in_place =
        j->reduced->strides[last] == 1 &&
        (last == 0 || j->reduced->shape[last] * f->bytes >= NARROW_BYTES);
    uint64_t known = 0;
    for (int64_t k = 0; k < n && !known;) {
        int64_t m = (k == 0 ? FIRST_BYTES : PACK_BYTES) / f->bytes;
        m = in_place ? run_left(c) : m;
        m = m < n - k ? m : n - k;
        known = f->decides(take(c, m, pack), m);
        k += m;
    }
    memcpy(acc, &known, (size_t)f->acc_bytes); /* its lowest bytes come first */
}

/*
 * acc[0..keep) = the folds of the next n elements, n in [1, chunk].  `memory` holds the
 * packed elements, then the nodes of the tree.
 */
static void
row_fold(const job *j, cursor *c, int64_t n, void *acc, char *memory)
{
    const loops *f = j->loops;
    const int64_t lanes = j->lanes;
    const int64_t block = FOLD_ROWS * lanes;
    char *pack = memory;
    if (f->decides && j->keep == 1) {
        row_decides(j, c, n, acc, pack);
        return;
    }
    if (f->extreme && j->keep == 1 && j->step == 1 && j->reduced->ndim == 1 &&
        j->reduced->strides[0] == 1) { /* the order is all one */
        f->extreme(take(c, n, pack), n, acc);
        return;
    }
    if (n < SHORT_ROW_LANES && j->keep == 1 && j->step == 1) {
        f->short_rows(take(c, n, pack), 1, 0, n, acc);
        return;
    }

    char *nodes = memory + j->pack_bytes;
    tree t = {.loops = f, .w = lanes, .node_bytes = j->node_bytes, .nodes = nodes};
    for (; n >= block; n -= block) {
        const char *x = take(c, block, pack);
        const void *rows[FOLD_ROWS];
        char *node = tree_node(&t, t.depth);
        if (j->stream) {
            j->stream(x, node);
            tree_push(&t);
            continue;
        }
        if (x != pack) {
            prefetch_lines(x + block * f->bytes, block * f->bytes);
        }
        for (int r = 0; r < FOLD_ROWS; r++) {
            rows[r] = x + r * lanes * f->bytes;
        }
        f->fold_rows(rows, lanes, node);
        if (j->early) {
            f->lanes(node, lanes, j->keep);
            int64_t known = 0;
            while (known < j->keep &&
                   !is_zero(node + known * f->acc_bytes, f->acc_bytes)) {
                known++;
            }
            if (known == j->keep) {
                memcpy(acc, node, (size_t)(j->keep * f->acc_bytes));
                return;
            }
        }
        tree_push(&t);
    }
    if (n > 0) {
        const char *x = take(c, n, pack);
        if (n < lanes && t.depth > 0) {
            f->add_row(tree_node(&t, t.depth - 1), x, n);
        }
        else {
            char *node = tree_node(&t, t.depth++);
            t.w = n < lanes ? n : lanes;
            f->load(x, t.w, node);
            for (int64_t k = lanes; k < n; k += lanes) {
                const int64_t w = n - k < lanes ? n - k : lanes;
                f->add_row(node, x + k * f->bytes, w);
            }
        }
    }
    tree_finish(&t);
    f->lanes(nodes, t.w, j->keep * j->step);
    memcpy(acc, nodes, (size_t)(j->keep * f->acc_bytes));
}

/* Whether the candidate replaces the best; nothing replaces a nan. */
static inline bool
improves(const job *j, state best, state candidate)
{
    const bool least = j->plan->op == REDUCE_ARGMIN;
    switch (j->loops->state) {
        case GPO_U64:
            return least ? candidate.u < best.u : candidate.u > best.u;
        case GPO_I64:
            return least ? candidate.i < best.i : candidate.i > best.i;
        default:
            return best.f == best.f &&
                   ((least ? candidate.f < best.f : candidate.f > best.f) ||
                    candidate.f != candidate.f);
    }
}

/*
 * The extreme of the next n elements and its position, counted from `first`.  A piece
 * is searched for the position only if it holds a new extreme, which is rare.
 */
static void
row_extreme(const job *j, cursor *c, int64_t first, int64_t n, state *best,
            int64_t *index, char *pack)
{
    const loops *f = j->loops;
    const bool in_place = j->reduced->ndim == 1 && j->reduced->strides[0] == 1;
    const int64_t piece = f->place && in_place ? n : PIECE_BYTES / f->bytes;
    for (int64_t k = 0; k < n; k += piece) {
        const int64_t m = n - k < piece ? n - k : piece;
        const char *x = take(c, m, pack);
        state acc, candidate;
        int64_t place = 0;
        if (f->place) {
            place = f->place(x, m, &acc);
        }
        else {
            f->extreme(x, m, &acc);
        }
        f->widen(&acc, 1, &candidate);
        if (k == 0 || improves(j, *best, candidate)) {
            *best = candidate;
            *index = first + k + (f->place ? place : f->find(x, m, 1, &acc));
        }
    }
}

/* Chunk i of the row at `origin`; index is NULL except for argmin and argmax. */
static void
row_partial(const job *j, const char *origin, int64_t i, void *value, int64_t *index,
            char *memory)
{
    const int64_t first = i * j->chunk;
    const int64_t rest = j->cols - first;
    const int64_t n = rest < j->chunk ? rest : j->chunk;
    cursor c;
    seek(&c, origin, j->reduced, j->loops->bytes, first);
    state acc[GROUPED_BYTES];
    if (index) {
        row_extreme(j, &c, first, n, acc, index, memory);
        memcpy(value, acc, (size_t)j->state_bytes);
        return;
    }
    row_fold(j, &c, n, acc, memory);
    j->loops->widen(acc, j->keep, value);
}

#include "strips.inc"

/* ---- finish ---- */

#define FINISH(type, expression)          \
    do {                                  \
        type *restrict to = out;          \
        for (int64_t i = 0; i < n; i++) { \
            to[i] = (expression);         \
        }                                 \
    } while (0)

/* A division takes longer than the other steps together. */
#define FINISH_MEANS(type, store)                 \
    if (op == REDUCE_MEAN) {                      \
        FINISH(type, store(f[i] / count + zero)); \
        return;                                   \
    }                                             \
    FINISH(type, store(f[i] + zero));

/* The results f[i] / count + zero. */
static void
finish_halves(const job *j, const double *f, int64_t n, double count, double zero,
              gpo_f16 *to)
{
    double exact[BATCH];
    for (int64_t k = 0; k < n; k += BATCH) {
        const int64_t some = n - k < BATCH ? n - k : BATCH;
        for (int64_t i = 0; i < some; i++) {
            exact[i] = f[k + i] + zero;
        }
        for (int64_t i = 0; j->plan->op == REDUCE_MEAN && i < some; i++) {
            exact[i] = f[k + i] / count + zero;
        }
        j->narrow(some, exact, to + k);
    }
}

/* Writes n results to `out`: from their states, or from `index` if not NULL. */
static void
store(const job *j, const void *value, const int64_t *index, int64_t n, void *out)
{
    const uint64_t *u = value;
    const double *f = value;
    const gpo_c128 *c = value;
    const reduce_op op = j->plan->op;
    const double count = op == REDUCE_MEAN ? (double)j->plan->cols : 1;
    /* NumPy's sums start at 0, so they are never -0; x + -0.0 is x. */
    const double zero = op == REDUCE_SUM || op == REDUCE_MEAN ? 0.0 : -0.0;
    if (index) {
        memcpy(out, index, (size_t)n * sizeof *index);
        return;
    }
    if (op == REDUCE_ALL) {
        FINISH(uint8_t, u[i] == 0);
        return;
    }
    switch (j->out_dtype) {
        case GPO_BOOL:
            FINISH(uint8_t, u[i] != 0);
            return;
        case GPO_I8:
        case GPO_U8:
            FINISH(uint8_t, (uint8_t)u[i]);
            return;
        case GPO_I16:
        case GPO_U16:
            FINISH(uint16_t, (uint16_t)u[i]);
            return;
        case GPO_I32:
        case GPO_U32:
            FINISH(uint32_t, (uint32_t)u[i]);
            return;
        case GPO_I64:
        case GPO_U64:
            FINISH(uint64_t, u[i]);
            return;
        case GPO_F16:
            finish_halves(j, f, n, count, zero, out);
            return;
        case GPO_BF16:
            FINISH_MEANS(gpo_bf16, bf16_of_f64)
            return;
        case GPO_F32:
            FINISH_MEANS(float, (float))
            return;
        case GPO_F64:
            FINISH_MEANS(double, )
            return;
        case GPO_C64:
            FINISH(gpo_c64, ((gpo_c64){(float)(c[i].re / count + zero),
                                       (float)(c[i].im / count + zero)}));
            return;
        default:
            FINISH(gpo_c128,
                   ((gpo_c128){c[i].re / count + zero, c[i].im / count + zero}));
            return;
    }
}

/*
 * Writes n results, from result `first` in the order of `kept` on, after the initial value
 * has been combined with each state.
 */
static void
finish(const job *j, void *value, const int64_t *index, int64_t first, int64_t n)
{
    for (int64_t k = 0; j->initial && k < n; k += BATCH) {
        j->combine->fold((char *)value + k * j->state_bytes, j->initial,
                         n - k < BATCH ? n - k : BATCH);
    }
    store(j, value, index, n, (char *)j->out + first * gpo_dtypes[j->out_dtype].bytes);
}

#include "copies.inc"

#include "few.inc"
#include "loads.inc"
#include "places.inc"

/* ---- tasks ---- */

/* The row at `origin`, whose runs are folded like rows of a strip, then what is left. */
static void
row_of_runs(const job *j, const char *origin, void *value, char *memory)
{
    cursor c;
    seek(&c, origin, &j->runs, j->loops->bytes, 0);
    const int64_t wide = (j->run - 1) * j->step + 1;
    strip_fold(j, &c, j->cols / j->run, wide, 1, memory);
    j->loops->lanes(memory, wide, j->step);
    j->loops->widen(memory, 1, value);
}

/* Group i of whole rows. */
static void
row_group(void *context, int64_t i, void *memory)
{
    const job *j = context;
    const loops *f = j->loops;
    const reduce_axes *reduced = j->reduced;
    const int64_t cols = j->cols;
    const int64_t end =
        j->rows - i * j->group < j->group ? j->rows : (i + 1) * j->group;
    const int64_t stride = j->kept->strides[j->kept->ndim - 1];
    const bool short_rows =
        cols <= SHORT_ROW && reduced->ndim == 1 && reduced->strides[0] == 1;
    const int64_t keep = j->keep;
    const bool places =
        short_rows && j->arg && f->place && cols * f->bytes >= PLACE_BYTES;
    const bool extremes =
        places || (short_rows && f->extreme && cols * f->bytes >= EXTREME_BYTES);
    state value[BATCH], acc[BATCH];
    int64_t index[BATCH];
    cursor c;
    seek(&c, j->origin, j->kept, f->bytes, i * j->group);
    const int64_t most = !j->arg ? FEW - 1 : f->places ? FEW : FEW_PLACES;
    const bool apart = !short_rows || (j->arg && cols <= FEW_PLACES) ||
                       (!j->early && cols <= most && turned_width(j) > 0);
    if (apart && is_few(j)) {
        few_group(j, &c, i * j->group, end, acc, value, memory);
        return;
    }
    for (int64_t r = i * j->group; r < end;) {
        int64_t n = run_left(&c);
        n = n < BATCH / keep ? n : BATCH / keep;
        n = n < end - r ? n : end - r;
        if (cols == 1) {
            const char *x = c.at;
            if (stride != 1) {
                pack_elements(acc, x, n, stride, f->bytes);
                memcpy(value, acc, (size_t)(n * f->bytes));
                x = (char *)value;
            }
            f->load(x, n, acc);
            f->widen(acc, n, value);
        }
        else if (short_rows && keep == 1) {
            for (int64_t k = 0; extremes && k < n; k++) {
                const char *at = c.at + k * stride * f->bytes;
                char *to = (char *)acc + k * f->acc_bytes;
                if (places) {
                    index[k] = f->place(at, cols, to);
                }
                else {
                    f->extreme(at, cols, to);
                }
            }
            if (!extremes) {
                short_group(j, c.at, n, stride, acc);
            }
            f->widen(acc, n, value);
            for (int64_t k = 0; j->arg && !places && k < n; k++) {
                index[k] = f->find(c.at + k * stride * f->bytes, cols, 1,
                                   (char *)acc + k * f->acc_bytes);
            }
        }
        else {
            for (int64_t k = 0; k < n; k++) {
                const char *at = c.at + k * stride * f->bytes;
                char *to = (char *)value + k * keep * j->state_bytes;
                if (j->run > 0) {
                    row_of_runs(j, at, to, memory);
                    continue;
                }
                row_partial(j, at, 0, to, j->arg ? &index[k] : NULL, memory);
            }
        }
        finish(j, value, j->arg ? index : NULL, r * keep, n * keep);
        advance(&c, n);
        r += n;
    }
}

/*
 * Long rows, one chunk per task.  Rows that share cache lines go chunk by chunk, so
 * that the second row finds the lines of the first in cache; others go row by row.
 */
static void
row_chunk(void *context, int64_t i, void *memory)
{
    job *j = context;
    const int64_t rows = j->rows;
    const int64_t row = j->interleaved ? i % rows : i / j->chunks;
    const int64_t chunk = j->interleaved ? i / rows : i % j->chunks;
    const int64_t at = chunk * rows + row;
    char *value = j->value + at * j->keep * j->state_bytes;
    if (j->early && atomic_load_explicit(&j->decided, memory_order_relaxed)) {
        memset(value, 0, (size_t)(j->keep * j->state_bytes));
        return;
    }
    cursor c;
    seek(&c, j->origin, j->kept, j->loops->bytes, row);
    row_partial(j, c.at, chunk, value, j->arg ? &j->index[at] : NULL, memory);
    if (j->early && j->rows == 1 && j->keep == 1 &&
        !is_zero(value, (int)j->state_bytes)) {
        atomic_store_explicit(&j->decided, true, memory_order_relaxed);
    }
}

/* Columns: task i is a strip of a chunk of an outer group. */
static void
column_strip(void *context, int64_t i, void *memory)
{
    job *j = context;
    const int64_t strip = i % j->strips * j->strip;
    const int64_t chunk = i / j->strips % j->chunks;
    const int64_t outer = i / j->strips / j->chunks;
    const int64_t w = j->width - strip < j->strip ? j->width - strip : j->strip;
    const int64_t k = chunk * j->chunk;
    const int64_t n = j->cols - k < j->chunk ? j->cols - k : j->chunk;
    const int64_t row = outer * j->width + strip;

    void *value = after_strip(j, memory);
    uint64_t *found =
        (uint64_t *)value + j->strip; /* for arg, whose states have 8 bytes */
    int64_t *index = (int64_t *)found + j->strip;
    if (j->chunks > 1) {
        value = j->value + (chunk * j->rows + row) * j->state_bytes;
        index = j->arg ? j->index + chunk * j->rows + row : NULL;
    }
    cursor c;
    seek(&c, j->origin, j->kept, j->loops->bytes, row);
    seek(&c, c.at, j->reduced, j->loops->bytes, k);
    cursor again = c;
    if (j->arg) {
        if (!j->loops->places || !strip_places(j, &c, k, n, w, value, index, memory)) {
            strip_extreme(j, &again, k, n, w, value, index, memory, found);
        }
    }
    else {
        const char *folds = memory;
        const int64_t stride = j->gaps ? 1 : j->kept->strides[j->kept->ndim - 1];
        strip_fold(j, &c, n, j->gaps ? 2 * w - 1 : w, stride, memory);
        if (j->gaps) {
            char *near = (char *)memory + j->levels * j->node_bytes;
            pack_elements(near, memory, w, 2, j->loops->acc_bytes);
            folds = near;
        }
        if (j->direct) {
            store_direct(j, folds, w, row);
            return;
        }
        j->loops->widen(folds, w, value);
    }
    if (j->chunks == 1) {
        finish(j, value, j->arg ? index : NULL, row, w);
    }
}

/* Combines the chunks of COMBINE results in a fixed order and finishes them. */
static void
combine(void *context, int64_t i)
{
    job *j = context;
    const int64_t rows = j->rows * j->keep;
    const int64_t first = i * COMBINE;
    const int64_t n = rows - first < COMBINE ? rows - first : COMBINE;
    char *value = j->value + first * j->state_bytes;
    int64_t *index = j->arg ? j->index + first : NULL;
    if (!index) {
        for (int64_t step = 1; step < j->chunks; step *= 2) {
            for (int64_t k = 0; k + step < j->chunks; k += 2 * step) {
                j->combine->fold(value + k * rows * j->state_bytes,
                                 value + (k + step) * rows * j->state_bytes, n);
            }
        }
    }
    uint64_t *best = (uint64_t *)value;
    for (int64_t k = 1; index && k < j->chunks; k++) {
        for (int64_t r = 0; r < n; r++) {
            const state candidate = {.u = best[k * rows + r]}, old = {.u = best[r]};
            if (improves(j, old, candidate)) {
                best[r] = candidate.u;
                index[r] = index[k * rows + r];
            }
        }
    }
    finish(j, value, index, first, n);
}

/* ---- the variants ---- */

static const reduce_axes *
one_axis_at_least(const reduce_axes *axes)
{
    static const reduce_axes one = {1, {1}, {1}};
    return axes->ndim == 0 ? &one : axes;
}

/* The highest offset of an element on these axes. */
static int64_t
end_of(const reduce_axes *axes)
{
    int64_t end = 0;
    for (int d = 0; d < axes->ndim; d++) {
        end += axes->strides[d] > 0 ? (axes->shape[d] - 1) * axes->strides[d] : 0;
    }
    return end;
}

/* The initial value as BATCH states, in `memory`; NULL if none is given. */
static const void *
initial_states(const job *j, state memory[BATCH])
{
    const gpo_initial *initial = &j->plan->initial;
    for (int k = 0; initial->given && k < BATCH; k++) {
        char *at = (char *)memory + k * j->state_bytes;
        switch (j->loops->state) {
            case GPO_F64:
                memcpy(at, &initial->real, sizeof(double));
                break;
            case GPO_C128:
                memcpy(at, &(gpo_c128){initial->real, 0}, sizeof(gpo_c128));
                break;
            default:
                memcpy(at, &initial->whole, sizeof(int64_t));
        }
    }
    return initial->given ? memory : NULL;
}

static void
start(job *j, const gpo_call *call, gpo_isa isa, bool parallel, state memory[BATCH])
{
    j->plan = reduce_plan_of(call);
    j->rows = j->plan->rows, j->cols = j->plan->cols;
    j->keep = j->step = 1;
    j->kept = one_axis_at_least(&j->plan->kept);
    j->reduced = one_axis_at_least(&j->plan->reduced);
    const reduce_op op = j->plan->op;
    j->loops = find_loops(isa, op, call->in[0].dtype);
    j->origin = (const char *)call->in[0].data + j->plan->first * j->loops->bytes;
    j->combine = find_loops(isa, op, j->loops->state);
    const bool beyond_l2 = call->in[0].size * j->loops->bytes > CACHED;
    j->stream = find_stream(isa, beyond_l2, op, call->in[0].dtype);
    j->narrow = narrows[isa];
    j->arg = op == REDUCE_ARGMIN || op == REDUCE_ARGMAX;
    j->early = op == REDUCE_ANY || op == REDUCE_ALL;
    const bool sign = gpo_dtypes[call->in[0].dtype].kind == 'f';
    j->magnitude = sign ? ~(UINT64_C(1) << (8 * j->loops->bytes - 1)) : UINT64_MAX;
    j->parallel = parallel;
    j->state_bytes = gpo_dtypes[j->loops->state].bytes;
    j->initial = initial_states(j, memory);
    j->lanes = LANE_BYTES / j->loops->bytes;
    j->value = NULL;
    j->index = NULL;
    j->by_loads = false;
    j->end = j->origin + (end_of(j->kept) + end_of(j->reduced) + 1) * j->loops->bytes;
    atomic_init(&j->decided, false);
    j->out = call->out[0].data;
    j->out_dtype = call->out[0].dtype;
}

/* The results of empty rows. */
static void
finish_empty(const job *j)
{
    uint64_t zero[2 * BATCH] = {0};
    double one[2 * BATCH] = {0};
    const bool prod = j->plan->op == REDUCE_PROD;
    const gpo_dtype kind = j->loops->state;
    for (int k = 0; k < BATCH; k++) {
        zero[k] = prod; /* 1 as an integer */
        one[kind == GPO_C128 ? 2 * k : k] = prod;
    }
    const void *value = j->initial                            ? j->initial
                        : kind == GPO_F64 || kind == GPO_C128 ? (void *)one
                                                              : (void *)zero;
    for (int64_t r = 0; r < j->rows; r += BATCH) {
        const int64_t left = j->rows - r;
        store(j, value, NULL, left < BATCH ? left : BATCH,
              (char *)j->out + r * gpo_dtypes[j->out_dtype].bytes);
    }
}

/*
 * Kept axes in the order of memory, so that elements are read in that order: `kept` for
 * the elements, merged, and `places` for the results.
 */
typedef struct sorted_axes {
    reduce_axes kept, places;
} sorted_axes;

/* Uses `sorted`, and returns true, if results in their own order would jump through memory. */
static bool
sort_kept(job *j, sorted_axes *sorted)
{
    enum { WORTH_BYTES = 1 << 15, WORTH_KEPT_BYTES = 1 << 11 };
    const reduce_axes *axes = j->kept;
    reduce_axes *kept = &sorted->kept, *places = &sorted->places;
    const int64_t elements = j->rows * j->cols;
    bool in_order = true;
    int64_t least = llabs(axes->strides[0]);
    for (int d = 1; d < axes->ndim; d++) {
        const int64_t stride = llabs(axes->strides[d]);
        in_order = in_order && llabs(axes->strides[d - 1]) >= stride;
        least = least < stride ? least : stride;
    }
    const bool kept_last = least < llabs(j->reduced->strides[j->reduced->ndim - 1]);
    if (in_order ||
        elements * j->loops->bytes < (kept_last ? WORTH_KEPT_BYTES : WORTH_BYTES)) {
        return false;
    }
    int64_t place = 1;
    places->ndim = kept->ndim = 0;
    for (int d = axes->ndim - 1; d >= 0;
         d--) { /* the longest strides go to the front */
        int at = places->ndim++;
        for (; at > 0 && llabs(kept->strides[at - 1]) < llabs(axes->strides[d]); at--) {
            kept->strides[at] = kept->strides[at - 1];
            places->shape[at] = places->shape[at - 1];
            places->strides[at] = places->strides[at - 1];
        }
        kept->strides[at] = axes->strides[d];
        places->shape[at] = axes->shape[d];
        places->strides[at] = place;
        place *= axes->shape[d];
    }
    for (int d = 0; d < places->ndim; d++) { /* merges axes that one stride can walk */
        const int64_t stride = kept->strides[d], length = places->shape[d];
        const int end = kept->ndim;
        if (end > 0 && kept->strides[end - 1] == stride * length) {
            kept->shape[end - 1] *= length;
            kept->strides[end - 1] = stride;
        }
        else {
            kept->shape[end] = length;
            kept->strides[end] = stride;
            kept->ndim++;
        }
    }
    j->kept = kept;
    return true;
}

/* Whether neighbouring results lie closer together than the elements of one result. */
static bool
is_interleaved(const job *j)
{
    const reduce_axes *kept = j->kept, *reduced = j->reduced;
    const int64_t across = llabs(kept->strides[kept->ndim - 1]);
    const int64_t along = llabs(reduced->strides[reduced->ndim - 1]);
    return j->cols > 1 && kept->shape[kept->ndim - 1] > 1 && across < along;
}

/* Few neighbouring columns become one row of groups, whose lanes are kept apart. */
static void
find_groups(job *j, reduce_axes *groups, reduce_axes *row)
{
    const reduce_axes *kept = j->kept, *reduced = j->reduced;
    const int last = kept->ndim - 1;
    const int64_t width = kept->shape[last];
    const int64_t step = kept->strides[last], bytes = width * j->loops->bytes;
    const bool one_run = reduced->ndim == 1 && reduced->strides[0] == width * step;
    const bool narrow = bytes < NARROW_BYTES;
    const bool loads = width * step <= WIDEST_GROUP && width <= j->lanes &&
                       j->cols <= MOST_LOADS && j->cols * bytes * step <= GROUPS_BYTES;
    const bool long_run =
        one_run && bytes <= GROUPED_BYTES && width < GROUPED && j->cols > FEW_ROWS;
    if (j->arg || width < 2 || step < 1 || step > 2 || !is_interleaved(j) ||
        (!narrow && !loads && !long_run)) {
        return;
    }
    *groups = *kept, groups->ndim = last;
    *row = *reduced;
    reduce_push_axis(row, width, step);
    j->kept = one_axis_at_least(groups);
    j->reduced = row;
    j->keep = width;
    j->rows /= width, j->cols *= width;
    j->lanes -= j->lanes % width;
    j->stream = j->lanes * j->loops->bytes == LANE_BYTES ? j->stream : NULL;
}

/*
 * A long row of elements two apart is read with those between them, which are left out at
 * the end: packing takes longer than folding twice as many.
 */
static void
find_gaps(job *j, reduce_axes *row)
{
    const reduce_axes *reduced = j->reduced;
    if (j->arg || j->early || j->loops->extreme || j->keep > 1 || reduced->ndim != 1 ||
        reduced->strides[0] != 2 || j->cols <= SHORT_ROW ||
        j->loops->bytes < GAPS_BYTES) {
        return;
    }
    *row = (reduce_axes){1, {2 * j->cols - 1}, {1}};
    j->reduced = row;
    j->cols = row->shape[0];
    j->step = 2;
}

static int64_t
whole_lines(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Most nodes in use for a chunk of `blocks` leaves: one of each size, and the next. */
static int64_t
levels_of(int64_t blocks)
{
    int64_t levels = 2;
    for (; blocks > 1; blocks /= 2) {
        levels++;
    }
    return levels;
}

/* Sets the sizes of the scratch memory of a task on columns; returns their sum. */
static int64_t
size_strips(job *j)
{
    const int64_t widest =
        j->loops->acc_bytes > j->loops->bytes ? j->loops->acc_bytes : j->loops->bytes;
    const int64_t w = j->width < j->strip ? j->width : j->strip;
    const bool packed = j->kept->strides[j->kept->ndim - 1] != 1;
    j->levels = levels_of(ceil_div(j->cols < j->chunk ? j->cols : j->chunk, FOLD_ROWS));
    j->node_bytes = whole_lines((j->gaps ? 2 * w : w) * widest);
    j->pack_bytes = packed ? j->node_bytes : 0;
    j->strip = w;
    const int64_t columns =
        w * (j->arg ? 3 * (int64_t)sizeof(uint64_t) : j->state_bytes);
    return j->levels * j->node_bytes + FOLD_ROWS * j->pack_bytes + columns;
}

/* Sets run and runs.  Packing runs of 128 bytes takes longer than folding them in place. */
static void
find_runs(job *j)
{
    const int last = j->reduced->ndim - 1;
    const int64_t run = j->reduced->shape[last], step = j->reduced->strides[last];
    const bool near = step == 1 || (step == 2 && j->loops->bytes >= GAPS_BYTES);
    const bool whole = j->chunks == 1 && j->keep == 1 && !j->arg && !j->early;
    j->run = 0;
    if (whole && last > 0 && near && run >= SHORT_RUN && run * step <= j->lanes) {
        j->run = run;
        j->step = step;
        j->runs = *j->reduced, j->runs.ndim = last;
    }
}

/* The same for a task on rows: short rows need no tree, only packed elements. */
static int64_t
size_rows(job *j)
{
    const reduce_axes *axes = j->reduced;
    const row_loads *l = &j->loads;
    if (j->by_loads) {
        return (l->full + l->part) * l->blocks * SHORT_ROW_LANES * j->loops->bytes;
    }
    find_runs(j);
    if (j->run > 0) {
        j->levels = levels_of(ceil_div(j->cols / j->run, FOLD_ROWS));
        j->node_bytes = whole_lines(j->run * j->step * j->loops->acc_bytes);
        j->pack_bytes = 0;
        return j->levels * j->node_bytes;
    }
    const bool packed = axes->ndim > 1 || axes->strides[0] != 1;
    const bool fold_rows = !j->arg && (j->cols > SHORT_ROW || j->keep > 1);
    j->pack_bytes = !packed ? 0 : j->arg ? PIECE_BYTES : FOLD_ROWS * LANE_BYTES;
    const int64_t most = j->cols < j->chunk ? j->cols : j->chunk;
    j->levels = levels_of(ceil_div(most, FOLD_ROWS * j->lanes));
    j->node_bytes = fold_rows ? j->lanes * j->loops->acc_bytes : 0;
    return j->pack_bytes + j->levels * j->node_bytes;
}

static gpo_status
run(gpo_call *call, bool parallel)
{
    job j;
    state initial[BATCH];
    start(&j, call, gpo_cpu_isa(), parallel, initial);
    if (j.rows == 0) {
        return GPO_OK;
    }
    if (j.cols == 0) {
        finish_empty(&j);
        return GPO_OK;
    }

    sorted_axes sorted;
    const bool elsewhere = sort_kept(&j, &sorted);
    void *const out = j.out;
    if (elsewhere) {
        const size_t size = (size_t)(j.rows * gpo_dtypes[j.out_dtype].bytes);
        const gpo_status status = gpo_scratch(call, size, &j.out);
        if (status) {
            return status;
        }
    }
    reduce_axes groups, row;
    find_groups(&j, &groups, &row);
    j.interleaved = is_interleaved(&j);
    const bool columns =
        j.interleaved && j.keep == 1 &&
        j.kept->shape[j.kept->ndim - 1] * j.loops->bytes >= NARROW_BYTES;
    if (!columns) {
        find_loads(&j);
    }
    if (!j.interleaved && !j.by_loads) {
        find_gaps(&j, &row);
    }
    int64_t tasks, bytes_each;
    if (columns) {
        const int64_t widest =
            j.loops->acc_bytes > j.loops->bytes ? j.loops->acc_bytes : j.loops->bytes;
        j.width = j.kept->shape[j.kept->ndim - 1];
        j.outers = j.rows / j.width;
        j.chunk = STRIP_ROWS;
        j.chunks = ceil_div(j.cols, j.chunk);
        j.gaps = j.kept->strides[j.kept->ndim - 1] == 2 &&
                 (j.loops->bytes > 2 || !j.loops->extreme || j.arg);
        j.strip = STRIP_BYTES / widest / (j.gaps ? 2 : 1);
        j.strip = j.strip < STRIP_COLUMNS ? j.strip : STRIP_COLUMNS;
        const int64_t threads = j.parallel ? gpo_cpu_threads() : 1;
        const int64_t wanted = STRIPS < 3 * threads ? STRIPS : 3 * threads;
        while (threads > 1 && j.strip > LEAST_STRIP &&
               j.outers * j.chunks * ceil_div(j.width, j.strip) < wanted) {
            j.strip /= 2;
        }
        bytes_each = size_strips(&j);
        j.strips = ceil_div(j.width, j.strip);
        tasks = j.outers * j.strips * j.chunks;
    }
    else {
        j.chunk = CHUNK_BLOCKS * FOLD_ROWS * j.lanes;
        j.chunks = ceil_div(j.cols, j.chunk);
        j.group = GROUP_BYTES / (j.cols * j.loops->bytes) + 1;
        bytes_each = size_rows(&j);
        tasks = j.chunks > 1 ? j.rows * j.chunks : ceil_div(j.rows, j.group);
    }

    j.direct = is_direct(&j);
    if (j.chunks > 1) {
        const size_t states = (size_t)(j.chunks * j.rows * j.keep);
        const size_t bytes = states * (size_t)j.state_bytes;
        void *memory = NULL;
        gpo_status status =
            gpo_scratch(call, bytes + (j.arg ? states * sizeof(int64_t) : 0), &memory);
        if (status) {
            return status;
        }
        j.value = memory;
        j.index = (int64_t *)(j.value + bytes);
    }
    const size_t each = (size_t)bytes_each;
    gpo_status status = GPO_OK;
    if (columns) {
        status = gpo_cpu_work(call, j.parallel, tasks, each, column_strip, &j);
    }
    else if (is_copy(&j, call->in[0].dtype)) {
        status = gpo_cpu_work(call, j.parallel, tasks, 0, copy_group, &j);
    }
    else if (j.chunks == 1) {
        status = gpo_cpu_work(call, j.parallel, tasks, each,
                              j.by_loads ? load_group : row_group, &j);
    }
    else {
        if (j.early && j.rows == 1 && j.keep == 1) { /* the first chunk often decides */
            status = gpo_cpu_work(call, false, 1, each, row_chunk, &j);
            if (j.decided) {
                finish(&j, j.value, NULL, 0, 1);
                return GPO_OK;
            }
        }
        if (!status) {
            status = gpo_cpu_work(call, j.parallel, tasks, each, row_chunk, &j);
        }
    }
    if (!status && j.chunks > 1) {
        gpo_cpu_loop(j.parallel, ceil_div(j.rows * j.keep, COMBINE), combine, &j);
    }
    if (!status && elsewhere) {
        place_results(&j, &sorted.places, j.out, out);
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

#include "scalar.inc"

/* ---- choose ---- */

static const gpo_variant variants[] = {
    [GPO_CPU_SCALAR] = {"scalar",
                        "one element after the other, in groups of 16",
                        "",
                        "run-to-run",
                        {GPO_EVERY_DTYPE(run_scalar)}},
    [GPO_CPU_SIMD] = {"simd",
                      "whole rows of a block at once, pairwise, in vector registers",
                      "",
                      "run-to-run",
                      {GPO_EVERY_DTYPE(run_simd)}},
    [GPO_CPU_THREADS] = {"threads",
                         "simd on chunks of fixed size, shared out among threads",
                         "",
                         "run-to-run",
                         {GPO_EVERY_DTYPE(run_threads)}},
    {.name = NULL},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    enum { PAYS = 1 << 19 }; /* bytes */
    const gpo_array *x = &call->in[0];
    return gpo_cpu_choose(
        variants, x->size >= PAYS / gpo_dtypes[x->dtype].bytes,
        "under 512 KiB of input starting threads costs more than they save",
        "from 512 KiB of input on several threads pay", why);
}

const gpo_table reduce_cpu = {variants, choose};
