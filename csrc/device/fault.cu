/*
 * fault.cu  A kernel that breaks the CUDA context, to test how gpuopt reacts.
 * Only gpuopt._core._fault() launches it.
 */
#include "launch.cuh"

#ifdef __CUDACC__

__global__ void
fault_illegal_address(int *nowhere)
{
    *nowhere = 1;
}

extern "C" gpo_status gpo_device_fault(gpo_call *call);

extern "C" gpo_status
gpo_device_fault(gpo_call *call)
{
    return GPO_LAUNCH(call, dim3(1), dim3(1), 0, fault_illegal_address,
                      reinterpret_cast<int *>(8));
}

#endif
