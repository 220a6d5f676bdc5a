/*
 * one_each.cu  Small results: an element for each thread.  any_rows has 8 elements of 16 bits
 * in a thread, and code for a new row before each, which takes longer to fetch than a small
 * result takes to write.
 * Cost:  five divisions by multiplication and a load for each element; one wait.
 */
#include "../walks.cuh"

struct element_walk {
    int size;                         /* elements of the result */
    divider inner, w, h, d, channels; /* lengths of the result */
};

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_one_each_kernel(upsample_plan p, element_walk walk)
{
    const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
    if (place >= static_cast<unsigned>(walk.size)) {
        return;
    }
    const int i = static_cast<int>(place);
    const int pixel = walk.inner.narrow(i), row = walk.w.narrow(pixel);
    const int slice = walk.h.narrow(row), image = walk.d.narrow(slice);
    const int a = walk.channels.narrow(image);
    const int c = i - pixel * static_cast<int>(walk.inner.by);
    const int w = pixel - row * static_cast<int>(walk.w.by);
    const int h = row - slice * static_cast<int>(walk.h.by);
    const int d = slice - image * static_cast<int>(walk.d.by);
    const int b = image - a * static_cast<int>(walk.channels.by);
    static_cast<T *>(p.to)[i] = static_cast<const T *>(
        p.from)[a * p.stride[UPSAMPLE_A] + b * p.stride[UPSAMPLE_B] +
                source_column(p.axis[0], d) * p.stride[UPSAMPLE_D] +
                source_column(p.axis[1], h) * p.stride[UPSAMPLE_H] +
                source_column(p.axis[2], w) * p.stride[UPSAMPLE_W] +
                c * p.stride[UPSAMPLE_I]];
}

template <typename T>
gpo_status
upsample_nearest_one_each(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    element_walk walk = {};
    walk.size = static_cast<int>(p.size);
    walk.inner = divider_of(p.inner);
    walk.w = divider_of(p.axis[2].out);
    walk.h = divider_of(p.axis[1].out);
    walk.d = divider_of(p.axis[0].out);
    walk.channels = divider_of(p.channels);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_one_each_kernel<T>), argument_of(call), walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_one_each<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_WIDTH(INSTANTIATE)
