/*
 * ends.cuh  Computes the first and last sums of a row, which have few terms, directly.
 */
#ifndef GPO_CONVOLVE_ENDS_CUH
#define GPO_CONVOLVE_ENDS_CUH

#include "../../device/grid.cuh"
#include "guard.cuh"

/*
 * Terms that are added in one chain before the chains are added: a chain of n equal
 * terms errs by up to n / 2 u times its sum, and the bound of the shortest filters
 * allows 27 u.
 */
constexpr int CHAIN = 32;

/* Shared floats of a warp that adds up an end: taps, zeros, inputs. */
constexpr int END_FLOATS = 3 * ENDS;

/*
 * For one warp: computes the first or last ENDS sums of a row, four per lane, and
 * stores those that are results.
 */
__device__ __forceinline__ void
put_end(const spectral_rows &rows, int64_t row, bool last, float *space)
{
    const convolve_view<float> &c = rows.c;
    const spectral_operands in = operands_of(rows, row);
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    float *const taps = space, *const zeros = taps + ENDS, *const inputs = zeros + ENDS;
    float x[4], t[4];
    load_row<WARP>(rows.dtype, last ? reversed(rows.dtype, in.a) : in.a, lane, x);
    load_row<WARP>(rows.dtype, last ? reversed(rows.dtype, in.v) : in.v, lane, t);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; k++) {
        taps[k * WARP + lane] = t[k];
        zeros[k * WARP + lane] = 0;
        inputs[k * WARP + lane] = x[k];
    }
    __syncwarp();
    const float *const own = inputs + 4 * lane;
    pack<float> late = *reinterpret_cast<const pack<float> *>(own);
    float all[4] = {};
#pragma unroll 1
    for (int first = 0; first < ENDS && first <= 4 * lane + 3; first += CHAIN) {
        float sum[4] = {};
#pragma unroll 4
        for (int s = first; s < first + CHAIN; s += 4) {
            if (s > 4 * lane + 3) {
                break;
            }
            const pack<float> early =
                *reinterpret_cast<const pack<float> *>(own - s - 4);
            const pack<float> tap = *reinterpret_cast<const pack<float> *>(taps + s);
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
#pragma unroll
        for (int i = 0; i < 4; i++) {
            all[i] += sum[i];
        }
    }
    with_dtype(rows.dtype, [&](auto element) {
        const auto &view = seen_as<decltype(element)>(c);
        const auto operands = find_row(view, row);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t from_end = 4 * lane + i;
            const int64_t sum = last ? c.n + c.m - 2 - from_end : from_end;
            const int64_t at = sum - c.first;
            if (at >= 0 && at < c.count) {
                put(view, operands, row, at, all[i]);
            }
        }
    });
}

/*
 * Computes the ends of `count` rows from `first_row` on in `blocks` blocks of threads,
 * of which this is block `index`, and, unless `energies` is NULL, the energies of their
 * inputs, two per row.  `space` has END_FLOATS per warp.  Inlined, its registers would
 * make the kernels spill.
 */
template <int THREADS>
static __device__ __noinline__ void
put_ends(const spectral_rows &rows, int64_t first_row, int64_t count, int index,
         int blocks, float *space, double *energies)
{
    constexpr int WARPS = THREADS / WARP;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
#pragma unroll 1
    for (int64_t u = int64_t{index} * WARPS + warp; u < 2 * count;
         u += blocks * WARPS) {
        const bool last = u % 2 != 0;
        if (has_end(rows.c, last)) {
            const int64_t row = first_row + u / 2;
            put_end(rows, row, last, space + warp * END_FLOATS);
            if (energies) {
                const double energy =
                    energy_of_end(rows, operands_of(rows, row).a, last);
                if (threadIdx.x % WARP == 0) {
                    energies[u] = energy;
                }
            }
        }
    }
}

/* Blocks of threads for the ends of `count` rows: few compared with `resident`. */
inline int
end_blocks(const spectral_rows &rows, int64_t count, int64_t resident, int threads)
{
    const int64_t ends =
        has_end(rows.c, false) || has_end(rows.c, true) ? 2 * count : 0;
    const int64_t most = resident / 8 > 1 ? resident / 8 : 1;
    const int64_t blocks = ceil_div(ends, threads / WARP);
    return static_cast<int>(blocks < most ? blocks : most);
}

/* Sets [low, high) to the results of a row that are not in its ends. */
inline void
leave_ends(spectral_rows &rows)
{
    const convolve_view<float> &c = rows.c;
    const int64_t low = ENDS - c.first, high = c.n + c.m - 1 - ENDS - c.first;
    rows.low = low > 0 ? low : 0;
    rows.high = high < c.count ? high : c.count;
    rows.low = rows.low < c.count ? rows.low : c.count;
    rows.high = rows.high > rows.low ? rows.high : rows.low;
}

/* The rows of a call; transforms of `points` compute all their results but the ends. */
template <typename T>
spectral_rows
rows_of(const gpo_call *call, int points)
{
    const convolve_view<T> c = view_of<T>(call);
    spectral_rows rows = {view_as<convolve_view<float>>(c), SPECTRUM_DTYPE<T>,
                          growth_of(c.m, points)};
    leave_ends(rows);
    return rows;
}

#endif
