/*
 * spectra.cuh  The kernels of rung v3 of convolve: sums out of products of spectra.
 * Order: rows in blocks, filters of one block, filters of many blocks, launchers.
 * Not here: the rung's story and the choice (cuda.cu), ranges and elements of rows
 * (device/spectral.cuh), the transform (device/fft.cuh).
 *
 * Everything counts from `first`, the first sum that the result keeps: block k of a row
 * is a[first + k N + n], n < N, zeros where the row has none.  Block k of the result is
 * the sum over j of h_j with the blocks k - j and k - j - 1 of the row, and is the real
 * part of one inverse: that of the sum of H_j F(x_(k-j) - i x_(k-j-1)).
 */
#ifndef GPO_CONVOLVE_SPECTRA_CUH
#define GPO_CONVOLVE_SPECTRA_CUH

#include "../../device/spectral.cuh"
#include "products.cuh"

/* ---- rows in blocks ---- */

/* The rows of a call whose elements are of `dtype`. */
struct spectral_rows {
    convolve_view<float> c;
    spectrum_dtype dtype;
};

/* The same view for other elements: one kernel serves all dtypes computed in float. */
template <typename T>
__device__ __forceinline__ const convolve_view<T> &
seen_as(const convolve_view<float> &c)
{
    static_assert(sizeof(convolve_view<T>) == sizeof c,
                  "they differ in pointers' types");
    return reinterpret_cast<const convolve_view<T> &>(c); /* a copy would be 1.6 KB */
}

struct spectral_operands {
    spectrum_row a, v;
};

template <typename T>
__device__ __forceinline__ spectral_operands
operands_as(const convolve_view<T> &c, int64_t row)
{
    const row_operands<T> found = find_row(c, row);
    return {{const_cast<T *>(found.a), c.a_step, c.n},
            {const_cast<T *>(found.v), c.v_step, c.m}};
}

__device__ __forceinline__ spectral_operands
operands_of(const spectral_rows &rows, int64_t row)
{
    return rows.dtype == SPECTRUM_F32 ? operands_as(rows.c, row)
                                      : operands_as(seen_as<f16>(rows.c), row);
}

template <typename T, int THREADS, int V>
__device__ __forceinline__ void
load_values_within(const spectrum_row &row, int64_t first, float (&x)[V])
{
    const T *p = static_cast<const T *>(row.p);
#pragma unroll
    for (int e = 0; e < V; e++) {
        const int64_t i = first + e * THREADS;
        x[e] = i >= 0 && i < row.n ? static_cast<float>(value_of(p[i * row.stride]))
                                   : 0.0f;
    }
}

/* x[e] = element begin + threadIdx.x + e * THREADS, zeros outside of the row. */
template <int THREADS, int V>
__device__ __forceinline__ void
load_block(spectrum_dtype dtype, const spectrum_row &row, int64_t begin, float (&x)[V])
{
    const int64_t first = begin + threadIdx.x;
    if (begin >= 0) {
        load_row<THREADS>(dtype, row, first, x);
        return;
    }
    with_dtype(dtype, [&](auto element) {
        load_values_within<decltype(element), THREADS>(row, first, x);
    });
}

/* What brings values of such a range to about 1; a nan stays in every sum it enters. */
__device__ __forceinline__ float
factor_of(const row_range &range)
{
    return range.is_finite() ? power_of_two(-range.exponent())
                             : __int_as_float(0x7fc00000);
}

/* Results first + e * THREADS of a row by their own terms alone, e < V. */
template <int THREADS, int V, typename T>
__device__ __forceinline__ void
convolve_plainly(const convolve_view<T> &c, int64_t row_index, int64_t first)
{
    const row_operands<T> row = find_row(c, row_index);
#pragma unroll 1
    for (int e = 0; e < V; e++) {
        const int64_t i = first + e * THREADS;
        if (i < c.count) {
            c.out[row_index * c.count + i] =
                result_of<T>(exact_sum(c, row, c.first + i));
        }
    }
}

/*
 * Results begin + threadIdx.x + e * THREADS of a row out of y / 2^exponent.  A transform
 * spreads a nan and an infinity over the block: sums that are not finite are added up
 * again, with all the others of the thread.
 */
template <typename FFT>
__device__ __forceinline__ void
put_block(const spectral_rows &rows, int64_t row, int64_t begin, int exponent,
          float (&y)[FFT::V])
{
    constexpr int V = FFT::V, THREADS = FFT::THREADS;
    const convolve_view<float> &c = rows.c;
    const int64_t first = begin + threadIdx.x;
    const int64_t bytes = rows.dtype == SPECTRUM_F32 ? 4 : 2;
    char *const out = reinterpret_cast<char *>(c.out) + row * c.count * bytes;
    spectrum_block<FFT>::scale_back(y, exponent, 0.0f);
    bool good = true;
#pragma unroll
    for (int e = 0; e < V; e++) {
        good = good && is_finite(y[e]);
    }
    if (good) {
        store_row<THREADS>(rows.dtype, {out, 1, c.count}, first, y);
        return;
    }
    with_dtype(rows.dtype, [&](auto element) {
        convolve_plainly<THREADS, V>(seen_as<decltype(element)>(c), row, first);
    });
}

/* ---- filters of one block ---- */

/*
 * A block of threads makes `share` blocks of results of all `blocks` of each row, one
 * after the other: a block of the row is read once, and is on its way during an inverse.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_v3_one_filter_block(const __grid_constant__ spectral_rows rows, int blocks,
                                 int share, bool one_filter)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS;
    constexpr int64_t N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [2 * block_type::WARPS]);
    const block_type block(space, slots, rows.dtype);
    const convolve_view<float> &c = rows.c;
    const int64_t from = static_cast<int64_t>(blockIdx.x) * share;
    const int64_t rest = c.count_rows * blocks - from;
    int left = rest < share ? static_cast<int>(rest) : share;
    int64_t row = quotient(from, blocks);
    int k = static_cast<int>(from - row * blocks);
    bool has_filter = false;
    int filter_exponent = 0;
    c64 *const filter = space + FFT::SHARED + threadIdx.x; /* registers are full */
    c64 f[V];

    for (; left > 0; row++, k = 0) {
        const spectral_operands in = operands_of(rows, row);
        const int stop = left < blocks - k ? k + left : blocks;
        left -= stop - k;
        float x[V], before[V];
        if (!has_filter) {
            block.load(in.v, 0, x);
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range range = block.told(0);
            filter_exponent = range.exponent();
            block.scale(x, factor_of(range) / FFT::POINTS); /* the inverse brings it */
            block.fft.forward(x, f);
#pragma unroll
            for (int i = 0; i < V; i++) {
                filter[i * THREADS] = f[i]; /* which this thread alone reads */
            }
            has_filter = one_filter;
        }
        load_block<THREADS>(rows.dtype, in.a, c.first + (k - 1) * N, before);
        load_row<THREADS>(rows.dtype, in.a, c.first + k * N + threadIdx.x, x);
        block.tell(block.range_of(before), 1);
        __syncthreads();
        row_range last = block.told(1);

        for (; k < stop; k++) {
            float y[V], unused[V];
            block.tell(block.range_of(x), 0);
            __syncthreads();
            const row_range own = block.told(0), both = row_range::combine(own, last);
            block.fft.forward(x, before, factor_of(both), f);
#pragma unroll
            for (int i = 0; i < V; i++) {
                f[i] = times(f[i], filter[i * THREADS]);
                before[i] = x[i];
            }
            last = own;
            block.fft.inverse_begin(f);
            if (k + 1 < stop) {
                load_row<THREADS>(rows.dtype, in.a, c.first + (k + 1) * N + threadIdx.x,
                                  x);
            }
            block.fft.template inverse_end<false>(f, y, unused);
            put_block<FFT>(rows, row, k * N, both.exponent() + filter_exponent, y);
        }
    }
}

/* ---- filters of many blocks ---- */

/*
 * What a pass works on: `rows` rows from `row` on, results of the blocks from `result`
 * on.  They need the `blocks` blocks of the rows from `block` on.  Spectra of a row and
 * filter lie behind each other, one after the other; a block is about 2^exponent.
 */
struct spectral_pass {
    int64_t row, rows, block, blocks, result, results;
    int64_t filters, filter_blocks; /* filters are the pass's rows, or one */
    bool has_filters;               /* an earlier pass has made them */
    c64 *x, *h, *y;
    int *x_exponent, *h_exponent, *y_exponent;
};

constexpr int NO_EXPONENT = -4096; /* of a block that says nothing about the others */

/* F(x_i - i x_(i-1)) of blocks of rows, and F(h_j) / N of those of filters. */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_v3_spectra(const __grid_constant__ spectral_rows rows,
                        const __grid_constant__ spectral_pass pass)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS, N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [block_type::WARPS]);
    const block_type block(space, slots, rows.dtype);
    const int64_t signals = pass.rows * pass.blocks;
    const int64_t all =
        signals + (pass.has_filters ? 0 : pass.filters * pass.filter_blocks);
    for (int64_t u = blockIdx.x; u < all; u += gridDim.x) {
        const bool is_filter = u >= signals;
        const int64_t own = is_filter ? u - signals : u;
        const int64_t each = is_filter ? pass.filter_blocks : pass.blocks;
        const int64_t row = quotient(own, each), i = own - row * each;
        const spectral_operands in = operands_of(rows, pass.row + row);
        const spectrum_row from = is_filter ? in.v : in.a;
        const int64_t begin = is_filter ? i * N : rows.c.first + (pass.block + i) * N;
        float x[V], before[V] = {};
        c64 f[V];
        load_block<THREADS>(rows.dtype, from, begin, x);
        if (!is_filter) {
            load_block<THREADS>(rows.dtype, from, begin - N, before);
        }
        block.tell(block.range_of(before, block.range_of(x)), 0);
        __syncthreads();
        const row_range range = block.told(0);
        const float inverse = is_filter ? 1.0f / N : 1.0f; /* which brings N */
        block.fft.forward(x, before, factor_of(range) * inverse, f);
        c64 *const to = (is_filter ? pass.h : pass.x) + own * N + threadIdx.x;
#pragma unroll
        for (int k = 0; k < V; k++) {
            to[k * THREADS] = f[k];
        }
        if (threadIdx.x == 0) {
            (is_filter ? pass.h_exponent : pass.x_exponent)[own] =
                range.is_finite() ? range.exponent() : NO_EXPONENT;
        }
    }
}

constexpr int PRODUCT_THREADS = 256;
constexpr int PRODUCT_WARPS = PRODUCT_THREADS / WARP;
constexpr int RESULTS = 8; /* blocks of results of a thread, for one frequency */
constexpr int TILE_RESULTS = PRODUCT_WARPS * RESULTS;
constexpr int TILE_TAPS = 32; /* blocks of the filter in shared memory at a time */
static_assert(TILE_TAPS % (2 * RESULTS) == 0, "whole turns of the window");

/* Eight sums go on by eight blocks of the filter; v2's window, a frequency per lane. */
__device__ __forceinline__ void
slide_blocks(c64 (&sum)[RESULTS], const c64 (&now)[RESULTS],
             const c64 (&before)[RESULTS], const c64 *taps)
{
#pragma unroll
    for (int k = 0; k < RESULTS; k++) {
        const c64 h = taps[k * WARP];
#pragma unroll
        for (int j = 0; j < RESULTS; j++) {
            sum[j] = add_times(sum[j],
                               j >= k ? now[j >= k ? j - k : 0]
                                      : before[j >= k ? 0 : RESULTS + j - k],
                               h);
        }
    }
}

__device__ __forceinline__ void
load_blocks(c64 (&to)[RESULTS], const c64 *from)
{
#pragma unroll
    for (int j = 0; j < RESULTS; j++) {
        to[j] = from[j * WARP];
    }
}

struct larger {
    static __device__ __forceinline__ int combine(int a, int b)
    {
        return a > b ? a : b;
    }
};

/* The largest of n exponents, in every thread. */
__device__ __forceinline__ int
largest_exponent(const int *exponents, int64_t n, int *slots)
{
    int most = NO_EXPONENT;
    for (int64_t i = threadIdx.x; i < n; i += PRODUCT_THREADS) {
        most = larger::combine(most, exponents[i]);
    }
    __syncthreads();
    most = block_combine<larger, PRODUCT_THREADS>(most, slots);
    if (threadIdx.x == 0) {
        slots[0] = most;
    }
    __syncthreads();
    return slots[0];
}

/*
 * Y_k = sum over j of X_(k-j) H_j for each frequency by itself.  A lane has a frequency,
 * a warp 8 results of it; the warps of a block share 32 blocks of the filter and the
 * blocks of the row that meet them.  Terms beyond the ends are skipped by sixteens.
 */
__global__ void
__launch_bounds__(PRODUCT_THREADS, 2)
    convolve_v3_products(const __grid_constant__ spectral_pass pass, int points)
{
    GPO_SHARED(c64, signal, [(TILE_RESULTS + TILE_TAPS) * WARP]);
    GPO_SHARED(c64, filter, [TILE_TAPS * WARP]);
    GPO_SHARED(int, slots, [PRODUCT_WARPS]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t groups = points / WARP;
    const int64_t tiles = (pass.results + TILE_RESULTS - 1) / TILE_RESULTS;
    const int64_t lead = pass.result - pass.block; /* X_lead meets H_0 in result 0 */
    for (int64_t u = blockIdx.x; u < groups * tiles * pass.rows; u += gridDim.x) {
        /* The results in the middle have most terms; they begin first. */
        const int64_t ranked = u / groups, rank = quotient(ranked, pass.rows);
        const int64_t row = ranked - rank * pass.rows, own = pass.filters > 1 ? row : 0;
        const int64_t bin = (u - ranked * groups) * WARP + lane;
        const int64_t tile = tiles / 2 + (rank % 2 ? -((rank + 1) / 2) : rank / 2);
        const int64_t begin = tile * TILE_RESULTS, mine = begin + warp * RESULTS;
        const c64 *const x = pass.x + row * pass.blocks * points + bin;
        const c64 *const h = pass.h + own * pass.filter_blocks * points + bin;
        const int *const x_exponent = pass.x_exponent + row * pass.blocks;
        const int *const h_exponent = pass.h_exponent + own * pass.filter_blocks;
        const int x_most = largest_exponent(x_exponent, pass.blocks, slots);
        const int h_most = largest_exponent(h_exponent, pass.filter_blocks, slots);
        if (u == ranked * groups && threadIdx.x == 0) {
            pass.y_exponent[row] = x_most + h_most; /* the same of every tile */
        }

        /* Blocks of the filter that any result of the tile, or of the warp, has. */
        int64_t low = begin + lead - pass.blocks + 1,
                high = begin + TILE_RESULTS + lead;
        low = low > 0 ? low : 0;
        high = high < pass.filter_blocks ? high : pass.filter_blocks;
        const int64_t own_low = mine + lead - pass.blocks + 1;
        const int64_t own_high = mine + RESULTS + lead < pass.filter_blocks
                                     ? mine + RESULTS + lead
                                     : pass.filter_blocks;
        c64 total[RESULTS] = {};
#pragma unroll 1
        for (int64_t j = low; j < high; j += TILE_TAPS) {
            constexpr int ROWS = (TILE_RESULTS + TILE_TAPS) / PRODUCT_WARPS;
            constexpr int TAPS = TILE_TAPS / PRODUCT_WARPS;
            const int64_t from = begin + lead - j - TILE_TAPS;
            const bool is_tap = lane >= ROWS;
            /* Each lane finds the factor of one of the warp's blocks. */
            int64_t i = is_tap ? j + warp + (lane - ROWS) * PRODUCT_WARPS
                               : from + warp + lane * PRODUCT_WARPS;
            float factor = 0.0f;
            if (i >= 0 && i < (is_tap ? pass.filter_blocks : pass.blocks) &&
                lane < ROWS + TAPS) {
                factor = power_of_two(is_tap ? h_exponent[i] - h_most
                                             : x_exponent[i] - x_most);
            }
            c64 value[ROWS + TAPS];
#pragma unroll
            for (int t = 0; t < ROWS + TAPS; t++) {
                const bool tap = t >= ROWS;
                i = tap ? j + warp + (t - ROWS) * PRODUCT_WARPS
                        : from + warp + t * PRODUCT_WARPS;
                value[t] = {0, 0};
                if (i >= 0 && i < (tap ? pass.filter_blocks : pass.blocks)) {
                    value[t] = (tap ? h : x)[i * points];
                }
            }
            __syncthreads();
#pragma unroll
            for (int t = 0; t < ROWS + TAPS; t++) {
                const float by = __shfl_sync(ALL_LANES, factor, t);
                c64 *const to = t < ROWS ? signal + t * TILE_RESULTS / RESULTS * WARP
                                         : filter + (t - ROWS) * PRODUCT_WARPS * WARP;
                to[threadIdx.x] = {value[t].re * by, value[t].im * by};
            }
            __syncthreads();

            constexpr int TURN = 2 * RESULTS;
            const int64_t past = own_low - j, left = own_high - j;
            const int first = past > 0 ? static_cast<int>(past) / TURN * TURN : 0;
            const int last = left < TILE_TAPS ? static_cast<int>(left) : TILE_TAPS;
            const c64 *at = signal + (warp * RESULTS + TILE_TAPS - first) * WARP + lane;
            const c64 *taps = filter + first * WARP + lane;
            c64 sum[RESULTS] = {}, now[RESULTS], before[RESULTS];
            if (first < last) {
                load_blocks(now, at);
            }
#pragma unroll 1
            for (int t = first; t < last; t += TURN) {
                load_blocks(before, at - RESULTS * WARP);
                slide_blocks(sum, now, before, taps);
                load_blocks(now, at - TURN * WARP);
                slide_blocks(sum, before, now, taps + RESULTS * WARP);
                at -= TURN * WARP;
                taps += TURN * WARP;
            }
#pragma unroll
            for (int k = 0; k < RESULTS; k++) {
                total[k] = {total[k].re + sum[k].re, total[k].im + sum[k].im};
            }
        }
        c64 *const y = pass.y + (row * pass.results + mine) * points + bin;
#pragma unroll
        for (int k = 0; k < RESULTS; k++) {
            if (mine + k < pass.results) {
                y[k * points] = total[k];
            }
        }
    }
}

template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_v3_results(const __grid_constant__ spectral_rows rows,
                        const __grid_constant__ spectral_pass pass)
{
    constexpr int V = FFT::V, THREADS = FFT::THREADS, N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    const FFT fft(space);
    for (int64_t u = blockIdx.x; u < pass.rows * pass.results; u += gridDim.x) {
        const int64_t row = quotient(u, pass.results);
        const int64_t k = pass.result + (u - row * pass.results);
        const c64 *const from = pass.y + u * N + threadIdx.x;
        c64 f[V];
        float y[V], unused[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            f[i] = from[i * THREADS];
        }
        __syncthreads();
        fft.inverse_begin(f);
        fft.template inverse_end<false>(f, y, unused);
        put_block<FFT>(rows, pass.row + row, k * N, pass.y_exponent[row], y);
    }
}

/* ---- launchers ---- */

/* With the spectrum of a filter beside the transform. */
template <typename FFT>
constexpr int WITH_FILTER = FFT::SHARED + FFT::POINTS;

template <typename FFT, int RESIDENT>
static gpo_status
convolve_by_block(gpo_call *call, const spectral_rows &rows, bool one_filter)
{
    constexpr size_t SHARED = WITH_FILTER<FFT> * sizeof(c64);
    const int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int64_t blocks = ceil_div(rows.c.count, FFT::POINTS);
    const int64_t all = blocks * rows.c.count_rows, share = ceil_div(all, resident);
    const dim3 grid = grid_of(all > 0 ? ceil_div(all, share) : 0);
    gpo_allow_shared(convolve_v3_one_filter_block<FFT, RESIDENT>, SHARED);
    return GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                      (convolve_v3_one_filter_block<FFT, RESIDENT>), rows,
                      static_cast<int>(blocks), static_cast<int>(share), one_filter);
}

template <typename FFT, int RESIDENT>
static gpo_status
run_pass(gpo_call *call, const spectral_rows &rows, const spectral_pass &pass)
{
    constexpr size_t SHARED = FFT::SHARED * sizeof(c64);
    const int64_t resident = static_cast<int64_t>(gpo_processors(call)) * RESIDENT;
    const int64_t filters = pass.has_filters ? 0 : pass.filters * pass.filter_blocks;
    const int64_t spectra = pass.rows * pass.blocks + filters;
    const int64_t results = pass.rows * pass.results;
    const int64_t tiles = ceil_div(pass.results, TILE_RESULTS) * pass.rows;
    gpo_allow_shared(convolve_v3_spectra<FFT, RESIDENT>, SHARED);
    gpo_allow_shared(convolve_v3_results<FFT, RESIDENT>, SHARED);
    gpo_status status =
        GPO_LAUNCH(call, grid_of(spectra < resident ? spectra : resident), FFT::THREADS,
                   SHARED, (convolve_v3_spectra<FFT, RESIDENT>), rows, pass);
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(FFT::POINTS / WARP * tiles), PRODUCT_THREADS,
                            0, convolve_v3_products, pass, FFT::POINTS);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(results < resident ? results : resident),
                            FFT::THREADS, SHARED, (convolve_v3_results<FFT, RESIDENT>),
                            rows, pass);
    }
    return status;
}

/* Of spectra of rows and results in memory at a time, per multiprocessor: 2 MiB. */
constexpr int64_t PASS_NUMBERS = 1 << 18;

template <typename FFT, int RESIDENT>
static gpo_status
convolve_by_blocks(gpo_call *call, const spectral_rows &rows, bool one_filter)
{
    constexpr int64_t N = FFT::POINTS;
    const convolve_view<float> &c = rows.c;
    if (c.count_rows == 0) {
        return GPO_OK;
    }
    const int64_t filter_blocks = ceil_div(c.m, N), results = ceil_div(c.count, N);
    /* Blocks of a row that are not zero, with what comes before each of them. */
    const int64_t first = -ceil_div(c.first, N), last = ceil_div(c.n - c.first, N);
    int64_t each = gpo_processors(call) * PASS_NUMBERS / (2 * N); /* of a pass */
    each = each > filter_blocks ? each : filter_blocks;
    const int64_t of_row = results < each ? results : each;
    const int64_t together =
        each / of_row < c.count_rows ? each / of_row : c.count_rows;
    int64_t blocks = of_row + filter_blocks - 1;
    blocks = blocks < last - first + 1 ? blocks : last - first + 1;
    const int64_t filters = one_filter ? 1 : together;
    const int64_t x = together * blocks, h = filters * filter_blocks;
    const int64_t y = together * of_row;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(
        call, (x + h + y) * N * sizeof(c64) + (x + h + together) * sizeof(int),
        &memory);
    if (status) {
        return status;
    }
    spectral_pass pass = {};
    pass.filter_blocks = filter_blocks;
    pass.x = static_cast<c64 *>(memory);
    pass.h = pass.x + x * N;
    pass.y = pass.h + h * N;
    pass.x_exponent = reinterpret_cast<int *>(pass.y + y * N);
    pass.h_exponent = pass.x_exponent + x;
    pass.y_exponent = pass.h_exponent + h;
    for (int64_t r = 0; r < c.count_rows && !status; r += together) {
        pass.row = r;
        pass.rows = c.count_rows - r < together ? c.count_rows - r : together;
        pass.filters = one_filter ? 1 : pass.rows;
        for (int64_t k = 0; k < results && !status; k += of_row) {
            pass.result = k;
            pass.results = results - k < of_row ? results - k : of_row;
            pass.block = k - filter_blocks + 1 > first ? k - filter_blocks + 1 : first;
            const int64_t end =
                k + pass.results - 1 < last ? k + pass.results - 1 : last;
            pass.blocks = end - pass.block + 1;
            pass.has_filters = k > 0 || (r > 0 && one_filter);
            status = run_pass<FFT, RESIDENT>(call, rows, pass);
        }
    }
    return status;
}

/* How v3 does a call: points of its transform, and the microseconds that may take. */
struct spectral_plan {
    bool one_block; /* the filter is */
    int points;
    double microseconds;
};

constexpr int64_t BLOCK_TAPS = 4096; /* the longest filter of one block */
constexpr int64_t SPECTRAL_TAPS = int64_t{1} << 28; /* beyond, spectra fill a card */

/*
 * By an H200's times (NOTES.md): a multiprocessor transforms two blocks of 4096 values,
 * or as many smaller ones, in 3.2 us one way; it makes 0.15 M products of spectra in a
 * microsecond; and each kernel takes 3 us to begin.
 */
static spectral_plan
plan_spectra(const gpo_call *call, const convolve_plan &p)
{
    constexpr double ONE_WAY = 3.2, BEGIN = 3.0, PRODUCTS = 0.15e6;
    const int64_t processors = gpo_processors(call);
    const int64_t resident = 2 * processors * BLOCK_TAPS;
    if (p.m <= BLOCK_TAPS && fits_in_shared(call, WITH_FILTER<block_fft<16, 16>>)) {
        int points = 512;
        while (points < p.m) {
            points *= 2;
        }
        const int64_t blocks = ceil_div(p.count, points) * p.count_rows;
        const int64_t turns = ceil_div(blocks, resident / points);
        return {true, points,
                BEGIN + (1.0 + 2.0 * static_cast<double>(turns)) * ONE_WAY};
    }
    spectral_plan best = {};
    const int most = fits_in_shared(call, block_fft<32, 8>::SHARED) ? 8192 : 4096;
    const int64_t filters = p.one_filter ? 1 : p.count_rows;
    for (int points = 512; points <= most; points *= 2) {
        const int64_t h = ceil_div(p.m, points), y = ceil_div(p.count, points);
        const int64_t x =
            y + h - 1 < ceil_div(p.n, points) + 1 ? y + h - 1 : p.n / points + 1;
        const double blocks =
            static_cast<double>(x < h ? x : h) * static_cast<double>(y);
        const double pairs = static_cast<double>(x) * static_cast<double>(h);
        const int64_t at_once =
            points > BLOCK_TAPS ? resident / BLOCK_TAPS : resident / points;
        const int64_t turns = ceil_div(p.count_rows * x + filters * h, at_once) +
                              ceil_div(p.count_rows * y, at_once);
        const double one_way = points > BLOCK_TAPS ? 2.4 * ONE_WAY : ONE_WAY;
        const double products = 4.0 * points * static_cast<double>(p.count_rows) *
                                (blocks < pairs ? blocks : pairs);
        const double us = 3 * BEGIN + static_cast<double>(turns) * one_way +
                          products / (PRODUCTS * static_cast<double>(processors));
        /* Smaller blocks fill the card sooner, which these times do not say. */
        if (best.points == 0 || us < 0.9 * best.microseconds) {
            best = {false, points, us};
        }
    }
    return best;
}

static gpo_status
convolve_spectra(gpo_call *call, const convolve_plan &p, const spectral_rows &rows)
{
    const spectral_plan plan = plan_spectra(call, p);
    if (plan.one_block) {
        switch (plan.points) {
            case 512:
                return convolve_by_block<block_fft<16, 2>, 16>(call, rows,
                                                               p.one_filter);
            case 1024:
                return convolve_by_block<block_fft<16, 4>, 8>(call, rows, p.one_filter);
            case 2048:
                return convolve_by_block<block_fft<16, 8>, 4>(call, rows, p.one_filter);
            default:
                return convolve_by_block<block_fft<16, 16>, 2>(call, rows,
                                                               p.one_filter);
        }
    }
    switch (plan.points) {
        case 512:
            return convolve_by_blocks<block_fft<16, 2>, 16>(call, rows, p.one_filter);
        case 1024:
            return convolve_by_blocks<block_fft<16, 4>, 8>(call, rows, p.one_filter);
        case 2048:
            return convolve_by_blocks<block_fft<16, 8>, 4>(call, rows, p.one_filter);
        case 4096:
            return convolve_by_blocks<block_fft<16, 16>, 2>(call, rows, p.one_filter);
        default:
            return convolve_by_blocks<block_fft<32, 8>, 2>(call, rows, p.one_filter);
    }
}

#endif
