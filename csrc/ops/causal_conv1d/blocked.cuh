/*
 * blocked.cuh  Rows whose early steps a whole transform would cover with its rounding:
 * v7 marks them, and this kernel convolves them once more, block by block.
 * Order: the cut, a block of a row, the kernel, launcher.
 * Not here: the guard that marks rows (spectral_rows.cuh), the transform (device/fft.cuh).
 *
 * A row is cut into blocks of 512 steps.  Block r of the result is the sum of the blocks
 * q < r of the row with lags 512 (r - q) - 511 .. 512 (r - q) + 511 of the filter, by
 * products of spectra, and of block r itself with the first 512 lags, term by term.  So
 * what a transform rounds is relative to inputs that are earlier than every step it makes,
 * whatever the row holds, and an inf or nan stays in the blocks that can see it.
 */
#ifndef GPO_CAUSAL_CONV1D_BLOCKED_CUH
#define GPO_CAUSAL_CONV1D_BLOCKED_CUH

#include "spectral_rows.cuh"

using blocked_fft = block_fft<16, 2>; /* of one warp */

constexpr int BLOCKED_WARPS = 8, BLOCKED_THREADS = BLOCKED_WARPS * WARP;
constexpr int BLOCKED_STEPS = blocked_fft::POINTS, BLOCKED_V = blocked_fft::V;
constexpr int NOT_FINITE = 1 << 20; /* exponent of a block with inf or nan */

/* ---- the cut ---- */

struct blocked_cut {
    spectrum_dtype dtype;
    const uint8_t *wide; /* row b * C + c: whether it is to be convolved */
    int row_blocks, lag_blocks;
    c64 *spectra;   /* row_blocks + lag_blocks for each block of the grid */
    int *exponents; /* row_blocks */
};

/* ---- a block of a row ---- */

/* What the warps of a block of threads share, and each has of its own. */
struct blocked_rows {
    blocked_fft fft;
    float *taps, *inputs;  /* the first lags; a block of the row, of the warp's own */
    const blocked_cut &cut;
    c64 *spectra;
    int *exponents;

    __device__ __forceinline__ c64 *spectrum(int i) const
    {
        return spectra + static_cast<int64_t>(i) * BLOCKED_STEPS + fft.thread;
    }

    __device__ __forceinline__ void load(const spectrum_row &row, int i,
                                         float (&x)[BLOCKED_V]) const
    {
        load_row<WARP>(cut.dtype, row,
                       static_cast<int64_t>(i) * BLOCKED_STEPS + fft.thread, x);
    }

    __device__ __forceinline__ void put(int i, const c64 (&f)[BLOCKED_V]) const
    {
#pragma unroll
        for (int k = 0; k < BLOCKED_V; k++) {
            spectrum(i)[k * WARP] = f[k];
        }
    }

    /* The spectrum of block q of a row, and its exponent. */
    __device__ __forceinline__ void transform_row(const spectrum_row &row, int q) const
    {
        float x[BLOCKED_V];
        c64 f[BLOCKED_V];
        load(row, q, x);
        row_range range = warp_combine<row_range>(
            spectrum_block<blocked_fft>::range_of(x));
        range.most = __shfl_sync(ALL_LANES, range.most, 0);
        if (fft.thread == 0) {
            exponents[q] = range.is_finite() ? range.exponent() : NOT_FINITE;
        }
        spectrum_block<blocked_fft>::scale(x, power_of_two(-range.exponent()));
        __syncwarp();
        fft.forward(x, f);
        put(q, f);
    }

    /* The spectrum that brings block q of a row into block q + j of the result. */
    __device__ __forceinline__ void transform_filter(const spectrum_row &w, int j,
                                                     int exponent) const
    {
        float x[BLOCKED_V], before[BLOCKED_V];
        c64 f[BLOCKED_V];
        load(w, j, x);
        load(w, j - 1, before);
        __syncwarp();
        fft.forward(x, before, power_of_two(-exponent) / BLOCKED_STEPS, f);
        put(cut.row_blocks + j - 1, f);
    }

    /* The largest exponent of blocks [first, last), in every lane. */
    __device__ __forceinline__ int exponent_of(int first, int last) const
    {
        int most = -4096;
        for (int q = first + fft.thread; q < last; q += WARP) {
            most = max(most, exponents[q]);
        }
#pragma unroll
        for (int d = WARP / 2; d > 0; d /= 2) {
            most = max(most, __shfl_xor_sync(ALL_LANES, most, d));
        }
        return most;
    }

    /* y = what blocks [first, r) bring into block r, which are about 2^exponent. */
    __device__ __forceinline__ void bring(int first, int r, int exponent,
                                          float (&y)[BLOCKED_V]) const
    {
        c64 f[BLOCKED_V];
        float unused[BLOCKED_V];
#pragma unroll
        for (int k = 0; k < BLOCKED_V; k++) {
            f[k] = {0, 0};
        }
        for (int q = first; q < r; q++) {
            const c64 *const x = spectrum(q);
            const c64 *const h = spectrum(cut.row_blocks + r - q - 1);
            const float by = power_of_two(exponents[q] - exponent);
#pragma unroll
            for (int k = 0; k < BLOCKED_V; k++) {
                const c64 own = x[k * WARP];
                f[k] = add_times(f[k], {own.re * by, own.im * by}, h[k * WARP]);
            }
        }
        __syncwarp();
        fft.inverse_begin(f);
        fft.template inverse_end<false>(f, y, unused);
    }

    /* y += block r of the row with the first lags; a lane has each 32nd step. */
    __device__ __forceinline__ void add_own(const spectrum_row &row, int r, int lags,
                                            float (&y)[BLOCKED_V]) const
    {
        float x[BLOCKED_V];
        load(row, r, x);
        __syncwarp();
#pragma unroll
        for (int e = 0; e < BLOCKED_V; e++) {
            inputs[e * WARP + fft.thread] = x[e];
        }
        __syncwarp();
#pragma unroll
        for (int e = 0; e < BLOCKED_V; e++) {
            x[e] = 0;
        }
        /* Lags 32 k .. 32 k + 31 meet the steps from 32 k on. */
#pragma unroll
        for (int k = 0; k < BLOCKED_V; k++) {
#pragma unroll 2
            for (int s = k * WARP; s < (k + 1) * WARP && s < lags; s++) {
                const float tap = taps[s];
                const int from = fft.thread - s;
#pragma unroll
                for (int e = k; e < BLOCKED_V; e++) {
                    if (e > k || from + e * WARP >= 0) {
                        x[e] = fmaf(tap, inputs[from + e * WARP], x[e]);
                    }
                }
            }
        }
#pragma unroll
        for (int e = 0; e < BLOCKED_V; e++) {
            y[e] += x[e];
        }
        __syncwarp();
    }
};

/* Steps first + e * 32 of a row term by term, as v0 does. */
template <typename T>
__device__ __forceinline__ void
put_plainly(const conv_view<T> &v, int64_t b, int64_t c, int64_t first)
{
#pragma unroll 1
    for (int64_t t = first; t < first + BLOCKED_STEPS && t < v.steps; t += WARP) {
        v.put(b, c, t, plain_step<1>(v, v.x.row(b, c), v.x.t, c, t));
    }
}

/* ---- the kernel ---- */

/* Row (b, c) by a block of threads. */
__device__ __forceinline__ void
convolve_blocked(const conv_view<float> &v, const blocked_rows &rows, int64_t b, int64_t c,
                 row_range *slots)
{
    using all_threads = spectrum_block<block_fft<16, 16>>; /* as many threads */
    const blocked_cut &cut = rows.cut;
    const int warp = threadIdx.x / WARP;
    const spectrum_row x = row_of(cut.dtype, v.x, b, c, v.steps);
    const spectrum_row w = filter_of(cut.dtype, v, c);
    const float offset = offset_of(cut.dtype, v, c);
    const int lags = w.n < BLOCKED_STEPS ? static_cast<int>(w.n) : BLOCKED_STEPS;
    row_range range = NO_RANGE;
    for (int64_t s = threadIdx.x; s < w.n; s += BLOCKED_THREADS) {
        float tap[1];
        load_row<BLOCKED_THREADS>(cut.dtype, w, s, tap);
        range.take(tap[0]);
        if (s < BLOCKED_STEPS) {
            rows.taps[s] = tap[0];
        }
    }
    all_threads::tell(range, slots);
    __syncthreads();
    const row_range w_range = all_threads::told(slots);

    for (int i = warp; i < cut.row_blocks + cut.lag_blocks; i += BLOCKED_WARPS) {
        if (i < cut.row_blocks) {
            rows.transform_row(x, i);
        }
        else {
            rows.transform_filter(w, i - cut.row_blocks + 1, w_range.exponent());
        }
    }
    __syncthreads();
    for (int r = warp; r < cut.row_blocks; r += BLOCKED_WARPS) {
        const int first = r > cut.lag_blocks ? r - cut.lag_blocks : 0;
        const int64_t t = static_cast<int64_t>(r) * BLOCKED_STEPS + rows.fft.thread;
        const int exponent = rows.exponent_of(first, r);
        if (r > 0 && (exponent == NOT_FINITE || !w_range.is_finite())) {
            with_dtype(cut.dtype, [&](auto element) {
                put_plainly(view_as<conv_view<decltype(element)>>(v), b, c, t);
            });
            continue;
        }
        float y[BLOCKED_V] = {};
        if (r > 0) {
            rows.bring(first, r, exponent, y);
            all_threads::scale_back(y, exponent + w_range.exponent(), 0.0f);
        }
        rows.add_own(x, r, lags, y);
#pragma unroll
        for (int e = 0; e < BLOCKED_V; e++) {
            y[e] += offset;
        }
        finish_row<WARP>(cut.dtype, v, b, c, t, y);
        store_row<WARP>(cut.dtype, row_of(cut.dtype, v.out, b, c, v.steps), t, y);
    }
    __syncthreads();
}

/* Rows blockIdx.x + k gridDim.x that are marked, 256 looked at together. */
__global__ void
__launch_bounds__(BLOCKED_THREADS, 2)
    conv_v7_blocked(const __grid_constant__ conv_view<float> v,
                    const __grid_constant__ blocked_cut cut)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(float, taps, [BLOCKED_STEPS]);
    GPO_SHARED(row_range, slots, [BLOCKED_WARPS]);
    GPO_SHARED(unsigned, marks, [BLOCKED_WARPS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    c64 *const own = space + warp * blocked_fft::SHARED;
    const int64_t each = cut.row_blocks + cut.lag_blocks;
    const blocked_rows rows = {blocked_fft(own, lane), taps,
                               reinterpret_cast<float *>(own), cut,
                               cut.spectra + blockIdx.x * each * BLOCKED_STEPS,
                               cut.exponents + blockIdx.x * int64_t{cut.row_blocks}};
    const int64_t count = v.batches * v.channels, step = gridDim.x;
    for (int64_t first = blockIdx.x; first < count; first += step * BLOCKED_THREADS) {
        const int64_t mine = first + threadIdx.x * step;
        const unsigned found =
            __ballot_sync(ALL_LANES, mine < count && cut.wide[mine] != 0);
        if (lane == 0) {
            marks[warp] = found;
        }
        __syncthreads();
        for (int k = 0; k < BLOCKED_WARPS; k++) {
            for (unsigned left = marks[k]; left; left &= left - 1) {
                const int64_t row = first + (k * WARP + __ffs(left) - 1) * step;
                convolve_blocked(v, rows, row / v.channels, row % v.channels, slots);
            }
        }
        __syncthreads();
    }
}

/* ---- launcher ---- */

/* A mark for each row. */
static gpo_status
make_marks(gpo_call *call, const conv_view<float> &v, uint8_t **marks)
{
    void *memory = nullptr;
    const gpo_status status = gpo_scratch(call, v.batches * v.channels + 1, &memory);
    *marks = static_cast<uint8_t *>(memory);
    return status;
}

/* Convolves the rows that v7 has marked; the host does not know whether there are any. */
static gpo_status
convolve_wide_rows(gpo_call *call, const conv_view<float> &v, spectrum_dtype dtype,
                   const uint8_t *wide)
{
    constexpr int64_t MOST_BYTES = 64 << 20; /* of spectra, unless one row has more */
    constexpr int RESIDENT = 2;
    constexpr size_t SHARED = BLOCKED_WARPS * blocked_fft::SHARED * sizeof(c64);
    blocked_cut cut = {};
    cut.dtype = dtype;
    cut.wide = wide;
    cut.row_blocks = static_cast<int>(ceil_div(v.steps, BLOCKED_STEPS));
    cut.lag_blocks = static_cast<int>(ceil_div(v.lags, BLOCKED_STEPS));
    const int64_t spectra = int64_t{cut.row_blocks} + cut.lag_blocks;
    const int64_t bytes = spectra * BLOCKED_STEPS * sizeof(c64);
    int64_t blocks = gpo_processors(call) * RESIDENT;
    const int64_t rows = v.batches * v.channels;
    blocks = blocks * bytes <= MOST_BYTES ? blocks : MOST_BYTES / bytes;
    blocks = blocks < 1 ? 1 : blocks < rows ? blocks : rows;
    if (rows == 0) {
        return GPO_OK;
    }
    void *memory = nullptr;
    const gpo_status status = gpo_scratch(
        call, blocks * (bytes + cut.row_blocks * sizeof(int)), &memory);
    if (status) {
        return status;
    }
    cut.spectra = static_cast<c64 *>(memory);
    cut.exponents = reinterpret_cast<int *>(cut.spectra +
                                            blocks * spectra * BLOCKED_STEPS);
    gpo_allow_shared(conv_v7_blocked, SHARED);
    return GPO_LAUNCH(call, grid_of(blocks), BLOCKED_THREADS, SHARED, conv_v7_blocked, v,
                      cut);
}

#endif
