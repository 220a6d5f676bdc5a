/*
 * exchange.cuh  How a launch uses the words of core/exchange.h: its blocks are numbered in
 * the order in which they start, so that one may wait for those of lower numbers, and find
 * half of the words cleared.  Nothing is left to do at its end.
 */
#ifndef GPO_DEVICE_EXCHANGE_CUH
#define GPO_DEVICE_EXCHANGE_CUH

#include "../core/exchange.h"
#include "words.cuh"

struct exchange_turn {
    unsigned number;        /* of this block */
    uint64_t *words, *next; /* of this launch, of the next one */
};

/* By all threads of every block of the launch; `slot` is shared memory. */
__device__ __forceinline__ exchange_turn
take_turn(uint64_t *exchange, unsigned long long *slot)
{
    unsigned long long *const count = reinterpret_cast<unsigned long long *>(exchange);
    if (threadIdx.x == 0) {
        *slot = atomicAdd(count, 1ull);
        if (static_cast<unsigned>(*slot) ==
            gridDim.x - 1) { /* the launch's last block */
            atomicAdd(count, (1ull << 32) - gridDim.x);
        }
    }
    __syncthreads();
    const bool odd = *slot >> 32 & 1;
    uint64_t *const half[2] = {exchange + 1, exchange + 1 + GPO_EXCHANGE_WORDS};
    return {static_cast<unsigned>(*slot), odd ? half[1] : half[0],
            odd ? half[0] : half[1]};
}

/* Clears the block's share of what the next launch uses; at any time, by all threads. */
__device__ __forceinline__ void
clear_for_next(const exchange_turn &turn)
{
    for (unsigned i = turn.number * blockDim.x + threadIdx.x; i < GPO_EXCHANGE_WORDS;
         i += gridDim.x * blockDim.x) {
        store_word(turn.next + i, 0);
    }
}

inline gpo_status
exchange_for(gpo_call *call, uint64_t **words)
{
    unsigned *tickets = nullptr;
    const gpo_status status = gpo_tickets(call, &tickets);
    *words = status ? nullptr : gpo_exchange_of(tickets);
    return status;
}

#endif
