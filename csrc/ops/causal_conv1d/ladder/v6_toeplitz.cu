/*
 * v6  Tensor cores of sm_90a.
 * Was:   v5 multiplies on the CUDA cores, whose rate alone costs 0.22 ms at
 *        B 32, C 768, T 768.
 * Now:   an item is a channel and 16 batches (8 where there are few); its 192 columns
 *        of 64 values are multiplied by a Toeplitz band built in registers.  float32
 *        rows are scaled by a power of two and split into two float16: three products,
 *        whose sums leave the tensor cores, which truncate, after every two lags.  Rows
 *        with an infinity, a nan or a wide range are summed directly.
 * Cost:  each input is read once where T <= 768 (16 batches); 62 KB of shared memory,
 *        three blocks per SM.
 * Left:  each of three warps per scheduler issues an instruction every 8 cycles, so a
 *        phase is as long as its instructions.  Work grows with T * min(K, T) -> v7.
 */
#include "../toeplitz_results.cuh"

template <typename T, int PRODUCTS, bool WHOLE, bool CHAIN>
__global__ void
__launch_bounds__(TOEPLITZ_THREADS, toeplitz_blocks(WHOLE, sizeof(T)))
    causal_conv1d_v6_toeplitz(const __grid_constant__ tensor_conv<T> p,
                              const __grid_constant__ tensor_plan plan)
{
#ifdef GPO_HOPPER
    using item_type = toeplitz_item<T, PRODUCTS, WHOLE, CHAIN>;
    using Half = typename item_type::Half;
    constexpr int GROUP = item_type::GROUP, HALF = item_type::HALF;
    GPO_SWIZZLED_SHARED(shared);
    item_type item(p, plan, shared);
    const int g = item.lane / 4, q = item.lane % 4, warp = item.warp;
    const int NB = item.NB, G = item.G;
    const float offset = p.offset(item.c);
    const uint32_t base = item.base, copy_bytes = item.copy_bytes;

    item.begin();
    if constexpr (WHOLE) {
        item.load_chunk(0, 0);
    }
    const int groups = WHOLE ? (plan.blocks + G - 1) / G : 1;
#pragma unroll 1
    for (int group = groups - 1; group >= 0; group--) {
        const int first_block = WHOLE ? group * G : item.span * G; /* of the group */
        const int column = WHOLE ? group * GROUP : TOEPLITZ_COLUMNS - GROUP;
        const int chunks =
            WHOLE ? 1
                  : (min(plan.lags, first_block + G) + plan.window - 1) / plan.window;
        float sum[2][HALF] = {}; /* of the earlier and the later columns */
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; chunk++) {
            const int first_lag = chunk * plan.window;
            if constexpr (!WHOLE) {
                item.load_chunk(first_block - first_lag - plan.window, first_lag);
            }

            const int p0 =
                p.reversed ? TOEPLITZ_BLOCK - 1 : TOEPLITZ_BLOCK * plan.window - 1;
            const int row0 = p0 - 16 * warp - g + 2 * q; /* odd: second copy */
            const uint32_t filter_high =
                base + plan.filter + (row0 & 1 ? copy_bytes : 0) + (row0 >> 1) * 4;
            const int filter_step =
                (p.reversed ? 1 : -1) * TOEPLITZ_BLOCK * static_cast<int>(sizeof(Half));
            const wgmma_operand data(base + plan.high);
            const uint32_t low_step = (plan.low - plan.high) / 128; /* in columns */

            float scale[4];
            item.take_scales(scale);
            /* part (+)= a lag's product, for COUNT parts of columns from `first` on */
            const auto multiply = [&](auto count, auto *part, int first, int lag,
                                      bool add) {
                constexpr int COUNT = decltype(count)::value;
                const int from = first - lag * NB;
                const uint32_t at = filter_high + lag * filter_step;
                toeplitz_lag<Half, PRODUCTS, COUNT>(
                    part, at, at + 2 * copy_bytes, data.opaque(from * 8),
                    data.opaque((from + low_step) * 8), add, plan.zero);
            };
            constexpr index_constant<1> ONE;
            constexpr index_constant<2> TWO;
            /* lags that reach all columns, then those that reach only the later half */
            const int there = min(plan.lags - first_lag, plan.window);
            const int all = WHOLE ? min(there, first_block + G / 2) : there;
            const int half = WHOLE ? min(there, first_block + G) : there;
            if constexpr (CHAIN) {
#pragma unroll 1
                for (int lag = 0; lag < all; lag++) {
                    multiply(TWO, sum, column, lag, lag > 0);
                }
#pragma unroll 1
                for (int lag = all; lag < half; lag++) {
                    multiply(ONE, sum + 1, column + GROUP / 2, lag, true);
                }
                wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < 2 * HALF; i++) {
                    wgmma_settled(sum[i / HALF]);
                    sum[i / HALF][i % HALF] *= scale[i / 4 % 2 * 2 + i % 2];
                }
            }
            else {
                const auto add_pairs = [&](auto first, int begin, int end) {
                    constexpr int FIRST = decltype(first)::value;
                    float part[1][2 * HALF - FIRST];
#pragma unroll 1
                    for (int lag = begin; lag < end; lag += 2) {
                        const bool add = PRODUCTS == 1 && lag > begin;
                        multiply(ONE, part, column + 2 * FIRST, lag, add);
                        multiply(ONE, part, column + 2 * FIRST, lag + 1, true);
                        if (PRODUCTS == 3 || lag + 2 >= end) {
                            wgmma_wait<0>();
                            wgmma_settled(part[0]);
#pragma unroll
                            for (int i = 0; i < 2 * HALF - FIRST; i++) {
                                float *const to =
                                    &sum[(FIRST + i) / HALF][(FIRST + i) % HALF];
                                *to =
                                    fmaf(part[0][i], scale[i / 4 % 2 * 2 + i % 2], *to);
                            }
                        }
                    }
                };
                add_pairs(index_constant<0>(), 0, all);
                add_pairs(index_constant<HALF>(), all, half);
            }
            if (!WHOLE && chunk + 1 < chunks) {
                __syncthreads();
            }
        }
        put_results(item, sum, offset, first_block, column);
    }
    repair(item);
#endif
}

template <typename T, int PRODUCTS, bool CHAIN>
static gpo_status
tensor_launch(gpo_call *call, const tensor_conv<T> &p)
{
    const tensor_plan plan = tensor_cut(p, PRODUCTS, CHAIN, gpo_processors(call));
    const dim3 grid =
        grid_of(static_cast<int64_t>(plan.spans) * plan.batch_items * p.channels);
    const dim3 block(TOEPLITZ_THREADS);
    const auto causal_conv1d_v6 =
        plan.spans == 1 ? causal_conv1d_v6_toeplitz<T, PRODUCTS, true, CHAIN>
                        : causal_conv1d_v6_toeplitz<T, PRODUCTS, false, false>;
    gpo_allow_shared(causal_conv1d_v6, plan.bytes);
    return GPO_LAUNCH(call, grid, block, plan.bytes, causal_conv1d_v6, p, plan);
}

/* Arrays of other strides than with_tensor_rows makes are read one value at a time. */
template <typename T>
gpo_status
conv_v6(gpo_call *call, const conv_view<T> &view)
{
    return with_tensor_rows(call, view, [](gpo_call *c, const tensor_conv<T> &p) {
        if constexpr (sizeof(T) == 2) {
            return tensor_launch<T, 1, true>(c, p);
        }
        else {
            return p.precision == PRECISION_FP32   ? tensor_launch<T, 3, false>(c, p)
                   : p.precision == PRECISION_FAST ? tensor_launch<T, 3, true>(c, p)
                                                   : tensor_launch<T, 1, true>(c, p);
        }
    });
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_v6)
