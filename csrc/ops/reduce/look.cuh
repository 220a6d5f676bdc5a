/*
 * look.cuh  What the choice sees of a call.
 */
#ifndef GPO_REDUCE_LOOK_CUH
#define GPO_REDUCE_LOOK_CUH

#include "views.cuh"

struct reduce_look {
    const gpo_call *call;
    const reduce_plan *plan;
    int64_t rows, cols, processors;
    int64_t element, row, run; /* bytes of an element, of a row, of a run of it */
    bool has_places;           /* argmin and argmax */
    bool is_many;              /* rows: enough for a warp of each SM */
    bool is_uneven;            /* rows are no whole packs of 16 bytes */
};

inline reduce_look
look_at(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const reduce_axes &reduced = plan.reduced;
    const int64_t processors = gpo_processors(call);
    const int64_t element = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t row = plan.cols * element;
    const int64_t run =
        reduced.ndim > 0 ? reduced.shape[reduced.ndim - 1] * element : element;
    return {call,
            &plan,
            plan.rows,
            plan.cols,
            processors,
            element,
            row,
            run,
            plan.op == REDUCE_ARGMIN || plan.op == REDUCE_ARGMAX,
            plan.rows >= processors * MANY_ROWS,
            row % 16 != 0};
}

inline bool
has_block_rows(const reduce_look &look)
{
    return are_block_rows(*look.plan, static_cast<int>(look.element));
}

#endif
