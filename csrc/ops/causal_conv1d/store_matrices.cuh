/*
 * store_matrices.cuh  The instruction that stores a warp's 8 x 8 matrices turned over, and
 * its equivalent in C++ for the simulator.
 */
#ifndef GPO_CAUSAL_CONV1D_STORE_MATRICES_CUH
#define GPO_CAUSAL_CONV1D_STORE_MATRICES_CUH

#include "../../device/wgmma.cuh"

/*
 * Stores four 8 x 8 matrices of 16-bit values: lane l holds in v[m] the values of matrix m
 * in row l / 4, columns 2 (l % 4) and the next.  Column r of matrix m goes as 16 bytes to
 * `at` of lane 8 m + r, an offset from `shared`.
 */
__device__ __forceinline__ void
store_matrices(unsigned char *shared, uint32_t at, const uint32_t (&v)[4])
{
#ifdef __CUDACC__
    GPO_HOPPER_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], "
                   "{%1, %2, %3, %4};" ::"r"(shared_address(shared) + at),
                   "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                   : "memory");
#else
    const unsigned lane = threadIdx.x % 32;
    for (unsigned i = 0; i < 8; i++) {
        const unsigned column = lane % 4 * 2 + i % 2;
        const uint32_t to = __shfl_sync(0xffffffffu, at, i / 2 * 8 + column);
        const uint16_t value = static_cast<uint16_t>(v[i / 2] >> (i % 2 * 16));
        *reinterpret_cast<uint16_t *>(shared + to + lane / 4 * 2) = value;
    }
#endif
}

#endif
