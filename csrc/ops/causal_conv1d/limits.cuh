/*
 * limits.cuh  The largest sizes for v6 and v7, which use 32-bit indices; their
 * launchers and choose() check them.
 */
#ifndef GPO_CAUSAL_CONV1D_LIMITS_CUH
#define GPO_CAUSAL_CONV1D_LIMITS_CUH

#include "../../core/integers.h"

/* Whether v6's indices can hold the batches, steps and blocks of the grid. */
inline bool
tensor_counts(int64_t batches, int64_t channels, int64_t steps)
{
    constexpr int64_t MOST = int64_t(1) << 30;
    return steps < MOST && batches < MOST &&
           channels * ceil_div(batches, 8) * ceil_div(steps, 256) < MOST;
}

/* Most steps in a row of v7: a step plus a head must fit in 32 bits. */
constexpr int64_t MOST_STEPS = int64_t{1} << 30;

#endif
