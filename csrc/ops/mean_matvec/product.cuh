/*
 * product.cuh  One tile of mean_matvec's product: its factors in shared memory, its
 * sums in registers; doubles on tensor cores where they support them.  See rows.cuh for
 * the means, ladder/ for which block multiplies which tile.
 */
#ifndef GPO_MEAN_MATVEC_PRODUCT_CUH
#define GPO_MEAN_MATVEC_PRODUCT_CUH

#include "rows.cuh"

constexpr int STAGE_ROWS = TILE_OUTPUTS + TILE_BATCHES;

/* A thread's share of a tile's sums. */
template <typename V>
struct tile_sums;

/*
 * A warp computes all outputs of COLUMNS batches, a lane ROWS of them, 32 apart: the
 * lanes read different rows of the matrix, without bank conflicts, and the same means.
 */
template <>
struct tile_sums<float> {
    static constexpr int ROWS = TILE_OUTPUTS / WARP;
    static constexpr int COLUMNS = TILE_BATCHES / (THREADS / WARP);
    static constexpr int ROW_PACKS = DEPTH_PACKS + 1; /* 8 rows start in 8 banks */
    float sum[ROWS][COLUMNS] = {};
    const int i, n; /* of the first one */

    __device__ __forceinline__ tile_sums()
        : i(threadIdx.x % WARP), n(threadIdx.x / WARP * COLUMNS)
    {
    }

    /* Adds the products of a stage. */
    __device__ __forceinline__ void
    add(const pack<float> (&rows)[STAGE_ROWS][ROW_PACKS])
    {
#pragma unroll 2 /* fully unrolled, the kernel takes more than 128 registers */
        for (int k = 0; k < DEPTH_PACKS; k++) {
            pack<float> a[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                a[r] = rows[i + r * WARP][k];
            }
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const pack<float> b = rows[TILE_OUTPUTS + n + c][k];
#pragma unroll
                for (int u = 0; u < pack<float>::SIZE; u++) {
#pragma unroll
                    for (int r = 0; r < ROWS; r++) {
                        sum[r][c] += a[r].v[u] * b.v[u];
                    }
                }
            }
        }
    }

    /* Calls f(output, batch, sum) for each sum. */
    template <typename F>
    __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                f(i + r * WARP, n + c, sum[r][c]);
            }
        }
    }
};

/*
 * The same on tensor cores, which multiply doubles at twice the rate: a warp computes
 * ROWS x COLUMNS blocks of 16 outputs by 8 batches.
 */
template <>
struct tile_sums<double> {
    static constexpr int ROWS = 2, COLUMNS = 2;
    static constexpr int ACROSS = TILE_OUTPUTS / (16 * ROWS); /* warps per batch */
    static constexpr int ROW_PACKS = DEPTH_PACKS + 2; /* 4 rows of 4 lie in 16 banks */
    static_assert(TILE_BATCHES == THREADS / WARP / ACROSS * COLUMNS * 8,
                  "every warp has its blocks");
    double sum[ROWS][COLUMNS][4] = {};
    const int g, t, i, n; /* the lane's g and t in multiply_add; its first block */

    __device__ __forceinline__ tile_sums()
        : g(threadIdx.x % WARP / 4), t(threadIdx.x % 4),
          i(threadIdx.x / WARP % ACROSS * (16 * ROWS)),
          n(threadIdx.x / WARP / ACROSS * (8 * COLUMNS))
    {
    }

    __device__ __forceinline__ void
    add(const pack<double> (&rows)[STAGE_ROWS][ROW_PACKS])
    {
#pragma unroll
        for (int first = 0; first < DEPTH_PACKS; first += 4) {
            double a[ROWS][4], b[COLUMNS][2];
            const auto at =
                [&](int row,
                    int k) { /* loading packs would need extra moves */
                             return rows[row + g][first + 2 * k + t / 2].v[t % 2];
                };
#pragma unroll
            for (int k = 0; k < 2; k++) {
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    a[r][2 * k] = at(i + r * 16, k);
                    a[r][2 * k + 1] = at(i + r * 16 + 8, k);
                }
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    b[c][k] = at(TILE_OUTPUTS + n + c * 8, k);
                }
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    multiply_add(sum[r][c], a[r], b[c]);
                }
            }
        }
    }

    template <typename F>
    __device__ __forceinline__ void each(F f) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    f(i + r * 16 + e / 2 * 8 + g, n + c * 8 + 2 * t + e % 2,
                      sum[r][c][e]);
                }
            }
        }
    }
};

template <typename V>
struct product_stages {
    pack<V> rows[RING][STAGE_ROWS][tile_sums<V>::ROW_PACKS];
};

constexpr int TILE_PITCH = TILE_BATCHES + 1;

static_assert(sizeof(product_stages<double>) >=
                      TILE_OUTPUTS * TILE_PITCH * sizeof(double) &&
                  sizeof(product_stages<float>) >=
                      TILE_OUTPUTS * TILE_PITCH * sizeof(float),
              "the tile itself fits where its factors were");

/* Whether rows of n values `step` apart, the first at p, are aligned whole packs. */
template <typename T>
__device__ __forceinline__ bool
is_wide(const T *p, int64_t row, int64_t step, int64_t n)
{
    return step == 1 && row % pack<T>::SIZE == 0 && n % pack<T>::SIZE == 0 &&
           reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/*
 * Copies the first values at p of a row that has `left` of them to shared memory, as V,
 * with zeros past its end.  Whole packs are copied asynchronously, bypassing registers,
 * and from L2, not L1: the kernel that reads the means may also write them.
 */
template <typename V, typename T>
__device__ __forceinline__ void
bring_factor(pack<V> &to, const T *p, int64_t step, int64_t left, bool wide)
{
    if (std::is_same_v<T, V> && wide && left > 0) {
        start_copy(&to, p, l2_evict_unchanged());
        return;
    }
    pack<V> out = {};
#pragma unroll
    for (int u = 0; u < out.SIZE; u++) {
        if (u < left) {
            out.v[u] = value_of(p[u * step]);
        }
    }
    to = out;
}

/*
 * What a thread copies of each stage of a tile: the pack at `depth` of row `from` and
 * of the rows SPACING apart, of the matrix and then of the means.
 */
template <typename T>
struct tile_factors {
    using V = value_type<T>;
    static constexpr int SPACING = THREADS / DEPTH_PACKS;
    static constexpr int OUTPUTS = TILE_OUTPUTS / SPACING;
    static constexpr int BATCHES = TILE_BATCHES / SPACING;
    static constexpr int STAGE = DEPTH_PACKS * pack<V>::SIZE; /* of the depth */
    static_assert(TILE_OUTPUTS % SPACING == 0 && TILE_BATCHES % SPACING == 0,
                  "a turn brings rows of one factor");
    const T *matrix[OUTPUTS]; /* past the last one the first: its sums are unused */
    const V *means[BATCHES];
    int64_t left; /* values of their rows, from the next stage on */
    const int64_t step;
    const bool matrix_wide, means_wide;
    const int from, depth;

    /* Terms [begin, end) of the products; `begin` is a multiple of STAGE. */
    __device__ __forceinline__ tile_factors(const mean_matvec_view<T> &v,
                                            int64_t output, int64_t batch,
                                            int64_t begin, int64_t end)
        : left(end - begin), step(v.matrix_row),
          matrix_wide(is_wide(v.matrix, v.matrix_output, v.matrix_row, v.rows)),
          means_wide(is_wide(v.means, v.rows, 1, v.rows)),
          from(threadIdx.x / DEPTH_PACKS), depth(threadIdx.x % DEPTH_PACKS)
    {
        const int64_t first = begin + depth * pack<V>::SIZE;
#pragma unroll
        for (int u = 0; u < OUTPUTS; u++) {
            const int64_t i = output + from + u * SPACING;
            matrix[u] =
                v.matrix + (i < v.outputs ? i : 0) * v.matrix_output + first * step;
        }
#pragma unroll
        for (int u = 0; u < BATCHES; u++) {
            const int64_t k = batch + from + u * SPACING;
            means[u] = v.means + (k < v.batches ? k : 0) * v.rows + first;
        }
    }

    /* Starts the copies of the next stage, as one group. */
    __device__ __forceinline__ void
    bring(pack<V> (&stage)[STAGE_ROWS][tile_sums<V>::ROW_PACKS])
    {
        const int64_t own = left - depth * pack<V>::SIZE;
#pragma unroll
        for (int u = 0; u < OUTPUTS; u++) {
            bring_factor(stage[from + u * SPACING][depth], matrix[u], step, own,
                         matrix_wide);
            matrix[u] += STAGE * step;
        }
#pragma unroll
        for (int u = 0; u < BATCHES; u++) {
            bring_factor(stage[TILE_OUTPUTS + from + u * SPACING][depth], means[u], 1,
                         own, means_wide);
            means[u] += STAGE;
        }
        left -= STAGE;
        group_copies();
    }
};

/*
 * Sums terms [begin, end) of outputs [output, output + TILE_OUTPUTS) of batches [batch,
 * batch + TILE_BATCHES), by one block.  The depth is copied to shared memory in stages,
 * in a ring.  The sum of output i and batch n is at i * TILE_PITCH + n of the result,
 * after a barrier.
 */
template <typename T>
__device__ __forceinline__ value_type<T> *
sum_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch, int64_t begin,
         int64_t end, product_stages<value_type<T>> &stages)
{
    using V = value_type<T>;
    tile_sums<V> sums;
    tile_factors<T> factors(v, output, batch, begin, end);
#pragma unroll
    for (int k = 0; k < RING - 1; k++) {
        factors.bring(stages.rows[k]);
    }
    int now = 0, free = RING - 1;
#pragma unroll 1
    while (factors.left > -(RING - 1) * factors.STAGE) {
        await_groups<RING - 2>();
        __syncthreads(); /* all threads have copied `now` and are done with `free` */
        factors.bring(stages.rows[free]);
        sums.add(stages.rows[now]);
        free = now;
        now = now + 1 < RING ? now + 1 : 0;
    }

    __syncthreads();
    V *tile = stages.rows[0][0][0].v;
    sums.each([&](int i, int n, V sum) { tile[i * TILE_PITCH + n] = sum; });
    __syncthreads();
    return tile;
}

/* Calls f(output, batch) for each of a tile, adjacent threads along `out`. */
template <typename T, typename F>
__device__ __forceinline__ void
each_of_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch, F f)
{
    const bool along_outputs = v.out_output == 1 && v.out_batch != 1;
    for (int e = threadIdx.x; e < TILE_OUTPUTS * TILE_BATCHES; e += THREADS) {
        const int ei = along_outputs ? e % TILE_OUTPUTS : e / TILE_BATCHES;
        const int en = along_outputs ? e / TILE_OUTPUTS : e % TILE_BATCHES;
        if (output + ei < v.outputs && batch + en < v.batches) {
            f(ei, en);
        }
    }
}

/* A tile of the result, over all terms. */
template <typename T>
__device__ __forceinline__ void
product_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch,
             product_stages<value_type<T>> &stages)
{
    const value_type<T> *const tile =
        sum_tile(v, output, batch, int64_t{0}, v.rows, stages);
    each_of_tile(v, output, batch, [&](int i, int n) {
        v.put(output + i, batch + n, tile[i * TILE_PITCH + n]);
    });
    __syncthreads(); /* before the next tile is staged */
}

#endif
