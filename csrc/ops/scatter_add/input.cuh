/*
 * input.cuh  What every rung of scatter_add reads: elements and their indices as one
 * line each, what an index means, the type a sum is made in.
 * Order: types, the input, places, groups of elements, values between lanes.
 */
#ifndef GPO_SCATTER_ADD_INPUT_CUH
#define GPO_SCATTER_ADD_INPUT_CUH

#include <type_traits>

#include "../../device/atomic.cuh"
#include "../../device/vec.cuh"
#include "../../device/warp.cuh"
#include "scatter_add.h"

/* ---- types ---- */

template <typename T>
constexpr bool IS_WHOLE = std::is_integral_v<T> || std::is_same_v<T, b8>;

template <typename T>
constexpr bool IS_COMPLEX = std::is_same_v<T, c64> || std::is_same_v<T, c128>;

/* The unsigned integer of `bytes` bytes. */
template <int bytes>
using unsigned_of = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t,
                       std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

/* The type whose kernels serve T. */
template <typename T>
using carrier_of = std::conditional_t<IS_WHOLE<T>, unsigned_of<sizeof(T)>, T>;

/* Integers wrap modulo 2^64, as in NumPy; all floats are added in double, as on a CPU. */
template <typename T>
using sum_of = std::conditional_t<IS_WHOLE<T>, uint64_t,
                                  std::conditional_t<IS_COMPLEX<T>, c128, double>>;

template <typename Real>
__device__ __forceinline__ complex<Real>
operator+(complex<Real> a, complex<Real> b)
{
    return {a.re + b.re, a.im + b.im};
}

/* ---- the input ---- */

constexpr unsigned long long NONE_BAD = ~0ull;

/*
 * The place of an index outside of [0, size), -1 if it has none.  Not inlined: the
 * divisions of 'wrap' would stand beside every atomic.
 */
static __device__ __noinline__ int64_t
scatter_add_outside(int64_t at, int64_t i, int64_t size, scatter_add_mode mode,
                    bool is_unsigned, unsigned long long *bad)
{
    const bool below = at < 0 && !is_unsigned;
    if (mode == SCATTER_ADD_CLIP) {
        return below ? 0 : size - 1;
    }
    if (mode == SCATTER_ADD_WRAP) {
        if (!below) {
            return static_cast<uint64_t>(at) % static_cast<uint64_t>(size);
        }
        const int64_t rest = at % size;
        return rest < 0 ? rest + size : rest;
    }
    if (below && at + size >= 0) {
        return at + size;
    }
    atomicMin(bad, static_cast<unsigned long long>(i));
    return -1;
}

template <typename Value, typename Index>
struct scatter_add_input {
    using T = Value;
    using I = Index;
    using Sum = sum_of<T>;

    const T *values;
    const I *index;
    int64_t values_stride, index_stride; /* in elements */
    int64_t n, size;
    scatter_add_mode mode;
    bool is_unsigned;
    bool truth;              /* values are bools: any byte but 0 is one */
    uint64_t sign;           /* integers: the sign bit of a signed type, else 0 */
    unsigned long long *bad; /* the first position that is out of bounds, so far */

    __device__ __forceinline__ Sum lift(T x) const
    {
        if constexpr (std::is_integral_v<T>) {
            const uint64_t whole = (x ^ sign) - sign; /* extends the sign */
            return truth ? whole != 0 : whole;
        }
        else if constexpr (IS_COMPLEX<T>) {
            return {x.re, x.im};
        }
        else {
            return value_of(x);
        }
    }

    /* Where the index at position i goes; -1 if it is out of bounds, which is noted. */
    __device__ __forceinline__ int64_t place(I raw, int64_t i) const
    {
        const int64_t at = raw;
        if (static_cast<uint64_t>(at) < static_cast<uint64_t>(size)) {
            return at;
        }
        return scatter_add_outside(at, i, size, mode, is_unsigned, bad);
    }
};

/* ---- groups: as many elements as indices fit into 16 bytes ---- */

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) group {
    T v[N];
};

/* Elements [i, i + N) of a line; `packed` if they are neighbours on a whole boundary. */
template <typename T, int N>
__device__ __forceinline__ group<T, N>
load_group(const T *line, int64_t stride, int64_t i, bool packed)
{
    group<T, N> g;
    if (packed) {
        g = *reinterpret_cast<const group<T, N> *>(line + i);
    }
    else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            g.v[k] = line[(i + k) * stride];
        }
    }
    return g;
}

/* ---- values between lanes ---- */

/* The value of lane `from`. */
template <typename V>
__device__ __forceinline__ V
shuffle(V v, int from)
{
    static_assert(sizeof(V) % 4 == 0, "shuffled types are whole 32-bit words");
    unsigned words[sizeof(V) / 4];
    memcpy(words, &v, sizeof(V));
#pragma unroll
    for (unsigned k = 0; k < sizeof(V) / 4; k++) {
        words[k] = __shfl_sync(ALL_LANES, words[k], from);
    }
    memcpy(&v, words, sizeof(V));
    return v;
}

#endif
