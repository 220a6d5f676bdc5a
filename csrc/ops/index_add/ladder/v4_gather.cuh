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
 *        shapes/one_element.cu carries the elements along with their keys.
 */
#ifndef GPO_INDEX_ADD_V4_GATHER_CUH
#define GPO_INDEX_ADD_V4_GATHER_CUH

#include "../chunks.cuh"
#include "../row_sums.cuh"

/*
 * `lanes` adjacent threads take one unit, C times V columns each at a time, `lanes` packs
 * apart: the search for a unit's rows is some thousand cycles of waiting, which narrow packs
 * would not be worth.  `tiles` groups of lanes share a row, in turns if C > 1.  A unit is the
 * first or the last run of a chunk, if that run is hot, or one of `others`: a destination that
 * is not hot, or without g.runs the first entry of its run.
 */
template <typename T, int V, int C, typename Payload>
__global__ void
__launch_bounds__(BLOCK, C > 1 || sizeof(Payload) == 8 ? 2 : 3)
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
        const int64_t unit = row - o * each;
        const int apart = lanes * V;
        const int64_t first_column =
            (u - row * tiles) * C * apart + threadIdx.x % lanes * V;
        const bool is_chunk = unit < 2 * g.chunks, is_last = unit >= g.chunks;
        const int64_t chunk = unit - (is_last ? g.chunks : 0), from = chunk * CHUNK;
        const int64_t to = from + CHUNK < n ? from + CHUNK : n;
        const int64_t other = unit - 2 * g.chunks;
        const int64_t entry = !is_chunk ? other : is_last ? to - 1 : from;
        const bool by_entry = g.runs == nullptr;
        if (by_entry && !is_chunk && entry > 0 && key[entry - 1] == key[entry]) {
            continue; /* not the first of its run */
        }
        const int64_t k = is_chunk || by_entry ? key[entry] : other;
        const index_add_run<Payload> run =
            by_entry ? run_of<Payload>(key, n, nullptr, entry) : g.runs[k];
        int64_t begin = run.begin, end = run.end;
        if (is_chunk != (end - begin > HOT) || (is_chunk && is_last && begin <= from)) {
            continue; /* belongs to another unit; a chunk's only run is its first */
        }
        if (!is_chunk && begin == end && g.base == a.out) {
            continue; /* nothing to add, and out has x's elements already */
        }
        if (is_chunk) {
            begin = begin < from ? from : begin;
            end = end < to ? end : to;
        }
        for (int64_t column = first_column; column < a.inner;
             column += tiles * C * apart) {
            const int64_t columns = ceil_div(a.inner - column, apart);
            const int live = columns < C ? static_cast<int>(columns) : C;
            const int64_t at = (o * a.length + k) * a.inner + column;
            in_flight<T, V> base[C] = {};
            if (!is_chunk) {
#pragma unroll
                for (int c = 0; c < C; c++) {
                    if (c < live) {
                        base[c] = *reinterpret_cast<const in_flight<T, V> *>(
                            g.base + at + c * apart); /* or out */
                    }
                }
            }
            const index_add_sums<T, V, C> sum =
                sum_rows<T, V, C>(a.source + o * a.by_outer + column * a.by_inner,
                                  a.by_row, apart * a.by_inner, live, a.alpha,
                                  g.number + begin, static_cast<int>(end - begin));
            const int64_t part = (o * g.chunks + chunk) * 2 + (is_last ? 1 : 0);
            acc_of<T> *const sums = g.part + part * a.inner + column; /* of a chunk */
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (C > 1 && c >= live) {
                    break;
                }
                values<T, V> v;
                memcpy(v.v, &base[c].word, sizeof v.v);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    if (is_chunk) {
                        sums[c * apart + e] = sum.v[c][e];
                    }
                    v.v[e] = sum_stored(v.v[e], sum.v[c][e]);
                }
                if (!is_chunk) {
                    *reinterpret_cast<values<T, V> *>(a.out + at + c * apart) = v;
                }
            }
            if (C == 1) {
                break; /* the other columns are for other threads */
            }
        }
    }
}

struct index_add_v4 {
    static constexpr index_add_traits TRAITS = {true, true, false, true};

    template <typename T, int V, int C, typename Payload>
    static gpo_status start(gpo_call *call, const index_add_view<T> &a,
                            const uint32_t *key,
                            const index_add_gathering<T, Payload> &g, int64_t others,
                            const gather_shape &s)
    {
        return GPO_LAUNCH(call, s.grid, BLOCK, 0,
                          (index_add_v4_gather<T, V, C, Payload>), a, key, a.count, g,
                          others, s.tiles, s.lanes);
    }

    /* Rows that are no whole packs, as pairs if there are enough, or single elements. */
    template <typename T, typename Payload>
    static gpo_status gather_parts(gpo_call *call, const index_add_view<T> &a,
                                   const uint32_t *key,
                                   const index_add_gathering<T, Payload> &g,
                                   int64_t others, int64_t units)
    {
        if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
            constexpr int C = GATHERED<T, 2>;
            const gather_shape s = gather_shape_of(call, a.inner / 2, units, C);
            if (index_add_is_paired(a) && s.several) {
                return start<T, 2, C>(call, a, key, g, others, s);
            }
        }
        constexpr int C = GATHERED<T, 1>;
        const gather_shape s = gather_shape_of(call, a.inner, units, C);
        return s.several ? start<T, 1, C>(call, a, key, g, others, s)
                         : start<T, 1, 1>(call, a, key, g, others, s);
    }

    /* Payload: the number of the source row. */
    template <typename T, typename Payload>
    static gpo_status gather(gpo_call *call, const index_add_view<T> &a)
    {
        /* Only destinations with rows are written. */
        const bool by_entry = a.base == a.out && a.count < a.length;
        const int64_t others = by_entry ? a.count : a.length;
        const size_t sorted = sort_bytes<Payload>(a.count);
        const size_t runs =
            by_entry ? 0 : aligned(a.length * sizeof(index_add_run<Payload>));
        void *memory = nullptr; /* one allocation: each is a call to the driver */
        gpo_status status = gpo_scratch(call, sorted + runs + part_bytes(a), &memory);
        if (status) {
            return status;
        }
        char *const at = static_cast<char *>(memory) + sorted;
        auto *const run =
            by_entry ? nullptr : reinterpret_cast<index_add_run<Payload> *>(at);
        sort_pairs<Payload> pairs = {};
        status = index_add_sort<Payload>(call, a.index, memory, nullptr, a.by_row, run,
                                         &pairs);
        if (!status && !by_entry) {
            status = GPO_LAUNCH(call, grid_for(a.count), BLOCK, 0,
                                (index_add_v4_runs<Payload>), pairs.key, a.count, run);
        }
        const index_add_gathering<T, Payload> g = {
            pairs.payload, run, a.base, reinterpret_cast<acc_of<T> *>(at + runs),
            ceil_div(a.count, CHUNK)};
        if (!status) {
            constexpr int V = pack<T>::SIZE;
            const int64_t units = 2 * g.chunks + others;
            status = is_packed(a)
                         ? start<T, V, 1>(call, a, pairs.key, g, others,
                                          gather_shape_of(call, a.inner / V, units, 1))
                         : gather_parts(call, a, pairs.key, g, others, units);
        }
        return status ? status : combine_chunks(call, a, pairs.key, g);
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        const gpo_status status = index_add_check_length(call);
        if (status) {
            return status;
        }
        return a.count >> 32 != 0 ? gather<T, uint64_t>(call, a)
                                  : gather<T, uint32_t>(call, a);
    }
};

#endif
