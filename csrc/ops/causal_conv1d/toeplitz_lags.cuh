/*
 * toeplitz_lags.cuh  The part of the gradient of the filters that a block of v6
 * computes: how it loads rows of x and dy into shared memory, and reduces its threads'
 * sums to lags.
 * See ladder/v6_toeplitz_lags.cu for the products.
 */
#ifndef GPO_CAUSAL_CONV1D_TOEPLITZ_LAGS_CUH
#define GPO_CAUSAL_CONV1D_TOEPLITZ_LAGS_CUH

#include "tensor.cuh"

#include "toeplitz.cuh"

/* ---- the plan ---- */

struct tensor_lags_plan {
    int batch_shift, batch_items; /* as in tensor_plan */
    int chunks;                   /* of 192 columns along time */
    int lags;                     /* lags of 64 that are not zero */
    int windows;                  /* items along the lags */
    bool wide_x, wide_dy;
    int operands;                     /* in shared memory */
    uint32_t x, dy, split, turn, raw; /* byte offsets and strides there */
    uint32_t parts, small, bytes;
};

constexpr int TAPS_GROUPS = 3, TAPS_THREADS = TAPS_GROUPS * TOEPLITZ_THREADS;
constexpr int TAPS_LAGS = 12; /* of a window; windows overlap by one lag */
constexpr int TAPS_TILES = TAPS_LAGS / TAPS_GROUPS;
constexpr int TAPS_PAD = 16; /* rows of zeros: products read up to 15 rows too many */
constexpr uint32_t TAPS_BYTES = (TOEPLITZ_COLUMNS + TAPS_PAD) * 128;

/* The largest values of x, or of dy, in each 128 of a chunk's 16 segments of 768. */
struct row_sizes {
    float most[2][16][6];

    /* The largest of row `row`, which has `segments` segments; 0 after the last row. */
    __device__ __forceinline__ float of_row(int z, int row, int segments) const
    {
        float of = 0;
        for (int s = row * segments; s < (row + 1) * segments && s < 16; s++) {
#pragma unroll
            for (int i = 0; i < 6; i++) {
                of = fmaxf(of, most[z][s][i]);
            }
        }
        return of;
    }
};

/*
 * The error of a value is up to 2^-40 of the largest one, which may be in the row of
 * another batch.  With n rows of T <= 768 steps a lag errs by at most 2^-39 n T max(x)
 * max(dy), where sqrt(T) 2^-23 norm(x) norm(dy) of one row is allowed: in some row the
 * product of both maxima must be at least this share of max(x) max(dy).
 */
constexpr float LEAST_TOGETHER = 0x1p-7f;

/* The plan for a call; *staged: whether the STAGED kernel is used, see there. */
template <typename T, int PRODUCTS>
tensor_lags_plan
tensor_lags_cut(const lag_view<T> &p, bool *staged)
{
    tensor_lags_plan plan = {};
    const int NB = p.batches > 8 ? 16 : 8;
    const int blocks = static_cast<int>(ceil_div(p.steps, TOEPLITZ_BLOCK));
    plan.batch_shift = NB == 16 ? 4 : 3;
    plan.batch_items = static_cast<int>(ceil_div(p.batches, NB));
    plan.chunks = (blocks * NB + TOEPLITZ_COLUMNS - 1) / TOEPLITZ_COLUMNS;
    plan.lags = static_cast<int>((p.lags + 62) / TOEPLITZ_BLOCK) + 1;
    plan.lags = plan.lags < blocks ? plan.lags : blocks;
    plan.windows = plan.lags <= TAPS_LAGS
                       ? 1
                       : (plan.lags - TAPS_LAGS + TAPS_LAGS - 2) / (TAPS_LAGS - 1) + 1;
    plan.wide_x = is_wide(p.x, p.steps);
    plan.wide_dy = is_wide(p.g, p.steps);
    const bool is_staged =
        plan.chunks == 1 && plan.windows == 1 && plan.wide_x && plan.wide_dy;
    const bool by_turns = is_staged && sizeof(T) == 2;

    plan.x = 0;
    plan.dy = TAPS_BYTES;
    plan.split = PRODUCTS == 3 ? 2 * TAPS_BYTES : 0; /* from high to low */
    plan.turn = 2 * TAPS_BYTES;
    plan.operands = PRODUCTS == 3 || by_turns ? 4 : 2;
    plan.raw = plan.operands * TAPS_BYTES;
    const uint32_t raw_bytes =
        static_cast<uint32_t>(is_staged ? 2 * NB * p.steps * sizeof(T) : 0);
    const uint32_t parts_bytes = TAPS_LAGS * 4 * 80 * sizeof(float);
    if (by_turns) { /* the next rows are loaded while the sums are combined */
        plan.parts = plan.raw;
        plan.small = plan.parts + parts_bytes;
    }
    else {
        plan.parts = plan.x;
        plan.small = plan.raw + raw_bytes;
    }
    plan.bytes = plan.small + sizeof(row_sizes) + 16;

    *staged = is_staged;
    return plan;
}

/* ---- a block ---- */

/* The whole block sums lags [from, to) directly: the products cannot represent them. */
template <typename T>
static __device__ __noinline__ void
exact_lags(const lag_view<T> &v, int c, int from, int to)
{
    for (int64_t s = from + threadIdx.x; s < to; s += blockDim.x) {
        v.put(c, s, direct_lag<1>(v, 0, v.batches, c, s));
    }
}

#ifdef GPO_HOPPER

template <typename T, int PRODUCTS, bool STAGED>
struct toeplitz_lags {
    static constexpr bool SCALED = sizeof(T) == 4, TURNS = STAGED && !SCALED;
    static constexpr int SEGMENT = 768, VEC = 16 / sizeof(T), PACKS = SEGMENT / VEC;
    static constexpr int LOADS = 16 * PACKS / TAPS_THREADS;
    static constexpr int UNROLL = STAGED ? 4 : 2;

    const lag_view<T> &p;
    const tensor_lags_plan &plan;
    unsigned char *const shared;
    const uint32_t base;
    float *const parts;
    row_sizes &sizes;
    unsigned *const bad;
    const uint32_t barrier;
    const int tid, lane, warp; /* of a warpgroup */
    const int group, g, q;
    const int shift, NB, per_row;
    const int S; /* blocks of a chunk */
    const int batches, steps, lags;
    const int items;
    const int first_segment, in_segment;

    __device__ __forceinline__ toeplitz_lags(const lag_view<T> &view,
                                             const tensor_lags_plan &cut,
                                             unsigned char *memory)
        : p(view), plan(cut), shared(memory), base(shared_address(memory)),
          parts(reinterpret_cast<float *>(memory + cut.parts)),
          sizes(*reinterpret_cast<row_sizes *>(memory + cut.small)),
          bad(reinterpret_cast<unsigned *>(&sizes + 1)),
          barrier(base + cut.small + sizeof(row_sizes) + 8), tid(threadIdx.x),
          lane(tid % WARP), warp(tid / WARP % 4),
          group(__shfl_sync(ALL_LANES, tid / TOEPLITZ_THREADS, 0)), g(lane / 4),
          q(lane % 4), shift(cut.batch_shift), NB(1 << shift), per_row(16 >> shift),
          S(TOEPLITZ_COLUMNS >> shift), batches(static_cast<int>(view.batches)),
          steps(static_cast<int>(view.steps)), lags(static_cast<int>(view.lags)),
          items(static_cast<int>(view.channels) * cut.windows),
          first_segment(tid / PACKS), in_segment(tid % PACKS * VEC)
    {
    }

    /* Pack j of this thread: its row, index in the chunk's row, offset in a plane. */
    static constexpr int AT_ONCE = TAPS_THREADS / PACKS; /* segments */
    __device__ __forceinline__ int row_of(int j) const
    {
        return (j * AT_ONCE + first_segment) << shift >> 4;
    }

    __device__ __forceinline__ unsigned at_of(int j) const
    {
        return ((j * AT_ONCE + first_segment) & (per_row - 1)) * SEGMENT + in_segment;
    }

    __device__ __forceinline__ uint32_t place_of(int j) const
    {
        const unsigned at = at_of(j);
        const int column = (at / TOEPLITZ_BLOCK << shift) + row_of(j);
        return swizzled(column, at / 8 % 8) + at % 8 * 2;
    }

    /* Starts copying the rows of NB batches, at most 12288 / NB values each. */
    __device__ __forceinline__ void stage(int item, int first_batch, int turn) const
    {
        if (!STAGED || item >= items) {
            return;
        }
        const int64_t c = item / plan.windows;
        if constexpr (TURNS) {
#pragma unroll
            for (int z = 0; z < 2; z++) {
                const T *const from = z ? p.g.row(0, c) : p.x.row(0, c);
                const int64_t b_stride = z ? p.g.b : p.x.b;
#pragma unroll
                for (int j = 0; j < LOADS; j++) {
                    const int b = first_batch + row_of(j), t = at_of(j);
                    const uint32_t to =
                        (z ? plan.dy : plan.x) + turn * plan.turn + place_of(j);
                    copy_async(base + to, from + b * b_stride + t,
                               b < batches && t < steps);
                }
            }
        }
        else if (tid == 0) {
            const int rows = min(NB, batches - first_batch);
            const uint32_t bytes = steps * sizeof(T);
            bulk_barrier_expect(barrier, 2 * rows * bytes);
            for (int b = 0; b < rows; b++) {
                bulk_load(base + plan.raw + b * bytes, p.x.row(first_batch + b, c),
                          bytes, barrier);
                bulk_load(base + plan.raw + (NB + b) * bytes,
                          p.g.row(first_batch + b, c), bytes, barrier);
            }
        }
    }

    /* Pack j, of dy where `of_dy`, else of x. */
    __device__ __forceinline__ pack<T> fetch(bool of_dy, int c, int first_batch,
                                             int block, int j) const
    {
        const int row = row_of(j), b = first_batch + row;
        const int t = block * TOEPLITZ_BLOCK + at_of(j);
        uint4 bits = make_uint4(0, 0, 0, 0);
        if constexpr (STAGED) {
            if (b < batches && t < steps) {
                const uint32_t at = ((of_dy ? NB : 0) + row) * steps + t;
                bits = *reinterpret_cast<const uint4 *>(shared + plan.raw +
                                                        at * sizeof(T));
            }
            return pack_of<T>(bits);
        }
        const T *const from = of_dy ? p.g.row(b, c) : p.x.row(b, c);
        if (of_dy ? plan.wide_dy : plan.wide_x) {
            return pack_of<T>(load_now(reinterpret_cast<const uint4 *>(from + t),
                                       b < batches && t < steps));
        }
        const int64_t stride = of_dy ? p.g.t : p.x.t;
        pack<T> v;
#pragma unroll
        for (int e = 0; e < VEC; e++) {
            v.v[e] = b < batches && t + e < steps ? from[(t + e) * stride] : T(0.0f);
        }
        return v;
    }

    __device__ __forceinline__ void put(const pack<T> &v, bool of_dy, int j,
                                        float factor) const
    {
        put_values<PRODUCTS>(shared + (of_dy ? plan.dy : plan.x) + place_of(j),
                             plan.split, v, factor);
    }

    /* Clears the mark and puts zeros behind the last columns. */
    __device__ __forceinline__ void begin() const
    {
        if (tid == 0) {
            *bad = 0;
            if (STAGED && SCALED) {
                bulk_barrier_start(barrier);
                fence_async_shared();
            }
        }
        for (int r = tid; r < plan.operands * TAPS_PAD * 8; r += TAPS_THREADS) {
            *reinterpret_cast<uint4 *>(
                shared + r / (TAPS_PAD * 8) * TAPS_BYTES + TOEPLITZ_COLUMNS * 128 +
                r % (TAPS_PAD * 8) * 16) = make_uint4(0, 0, 0, 0);
        }
        __syncthreads();
    }

    /*
     * Puts a chunk of dy, and of x `apart` chunks before it, where the products read
     * them.  Returns the factor that undoes their scaling.
     */
    __device__ __forceinline__ float take(int c, int first_batch, int chunk, int apart,
                                          uint32_t turn) const
    {
        float scale = 1;
        if constexpr (TURNS) {
            copy_async_wait();
        }
        else {
            float factor[2] = {1, 1};
            if constexpr (STAGED) {
                bulk_barrier_wait(barrier, turn & 1);
            }
            if constexpr (SCALED) {
#pragma unroll
                for (int z = 0; z < 2; z++) {
#pragma unroll UNROLL
                    for (int j = 0; j < LOADS; j++) {
                        const pack<T> v =
                            fetch(z, c, first_batch, (chunk - (z ? 0 : apart)) * S, j);
                        float most = 0;
#pragma unroll
                        for (int e = 0; e < VEC; e++) {
                            most = fmaxf(most, fabsf(v.v[e]));
                        }
                        most = most_of_warp(most);
                        if (lane == 0) {
                            sizes.most[z][j * AT_ONCE + first_segment]
                                      [tid % PACKS / WARP] = most;
                        }
                    }
                }
                __syncthreads();
                int exponent = 0;
                bool is_safe = true;
                float most_together = 1, together = 1;
#pragma unroll
                for (int z = 0; z < 2; z++) {
                    const float own = sizes.of_row(z, lane, per_row);
                    const float most = most_of_warp(own);
                    const split_scale s(most);
                    factor[z] = s.factor;
                    exponent += s.exponent;
                    is_safe = is_safe && s.fits;
                    most_together *= most * s.factor;
                    together *= own * s.factor;
                }
                is_safe =
                    is_safe && most_of_warp(together) >= LEAST_TOGETHER * most_together;
                if (tid == 0 && (!is_safe || exponent < -126 || exponent > 127)) {
                    *bad = 1;
                }
                exponent = max(-126, min(127, exponent));
                scale = __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
            }
#pragma unroll
            for (int z = 0; z < 2; z++) {
#pragma unroll UNROLL
                for (int j = 0; j < LOADS; j++) {
                    put(fetch(z, c, first_batch, (chunk - (z ? 0 : apart)) * S, j), z,
                        j, factor[z]);
                }
            }
        }
        return scale;
    }

    /* Reduces the threads' sums to a window of lags of channel c; repairs them. */
    __device__ __forceinline__ void finish(const float (&diagonal)[TAPS_TILES][2][9],
                                           const int (&lag_of)[TAPS_TILES], int c,
                                           int first_lag) const
    {
        /*
         * Element (e, m) of a lane is on diagonal 8 m + g - r - 56 + 16 warp, where r =
         * 2 q + e.  A lane takes it from the lane whose g is r more; then 8 m + g is
         * the diagonal, or 8 (m - 1) + g where g + r wraps around.
         */
        constexpr int U = 80;
#pragma unroll
        for (int l = 0; l < TAPS_TILES; l++) {
            float whole[10] = {};
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int from = g + 2 * q + e;
                const bool is_round = from >= 8;
                float before = 0;
#pragma unroll
                for (int m = 0; m < 9; m++) {
                    const float v =
                        __shfl_sync(ALL_LANES, diagonal[l][e][m], from % 8 * 4 + q);
                    whole[m] += is_round ? v : before;
                    before = v;
                }
                whole[9] += is_round ? 0 : before;
            }
#pragma unroll
            for (int m = 0; m < 10; m++) {
                whole[m] += __shfl_xor_sync(ALL_LANES, whole[m], 1);
                whole[m] += __shfl_xor_sync(ALL_LANES, whole[m], 2);
                if (q == m % 4) {
                    parts[(lag_of[l] * 4 + warp) * U + 8 * m + g] = whole[m];
                }
            }
        }
        __syncthreads();
        constexpr int TAPS = TAPS_LAGS * TOEPLITZ_BLOCK, OUTPUTS = TAPS / TAPS_THREADS;
        const int first_tap = first_lag * TOEPLITZ_BLOCK;
        const bool is_end = first_lag + TAPS_LAGS >= plan.lags; /* else the next window
                                                                   has the last lag */
        const int end = min(lags - first_tap, is_end ? TAPS : TAPS - TOEPLITZ_BLOCK);
        bool is_finite = true;
#pragma unroll
        for (int o = 0; o < OUTPUTS; o++) {
            const int n = o * TAPS_THREADS + tid;
            float sum = 0;
#pragma unroll
            for (int z = 0; z < 2; z++) { /* below and above the diagonal of a tile */
                const int lag = n / TOEPLITZ_BLOCK + z;
                const int d = n % TOEPLITZ_BLOCK - z * TOEPLITZ_BLOCK;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int u = d + TOEPLITZ_BLOCK - 16 * i;
                    if (lag < TAPS_LAGS && u >= 0 && u < U) {
                        sum += parts[(lag * 4 + i) * U + u];
                    }
                }
            }
            if (n < end) {
                is_finite = is_finite && fabsf(sum) <= 3.402823466e38f;
                p.put(c, first_tap + n, sum);
            }
        }
        const bool is_bad = __syncthreads_or(!is_finite || *bad);
        if (tid == 0) {
            *bad = 0;
        }
        if (is_bad) {
            exact_lags(p, c, first_tap, first_tap + end);
        }
    }
};

#endif
#endif
