/*
 * chains.cuh  Windows of a box that name one element as a chain, and the sum of a chain:
 * what shapes/backward_overlapping_windows.cu does where a block's windows name many
 * elements, each of which few of them do.
 * A chain is made by atomic exchange, so that its order is none: one and two gradients
 * are added as they are, more as whole numbers (fixed_sums.cuh).
 */
#ifndef GPO_MAX_POOL3D_CHAINS_CUH
#define GPO_MAX_POOL3D_CHAINS_CUH

#include "fixed_sums.cuh"
#include "window_boxes.cuh"

/*
 * An element of dx is the head of its chain until its sum is stored: 0, which it was
 * cleared to, or 1 + the number in its box of the last window that came.
 */
template <typename T>
__device__ __forceinline__ unsigned
swap_head(T *element, unsigned head)
{
    if constexpr (sizeof(T) == 2) {
        unsigned short *const word = reinterpret_cast<unsigned short *>(element);
        unsigned short before = 0, seen;
        while ((seen = atomicCAS(word, before, static_cast<unsigned short>(head))) !=
               before) {
            before = seen;
        }
        return before;
    }
    else {
        return atomicExch(reinterpret_cast<unsigned *>(element), head);
    }
}

template <typename T>
__device__ __forceinline__ unsigned
head_at(const T *element)
{
    if constexpr (sizeof(T) == 2) {
        return *reinterpret_cast<const unsigned short *>(element);
    }
    else {
        return *reinterpret_cast<const unsigned *>(element);
    }
}

/* The sum of three and more windows from `head` on. */
template <typename T>
__device__ __noinline__ value_type<T>
sum_of_more(const T *gradient, const uint16_t *next, unsigned head)
{
    using V = value_type<T>;
    constexpr int LIMBS = float_parts<V>::LIMBS;
    unsigned top = 0;
    for (unsigned k = head; k != 0; k = next[k - 1]) {
        const unsigned found = exponent_or_mark<V>(value_of(gradient[k - 1]));
        top = found >= PLUS_INFINITY ? top | found : top < found ? found : top;
    }
    if (top >= PLUS_INFINITY) {
        return sum_of_marks<V>(top);
    }
    int64_t limbs[LIMBS] = {};
    for (unsigned k = head; k != 0; k = next[k - 1]) {
        const float_parts<V> p(value_of(gradient[k - 1]));
        const uint64_t whole = p.below(top);
#pragma unroll
        for (int i = 0; i < LIMBS; i++) {
            const int limb = static_cast<int>(whole >> (i * LIMB_BITS) & LIMB_MASK);
            limbs[i] += p.is_negative ? -limb : limb;
        }
    }
    return float_parts<V>::sum_of(limbs, top);
}

/* The sum of a chain; next[k - 1] follows window k, 0 the last one. */
template <typename T>
__device__ __forceinline__ value_type<T>
sum_of_chain(const T *gradient, const uint16_t *next, unsigned head)
{
    using V = value_type<T>;
    const unsigned second = next[head - 1];
    const V first = V(0) + value_of(gradient[head - 1]);
    if (second == 0) {
        return first;
    }
    return next[second - 1] == 0 ? first + value_of(gradient[second - 1])
                                 : sum_of_more(gradient, next, head);
}

#endif
