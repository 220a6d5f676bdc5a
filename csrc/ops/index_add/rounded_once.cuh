/*
 * rounded_once.cuh  Sums of 16-bit floats that are added to one or two elements of out and
 * rounded once, by compare-and-swap of the word that holds them.
 */
#ifndef GPO_INDEX_ADD_ROUNDED_ONCE_CUH
#define GPO_INDEX_ADD_ROUNDED_ONCE_CUH

#include "../../device/words.cuh"
#include "index_add.cuh"

/* The word of V elements. */
template <int V>
using word_of_halves = std::conditional_t<V == 2, unsigned, unsigned short>;

/* The word at p, which other threads may change. */
template <typename T, int V>
static __device__ __forceinline__ values<T, V>
load_halves(const T *p)
{
    static_assert(V <= 2, "a word of compare-and-swap");
    const auto bits = load_word(reinterpret_cast<const word_of_halves<V> *>(p));
    values<T, V> v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* base[at..at + V) += sum, each rounded once.  `seen` is a guess of what the word holds: where
   it is right, one compare-and-swap does. */
template <typename T, int V>
static __device__ __forceinline__ void
add_rounded_once(T *base, int64_t at, const acc_of<T> (&sum)[V],
                 const values<T, V> &seen)
{
    using Word = word_of_halves<V>;
    Word *const word = reinterpret_cast<Word *>(base + at);
    Word found, before;
    memcpy(&found, &seen, sizeof found);
    do {
        before = found;
        values<T, V> v;
        memcpy(&v, &before, sizeof v);
#pragma unroll
        for (int e = 0; e < V; e++) {
            v.v[e] = sum_stored(v.v[e], sum[e]);
        }
        Word after;
        memcpy(&after, &v, sizeof after);
        found = atomicCAS(word, before, after);
    } while (found != before);
}

#endif
