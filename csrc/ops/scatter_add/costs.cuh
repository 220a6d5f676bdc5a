/*
 * costs.cuh  Estimated picoseconds of long_result and buckets, for the choice (cuda.cu), by
 * times on an H100: see NOTES.md.
 */
#ifndef GPO_SCATTER_ADD_COSTS_CUH
#define GPO_SCATTER_ADD_COSTS_CUH

#include "frame.cuh"

/*
 * long_result clears 8 bytes for each place, and of floats reads them again; an atomic
 * whose sum may not be in L2 takes longer, the first ones to a place: 33,554,432 uniform int32 into
 * 4,309,009 450 us on an H200.
 */
inline double
time_of_long_result(const scatter_add_plan &plan, bool is_float)
{
    constexpr double STARTS = 9e6, CLEARED = 3.2, ROUNDED = 4.8;
    constexpr double ATOMIC = 12, MEGABYTE = 0.5, MOST = 38, HELD = 20, FIRST = 2;
    const double places = static_cast<double>(plan.size);
    const double elements = static_cast<double>(plan.n);
    const double first = elements < FIRST * places ? elements : FIRST * places;
    const double beyond = 8e-6 * places - HELD;
    const double slow = beyond > 0 ? MEGABYTE * beyond : 0;
    return STARTS + (CLEARED + (is_float ? ROUNDED : 0)) * places + ATOMIC * elements +
           (slow < MOST ? slow : MOST) * first;
}

/*
 * buckets: an element's place and value written and read, the result written.  `looks`:
 * ascending of an index in no order.  1,070,436 float32 into 6,000,000 34.8 us on an H200, with
 * the look 39.9, 6,000,000 into 4,874,618 118.8, 2,097,152 int32 into 8,588,006 67.4.
 */
inline double
time_of_buckets(const scatter_add_plan &plan, bool is_float, bool looks)
{
    constexpr double STARTS = 12e6, LOOK = 6e6, ELEMENT = 18, PLACE = 2;
    return STARTS + (looks ? LOOK : 0) + ELEMENT * static_cast<double>(plan.n) +
           (is_float ? PLACE : 2 * PLACE) * static_cast<double>(plan.size);
}

#endif
