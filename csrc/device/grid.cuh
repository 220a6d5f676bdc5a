/*
 * grid.cuh  Sizes of launches.
 */
#ifndef GPO_GRID_CUH
#define GPO_GRID_CUH

#include "../core/integers.h"
#include "launch.cuh"

constexpr int64_t MAX_GRID_X = 2147483647, MAX_GRID_YZ = 65535;

/* One extent of a grid, clamped to `most`; the kernel loops over the rest. */
static inline unsigned
grid_extent(int64_t blocks, int64_t most)
{
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

/* A grid in one dimension. */
static inline dim3
grid_of(int64_t blocks)
{
    return dim3(grid_extent(blocks, MAX_GRID_X));
}

#endif
