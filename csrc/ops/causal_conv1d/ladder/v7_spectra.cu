/*
 * v7  The transform of a row stays in one block.
 * Was:   v6 makes T^2 / 2 products per row, and on one architecture only.
 * Now:   one block transforms a row of up to N steps in registers and shared memory,
 *        multiplies it by the filter's spectrum, shared by all batches, and transforms
 *        it back: T log T.  Longer rows are cut into blocks of N steps.
 * Cost:  x is read and the result written once; two exchanges of 8 N bytes each way
 *        through shared memory.  Rounding is relative to the row: heads, and rows with
 *        an infinity, a nan or a wide range, are left to early_steps.cu.
 * Left:  lengths between powers of two are zero-padded; from 8192 steps on spectra are
 *        kept in L2.
 */
#include "../spectral_cut.cuh"

template <typename FFT, spectrum_place PLACE, int RESIDENT>
__global__ void
__launch_bounds__(FFT::THREADS, RESIDENT)
    causal_conv1d_v7_spectra(const __grid_constant__ conv_view<float> v,
                             const __grid_constant__ spectrum_cut cut)
{
    using block_type = spectrum_block<FFT>;
    constexpr int V = FFT::V, THREADS = FFT::THREADS, WARPS = block_type::WARPS;
    GPO_DYN_SHARED(c64, space);
    GPO_SHARED(row_range, slots, [WARPS]);
    GPO_SHARED(causal_range, ranges, [WARPS]);
    GPO_SHARED(earlier, starts, [WARPS]);
    GPO_SHARED(causal_norms, norms, [WARPS]);
    const block_type block(space, slots, cut.dtype);
    const spectrum_store<FFT> store = {cut.slab + blockIdx.x * cut.spectra};
    constexpr bool AHEAD = PLACE == SPECTRUM_HELD, MANY = PLACE == SPECTRUM_BLOCKS;
    const int64_t n = MANY ? cut.row_blocks : 1, filters = MANY ? cut.w_blocks : 1;
    const int64_t X = filters, CARRY = filters + n; /* indices behind the filters */

    for (int64_t work = blockIdx.x; work < v.channels * cut.splits; work += gridDim.x) {
        const int64_t c = work % v.channels, first = work / v.channels * cut.share;
        const int64_t last = last_of(cut, first, v.batches);
        const spectrum_row w = filter_of(cut.dtype, v, c);
        const float offset = offset_of(cut.dtype, v, c);
        float x[V];
        c64 f[V], held[PLACE == SPECTRUM_HELD ? V : 1];
        block.load(w, 0, x);
        block.tell(block.range_of(w, filters, x), 0);
        __syncthreads();
        const row_range w_range = block.told(0);
        for (int64_t j = 0; j < filters; j++) {
            if (MANY) {
                block.load(w, j, x);
                __syncthreads();
            }
            block.scale(x, power_of_two(-w_range.exponent()));
            block.fft.forward(x, f);
            block.divide(f);
            if constexpr (PLACE == SPECTRUM_HELD) {
#pragma unroll
                for (int k = 0; k < V; k++) {
                    held[k] = f[k];
                }
            }
            else {
                store.put(j, f);
            }
        }
        for (int64_t b = first; b < last; b++) {
            const spectrum_row row = row_of(cut.dtype, v.x, b, c, v.steps);
            if (!AHEAD || b == first) {
                block.load(row, 0, x);
            }
            const unsigned begins_late = threadIdx.x == 0 && x[0] == 0.0f;
            block.tell(causal_range{block.range_of(row, n, x), begins_late}, ranges);
            __syncthreads();
            const causal_range range = block.told(ranges);
            int start = 0;
            if (range.begins_late) { /* the same for all threads */
                earlier own = {WHOLE_ROW};
                for (int64_t i = 0; i < n; i++) {
                    if (MANY) {
                        block.load(row, i, x);
                    }
                    own = first_of<FFT, 1>(x, static_cast<int>(i) * FFT::POINTS, own);
                }
                start = first_step(block, own, starts);
            }
            const float by = power_of_two(-range.size.exponent());
            causal_head<FFT> head;
            head.load(cut.dtype, row, start);
            causal_guard guard = {cut.growth};
            for (int64_t i = 0; i < n; i++) {
                const int t = static_cast<int>(i) * FFT::POINTS;
                float y[V], later[V];
                if (MANY) {
                    block.load(row, i, x);
                    __syncthreads();
                }
                block.scale(x, by);
                const float square = square_of(x);
                block.fft.forward(x, f);
                block.tell(causal_norms{square, i == 0 ? head.square(by) : 0.0f},
                           norms);
                if (MANY && i + 1 < n) {
                    store.put(X + i, f);
                }
#pragma unroll
                for (int k = 0; k < V; k++) {
                    if constexpr (PLACE == SPECTRUM_HELD) {
                        f[k] = times(f[k], held[k]);
                    }
                    else {
                        f[k] = times(f[k], store.at(0, k));
                    }
                }
                if (MANY) {
                    for (int64_t j = 1; j <= i && j < filters; j++) {
#pragma unroll
                        for (int k = 0; k < V; k++) {
                            f[k] =
                                add_times(f[k], store.at(X + i - j, k), store.at(j, k));
                        }
                    }
                }
                block.fft.inverse_begin(f);
                if (AHEAD && b + 1 < last) { /* prefetch the next row */
                    block.load(row_of(cut.dtype, v.x, b + 1, c, v.steps), 0, x);
                }
                block.fft.template inverse_end<MANY>(f, y, later);
                if (MANY) {
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        c64 &carry = store.at(CARRY, e);
                        y[e] += i > 0 ? carry.re : 0.0f;
                        carry.re = later[e];
                    }
                }
                if (threadIdx.x == 0) {
                    guard.take(block.told(norms), t, start + head.STEPS);
                }
                block.scale_back(y, range.size.exponent() + w_range.exponent(), offset);
                clear_before<FFT, 1>(y, t, start, offset);
                finish_row<THREADS>(cut.dtype, v, b, c, t + threadIdx.x, y);
                store_row<THREADS>(cut.dtype, row_of(cut.dtype, v.out, b, c, v.steps),
                                   t + threadIdx.x, y);
            }
            if (threadIdx.x == 0) {
                const bool is_finite = w_range.is_finite() && range.size.is_finite();
                put_start(cut, v, b, c, guard.is_wide || !is_finite, start);
            }
        }
    }
}

template <typename FFT, spectrum_place PLACE, int RESIDENT>
static gpo_status
conv_v7_of(gpo_call *call, const conv_view<float> &v, spectrum_dtype dtype)
{
    constexpr size_t SHARED = FFT::SHARED * sizeof(c64);
    spectrum_cut cut = cut_call<FFT, RESIDENT>(call, v, dtype);
    dim3 grid = grid_of(v.channels * cut.splits);
    /* Filters; the blocks of a row and the carry from one to the next. */
    const int64_t rows = PLACE == SPECTRUM_BLOCKS ? cut.row_blocks + 1 : 0;
    gpo_status status = GPO_OK;
    if (PLACE != SPECTRUM_HELD) {
        status = make_slab<FFT, RESIDENT>(call, cut.w_blocks + rows, &cut, &grid);
    }
    status = status ? status : make_starts(call, v, 1, &cut.starts);
    if (status) {
        return status;
    }
    gpo_allow_shared(causal_conv1d_v7_spectra<FFT, PLACE, RESIDENT>, SHARED);
    status = GPO_LAUNCH(call, grid, FFT::THREADS, SHARED,
                        (causal_conv1d_v7_spectra<FFT, PLACE, RESIDENT>), v, cut);
    return status ? status : convolve_early(call, v, dtype, HEAD<FFT>, 1, cut.starts);
}

template <typename T>
gpo_status
conv_v7(gpo_call *call, const conv_view<T> &view)
{
    const conv_view<float> v = view_as<conv_view<float>>(view);
    constexpr spectrum_dtype D = SPECTRUM_DTYPE<T>;
    if (v.steps > MOST_STEPS) {
        return too_many_steps(call);
    }
    switch (size_for(call, v.steps, v.lags)) {
        case SPECTRUM_512:
            return conv_v7_of<block_fft<16, 2>, SPECTRUM_HELD, 16>(call, v, D);
        case SPECTRUM_1024:
            return conv_v7_of<block_fft<16, 4>, SPECTRUM_HELD, 8>(call, v, D);
        case SPECTRUM_2048:
            return conv_v7_of<block_fft<16, 8>, SPECTRUM_HELD, 4>(call, v, D);
        case SPECTRUM_4096:
            return conv_v7_of<block_fft<16, 16>, SPECTRUM_HELD, 2>(call, v, D);
        case SPECTRUM_8192:
            return conv_v7_of<block_fft<32, 8>, SPECTRUM_STORED, 2>(call, v, D);
        case SPECTRUM_16384:
            return conv_v7_of<block_fft<32, 16>, SPECTRUM_STORED, 1>(call, v, D);
        default:
            return conv_v7_of<block_fft<16, 16>, SPECTRUM_BLOCKS, 2>(call, v, D);
    }
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_v7)
