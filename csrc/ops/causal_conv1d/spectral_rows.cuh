/*
 * spectral_rows.cuh  Code shared by the kernels of v7: the rows of a view, the head of
 * a row, the guard of the causal bound, and storage of spectra.
 * Order: rows, direct sums, the causal bound, the work of a block.
 * See ladder/v7_* and early_steps.cu for the kernels, device/spectral.cuh for ranges
 * and elements of rows, device/fft.cuh for the transform.
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH
#define GPO_CAUSAL_CONV1D_SPECTRAL_ROWS_CUH

#include "../../device/spectral.cuh"
#include "limits.cuh"
#include "staging.cuh"

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

/* ---- direct sums, of rows that are not finite ---- */

__device__ __forceinline__ float
correlate_directly(spectrum_dtype dtype, const lag_view<float> &v, int64_t first,
                   int64_t last, int64_t c, int64_t s)
{
    return with_dtype(dtype, [&](auto element) {
        return direct_lag<1>(view_as<lag_view<decltype(element)>>(v), first, last, c,
                             s);
    });
}

/* ---- the causal bound ---- */

/*
 * The error of a transform is spread evenly over its results, at most 0.75 log2(2N)
 * 2^-24 norm(w) norm(x) on each (NOTES.md).  The bound of step t depends on the inputs
 * up to t only: sqrt(T) 2^-23 norm(w) norm(x[..t]).  So the head, the first sums from
 * the first nonzero input on, is computed directly, sums before it are 0, and the
 * transform may compute a later sum if the norm of its inputs is at most growth_of()
 * times that of the inputs up to there.  Norms only grow along a row, so it is enough
 * to test the first step that the transform computes.
 */

/* Steps of the head: one row in 10^7 of normal numbers has a smaller norm there. */
template <typename FFT>
constexpr int HEAD = FFT::POINTS <= 4096 ? 64 : 128;

static inline float
growth_of(int64_t steps, int log_points)
{
    return static_cast<float>(2 * std::sqrt(static_cast<double>(steps)) /
                              (0.75 * (log_points + 1)));
}

/* The largest size in a row, and whether its first step is 0. */
struct causal_range {
    row_range size;
    unsigned begins_late;

    static __device__ __forceinline__ causal_range combine(causal_range a,
                                                           causal_range b)
    {
        return {row_range::combine(a.size, b.size), a.begins_late | b.begins_late};
    }
};

/* A step; the smaller one of two. */
struct earlier {
    int step;

    static __device__ __forceinline__ earlier combine(earlier a, earlier b)
    {
        return {a.step < b.step ? a.step : b.step};
    }
};

/* What v7 leaves of a row to early_steps.cu: its first nonzero step or one of these. */
constexpr int WIDE_ROW = -1;                            /* all of it */
constexpr int WHOLE_ROW = static_cast<int>(MOST_STEPS); /* nothing */

/* Steps of the blocks that wide rows are computed in. */
constexpr int WIDE_STEPS = 512;

/* The mark of a row of which the first `steps` are left, of `all`: -1 - their blocks. */
__device__ __forceinline__ int
wide_up_to(int64_t steps, int64_t all)
{
    return steps >= all ? WIDE_ROW : -1 - static_cast<int>(ceil_div(steps, WIDE_STEPS));
}

/* Squares of the values of a block of a row, and of those of its head. */
struct causal_norms {
    float block, head;

    static __device__ __forceinline__ causal_norms combine(causal_norms a,
                                                           causal_norms b)
    {
        return {a.block + b.block, a.head + b.head};
    }
};

/* Whether a row holds the bound; one thread takes its blocks in order. */
struct causal_guard {
    float growth;               /* square of growth_of() */
    float before = 0, head = 0; /* squares of the blocks so far, of the head */
    bool is_wide = false;       /* some step has a larger error */

    /* Takes the block that begins at step `first`; the row's head ends before `end`. */
    __device__ __forceinline__ void take(causal_norms norms, int first, int end)
    {
        constexpr float LEAST = 0x1p-100f; /* smaller squares are no longer exact */
        head += norms.head;
        const float known = first >= end ? before : head;
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

/* The thread's part of a row's head: loaded first, squared once it has arrived. */
template <typename FFT>
struct causal_head {
    static constexpr int STEPS = HEAD<FFT>, THREADS = FFT::THREADS;
    static constexpr int EACH = STEPS > THREADS ? STEPS / THREADS : 1;

    float x[EACH];

    __device__ __forceinline__ void load(spectrum_dtype dtype, const spectrum_row &row,
                                         int start)
    {
        const int64_t first = static_cast<int64_t>(start) + threadIdx.x;
        x[0] = 0;
        if (EACH > 1 || threadIdx.x < STEPS) {
            load_row<THREADS>(dtype, row, first, x);
        }
    }

    __device__ __forceinline__ float square(float by)
    {
        spectrum_block<FFT>::scale(x, by);
        return square_of(x);
    }
};

/* y[e] = offset at steps origin + SIGN (threadIdx.x + e THREADS) < start. */
template <typename FFT, int SIGN>
__device__ __forceinline__ void
clear_before(float (&y)[FFT::V], int origin, int start, float offset)
{
    if (start == 0) {
        return;
    }
#pragma unroll
    for (int e = 0; e < FFT::V; e++) {
        const int place = static_cast<int>(threadIdx.x) + e * FFT::THREADS;
        y[e] = origin + SIGN * place < start ? offset : y[e];
    }
}

/*
 * The first nonzero step among a thread's values x, of steps
 * origin + SIGN (threadIdx.x + e THREADS); `before` if it has none earlier.
 */
template <typename FFT, int SIGN>
__device__ __forceinline__ earlier
first_of(const float (&x)[FFT::V], int origin, earlier before)
{
#pragma unroll
    for (int e = 0; e < FFT::V; e++) {
        const int place = static_cast<int>(threadIdx.x) + e * FFT::THREADS;
        const int t = origin + SIGN * place;
        before.step = x[e] != 0.0f && t < before.step ? t : before.step;
    }
    return before;
}

/* ---- the work of a block ---- */

/* How work is divided: channels x splits of the batch, rows and filters into blocks. */
struct spectrum_cut {
    spectrum_dtype dtype;
    float growth;                 /* of the guard */
    int *starts;                  /* entry b * C + c: row (b, c), see early_steps.cu */
    int64_t splits, share;        /* share: batches per split */
    int64_t row_blocks, w_blocks; /* of N steps, of N lags */
    c64 *slab;                    /* workspace, `spectra` values for each block */
    int64_t spectra;
};

/* The end of the split that begins with batch `first`. */
__device__ __forceinline__ int64_t
last_of(const spectrum_cut &cut, int64_t first, int64_t batches)
{
    return first + cut.share < batches ? first + cut.share : batches;
}

/* Spectra and carries in memory; a thread reads only its own writes. */
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

/* Applies the activation to the values y of row (b, c) from step `first` on. */
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

/* Stores what v7 leaves of row (b, c) to early_steps.cu; called by one thread. */
__device__ __forceinline__ void
put_start(const spectrum_cut &cut, const conv_view<float> &v, int64_t b, int64_t c,
          bool is_wide, int start)
{
    cut.starts[b * v.channels + c] = is_wide ? WIDE_ROW : start;
}

/* The smallest of the threads' steps; all threads call it. */
template <typename Block>
__device__ __forceinline__ int
first_step(const Block &block, earlier own, earlier *slots)
{
    block.tell(own, slots);
    __syncthreads();
    return block.told(slots).step;
}

#endif
