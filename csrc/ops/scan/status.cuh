/*
 * status.cuh  Look-back status: the values that tiles of a single pass publish to each
 * other through memory.  Each 8-byte word is half data and half a ready flag, so a
 * reader needs neither a fence nor a second read.  See lookback.cuh and
 * shapes/columns.cu for which values a tile combines.
 */
#ifndef GPO_SCAN_STATUS_CUH
#define GPO_SCAN_STATUS_CUH

#include "../../device/block.cuh"
#include "../../device/words.cuh"
#include "views.cuh"

constexpr uint64_t READY = static_cast<uint64_t>(1) << 32;

template <typename V>
constexpr int WORDS = sizeof(V) / 4;

/* One read of a value that may not be published yet. */
template <typename V>
struct status_value {
    uint64_t word[WORDS<V>];

    __device__ __forceinline__ bool complete() const
    {
        uint64_t all = READY;
#pragma unroll
        for (int k = 0; k < WORDS<V>; k++) {
            all &= word[k];
        }
        return all & READY;
    }

    __device__ __forceinline__ V value() const
    {
        unsigned data[WORDS<V>];
#pragma unroll
        for (int k = 0; k < WORDS<V>; k++) {
            data[k] = static_cast<unsigned>(word[k]);
        }
        V v;
        memcpy(static_cast<void *>(&v), data, sizeof(V));
        return v;
    }
};

/* Publishes v in words that are `step` apart. */
template <typename V>
__device__ __forceinline__ void
publish(uint64_t *at, int64_t step, V v)
{
    unsigned data[WORDS<V>];
    memcpy(data, static_cast<const void *>(&v), sizeof(V));
#pragma unroll
    for (int k = 0; k < WORDS<V>; k++) {
        store_word(at + k * step, READY | data[k]);
    }
}

template <typename V>
__device__ __forceinline__ status_value<V>
peek(const uint64_t *at, int64_t step)
{
    status_value<V> seen;
#pragma unroll
    for (int k = 0; k < WORDS<V>; k++) {
        seen.word[k] = load_word(at + k * step);
    }
    return seen;
}

template <typename V>
__device__ __forceinline__ V
wait_for(status_value<V> seen, const uint64_t *at, int64_t step)
{
    while (!seen.complete()) {
        __nanosleep(32);
        seen = peek<V>(at, step);
    }
    return seen.value();
}

template <typename V>
__device__ __forceinline__ V
wait_for(const uint64_t *at, int64_t step)
{
    return wait_for(peek<V>(at, step), at, step);
}

/*
 * The words of all tiles, groups and supergroups, and the counter that numbers tiles in
 * the order in which blocks start, so that a tile waits only for running or finished
 * tiles.
 */
struct scan_status {
    uint64_t *tile, *group, *supergroup;
    unsigned *next;
    unsigned words; /* which the kernel must leave cleared: see leave_status() */
};

/*
 * Cleared status with these numbers of words for tiles, groups and supergroups.
 * `left_cleared`: the kernel calls leave_status(); few words are then the stream's
 * counters, which are clear without a kernel that clears them.
 */
gpo_status make_status(gpo_call *call, int64_t tiles, int64_t groups,
                       int64_t supergroups, bool left_cleared, scan_status *status);

/* The number of this block's tile, in every thread; `slot` is shared memory. */
__device__ __forceinline__ int64_t
take_tile(unsigned *next, unsigned *slot)
{
    if (threadIdx.x == 0) {
        *slot = atomicAdd(next, 1u);
    }
    __syncthreads();
    return *slot;
}

/*
 * The last of `blocks` blocks clears the status, if it is the stream's; all threads call
 * it when their block reads no status any more.  `last` is shared memory.
 */
__device__ __forceinline__ void
leave_status(const scan_status &status, int64_t blocks, bool *last)
{
    if (status.words > 0 &&
        is_last_block(status.next + 1, static_cast<unsigned>(blocks), last)) {
        uint64_t *const word = reinterpret_cast<uint64_t *>(status.next);
        for (unsigned i = threadIdx.x; i < status.words; i += THREADS) {
            store_word(word + i, 0);
        }
    }
}

/* The same where one warp alone reads status: it calls this, the others go on. */
__device__ __forceinline__ void
leave_status_by_warp(const scan_status &status, int64_t blocks)
{
    const unsigned lane = threadIdx.x % WARP;
    unsigned before = 0;
    if (status.words == 0) {
        return;
    }
    if (lane == 0) {
        __threadfence();
        before = atomicAdd(status.next + 1, 1u);
    }
    if (shuffle_from(before, 0) == static_cast<unsigned>(blocks - 1)) {
        __threadfence();
        uint64_t *const word = reinterpret_cast<uint64_t *>(status.next);
        for (unsigned i = lane; i < status.words; i += WARP) {
            store_word(word + i, 0);
        }
    }
}

#endif
