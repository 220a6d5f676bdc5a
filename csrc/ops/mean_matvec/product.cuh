/*
 * product.cuh  One tile of mean_matvec's product: its factors in shared memory, its
 * sums in registers; doubles on tensor cores where they support them.  See rows.cuh for
 * the means, ladder/ for which block multiplies which tile.
 */
#ifndef GPO_MEAN_MATVEC_PRODUCT_CUH
#define GPO_MEAN_MATVEC_PRODUCT_CUH

#include "../../device/follow.cuh"
#include "../../device/grid.cuh"
#include "rows.cuh"

/*
 * A tile is OUTPUTS by BATCHES of the result.  Its warps lie side by side, and where
 * the tile is narrow SHARES of them multiply the same part of it, each a share of the
 * depth of a stage: tile_sums says how for a type.
 */
template <typename V, int OUTPUTS, int BATCHES>
struct tile_sums;

/* Threads per block, in warps; what a narrow tile leaves over shares the depth. */
constexpr int TILE_WARPS = THREADS / WARP;

/*
 * A warp computes all outputs of COLUMNS batches, a lane ROWS of them, 32 apart: the
 * lanes read different rows of the matrix, without bank conflicts, and the same means.
 * A pack of means is one read of shared memory for 4 ROWS multiplications, a pack of
 * the matrix four for 4 COLUMNS.
 */
template <int OUTPUTS, int BATCHES>
struct tile_sums<float, OUTPUTS, BATCHES> {
    static constexpr int ROWS = OUTPUTS / WARP;
    static constexpr int COLUMNS = BATCHES == 64 ? 8 : 16;
    static constexpr int ACROSS = BATCHES / COLUMNS;
    static constexpr int SHARES = TILE_WARPS / ACROSS;
    static constexpr int ROW_PACKS = DEPTH_PACKS + 1; /* 8 rows start in 8 banks */
    static_assert(SHARES * ACROSS == TILE_WARPS && DEPTH_PACKS % SHARES == 0,
                  "every warp has its part");
    float sum[ROWS][COLUMNS] = {};
    const int i, n, share; /* of the first one */

    __device__ __forceinline__ tile_sums()
        : i(threadIdx.x % WARP), n(threadIdx.x / WARP % ACROSS * COLUMNS),
          share(threadIdx.x / WARP / ACROSS)
    {
    }

    /* Adds the products of the first packs of a stage; zeros follow them. */
    __device__ __forceinline__ void
    add(const pack<float> (&rows)[OUTPUTS + BATCHES][ROW_PACKS], int packs)
    {
#pragma unroll(ROWS *COLUMNS > 16 ? 1 : 2) /* more take more than 128 registers */
        for (int k = share; k < packs; k += SHARES) {
            pack<float> a[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                a[r] = rows[i + r * WARP][k];
            }
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const pack<float> b = rows[OUTPUTS + n + c][k];
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
template <int OUTPUTS, int BATCHES>
struct tile_sums<double, OUTPUTS, BATCHES> {
    static constexpr int ROWS = BATCHES < 32 || OUTPUTS < 64 ? 1 : 2;
    static constexpr int COLUMNS = OUTPUTS > 64 ? 4 : 2;
    static constexpr int DOWN = OUTPUTS / (16 * ROWS); /* warps per batch */
    static constexpr int ACROSS = BATCHES / (8 * COLUMNS);
    static constexpr int SHARES = TILE_WARPS / (DOWN * ACROSS);
    static constexpr int ROW_PACKS =
        WIDE_DEPTH_PACKS + 2; /* 4 rows of 4 lie in 16 banks */
    static_assert(SHARES * DOWN * ACROSS == TILE_WARPS &&
                      WIDE_DEPTH_PACKS % (4 * SHARES) == 0,
                  "every warp has its blocks");
    double sum[ROWS][COLUMNS][4] = {};
    const int g, t, i, n,
        share; /* the lane's g and t in multiply_add; its first block */

    __device__ __forceinline__ tile_sums()
        : g(threadIdx.x % WARP / 4), t(threadIdx.x % 4),
          i(threadIdx.x / WARP % DOWN * (16 * ROWS)),
          n(threadIdx.x / WARP / DOWN % ACROSS * (8 * COLUMNS)),
          share(threadIdx.x / WARP / DOWN / ACROSS)
    {
    }

    /* A turn's factors, of 8 terms. */
    struct fragments {
        double a[ROWS][4], b[COLUMNS][2];
    };

    __device__ __forceinline__ void
    load(fragments &f, const pack<double> (&rows)[OUTPUTS + BATCHES][ROW_PACKS],
         int first) const
    {
        const auto at =
            [&](int row, int k) { /* packs would need extra moves */
                                  return rows[row + g][first + 2 * k + t / 2].v[t % 2];
            };
#pragma unroll
        for (int k = 0; k < 2; k++) {
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                f.a[r][2 * k] = at(i + r * 16, k);
                f.a[r][2 * k + 1] = at(i + r * 16 + 8, k);
            }
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                f.b[c][k] = at(OUTPUTS + n + c * 8, k);
            }
        }
    }

    __device__ __forceinline__ void multiply(const fragments &f)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                multiply_add(sum[r][c], f.a[r], f.b[c]);
            }
        }
    }

    /* Of a whole stage the next turn's factors are loaded before these are multiplied,
       unless that takes more than 128 registers. */
    __device__ __forceinline__ void
    add(const pack<double> (&rows)[OUTPUTS + BATCHES][ROW_PACKS], int packs)
    {
        constexpr int TURNS = WIDE_DEPTH_PACKS / (4 * SHARES);
        if (COLUMNS == 2 && packs == WIDE_DEPTH_PACKS) {
            fragments f[2];
            load(f[0], rows, 4 * share);
#pragma unroll
            for (int turn = 0; turn < TURNS; turn++) {
                if (turn + 1 < TURNS) {
                    load(f[(turn + 1) % 2], rows, 4 * ((turn + 1) * SHARES + share));
                }
                multiply(f[turn % 2]);
            }
            return;
        }
        const int end = COLUMNS == 2 ? packs : WIDE_DEPTH_PACKS; /* zeros follow */
#pragma unroll 1
        for (int first = 4 * share; first < end; first += 4 * SHARES) {
            fragments f;
            load(f, rows, first);
            multiply(f);
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

/* The stages of a tile, then the tile itself: sums of each share, and of all. */
template <typename V, int OUTPUTS = TILE_OUTPUTS, int BATCHES = TILE_BATCHES,
          int COUNT = ring_of_tile(OUTPUTS, BATCHES, sizeof(V) == 8)>
struct product_stages {
    using sums = tile_sums<V, OUTPUTS, BATCHES>;
    static constexpr int PITCH = BATCHES + 1;
    pack<V> rows[COUNT][OUTPUTS + BATCHES][sums::ROW_PACKS];
    static_assert(sizeof(rows) >= sums::SHARES * OUTPUTS * PITCH * sizeof(V),
                  "the tile itself fits where its factors were");
};

/* Whether rows of n values `step` apart, the first at p, are aligned whole packs. */
template <typename T>
__device__ __forceinline__ bool
is_wide(const T *p, int64_t row, int64_t step, int64_t n)
{
    return step == 1 && row % pack<T>::SIZE == 0 && n % pack<T>::SIZE == 0 &&
           reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

/* Rows of one factor of a tile: the matrix or the means. */
template <typename T>
struct factor_rows {
    const T *first;    /* term `begin` of the tile's first row */
    int64_t row, step; /* strides */
    int count;         /* rows of the tile that exist; zeros stand for later ones */
    bool wide;         /* rows are aligned whole packs */
};

/* Where pack k of row r is: rows without padding lie in the swizzle of wgmma_operand. */
template <int ROW_PACKS>
__device__ __forceinline__ int
place_of(int r, int k)
{
    return ROW_PACKS != DEPTH_PACKS ? k : k ^ (r % 8);
}

/*
 * Copies a stage of COUNT rows to shared memory: `left` terms of each from `at` on, with
 * zeros past their end.  Whole packs and single values are copied asynchronously,
 * bypassing registers; values of another type are converted.  Rows that do not exist are
 * zeros, written where `is_new`: the tile has not used this place for a stage before.
 */
template <int COUNT, typename V, typename T, int ROW_PACKS>
__device__ __forceinline__ void
bring_rows(pack<V> (*to)[ROW_PACKS], const factor_rows<T> &f, int64_t at, int64_t left,
           bool is_new)
{
    constexpr int SIZE = pack<V>::SIZE, STAGE = STAGE_PACKS<V> * SIZE;
    const int tid = threadIdx.x;
    if constexpr (std::is_same_v<T, V>) {
        if (!f.wide) { /* whole rows, one after the other */
            constexpr int SPACING = THREADS / STAGE;
            const int k = tid % STAGE;
            const bool exists = k < left;
            const T *const p = f.first + (exists ? (at + k) * f.step : 0);
            int r = tid / STAGE;
#pragma unroll 4
            for (; r < f.count; r += SPACING) {
                start_value_copy(&to[r][place_of<ROW_PACKS>(r, k / SIZE)].v[k % SIZE],
                                 p + r * f.row, exists);
            }
            for (; is_new && r < COUNT; r += SPACING) {
                to[r][place_of<ROW_PACKS>(r, k / SIZE)].v[k % SIZE] = 0;
            }
            return;
        }
    }
    constexpr int SPACING = THREADS / STAGE_PACKS<V>;
    const int k = tid % STAGE_PACKS<V>, from = tid / STAGE_PACKS<V>;
    if constexpr (std::is_same_v<T, V> && COUNT % SPACING == 0) {
        static_assert(SPACING % 8 == 0, "rows SPACING apart are swizzled alike");
        if (f.count == COUNT && left >= STAGE) { /* all exist: no tests */
            const T *q = f.first + at + k * SIZE + from * f.row;
            const int64_t apart = SPACING * f.row;
            const int place = place_of<ROW_PACKS>(from, k);
#pragma unroll
            for (int r = 0; r < COUNT; r += SPACING) {
                start_copy(&to[from + r][place], q, l2_evict_unchanged());
                q += apart;
            }
            return;
        }
    }
    const int64_t own = left - k * SIZE;
    const T *const p = f.first + (own > 0 ? (at + k * SIZE) * f.step : 0);
#pragma unroll
    for (int u = 0; u < (COUNT + SPACING - 1) / SPACING; u++) {
        const int r = from + u * SPACING;
        if (COUNT % SPACING != 0 && r >= COUNT) {
            break;
        }
        const bool exists = r < f.count;
        if (!exists && !is_new) {
            break;
        }
        const T *const q = p + r * f.row;
        if (std::is_same_v<T, V> && exists && own > 0) {
            start_copy(&to[r][place_of<ROW_PACKS>(r, k)], q, l2_evict_unchanged());
            continue;
        }
        pack<V> out = {};
#pragma unroll
        for (int e = 0; e < SIZE; e++) {
            if (exists && e < own) {
                out.v[e] = value_of(q[e * f.step]);
            }
        }
        to[r][place_of<ROW_PACKS>(r, k)] = out;
    }
}

/* What is copied of a stage. */
enum tile_part { WHOLE_STAGE, MATRIX_OF_STAGE, MEANS_OF_STAGE };

/* The factors of a tile, from term `begin` on. */
template <typename T, int OUTPUTS, int BATCHES>
struct tile_factors {
    using V = value_type<T>;
    factor_rows<T> matrix;
    factor_rows<V> means;

    __device__ __forceinline__ tile_factors(const mean_matvec_view<T> &v,
                                            int64_t output, int64_t batch,
                                            int64_t begin)
        : matrix{v.matrix + output * v.matrix_output + begin * v.matrix_row,
                 v.matrix_output, v.matrix_row, existing(v.outputs - output, OUTPUTS),
                 is_wide(v.matrix, v.matrix_output, v.matrix_row, v.rows)},
          means{v.means + batch * v.rows + begin, v.rows, 1,
                existing(v.batches - batch, BATCHES),
                is_wide(v.means, v.rows, 1, v.rows)}
    {
    }

    static __device__ __forceinline__ int existing(int64_t rows, int most)
    {
        return static_cast<int>(rows < most ? rows : most);
    }

    /* Copies `left` terms from `at` on, of all outputs and then of all batches, or of the
       ones or the others. */
    template <int ROW_PACKS>
    __device__ __forceinline__ void bring(pack<V> (&rows)[OUTPUTS + BATCHES][ROW_PACKS],
                                          int64_t at, int64_t left, bool is_new,
                                          tile_part part = WHOLE_STAGE) const
    {
        if (part != MEANS_OF_STAGE) {
            bring_rows<OUTPUTS>(rows, matrix, at, left, is_new);
        }
        if (part != MATRIX_OF_STAGE) {
            bring_rows<BATCHES>(rows + OUTPUTS, means, at, left, is_new);
        }
    }
};

/* The sums of a tile to shared memory, output i and batch n at i * PITCH + n, with those
   of its shares added; ends with a barrier. */
template <int OUTPUTS, int BATCHES, typename V, typename SUMS>
__device__ __forceinline__ void
gather_sums(const SUMS &sums, V *tile)
{
    constexpr int PITCH = BATCHES + 1, ALL = OUTPUTS * PITCH;
    V *const own = tile + sums.share * ALL;
    sums.each([&](int i, int n, V sum) { own[i * PITCH + n] = sum; });
    __syncthreads();
    if constexpr (SUMS::SHARES > 1) {
        for (int e = threadIdx.x; e < OUTPUTS * BATCHES; e += THREADS) {
            V *const to = tile + e / BATCHES * PITCH + e % BATCHES;
#pragma unroll
            for (int k = 1; k < SUMS::SHARES; k++) {
                *to += to[k * ALL];
            }
        }
        __syncthreads();
    }
}

/*
 * Sums terms [begin, end) of OUTPUTS outputs from `output` on of BATCHES batches from
 * `batch` on, by one block.  The depth is copied to shared memory in stages, in a ring.
 * The sum of output i and batch n is at i * PITCH + n of the result, after a barrier.
 * TILE_SUMS other than tile_sums may refuse a tile, whose sums are then made by these.
 * `ahead`: in a kernel that follows the one that finds the means (follow.cuh), the first
 * stages of the matrix, an input, are on their way before it waits for that.
 */
template <int OUTPUTS, int BATCHES,
          template <typename, int, int> class TILE_SUMS = tile_sums, typename T,
          int COUNT>
__device__ __forceinline__ value_type<T> *
sum_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch, int64_t begin,
         int64_t end, product_stages<value_type<T>, OUTPUTS, BATCHES, COUNT> &stages,
         bool ahead = false)
{
    using V = value_type<T>;
    using stage = product_stages<V, OUTPUTS, BATCHES, COUNT>;
    using sums_of_tile = TILE_SUMS<V, OUTPUTS, BATCHES>;
    constexpr int STAGE = STAGE_PACKS<V> * pack<V>::SIZE;
    static_assert(sums_of_tile::ROW_PACKS == stage::sums::ROW_PACKS &&
                      sums_of_tile::SHARES <= stage::sums::SHARES,
                  "the stages have its layout and room for its shares");
    sums_of_tile sums;
    const tile_factors<T, OUTPUTS, BATCHES> factors(v, output, batch, begin);
    const int64_t terms = end - begin;
    int64_t at = 0;
    const auto bring = [&](int to, tile_part part) {
        if (at < terms) { /* else nobody reads the stage */
            factors.bring(stages.rows[to], at, terms - at, at < COUNT * STAGE, part);
        }
        at += STAGE;
        group_copies();
    };
#pragma unroll 1
    for (int k = ahead ? 1 - COUNT : 0; k < COUNT - 1; k++) {
        if (ahead && k == 0) {
            wait_for_before();
            at = 0;
        }
        bring(k < 0 ? k + COUNT - 1 : k, k < 0   ? MATRIX_OF_STAGE
                                         : ahead ? MEANS_OF_STAGE
                                                 : WHOLE_STAGE);
    }
    int now = 0, free = COUNT - 1;
#pragma unroll 1
    while (at < terms + (COUNT - 1) * STAGE) {
        await_groups<COUNT - 2>();
        __syncthreads(); /* all threads have copied `now` and are done with `free` */
        bring(free, WHOLE_STAGE);
        int packs = STAGE_PACKS<V>; /* 16 bits: converting takes the registers */
        if constexpr (std::is_same_v<T, V>) {
            const int64_t left = terms + COUNT * STAGE - at; /* from `now` on */
            packs = left < STAGE ? static_cast<int>(ceil_div(left, pack<V>::SIZE))
                                 : STAGE_PACKS<V>;
        }
        sums.add(stages.rows[now], packs);
        free = now;
        now = now + 1 < COUNT ? now + 1 : 0;
    }

    __syncthreads();
    if constexpr (!std::is_same_v<sums_of_tile, typename stage::sums>) {
        if (__syncthreads_or(sums.is_refused())) {
            return sum_tile<OUTPUTS, BATCHES>(v, output, batch, begin, end, stages);
        }
    }
    V *const tile = stages.rows[0][0][0].v;
    gather_sums<OUTPUTS, BATCHES>(sums, tile);
    return tile;
}

/* Calls f(output, batch) for each of a tile, adjacent threads along `out`. */
template <int OUTPUTS, int BATCHES, typename T, typename F>
__device__ __forceinline__ void
each_of_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch, F f)
{
    const bool along_outputs = v.out_output == 1 && v.out_batch != 1;
    for (int e = threadIdx.x; e < OUTPUTS * BATCHES; e += THREADS) {
        const int ei = along_outputs ? e % OUTPUTS : e / BATCHES;
        const int en = along_outputs ? e / OUTPUTS : e % BATCHES;
        if (output + ei < v.outputs && batch + en < v.batches) {
            f(ei, en);
        }
    }
}

/* A tile of the result, over all terms. */
template <int OUTPUTS, int BATCHES, typename T, int COUNT>
__device__ __forceinline__ void
product_tile(const mean_matvec_view<T> &v, int64_t output, int64_t batch,
             product_stages<value_type<T>, OUTPUTS, BATCHES, COUNT> &stages)
{
    constexpr int PITCH = BATCHES + 1;
    const value_type<T> *const tile =
        sum_tile<OUTPUTS, BATCHES>(v, output, batch, int64_t{0}, v.rows, stages);
    each_of_tile<OUTPUTS, BATCHES>(v, output, batch, [&](int i, int n) {
        v.put(output + i, batch + n, tile[i * PITCH + n]);
    });
    __syncthreads(); /* before the next tile is staged */
}

#endif
