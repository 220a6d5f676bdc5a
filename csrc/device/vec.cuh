/*
 * vec.cuh  16-byte packs of any element type: the widest load of a thread.
 */
#ifndef GPO_VEC_CUH
#define GPO_VEC_CUH

#include "ptx.cuh"
#include "types.cuh"

template <typename T>
struct alignas(16) pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T v[SIZE];
};

template <typename T>
__device__ __forceinline__ pack<T>
pack_of(uint4 bits)
{
    pack<T> out;
    memcpy(out.v, &bits, 16);
    return out;
}

template <typename T>
__device__ __forceinline__ pack<T>
load_pack(const T *p)
{
    return pack_of<T>(load_streamed(reinterpret_cast<const uint4 *>(p)));
}

/* The same with an L2 cache policy. */
template <typename T>
__device__ __forceinline__ pack<T>
load_pack(const T *p, uint64_t policy)
{
    return pack_of<T>(load_streamed(reinterpret_cast<const uint4 *>(p), policy));
}

/* The number of elements before the first 16-byte boundary at or after p, at most n. */
template <typename T>
__device__ __forceinline__ int64_t
elements_to_boundary(const T *p, int64_t n)
{
    const unsigned past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(p) & 15u);
    const int64_t head = past ? (16 - past) / sizeof(T) : 0;
    return head < n ? head : n;
}

#endif
