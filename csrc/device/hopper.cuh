/*
 * hopper.cuh  More instructions of sm_90a, in the style of wgmma.cuh: mbarriers of
 * several arrivals, named barriers, registers, sums into global memory, clusters.  No
 * rung uses them yet; tests/fixtures/cluster.cu does, in the simulator.
 */
#ifndef GPO_HOPPER_CUH
#define GPO_HOPPER_CUH

#include "wgmma.cuh"

#ifdef __CUDACC__

/* ---- mbarriers; see wgmma.cuh for arrivals that expect bytes, and for waits ---- */

/* As bulk_barrier_start, for a number of arrivals. */
__device__ __forceinline__ void
mbarrier_start(uint32_t barrier, uint32_t arrivals)
{
    GPO_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier),
                   "r"(arrivals)
                   : "memory");
}

/* Ends an mbarrier between two phases: its memory is free for other use. */
__device__ __forceinline__ void
mbarrier_stop(uint32_t barrier)
{
    GPO_HOPPER_ASM("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void
mbarrier_arrive(uint32_t barrier)
{
    GPO_HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
                   : "memory");
}

/* Arrives at the mbarrier of another block, given by peer_address. */
__device__ __forceinline__ void
mbarrier_arrive_peer(uint32_t barrier)
{
    GPO_HOPPER_ASM(
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
        : "memory");
}

/* Whether the phase of this parity has ended. */
__device__ __forceinline__ bool
mbarrier_test(uint32_t barrier, uint32_t parity)
{
    uint32_t ended = 0;
    GPO_HOPPER_ASM("{.reg .pred p;\n"
                   "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                   "selp.u32 %0, 1, 0, p;}"
                   : "=r"(ended)
                   : "r"(barrier), "r"(parity)
                   : "memory");
    return ended;
}

/* ---- named barriers 1 to 15, for a number of threads in whole warps ---- */

__device__ __forceinline__ void
named_barrier_sync(uint32_t id, uint32_t threads)
{
    GPO_HOPPER_ASM("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Counts as come, and does not wait. */
__device__ __forceinline__ void
named_barrier_arrive(uint32_t id, uint32_t threads)
{
    GPO_HOPPER_ASM("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- registers: a warpgroup takes or returns them; 24 to 256, divisible by 8 ---- */

template <int REGISTERS>
__device__ __forceinline__ void
take_registers()
{
    GPO_HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS>
__device__ __forceinline__ void
return_registers()
{
    GPO_HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* ---- sums ---- */

/* As bulk_store, but adds to the floats in global memory, each atomically. */
__device__ __forceinline__ void
bulk_add(float *to, uint32_t from, uint32_t bytes)
{
    GPO_HOPPER_ASM("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"
                   " [%0], [%1], %2;\n"
                   "cp.async.bulk.commit_group;" ::"l"(to),
                   "r"(from), "r"(bytes)
                   : "memory");
}

/* ---- clusters: blocks that run at once and use each other's shared memory ---- */

__device__ __forceinline__ uint32_t
cluster_rank()
{
    uint32_t rank = 0;
    GPO_HOPPER_ASM("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ __forceinline__ uint32_t
cluster_size()
{
    uint32_t size = 0;
    GPO_HOPPER_ASM("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

/* All threads of the cluster; what they wrote to shared memory is visible to all. */
__device__ __forceinline__ void
cluster_sync()
{
    GPO_HOPPER_ASM("barrier.cluster.arrive.release.aligned;\n"
                   "barrier.cluster.wait.acquire.aligned;" ::
                       : "memory");
}

/*
 * The address in the block of that rank of what is at `address` in this one.  A block
 * ends only after a cluster_sync that follows the last use of its shared memory.
 */
__device__ __forceinline__ uint32_t
peer_address(uint32_t address, uint32_t rank)
{
    uint32_t peer = 0;
    GPO_HOPPER_ASM("mapa.shared::cluster.u32 %0, %1, %2;"
                   : "=r"(peer)
                   : "r"(address), "r"(rank));
    return peer;
}

__device__ __forceinline__ uint32_t
load_peer(uint32_t peer)
{
    uint32_t word = 0;
    GPO_HOPPER_ASM("ld.shared::cluster.u32 %0, [%1];"
                   : "=r"(word)
                   : "r"(peer)
                   : "memory");
    return word;
}

__device__ __forceinline__ void
store_peer(uint32_t peer, uint32_t word)
{
    GPO_HOPPER_ASM("st.shared::cluster.u32 [%0], %1;" ::"r"(peer), "r"(word)
                   : "memory");
}

/* As GPO_LAUNCH, with clusters of `blocks` blocks in x. */
template <typename... Parameters, typename... Arguments>
gpo_status
launch_in_clusters(gpo_call *call, unsigned blocks, dim3 grid, dim3 block,
                   size_t shared_bytes, const char *name, void (*kernel)(Parameters...),
                   Arguments... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = blocks;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t launch = {};
    launch.gridDim = grid;
    launch.blockDim = block;
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = static_cast<cudaStream_t>(call->stream);
    launch.attrs = &attribute;
    launch.numAttrs = 1;
    (void)cudaLaunchKernelEx(&launch, kernel, arguments...); /* the error is kept */
    return gpo_cuda_launched(call, name);
}

#else

#include "../sim/hopper_sim.h"

#endif

#define GPO_LAUNCH_CLUSTERS(call, blocks, grid, block, shared_bytes, kernel, ...) \
    (gpo_grid_is_empty(grid)                                                      \
         ? GPO_OK                                                                 \
         : launch_in_clusters((call), (blocks), (grid), (block), (shared_bytes),  \
                              #kernel, (kernel), ##__VA_ARGS__))

#endif
