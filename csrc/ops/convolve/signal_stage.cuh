/*
 * signal_stage.cuh  Stages a segment of the signal in rows of shared memory, for v2.
 */
#ifndef GPO_CONVOLVE_SIGNAL_STAGE_CUH
#define GPO_CONVOLVE_SIGNAL_STAGE_CUH

#include "register_rows.cuh"

template <typename T>
__device__ __forceinline__ void
store_values(value_type<T> *to, const pack<T> &loaded)
{
    using V = value_type<T>;
    constexpr int WORDS = pack<V>::SIZE;
#pragma unroll
    for (int q = 0; q < pack<T>::SIZE / WORDS; q++) {
        pack<V> p;
#pragma unroll
        for (int u = 0; u < WORDS; u++) {
            p.v[u] = read_value(loaded.v[q * WORDS + u]);
        }
        *reinterpret_cast<pack<V> *>(to + q * WORDS) = p;
    }
}

/*
 * Copies elements [from, from + length) of a row of the signal to rows of shared
 * memory, with zeros beyond its ends; done by `lanes` threads, in packs of 16 bytes
 * where the elements are contiguous and aligned.
 */
template <typename T>
__device__ __forceinline__ void
fill_signal(const convolve_view<T> &c, const T *a, int64_t from, int length, int lane,
            int lanes, value_type<T> *signal)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<T>::SIZE, WORDS = pack<V>::SIZE;
    const T *source = a + from * c.a_step;
    if (c.a_step == 1 && from >= 0 && from + length <= c.n && length % SIZE == 0 &&
        reinterpret_cast<uintptr_t>(source) % 16 == 0) {
        /* All of a thread's packs of a stage are in flight at once. */
        constexpr int PACKS = (5 * WORDS + SIZE - 1) / SIZE;
        for (int first = lane; first * SIZE < length; first += PACKS * lanes) {
            pack<T> loaded[PACKS];
#pragma unroll
            for (int f = 0; f < PACKS; f++) {
                const int x = (first + f * lanes) * SIZE;
                loaded[f] = {};
                if (x < length) {
                    loaded[f] = load_pack(source + x);
                }
            }
#pragma unroll
            for (int f = 0; f < PACKS; f++) {
                const int x = (first + f * lanes) * SIZE;
                if (x < length) {
                    store_values<T>(signal + place_of<V>(x), loaded[f]);
                }
            }
        }
        return;
    }
    const int64_t left = c.n - from; /* elements from `from` to the end of the row */
    const int begin = from >= 0 ? 0 : from > -length ? static_cast<int>(-from) : length;
    const int end = left > length  ? length
                    : left > begin ? static_cast<int>(left)
                                   : begin;
    const T *p = source + lane * c.a_step;
#pragma unroll 4
    for (int x = lane; x < length; x += lanes) {
        V value = {};
        if (x >= begin && x < end) {
            value = read_value(*p);
        }
        signal[place_of<V>(x)] = value;
        p += lanes * c.a_step;
    }
}

#endif
