/*
 * v1  Pairs of dy.
 * Was:   v0 loads dy element by element.
 * Now:   a thread loads two adjacent elements at a time where they are aligned as a
 *        pair; the source's kernel, for any scale.
 * Cost:  dy once, in words of two elements.
 * Measured: 0.740 ms where v0 takes 0.587 ((8, 16, 512, 512) float32 by 2 on an H200):
 *        the tests for pairs cost more than the saved loads, which hit L1 anyway.
 *        Wider loads pay where no thread has to test -> v2.
 * Left:  still five divisions for each element -> v2.
 */
#ifndef GPO_UPSAMPLE_NEAREST_BACKWARD_V1_PAIRS_CUH
#define GPO_UPSAMPLE_NEAREST_BACKWARD_V1_PAIRS_CUH

#include "../rows.cuh"

template <typename V, typename T>
__device__ __forceinline__ void
add_pair(V &sum, const T *y)
{
    if constexpr (sizeof(T) <= 8) {
        const auto bits = *reinterpret_cast<const word_of<T, 2> *>(y);
        T two[2];
        memcpy(static_cast<void *>(two), &bits, sizeof bits);
        add_to(sum, two[0]);
        add_to(sum, two[1]);
    }
    else {
        add_to(sum, y[0]);
        add_to(sum, y[1]);
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_backward_v1_pairs(upsample_plan p)
{
    using V = typename sum_of<T>::type;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= p.size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].in, p.axis[1].in, p.axis[2].in);
    const range d = outputs_of(p.axis[0], at.at[UPSAMPLE_D]);
    const range h = outputs_of(p.axis[1], at.at[UPSAMPLE_H]);
    const range w = outputs_of(p.axis[2], at.at[UPSAMPLE_W]);
    const int64_t across = p.stride[UPSAMPLE_W];
    const T *y = static_cast<const T *>(p.from) + channel_offset(p, at);
    V sum = {};
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const T *here = y + l * p.stride[UPSAMPLE_D] + m * p.stride[UPSAMPLE_H];
            int64_t n = w.first;
            if (across == 1) {
                if (n < w.end && !lies_on(here + n, 2 * sizeof(T))) {
                    add_to(sum, here[n++]);
                }
                for (; n + 1 < w.end; n += 2) {
                    add_pair(sum, here + n);
                }
            }
            for (; n < w.end; n++) {
                add_to(sum, here[n * across]);
            }
        }
    }
    static_cast<T *>(p.to)[i] = stored_as<T>(sum);
}

template <typename T>
gpo_status
upsample_nearest_backward_v1(gpo_call *call)
{
    const upsample_plan p = argument_of(call);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_backward_v1_pairs<T>), p);
}

#endif
