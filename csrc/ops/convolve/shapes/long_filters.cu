/*
 * long_filters.cu  Filters longer than one block of a transform: both row and filter
 * are cut into blocks and transformed, the spectra are convolved over block indices at
 * each frequency with v2's register window, and the sums are transformed back.
 * Order: spectra, products, results, wide blocks, passes.
 * Cost:  one forward and one inverse transform per N results, 4 nm / N fused
 *        multiply-adds, and the spectra go through memory.
 *
 * Everything counts from `first`, the first sum that the result keeps: block k of a row
 * is a[first + k N + n], n < N, and zero outside the row.  Block k of the result is the
 * sum over j of h_j convolved with blocks k - j and k - j - 1 of the row: the real part
 * of one inverse, that of the sum of H_j F(x_(k-j) - i x_(k-j-1)).
 */
#include "../spectral_plan.cuh"
#include "../window_energies.cuh"

/* ---- spectra ---- */

struct two_ranges {
    row_range own, before;

    static __device__ __forceinline__ two_ranges combine(two_ranges a, two_ranges b)
    {
        return {row_range::combine(a.own, b.own),
                row_range::combine(a.before, b.before)};
    }
};

/*
 * F(x_i - i x_(i-1)) of the blocks of rows, and F(h_j) / N of the blocks of filters; in
 * a second pass F(x_i) and F(h_(j+1) - i h_j) / N.  The first blocks of threads add up
 * the ends of the rows.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_long_filters_spectra(const __grid_constant__ spectral_rows rows,
                                  const __grid_constant__ spectral_pass pass)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS, N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(two_ranges, slots, [block_type::WARPS]);
    GPO_SHARED(float, energies, [block_type::WARPS * CHUNKS<FFT>]);
    if (pass.is_second && !*pass.has_wide) {
        return;
    }
    const int index = static_cast<int>(blockIdx.x) - pass.end_blocks;
    if (index < 0) {
        static_assert(block_type::WARPS * END_FLOATS <= 2 * FFT::SHARED,
                      "room for each warp");
        put_ends<THREADS>(rows, pass.row, pass.rows, static_cast<int>(blockIdx.x),
                          pass.end_blocks, reinterpret_cast<float *>(space), pass.ends);
        return;
    }
    if (pass.is_first && index == 0 && threadIdx.x == 0) {
        *pass.has_wide = 0;
    }
    const block_type block(space, nullptr, rows.dtype);
    const int64_t signals = pass.rows * pass.blocks;
    const int64_t all =
        signals + (pass.has_filters ? 0 : pass.filters * pass.filter_blocks);
    for (int64_t u = index; u < all; u += gridDim.x - pass.end_blocks) {
        const bool is_filter = u >= signals;
        const int64_t own = is_filter ? u - signals : u;
        const int64_t each = is_filter ? pass.filter_blocks : pass.blocks;
        const int64_t row = quotient(own, each), i = own - row * each;
        const spectral_operands in = operands_of(rows, pass.row + row);
        const spectrum_row from = is_filter ? in.v : in.a;
        const int64_t begin = is_filter ? (i + (pass.is_second ? 1 : 0)) * N
                                        : rows.c.first + (pass.block + i) * N;
        float x[V], before[V] = {};
        c64 f[V];
        load_block<THREADS>(rows.dtype, from, begin, x);
        if (is_filter == pass.is_second) {
            load_block<THREADS>(rows.dtype, from, begin - N, before);
        }
        block_type::tell(
            two_ranges{block_type::range_of(x), block_type::range_of(before)}, slots);
        __syncthreads();
        const two_ranges ranges = block_type::told(slots);
        const row_range range = row_range::combine(ranges.own, ranges.before);
        const float inverse = is_filter ? 1.0f / N : 1.0f; /* it scales by N */
        if (!is_filter && !pass.is_second) {
            store_energies<FFT>(x, factor_of(ranges.own), energies);
        }
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
        if (!is_filter && !pass.is_second && threadIdx.x < CHUNKS<FFT>) {
            const double unit = power_of_two(ranges.own.exponent());
            pass.energies[own * CHUNKS<FFT> + threadIdx.x] =
                sum_energy<FFT>(static_cast<int>(threadIdx.x), energies) * unit * unit;
        }
    }
}

/* ---- products ---- */

/* Adds eight blocks of a filter to eight sums: v2's window, a frequency per lane. */
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

/* The largest of n exponents, in every thread; needs a slot per warp and one more. */
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
        slots[PRODUCT_WARPS] = most;
    }
    __syncthreads();
    return slots[PRODUCT_WARPS];
}

/* Whether any result of a tile is in a wide block; the same in every thread. */
__device__ __forceinline__ bool
has_wide_blocks(const spectral_pass &pass, int64_t row, int64_t begin)
{
    const int64_t mine = begin + threadIdx.x;
    return __syncthreads_or(threadIdx.x < TILE_RESULTS && mine < pass.results &&
                            *pass.wide(row, mine));
}

/*
 * Y_k = sum over j of X_(k-j) H_j, for each frequency independently.  Each lane has one
 * frequency and each warp 8 results of it; the warps of a block share 32 blocks of the
 * filter and the blocks of the row that these need.  Terms beyond the ends are skipped
 * in groups of 16.
 */
__global__ void
__launch_bounds__(PRODUCT_THREADS, 2)
    convolve_long_filters_products(const __grid_constant__ spectral_pass pass,
                                   int points)
{
    GPO_SHARED(c64, signal, [(TILE_RESULTS + TILE_TAPS) * WARP]);
    GPO_SHARED(c64, filter, [TILE_TAPS * WARP]);
    GPO_SHARED(int, slots, [PRODUCT_WARPS + 1]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t groups = points / WARP;
    const int64_t tiles = (pass.results + TILE_RESULTS - 1) / TILE_RESULTS;
    const int64_t lead = pass.lead;
    if (pass.is_second && !*pass.has_wide) {
        return;
    }
    for (int64_t u = blockIdx.x; u < groups * tiles * pass.rows; u += gridDim.x) {
        /* The results in the middle have most terms, so they start first. */
        const int64_t ranked = u / groups, rank = quotient(ranked, pass.rows);
        const int64_t row = ranked - rank * pass.rows, own = pass.filters > 1 ? row : 0;
        const int64_t bin = (u - ranked * groups) * WARP + lane;
        const int64_t tile = tiles / 2 + (rank % 2 ? -((rank + 1) / 2) : rank / 2);
        const int64_t begin = tile * TILE_RESULTS, mine = begin + warp * RESULTS;
        const c64 *const x = pass.x + row * pass.blocks * points + bin;
        const c64 *const h = pass.h + own * pass.filter_blocks * points + bin;
        const int *const x_exponent = pass.x_exponent + row * pass.blocks;
        const int *const h_exponent = pass.h_exponent + own * pass.filter_blocks;
        if (pass.is_second && !has_wide_blocks(pass, row, begin)) {
            continue;
        }
        const int64_t x_begin = begin + lead - pass.filter_blocks + 1;
        const int64_t x_low = x_begin > 0 ? x_begin : 0;
        const int64_t x_end = begin + TILE_RESULTS + lead;
        const int64_t x_high = x_end < pass.blocks ? x_end : pass.blocks;
        const int x_most = largest_exponent(x_exponent + x_low, x_high - x_low, slots);
        const int h_most = largest_exponent(h_exponent, pass.filter_blocks, slots);
        if (u == ranked * groups && threadIdx.x == 0) {
            pass.y_exponent[row * tiles + tile] = {x_most + h_most, x_most};
        }

        /* Blocks of the filter that any result of the tile, or of the warp, needs. */
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
            /* Each lane computes the factor of one of the warp's blocks. */
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

/* ---- results ---- */

template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    convolve_long_filters_results(const __grid_constant__ spectral_rows rows,
                                  const __grid_constant__ spectral_pass pass)
{
    using block_type = spectrum_block<FFT>;
    using windows_type = window_energies<CHUNKS<FFT>>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS, N = FFT::POINTS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(windows_type, energies, [block_type::WARPS]);
    GPO_SHARED(int, holds, [1]);
    const FFT fft(space);
    const int64_t tiles = (pass.results + TILE_RESULTS - 1) / TILE_RESULTS;
    for (int64_t u = blockIdx.x; u < pass.rows * pass.results; u += gridDim.x) {
        const int64_t row = quotient(u, pass.results);
        const int64_t own = u - row * pass.results, begin = (pass.result + own) * N;
        const tile_exponents exponents =
            pass.y_exponent[row * tiles + own / TILE_RESULTS];
        block_type::tell(energies_of<FFT>(pass, rows.c.m, row, own), energies);
        const c64 *const from = pass.y + u * N + threadIdx.x;
        c64 f[V];
        float y[V], unused[V];
#pragma unroll
        for (int i = 0; i < V; i++) {
            f[i] = from[i * THREADS];
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            holds[0] = spectra_hold(rows, pass, block_type::told(energies), row, begin,
                                    N, exponents.x);
        }
        fft.inverse_begin(f);
        fft.template inverse_end<false>(f, y, unused);
        bool good = put_block<FFT>(rows, pass.row + row, begin, exponents.y, y);
        good = !__syncthreads_or(!good) && holds[0];
        if (threadIdx.x == 0) {
            *pass.wide(row, own) = !good;
            if (!good) {
                atomicOr(pass.has_wide, 1);
            }
        }
    }
}

/* ---- wide blocks ---- */

/* Whether the inputs of result k are far below 2^most, the scale of its tile. */
__device__ __forceinline__ bool
is_far_below(const spectral_pass &pass, int64_t row, int64_t k, int most)
{
    const int *const exponents = pass.x_exponent + row * pass.blocks;
    const int64_t last = k + pass.lead, reach = last - pass.filter_blocks + 1;
    const int64_t end = last + 1 < pass.blocks ? last + 1 : pass.blocks;
    int own = NO_EXPONENT;
    for (int64_t i = (reach > 0 ? reach : 0) + threadIdx.x; i < end; i += WARP) {
        own = larger::combine(own, exponents[i]);
    }
    own = __shfl_sync(ALL_LANES, warp_combine<larger>(own), 0);
    return own > NO_EXPONENT && own < most - EXACT;
}

/* f = sum over j of X_(k-j) H_j of result k, scaled by the largest of its exponents. */
__device__ __forceinline__ int
add_products_alone(const spectral_pass &pass, int64_t row, int64_t k,
                   c64 (&f)[SQUARE_V])
{
    const int lane = static_cast<int>(threadIdx.x);
    const int64_t last = k + pass.lead; /* is multiplied by H_0 */
    const int64_t reach = last - pass.filter_blocks + 1;
    const int64_t own = pass.filters > 1 ? row : 0;
    const c64 *const x = pass.x + row * pass.blocks * SQUARE + lane;
    const c64 *const h = pass.h + own * pass.filter_blocks * SQUARE + lane;
    const int *const x_exponent = pass.x_exponent + row * pass.blocks;
    const int *const h_exponent = pass.h_exponent + own * pass.filter_blocks;
    int most = NO_EXPONENT;
    for (int64_t i = reach > 0 ? reach : 0; i <= last && i < pass.blocks; i++) {
        const int both = x_exponent[i] + h_exponent[last - i];
        most = larger::combine(most, both);
    }
#pragma unroll
    for (int e = 0; e < SQUARE_V; e++) {
        f[e] = {0, 0};
    }
    for (int64_t i = reach > 0 ? reach : 0; i <= last && i < pass.blocks; i++) {
        const float by = power_of_two(x_exponent[i] + h_exponent[last - i] - most);
#pragma unroll
        for (int e = 0; e < SQUARE_V; e++) {
            const c64 value = x[i * SQUARE + e * WARP];
            f[e] = add_times(f[e], {value.re * by, value.im * by},
                             h[(last - i) * SQUARE + e * WARP]);
        }
    }
    return most;
}

/* Sums of the wide blocks, in a second pass; one warp per block of results. */
__global__ void
__launch_bounds__(WARP, 16)
    convolve_long_filters_wide_results(const __grid_constant__ spectral_rows rows,
                                       const __grid_constant__ spectral_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    if (!*pass.has_wide) {
        return;
    }
    const square_fft fft(space);
    const int64_t tiles = (pass.results + TILE_RESULTS - 1) / TILE_RESULTS;
    for (int64_t u = blockIdx.x; u < pass.rows * pass.results; u += gridDim.x) {
        const int64_t row = quotient(u, pass.results), k = u - row * pass.results;
        if (!*pass.wide(row, k)) {
            continue;
        }
        const spectral_operands in = operands_of(rows, pass.row + row);
        const tile_exponents exponents =
            pass.y_exponent[row * tiles + k / TILE_RESULTS];
        const c64 *const from = pass.y + u * SQUARE + threadIdx.x;
        int exponent = exponents.y;
        c64 f[SQUARE_V];
        float y[SQUARE_V], unused[SQUARE_V];
#pragma unroll
        for (int e = 0; e < SQUARE_V; e++) {
            f[e] = from[e * WARP];
        }
        if (is_far_below(pass, row, k, exponents.x)) {
            exponent = add_products_alone(pass, row, k, f);
        }
        __syncwarp();
        fft.inverse_begin(f);
        fft.template inverse_end<false>(f, y, unused);
        spectrum_block<square_fft>::scale_back(y, exponent, 0.0f);
        put_wide_sums(rows, pass.row + row, in, (pass.result + k) * SQUARE,
                      reinterpret_cast<float *>(space), y);
    }
}

/* ---- passes ---- */

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
    const dim3 grid = grid_of(results < resident ? results : resident);
    gpo_allow_shared(convolve_long_filters_spectra<FFT, RESIDENT>, SHARED);
    const int64_t most = resident - pass.end_blocks; /* so that all start at once */
    gpo_status status =
        GPO_LAUNCH(call, grid_of(pass.end_blocks + (spectra < most ? spectra : most)),
                   FFT::THREADS, SHARED, (convolve_long_filters_spectra<FFT, RESIDENT>),
                   rows, pass);
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(FFT::POINTS / WARP * tiles), PRODUCT_THREADS,
                            0, convolve_long_filters_products, pass, FFT::POINTS);
    }
    if (!status && pass.is_second) {
        status = GPO_LAUNCH(call, grid, WARP, SHARED,
                            convolve_long_filters_wide_results, rows, pass);
    }
    else if (!status) {
        gpo_allow_shared(convolve_long_filters_results<FFT, RESIDENT>, SHARED);
        status = GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                            (convolve_long_filters_results<FFT, RESIDENT>), rows, pass);
    }
    return status;
}

/* All passes over all rows; `pass` holds the fields that they share. */
template <typename FFT, int RESIDENT>
static gpo_status
run_passes(gpo_call *call, const spectral_rows &rows, const pass_sizes &s,
           spectral_pass pass, void *memory, bool one_filter)
{
    const int64_t count_rows = rows.c.count_rows;
    pass.filter_blocks = s.filter_blocks;
    pass.x = static_cast<c64 *>(memory);
    pass.h = pass.x + s.x * FFT::POINTS;
    pass.y = pass.h + s.h * FFT::POINTS;
    pass.y_exponent = reinterpret_cast<tile_exponents *>(pass.y + s.y * FFT::POINTS);
    pass.x_exponent = reinterpret_cast<int *>(pass.y_exponent + s.tiles);
    pass.h_exponent = pass.x_exponent + s.x;
    gpo_status status = GPO_OK;
    for (int64_t r = 0; r < count_rows && !status; r += s.together) {
        pass.row = r;
        pass.rows = count_rows - r < s.together ? count_rows - r : s.together;
        pass.filters = one_filter ? 1 : pass.rows;
        for (int64_t k = 0; k < s.results && !status; k += s.of_row) {
            const int64_t before = k - s.filter_blocks;
            pass.result = k;
            pass.results = s.results - k < s.of_row ? s.results - k : s.of_row;
            pass.block = before > s.first ? before : s.first;
            const int64_t end =
                k + pass.results - 1 < s.last ? k + pass.results - 1 : s.last;
            pass.blocks = end - pass.block + 1;
            pass.lead = k - pass.block - (pass.is_second ? 1 : 0);
            pass.has_filters = k > 0 || (r > 0 && one_filter);
            pass.is_first = !pass.is_second && r == 0 && k == 0;
            pass.end_blocks =
                k == 0 && !pass.is_second
                    ? end_blocks(rows, pass.rows,
                                 int64_t{gpo_processors(call)} * RESIDENT, FFT::THREADS)
                    : 0;
            status = run_pass<FFT, RESIDENT>(call, rows, pass);
        }
    }
    return status;
}

/* Passes for wide blocks are always launched; they return at once if there are none. */
template <typename FFT, int RESIDENT>
static gpo_status
convolve_by_blocks(gpo_call *call, const spectral_rows &rows, bool one_filter)
{
    constexpr int64_t N = FFT::POINTS;
    const convolve_view<float> &c = rows.c;
    if (c.count_rows == 0) {
        return GPO_OK;
    }
    const int64_t whole = whole_blocks(c.m);
    const pass_sizes plain = sizes_of(call, c, N, ceil_div(c.m, N), one_filter);
    const pass_sizes wide =
        sizes_of(call, c, SQUARE, whole > 0 ? whole : 0, one_filter);
    const size_t energies =
        (plain.x * CHUNKS<FFT> + 2 * plain.together) * sizeof(double);
    const size_t flags = (c.count_rows * plain.results + 2) * sizeof(int);
    const size_t once = energies + flags / 8 * 8;
    const size_t bytes = bytes_of(plain, N), wide_bytes = bytes_of(wide, SQUARE);
    void *memory = nullptr;
    const gpo_status status =
        gpo_scratch(call, once + (bytes > wide_bytes ? bytes : wide_bytes), &memory);
    if (status) {
        return status;
    }
    spectral_pass pass = {};
    pass.ends = static_cast<double *>(memory);
    pass.energies = pass.ends + 2 * plain.together;
    pass.has_wide = reinterpret_cast<int *>(pass.energies + plain.x * CHUNKS<FFT>);
    pass.is_wide = pass.has_wide + 1;
    pass.wide_blocks = plain.results;
    pass.wide_of = 1;
    void *const passes = static_cast<char *>(memory) + once;
    const gpo_status first =
        run_passes<FFT, RESIDENT>(call, rows, plain, pass, passes, one_filter);
    if (first) {
        return first;
    }
    pass.is_second = true;
    pass.wide_of = static_cast<int>(N / SQUARE);
    return run_passes<square_fft, 16>(call, rows, wide, pass, passes, one_filter);
}

template <typename T>
gpo_status
convolve_long_filters(gpo_call *call)
{
    const bool one_filter = convolve_plan_of(call)->one_filter;
    const int points = plan_blocks(call).points;
    const spectral_rows rows = rows_of<T>(call, points);
    switch (points) {
        case 512:
            return convolve_by_blocks<block_fft<16, 2>, 16>(call, rows, one_filter);
        case 1024:
            return convolve_by_blocks<block_fft<16, 4>, 8>(call, rows, one_filter);
        case 2048:
            return convolve_by_blocks<block_fft<16, 8>, 4>(call, rows, one_filter);
        case 4096:
            return convolve_by_blocks<block_fft<16, 16>, 2>(call, rows, one_filter);
        default:
            return convolve_by_blocks<block_fft<32, 8>, 2>(call, rows, one_filter);
    }
}

size_t
convolve_wide_bytes(const gpo_call *call)
{
    const convolve_view<float> c = view_of<float>(call);
    const int64_t whole = whole_blocks(c.m);
    return bytes_of(
        sizes_of(call, c, SQUARE, whole, convolve_plan_of(call)->one_filter), SQUARE);
}

gpo_status
convolve_wide_blocks(gpo_call *call, int *flags, void *memory)
{
    const bool one_filter = convolve_plan_of(call)->one_filter;
    const spectral_rows rows = rows_of<float>(call, SQUARE);
    const pass_sizes wide =
        sizes_of(call, rows.c, SQUARE, whole_blocks(rows.c.m), one_filter);
    spectral_pass pass = {};
    pass.has_wide = flags;
    pass.is_wide = flags + 1;
    pass.wide_blocks = wide.results;
    pass.wide_of = 1;
    pass.is_second = true;
    return run_passes<square_fft, 16>(call, rows, wide, pass, memory, one_filter);
}

template gpo_status convolve_long_filters<f16>(gpo_call *call);
template gpo_status convolve_long_filters<bf16>(gpo_call *call);
template gpo_status convolve_long_filters<float>(gpo_call *call);
