/*
 * lookback.cuh  How the tiles of a single pass tell each other what they have: values
 * published through memory, and the tile's place in a fixed order of combination.
 *
 * A value travels as words of 8 bytes, each half data and half "it is there", so that a
 * reader needs neither a fence nor a second look.  Tiles of one row form groups of
 * FAN, groups form clans.  A tile combines the totals of the tiles before it in its
 * group, those of the groups before it in its clan, and all that comes before its clan,
 * in this order whatever came first: the bits are the same in every run.  The last tile
 * of a group publishes the group's total, the last of a clan what comes before the
 * next.
 */
#ifndef GPO_LOOKBACK_CUH
#define GPO_LOOKBACK_CUH

#include "tiles.cuh"

constexpr uint64_t READY = static_cast<uint64_t>(1) << 32;

template <typename V>
constexpr int WORDS = sizeof(V) / 4;

/* An aligned word is read and written whole; nothing else is ordered by it. */
__device__ __forceinline__ void
store_word(uint64_t *at, uint64_t word)
{
#ifdef __CUDACC__
    *static_cast<volatile uint64_t *>(at) = word;
#else
    gpo_sim::atomic_store_release(at, word);
#endif
}

__device__ __forceinline__ uint64_t
load_word(const uint64_t *at)
{
#ifdef __CUDACC__
    return *static_cast<const volatile uint64_t *>(at);
#else
    return gpo_sim::atomic_load(at);
#endif
}

/* What one read saw of a value that may not be there yet. */
template <typename V>
struct sighting {
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

/* The words of a value lie `step` apart. */
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
__device__ __forceinline__ sighting<V>
look(const uint64_t *at, int64_t step)
{
    sighting<V> seen;
#pragma unroll
    for (int k = 0; k < WORDS<V>; k++) {
        seen.word[k] = load_word(at + k * step);
    }
    return seen;
}

template <typename V>
__device__ __forceinline__ V
wait_for(sighting<V> seen, const uint64_t *at, int64_t step)
{
    while (!seen.complete()) {
        __nanosleep(32);
        seen = look<V>(at, step);
    }
    return seen.value();
}

template <typename V>
__device__ __forceinline__ V
wait_for(const uint64_t *at, int64_t step)
{
    return wait_for(look<V>(at, step), at, step);
}

/*
 * The words of all tiles, groups and clans, and the counter that numbers tiles in the
 * order in which blocks start: a tile waits only for tiles that run or are done.
 */
struct scan_board {
    uint64_t *tile, *group, *clan;
    unsigned *next;
};

__global__ void
scan_clear(uint64_t *words, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += step) {
        words[i] = 0;
    }
}

/* A cleared board: so many values of Acc for tiles, of Part for groups and clans. */
template <typename Op>
gpo_status
make_board(gpo_call *call, int64_t tiles, int64_t groups, int64_t clans,
           scan_board *board)
{
    constexpr int64_t ACC = WORDS<typename Op::Acc>, PART = WORDS<typename Op::Part>;
    constexpr int64_t CLEARED = 256, MOST = 1024;
    const int64_t words = 1 + tiles * ACC + (groups + clans) * PART;
    void *memory = nullptr;
    const gpo_status status = gpo_scratch(call, words * sizeof(uint64_t), &memory);
    if (status) {
        return status;
    }
    uint64_t *word = static_cast<uint64_t *>(memory);
    board->next = static_cast<unsigned *>(memory);
    board->tile = word + 1;
    board->group = board->tile + tiles * ACC;
    board->clan = board->group + groups * PART;
    const int64_t blocks = ceil_div(words, CLEARED);
    const dim3 grid(blocks < MOST ? blocks : MOST);
    return GPO_LAUNCH(call, grid, CLEARED, 0, scan_clear, word, words);
}

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

#endif
