/*
 * one_wave.cuh  Which calls shapes/one_wave.cu takes, how it divides them, and which of
 * them it is chosen for.
 */
#ifndef GPO_REDUCE_ONE_WAVE_CUH
#define GPO_REDUCE_ONE_WAVE_CUH

#include "views.cuh"

/* Threads of a block: at least, and at most; loads of a thread at once, of wide elements
   half as many; kept axes; places of parts in shared memory. */
constexpr int WAVE_LEAST = 128, WAVE_BLOCK = 1024, WAVE_ITEMS = 8;
constexpr int MOST_WAVE_AXES = 3, WAVE_SLOTS = 256;

/* Neighbouring results that a block has at least, where these are the nearer elements:
   a sector of 32 bytes of float32. */
constexpr int WAVE_BESIDE = 8;

/* The choice: threads of an SM, of 64 registers each; bytes of contiguous rows, of which
   other kernels load packs.  Rounds of loads, up to which a block shares its results with
   no other, 0.7 us each: the last of several waits 2 us for their parts; threads of a
   block that does.  From times in NOTES.md. */
constexpr int64_t WAVE_THREADS = 1024, WAVE_RUN_BYTES = 1 << 22;
constexpr int64_t WAVE_ROUNDS = 3, WAVE_SHARED = 256;

/* Threads and results of a block, threads of a result, blocks that share it, rounds of
   loads; whether neighbours are on different results. */
struct wave_grid {
    int height, across, split, rounds;
    bool apart;
};

__host__ __device__ constexpr int
wave_items(int bytes)
{
    return bytes > 8 ? WAVE_ITEMS / 2 : WAVE_ITEMS;
}

/* Whether offsets fit into 32 bits, also those a few rounds past the last. */
inline bool
are_one_wave(const reduce_plan &plan)
{
    constexpr int64_t MOST = 1 << 27;
    int64_t extent = 0;
    bool fits = plan.kept.ndim <= MOST_WAVE_AXES && plan.reduced.ndim <= 2 &&
                plan.rows > 0 && plan.cols > 0 && plan.rows <= MOST / plan.cols;
    const reduce_axes *const both[] = {&plan.kept, &plan.reduced};
    for (const reduce_axes *axes : both) {
        for (int d = 0; fits && d < axes->ndim; d++) {
            const int64_t stride = llabs(axes->strides[d]), n = axes->shape[d];
            fits = stride < MOST && n < MOST && stride * n < MOST - extent;
            extent += stride * n;
        }
    }
    return fits;
}

inline wave_grid
wave_grid_of(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
    const int items = wave_items(gpo_dtypes[call->in[0].dtype].bytes);
    const bool apart = kept.ndim > 0 && (reduced.ndim == 0 ||
                                         llabs(kept.strides[nearest_axis(kept)]) <=
                                             llabs(reduced.strides[reduced.ndim - 1]));
    const int least = apart ? power_of_two_from(plan.rows, WAVE_BESIDE) : 1;
    const int64_t loads = ceil_div(plan.cols, items);
    int height = power_of_two_from(loads, WAVE_BLOCK / least);
    int64_t split = 1;
    if (loads > WAVE_ROUNDS * height) {
        height = WAVE_SHARED / least < 32 ? 32 : WAVE_SHARED / least;
        const int64_t bytes =
            2 * sizeof(double) + sizeof(int64_t); /* or less, of a part */
        const int64_t tiles = ceil_div(plan.rows, least);
        split = ceil_div(loads, height);
        split = tiles <= GPO_TICKETS && split <= MAX_GRID_YZ &&
                        split * plan.rows <= GPO_PARTIALS / bytes
                    ? split
                    : 1;
    }
    const int across = WAVE_LEAST / height > least ? WAVE_LEAST / height : least;
    const int64_t rounds = ceil_div(loads, height * split);
    return {height, across, static_cast<int>(split),
            static_cast<int>(rounds <= WAVE_ROUNDS ? rounds : WAVE_ROUNDS + 1), apart};
}

/*
 * Whether contiguous rows are not better read in packs: of elements of 2 or 4 bytes, of
 * bytes for one warp, of any where rows begin between packs; or a single row that a
 * cluster of blocks would be slow to add.
 */
inline bool
are_wave_runs(const reduce_plan &plan, const wave_grid &g, int64_t bytes)
{
    const int64_t whole = plan.rows * plan.cols * bytes;
    const bool is_uneven = plan.rows > 1 && plan.cols * bytes % 16 != 0;
    const bool fits = bytes == 1 ? plan.cols <= WARP * WAVE_ITEMS : bytes <= 4;
    return g.rounds == 1 &&
           ((plan.rows == 1 && whole <= ONE_CLUSTER_BYTES) ||
            ((fits || is_uneven) && whole <= WAVE_RUN_BYTES && g.split == 1));
}

/* Whether the threads are at most so many percent of those that run at once. */
inline bool
run_at_once(const gpo_call *call, const wave_grid &g, int64_t percent = 100)
{
    const int64_t blocks = ceil_div(reduce_plan_of(call)->rows, g.across) * g.split;
    return blocks * g.across * g.height * 100 <=
           gpo_processors(call) * WAVE_THREADS * percent;
}

/*
 * Whether all threads run at once, with few rounds of loads; of bytes one: the
 * instructions of 32 warps on few SMs take longer than they wait for memory.
 */
inline bool
is_for_one_wave(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    if (!are_one_wave(plan)) {
        return false;
    }
    const wave_grid g = wave_grid_of(call);
    const int64_t bytes = gpo_dtypes[call->in[0].dtype].bytes;
    return run_at_once(call, g) && g.rounds <= (bytes == 1 ? 1 : WAVE_ROUNDS) &&
           (!are_runs(plan) || are_wave_runs(plan, g, bytes));
}

template <typename T>
gpo_status reduce_one_wave(gpo_call *call);

#endif
