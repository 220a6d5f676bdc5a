/*
 * indices.cuh  The check of all indices of max_pool3d_backward without kernel_size=:
 * the first one that names no element is an IndexError.
 */
#ifndef GPO_MAX_POOL3D_INDICES_CUH
#define GPO_MAX_POOL3D_INDICES_CUH

#include "../../device/verdict.cuh"
#include "gradient.cuh"

static __global__ void
__launch_bounds__(BLOCK)
    max_pool3d_backward_look(const int64_t *indices, int64_t n, int64_t plane,
                             unsigned long long *bad)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t index = indices[i];
        if (index < -1 || index >= plane) {
            atomicMin(bad, static_cast<unsigned long long>(i));
        }
    }
}

static __global__ void
max_pool3d_backward_begin(unsigned long long *bad)
{
    *bad = NONE_BAD;
}

/* IndexError for the first index that names no element; waits for the stream. */
inline gpo_status
check_indices(gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t n = plan.planes * plan.outputs;
    const int64_t *const indices = static_cast<const int64_t *>(call->in[1].data);
    void *memory = nullptr;
    if (plan.has_windows || n == 0) {
        return GPO_OK;
    }
    gpo_status status = gpo_may_wait(call);
    if (!status) {
        status = gpo_scratch(call, sizeof(unsigned long long), &memory);
    }
    unsigned long long *const bad = static_cast<unsigned long long *>(memory);
    uint64_t at = NONE_BAD;
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), dim3(1), 0, max_pool3d_backward_begin, bad);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(grid_extent(ceil_div(n, BLOCK), 1 << 16)), BLOCK,
                            0, max_pool3d_backward_look, indices, n, plan.plane, bad);
    }
    if (!status) {
        status = wait_for_verdict(call, bad, &at);
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
