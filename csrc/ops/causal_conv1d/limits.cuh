/*
 * limits.cuh  What v6 and v7, which count in 32 bits, can count: their launchers and the
 * choice ask.
 */
#ifndef GPO_CAUSAL_CONV1D_LIMITS_CUH
#define GPO_CAUSAL_CONV1D_LIMITS_CUH

#include "../../core/integers.h"

/* Whether v6 can count batches, steps and blocks of a grid. */
inline bool
tensor_counts(int64_t batches, int64_t channels, int64_t steps)
{
    constexpr int64_t MOST = int64_t(1) << 30;
    return steps < MOST && batches < MOST &&
           channels * ceil_div(batches, 8) * ceil_div(steps, 256) < MOST;
}

/* Steps of a row of v7: they and a head more are counted in 32 bits. */
constexpr int64_t MOST_STEPS = int64_t{1} << 30;

#endif
