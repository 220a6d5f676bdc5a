/*
 * costs.cuh  What the kernels between which max_pool3d chooses are estimated to take on
 * an H200, in microseconds.  They are compared with each other and nothing else.  Rates
 * are those of one of its SMs, memory's too, so that they grow with a GPU.
 */
#ifndef GPO_MAX_POOL3D_COSTS_CUH
#define GPO_MAX_POOL3D_COSTS_CUH

#include "boxes.cuh"
#include "channels.cuh"
#include "march.cuh"
#include "taps.cuh"
#include "tiles.cuh"

constexpr double LAUNCH_US = 2.5;
constexpr double BOX_CAUTION = 2; /* of 1.4 it took 1.3 and 1.5 times as long as v7 */
constexpr double BOX_LEAST_US = LAUNCH_US + 2; /* no call of it takes less */

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

constexpr double SECTORS = 16e3; /* bytes of sectors that a warp uses in part */

/*
 * What a warp's loads along W cost where x's columns are apart: a sector of 32 bytes for
 * an element, which others of it may ask for again.
 */
inline double
sectors_us(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const double bytes = gpo_dtypes[call->in[0].dtype].bytes;
    const double apart = fabs(static_cast<double>(plan.by[POOL_W])) * bytes;
    return apart <= bytes
               ? 0
               : elements_of(plan) * fmin(apart, 32) / (SECTORS * gpo_processors(call));
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
    if (stored > 1) { /* a sector for each output */
        most = fmax(most, outputs * fmin(stored * bytes, 32) / (SECTORS * sms));
    }
    return LAUNCH_US + MISS_US * rounds + fmax(most, at_once * rounds * MISS_US / 2);
}

/*
 * v6: rounds of tiles, whose loads, maxima and stores do not overlap.  Where rows are
 * short, or T and H swapped, a block goes several times through the slices of a tile.
 */
inline double
separable_us(const gpo_call *call)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    double us = 0;
    with_keys(call, [&](auto key, auto side) {
        constexpr int N = decltype(side)::value;
        constexpr double BLOCKS = N == 32 ? 1 : N == 16 ? 2 : 8; /* of an SM */
        constexpr double TILE_US = N == 32 ? 16 : N == 16 ? 30 : 9;
        constexpr double STEP_US = 2.4;
        const tile_plan s = plan_tiles(call, order_of(plan), N, sizeof(key));
        const double rounds =
            static_cast<double>(s.count) / (BLOCKS * gpo_processors(call));
        const double steps = static_cast<double>(
            ceil_div(s.planes * s.windows[POOL_T] * s.lanes, N * WARP));
        us = (TILE_US + STEP_US * (steps - 1)) * fmax(rounds, 1);
        return GPO_OK;
    });
    return LAUNCH_US + fmax(us, sectors_us(call));
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
    const double us =
        fmax(slices * SLICE_US,
             each * (elements_of(plan) + outputs_of(plan)) / gpo_processors(call));
    return LAUNCH_US + 1 + fmax(us, sectors_us(call));
}

/*
 * channels_last: instructions of a pack and of its elements, wavefronts of L1, bytes of
 * L2, which each row of windows reads again, and of memory.
 */
inline double
channels_last_us(const gpo_call *call)
{
    constexpr double INSTRUCTIONS = 0.21e6, WAVEFRONTS = 1.75e3, BYTES = 30e3;
    constexpr double L2_BYTES = 38e3, MISS_US = 0.4, BLOCKS = 4; /* of an SM */
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const channel_plan s = plan_channels(call, 0);
    const double bytes = gpo_dtypes[call->in[0].dtype].bytes,
                 sms = gpo_processors(call);
    const double outputs = outputs_of(plan), packs = outputs / s.pack;
    const double turns = static_cast<double>(ceil_div(s.run, s.rows)); /* of a thread */
    const double threads = static_cast<double>(ceil_div(s.lanes * s.rows, WARP)) * WARP;
    const double blocks = s.batches * s.tiles * static_cast<double>(s.runs);
    const double element = plan.with_indices ? 5 : bytes == 2 && s.pack > 1 ? 0.5 : 2;
    const double pack = 120 + plan.taps * (10 + element * s.pack);
    /* lanes without a pack take their time, too */
    const double work = fmax(packs, blocks * threads * turns) * pack +
                        outputs * (plan.with_indices ? 24 : 16);
    const double load = fmax(s.pack * bytes / 4, 2) / WARP; /* wavefronts of a lane */
    const double wavefronts =
        packs * plan.taps * load + outputs / WARP * (plan.with_indices ? 8 : 3);
    double again = 1; /* how often rows are read */
    for (int d = POOL_T; d < POOL_W; d++) {
        const pool_axis &a = plan.axis[d];
        const double seen = static_cast<double>(a.out) * static_cast<double>(a.kernel);
        again *= fmax(seen / static_cast<double>(a.in), 1);
    }
    const double indices = plan.with_indices ? outputs * 8 : 0;
    const double written = outputs * bytes + indices;
    const double rounds =
        ceil(plan.taps / (s.pack * bytes == 16 ? PACKS_IN_FLIGHT : TAPS_IN_FLIGHT));
    const double waves = blocks * threads / (sms * BLOCKS * CHANNEL_BLOCK);
    double us = work / (INSTRUCTIONS * sms);
    us = fmax(us, wavefronts / (WAVEFRONTS * sms));
    us = fmax(us, (elements_of(plan) * bytes * again + written) / (L2_BYTES * sms));
    us = fmax(us, (elements_of(plan) * bytes + written) / (BYTES * sms));
    us = fmax(us, waves * turns * rounds * MISS_US / 2);
    return LAUNCH_US + MISS_US * (1 + turns * rounds) + us;
}

/*
 * overlapping_windows: instructions and wavefronts of shared memory for loading a box,
 * pooling it along each axis and storing; what else takes time is hidden by the other
 * blocks of an SM.
 */
inline double
overlapping_windows_us(const gpo_call *call)
{
    constexpr double INSTRUCTIONS = 0.21e6, WAVEFRONTS = 1.75e3, BYTES = 30e3;
    constexpr double WAIT = 0.8, BLOCKS = 4; /* of an SM */
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const double bytes = gpo_dtypes[call->in[0].dtype].bytes,
                 sms = gpo_processors(call);
    const int64_t key = key_bytes_of(call);
    box_plan s = {};
    if (!plan_boxes(call, key, &s)) {
        return INFINITY;
    }
    const double words = static_cast<double>(key) / 4;
    const double after_w = static_cast<double>(s.planes * s.windows[POOL_T] *
                                               s.windows[POOL_H] * s.windows[POOL_W]);
    const double loaded = static_cast<double>(s.loaded);
    const double made[] = {static_cast<double>(s.after_t),
                           static_cast<double>(s.after_h), after_w};
    double work = loaded * (s.is_flat ? 16 : 45), wavefronts = loaded;
    double steps = 1;
    for (int d = POOL_T; d < POOL_AXES; d++) {
        const double taps = static_cast<double>(plan.axis[d].kernel);
        if (s.is_pooled[d] || d == POOL_W) {
            work += made[d] * ((d == POOL_W ? 40 : 25) + (1.5 + words) * taps);
            wavefronts += made[d] * (taps + 1);
            steps++;
        }
    }
    const double count = static_cast<double>(s.count);
    const double resident = fmin(BLOCKS, floor(static_cast<double>(shared_room(call)) /
                                               static_cast<double>(s.bytes)));
    const double rounds = ceil(loaded / (BOX_BLOCK * BOX_IN_FLIGHT));
    const double moved = (elements_of(plan) + outputs_of(plan)) * bytes +
                         (plan.with_indices ? outputs_of(plan) * 8 : 0);
    const double busy = ceil(count / sms);
    const double parts[] = {
        busy * work / INSTRUCTIONS, busy * wavefronts * words / WARP / WAVEFRONTS,
        ceil(count / (sms * resident)) * (rounds + steps / 2) * WAIT,
        moved / (BYTES * sms)};
    double most = 0, sum = 0;
    for (const double part : parts) {
        most = fmax(most, part);
        sum += part;
    }
    const double apart = s.planes > 1 && takes_channels(plan) ? 1 : sectors_us(call);
    return LAUNCH_US + fmax(most + (sum - most) / resident, apart) * BOX_CAUTION;
}

#endif
