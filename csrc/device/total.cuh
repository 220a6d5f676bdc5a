/*
 * total.cuh  One total of all blocks of a launch (dot, reduce): each block leaves its part
 * in memory, and the block that takes the last ticket combines all parts in order.
 */
#ifndef GPO_TOTAL_CUH
#define GPO_TOTAL_CUH

#include "block.cuh"

/*
 * Combines what the threads of all blocks have in *total; one block needs no parts.
 * True for the one thread that then has the total.
 */
template <typename Op, int BLOCK>
__device__ __forceinline__ bool
combine_blocks(typename Op::Part *total, const block_parts<typename Op::Part> &parts)
{
    using Part = typename Op::Part;
    GPO_SHARED(Part, slots, [BLOCK / WARP]);
    GPO_SHARED(bool, last, [1]);
    *total = block_combine<Op, BLOCK>(*total, slots);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) {
            parts.part[blockIdx.x] = *total;
        }
        if (!is_last_block(parts.ticket, gridDim.x, last)) {
            return false;
        }
        typename Op::Fold all;
        for (unsigned b = threadIdx.x; b < gridDim.x; b += BLOCK) {
            all.add(parts.part[b]);
        }
        *total = block_combine<Op, BLOCK>(all.value(), slots);
    }
    return threadIdx.x == 0;
}

#endif
