/*
 * v3  A warp per source row.
 * Was:   v1 divides, and reads the index, once per 16 bytes of the source.
 * Now:   a warp reads the index of four rows and then only adds offsets: each lane
 *        takes 16 bytes of each of the four rows.
 * Cost:  as v1 with one index read per row; lanes idle where a row is short.
 * Measured: 1e6 rows of 128 float32 into 1e5 0.416 ms, v1 0.437; float16, whose rows
 *        leave half of the lanes idle, 0.287, v1 0.212
 *        (benchmarks/results/h200-index_add.json).
 * Left:  atomics add in any order, so float sums differ between runs -> v4.
 */
#ifndef GPO_INDEX_ADD_V3_ROWS_CUH
#define GPO_INDEX_ADD_V3_ROWS_CUH

#include "../frame.cuh"

constexpr int ROWS_AT_ONCE = 4; /* of a warp */

template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK) index_add_v3_rows(index_add_view<T> a)
{
    const int64_t rows = a.outer * a.count, size = a.outer * a.length * a.inner;
    const int64_t step =
        static_cast<int64_t>(gridDim.x) * (BLOCK / WARP) * ROWS_AT_ONCE;
    const int64_t warp =
        (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    for (int64_t first = warp * ROWS_AT_ONCE; first < rows; first += step) {
        const T *from[ROWS_AT_ONCE];
        int64_t to[ROWS_AT_ONCE];
#pragma unroll
        for (int j = 0; j < ROWS_AT_ONCE; j++) {
            const int64_t row = first + j;
            to[j] = -1;
            if (row < rows) {
                const int64_t o = a.counts.of(row);
                const int64_t s = row - o * a.count, k = position_of(a.index, s);
                from[j] = a.source + o * a.by_outer + s * a.by_row;
                to[j] = k < 0 ? -1 : (o * a.length + k) * a.inner;
            }
        }
        for (int64_t c = lane * V; c < a.inner; c += WARP * V) {
            values<T, V> v[ROWS_AT_ONCE];
#pragma unroll
            for (int j = 0; j < ROWS_AT_ONCE; j++) {
                if (to[j] >= 0) {
                    v[j] = load_scaled<T, V>(from[j] + c * a.by_inner, a.alpha);
                }
            }
#pragma unroll
            for (int j = 0; j < ROWS_AT_ONCE; j++) {
                if (to[j] >= 0) {
                    atomic_add_values<T, V>(a.out, to[j] + c, size, v[j]);
                }
            }
        }
    }
}

struct index_add_v3 : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int V = pack<T>::SIZE;
        const dim3 grid = grid_for(ceil_div(a.outer * a.count, ROWS_AT_ONCE) * WARP);
        return is_packed(a)
                   ? GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v3_rows<T, V>), a)
                   : GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v3_rows<T, 1>), a);
    }
};

#endif
