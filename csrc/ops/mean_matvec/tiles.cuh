/*
 * tiles.cuh  What the rungs of mean_matvec share: the inputs as kernel arguments, sums
 * of rows, rows streamed at full width, one tile of the product.
 * Not here: who does which part when (cuda.cu), the contract (op.c).
 */
#ifndef GPO_MEAN_MATVEC_TILES_CUH
#define GPO_MEAN_MATVEC_TILES_CUH

#include <limits.h>
#include <type_traits>

#include "../../device/block.cuh"
#include "../../device/vec.cuh"
#include "mean_matvec.h"

/* What T is computed in. */
template <typename T>
using value_type = std::conditional_t<std::is_same_v<T, double>, double, float>;

/* ---- the arguments ---- */

/* The plan as a kernel argument; strides in elements, as in mean_matvec_plan. */
template <typename T>
struct mean_matvec_view {
    using V = value_type<T>;
    const T *x, *matrix;
    T *out;
    V *means; /* mean of row l of batch n: means[n * rows + l] */
    int64_t batches, rows, cols, outputs;
    int64_t x_batch, x_row, x_col;
    int64_t matrix_output, matrix_row;
    int64_t out_output, out_batch;

    __device__ __forceinline__ V matrix_at(int64_t i, int64_t l) const
    {
        return value_of(matrix[i * matrix_output + l * matrix_row]);
    }

    __device__ __forceinline__ void put(int64_t i, int64_t n, V value) const
    {
        out[i * out_output + n * out_batch] = stored_as<T>(value);
    }
};

/* ---- sums ---- */

struct add {
    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }
};

/* A long sum of floats, in double. */
template <typename V>
struct row_sum {
    double total = 0;

    __device__ __forceinline__ void add(V p)
    {
        total += p;
    }

    __device__ __forceinline__ V value() const
    {
        return static_cast<V>(total);
    }
};

/* A long sum of doubles that also keeps what each addition rounds away (TwoSum). */
template <>
struct row_sum<double> {
    double total = 0, lost = 0;

    __device__ __forceinline__ void add(double p)
    {
        const double sum = total + p;
        const double back = sum - total;
        lost += (total - (sum - back)) + (p - back);
        total = sum;
    }

    __device__ __forceinline__ double value() const
    {
        return lost - lost == 0 ? total + lost : total; /* after inf, `lost` is a nan */
    }
};

/* ---- rows streamed at full width ---- */

/* 16-byte loads a thread has in flight; 8 of 16-bit elements spill registers. */
template <typename T>
constexpr int SLOTS = sizeof(T) == 2 ? 4 : 8;

constexpr int THREADS = 256;    /* of a block that streams or multiplies tiles */
constexpr int BLOCKS = 2;       /* of them on a processor: 128 registers a thread */
constexpr int FEWEST_LANES = 8; /* on one row: 128 bytes side by side */
constexpr int STEPS = 4;        /* of SLOTS loads in an item: 128 KiB of x */

/*
 * How a block walks over rows.  A group of `lanes` lanes takes a row, `1 << shift` packs
 * of a row to a lane at a time, SLOTS >> shift rows at once.  A longer row takes several
 * chunks of 32 * SLOTS packs.  Rows come in spans, one stride apart: all rows of a tile
 * of batches, or those of one batch if a gap follows it.
 */
struct row_walk {
    int lanes, shift;
    int64_t chunks;       /* of a row */
    int per_step;         /* rows of a block at once */
    int per_item;         /* rows of an item of work */
    int64_t span_batches; /* of a span */
    unsigned per_span;    /* items of a span */
    unsigned streams;     /* items of a tile of batches */
    bool packed;          /* elements of a row are neighbours */
    bool even;            /* rows start on 16-byte boundaries and are whole packs */
};

/* Rows [0, rows): row r starts at x + r * stride, and its mean goes to means[r]. */
template <typename T>
struct row_span {
    const T *x;
    int64_t stride;
    int rows;
    value_type<T> *means;
};

/* Elements by which p lies behind a 16-byte boundary. */
template <typename T>
__device__ __forceinline__ int
skew_of(const T *p)
{
    return static_cast<int>(reinterpret_cast<uintptr_t>(p) & 15u) /
           static_cast<int>(sizeof(T));
}

/* The sum of one pack: its even and its odd elements, which takes few registers. */
template <typename T>
__device__ __forceinline__ value_type<T>
sum_pack(const pack<T> &p)
{
    value_type<T> even = value_of(p.v[0]), odd = value_of(p.v[1]);
#pragma unroll
    for (int k = 2; k < pack<T>::SIZE; k += 2) {
        even += value_of(p.v[k]);
        odd += value_of(p.v[k + 1]);
    }
    return even + odd;
}

/*
 * Starts the loads of one step: rows from `base` on.  Packs are counted from the last
 * 16-byte boundary before the row; those that lie in it whole are loaded.
 */
template <typename T>
__device__ __forceinline__ void
load_step(const row_span<T> &span, const row_walk &walk, int64_t cols, int base,
          int64_t chunk, pack<T> *loaded)
{
    constexpr int SIZE = pack<T>::SIZE;
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes, across = (1 << walk.shift) - 1;
    const int64_t past =
        (chunk << walk.shift) * walk.lanes * SIZE; /* in chunks before */
    const int64_t left = cols - past - SIZE;
    const int last = left < INT_MAX ? static_cast<int>(left) : INT_MAX;
    const int least = past > 0 ? -SIZE : 0; /* where the first whole pack may begin */
    const T *p = span.x + (base + group) * span.stride + past;
    int row = base + group, k = lane * SIZE;
#pragma unroll
    for (int u = 0; u < SLOTS<T>; u++) {
        const int begin = k - skew_of(p);
        loaded[u] = {};
        if (row < span.rows && begin >= least && begin <= last) {
            loaded[u] = load_pack(p + begin);
        }
        const bool full = (u & across) == across; /* the next slot is of another row */
        row += full ? groups : 0;
        p += full ? groups * span.stride : 0;
        k = full ? lane * SIZE : k + walk.lanes * SIZE;
    }
}

/* The sum over a group of lanes, in each of them. */
template <typename V>
__device__ __forceinline__ V
sum_lanes(V v, int lanes)
{
    for (int d = lanes / 2; d > 0; d /= 2) {
        v += __shfl_xor_sync(ALL_LANES, v, d);
    }
    return v;
}

/* What no pack holds of a row: at most one element before and one after for a lane. */
template <typename T>
__device__ __forceinline__ value_type<T>
ragged_ends(const T *p, int64_t cols, int lane)
{
    const int64_t head = elements_to_boundary(p, cols);
    const int64_t tail = cols - (cols - head) % pack<T>::SIZE;
    value_type<T> sum = 0;
    if (lane < head) {
        sum = value_of(p[lane]);
    }
    if (lane < cols - tail) {
        sum += value_of(p[tail + lane]);
    }
    return sum;
}

/* The means of a span whose elements have a stride, by one block. */
template <typename T>
__device__ __forceinline__ void
stream_strided(const mean_matvec_view<T> &v, const row_walk &walk,
               const row_span<T> &span)
{
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    for (int64_t base = 0; base < span.rows;
         base += groups) { /* whole warps go round */
        const int64_t row = base + group;
        row_sum<value_type<T>> sum;
        if (row < span.rows) {
            const T *p = span.x + row * span.stride;
#pragma unroll 1
            for (int64_t k = lane; k < v.cols; k += walk.lanes) {
                sum.add(value_of(p[k * v.x_col]));
            }
        }
        const value_type<T> total = sum_lanes(sum.value(), walk.lanes);
        if (lane == 0 && row < span.rows) {
            span.means[row] = total / static_cast<value_type<T>>(v.cols);
        }
    }
}

/* The means of a span, by one block. */
template <typename T>
__device__ __forceinline__ void
stream_rows(const mean_matvec_view<T> &v, const row_walk &walk, const row_span<T> &span)
{
    using V = value_type<T>;
    if (!walk.packed) {
        stream_strided(v, walk, span);
        return;
    }
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    pack<T> loaded[SLOTS<T>];
    row_sum<V> fold;
    int base = 0;
    int64_t chunk = 0;
    load_step(span, walk, v.cols, base, chunk, loaded);
#pragma unroll 1
    while (base < span.rows) {
        const int now = base;
        const bool complete = chunk + 1 == walk.chunks;
        V sum[SLOTS<T>];
#pragma unroll
        for (int u = 0; u < SLOTS<T>; u++) {
            sum[u] = sum_pack(loaded[u]);
        }
        chunk++;
        if (complete) {
            chunk = 0;
            base += walk.per_step;
        }
        load_step(span, walk, v.cols, base, chunk, loaded); /* flies while these meet */
#pragma unroll
        for (int level = 0; level < 3; level++) {
            if (walk.shift > level) {
#pragma unroll
                for (int u = 0; u < SLOTS<T> / (2 << level); u++) {
                    sum[u] = sum[2 * u] + sum[2 * u + 1];
                }
            }
        }
        if (walk.chunks > 1) { /* one row at a time */
            fold.add(sum[0]);
            if (!complete) {
                continue;
            }
            sum[0] = fold.value();
            fold = row_sum<V>();
        }
        /* Lane q keeps the sum of row q of those at once, divides and writes it. */
        const int at_once = SLOTS<T> / (1 << walk.shift);
        V mine = 0;
#pragma unroll
        for (int q = 0; q < SLOTS<T>; q++) {
            if (q < at_once) {
                const V total = sum_lanes(sum[q], walk.lanes);
                mine = lane == q ? total : mine;
            }
        }
        if (!walk.even) {
#pragma unroll 1
            for (int q = 0; q < at_once; q++) {
                const int row = now + q * groups + group;
                V ends = 0;
                if (row < span.rows) {
                    ends = ragged_ends(span.x + row * span.stride, v.cols, lane);
                }
                ends = sum_lanes(ends, walk.lanes);
                mine += lane == q ? ends : 0;
            }
        }
        const int row = now + lane * groups + group;
        if (lane < at_once && row < span.rows) {
            span.means[row] = mine / static_cast<V>(v.cols);
        }
    }
}

constexpr int TILE_OUTPUTS = 64, TILE_BATCHES = 32; /* of a tile of the product */

/* Item `part` of the streams of a tile of batches. */
template <typename T>
__device__ __forceinline__ void
stream_item(const mean_matvec_view<T> &v, const row_walk &walk, int64_t tile,
            unsigned part)
{
    const int64_t batch =
        tile * TILE_BATCHES + part / walk.per_span * walk.span_batches;
    const int64_t first = static_cast<int64_t>(part % walk.per_span) * walk.per_item;
    int64_t batches = v.batches - batch; /* 0 or less beyond the last one */
    batches = batches < walk.span_batches ? batches : walk.span_batches;
    int64_t left = batches * v.rows - first;
    left = left > 0 ? left : 0;
    const row_span<T> span = {
        v.x + batch * v.x_batch + first * v.x_row, v.x_row,
        static_cast<int>(left < walk.per_item ? left : walk.per_item),
        v.means + batch * v.rows + first};
    stream_rows(v, walk, span);
}

/* ---- one tile of the product ---- */

constexpr int SIDE = 4;        /* of a thread's square of it */
constexpr int SLICES = 2;      /* of the depth; each takes half of the threads */
constexpr int DEPTH_PACKS = 8; /* packs of the depth in shared memory at a time */
constexpr int STAGE_ROWS = TILE_OUTPUTS + TILE_BATCHES;
constexpr int STAGE_PACKS = DEPTH_PACKS + 1; /* 8 would put all rows into one bank */
constexpr int PACKS_PER_THREAD = STAGE_ROWS * DEPTH_PACKS / THREADS;

static_assert(TILE_OUTPUTS * TILE_BATCHES / (SIDE * SIDE) * SLICES == THREADS,
              "every thread has one square of one slice");
static_assert(STAGE_ROWS * DEPTH_PACKS % THREADS == 0, "a stage is whole turns");
static_assert(TILE_OUTPUTS * DEPTH_PACKS % THREADS == 0, "a turn has one source");

template <typename V>
struct product_stage {
    pack<V> rows[2][STAGE_ROWS][STAGE_PACKS];
};

static_assert(sizeof(product_stage<double>) >=
                  TILE_OUTPUTS * (TILE_BATCHES + 1) * sizeof(double),
              "the tile itself fits where its factors were");

/* Values l, l + 1, ... of row i of the matrix; 0 beyond its ends. */
template <typename T>
__device__ __forceinline__ pack<value_type<T>>
load_matrix(const mean_matvec_view<T> &v, bool wide, int64_t i, int64_t l)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<V>::SIZE;
    pack<V> out = {};
    if (i < v.outputs) {
        if constexpr (std::is_same_v<T, V>) {
            if (wide && l + SIZE <= v.rows) {
                return load_pack(v.matrix + i * v.matrix_output + l);
            }
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            if (l + u < v.rows) {
                out.v[u] = v.matrix_at(i, l + u);
            }
        }
    }
    return out;
}

/* Means l, l + 1, ... of batch n; 0 beyond the ends.  Not through the read-only path. */
template <typename T>
__device__ __forceinline__ pack<value_type<T>>
load_means(const mean_matvec_view<T> &v, int64_t n, int64_t l)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<V>::SIZE;
    pack<V> out = {};
    if (n < v.batches) {
        const V *p = v.means + n * v.rows + l;
        if (v.rows % SIZE == 0 && l < v.rows) {
            return pack_of<V>(*reinterpret_cast<const uint4 *>(p));
        }
#pragma unroll
        for (int u = 0; u < SIZE; u++) {
            if (l + u < v.rows) {
                out.v[u] = p[u];
            }
        }
    }
    return out;
}

/* Whether 16-byte loads may read the matrix. */
template <typename T>
__device__ __forceinline__ bool
is_wide(const mean_matvec_view<T> &v)
{
    return v.matrix_row == 1 && v.matrix_output % pack<T>::SIZE == 0 &&
           reinterpret_cast<uintptr_t>(v.matrix) % 16 == 0;
}

/*
 * Outputs [output, output + TILE_OUTPUTS) of batches [batch, batch + TILE_BATCHES), by
 * one block.  The depth goes through shared memory in stages; each slice of the threads
 * takes its part of every stage, and the slices meet at the end.
 */
template <typename T>
__device__ __forceinline__ void
product_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch,
             product_stage<value_type<T>> &stage)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<V>::SIZE;
    constexpr int OUTPUT_STEP = TILE_OUTPUTS / SIDE, BATCH_STEP = TILE_BATCHES / SIDE;
    constexpr int PACKS_PER_SLICE = DEPTH_PACKS / SLICES;
    const int tid = threadIdx.x, lane = tid % WARP;
    const int slice = tid / (THREADS / SLICES),
              warp = tid / WARP % (THREADS / SLICES / WARP);
    const int i = warp % (OUTPUT_STEP / 8) * 8 + lane % 8;
    const int n = warp / (OUTPUT_STEP / 8) * 4 + lane / 8;
    const int from = tid / DEPTH_PACKS, depth = tid % DEPTH_PACKS;
    const bool wide = is_wide(v);

    V acc[SIDE][SIDE] = {};
    pack<V> loaded[PACKS_PER_THREAD];
    const auto load = [&](int64_t l) {
#pragma unroll
        for (int u = 0; u < PACKS_PER_THREAD; u++) {
            const int r = from + u * (THREADS / DEPTH_PACKS);
            loaded[u] = u * (THREADS / DEPTH_PACKS) < TILE_OUTPUTS
                            ? load_matrix(v, wide, output + r, l + depth * SIZE)
                            : load_means(v, batch + r - TILE_OUTPUTS, l + depth * SIZE);
        }
    };

    int turn = 0;
    load(0);
#pragma unroll 1
    for (int64_t l = 0; l < v.rows; l += DEPTH_PACKS * SIZE) {
#pragma unroll
        for (int u = 0; u < PACKS_PER_THREAD; u++) {
            stage.rows[turn][from + u * (THREADS / DEPTH_PACKS)][depth] = loaded[u];
        }
        __syncthreads();
        if (l + DEPTH_PACKS * SIZE < v.rows) {
            load(l + DEPTH_PACKS * SIZE);
        }
#pragma unroll 1 /* else the whole kernel takes more than 128 registers */
        for (int k = 0; k < PACKS_PER_SLICE; k++) {
            const int column = slice * PACKS_PER_SLICE + k;
            pack<V> a[SIDE];
#pragma unroll
            for (int r = 0; r < SIDE; r++) {
                a[r] = stage.rows[turn][i + r * OUTPUT_STEP][column];
            }
#pragma unroll
            for (int c = 0; c < SIDE; c++) {
                const pack<V> b =
                    stage.rows[turn][TILE_OUTPUTS + n + c * BATCH_STEP][column];
#pragma unroll
                for (int u = 0; u < SIZE; u++) {
#pragma unroll
                    for (int r = 0; r < SIDE; r++) {
                        acc[r][c] += a[r].v[u] * b.v[u];
                    }
                }
            }
        }
        turn ^= 1;
    }

    /* The slices meet, one after the other, where the factors were. */
    V *tile = stage.rows[0][0][0].v;
    constexpr int PITCH = TILE_BATCHES + 1;
#pragma unroll 1
    for (int s = 0; s < SLICES; s++) {
        __syncthreads();
        if (slice == s) {
#pragma unroll
            for (int r = 0; r < SIDE; r++) {
#pragma unroll
                for (int c = 0; c < SIDE; c++) {
                    const int at = (i + r * OUTPUT_STEP) * PITCH + n + c * BATCH_STEP;
                    tile[at] = s == 0 ? acc[r][c] : tile[at] + acc[r][c];
                }
            }
        }
    }
    __syncthreads();
    const bool along_outputs = v.out_output == 1 && v.out_batch != 1;
    for (int e = tid; e < TILE_OUTPUTS * TILE_BATCHES; e += THREADS) {
        const int ei = along_outputs ? e % TILE_OUTPUTS : e / TILE_BATCHES;
        const int en = along_outputs ? e / TILE_OUTPUTS : e % TILE_BATCHES;
        if (output + ei < v.outputs && batch + en < v.batches) {
            v.put(output + ei, batch + en, tile[ei * PITCH + en]);
        }
    }
    __syncthreads(); /* before the next tile is staged */
}

#endif
