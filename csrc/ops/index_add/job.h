/*
 * job.h  What every part of index_add on the CPU reads.  Order: the inner loops of three
 * instruction sets, the job, positions.  Only cpu.c includes it.  See sums.h and sums.inc
 * for the types of sums.
 *
 * An index entry is loaded once, checked and used: another thread may change the array.
 */
#ifndef GPO_INDEX_ADD_JOB_H
#define GPO_INDEX_ADD_JOB_H

#include "sums.h"

#include "../../core/ascending.h"
#include "../../core/once.h"
#include "../../core/prefetch.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum {
    LONG_ROW = 512, /* bytes of a row of the source, the next of which are prefetched */
    SOURCE_AHEAD = 2, /* so many rows */
    PART = 256,       /* elements of a row of float16 that are widened at once */
};
enum {
    WIDE_ROWS_AHEAD = 4, /* as ELEMENTS_AHEAD, of rows of more than one element */
    ROWS_AHEAD = 16,     /* of rows that are converted */
};

/*
 * Neighbouring destinations are a bucket.  Before a bucket can have more than a few rows,
 * its sums in out are moved to float64 sums of its own.  See buckets.h.
 */
enum {
    BUCKETS = 1 << 10,
    BUCKET_ROWS = 64, /* of an index that are counted before they are added */
    WAYS = 4,
    IS_FULL = 128, /* a bit of the rows of a bucket that is full, in one of its ways */
};

typedef struct buckets {
    /* rows since the sums were moved; every WAYS-th is counted in one array, as a count
       that was just stored would be awaited */
    uint16_t seen[WAYS][BUCKETS];
    int16_t rank[BUCKETS]; /* of its sums; -1: it has none */
    int64_t used, most;    /* buckets with sums; those that there is memory for */
    int shift;             /* 2^shift destinations are a bucket */
    double *sums;
} buckets;

/* Rows of float16 that are widened together, or a part of one. */
typedef struct widened_rows {
    float part[PART];
    const float *next;
    int64_t at_once, ready; /* rows of a part; those that are left */
} widened_rows;

typedef struct loops {
    int bytes; /* of a sum */
    /*
     * For rows of one element of slice 0: adds the rows from `source` on, whose entries
     * start at `index`, to `to`.  Returns how many it added, at most n: it stops before
     * an entry out of range, which the mode must settle, and before a full bucket, if
     * float32 sums have any.
     */
    int64_t (*lone)(void *to, const void *index, const void *source, int64_t n,
                    const index_add_plan *p, buckets *all);
    /*
     * to[k[i] * pitch + c] += alpha * row rows[i], column c of the source, c < w; rows
     * may be NULL, for row i, and must be if w is 1.
     */
    void (*add)(void *to, int64_t pitch, const int64_t *k, const int64_t *rows,
                int64_t n, const void *source, int64_t w, const index_add_plan *p);
    void (*merge)(void *to, const void *from, int64_t n);
    void (*open)(void *to, const void *from, int64_t n);  /* elements to sums */
    void (*close)(void *to, const void *from, int64_t n); /* sums to elements */
    /* the same for columns [0, w) of the rows k[0..n), which are `pitch` apart */
    void (*open_rows)(void *to, const void *from, int64_t pitch, const int64_t *k,
                      int64_t n, int64_t w);
    void (*close_rows)(void *to, const void *from, int64_t pitch, const int64_t *k,
                       int64_t n, int64_t w);
    void (*copy_entries)(const index_add_plan *p, const void *index, int64_t n,
                         int64_t *k);
    bool (*count_from_end)(int64_t length, int64_t n, int64_t *k);
    bool (*are_good)(const index_add_plan *p, const void *index, int64_t n);
} loops;

/* The loops of an ascending index of rows of one element; sum: NULL for other dtypes. */
typedef struct runs {
    ascending_check ascends;
    ascending_sum sum[GPO_NDTYPES];
} runs;

/* ---- the inner loops of three instruction sets ---- */

#define GPO_LOOPS "../ops/index_add/loops.inc"
#include "../../core/each_isa.h"

/* ---- the job: what every part of one call reads ---- */

enum {
    BLOCK = 1024,       /* index entries made positions at once */
    SLICE_BYTES = 64,   /* of a row: the least that a thread takes */
    MAX_STRETCHES = 16, /* of the source, with sums of their own */
    ADDED_PER_SUM = 4,  /* elements added for each sum that is cleared and merged */
    MAX_PIECES = 512,   /* that the threads share */
    RANGE_BYTES = 256,  /* of a row, for each range of destinations */
    MOST_RANGES = 8,
    SMALL = 1 << 16,        /* bytes copied at once */
    COUNTED = 16,           /* columns from which counting the rows first pays */
    WORTH_A_TEAM = 1 << 12, /* elements from which a team of threads starts */
    TOGETHER = 1 << 10, /* destinations that end with the same bits, counted together */
    MOSTLY_COPIED = 32, /* destinations for each row: copying x is most of the work */
    SPARSE = 3,         /* destinations for each source row, so that most have none */
    BUCKETED =
        1 << 18, /* rows counted by buckets, at most: of uniform ones few are moved */
};

typedef struct job {
    const index_add_plan *plan;
    const gpo_array *x, *out;
    const char *index, *source;
    const loops *loops;
    int kind;         /* of sums, see sums.h */
    int bytes;        /* of an element, with both parts if it is complex */
    int part_bytes;   /* of an element of plan.dtype */
    char *sums;       /* outer x length x inner: out itself, or wider */
    char *own;        /* stretches - 1 tables of length x inner sums, or one in turn */
    bool is_checked;  /* the whole index is known to be good, but may change */
    buckets *buckets; /* NULL: rows are not counted by buckets */
    bool is_sparse;   /* only the sums of destinations that have rows are used */
    int64_t slices;   /* of the columns */
    int64_t ranges;   /* of destinations */
    int64_t stretches;
    int64_t o;               /* the slice whose stretches are added */
    int64_t bad[MAX_PIECES]; /* the first bad position that a piece found */
} job;

/* ---- positions ---- */

/* The address of index entry s, and its value. */
static const void *
entry(const job *j, int64_t s)
{
    const index_add_plan *p = j->plan;
    const int64_t bytes = p->is_wide ? sizeof(int64_t) : sizeof(int32_t);
    return j->index + s * p->step * bytes;
}

static int64_t
index_value(const job *j, int64_t s)
{
    const void *at = entry(j, s);
    return j->plan->is_wide ? ONCE((const int64_t *)at) : ONCE((const int32_t *)at);
}

/* The destination of an index entry; -1 if it is out of range. */
static int64_t
position_of(const index_add_plan *p, int64_t k)
{
    return k >= 0 && k < p->length ? k : gpo_index_place(k, p->length, p->mode, false);
}

/* Positions of n entries from `first` on; returns how many come before a bad one. */
static int64_t
positions_of(const job *j, int64_t first, int64_t n, int64_t *k)
{
    const index_add_plan *p = j->plan;
    j->loops->copy_entries(p, entry(j, first), n, k);
    COPIED();
    if (p->mode != GPO_INDEX_CLIP) { /* which makes a negative entry 0 */
        if (j->loops->count_from_end(p->length, n, k)) {
            return n;
        }
        for (int64_t i = 0; i < n && p->mode == GPO_INDEX_RAISE; i++) {
            if (k[i] < 0 || k[i] >= p->length) {
                return i;
            }
        }
    }
    for (int64_t i = 0; i < n; i++) {
        k[i] = position_of(p, k[i]);
    }
    return n;
}

/* The first of the positions in bad[0..n); count if there is none. */
static int64_t
first_bad(const job *j, int64_t n)
{
    int64_t first = j->plan->count;
    for (int64_t i = 0; i < n; i++) {
        first = j->bad[i] < first ? j->bad[i] : first;
    }
    return first;
}

static gpo_status
raise_bad(gpo_call *call, const job *j, int64_t place)
{
    if (place == j->plan->count) {
        return GPO_OK;
    }
    return index_add_out_of_range(call, index_value(j, place), place);
}

/* The first bad position in [begin, end); count if there is none. */
static int64_t
check(const job *j, int64_t begin, int64_t end)
{
    int64_t k[BLOCK];
    for (int64_t s = begin; s < end; s += BLOCK) {
        const int64_t n = end - s < BLOCK ? end - s : BLOCK;
        if (j->loops->are_good(j->plan, entry(j, s), n)) {
            continue;
        }
        const int64_t good = positions_of(j, s, n, k);
        if (good < n) {
            return s + good;
        }
    }
    return j->plan->count;
}

#endif
