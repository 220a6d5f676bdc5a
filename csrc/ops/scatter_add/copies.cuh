/*
 * copies.cuh  Clearing the sums, and the number of private copies of the result.
 */
#ifndef GPO_SCATTER_ADD_COPIES_CUH
#define GPO_SCATTER_ADD_COPIES_CUH

#include "../../device/ordered_sums.cuh"
#include "input.cuh"
#include "tuning.cuh"

inline int64_t
clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* ---- memory = 0, *bad = NONE_BAD ---- */

static __global__ void
scatter_add_clear(uint64_t *words, int64_t n, unsigned long long *bad)
{
    let_next_start();
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    if (first == 0 && bad) {
        *bad = NONE_BAD;
    }
    const int64_t packs = reinterpret_cast<uintptr_t>(words) % 16 == 0 ? n / 2 : 0;
    for (int64_t i = first; i < packs; i += step) {
        reinterpret_cast<uint4 *>(words)[i] = uint4{};
    }
    for (int64_t i = 2 * packs + first; i < n; i += step) {
        words[i] = 0;
    }
}

static gpo_status
clear(gpo_call *call, void *memory, int64_t bytes, unsigned long long *bad)
{
    const int64_t words = bytes / static_cast<int64_t>(sizeof(uint64_t)); /* of sums */
    const dim3 grid(static_cast<unsigned>(clamp(ceil_div(words, 2 * BLOCK), 1, 4096)));
    return GPO_LAUNCH(call, grid, BLOCK, 0, scatter_add_clear,
                      static_cast<uint64_t *>(memory), words, bad);
}

/* How many copies of `bytes` the memory for them allows: at least 1, at most `most`. */
inline int64_t
copies_of(int64_t bytes, int64_t most)
{
    return clamp(most, 1,
                 clamp(MOST_COPIES_BYTES / (bytes > 0 ? bytes : 1), 1, INT32_MAX));
}

#endif
