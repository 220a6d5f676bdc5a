/*
 * large_fft.cuh  Fourier transforms of 2^12 to 2^24 points, which go through memory in
 * two steps (Bailey, "FFTs in external or hierarchical memory", 1990), for products of
 * spectra.
 *
 * Number n of N is in row n1 and column n2 of a matrix, n = n1 columns + n2, and number
 * k of its spectrum at k = k1 + rows k2.  Columns are transformed, turned by
 * exp(-2 pi i n2 k1 / N), then rows are; products of spectra go back the same way, so
 * nothing is transposed.
 *
 * 2N real numbers are packed as z[n] = s[n] + i s[n + N] and evaluated where z^N = i,
 * that is at k - 1/4 instead of k: a product's parts are again results n and n + N, and
 * no step separates spectra.  What wraps around has the other sign.
 * Order: sizes and times, columns, rows and products.
 * See tile_fft.cuh for the transforms of a block of threads, ops/ for kernels.
 */
#ifndef GPO_LARGE_FFT_CUH
#define GPO_LARGE_FFT_CUH

#include "grid.cuh"
#include "quotient.cuh"
#include "tile_fft.cuh"

/* ---- sizes and times ---- */

constexpr int MOST_LOG = 24; /* of the points of a transform */

/*
 * The rows of the matrix of 2^log points: up to 256 while a row can be longer, as a
 * tile then has whole sectors of 16 columns.
 */
inline int
log_of_rows(int log)
{
    return log <= 16 ? log / 2 : log - MOST_LOG / 2 > 8 ? log - MOST_LOG / 2 : 8;
}

/* Numbers in shared memory of a block of threads: for rows and for columns. */
template <typename Real>
inline size_t
large_shared(int log)
{
    return fourier_tile<Real>::shared(log) * sizeof(complex<Real>);
}

/*
 * Times of an H200 in microseconds, predicted (convolve's NOTES.md): of a launch; of a
 * tile that goes through the three launches of a pass, beside others; of a number of
 * complex64 and of complex128, there and back.
 */
constexpr double LARGE_BEGIN = 2.5, LARGE_TURN = 6;
constexpr double FLOAT_NUMBER = 16e-6, DOUBLE_NUMBER = 42e-6;

/* Of so many launches and passes of three launches, with all their complex numbers. */
template <typename Real>
inline double
large_microseconds(int64_t processors, double launches, double passes, int64_t numbers)
{
    const int64_t at_once = processors * TILE_BLOCKS<Real>;
    const double turns = static_cast<double>(ceil_div(numbers / TILE_NUMBERS, at_once));
    const double rate = 132.0 / static_cast<double>(processors);
    return LARGE_BEGIN * (launches + 3 * passes) + LARGE_TURN * (turns + passes - 1) +
           static_cast<double>(numbers) * rate *
               (sizeof(Real) == 4 ? FLOAT_NUMBER : DOUBLE_NUMBER);
}

/* Bytes of spectra of a pass per SM: all fit in the L2 cache of an H200. */
constexpr int64_t PASS_BYTES = 1 << 18;

/* ---- columns ---- */

/* The columns that a block of threads has at a time, and where it is among them. */
template <typename Real>
struct column_strips {
    int log_columns, log_strips, width;

    /* Of a plan whose matrices have 2^log numbers in 2^log_rows rows. */
    template <typename Plan>
    __device__ __forceinline__ explicit column_strips(const Plan &l)
        : log_columns(l.log - l.log_rows), width(TILE_NUMBERS >> l.log_rows)
    {
        log_strips = 0;
        while (width << log_strips < 1 << log_columns) {
            log_strips++;
        }
    }
};

/* exp(-2 pi i column 2^w / (16 columns)), w < 4, of each column of a tile. */
constexpr int WIDEST_TILE = 64; /* columns */
template <typename Real>
struct strip_turns {
    complex<Real> at[4][WIDEST_TILE];
};

/* They are shared by the threads of a column; a barrier must follow. */
template <typename Real>
__device__ __forceinline__ void
make_turns(strip_turns<Real> &turns, const column_strips<Real> &strips, int strip)
{
    for (int i = static_cast<int>(threadIdx.x); i < 4 * strips.width;
         i += TILE_THREADS) {
        const int w = i / strips.width, own = i - w * strips.width;
        const int column = strip * strips.width + own;
        turns.at[w][own] = root_of_unity<Real>(column << w, strips.log_columns + 4);
    }
}

/*
 * Turns the numbers of a column, k = element(e), by exp(-2 pi i column (k - q) / N), or
 * back; q is a quarter for real numbers.  With e = 4 a + b that of a is the first factor
 * and that of b the second: fewer are in registers than if they were multiplied.
 */
template <bool BACK, typename Real>
__device__ __forceinline__ void
turn_column(complex<Real> (&v)[TILE_VALUES], const strip_turns<Real> &turns,
            const fourier_tile<Real> &tile, int log, int column, bool is_real)
{
    const auto by = [](complex<Real> w) { return BACK ? conjugate(w) : w; };
    const auto first =
        by(root_of_unity<Real>(column * (4 * tile.own - (is_real ? 1 : 0)), log + 2));
    const auto four = by(turns.at[2][tile.base]), eight = by(turns.at[3][tile.base]);
#pragma unroll
    for (int a = 0; a < 4; a++) {
        const auto w = a == 0   ? first
                       : a == 1 ? turned_by(first, four)
                       : a == 2 ? turned_by(first, eight)
                                : turned_by(first, turned_by(eight, four));
#pragma unroll
        for (int b = 0; b < 4; b++) {
            v[4 * a + b] = turned_by(v[4 * a + b], w);
        }
    }
    const auto one = by(turns.at[0][tile.base]), two = by(turns.at[1][tile.base]);
    const auto three = turned_by(two, one);
#pragma unroll
    for (int a = 0; a < 4; a++) {
        v[4 * a + 1] = turned_by(v[4 * a + 1], one);
        v[4 * a + 2] = turned_by(v[4 * a + 2], two);
        v[4 * a + 3] = turned_by(v[4 * a + 3], three);
    }
}

/*
 * Turns a thread's numbers by exp(2 pi i n1 / (4 rows)), `own` times a constant of each,
 * or back; one after the other, as the products would be kept in registers.
 */
template <bool BACK, typename Real>
__device__ __forceinline__ void
turn_quarter(complex<Real> (&v)[TILE_VALUES], complex<Real> own)
{
    const complex<Real> w = BACK ? conjugate(own) : own;
    v[0] = turned_by(v[0], w);
#pragma unroll
    for (int e = 1; e < TILE_VALUES; e++) {
        const complex<Real> root = small_root<Real>(e);
        v[e] = turned_by(turned_by(v[e], BACK ? conjugate(root) : root), w);
    }
}

/* ---- rows and products ---- */

/* `each` blocks per filter, divided among `shares` blocks of threads. */
template <typename Real>
struct row_products {
    complex<Real> *x, *h;
    int log, log_columns;
    int64_t filters, each, shares;
    bool makes_filters; /* else an earlier launch has transformed their rows */
};

/*
 * Transforms the rows of the matrices, multiplies by the filter's and goes back.  The
 * spectrum of a filter replaces what it is made of; a thread reads only what it wrote.
 */
template <typename Real>
__device__ __forceinline__ void
multiply_rows(const row_products<Real> &work, complex<Real> *space)
{
    const fourier_tile<Real> tile(space, work.log_columns, false);
    const int64_t strips = (int64_t{1} << work.log) / TILE_NUMBERS;
    __syncthreads();
    for (int64_t u = blockIdx.x; u < work.filters * strips * work.shares;
         u += gridDim.x) {
        const int64_t unit = quotient(u, work.shares), share = u - unit * work.shares;
        const int64_t filter = quotient(unit, strips), strip = unit - filter * strips;
        const int64_t at = strip * TILE_NUMBERS + tile.base;
        complex<Real> *const h = work.h + (filter << work.log) + at;
        const int64_t from = quotient(share * work.each, work.shares);
        const int64_t end = quotient((share + 1) * work.each, work.shares);
        complex<Real> *x = work.x + ((filter * work.each + from) << work.log) + at;
        complex<Real> v[TILE_VALUES];
        /* One copy of the code of a transform: step -1 is the filter's; then there. */
#pragma unroll 1
        for (int64_t step = work.makes_filters ? -1 : 0; step < 2 * (end - from);
             step++) {
            const bool is_back = step >= 0 && step % 2 != 0;
            complex<Real> *const own = step < 0 ? h : x;
            if (!is_back) {
#pragma unroll
                for (int e = 0; e < TILE_VALUES; e++) {
                    v[e] = own[tile.element(e)];
                }
            }
            tile.forward(v);
            if (step >= 0 && !is_back) {
#pragma unroll
                for (int e = 0; e < TILE_VALUES; e++) {
                    v[e] = exchanged(turned_by(v[e], h[tile.element(e)]));
                }
                continue;
            }
#pragma unroll
            for (int e = 0; e < TILE_VALUES; e++) {
                own[tile.element(e)] = is_back ? exchanged(v[e]) : v[e];
            }
            x += is_back ? int64_t{1} << work.log : 0;
        }
    }
}

#endif
