/*
 * tiles.cuh  What the rungs of mean_matvec share: the inputs as kernel arguments, sums
 * of rows, rows streamed at full width, one tile of the product.
 * Not here: who does which part when (cuda.cu), the contract (op.c).
 */
#ifndef GPO_MEAN_MATVEC_TILES_CUH
#define GPO_MEAN_MATVEC_TILES_CUH

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
    V *means; /* mean of row l of batch n: means[n * pitch + l] */
    int64_t batches, rows, cols, outputs;
    int64_t x_batch, x_row, x_col;
    int64_t matrix_output, matrix_row;
    int64_t out_output, out_batch;
    int64_t pitch; /* rows, rounded up to whole packs of V */

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

constexpr int THREADS = 256;    /* of a block that streams or multiplies tiles */
constexpr int BLOCKS = 2;       /* of them on a processor: 128 registers a thread */
constexpr int SLOTS = 8;        /* 16-byte loads a thread has in flight */
constexpr int FEWEST_LANES = 8; /* on one row: 128 bytes side by side */
constexpr int STEPS = 4;        /* of SLOTS loads in an item: 128 KiB of x */

/*
 * How a block walks over rows, numbered through all batches.  A group of `lanes` lanes
 * takes a row, `1 << shift` packs of a row to a lane at a time, SLOTS >> shift rows at
 * once.  A longer row takes several chunks of 32 * SLOTS packs.
 */
struct row_walk {
    int lanes, shift;
    int64_t chunks;   /* of a row */
    int64_t per_step; /* rows of a block at once */
    int64_t per_item; /* rows of an item of work */
    bool packed;      /* elements of a row are neighbours */
    bool even;        /* rows start on 16-byte boundaries and are whole packs */
    bool merged;      /* row r of all starts at r * x_row */
};

/* What one row offers to 16-byte loads; `head` elements come before the first pack. */
template <typename T>
struct row_packs {
    const T *p;
    int64_t head, packs;

    __device__ __forceinline__ row_packs(const mean_matvec_view<T> &v,
                                         const row_walk &walk, int64_t row)
    {
        constexpr int SIZE = pack<T>::SIZE;
        const int64_t offset = walk.merged
                                   ? row * v.x_row
                                   : row / v.rows * v.x_batch + row % v.rows * v.x_row;
        p = v.x + offset;
        head = walk.even ? 0 : elements_to_boundary(p, v.cols);
        packs = (v.cols - head) / SIZE;
    }
};

/* The sum of one pack, neighbours first. */
template <typename T, int N>
__device__ __forceinline__ value_type<T>
sum_pack(const T *v)
{
    if constexpr (N == 1) {
        return value_of(v[0]);
    }
    else {
        return sum_pack<T, N / 2>(v) + sum_pack<T, N / 2>(v + N / 2);
    }
}

/* Starts the loads of one step: rows from `base` on, below `end`. */
template <typename T>
__device__ __forceinline__ void
load_step(const mean_matvec_view<T> &v, const row_walk &walk, int64_t base, int64_t end,
          int64_t chunk, pack<T> *loaded)
{
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
#pragma unroll
    for (int u = 0; u < SLOTS; u++) {
        const int64_t row = base + (u >> walk.shift) * groups + group;
        const int64_t k =
            (((chunk << walk.shift) + (u & ((1 << walk.shift) - 1))) * walk.lanes) +
            lane;
        loaded[u] = {};
        if (row < end) {
            const row_packs<T> at(v, walk, row);
            if (k < at.packs) {
                loaded[u] = load_pack(at.p + at.head + k * pack<T>::SIZE);
            }
        }
    }
}

/* The elements of a row that no pack holds, at most one before and one after a lane. */
template <typename T>
__device__ __forceinline__ value_type<T>
ragged_ends(const mean_matvec_view<T> &v, const row_walk &walk, int64_t row, int lane)
{
    const row_packs<T> at(v, walk, row);
    const int64_t tail = at.head + at.packs * pack<T>::SIZE;
    value_type<T> sum = 0;
    if (lane < at.head) {
        sum = value_of(at.p[lane]);
    }
    if (lane < v.cols - tail) {
        sum += value_of(at.p[tail + lane]);
    }
    return sum;
}

template <typename T>
__device__ __forceinline__ void
put_mean(const mean_matvec_view<T> &v, int64_t row, value_type<T> sum)
{
    const int64_t at = v.pitch == v.rows ? row : row / v.rows * v.pitch + row % v.rows;
    v.means[at] = sum / static_cast<value_type<T>>(v.cols);
}

/* The means of rows [first, end) whose elements have a stride. */
template <typename T>
__device__ __forceinline__ void
stream_strided(const mean_matvec_view<T> &v, const row_walk &walk, int64_t first,
               int64_t end)
{
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    for (int64_t base = first; base < end; base += groups) { /* whole warps go round */
        const int64_t row = base + group;
        row_sum<value_type<T>> sum;
        if (row < end) {
            const T *p = v.x + row / v.rows * v.x_batch + row % v.rows * v.x_row;
#pragma unroll 4
            for (int64_t k = lane; k < v.cols; k += walk.lanes) {
                sum.add(value_of(p[k * v.x_col]));
            }
        }
        const value_type<T> total = warp_combine<add>(sum.value(), walk.lanes);
        if (lane == 0 && row < end) {
            put_mean(v, row, total);
        }
    }
}

/* The means of rows [first, end), by one block. */
template <typename T>
__device__ __forceinline__ void
stream_rows(const mean_matvec_view<T> &v, const row_walk &walk, int64_t first,
            int64_t end)
{
    using V = value_type<T>;
    if (!walk.packed) {
        stream_strided(v, walk, first, end);
        return;
    }
    const int lane = threadIdx.x % walk.lanes, group = threadIdx.x / walk.lanes;
    const int groups = THREADS / walk.lanes;
    pack<T> loaded[SLOTS], next[SLOTS];
    row_sum<V> fold;
    int64_t base = first, chunk = 0;
    if (base < end) {
        load_step(v, walk, base, end, chunk, next);
    }
#pragma unroll 1
    while (base < end) {
        const int64_t now = base, piece = chunk;
#pragma unroll
        for (int u = 0; u < SLOTS; u++) {
            loaded[u] = next[u];
        }
        if (++chunk == walk.chunks) {
            chunk = 0;
            base += walk.per_step;
        }
        if (base < end) { /* the next loads fly while these are added */
            load_step(v, walk, base, end, chunk, next);
        }

        V sum[SLOTS];
#pragma unroll
        for (int u = 0; u < SLOTS; u++) {
            sum[u] = sum_pack<T, pack<T>::SIZE>(loaded[u].v);
        }
#pragma unroll
        for (int level = 0; level < 3; level++) {
            if (walk.shift > level) {
#pragma unroll
                for (int u = 0; u < SLOTS >> (level + 1); u++) {
                    sum[u] = sum[2 * u] + sum[2 * u + 1];
                }
            }
        }
        if (walk.chunks > 1) { /* one row at a time */
            fold.add(sum[0]);
            if (piece + 1 < walk.chunks) {
                continue;
            }
            sum[0] = fold.value();
            fold = row_sum<V>();
        }
#pragma unroll
        for (int q = 0; q < SLOTS; q++) {
            if (q < SLOTS >> walk.shift) {
                const int64_t row = now + q * groups + group;
                if (!walk.even && row < end) {
                    sum[q] += ragged_ends(v, walk, row, lane);
                }
                sum[q] = warp_combine<add>(sum[q], walk.lanes);
                if (lane == 0 && row < end) {
                    put_mean(v, row, sum[q]);
                }
            }
        }
    }
}

/* ---- one tile of the product ---- */

constexpr int TILE_OUTPUTS = 64, TILE_BATCHES = 32; /* of a tile */
constexpr int SIDE = 4;                             /* of a thread's square of it */
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
        const V *p = v.means + n * v.pitch + l;
        if (l + SIZE <= v.rows) {
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
    const int row = tid / DEPTH_PACKS, column = tid % DEPTH_PACKS;
    const bool wide = is_wide(v);

    V acc[SIDE][SIDE] = {};
    pack<V> loaded[PACKS_PER_THREAD];
    const auto load = [&](int64_t l) {
#pragma unroll
        for (int u = 0; u < PACKS_PER_THREAD; u++) {
            const int r = row + u * (THREADS / DEPTH_PACKS);
            loaded[u] =
                u * (THREADS / DEPTH_PACKS) < TILE_OUTPUTS
                    ? load_matrix(v, wide, output + r, l + column * SIZE)
                    : load_means(v, batch + r - TILE_OUTPUTS, l + column * SIZE);
        }
    };

    int turn = 0;
    load(0);
#pragma unroll 1
    for (int64_t l = 0; l < v.rows; l += DEPTH_PACKS * SIZE) {
#pragma unroll
        for (int u = 0; u < PACKS_PER_THREAD; u++) {
            stage.rows[turn][row + u * (THREADS / DEPTH_PACKS)][column] = loaded[u];
        }
        __syncthreads();
        if (l + DEPTH_PACKS * SIZE < v.rows) {
            load(l + DEPTH_PACKS * SIZE);
        }
#pragma unroll
        for (int k = 0; k < PACKS_PER_SLICE; k++) {
            pack<V> a[SIDE], b[SIDE];
#pragma unroll
            for (int r = 0; r < SIDE; r++) {
                a[r] =
                    stage.rows[turn][i + r * OUTPUT_STEP][slice * PACKS_PER_SLICE + k];
                b[r] = stage.rows[turn][TILE_OUTPUTS + n + r * BATCH_STEP]
                                 [slice * PACKS_PER_SLICE + k];
            }
#pragma unroll
            for (int u = 0; u < SIZE; u++) {
#pragma unroll
                for (int r = 0; r < SIDE; r++) {
#pragma unroll
                    for (int c = 0; c < SIDE; c++) {
                        acc[r][c] += a[r].v[u] * b[c].v[u];
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
