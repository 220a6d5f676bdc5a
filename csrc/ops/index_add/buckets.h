/*
 * buckets.h  Sums of short rows of narrow floats on the CPU, of which some destinations
 * may have many: those of a bucket that is full are moved to float64.  Order: the buckets,
 * sums moved and moved back.  Only cpu.c includes it: see add_counted there.
 */
#ifndef GPO_INDEX_ADD_BUCKETS_H
#define GPO_INDEX_ADD_BUCKETS_H

#include "job.h"

#include <math.h>

/* Takes memory for the buckets, and for the sums of as many as can be full. */
static gpo_status
take_buckets(gpo_call *call, job *j)
{
    const index_add_plan *p = j->plan;
    int shift = 0;
    while (p->length > (int64_t)BUCKETS << shift) {
        shift++;
    }
    /* before sums are moved some rows, one in a way, have been counted twice */
    const int64_t full = p->count / (IS_FULL - WAYS),
                  most = full < BUCKETS ? full : BUCKETS;
    const size_t sums_bytes = (size_t)((most * p->inner) << shift) * sizeof(double);
    void *memory = NULL;
    const gpo_status status = gpo_scratch(call, sizeof(buckets) + sums_bytes, &memory);
    if (!status) {
        j->buckets = memory;
        memset(j->buckets->seen, 0, sizeof j->buckets->seen);
        memset(j->buckets->rank, -1, sizeof j->buckets->rank);
        j->buckets->used = 0;
        j->buckets->most = most;
        j->buckets->shift = shift;
        j->buckets->sums = (double *)(j->buckets + 1);
    }
    return status;
}

/* ---- sums moved to float64 ---- */

/* Moves the sums of bucket b. */
static void
move_sums(const job *j, int64_t b)
{
    buckets *all = j->buckets;
    const bool is_new = all->rank[b] < 0;
    for (int w = 0; w < WAYS; w++) {
        all->seen[w][b] = 0;
    }
    if (is_new && all->used == all->most) {
        return; /* only if another thread changes the index */
    }
    all->rank[b] = is_new ? (int16_t)all->used++ : all->rank[b];
    const int64_t inner = j->plan->inner, each = inner << all->shift;
    const int64_t left = j->plan->length * inner - b * each,
                  n = left < each ? left : each;
    float *restrict from = (float *)j->sums + b * each;
    double *restrict sum = all->sums + all->rank[b] * each;
    for (int64_t k = 0; k < n; k++) {
        const bool moves = from[k] == from[k]; /* a nan keeps its bits where it is */
        const double before = is_new ? -0.0 : sum[k]; /* any x plus -0.0 is x */
        sum[k] = moves ? before + from[k] : before;
        from[k] = moves ? -0.0F : from[k];
    }
}

/* Counts n rows; the sums of full buckets are moved before. */
static void
count_in_buckets(const job *j, int64_t n, const int64_t *k)
{
    buckets *all = j->buckets;
    for (int64_t i = 0; i < n; i++) {
        const int64_t b = k[i] >> all->shift;
        int seen = 0;
        for (int w = 0; w < WAYS; w++) {
            seen |= all->seen[w][b];
        }
        if (seen & IS_FULL) {
            move_sums(j, b);
        }
        all->seen[i % WAYS][b]++;
    }
}

/* Adds all moved sums to the others. */
static void
move_back(const job *j)
{
    const buckets *all = j->buckets;
    const int64_t inner = j->plan->inner, each = inner << all->shift;
    for (int64_t b = 0; b < BUCKETS; b++) {
        if (all->rank[b] < 0) {
            continue;
        }
        const int64_t left = j->plan->length * inner - b * each;
        float *to = (float *)j->sums + b * each;
        const double *sum = all->sums + all->rank[b] * each;
        for (int64_t k = 0; k < each && k < left; k++) {
            to[k] = isnan(to[k]) ? to[k] : (float)(sum[k] + to[k]);
        }
    }
}

#endif
