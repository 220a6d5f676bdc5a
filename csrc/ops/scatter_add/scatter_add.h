/*
 * scatter_add.h  What op.c works out once and every variant of scatter_add reads: the
 * strides of values and indices, what an index means.  See op.c for the contract.
 */
#ifndef GPO_SCATTER_ADD_H
#define GPO_SCATTER_ADD_H

#include "../../core/gpo.h"
#include "../../core/index.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SCATTER_ADD_VALUES, SCATTER_ADD_INDEX }; /* places in gpo_call.in */

/* The stride of an input's elements in C order. */
typedef struct scatter_add_line {
    bool is_line;   /* one stride for all */
    int64_t stride; /* in elements */
} scatter_add_line;

typedef struct scatter_add_plan {
    int64_t n;    /* elements of values and of index */
    int64_t size; /* of the result */
    gpo_index_mode mode;
    bool deterministic;
    bool is_unsigned; /* the index is uint64: no negative numbers */
    bool late; /* `out` is the caller's: written once every index is known good */
    scatter_add_line line[2]; /* of the values, of the index */
} scatter_add_plan;

static inline const scatter_add_plan *
scatter_add_plan_of(const gpo_call *call)
{
    return (const scatter_add_plan *)call->plan;
}

/* The IndexError of the index at a position in C order; `raw` is its bits. */
gpo_status scatter_add_refuse(gpo_call *call, int64_t raw, int64_t position);

#ifdef __cplusplus
}
#endif
#endif
