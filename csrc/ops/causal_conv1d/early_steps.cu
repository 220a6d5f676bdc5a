/*
 * early_steps.cu  What v7 leaves of a row: its head, where the rounding error of a
 * transform of the whole row may exceed the bound, and wide rows, where that may happen
 * at later steps, too.
 * Order: the division, heads, blocks of a row, a wide row, the kernel, launcher.
 * See spectral_rows.cuh for the guard that finds wide rows, device/fft.cuh for the
 * transform.
 *
 * A wide row, or what its mark leaves of it, is cut into blocks of 512 steps.  Block r of
 * the result is the sum of the blocks q < r of the row with lags 512 (r - q) - 511 ..
 * 512 (r - q) + 511 of the filter, by products of spectra, and of block r itself with the
 * first 512 lags, term by term.  So the rounding of a transform is relative to inputs
 * that are earlier than every step it computes, whatever the row holds, and an inf or
 * nan stays in the blocks that depend on it.
 */
#include "spectral_cut.cuh"

using blocked_fft = block_fft<16, 2>; /* of one warp */

constexpr int EARLY_WARPS = 8, EARLY_THREADS = EARLY_WARPS * WARP;
constexpr int BLOCKED_STEPS = WIDE_STEPS, BLOCKED_V = blocked_fft::V;
static_assert(BLOCKED_STEPS == blocked_fft::POINTS, "a transform per block");
constexpr int NOT_FINITE = 1 << 20; /* exponent of a block with inf or nan */

/* ---- the division ---- */

struct early_cut {
    spectrum_dtype dtype;
    const int *starts; /* row b * C + c: first nonzero step, WHOLE_ROW, wide_up_to() */
    int spans;         /* sets of starts: a row is wide if it is in any */
    int head;          /* steps of a head: 64 or 128, or 0 if there are none */
    int row_blocks, lag_blocks;
    c64 *spectra;   /* row_blocks + lag_blocks per block of the grid */
    int *exponents; /* row_blocks per block of the grid */
};

/* ---- heads ---- */

/*
 * For one warp: adds up the heads of one or two rows, four sums per lane.  Four taps
 * are multiplied with eight inputs in registers, 16 products for two loads of 16
 * bytes.  Each warp has its own `space`.
 */
template <int STEPS>
__device__ __forceinline__ void
add_up_heads(const conv_view<float> &v, const early_cut &cut, int64_t rows,
             int64_t first, float *space)
{
    constexpr int LANES = STEPS / 4, ROWS = WARP / LANES;
    const int lane = threadIdx.x % WARP % LANES, own = threadIdx.x % WARP / LANES;
    const int64_t row = first + own, b = row / v.channels, c = row - b * v.channels;
    const int start = row < rows ? cut.starts[row] : WHOLE_ROW;
    const bool has_head = start >= 0 && start < v.steps;
    float *const taps = space + own * 3 * STEPS, *const zeros = taps + STEPS;
    float *const inputs = zeros + STEPS;
    __syncwarp();
    if (has_head) {
        float x[4], w[4];
        load_row<LANES>(cut.dtype, row_of(cut.dtype, v.x, b, c, v.steps),
                        static_cast<int64_t>(start) + lane, x);
        load_row<LANES>(cut.dtype, filter_of(cut.dtype, v, c), lane, w);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            taps[k * LANES + lane] = w[k];
            zeros[k * LANES + lane] = 0;
            inputs[k * LANES + lane] = x[k];
        }
    }
    __syncwarp();
    if (!has_head) {
        return;
    }
    const float *x = inputs + 4 * lane;
    pack<float> late = shared_pack(x);
    float sum[4] = {};
#pragma unroll 4
    for (int s = 0; s < STEPS; s += 4) {
        if (s > 4 * lane + 3) {
            break;
        }
        const pack<float> early = shared_pack(x - s - 4), tap = shared_pack(taps + s);
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[i] = fmaf(tap.v[j],
                              i >= j ? late.v[i >= j ? i - j : 0]
                                     : early.v[i >= j ? 0 : 4 + i - j],
                              sum[i]);
            }
        }
        late = early;
    }
    with_dtype(cut.dtype, [&](auto element) {
        const auto view = view_as<conv_view<decltype(element)>>(v);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t t = static_cast<int64_t>(start) + 4 * lane + i;
            if (t < v.steps) {
                view.put(b, c, t, sum[i]);
            }
        }
    });
    static_assert(ROWS * LANES == WARP, "whole rows");
}

/* All warps of the grid add up all heads. */
template <int STEPS>
__device__ __forceinline__ void
add_up_all_heads(const conv_view<float> &v, const early_cut &cut, float *space)
{
    constexpr int ROWS = WARP / (STEPS / 4);
    const int64_t rows = v.batches * v.channels;
    const int64_t warp =
        static_cast<int64_t>(blockIdx.x) * EARLY_WARPS + threadIdx.x / WARP;
    const int64_t step = static_cast<int64_t>(gridDim.x) * EARLY_WARPS * ROWS;
    for (int64_t first = warp * ROWS; first < rows; first += step) {
        add_up_heads<STEPS>(v, cut, rows, first, space);
    }
    __syncwarp();
}

/* ---- blocks of a row ---- */

/* What the warps of a block share, and what each warp has. */
struct blocked_rows {
    blocked_fft fft;
    float *taps, *inputs; /* the first lags, shared; a block of the row, per warp */
    const early_cut &cut;
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

    /* Stores the spectrum of block q of a row, and its exponent. */
    __device__ __forceinline__ void transform_row(const spectrum_row &row, int q) const
    {
        float x[BLOCKED_V];
        c64 f[BLOCKED_V];
        load(row, q, x);
        row_range range =
            warp_combine<row_range>(spectrum_block<blocked_fft>::range_of(x));
        range.most = __shfl_sync(ALL_LANES, range.most, 0);
        if (fft.thread == 0) {
            exponents[q] = range.is_finite() ? range.exponent() : NOT_FINITE;
        }
        spectrum_block<blocked_fft>::scale(x, power_of_two(-range.exponent()));
        __syncwarp();
        fft.forward(x, f);
        put(q, f);
    }

    /* Stores the spectrum that takes block q of a row to block q + j of the result. */
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

    /* y = the contribution of blocks [first, r), scaled by 2^-exponent, to block r. */
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

    /* y += block r of the row with the first lags; a lane has every 32nd step. */
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
        /* Lags 32 k .. 32 k + 31 contribute to steps from 32 k on. */
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

/* Steps first + e * 32 of a row, summed directly as in v0. */
template <typename T>
__device__ __forceinline__ void
put_direct_sums(const conv_view<T> &v, int64_t b, int64_t c, int64_t first)
{
#pragma unroll 1
    for (int64_t t = first; t < first + BLOCKED_STEPS && t < v.steps; t += WARP) {
        v.put(b, c, t, direct_step<1>(v, v.x.row(b, c), v.x.t, c, t));
    }
}

/* ---- a wide row ---- */

/* A block of threads computes row (b, c), or what its mark leaves of it. */
__device__ __forceinline__ void
convolve_wide(const conv_view<float> &v, const blocked_rows &rows, int64_t b, int64_t c,
              int mark, row_range *slots)
{
    using all_threads = spectrum_block<block_fft<16, 16>>; /* as many threads */
    const early_cut &cut = rows.cut;
    const int warp = threadIdx.x / WARP;
    const spectrum_row x = row_of(cut.dtype, v.x, b, c, v.steps);
    spectrum_row w = filter_of(cut.dtype, v, c);
    const float offset = offset_of(cut.dtype, v, c);
    int blocks = cut.row_blocks, lag_blocks = cut.lag_blocks;
    if (mark < WIDE_ROW) {
        blocks = WIDE_ROW - mark;
        lag_blocks = lag_blocks < blocks ? lag_blocks : blocks;
        const int64_t most = int64_t{blocks} * BLOCKED_STEPS;
        w.n = w.n < most ? w.n : most;
    }
    const int lags = w.n < BLOCKED_STEPS ? static_cast<int>(w.n) : BLOCKED_STEPS;
    row_range range = NO_RANGE;
    for (int64_t s = threadIdx.x; s < w.n; s += EARLY_THREADS) {
        float tap[1];
        load_row<EARLY_THREADS>(cut.dtype, w, s, tap);
        range.take(tap[0]);
        if (s < BLOCKED_STEPS) {
            rows.taps[s] = tap[0];
        }
    }
    all_threads::tell(range, slots);
    __syncthreads();
    const row_range w_range = all_threads::told(slots);

    for (int i = warp; i < blocks + lag_blocks; i += EARLY_WARPS) {
        if (i < blocks) {
            rows.transform_row(x, i);
        }
        else {
            rows.transform_filter(w, i - blocks + 1, w_range.exponent());
        }
    }
    __syncthreads();
    for (int r = warp; r < blocks; r += EARLY_WARPS) {
        const int first = r > lag_blocks ? r - lag_blocks : 0;
        const int64_t t = static_cast<int64_t>(r) * BLOCKED_STEPS + rows.fft.thread;
        const int exponent = rows.exponent_of(first, r);
        if (r > 0 && (exponent == NOT_FINITE || !w_range.is_finite())) {
            with_dtype(cut.dtype, [&](auto element) {
                put_direct_sums(view_as<conv_view<decltype(element)>>(v), b, c, t);
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

/* ---- the kernel ---- */

/* Heads first, then wide rows blockIdx.x + k gridDim.x, testing 256 rows at a time. */
__global__ void
__launch_bounds__(EARLY_THREADS, 2)
    causal_conv1d_early_steps(const __grid_constant__ conv_view<float> v,
                              const __grid_constant__ early_cut cut)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(float, taps, [BLOCKED_STEPS]);
    GPO_SHARED(row_range, slots, [EARLY_WARPS]);
    GPO_SHARED(unsigned, marks, [EARLY_WARPS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    c64 *const own = space + warp * blocked_fft::SHARED;
    if (cut.head == 64) {
        add_up_all_heads<64>(v, cut, reinterpret_cast<float *>(own));
    }
    else if (cut.head == 128) {
        add_up_all_heads<128>(v, cut, reinterpret_cast<float *>(own));
    }
    const int64_t each = cut.row_blocks + cut.lag_blocks;
    const int64_t count = v.batches * v.channels, step = gridDim.x;
    for (int64_t first = blockIdx.x; first < count; first += step * EARLY_THREADS) {
        const int64_t mine = first + threadIdx.x * step;
        bool is_wide = false;
        for (int64_t k = 0; k < cut.spans && mine < count; k++) {
            is_wide = is_wide || cut.starts[k * count + mine] < 0;
        }
        const unsigned found = __ballot_sync(ALL_LANES, is_wide);
        if (lane == 0) {
            marks[warp] = found;
        }
        if (!__syncthreads_or(is_wide)) {
            continue;
        }
        const blocked_rows rows = {blocked_fft(own, lane),
                                   taps,
                                   reinterpret_cast<float *>(own),
                                   cut,
                                   cut.spectra + blockIdx.x * each * BLOCKED_STEPS,
                                   cut.exponents +
                                       blockIdx.x * int64_t{cut.row_blocks}};
        for (int k = 0; k < EARLY_WARPS; k++) {
            for (unsigned left = marks[k]; left; left &= left - 1) {
                const int64_t row = first + (k * WARP + __ffs(left) - 1) * step;
                const int mark = cut.spans == 1 ? cut.starts[row] : WIDE_ROW;
                convolve_wide(v, rows, row / v.channels, row % v.channels, mark, slots);
            }
        }
        __syncthreads();
    }
}

/* ---- launcher ---- */

gpo_status
make_starts(gpo_call *call, const conv_view<float> &v, int64_t spans, int **starts)
{
    void *memory = nullptr;
    const gpo_status status =
        gpo_scratch(call, (spans * v.batches * v.channels + 1) * sizeof(int), &memory);
    *starts = static_cast<int *>(memory);
    return status;
}

/* At most two blocks per SM, each with workspace for the spectra of one row. */
gpo_status
convolve_early(gpo_call *call, const conv_view<float> &v, spectrum_dtype dtype,
               int head, int spans, const int *starts)
{
    constexpr int64_t MOST_BYTES = 64 << 20; /* of spectra, unless one row needs more */
    constexpr int RESIDENT = 2;
    constexpr size_t SHARED = EARLY_WARPS * blocked_fft::SHARED * sizeof(c64);
    static_assert(2 * 3 * 64 <= 2 * blocked_fft::SHARED, "room for two heads");
    early_cut cut = {};
    cut.dtype = dtype;
    cut.starts = starts;
    cut.spans = spans;
    cut.head = head;
    cut.row_blocks = static_cast<int>(ceil_div(v.steps, BLOCKED_STEPS));
    cut.lag_blocks = static_cast<int>(ceil_div(v.lags, BLOCKED_STEPS));
    const int64_t spectra = int64_t{cut.row_blocks} + cut.lag_blocks;
    const int64_t bytes = spectra * BLOCKED_STEPS * sizeof(c64);
    int64_t blocks = gpo_processors(call) * RESIDENT;
    const int64_t rows = v.batches * v.channels;
    if (rows == 0) {
        return GPO_OK;
    }
    blocks = blocks * bytes <= MOST_BYTES ? blocks : MOST_BYTES / bytes;
    blocks = blocks < 1 ? 1 : blocks < rows ? blocks : rows;
    void *memory = nullptr;
    const gpo_status status =
        gpo_scratch(call, blocks * (bytes + cut.row_blocks * sizeof(int)), &memory);
    if (status) {
        return status;
    }
    cut.spectra = static_cast<c64 *>(memory);
    cut.exponents =
        reinterpret_cast<int *>(cut.spectra + blocks * spectra * BLOCKED_STEPS);
    gpo_allow_shared(causal_conv1d_early_steps, SHARED);
    return GPO_LAUNCH(call, grid_of(blocks), EARLY_THREADS, SHARED,
                      causal_conv1d_early_steps, v, cut);
}
