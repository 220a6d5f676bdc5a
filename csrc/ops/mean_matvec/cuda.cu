/*
 * cuda.cu  The table of mean_matvec on CUDA: the ladder (ladder/), the shape kernels
 * (shapes/) and the choice.  The means of all rungs go through global memory: an x may
 * have more rows than fit in shared memory.
 * See rows.cuh for coalesced rows, product.cuh for a tile of the product, op.c for the
 * contract.
 */
#include "many_batches.cuh"
#include "own_means.cuh"
#include "ladder/v0_one_block.cuh"
#include "ladder/v1_block_per_batch.cuh"
#include "ladder/v2_warp_per_row.cuh"
#include "ladder/v3_two_stage.cuh"
#include "ladder/v4_product.cuh"
#include "ladder/v5_fused.cuh"

#include <stdio.h>

/* ---- table ---- */

/* Integers and bools are converted to float64: see op.c. */

/* few_batches and few_tiles are right for every call; the first is slow for many. */
static bool
takes_all(const gpo_call * /* call */)
{
    return true;
}

constexpr double SMALL_X_BYTES = 16 << 20; /* of x, where few_tiles stores v4's tiles */

enum { V4 = 4, V5, FEW, FEW_TILES, SHORT_ROWS, MANY, TENSOR, WARPGROUP, OWN };

static const gpo_variant variants[] = {
    gpo_row<float_types>("v0", "one block", GPO_RUN(mean_matvec_v0)),
    gpo_row<float_types>("v1", "one block per batch", GPO_RUN(mean_matvec_v1)),
    gpo_row<float_types>("v2", "coalesced rows, warp shuffle", GPO_RUN(mean_matvec_v2)),
    gpo_row<float_types>("v3", "two-stage shuffle for the product",
                         GPO_RUN(mean_matvec_v3)),
    gpo_row<float_types>("v4", "mean kernel, then a GEMM", GPO_RUN(mean_matvec_v4)),
    gpo_row<float_types>("v5", "the product runs while the others stream",
                         GPO_RUN(mean_matvec_v5)),
    gpo_shape(gpo_row<float_types>("few_batches",
                                   "4 outputs of 4 batches per block, along the depth",
                                   GPO_RUN(mean_matvec_few_batches)),
              "any call", takes_all),
    gpo_shape(gpo_row<float_types>("few_tiles",
                                   "tiles of a planned size, whose depth blocks share",
                                   GPO_RUN(mean_matvec_few_tiles)),
              "any call", takes_all),
    gpo_shape(gpo_row<float_types>("short_rows",
                                   "stretches of x in shared memory, a thread per row",
                                   GPO_RUN(mean_matvec_short_rows)),
              "contiguous x, means of 1 to 320 elements", takes_short_rows),
    gpo_shape(gpo_row<float_types>("many_batches",
                                   "neighbouring batches per block, means in shared "
                                   "memory",
                                   GPO_RUN(mean_matvec_many_batches)),
              "contiguous x, means of 1 to 128 elements, a matrix that fits in shared "
              "memory beside the means of 32 batches",
              takes_many_batches),
    gpo_shape(gpo_row<float_types>("tensor_tiles",
                                   "tensor cores multiply floats in two parts",
                                   GPO_RUN(mean_matvec_tensor_tiles)),
              "any call", takes_all),
    gpo_shape(gpo_row<float_types>(
                  "warpgroup_tiles", "warpgroups multiply floats in two parts",
                  GPO_RUN(mean_matvec_warpgroup_tiles), "run-to-run", "sm_90a"),
              "any call", takes_all),
    gpo_shape(
        gpo_row<float_types>("own_means", "tiles that find the means of their batches",
                             GPO_RUN(mean_matvec_own_means)),
        "contiguous x, means of 1 to 320 elements, a matrix of up to 512 columns; x "
        "and means of 16 batches and 64 rows of the matrix fit in shared memory",
        takes_own_means),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, from times on an H200: benchmarks/results/h200-mean_matvec.json ---- */

/*
 * What estimates are off by in the choice, by 649 calls on an H200 (NOTES.md), in us: a
 * block of few_batches on an SM takes longer, tiles of float64 less, and own_means, whose
 * estimate has all that a call takes, is that far above what others lack.
 */
constexpr double FEW_BLOCK_MORE_US[2] = {0.03, 0.1}, TILES_LESS_US[2] = {0, 3};
constexpr double OWN_LESS_US = 4;
/* Tiles of an SM at most, which start one after the other: N111779 L62 M5, 62 outputs,
   float64, 53 of them, 224 us on an H200, few_tiles 134. */
constexpr int64_t OWN_TURNS = 8;
/*
 * Where a group of lanes would use so few of its loads, a large x is copied in stretches,
 * of float64 rows of up to STRETCHED_COLS elements; and where it uses more, uneven rows of
 * floats are v4's if they are not short and the product is: bytes as us of x.
 */
constexpr double STRETCHED_USED = 0.63, STRETCHED_US[2] = {30, 15};
constexpr int64_t STRETCHED_COLS = 160;
constexpr double STREAMED_USED = 0.7, STREAMED_US = 10;
constexpr int64_t STREAMED_COLS = 90;

/* The time of x at the speed of memory, in us. */
static double
x_us_of(const gpo_call *call, const product_size &s)
{
    const double cols = static_cast<double>(mean_matvec_plan_of(call)->cols);
    return s.batches * s.rows * cols * s.bytes / MEMORY_BYTES_PER_US;
}

/* What v5 takes beyond the time of x, in us: v4's product, a part of which x hides. */
static double
v5_us(const gpo_call *call, const product_size &s)
{
    const double tiles_us = whole_tiles_us(s);
    return tiles_us + V5_US[s.is_wide] -
           V5_HIDES * fmin(tiles_us - TILES_US[s.is_wide], x_us_of(call, s));
}

/* What v4's stream of x takes longer for lanes that have no part of a row. */
static double
unused_us(const gpo_call *call, const product_size &s)
{
    const double x_us = x_us_of(call, s);
    const double part = has_long_rows(call) ? LONG_UNUSED : 1;
    return x_us > 0 ? part * (x_us / used_loads(call) - x_us) : 0;
}

/* What the means of uneven rows take beyond the time of x. */
static double
uneven_us(const gpo_call *call, const product_size &s)
{
    const double cols = static_cast<double>(mean_matvec_plan_of(call)->cols);
    return has_even_rows(call) ? 0 : UNEVEN_SLOWER / cols * x_us_of(call, s);
}

/* Means that a launch writes and the next one reads, where L2 does not keep them. */
static double
stored_means_us(const gpo_call *call, const product_size &s)
{
    const double bytes = s.batches * s.rows * (s.is_wide ? 8 : 4);
    return 2 * bytes > static_cast<double>(gpo_l2_bytes(call))
               ? 2 * bytes / MEMORY_BYTES_PER_US
               : 0;
}

/*
 * The fastest plan on tensor cores, beyond the time of x; its us are INFINITY where the
 * product is not long, and on GPUs whose tensor cores are not known to be faster than
 * their other units.
 */
static tile_plan
plan_on_tensor_cores(const gpo_call *call, const product_size &whole, bool pads)
{
    if (gpo_dtypes[call->out[0].dtype].bytes != 4 || whole.rows < TENSOR_ROWS ||
        whole.batches * whole.outputs * whole.rows < TENSOR_PRODUCTS ||
        gpo_lacks(call->backend, call->device, "sm_90a")) {
        return {V4_KIND, 1, INFINITY, ORDINARY, false};
    }
    const product_size size = pads ? size_of_product(call, true) : whole;
    tile_plan plan = faster(plan_tensor_tiles(size), plan_warpgroups(size));
    plan.us += pads ? padding_us(call) : 0;
    return plan;
}

/* Whether v4's stream is better at uneven rows than a copy in stretches. */
static bool
streams_uneven_rows(const gpo_call *call, mean_rows kind, double x_us)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    return kind == IN_STRETCHES && gpo_dtypes[call->in[0].dtype].bytes == 4 &&
           p.cols >= STREAMED_COLS && p.outputs <= p.cols && x_us >= STREAMED_US &&
           used_loads(call) >= STREAMED_USED;
}

/* Whether a copy in stretches is better at rows that groups of lanes would take. */
static bool
copies_in_stretches(const gpo_call *call, mean_rows kind, double x_us)
{
    const bool is_wide = gpo_dtypes[call->in[0].dtype].bytes == 8;
    return kind != IN_STRETCHES && gpo_dtypes[call->in[0].dtype].bytes >= 4 &&
           takes_short_rows(call) && x_us >= STRETCHED_US[is_wide] &&
           (!is_wide || mean_matvec_plan_of(call)->cols <= STRETCHED_COLS) &&
           used_loads(call) <= STRETCHED_USED;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const mean_rows kind = rows_of(call);
    const product_size whole = size_of_product(call, false);
    const factors_plan factors = plan_factors(call);
    const tile_plan &planned = factors.product.tiles;
    const bool pads = factors.pads;
    const double tiles_us = factors.us - TILES_LESS_US[whole.is_wide];
    const mean_matvec_plan &plan = *mean_matvec_plan_of(call);
    const bool hides = kind == LANES_SHARE && has_even_rows(call) &&
                       plan.cols <= SHORT && plan.outputs <= HIDDEN * plan.cols;
    const double fused_us = hides ? v5_us(call, whole) : INFINITY;
    const bool is_v4s = planned.kind == V4_KIND && planned.splits == 1 && !pads &&
                        factors.product.batches == 0;
    const double blocks = ceil(whole.outputs / FEW_OUTPUTS) *
                          ceil(whole.batches / few_batches_of(plan.batches));
    const double few_us = few_batches_us(whole) -
                          (multiplies_from_x(call) ? MEANS_US : 0) +
                          FEW_BLOCK_MORE_US[whole.is_wide] * blocks / whole.processors;
    const double stream_us = (kind == IN_STRETCHES  ? uneven_us(call, whole)
                              : kind == LANES_SHARE ? unused_us(call, whole)
                                                    : 0) +
                             stored_means_us(call, whole);
    const double others_us = fmin(few_us, fmin(tiles_us, fused_us)) + stream_us;
    const double many_us = many_batches_us(call, whole);
    const tile_plan tensor = plan_on_tensor_cores(call, whole, pads);
    const double x_us = x_us_of(call, whole);
    const bool is_streamed = streams_uneven_rows(call, kind, x_us);
    if (!is_streamed && tensor.us + stream_us + x_us <
                            OF_ORDINARY * (fmin(others_us, many_us) + x_us)) {
        GPO_SAY(why, "a long product: tensor cores multiply floats in two parts");
        return &variants[tensor.unit == WARPGROUPS ? WARPGROUP : TENSOR];
    }
    const own_plan own = plan_own_means(call);
    const double two_us = kind == IN_STRETCHES ? 0 : TWO_KERNELS_US;
    const double beside_own_us =
        fmin(few_us, fmin(tiles_us, fused_us) + two_us) + stream_us;
    if (own.turns <= OWN_TURNS &&
        own.us - OWN_LESS_US < OF_OWN * fmin(beside_own_us, many_us)) {
        GPO_SAY(
            why,
            "a small call: blocks of 64 outputs find the means of %d batches, in one "
            "launch",
            own.batches);
        return &variants[OWN];
    }
    if (many_us < OF_OTHERS * others_us) {
        GPO_SAY(why, "many batches of a small problem: blocks keep their means");
        return &variants[MANY];
    }
    const double tile_us = tiles_beside_few_us(whole, tiles_us);
    if (few_us < fmin(is_v4s ? tile_us : tile_us / OF_FEW, fused_us)) {
        GPO_SAY(why,
                "few batches or outputs: tiles of 4 by 4 fill the GPU, 64 by 64 do "
                "not");
        return &variants[FEW];
    }
    if (is_streamed) {
        GPO_SAY(why, "v4: rows of %lld elements that lanes fill, and a short product",
                static_cast<long long>(plan.cols));
        return &variants[V4];
    }
    const bool is_copied = copies_in_stretches(call, kind, x_us);
    if (kind == BY_ELEMENTS && !is_copied) {
        GPO_SAY(why,
                "few_tiles: warps read %lld float64 of a row one by one, whose rows "
                "are no whole packs",
                static_cast<long long>(plan.cols));
        return &variants[FEW_TILES];
    }
    if (kind == IN_STRETCHES) {
        GPO_SAY(why,
                "rows of up to %d elements that lanes would not fill: copied "
                "whole, then added",
                static_cast<int>(SHORT_COLS));
        return &variants[planned.splits > 1 || pads ? FEW_TILES : SHORT_ROWS];
    }
    if (fused_us <= factors.us) {
        GPO_SAY(why, "means of %d elements or fewer: v5 hides the product behind them",
                static_cast<int>(SHORT));
        return &variants[V5];
    }
    /* The same tiles, stored faster: where x is small, nothing hides that (N30 L8 M300,
       2007 outputs, float64: v4 13.2 us on an H100, so 11.7).  Of float64 the product
       also starts sooner: N872 L256 M30, 1669 outputs 50.3 and 45.3 on an H200. */
    const double x_bytes =
        whole.batches * whole.rows * whole.bytes * static_cast<double>(plan.cols);
    const bool is_small =
        x_bytes <= SMALL_X_BYTES &&
        tiles_of(whole, TILE_KINDS[whole.is_wide][V4_KIND]) <= whole.processors;
    if (is_copied && (!is_v4s || is_small || whole.is_wide)) {
        GPO_SAY(why,
                "rows of %lld elements, of which lanes would have few loads each: "
                "copied whole, then added",
                static_cast<long long>(plan.cols));
        return &variants[SHORT_ROWS];
    }
    if (!is_v4s || is_small || whole.is_wide) {
        if (factors.product.batches > 0) {
            GPO_SAY(why,
                    "tiles of %d outputs by %d batches that fill waves of blocks, the "
                    "last %lld batches apart",
                    TILE_KINDS[whole.is_wide][planned.kind].outputs,
                    TILE_KINDS[whole.is_wide][planned.kind].batches,
                    static_cast<long long>(plan.batches - factors.product.batches));
            return &variants[FEW_TILES];
        }
        GPO_SAY(why, "tiles of %d outputs by %d batches, the depth of each in %d parts",
                TILE_KINDS[whole.is_wide][planned.kind].outputs,
                TILE_KINDS[whole.is_wide][planned.kind].batches,
                static_cast<int>(planned.splits));
        return &variants[FEW_TILES];
    }
    GPO_SAY(why, plan.cols <= SHORT
                     ? "v4: the product takes longer than the means"
                     : "v4 reads x in one kernel at the speed of memory");
    return &variants[V4];
}

extern "C" const gpo_table mean_matvec_cuda = {variants, choose};
