/*
 * cuda.cu  The table of scan on CUDA: the ladder (ladder/), whose v5 is another
 * translation unit, and the shape kernels (shapes/); choice.cu picks one.
 * See scans.cuh for the scans, op.c for the contract.
 */
#include "choice.cuh"
#include "ladder/v0_hillis_steele.cuh"
#include "ladder/v1_blelloch.cuh"
#include "ladder/v2_warp_shuffles.cuh"
#include "ladder/v3_single_pass.cuh"
#include "ladder/v4_parked.cuh"

/* ---- table ---- */

#define RUNG(rung) \
    [](auto t) -> gpo_run { return scan_with<rung, typename decltype(t)::type>; }

/* v4 and v5, or v3 where they do not apply: rows of one tile, columns, widened products. */
template <typename T>
static gpo_status
scan_v4_or_v3(gpo_call *call)
{
    return has_many_tiles(call) ? scan_with<scan_v4, T, true>(call)
                                : scan_with<scan_v3, T>(call);
}

template <typename T>
static gpo_status
scan_v5_or_v3(gpo_call *call)
{
    return has_many_tiles(call) ? scan_v5<T>(call) : scan_with<scan_v3, T>(call);
}

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "Hillis and Steele, three kernels", RUNG(scan_v0)),
    gpo_row<every_type>("v1", "Blelloch's two sweeps, padded banks", RUNG(scan_v1)),
    gpo_row<every_type>("v2", "warp shuffles, reduce then scan", RUNG(scan_v2)),
    gpo_row<every_type>("v3", "single pass, look-back in a fixed order", RUNG(scan_v3)),
    gpo_row<every_type>("v4", "tiles wait in shared memory", GPO_RUN(scan_v4_or_v3)),
    gpo_row<every_type>("v5", "totals taken a quarter of L2 ahead: nobody waits",
                        GPO_RUN(scan_v5_or_v3)),
    gpo_shape(gpo_row<every_type>("short_rows", "rows share a tile, a segmented scan",
                                  GPO_RUN(scan_short_rows)),
              "two or more rows along memory, two of which fit 16 KiB of results",
              has_short_rows),
    gpo_shape(gpo_row<every_type>("columns",
                                  "a pack of neighbouring columns per thread",
                                  GPO_RUN(scan_columns)),
              "scans along an axis that is not the innermost", has_columns),
    gpo_shape(gpo_row<every_type>("walked_columns",
                                  "a thread walks down a pack of neighbouring columns",
                                  GPO_RUN(scan_walked_columns)),
              "scans along an axis that is not the innermost", has_columns),
    gpo_shape(gpo_row<every_type>("warp_rows", "a warp or a part of it for each row",
                                  GPO_RUN(scan_warp_rows)),
              "rows of at most 1,024 elements, at most 2^24 of them", has_warp_rows),
    gpo_shape(gpo_row<every_type>("cluster_rows", "a cluster of blocks for each row",
                                  GPO_RUN(scan_cluster_rows), "run-to-run",
                                  CLUSTER_NEEDS),
              "rows along memory of at most 1 MiB, but not products of short integers",
              has_cluster_rows),
    gpo_shape(gpo_row<every_type>("one_wave",
                                  "all blocks of a row run at once and read all totals",
                                  GPO_RUN(scan_one_wave)),
              "rows along memory of at most 20 MiB, but not products of short integers",
              has_one_wave),
    gpo_shape(gpo_row<every_type>("one_element", "an axis of one element: a copy",
                                  GPO_RUN(scan_one_element)),
              "an axis of one element, of an array in the order of memory",
              has_one_element),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    return &variants[choose_scan(call, why)];
}

extern "C" const gpo_table scan_cuda = {variants, choose};
