/*
 * v2  Register window.
 * Was:   v1 takes a shared load for each product.
 * Now:   a thread keeps 64 bytes of consecutive sums (16 floats) and twice as much of
 *        the signal in registers; 16 terms are 256 products for 4 16-byte loads of the
 *        signal and 4 of the filter, the latter broadcast to all lanes.  Rows of 64
 *        bytes are padded to 80, which avoids bank conflicts.  Where a row has few sums
 *        a block takes several rows; where there are few blocks the terms are split,
 *        and a second kernel adds the parts in order.
 * Cost:  8 shared loads per 256 products; reads the signal once for each 512 terms.
 * Left:  it makes every product one by one; from a few hundred terms on a Fourier
 *        transform needs fewer -> v3.
 */
#ifndef GPO_CONVOLVE_V2_REGISTER_WINDOW_CUH
#define GPO_CONVOLVE_V2_REGISTER_WINDOW_CUH

#include "../signal_stage.cuh"
#include "../window_shape.cuh"

/* Adds N terms to a thread's N sums: 256 products and 8 loads where N = 16. */
template <typename V>
__device__ __forceinline__ void
slide(V (&sum)[SUMS<V>], const V (&now)[SUMS<V>], const V (&before)[SUMS<V>],
      const V *taps)
{
    constexpr int N = SUMS<V>, SIZE = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < N / SIZE; q++) {
        const pack<V> t = *reinterpret_cast<const pack<V> *>(taps + q * SIZE);
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            const int k = q * SIZE + u;
#pragma unroll
            for (int j = 0; j < N; j++) {
                add_product(sum[j],
                            j >= k ? now[j >= k ? j - k : 0]
                                   : before[j >= k ? 0 : N + j - k],
                            t.v[u]);
            }
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(THREADS, BLOCKS)
    convolve_v2_register_window(convolve_view<T> c, window_shape w,
                                value_type<T> *parts)
{
    using V = value_type<T>;
    constexpr int N = SUMS<V>;
    GPO_SHARED(uint4, stage, [STAGE_BYTES / 16]);
    const int lane = threadIdx.x & (w.lanes - 1), group = threadIdx.x >> w.log2_lanes;
    const int groups = THREADS >> w.log2_lanes, tile_sums = w.lanes * N;
    V *const signal =
        reinterpret_cast<V *>(stage) + group * (w.depth + w.lanes) * PITCH<V>;
    V *const filter = reinterpret_cast<V *>(stage) +
                      groups * (w.depth + w.lanes) * PITCH<V> + group * w.depth * N;
    for (int64_t item = blockIdx.x; item < w.items; item += gridDim.x) {
        /* The tiles in the middle of a row have most terms, so they start first. */
        const int64_t unit = item * groups + group;
        const int64_t ranked = quotient(unit, w.parts);
        const int64_t part = unit - ranked * w.parts;
        const int64_t rank = quotient(ranked, c.count_rows);
        const int64_t row_index = ranked - rank * c.count_rows;
        const int64_t tile = w.tiles / 2 + (rank % 2 ? -((rank + 1) / 2) : rank / 2);
        const bool is_unit = unit < w.units;
        const row_operands<T> row = find_row(c, is_unit ? row_index : 0);
        const int64_t begin = is_unit ? tile * tile_sums : 0;
        const int sums =
            static_cast<int>(c.count - begin < tile_sums ? c.count - begin : tile_sums);
        const int width = is_unit ? (sums + N - 1) / N * N : 0;
        const bool is_active = lane * N < width;

        /* Terms that any sum of the tile has, then this unit's part of them. */
        const int64_t full = c.first + begin;
        int64_t low = full - c.n + 1, high = full + tile_sums;
        low = low > 0 ? low : 0;
        high = high < c.m ? high : c.m;
        const int64_t span = high - low < w.part_terms ? high - low : w.part_terms;
        low += part * w.part_terms;
        high = high - low < w.part_terms ? high : low + w.part_terms;

        V sum[N] = {};
        total<V> all[N];
        int since = 0;
        bool is_first = true; /* no chunk of the unit is summed yet */
#pragma unroll 1
        for (int64_t s = 0; s < span; s += w.depth * N) {
            const int64_t k = low + s;
            int terms = w.depth * N; /* of this stage: whole pairs of rows */
            if (span - s < terms) {
                terms = (static_cast<int>(span - s) + 2 * N - 1) / (2 * N) * (2 * N);
            }
            const int64_t taps_left = high - k; /* 0 or less beyond the last term */
            for (int x = lane; x < terms; x += w.lanes) {
                V value = {};
                if (is_unit && x < taps_left) {
                    value = read_value(row.v[(k + x) * c.v_step]);
                }
                filter[x] = value;
            }
            fill_signal<T>(c, row.a, full - k - terms, terms + width, lane, w.lanes,
                           signal);
            __syncthreads();
            if (is_active) {
                V now[N], before[N];
                const V *at = signal + (terms / N + lane) * PITCH<V>, *taps = filter;
                load_row(now, at);
#pragma unroll 1
                for (int b = 0; b < terms / N; b += 2) {
                    load_row(before, at - PITCH<V>);
                    slide(sum, now, before, taps);
                    load_row(now, at - 2 * PITCH<V>);
                    slide(sum, before, now, taps + N);
                    at -= 2 * PITCH<V>;
                    taps += 2 * N;
                }
            }
            since += terms;
            if (since >= CONVOLVE_CHUNK || s + terms >= span) {
                since = 0;
#pragma unroll
                for (int j = 0; j < N; j++) {
                    if (is_first) {
                        all[j].start(sum[j]);
                    }
                    else {
                        all[j].add(sum[j]);
                    }
                    sum[j] = {};
                }
                is_first = false;
            }
            __syncthreads();
        }

        /* Results pass through shared memory, so that stores are coalesced. */
        if (is_active) {
            constexpr int SIZE = pack<V>::SIZE;
#pragma unroll
            for (int q = 0; q < N / SIZE; q++) {
                pack<V> p;
#pragma unroll
                for (int u = 0; u < SIZE; u++) {
                    p.v[u] = all[q * SIZE + u].value();
                }
                *reinterpret_cast<pack<V> *>(signal + lane * PITCH<V> + q * SIZE) = p;
            }
        }
        __syncthreads();
        for (int x = lane; x < (is_unit ? sums : 0); x += w.lanes) {
            const V value = signal[place_of<V>(x)];
            if (parts) {
                parts[(part * c.count_rows + row_index) * c.count + begin + x] = value;
            }
            else {
                put(c, row, row_index, begin + x, value);
            }
        }
        __syncthreads();
    }
}

template <typename T>
static gpo_status
convolve_v2(gpo_call *call)
{
    using V = value_type<T>;
    const convolve_plan &plan = *convolve_plan_of(call);
    const convolve_view<T> c = view_of<T>(call);
    const window_shape w = shape_of<V>(call, plan);
    void *parts = nullptr;
    gpo_status status = GPO_OK;
    if (w.parts > 1 && w.units > 0) {
        status =
            gpo_scratch(call, w.parts * c.count_rows * c.count * sizeof(V), &parts);
    }
    if (!status) {
        status =
            GPO_LAUNCH(call, grid_of(w.items), THREADS, 0,
                       (convolve_v2_register_window<T>), c, w, static_cast<V *>(parts));
    }
    if (!status && parts) {
        status = GPO_LAUNCH(call, grid_of(ceil_div(c.count_rows * c.count, BLOCK)),
                            BLOCK, 0, (convolve_v2_add_parts<T>), c, w.parts,
                            static_cast<const V *>(parts));
    }
    return status;
}

#endif
