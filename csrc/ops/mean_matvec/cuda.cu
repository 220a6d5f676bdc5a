/*
 * cuda.cu  The table of mean_matvec on CUDA: the ladder (ladder/), the shape kernels
 * (shapes/) and the choice.  The means of all rungs go through global memory: an x may
 * have more rows than fit in shared memory.
 * See rows.cuh for coalesced rows, product.cuh for a tile of the product, op.c for the
 * contract.
 */
#include "short_rows.cuh"
#include "ladder/v0_one_block.cuh"
#include "ladder/v1_block_per_batch.cuh"
#include "ladder/v2_warp_per_row.cuh"
#include "ladder/v3_two_stage.cuh"
#include "ladder/v4_product.cuh"
#include "ladder/v5_fused.cuh"

#include <stdio.h>

/* ---- table ---- */

/* Integers and bools are converted to float64: see op.c. */

/* It is right for every call, and slow for many batches and outputs. */
static bool
takes_few_batches(const gpo_call * /* call */)
{
    return true;
}

enum { V4 = 4, V5, FEW, FEW_TILES, SHORT_ROWS };

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
              "any call", takes_few_batches),
    gpo_shape(gpo_row<float_types>("few_tiles",
                                   "v4's tiles, whose depth several blocks share",
                                   GPO_RUN(mean_matvec_few_tiles)),
              "up to 1024 tiles of 64 outputs by 64 batches", takes_few_tiles),
    gpo_shape(gpo_row<float_types>("short_rows",
                                   "stretches of x in shared memory, a thread per row",
                                   GPO_RUN(mean_matvec_short_rows)),
              "contiguous x, means of 1 to 320 elements", takes_short_rows),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, from times on an H200: benchmarks/results/h200-mean_matvec.json ---- */

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const bool is_short = has_short_rows(call);
    const bool pads = pads_factors(call); /* v4 and v5 take the matrix as it is */
    const double copy_us = pads ? padding_us(call) : 0;
    const double whole_us =
        whole_tiles_us(call, is_short && pads) + (is_short ? copy_us : 0);
    const double split_us = shared_tiles_us(call, pads) + copy_us;
    if (few_batches_us(call) < fmin(whole_us, split_us)) {
        GPO_SAY(why,
                "few batches or outputs: tiles of 4 by 4 fill the GPU, 64 by 64 do "
                "not");
        return &variants[FEW];
    }
    if (split_us < whole_us) {
        GPO_SAY(why, "few tiles of 64 by 64, of long sums: several blocks share each");
        return &variants[FEW_TILES];
    }
    if (is_short) {
        GPO_SAY(
            why,
            "rows of up to %d elements, no whole packs or less than 64 bytes: copied "
            "whole, then added",
            static_cast<int>(SHORT_COLS));
        return &variants[SHORT_ROWS];
    }
    const mean_matvec_plan &plan = *mean_matvec_plan_of(call);
    if (plan.cols <= SHORT && plan.outputs <= HIDDEN * plan.cols) {
        GPO_SAY(why, "means of %d elements or fewer: v5 hides the product behind them",
                static_cast<int>(SHORT));
        return &variants[V5];
    }
    GPO_SAY(why, plan.cols <= SHORT
                     ? "v4: the product takes longer than the means"
                     : "v4 reads x in one kernel at the speed of memory");
    return &variants[V4];
}

#define INSTANTIATE(T)                                      \
    template gpo_status mean_matvec_product(gpo_call *call, \
                                            const mean_matvec_view<T> &v);
INSTANTIATE(f16)
INSTANTIATE(bf16)
INSTANTIATE(float)
INSTANTIATE(double)

extern "C" const gpo_table mean_matvec_cuda = {variants, choose};
