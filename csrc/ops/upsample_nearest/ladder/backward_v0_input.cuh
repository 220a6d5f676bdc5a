/*
 * v0  One element of dx per thread.
 * Now:   a thread finds its place by five divisions and the range of its outputs on
 *        each axis by the rule, and adds their gradients.
 * Cost:  each element of dy has its own load.
 * Left:  loads of only 2 or 4 bytes -> v1.
 */
#ifndef GPO_UPSAMPLE_NEAREST_BACKWARD_V0_INPUT_CUH
#define GPO_UPSAMPLE_NEAREST_BACKWARD_V0_INPUT_CUH

#include "../rows.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_backward_v0_input(upsample_plan p)
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
    const T *y = static_cast<const T *>(p.from) + channel_offset(p, at);
    V sum = {};
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const T *here = y + l * p.stride[UPSAMPLE_D] + m * p.stride[UPSAMPLE_H];
            for (int64_t n = w.first; n < w.end; n++) {
                add_to(sum, here[n * p.stride[UPSAMPLE_W]]);
            }
        }
    }
    static_cast<T *>(p.to)[i] = stored_as<T>(sum);
}

template <typename T>
gpo_status
upsample_nearest_backward_v0(gpo_call *call)
{
    const upsample_plan p = argument_of(call);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_backward_v0_input<T>), p);
}

#endif
