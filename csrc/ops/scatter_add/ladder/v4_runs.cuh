/*
 * v4  Stable sort by place, then sums of runs.
 * Was:   v3 reads the input once for each tile of places.
 * Now:   a stable sort orders the positions of the elements by place.  A warp adds the
 *        runs of 64 to 1,024 sorted elements by a segmented scan; a run that crosses the end
 *        of its chunk is added up from the chunks' partial sums, in order.
 * Cost:  16 bytes of memory per element; each pass over 8 bits of the place reads the
 *        keys twice and moves key and position once; then one gather of the values.
 *        2^32 elements or places do not fit the sort's words and take v3.
 * Measured: 2^25 random places of 1,024, float64: 1.54 ms, v3 0.384
 *        (benchmarks/results/h200-scatter_add.json): two passes of the sort move more
 *        than the input.  v4 pays from 96 KB of sums on, where v3 would read the input
 *        many times.
 * Left:  the positions could carry the values along and save the gather.
 */
#ifndef GPO_SCATTER_ADD_V4_RUNS_CUH
#define GPO_SCATTER_ADD_V4_RUNS_CUH

#include "../places.cuh"
#include "v3_one_writer.cuh"

constexpr int RUN_WARPS = BLOCK / WARP;
constexpr uint32_t NO_PLACE = ~0u;

/*
 * total[k] = the sum of run k if it lies in one chunk.  heads[chunk] is the part of a
 * run that began before the chunk, tails[chunk] that of one which goes on after it.
 */
template <typename Input, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_v4_runs(Input x, int length, const uint32_t *key, const uint32_t *from,
                        Sum *total, Sum *heads, Sum *tails)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * RUN_WARPS + warp;
    const int64_t begin = chunk * length;
    const int64_t end = begin + length < x.n ? begin + length : x.n;
    if (begin >= x.n) {
        return;
    }
    const uint32_t before = begin > 0 ? key[begin - 1] : NO_PLACE;
    uint32_t carried = NO_PLACE;
    Sum carry{};
    for (int64_t row = begin; row < end; row += WARP) {
        const int64_t i = row + lane;
        const uint32_t k = i < end ? key[i] : NO_PLACE;
        const uint32_t next = i + 1 < x.n ? key[i + 1] : NO_PLACE;
        const bool is_place = k < x.size;
        Sum sum = is_place ? x.lift(x.values[from[i] * x.values_stride]) : Sum{};
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const int left = lane >= d ? lane - d : lane;
            const Sum other = shuffle_from(sum, left);
            const uint32_t of_other = __shfl_sync(ALL_LANES, k, left);
            if (lane >= d && of_other == k) {
                sum = other + sum;
            }
        }
        if (k == carried) {
            sum = carry + sum;
        }
        if (is_place && (next != k || i == end - 1)) {
            Sum *const to = k == before ? &heads[chunk]
                            : next == k ? &tails[chunk]
                                        : &total[k];
            *to = sum;
        }
        carried = __shfl_sync(ALL_LANES, k, WARP - 1);
        carry = shuffle_from(sum, WARP - 1);
    }
}

/* Sums the runs that go on after the chunk they begin in: a warp for each chunk. */
template <typename Sum>
__global__ void
scatter_add_v4_join(const uint32_t *key, int64_t n, int64_t size, int length,
                    const Sum *heads, const Sum *tails, Sum *total)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * RUN_WARPS + warp;
    const int64_t begin = chunk * length, end = begin + length;
    if (end >= n) {
        return;
    }
    const uint32_t k = key[end - 1];
    if (k >= size || key[end] != k || (begin > 0 && key[begin - 1] == k)) {
        return;
    }
    int64_t low = end, high = n; /* where the run ends */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (key[middle] == k) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    Sum sum = lane == 0 ? tails[chunk] : Sum{};
    for (int64_t c = chunk + 1 + lane; c <= (low - 1) / length; c += WARP) {
        sum = sum + heads[c];
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        sum = sum + shuffle_down(sum, d);
    }
    if (lane == 0) {
        total[k] = sum;
    }
}

/* As many sorted elements to a warp as leave 1,024 warps; by n alone, as bits depend on it. */
inline int
run_chunk_of(int64_t n)
{
    int length = MOST_OF_RUN_CHUNK;
    while (length > LEAST_OF_RUN_CHUNK && n < 1024 * static_cast<int64_t>(length)) {
        length /= 2;
    }
    return length;
}

struct scatter_add_v4 {
    static constexpr bool DETERMINISTIC = true;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        if (x.n > UINT32_MAX || x.size >= UINT32_MAX) {
            return scatter_add_v3::run(call, x, total);
        }
        constexpr int64_t BYTES = sizeof(Sum);
        const int length = run_chunk_of(x.n);
        const int64_t chunks = ceil_div(x.n, length);
        const dim3 grid(static_cast<unsigned>(ceil_div(chunks, RUN_WARPS)));
        sort_pairs<uint32_t> pairs = {};
        void *memory = nullptr;
        gpo_status status = clear(call, total, x.size * BYTES, x.fresh);
        if (!status) {
            status = sort_places(call, index_of(x), &pairs);
        }
        if (!status) {
            status =
                gpo_scratch(call, static_cast<size_t>(2 * chunks * BYTES), &memory);
        }
        if (status) {
            return status;
        }
        Sum *const heads = static_cast<Sum *>(memory), *const tails = heads + chunks;
        status = GPO_LAUNCH(
            call, grid, BLOCK, 0, (scatter_add_v4_runs<decltype(values_of(x)), Sum>),
            values_of(x), length, pairs.key, pairs.payload, total, heads, tails);
        return status ? status
                      : GPO_LAUNCH(call, grid, BLOCK, 0, (scatter_add_v4_join<Sum>),
                                   pairs.key, x.n, x.size, length, heads, tails, total);
    }
};

#endif
