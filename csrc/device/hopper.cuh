/*
 * hopper.cuh  More instructions of sm_90a, in the style of wgmma.cuh: mbarriers of
 * several arrivals, named barriers, registers, sums into global memory, copies by
 * tensor map, clusters.  Of these scan's cluster_rows uses clusters; the fixtures
 * cluster.cu and tensor_maps.cu of the tests use all, in the simulator.
 */
#ifndef GPO_HOPPER_CUH
#define GPO_HOPPER_CUH

#include "launch_with.cuh"
#include "wgmma.cuh"

/*
 * An array in global memory, and the box of it that a copy moves: what a tensor map is
 * made of.  Dimension 0 is contiguous.  The array begins at a multiple of 16 bytes, and
 * strides are multiples of 16, as is a row of the box; a box has at most 256 elements
 * along each dimension.  With `swizzled` rows of the box have 128 bytes, and it lies in
 * shared memory at a multiple of 1024 in the swizzle of wgmma_operand.
 */
struct tensor_layout {
    uint32_t rank;       /* dimensions: 1 to 5 */
    uint64_t sizes[5];   /* in elements */
    uint64_t strides[5]; /* in bytes; that of dimension 0 is the element's size */
    uint32_t box[5];     /* in elements */
    bool swizzled = false;
};

#ifdef __CUDACC__

#include <cuda.h>

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

/* ---- tensor maps: made by the host, __grid_constant__ parameters of a kernel ---- */

using tensor_map = CUtensorMap;

template <typename T>
constexpr CUtensorMapDataType
    TENSOR_TYPE = std::is_same_v<T, f16>    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                  : std::is_same_v<T, bf16> ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                  : sizeof(T) == 8          ? CU_TENSOR_MAP_DATA_TYPE_FLOAT64
                                            : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;

/* The driver's function is found at run time: nothing is linked to the driver. */
template <typename T>
gpo_status
make_tensor_map(gpo_call *call, T *base, const tensor_layout &layout, tensor_map *map)
{
    static_assert(std::is_floating_point_v<T> || sizeof(T) == 2, "a floating type");
    constexpr uint32_t EVERY[5] = {1, 1, 1, 1, 1}; /* element along each dimension */
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess) {
        return gpo_fail(&call->error, GPO_ECUDA, "the driver has no tensor maps");
    }
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    const CUresult result = encode(
        map, TENSOR_TYPE<T>, layout.rank, base, layout.sizes, layout.strides + 1,
        layout.box, EVERY, CU_TENSOR_MAP_INTERLEAVE_NONE,
        layout.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS
               ? GPO_OK
               : gpo_fail(&call->error, GPO_ECUDA,
                          "the driver refuses a tensor map: error %d",
                          static_cast<int>(result));
}

#define GPO_TENSOR_LOAD(dimensions, coordinates, ...)                               \
    GPO_HOPPER_ASM("cp.async.bulk.tensor." dimensions                               \
                   ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"      \
                   " [%0], [%1, {" coordinates "}], [%2];" ::"r"(to),               \
                   "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), __VA_ARGS__ \
                   : "memory")
#define GPO_TENSOR_STORE(dimensions, coordinates, ...)                            \
    GPO_HOPPER_ASM("cp.async.bulk.tensor." dimensions                             \
                   ".global.shared::cta.tile.bulk_group [%1, {" coordinates "}]," \
                   " [%0];\n"                                                     \
                   "cp.async.bulk.commit_group;" ::"r"(from),                     \
                   "l"(reinterpret_cast<uint64_t>(&map)), "n"(0), __VA_ARGS__     \
                   : "memory")

/* asm for the number of coordinates: operands from %3 on. */
#define GPO_TENSOR_COPY(Copy)                                                         \
    if constexpr (RANK == 1) {                                                        \
        Copy("1d", "%3", "r"(at[0]));                                                 \
    }                                                                                 \
    else if constexpr (RANK == 2) {                                                   \
        Copy("2d", "%3, %4", "r"(at[0]), "r"(at[1]));                                 \
    }                                                                                 \
    else if constexpr (RANK == 3) {                                                   \
        Copy("3d", "%3, %4, %5", "r"(at[0]), "r"(at[1]), "r"(at[2]));                 \
    }                                                                                 \
    else if constexpr (RANK == 4) {                                                   \
        Copy("4d", "%3, %4, %5, %6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])); \
    }                                                                                 \
    else {                                                                            \
        static_assert(RANK == 5, "1 to 5 dimensions");                                \
        Copy("5d", "%3, %4, %5, %6, %7", "r"(at[0]), "r"(at[1]), "r"(at[2]),          \
             "r"(at[3]), "r"(at[4]));                                                 \
    }

/*
 * Copies the box whose first element is at these coordinates into shared memory, to a
 * multiple of 128 bytes, without gaps; coordinate 0 is at a multiple of 16 bytes, else an
 * H200 reports an illegal instruction.  Elements out of bounds of the array are 0 and
 * count among the bytes that the mbarrier expects.
 */
template <int RANK>
__device__ __forceinline__ void
tensor_load(uint32_t to, const tensor_map &map, const int32_t (&at)[RANK],
            uint32_t barrier)
{
    GPO_TENSOR_COPY(GPO_TENSOR_LOAD);
}

/*
 * As bulk_store, of such a box; elements beyond the end of a dimension are not stored, if
 * rows are a multiple of 16 bytes.  An H200 reports an illegal instruction where a
 * coordinate is negative.
 */
template <int RANK>
__device__ __forceinline__ void
tensor_store(const tensor_map &map, const int32_t (&at)[RANK], uint32_t from)
{
    GPO_TENSOR_COPY(GPO_TENSOR_STORE);
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
    return launch_with(call, &attribute, grid, block, shared_bytes, name, kernel,
                       arguments...);
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
