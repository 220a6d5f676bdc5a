/*
 * short_filters.cuh  Filters of at most 512 taps.  One round of loads brings the filter
 * and a block's part of the signal to shared memory, and a thread has four sums: a short
 * loop, whose 640 bytes of code a first call fetches sooner than the 8 KB of v2's.
 * Cost:  reads the signal once, and m - 1 elements again for each 512 sums; 2 shared
 *        loads of 16 bytes for 16 products of float32, of which v2 needs 8 for 256.
 */
#ifndef GPO_CONVOLVE_SHORT_FILTERS_CUH
#define GPO_CONVOLVE_SHORT_FILTERS_CUH

#include "../../../device/grid.cuh"
#include "../products.cuh"
#include "../tuning.cuh"

template <typename V>
__device__ __forceinline__ void
load_four(V (&to)[4], const V *from)
{
    constexpr int SIZE = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < 4; q += SIZE) {
        const pack<V> p = *reinterpret_cast<const pack<V> *>(from + q);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            to[q + u] = p.v[u];
        }
    }
}

/* Adds four terms to four sums; `before` are the four values before `now`. */
template <typename V>
__device__ __forceinline__ void
add_four(V (&sum)[4], const V (&now)[4], const V (&before)[4], const V *taps)
{
    V tap[4];
    load_four(tap, taps);
#pragma unroll
    for (int k = 0; k < 4; k++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            add_product(sum[j],
                        j >= k ? now[j >= k ? j - k : 0] : before[(4 + j - k) % 4],
                        tap[k]);
        }
    }
}

/*
 * space[x] = tap x of the filter for x < taps, zeros from m on, and behind them the
 * signal from element `from` on, zeros beyond its ends.
 */
template <typename T>
__device__ __forceinline__ void
fill_space(const convolve_view<T> &c, const row_operands<T> &row, int64_t from,
           int taps, value_type<T> *space)
{
    using V = value_type<T>;
    constexpr int HELD = 5; /* all of them for filters of up to 64 taps */
    const int all = 2 * taps + SHORT_SUMS;
#pragma unroll 1
    for (int first = threadIdx.x; first < all; first += HELD * SHORT_THREADS) {
        V held[HELD] = {};
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const int x = first + k * SHORT_THREADS;
            const bool is_tap = x < taps;
            const int64_t i = is_tap ? x : from + (x - taps);
            if (x < all && i >= 0 && i < (is_tap ? c.m : c.n)) {
                held[k] =
                    read_value(is_tap ? row.v[i * c.v_step] : row.a[i * c.a_step]);
            }
        }
#pragma unroll
        for (int k = 0; k < HELD; k++) {
            const int x = first + k * SHORT_THREADS;
            if (x < all) {
                space[x] = held[k];
            }
        }
    }
}

/* `taps` is a multiple of 8, at least m. */
template <typename T>
__global__ void
__launch_bounds__(SHORT_THREADS)
    convolve_short_filters(convolve_view<T> c, int taps, int64_t tiles, int64_t works)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<V>::SIZE;
    GPO_DYN_SHARED(V, space);
    V *const signal = space + taps;
#pragma unroll 1
    for (int64_t work = blockIdx.x; work < works; work += gridDim.x) {
        const int64_t row_index = quotient(work, tiles);
        const int64_t begin = (work - row_index * tiles) * SHORT_SUMS;
        const row_operands<T> row = find_row(c, row_index);
        const int sums = static_cast<int>(c.count - begin < SHORT_SUMS ? c.count - begin
                                                                       : SHORT_SUMS);
        fill_space(c, row, c.first + begin - taps, taps, space);
        __syncthreads();

        const int own = 4 * static_cast<int>(threadIdx.x);
        V sum[4] = {};
        if (own < sums) {
            const V *at = signal + taps + own;
            V now[4], before[4];
            load_four(now, at);
#pragma unroll 1
            for (int k = 0; k < taps; k += 8) {
                load_four(before, at - 4);
                add_four(sum, now, before, space + k);
                load_four(now, at - 8);
                add_four(sum, before, now, space + k + 4);
                at -= 8;
            }
        }

        /* Results pass through shared memory, so that stores are coalesced. */
        __syncthreads();
#pragma unroll
        for (int q = 0; q < 4; q += SIZE) {
            pack<V> p;
#pragma unroll
            for (int u = 0; u < SIZE; u++) {
                p.v[u] = sum[q + u];
            }
            *reinterpret_cast<pack<V> *>(signal + own + q) = p;
        }
        __syncthreads();
#pragma unroll 1
        for (int x = threadIdx.x; x < sums; x += SHORT_THREADS) {
            put(c, row, row_index, begin + x, signal[x]);
        }
        __syncthreads();
    }
}

static bool
has_short_filter(const gpo_call *call)
{
    return convolve_plan_of(call)->m <= MOST_SHORT_TAPS;
}

template <typename T>
static gpo_status
convolve_short_filters(gpo_call *call)
{
    const convolve_view<T> c = view_of<T>(call);
    const int taps = static_cast<int>(ceil_div(c.m, 8) * 8);
    const int64_t tiles = ceil_div(c.count, SHORT_SUMS), works = tiles * c.count_rows;
    const size_t bytes = (2 * taps + SHORT_SUMS) * sizeof(value_type<T>);
    return GPO_LAUNCH(call, grid_of(works), SHORT_THREADS, bytes,
                      (convolve_short_filters<T>), c, taps, tiles, works);
}

#endif
