/*
 * buckets.h  Rows of one float32 on the CPU, of which some destinations may have many.
 * Order: rows counted by buckets of destinations, sums moved to float64.  Only cpu.c
 * includes it: see add_lone there.
 */
#ifndef GPO_INDEX_ADD_BUCKETS_H
#define GPO_INDEX_ADD_BUCKETS_H

#include "job.h"

#include <math.h>

/* ---- rows counted by buckets ---- */

/* Rows of a way from which a bucket may be full before the next rows are counted, too. */
enum { FULL = (INDEX_ADD_FEW_ROWS - 2 * COUNTED_ROWS) / WAYS };

/*
 * Neighbouring destinations are a bucket.  Before a bucket can have more than a few rows,
 * its sums in out are moved to float64 sums of its own.
 */
typedef struct buckets {
    /* rows since the sums were moved; every WAYS-th is counted in one array, as a count
       that was just stored would be awaited */
    uint32_t seen[WAYS][BUCKETS];
    int16_t rank[BUCKETS]; /* of its sums; -1: it has none */
    int64_t used;          /* buckets with sums */
    int shift;             /* 2^shift destinations are a bucket */
    double *sums;
} buckets;

/* Counts n destinations; returns whether a bucket may be full. */
static bool
count_buckets(buckets *all, int64_t n, const int64_t *k)
{
    uint32_t most = 0;
    int64_t i = 0;
    for (; i + WAYS <= n; i += WAYS) {
        for (int w = 0; w < WAYS; w++) {
            const uint32_t seen = ++all->seen[w][k[i + w] >> all->shift];
            most = seen > most ? seen : most;
        }
    }
    for (; i < n; i++) {
        all->seen[0][k[i] >> all->shift]++;
    }
    return most > FULL;
}

static int64_t
rows_of(const buckets *all, int64_t b)
{
    int64_t rows = 0;
    for (int w = 0; w < WAYS; w++) {
        rows += all->seen[w][b];
    }
    return rows;
}

/* ---- sums moved to float64 ---- */

/* Moves the sums of bucket b. */
static void
move_sums(const job *j, buckets *all, int64_t b)
{
    const bool is_new = all->rank[b] < 0;
    all->rank[b] = is_new ? (int16_t)all->used++ : all->rank[b];
    for (int w = 0; w < WAYS; w++) {
        all->seen[w][b] = 0;
    }
    const int64_t first = b << all->shift, left = j->plan->length - first;
    const int64_t n = left < (int64_t)1 << all->shift ? left : (int64_t)1 << all->shift;
    float *restrict out = (float *)j->sums + first;
    double *restrict sum = all->sums + ((int64_t)all->rank[b] << all->shift);
    for (int64_t k = 0; k < n; k++) {
        const bool moves = out[k] == out[k]; /* a nan keeps its bits where it is */
        const double before = is_new ? -0.0 : sum[k]; /* any x plus -0.0 is x */
        sum[k] = moves ? before + out[k] : before;
        out[k] = moves ? -0.0F : out[k];
    }
}

/* Moves the sums of the buckets that n more rows might bring beyond a few. */
static void
move_full(const job *j, buckets *all)
{
    for (int64_t b = 0; b < BUCKETS; b++) {
        uint32_t most = 0;
        for (int w = 0; w < WAYS; w++) {
            most = all->seen[w][b] > most ? all->seen[w][b] : most;
        }
        if (most > FULL) {
            move_sums(j, all, b);
        }
    }
}

/* Adds all moved sums to out. */
static void
move_back(const job *j, const buckets *all)
{
    for (int64_t k = 0; k < j->plan->length; k++) {
        const int64_t rank = all->rank[k >> all->shift],
                      each = (int64_t)1 << all->shift;
        float *out = (float *)j->sums + k;
        if (rank < 0) {
            k |= each - 1; /* the next bucket */
        }
        else if (!isnan(*out)) {
            *out = (float)(all->sums[(rank << all->shift) + (k & (each - 1))] + *out);
        }
    }
}

#endif
