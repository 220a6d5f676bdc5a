/*
 * backward_few_elements.cu  Small gradients at any scale: an element of dx for each thread.
 * contiguous_rows copies a box, makes tables and waits for both before it adds; where the
 * threads are a wave or two, each finds its own box in less time, by multiplications and three
 * steps from the quotient.
 * Cost:  five divisions by multiplication and six ends of axes for each element; loads of
 *        single elements, mostly from L1, up to 4 in flight.
 */
#include "../tiles.cuh"

struct few_walk {
    int size;                              /* elements of dx */
    output_axis outputs[UPSAMPLE_SPATIAL]; /* D, H, W */
    divider inner, w, h, d, channels;      /* lengths of dx */
};

__device__ __forceinline__ column_range
outputs_of(const output_axis &axis, int s)
{
    return {first_output(axis, s), first_output(axis, s + 1)};
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_few_elements_kernel(upsample_plan p, few_walk walk)
{
    const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
    if (place >= static_cast<unsigned>(walk.size)) {
        return;
    }
    const int i = static_cast<int>(place);
    const int pixel = walk.inner.narrow(i), line = walk.w.narrow(pixel);
    const int slice = walk.h.narrow(line), plane = walk.d.narrow(slice);
    const int a = walk.channels.narrow(plane);
    const row at = {
        static_cast<unsigned>(a),
        static_cast<unsigned>(plane - a * static_cast<int>(walk.channels.by)), 0, 0};
    const column_range d =
        outputs_of(walk.outputs[0], slice - plane * static_cast<int>(walk.d.by));
    const column_range h =
        outputs_of(walk.outputs[1], line - slice * static_cast<int>(walk.h.by));
    const column_range w =
        outputs_of(walk.outputs[2], pixel - line * static_cast<int>(walk.w.by));
    const int c = i - pixel * static_cast<int>(walk.inner.by);
    const T *const y = static_cast<const T *>(p.from) + w.first * p.stride[UPSAMPLE_W] +
                       c * p.stride[UPSAMPLE_I];
    static_cast<T *>(p.to)[i] =
        stored_as<T>(sum_of_box<2>(p, y, at, d, h, w.end - w.first));
}

template <typename T>
gpo_status
upsample_nearest_backward_few_elements(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    few_walk walk = {};
    walk.size = static_cast<int>(p.size);
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        walk.outputs[k] = output_axis_of(p.axis[k]);
    }
    walk.inner = divider_of(p.inner);
    walk.w = divider_of(p.axis[2].in);
    walk.h = divider_of(p.axis[1].in);
    walk.d = divider_of(p.axis[0].in);
    walk.channels = divider_of(p.channels);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_backward_few_elements_kernel<T>),
                      argument_of(call), walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_few_elements<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_SUM(INSTANTIATE)
