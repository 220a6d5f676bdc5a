/*
 * packs.cuh  Two arrays without gaps as packs of 16 bytes: where the packs begin, and a
 * pack cut out of two aligned ones.
 */
#ifndef GPO_DOT_PACKS_CUH
#define GPO_DOT_PACKS_CUH

#include "products.cuh"
#include "tuning.cuh"

/*
 * x and y without gaps: x + head is aligned to 16 bytes, and so is y + head less
 * `shift` bytes.  `packs` packs follow, then a tail.
 */
template <typename T>
struct dot_packs {
    const T *x, *y;
    int64_t n, head, packs;
    int shift;
    bool keep_l2;
};

/* Splits arrays without gaps into head, packs and tail; x can be peeled to 16 bytes. */
template <typename T>
dot_packs<T>
packs_of(const dot_view<T> &a)
{
    constexpr int64_t SIZE = pack<T>::SIZE, BYTES = sizeof(T);
    int64_t head = 0;
    while (head < a.n && reinterpret_cast<uintptr_t>(a.x + head) % 16 != 0) {
        head++;
    }
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(a.y + head) % 16);
    if (head * BYTES < shift) { /* the first pack of y would start before y */
        head = head + SIZE < a.n ? head + SIZE : a.n;
    }
    const int64_t left = (a.n - head) * BYTES;
    const int64_t packs = shift ? (left + shift) / 16 - 1 : left / 16;
    const int64_t bytes = KEEP_L2_BYTES / (2 * BYTES);
    return {a.x, a.y, a.n, head, packs > 0 ? packs : 0, shift, a.n <= bytes};
}

/* 16 bytes out of 32, from byte `shift` on, shift in [1, 15]. */
__device__ __forceinline__ uint4
cut_out(uint4 low, uint4 high, int shift)
{
    unsigned w[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    if (shift & 8) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
            w[i] = w[i + 2];
        }
    }
    if (shift & 4) {
#pragma unroll
        for (int i = 0; i < 5; i++) {
            w[i] = w[i + 1];
        }
    }
    const int bits = 8 * (shift & 3);
    return {__funnelshift_r(w[0], w[1], bits), __funnelshift_r(w[1], w[2], bits),
            __funnelshift_r(w[2], w[3], bits), __funnelshift_r(w[3], w[4], bits)};
}

#endif
