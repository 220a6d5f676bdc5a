/*
 * large_transforms.cuh  Transforms of up to 2^24 points, which go through memory in two
 * steps (Bailey, "FFTs in external or hierarchical memory", 1990), for long filters of
 * any floating dtype: real rows as complex ones of half the length.  The steps are those
 * of device/large_fft.cuh.
 * Order: columns of a block, rows and products, columns back, passes.
 * Cost:  a block is written and read three times, in the L2 cache where it fits.
 *
 * 2N real numbers are packed as z[n] = s[n] + i s[n + N] and evaluated where z^N = i,
 * that is at k - 1/4 instead of k: a product's parts are again results n and n + N, and
 * no step separates spectra.  What wraps around has the other sign.
 */
#ifndef GPO_CONVOLVE_LARGE_TRANSFORMS_CUH
#define GPO_CONVOLVE_LARGE_TRANSFORMS_CUH

#include "../mend_chunks.cuh"

/* ---- columns of a block ---- */

/*
 * v[e] = number first + e N / 16 of a row, or where rows are real that and the one N
 * further.
 */
template <typename T, typename Real>
__device__ __forceinline__ void
load_column(complex<Real> (&v)[TILE_VALUES], const zero_padded<T> &row, int64_t first,
            int log)
{
    const int64_t hop = int64_t{1} << (log - 4);
    const T *p = row.p + first * row.step;
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        if constexpr (IS_COMPLEX<value_type<T>>) {
            v[e] = row.at(p, first);
        }
        else {
            const int64_t other = int64_t{1} << log;
            v[e] = {row.at(p, first), row.at(p + other * row.step, first + other)};
        }
        first += hop;
        p += hop * row.step;
    }
}

/* Transforms the columns of the blocks of a pass and of its filters. */
template <typename T>
__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<typename large_pass<T>::Real>)
    convolve_large_transforms_columns(const __grid_constant__ large_pass<T> pass)
{
    using Real = typename large_pass<T>::Real;
    constexpr bool IS_REAL = !IS_COMPLEX<value_type<T>>;
    GPO_DYN_SHARED(complex<Real>, space);
    GPO_SHARED(amount, slots, [TILE_THREADS / WARP + 1]);
    GPO_SHARED(strip_turns<Real>, turns, [1]);
    const large_plan &l = pass.l;
    const convolve_view<T> &c = pass.c;
    const fourier_tile<Real> tile(space, l.log_rows, true);
    const column_strips<Real> strips(l);
    const complex<Real> quarter =
        conjugate(root_of_unity<Real>(tile.own, l.log_rows + 2));
    const int64_t units = pass.rows * pass.blocks;
    for (int64_t u = blockIdx.x; u < (units + pass.filters) << strips.log_strips;
         u += gridDim.x) {
        const int64_t unit = u >> strips.log_strips;
        const int strip = static_cast<int>(u - (unit << strips.log_strips));
        const int column = strip * strips.width + tile.base;
        const bool is_filter = unit >= units;
        const int64_t own = is_filter ? unit - units : unit;
        const int64_t ahead = is_filter ? own : quotient(own, pass.blocks);
        const int64_t row = pass.row + ahead;
        const int64_t block = is_filter ? 0 : pass.block + own - ahead * pass.blocks;
        const int64_t begin = is_filter ? 0 : pass.first_input(block);
        const row_operands<T> in = find_row(c, row);
        const zero_padded<T> from = is_filter ? zero_padded<T>{in.v, c.v_step, c.m}
                                              : zero_padded<T>{in.a, c.a_step, c.n};

        const bool is_fine = l.grain == CHUNK && !is_filter;
        const int64_t parts = is_filter ? pass.n.tap_groups
                              : is_fine ? pass.n.chunks
                                        : pass.n.groups;
        const amount *const amounts = is_filter ? pass.tap_groups
                                      : is_fine ? pass.chunks
                                                : pass.groups;
        const int64_t low = is_filter || begin < 0 ? 0 : begin / l.grain;
        const int64_t end = is_filter ? parts : (begin + l.length) / l.grain;
        const amount size = sum_of_amounts<TILE_THREADS>(
            amounts + (is_filter ? pass.filter_of(row) : row) * parts, low,
            end < parts ? end : parts, slots);
        if (strip == 0 && threadIdx.x == 0) {
            if (is_filter) {
                pass.filters_alone[pass.filter_of(row)] = size;
            }
            else {
                pass.blocks_of_rows[row * l.blocks + block] = size;
            }
        }
        complex<Real> v[TILE_VALUES];
        const int place = (tile.own << strips.log_columns) + column;
        load_column(v, from, begin + place, l.log);
        const Real by = two_to<Real>(-size.exponent);
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            v[e] = {v[e].re * by, v[e].im * by};
        }
        if (IS_REAL) {
            turn_quarter<false>(v, quarter);
        }
        make_turns(turns[0], strips, strip);
        tile.forward(v); /* with barriers */
        turn_column<false>(v, turns[0], tile, l.log, column, IS_REAL);
        complex<Real> *to = (is_filter ? pass.h : pass.x) + (own << l.log) + place;
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            *to = v[e];
            to += 1 << (l.log - 4);
        }
    }
}

/* ---- rows and products ---- */

template <typename Real>
__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<Real>)
    convolve_large_transforms_rows(const __grid_constant__ row_products<Real> work)
{
    GPO_DYN_SHARED(complex<Real>, space);
    multiply_rows(work, space);
}

/* ---- columns back ---- */

/*
 * 2^e as two factors: x times both has one rounding where that is subnormal, as the
 * first product is not; beyond the clamp of two_to it is 0 or infinite anyway.
 */
template <typename Real>
struct two_factors {
    Real first, second;

    __device__ __forceinline__ explicit two_factors(int e)
        : first(two_to<Real>(e / 2)), second(two_to<Real>(e - e / 2))
    {
    }

    __device__ __forceinline__ Real times(Real x) const
    {
        return x * first * second;
    }
};

/* The numbers of a block that are results of a row: [low, low + count) of the block. */
template <typename T>
struct kept_results {
    T *out; /* where number 0 would be */
    int *spoiled;
    int64_t first; /* number 0 is this sum of the row */
    int low;
    unsigned count;

    __device__ __forceinline__ kept_results(const large_pass<T> &pass, int64_t row,
                                            int64_t block)
        : spoiled(pass.spoiled + row * pass.n.sums), first(pass.first_input(block))
    {
        const large_plan &l = pass.l;
        const int64_t at = first - pass.c.first, left = pass.c.count - at;
        out = pass.c.out + row * pass.c.count + at;
        low = static_cast<int>(l.lead > -at ? l.lead : -at);
        const int64_t high = left < l.length ? left : l.length;
        count = high > low ? static_cast<unsigned>(high - low) : 0;
    }

    /* Stores number i, if it is one of these; returns whether it is finite. */
    __device__ __forceinline__ bool put(int i, value_type<T> y) const
    {
        if (static_cast<unsigned>(i - low) < count) {
            out[i] = result_of<T>(y);
        }
        return is_finite(y);
    }

    /* Marks the chunk of number i, if it is one of these. */
    __device__ __forceinline__ void spoil(int i) const
    {
        if (static_cast<unsigned>(i - low) < count) {
            atomicOr(spoiled + (first + i) / CHUNK, 1);
        }
    }
};

template <typename T>
__global__ void
__launch_bounds__(TILE_THREADS, TILE_BLOCKS<typename large_pass<T>::Real>)
    convolve_large_transforms_results(const __grid_constant__ large_pass<T> pass)
{
    using Real = typename large_pass<T>::Real;
    constexpr bool IS_REAL = !IS_COMPLEX<value_type<T>>;
    GPO_DYN_SHARED(complex<Real>, space);
    GPO_SHARED(strip_turns<Real>, turns, [1]);
    const large_plan &l = pass.l;
    const fourier_tile<Real> tile(space, l.log_rows, true);
    const column_strips<Real> strips(l);
    const complex<Real> quarter =
        conjugate(root_of_unity<Real>(tile.own, l.log_rows + 2));
    const int64_t units = pass.rows * pass.blocks;
    __syncthreads();
    for (int64_t u = blockIdx.x; u < units << strips.log_strips; u += gridDim.x) {
        const int64_t unit = u >> strips.log_strips;
        const int strip = static_cast<int>(u - (unit << strips.log_strips));
        const int column = strip * strips.width + tile.base;
        const int64_t ahead = quotient(unit, pass.blocks), row = pass.row + ahead;
        const int64_t block = pass.block + unit - ahead * pass.blocks;
        const int first = (tile.own << strips.log_columns) + column;
        const complex<Real> *from = pass.x + (unit << l.log) + first;
        complex<Real> v[TILE_VALUES];
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            v[e] = *from;
            from += 1 << (l.log - 4);
        }
        make_turns(turns[0], strips, strip);
        __syncthreads();
        turn_column<true>(v, turns[0], tile, l.log, column, IS_REAL);
        tile.inverse(v);
        if (IS_REAL) {
            turn_quarter<true>(v, quarter);
        }
        const two_factors<Real> by(
            pass.blocks_of_rows[row * l.blocks + block].exponent +
            pass.filters_alone[pass.filter_of(row)].exponent - l.log);
        const kept_results<T> kept(pass, row, block);
        bool good = true;
#pragma unroll
        for (int e = 0; e < TILE_VALUES; e++) {
            const Real re = by.times(v[e].re), im = by.times(v[e].im);
            const int i = first + (e << (l.log - 4));
            if constexpr (IS_REAL) {
                const bool first_good = kept.put(i, re);
                good = kept.put(i + (1 << l.log), im) && first_good && good;
            }
            else {
                good = kept.put(i, {re, im}) && good;
            }
        }
        if (!good) { /* of the chunks of all its numbers, which are then added up */
            for (int i = first; i < l.length; i += 1 << (l.log - 4)) {
                kept.spoil(i);
            }
        }
    }
}

/* ---- passes ---- */

template <typename T>
static gpo_status
run_large_pass(gpo_call *call, const large_pass<T> &pass)
{
    using Real = typename large_pass<T>::Real;
    const large_plan &l = pass.l;
    const int log_columns = l.log - l.log_rows;
    const int64_t resident = TILE_BLOCKS<Real> * int64_t{gpo_processors(call)};
    const int64_t tiles = (int64_t{1} << l.log) / TILE_NUMBERS;
    const int64_t units = pass.rows * pass.blocks;
    const size_t of_columns = large_shared<Real>(l.log_rows);
    const size_t of_rows = large_shared<Real>(log_columns);
    const auto at_once = [&](int64_t items) {
        return grid_of(items < resident ? items : resident);
    };
    gpo_allow_shared(convolve_large_transforms_columns<T>, of_columns);
    gpo_allow_shared(convolve_large_transforms_results<T>, of_columns);
    gpo_allow_shared(convolve_large_transforms_rows<Real>, of_rows);
    gpo_status status =
        GPO_LAUNCH(call, at_once((units + pass.filters) * tiles), TILE_THREADS,
                   of_columns, (convolve_large_transforms_columns<T>), pass);
    const int64_t filters = pass.n.filters > 1 ? pass.rows : 1;
    row_products<Real> work = {pass.x,  pass.h, l.log, log_columns,
                               filters, 0,      1,     pass.filters > 0};
    const int64_t each = units / filters, wanted = ceil_div(resident, filters * tiles);
    const int64_t shares = each < wanted ? each : wanted;
    if (!status && work.makes_filters && shares > 1) {
        status = GPO_LAUNCH(call, at_once(filters * tiles), TILE_THREADS, of_rows,
                            (convolve_large_transforms_rows<Real>), work);
        work.makes_filters = false;
    }
    work.each = each;
    work.shares = shares;
    if (!status) {
        status = GPO_LAUNCH(call, at_once(filters * tiles * shares), TILE_THREADS,
                            of_rows, (convolve_large_transforms_rows<Real>), work);
    }
    if (!status) {
        status = GPO_LAUNCH(call, at_once(units * tiles), TILE_THREADS, of_columns,
                            (convolve_large_transforms_results<T>), pass);
    }
    return status;
}

/* Places what all passes share in the workspace. */
template <typename T>
static void
place_large(large_pass<T> &pass, void *memory)
{
    const large_plan &l = pass.l;
    const int64_t rows = pass.c.count_rows;
    pass.x = static_cast<decltype(pass.x)>(memory);
    pass.h = pass.x + (l.together * l.of_row << l.log);
    pass.chunks =
        reinterpret_cast<amount *>(static_cast<char *>(memory) + l.spectra_bytes);
    pass.groups = pass.chunks + rows * pass.n.chunks;
    pass.blocks_of_rows = pass.groups + rows * pass.n.groups;
    pass.tap_groups = pass.blocks_of_rows + rows * l.blocks;
    pass.filters_alone = pass.tap_groups + pass.n.filters * pass.n.tap_groups;
    pass.spoiled = reinterpret_cast<int *>(pass.filters_alone + pass.n.filters);
}

template <typename T>
gpo_status
convolve_large_transforms(gpo_call *call)
{
    const convolve_plan &p = *convolve_plan_of(call);
    if (p.count_rows == 0) {
        return GPO_OK;
    }
    large_pass<T> pass = {};
    pass.c = view_of<T>(call);
    pass.l = plan_large(call);
    pass.n = counts_of(p);
    pass.growth = large_growth(p.m, pass.l.log);
    const large_plan &l = pass.l;
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, static_cast<size_t>(l.bytes), &memory);
    if (status) {
        return status;
    }
    place_large(pass, memory);
    pass.flags = p.count_rows * pass.n.sums;
    if (may_have_wide(call)) {
        pass.wide = pass.spoiled + pass.flags;
        pass.flags += wide_flags(p);
    }
    const int64_t groups =
        p.count_rows * pass.n.groups + pass.n.filters * pass.n.tap_groups;
    status = GPO_LAUNCH(call, grid_of(groups), MEASURE_THREADS, 0,
                        (convolve_large_transforms_amounts<T>), pass);
    for (int64_t r = 0; r < p.count_rows && !status; r += l.together) {
        pass.row = r;
        pass.rows = p.count_rows - r < l.together ? p.count_rows - r : l.together;
        for (int64_t k = 0; k < l.blocks && !status; k += l.of_row) {
            pass.block = k;
            pass.blocks = l.blocks - k < l.of_row ? l.blocks - k : l.of_row;
            const bool has_filters = k > 0 || (r > 0 && p.one_filter);
            pass.filters = has_filters ? 0 : p.one_filter ? 1 : pass.rows;
            status = run_large_pass(call, pass);
        }
    }
    const int64_t sums = p.count_rows * pass.n.sums;
    const int64_t most = BLOCKS * int64_t{gpo_processors(call)};
    if (!status) {
        status = GPO_LAUNCH(call, grid_of(sums < most ? sums : most), THREADS, 0,
                            (convolve_large_transforms_mend<T>), pass);
    }
    return status || !pass.wide ? status
                                : convolve_wide_blocks(call, pass.wide, memory);
}

#endif
