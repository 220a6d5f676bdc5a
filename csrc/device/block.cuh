/*
 * block.cuh  Reductions across a warp and a block.  `Op` is a struct with a static
 * combine(a, b); the order of lanes and threads is kept, so every run gives the same
 * bits.
 */
#ifndef GPO_BLOCK_CUH
#define GPO_BLOCK_CUH

#include "warp.cuh"

/* Lane 0 of each group of `width` lanes gets the reduction of the group. */
template <typename Op, typename V>
__device__ __forceinline__ V
warp_combine(V v, int width = WARP)
{
    for (int d = width / 2; d > 0; d /= 2) {
        v = Op::combine(v, shuffle_down(v, d, width));
    }
    return v;
}

/*
 * Thread 0 gets the reduction of all BLOCK threads.  `slots` is shared memory for one
 * value per warp; the caller puts a barrier before it reuses it.
 */
template <typename Op, int BLOCK, typename V>
__device__ __forceinline__ V
block_combine(V v, V *slots)
{
    static_assert(BLOCK % WARP == 0 && BLOCK / WARP <= WARP, "whole warps, at most 32");
    constexpr int WARPS = BLOCK / WARP;
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    v = warp_combine<Op>(v);
    if (lane == 0) {
        slots[warp] = v;
    }
    __syncthreads();
    if (warp == 0) {
        v = slots[lane < WARPS ? lane : 0];
        v = warp_combine<Op>(v, WARPS);
    }
    return v;
}

/*
 * True in every thread of the last of `blocks` blocks to arrive, which then sees what
 * the others wrote.  Leaves the ticket at 0.  `last` is a flag in shared memory.
 */
__device__ __forceinline__ bool
is_last_block(unsigned *ticket, unsigned blocks, bool *last)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *last = atomicInc(ticket, blocks - 1) == blocks - 1;
    }
    __syncthreads();
    if (*last) {
        __threadfence();
    }
    return *last;
}

/* ---- partial results of several blocks, which the last block combines ---- */

template <typename Part>
struct block_parts {
    Part *part;
    unsigned *ticket; /* see is_last_block */
};

/* Memory for the partial results of `blocks` blocks; one block needs none. */
template <typename Part>
gpo_status
parts_for(gpo_call *call, int64_t blocks, block_parts<Part> *parts)
{
    *parts = {nullptr, nullptr};
    const gpo_status status = blocks > 1 ? gpo_tickets(call, &parts->ticket) : GPO_OK;
    if (blocks > 1 && !status) {
        parts->part = reinterpret_cast<Part *>(parts->ticket + GPO_TICKETS);
    }
    return status;
}

#endif
