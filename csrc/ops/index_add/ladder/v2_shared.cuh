/*
 * v2  Hot destinations pre-summed.
 * Was:   v1 sends every element of the source to L2.
 * Now:   where sums for all destinations of a few columns fit into shared memory, a
 *        block adds its part of the source there and sends each sum to L2 once.  A
 *        small table has several copies, so that lanes rarely collide.  Where no table
 *        fits or pays (tables.cuh), v1's kernel runs.
 * Cost:  reads the source once; a table of sums per block, in float for 16-bit floats.
 * Measured: 2^25 float32 into 1e3 0.319 ms, v1 3.00; 1e6 rows of 128 into 1e3 0.806, v1
 *        0.326 (benchmarks/results/h200-index_add.json).  A shared-memory atomic on
 *        floats is a compare-and-swap loop: it pays where few addresses would be
 *        contended in L2, not where rows are long.
 * Left:  long rows read the index and find their place once per 16 bytes -> v3.
 */
#ifndef GPO_INDEX_ADD_V2_SHARED_CUH
#define GPO_INDEX_ADD_V2_SHARED_CUH

#include "../tables.cuh"
#include "v1_vector.cuh"

template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_v2_shared(index_add_view<T> a, index_add_table t)
{
    using Acc = acc_of<T>;
    constexpr int TABLE_ITEMS = sizeof(Acc) == 8 ? 3 : 8; /* rows in flight */
    GPO_DYN_SHARED(Acc, table);
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int places = static_cast<int>(a.length) * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes, copy = mine % t.copies;
    const int64_t c = tile * t.columns + column;
    const bool is_column = column < t.columns && c < a.inner;

    for (int i = tid; i < places * t.copies; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    for (int64_t s = begin + mine; is_column && s < end; s += TABLE_ITEMS * rows) {
        Acc v[TABLE_ITEMS];
        int at[TABLE_ITEMS];
#pragma unroll
        for (int j = 0; j < TABLE_ITEMS; j++) {
            at[j] = -1;
            if (s + j * rows < end) {
                const int64_t k = position_of(a.index, s + j * rows);
                v[j] = scaled(from[(s + j * rows) * a.by_row], a.alpha);
                at[j] = k < 0 ? -1
                              : (static_cast<int>(k) * t.columns + column) * t.copies +
                                    copy;
            }
        }
#pragma unroll
        for (int j = 0; j < TABLE_ITEMS; j++) {
            if (at[j] >= 0) {
                atomic_add(table + at[j], v[j]);
            }
        }
    }
    __syncthreads();
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        Acc sum = 0;
        for (int j = 0; j < t.copies; j++) {
            sum += table[i * t.copies + j];
        }
        const int64_t k = i / t.columns, at = tile * t.columns + i % t.columns;
        if (sum != 0 && at < a.inner) {
            values<T, 1> one;
            one.v[0] = stored_as<T>(sum);
            atomic_add_values<T, 1>(a.out, (o * a.length + k) * a.inner + at,
                                    a.outer * a.length * a.inner, one);
        }
    }
}

struct index_add_v2 : index_add_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        index_add_table t;
        size_t bytes = 0;
        if (!plan_table(call, sizeof(acc_of<T>), &t, &bytes)) {
            return index_add_v1::run(call, a);
        }
        gpo_allow_shared(index_add_v2_shared<T>, bytes);
        return GPO_LAUNCH(call, table_grid(a.outer, t), TABLE_BLOCK, bytes,
                          (index_add_v2_shared<T>), a, t);
    }
};

#endif
