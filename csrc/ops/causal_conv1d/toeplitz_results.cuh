/*
 * toeplitz_results.cuh  The results of v6: asynchronous stores of rows, and the repair
 * of rows that the products could not represent.
 * See ladder/v6_toeplitz.cu for the products, exact_rows.cuh for direct sums.
 */
#ifndef GPO_CAUSAL_CONV1D_TOEPLITZ_RESULTS_CUH
#define GPO_CAUSAL_CONV1D_TOEPLITZ_RESULTS_CUH

#include "toeplitz_item.cuh"

#ifdef GPO_HOPPER

/* Stores a group's sums (of earlier, later columns); marks rows that are not finite. */
template <typename T, int PRODUCTS, bool WHOLE, bool CHAIN, int HALF>
__device__ __forceinline__ void
put_results(const toeplitz_item<T, PRODUCTS, WHOLE, CHAIN> &item, float (&sum)[2][HALF],
            float offset, int first_block, int column)
{
    using item_type = toeplitz_item<T, PRODUCTS, WHOLE, CHAIN>;
    constexpr bool SCALED = item_type::SCALED;
    constexpr int GROUP = 4 * HALF;
    const tensor_conv<T> &p = item.p;
    const tensor_plan &plan = item.plan;
    unsigned char *const shared = item.shared;
    unsigned *const bad = item.bad;
    const int tid = item.tid, warp = item.warp, g = item.lane / 4, q = item.lane % 4;
    const int shift = item.shift, NB = item.NB, G = item.G, c = item.c;
    const int batches = item.batches, steps = item.steps;
    const int first_batch = item.first_batch;

    float check[4] = {0, 0, 0, 0}; /* NaN where a sum is not finite */
#pragma unroll
    for (int i = 0; i < 2 * HALF; i++) {
        float *const of_column = &check[i / 4 % 2 * 2 + i % 2];
        *of_column = fmaf(sum[i / HALF][i % HALF], 0.0f, *of_column);
        sum[i / HALF][i % HALF] += offset;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (!(check[k] == 0)) {
            atomicOr(bad, 1u << ((8 * (k / 2) + 2 * q + k % 2) & (NB - 1)));
        }
    }
    /*
     * finish: results overwrite the data of these columns, which later groups do not
     * read, and are stored asynchronously as whole rows.  Half of the rows are `gap`
     * values behind the others; a few bytes reach into the next columns, whose rows
     * have been stored.
     */
    const auto stage = [&](auto first_tuple, auto tuples, auto *to, int gap) {
        using Staged = std::remove_reference_t<decltype(*to)>;
        constexpr int FIRST = decltype(first_tuple)::value;
        constexpr int COUNT = decltype(tuples)::value;
        const int wide = TOEPLITZ_BLOCK * (32 * COUNT >> shift);
        const int pitch = wide + STAGE_PAD / static_cast<int>(sizeof(Staged));
        const int flow = p.reversed ? -TOEPLITZ_BLOCK : TOEPLITZ_BLOCK;
        const int start = p.reversed ? wide - TOEPLITZ_BLOCK : 0;
        /* column 8 k + 2 q + e: the part that depends on the lane, then the rest */
        Staged *const mine = to + (2 * q & (NB / 2 - 1)) * pitch +
                             (2 * q & (NB / 2) ? gap : 0) + start + 16 * warp + g;
        bulk_wait_read();
        __syncthreads();
#pragma unroll
        for (int k = 0; k < COUNT * 4; k++) {
            Staged *const of_columns =
                mine + (8 * k & (NB / 2) ? gap : 0) + (8 * k >> shift) * flow;
            const int i = 16 * FIRST + 4 * k;
            const float *const v = &sum[i / HALF][i % HALF];
            of_columns[0] = stored_as<Staged>(v[0]);
            of_columns[pitch] = stored_as<Staged>(v[1]);
            of_columns[8] = stored_as<Staged>(v[2]);
            of_columns[pitch + 8] = stored_as<Staged>(v[3]);
        }
    };
    const int last_block = p.reversed ? plan.blocks - first_block : first_block + G;
    unsigned char *const freed = shared + plan.high + column * 128;
    if (plan.wide_out && p.finish == FINISH_NONE) {
        const int wide = TOEPLITZ_BLOCK * G; /* steps per row */
        const int pitch = wide + STAGE_PAD / static_cast<int>(sizeof(T));
        const int t0 = (last_block - G) * TOEPLITZ_BLOCK;
        const int begin = max(t0, 0), end = min(t0 + wide, steps);
        T *const rows = reinterpret_cast<T *>(freed);
        const int gap = SCALED ? (plan.low - plan.high) / sizeof(T) : NB / 2 * pitch;
        stage(index_constant<0>(), index_constant<GROUP / 32>(), rows, gap);
        fence_async_shared();
        __syncthreads();
        if (tid < NB && first_batch + tid < batches && begin < end) {
            bulk_store(p.out.row(first_batch + tid, c) + begin,
                       shared_address(rows + (tid & (NB / 2 - 1)) * pitch +
                                      (tid & (NB / 2) ? gap : 0) + begin - t0),
                       (end - begin) * sizeof(T));
        }
    }
    else {
        const auto finish = [&](auto tuple) {
            constexpr int TUPLE = decltype(tuple)::value;
            const int wide = TOEPLITZ_BLOCK * (32 >> shift);
            const int pitch = wide + STAGE_PAD / static_cast<int>(sizeof(float));
            const int past =
                p.reversed ? -(32 * TUPLE >> shift) : 32 * (TUPLE + 1) >> shift;
            const int end =
                p.reversed ? plan.blocks - first_block + past : first_block + past;
            const int t0 = end * TOEPLITZ_BLOCK - wide;
            float *const rows = reinterpret_cast<float *>(freed);
            stage(tuple, index_constant<1>(), rows, NB / 2 * pitch);
            __syncthreads();
            for (int i = tid; i < NB * wide; i += TOEPLITZ_THREADS) {
                const int b = first_batch + i / wide, t = t0 + i % wide;
                if (b < batches && t >= 0 && t < steps) {
                    p.out.row(b, c)[t * p.out.t] =
                        p.finished(rows[i / wide * pitch + i % wide], b, c, t);
                }
            }
        };
        finish(index_constant<0>());
        finish(index_constant<1>());
        if constexpr (CHAIN) {
            finish(index_constant<2>());
        }
    }
}

/* Sums the rows directly that the products could not represent. */
template <typename T, int PRODUCTS, bool WHOLE, bool CHAIN>
__device__ __forceinline__ void
repair(const toeplitz_item<T, PRODUCTS, WHOLE, CHAIN> &item)
{
    const tensor_conv<T> &p = item.p;
    const tensor_plan &plan = item.plan;
    unsigned *const bad = item.bad;
    const int NB = item.NB, G = item.G, c = item.c, first_batch = item.first_batch;
    __syncthreads();
    const unsigned rows = (1u << min(NB, item.batches - first_batch)) - 1;
    const unsigned mine = *bad & rows, heads = *bad >> 16 & rows & ~mine;
    if (!(mine | heads)) {
        bulk_wait_read();
    }
    else {
        bulk_wait();
        __syncthreads();
        const int begin = WHOLE ? 0 : item.span * G;
        const int end = WHOLE ? plan.blocks : min(plan.blocks, begin + G);
        const int from = (p.reversed ? plan.blocks - end : begin) * TOEPLITZ_BLOCK;
        const int to = min(item.steps, from + (end - begin) * TOEPLITZ_BLOCK);
        exact_rows(p, c, first_batch, mine, from, to);
        if constexpr (toeplitz_item<T, PRODUCTS, WHOLE, CHAIN>::CAUSAL) {
            const int room = static_cast<int>(plan.small) / 64 * 4; /* per warp */
            exact_heads(p, c, first_batch, heads, from, to,
                        reinterpret_cast<float *>(item.shared) + item.warp * room,
                        room);
        }
    }
}

#endif
#endif
