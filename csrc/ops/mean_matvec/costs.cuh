/*
 * costs.cuh  Times of the product by estimate, for the choice and the launchers: in
 * tiles, whose size and splits are planned here (shapes/few_tiles.cu), and in small
 * blocks (shapes/few_batches.cu).  In microseconds on an H100, fitted to 1,800 measured
 * plans (NOTES.md says what they are off by).
 */
#ifndef GPO_MEAN_MATVEC_COSTS_CUH
#define GPO_MEAN_MATVEC_COSTS_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

#include <math.h>

/* ---- what the estimates are made of ---- */

constexpr double PRODUCT_US = 6;       /* a launch, and the factors from memory */
constexpr double TILES_US[2] = {6, 8}; /* the same of tiles; of float64 */
constexpr double MEMORY_BYTES_PER_US = 3.2e6; /* of an H100, 4e6 of an H200 */
constexpr double L2_BYTES_PER_US = 30000;     /* per SM */
constexpr double CLUSTER_US[2] = {1.5,
                                  2.6}; /* the barriers of a cluster; ordinary tiles */
/* Of the SMs, clusters of 2, 4 and 8 blocks fill these: GPCs have SMs left over. */
constexpr double IN_CLUSTERS[] = {0.97, 0.91, 0.85};
constexpr double FEWEST_CLUSTERED = 16; /* blocks in clusters, on a GPU of few SMs */
/* A row of the matrix of no whole packs, in a stage: copied value by value; of float64.
   Of a tile that is alone on an SM it takes longer. */
constexpr double MISALIGNED_ROW_US[2] = {0.0013, 0.001};
constexpr double MISALIGNED_ALONE = 3.7;
constexpr double CONVERTED = 2.5; /* times a stage: values of 16 bits */
/* The launch that adds sums of splits, and its bytes, as often at L2's rate; of ordinary
   tiles; of float64. */
constexpr double SPLIT_US[3] = {4.4, 3.5, 3.3}, SPLIT_PASSES[3] = {2.5, 0.7, 0.3};
constexpr double FEW_BATCHES_MEASURED[2] = {0.56, 0.4}; /* per us that L2 takes */
constexpr double FEW_BLOCK_US = 0.06; /* few_batches: a block of an SM */
constexpr double FEW_ROUND_US =
    0.35; /* a load of 4 rows along the depth; two are 2 of it */
constexpr double FEW_X_ROUND_US = 0.7; /* the same of 8 elements of x, from memory */
constexpr double LINES_PER_US = 1755;  /* of 128 bytes that an SM looks up in L1 */
constexpr double FEW_WAVE_US = 0.6;    /* the start and the end of a block */
constexpr double REST_US = 3;          /* the launch of a product's last batches */
constexpr double OF_WHOLE = 0.95;      /* of one launch is such a pair worth its risk */
constexpr double MEANS_US = 2;         /* a launch that another one follows */
constexpr double LONG_UNUSED = 0.15;   /* of the time of unused loads, of long rows */
/* Of v4's estimate is a plan worth its difference; of float64. */
constexpr double OF_V4S[2] = {0.93, 0.98};
constexpr double V5_HIDES = 0.25;     /* v5's stream of x: of the product */
constexpr double V5_US[2] = {3, 8};   /* a call of v5 beside its parts; of float64 */
constexpr double SHORT_SLOWER = 0.15; /* short_rows' of rows that v4 reads well */
constexpr double OF_FEW = 0.93;       /* the same of few_batches' estimate */
/* Beside few_batches, tiles of rows of so many bytes fill shared memory first. */
constexpr double TILE_US[2] = {4, 2}, TILE_BYTES = 1024; /* TILE_US: of float64 */
/* Of the time of x over the elements of a row, what adding uneven rows takes longer. */
constexpr double UNEVEN_SLOWER = 6.5;

enum tile_unit { ORDINARY, TENSOR_CORES, WARPGROUPS };

/*
 * A size of tiles of the product.  A stage of a tile takes alone_us where an SM has no
 * other one, and an SM has a stage done every stage_us where it has several.  The first
 * loads and the store take as long as some more stages, `around`.
 */
struct tile_kind {
    int outputs, batches, blocks; /* blocks: per SM */
    double alone_us, stage_us, around;
    tile_unit unit;
};

constexpr int V4_KIND = 2, LARGE_KIND = 3, SMALL_KIND = 4, KINDS = 5;

/* of float32 and of float64 */
constexpr tile_kind TILE_KINDS[2][KINDS] = {
    {{64, 16, NARROW_BLOCKS, 0.57, 0.57, 0, ORDINARY},
     {64, 32, BLOCKS, 0.75, 0.63, 1.9, ORDINARY},
     {TILE_OUTPUTS, TILE_BATCHES, BLOCKS, 1.45, 1.2, 0.6, ORDINARY},
     {128, 128, BLOCKS, 3.6, 3.2, 0.75, ORDINARY}},
    {{64, 16, NARROW_BLOCKS, 0.58, 0.34, 2.5, ORDINARY},
     {64, 32, BLOCKS, 0.72, 0.5, 3.1, ORDINARY},
     {TILE_OUTPUTS, TILE_BATCHES, BLOCKS, 1.04, 0.8, 1.7, ORDINARY},
     {128, TILE_BATCHES, BLOCKS, 1.67, 1.42, 2, ORDINARY},
     {32, 32, NARROW_BLOCKS, 0.51, 0.3, 2.8, ORDINARY}},
};

/* The last two on tensor cores, in float32 (shapes/tensor_tiles.cu). */
constexpr tile_kind TENSOR_KINDS[2] = {
    {TILE_OUTPUTS, TILE_BATCHES, BLOCKS, 1.05, 0.97, 2.5, TENSOR_CORES},
    {128, 128, BLOCKS, 3.5, 3, 0.75, TENSOR_CORES},
};
/* By warpgroups (shapes/warpgroup_tiles.cu): no other block hides the start of one. */
constexpr tile_kind WARPGROUP_KIND = {128, 128, 1, 1.6, 1.6, 2.7, WARPGROUPS};
constexpr tile_kind HALF_WARPGROUP_KIND = {128, 64, 1, 0.95, 0.95, 4.3, WARPGROUPS};
constexpr double WARPGROUP_US = 1.5; /* a launch of theirs beyond others */
constexpr int64_t TENSOR_ROWS = 96;  /* terms: of fewer the error bound is near */
constexpr double TENSOR_PRODUCTS = 1 << 26;  /* fewer take v4 a few us */
constexpr double SHARED_RESULTS = 128 * 128; /* per SM: of more no depth is shared */
constexpr double OF_ORDINARY = 0.98; /* of others, with x, is this one worth its risk */

/* Bytes of shared memory of its stages. */
constexpr int64_t
stage_bytes(const tile_kind &kind, bool is_wide)
{
    const int ring = ring_of_tile(kind.outputs, kind.batches, is_wide);
    const int row_packs = /* tile_sums says why */
        is_wide ? WIDE_DEPTH_PACKS + 2 : DEPTH_PACKS + 1;
    return int64_t{16} * ring * row_packs * (kind.outputs + kind.batches);
}

/* ---- tiles ---- */

/* The product in tiles of a kind, the depth of each shared by `splits` blocks. */
struct tile_plan {
    int kind;
    int64_t splits;
    double us;
    tile_unit unit;
    bool in_clusters; /* a tile's blocks, 2, 4 or 8, add their sums in shared memory */
};

/* The sizes that all estimates of a call need. */
struct product_size {
    double batches, outputs, rows, bytes; /* bytes: of an element of the matrix */
    double processors, stages, slower;    /* slower: a stage, for its values */
    double row_us;                        /* of a stage, for how rows lie */
    bool is_wide;                         /* sums are of float64 */
    bool has_clusters;                    /* the GPU, for floats */
    int64_t room;                         /* bytes of shared memory of a block */
};

/* `is_padded`: rows of the factors are copied so that they are whole packs. */
inline product_size
size_of_product(const gpo_call *call, bool is_padded)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t pack = 16 / bytes;
    const bool is_aligned = is_padded || (p.matrix_row == 1 && p.rows % pack == 0 &&
                                          p.matrix_output % pack == 0);
    const double batches = static_cast<double>(p.batches);
    const double outputs = static_cast<double>(p.outputs);
    const double processors = static_cast<double>(gpo_processors(call));
    return {batches,
            outputs,
            static_cast<double>(p.rows),
            static_cast<double>(bytes),
            processors,
            static_cast<double>(ceil_div(p.rows, int64_t{STAGE_TERMS})),
            bytes == 2 ? CONVERTED : 1,
            bytes == 2 || is_aligned ? 0 : MISALIGNED_ROW_US[bytes == 8],
            bytes == 8,
            bytes == 4 && !gpo_lacks(call->backend, call->device, "sm_90a"),
            gpo_shared_room(call)};
}

inline double
tiles_of(const product_size &s, const tile_kind &kind)
{
    return ceil(s.outputs / kind.outputs) * ceil(s.batches / kind.batches);
}

/* Of a kind, the depth in clusters of 1 << log blocks unless log is 0. */
inline double
tiles_us(const product_size &s, const tile_kind &kind, double splits, int log = 0)
{
    const bool in_clusters = log > 0, ordinary = kind.unit == ORDINARY;
    const int sums_of = ordinary + s.is_wide;
    const double filled = in_clusters ? IN_CLUSTERS[log - 1] : 1;
    const double per_sm = ceil(tiles_of(s, kind) * splits / (s.processors * filled));
    const double waves = floor(per_sm / kind.blocks);
    const double left = per_sm - waves * kind.blocks; /* tiles of the last wave */
    const double rows_us = s.row_us * kind.outputs;
    const double alone = kind.alone_us + MISALIGNED_ALONE * rows_us;
    const double one_us = kind.stage_us + rows_us;
    const double stage_us = waves * fmax(alone, one_us * kind.blocks) +
                            (left > 0 ? fmax(alone, one_us * left) : 0);
    const double us = stage_us * s.slower * (ceil(s.stages / splits) + kind.around);
    const double read = s.outputs * s.rows * s.bytes / MEMORY_BYTES_PER_US;
    const double sums = s.batches * s.outputs * (s.is_wide ? 8 : 4) * splits;
    return TILES_US[s.is_wide] + fmax(us, read) +
           (in_clusters  ? CLUSTER_US[ordinary]
            : splits > 1 ? SPLIT_US[sums_of] + SPLIT_PASSES[sums_of] * sums /
                                                   (L2_BYTES_PER_US * s.processors)
                         : 0);
}

/*
 * Whether clusters of 1 << log blocks, one for each tile, are all on SMs at once.  Tiles
 * of float64 have none: a second launch that adds their sums starts while they multiply,
 * and in 12 of 13 products its best plan took less than that of clusters (NOTES.md).
 */
inline bool
fits_clusters(const product_size &s, const tile_kind &kind, int log)
{
    const double resident = s.processors * kind.blocks;
    return tiles_of(s, kind) * (1 << log) <=
           fmax(resident * IN_CLUSTERS[log - 1], FEWEST_CLUSTERED);
}

/* v4's product. */
inline double
whole_tiles_us(const product_size &s)
{
    return tiles_us(s, TILE_KINDS[s.is_wide][V4_KIND], 1);
}

inline tile_plan
faster(const tile_plan &a, const tile_plan &b)
{
    return b.us < a.us ? b : a;
}

/*
 * The best splits of tiles of a kind.  For some number of tiles per SM the most splits
 * are the best ones, so few numbers of splits come into question.
 */
inline tile_plan
plan_splits(const product_size &s, const tile_kind &kind, tile_plan plan)
{
    const double tiles = tiles_of(s, kind);
    plan.us = INFINITY;
    for (int per_sm = 0; per_sm <= NARROW_BLOCKS; per_sm++) {
        const double most = fmin(MOST_SPLITS, s.stages);
        const double fit = floor(fmin(per_sm * s.processors / tiles, most));
        const double splits = per_sm == 0 || !(fit >= 1) ? 1 : fit;
        const double us = tiles_us(s, kind, splits);
        if (us < plan.us) {
            plan.splits = static_cast<int64_t>(splits);
            plan.us = us;
        }
    }
    if (s.has_clusters && s.batches * s.outputs <= s.processors * SHARED_RESULTS &&
        plan.unit != TENSOR_CORES) {
        for (int log = 1; 1 << log <= MOST_IN_CLUSTER; log++) {
            const int splits = 1 << log;
            const double us = tiles_us(s, kind, splits, log);
            if (splits <= s.stages && fits_clusters(s, kind, log) && us < plan.us) {
                plan.splits = splits;
                plan.us = us;
                plan.in_clusters = true;
            }
        }
    }
    return plan;
}

/* The fastest plan. */
inline tile_plan
plan_tiles(const product_size &s)
{
    const tile_plan v4s = {V4_KIND, 1, whole_tiles_us(s), ORDINARY, false};
    tile_plan best = v4s;
    for (int k = 0; k < KINDS - !s.is_wide; k++) { /* SMALL_KIND is of float64 */
        const tile_kind &kind = TILE_KINDS[s.is_wide][k];
        if (stage_bytes(kind, s.is_wide) > s.room) {
            continue;
        }
        best = faster(best, plan_splits(s, kind, {k, 1, 0, ORDINARY, false}));
    }
    return best.us < OF_V4S[s.is_wide] * v4s.us ? best : v4s;
}

/*
 * A product in one launch, `tiles`, or in two: the first `batches` batches, if that is
 * not 0, fill whole waves of blocks, and the others are a product of their own.  Of
 * float64 alone: others were not timed.
 */
struct product_plan {
    tile_plan tiles;
    int64_t batches;
    tile_plan rest;
    double us;
};

inline product_plan
plan_product(const product_size &s)
{
    const tile_plan whole = plan_tiles(s);
    product_plan best = {whole, 0, whole, whole.us};
    for (int k = 0; s.is_wide && k < KINDS; k++) {
        const tile_kind &kind = TILE_KINDS[s.is_wide][k];
        const double wave = s.processors * kind.blocks;
        const double waves = floor(tiles_of(s, kind) / wave);
        const double batches =
            floor(waves * wave / ceil(s.outputs / kind.outputs)) * kind.batches;
        if (stage_bytes(kind, s.is_wide) > s.room || !(batches >= kind.batches) ||
            batches >= s.batches) {
            continue;
        }
        product_size first = s, others = s;
        first.batches = batches;
        others.batches = s.batches - batches;
        const tile_plan tiles = {k, 1, tiles_us(first, kind, 1), ORDINARY, false};
        const tile_plan rest = plan_tiles(others);
        const double us = tiles.us + rest.us - TILES_US[s.is_wide] + REST_US;
        if (us < OF_WHOLE * whole.us && us < best.us) {
            best = {tiles, static_cast<int64_t>(batches), rest, us};
        }
    }
    return best;
}

/* A plan's us, to be compared with few_batches': its first stages have to come before. */
inline double
tiles_beside_few_us(const product_size &s, double us)
{
    return us + (s.rows * (s.is_wide ? 8 : 4) >= TILE_BYTES ? TILE_US[s.is_wide] : 0);
}

/* The fastest plan by single warps; tiles_us' sizes are those of the same kinds. */
inline tile_plan
plan_tensor_tiles(const product_size &s)
{
    tile_plan best =
        plan_splits(s, TENSOR_KINDS[0], {V4_KIND, 1, 0, TENSOR_CORES, false});
    if (stage_bytes(TENSOR_KINDS[1], false) <= s.room) {
        best = faster(best, plan_splits(s, TENSOR_KINDS[1],
                                        {LARGE_KIND, 1, 0, TENSOR_CORES, false}));
    }
    return best;
}

/* The best plan by warpgroups; us is INFINITY without room. */
inline tile_plan
plan_warpgroups(const product_size &s)
{
    tile_plan plan =
        plan_splits(s, WARPGROUP_KIND, {LARGE_KIND, 1, 0, WARPGROUPS, false});
    plan.us = warpgroup_bytes(WARPGROUP_KIND.batches) <= s.room ? plan.us : INFINITY;
    const tile_plan half =
        plan_splits(s, HALF_WARPGROUP_KIND, {V4_KIND, 1, 0, WARPGROUPS, false});
    const bool fits = warpgroup_bytes(HALF_WARPGROUP_KIND.batches) <= s.room;
    tile_plan best = fits ? faster(plan, half) : plan;
    best.us += WARPGROUP_US;
    return best;
}

/* ---- few_batches ---- */

/* Batches of a block: one block has all of up to eight. */
inline int
few_batches_of(int64_t batches)
{
    return batches > FEW_BATCHES && batches <= 2 * FEW_BATCHES ? 2 * FEW_BATCHES
                                                               : FEW_BATCHES;
}

/*
 * Its product in us, by the bytes that it reads from L2 and from memory and its blocks.
 * A block reads rows of four outputs and of its batches.
 */
inline double
few_batches_us(const product_size &s)
{
    const double value = s.is_wide ? 8 : 4;
    const double of_block = few_batches_of(static_cast<int64_t>(s.batches));
    const double shared = of_block > FEW_BATCHES ? s.batches : of_block;
    const double loads =
        s.batches * s.outputs * s.rows * value * (1.0 / FEW_OUTPUTS + 1.0 / shared);
    const double blocks = ceil(s.outputs / FEW_OUTPUTS) * ceil(s.batches / of_block);
    return PRODUCT_US + s.outputs * s.rows * s.bytes / MEMORY_BYTES_PER_US +
           (FEW_BATCHES_MEASURED[s.is_wide] * loads / L2_BYTES_PER_US +
            FEW_BLOCK_US * blocks) /
               s.processors;
}

/* Warps of a block of few_batches' product, at most, if the means are known. */
constexpr int FEW_MOST_WARPS = 2 * THREADS / WARP;

/*
 * Warps per block of few_batches' product, and what it takes then: few waves of blocks
 * against few rounds of loads, one after the other, along the depth.
 */
struct few_batches_plan {
    int warps;
    double us;
};

/* What an SM takes to look up x: the lanes of a warp have rows of their own. */
inline double
from_x_us(const gpo_call *call, double blocks)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double apart =
        static_cast<double>(p.cols) * gpo_dtypes[call->out[0].dtype].bytes / 128;
    const double batches = fmin(FEW_BATCHES, static_cast<double>(p.batches));
    const double lines = batches * static_cast<double>(p.rows) *
                         static_cast<double>(p.cols) * fmin(apart, 1);
    return ceil(blocks / gpo_processors(call)) * lines / LINES_PER_US;
}

/* Loads of a row of the matrix that a lane has in flight: of one value, or of 16 bytes. */
constexpr int
few_at_once(int bytes, bool in_packs, int batches)
{
    const int of_four = in_packs ? (bytes > 2 ? 2 : 1) : bytes > 4 ? 2 : 4;
    return batches > FEW_BATCHES && of_four > 1 ? of_four / 2 : of_four;
}

/* Whether rows of the matrix are whole packs. */
inline bool
has_packed_rows(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int64_t pack = 16 / gpo_dtypes[call->out[0].dtype].bytes;
    return p.matrix_row == 1 && p.rows % pack == 0 && p.matrix_output % pack == 0 &&
           reinterpret_cast<uintptr_t>(call->in[1].data) % 16 == 0;
}

/* `from_x`: the means are found where they are needed. */
inline few_batches_plan
plan_few_batches(const gpo_call *call, bool from_x)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const int bytes = gpo_dtypes[call->out[0].dtype].bytes;
    const bool is_wide = bytes == 8, in_packs = !from_x && has_packed_rows(call);
    const int batches = from_x ? FEW_BATCHES : few_batches_of(p.batches);
    const int64_t tiles = ceil_div(p.outputs, int64_t{FEW_OUTPUTS}) *
                          ceil_div(p.batches, int64_t{batches});
    const int of_sm = from_x     ? FEW_FROM_X_WARPS[is_wide]
                      : in_packs ? FEW_PACK_WARPS[is_wide]
                                 : FEW_WARPS[is_wide];
    const int64_t resident = gpo_processors(call) * of_sm;
    const int at_once = from_x ? 1 : few_at_once(bytes, in_packs, batches);
    const int64_t terms = int64_t{WARP} * at_once * (in_packs ? 16 / bytes : 1);
    const double round_us =
        from_x ? FEW_ROUND_US +
                     FEW_X_ROUND_US * static_cast<double>(ceil_div(p.cols, int64_t{8}))
               : FEW_ROUND_US * (in_packs ? 1 + at_once : 1 + at_once / 2.0);
    const double x_us = from_x ? from_x_us(call, static_cast<double>(tiles)) : 0;
    few_batches_plan best = {1, INFINITY};
    const int most = from_x || batches > FEW_BATCHES ? THREADS / WARP : FEW_MOST_WARPS;
    for (int warps = 1; warps <= most; warps *= 2) {
        /* of more warps than before an SM has whole blocks alone */
        const int64_t fit = warps > THREADS / WARP
                                ? gpo_processors(call) * (of_sm / warps * warps)
                                : resident;
        const double waves = static_cast<double>(ceil_div(tiles * warps, fit));
        const double rounds = static_cast<double>(ceil_div(p.rows, terms * warps));
        const double us = waves * (rounds * round_us + FEW_WAVE_US) + x_us;
        if (us < best.us) {
            best = {warps, us};
        }
    }
    return best;
}

/*
 * Whether each block computes the means that it needs, in one launch: x is small and its
 * rows are short, and what the loads of x take longer is less than a launch.
 */
inline bool
multiplies_from_x(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double read = static_cast<double>(ceil_div(p.outputs, int64_t{FEW_OUTPUTS})) *
                        static_cast<double>(p.batches) * static_cast<double>(p.rows) *
                        static_cast<double>(p.cols);
    return p.cols <= FEW_COLS &&
           read * gpo_dtypes[call->out[0].dtype].bytes <= FROM_X_BYTES &&
           plan_few_batches(call, true).us <
               plan_few_batches(call, false).us + MEANS_US;
}

/* ---- the kernels' launchers ---- */

/* Means of rows of any kind; row n of them starts at n * v.rows. */
template <typename T>
gpo_status mean_matvec_find_means(gpo_call *call, const mean_matvec_view<T> &v);

/* The product of a matrix and means, those of v, as planned. */
template <typename T>
gpo_status mean_matvec_multiply(gpo_call *call, const mean_matvec_view<T> &v,
                                const product_plan &plan);

/* Means, padded with the matrix or not, and their product as planned. */
template <typename T>
gpo_status mean_matvec_planned(gpo_call *call, bool pads, const product_plan &plan);

template <typename T>
gpo_status mean_matvec_few_tiles(gpo_call *call);

template <typename T>
gpo_status mean_matvec_tensor_tiles(gpo_call *call);

template <typename T>
gpo_status mean_matvec_warpgroup_tiles(gpo_call *call);

template <typename T>
gpo_status mean_matvec_few_batches(gpo_call *call);

#endif
