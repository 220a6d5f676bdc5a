/*
 * index_add.h  What op.c works out once and every variant of index_add reads: the call
 * as `outer` slices of `count` source rows that are added to `length` destinations.
 */
#ifndef GPO_INDEX_ADD_H
#define GPO_INDEX_ADD_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum index_add_mode {
    INDEX_ADD_RAISE,
    INDEX_ADD_WRAP,
    INDEX_ADD_CLIP
} index_add_mode;

/*
 * Up to so many rows of the source a chosen variant may add in float32, one after the
 * other: what has more is added in float64, or in sums of parts of at most so many.
 */
enum { INDEX_ADD_FEW_ROWS = 1024 };

/*
 * out[(o * length + k) * inner + c] += alpha * source[o * by_outer + s * by_row +
 * c * by_inner] for every o < outer, s < count, c < inner, where k is index[s * step]
 * made a position by `mode`.  Strides are in elements of `dtype`.
 */
typedef struct index_add_plan {
    index_add_mode mode;
    gpo_dtype dtype; /* float32 or float64 for complex: the parts are two columns */
    bool is_first;   /* an index out of range must be found before out is written */
    int64_t outer, length, count, inner;
    const void *source;
    int64_t by_outer, by_row, by_inner;
    const void *index;
    int64_t step;
    bool is_wide; /* the index is int64, else int32 */
    bool is_scaled;
    int64_t whole; /* alpha for whole numbers, modulo 2^64 */
    double alpha;
} index_add_plan;

/* The plan of a call whose arguments index_add's shape rule has accepted. */
void index_add_make_plan(const gpo_call *call, index_add_plan *plan);

/* The option deterministic=. */
bool index_add_is_deterministic(const gpo_call *call);

/* The IndexError of mode='raise': the first bad index stands at `position`. */
gpo_status index_add_out_of_range(gpo_call *call, const index_add_plan *plan,
                                  int64_t value, int64_t position);

#ifdef __cplusplus
}
#endif
#endif
