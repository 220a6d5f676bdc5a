/*
 * follow.cuh  A kernel that starts while the one before it still runs, on sm_90 and later:
 * its code, its arguments and its inputs come from memory meanwhile, some 1 to 2 us of a
 * short kernel.
 *
 *   GPO_FOLLOW(call, follows, grid, block, shared_bytes, (kernel<T>), arguments...)
 *       as GPO_LAUNCH; if `follows`, right after a launch of the same call
 *   let_next_start();     in a kernel that another follows: that one may start as soon as
 *                         all blocks of this one have come here
 *   wait_for_before();    in a kernel that follows, by every thread that goes on: before it
 *                         writes anything, or reads what the kernel before writes
 *
 * Inputs of the call may be read before the wait: the first launch of a call does not
 * follow, so that all work queued before the call has ended.
 */
#ifndef GPO_FOLLOW_CUH
#define GPO_FOLLOW_CUH

#include "launch_with.cuh"

#ifdef __CUDACC__

/* Kernels for older GPUs do not wait, so a build that has them launches as usual. */
constexpr int GPO_BUILT_FOR[] = {__CUDA_ARCH_LIST__};

constexpr bool
gpo_may_follow()
{
    for (int arch : GPO_BUILT_FOR) {
        if (arch < 900) {
            return false;
        }
    }
    return true;
}

__device__ __forceinline__ void
let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void
wait_for_before()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <typename... Parameters, typename... Arguments>
gpo_status
launch_behind(gpo_call *call, bool follows, dim3 grid, dim3 block, size_t shared_bytes,
              const char *name, void (*kernel)(Parameters...), Arguments... arguments)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return launch_with(call, follows && gpo_may_follow() ? &attribute : nullptr, grid,
                       block, shared_bytes, name, kernel, arguments...);
}

#define GPO_FOLLOW(call, follows, grid, block, shared_bytes, kernel, ...)             \
    (gpo_grid_is_empty(grid)                                                          \
         ? GPO_OK                                                                     \
         : launch_behind((call), (follows), (grid), (block), (shared_bytes), #kernel, \
                         (kernel), ##__VA_ARGS__))

#else

static inline void
let_next_start()
{
}

static inline void
wait_for_before()
{
}

#define GPO_FOLLOW(call, follows, grid, block, shared_bytes, kernel, ...) \
    ((void)(follows),                                                     \
     GPO_LAUNCH((call), (grid), (block), (shared_bytes), kernel, ##__VA_ARGS__))

#endif

#endif
