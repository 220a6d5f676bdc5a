/*
 * toeplitz_item.cuh  The part of the convolution that a block of v6 computes, and how
 * it loads the rows and the filter into shared memory.
 * See ladder/v6_toeplitz.cu for the products, toeplitz_results.cuh for the results.
 */
#ifndef GPO_CAUSAL_CONV1D_TOEPLITZ_ITEM_CUH
#define GPO_CAUSAL_CONV1D_TOEPLITZ_ITEM_CUH

#include "exact_rows.cuh"

#include <cmath>

/* ---- how the problem is divided ---- */

/* How the problem is divided; see tensor_cut. */
struct tensor_plan {
    int batch_shift;       /* an item has NB = 1 << batch_shift batches: 16 or 8 */
    int batch_items;       /* items along the batch */
    int blocks;            /* of 64 along time */
    int lags;              /* blocks of the filter that are not zero */
    int spans;             /* items along time */
    int window;            /* lags in shared memory at a time */
    uint32_t zero;         /* 0, see load_fragment */
    int staggered;         /* SMs whose blocks start at different times, or 0 */
    int pad;               /* columns of zeros that the last lags of a group reach */
    float growth;          /* see split_start */
    bool wide_x, wide_out; /* 16-byte loads, bulk stores */
    uint32_t high, low;    /* column 0 of the data, in shared memory */
    uint32_t filter, small, bytes;
};

constexpr int STAGE_PAD = 16; /* bytes between rows of results: no bank conflicts */

/*
 * What a warp found in a segment of floats, ignoring NaN.  The error bound grows with
 * sqrt(T), so a row may begin with LEAST_FIRST / (sqrt(T) / 2) of its largest value
 * where one of the next three has LEAST_FIRST of it.  `first` is the smaller of two
 * magnitudes: the first value in time, times sqrt(T) / 2, and the largest of the first
 * few.
 */
struct split_start {
    float most; /* largest magnitude */
    float first;
};

/*
 * NB is 8 where there are at most 8 batches, else 16.  A row of at most 12288 / NB
 * values is one item, a longer row one item per 4096 / NB results.
 */
template <typename T>
tensor_plan
tensor_cut(const tensor_conv<T> &p, int products, bool chain, int processors)
{
    tensor_plan plan = {};
    const int NB = p.batches > 8 ? 16 : 8;
    plan.batch_shift = NB == 16 ? 4 : 3;
    plan.batch_items = static_cast<int>(ceil_div(p.batches, NB));
    plan.blocks = static_cast<int>(ceil_div(p.steps, TOEPLITZ_BLOCK));
    plan.lags = static_cast<int>((p.lags + 62) / TOEPLITZ_BLOCK) + 1;
    plan.lags = plan.lags < plan.blocks ? plan.lags : plan.blocks;
    const bool is_whole = plan.blocks <= TOEPLITZ_COLUMNS / NB;
    const int group = TOEPLITZ_GROUP / NB, chunk = TOEPLITZ_COLUMNS / NB;
    plan.spans = is_whole ? 1 : (plan.blocks + group - 1) / group;
    plan.window = is_whole ? chunk : chunk - group;
    const int64_t items =
        static_cast<int64_t>(plan.spans) * plan.batch_items * p.channels;
    plan.staggered = items > 6 * static_cast<int64_t>(processors) ? processors : 0;

    plan.wide_x = is_wide(p.x, p.steps);
    plan.wide_out = is_wide(p.out, p.steps);
    plan.growth = std::fmax(1.0f, std::sqrt(static_cast<float>(p.steps)) / 2);

    plan.pad = !is_whole ? 0 : !chain ? 24 : NB == 16 ? 32 : 40;
    const uint32_t plane = TOEPLITZ_COLUMNS * 128 + 16 * STAGE_PAD;
    plan.high = plan.pad * 128;
    plan.low = plan.high; /* one product of float32: only for results */
    if (sizeof(T) == 4) {
        plan.low += plane + plan.pad * 128;
        plan.low = (plan.low + 1023) / 1024 * 1024;
    }
    plan.filter = plan.low + plane;
    plan.small = plan.filter + (products == 3 ? 4 : 2) * filter_bytes(plan.window);
    plan.small = (plan.small + 15) / 16 * 16;
    plan.bytes = plan.small + 256;
    return plan;
}

/* Blocks per SM, limited by shared memory. */
__host__ __device__ constexpr int
toeplitz_blocks(bool whole, size_t element)
{
    return !whole ? 2 : element == 4 ? 3 : 4;
}

#ifdef GPO_HOPPER

/* ---- a block's item ---- */

/*
 * PRODUCTS is 1 or 3.  Time is divided into blocks of 64; `reversed` counts them from
 * the end, and the filter is read in the opposite order.  A group is 64 columns of
 * results.  WHOLE: a row fits into the 192 columns, and the item computes its groups,
 * the last one first.  Otherwise the item is one group of the row and loops over the
 * lags, 128 / NB at a time.  CHAIN: the sums of all lags stay in the accumulators of
 * the tensor cores, which leaves registers for groups of 96 columns.
 */
template <typename T, int PRODUCTS, bool WHOLE, bool CHAIN>
struct toeplitz_item {
    using Half = typename tensor_half<T>::type;
    static constexpr bool SCALED = sizeof(T) == 4;
    static constexpr bool CAUSAL =
        SCALED && PRODUCTS == 3 && !CHAIN; /* keeps the bound */
    static constexpr int GROUP = CHAIN ? 96 : TOEPLITZ_GROUP, HALF = GROUP / 4;
    static constexpr int SEGMENTS = 4, SEGMENT = 768;
    static constexpr int VEC = 16 / sizeof(T), LOADS = SEGMENT / (WARP * VEC);

    const tensor_conv<T> &p;
    const tensor_plan &plan;
    unsigned char *const shared;
    const uint32_t base;
    int *const exponents;      /* [16] */
    unsigned *const bad;       /* rows to be repaired */
    split_start *const ranges; /* [20] */
    const int tid, lane, warp;
    const int shift, NB, per_row;
    const int batches, steps;
    const int span, c, first_batch;
    const int S, G; /* blocks of a chunk, group */
    const T *const w;
    const uint32_t copy_bytes;
    int entries; /* of a window of the filter; set by begin() */

    __device__ __forceinline__ toeplitz_item(const tensor_conv<T> &conv,
                                             const tensor_plan &cut,
                                             unsigned char *memory)
        : p(conv), plan(cut), shared(memory), base(shared_address(memory)),
          exponents(reinterpret_cast<int *>(memory + cut.small)),
          bad(reinterpret_cast<unsigned *>(exponents + 16)),
          ranges(reinterpret_cast<split_start *>(exponents + 20)), tid(threadIdx.x),
          lane(tid % WARP), warp(tid / WARP), shift(cut.batch_shift), NB(1 << shift),
          per_row(16 >> shift), batches(static_cast<int>(conv.batches)),
          steps(static_cast<int>(conv.steps)),
          span(cut.spans - 1 - static_cast<int>(blockIdx.x) / items(conv, cut)),
          c(static_cast<int>(blockIdx.x) % items(conv, cut) / cut.batch_items),
          first_batch(static_cast<int>(blockIdx.x) % items(conv, cut) %
                      cut.batch_items * NB),
          S(TOEPLITZ_COLUMNS >> shift), G(GROUP >> shift), w(conv.w + c * conv.w_c),
          copy_bytes(filter_bytes(cut.window))
    {
    }

    /* Items per span. */
    static __device__ __forceinline__ int items(const tensor_conv<T> &p,
                                                const tensor_plan &plan)
    {
        return static_cast<int>(p.channels) * plan.batch_items;
    }

    /* Clears the marks and puts zeros in front of the first block. */
    __device__ __forceinline__ void begin()
    {
        if (tid == 0) {
            *bad = 0;
        }
        if (WHOLE && SCALED && static_cast<int>(blockIdx.x) < 3 * plan.staggered) {
            /* so that one of an SM's three blocks loads while another multiplies */
            const int64_t end = clock64() + blockIdx.x / plan.staggered * STAGGER;
            while (clock64() < end) {
                __nanosleep(100);
            }
        }
        if (WHOLE) { /* lags reach in front of the first block */
            const int words = plan.pad * 8;
            for (int i = tid; i < (PRODUCTS == 3 ? 2 : 1) * words;
                 i += TOEPLITZ_THREADS) {
                const uint32_t to =
                    i < words ? plan.high + i * 16 : plan.low + (i - words) * 16;
                *reinterpret_cast<uint4 *>(shared + to - plan.pad * 128) =
                    make_uint4(0, 0, 0, 0);
            }
        }
        entries = TOEPLITZ_BLOCK * (plan.window + 1);
    }

    /*
     * A warp loads four segments of 768 values, each a row or a part of one.  Pack j of
     * a lane begins at value lane * VEC + j * STRIDE of the segment; it belongs to a
     * column of data and is stored at place(s, j) of a plane.
     */
    static constexpr int STRIDE = WARP * VEC, BLOCKS_APART = STRIDE / TOEPLITZ_BLOCK;
    __device__ __forceinline__ int row_of(int s) const
    {
        return ((warp * SEGMENTS + s) << shift) >> 4;
    }

    __device__ __forceinline__ int first_of(int s) const
    {
        return ((warp * SEGMENTS + s) & (per_row - 1)) * SEGMENT + lane * VEC;
    }

    __device__ __forceinline__ uint32_t place(int s, int j) const
    {
        const unsigned at = first_of(s), row = row_of(s), block = at / TOEPLITZ_BLOCK;
        const int first = ((p.reversed ? S - 1 - block : block) << shift) + row;
        const int apart = (p.reversed ? -BLOCKS_APART : BLOCKS_APART) << shift;
        return plan.high + (first + j * apart) * 128 + ((at / 8 % 8 ^ row % 8) << 4) +
               at % 8 * 2;
    }

    __device__ __forceinline__ const T *row_at(int s) const
    {
        return p.x.row(first_batch + row_of(s), c);
    }

    __device__ __forceinline__ pack<T> load(int block, int s, int j) const
    {
        const int t = block * TOEPLITZ_BLOCK + first_of(s) + j * STRIDE;
        const bool is_row = first_batch + row_of(s) < batches;
        if (plan.wide_x) {
            const bool is_in = is_row && static_cast<unsigned>(t) < p.steps;
            return pack_of<T>(
                load_now(reinterpret_cast<const uint4 *>(row_at(s) + t), is_in));
        }
        pack<T> v;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            const bool is_in = is_row && t + e >= 0 && t + e < steps;
            v.v[e] = is_in ? row_at(s)[(t + e) * p.x.t] : T(0.0f);
        }
        return v;
    }

    __device__ __forceinline__ void put(const pack<T> &v, int s, int j,
                                        float factor) const
    {
        put_values<PRODUCTS>(shared + place(s, j), plan.low - plan.high, v, factor);
    }

    /* The lane that has the value of segment s that is first in time. */
    __device__ __forceinline__ int edge_of(int s) const
    {
        const bool is_end = ((warp * SEGMENTS + s + 1) & (per_row - 1)) == 0;
        return !CAUSAL || !p.reversed ? 0
               : WHOLE && is_end      ? 16 + (steps - 1) % 64 / VEC
                                      : WARP - 1;
    }

    __device__ __forceinline__ void see(const pack<T> (&v)[LOADS], int s) const
    {
        if constexpr (SCALED) {
            float most = 0, begin = 0, end = 0; /* of the first and last pack */
#pragma unroll
            for (int j = 0; j < LOADS; j++) {
                float of_pack = 0;
#pragma unroll
                for (int e = 0; e < VEC; e++) {
                    of_pack = fmaxf(of_pack, fabsf(v[j].v[e]));
                }
                most = fmaxf(most, of_pack);
                begin = j == 0 ? of_pack : begin;
                end = of_pack;
            }
            most = most_of_warp(most);
            const float first = p.reversed ? v[LOADS - 1].v[VEC - 1] : v[0].v[0];
            if (lane == edge_of(s)) {
                ranges[4 + warp * SEGMENTS + s] = {
                    most, fminf(fabsf(first) * plan.growth, p.reversed ? end : begin)};
            }
        }
    }

    /*
     * The factor of the row of segment s.  Stores its exponent, and marks it where the
     * products cannot represent it, or where it begins with values that are too small
     * compared with later ones.
     */
    __device__ __forceinline__ float factor_of(int s, const split_scale &filter,
                                               bool has_own) const
    {
        split_scale scale{0.0f};
        if constexpr (SCALED) {
            const int row = row_of(s);
            const split_start *const parts = ranges + 4 + row * per_row;
            float most = 0;
            for (int i = 0; i < per_row; i++) {
                most = fmaxf(most, parts[i].most);
            }
            scale = split_scale(most);
            const int exponent = scale.exponent + filter.exponent;
            if (lane == 0) {
                exponents[row] = max(-126, min(127, exponent));
                if (!scale.fits || !filter.fits || exponent < -126 || exponent > 127) {
                    atomicOr(bad, 1u << row);
                }
                else if (CAUSAL && has_own &&
                         parts[p.reversed ? per_row - 1 : 0].first <
                             most * LEAST_FIRST) {
                    atomicOr(bad, 1u << (row + 16));
                }
            }
        }
        return scale.factor;
    }

    /*
     * Entry e of the filter is h[n], n from the last lag down or, reversed, from the
     * first lag up.  A thread has TAPS entries in flight while it loads data; only a
     * window of more than 12 lags has further entries, which it waits for.
     */
    static constexpr int TAPS = WHOLE ? 7 : 9, ENTRIES = TAPS * TOEPLITZ_THREADS;
    __device__ __forceinline__ void load_taps(T (&v)[TAPS], int first_lag,
                                              int begin) const
    {
        const int sign = p.reversed ? 1 : -1;
        const int origin = p.reversed ? TOEPLITZ_BLOCK * (first_lag - 1) + 1
                                      : TOEPLITZ_BLOCK * (first_lag + plan.window) - 1;
#pragma unroll
        for (int i = 0; i < TAPS; i++) {
            const int e = begin + i * TOEPLITZ_THREADS + tid, n = origin + sign * e;
            const bool is_in = e < entries && static_cast<unsigned>(n) < p.lags;
            v[i] = load_now(w + n * p.w_s, is_in);
        }
    }

    __device__ __forceinline__ split_scale put_filter(T (&v)[TAPS], int first_lag) const
    {
        split_scale scale{0.0f};
        if constexpr (SCALED) {
            float most = 0;
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                most = fmaxf(most, fabsf(v[i]));
            }
            for (int begin = ENTRIES; begin < entries; begin += ENTRIES) {
                T more[TAPS];
                load_taps(more, first_lag, begin);
#pragma unroll
                for (int i = 0; i < TAPS; i++) {
                    most = fmaxf(most, fabsf(more[i]));
                }
            }
            most = most_of_warp(most);
            if (lane == 0) {
                ranges[warp].most = most;
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < 4; i++) {
                most = fmaxf(most, ranges[i].most);
            }
            scale = split_scale(most);
        }
        Half *const copies = reinterpret_cast<Half *>(shared + plan.filter);
        for (int begin = 0; begin < entries; begin += ENTRIES) {
            if (begin > 0) {
                load_taps(v, first_lag, begin);
            }
#pragma unroll
            for (int i = 0; i < TAPS; i++) {
                const int e = begin + i * TOEPLITZ_THREADS + tid;
                if (e >= entries) {
                    break;
                }
                if constexpr (SCALED) {
                    const float scaled = v[i] * scale.factor;
                    const Half high = __float2half_rn(scaled);
                    store_filter(copies, copy_bytes, e, high);
                    if constexpr (PRODUCTS == 3) {
                        store_filter(copies + copy_bytes, copy_bytes, e,
                                     __float2half_rn(scaled - __half2float(high)));
                    }
                }
                else {
                    store_filter(copies, copy_bytes, e, v[i]);
                }
            }
        }
        return scale;
    }

    /* Column 0 of the chunk is block `start`. */
    __device__ __forceinline__ void load_chunk(int start, int first_lag) const
    {
        const int block = p.reversed ? plan.blocks - start - S : start;
        T tap[TAPS];
        load_taps(tap, first_lag, 0);
        if (!SCALED && plan.wide_x) { /* 16-bit values: cp.async */
            for (int s = 0; s < SEGMENTS; s++) {
                const bool is_row = first_batch + row_of(s) < batches;
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    const int t = block * TOEPLITZ_BLOCK + first_of(s) + j * STRIDE;
                    const bool is_in = is_row && static_cast<unsigned>(t) < p.steps;
                    copy_async(base + place(s, j), row_at(s) + t, is_in);
                }
            }
            put_filter(tap, first_lag);
            copy_async_wait();
        }
        else if (SCALED && plan.wide_x) {
            pack<T> v[SEGMENTS][LOADS];
#pragma unroll
            for (int s = 0; s < SEGMENTS; s++) {
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    v[s][j] = load(block, s, j);
                }
            }
            const split_scale filter = put_filter(tap, first_lag);
#pragma unroll
            for (int s = 0; s < SEGMENTS; s++) {
                see(v[s], s);
            }
            __syncwarp();
#pragma unroll
            for (int s = 0; s < SEGMENTS; s++) {
                const float factor = factor_of(s, filter, first_lag == 0);
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    put(v[s][j], s, j, factor);
                }
            }
        }
        else { /* one segment at a time, read twice, to save registers */
            const split_scale filter = put_filter(tap, first_lag);
            pack<T> v[LOADS];
#pragma unroll 1
            for (int s = 0; SCALED && s < SEGMENTS; s++) {
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    v[j] = load(block, s, j);
                }
                see(v, s);
            }
            __syncwarp();
#pragma unroll 1
            for (int s = 0; s < SEGMENTS; s++) {
                const float factor = factor_of(s, filter, first_lag == 0);
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    v[j] = load(block, s, j);
                }
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    put(v[j], s, j, factor);
                }
            }
        }
        fence_async_shared();
        __syncthreads();
    }

    /* The factors that undo the scaling of the thread's columns. */
    __device__ __forceinline__ void take_scales(float (&scale)[4]) const
    {
        const int q = lane % 4;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            scale[k] = 1;
            if constexpr (SCALED) {
                const int b = (8 * (k / 2) + 2 * q + k % 2) & (NB - 1);
                scale[k] =
                    __uint_as_float(static_cast<unsigned>(exponents[b] + 127) << 23);
            }
        }
    }
};

#endif
#endif
