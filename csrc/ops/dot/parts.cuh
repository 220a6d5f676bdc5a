/*
 * parts.cuh  How the blocks of one launch (v3, the shape kernel) combine a sum: each
 * stores its part, and the block that takes the last ticket adds all parts in order.
 */
#ifndef GPO_DOT_PARTS_CUH
#define GPO_DOT_PARTS_CUH

#include "../../device/grid.cuh"
#include "../../device/total.cuh"
#include "products.cuh"
#include "tuning.cuh"

/* Adds the sums of a block's threads; the last block adds those of all and stores. */
template <typename S>
__device__ __forceinline__ void
finish(typename S::Part mine, const block_parts<typename S::Part> &parts,
       typename S::T *out)
{
    if (combine_blocks<S, BLOCK>(&mine, parts)) {
        store_element(out, S::store(mine));
    }
}

/* Blocks for `work` tiles: at least one, at most as many as fit on the GPU. */
inline unsigned
resident_grid(const gpo_call *call, int64_t work)
{
    const int64_t most = static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_SM;
    return static_cast<unsigned>(work < 1 ? 1 : work < most ? work : most);
}

/* ---- the shape kernels, for v3 and the table (shapes/) ---- */

template <typename T>
gpo_status dot_strided(gpo_call *call);
template <typename T>
gpo_status dot_one_block(gpo_call *call);

#endif
