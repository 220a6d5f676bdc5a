/*
 * sort.cuh  A stable LSD radix sort of 32-bit keys with payloads of 32 or 64 bits.
 *
 *   sort_pairs<Payload> pairs = {key, key_space, payload, payload_space};
 *   status = sort_by_key(call, &pairs, n, bound, numbered);
 *
 * The four arrays are device memory (gpo_scratch) of n elements each.  Every key is
 * below `bound`, which is at most 2^32: the sort makes one pass per 8 bits of the
 * largest key.  With `numbered` the payload is not read: that of pair i is i.  On
 * return `pairs->key` and `pairs->payload` are the sorted arrays; the spaces are the
 * other two, whose contents are lost.  Equal keys keep their order.  No position
 * depends on the order of atomics, so the result is the same in every run.  Payload is
 * uint32_t or uint64_t; n >= 2^32 requires uint64_t.  The launches go to the call's
 * stream, each following the one before (follow.cuh), the first one the caller's last;
 * nothing waits.
 *
 * Order: the interface's types, scans, the three kernels, the launcher.
 */
#ifndef GPO_SORT_CUH
#define GPO_SORT_CUH

#include "follow.cuh"
#include "warp.cuh"

template <typename Payload>
struct sort_pairs {
    uint32_t *key, *key_space;
    Payload *payload, *payload_space;
};

/* The digit of one pass: (key >> shift) & (digits - 1). */
struct sort_digit {
    int shift;
    unsigned digits; /* a power of two, at most 256 */

    __device__ __forceinline__ unsigned of(uint32_t key) const
    {
        return key >> shift & (digits - 1);
    }
};

constexpr int SORT_BITS = 8, SORT_DIGITS = 1 << SORT_BITS;
constexpr int SORT_BLOCK = SORT_DIGITS; /* a thread for each digit */
constexpr int SORT_WARPS = SORT_BLOCK / WARP;
constexpr int SORT_ITEMS = 16; /* pairs of a thread */
constexpr int SORT_TILE = SORT_BLOCK * SORT_ITEMS;
constexpr int SORT_SCAN_BLOCK = 1024;

/*
 * The lanes of a warp that have a pair with this lane's digit.  A match takes a step for each
 * digit that is there, some 30 of 32 random ones; a ballot for each bit takes a third less
 * time (2^25 pairs on an H100 318 us a pass, and 224).
 */
__device__ __forceinline__ unsigned
lanes_of_digit(unsigned digit, bool is_pair)
{
#ifdef __CUDA_ARCH__
    unsigned peers = __ballot_sync(ALL_LANES, is_pair);
#pragma unroll
    for (int bit = 0; bit < SORT_BITS; bit++) {
        const bool is_set = (digit >> bit & 1) != 0;
        const unsigned set = __ballot_sync(ALL_LANES, is_set);
        peers &= is_set ? set : ~set;
    }
    return peers;
#else
    return __match_any_sync(ALL_LANES, is_pair ? digit : SORT_DIGITS);
#endif
}

/* ---- scans ---- */

/*
 * An exclusive scan: the sum of v over the threads before this one; all threads call
 * it.  `total` gets the sum over the block.  `slots` is shared memory for 32 values; a
 * barrier before its use makes repeated calls safe.
 */
template <typename V>
__device__ __forceinline__ V
sum_before(V v, V *slots, V *total)
{
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    V sum = v;
#pragma unroll
    for (unsigned d = 1; d < WARP; d *= 2) {
        const V left = __shfl_up_sync(ALL_LANES, sum, d);
        sum += lane >= d ? left : 0;
    }
    __syncthreads();
    if (lane == WARP - 1) {
        slots[warp] = sum;
    }
    __syncthreads();
    V before = 0, all = 0;
    for (unsigned w = 0; w < blockDim.x / WARP; w++) {
        before += w < warp ? slots[w] : 0;
        all += slots[w];
    }
    *total = all;
    return before + sum - v;
}

/* ---- the kernels of one pass ---- */

/* counts[d * tiles + t] = how often digit d occurs in tile t. */
template <typename Count>
__global__ void
__launch_bounds__(SORT_BLOCK)
    sort_count(const uint32_t *key, int64_t n, sort_digit digit, Count *counts)
{
    GPO_SHARED(unsigned, seen, [SORT_DIGITS]);
    let_next_start();
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * SORT_TILE;
    const unsigned tid = threadIdx.x;

    seen[tid] = 0;
    __syncthreads();
    wait_for_before();
    if (begin + SORT_TILE <= n) {
        uint32_t mine[SORT_ITEMS];
#pragma unroll
        for (int k = 0; k < SORT_ITEMS; k++) {
            mine[k] = key[begin + k * SORT_BLOCK + tid];
        }
#pragma unroll
        for (int k = 0; k < SORT_ITEMS; k++) {
            atomicAdd(&seen[digit.of(mine[k])], 1u);
        }
    }
    else {
        for (int64_t i = begin + tid; i < n; i += SORT_BLOCK) {
            atomicAdd(&seen[digit.of(key[i])], 1u);
        }
    }
    __syncthreads();
    if (tid < digit.digits) {
        counts[static_cast<int64_t>(tid) * gridDim.x + blockIdx.x] = seen[tid];
    }
}

/* Block d: exclusive scan of digit d's counts over the tiles; totals[d] = their sum. */
template <typename Count>
__global__ void
__launch_bounds__(SORT_SCAN_BLOCK)
    sort_scan(Count *counts, int64_t tiles, Count *totals)
{
    GPO_SHARED(Count, slots, [WARP]);
    let_next_start();
    wait_for_before();
    Count *const mine = counts + blockIdx.x * tiles;
    Count sum = 0;
    for (int64_t begin = 0; begin < tiles; begin += blockDim.x) {
        const int64_t t = begin + threadIdx.x;
        const Count count = t < tiles ? mine[t] : 0;
        Count part;
        const Count before = sum_before(count, slots, &part);
        if (t < tiles) {
            mine[t] = sum + before;
        }
        sum += part;
    }
    if (threadIdx.x == 0) {
        totals[blockIdx.x] = sum;
    }
}

/*
 * Block t writes the pairs of tile t to their places.  A warp ranks its 16 x 32 pairs
 * row by row: lanes_of_digit finds the lanes of equal digit, and a counter per digit holds
 * the count of the rows before.  The tile is ordered in shared memory first, so that the
 * writes of a digit are contiguous.
 */
template <typename Payload>
__global__ void
__launch_bounds__(SORT_BLOCK, sizeof(Payload) == 4 ? 4 : 2)
    sort_scatter(const uint32_t *key, const Payload *payload, bool numbered, int64_t n,
                 sort_digit digit, const Payload *counts, const Payload *totals,
                 uint32_t *key_to, Payload *payload_to)
{
    GPO_SHARED(unsigned, seen, [SORT_WARPS][SORT_DIGITS]);
    GPO_SHARED(Payload, base, [SORT_DIGITS]); /* global minus tile position */
    GPO_SHARED(Payload, slots, [WARP]);
    GPO_SHARED(Payload, ordered, [SORT_TILE]);
    uint32_t *const in_order = reinterpret_cast<uint32_t *>(&ordered[0]);
    let_next_start();
    wait_for_before();
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * SORT_TILE;
    const int valid = static_cast<int>(n - tile < SORT_TILE ? n - tile : SORT_TILE);
    const unsigned tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int first = warp * (SORT_ITEMS * WARP); /* the warp's first pair */

    uint32_t mine[SORT_ITEMS];
    unsigned place[SORT_ITEMS]; /* in the ordered tile */
#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        const int i = first + k * WARP + lane;
        mine[k] = i < valid ? key[tile + i] : 0;
    }
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
        seen[w][tid] = 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        if (first + k * WARP < valid) { /* the same for the whole warp */
            const bool is_pair = first + k * WARP + static_cast<int>(lane) < valid;
            const unsigned d = digit.of(mine[k]);
            const unsigned peers = lanes_of_digit(d, is_pair);
            const unsigned rank = __popc(peers & ((1u << lane) - 1));
            const unsigned before = is_pair ? seen[warp][d] : 0;
            __syncwarp();
            if (is_pair && rank == 0) {
                seen[warp][d] = before + __popc(peers);
            }
            __syncwarp();
            place[k] = before + rank;
        }
    }
    __syncthreads();

    const bool is_digit = tid < digit.digits;
    unsigned in_tile = 0;
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
        const unsigned count = seen[w][tid];
        seen[w][tid] = in_tile;
        in_tile += count;
    }
    Payload sum;
    const Payload begin = sum_before(static_cast<Payload>(in_tile), slots, &sum);
    Payload to = begin;
    if (gridDim.x > 1) { /* the same for the whole grid */
        const Payload all = is_digit ? totals[tid] : 0;
        to = sum_before(all, slots, &sum);
        to += is_digit ? counts[static_cast<int64_t>(tid) * gridDim.x + blockIdx.x] : 0;
    }
    base[tid] = to - begin;
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
        seen[w][tid] += static_cast<unsigned>(begin);
    }
    __syncthreads();

#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        if (first + k * WARP + static_cast<int>(lane) < valid) {
            place[k] += seen[warp][digit.of(mine[k])];
            in_order[place[k]] = mine[k];
        }
    }
    __syncthreads();
    Payload target[SORT_ITEMS];
#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        const int j = k * SORT_BLOCK + tid;
        if (j < valid) {
            const uint32_t out = in_order[j];
            target[k] = base[digit.of(out)] + j;
            key_to[target[k]] = out;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        const int i = first + k * WARP + lane;
        if (i < valid) {
            const int64_t from = tile + i;
            ordered[place[k]] = numbered ? static_cast<Payload>(from) : payload[from];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SORT_ITEMS; k++) {
        const int j = k * SORT_BLOCK + tid;
        if (j < valid) {
            payload_to[target[k]] = ordered[j];
        }
    }
}

/* ---- the launcher ---- */

template <typename Payload>
static gpo_status
sort_by_key(gpo_call *call, sort_pairs<Payload> *pairs, int64_t n, uint64_t bound,
            bool numbered)
{
    int bits = 1;
    while (bits < 32 && (bound - 1) >> bits > 0) {
        bits++;
    }
    const int passes = (bits + SORT_BITS - 1) / SORT_BITS;
    const int width = (bits + passes - 1) / passes; /* of a digit, in bits */
    const int64_t tiles = (n + SORT_TILE - 1) / SORT_TILE;
    const dim3 grid(static_cast<unsigned>(tiles));
    const int64_t rounded = (tiles + WARP - 1) / WARP * WARP;
    const dim3 scanners(
        static_cast<unsigned>(rounded < SORT_SCAN_BLOCK ? rounded : SORT_SCAN_BLOCK));
    Payload *counts = nullptr;
    gpo_status status = GPO_OK;
    if (tiles > 1) {
        void *memory;
        status = gpo_scratch(call, sizeof(Payload) * (tiles + 1) << width, &memory);
        counts = status ? nullptr : static_cast<Payload *>(memory);
    }
    for (int pass = 0; !status && pass < passes && n > 0; pass++) {
        const sort_digit digit = {pass * width, 1u << width};
        Payload *const totals = counts ? counts + (tiles << width) : nullptr;
        if (tiles > 1) {
            status = GPO_FOLLOW(call, true, grid, SORT_BLOCK, 0, (sort_count<Payload>),
                                pairs->key, n, digit, counts);
            if (!status) {
                status = GPO_FOLLOW(call, true, dim3(digit.digits), scanners, 0,
                                    (sort_scan<Payload>), counts, tiles, totals);
            }
        }
        if (!status) {
            status =
                GPO_FOLLOW(call, true, grid, SORT_BLOCK, 0, (sort_scatter<Payload>),
                           pairs->key, pairs->payload, numbered && pass == 0, n, digit,
                           counts, totals, pairs->key_space, pairs->payload_space);
            uint32_t *const key = pairs->key;
            Payload *const payload = pairs->payload;
            pairs->key = pairs->key_space;
            pairs->payload = pairs->payload_space;
            pairs->key_space = key;
            pairs->payload_space = payload;
        }
    }
    return status;
}

#endif
