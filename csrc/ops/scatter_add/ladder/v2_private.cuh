/*
 * v2  Private copies per block, then a second kernel: the source's method A.
 * Was:   all blocks of v0 and v1 add to one result.
 * Now:   each block of a fixed grid adds to its private copy in global memory; a second
 *        kernel sums the copies in order.  (The published kernel computed the place in
 *        the block's copy and then used the one in the shared result.)
 * Cost:  as v0, and copies * size sums that are cleared and read.
 * Measured: 2^25 random places of 1,024, float64: 0.449 ms, v1 0.151
 *        (benchmarks/results/h200-scatter_add.json).  Blocks no longer contend, but all
 *        atomics go to L2.
 * Left:  within a block the order is still up to the hardware -> v3.
 */
#ifndef GPO_SCATTER_ADD_V2_PRIVATE_CUH
#define GPO_SCATTER_ADD_V2_PRIVATE_CUH

#include "../copies.cuh"

template <typename Input, typename Sum>
__global__ void
scatter_add_v2_private(Input x, Sum *copies)
{
    Sum *const own = copies + blockIdx.x * x.size;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < x.n;
         i += step) {
        const int64_t at = x.place(x.raw(i), i);
        if (at >= 0) {
            atomic_add(&own[at], x.lift(x.values[i * x.values_stride]));
        }
    }
}

struct scatter_add_v2 {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const int64_t blocks = clamp(ceil_div(x.n, BLOCK * PRIVATE_ITEMS), 1,
                                     PRIVATE_BLOCKS * gpo_processors(call));
        const int64_t copy_bytes = x.size * static_cast<int64_t>(sizeof(Sum));
        const int64_t count = copies_of(copy_bytes, blocks);
        const int64_t bytes = count * copy_bytes;
        void *copies = nullptr;
        gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &copies);
        if (!status) {
            status = clear(call, copies, bytes, x.fresh);
        }
        if (!status) {
            status = GPO_LAUNCH(call, dim3(static_cast<unsigned>(count)), BLOCK, 0,
                                (scatter_add_v2_private<Input, Sum>), x,
                                static_cast<Sum *>(copies));
        }
        return status
                   ? status
                   : sum_copies(call, static_cast<Sum *>(copies), count, x.size, total);
    }
};

#endif
