/*
 * row_words.cuh  Sums of short rows that lie beside each other in shared memory, by a
 * lane or several, in the widest words that rows allow and without bank conflicts.
 * For shapes/short_rows.cu, shapes/many_batches.cu and shapes/own_means.cu.
 */
#ifndef GPO_MEAN_MATVEC_ROW_WORDS_CUH
#define GPO_MEAN_MATVEC_ROW_WORDS_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

/*
 * Starts the copy of n elements from x on, `skew` from a boundary of 16 bytes, to shared
 * memory, in words of 16 bytes: x[0] to to[skew].  Elements of the array are `before` x
 * and `rest` from x on; what is beside them is not read.
 */
template <typename T>
__device__ __forceinline__ void
bring_words(const T *x, int64_t before, int64_t rest, int n, int skew, T *to)
{
    constexpr int SIZE = pack<T>::SIZE;
    const int begin = static_cast<int>(threadIdx.x) * SIZE, end = skew + n;
    if (before >= skew && end + SIZE <= rest) { /* no word beside x */
        for (int k = begin; k < end; k += THREADS * SIZE) {
            start_copy(to + k, x + (k - skew), l2_evict_unchanged());
        }
    }
    else {
        for (int k = begin; k < end; k += THREADS * SIZE) {
            const int64_t at = k - skew; /* from x on */
            if (before + at >= 0 && at + SIZE <= rest) {
                start_copy(to + k, x + at, l2_evict_unchanged());
                continue;
            }
            for (int u = 0; u < SIZE; u++) {
                if (before + at + u >= 0 && at + u < rest) {
                    to[k + u] = x[at + u];
                }
            }
        }
    }
}

/*
 * A row has `1 << log_lanes` parts of `part` elements, the last one perhaps fewer, for a
 * lane each.  Where parts of an even number of words would put several lanes into one
 * bank, lanes begin at other words of theirs: `twist` is the number of lanes that would
 * collide.
 */
struct row_words {
    int log_lanes, part, word, twist; /* word: elements */
};

/* The greatest power of two that divides n and `most`, itself a power of two. */
inline int
power_of_two_in(int64_t n, int64_t most)
{
    const int64_t both = n | most;
    return static_cast<int>(both & -both);
}

/* The logarithm of the lanes of a row of which each adds up to `most` elements. */
inline int
log_lanes_of_row(int64_t cols, int64_t most)
{
    int log = 0;
    while (most << log < cols) {
        log++;
    }
    return log;
}

/* Of rows that lie as in x, which are copied as far from a 16-byte boundary. */
template <typename T>
row_words
row_words_of(const T *x, int64_t cols, int64_t most_of_lane)
{
    row_words w = {};
    w.log_lanes = log_lanes_of_row(cols, most_of_lane);
    w.part = static_cast<int>(ceil_div(cols, int64_t{1} << w.log_lanes));
    const int64_t past =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) / sizeof(T));
    w.word = power_of_two_in(cols | w.part | past, pack<T>::SIZE);
    const int line = 128 / static_cast<int>(sizeof(T)) / w.word;
    const bool is_whole = w.part << w.log_lanes == cols && w.word * sizeof(T) >= 4;
    w.twist =
        is_whole ? power_of_two_in(w.part / w.word, line < WARP ? line : WARP) : 0;
    return w;
}

/* What one load takes from shared memory: one number, so that compilers do not merge loads
   of neighbours, whose 16 bytes on a host need no alignment. */
template <int BYTES>
using row_bits = std::conditional_t<
    BYTES == 16, uint4,
    std::conditional_t<BYTES == 8, uint64_t,
                       std::conditional_t<BYTES == 4, uint32_t, uint16_t>>>;

/* The sum of n words from word `from` of them on; in four sums, to bound its error. */
template <int W, typename T>
__device__ __forceinline__ value_type<T>
sum_words(const T *part, int n, int from)
{
    using V = value_type<T>;
    constexpr int AT_ONCE = W < 4 ? 4 / W : 1;
    using bits = row_bits<W *static_cast<int>(sizeof(T))>;
    static_assert(sizeof(bits) == W * sizeof(T), "a word has W elements");
    const bits *at = reinterpret_cast<const bits *>(part) + from;
    int left = n - from; /* until the first one follows, n before `at` */
    V sum[4] = {};
    const auto add = [&](int u) {
        const bits word = (u < left ? at : at - n)[u];
        T v[W];
        memcpy(static_cast<void *>(v), &word, sizeof(word));
#pragma unroll
        for (int e = 0; e < W; e++) {
            sum[(u * W + e) % 4] += value_of(v[e]);
        }
    };
    int rest = n;
    for (; rest >= AT_ONCE; rest -= AT_ONCE) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            add(u);
        }
        at += AT_ONCE;
        left -= AT_ONCE;
    }
    for (; rest > 0; rest--) {
        add(0);
        at++;
        left--;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/*
 * Calls f(row, mean) for each of n rows of `cols` elements from x on, by one thread each;
 * all threads of a block take part.
 */
template <int W, typename T, typename F>
__device__ __forceinline__ void
each_mean_of_words(const row_words &w, const T *x, int cols, int n, F f)
{
    using V = value_type<T>;
    constexpr int AT_ONCE = 128 / (W * static_cast<int>(sizeof(T)));
    constexpr int LANES = AT_ONCE < WARP ? AT_ONCE : WARP; /* read together */
    const int tid = threadIdx.x, lanes = 1 << w.log_lanes;
    const int at = (tid & (lanes - 1)) * w.part;
    const int rest = cols - at, part = rest < w.part ? rest : w.part;
    const int from = tid % LANES * w.twist / LANES;
    for (int first = 0; first < n; first += THREADS >> w.log_lanes) {
        const int r = first + (tid >> w.log_lanes);
        V sum = r < n ? sum_words<W>(x + r * cols + at, part / W, from) : V(0);
        for (int d = lanes / 2; d > 0; d /= 2) {
            sum += __shfl_xor_sync(ALL_LANES, sum, d);
        }
        if (r < n && at == 0) {
            f(r, sum / static_cast<V>(cols));
        }
    }
}

/* The same, in words of the size that the launcher found. */
template <typename T, typename F>
__device__ __forceinline__ void
each_mean(const row_words &w, const T *x, int cols, int n, F f)
{
    if (w.word == 1) {
        each_mean_of_words<1>(w, x, cols, n, f);
    }
    else if (w.word == 2) {
        each_mean_of_words<2>(w, x, cols, n, f);
    }
    else if constexpr (sizeof(T) <= 4) {
        if (sizeof(T) == 4 || w.word == 4) {
            each_mean_of_words<4>(w, x, cols, n, f);
        }
        else {
            each_mean_of_words<pack<T>::SIZE>(w, x, cols, n, f);
        }
    }
}

#endif
