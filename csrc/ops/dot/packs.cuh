/*
 * packs.cuh  Two arrays without gaps as packs of 16 bytes: where the packs begin, a pack
 * cut out of two aligned ones, sums of packs, and the elements beside the packs.
 */
#ifndef GPO_DOT_PACKS_CUH
#define GPO_DOT_PACKS_CUH

#include "products.cuh"
#include "tuning.cuh"

/*
 * x and y without gaps: x + head is aligned to 16 bytes, and so is y + head less
 * `shift` bytes.  `packs` packs follow, then a tail.
 */
template <typename T>
struct dot_packs {
    const T *x, *y;
    int64_t n, head, packs;
    int shift;
    bool keep_l2;
};

/*
 * Whether peeling elements aligns x to 16 bytes: not if a complex array's address is no
 * multiple of the element size.  Swaps x and y if only y can be aligned.
 */
template <typename T>
bool
peels(dot_view<T> *a)
{
    if (reinterpret_cast<uintptr_t>(a->x) % sizeof(T) != 0) {
        *a = {a->y, a->x, a->n, a->y_stride, a->x_stride};
    }
    return reinterpret_cast<uintptr_t>(a->x) % sizeof(T) == 0;
}

/* Splits arrays without gaps into head, packs and tail; x can be peeled to 16 bytes. */
template <typename T>
dot_packs<T>
packs_of(const dot_view<T> &a)
{
    constexpr int64_t SIZE = pack<T>::SIZE, BYTES = sizeof(T);
    int64_t head = 0;
    while (head < a.n && reinterpret_cast<uintptr_t>(a.x + head) % 16 != 0) {
        head++;
    }
    const int shift = static_cast<int>(reinterpret_cast<uintptr_t>(a.y + head) % 16);
    if (head * BYTES < shift) { /* the first pack of y would start before y */
        head = head + SIZE < a.n ? head + SIZE : a.n;
    }
    const int64_t left = (a.n - head) * BYTES;
    const int64_t packs = shift ? (left + shift) / 16 - 1 : left / 16;
    const int64_t bytes = KEEP_L2_BYTES / (2 * BYTES);
    return {a.x, a.y, a.n, head, packs > 0 ? packs : 0, shift, a.n <= bytes};
}

/*
 * Adds N packs of each array, `step` packs apart, in N accumulators, then in one.  All
 * loads are in flight at once.  Unless WHOLE, packs from `left` on are left out.
 */
template <typename S, bool SHIFTED, int N, bool WHOLE>
__device__ __forceinline__ typename S::Acc
sum_packs(const uint4 *x, const uint4 *y, int64_t step, int64_t left, int shift,
          uint64_t policy)
{
    using T = typename S::T;
    uint4 p[N], q[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        p[u] = q[u] = {0, 0, 0, 0};
        if (WHOLE || u * step < left) {
            p[u] = load_streamed(x + u * step, policy);
            q[u] = load_streamed(y + u * step, policy);
        }
    }
    if constexpr (SHIFTED) {
        uint4 next[N];
#pragma unroll
        for (int u = 0; u < N; u++) {
            next[u] = {0, 0, 0, 0};
            if (WHOLE || u * step < left) {
                next[u] = load_streamed(y + u * step + 1, policy);
            }
        }
#pragma unroll
        for (int u = 0; u < N; u++) {
            q[u] = cut_out(q[u], next[u], shift);
        }
    }
    typename S::Acc acc[N] = {};
#pragma unroll
    for (int u = 0; u < N; u++) {
        const pack<T> a = pack_of<T>(p[u]), b = pack_of<T>(q[u]);
#pragma unroll
        for (int v = 0; v < pack<T>::SIZE; v++) {
            acc[u] = S::multiply_add(acc[u], a.v[v], b.v[v]);
        }
    }
#pragma unroll
    for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
        for (int u = 0; u < half; u++) {
            acc[u] = S::combine(acc[u], acc[u + half]);
        }
    }
    return acc[0];
}

/* One element before the first pack and one after the last, of at least 32 threads. */
template <typename S>
struct dot_ends {
    using T = typename S::T;
    T x[2] = {}, y[2] = {};

    __device__ __forceinline__ void load(const dot_packs<T> &a, int64_t tid)
    {
        const int64_t tail = a.head + a.packs * pack<T>::SIZE + tid;
        if (tid < a.head) {
            x[0] = element(a.x + tid);
            y[0] = element(a.y + tid);
        }
        if (tail < a.n) {
            x[1] = element(a.x + tail);
            y[1] = element(a.y + tail);
        }
    }

    __device__ __forceinline__ typename S::Acc sum() const
    {
        return S::multiply_add(S::multiply_add({}, x[0], y[0]), x[1], y[1]);
    }
};

#endif
