/*
 * streams.cuh  An operand of elementwise's v2: contiguous elements from any address,
 * read by aligned loads.  Order: the operand, its loads, its packs, how many in flight.
 */
#ifndef GPO_ELEMENTWISE_STREAMS_CUH
#define GPO_ELEMENTWISE_STREAMS_CUH

#include "../../device/vec.cuh"
#include "kernels.cuh"

/* How a row of an operand is read: the same for all its packs. */
enum stream_mode { HELD, ALIGNED, SHIFTED };

/*
 * The words that a thread has loaded of one pack; `next` if a pack spans two words.
 * They are words, not elements: extracting 16-bit elements waits for the load, and the
 * loads of the thread's other packs and operands would wait behind it.
 */
template <typename T, int SIZE>
struct loaded {
    word_of<T, SIZE> low, next;
};

/*
 * Pack i of a row begins at first[i * SIZE].  If that is not aligned to 16 bytes, the
 * two aligned words around it are loaded and shifted together: the second one is the
 * next lane's first one, so it comes from the cache.  A misaligned pack of fewer than
 * 16 bytes, of the narrower one of two types, is loaded element by element instead.
 */
template <typename T, int SIZE>
struct stream {
    using Word = word_of<T, SIZE>;
    static constexpr bool FULL = sizeof(Word) == 16;
    const T *first;
    Word held;
    stream_mode mode;
    unsigned past; /* bytes from a boundary to `first` */

    /* The row begins at `row`; with `hold` every element is the number or row[0]. */
    __device__ __forceinline__ void start(const T *row, int64_t head, bool hold,
                                          number<T> given)
    {
        first = row + (hold ? 0 : head);
        past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(first) % sizeof(Word));
        mode = hold ? HELD : past == 0 ? ALIGNED : SHIFTED;
        held = {};
        if (hold) {
            held = word_from(repeated<SIZE>(given.or_at(row)));
        }
    }

    /* Element i of the row. */
    __device__ __forceinline__ T element(const T *row, int64_t i) const
    {
        return mode == HELD ? elements_of<T, SIZE>(held).v[0] : row[i];
    }

    __device__ __forceinline__ void load(loaded<T, SIZE> &to, int64_t i) const
    {
        if (mode == ALIGNED) {
            to.low = *reinterpret_cast<const Word *>(first + i * SIZE);
        }
        else if (mode == SHIFTED) {
            if constexpr (FULL) {
                const char *at =
                    reinterpret_cast<const char *>(first + i * SIZE) - past;
                to.low = *reinterpret_cast<const Word *>(at);
                to.next = *reinterpret_cast<const Word *>(at + sizeof(Word));
            }
            else {
                elements<T, SIZE> each;
#pragma unroll
                for (int j = 0; j < SIZE; j++) {
                    each.v[j] = first[i * SIZE + j];
                }
                to.low = word_from(each);
            }
        }
    }

    __device__ __forceinline__ elements<T, SIZE> pack(const loaded<T, SIZE> &from) const
    {
        Word bits = mode == HELD ? held : from.low;
        if constexpr (FULL) {
            if (mode == SHIFTED) {
                bits = cut_out(from.low, from.next, past);
            }
        }
        return elements_of<T, SIZE>(bits);
    }
};

/* Packs of each operand that a thread has in flight: one where the registers are full, of 16
   elements or of long arithmetic. */
template <typename F>
__host__ __device__ constexpr int
packs_in_flight()
{
    return (F::N > 1 && pack_size<F>() > 8) || IS_LONG<F> ? 1 : 2;
}

#endif
