/*
 * update_few_steps_b.cuh  The kernels of update_few_steps.cuh in blocks of 128 threads.
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_B_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_FEW_STEPS_B_CUH

#include "update_few_steps.cuh"

template <typename T>
static gpo_status
update_few_steps_b(gpo_call *call, const update_view<T> &u)
{
    return update_in_blocks(call, u, FEW_STEPS_MOST);
}

#endif
