/*
 * quotient.cuh  Division of 64-bit numbers that are seldom large.
 */
#ifndef GPO_QUOTIENT_CUH
#define GPO_QUOTIENT_CUH

#include "launch.cuh"

/* Few operands need 64 bits, and a 64-bit division takes ten times as long. */
__device__ __forceinline__ int64_t
quotient(int64_t a, int64_t b)
{
    if ((static_cast<uint64_t>(a | b) >> 32) == 0) {
        return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
    }
    return a / b;
}

#endif
