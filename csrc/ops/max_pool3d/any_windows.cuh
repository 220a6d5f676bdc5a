/*
 * any_windows.cuh  Which calls the shape kernels of max_pool3d_backward take (shapes/),
 * for its table and their launchers.
 */
#ifndef GPO_MAX_POOL3D_ANY_WINDOWS_CUH
#define GPO_MAX_POOL3D_ANY_WINDOWS_CUH

#include "gradient.cuh"

/* Windows of an axis that contain one element, at most. */
inline double
windows_per_element(const pool_axis &a)
{
    return static_cast<double>(least_of(ceil_div(pool_extent(&a), a.stride), a.out));
}

/* Windows are known, and 31 bits can count elements, threads and what lies between. */
inline bool
takes_any_windows(const gpo_call *call)
{
    constexpr double MOST = 1 << 30;
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    bool fits = plan.has_windows && plan.outputs < 1 << 30;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        const double reach =
            static_cast<double>(a.in) + 2.0 * static_cast<double>(a.padding) +
            (static_cast<double>(a.kernel) + 1) * static_cast<double>(a.dilation) +
            (static_cast<double>(a.out) + 1) * static_cast<double>(a.stride);
        fits = fits && reach < 1 << 30;
    }
    return fits &&
           static_cast<double>(plan.planes) * static_cast<double>(plan.plane) <= MOST;
}

/* The axis along which blocks of strided_windows share a plane. */
inline int
cut_of(const pool_gradient_plan &plan)
{
    return plan.axis[POOL_T].in > 1   ? POOL_T
           : plan.axis[POOL_H].in > 1 ? POOL_H
                                      : POOL_W;
}

/* At least twice as many elements as windows, and steps of that axis fit a block. */
inline bool
takes_strided_windows(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    return takes_any_windows(call) && 2 * plan.outputs <= plan.plane &&
           plan.plane / plan.axis[cut_of(plan)].in <= MOST_STEP;
}

template <typename T>
gpo_status max_pool3d_backward_any_windows(gpo_call *call);

template <typename T>
gpo_status max_pool3d_backward_strided_windows(gpo_call *call);

#endif
