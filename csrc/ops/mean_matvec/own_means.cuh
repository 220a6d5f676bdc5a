/*
 * own_means.cuh  Which calls shapes/own_means.cu takes, in which tiles, and what they take
 * by estimate.  For the table, its choice and the kernel's launcher.
 */
#ifndef GPO_MEAN_MATVEC_OWN_MEANS_CUH
#define GPO_MEAN_MATVEC_OWN_MEANS_CUH

#include "short_rows.cuh"

/* In us on an H200, fitted to 15 calls: the launch with the waits for memory; what an SM
   copies, and adds; a stage of the product of 32 batches, and its store. */
constexpr double OWN_START_US = 7, OWN_BYTES_PER_US = 91000, OWN_ELEMENTS_PER_US = 9200;
constexpr double OWN_STAGE_US[2] = {1.35, 1}, OWN_STORE_US = 0.2;
/* Of the others' estimates is this one worth its risk, and what those of tiles lack where
   the code of two kernels comes from memory, as it does in a call after others (N64 L39
   M11, 2048 outputs, float32 17.5 us, 14.7 right after itself). */
constexpr double OF_OWN = 0.95, TWO_KERNELS_US = 4;

/* Tiles of OWN_OUTPUTS outputs by 16 or 32 batches, of which a block has one. */
struct own_plan {
    int batches;   /* 0: neither fits */
    int64_t bytes; /* of shared memory */
    int64_t turns; /* tiles of an SM */
    double us;     /* INFINITY if neither fits */
};

/* Bytes of the factors of a tile, then of its sums, whichever are more; without x. */
constexpr int64_t
own_tile_bytes(int batches, int64_t stages, bool is_wide)
{
    const int64_t row =
        int64_t{16} * (is_wide ? WIDE_DEPTH_PACKS + 2 : DEPTH_PACKS + 1);
    const int shares = is_wide ? 2 : batches < 32 ? 8 : 4; /* tile_sums' */
    const int64_t factors = stages * (OWN_OUTPUTS + batches) * row;
    const int64_t sums =
        int64_t{shares} * OWN_OUTPUTS * (batches + 1) * (is_wide ? 8 : 4);
    return factors > sums ? factors : (sums + 15) / 16 * 16;
}

inline own_plan
plan_own_means(const gpo_call *call)
{
    const mean_matvec_plan &p = *mean_matvec_plan_of(call);
    own_plan best = {0, 0, 0, INFINITY};
    if (!takes_short_rows(call) || p.rows < 1 || p.rows > OWN_ROWS || p.batches < 1 ||
        p.outputs < 1) {
        return best;
    }
    const int64_t bytes = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t stages = ceil_div(p.rows, int64_t{STAGE_TERMS});
    const int64_t across = ceil_div(p.outputs, int64_t{OWN_OUTPUTS});
    const int64_t processors = gpo_processors(call), room = gpo_shared_room(call);
    for (int batches = 16; batches <= 32; batches *= 2) {
        const int64_t of_tile = p.batches < batches ? p.batches : batches;
        const int64_t x_bytes =
            ceil_div(of_tile * p.rows * p.cols * bytes, int64_t{16}) * 16 + 16;
        const int64_t all = own_tile_bytes(batches, stages, bytes == 8) + x_bytes;
        const int64_t tiles = across * ceil_div(p.batches, int64_t{batches});
        if (all > room || tiles > INT32_MAX) {
            continue;
        }
        const int64_t turns = ceil_div(tiles, processors);
        const double elements = static_cast<double>(of_tile * p.rows * p.cols);
        const double copied =
            static_cast<double>(x_bytes + p.rows * OWN_OUTPUTS * bytes);
        const double us =
            OWN_START_US +
            static_cast<double>(turns) *
                (copied / OWN_BYTES_PER_US + elements / OWN_ELEMENTS_PER_US +
                 OWN_STAGE_US[bytes == 8] * static_cast<double>(stages) * batches / 32 +
                 OWN_STORE_US * batches / 32);
        if (us < best.us) {
            best = {batches, all, turns, us};
        }
    }
    return best;
}

inline bool
takes_own_means(const gpo_call *call)
{
    return plan_own_means(call).batches > 0;
}

template <typename T>
gpo_status mean_matvec_own_means(gpo_call *call);

#endif
