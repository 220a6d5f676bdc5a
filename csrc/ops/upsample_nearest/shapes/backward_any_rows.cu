/*
 * backward_any_rows.cu  Gradients at any scale, of rows with any alignment.  A thread
 * sums one element of dx for each of 4 rows, or of one row where elements are few; it
 * finds its columns of dy once.
 * Cost:  each byte once; loads of single elements, mostly from L1, up to 8 in flight.
 */
#include "../walks.cuh"

/* One element of dx for each of ITEMS rows; its columns of dy are found once. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_any_rows_kernel(upsample_plan p, row_walk walk)
{
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    walker w = start_walk(walk, ELEMENT_ITEMS);
    if (w.unit >= walk.units) {
        return;
    }
    const int inner = static_cast<int>(p.inner), e = static_cast<int>(w.unit);
    const int s = inner > 1 ? e / inner : e;
    const column_range n = columns_of(p.axis[2], s);
    const int across = static_cast<int>(p.stride[UPSAMPLE_W]);
    const int columns = n.end - n.first;
    const int at =
        n.first * across + (e - s * inner) * static_cast<int>(p.stride[UPSAMPLE_I]);
    for (int k = 0; k < ELEMENT_ITEMS && w.number < walk.rows; k++) {
        const column_range d = columns_of(depth, static_cast<int>(w.at.d));
        const column_range h = columns_of(height, static_cast<int>(w.at.h));
        const T *const y = static_cast<const T *>(p.from) + at;
        static_cast<T *>(p.to)[static_cast<int64_t>(w.number) * walk.units + w.unit] =
            stored_as<T>(sum_of_box<NEAR_COLUMNS>(p, y, w.at, d, h, columns));
        next_row(walk, w);
    }
}

template <typename T>
gpo_status
upsample_nearest_backward_any_rows(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.row, ELEMENT_ITEMS,
                                  &grid, ONE_ELEMENT_EACH);
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_any_rows_kernel<T>), argument_of(call),
                      walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_backward_any_rows<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_SUM(INSTANTIATE)
