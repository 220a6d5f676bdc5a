/*
 * aligned_rows.cu  Results whose rows begin on 16-byte boundaries, at any scale that
 * gives at least as many rows as x has.  A thread stays in one column of 16 bytes,
 * finds its sources once, and steps through rows of x with carries from axis to axis.
 * Cost:  each byte once, as v2; loads of 16 bytes where rows keep their length or
 *        pixels fill packs, of 8 where rows are twice as long, else of single elements
 *        from L1.
 */
#include "../walks.cuh"

/* The sources of pack `unit` of a row of the result: one, or one for each element. */
template <typename T, row_mode MODE>
__device__ __forceinline__ void
find_sources(const upsample_plan &p, unsigned unit, int *at)
{
    constexpr int SIZE = PACK<T>;
    const upsample_axis &width = p.axis[2];
    const int across = static_cast<int>(p.stride[UPSAMPLE_W]);
    const int inner = static_cast<int>(p.inner);
    const int first = static_cast<int>(unit) * SIZE;
    if constexpr (MODE == PAIRS) {
        at[0] = first / 2;
    }
    else {
        int w = inner > 1 ? first / inner : first, c = first - w * inner;
        if constexpr (MODE == WHOLE) {
            at[0] = source_column(width, w) * across + c;
        }
        else {
            const int by = static_cast<int>(p.stride[UPSAMPLE_I]);
#pragma unroll
            for (int k = 0; k < SIZE; k++) {
                at[k] = source_column(width, w) * across + c * by;
                c++;
                w += c == inner;
                c = c == inner ? 0 : c;
            }
        }
    }
}

template <typename T, row_mode MODE>
__device__ __forceinline__ uint4
load_sources(const T *x, const int *at)
{
    constexpr int SIZE = PACK<T>;
    uint4 bits = {0, 0, 0, 0};
    if constexpr (MODE == WHOLE) {
        bits = *reinterpret_cast<const uint4 *>(x + at[0]);
    }
    else if constexpr (MODE == PAIRS && SIZE > 1) {
        const uint2 half = *reinterpret_cast<const uint2 *>(x + at[0]);
        bits.x = half.x;
        bits.y = half.y;
    }
    else if constexpr (MODE == PICKED) {
        T v[SIZE];
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            v[k] = x[at[k]];
        }
        memcpy(static_cast<void *>(&bits), v, sizeof bits);
    }
    return bits;
}

/* 16 bytes of result: the loaded bytes, or the first 8 with each element twice. */
template <typename T, row_mode MODE>
__device__ __forceinline__ uint4
spread(uint4 bits)
{
    if constexpr (MODE == PAIRS) {
        constexpr int SIZE = PACK<T>;
        T from[SIZE], to[SIZE];
        memcpy(from, &bits, sizeof bits);
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            to[k] = from[k / 2];
        }
        memcpy(static_cast<void *>(&bits), to, sizeof bits);
    }
    return bits;
}

template <row_mode MODE>
__host__ __device__ constexpr int
rows_in_flight()
{
    return MODE == PICKED ? PICKED_ITEMS : ALIGNED_ITEMS;
}

template <typename T, row_mode MODE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_aligned_rows_kernel(upsample_plan p, row_walk walk)
{
    constexpr int SIZE = PACK<T>, ITEMS = rows_in_flight<MODE>();
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    walker w = start_walk(walk, ITEMS);
    if (w.unit >= walk.units) {
        return;
    }
    int at[MODE == PICKED ? SIZE : 1];
    find_sources<T, MODE>(p, w.unit, at);

    uint4 bits[ITEMS];
    walker ahead = w;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (ahead.number < walk.rows) {
            const T *x = static_cast<const T *>(p.from) +
                         row_offset(p, ahead.at, ahead.at.d, ahead.at.h);
            bits[k] = load_sources<T, MODE>(x, at);
        }
        next_row(walk, ahead);
    }
    const int64_t row = p.axis[2].out * p.inner;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (w.number < walk.rows) {
            const uint4 pack = spread<T, MODE>(bits[k]);
            const column_range d = columns_of(depth, static_cast<int>(w.at.d));
            const column_range h = columns_of(height, static_cast<int>(w.at.h));
            const int64_t image = static_cast<int64_t>(w.at.a) * p.channels + w.at.b;
#pragma unroll 1
            for (int l = d.first; l < d.end; l++) {
                T *to = static_cast<T *>(p.to) + w.unit * SIZE +
                        ((image * depth.out + l) * height.out + h.first) * row;
#pragma unroll 1
                for (int m = h.first; m < h.end; m++, to += row) {
                    store_streamed(reinterpret_cast<uint4 *>(to), pack);
                }
            }
        }
        next_row(walk, w);
    }
}

template <typename T, row_mode MODE>
static gpo_status
run(gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.row / PACK<T>,
                                  rows_in_flight<MODE>(), &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_aligned_rows_kernel<T, MODE>),
                      argument_of(call), walk);
}

template <typename T>
gpo_status
upsample_nearest_aligned_rows(gpo_call *call)
{
    if (!takes_aligned_rows(call)) {
        return upsample_nearest_any_rows<T>(call);
    }
    if (has_whole_packs(call)) {
        return run<T, WHOLE>(call);
    }
    if constexpr (PACK < T >> 1) {
        if (has_pairs(call, PACK<T>)) {
            return run<T, PAIRS>(call);
        }
    }
    return run<T, PICKED>(call);
}

#define INSTANTIATE(T) \
    template gpo_status upsample_nearest_aligned_rows<T>(gpo_call * call);
UPSAMPLE_NEAREST_EVERY_WIDTH(INSTANTIATE)
