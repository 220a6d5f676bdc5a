/*
 * any_rows.cu  Results whose rows are not aligned to 16 bytes, or that have fewer rows
 * than x.  A thread has 16 aligned bytes of one row of the result.
 * Cost:  each byte of the result once, in stores of 16 bytes except at the ends of a
 *        row; elements are loaded one by one, mostly from L1.
 */
#include "../walks.cuh"

/* Rows of the result one by one; unit 0 begins at the boundary at or before the row. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_any_rows_kernel(upsample_plan p, row_walk walk)
{
    constexpr int SIZE = PACK<T>;
    const int row = static_cast<int>(p.axis[2].out * p.inner);
    const int inner = static_cast<int>(p.inner);
    const walker r = start_walk(walk, 1);
    if (r.number >= walk.rows) {
        return;
    }
    const int64_t d = source_column(p.axis[0], static_cast<int>(r.at.d));
    const int64_t h = source_column(p.axis[1], static_cast<int>(r.at.h));
    const T *x = static_cast<const T *>(p.from) + row_offset(p, r.at, d, h);
    T *to = static_cast<T *>(p.to) + static_cast<int64_t>(r.number) * row;
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
    const int begin = static_cast<int>(r.unit) * SIZE - past;
    const int first = begin > 0 ? begin : 0;
    if (begin >= row) {
        return;
    }
    int w = inner > 1 ? first / inner : first, c = first - w * inner;
    T v[SIZE] = {};
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int i = begin + k;
        if (i >= 0 && i < row) {
            v[k] = x[source_column(p.axis[2], w) * p.stride[UPSAMPLE_W] +
                     c * p.stride[UPSAMPLE_I]];
            c++;
            w += c == inner;
            c = c == inner ? 0 : c;
        }
    }
    if (begin >= 0 && begin + SIZE <= row) {
        uint4 bits;
        memcpy(static_cast<void *>(&bits), v, sizeof bits);
        store_streamed(reinterpret_cast<uint4 *>(to + begin), bits);
        return;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int i = begin + k;
        if (i >= 0 && i < row) {
            to[i] = v[k];
        }
    }
}

template <typename T>
gpo_status
upsample_nearest_any_rows(gpo_call *call)
{
    constexpr int SIZE = PACK<T>;
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].out, p.axis[1].out,
                                  ceil_div(p.row + SIZE - 1, SIZE), 1, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_any_rows_kernel<T>),
                      argument_of(call), walk);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_any_rows<T>(gpo_call * call);
INSTANTIATE(uint8_t)
INSTANTIATE(uint16_t)
INSTANTIATE(uint32_t)
INSTANTIATE(uint64_t)
INSTANTIATE(uint4)
