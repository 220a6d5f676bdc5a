/*
 * v7  Spectra of long rows are kept in global memory, for the gradient of the filters.
 * Was:   v6 makes T^2 / 2 products for each filter.
 * Now:   the spectra of a row of x, of one block or of blocks of 4096 steps, are stored
 *        in global memory and multiplied by those of dy; products are summed over the
 *        batch, scaled by the largest so far, with one inverse per filter.
 * Cost:  x and dy are read once; spectra of x and sums go to L2 and back.
 * Left:  at 16384 steps spectra of 128 KB move through L2; dy is transformed twice,
 *        here and for dx.
 */
#include "../spectral_lags.cuh"

/* Only the gradient of the filters, with spectra in global memory. */
template <typename FFT, spectrum_place PLACE, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    causal_conv1d_backward_v7_spectra_lags(const __grid_constant__ lag_view<float> v,
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
    const int64_t sums = filters + (filters < n); /* one more carries into the last */
    const int64_t SUM = n, CARRY = SUM + sums;    /* indices behind the rows of x */

    for (int64_t work = blockIdx.x; work < v.channels * cut.splits; work += gridDim.x) {
        const int64_t c = work % v.channels, split = work / v.channels;
        const int64_t first = split * cut.share;
        const int64_t last = last_of(cut, first, v.batches);
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
            put_direct_lags<FFT>(cut, v, split, c, first, last);
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

/* Only dw; leaves cut->splits partial sums to add. */
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
    gpo_allow_shared(causal_conv1d_backward_v7_spectra_lags<FFT, PLACE, RESIDENT>,
                     SHARED);
    return GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                      (causal_conv1d_backward_v7_spectra_lags<FFT, PLACE, RESIDENT>),
                      *v, *cut);
}

gpo_status
lag_v7(gpo_call *call, spectrum_size size, lag_view<float> *v, spectrum_cut *cut)
{
    switch (size) {
        case SPECTRUM_8192:
            return lag_v7_of<block_fft<32, 8>, SPECTRUM_STORED, 2>(call, v, cut);
        case SPECTRUM_16384:
            return lag_v7_of<block_fft<32, 16>, SPECTRUM_STORED, 1>(call, v, cut);
        default:
            return lag_v7_of<block_fft<16, 16>, SPECTRUM_BLOCKS, 2>(call, v, cut);
    }
}
