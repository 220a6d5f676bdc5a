/*
 * slot.cuh  Slots of keys in tables of a power of two, by Fibonacci hashing: neighbouring
 * keys go to slots far from each other.
 */
#ifndef GPO_SLOT_CUH
#define GPO_SLOT_CUH

#include "launch.cuh"

/* One of 2^bits slots, bits > 0; keys of 32 bits multiply in 32. */
__device__ __forceinline__ uint32_t
slot_of_key(uint32_t key, int bits)
{
    return key * 0x9e3779b1u >> (32 - bits);
}

__device__ __forceinline__ uint32_t
slot_of_key(uint64_t key, int bits)
{
    return static_cast<uint32_t>(key * 0x9e3779b97f4a7c15u >> (64 - bits));
}

#endif
