/*
 * elementwise.h  The plan of elementwise, made by op.c and read by every variant: which
 * loop, of which element type, over which operands.
 */
#ifndef GPO_ELEMENTWISE_H
#define GPO_ELEMENTWISE_H

#include "../../core/gpo.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum elementwise_functor {
#define FUNCTOR(name, ...) ELEMENTWISE_##name,
#include "functors.def"
#undef FUNCTOR
    ELEMENTWISE_NFUNCTORS
} elementwise_functor;

enum { ELEMENTWISE_INPUTS = 3 };

/*
 * Element i of the result is at row-major position i of the axes; the result itself is
 * contiguous.  Adjacent axes that every operand walks with one stride are merged, axes
 * of length 1 dropped: a contiguous problem has one axis, a single element none.
 *
 * The loop may be that of another functor or type that gives the same bits: signed
 * integers share the unsigned loops, bool adds with `maximum`, `clip` with one bound is
 * `maximum` or `minimum`, and an operation that changes nothing is a `cast` from a type
 * of that width to itself.
 */
typedef struct elementwise_plan {
    elementwise_functor functor;
    gpo_dtype type; /* of the loop's operands, except where's condition */
    gpo_dtype to;   /* of the result; differs from `type` in cast and in complex abs */
    int inputs;     /* operands: those of the call that are present */
    int input[ELEMENTWISE_INPUTS]; /* operand k is call->in[input[k]] */
    int bytes[ELEMENTWISE_INPUTS]; /* of an element */
    int64_t size;
    int ndim;
    int64_t shape[GPO_MAX_DIMS];
    int64_t strides[ELEMENTWISE_INPUTS][GPO_MAX_DIMS]; /* in elements */
} elementwise_plan;

static inline const elementwise_plan *
elementwise_plan_of(const gpo_call *call)
{
    return (const elementwise_plan *)call->plan;
}

/* Whether operand k is a single element, broadcast to the whole result. */
bool elementwise_is_scalar(const elementwise_plan *plan, int k);

/* Whether every operand is a scalar or has the layout of the result. */
bool elementwise_is_flat(const elementwise_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
