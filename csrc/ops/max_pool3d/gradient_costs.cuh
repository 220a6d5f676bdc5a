/*
 * gradient_costs.cuh  What the kernels between which max_pool3d_backward chooses are
 * estimated to take on an H200, in microseconds, from instructions, bytes and rounds of
 * loads (tuning.cuh).  See overlap.cuh for overlapping_windows.
 */
#ifndef GPO_MAX_POOL3D_GRADIENT_COSTS_CUH
#define GPO_MAX_POOL3D_GRADIENT_COSTS_CUH

#include "overlap.cuh"

/* any_windows: each element asks all windows that have it. */
inline double
gather_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const double bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const double sms = gpo_processors(call), planes = static_cast<double>(plan.planes);
    const double elements = planes * static_cast<double>(plan.plane);
    double windows = 1, rows = 1;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        const double reached = windows_per_element(a); /* dilated ones are skipped */
        windows *= d < POOL_W ? windows_naming(a).mean : reached;
        rows *= d < POOL_W ? reached : 1;
    }
    const double fill = sms * static_cast<double>(GATHER_THREADS) / elements;
    const double lanes = fmin(fmin(fmax(fill, 1), 1 << MOST_LOG_SHARES), rows);
    const double work = elements * (GATHER_WORK + GATHERED_WORK * windows);
    const double moved =
        elements * bytes + planes * static_cast<double>(plan.outputs) * (bytes + 8);
    const double waits = rows / lanes * WAIT_US / 2;
    return GRADIENT_LAUNCH_US + WAIT_US +
           fmax(fmax(work / GRADIENT_RATE, moved / GRADIENT_BYTES) / sms, waits);
}

/* v4: a warp takes a row of up to 32 windows at a time. */
inline double
rounds_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t cols = plan.axis[POOL_W].out;
    const double steps = static_cast<double>(plan.planes) *
                         static_cast<double>(plan.outputs / cols) *
                         static_cast<double>(ceil_div(cols, WARP));
    return ROUNDS_US +
           steps * WARP * ROUNDS_WORK / (GRADIENT_RATE * gpo_processors(call));
}

#endif
