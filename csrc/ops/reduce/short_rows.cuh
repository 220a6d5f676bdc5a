/*
 * short_rows.cuh  How shapes/short_rows.cu reads rows: the lanes of a row, and whether they
 * load packs.
 */
#ifndef GPO_REDUCE_SHORT_ROWS_CUH
#define GPO_REDUCE_SHORT_ROWS_CUH

#include "views.cuh"

/* Whether all rows consist of packs of `size` elements, aligned where x is. */
inline bool
are_whole_packs(const reduce_plan &plan, int size)
{
    return plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1 &&
           plan.cols % size == 0 && are_aligned(plan.kept, plan.kept.ndim, size);
}

/* Whether contiguous rows have many packs of `size` elements between their edges. */
inline bool
are_packs_with_edges(const reduce_plan &plan, int size)
{
    return plan.reduced.ndim == 1 && plan.reduced.strides[0] == 1 &&
           plan.cols >= PACKS_WITH_EDGES * size;
}

/*
 * Several loads per lane need fewer lanes and fewer shuffles.  Where all blocks are
 * resident at once, time is the latency of the loads that a lane issues one after
 * the other: then as many lanes as leave one round of them.
 */
inline int
lanes_of_short_rows(const gpo_call *call, int size)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t resident =
        gpo_processors(call) * BLOCKS_PER_PROCESSOR * BLOCK * ROWS_AT_ONCE;
    const int64_t loads = size > 1 ? plan.cols / size : plan.cols;
    const int64_t per_round = size > 1 ? 1 : LOADS_AT_ONCE;
    const int64_t per_lane = loads <= 8 ? 1 : size > 1 ? 2 : LOADS_AT_ONCE;
    int lanes = power_of_two_from(ceil_div(loads, per_lane), WARP);
    while (lanes < BLOCK && lanes * per_round < loads &&
           plan.rows * lanes * 2 <= resident) {
        lanes *= 2;
    }
    return lanes;
}

#endif
