/*
 * indices.cuh  The check of all indices of max_pool3d_backward without kernel_size=:
 * the first one that names no element is an IndexError.
 */
#ifndef GPO_MAX_POOL3D_INDICES_CUH
#define GPO_MAX_POOL3D_INDICES_CUH

#include "../../device/verdict.cuh"
#include "gradient.cuh"

/* IndexError for the first index that names no element; waits for the stream. */
inline gpo_status
check_indices(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t n = plan.planes * plan.outputs;
    const int64_t *const indices = static_cast<const int64_t *>(call->in[1].data);
    if (plan.has_windows || n == 0) {
        return GPO_OK;
    }
    const index_line line = {indices, 1, n, -1, plan.plane, true, false};
    uint64_t *answer = nullptr, at = NONE_BAD;
    gpo_status status = gpo_may_wait(call);
    if (!status) {
        status = ask_verdict(call, line, &answer, nullptr);
    }
    if (!status) {
        status = gpo_answer(call, answer, &at);
    }
    if (status || at == NONE_BAD) {
        return status;
    }
    int64_t value = 0;
    status = gpo_fetch(call, &value, indices + at, sizeof value);
    return status ? status
                  : max_pool3d_out_of_range(call, value, static_cast<int64_t>(at));
}

#endif
