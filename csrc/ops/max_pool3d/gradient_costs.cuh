/*
 * gradient_costs.cuh  What the kernels between which max_pool3d_backward chooses are
 * estimated to take on an H200, in microseconds, from instructions, bytes and rounds of
 * loads (tuning.cuh).  See overlap.cuh for overlapping_windows.
 */
#ifndef GPO_MAX_POOL3D_GRADIENT_COSTS_CUH
#define GPO_MAX_POOL3D_GRADIENT_COSTS_CUH

#include "paired.cuh"
#include "rounds.cuh"

/* any_windows: runs of elements ask all windows that have one.  130 calls of up to 8 us
   took 1.27 times as long with the launch alone. */
constexpr double GATHER_US = GRADIENT_LAUNCH_US + 2;
inline double
gather_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis &t = plan.axis[POOL_T], &h = plan.axis[POOL_H];
    const double sms = gpo_processors(call), planes = static_cast<double>(plan.planes);
    const double elements = planes * static_cast<double>(plan.plane);
    const int items = items_of(call);
    const double runs = elements / items;
    const double rows = windows_per_element(t) * windows_per_element(h);
    const double windows =
        windows_naming(t).mean * windows_naming(h).mean *
        static_cast<double>(windows_reaching(plan.axis[POOL_W], items));
    const double fill = sms * static_cast<double>(GATHER_THREADS) / runs;
    const double lanes = fmin(fmin(fmax(fill, 1), 1 << MOST_LOG_SHARES), rows);
    const double work = runs * (GATHER_WORK + GATHERED_WORK * windows);
    const double waits = rows / lanes * WAIT_US / 2;
    const double us =
        fmax(work / GRADIENT_RATE, moved_bytes(call) / GRADIENT_BYTES) / sms;
    return GATHER_US + WAIT_US + GATHER_MEASURED * fmax(us, waits);
}

/* separate_windows: zeros, then what windows name. */
inline double
separate_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const separate_plan s = plan_separate(call);
    const double bytes = gpo_dtypes[call->out[0].dtype].bytes, sector = 32;
    const double sms = gpo_processors(call), planes = static_cast<double>(plan.planes);
    const double elements = planes * static_cast<double>(plan.plane);
    const double windows = planes * static_cast<double>(plan.outputs);
    const double work = elements * bytes / 16 * ZERO_WORK * 2 + windows * STORED_WORK +
                        static_cast<double>(s.blocks) * SEPARATE_BLOCK * THREAD_WORK;
    const double moved = moved_bytes(call) + windows * sector;
    const double waits = static_cast<double>(s.blocks) / (8 * sms) * WAIT_US;
    const double us = fmax(work / GRADIENT_RATE, moved / GRADIENT_BYTES) / sms;
    return GRADIENT_LAUNCH_US + 2 * WAIT_US + fmax(us, waits);
}

/*
 * v4: a warp takes a row of up to 32 windows at a time, of each tile that they reach
 * into.  Blocks run in waves: each takes as long as the steps of a warp after each
 * other, or as the instructions of the blocks of an SM.
 */
inline double
rounds_us(const gpo_call *call)
{
    const pool_gradient_plan &plan = *pool_gradient_plan_of(call);
    const pool_axis *a = plan.axis;
    const double bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t size = bytes == 8 ? 8 : 4, room = shared_room(call);
    const double sms = gpo_processors(call);
    round_plan s = {};
    if (!plan_rounds(plan, least_of(ROUNDS_BYTES, room), static_cast<size_t>(size),
                     &s)) {
        return INFINITY;
    }
    double rows = 1, rounds = 1; /* of a tile */
    for (int d = POOL_T; d <= POOL_H; d++) {
        rows *= static_cast<double>(windows_of(a[d], s.side[d]));
        rounds *= s.apart[d];
    }
    const double across = static_cast<double>(ceil_div(a[POOL_W].out, WARP));
    const int warps = round_warps(s);
    const int64_t tile = s.side[POOL_T] * s.side[POOL_H] * a[POOL_W].in * size;
    const int64_t fit = least_of(2 * ROUND_WARPS / warps, room / (tile + 1024));
    const double resident = fit > 1 ? static_cast<double>(fit) : 1;
    const double per_sm = static_cast<double>(s.items) / sms;
    const double steps = static_cast<double>(ceil_div(s.rows, warps)) * rounds * across;
    const double work = rows * across * WARP * ROUNDS_WORK / GRADIENT_RATE;
    const double wave_us =
        fmax(ROUND_TILE_US + ROUND_STEP_US * steps, work * fmin(resident, per_sm));
    return ROUNDS_US + ceil(per_sm / resident) * wave_us +
           ROUNDS_UNHIDDEN * moved_bytes(call) / (GRADIENT_BYTES * sms);
}

/*
 * overlapping_windows' estimate over which it takes longer, where windows are short, or
 * dilated: six such calls took 1.4 times and more on an H200.
 */
inline double
overlap_caution(const gpo_call *call)
{
    constexpr double GAPS_CAUTION = 1.4;
    if (pool_gradient_plan_of(call)->has_gaps) {
        return GAPS_CAUTION;
    }
    const bool is_short = takes_paired_windows(call);
    const bool is_flat = pool_gradient_plan_of(call)->axis[POOL_T].in == 1;
    return !is_short ? 1 : is_flat ? FLAT_CAUTION : SHORT_CAUTION;
}

#endif
