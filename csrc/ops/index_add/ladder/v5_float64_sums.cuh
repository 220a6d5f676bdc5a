/*
 * v5  Sums in float64.
 * Was:   v0 to v3 round to the dtype of x after every addition: n rows of one
 *        destination make n rounding errors, and a float16 sum of ones stops growing at
 *        2,048.
 * Now:   float64 sums of the shape of x start at zero, take the rows by atomics, and
 *        are added to x and rounded once.  More sums than L2 holds are made in ranges:
 *        each is cleared, takes the rows that go there, and is rounded before the next,
 *        so that atomics and sums stay in L2.
 * Cost:  8 bytes for each element of x, written twice and read; one 8-byte atomic per
 *        element of the source, which L2 does as fast as a 4-byte one for rows of one
 *        element and at half the rate for long rows.  Each range reads the source.
 * Measured: 1e6 rows of 128 float32 into 1e5 0.860 ms, v4 0.341; 2^25 rows of one
 *        element into 1e6 0.429, one_element 1.85
 *        (benchmarks/results/h200-index_add.json).  A sort adds to each destination
 *        once, so precision costs v4 nothing; where rows are short the sort itself
 *        costs more.
 * Left:  long rows -> v4.  Few destinations, where atomics are contended, are for
 *        shapes/few_destinations.cu.
 */
#ifndef GPO_INDEX_ADD_V5_FLOAT64_SUMS_CUH
#define GPO_INDEX_ADD_V5_FLOAT64_SUMS_CUH

#include "../separate_sums.cuh"

constexpr int ELEMENTS_IN_FLIGHT = 4; /* of a thread */

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    index_add_v5_float64_sums(index_add_view<T> a, index_add_range range, double *sums)
{
    let_next_start();
    const int64_t n = a.outer * a.count * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * ELEMENTS_IN_FLIGHT);
    for (int64_t begin =
             static_cast<int64_t>(blockIdx.x) * (BLOCK * ELEMENTS_IN_FLIGHT);
         begin < n; begin += step) {
        T v[ELEMENTS_IN_FLIGHT] = {};
        int64_t row[ELEMENTS_IN_FLIGHT] = {}, c[ELEMENTS_IN_FLIGHT] = {},
                o[ELEMENTS_IN_FLIGHT] = {}, entry[ELEMENTS_IN_FLIGHT] = {};
#pragma unroll
        for (int j = 0; j < ELEMENTS_IN_FLIGHT; j++) {
            const int64_t i = begin + j * BLOCK + threadIdx.x;
            if (i < n) {
                row[j] = a.inners.of(i);
                o[j] = a.counts.of(row[j]);
                c[j] = i - row[j] * a.inner;
                const int64_t s = row[j] - o[j] * a.count;
                entry[j] = entry_of(a.index, s);
                v[j] = a.source[o[j] * a.by_outer + s * a.by_row + c[j] * a.by_inner];
            }
        }
        wait_for_before();
#pragma unroll
        for (int j = 0; j < ELEMENTS_IN_FLIGHT; j++) {
            if (begin + j * BLOCK + threadIdx.x < n) {
                const int64_t s = row[j] - o[j] * a.count;
                const int64_t k = destination_of(a.index, entry[j], s);
                const int64_t at = (o[j] * a.length + k) * a.inner + c[j] - range.begin;
                if (k >= 0 && at >= 0 && at < range.n) {
                    atomic_add(sums + at, wide_scaled(v[j], a.wide_alpha));
                }
            }
        }
    }
}

struct index_add_v5 : index_add_wide_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        const int64_t n = a.outer * a.count * a.inner;
        return index_add_in_ranges<double>(
            call, a, [&](index_add_range range, double *sums) {
                return GPO_FOLLOW(call, true, grid_for(ceil_div(n, ELEMENTS_IN_FLIGHT)),
                                  BLOCK, 0, (index_add_v5_float64_sums<T>), a, range,
                                  sums);
            });
    }
};

#endif
