/*
 * tensor.cuh  v6 of causal_conv1d: tensor cores of sm_90a.
 * Order: the problem, rows computed exactly, forward and dx, their launcher.
 * Not here: the instructions (device/wgmma.cuh), the Toeplitz product
 * (device/toeplitz.cuh).
 */
#ifndef GPO_CAUSAL_CONV1D_TENSOR_CUH
#define GPO_CAUSAL_CONV1D_TENSOR_CUH

#include "rows.cuh"

#include <cmath>

/* Whether v6, which counts in 32 bits, can count batches, steps and blocks of a grid. */
static bool
tensor_counts(int64_t batches, int64_t channels, int64_t steps)
{
    constexpr int64_t MOST = int64_t(1) << 30;
    return steps < MOST && batches < MOST &&
           channels * ceil_div(batches, 8) * ceil_div(steps, 256) < MOST;
}

#ifdef __CUDACC__

#include "../../device/toeplitz.cuh"

/* ---- the problem ---- */

/*
 * The convolution of conv_view or, `reversed`, its mirror in time, which gives dx:
 * out[b,c,t] = sum of w[c,s] x[b,c,t+s] over lags s < T - t.
 */
template <typename T>
struct tensor_conv : conv_view<T> {
    bool reversed;
};

/* How the problem is cut; see tensor_cut. */
struct tensor_plan {
    int batch_shift; /* an item has NB = 1 << batch_shift batches: 16 or 8 */
    int batch_items; /* items along the batch */
    int blocks;      /* of 64 along time */
    int lags;        /* blocks of the filter that are not zero */
    int spans;       /* items along time */
    int window;      /* lags that lie in shared memory at once */
    uint32_t zero;   /* 0, see load_fragment */
    int staggered;   /* multiprocessors whose blocks do not begin together, or 0 */
    int pad;         /* columns of zeros that the last lags of a group reach */
    float growth;    /* see split_start */
    bool wide_x, wide_out; /* 16-byte loads, bulk stores */
    uint32_t high, low;    /* column 0 of the data, in shared memory */
    uint32_t filter, small, bytes;
};

constexpr int STAGE_PAD = 16;     /* bytes between rows of results: no bank conflicts */
constexpr int64_t STAGGER = 4500; /* clocks between blocks of a multiprocessor */

/* 16-bit type of the products. */
template <typename T>
struct tensor_half {
    using type = T;
};
template <>
struct tensor_half<float> {
    using type = f16;
};

/* ---- rows computed exactly ---- */

/*
 * Steps [from, to) of the batches in `rows`, in the order of v0, by the whole block: for
 * rows that the products cannot carry, with inf, NaN or sizes that no power of two brings
 * into range.
 */
template <typename T>
static __device__ __noinline__ void
exact_rows(const tensor_conv<T> &p, int c, int first_batch, unsigned rows, int from,
           int to)
{
    for (; rows; rows &= rows - 1) {
        const int64_t b = first_batch + __ffs(rows) - 1;
        const int64_t last = p.reversed ? p.steps - 1 : 0;
        const T *const x = p.x.row(b, c) + last * p.x.t;
        const int64_t stride = p.reversed ? -p.x.t : p.x.t;
        for (int64_t t = from + threadIdx.x; t < to; t += blockDim.x) {
            p.put(b, c, t, plain_step<1>(p, x, stride, c, p.reversed ? last - t : t));
        }
    }
}

/*
 * A value keeps 2^-40 of its row's largest, and the bound of an early result speaks of
 * early inputs alone: those may be smaller than this share of the largest, and are then
 * looked at once more.
 */
constexpr float LEAST_FIRST = 0x1p-17f;

/* Four results of a warp's head, 4 q .. 4 q + 3: four taps meet eight inputs. */
__device__ __forceinline__ void
add_up_four(const float *taps, int lags, const float *inputs, int q, float (&sum)[4])
{
    const float *const x = inputs + 4 * q;
    pack<float> late = shared_pack(x);
#pragma unroll 4
    for (int s = 0; s <= 4 * q && s < lags; s += 4) {
        const pack<float> early = shared_pack(x - s - 4), tap = shared_pack(taps + s);
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
}

/*
 * The early steps of rows that begin with values which the row's scale may round away:
 * those from the first input that is not 0 to the first one that has LEAST_FIRST of the
 * row's largest, if there are any.  A warp takes a row, finds them, and adds them up from
 * `room` floats of shared memory of its own, or in the order of v0 where they do not fit.
 */
static __device__ __noinline__ void
exact_heads(const tensor_conv<float> &p, int c, int first_batch, unsigned rows,
            int from, int to, float *space, int room)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int steps = static_cast<int>(p.steps), last = p.reversed ? steps - 1 : 0;
    const int64_t stride = p.reversed ? -p.x.t : p.x.t;
    const float *const w = p.w + c * p.w_c;
    constexpr int AHEAD = 8; /* loads in flight */
    for (int k = 0; rows; k++, rows &= rows - 1) {
        if (k % (TOEPLITZ_THREADS / WARP) != warp) {
            continue;
        }
        const int64_t b = first_batch + __ffs(rows) - 1;
        const float *const x = p.x.row(b, c) + last * p.x.t;
        const auto size_at = [&](int t) {
            return t < steps ? fabsf(x[t * stride]) : 0;
        };
        float most = 0;
        for (int t = lane; t < steps; t += AHEAD * WARP) {
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                most = fmaxf(most, size_at(t + i * WARP));
            }
        }
        const float least = most_of_warp(most) * LEAST_FIRST;
        int begin = -1, end = steps;
        for (int t = 0; t < steps && end == steps; t += AHEAD * WARP) {
            float size[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                size[i] = size_at(t + i * WARP + lane);
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                const unsigned some = __ballot_sync(ALL_LANES, size[i] > 0);
                const unsigned large =
                    __ballot_sync(ALL_LANES, size[i] > 0 && size[i] >= least);
                const int at = t + i * WARP - 1;
                begin = begin < 0 && some ? at + __ffs(some) : begin;
                end = end == steps && large ? at + __ffs(large) : end;
            }
        }
        if (begin < 0) {
            continue;
        }
        const int n = end - begin, fours = (n + 3) / 4;
        const int lags = static_cast<int>(p.lags < n ? p.lags : n);
        if (8 * fours + 4 > room) {
            for (int64_t t = from + lane; t < to; t += WARP) {
                const int64_t own = p.reversed ? last - t : t;
                if (own >= begin && own < end) {
                    p.put(b, c, t, plain_step<1>(p, x, stride, c, own));
                }
            }
            continue;
        }
        float *const taps = space, *const inputs = space + 4 * fours + 4;
        __syncwarp();
        for (int i = lane; i < 4 * fours + 4; i += WARP) { /* 4 zeros end the taps */
            taps[i] = i < lags ? w[i * p.w_s] : 0.0f;
        }
        for (int i = lane; i < 4 * fours; i += WARP) {
            inputs[i] = i < n ? x[(begin + i) * stride] : 0.0f;
        }
        __syncwarp();
        for (int q = lane; q < fours; q += WARP) {
            float sum[4] = {};
            add_up_four(taps, lags, inputs, q, sum);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int own = begin + 4 * q + i;
                const int t = p.reversed ? last - own : own;
                if (own < end && t >= from && t < to) {
                    p.put(b, c, t, sum[i]);
                }
            }
        }
    }
}

/* ---- forward and dx ---- */

/*
 * What a warp saw of a segment of floats; NaN does not count.  The bound grows with
 * sqrt(T), so a row may begin with LEAST_FIRST / (sqrt(T) / 2) of its largest value where
 * one of the next three has LEAST_FIRST of it.
 */
struct split_start {
    float most; /* largest magnitude */
    float
        first; /* the smaller of: the first value in the order of time times sqrt(T) / 2,
                    the largest of the first few */
};

/*
 * PRODUCTS is 1 or 3.  Time runs in blocks of 64; `reversed` counts them from the end,
 * and the filter is read the other way.  A group is 64 columns of results.  Either all of
 * a row fits into the 192 columns: the item computes its groups, the last one first.  Or
 * the item is one group of the row, and the lags pass by, 128 / NB at a time.
 * CHAIN: the sums of all lags stay in the tensor cores' registers, which leaves room for
 * groups of 96 columns.
 */
template <typename T, int PRODUCTS, bool WHOLE, bool CHAIN>
__global__ void
__launch_bounds__(TOEPLITZ_THREADS, !WHOLE           ? 2
                                    : sizeof(T) == 4 ? 3
                                                     : 4)
    causal_conv1d_v6_toeplitz(const __grid_constant__ tensor_conv<T> p,
                              const __grid_constant__ tensor_plan plan)
{
#ifdef GPO_HOPPER
    using Half = typename tensor_half<T>::type;
    constexpr bool SCALED = sizeof(T) == 4;
    constexpr bool CAUSAL = SCALED && PRODUCTS == 3 && !CHAIN; /* keeps the bound */
    constexpr int GROUP = CHAIN ? 96 : TOEPLITZ_GROUP, HALF = GROUP / 4;
    constexpr int SEGMENTS = 4, SEGMENT = 768;
    constexpr int VEC = 16 / sizeof(T), LOADS = SEGMENT / (WARP * VEC);
    extern __shared__ __align__(1024) unsigned char shared[];
    const uint32_t base = shared_address(shared);
    int *const exponents = reinterpret_cast<int *>(shared + plan.small); /* [16] */
    unsigned *const bad = reinterpret_cast<unsigned *>(exponents + 16);
    split_start *const ranges =
        reinterpret_cast<split_start *>(exponents + 20); /* [20] */

    /* where am I */
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int g = lane / 4, q = lane % 4;
    const int shift = plan.batch_shift, NB = 1 << shift, per_row = 16 >> shift;
    const int batches = static_cast<int>(p.batches), steps = static_cast<int>(p.steps);
    const int per_span = static_cast<int>(p.channels) * plan.batch_items;
    const int span = plan.spans - 1 - static_cast<int>(blockIdx.x) / per_span;
    const int item = static_cast<int>(blockIdx.x) % per_span;
    const int c = item / plan.batch_items;
    const int first_batch = item % plan.batch_items * NB;
    const int S = TOEPLITZ_COLUMNS >> shift,
              G = GROUP >> shift; /* blocks of a chunk, group */
    const T *const w = p.w + c * p.w_c;
    const float offset = p.offset(c);
    const uint32_t copy_bytes = filter_bytes(plan.window);

    if (tid == 0) {
        *bad = 0;
    }
    if (WHOLE && SCALED && static_cast<int>(blockIdx.x) < 3 * plan.staggered) {
        /* of three blocks on a multiprocessor one loads while another multiplies */
        const int64_t end = clock64() + blockIdx.x / plan.staggered * STAGGER;
        while (clock64() < end) {
            __nanosleep(100);
        }
    }
    if (WHOLE) { /* lags reach in front of the first block */
        const int words = plan.pad * 8;
        for (int i = tid; i < (PRODUCTS == 3 ? 2 : 1) * words; i += TOEPLITZ_THREADS) {
            const uint32_t to =
                i < words ? plan.high + i * 16 : plan.low + (i - words) * 16;
            *reinterpret_cast<uint4 *>(shared + to - plan.pad * 128) =
                make_uint4(0, 0, 0, 0);
        }
    }

    /*
     * A warp brings four segments of 768 values, each a row or a part of it.  Pack j of a
     * lane begins at value lane * VEC + j * STRIDE of the segment; it belongs to a column
     * of data and there lies at place(s, j) of a plane.
     */
    constexpr int STRIDE = WARP * VEC, BLOCKS_APART = STRIDE / TOEPLITZ_BLOCK;
    const auto row_of = [&](int s) { return ((warp * SEGMENTS + s) << shift) >> 4; };
    const auto first_of = [&](int s) {
        return ((warp * SEGMENTS + s) & (per_row - 1)) * SEGMENT + lane * VEC;
    };
    const auto place = [&](int s, int j) {
        const unsigned at = first_of(s), row = row_of(s), block = at / TOEPLITZ_BLOCK;
        const int first = ((p.reversed ? S - 1 - block : block) << shift) + row;
        const int apart = (p.reversed ? -BLOCKS_APART : BLOCKS_APART) << shift;
        return plan.high + (first + j * apart) * 128 + ((at / 8 % 8 ^ row % 8) << 4) +
               at % 8 * 2;
    };
    const auto row_at = [&](int s) { return p.x.row(first_batch + row_of(s), c); };
    const auto load = [&](int block, int s, int j) {
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
    };
    const auto put = [&](const pack<T> &v, int s, int j, float factor) {
        put_values<PRODUCTS>(shared + place(s, j), plan.low - plan.high, v, factor);
    };
    /* The lane that has the first value of segment s in the order of time. */
    const auto edge_of = [&](int s) {
        const bool is_end = ((warp * SEGMENTS + s + 1) & (per_row - 1)) == 0;
        return !CAUSAL || !p.reversed ? 0
               : WHOLE && is_end      ? 16 + (steps - 1) % 64 / VEC
                                      : WARP - 1;
    };
    const auto see = [&](const pack<T>(&v)[LOADS], int s) {
        if constexpr (SCALED) {
            float most = 0, begin = 0, end = 0; /* of the first pack, the last */
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
    };
    /*
     * The factor of the row of segment s; notes its exponent and whether the products
     * carry it, and where it begins with values too small beside later ones.
     */
    const auto factor_of = [&](int s, const split_scale &filter, bool has_own) {
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
    };
    /*
     * Entry e of the filter is h[n], n from the last lag down or, reversed, from the first
     * lag up.  A thread has TAPS entries in flight while it asks for data; only a window
     * longer than 12 lags waits for the rest.
     */
    constexpr int TAPS = WHOLE ? 7 : 9, ENTRIES = TAPS * TOEPLITZ_THREADS;
    const int entries = TOEPLITZ_BLOCK * (plan.window + 1);
    const auto load_taps = [&](T(&v)[TAPS], int first_lag, int begin) {
        const int sign = p.reversed ? 1 : -1;
        const int origin = p.reversed ? TOEPLITZ_BLOCK * (first_lag - 1) + 1
                                      : TOEPLITZ_BLOCK * (first_lag + plan.window) - 1;
#pragma unroll
        for (int i = 0; i < TAPS; i++) {
            const int e = begin + i * TOEPLITZ_THREADS + tid, n = origin + sign * e;
            const bool is_in = e < entries && static_cast<unsigned>(n) < p.lags;
            v[i] = load_now(w + n * p.w_s, is_in);
        }
    };
    const auto put_filter = [&](T(&v)[TAPS], int first_lag) {
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
    };
    /* Column 0 of the chunk is block `start`. */
    const auto load_chunk = [&](int start, int first_lag) {
        const int block = p.reversed ? plan.blocks - start - S : start;
        T tap[TAPS];
        load_taps(tap, first_lag, 0);
        if (!SCALED && plan.wide_x) { /* 16-bit values go where they belong */
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
        else { /* a segment at a time, twice, to hold few registers */
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
    };

    if constexpr (WHOLE) {
        load_chunk(0, 0);
    }
    const int groups = WHOLE ? (plan.blocks + G - 1) / G : 1;
#pragma unroll 1
    for (int group = groups - 1; group >= 0; group--) {
        const int first_block = WHOLE ? group * G : span * G; /* of the group */
        const int column = WHOLE ? group * GROUP : TOEPLITZ_COLUMNS - GROUP;
        const int chunks =
            WHOLE ? 1
                  : (min(plan.lags, first_block + G) + plan.window - 1) / plan.window;
        float sum[2][HALF] = {}; /* of the earlier and the later columns */
#pragma unroll 1
        for (int chunk = 0; chunk < chunks; chunk++) {
            const int first_lag = chunk * plan.window;
            if constexpr (!WHOLE) {
                load_chunk(first_block - first_lag - plan.window, first_lag);
            }

            const int p0 =
                p.reversed ? TOEPLITZ_BLOCK - 1 : TOEPLITZ_BLOCK * plan.window - 1;
            const int row0 = p0 - 16 * warp - g + 2 * q; /* odd: the second copy */
            const uint32_t filter_high =
                base + plan.filter + (row0 & 1 ? copy_bytes : 0) + (row0 >> 1) * 4;
            const int filter_step =
                (p.reversed ? 1 : -1) * TOEPLITZ_BLOCK * static_cast<int>(sizeof(Half));
            const wgmma_operand data(base + plan.high);
            const uint32_t low_step = (plan.low - plan.high) / 128; /* in columns */

            float scale[4] = {1, 1, 1, 1};
            if constexpr (SCALED) {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const int b = (8 * (k / 2) + 2 * q + k % 2) & (NB - 1);
                    scale[k] = __uint_as_float(static_cast<unsigned>(exponents[b] + 127)
                                               << 23);
                }
            }
            /* part (+)= the product of a lag; columns from `first` on, in COUNT parts */
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
            /* lags that reach all columns, then those that reach the later half alone */
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
         * finish: rows of results lie where the data of these columns lay, which the
         * groups to come do not read, and leave as whole rows in the background.  Half of
         * the rows lie `gap` values behind the others; a few bytes reach into the next
         * columns, whose rows have left.
         */
        const auto stage = [&](auto first_tuple, auto tuples, auto *to, int gap) {
            using Staged = std::remove_reference_t<decltype(*to)>;
            constexpr int FIRST = decltype(first_tuple)::value;
            constexpr int COUNT = decltype(tuples)::value;
            const int wide = TOEPLITZ_BLOCK * (32 * COUNT >> shift);
            const int pitch = wide + STAGE_PAD / static_cast<int>(sizeof(Staged));
            const int flow = p.reversed ? -TOEPLITZ_BLOCK : TOEPLITZ_BLOCK;
            const int start = p.reversed ? wide - TOEPLITZ_BLOCK : 0;
            /* column 8 k + 2 q + e: what depends on the lane, then what does not */
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
            const int wide = TOEPLITZ_BLOCK * G; /* steps of a row */
            const int pitch = wide + STAGE_PAD / static_cast<int>(sizeof(T));
            const int t0 = (last_block - G) * TOEPLITZ_BLOCK;
            const int begin = max(t0, 0), end = min(t0 + wide, steps);
            T *const rows = reinterpret_cast<T *>(freed);
            const int gap =
                SCALED ? (plan.low - plan.high) / sizeof(T) : NB / 2 * pitch;
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
    /* rows that the products do not carry */
    __syncthreads();
    const unsigned rows = (1u << min(NB, batches - first_batch)) - 1;
    const unsigned mine = *bad & rows, heads = *bad >> 16 & rows & ~mine;
    if (!(mine | heads)) {
        bulk_wait_read();
    }
    else {
        bulk_wait();
        __syncthreads();
        const int begin = WHOLE ? 0 : span * G;
        const int end = WHOLE ? plan.blocks : min(plan.blocks, begin + G);
        const int from = (p.reversed ? plan.blocks - end : begin) * TOEPLITZ_BLOCK;
        const int to = min(steps, from + (end - begin) * TOEPLITZ_BLOCK);
        exact_rows(p, c, first_batch, mine, from, to);
        if constexpr (CAUSAL) {
            const int room = static_cast<int>(plan.small) / 64 * 4; /* of a warp */
            exact_heads(p, c, first_batch, heads, from, to,
                        reinterpret_cast<float *>(shared) + warp * room, room);
        }
    }
#endif
}

/* ---- launcher ---- */

/* Whether rows begin and end at multiples of 16 bytes. */
template <typename T>
static bool
is_wide(const row_view<T> &rows, int64_t steps)
{
    return rows.t == 1 && packs_are_even(rows, steps);
}

/*
 * NB is 8 where there are at most 8 batches, else 16.  A row of at most 12288 / NB values
 * is one item, a longer one an item for each 4096 / NB results.
 */
template <typename T>
static tensor_plan
tensor_cut(const tensor_conv<T> &p, int products, bool chain)
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

    plan.wide_x = is_wide(p.x, p.steps);
    plan.wide_out = is_wide(p.out, p.steps);
    plan.growth = std::fmax(1.0f, std::sqrt(static_cast<float>(p.steps)) / 2);

    plan.pad = !is_whole ? 0 : !chain ? 24 : NB == 16 ? 32 : 40;
    const uint32_t plane = TOEPLITZ_COLUMNS * 128 + 16 * STAGE_PAD;
    plan.high = plan.pad * 128;
    plan.low = plan.high; /* of one product in float32: for results */
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

template <typename T, int PRODUCTS, bool CHAIN>
static gpo_status
tensor_launch(gpo_call *call, const tensor_conv<T> &p)
{
    tensor_plan plan = tensor_cut(p, PRODUCTS, CHAIN);
    const dim3 grid =
        grid_of(static_cast<int64_t>(plan.spans) * plan.batch_items * p.channels);
    const dim3 block(TOEPLITZ_THREADS);
    const unsigned processors = gpo_processors(call);
    plan.staggered = grid.x > 6 * processors ? static_cast<int>(processors) : 0;
    const auto kernel = plan.spans == 1
                            ? causal_conv1d_v6_toeplitz<T, PRODUCTS, true, CHAIN>
                            : causal_conv1d_v6_toeplitz<T, PRODUCTS, false, false>;
    gpo_allow_shared(kernel, plan.bytes);
    return GPO_LAUNCH(call, grid, block, plan.bytes, kernel, p, plan);
}

/* to[i, c, r] = from[i, r, c]; a block has one 32 x 32 tile. */
template <typename T>
__global__ void __launch_bounds__(256)
    tensor_swap(const T *from, T *to, int64_t rows, int64_t cols)
{
    GPO_SHARED(T, tile, [32][33]);
    const int64_t across = (cols + 31) / 32, down = (rows + 31) / 32;
    const int64_t i = blockIdx.x / (across * down), in = blockIdx.x % (across * down);
    const int64_t r0 = in / across * 32, c0 = in % across * 32;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    from += i * rows * cols;
    to += i * rows * cols;
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        if (r0 + y + k < rows && c0 + x < cols) {
            tile[y + k][x] = from[(r0 + y + k) * cols + c0 + x];
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        if (c0 + y + k < cols && r0 + x < rows) {
            to[(c0 + y + k) * rows + r0 + x] = tile[x][y + k];
        }
    }
}

template <typename T>
static gpo_status
tensor_swapped(gpo_call *call, const T *from, T *to, int64_t n, int64_t rows,
               int64_t cols)
{
    const dim3 grid(static_cast<unsigned>(n * ((rows + 31) / 32) * ((cols + 31) / 32)));
    return GPO_LAUNCH(call, grid, dim3(256), 0, (tensor_swap<T>), from, to, rows, cols);
}

/* Whether rows lie as (B, T, C) without gaps. */
template <typename T>
static bool
is_btc(const row_view<T> &rows, int64_t channels, int64_t steps)
{
    return rows.c == 1 && rows.t == channels && rows.b == channels * steps &&
           channels > 1 && steps > 1;
}

template <typename View>
static gpo_status
tensor_check(gpo_call *call, const View &v)
{
    if (tensor_counts(v.batches, v.channels, v.steps)) {
        return GPO_OK;
    }
    return gpo_fail(call, GPO_EVARIANT,
                    "%s(): v6 takes fewer than 2**30 steps, batches and tiles of 8 "
                    "batches x 256 steps; v5 takes any number",
                    call->op->name);
}

/* The rows, or if they are (B, T, C) a copy with the steps of a row side by side. */
template <typename T>
static gpo_status
tensor_rows(gpo_call *call, int64_t batches, int64_t channels, int64_t steps,
            row_view<const T> *rows)
{
    if (batches == 0 || !is_btc(*rows, channels, steps)) {
        return GPO_OK;
    }
    void *memory;
    gpo_status status =
        gpo_scratch(call, batches * channels * steps * sizeof(T), &memory);
    if (!status) {
        T *const turned = static_cast<T *>(memory);
        status = tensor_swapped(call, rows->p, turned, batches, steps, channels);
        *rows = {turned, channels * steps, steps, 1};
    }
    return status;
}

/*
 * Forward, and dx, whose rows have their last step first.  A (B, T, C) array is turned
 * in workspace of its size, for a row's values must be neighbours; other strides are read
 * one value at a time.
 */
template <typename T>
static gpo_status
conv_v6(gpo_call *call, const conv_view<T> &view)
{
    tensor_conv<T> p = {view, view.out.t < 0};
    gpo_status status = tensor_check(call, view);
    if (p.reversed) {
        const int64_t last = p.steps - 1;
        p.x = {p.x.p + last * p.x.t, p.x.b, p.x.c, -p.x.t};
        p.out = {p.out.p + last * p.out.t, p.out.b, p.out.c, -p.out.t};
    }
    if (!status) {
        status = tensor_rows(call, p.batches, p.channels, p.steps, &p.x);
    }
    const row_view<T> out = p.out;
    const bool is_turned = is_btc(out, p.channels, p.steps);
    if (!status && is_turned) {
        void *memory;
        status =
            gpo_scratch(call, p.batches * p.channels * p.steps * sizeof(T), &memory);
        p.out = {static_cast<T *>(memory), p.channels * p.steps, p.steps, 1};
    }
    if (status) {
        return status;
    }
    if constexpr (sizeof(T) == 2) {
        status = tensor_launch<T, 1, true>(call, p);
    }
    else {
        status = p.precision == PRECISION_FP32   ? tensor_launch<T, 3, false>(call, p)
                 : p.precision == PRECISION_FAST ? tensor_launch<T, 3, true>(call, p)
                                                 : tensor_launch<T, 1, true>(call, p);
    }
    if (!status && is_turned) {
        const T *const turned = p.out.p;
        status = tensor_swapped(call, turned, out.p, p.batches, p.channels, p.steps);
    }
    return status;
}

#else

/* The simulator has none of these instructions; gpo_variant.needs keeps calls away. */
template <typename T>
static gpo_status
conv_v6(gpo_call *call, const conv_view<T> &)
{
    return gpo_fail(call, GPO_EUNSUPPORTED, "%s(): v6 needs sm_90a", call->op->name);
}

#endif
#endif
