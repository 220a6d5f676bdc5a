/*
 * costs.cuh  What the kernels between which max_pool3d chooses are estimated to take on
 * an H200, in microseconds.  They are compared with each other and nothing else.  Rates
 * are those of one of its SMs, memory's too, so that they grow with a GPU.
 */
#ifndef GPO_MAX_POOL3D_COSTS_CUH
#define GPO_MAX_POOL3D_COSTS_CUH

#include "march.cuh"
#include "taps.cuh"
#include "tiles.cuh"

constexpr double LAUNCH_US = 2.5;

inline double
elements_of(const max_pool3d_plan &plan)
{
    return static_cast<double>(plan.planes) * static_cast<double>(plan.plane);
}

inline double
outputs_of(const max_pool3d_plan &plan)
{
    return static_cast<double>(plan.planes) * static_cast<double>(plan.outputs);
}

/* Wavefronts of a warp whose lanes access elements so many bytes apart. */
inline double
wavefronts_of(double apart)
{
    return fmin(fmax(apart / 4, 1), WARP);
}

/*
 * any_windows: instructions counted in the machine code, wavefronts of L1, bytes, and
 * for each round of loads what an L2 miss takes where few threads hide it.
 */
inline double
any_windows_us(const gpo_call *call)
{
    constexpr double INSTRUCTIONS = 0.21e6, WAVEFRONTS = 1.75e3, BYTES = 30e3;
    constexpr double MISS_US = 0.4, THREADS = 1280; /* that an SM has at once */
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const run_plan r = runs_of(call);
    const double lanes = 1 << log_lanes_of(call), sms = gpo_processors(call);
    const double bytes = gpo_dtypes[call->in[0].dtype].bytes;
    const double outputs = outputs_of(plan), threads = outputs * lanes;
    double place = r.is_general ? 200 : 120;
    const double step = r.is_long ? 20 : 13;
    const double columns = fabs(static_cast<double>(plan.by[POOL_W])) *
                           static_cast<double>(plan.axis[POOL_W].stride);
    double loaded = columns, stored = 1; /* elements from lane to lane */
    if (takes_channels(plan)) {
        const double channels = static_cast<double>(plan.channels);
        loaded = fmax(fabs(static_cast<double>(plan.by_channel)), columns / channels);
        stored = static_cast<double>(plan.outputs);
        place += 20;
    }
    const double work = place * threads + outputs * r.runs * (step + 7 * r.taps);
    const double wavefronts = outputs / WARP *
                              (r.runs * r.taps * wavefronts_of(loaded * bytes) +
                               wavefronts_of(stored * bytes));
    const double rounds = 1 + r.runs / (r.in_flight * lanes);
    const double moved =
        (elements_of(plan) + outputs) * bytes + (plan.with_indices ? outputs * 8 : 0);
    const double at_once = threads / (sms * THREADS);
    double most = work / (INSTRUCTIONS * sms);
    most = fmax(most, wavefronts / (WAVEFRONTS * sms));
    most = fmax(most, moved / (BYTES * sms));
    return LAUNCH_US + MISS_US * rounds + fmax(most, at_once * rounds * MISS_US / 2);
}

/* v6: rounds of tiles, whose loads, maxima and stores do not overlap. */
inline double
separable_us(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    double us = 0;
    with_keys(call, [&](auto key, auto side) {
        constexpr int N = decltype(side)::value;
        constexpr double BLOCKS = N == 32 ? 1 : N == 16 ? 2 : 8; /* of an SM */
        constexpr double TILE_US = N == 32 ? 16 : N == 16 ? 30 : 9;
        const tile_plan s = plan_tiles(call, order_of(plan), N, sizeof(key));
        const double rounds =
            static_cast<double>(s.count) / (BLOCKS * gpo_processors(call));
        us = TILE_US * fmax(rounds, 1);
        return GPO_OK;
    });
    return LAUNCH_US + us;
}

/* wide_windows: five launches, and passes whose loops are as long as the windows. */
inline double
wide_windows_us(const gpo_call *call)
{
    constexpr double LAUNCHES = 5, PASSES = 3.3e-3, TAP = 0.05e-3; /* of an element */
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    double taps = 0;
    for (int d = 0; d < POOL_AXES; d++) {
        taps += static_cast<double>(plan.axis[d].kernel);
    }
    return LAUNCHES * (LAUNCH_US + 1) +
           elements_of(plan) * (PASSES + TAP * taps) / gpo_processors(call);
}

/* v7: its march from slice to slice, or the elements that go by. */
inline double
march_us(const gpo_call *call)
{
    constexpr double ELEMENT = 66e-6, BYTE = 15e-6, SLICE_US = 0.2;
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const double slices = static_cast<double>(plan_march(call).span[POOL_T]);
    const double each = ELEMENT + BYTE * gpo_dtypes[call->in[0].dtype].bytes;
    return LAUNCH_US + 1 +
           fmax(slices * SLICE_US,
                each * (elements_of(plan) + outputs_of(plan)) / gpo_processors(call));
}

#endif
