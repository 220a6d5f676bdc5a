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

/*
 * to[k] = from[k] for ITEMS packs k < n from `first` on, `step` apart, all in flight at once:
 * the part of a copy that a thread has.
 */
template <int ITEMS>
__device__ __forceinline__ void
copy_packs(const uint4 *from, uint4 *to, int64_t first, int step, int64_t n)
{
    uint4 v[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (first + j * step < n) {
            v[j] = load_streamed(from + first + j * step);
        }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (first + j * step < n) {
            to[first + j * step] = v[j];
        }
    }
}

/* 16 bytes out of 32, from byte `past` on, past in [0, 15]. */
__device__ __forceinline__ uint4
cut_out(uint4 low, uint4 high, unsigned past)
{
    unsigned w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const bool by_two = past & 8u, by_one = past & 4u;
    const unsigned bits = past % 4 * 8;
#pragma unroll
    for (int k = 0; k < 6; k++) {
        w[k] = by_two ? w[k + 2] : w[k];
    }
#pragma unroll
    for (int k = 0; k < 5; k++) {
        w[k] = by_one ? w[k + 1] : w[k];
    }
    return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
            __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
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
