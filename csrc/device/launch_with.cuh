/*
 * launch_with.cuh  A launch with one attribute: one that follows (follow.cuh), or in
 * clusters (hopper.cuh).  For nvcc alone; the simulator has its own.
 */
#ifndef GPO_LAUNCH_WITH_CUH
#define GPO_LAUNCH_WITH_CUH

#include "launch.cuh"

#ifdef __CUDACC__

/* As GPO_LAUNCH, whose name of the kernel comes as text; without `attribute` as well. */
template <typename... Parameters, typename... Arguments>
gpo_status
launch_with(gpo_call *call, cudaLaunchAttribute *attribute, dim3 grid, dim3 block,
            size_t shared_bytes, const char *name, void (*kernel)(Parameters...),
            Arguments... arguments)
{
    cudaLaunchConfig_t launch = {};
    launch.gridDim = grid;
    launch.blockDim = block;
    launch.dynamicSmemBytes = shared_bytes;
    launch.stream = static_cast<cudaStream_t>(call->stream);
    launch.attrs = attribute;
    launch.numAttrs = attribute != nullptr ? 1 : 0;
    (void)cudaLaunchKernelEx(&launch, kernel, arguments...); /* the error is kept */
    return gpo_cuda_launched(call, name);
}

#endif

#endif
