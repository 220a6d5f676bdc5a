/*
 * costs.cuh  Estimated microseconds of rungs for filters of SHORT to MIDDLE lags, fitted
 * to the times on an H200 in benchmarks/results/h200-middle-filters.json.
 */
#ifndef GPO_CAUSAL_CONV1D_COSTS_CUH
#define GPO_CAUSAL_CONV1D_COSTS_CUH

#include "causal_conv1d.h"
#include "tuning.cuh"

#include <math.h>

constexpr int64_t MIDDLE = 128;         /* lags */
constexpr int64_t TOEPLITZ_STEPS = 768; /* v6 in float32: most steps of its estimate */

/* A million elements of x, of `batches` batches. */
inline double
millions(const conv_plan &p, int64_t batches)
{
    return 1e-6 * static_cast<double>(p.steps) * static_cast<double>(p.channels) *
           static_cast<double>(batches);
}

/* 2.6e12 products a second, and as many more as if there were 29 lags more. */
inline double
time_of_v2(const conv_plan &p)
{
    return (p.steps <= 128 ? 7 : 11) +
           millions(p, p.batches) * static_cast<double>(p.lags + 29) / 2.58;
}

/* Lanes without a row cost as much as others, but no memory. */
inline double
time_of_v5(const conv_plan &p)
{
    const int64_t rows = p.batches * ceil_div(p.steps, SEGMENT);
    const double padded = 1e-6 * static_cast<double>(p.channels) *
                          static_cast<double>(ceil_div(rows, WARP) * WARP * SEGMENT);
    const double lags = static_cast<double>(p.lags);
    const double more = 0.027 * (lags - 20) + (lags > 64 ? 0.06 * (lags - 64) : 0);
    return (p.steps <= 128 ? 9 : 12) + padded * (6 + (more > 0 ? more : 0)) +
           4.5 * millions(p, p.batches);
}

/* float32: three products of halves, of whole eights of batches. */
inline double
time_of_v6(const conv_plan &p)
{
    return 12.5 + 4.9 / 768 * static_cast<double>(p.steps) *
                      millions(p, ceil_div(p.batches, 8) * 8);
}

/* 16-bit values; rows that do not begin at 16 bytes are copied first. */
inline double
time_of_v6_in_halves(const conv_plan &p)
{
    return (p.steps % 8 == 0 ? 6.5 : 13) +
           2.3 * millions(p, ceil_div(p.batches, 8) * 8);
}

inline double
time_of_v7(const conv_plan &p)
{
    const double steps = static_cast<double>(p.steps), most = millions(p, p.batches);
    const double one_row = 19 * sqrt(steps > 2048 ? steps / 2048 : 1);
    const double all = (steps <= 2048 ? 22 : 13.6) * most;
    return one_row > all ? one_row : all;
}

#endif
