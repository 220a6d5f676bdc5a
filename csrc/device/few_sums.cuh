/*
 * few_sums.cuh  Sums by key of at most FEW entries in one block, without atomics: a
 * stable sort in shared memory, then sums of runs of equal keys.  The order of
 * additions follows from the entries' number alone, so every run gives the same bits.
 *
 *   GPO_SHARED(uint32_t, key, [FEW]);        keys, in the order of the entries
 *   GPO_SHARED(uint16_t, entry, [FEW]);
 *   GPO_SHARED(uint4, space, [FEW_SPACE]);   working memory of both calls
 *   few_sort(key, entry, space, n, bits);    keys below 2^bits
 *   few_runs(key, entry, space, n, lanes, zero, load, store);
 *
 * All FEW_THREADS threads call both.  See index_add/shapes/one_launch.cu for a use.
 */
#ifndef GPO_FEW_SUMS_CUH
#define GPO_FEW_SUMS_CUH

#include "sort.cuh"

constexpr int FEW_THREADS = 512, FEW_WARPS = FEW_THREADS / WARP, FEW_ITEMS = 8;
constexpr int FEW = FEW_THREADS * FEW_ITEMS;
constexpr int FEW_SPACE = (FEW_WARPS * SORT_DIGITS + WARP) / 4;

/* The rows of 32 entries that each warp sorts. */
__device__ __forceinline__ int
few_rows(int n)
{
    return (n + FEW_THREADS - 1) / FEW_THREADS;
}

/* Sorts key[0..n) stably; entry[i] becomes the place in which sorted key i was. */
__device__ __forceinline__ void
few_sort(uint32_t *key, uint16_t *entry, uint4 *space, int n, int bits)
{
    unsigned *const seen = reinterpret_cast<unsigned *>(space); /* by warp and digit */
    unsigned *const slots = seen + FEW_WARPS * SORT_DIGITS;
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int rows = few_rows(n), first = warp * rows * WARP + lane;
    const int passes = (bits + SORT_BITS - 1) / SORT_BITS;
    const int width = passes > 0 ? (bits + passes - 1) / passes : 0;

    for (int pass = 0; pass < passes; pass++) {
        const sort_digit digit = {pass * width, 1u << width};
        uint32_t mine[FEW_ITEMS];
        uint16_t from[FEW_ITEMS];
        unsigned place[FEW_ITEMS];
#pragma unroll
        for (int k = 0; k < FEW_ITEMS; k++) {
            const int i = first + k * WARP;
            const bool is_entry = k < rows && i < n;
            mine[k] = is_entry ? key[i] : 0;
            from[k] = static_cast<uint16_t>(i);
            if (is_entry && pass > 0) {
                from[k] = entry[i];
            }
        }
        for (int d = tid; d < FEW_WARPS * SORT_DIGITS; d += FEW_THREADS) {
            seen[d] = 0;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < FEW_ITEMS; k++) {
            if (k < rows && first - lane + k * WARP < n) { /* the same for the warp */
                const bool is_entry = first + k * WARP < n;
                const unsigned d = is_entry ? digit.of(mine[k]) : SORT_DIGITS;
                const unsigned peers = __match_any_sync(ALL_LANES, d);
                const unsigned rank = __popc(peers & ((1u << lane) - 1));
                unsigned *const count = seen + warp * SORT_DIGITS + d;
                const unsigned before = is_entry ? *count : 0;
                __syncwarp();
                if (is_entry && rank == 0) {
                    *count = before + __popc(peers);
                }
                __syncwarp();
                place[k] = before + rank;
            }
        }
        __syncthreads();
        unsigned all = 0, unused;
        for (int w = 0; tid < SORT_DIGITS && w < FEW_WARPS; w++) {
            const unsigned count = seen[w * SORT_DIGITS + tid];
            seen[w * SORT_DIGITS + tid] = all;
            all += count;
        }
        const unsigned begin = sum_before(all, slots, &unused);
        for (int w = 0; tid < SORT_DIGITS && w < FEW_WARPS; w++) {
            seen[w * SORT_DIGITS + tid] += begin;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < FEW_ITEMS; k++) {
            if (k < rows && first + k * WARP < n) {
                place[k] += seen[warp * SORT_DIGITS + digit.of(mine[k])];
                key[place[k]] = mine[k];
                entry[place[k]] = from[k];
            }
        }
        __syncthreads();
    }
    for (int i = tid; passes == 0 && i < n; i += FEW_THREADS) {
        entry[i] = static_cast<uint16_t>(i);
    }
    __syncthreads();
}

/* The run still open after a thread's entries, and whether it began among them. */
template <typename Sum>
struct alignas(sizeof(Sum)) few_open {
    Sum sum;
    unsigned is_new;
};

/*
 * Calls store(key, sum) for every run of equal keys: the sum of load(entry), in the
 * order of the entries, by additions in a fixed tree.  `lanes`, a power of two up to
 * 32, are the columns side by side; a thread serves column threadIdx.x % lanes.
 */
template <typename Sum, typename Load, typename Store>
__device__ __forceinline__ void
few_runs(const uint32_t *key, const uint16_t *entry, uint4 *space, int n, int lanes,
         Load load, Store store)
{
    constexpr int AT_ONCE = 8;
    few_open<Sum> *const open = reinterpret_cast<few_open<Sum> *>(space);
    static_assert(sizeof(few_open<Sum>) * FEW_THREADS <= sizeof(uint4) * FEW_SPACE,
                  "the working memory holds them");
    const int tid = threadIdx.x, groups = FEW_THREADS / lanes, group = tid / lanes;
    const int chunk = (n + groups - 1) / groups;
    const int begin = group * chunk < n ? group * chunk : n;
    const int end = begin + chunk < n ? begin + chunk : n;
    const bool any = begin < end;
    const uint32_t first = any ? key[begin] : 0;
    const bool joins = any && begin > 0 && key[begin - 1] == first;
    uint32_t current = first;
    Sum sum{}, head{};
    bool in_head = true;
    for (int from = begin; from < end; from += AT_ONCE) {
        Sum v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            v[k] = from + k < end ? load(entry[from + k]) : Sum{};
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const uint32_t next = from + k < end ? key[from + k] : current;
            if (next != current) {
                if (in_head) {
                    head = sum;
                }
                else {
                    store(current, sum);
                }
                in_head = false;
                current = next;
                sum = Sum{};
            }
            sum = sum + v[k];
        }
    }

    /* The sums of open runs over the groups that they span: a segmented scan. */
    few_open<Sum> mine = {sum, !any || !in_head || !joins};
    open[tid] = mine;
    for (int d = 1; d * chunk < n; d *= 2) {
        __syncthreads();
        if (group >= d && !mine.is_new) {
            const few_open<Sum> left = open[tid - d * lanes];
            mine = {left.sum + mine.sum, left.is_new};
        }
        __syncthreads();
        open[tid] = mine;
    }
    __syncthreads();
    if (any && !in_head) { /* the first run ends here */
        store(first, joins ? open[tid - lanes].sum + head : head);
    }
    if (any && (end == n || key[end] != current)) {
        store(current, mine.sum);
    }
}

#endif
