/*
 * words.cuh  Words of memory that blocks of one launch read while others write them.
 */
#ifndef GPO_WORDS_CUH
#define GPO_WORDS_CUH

#include "launch.cuh"

/* An aligned word is read and written atomically; it orders nothing else. */
__device__ __forceinline__ void
store_word(uint64_t *at, uint64_t word)
{
#ifdef __CUDACC__
    *static_cast<volatile uint64_t *>(at) = word;
#else
    gpo_sim::atomic_store_release(at, word);
#endif
}

template <typename Word>
__device__ __forceinline__ Word
load_word(const Word *at)
{
#ifdef __CUDACC__
    return *static_cast<const volatile Word *>(at);
#else
    return gpo_sim::atomic_load(at);
#endif
}

#endif
