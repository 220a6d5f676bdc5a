/*
 * unpacked_rows.cu  v4 for rows that are no whole packs of 16 bytes, which gave a lane one
 * element.  A thread takes several elements of a row, or pairs, `lanes` apart: the search
 * for a destination's rows, three loads that wait for each other, is then made for up to 512
 * columns.  Where destinations are many, eight lanes share a row and take turns of it.
 * Cost:  as v4, and two rows in flight in place of eight.
 */
#include "../gather.cuh"
#include "../owning.cuh"

/* Packs that a thread takes at a time, of one element or of a pair; as many registers of
   sums. */
template <typename T, int V>
constexpr int AT_A_TIME = sizeof(acc_of<T>) == 8 || sizeof(T) * V == 8 ? 4 : 8;

/* As v4: `lanes` threads take C times V columns of a unit at a time; `tiles` groups of lanes
   share a row, in turns. */
template <typename T, int V, int C, typename Payload>
__global__ void
__launch_bounds__(BLOCK, 2)
    index_add_unpacked_rows_kernel(index_add_view<T> a, const uint32_t *key, int64_t n,
                                   index_add_gathering<T, Payload> g, int64_t others,
                                   int64_t tiles, int lanes)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK / lanes);
    const int64_t each = 2 * g.chunks + others, units = a.outer * each * tiles;
    for (int64_t u =
             static_cast<int64_t>(blockIdx.x) * (BLOCK / lanes) + threadIdx.x / lanes;
         u < units; u += step) {
        const int64_t row = quotient(u, tiles), o = quotient(row, each);
        const int apart = lanes * V;
        const int64_t first_column =
            (u - row * tiles) * C * apart + threadIdx.x % lanes * V;
        const index_add_unit mine = unit_of(key, n, g, a.out, row - o * each);
        if (mine.skips) {
            continue;
        }
        for (int64_t column = first_column; column < a.inner;
             column += tiles * C * apart) {
            const int64_t columns = ceil_div(a.inner - column, apart);
            const int live = columns < C ? static_cast<int>(columns) : C;
            const int64_t at = (o * a.length + mine.k) * a.inner + column;
            in_flight<T, V> base[C] = {};
            if (!mine.is_chunk) {
#pragma unroll
                for (int c = 0; c < C; c++) {
                    if (c < live) {
                        base[c] = *reinterpret_cast<const in_flight<T, V> *>(
                            g.base + at + c * apart); /* or out */
                    }
                }
            }
            const index_add_sums<T, V, C> sum = sum_rows<T, V, C>(
                a.source + o * a.by_outer + column * a.by_inner, a.by_row,
                apart * a.by_inner, live, a.alpha, g.number + mine.begin,
                static_cast<int>(mine.end - mine.begin));
            const int64_t part =
                (o * g.chunks + mine.chunk) * 2 + (mine.is_last ? 1 : 0);
            acc_of<T> *const sums = g.part + part * a.inner + column; /* of a chunk */
#pragma unroll
            for (int c = 0; c < C; c++) {
                if (c >= live) {
                    break;
                }
                values<T, V> v;
                memcpy(v.v, &base[c].word, sizeof v.v);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    if (mine.is_chunk) {
                        sums[c * apart + e] = sum.v[c][e];
                    }
                    v.v[e] = sum_stored(v.v[e], sum.v[c][e]);
                }
                if (!mine.is_chunk) {
                    *reinterpret_cast<values<T, V> *>(a.out + at + c * apart) = v;
                }
            }
        }
    }
}

struct index_add_unpacked {
    static constexpr index_add_traits TRAITS = {true, true, false, true};

    /*
     * Where units are many, and none is known to be hot, few lanes share a row and take turns
     * of it, because the search for a unit's rows takes as long as several loads; the chunks
     * of a hot one would wait for each turn.
     */
    template <int V, typename T, typename Payload>
    static gpo_status
    launch(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
           const index_add_gathering<T, Payload> &g, int64_t others, int64_t units)
    {
        constexpr int C = AT_A_TIME<T, V>;
        const int64_t across = a.inner / V;
        const int needed = lanes_for(ceil_div(across, C));
        const bool in_turns = a.outer * units * LANES_IN_TURNS >=
                                  gpo_processors(call) * THREADS_IN_TURNS &&
                              index_add_most(call) <= HOT;
        const int lanes = in_turns && needed > LANES_IN_TURNS ? LANES_IN_TURNS : needed;
        const int64_t tiles = in_turns ? 1 : ceil_div(across, lanes * C);
        return GPO_LAUNCH(call, grid_for(a.outer * units * tiles * lanes), BLOCK, 0,
                          (index_add_unpacked_rows_kernel<T, V, C, Payload>), a, key,
                          a.count, g, others, tiles, lanes);
    }

    template <typename T, typename Payload>
    static gpo_status
    start(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
          const index_add_gathering<T, Payload> &g, int64_t others, int64_t units)
    {
        if constexpr (sizeof(T) == 2 || sizeof(T) == 4) {
            const int lanes = lanes_for(ceil_div(a.inner / 2, (AT_A_TIME<T, 2>)));
            if (index_add_is_paired(a) && a.inner > WARP &&
                a.outer * units * lanes >= gpo_processors(call) * THREADS_OF_PARTS) {
                return launch<2, T, Payload>(call, a, key, g, others, units);
            }
        }
        return launch<1, T, Payload>(call, a, key, g, others, units);
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return gather_rows<index_add_unpacked>(call, a);
    }
};

template <typename T>
gpo_status
index_add_unpacked_rows(gpo_call *call)
{
    return index_add_with<index_add_unpacked, T>(call);
}

template gpo_status index_add_unpacked_rows<b8>(gpo_call *call);
template gpo_status index_add_unpacked_rows<uint8_t>(gpo_call *call);
template gpo_status index_add_unpacked_rows<uint16_t>(gpo_call *call);
template gpo_status index_add_unpacked_rows<uint32_t>(gpo_call *call);
template gpo_status index_add_unpacked_rows<uint64_t>(gpo_call *call);
template gpo_status index_add_unpacked_rows<f16>(gpo_call *call);
template gpo_status index_add_unpacked_rows<bf16>(gpo_call *call);
template gpo_status index_add_unpacked_rows<float>(gpo_call *call);
template gpo_status index_add_unpacked_rows<double>(gpo_call *call);
