/*
 * few_sums.cuh  Sums by key of at most FEW entries in one block, without atomics: a
 * stable sort in shared memory, then sums of runs of equal keys.  The order of
 * additions follows from the entries alone, so every run gives the same bits.
 *
 *   GPO_SHARED(few_space, space, [1]);
 *   space[0].key[i] = ...;                   of every entry i < n
 *   few_sort<ITEMS>(space, n, digits);       n <= ITEMS * FEW_THREADS
 *   few_runs<Sum, ITEMS>(space, n, lane_bits, load, store);   n > 0
 *
 * All FEW_THREADS threads call each, with a barrier between the keys and the sort.  A
 * call of so little work waits for its instructions from memory: loops stay rolled.
 * See index_add/shapes/one_launch.cu for a use.
 */
#ifndef GPO_FEW_SUMS_CUH
#define GPO_FEW_SUMS_CUH

#include "sort.cuh"

constexpr int FEW_THREADS = 1024, FEW_WARPS = FEW_THREADS / WARP, MOST_ITEMS = 4;
constexpr int FEW = FEW_THREADS * MOST_ITEMS;
constexpr int SEEN_ROW = SORT_DIGITS + 2; /* no two rows begin in the same bank */

struct few_space {
    uint32_t key[FEW];
    uint16_t entry[FEW];
    union {
        struct {
            uint16_t seen[FEW_WARPS * SEEN_ROW]; /* by warp and digit */
            uint16_t begin[SORT_DIGITS];
        };
        unsigned char open[FEW_THREADS * 16]; /* sums of runs still open */
    };
    bool is_new[FEW_THREADS];
};

/* The passes of a sort and the bits of each. */
struct few_digits {
    int passes, width;
};

/* For keys up to `largest`. */
inline few_digits
few_digits_of(int64_t largest)
{
    int bits = 1;
    while (bits < 32 && largest >> bits > 0) {
        bits++;
    }
    const int passes = (bits + SORT_BITS - 1) / SORT_BITS;
    return {passes, (bits + passes - 1) / passes};
}

/* seen[w][d] = the entries with digit d in the warps before; begin[d] = their total. */
__device__ __forceinline__ void
few_count_before(few_space *space, int digits)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll 1
    for (int d = warp; d < digits; d += FEW_WARPS) {
        uint16_t *const at = &space->seen[lane * SEEN_ROW + d];
        const int mine = *at;
        int sum = mine;
#pragma unroll
        for (int k = 1; k < WARP; k *= 2) {
            const int left = __shfl_up_sync(ALL_LANES, sum, k);
            sum += lane >= k ? left : 0;
        }
        *at = static_cast<uint16_t>(sum - mine);
        if (lane == WARP - 1) {
            space->begin[d] = static_cast<uint16_t>(sum);
        }
    }
}

/* begin[d] = the entries with a smaller digit: one warp, digits / 32 for each lane. */
__device__ __forceinline__ void
few_count_smaller(few_space *space, int digits)
{
    const int lane = threadIdx.x, each = (digits + WARP - 1) / WARP;
    uint16_t *const at = &space->begin[lane * each];
    int own = 0;
#pragma unroll 1
    for (int k = 0; k < each && lane * each + k < digits; k++) {
        const int count = at[k];
        at[k] = static_cast<uint16_t>(own);
        own += count;
    }
    int sum = own;
#pragma unroll
    for (int k = 1; k < WARP; k *= 2) {
        const int left = __shfl_up_sync(ALL_LANES, sum, k);
        sum += lane >= k ? left : 0;
    }
#pragma unroll 1
    for (int k = 0; k < each && lane * each + k < digits; k++) {
        at[k] = static_cast<uint16_t>(at[k] + sum - own);
    }
}

/* So many entries are ranked, at most: in place of one pass of the sort, and of more. */
constexpr int RANKED = FEW_THREADS / 4, RANKED_FOR_PASSES = FEW_THREADS / 2;

/* few_sort for few entries: four threads, or two, count the entries before each. */
__device__ __forceinline__ void
few_rank(few_space *space, int n)
{
    const int each = n <= RANKED ? 4 : 2, bits = n <= RANKED ? 2 : 1;
    const int i = threadIdx.x >> bits, part = threadIdx.x & (each - 1);
    const uint32_t mine = space->key[i < n ? i : 0];
    int rank = 0;
#pragma unroll 4
    for (int j = part; j < n; j += each) {
        const uint32_t key = space->key[j];
        rank += key < mine || (key == mine && j < i) ? 1 : 0;
    }
    rank += __shfl_xor_sync(ALL_LANES, rank, 1);
    const int others = __shfl_xor_sync(ALL_LANES, rank, 2);
    rank += each == 4 ? others : 0;
    __syncthreads();
    if (i < n && part == 0) {
        space->key[rank] = mine;
        space->entry[rank] = static_cast<uint16_t>(i);
    }
    __syncthreads();
}

/*
 * Sorts key[0..n) stably; entry[i] becomes the place in which sorted key i was.  nvcc
 * inlines it; the simulator need not have a copy for each type of element.
 */
template <int ITEMS>
__device__ void
few_sort(few_space *space, int n, few_digits digits)
{
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int first = warp * ITEMS * WARP + lane;
    const int width = digits.width;
    bool in_order = true;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        const int i = first + k * WARP;
        in_order = in_order && (i == 0 || i >= n || space->key[i - 1] <= space->key[i]);
    }
    if (__syncthreads_and(in_order)) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            space->entry[first + k * WARP] = static_cast<uint16_t>(first + k * WARP);
        }
        __syncthreads();
        return;
    }
    if (n <= RANKED || (n <= RANKED_FOR_PASSES && digits.passes > 1)) {
        few_rank(space, n);
        return;
    }

#pragma unroll 1
    for (int pass = 0; pass < digits.passes; pass++) {
        const sort_digit digit = {pass * width, 1u << width};
        uint32_t key[ITEMS];
        uint16_t entry[ITEMS], place[ITEMS] = {};
#pragma unroll 1
        for (int d = tid; d < FEW_WARPS * SEEN_ROW; d += FEW_THREADS) {
            space->seen[d] = 0;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            const int i = first + k * WARP;
            key[k] = i < n ? space->key[i] : 0;
            entry[k] = static_cast<uint16_t>(i < n && pass > 0 ? space->entry[i] : i);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            if (first - lane + k * WARP < n) { /* the same for the whole warp */
                const bool is_entry = first + k * WARP < n;
                const unsigned d = is_entry ? digit.of(key[k]) : SORT_DIGITS;
                const unsigned peers = __match_any_sync(ALL_LANES, d);
                const unsigned rank = __popc(peers & ((1u << lane) - 1));
                uint16_t *const count = &space->seen[warp * SEEN_ROW + d];
                const unsigned before = is_entry ? *count : 0;
                __syncwarp();
                if (is_entry && rank == 0) {
                    *count = static_cast<uint16_t>(before + __popc(peers));
                }
                __syncwarp();
                place[k] = static_cast<uint16_t>(before + rank);
            }
        }
        __syncthreads();
        few_count_before(space, 1 << width);
        __syncthreads();
        if (warp == 0) {
            few_count_smaller(space, 1 << width);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            if (first + k * WARP < n) {
                const unsigned d = digit.of(key[k]);
                const int to =
                    place[k] + space->begin[d] + space->seen[warp * SEEN_ROW + d];
                space->key[to] = key[k];
                space->entry[to] = entry[k];
            }
        }
        __syncthreads();
    }
}

/*
 * Calls store(key, sum) for every run of equal keys: the sum of load(entry), in the
 * order of the entries, by additions in a fixed tree.  There are 2^lane_bits columns side
 * by side, at most 32; a thread serves column threadIdx.x % 2^lane_bits.
 */
template <typename Sum, int ITEMS, typename Load, typename Store>
__device__ __forceinline__ void
few_runs(few_space *space, int n, int lane_bits, Load load, Store store)
{
    constexpr int AT_ONCE = ITEMS > 1 ? 4 : sizeof(Sum) < 16 ? 2 : 1;
    static_assert(sizeof(Sum) <= 16, "the working memory holds the sums");
    Sum *const open = reinterpret_cast<Sum *>(space->open);
    const uint32_t *const key = space->key;
    const int tid = threadIdx.x, group = tid >> lane_bits, lanes = 1 << lane_bits;
    const int chunk = (n * lanes + FEW_THREADS - 1) / FEW_THREADS;
    const int begin = group * chunk < n ? group * chunk : n;
    const int end = begin + chunk < n ? begin + chunk : n;
    const bool any = begin < end;
    const uint32_t first = any ? key[begin] : 0;
    const bool joins = any && begin > 0 && key[begin - 1] == first;
    uint32_t current = first;
    Sum sum{}, head{};
    bool in_head = true;
#pragma unroll 1
    for (int from = begin; from < end; from += AT_ONCE) {
        Sum v[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            v[k] = from + k < end ? load(space->entry[from + k]) : Sum{};
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
    bool is_new = !any || !in_head || !joins;
    open[tid] = sum;
    space->is_new[tid] = is_new;
#pragma unroll 1
    for (int d = 1; __syncthreads_or(!is_new && group >= d); d *= 2) {
        if (group >= d && !is_new) {
            sum = open[tid - d * lanes] + sum;
            is_new = space->is_new[tid - d * lanes];
        }
        __syncthreads();
        open[tid] = sum;
        space->is_new[tid] = is_new;
    }
    const bool ends = any && (end == n || key[end] != current);
    if (any && !in_head) { /* the first run ends here */
        store(first, joins ? open[tid - lanes] + head : head);
    }
    if (ends) {
        store(current, sum);
    }
}

#endif
