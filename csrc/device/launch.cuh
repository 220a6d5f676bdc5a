/*
 * launch.cuh  Macros to launch a kernel and to declare shared memory, so that nvcc and
 * the simulator (g++) compile the same kernel file.  Kernel files include this first,
 * and no CUDA header.
 *
 *   GPO_LAUNCH(call, grid, block, shared_bytes, (kernel<T>), arguments...)
 *       launches the kernel on the call's stream and returns a gpo_status; an empty
 *       grid launches nothing and is GPO_OK
 *   GPO_SHARED(float, tile, [32][33]);     a static shared array named `tile`
 *   GPO_DYN_SHARED(float, buffer);         the dynamic shared memory of the launch
 *
 * A launch with more than 48 KB of dynamic shared memory calls gpo_shared_room and
 * gpo_allow_shared first.
 */
#ifndef GPO_LAUNCH_CUH
#define GPO_LAUNCH_CUH

#include "../core/gpo.h"

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

/* backend/cuda.c: the launch's error, or with GPUOPT_BLOCKING=1 the kernel's. */
extern "C" gpo_status gpo_cuda_launched(gpo_call *call, const char *kernel);

/* clang-format would split <<< into tokens. */
// clang-format off
#define GPO_LAUNCH(call, grid, block, shared_bytes, kernel, ...)                       \
    (gpo_grid_is_empty(grid)                                                           \
         ? GPO_OK                                                                      \
         : ((kernel)<<<(grid), (block), (shared_bytes),                                \
                       static_cast<cudaStream_t>((call)->stream)>>>(__VA_ARGS__),      \
            gpo_cuda_launched((call), #kernel)))
// clang-format on

#define GPO_SHARED(T, name, ...) __shared__ T name __VA_ARGS__

/* One symbol for all types: CUDA forbids an `extern __shared__` name with two types. */
#define GPO_DYN_SHARED(T, name)                                     \
    extern __shared__ __align__(16) unsigned char gpo_dyn_shared[]; \
    T *const name = reinterpret_cast<T *>(gpo_dyn_shared)

#else

#include "../sim/cuda_sim.h"

#endif

static inline bool
gpo_grid_is_empty(dim3 grid)
{
    return grid.x == 0 || grid.y == 0 || grid.z == 0;
}

/* The most shared memory, static and dynamic, that a block may have, in bytes. */
static inline int64_t
gpo_shared_room(const gpo_call *call)
{
#ifdef __CUDACC__
    int bytes = 0;
    const cudaError_t error = cudaDeviceGetAttribute(
        &bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, call->device);
    return error == cudaSuccess && bytes > 0 ? bytes : 48 << 10;
#else
    (void)call;
    return 227 << 10;
#endif
}

/*
 * Lets a kernel use `bytes` of dynamic shared memory.  Without this every kernel may
 * have 48 KB in all, static included; so the limit is raised from 32 KB of dynamic
 * memory on.  An error shows at the launch.
 */
template <typename Kernel>
static inline void
gpo_allow_shared(Kernel *kernel, size_t bytes)
{
#ifdef __CUDACC__
    if (bytes > 32 << 10) {
        (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(bytes));
    }
#else
    (void)kernel;
    (void)bytes;
#endif
}

#endif
