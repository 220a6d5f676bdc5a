/*
 * backward_long_rows.cu  Gradients of one axis at any scale.  A thread has a column of
 * dx, finds its outputs once, and adds those of row after row of dy, several rows at a
 * time: no tables, no shared memory, no barrier.
 * Cost:  each byte once; lanes read dy a scale apart, and the sectors of a warp's first
 *        columns come from L1 for the others.
 */
#include "../tiles.cuh"

template <typename T>
struct line_view {
    const T *dy;
    T *dx;
    output_axis axis;
    int64_t stride; /* of rows of dy */
    int rows, each; /* in all, of a block */
    divider tiles;  /* blocks of a row */
};

template <typename T, int NEAR>
__global__ void
__launch_bounds__(BLOCK, sizeof(T) == 8 ? 4 : LONG_BLOCKS)
    upsample_nearest_backward_long_rows_kernel(line_view<T> v)
{
    const int group = v.tiles.narrow(blockIdx.x), first = group * v.each;
    const int tile =
        static_cast<int>(blockIdx.x) - group * static_cast<int>(v.tiles.by);
    const int s = tile * BLOCK + static_cast<int>(threadIdx.x), in = v.axis.in;
    if (s >= in) {
        return;
    }
    const int n = first_output(v.axis, s);
    const int columns = first_output(v.axis, s + 1) - n;
    const T *y = v.dy + first * v.stride + n;
    T *to = v.dx + first * static_cast<int64_t>(in) + s;
    int left = v.rows - first < v.each ? v.rows - first : v.each;
#pragma unroll 1
    for (; left > 0; left -= LONG_ITEMS) {
        T e[LONG_ITEMS][NEAR] = {};
#pragma unroll
        for (int m = 0; m < LONG_ITEMS; m++) {
#pragma unroll
            for (int x = 0; x < NEAR; x++) {
                if (m < left && x < columns) {
                    e[m][x] = y[m * v.stride + x];
                }
            }
        }
#pragma unroll
        for (int m = 0; m < LONG_ITEMS; m++) {
            typename sum_of<T>::type sum = {};
#pragma unroll
            for (int x = 0; x < NEAR; x++) {
                add_to(sum, e[m][x]); /* 0 where it has no element */
            }
#pragma unroll 1
            for (int x = NEAR; x < columns && m < left; x++) {
                add_to(sum, y[m * v.stride + x]);
            }
            if (m < left) {
                to[m * in] = stored_as<T>(sum);
            }
        }
        y += LONG_ITEMS * v.stride;
        to += LONG_ITEMS * in;
    }
}

template <typename T>
gpo_status
upsample_nearest_backward_long_rows(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const upsample_axis &width = p.axis[2];
    const int64_t tiles = ceil_div(width.in, BLOCK);
    const int64_t wanted = gpo_processors(call) * LONG_BLOCKS * LONG_WAVES;
    const int64_t fill = p.channels * tiles / wanted / LONG_ITEMS * LONG_ITEMS;
    line_view<T> v = {};
    v.dy = static_cast<const T *>(call->in[0].data);
    v.dx = static_cast<T *>(call->out[0].data);
    v.axis = output_axis_of(width);
    v.stride = p.stride[UPSAMPLE_B];
    v.rows = static_cast<int>(p.channels);
    v.each = static_cast<int>(fill < LONG_ITEMS       ? LONG_ITEMS
                              : fill < MOST_LONG_ROWS ? fill
                                                      : MOST_LONG_ROWS);
    v.tiles = divider_of(tiles);
    const dim3 grid = grid_of(ceil_div(v.rows, v.each) * tiles);
    if (width.inverse >= 0.5F) {
        return GPO_LAUNCH(call, grid, BLOCK, 0,
                          (upsample_nearest_backward_long_rows_kernel<T, 2>), v);
    }
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_long_rows_kernel<T, NEAR_COLUMNS>), v);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_long_rows<T>(gpo_call * call);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)
