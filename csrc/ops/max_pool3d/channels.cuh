/*
 * channels.cuh  Which calls shapes/channels_last.cu takes, and how it shares them out:
 * channels and outputs of a block.  For the kernel's launcher, and the table, which
 * compares an estimate with others (costs.cuh).
 */
#ifndef GPO_MAX_POOL3D_CHANNELS_CUH
#define GPO_MAX_POOL3D_CHANNELS_CUH

#include "../../device/warp.cuh"
#include "taps.cuh"

/* Packs of a block: 128 bytes of channels, or a warp of narrower packs. */
__host__ __device__ constexpr int
packs_of_block(int pack_bytes)
{
    return pack_bytes == 16 ? 8 : WARP;
}

/* Results of a block: CHANNEL_RUN of each channel, and a column that avoids conflicts. */
__host__ __device__ constexpr int
channel_room(int pack, int pack_bytes)
{
    return packs_of_block(pack_bytes) * pack * (CHANNEL_RUN + 1);
}

struct channel_plan {
    int pack;       /* channels that a thread has: they are one load */
    int lanes;      /* packs of a block, beside each other */
    int tiles;      /* of that many packs */
    int run;        /* outputs of a plane that a block has, at most */
    int rows;       /* outputs at the same time */
    int64_t runs;   /* of a plane */
    double batches; /* blocks are batches x runs x tiles */
};

/* Whether all of x is in packs of so many channels, from an address on. */
inline bool
is_in_packs(const max_pool3d_plan &plan, int64_t pack, int64_t bytes, uintptr_t address)
{
    const bool has_batches = plan.planes > plan.channels;
    bool fits = plan.channels % pack == 0 &&
                address % static_cast<uintptr_t>(pack * bytes) == 0 &&
                (!has_batches || plan.by_batch % pack == 0);
    for (int d = 0; d < POOL_AXES; d++) {
        fits = fits && (plan.axis[d].in == 1 || plan.by[d] % pack == 0);
    }
    return fits;
}

/*
 * Packs of 16 bytes, of 4 or of one element.  Where a plane has few outputs a block has
 * more channels, and where there are few channels more outputs, so that it is full.
 */
inline channel_plan
plan_channels(const gpo_call *call, uintptr_t address)
{
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    const int bytes = gpo_dtypes[call->in[0].dtype].bytes;
    channel_plan s = {};
    s.pack = 1;
    for (int wide = 16; wide >= 4 && s.pack == 1; wide /= 4) {
        if (wide > bytes && is_in_packs(plan, wide / bytes, bytes, address)) {
            s.pack = wide / bytes;
        }
    }
    const int64_t packs = plan.channels / s.pack;
    int64_t most = packs_of_block(s.pack * bytes);
    const int64_t spare = packs > 0 && packs < most ? most / packs : 1;
    s.run = static_cast<int>(least_of(CHANNEL_RUN * spare, plan.outputs));
    while (CHANNEL_BLOCK / most > s.run && most < WARP) {
        most *= 2;
    }
    s.tiles = static_cast<int>(ceil_div(packs, most));
    s.lanes = static_cast<int>(s.tiles > 0 ? ceil_div(packs, s.tiles) : 1);
    s.rows = static_cast<int>(least_of(CHANNEL_BLOCK / s.lanes, s.run));
    s.runs = ceil_div(plan.outputs, s.run);
    s.batches =
        plan.channels > 0 ? static_cast<double>(plan.planes / plan.channels) : 0;
    return s;
}

/*
 * Channels lie beside each other, and 31 bits count blocks, the outputs and elements of
 * a plane, and the bytes of x that a window spans.
 */
inline bool
takes_channels_last(const gpo_call *call)
{
    constexpr double MOST = 1 << 30;
    const max_pool3d_plan &plan = *max_pool3d_plan_of(call);
    if (plan.by_channel != 1 || plan.channels < 2 || plan.channels > 1 << 30) {
        return false;
    }
    /* packs of one element: wider ones make at most twice the tiles */
    const channel_plan s = plan_channels(call, 1);
    double reach = 0; /* elements of x that a window spans */
    bool fits = static_cast<double>(plan.outputs) <= MOST &&
                static_cast<double>(plan.plane) <= MOST &&
                s.batches * s.tiles * static_cast<double>(s.runs) <= MOST / 2;
    for (int d = 0; d < POOL_AXES; d++) {
        const pool_axis &a = plan.axis[d];
        const double window =
            (static_cast<double>(a.kernel) + 1) * static_cast<double>(a.dilation);
        reach += a.in > 1 ? window * fabs(static_cast<double>(plan.by[d])) : 0;
        fits = fits && reach_of(a) < MOST;
    }
    return fits && reach * gpo_dtypes[call->in[0].dtype].bytes < MOST;
}

template <typename T>
gpo_status max_pool3d_channels_last(gpo_call *call);

#endif
