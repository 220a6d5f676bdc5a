/*
 * window_shape.cuh  How v2 divides a problem among threads, and the kernel that adds up
 * the parts of split sums.
 */
#ifndef GPO_CONVOLVE_WINDOW_SHAPE_CUH
#define GPO_CONVOLVE_WINDOW_SHAPE_CUH

#include "../../device/grid.cuh"
#include "register_rows.cuh"
#include "tuning.cuh"

/*
 * How a problem is divided.  A unit is `lanes` threads that compute lanes * SUMS sums
 * of a row, with all or part of their terms; a block has THREADS / lanes units.  A row
 * has more than one tile only where a unit is a whole block.
 */
struct window_shape {
    int lanes, log2_lanes;
    int depth; /* rows of terms in shared memory at a time; even */
    int64_t tiles, parts, part_terms, units, items;
};

template <typename V>
static window_shape
shape_of(const gpo_call *call, const convolve_plan &p)
{
    constexpr int N = SUMS<V>;
    window_shape w = {};
    w.lanes = FEWEST_LANES;
    w.log2_lanes = 3;
    while (w.lanes < THREADS && w.lanes * N < p.count) {
        w.lanes *= 2;
        w.log2_lanes++;
    }
    w.depth = w.lanes / 8 > 2 ? w.lanes / 8 : 2;
    static_assert(THREADS / FEWEST_LANES * ((2 + FEWEST_LANES) * 80 + 2 * 64) <=
                      STAGE_BYTES,
                  "the rows of the smallest units fit");
    static_assert((THREADS / 8 + THREADS) * 80 + THREADS / 8 * 64 <= STAGE_BYTES,
                  "the rows of the largest unit fit");
    w.tiles = ceil_div(p.count, w.lanes * N);
    const int64_t groups = THREADS / w.lanes, whole = w.tiles * p.count_rows;
    const int64_t wanted = static_cast<int64_t>(gpo_processors(call)) * BLOCKS * groups;
    const int64_t most = p.m / LEAST_TERMS;
    int64_t parts = whole > 0 ? wanted / whole : 1;
    parts = parts < most ? parts : most;
    parts = parts > 1 ? parts : 1;
    w.part_terms = ceil_div(ceil_div(p.m, parts), 2 * N) * (2 * N);
    w.parts = ceil_div(p.m, w.part_terms);
    w.units = whole * w.parts;
    w.items = ceil_div(w.units, groups);
    return w;
}

/* Adds the parts of each sum in order. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    convolve_v2_add_parts(convolve_view<T> c, int64_t parts, const value_type<T> *from)
{
    const int64_t all = c.count_rows * c.count;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t u = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; u < all;
         u += step) {
        total<value_type<T>> sum;
#pragma unroll 4
        for (int64_t p = 0; p < parts; p++) {
            sum.add(from[p * all + u]);
        }
        const int64_t row = quotient(u, c.count);
        put(c, find_row(c, row), row, u - row * c.count, sum.value());
    }
}

#endif
