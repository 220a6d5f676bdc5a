/*
 * costs.cuh  Estimated picoseconds of long_result and buckets, for the choice (cuda.cu), by
 * times on an H100: see NOTES.md.
 */
#ifndef GPO_SCATTER_ADD_COSTS_CUH
#define GPO_SCATTER_ADD_COSTS_CUH

#include "frame.cuh"

/*
 * long_result clears 8 bytes for each place, and of floats reads them again; an atomic
 * takes longer the more of the sums are not in L2.
 */
inline double
time_of_long_result(const scatter_add_plan &plan, bool is_float)
{
    constexpr double STARTS = 9e6, CLEARED = 3.2, ROUNDED = 4.8;
    constexpr double ATOMIC = 15, MEGABYTE = 0.5, MOST = 50, HELD = 20;
    const double places = static_cast<double>(plan.size);
    const double beyond = 8e-6 * places - HELD;
    const double slow = ATOMIC + (beyond > 0 ? MEGABYTE * beyond : 0);
    return STARTS + (CLEARED + (is_float ? ROUNDED : 0)) * places +
           (slow < MOST ? slow : MOST) * static_cast<double>(plan.n);
}

/* buckets, or ascending of an index in no order: an element's place and
   value written and read, the result written. */
inline double
time_of_buckets(const scatter_add_plan &plan)
{
    constexpr double STARTS = 25e6, ELEMENT = 18, PLACE = 4;
    return STARTS + ELEMENT * static_cast<double>(plan.n) +
           PLACE * static_cast<double>(plan.size);
}

#endif
