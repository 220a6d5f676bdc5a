/*
 * choice.cuh  The kernel that a call of reduce runs on CUDA, see choice.cu.
 */
#ifndef GPO_REDUCE_CHOICE_CUH
#define GPO_REDUCE_CHOICE_CUH

#include "views.cuh"

/* The rows of the table in cuda.cu, from v9 on. */
enum reduce_kernel {
    V9 = 9,
    SHORT_ROWS,
    COLUMNS,
    TRANSPOSED,
    FEW,
    ONE_BLOCK,
    ONE_CLUSTER,
    ONE_WAVE,
    STEPPED_ROWS,
    NARROW_ROWS,
    FLAT
};

/* What one_cluster needs of a device. */
constexpr const char *CLUSTER_NEEDS = "sm_90a";

/* Whether one_cluster takes the call, where the device has clusters. */
inline bool
is_cluster_row(const reduce_plan &plan, int64_t element)
{
    return plan.kept.ndim == 0 && plan.rows == 1 && are_runs(plan) &&
           plan.reduced.ndim <= 1 && plan.cols > 0 &&
           plan.cols <= ONE_CLUSTER_BYTES / element;
}

/* The kernel for the call, and why. */
reduce_kernel choose_reduce(const gpo_call *call, char why[GPO_MESSAGE]);

#endif
