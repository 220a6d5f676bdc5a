/*
 * v6  Tensor cores of sm_90a, for the gradient of the filters.
 * Was:   v5 multiplies on the CUDA cores.
 * Now:   a 64 x 64 product of dy and x for each lag of 64, summed over time and
 *        batches, then along its diagonals.  A block has three warpgroups with four
 *        lags each, and bulk copies (TMA) load the next rows while these are
 *        multiplied.
 * Cost:  each of x and dy is read once where T <= 768 (16 batches); no atomics.
 * Left:  work grows with T * min(K, T) -> v7.
 */
#include "../toeplitz_lags.cuh"

/*
 * The gradient of the filter.  For each lag D of 64, the 64 x 64 product of dy and of x
 * shifted by D blocks is summed over blocks of time and batches; element (s, q) belongs
 * to lag 64 D + s - q.  The operands are stored as in the forward product, whose
 * columns are the summed dimension here, so they are read transposed.  A thread sums
 * its elements of each diagonal.  A block has three warpgroups, each with 4 of 12 lags,
 * chosen to balance the work: lag D of a causal row of 12 blocks has 12 - D products.
 * A chunk of all batches shares one power of two as its scale.
 *
 * STAGED: whole rows fit and are aligned.  Bulk copies (TMA) load fp32 rows while the
 * previous rows are multiplied; 16-bit rows need no conversion and are copied straight
 * to their final place, double-buffered.
 */
template <typename T, int PRODUCTS, bool STAGED>
__global__ void
__launch_bounds__(TAPS_THREADS, 1) causal_conv1d_backward_v6_toeplitz_lags(
    const __grid_constant__ lag_view<T> p,
    const __grid_constant__ tensor_lags_plan plan)
{
#ifdef GPO_HOPPER
    using Half = typename tensor_half<T>::type;
    using block_type = toeplitz_lags<T, PRODUCTS, STAGED>;
    constexpr bool TURNS = block_type::TURNS;
    GPO_SWIZZLED_SHARED(shared);
    const block_type block(p, plan, shared);
    const int shift = block.shift, NB = block.NB, S = block.S;
    const uint32_t base = block.base;
    const int group = block.group;
    const int lag_of[TAPS_TILES] = {group, 5 - group, 6 + group, 11 - group};

    block.begin();
    block.stage(blockIdx.x, 0, 0);
    uint32_t turn = 0; /* selects the buffer and the barrier's phase */
#pragma unroll 1
    for (int item = blockIdx.x; item < block.items; item += gridDim.x) {
        const int c = item / plan.windows, window = item % plan.windows;
        const int first_lag = window * (TAPS_LAGS - 1);

        /* sums of the elements of a lane with column 2 q + e + .. on diagonal m */
        float diagonal[TAPS_TILES][2][9];
#pragma unroll
        for (int l = 0; l < TAPS_TILES; l++) {
#pragma unroll
            for (int m = 0; m < 9; m++) {
                diagonal[l][0][m] = diagonal[l][1][m] = 0;
            }
        }

        /* each batch item in turn: a chunk of dy, and of x `apart` chunks before it */
        const int first_apart = first_lag / S;
        int batch = 0, chunk = first_apart, apart = first_apart;
#pragma unroll 1
        while (batch < plan.batch_items && chunk < plan.chunks) {
            const int first_batch = batch * NB;
            const int last_apart = min(chunk, (first_lag + TAPS_LAGS - 1) / S + 1);
            const float scale = block.take(c, first_batch, chunk, apart, turn);
            fence_async_shared();
            __syncthreads();
            const uint32_t here = TURNS ? (turn & 1) * plan.turn : 0;
            turn++;
            const bool is_last = batch + 1 == plan.batch_items; /* where STAGED */
            block.stage(is_last ? item + gridDim.x : item,
                        is_last ? 0 : first_batch + NB, turn & 1);

            /* combine: a tile is added up while the next is multiplied */
            const wgmma_operand dy_rows(base + plan.dy + here);
            const wgmma_operand x_rows(base + plan.x + here);
            float tile[2][32];
            bool is_there[TAPS_TILES];
            const auto multiply = [&](float(&d)[32], int l) {
                constexpr int FIRST = PRODUCTS == 3 ? 0 : 2;
                const int lag = first_lag + lag_of[l], beyond = lag - S * apart;
                is_there[l] = abs(beyond) < S && lag < plan.lags;
                const int dy_column = is_there[l] ? max(0, beyond) << shift : 0;
                const int x_column = is_there[l] ? max(0, -beyond) << shift : 0;
                const int steps =
                    is_there[l] ? (((S - abs(beyond)) << shift) + 15) / 16 : 1;
                wgmma_fence();
#pragma unroll
                for (int pass = FIRST; pass < 3; pass++) { /* the small ones first */
                    const wgmma_operand a = dy_rows.opaque(
                        8 * dy_column + (pass == 0 ? plan.split / 16 : 0));
                    const wgmma_operand b =
                        x_rows.opaque(8 * x_column + (pass == 1 ? plan.split / 16 : 0));
                    if (pass == FIRST) {
                        wgmma_ss64<Half>(d, a.at(0), b.at(0), false);
                    }
#pragma unroll 1
                    for (int k = pass == FIRST; k < steps; k++) {
                        wgmma_ss64<Half>(d, a.at(128 * k), b.at(128 * k), true);
                    }
                }
                wgmma_commit();
            };
            const auto add = [&](float(&d)[32], int l) {
                wgmma_settled(d);
#pragma unroll
                for (int i = 0; i < 32; i++) {
                    float *const sum = &diagonal[l][i % 2][7 + i / 2 % 2 - i / 4];
                    *sum = is_there[l] ? fmaf(d[i], scale, *sum) : *sum;
                }
            };
#pragma unroll
            for (int l = 0; l < TAPS_TILES; l++) {
                multiply(tile[l % 2], l);
                if (l > 0) {
                    wgmma_wait<1>();
                    add(tile[1 - l % 2], l - 1);
                }
            }
            wgmma_wait<0>();
            add(tile[1], TAPS_TILES - 1);
            __syncthreads();

            if (++apart > last_apart) {
                apart = first_apart;
                if (++chunk == plan.chunks) {
                    chunk = first_apart;
                    batch++;
                }
            }
        }

        block.finish(diagonal, lag_of, c, first_lag);
    }
#endif
}

template <typename T, int PRODUCTS>
static gpo_status
tensor_lags_launch(gpo_call *call, const lag_view<T> &p)
{
    bool is_staged;
    const tensor_lags_plan plan = tensor_lags_cut<T, PRODUCTS>(p, &is_staged);
    const int items = static_cast<int>(p.channels) * plan.windows,
              processors = gpo_processors(call);
    const dim3 grid(items < processors ? items : processors);
    const dim3 block(TAPS_THREADS);
    const auto causal_conv1d_backward_v6 =
        is_staged ? causal_conv1d_backward_v6_toeplitz_lags<T, PRODUCTS, true>
                  : causal_conv1d_backward_v6_toeplitz_lags<T, PRODUCTS, false>;
    gpo_allow_shared(causal_conv1d_backward_v6, plan.bytes);
    return GPO_LAUNCH(call, grid, block, plan.bytes, causal_conv1d_backward_v6, p,
                      plan);
}

/* The gradient of the filters; (B, T, C) arrays are transposed as in conv_v6. */
template <typename T>
gpo_status
lag_v6(gpo_call *call, const lag_view<T> &view)
{
    lag_view<T> v = view;
    gpo_status status = tensor_check(call, v);
    if (!status) {
        status = tensor_rows(call, v.batches, v.channels, v.steps, &v.x);
    }
    if (!status) {
        status = tensor_rows(call, v.batches, v.channels, v.steps, &v.g);
    }
    if (status) {
        return status;
    }
    if constexpr (sizeof(T) == 2) {
        return tensor_lags_launch<T, 1>(call, v);
    }
    else {
        return v.precision == PRECISION_HALF ? tensor_lags_launch<T, 1>(call, v)
                                             : tensor_lags_launch<T, 3>(call, v);
    }
}

GPO_EVERY_FLOAT32(GPO_LAG_OF, lag_v6)
