/*
 * v1  Pairs of equal outputs.
 * Was:   v0 loads an element once for each of its outputs.
 * Now:   a thread has an element of x, loads it once and stores all its outputs, two
 *        adjacent ones at a time where they are aligned as a pair; the source's kernel,
 *        for any scale.
 * Cost:  x once; stores of two elements.
 * Left:  still five divisions for each element, and words of 4 or 8 bytes -> v2.
 */
#ifndef GPO_UPSAMPLE_NEAREST_V1_PAIRS_CUH
#define GPO_UPSAMPLE_NEAREST_V1_PAIRS_CUH

#include "v0_output.cuh"

template <typename T>
__device__ __forceinline__ void
store_pair(T *to, T x)
{
    if constexpr (sizeof(T) <= 8) {
        const T two[2] = {x, x};
        word_of<T, 2> bits;
        memcpy(static_cast<void *>(&bits), two, sizeof bits);
        *reinterpret_cast<word_of<T, 2> *>(to) = bits;
    }
    else {
        to[0] = x;
        to[1] = x;
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v1_pairs(upsample_plan p, int64_t size)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].in, p.axis[1].in, p.axis[2].in);
    int64_t from = channel_offset(p, at);
#pragma unroll
    for (int k = UPSAMPLE_D; k <= UPSAMPLE_W; k++) {
        from += at.at[k] * p.stride[k];
    }
    const T x = static_cast<const T *>(p.from)[from];
    const range d = outputs_of(p.axis[0], at.at[UPSAMPLE_D]);
    const range h = outputs_of(p.axis[1], at.at[UPSAMPLE_H]);
    const range w = outputs_of(p.axis[2], at.at[UPSAMPLE_W]);
    const int64_t image = at.at[UPSAMPLE_A] * p.channels + at.at[UPSAMPLE_B];
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const int64_t row = (image * p.axis[0].out + l) * p.axis[1].out + m;
            T *to = static_cast<T *>(p.to) + row * p.axis[2].out * p.inner +
                    at.at[UPSAMPLE_I];
            int64_t n = w.first;
            if (p.inner == 1) {
                if (n < w.end && !lies_on(to + n, 2 * sizeof(T))) {
                    to[n++] = x;
                }
                for (; n + 1 < w.end; n += 2) {
                    store_pair(to + n, x);
                }
            }
            for (; n < w.end; n++) {
                to[n * p.inner] = x;
            }
        }
    }
}

constexpr int64_t MOST_THREADS = MAX_GRID_X * BLOCK;

template <typename T>
gpo_status
upsample_nearest_v1(gpo_call *call)
{
    const int64_t size = upsample_nearest_plan_of(call)->from_size;
    if (size > MOST_THREADS) { /* a huge broadcast x that shrinks */
        return upsample_nearest_v0<T>(call);
    }
    return GPO_LAUNCH(call, grid_of_threads(size), BLOCK, 0,
                      (upsample_nearest_v1_pairs<T>), argument_of(call), size);
}

#endif
