/*
 * index_add.cuh  What the kernels of index_add share: the types they add in, positions
 * from the index, the call as a kernel argument, atomics of 16 bytes.
 * See frame.cuh for setup and checks.
 */
#ifndef GPO_INDEX_ADD_CUH
#define GPO_INDEX_ADD_CUH

#include "../../device/grid.cuh"
#include "../../device/atomic.cuh"
#include "../../device/divide.cuh"
#include "../../device/follow.cuh"
#include "../../device/index.cuh"
#include "../../device/vec.cuh"
#include "../../device/warp.cuh"

#include "index_add.h"
#include "tuning.cuh"

/* The grid for n threads in blocks of BLOCK. */
inline dim3
grid_for(int64_t n)
{
    const int64_t blocks = ceil_div(n, BLOCK);
    return dim3(grid_extent(blocks, MAX_GRID));
}

/* ---- types: T is summed in Acc, alpha has type Alpha ---- */

template <typename T>
struct wide {
    using Acc = T;
    using Alpha = T;
};

template <>
struct wide<f16> {
    using Acc = float;
    using Alpha = float;
};

template <>
struct wide<bf16> {
    using Acc = float;
    using Alpha = float;
};

template <>
struct wide<uint8_t> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <>
struct wide<uint16_t> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <>
struct wide<b8> {
    using Acc = uint32_t;
    using Alpha = uint32_t;
};

template <typename T>
using acc_of = typename wide<T>::Acc;

template <typename T>
using alpha_of = typename wide<T>::Alpha;

template <typename A, typename B>
constexpr bool is_same = false;
template <typename A>
constexpr bool is_same<A, A> = true;

template <typename T>
constexpr bool is_bool = is_same<T, b8>;

/* alpha * v, and the sum of two such: for bool, `and` and `or`. */
template <typename T>
__device__ __forceinline__ acc_of<T>
scaled(T v, alpha_of<T> alpha)
{
    if constexpr (is_bool<T>) {
        return v.bits != 0 && alpha != 0;
    }
    else {
        return static_cast<acc_of<T>>(value_of(v)) * alpha;
    }
}

template <typename T>
__device__ __forceinline__ acc_of<T>
sum_of(acc_of<T> a, acc_of<T> b)
{
    if constexpr (is_bool<T>) {
        return a | b;
    }
    else {
        return a + b;
    }
}

template <typename T>
__device__ __forceinline__ T
sum_stored(T old, acc_of<T> sum)
{
    if constexpr (is_bool<T>) {
        return {static_cast<uint8_t>(old.bits != 0 || sum != 0)};
    }
    else {
        return stored_as<T>(static_cast<acc_of<T>>(value_of(old)) + sum);
    }
}

/* ---- positions from the index ---- */

struct index_reader {
    const void *at;
    int64_t step, length;
    gpo_index_mode mode;
    bool is_wide;
    unsigned long long *bad; /* RAISE: the first bad position in the index so far */
    divider lengths;         /* WRAP */
};

/* The entry of source row s in the index, unchecked. */
__device__ __forceinline__ int64_t
entry_of(const index_reader &index, int64_t s)
{
    const int64_t i = s * index.step;
    return index.is_wide ? static_cast<const int64_t *>(index.at)[i]
                         : static_cast<const int32_t *>(index.at)[i];
}

/* The destination of row s, whose entry is k; -1 if there is none. */
__device__ __forceinline__ int64_t
destination_of(const index_reader &index, int64_t k, int64_t s)
{
    if (static_cast<uint64_t>(k) < static_cast<uint64_t>(index.length)) {
        return k;
    }
    return place_outside(k, s, index.length, index.mode, false, index.bad);
}

/* The same with less code.  No call, which costs registers: 'wrap' multiplies. */
__device__ __forceinline__ int64_t
place_of_entry(const index_reader &index, int64_t k, int64_t s)
{
    if (k >= 0 && k < index.length) {
        return k;
    }
    if (index.mode == GPO_INDEX_WRAP) {
        const int64_t past = k < 0 ? ~k : k;
        const int64_t rest = past - index.lengths.of(past) * index.length;
        return k < 0 ? index.length - 1 - rest : rest;
    }
    return place_or_note(k, s, index.length, index.mode, false, index.bad);
}

/* The destination of row s. */
__device__ __forceinline__ int64_t
position_of(const index_reader &index, int64_t s)
{
    return place_of_entry(index, entry_of(index, s), s);
}

/* ---- the call as a kernel argument ---- */

template <typename T>
struct index_add_view {
    T *out;
    const T *base; /* x, or out if that has x's elements already */
    const T *source;
    int64_t outer, length, count, inner;
    int64_t by_outer, by_row, by_inner;
    index_reader index;
    divider counts, inners; /* source rows by slices, elements by rows */
    alpha_of<T> alpha;
    double wide_alpha;                 /* of floats, not rounded */
    const unsigned long long *verdict; /* for the last kernel, see frame.cuh; or NULL */
    bool follows; /* a kernel of this call comes before: follow.cuh */
};

/* ---- atomics of 16 bytes: one on sm_90, word by word on others ---- */

template <typename T, int V>
struct alignas(V * sizeof(T)) values {
    T v[V];
};

template <typename T, int V>
__device__ __forceinline__ values<T, V>
load_values(const T *p)
{
    values<T, V> out;
    if constexpr (V * sizeof(T) == 16) {
        const uint4 bits = load_streamed(reinterpret_cast<const uint4 *>(p));
        memcpy(out.v, &bits, 16);
    }
    else if constexpr (V > 1) {
        out = *reinterpret_cast<const values<T, V> *>(p);
    }
    else {
        out.v[0] = *p;
    }
    return out;
}

/* base[i..i + V) += v, in an array of n elements. */
template <typename T, int V>
__device__ __forceinline__ void
atomic_add_values(T *base, int64_t i, int64_t n, const values<T, V> &v)
{
    if constexpr (sizeof(T) == 2 && V > 1) {
        using Pair = typename half_pair<T>::type;
        static_assert(V == 8, "16 bytes or one element");
        uint4 *const at = reinterpret_cast<uint4 *>(base + i);
        unsigned w[4];
        memcpy(w, v.v, sizeof w);
        const uint4 bits = make_uint4(w[0], w[1], w[2], w[3]);
        if (is_same<T, f16> ? add_float16_pairs(at, bits)
                            : add_bfloat16_pairs(at, bits)) {
            return;
        }
#pragma unroll
        for (int c = 0; c < V; c += 2) {
            Pair pair;
            pair.x = v.v[c];
            pair.y = v.v[c + 1];
            atomicAdd(reinterpret_cast<Pair *>(base + i + c), pair);
        }
    }
    else if constexpr (sizeof(T) == 2) {
        fast_atomic_add(base, i, n, v.v[0]);
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    else if constexpr (V == 4 && is_same<T, float>) {
        atomicAdd(reinterpret_cast<float4 *>(base + i),
                  make_float4(v.v[0], v.v[1], v.v[2], v.v[3]));
    }
    else if constexpr (V == 2 && is_same<T, float>) {
        atomicAdd(reinterpret_cast<float2 *>(base + i), make_float2(v.v[0], v.v[1]));
    }
#endif
    else {
#pragma unroll
        for (int c = 0; c < V; c++) {
            atomic_add(base + i + c, v.v[c]);
        }
    }
}

/* alpha * the V elements at p, rounded to T. */
template <typename T, int V>
__device__ __forceinline__ values<T, V>
load_scaled(const T *p, alpha_of<T> alpha)
{
    values<T, V> v = load_values<T, V>(p);
#pragma unroll
    for (int c = 0; c < V; c++) {
        v.v[c] = stored_as<T>(scaled(v.v[c], alpha));
    }
    return v;
}

/* Whether rows of the source and of out split into aligned packs of `size` elements. */
template <typename T>
bool
index_add_splits(const index_add_view<T> &a, int64_t size)
{
    const uintptr_t addresses = reinterpret_cast<uintptr_t>(a.out) |
                                reinterpret_cast<uintptr_t>(a.base) |
                                reinterpret_cast<uintptr_t>(a.source);
    return a.by_inner == 1 && addresses % (size * sizeof(T)) == 0 &&
           a.inner % size == 0 && (a.outer == 1 || a.by_outer % size == 0) &&
           (a.count == 1 || a.by_row % size == 0);
}

/* Whether they split into packs of 16 bytes. */
template <typename T>
bool
is_packed(const index_add_view<T> &a)
{
    return pack<T>::SIZE > 1 && index_add_splits(a, pack<T>::SIZE);
}

/* Whether they split into pairs. */
template <typename T>
bool
index_add_is_paired(const index_add_view<T> &a)
{
    return index_add_splits(a, 2);
}

#endif
