/*
 * memory_order.cuh  Which calls of `columns` memory_order.cu takes.
 */
#ifndef GPO_REDUCE_MEMORY_ORDER_CUH
#define GPO_REDUCE_MEMORY_ORDER_CUH

#include "views.cuh"

/* Whether the place of the extreme of all elements is asked for, and these fill a run of
   memory with several axes in another order. */
inline bool
is_out_of_order(const reduce_plan &plan)
{
    const bool asks = plan.op == REDUCE_ARGMIN || plan.op == REDUCE_ARGMAX;
    if (!asks || plan.rows != 1 || plan.kept.ndim > 0 || plan.reduced.ndim < 2 ||
        plan.reduced.ndim > FEW_AXES || plan.cols == 0) {
        return false;
    }
    reduce_axes axes = plan.reduced;
    bool positive = true;
    for (int d = 0; d < axes.ndim; d++) {
        positive = positive && axes.strides[d] > 0;
    }
    sort_by_distance(&axes);
    const reduce_axes whole = merged(axes);
    return positive && whole.ndim == 1 && whole.strides[0] == 1;
}

template <typename T>
gpo_status reduce_memory_order(gpo_call *call);

#endif
