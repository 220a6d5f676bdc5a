/*
 * chunks.cuh  Hot destinations of v4, those with more than HOT rows: the partial sums
 * of their chunks, and the kernel that adds these up.
 *
 * As HOT >= CHUNK, a chunk has parts of at most two hot runs: one that ends in it or
 * passes through, and one that begins in it.
 */
#ifndef GPO_INDEX_ADD_CHUNKS_CUH
#define GPO_INDEX_ADD_CHUNKS_CUH

#include "sorted.cuh"

static_assert(SPAN == WARP, "a lane looks at each chunk of a span");

template <typename T, typename Payload>
struct index_add_gathering {
    const Payload *number;              /* of the source row of each entry */
    const index_add_run<Payload> *runs; /* NULL: runs are found among their entries */
    const T *base;                      /* what is added to: x or out */
    /* Sums of chunk c: row 2 c, and row 2 c + 1 for the run that begins in it. */
    acc_of<T> *part;
    int64_t chunks;
};

/* Writes runs[k] for every destination k that has entries. */
template <typename Payload>
__global__ void
__launch_bounds__(BLOCK)
    index_add_runs(const uint32_t *key, int64_t count, index_add_run<Payload> *runs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < count;
         i += step) {
        const uint32_t k = key[i];
        if (i == 0 || key[i - 1] != k) {
            runs[k].begin = static_cast<Payload>(i);
        }
        if (i + 1 == count || key[i + 1] != k) {
            runs[k].end = static_cast<Payload>(i + 1);
        }
    }
}

/*
 * The last entry of entry i's run, or with WAY = -1 the first: by steps of 1, 2, 4, ...
 * while they stay in the run, then by halves of the step that left it.
 */
template <int WAY>
__device__ __forceinline__ int64_t
end_of_run(const uint32_t *key, int64_t n, int64_t i)
{
    const uint32_t k = key[i];
    const auto is_in = [&](int64_t j) { return j >= 0 && j < n && key[j] == k; };
    int64_t step = 1;
    while (is_in(i + WAY * step)) {
        i += WAY * step;
        step *= 2;
    }
    for (step /= 2; step > 0; step /= 2) {
        i += is_in(i + WAY * step) ? WAY * step : 0;
    }
    return i;
}

/* The run of entry i. */
template <typename Payload>
__device__ __forceinline__ index_add_run<Payload>
run_of(const uint32_t *key, int64_t n, const index_add_run<Payload> *runs, int64_t i)
{
    return runs != nullptr ? runs[key[i]]
                           : index_add_run<Payload>{
                                 static_cast<Payload>(end_of_run<-1>(key, n, i)),
                                 static_cast<Payload>(end_of_run<1>(key, n, i) + 1)};
}

/* The type that sums of chunks are added in: errors must not grow with their number. */
template <typename T>
struct total {
    using type = acc_of<T>;
};
template <>
struct total<f16> {
    using type = double;
};
template <>
struct total<bf16> {
    using type = double;
};
template <>
struct total<float> {
    using type = double;
};

template <typename T>
__device__ __forceinline__ typename total<T>::type
total_of(typename total<T>::type a, typename total<T>::type b)
{
    if constexpr (is_bool<T>) {
        return a | b;
    }
    else {
        return a + b;
    }
}

template <typename T>
__device__ __forceinline__ T
total_stored(T old, typename total<T>::type sum)
{
    if constexpr (is_same<typename total<T>::type, acc_of<T>>) {
        return sum_stored(old, sum);
    }
    else {
        const double both = static_cast<double>(value_of(old)) + sum;
        return stored_as<T>(static_cast<float>(both));
    }
}

/* A block adds up the partial sums of the hot runs that begin in its SPAN chunks. */
template <typename T, typename Payload>
__global__ void
__launch_bounds__(BLOCK)
    index_add_v4_combine(index_add_view<T> a, const uint32_t *key, int64_t n,
                         index_add_gathering<T, Payload> g, int64_t spans,
                         int64_t tiles)
{
    using Total = typename total<T>::type;
    constexpr int WARPS = BLOCK / WARP, AT_ONCE = 8;
    GPO_SHARED(Total, sums, [WARPS][WARP]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t units = a.outer * spans * tiles;
    for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
        const int64_t row = quotient(u, tiles), o = quotient(row, spans);
        const int64_t column = (u - row * tiles) * WARP + lane;
        const int64_t chunk = (row - o * spans) * SPAN + lane;
        uint32_t last_key = 0;
        index_add_run<Payload> run = {0, 0};
        if (chunk < g.chunks) {
            const int64_t past = (chunk + 1) * CHUNK;
            const int64_t last = (past < n ? past : n) - 1;
            last_key = key[last];
            run = run_of(key, n, g.runs, last);
        }
        unsigned hot = __ballot_sync(ALL_LANES, run.end - run.begin > HOT &&
                                                    static_cast<int64_t>(run.begin) >=
                                                        chunk * CHUNK);
        for (; hot != 0; hot &= hot - 1) {
            const int owner = __ffs(static_cast<int>(hot)) - 1;
            const int64_t k = __shfl_sync(ALL_LANES, last_key, owner);
            const int64_t b = __shfl_sync(ALL_LANES, run.begin, owner);
            const int64_t last = __shfl_sync(ALL_LANES, run.end, owner) - 1;
            const int64_t first = b / CHUNK, parts = last / CHUNK - first + 1;
            Total sum = 0;
            for (int64_t p = warp; column < a.inner && p < parts;
                 p += WARPS * AT_ONCE) {
                acc_of<T> part[AT_ONCE];
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    const int64_t q = p + j * WARPS;
                    const int64_t at = 2 * (first + q) + (q == 0 && b % CHUNK != 0);
                    part[j] = q < parts
                                  ? g.part[(o * 2 * g.chunks + at) * a.inner + column]
                                  : acc_of<T>(0);
                }
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    sum = total_of<T>(sum, part[j]);
                }
            }
            sums[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && column < a.inner) {
#pragma unroll
                for (int w = 1; w < WARPS; w++) {
                    sum = total_of<T>(sum, sums[w][lane]);
                }
                const int64_t at = (o * a.length + k) * a.inner + column;
                a.out[at] = total_stored(g.base[at], sum);
            }
            __syncthreads();
        }
    }
}

/* Bytes of the partial sums of all chunks. */
template <typename T>
size_t
part_bytes(const index_add_view<T> &a)
{
    return sizeof(acc_of<T>) * 2 * ceil_div(a.count, CHUNK) * a.outer * a.inner;
}

/* Adds up the partial sums of hot runs that the gather has written. */
template <typename T, typename Payload>
gpo_status
combine_chunks(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
               const index_add_gathering<T, Payload> &g)
{
    const int64_t spans = ceil_div(g.chunks, SPAN), warps = ceil_div(a.inner, WARP);
    return a.count > HOT ? GPO_LAUNCH(call, grid_for(a.outer * spans * warps * BLOCK),
                                      BLOCK, 0, (index_add_v4_combine<T, Payload>), a,
                                      key, a.count, g, spans, warps)
                         : GPO_OK;
}

#endif
