/*
 * ptx.cuh  The only inline PTX of the project: tiny device functions, each with a twin
 * in plain C++ that the simulator runs.
 */
#ifndef GPO_PTX_CUH
#define GPO_PTX_CUH

#include "launch.cuh"

/* 16 bytes that are read once: through the read-only path, not kept in L1. */
__device__ __forceinline__ uint4
load_streamed(const uint4 *p)
{
#ifdef __CUDACC__
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
#else
    return *p;
#endif
}

#endif
