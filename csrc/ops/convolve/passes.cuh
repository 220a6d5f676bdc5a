/*
 * passes.cuh  The passes of long_filters over the rows: what each works on, and how
 * much memory they take.
 */
#ifndef GPO_CONVOLVE_PASSES_CUH
#define GPO_CONVOLVE_PASSES_CUH

#include "wide_blocks.cuh"

constexpr int NO_EXPONENT = -4096; /* of a block that is not finite: below all others */

/* Common exponents of a tile of results: of its products, and of the row's spectra. */
struct tile_exponents {
    int y, x;
};

/*
 * What a pass works on: `rows` rows from `row` on, and `results` blocks of results of
 * each from `result` on.  These need `blocks` blocks of the rows from `block` on.  The
 * spectra of a row's or a filter's blocks are stored one after another, each scaled by
 * its 2^-exponent to about 1.
 *
 * A second pass over a row is for its wide blocks (guard.cuh).  Its blocks have 512
 * values; the spectrum of a row's block does not include the block before it, and
 * filter block j takes it to the results of j + 1 blocks later.
 */
struct spectral_pass {
    int64_t row, rows, block, blocks, result, results;
    int64_t lead;                   /* X_lead H_0 is a term of result 0 */
    int64_t filters, filter_blocks; /* `filters`: the pass's rows, or one */
    bool has_filters;               /* an earlier pass has transformed them */
    bool is_second;
    bool is_first;  /* of all passes */
    int end_blocks; /* blocks of threads for the ends of rows; first pass only */
    c64 *x, *h, *y;
    int *x_exponent, *h_exponent;
    tile_exponents *y_exponent; /* of tiles of results */
    double *ends;               /* energies of the inputs of the ends, two per row */
    double *energies;           /* of chunks of the blocks of the rows */
    int *has_wide, *is_wide;    /* whether any block of results is wide; which */
    int64_t wide_blocks;        /* per row: entries of is_wide */
    int wide_of;                /* blocks of this pass per entry */

    __device__ __forceinline__ int *wide(int64_t own_row, int64_t own_result) const
    {
        return is_wide + (row + own_row) * wide_blocks +
               quotient(result + own_result, wide_of);
    }
};

constexpr int PRODUCT_THREADS = 256;
constexpr int PRODUCT_WARPS = PRODUCT_THREADS / WARP;
constexpr int TILE_RESULTS = PRODUCT_WARPS * RESULTS;
static_assert(TILE_TAPS % (2 * RESULTS) == 0, "whole turns of the window");

/* Blocks of a call, and of one pass of it. */
struct pass_sizes {
    int64_t filter_blocks, results; /* per row */
    int64_t first, last;      /* blocks of a row that are not zero, and the next */
    int64_t of_row, together; /* of one pass: results per row, and rows */
    int64_t x, h, y, tiles;
};

inline pass_sizes
sizes_of(const gpo_call *call, const convolve_view<float> &c, int64_t points,
         int64_t filter_blocks, bool one_filter)
{
    pass_sizes s = {};
    s.filter_blocks = filter_blocks;
    s.results = ceil_div(c.count, points);
    s.first = -ceil_div(c.first, points);
    s.last = ceil_div(c.n - c.first, points);
    int64_t each = gpo_processors(call) * PASS_NUMBERS / (2 * points);
    each = each > filter_blocks ? each : filter_blocks;
    s.of_row = s.results < each ? s.results : each;
    s.together = each / s.of_row < c.count_rows ? each / s.of_row : c.count_rows;
    const int64_t blocks = s.of_row + filter_blocks, most = s.last - s.first + 1;
    s.x = s.together * (blocks < most ? blocks : most);
    s.h = (one_filter ? 1 : s.together) * filter_blocks;
    s.y = s.together * s.of_row;
    s.tiles = s.together * ceil_div(s.of_row, TILE_RESULTS);
    return s;
}

/* Bytes of workspace that run_passes needs. */
inline size_t
bytes_of(const pass_sizes &s, int64_t points)
{
    return (s.x + s.h + s.y) * points * sizeof(c64) + s.tiles * sizeof(tile_exponents) +
           (s.x + s.h) * sizeof(int);
}

#endif
