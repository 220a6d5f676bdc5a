/*
 * rungs.cuh  Shared by the rungs of elementwise on the host: operands, the shapes that
 * v2 takes, and the declarations of the rungs, each a translation unit.
 */
#ifndef GPO_ELEMENTWISE_RUNGS_CUH
#define GPO_ELEMENTWISE_RUNGS_CUH

#include "../../device/grid.cuh"
#include "elementwise.h"
#include "tuning.cuh"

/* Operand k; the first one if there is no operand k. */
template <typename T>
const T *
operand(const gpo_call *call, int k)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    return static_cast<const T *>(call->in[plan.input[k < plan.inputs ? k : 0]].data);
}

template <typename T>
T *
result(const gpo_call *call)
{
    return static_cast<T *>(call->out[0].data);
}

/* Whether v2 can walk the axes as rows: the last one is contiguous or repeated. */
inline bool
elementwise_has_rows(const elementwise_plan &plan)
{
    const int last = plan.ndim - 1;
    bool good = plan.ndim <= FEW_AXES;
    for (int k = 0; k < plan.inputs && last >= 0; k++) {
        const int64_t stride = plan.strides[k][last];
        good = good && (stride == 1 || stride == 0);
    }
    const int64_t bytes = gpo_dtypes[plan.to].bytes;
    return good && (plan.ndim <= 1 || plan.shape[last] >= LONG_ROW_BYTES / bytes);
}

/* ---- the ladder ---- */

gpo_status elementwise_v0(gpo_call *call);
gpo_status elementwise_v1(gpo_call *call);
gpo_status elementwise_v2(gpo_call *call);

#endif
