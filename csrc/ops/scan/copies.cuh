/*
 * copies.cuh  Asynchronous copies of contiguous bytes to shared memory, bypassing
 * registers, with the best instruction of each architecture.
 *     start_arrival     thread 0, before a barrier of the block
 *     copy_in           all threads; addresses and size are multiples of 16; with an L2
 *                       eviction policy (ptx.cuh)
 *     await_arrival     all threads, once: then the block may read the copied bytes
 * On sm_90a thread 0 issues one bulk copy; from sm_80 on each thread starts its share;
 * before sm_80 and in the simulator the copy is synchronous.
 * See wgmma.cuh for the instructions of sm_90a.
 */
#ifndef GPO_COPIES_CUH
#define GPO_COPIES_CUH

#include "../../device/ptx.cuh"
#include "../../device/wgmma.cuh"

__device__ __forceinline__ void
start_arrival(uint64_t *arrival)
{
#ifdef GPO_HOPPER
    bulk_barrier_start(shared_address(arrival));
    fence_async_shared();
#else
    (void)arrival;
#endif
}

template <int THREADS>
__device__ __forceinline__ void
copy_in(void *shared, const void *p, int bytes, uint64_t *arrival, uint64_t policy)
{
#ifdef GPO_HOPPER
    if (threadIdx.x == 0) {
        const uint32_t barrier = shared_address(arrival);
        bulk_barrier_expect(barrier, bytes);
        if (bytes > 0) {
            bulk_load(shared_address(shared), p, bytes, barrier, policy);
        }
    }
#else
    (void)arrival;
    for (int i = 16 * threadIdx.x; i < bytes; i += 16 * THREADS) {
        start_copy(static_cast<char *>(shared) + i, static_cast<const char *>(p) + i,
                   policy);
    }
#endif
}

__device__ __forceinline__ void
await_arrival(uint64_t *arrival)
{
#ifdef GPO_HOPPER
    bulk_barrier_wait(shared_address(arrival), 0);
#else
    (void)arrival;
    await_copies();
    __syncthreads();
#endif
}

#endif
