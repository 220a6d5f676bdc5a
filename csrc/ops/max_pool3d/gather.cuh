/*
 * gather.cuh  What the shape kernels of max_pool3d_backward share: windows in 31 bits,
 * which of them have an element, and zeros.
 */
#ifndef GPO_MAX_POOL3D_GATHER_CUH
#define GPO_MAX_POOL3D_GATHER_CUH

#include "gradient_shapes.cuh"

struct gather_axis {
    int in, out, kernel, stride, padding, dilation;
    divider by_stride;
};

inline gather_axis
gather_axis_of(const pool_axis &a)
{
    return {static_cast<int>(a.in),      static_cast<int>(a.out),
            static_cast<int>(a.kernel),  static_cast<int>(a.stride),
            static_cast<int>(a.padding), static_cast<int>(a.dilation),
            divider_of(a.stride)};
}

struct int_range {
    int first, last;
};

/* The windows with an element of [from, to]. */
__device__ __forceinline__ int_range
windows_over(const gather_axis &a, int from, int to)
{
    const int early = from + a.padding - (a.kernel - 1) * a.dilation;
    const int last = a.by_stride.narrow(to + a.padding);
    return {early > 0 ? a.by_stride.narrow(early + a.stride - 1) : 0,
            last < a.out - 1 ? last : a.out - 1};
}

/* n zeros by a block: in words of 16 bytes, and elements before and after. */
template <typename T>
__device__ __forceinline__ void
clear(T *to, int n)
{
    constexpr int PACK = 16 / static_cast<int>(sizeof(T));
    const int tid = threadIdx.x, threads = blockDim.x;
    const T zero = stored_as<T>(value_type<T>(0));
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
    int before = past > 0 ? PACK - past : 0;
    before = before < n ? before : n;
    const int words = (n - before) / PACK, after = before + words * PACK;
    for (int k = tid; k < words; k += threads) {
        reinterpret_cast<uint4 *>(to + before)[k] = {0, 0, 0, 0};
    }
    for (int k = tid; k < before + n - after; k += threads) {
        to[k < before ? k : after + k - before] = zero;
    }
}

/* Whether position `at` is an element of window o. */
__device__ __forceinline__ bool
window_has(const gather_axis &a, int o, int at)
{
    const int past = at - (o * a.stride - a.padding);
    return past >= 0 && past <= (a.kernel - 1) * a.dilation &&
           (a.dilation == 1 || past % a.dilation == 0);
}

#endif
