/*
 * scatter_add.h  What the variants of scatter_add read of a call: where values and
 * indices lie, what an index means.  Not here: the contract (op.c).
 */
#ifndef GPO_SCATTER_ADD_H
#define GPO_SCATTER_ADD_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SCATTER_ADD_VALUES, SCATTER_ADD_INDEX }; /* places in gpo_call.in */

typedef enum scatter_add_mode {
    SCATTER_ADD_RAISE,
    SCATTER_ADD_WRAP,
    SCATTER_ADD_CLIP,
} scatter_add_mode;

typedef struct scatter_add_plan {
    int64_t n;    /* elements of values and of index */
    int64_t size; /* of the result */
    scatter_add_mode mode;
    bool deterministic;
    bool is_unsigned; /* the index is uint64: no negative numbers */
    bool late; /* `out` is the caller's: written once every index is known good */
} scatter_add_plan;

void scatter_add_make_plan(const gpo_call *call, scatter_add_plan *plan);

/* Whether the elements in C order lie at one distance, `*stride` elements. */
bool scatter_add_is_line(const gpo_array *a, int64_t *stride);

/* The IndexError of the index at a position in C order; `raw` is its bits. */
gpo_status scatter_add_refuse(gpo_call *call, const scatter_add_plan *plan, int64_t raw,
                              int64_t position);

#ifdef __cplusplus
}
#endif
#endif
