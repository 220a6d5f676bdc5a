/*
 * v4  Sorted by destination, no atomics.
 * Was:   v3's sums depend on which atomic came first.
 * Now:   a stable sort orders the source rows by destination (sorted.cuh); each
 *        destination then gathers its rows and adds them in the order of the source, so
 *        x is read once and out written once.  A destination with more than 128 rows is
 *        summed in chunks of 64 in parallel, and a second kernel adds the sums of the
 *        chunks (chunks.cuh).  Where rows are fewer than destinations, x is copied
 *        before, and the sorted rows are asked where runs begin, not the destinations.
 * Cost:  each pass of the sort reads and writes 8 bytes per source row, one pass for
 *        every 8 bits of the number of destinations; then the source is read once.
 * Left:  with one element per row the sort moves more bytes than the sum reads:
 *        shapes/one_element.cu carries the elements along with their keys.  Rows that are no
 *        whole packs give a lane one element: see shapes/unpacked_rows.cu.
 */
#ifndef GPO_INDEX_ADD_V4_GATHER_CUH
#define GPO_INDEX_ADD_V4_GATHER_CUH

#include "../gather.cuh"

/*
 * `lanes` adjacent threads take one unit, V columns each; there are `tiles` of them for a
 * unit.
 */
template <typename T, int V, typename Payload>
__global__ void
__launch_bounds__(BLOCK, sizeof(Payload) == 8 ? 2 : 3)
    index_add_v4_gather(index_add_view<T> a, const uint32_t *key, int64_t n,
                        index_add_gathering<T, Payload> g, int64_t others,
                        int64_t tiles, int lanes)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK / lanes);
    const int64_t each = 2 * g.chunks + others, units = a.outer * each * tiles;
    for (int64_t u =
             static_cast<int64_t>(blockIdx.x) * (BLOCK / lanes) + threadIdx.x / lanes;
         u < units; u += step) {
        const int64_t row = quotient(u, tiles), o = quotient(row, each);
        const int64_t column = ((u - row * tiles) * lanes + threadIdx.x % lanes) * V;
        const index_add_unit mine = unit_of(key, n, g, a.out, row - o * each);
        if (mine.skips || column >= a.inner) {
            continue;
        }
        const int64_t at = (o * a.length + mine.k) * a.inner + column;
        in_flight<T, V> base = {};
        if (!mine.is_chunk) {
            base = *reinterpret_cast<const in_flight<T, V> *>(g.base + at); /* or out */
        }
        const index_add_sums<T, V, 1> sum = sum_rows<T, V, 1>(
            a.source + o * a.by_outer + column * a.by_inner, a.by_row, 0, 1, a.alpha,
            g.number + mine.begin, static_cast<int>(mine.end - mine.begin));
        if (mine.is_chunk) {
            const int64_t part =
                (o * g.chunks + mine.chunk) * 2 + (mine.is_last ? 1 : 0);
#pragma unroll
            for (int e = 0; e < V; e++) {
                g.part[part * a.inner + column + e] = sum.v[0][e];
            }
            continue;
        }
        values<T, V> v;
        memcpy(v.v, &base.word, sizeof v.v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            v.v[e] = sum_stored(v.v[e], sum.v[0][e]);
        }
        *reinterpret_cast<values<T, V> *>(a.out + at) = v;
    }
}

struct index_add_v4 {
    static constexpr index_add_traits TRAITS = {true, true, false, true};

    template <int V, typename T, typename Payload>
    static gpo_status
    launch(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
           const index_add_gathering<T, Payload> &g, int64_t others, int64_t units)
    {
        const int64_t across = a.inner / V;
        const int lanes = lanes_for(across);
        const int64_t tiles = ceil_div(across, lanes);
        return GPO_LAUNCH(call, grid_for(a.outer * units * tiles * lanes), BLOCK, 0,
                          (index_add_v4_gather<T, V, Payload>), a, key, a.count, g,
                          others, tiles, lanes);
    }

    template <typename T, typename Payload>
    static gpo_status
    start(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
          const index_add_gathering<T, Payload> &g, int64_t others, int64_t units)
    {
        return is_packed(a)
                   ? launch<pack<T>::SIZE, T, Payload>(call, a, key, g, others, units)
                   : launch<1, T, Payload>(call, a, key, g, others, units);
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return gather_rows<index_add_v4>(call, a);
    }
};

#endif
