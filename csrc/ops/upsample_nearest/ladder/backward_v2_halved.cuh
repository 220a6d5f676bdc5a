/*
 * v2  16-byte loads on both rows, no division.
 * Was:   v1 divides for every element and loads 4 or 8 bytes.
 * Now:   for a scale of 2 in rows and columns.  Rows 2 k and 2 k + 1 of dy make row k
 *        of dx, whatever plane it is in, so the rule is not needed: a thread stays in
 *        one column, loads 16 bytes of each of 4 rows, all in flight at once, and
 *        stores 8 bytes of each of 2.
 * Cost:  each byte once; 64 bytes of loads in flight per thread.
 * Left:  other scales run aligned_rows or any_rows (shapes/), which use the rule, and
 *        beyond 2^31 rows v0.
 */
#ifndef GPO_UPSAMPLE_NEAREST_BACKWARD_V2_HALVED_CUH
#define GPO_UPSAMPLE_NEAREST_BACKWARD_V2_HALVED_CUH

#include "../walks.cuh"

/*
 * Two rows of dy make one of dx.  Each thread adds SIZE elements of both: 16 bytes, or
 * a pair where rows are not aligned to 16 bytes.  Rows of dy begin `pitch` elements
 * apart.
 */
template <typename T, int SIZE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_v2_halved(const T *from, T *to, int64_t pitch,
                                        row_walk walk)
{
    using V = typename sum_of<T>::type;
    using In = word_of<T, SIZE>;
    constexpr int SUMS = SIZE / 2;
    const first_unit first = first_unit_of(walk, HALVED_ITEMS);
    if (first.unit >= walk.units) {
        return;
    }
    const unsigned step = walk.apart;
    from += 2 * first.number * pitch + first.unit * SIZE;
    In two[HALVED_ITEMS][2];
#pragma unroll
    for (unsigned k = 0; k < HALVED_ITEMS; k++) {
        if (first.number + k * step < walk.rows) {
            two[k][0] = __ldg(reinterpret_cast<const In *>(from));
            two[k][1] = __ldg(reinterpret_cast<const In *>(from + pitch));
        }
        from += 2 * step * pitch;
    }
    const int64_t row = static_cast<int64_t>(walk.units) * SUMS;
    to += first.number * row + first.unit * SUMS;
#pragma unroll
    for (unsigned k = 0; k < HALVED_ITEMS; k++) {
        if (first.number + k * step < walk.rows) {
            V sum[SUMS] = {};
#pragma unroll
            for (int j = 0; j < 2; j++) {
                T y[SIZE];
                memcpy(static_cast<void *>(y), &two[k][j], sizeof y);
#pragma unroll
                for (int i = 0; i < SIZE; i++) {
                    add_to(sum[i / 2], y[i]);
                }
            }
            store_sums<T, SUMS>(to, sum);
        }
        to += step * row;
    }
}

template <typename T, int SIZE>
static gpo_status
halved(gpo_call *call, int64_t pitch)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.axis[2].out / SIZE,
                                  HALVED_ITEMS, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_v2_halved<T, SIZE>),
                      static_cast<const T *>(call->in[0].data),
                      static_cast<T *>(call->out[0].data), pitch, walk);
}

template <typename T>
gpo_status
upsample_nearest_backward_v2(gpo_call *call)
{
    constexpr int SIZE = PACK<T>;
    int64_t pitch = 0;
    if constexpr (SIZE > 1) {
        const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
        if (fits_rows(p) && doubles_rows(p, &pitch)) {
            if (has_pairs(call, SIZE)) {
                return halved<T, SIZE>(call, pitch);
            }
            if (has_pairs(call, 2)) {
                return halved<T, 2>(call, pitch);
            }
        }
    }
    return takes_any_rows(call) ? upsample_nearest_backward_aligned_rows<T>(call)
                                : upsample_nearest_backward_v0<T>(call);
}

#endif
