/*
 * paired.cuh  Which calls shapes/backward_paired_windows.cu takes: at most two windows of
 * each axis have an element.  For its launcher and the table, with its estimate.
 */
#ifndef GPO_MAX_POOL3D_PAIRED_CUH
#define GPO_MAX_POOL3D_PAIRED_CUH

#include "overlap.cuh"

/* Windows overlap without gaps, and an element is in one or two of each axis. */
inline bool
takes_paired_windows(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    if (plan.is_apart || plan.has_gaps || !takes_any_windows(call)) {
        return false;
    }
    bool fits = true;
    for (int d = 0; d < POOL_AXES; d++) {
        fits = fits && windows_reaching(plan.axis[d], 1) <= 2;
    }
    return fits;
}

/* Adjacent elements of a thread: two where no third window of a row reaches them. */
inline int
paired_items(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const bool few = plan.planes * plan.plane < gpo_processors(call) * GATHER_THREADS;
    return few || windows_reaching(plan.axis[POOL_W], 2) > 2 ? 1 : 2;
}

/* Whether an element is in two windows along T, so in up to eight in all. */
inline bool
is_paired_deep(const pool_gradient_plan &plan)
{
    return windows_reaching(plan.axis[POOL_T], 1) > 1;
}

/* What it takes, by estimate. */
inline double
paired_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const double sms = gpo_processors(call), planes = static_cast<double>(plan.planes);
    const double elements = planes * static_cast<double>(plan.plane);
    const double windows = is_paired_deep(plan) ? 8 : 4;
    const int items = paired_items(call);
    const double work =
        elements / items * (PAIRED_WORK + PAIRED_WINDOW_WORK[items - 1] * windows);
    return GRADIENT_LAUNCH_US + WAIT_US +
           PAIRED_MEASURED *
               fmax(work / GRADIENT_RATE, moved_bytes(call) / GRADIENT_BYTES) / sms;
}

template <typename T>
gpo_status max_pool3d_backward_paired_windows(gpo_call *call);

#endif
