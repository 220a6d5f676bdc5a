/*
 * few_batches.cuh  Which calls shapes/few_batches.cu takes and which of them are its
 * own by estimate, for the table and the kernel's launcher.
 */
#ifndef GPO_MEAN_MATVEC_FEW_BATCHES_CUH
#define GPO_MEAN_MATVEC_FEW_BATCHES_CUH

#include "../../device/grid.cuh"
#include "rows.cuh"

/* Products of a call, in the time of v4's tiles and in that of small ones, in us. */
inline bool
has_few_batches(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    const double bytes = gpo_dtypes[call->out[0].dtype].bytes == 8 ? 8 : 4;
    const double rows = static_cast<double>(p.rows);
    const double tiles = static_cast<double>(ceil_div(p.batches, TILE_BATCHES)) *
                         static_cast<double>(ceil_div(p.outputs, TILE_OUTPUTS));
    const double processors = static_cast<double>(gpo_processors(call));
    const double waves = tiles / processors;
    const double stages = rows * bytes / (DEPTH_PACKS * 16.0);
    const bool is_aligned = p.rows * static_cast<int64_t>(bytes) % 16 == 0;
    const double of_tiles = (waves < 1 ? 1 : waves) * (stages + 2) *
                            STAGE_MICROSECONDS * (is_aligned ? 1 : MISALIGNED);
    const double loads = static_cast<double>(p.batches) *
                         static_cast<double>(p.outputs) * rows * bytes *
                         (1.0 / FEW_OUTPUTS + 1.0 / FEW_BATCHES);
    return loads / (L2_BYTES_PER_MICROSECOND * processors) < of_tiles;
}

template <typename T>
gpo_status mean_matvec_few_batches(gpo_call *call);

#endif
