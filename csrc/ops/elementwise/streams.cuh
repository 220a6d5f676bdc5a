/*
 * streams.cuh  An operand of elementwise's v2: neighbouring elements from any address,
 * read by aligned loads.  Order: the operand, its loads, its packs.
 */
#ifndef GPO_ELEMENTWISE_STREAMS_CUH
#define GPO_ELEMENTWISE_STREAMS_CUH

#include "kernels.cuh"

/* How a row of an operand is read: the same for all its packs. */
enum stream_mode { HELD, ALIGNED, SHIFTED };

/* What one thread has loaded of one pack; `next` where a pack lies in two words. */
template <typename T, int SIZE>
struct loaded {
    elements<T, SIZE> low, next;
};

/*
 * Pack i of a row begins at first[i * SIZE].  Where that is no 16-byte boundary, the two
 * aligned words around it are loaded and shifted together: the second one is the first
 * one of the next lane, so it comes from the cache.  A pack of fewer than 16 bytes, of
 * the narrower one of two types, is loaded element by element instead.
 */
template <typename T, int SIZE>
struct stream {
    static constexpr bool FULL = SIZE * sizeof(T) == 16;
    const T *first;
    elements<T, SIZE> held;
    stream_mode mode;
    unsigned past; /* bytes that `first` lies past a boundary */

    __device__ __forceinline__ void start(const T *row, int64_t head, bool hold)
    {
        first = row + (hold ? 0 : head);
        past = static_cast<unsigned>(reinterpret_cast<uintptr_t>(first) %
                                     (SIZE * sizeof(T)));
        mode = hold ? HELD : past == 0 ? ALIGNED : SHIFTED;
        held = {};
        if (hold) {
            held = repeated<SIZE>(row[0]);
        }
    }

    __device__ __forceinline__ void load(loaded<T, SIZE> &to, int64_t i) const
    {
        if (mode == ALIGNED) {
            to.low = load_elements<SIZE>(first + i * SIZE);
        }
        else if (mode == SHIFTED) {
            if constexpr (FULL) {
                const T *word = reinterpret_cast<const T *>(
                    reinterpret_cast<uintptr_t>(first + i * SIZE) - past);
                to.low = load_elements<SIZE>(word);
                to.next = load_elements<SIZE>(word + SIZE);
            }
            else {
#pragma unroll
                for (int j = 0; j < SIZE; j++) {
                    to.low.v[j] = first[i * SIZE + j];
                }
            }
        }
    }

    __device__ __forceinline__ elements<T, SIZE> pack(const loaded<T, SIZE> &from) const
    {
        if (mode == HELD) {
            return held;
        }
        if constexpr (FULL) {
            if (mode == SHIFTED) {
                return shifted(from);
            }
        }
        return from.low;
    }

  private:
    /* 16 of the 32 bytes of low and next, from byte `past` on. */
    __device__ __forceinline__ elements<T, SIZE>
    shifted(const loaded<T, SIZE> &from) const
    {
        unsigned w[8];
        memcpy(w, from.low.v, 16);
        memcpy(w + 4, from.next.v, 16);
        const bool by_two = past & 8u, by_one = past & 4u;
        const unsigned bits = past % 4 * 8;
#pragma unroll
        for (int k = 0; k < 6; k++) {
            w[k] = by_two ? w[k + 2] : w[k];
        }
#pragma unroll
        for (int k = 0; k < 5; k++) {
            w[k] = by_one ? w[k + 1] : w[k];
        }
        unsigned out[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            out[k] = __funnelshift_r(w[k], w[k + 1], bits);
        }
        elements<T, SIZE> result;
        memcpy(static_cast<void *>(result.v), out, 16);
        return result;
    }
};

#endif
