/*
 * cuda.cu  The table of reduce on CUDA: the ladder (ladder/), the shape kernels
 * (shapes/); choice.cu picks one.  Up to v8 each block stores one part and the shared finish
 * (rows.cuh) combines the parts; v9 needs no second kernel.  See reductions.cuh for the
 * reductions, op.c for the contract.
 */
#include "choice.cuh"
#include "ladder/v0_interleaved.cuh"
#include "ladder/v1_strided.cuh"
#include "ladder/v2_sequential.cuh"
#include "ladder/v3_add_on_load.cuh"
#include "ladder/v4_last_warp.cuh"
#include "ladder/v5_unrolled.cuh"
#include "ladder/v6_fixed_grid.cuh"
#include "ladder/v7_warp_shuffle.cuh"
#include "ladder/v8_packs.cuh"
#include "memory_order.cuh"
#include "narrow.cuh"
#include "one_row.cuh"
#include "one_wave.cuh"

/* For v9, another translation unit, which falls back to v8. */
#define INSTANTIATE(T) template gpo_status reduce_v8<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)

/* ---- table ---- */

#define RUNG(rung) \
    [](auto t) -> gpo_run { return reduce_with<rung, typename decltype(t)::type>; }

static bool
takes_few_axes(const gpo_call *call)
{
    return has_few_axes(*reduce_plan_of(call));
}

static bool
takes_transposed(const gpo_call *call)
{
    return are_transposed(*reduce_plan_of(call));
}

static bool
takes_few_down(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    return are_few_down(plan) || are_zeros(plan);
}

static bool
takes_narrow_rows(const gpo_call *call)
{
    return are_narrow_rows(*reduce_plan_of(call), gpo_dtypes[call->in[0].dtype].bytes);
}

static bool
takes_flat_columns(const gpo_call *call)
{
    return are_flat_columns(*reduce_plan_of(call));
}

static bool
takes_one_block(const gpo_call *call)
{
    return are_block_rows(*reduce_plan_of(call), gpo_dtypes[call->in[0].dtype].bytes);
}

static bool
takes_one_cluster(const gpo_call *call)
{
    return is_cluster_row(*reduce_plan_of(call), gpo_dtypes[call->in[0].dtype].bytes);
}

static bool
takes_one_wave(const gpo_call *call)
{
    return are_one_wave(*reduce_plan_of(call));
}

/* Lanes on neighbouring results; or argmin and argmax of all in the order of memory. */
template <typename T>
static gpo_status
reduce_columns_or_memory(gpo_call *call)
{
    return is_out_of_order(*reduce_plan_of(call)) ? reduce_memory_order<T>(call)
                                                  : reduce_columns<T>(call);
}

static bool
takes_stepped_rows(const gpo_call *call)
{
    return are_stepped(*reduce_plan_of(call));
}

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "interleaved addressing, divergent", RUNG(reduce_v0)),
    gpo_row<every_type>("v1", "strided index, bank conflicts", RUNG(reduce_v1)),
    gpo_row<every_type>("v2", "sequential addressing", RUNG(reduce_v2)),
    gpo_row<every_type>("v3", "first add during load", RUNG(reduce_v3)),
    gpo_row<every_type>("v4", "last warp unrolled", RUNG(reduce_v4)),
    gpo_row<every_type>("v5", "complete unroll by template", RUNG(reduce_v5)),
    gpo_row<every_type>("v6", "many elements per thread, fixed grid", RUNG(reduce_v6)),
    gpo_row<every_type>("v7", "warp shuffle", RUNG(reduce_v7)),
    gpo_row<every_type>("v8", "16-byte packs", GPO_RUN(reduce_v8)),
    gpo_row<every_type>("v9", "one launch, many loads in flight", GPO_RUN(reduce_v9)),
    gpo_shape(gpo_row<every_type>("short_rows", "part of a warp for each row",
                                  GPO_RUN(reduce_short_rows)),
              "arrays of at most 6 axes, kept or reduced, after merging",
              takes_few_axes),
    gpo_shape(gpo_row<every_type>("columns", "lanes on neighbouring results walk down",
                                  GPO_RUN(reduce_columns_or_memory)),
              "arrays of at most 6 axes, kept or reduced, after merging",
              takes_few_axes),
    gpo_shape(gpo_row<every_type>("transposed", "tiles of results in shared memory",
                                  GPO_RUN(reduce_transposed)),
              "transposed arrays of at most 6 axes", takes_transposed),
    gpo_shape(
        gpo_row<every_type>("few_down", "a thread for a result, all loads at once",
                            GPO_RUN(reduce_few_down)),
        "at most 2^30 results of up to 8 elements, along at most 3 axes; of up to "
        "32 down one axis; argmin and argmax of one",
        takes_few_down),
    gpo_shape(gpo_row<every_type>("one_block", "all loads of a row at once",
                                  GPO_RUN(reduce_one_block)),
              "contiguous rows of at most 64 KiB that start 16 bytes apart or more",
              takes_one_block),
    gpo_shape(gpo_row<every_type>("one_cluster", "a cluster of blocks for a row",
                                  GPO_RUN(reduce_one_cluster), "run-to-run",
                                  CLUSTER_NEEDS),
              "one contiguous row of at most 512 KiB", takes_one_cluster),
    gpo_shape(gpo_row<every_type>("one_wave", "all loads of all threads at once",
                                  GPO_RUN(reduce_one_wave)),
              "views that span fewer than 2^27 elements, of at most 3 kept and 2 "
              "reduced axes after merging",
              takes_one_wave),
    gpo_shape(
        gpo_row<every_type>("stepped_rows", "half of each load of 16 bytes",
                            GPO_RUN(reduce_stepped_rows)),
        "rows of elements two apart, at most 6 axes, kept or reduced, after merging",
        takes_stepped_rows),
    gpo_shape(gpo_row<every_type>("narrow_rows", "stretches of rows in shared memory",
                                  GPO_RUN(reduce_narrow_rows)),
              "rows at equal distances of up to 512 bytes, of elements that are, too",
              takes_narrow_rows),
    gpo_shape(gpo_row<every_type>("flat_columns", "packs of whole rows of few columns",
                                  GPO_RUN(reduce_flat_columns)),
              "up to 32 columns without gaps; no argmin and argmax",
              takes_flat_columns),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &variants[choose_reduce(call, why)];
}

extern "C" const gpo_table reduce_cuda = {variants, choose};
