/*
 * taps.cuh  Which calls shapes/any_windows.cu takes, in which steps it reads a window,
 * for the table of max_pool3d, its choice and the kernel's launcher; and a window along
 * an axis in 31 bits, which shapes/channels_last.cu has too.
 */
#ifndef GPO_MAX_POOL3D_TAPS_CUH
#define GPO_MAX_POOL3D_TAPS_CUH

#include "windows.cuh"

/* More than the positions of an axis, in and around x, and what is added to them. */
inline double
reach_of(const pool_axis &a)
{
    return static_cast<double>(a.in) + 2.0 * static_cast<double>(a.padding) +
           (static_cast<double>(a.kernel) + 1) * static_cast<double>(a.dilation) +
           (static_cast<double>(a.out) + 1) * static_cast<double>(a.stride);
}

/* 31 bits can count outputs, elements, and bytes between elements of a plane. */
inline bool
takes_any_pool(const gpo_call *call)
{
    constexpr double MOST = 1 << 30;
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    double reach = 0; /* bytes from the first to the last element of a plane of x */
    bool fits = static_cast<double>(plan.planes) * plan.outputs <= MOST &&
                static_cast<double>(plan.plane) <= MOST;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        const double span = reach_of(a);
        reach += a.in > 1 ? span * fabs(static_cast<double>(plan.by[d])) : 0;
        fits = fits && span < MOST;
    }
    return fits && reach * gpo_dtypes[call->in[0].dtype].bytes < MOST;
}

/* Whether lanes take channels, because those are nearer to each other than columns. */
inline bool
takes_channels(const max_pool3d_plan &plan)
{
    const pool_axis &w = plan.axis[POOL_W];
    return plan.channels > 1 && fabs(static_cast<double>(plan.by_channel)) <
                                    fabs(static_cast<double>(plan.by[POOL_W]) *
                                         static_cast<double>(w.stride));
}

/*
 * A thread reads rows of a window in runs of 2, 3 or 4 elements, and has so many runs
 * in flight.  The last run of a row ends with it, and may begin in the one before.
 */
struct run_plan {
    int taps;        /* of a run */
    bool is_long;    /* a row of a window is several runs */
    int in_flight;   /* runs */
    double runs;     /* of a window */
    bool is_general; /* dilated windows, integers, or lanes that share a window */
};

/* The logarithm of the lanes that share a window where there are few and large ones. */
inline int
log_lanes_of(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const double outputs = static_cast<double>(plan.planes) * plan.outputs;
    const double fill = static_cast<double>(gpo_processors(call)) * TAP_THREADS;
    int log = 0;
    while (log < MOST_LOG_SHARED && outputs * (2 << log) <= fill &&
           plan.taps >= TAPS_IN_FLIGHT * (2.0 * (1 << log))) {
        log++;
    }
    return log;
}

inline run_plan
runs_of(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const int64_t width = plan.axis[POOL_W].kernel;
    bool has_gaps = false;
    for (int d = 0; d < POOL_AXES; d++) {
        has_gaps = has_gaps || plan.axis[d].dilation > 1;
    }
    run_plan r = {GENERAL_TAPS, true, 0, 0, false};
    r.is_general =
        has_gaps || gpo_dtypes[call->in[0].dtype].kind != 'f' || log_lanes_of(call) > 0;
    if (!r.is_general) {
        const bool threes = 3 * ceil_div(width, 3) < 4 * ceil_div(width, 4);
        r.taps = width <= 2 ? 2 : threes ? 3 : 4; /* which loads fewer */
        r.is_long = width > r.taps;
    }
    r.in_flight = TAPS_IN_FLIGHT / r.taps;
    r.runs = static_cast<double>(plan.axis[POOL_T].kernel) *
             static_cast<double>(plan.axis[POOL_H].kernel) *
             static_cast<double>(ceil_div(width, r.taps));
    return r;
}

/* ---- a window along an axis, in 31 bits ---- */

struct tap_axis {
    int in, kernel, stride, padding, dilation;
    int by, step; /* bytes from an element of x to the next, and of a window */
    divider by_dilation;
};

/* `by` bytes from an element to the next. */
inline tap_axis
tap_axis_of(const pool_axis &a, int64_t by)
{
    by = a.in > 1 ? by : 0;
    return {static_cast<int>(a.in),
            static_cast<int>(a.kernel),
            static_cast<int>(a.stride),
            static_cast<int>(a.padding),
            static_cast<int>(a.dilation),
            static_cast<int>(by),
            static_cast<int>(by * a.dilation),
            divider_of(a.dilation)};
}

/* The elements of a window that lie in x. */
struct tap_range {
    int first, count;
};

template <bool GENERAL>
__device__ __forceinline__ tap_range
taps_of(const tap_axis &a, int o)
{
    const int start = o * a.stride - a.padding;
    int skipped = start < 0 ? -start : 0, reached = a.in - start;
    if constexpr (GENERAL) { /* from elements to steps of the dilation */
        skipped = a.by_dilation.narrow(skipped + a.dilation - 1);
        reached = reached > 0 ? a.by_dilation.narrow(reached - 1) + 1 : 0;
    }
    const int end = reached < a.kernel ? reached : a.kernel;
    return {start + skipped * (GENERAL ? a.dilation : 1),
            end > skipped ? end - skipped : 0};
}

/* T stands for integers of its width (shapes/). */
template <typename T>
gpo_status max_pool3d_any_windows(gpo_call *call);

#endif
