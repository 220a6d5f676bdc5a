/*
 * v7  The spectrum of dy serves both gradients.
 * Was:   v6 makes T^2 / 2 products for dx and as many for dw.
 * Now:   where a row fits one block, the spectrum of dy is multiplied by the filter's
 *        for dx and by that of x, kept in shared memory, for dw: three transforms per
 *        row, where two launches need four.  The products for dw are summed over the
 *        batch before one inverse.  The next rows are prefetched during an inverse.
 * Cost:  dy and x are read once and dx is written once; 2 N spectral values more in
 *        shared memory than forward.
 * Left:  from 8192 steps on the sums do not fit, and dw needs its own launch.
 */
#include "../spectral_lags.cuh"

/*
 * Both gradients of rows that fit one block: dx of the rows of a channel, and the part
 * of its filter's gradient that these batches add.  v convolves the reversed rows of
 * dy: step u of dx is step steps - 1 - u of the view.
 */
template <typename FFT, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT) causal_conv1d_backward_v7_spectra_gradients(
    const __grid_constant__ conv_view<float> v,
    const __grid_constant__ lag_view<float> lags,
    const __grid_constant__ spectrum_cut cut)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, FILTER = 0, ROW = 1; /* indices in the store */
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
        const int64_t last = last_of(cut, first, v.batches);
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
                const earlier own = first_of<FFT, -1>(g, end, earlier{WHOLE_ROW});
                start = first_step(block, own, starts);
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
                put_start(cut, v, b, c, guard.is_wide || !is_finite, start);
            }
            block.scale_back(y, g_range.size.exponent() + w_range.exponent(), 0.0f);
            clear_before<FFT, -1>(y, end, start, 0.0f);
            store_row<THREADS>(cut.dtype,
                               reversed_row_of(cut.dtype, v.out, b, c, v.steps),
                               threadIdx.x, y);
        }

        if (sum.plain) {
            put_direct_lags<FFT>(cut, lags, split, c, first, last);
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

/* Both gradients of rows that fit one block; leaves cut->splits partial sums to add. */
template <typename FFT, int RESIDENT>
static gpo_status
gradients_v7_of(gpo_call *call, const conv_view<float> &v, lag_view<float> *lags,
                spectrum_cut *cut)
{
    constexpr size_t SHARED = GRADIENTS_SHARED<FFT> * sizeof(c64);
    *cut = cut_call<FFT, RESIDENT>(call, *lags, cut->dtype);
    gpo_status status = make_parts(call, cut->splits, lags);
    status = status ? status : make_starts(call, v, 1, &cut->starts);
    if (status) {
        return status;
    }
    gpo_allow_shared(causal_conv1d_backward_v7_spectra_gradients<FFT, RESIDENT>,
                     SHARED);
    status = GPO_LAUNCH(call, grid_of(v.channels * cut->splits), FFT::THREADS, SHARED,
                        (causal_conv1d_backward_v7_spectra_gradients<FFT, RESIDENT>), v,
                        *lags, *cut);
    return status ? status
                  : convolve_early(call, v, cut->dtype, HEAD<FFT>, 1, cut->starts);
}

/* dx, where v convolves the reversed rows of dy, and dw. */
template <typename T>
gpo_status
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
        default:
            status = lag_v7(call, size, &lags, &cut);
            break;
    }
    return status ? status : add_parts(call, view_as<lag_view<T>>(lags), cut.splits);
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_v7)
