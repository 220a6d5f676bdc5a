/*
 * v0  One output per thread.
 * Now:   a thread finds its place by five divisions and its source by the rule, and
 *        moves one element.
 * Cost:  each output has its own load and its own store of one element.
 * Left:  adjacent threads load the same element; stores of only 2 or 4 bytes -> v1.
 */
#ifndef GPO_UPSAMPLE_NEAREST_V0_OUTPUT_CUH
#define GPO_UPSAMPLE_NEAREST_V0_OUTPUT_CUH

#include "../rows.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v0_output(upsample_plan p)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= p.size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].out, p.axis[1].out, p.axis[2].out);
    int64_t from = channel_offset(p, at);
#pragma unroll
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        from += upsample_source(&p.axis[k], at.at[UPSAMPLE_D + k]) *
                p.stride[UPSAMPLE_D + k];
    }
    static_cast<T *>(p.to)[i] = static_cast<const T *>(p.from)[from];
}

template <typename T>
gpo_status
upsample_nearest_v0(gpo_call *call)
{
    const upsample_plan p = argument_of(call);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_v0_output<T>), p);
}

#endif
