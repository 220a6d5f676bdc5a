/*
 * atomic_sum.cuh  Shared by the rungs that add by atomics (v0 to v2): the initial sum,
 * and the grid.
 */
#ifndef GPO_DOT_ATOMIC_SUM_CUH
#define GPO_DOT_ATOMIC_SUM_CUH

#include "../../device/grid.cuh"
#include "products.cuh"
#include "tuning.cuh"

/* Sets the initial sum for the atomics. */
template <typename T>
__global__ void
dot_clear(T *sum)
{
    *sum = T{};
}

/* Blocks for n items: one item per thread, up to a fixed grid. */
inline unsigned
atomic_grid(const gpo_call *call, int64_t n)
{
    const int64_t most = static_cast<int64_t>(gpo_processors(call)) * ATOMIC_BLOCKS;
    const int64_t blocks = ceil_div(n, BLOCK);
    return static_cast<unsigned>(blocks < most ? blocks : most);
}

#endif
