/*
 * gathers.cuh  An operand of elementwise's any_strides: the pack of a thread, read by one
 * or two wide loads where its elements or every second one are neighbours, else element
 * by element.  Order: the words of a pack, its loads, the pack.
 */
#ifndef GPO_ELEMENTWISE_GATHERS_CUH
#define GPO_ELEMENTWISE_GATHERS_CUH

#include "kernels.cuh"

/*
 * What a thread has loaded of SIZE elements of T.  Either they are neighbours, in the
 * first words, or element j is element 2 * j of the words, counted from `odd`.  The words
 * stay as they were loaded until pack(): to move their elements waits for the load, and
 * the loads of the next operand would wait behind it.
 */
template <typename T, int SIZE>
struct gathered {
    using Word = word_of<T, SIZE>;
    static constexpr int BYTES = sizeof(Word), WORDS = BYTES / 4;
    static_assert(sizeof(T) <= 8 && WORDS > 0, "a pack has whole words");
    unsigned w[2 * WORDS];
    bool dense = false, odd = false;

    __device__ __forceinline__ void hold(T x)
    {
        const Word word = word_from(repeated<SIZE>(x));
        memcpy(w, &word, BYTES);
        dense = true;
    }

    /*
     * Elements x[at[j]]; with `run` they are `step` apart.  Nothing outside of
     * [low, high], which are offsets of elements as well, is read.
     */
    __device__ __forceinline__ void load(const T *x, const int (&at)[SIZE], bool run,
                                         int step, int low, int high)
    {
        const unsigned past = static_cast<unsigned>(
            reinterpret_cast<uintptr_t>(x + at[0]) % static_cast<unsigned>(BYTES));
        odd = past == sizeof(T);
        dense = run && step == 1 && past == 0;
        const int from = at[0] - (odd ? 1 : 0);
        if (dense) {
            const Word word = *reinterpret_cast<const Word *>(x + at[0]);
            memcpy(w, &word, BYTES);
        }
        else if (run && step == 2 && (odd || past == 0) && from >= low &&
                 from <= high - (2 * SIZE - 1)) {
            const Word *const words = reinterpret_cast<const Word *>(x + from);
            const Word first = words[0], second = words[1];
            memcpy(w, &first, BYTES);
            memcpy(w + WORDS, &second, BYTES);
        }
        else {
            odd = false;
#pragma unroll
            for (int j = 0; j < SIZE; j++) {
                const typename word<sizeof(T)>::type bits =
                    *reinterpret_cast<const typename word<sizeof(T)>::type *>(x +
                                                                              at[j]);
                if constexpr (sizeof(T) == 8) {
                    w[4 * j] = bits.x;
                    w[4 * j + 1] = bits.y;
                }
                else if constexpr (sizeof(T) == 4) {
                    w[2 * j] = bits;
                }
                else if constexpr (sizeof(T) == 2) {
                    w[j] = bits;
                }
                else {
                    w[j / 2] =
                        j % 2 ? w[j / 2] | static_cast<unsigned>(bits) << 16 : bits;
                }
            }
        }
    }

    __device__ __forceinline__ elements<T, SIZE> pack() const
    {
        unsigned p[WORDS];
#pragma unroll
        for (int r = 0; r < WORDS; r++) {
            unsigned every_second;
            if constexpr (sizeof(T) >= 4) { /* in words of w, two elements or four */
                constexpr int EACH = sizeof(T) / 4;
                const int first = 2 * (r - r % EACH) + r % EACH;
                every_second = odd ? w[first + EACH] : w[first];
            }
            else {
                constexpr unsigned EVEN = sizeof(T) == 2 ? 0x5410 : 0x6420;
                constexpr unsigned ODD = sizeof(T) == 2 ? 0x7632 : 0x7531;
                every_second = __byte_perm(w[2 * r], w[2 * r + 1], odd ? ODD : EVEN);
            }
            p[r] = dense ? w[r] : every_second;
        }
        Word word;
        memcpy(static_cast<void *>(&word), p, BYTES);
        return elements_of<T, SIZE>(word);
    }
};

#endif
