/*
 * spectrum.cuh  The kernels of rung v7 of causal_conv1d and causal_conv1d_backward.
 * Order: the convolution, gradients, launchers.
 * Not here: the rung's story (cuda.cu), what its kernels are made of
 * (spectral_rows.cuh), what they leave of a row (early.cuh), the transform
 * (device/fft.cuh).
 */
#ifndef GPO_CAUSAL_CONV1D_SPECTRUM_CUH
#define GPO_CAUSAL_CONV1D_SPECTRUM_CUH

#include "early.cuh"

/* ---- the convolution ---- */

/* Where a filter's spectrum waits for the rows; the last: rows of many blocks. */
enum spectrum_place { SPECTRUM_HELD, SPECTRUM_STORED, SPECTRUM_BLOCKS };

template <typename FFT, spectrum_place PLACE, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    conv_v7_spectrum(const __grid_constant__ conv_view<float> v,
                     const __grid_constant__ spectrum_cut cut)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS, WARPS = block_type::WARPS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [WARPS]);
    GPO_SHARED(causal_range, ranges, [WARPS]);
    GPO_SHARED(earlier, starts, [WARPS]);
    GPO_SHARED(causal_norms, norms, [WARPS]);
    const block_type block(space, slots, cut.dtype);
    constexpr bool AHEAD = PLACE == SPECTRUM_HELD; /* rows are loaded a turn before */
    const spectrum_store<FFT> store = {cut.slab + blockIdx.x * cut.spectra};
    constexpr bool MANY = PLACE == SPECTRUM_BLOCKS;
    const int64_t n = MANY ? cut.row_blocks : 1, filters = MANY ? cut.w_blocks : 1;
    const int64_t X = filters, CARRY = filters + n; /* places behind the filters */

    for (int64_t work = blockIdx.x; work < v.channels * cut.splits; work += gridDim.x) {
        const int64_t c = work % v.channels, first = work / v.channels * cut.share;
        const int64_t last =
            first + cut.share < v.batches ? first + cut.share : v.batches;
        const spectrum_row w = filter_of(cut.dtype, v, c);
        const float offset = offset_of(cut.dtype, v, c);
        float x[V];
        c64 f[V], held[PLACE == SPECTRUM_HELD ? V : 1];
        block.load(w, 0, x);
        block.tell(block.range_of(w, filters, x), 0);
        __syncthreads();
        const row_range w_range = block.told(0);
        for (int64_t j = 0; j < filters; j++) {
            if (MANY) {
                block.load(w, j, x);
                __syncthreads();
            }
            block.scale(x, power_of_two(-w_range.exponent()));
            block.fft.forward(x, f);
            block.divide(f);
            if constexpr (PLACE == SPECTRUM_HELD) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    held[k] = f[k];
                }
            }
            else {
                store.put(j, f);
            }
        }
        for (int64_t b = first; b < last; b++) {
            const spectrum_row row = row_of(cut.dtype, v.x, b, c, v.steps);
            if (!AHEAD || b == first) {
                block.load(row, 0, x);
            }
            const unsigned begins_late = threadIdx.x == 0 && x[0] == 0.0f;
            block.tell(causal_range{block.range_of(row, n, x), begins_late}, ranges);
            __syncthreads();
            const causal_range range = block.told(ranges);
            int start = 0;
            if (range.begins_late) { /* the same for all threads */
                earlier own = {WHOLE_ROW};
                for (int64_t i = 0; i < n; i++) {
                    if (MANY) {
                        block.load(row, i, x);
                    }
                    own = first_of<FFT, 1>(x, static_cast<int>(i) * FFT::POINTS, own);
                }
                block.tell(own, starts);
                __syncthreads();
                start = block.told(starts).step;
            }
            const float by = power_of_two(-range.size.exponent());
            causal_head<FFT> head;
            head.load(cut.dtype, row, start);
            causal_guard guard = {cut.growth};
            for (int64_t i = 0; i < n; i++) {
                const int t = static_cast<int>(i) * FFT::POINTS;
                float y[V], later[V];
                if (MANY) {
                    block.load(row, i, x);
                    __syncthreads();
                }
                block.scale(x, by);
                const float square = square_of(x);
                block.fft.forward(x, f);
                block.tell(causal_norms{square, i == 0 ? head.square(by) : 0.0f},
                           norms);
                if (MANY && i + 1 < n) {
                    store.put(X + i, f);
                }
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if constexpr (PLACE == SPECTRUM_HELD) {
                        f[k] = times(f[k], held[k]);
                    }
                    else {
                        f[k] = times(f[k], store.at(0, k));
                    }
                }
                if (MANY) {
                    for (int64_t j = 1; j <= i && j < filters; j++) {
#pragma unroll
                        for (int k = 0; k < V; k++) {
                            f[k] =
                                add_times(f[k], store.at(X + i - j, k), store.at(j, k));
                        }
                    }
                }
                block.fft.inverse_begin(f);
                if (AHEAD && b + 1 < last) {
                    block.load(row_of(cut.dtype, v.x, b + 1, c, v.steps), 0, x);
                }
                block.fft.template inverse_end<MANY>(f, y, later);
                if (MANY) {
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        c64 &carry = store.at(CARRY, e);
                        y[e] += i > 0 ? carry.re : 0.0f;
                        carry.re = later[e];
                    }
                }
                if (threadIdx.x == 0) {
                    guard.take(block.told(norms), t, start + head.STEPS);
                }
                block.scale_back(y, range.size.exponent() + w_range.exponent(), offset);
                clear_before<FFT, 1>(y, t, start, offset);
                finish_row<THREADS>(cut.dtype, v, b, c, t + threadIdx.x, y);
                store_row<THREADS>(cut.dtype, row_of(cut.dtype, v.out, b, c, v.steps),
                                   t + threadIdx.x, y);
            }
            if (threadIdx.x == 0) {
                const bool is_finite = w_range.is_finite() && range.size.is_finite();
                cut.starts[b * v.channels + c] =
                    guard.is_wide || !is_finite ? WIDE_ROW : start;
            }
        }
    }
}

/* ---- gradients ---- */

/* What the products of one batch are added to, relative to the largest so far. */
struct spectrum_sum {
    int exponent;
    bool
        plain; /* a row has inf or nan: the sums are made once more in the plain order */

    /* Takes rows of these ranges in: the factor for what is there, and for the rows. */
    __device__ __forceinline__ float2 take(row_range x, row_range g)
    {
        const int own = x.exponent() + g.exponent(), above = own - exponent;
        plain = plain || !x.is_finite() || !g.is_finite();
        exponent = above > 0 ? own : exponent;
        return {power_of_two(above > 0 ? -above : 0),
                power_of_two(above < 0 ? above : 0)};
    }
};

constexpr spectrum_sum NO_SUM = {-8192, false};

/* Where the sums of channel c go: to its filter's gradient, or to those of a split. */
__device__ __forceinline__ spectrum_row
lags_of(const spectrum_cut &cut, const lag_view<float> &v, int64_t split, int64_t c)
{
    if (cut.splits > 1) {
        return {v.parts + (split * v.channels + c) * v.lags, 1, v.lags};
    }
    const row_view<float> rows = {v.dw, 0, v.taps, 1};
    spectrum_row row = reversed_row_of(cut.dtype, rows, 0, c, v.taps);
    row.n = v.lags;
    return row;
}

/* Sums over the batches of a split from lag `first` on. */
template <typename FFT>
__device__ __forceinline__ void
put_lags(const spectrum_cut &cut, const lag_view<float> &v, int64_t split, int64_t c,
         int64_t first, const float (&y)[FFT::V])
{
    store_row<FFT::THREADS>(cut.splits > 1 ? SPECTRUM_F32 : cut.dtype,
                            lags_of(cut, v, split, c), first + threadIdx.x, y);
}

template <typename FFT>
__device__ __forceinline__ void
put_lags_plainly(const spectrum_cut &cut, const lag_view<float> &v, int64_t split,
                 int64_t c, int64_t first, int64_t last)
{
    for (int64_t s = threadIdx.x; s < v.lags; s += FFT::THREADS) {
        const float sum[1] = {correlate_plainly(cut.dtype, v, first, last, c, s)};
        store_row<FFT::THREADS>(cut.splits > 1 ? SPECTRUM_F32 : cut.dtype,
                                lags_of(cut, v, split, c), s, sum);
    }
}

/* Whether value `e` of a thread is 0. */
template <int V>
__device__ __forceinline__ bool
begins_with_zero(const float (&x)[V], int e)
{
    bool is_zero = false;
#pragma unroll
    for (int k = 0; k < V; k++) {
        is_zero = is_zero || (k == e && x[k] == 0.0f);
    }
    return is_zero;
}

/*
 * Both gradients of rows of one block: dx of the rows of a channel, and the share of
 * its filter's gradient that belongs to these batches.  v convolves the reversed rows of
 * dy: step u of dx is step steps - 1 - u of the view.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    gradients_v7_spectrum(const __grid_constant__ conv_view<float> v,
                          const __grid_constant__ lag_view<float> lags,
                          const __grid_constant__ spectrum_cut cut)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, FILTER = 0, ROW = 1; /* places in the store */
    constexpr int THREADS = FFT::THREADS, WARPS = block_type::WARPS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [WARPS]);
    GPO_SHARED(causal_range, ranges, [WARPS]);
    GPO_SHARED(earlier, starts, [WARPS]);
    GPO_SHARED(causal_norms, norms, [WARPS]);
    const block_type block(space, slots, cut.dtype);
    const int end = static_cast<int>(v.steps) - 1; /* of dy: its first step in v */
    const spectrum_store<FFT> store = {space + FFT::SHARED};

    for (int64_t work = blockIdx.x; work < v.channels * cut.splits; work += gridDim.x) {
        const int64_t c = work % v.channels, split = work / v.channels;
        const int64_t first = split * cut.share;
        const int64_t last =
            first + cut.share < v.batches ? first + cut.share : v.batches;
        float x[V], g[V];
        c64 f[V], held[V];
        block.load(filter_of(cut.dtype, v, c), 0, x);
        block.tell(block.range_of(x), 0);
        __syncthreads();
        const row_range w_range = block.told(0);
        block.scale(x, power_of_two(-w_range.exponent()));
        block.fft.forward(x, f);
        block.divide(f);
        store.put(FILTER, f);
#pragma unroll
        for (int k = 0; k < V; k++) {
            held[k] = {0, 0};
        }
        spectrum_sum sum = NO_SUM;
        if (first < last) {
            block.load(row_of(cut.dtype, lags.g, first, c, v.steps), 0, g);
            block.load(row_of(cut.dtype, lags.x, first, c, v.steps), 0, x);
        }

        for (int64_t b = first; b < last; b++) {
            block.tell(block.range_of(x), 0);
            const unsigned begins_late =
                static_cast<int>(threadIdx.x) == end % THREADS &&
                begins_with_zero(g, end / THREADS);
            block.tell(causal_range{block.range_of(g), begins_late}, ranges);
            __syncthreads();
            const row_range x_range = block.told(0);
            const causal_range g_range = block.told(ranges);
            int start = 0;
            if (g_range.begins_late) { /* the same for all threads */
                block.tell(first_of<FFT, -1>(g, end, earlier{WHOLE_ROW}), starts);
                __syncthreads();
                start = block.told(starts).step;
            }
            const float by = power_of_two(-g_range.size.exponent());
            causal_head<FFT> head;
            head.load(cut.dtype, row_of(cut.dtype, v.x, b, c, v.steps), start);
            const float2 factor = sum.take(x_range, g_range.size);
            if (factor.x != 1.0f) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    held[k] = {held[k].re * factor.x, held[k].im * factor.x};
                }
            }
            block.scale(x, power_of_two(-x_range.exponent()) * factor.y);
            block.scale(g, by);
            const float square = square_of(g);
            block.fft.forward(x, f);
            store.put(ROW, f);
            block.tell(causal_norms{square, head.square(by)}, norms);
            __syncthreads();
            block.fft.forward(g, f);
#pragma unroll
            for (int k = 0; k < V; k++) {
                held[k] = add_times_conjugate(held[k], f[k], store.at(ROW, k));
                f[k] = times_conjugate(f[k], store.at(FILTER, k));
            }
            float y[V], unused[V];
            block.fft.inverse_begin(f);
            if (b + 1 < last) {
                block.load(row_of(cut.dtype, lags.g, b + 1, c, v.steps), 0, g);
                block.load(row_of(cut.dtype, lags.x, b + 1, c, v.steps), 0, x);
            }
            block.fft.template inverse_end<false>(f, y, unused);
            if (threadIdx.x == 0) {
                const bool is_finite = w_range.is_finite() && g_range.size.is_finite();
                causal_guard guard = {cut.growth};
                guard.take(block.told(norms), 0, start + head.STEPS);
                cut.starts[b * v.channels + c] =
                    guard.is_wide || !is_finite ? WIDE_ROW : start;
            }
            block.scale_back(y, g_range.size.exponent() + w_range.exponent(), 0.0f);
            clear_before<FFT, -1>(y, end, start, 0.0f);
            store_row<THREADS>(cut.dtype,
                               reversed_row_of(cut.dtype, v.out, b, c, v.steps),
                               threadIdx.x, y);
        }

        if (sum.plain) {
            put_lags_plainly<FFT>(cut, lags, split, c, first, last);
            continue;
        }
        float y[V], unused[V];
        __syncthreads();
        block.fft.inverse_begin(held);
        block.fft.template inverse_end<false>(held, y, unused);
        block.scale_back(y, sum.exponent - LOG<FFT::POINTS>, 0.0f);
        put_lags<FFT>(cut, lags, split, c, 0, y);
    }
}

/* The gradient of the filters alone, where spectra have to wait in global memory. */
template <typename FFT, spectrum_place PLACE, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    lag_v7_spectrum(const __grid_constant__ lag_view<float> v,
                    const __grid_constant__ spectrum_cut cut)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V;
    constexpr bool MANY = PLACE == SPECTRUM_BLOCKS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [2 * block_type::WARPS]);
    const block_type block(space, slots, cut.dtype);
    const spectrum_store<FFT> store = {cut.slab + blockIdx.x * cut.spectra};
    const int64_t n = MANY ? cut.row_blocks : 1, filters = MANY ? cut.w_blocks : 1;
    const int64_t sums = filters + (filters < n); /* the last one's part before it */
    const int64_t SUM = n, CARRY = SUM + sums;    /* places behind the rows of x */

    for (int64_t work = blockIdx.x; work < v.channels * cut.splits; work += gridDim.x) {
        const int64_t c = work % v.channels, split = work / v.channels;
        const int64_t first = split * cut.share;
        const int64_t last =
            first + cut.share < v.batches ? first + cut.share : v.batches;
        spectrum_sum sum = NO_SUM;
        float x[V], later[V];
        c64 f[V];
        for (int64_t b = first; b < last; b++) {
            const spectrum_row x_row = row_of(cut.dtype, v.x, b, c, v.steps);
            const spectrum_row g_row = row_of(cut.dtype, v.g, b, c, v.steps);
            block.load(g_row, 0, x);
            block.tell(block.range_of(g_row, n, x), 1);
            block.load(x_row, 0, x);
            block.tell(block.range_of(x_row, n, x), 0);
            __syncthreads();
            const row_range x_range = block.told(0), g_range = block.told(1);
            const float2 factor = sum.take(x_range, g_range);
            const float by_x = power_of_two(-x_range.exponent()) * factor.y;
            const float by_g = power_of_two(-g_range.exponent()), keep = factor.x;
            for (int64_t i = 0; i < n; i++) {
                if (MANY) {
                    block.load(x_row, i, x);
                    __syncthreads();
                }
                block.scale(x, by_x);
                block.fft.forward(x, f);
                store.put(i, f);
            }
            for (int64_t i = 0; i < n; i++) {
                block.load(g_row, i, x);
                __syncthreads();
                block.scale(x, by_g);
                block.fft.forward(x, f);
                for (int64_t d = 0; d <= i && d < sums; d++) {
#pragma unroll
                    for (int k = 0; k < V; k++) {
                        c64 at = {0, 0};
                        if (b > first || d < i) {
                            const float by = d < i ? 1.0f : keep;
                            at = store.at(SUM + d, k);
                            at = {at.re * by, at.im * by};
                        }
                        at = add_times_conjugate(at, f[k], store.at(i - d, k));
                        if (MANY || b + 1 < last) {
                            store.at(SUM + d, k) = at;
                        }
                        else {
                            f[k] = at;
                        }
                    }
                }
            }
        }
        if (sum.plain) {
            put_lags_plainly<FFT>(cut, v, split, c, first, last);
            __syncthreads();
            continue;
        }
        for (int64_t d = sums - 1; d >= 0; d--) {
            if (MANY || first == last) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    f[k] = first == last ? c64{0, 0} : store.at(SUM + d, k);
                }
            }
            __syncthreads();
            block.fft.inverse_begin(f);
            block.fft.template inverse_end<MANY>(f, x, later);
            if (MANY) {
#pragma unroll
                for (int e = 0; e < V; e++) {
                    c64 &carry = store.at(CARRY, e);
                    x[e] -= d + 1 < sums ? carry.re : 0.0f;
                    carry.re = later[e];
                }
            }
            block.scale_back(x, sum.exponent - LOG<FFT::POINTS>, 0.0f);
            put_lags<FFT>(cut, v, split, c, d * FFT::POINTS, x);
        }
    }
}

/* ---- launchers ---- */

/* The transform for a call, by the longest row one block can hold. */
enum spectrum_size {
    SPECTRUM_512,
    SPECTRUM_1024,
    SPECTRUM_2048,
    SPECTRUM_4096,
    SPECTRUM_8192,
    SPECTRUM_16384,
    SPECTRUM_LONGER, /* in blocks of 4096 */
};

static spectrum_size
size_for(const gpo_call *call, int64_t steps, int64_t lags)
{
    if (steps > 4096) {
        if (steps <= 8192 && fits_in_shared(call, block_fft<32, 8>::SHARED)) {
            return SPECTRUM_8192;
        }
        return steps <= 16384 && lags > 4096 &&
                       fits_in_shared(call, block_fft<32, 16>::SHARED)
                   ? SPECTRUM_16384
                   : SPECTRUM_LONGER;
    }
    return steps <= 512    ? SPECTRUM_512
           : steps <= 1024 ? SPECTRUM_1024
           : steps <= 2048 ? SPECTRUM_2048
                           : SPECTRUM_4096;
}

static gpo_status
too_many_steps(gpo_call *call)
{
    return gpo_fail(call, GPO_EVARIANT,
                    "%s(): v7 takes at most 2**30 steps; v5 takes any number",
                    call->op->name);
}

/* With the spectra of a filter and a row beside the transform. */
template <typename FFT>
constexpr int GRADIENTS_SHARED = FFT::SHARED + 2 * FFT::POINTS;

/* Splits of the batch, and blocks of rows and filters. */
template <typename FFT, int RESIDENT>
static spectrum_cut
cut_call(const gpo_call *call, const lag_view<float> &v, spectrum_dtype dtype)
{
    const float growth = growth_of(v.steps, LOG<FFT::POINTS>);
    const int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int64_t batches = v.batches > 0 ? v.batches : 1;
    const int64_t splits = ceil_div(2 * resident, v.channels);
    spectrum_cut cut = {};
    cut.dtype = dtype;
    cut.growth = growth * growth;
    cut.share = ceil_div(batches, splits < batches ? splits : batches);
    cut.splits = ceil_div(batches, cut.share);
    cut.row_blocks = ceil_div(v.steps, FFT::POINTS);
    cut.w_blocks = ceil_div(v.lags, FFT::POINTS);
    return cut;
}

/* Global memory for `spectra` spectra in each block of a grid that is all resident. */
template <typename FFT, int RESIDENT>
static gpo_status
make_slab(gpo_call *call, int64_t spectra, spectrum_cut *cut, dim3 *grid)
{
    void *memory = nullptr;
    const unsigned resident = static_cast<unsigned>(gpo_processors(call)) * RESIDENT;
    grid->x = grid->x < resident ? grid->x : resident;
    cut->spectra = spectra * FFT::POINTS;
    const gpo_status status =
        gpo_scratch(call, grid->x * cut->spectra * sizeof(c64), &memory);
    cut->slab = static_cast<c64 *>(memory);
    return status;
}

template <typename FFT, spectrum_place PLACE, int RESIDENT>
static gpo_status
conv_v7_of(gpo_call *call, const conv_view<float> &v, spectrum_dtype dtype)
{
    constexpr size_t SHARED = FFT::SHARED * sizeof(c64);
    lag_view<float> sizes = {};
    sizes.batches = v.batches;
    sizes.channels = v.channels;
    sizes.steps = v.steps;
    sizes.lags = v.lags;
    spectrum_cut cut = cut_call<FFT, RESIDENT>(call, sizes, dtype);
    dim3 grid = grid_of(v.channels * cut.splits);
    if (PLACE != SPECTRUM_HELD) {
        /* Filters; the blocks of a row and what one leaves to the next. */
        const int64_t rows = PLACE == SPECTRUM_BLOCKS ? cut.row_blocks + 1 : 0;
        const gpo_status status =
            make_slab<FFT, RESIDENT>(call, cut.w_blocks + rows, &cut, &grid);
        if (status) {
            return status;
        }
    }
    gpo_status status = make_starts(call, v, 1, &cut.starts);
    if (status) {
        return status;
    }
    gpo_allow_shared(conv_v7_spectrum<FFT, PLACE, RESIDENT>, SHARED);
    status = GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                        (conv_v7_spectrum<FFT, PLACE, RESIDENT>), v, cut);
    return status ? status : convolve_early(call, v, dtype, HEAD<FFT>, 1, cut.starts);
}

template <typename T>
static gpo_status
conv_v7(gpo_call *call, const conv_view<T> &view)
{
    const conv_view<float> v = view_as<conv_view<float>>(view);
    constexpr spectrum_dtype D = SPECTRUM_DTYPE<T>;
    if (v.steps > MOST_STEPS) {
        return too_many_steps(call);
    }
    switch (size_for(call, v.steps, v.lags)) {
        case SPECTRUM_512:
            return conv_v7_of<block_fft<16, 2>, SPECTRUM_HELD, 16>(call, v, D);
        case SPECTRUM_1024:
            return conv_v7_of<block_fft<16, 4>, SPECTRUM_HELD, 8>(call, v, D);
        case SPECTRUM_2048:
            return conv_v7_of<block_fft<16, 8>, SPECTRUM_HELD, 4>(call, v, D);
        case SPECTRUM_4096:
            return conv_v7_of<block_fft<16, 16>, SPECTRUM_HELD, 2>(call, v, D);
        case SPECTRUM_8192:
            return conv_v7_of<block_fft<32, 8>, SPECTRUM_STORED, 2>(call, v, D);
        case SPECTRUM_16384:
            return conv_v7_of<block_fft<32, 16>, SPECTRUM_STORED, 1>(call, v, D);
        default:
            return conv_v7_of<block_fft<16, 16>, SPECTRUM_BLOCKS, 2>(call, v, D);
    }
}

/* Both gradients of rows of one block; `cut` says how many splits are left to add. */
template <typename FFT, int RESIDENT>
static gpo_status
gradients_v7_of(gpo_call *call, const conv_view<float> &v, lag_view<float> *lags,
                spectrum_cut *cut)
{
    constexpr size_t SHARED = GRADIENTS_SHARED<FFT> * sizeof(c64);
    *cut = cut_call<FFT, RESIDENT>(call, *lags, cut->dtype);
    gpo_status status = make_parts(call, cut->splits, lags);
    if (!status) {
        status = make_starts(call, v, 1, &cut->starts);
    }
    if (status) {
        return status;
    }
    gpo_allow_shared(gradients_v7_spectrum<FFT, RESIDENT>, SHARED);
    status = GPO_LAUNCH(call, grid_of(v.channels * cut->splits), FFT::THREADS, SHARED,
                        (gradients_v7_spectrum<FFT, RESIDENT>), v, *lags, *cut);
    return status ? status
                  : convolve_early(call, v, cut->dtype, HEAD<FFT>, 1, cut->starts);
}

/* dw alone; `cut` says how many splits are left to add. */
template <typename FFT, spectrum_place PLACE, int RESIDENT>
static gpo_status
lag_v7_of(gpo_call *call, lag_view<float> *v, spectrum_cut *cut)
{
    constexpr size_t SHARED = FFT::SHARED * sizeof(c64);
    *cut = cut_call<FFT, RESIDENT>(call, *v, cut->dtype);
    dim3 grid = grid_of(v->channels * cut->splits);
    gpo_status status = make_parts(call, cut->splits, v);
    if (!status) {
        /* The blocks of a row of x, sums of blocks of lags and one more, a carry. */
        const int64_t spectra = cut->row_blocks + cut->w_blocks + 2;
        status = make_slab<FFT, RESIDENT>(call, spectra, cut, &grid);
    }
    if (status) {
        return status;
    }
    gpo_allow_shared(lag_v7_spectrum<FFT, PLACE, RESIDENT>, SHARED);
    return GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                      (lag_v7_spectrum<FFT, PLACE, RESIDENT>), *v, *cut);
}

/* dx, where v convolves the reversed rows of dy, and dw. */
template <typename T>
static gpo_status
gradients_v7(gpo_call *call, const conv_view<T> &view, const lag_view<T> &lag)
{
    const conv_view<float> v = view_as<conv_view<float>>(view);
    lag_view<float> lags = view_as<lag_view<float>>(lag);
    if (v.steps > MOST_STEPS) {
        return too_many_steps(call);
    }
    spectrum_size size = size_for(call, v.steps, v.lags);
    if (size == SPECTRUM_4096 &&
        !fits_in_shared(call, GRADIENTS_SHARED<block_fft<16, 16>>)) {
        size = SPECTRUM_LONGER;
    }
    spectrum_cut cut = {};
    cut.dtype = SPECTRUM_DTYPE<T>;
    gpo_status status = GPO_OK;
    if (size > SPECTRUM_4096 && v.batches > 0) {
        status = conv_v7(call, view);
    }
    if (status) {
        return status;
    }
    switch (size) {
        case SPECTRUM_512:
            status = gradients_v7_of<block_fft<16, 2>, 16>(call, v, &lags, &cut);
            break;
        case SPECTRUM_1024:
            status = gradients_v7_of<block_fft<16, 4>, 8>(call, v, &lags, &cut);
            break;
        case SPECTRUM_2048:
            status = gradients_v7_of<block_fft<16, 8>, 4>(call, v, &lags, &cut);
            break;
        case SPECTRUM_4096:
            status = gradients_v7_of<block_fft<16, 16>, 2>(call, v, &lags, &cut);
            break;
        case SPECTRUM_8192:
            status = lag_v7_of<block_fft<32, 8>, SPECTRUM_STORED, 2>(call, &lags, &cut);
            break;
        case SPECTRUM_16384:
            status =
                lag_v7_of<block_fft<32, 16>, SPECTRUM_STORED, 1>(call, &lags, &cut);
            break;
        default:
            status =
                lag_v7_of<block_fft<16, 16>, SPECTRUM_BLOCKS, 2>(call, &lags, &cut);
            break;
    }
    return status ? status : add_parts(call, view_as<lag_view<T>>(lags), cut.splits);
}

#endif
