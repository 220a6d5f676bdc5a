/*
 * backward_whole_scales.cu  Gradients of whole scales: each element of dx is the sum of
 * a box of dy of one size.  A thread has one element, whatever the length of its row;
 * places come from multiplications, the rule of outputs is not needed.
 * Cost:  each byte once; the loads of four rows of a box are in flight before the first
 *        is added, in the order of dy.
 */
#include "../walks.cuh"

struct box_walk {
    unsigned size;          /* elements of dx */
    int depth, height;      /* scales of D and H */
    int width;              /* of W */
    divider row, inner;     /* elements of a row, of its pixels */
    divider h, d, channels; /* lengths of dx */
};

/* WIDTH: the scale of W, or 0 for walk.width. */
template <typename T, int WIDTH>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_whole_scales_kernel(upsample_plan p, box_walk walk)
{
    using V = typename sum_of<T>::type;
    constexpr int LOADS = WIDTH > 0 ? WIDTH : 1; /* of a row at once */
    const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
    if (place >= walk.size) {
        return;
    }
    const int e = static_cast<int>(place), number = walk.row.narrow(e);
    const int column = e - number * static_cast<int>(walk.row.by);
    const int s = walk.inner.narrow(column);
    const int slice = walk.h.narrow(number), plane = walk.d.narrow(slice);
    const int a = walk.channels.narrow(plane);
    const row at = {
        static_cast<unsigned>(a),
        static_cast<unsigned>(plane - a * static_cast<int>(walk.channels.by)), 0, 0};
    const int d = slice - plane * static_cast<int>(walk.d.by);
    const int h = number - slice * static_cast<int>(walk.h.by);
    const int width = WIDTH > 0 ? WIDTH : walk.width;
    const int64_t across = p.stride[UPSAMPLE_W], down = p.stride[UPSAMPLE_H];
    const T *box =
        static_cast<const T *>(p.from) + s * width * across +
        (column - s * static_cast<int>(walk.inner.by)) * p.stride[UPSAMPLE_I] +
        row_offset(p, at, static_cast<int64_t>(d) * walk.depth,
                   static_cast<int64_t>(h) * walk.height);
    V sum = {};
    for (int l = 0; l < walk.depth; l++, box += p.stride[UPSAMPLE_D]) {
        for (int m = 0; m < walk.height; m += BOX_ROWS) {
            for (int x = 0; x < width; x += LOADS) {
                T y[BOX_ROWS][LOADS];
#pragma unroll
                for (int k = 0; k < BOX_ROWS; k++) {
                    if (m + k < walk.height) {
#pragma unroll
                        for (int j = 0; j < LOADS; j++) {
                            y[k][j] = box[(m + k) * down + (x + j) * across];
                        }
                    }
                }
#pragma unroll
                for (int k = 0; k < BOX_ROWS; k++) {
                    if (m + k < walk.height) {
#pragma unroll
                        for (int j = 0; j < LOADS; j++) {
                            add_to(sum, y[k][j]);
                        }
                    }
                }
            }
        }
    }
    static_cast<T *>(p.to)[place] = stored_as<T>(sum);
}

template <typename T, int WIDTH>
static gpo_status
run(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    box_walk walk = {};
    walk.size = static_cast<unsigned>(p.size);
    walk.depth = static_cast<int>(p.axis[0].out / p.axis[0].in);
    walk.height = static_cast<int>(p.axis[1].out / p.axis[1].in);
    walk.width = static_cast<int>(p.axis[2].out / p.axis[2].in);
    walk.row = divider_of(p.row);
    walk.inner = divider_of(p.inner);
    walk.h = divider_of(p.axis[1].in);
    walk.d = divider_of(p.axis[0].in);
    walk.channels = divider_of(p.channels);
    return GPO_LAUNCH(call, grid_of_threads(p.size), BLOCK, 0,
                      (upsample_nearest_backward_whole_scales_kernel<T, WIDTH>),
                      argument_of(call), walk);
}

template <typename T>
gpo_status
upsample_nearest_backward_whole_scales(gpo_call *call)
{
    const upsample_axis &width = upsample_nearest_plan_of(call)->axis[2];
    if constexpr (IS_FLOAT<T>) { /* gradients of others are rare */
        switch (width.out / width.in) {
            case 2:
                return run<T, 2>(call);
            case 3:
                return run<T, 3>(call);
            case 4:
                return run<T, 4>(call);
            default:
                break;
        }
    }
    return run<T, 0>(call);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_whole_scales<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_SUM(INSTANTIATE)
