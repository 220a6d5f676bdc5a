/*
 * index_add.h  What op.c works out once and every variant of index_add reads: the call
 * as `outer` slices of `count` source rows that are added to `length` destinations.
 */
#ifndef GPO_INDEX_ADD_H
#define GPO_INDEX_ADD_H

#include "../../core/gpo.h"
#include "../../core/index.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A variant that `auto` chooses adds at most this many source rows one after the other
 * in float32; more are added in float64, or as partial sums of at most this many rows.
 */
enum { INDEX_ADD_FEW_ROWS = 1024 };

/* Rows for each destination, on average, from which destinations are hot: sums in shared
   memory keep their additions apart. */
enum { INDEX_ADD_MANY_ROWS = 16 };

/*
 * out[(o * length + k) * inner + c] += alpha * source[o * by_outer + s * by_row +
 * c * by_inner] for every o < outer, s < count, c < inner, where `mode` turns
 * index[s * step] into the position k.  Strides are in elements of `dtype`.
 */
typedef struct index_add_plan {
    bool is_deterministic;
    gpo_index_mode mode;
    gpo_dtype dtype; /* float32 or float64 for complex: the parts are two columns */
    bool is_first;   /* an index out of range must be found before out is written */
    int axis;
    int64_t outer, length, count, inner;
    int64_t by_outer, by_row, by_inner;
    int64_t step;
    bool is_wide; /* the index is int64, else int32 */
    bool is_scaled;
    int64_t whole; /* alpha for integers, modulo 2^64 */
    double alpha;
} index_add_plan;

static inline const index_add_plan *
index_add_plan_of(const gpo_call *call)
{
    return (const index_add_plan *)call->plan;
}

/* Whether destinations have many rows. */
static inline bool
index_add_has_many_rows(const index_add_plan *plan)
{
    return plan->count >= INDEX_ADD_MANY_ROWS * plan->length;
}

/* The IndexError of mode='raise': the first bad index is at `position`. */
gpo_status index_add_out_of_range(gpo_call *call, int64_t value, int64_t position);

#ifdef __cplusplus
}
#endif
#endif
