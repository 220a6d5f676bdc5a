/*
 * large_rows.cuh  Code shared by the kernels of large_transforms: sizes of rows, the
 * columns of a block of a row, and a column's results.
 * Order: sizes, columns.
 * See shapes/large_transforms*.cu for the kernels, device/large_fft.cuh for the
 * transforms, early_steps.cu for the results that they leave.
 */
#ifndef GPO_CAUSAL_CONV1D_LARGE_ROWS_CUH
#define GPO_CAUSAL_CONV1D_LARGE_ROWS_CUH

#include "large_plan.cuh"
#include "spectral_cut.cuh"

/* ---- sizes ---- */

constexpr int MEASURE_WARPS = 8, MEASURE_THREADS = MEASURE_WARPS * WARP;

/* The largest of some steps, and their energy; squares of float32 fit in float64. */
struct row_amount {
    double energy;
    row_range size;

    static __device__ __forceinline__ row_amount combine(row_amount a, row_amount b)
    {
        return {a.energy + b.energy, row_range::combine(a.size, b.size)};
    }
};

/* Rows of `steps` elements, and amounts of MEASURED of them: `pieces` for each row. */
struct measured_rows {
    row_view<const float> rows;
    int64_t batches, channels, steps, pieces;
    row_amount *amounts;

    __device__ __forceinline__ const row_amount *of(int64_t b, int64_t c) const
    {
        return amounts + (b * channels + c) * pieces;
    }

    int64_t all() const
    {
        return batches * channels * pieces;
    }
};

static inline measured_rows
rows_to_measure(const row_view<const float> &rows, int64_t batches, int64_t channels,
                int64_t steps)
{
    return {rows, batches, channels, steps, ceil_div(steps, MEASURED), nullptr};
}

/* Measures pieces first, first + step, ... of all rows, a warp each. */
__device__ __forceinline__ void
measure_pieces(const measured_rows &m, spectrum_dtype dtype, int64_t first,
               int64_t step)
{
    constexpr int EACH = MEASURED / WARP;
    const int64_t all = m.batches * m.channels * m.pieces;
    for (int64_t i = first; i < all; i += step) {
        const int64_t row = quotient(i, m.pieces), piece = i - row * m.pieces;
        const int64_t b = quotient(row, m.channels), c = row - b * m.channels;
        float x[EACH];
        load_row<WARP>(dtype, row_of(dtype, m.rows, b, c, m.steps),
                       piece * MEASURED + threadIdx.x % WARP, x);
        row_amount own = {0.0, NO_RANGE};
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            own.energy += static_cast<double>(x[e]) * static_cast<double>(x[e]);
            own.size.take(x[e]);
        }
        own = warp_combine<row_amount>(own);
        if (threadIdx.x % WARP == 0) {
            m.amounts[i] = own;
        }
    }
}

/* Measures two sets of rows, in memory that it allocates. */
gpo_status measure_rows(gpo_call *call, measured_rows *a, measured_rows *b,
                        spectrum_dtype dtype);

/* For one warp: the amount of pieces [first, end), in every lane. */
__device__ __forceinline__ row_amount
amount_of_pieces(const row_amount *amounts, int64_t first, int64_t end)
{
    row_amount all = {0.0, NO_RANGE};
    for (int64_t i = first + threadIdx.x % WARP; i < end; i += WARP) {
        all = row_amount::combine(all, amounts[i]);
    }
    return shuffle_from(warp_combine<row_amount>(all), 0);
}

/* ---- columns ---- */

/* Where a block of threads is among the columns of matrices. */
struct column_work {
    fourier_tile<float> tile;
    column_strips<float> strips;
    strip_turns<float> &turns;
    c64 quarter;
    int log;

    /* A barrier must follow. */
    __device__ __forceinline__ column_work(const row_blocks_plan &l, c64 *space,
                                           strip_turns<float> &shared)
        : tile(space, l.log_rows, true), strips(l), turns(shared),
          quarter(conjugate(root_of_unity<float>(tile.own, l.log_rows + 2))), log(l.log)
    {
    }

    __device__ __forceinline__ int column(int strip) const
    {
        return strip * strips.width + tile.base;
    }

    /* The place of the thread's first number; the next is N / 16 further. */
    __device__ __forceinline__ int place(int strip) const
    {
        return (tile.own << strips.log_columns) + column(strip);
    }

    /* The strip of unit of work u, which becomes the number of its matrix. */
    __device__ __forceinline__ int strip_of(int64_t &u) const
    {
        const int64_t matrix = u >> strips.log_strips;
        const int strip = static_cast<int>(u - (matrix << strips.log_strips));
        u = matrix;
        return strip;
    }
};

/* v[e] = steps first + e N / 16 of a row and N further; 0 beyond its ends. */
template <typename T>
__device__ __forceinline__ void
load_numbers(c64 (&v)[TILE_VALUES], const spectrum_row &row, int64_t first, int log)
{
    const int64_t other = int64_t{1} << log, hop = other >> 4;
    const uint64_t n = static_cast<uint64_t>(row.n);
    const T *p = static_cast<const T *>(row.p) + first * row.stride;
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        const bool has_re = static_cast<uint64_t>(first) < n;
        const bool has_im = static_cast<uint64_t>(first + other) < n;
        v[e] = {has_re ? static_cast<float>(value_of(*p)) : 0.0f,
                has_im ? static_cast<float>(value_of(p[other * row.stride])) : 0.0f};
        first += hop;
        p += hop * row.stride;
    }
}

/* Transforms the columns of a strip of the block that begins at step `begin`. */
__device__ __forceinline__ void
transform_columns(const column_work &work, int strip, spectrum_dtype dtype,
                  const spectrum_row &row, int64_t begin, int exponent, c64 *matrix)
{
    const int place = work.place(strip);
    c64 v[TILE_VALUES];
    with_dtype(dtype, [&](auto element) {
        load_numbers<decltype(element)>(v, row, begin + place, work.log);
    });
    const float by = power_of_two(-exponent);
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        v[e] = {v[e].re * by, v[e].im * by};
    }
    turn_quarter<false>(v, work.quarter);
    __syncthreads(); /* the turns of the strip before have been read */
    make_turns(work.turns, work.strips, strip);
    work.tile.forward(v); /* with barriers */
    turn_column<false>(v, work.turns, work.tile, work.log, work.column(strip), true);
    c64 *to = matrix + place;
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        *to = v[e];
        to += 1 << (work.log - 4);
    }
}

/* The way back: re[e] and im[e] are N times numbers place + e N / 16 and N further. */
__device__ __forceinline__ void
restore_columns(const column_work &work, int strip, const c64 *matrix,
                float (&re)[TILE_VALUES], float (&im)[TILE_VALUES])
{
    const c64 *from = matrix + work.place(strip);
    c64 v[TILE_VALUES];
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        v[e] = *from;
        from += 1 << (work.log - 4);
    }
    make_turns(work.turns, work.strips, strip); /* before a barrier of the transform */
    __syncthreads();
    turn_column<true>(v, work.turns, work.tile, work.log, work.column(strip), true);
    work.tile.inverse(v);
    turn_quarter<true>(v, work.quarter);
#pragma unroll
    for (int e = 0; e < TILE_VALUES; e++) {
        re[e] = v[e].re;
        im[e] = v[e].im;
    }
}

/* Has static scale_back() for the numbers of a thread. */
using tile_values = spectrum_block<block_fft<16, 16>>;
static_assert(tile_values::V == TILE_VALUES, "as many values");

/* ---- launches ---- */

/* As many blocks of threads as are resident, or items of work. */
static inline dim3
resident_grid(gpo_call *call, int64_t items)
{
    const int64_t most = TILE_BLOCKS<float> * int64_t{gpo_processors(call)};
    return grid_of(items < most ? items : most);
}

#endif
