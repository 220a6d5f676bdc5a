/*
 * v2  16-byte stores on both rows, no division.
 * Was:   v1 divides for every element and stores 4 or 8 bytes.
 * Now:   for a scale of 2 in rows and columns.  Row k of x makes rows 2 k and 2 k + 1
 *        of the result, whatever plane it is in, so the rule is not needed: a thread
 *        stays in one column, loads 8 bytes of each of 4 rows, all in flight at once,
 *        and stores 16 bytes to each row made from them.
 * Cost:  each byte once; 32 bytes of loads and 128 of stores in flight per thread.
 * Left:  other scales run aligned_rows or any_rows (shapes/), which use the rule, and
 *        beyond 2^31 rows v0.
 */
#ifndef GPO_UPSAMPLE_NEAREST_V2_DOUBLED_CUH
#define GPO_UPSAMPLE_NEAREST_V2_DOUBLED_CUH

#include "../walks.cuh"

/*
 * Each row of x makes two.  Each thread makes SIZE elements of both: 16 bytes, or a
 * pair where rows are not aligned to 16 bytes.  Rows of x begin `pitch` elements apart.
 */
template <typename T, int SIZE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_v2_doubled(const T *from, T *to, int64_t pitch, row_walk walk)
{
    constexpr int HALF = SIZE / 2;
    using In = word_of<T, HALF>;
    using Out = word_of<T, SIZE>;
    const first_unit first = first_unit_of(walk, DOUBLED_ITEMS);
    if (first.unit >= walk.units) {
        return;
    }
    const unsigned step = walk.apart;
    from += first.number * pitch + first.unit * HALF;
    In half[DOUBLED_ITEMS];
#pragma unroll
    for (unsigned k = 0; k < DOUBLED_ITEMS; k++) {
        if (first.number + k * step < walk.rows) {
            half[k] = *reinterpret_cast<const In *>(from);
        }
        from += step * pitch;
    }
    const int64_t row = static_cast<int64_t>(walk.units) * SIZE;
    to += 2 * first.number * row + first.unit * SIZE;
#pragma unroll
    for (unsigned k = 0; k < DOUBLED_ITEMS; k++) {
        if (first.number + k * step < walk.rows) {
            T x[HALF], pairs[SIZE];
            memcpy(x, &half[k], sizeof x);
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                pairs[i] = x[i / 2];
            }
            Out bits;
            memcpy(static_cast<void *>(&bits), pairs, sizeof bits);
            store_streamed(reinterpret_cast<Out *>(to), bits);
            store_streamed(reinterpret_cast<Out *>(to + row), bits);
        }
        to += 2 * step * row;
    }
}

template <typename T, int SIZE>
static gpo_status
doubled(gpo_call *call, int64_t pitch)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.axis[2].out / SIZE,
                                  DOUBLED_ITEMS, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_v2_doubled<T, SIZE>),
                      static_cast<const T *>(call->in[0].data),
                      static_cast<T *>(call->out[0].data), pitch, walk);
}

template <typename T>
gpo_status
upsample_nearest_v2(gpo_call *call)
{
    constexpr int SIZE = PACK<T>;
    int64_t pitch = 0;
    if constexpr (SIZE > 1) {
        const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
        if (fits_rows(p) && doubles_rows(p, &pitch)) {
            if (has_pairs(call, SIZE)) {
                return doubled<T, SIZE>(call, pitch);
            }
            if (has_pairs(call, 2)) {
                return doubled<T, 2>(call, pitch);
            }
        }
    }
    return takes_any_rows(call) ? upsample_nearest_aligned_rows<T>(call)
                                : upsample_nearest_v0<T>(call);
}

#endif
