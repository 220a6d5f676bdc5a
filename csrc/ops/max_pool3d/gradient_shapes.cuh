/*
 * gradient_shapes.cuh  Which calls the shape kernels of max_pool3d_backward take (shapes/),
 * for its table and their launchers.
 */
#ifndef GPO_MAX_POOL3D_GRADIENT_SHAPES_CUH
#define GPO_MAX_POOL3D_GRADIENT_SHAPES_CUH

#include "gradient.cuh"

/* Bytes of dx, dy and indices, each once. */
inline double
moved_bytes(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t size = gpo_dtypes[call->out[0].dtype].bytes;
    return static_cast<double>(plan.planes) *
           static_cast<double>(plan.plane * size + plan.outputs * (size + 8));
}

/* Windows of an axis that contain one element, at most. */
inline double
windows_per_element(const pool_axis &a)
{
    return static_cast<double>(least_of(ceil_div(pool_extent(&a), a.stride), a.out));
}

/* Windows that have a common element are a multiple of this apart. */
inline int64_t
step_of(const pool_axis &a)
{
    int64_t n = a.dilation, rest = a.stride; /* Euclid's algorithm */
    while (rest > 0) {
        const int64_t next = n % rest;
        n = rest;
        rest = next;
    }
    return a.dilation / n;
}

/* Whether no element of an axis is in two windows, which may be dilated into each other. */
inline bool
shares_none(const pool_axis &a)
{
    const int64_t step = step_of(a);
    return a.out <= step || step * a.stride >= pool_extent(&a);
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

/* Adjacent elements that a thread of any_windows sums: lanes then read windows so many
 * / stride apart. */
inline int
items_of(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t stride = plan.axis[POOL_W].stride;
    const bool few = plan.planes * plan.plane < gpo_processors(call) * GATHER_THREADS;
    const bool is_narrow = gpo_dtypes[call->out[0].dtype].bytes <= 4;
    return few || stride < 2 ? 1 : stride >= 4 && is_narrow ? 4 : 2;
}

/* How shapes/backward_separate_windows.cu shares out dx: planes, or pieces of them. */
struct separate_plan {
    int64_t together, piece,
        pieces; /* planes of a block, elements of each; of a plane */
    int64_t blocks;
};

inline separate_plan
plan_separate(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const int64_t stretch = SEPARATE_BYTES / gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t fill = ceil_div(plan.planes, gpo_processors(call));
    separate_plan s = {};
    s.together = least_of(stretch / plan.plane, fill);
    s.together = s.together > 1 ? s.together : 1;
    s.pieces = ceil_div(plan.plane, stretch);
    s.piece = plan.plane < stretch ? plan.plane : stretch;
    s.blocks = ceil_div(plan.planes, s.together) * s.pieces;
    return s;
}

/* No two windows have a common element, and 31 bits count as for any_windows. */
inline bool
takes_separate_windows(const gpo_call *call)
{
    const pool_axis *a = pool_gradient_plan_of(call)->axis;
    return takes_any_windows(call) && shares_none(a[POOL_T]) &&
           shares_none(a[POOL_H]) && shares_none(a[POOL_W]);
}

template <typename T>
gpo_status max_pool3d_backward_separate_windows(gpo_call *call);

template <typename T>
gpo_status max_pool3d_backward_any_windows(gpo_call *call);

#endif
