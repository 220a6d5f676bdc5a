/*
 * large_transforms_lags.cu  The gradient of the filters of large_transforms: spectra of x
 * and of the gradient before the activation, transformed through memory; their products
 * are added over the blocks of all batches, in order, with one inverse per channel.
 * Order: the pass, scales, columns, rows and sums, results, sums of rows that are not
 * finite, launcher.
 * Cost:  x and g are read twice; three spectra of 8 bytes per step are written and read
 *        twice, in the L2 cache where a pass fits.
 * See large_transforms.cu for the other direction.
 */
#include "../large_rows.cuh"

/* ---- the pass ---- */

/*
 * Blocks unit .. unit + units of the batch, b * l.blocks + k, of some channels.  Of x a
 * block has the `step` steps from k step on, of g the `lead` after them, too: all that
 * the lags of these steps reach.
 */
struct large_lag_pass {
    lag_view<float> v;
    spectrum_dtype dtype;
    row_blocks_plan l;
    measured_rows x, g;
    int2 *exponents;  /* of x and g, of block `unit` of channel c at c * all + unit */
    int *of_channels; /* the largest sum of these */
    int *is_plain;    /* of a channel: rows have inf or nan */
    c64 *blocks;      /* matrices: of x, then of g of every block */
    c64 *sums;        /* l.shares for each channel */
    int64_t all;      /* blocks of a channel */
    int64_t channel, channels, unit, units;
};

constexpr int NO_SCALE = -8192; /* the sum of no products */

/* ---- scales ---- */

struct larger_int {
    static __device__ __forceinline__ int combine(int a, int b)
    {
        return a > b ? a : b;
    }
};

/* A block of threads takes a channel, a warp a block of its rows. */
__global__ void
__launch_bounds__(MEASURE_THREADS) causal_conv1d_backward_large_transforms_scales(
    const __grid_constant__ large_lag_pass pass)
{
    GPO_SHARED(int, most, [MEASURE_WARPS]);
    const row_blocks_plan &l = pass.l;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    const bool leads = threadIdx.x % WARP == 0;
    const int64_t pieces = pass.x.pieces;
    for (int64_t c = blockIdx.x; c < pass.v.channels; c += gridDim.x) {
        int largest = NO_SCALE;
        bool is_plain = false;
        for (int64_t unit = warp; unit < pass.all; unit += MEASURE_WARPS) {
            const int64_t b = quotient(unit, l.blocks), k = unit - b * l.blocks;
            const int64_t begin = k * (l.step / MEASURED);
            const int64_t of_x = begin + l.step / MEASURED;
            const int64_t of_g = begin + l.length / MEASURED;
            const row_range x =
                amount_of_pieces(pass.x.of(b, c), begin, of_x < pieces ? of_x : pieces)
                    .size;
            const row_range g =
                amount_of_pieces(pass.g.of(b, c), begin, of_g < pieces ? of_g : pieces)
                    .size;
            is_plain = is_plain || !x.is_finite() || !g.is_finite();
            if (x.most && g.most) {
                largest = larger_int::combine(largest, x.exponent() + g.exponent());
            }
            if (leads) {
                pass.exponents[c * pass.all + unit] = {x.exponent(), g.exponent()};
            }
        }
        if (leads) {
            most[warp] = largest;
        }
        const int some = __syncthreads_or(is_plain);
        if (threadIdx.x == 0) {
            for (int i = 1; i < MEASURE_WARPS; i++) {
                largest = larger_int::combine(largest, most[i]);
            }
            pass.of_channels[c] = largest;
            pass.is_plain[c] = some;
        }
        __syncthreads();
    }
}

/* ---- columns ---- */

__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_backward_large_transforms_columns(
        const __grid_constant__ large_lag_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(strip_turns<float>, turns, [1]);
    const row_blocks_plan &l = pass.l;
    const column_work work(l, space, turns[0]);
    const int64_t all = pass.channels * pass.units * 2;
    for (int64_t u = blockIdx.x; u < all << work.strips.log_strips; u += gridDim.x) {
        int64_t matrix = u;
        const int strip = work.strip_of(matrix);
        const bool is_g = matrix % 2 != 0;
        const int64_t own = quotient(matrix / 2, pass.units), c = pass.channel + own;
        const int64_t unit = pass.unit + matrix / 2 - own * pass.units;
        const int64_t b = quotient(unit, l.blocks),
                      begin = (unit - b * l.blocks) * l.step;
        spectrum_row row =
            row_of(pass.dtype, is_g ? pass.v.g : pass.v.x, b, c, pass.v.steps);
        if (!is_g && row.n - begin > l.step) {
            row.n = begin + l.step;
        }
        const int2 exponents = pass.exponents[c * pass.all + unit];
        transform_columns(work, strip, pass.dtype, row, begin,
                          is_g ? exponents.y : exponents.x,
                          pass.blocks + (matrix << l.log));
    }
}

/* ---- rows and sums ---- */

/*
 * Share `share` of the blocks of a channel adds its products to a sum of its own.  The
 * spectrum of x replaces what it is made of; a thread reads only what it wrote.
 */
__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_backward_large_transforms_rows(
        const __grid_constant__ large_lag_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    const row_blocks_plan &l = pass.l;
    const fourier_tile<float> tile(space, l.log - l.log_rows, false);
    const int64_t strips = (int64_t{1} << l.log) / TILE_NUMBERS;
    __syncthreads();
    for (int64_t u = blockIdx.x; u < pass.channels * strips * l.shares;
         u += gridDim.x) {
        const int64_t pair = quotient(u, l.shares), share = u - pair * l.shares;
        const int64_t own = quotient(pair, strips), strip = pair - own * strips;
        const int64_t at = strip * TILE_NUMBERS + tile.base, c = pass.channel + own;
        const int64_t from = quotient(share * pass.units, l.shares);
        const int64_t end = quotient((share + 1) * pass.units, l.shares);
        c64 *const sum = pass.sums + ((own * l.shares + share) << l.log) + at;
        c64 *x = pass.blocks + ((own * pass.units + from) * 2 << l.log) + at;
        bool is_first = pass.unit == 0;
        if (is_first && from == end) {
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                sum[tile.element(e)] = {0.0f, 0.0f};
            }
        }
        /* One copy of the code of a transform: of x, then of g. */
#pragma unroll 1
        for (int64_t step = 2 * from; step < 2 * end; step++) {
            const bool is_g = step % 2 != 0;
            c64 v[TILE_VALUES];
            c64 *const matrix = x + (is_g ? int64_t{1} << l.log : 0);
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                v[e] = matrix[tile.element(e)];
            }
            tile.forward(v);
            if (!is_g) {
#pragma unroll
                for (int e = 0; e < TILE_VALUES; e++) {
                    x[tile.element(e)] = v[e];
                }
                continue;
            }
            const int2 exponents = pass.exponents[c * pass.all + pass.unit + step / 2];
            const float by =
                power_of_two(exponents.x + exponents.y - pass.of_channels[c]);
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                const int i = tile.element(e);
                const c64 own_x = {x[i].re * by, x[i].im * by};
                const c64 before = is_first ? c64{0.0f, 0.0f} : sum[i];
                sum[i] = add_times_conjugate(before, v[e], own_x);
            }
            is_first = false;
            x += int64_t{2} << l.log;
        }
    }
}

/* Adds up the shares of the channels of a pass, in order, and transforms rows back. */
__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_backward_large_transforms_sums(
        const __grid_constant__ large_lag_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    const row_blocks_plan &l = pass.l;
    const fourier_tile<float> tile(space, l.log - l.log_rows, false);
    const int64_t strips = (int64_t{1} << l.log) / TILE_NUMBERS;
    __syncthreads();
    for (int64_t u = blockIdx.x; u < pass.channels * strips; u += gridDim.x) {
        const int64_t own = quotient(u, strips), strip = u - own * strips;
        c64 *const sum =
            pass.sums + ((own * l.shares) << l.log) + strip * TILE_NUMBERS + tile.base;
        c64 v[TILE_VALUES];
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            v[e] = sum[tile.element(e)];
        }
        for (int64_t share = 1; share < l.shares; share++) {
            const c64 *const more = sum + (share << l.log);
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                v[e] = v[e] + more[tile.element(e)];
            }
        }
        tile.inverse(v);
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            sum[tile.element(e)] = v[e];
        }
    }
}

/* ---- results ---- */

__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<float>)
    causal_conv1d_backward_large_transforms_results(
        const __grid_constant__ large_lag_pass pass)
{
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(strip_turns<float>, turns, [1]);
    const row_blocks_plan &l = pass.l;
    const column_work work(l, space, turns[0]);
    const int64_t hop = int64_t{1} << (l.log - 4);
    __syncthreads();
    for (int64_t u = blockIdx.x; u < pass.channels << work.strips.log_strips;
         u += gridDim.x) {
        int64_t own = u;
        const int strip = work.strip_of(own);
        const int64_t c = pass.channel + own;
        float parts[2][TILE_VALUES];
        restore_columns(work, strip, pass.sums + ((own * l.shares) << l.log), parts[0],
                        parts[1]);
#pragma unroll
        for (int part = 0; part < 2; part++) {
            tile_values::scale_back(parts[part], pass.of_channels[c] - l.log, 0.0f);
            with_dtype(pass.dtype, [&](auto element) {
                const auto v = view_as<lag_view<decltype(element)>>(pass.v);
                int64_t s = work.place(strip) + (int64_t{part} << l.log);
#pragma unroll
                for (int e = 0; e < TILE_VALUES; e++) {
                    if (s < v.lags) {
                        v.put(c, s, parts[part][e]);
                    }
                    s += hop;
                }
            });
        }
    }
}

/* ---- sums of rows that are not finite ---- */

__global__ void
__launch_bounds__(MEASURE_THREADS) causal_conv1d_backward_large_transforms_plain(
    const __grid_constant__ large_lag_pass pass)
{
    const int64_t pieces = ceil_div(pass.v.lags, MEASURE_THREADS);
    for (int64_t u = blockIdx.x; u < pass.v.channels * pieces; u += gridDim.x) {
        const int64_t c = quotient(u, pieces), piece = u - c * pieces;
        const int64_t s = piece * MEASURE_THREADS + threadIdx.x;
        if (pass.is_plain[c] && s < pass.v.lags) {
            with_dtype(pass.dtype, [&](auto element) {
                const auto v = view_as<lag_view<decltype(element)>>(pass.v);
                v.put(c, s, direct_lag<1>(v, 0, v.batches, c, s));
            });
        }
    }
}

/* ---- launcher ---- */

/* Transforms and adds the blocks of a pass. */
static gpo_status
add_blocks(gpo_call *call, const large_lag_pass &pass)
{
    const row_blocks_plan &l = pass.l;
    const int64_t tiles = (int64_t{1} << l.log) / TILE_NUMBERS;
    const size_t of_columns = large_shared<float>(l.log_rows);
    const size_t of_rows = large_shared<float>(l.log - l.log_rows);
    gpo_allow_shared(causal_conv1d_backward_large_transforms_columns, of_columns);
    gpo_allow_shared(causal_conv1d_backward_large_transforms_rows, of_rows);
    const int64_t columns = 2 * pass.channels * pass.units * tiles;
    const gpo_status status =
        GPO_LAUNCH(call, resident_grid(call, columns), TILE_THREADS, of_columns,
                   causal_conv1d_backward_large_transforms_columns, pass);
    const int64_t sums = pass.channels * tiles * l.shares;
    return status ? status
                  : GPO_LAUNCH(call, resident_grid(call, sums), TILE_THREADS, of_rows,
                               causal_conv1d_backward_large_transforms_rows, pass);
}

/* The gradient of the filters of a pass's channels, from their sums. */
static gpo_status
make_lags(gpo_call *call, const large_lag_pass &pass)
{
    const row_blocks_plan &l = pass.l;
    const int64_t tiles = pass.channels * ((int64_t{1} << l.log) / TILE_NUMBERS);
    const size_t of_columns = large_shared<float>(l.log_rows);
    const size_t of_rows = large_shared<float>(l.log - l.log_rows);
    gpo_allow_shared(causal_conv1d_backward_large_transforms_sums, of_rows);
    gpo_allow_shared(causal_conv1d_backward_large_transforms_results, of_columns);
    const gpo_status status =
        GPO_LAUNCH(call, resident_grid(call, tiles), TILE_THREADS, of_rows,
                   causal_conv1d_backward_large_transforms_sums, pass);
    return status
               ? status
               : GPO_LAUNCH(call, resident_grid(call, tiles), TILE_THREADS, of_columns,
                            causal_conv1d_backward_large_transforms_results, pass);
}

static gpo_status
make_room(gpo_call *call, large_lag_pass *pass)
{
    const int64_t blocks = pass->v.channels * pass->all;
    const int64_t bytes = pass->l.spectra_bytes +
                          blocks * static_cast<int64_t>(sizeof(int2)) +
                          2 * pass->v.channels * static_cast<int64_t>(sizeof(int));
    void *memory = nullptr;
    const gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &memory);
    if (status) {
        return status;
    }
    pass->blocks = static_cast<c64 *>(memory);
    pass->sums = pass->blocks + (2 * pass->l.channels * pass->l.units << pass->l.log);
    pass->exponents =
        reinterpret_cast<int2 *>(static_cast<char *>(memory) + pass->l.spectra_bytes);
    pass->of_channels = reinterpret_cast<int *>(pass->exponents + blocks);
    pass->is_plain = pass->of_channels + pass->v.channels;
    return GPO_OK;
}

template <typename T>
gpo_status
lag_large_transforms(gpo_call *call, const lag_view<T> &view)
{
    const lag_view<float> v = view_as<lag_view<float>>(view);
    large_lag_pass pass = {};
    pass.v = v;
    pass.dtype = SPECTRUM_DTYPE<T>;
    pass.l = plan_row_blocks(
        call, transforms_of_lags(v.batches, v.channels, v.steps, v.lags));
    pass.all = v.batches * pass.l.blocks;
    pass.x = rows_to_measure(v.x, v.batches, v.channels, v.steps);
    pass.g = rows_to_measure(v.g, v.batches, v.channels, v.steps);
    const row_blocks_plan &l = pass.l;
    gpo_status status = measure_rows(call, &pass.x, &pass.g, pass.dtype);
    status = status ? status : make_room(call, &pass);
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(v.channels), MEASURE_THREADS, 0,
                            causal_conv1d_backward_large_transforms_scales, pass);
    }
    for (int64_t c = 0; c < v.channels && !status; c += l.channels) {
        pass.channel = c;
        pass.channels = v.channels - c < l.channels ? v.channels - c : l.channels;
        int64_t unit = 0;
        do { /* without batches once: sums of nothing */
            pass.unit = unit;
            pass.units = pass.all - unit < l.units ? pass.all - unit : l.units;
            status = add_blocks(call, pass);
            unit += l.units;
        } while (unit < pass.all && !status);
        status = status ? status : make_lags(call, pass);
    }
    if (!status) {
        const int64_t most = 8 * int64_t{gpo_processors(call)};
        const int64_t blocks = v.channels * ceil_div(v.lags, MEASURE_THREADS);
        status =
            GPO_LAUNCH(call, grid_of(blocks < most ? blocks : most), MEASURE_THREADS, 0,
                       causal_conv1d_backward_large_transforms_plain, pass);
    }
    return status;
}

GPO_EVERY_FLOAT32(GPO_LAG_OF, lag_large_transforms)
