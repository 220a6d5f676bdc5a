/*
 * spectral_rows.cuh  What the kernels of v7 are made of: the rows of a view, the head of a
 * row and the guard of its bound, where spectra wait.
 * Order: rows, sums in the plain order, the causal bound, what a block does.
 * Not here: the kernels (spectrum.cuh, blocked.cuh), ranges and elements of rows
 * (device/spectral.cuh), the transform (device/fft.cuh).
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH
#define GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH

#include "../../device/spectral.cuh"
#include "rows.cuh"

#include <cmath>

/* ---- rows ---- */

/* Row (b, c) of a view whose elements are of `dtype`. */
template <typename T>
__device__ __forceinline__ spectrum_row
row_of(spectrum_dtype dtype, const row_view<T> &rows, int64_t b, int64_t c, int64_t n)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    const char *first = reinterpret_cast<const char *>(rows.p);
    return {const_cast<char *>(first) + (b * rows.b + c * rows.c) * bytes, rows.t, n};
}

/* The same with the last step first. */
template <typename T>
__device__ __forceinline__ spectrum_row
reversed_row_of(spectrum_dtype dtype, const row_view<T> &rows, int64_t b, int64_t c,
                int64_t n)
{
    const int64_t bytes = dtype == SPECTRUM_F32 ? 4 : 2;
    const spectrum_row row = row_of(dtype, rows, b, c, n);
    return {static_cast<char *>(row.p) + (n - 1) * rows.t * bytes, -rows.t, n};
}

/* ---- sums in the plain order, of rows that are not finite ---- */

__device__ __forceinline__ float
correlate_plainly(spectrum_dtype dtype, const lag_view<float> &v, int64_t first,
                  int64_t last, int64_t c, int64_t s)
{
    return with_dtype(dtype, [&](auto element) {
        return plain_lag<1>(view_as<lag_view<decltype(element)>>(v), first, last, c, s);
    });
}

/* ---- the causal bound ---- */

/*
 * The error of a transform is spread evenly over its results, at most
 * 0.75 log2(2N) 2^-24 norm(w) norm(x) on each (NOTES.md).  The bound of step t speaks of
 * the inputs up to t alone: sqrt(T) 2^-23 norm(w) norm(x[..t]).  So the first sums
 * from the first input on that is not 0, the head, are added up directly, those before it
 * are 0, and the transform may make the others as long as the inputs it sees have no norm
 * more than growth_of() times that of the inputs up to there.  Norms only grow along a
 * row: it is enough to ask at the first step that the transform makes.
 */

/* Steps of the head: of normal numbers one row in 10^7 has less of its norm there. */
template <typename FFT>
constexpr int HEAD = FFT::POINTS <= 4096 ? 64 : 128;

static float
growth_of(int64_t steps, int log_points)
{
    return static_cast<float>(2 * std::sqrt(static_cast<double>(steps)) /
                              (0.75 * (log_points + 1)));
}

/* Steps of a row of v7: they and a head more are counted in 32 bits. */
constexpr int64_t MOST_STEPS = int64_t{1} << 30;

/* The largest size in a row, and its first step that is not 0. */
struct causal_range {
    row_range size;
    int first;

    __device__ __forceinline__ void take(float x, int t)
    {
        size.take(x);
        first = x != 0.0f && t < first ? t : first;
    }

    static __device__ __forceinline__ causal_range combine(causal_range a,
                                                           causal_range b)
    {
        return {row_range::combine(a.size, b.size),
                a.first < b.first ? a.first : b.first};
    }
};

constexpr causal_range NO_CAUSAL_RANGE = {NO_RANGE, static_cast<int>(MOST_STEPS)};

/* Squares of the values of a block of a row, and of those of its head. */
struct causal_norms {
    float block, head;

    static __device__ __forceinline__ causal_norms combine(causal_norms a,
                                                           causal_norms b)
    {
        return {a.block + b.block, a.head + b.head};
    }
};

/* Whether a row holds the bound; asked block by block, in their order, by one thread. */
struct causal_guard {
    float growth;         /* square of growth_of() */
    float before = 0;     /* of the blocks so far */
    bool is_wide = false; /* some step has a larger error */

    /* A block from step `first` on of a row whose head ends before step `end`. */
    __device__ __forceinline__ void take(causal_norms norms, int first, int end)
    {
        constexpr float LEAST = 0x1p-100f; /* smaller squares are no longer exact */
        const float known = first >= end ? before : norms.head;
        before += norms.block;
        const bool holds = before <= growth * known && known >= LEAST;
        is_wide = is_wide || !(holds || before == 0.0f);
    }
};

/* The sum of the squares of a thread's values. */
template <int V>
__device__ __forceinline__ float
square_of(const float (&x)[V])
{
    float sum = 0;
#pragma unroll
    for (int e = 0; e < V; e++) {
        sum = fmaf(x[e], x[e], sum);
    }
    return sum;
}

/*
 * The head of a row by the block's first warp: a lane has four sums, and all terms of them
 * or half.  Four taps meet eight inputs in registers, 16 products for two loads of 16
 * bytes.
 */
template <typename FFT>
struct causal_head {
    static constexpr int STEPS = HEAD<FFT>, THREADS = FFT::THREADS, QUADS = STEPS / 4;
    static constexpr int SPLIT = WARP / QUADS;
    static_assert(WARP % QUADS == 0, "a lane for each four sums");

    struct memory {
        alignas(16) float taps[STEPS];
        alignas(16) float inputs[2 * STEPS]; /* behind as many zeros */
        alignas(16) float sums[STEPS];
    };
    memory &m;

    __device__ __forceinline__ explicit causal_head(memory &shared) : m(shared)
    {
    }

    __device__ __forceinline__ void load_taps(spectrum_dtype dtype,
                                              const spectrum_row &w) const
    {
        if (threadIdx.x < WARP) {
            float x[STEPS / WARP];
            load_row<WARP>(dtype, w, threadIdx.x, x);
#pragma unroll
            for (int k = 0; k < STEPS / WARP; k++) {
                m.taps[k * WARP + threadIdx.x] = x[k];
                m.inputs[k * WARP + threadIdx.x] = 0;
            }
        }
    }

    /*
     * The sums of the row whose first input is at `start`: a barrier comes before they are
     * read.  Gives the thread's share of the squares of these inputs times `by`.
     */
    __device__ __forceinline__ float add_up(spectrum_dtype dtype, const spectrum_row &row,
                                            int start, float by) const
    {
        if (threadIdx.x >= WARP) {
            return 0.0f;
        }
        float own[STEPS / WARP];
        load_row<WARP>(dtype, row, static_cast<int64_t>(start) + threadIdx.x, own);
        __syncwarp();
#pragma unroll
        for (int k = 0; k < STEPS / WARP; k++) {
            m.inputs[STEPS + k * WARP + threadIdx.x] = own[k];
            own[k] *= by;
        }
        __syncwarp();
        const int quad = threadIdx.x % QUADS, part = threadIdx.x / QUADS;
        const int first = part * (STEPS / SPLIT);
        const float *x = m.inputs + STEPS + 4 * quad - first, *taps = m.taps + first;
        pack<float> late = shared_pack(x);
        float sum[4] = {};
#pragma unroll 2
        for (int s = 0; s < STEPS / SPLIT; s += 4) {
            x -= 4;
            const pack<float> early = shared_pack(x), tap = shared_pack(taps);
            taps += 4;
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    sum[i] = fmaf(tap.v[j], i >= j ? late.v[i >= j ? i - j : 0]
                                                   : early.v[i >= j ? 0 : 4 + i - j],
                                  sum[i]);
                }
            }
            late = early;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (SPLIT == 2) {
                sum[i] += __shfl_xor_sync(ALL_LANES, sum[i], QUADS);
            }
            if (part == 0) {
                m.sums[4 * quad + i] = sum[i];
            }
        }
        return square_of(own);
    }

    /*
     * y[e] is step origin + SIGN (threadIdx.x + e THREADS).  Where no transform may make
     * it, it becomes `offset`, before the row's first input at `start`, or a sum of the
     * head, from there on.
     */
    template <int SIGN>
    __device__ __forceinline__ void replace(float (&y)[FFT::V], int origin, int start,
                                            float offset) const
    {
        const int low = SIGN > 0 ? start - origin : origin - start - STEPS + 1;
        const int high = low + STEPS; /* the head's places, threadIdx.x + e THREADS */
#pragma unroll
        for (int e = 0; e < FFT::V; e++) {
            /* These are the same for all threads. */
            if (SIGN > 0 && e * THREADS >= high) {
                return;
            }
            if (SIGN < 0 && (e + 1) * THREADS <= low) {
                continue;
            }
            const int place = static_cast<int>(threadIdx.x) + e * THREADS;
            if (SIGN > 0 ? place < low : place >= high) {
                y[e] = offset;
            }
            else if (SIGN > 0 ? place < high : place >= low) {
                y[e] = m.sums[SIGN > 0 ? place - low : high - 1 - place] + offset;
            }
        }
    }
};

/* The range of the values x of a thread, steps origin + SIGN (threadIdx.x + e THREADS). */
template <typename FFT, int SIGN = 1>
__device__ __forceinline__ causal_range
causal_range_of(const float (&x)[FFT::V], int origin, causal_range before)
{
#pragma unroll
    for (int e = 0; e < FFT::V; e++) {
        before.take(x[e], origin + SIGN * (static_cast<int>(threadIdx.x) +
                                           e * FFT::THREADS));
    }
    return before;
}

/* ---- what a block does ---- */

/* How work is cut: channels x splits of the batch, and rows and filters in blocks. */
struct spectrum_cut {
    spectrum_dtype dtype;
    float growth;                 /* of the guard */
    uint8_t *wide;                /* row b * C + c: whether it needs blocked.cuh */
    int64_t splits, share;        /* batches of a split */
    int64_t row_blocks, w_blocks; /* of N steps, of N lags */
    c64 *slab;                    /* memory for spectra, `spectra` for each block */
    int64_t spectra;
};

/* Spectra and carries in memory; a thread reads only what it has written itself. */
template <typename FFT>
struct spectrum_store {
    c64 *base;

    __device__ __forceinline__ c64 &at(int64_t i, int k) const
    {
        return base[(i * FFT::V + k) * FFT::THREADS + threadIdx.x];
    }

    __device__ __forceinline__ void put(int64_t i, const c64 (&f)[FFT::V]) const
    {
#pragma unroll
        for (int k = 0; k < FFT::V; k++) {
            at(i, k) = f[k];
        }
    }
};

/* The values y of row (b, c) from step `first` on after the activation. */
template <int THREADS, int V>
__device__ __forceinline__ void
finish_row(spectrum_dtype dtype, const conv_view<float> &v, int64_t b, int64_t c,
           int64_t first, float (&y)[V])
{
    if (v.finish != FINISH_NONE) {
        float g[V] = {};
        if (v.finish == FINISH_SLOPE) {
            load_row<THREADS>(dtype, row_of(dtype, v.dy, b, c, v.steps), first, g);
        }
#pragma unroll
        for (int e = 0; e < V; e++) {
            y[e] = v.after(y[e], g[e]);
        }
    }
}

__device__ __forceinline__ spectrum_row
filter_of(spectrum_dtype dtype, const conv_view<float> &v, int64_t c)
{
    const row_view<const float> rows = {v.w, 0, v.w_c, v.w_s};
    return row_of(dtype, rows, 0, c, v.lags);
}

/* What is added to each sum of channel c. */
__device__ __forceinline__ float
offset_of(spectrum_dtype dtype, const conv_view<float> &v, int64_t c)
{
    return with_dtype(dtype, [&](auto element) {
        return view_as<conv_view<decltype(element)>>(v).offset(c);
    });
}

#endif
