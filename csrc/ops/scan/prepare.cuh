/*
 * prepare.cuh  Setup for the single-pass kernels: the shape of a call, and x in the
 * order of out.
 */
#ifndef GPO_SCAN_PREPARE_CUH
#define GPO_SCAN_PREPARE_CUH

#include "../../core/exchange.h"
#include "views.cuh"

/* ---- shapes ---- */

/* Elements in 16 bytes of out: Op::VEC of every op but scan_widened. */
inline int
pack_size(const gpo_call *call)
{
    return 16 / gpo_dtypes[call->out[0].dtype].bytes;
}

/* Elements in 16 bytes of x: Op::VEC of every op that parks them. */
inline int
parked_size(const gpo_call *call)
{
    return 16 / gpo_dtypes[call->in[0].dtype].bytes;
}

/* Whether adjacent elements in memory belong to different scans. */
inline bool
has_columns(const gpo_call *call)
{
    return scan_plan_of(call)->inner > 1;
}

/* Whether rows are consecutive in out and a tile has room for two or more. */
inline bool
has_short_rows(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const int size = pack_size(call), tile = THREADS * PACKS * size;
    return !has_columns(call) && plan.rows > 1 && 2 * plan.cols <= tile - (size - 1);
}

/* Whether a chain of sums of 32 elements is within the bound, and threads fit a grid. */
inline bool
has_warp_rows(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    return plan.cols <= MOST_CHAINED && plan.rows <= MOST_WARP_ROWS;
}

/* Whether scans have one element each, in the order of out; fewer than a grid has. */
inline bool
has_one_element(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const scan_axes &kept = plan.kept;
    return plan.cols == 1 && plan.rows < int64_t{1} << 40 &&
           (kept.ndim == 0 || (kept.ndim == 1 && kept.strides[0] == 1));
}

/* Whether results are as wide as x: all but sums and products of short integers. */
inline bool
is_as_wide_as_x(const gpo_call *call)
{
    return gpo_dtypes[call->in[0].dtype].bytes == gpo_dtypes[call->out[0].dtype].bytes;
}

/* Whether elements can wait as they are read, Op::AS_READ: not those of products of short
   integers. */
inline bool
can_park(const gpo_call *call)
{
    return is_as_wide_as_x(call) || scan_plan_of(call)->op == SCAN_SUM;
}

/* Whether every row may take more than one tile of v3, of elements that v4 and v5 park. */
inline bool
has_many_tiles(const gpo_call *call)
{
    const int64_t size = pack_size(call);
    return !has_columns(call) && can_park(call) &&
           scan_plan_of(call)->cols + size - 1 > THREADS * PACKS * size;
}

/* Whether a cluster has room for a row, of elements as wide as results. */
inline bool
has_cluster_rows(const gpo_call *call)
{
    const int64_t size = parked_size(call);
    constexpr int64_t ALL = static_cast<int64_t>(CLUSTER) * CLUSTER_THREADS;
    return !has_columns(call) && can_park(call) &&
           scan_plan_of(call)->cols + size - 1 <= ALL * CLUSTER_PACKS * size;
}

inline int64_t
within(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* How one_wave shares rows of `tiles` packs. */
struct one_wave_blocks {
    int64_t across; /* blocks of a row */
    int threads, packs;
};

/* Blocks of a row, at most: as many as there are processors, more where those are full. */
inline int64_t
most_in_one_wave(const gpo_call *call, int64_t rows, int64_t tiles)
{
    const int64_t each = gpo_processors(call) / (rows > 0 ? rows : 1);
    const int64_t full = ceil_div(tiles, WAVE_THREADS * WAVE_PACKS);
    return within(full > each ? full : each, 1, WAVE_BLOCKS);
}

inline one_wave_blocks
one_wave_blocks_of(const gpo_call *call, int64_t rows, int64_t tiles)
{
    const int64_t each = ceil_div(tiles, most_in_one_wave(call, rows, tiles));
    const int64_t packs = ceil_div(each, WAVE_THREADS);
    const int64_t warps = ceil_div(each, packs * WARP);
    const int64_t threads = within(warps * WARP, WAVE_BLOCKS, WAVE_THREADS);
    return {ceil_div(tiles, threads * packs), static_cast<int>(threads),
            static_cast<int>(packs)};
}

/* Whether one_wave takes the call: blocks of a row that a block's threads can read. */
inline bool
has_one_wave(const gpo_call *call)
{
    const scan_plan &plan = *scan_plan_of(call);
    const int64_t size = parked_size(call);
    const int64_t tiles = ceil_div(plan.cols + size - 1, size);
    constexpr int64_t MOST_WORDS = 4; /* of a block's total */
    return !has_columns(call) && can_park(call) && plan.cols > 0 &&
           tiles <= WAVE_BLOCKS * WAVE_THREADS * WAVE_PACKS &&
           plan.rows <= GPO_EXCHANGE_WORDS &&
           plan.rows * most_in_one_wave(call, plan.rows, tiles) * MOST_WORDS <=
               GPO_EXCHANGE_WORDS;
}

/* ---- x in the order of out ---- */

/*
 * Sets *x to a copy in the order of out, and *plan to the plan of the copy; an element
 * has `bytes` bytes.
 */
gpo_status copy_in_order(gpo_call *call, int bytes, scan_plan *plan, const void **x);

/* As for_each_view, but on a copy of x unless x is `in_order`. */
template <typename Op, typename Launch>
gpo_status
for_each_ordered_view(gpo_call *call, const Op &op, bool in_order, Launch launch)
{
    scan_plan plan = *scan_plan_of(call);
    const void *x = call->in[0].data;
    const gpo_status status =
        in_order ? GPO_OK : copy_in_order(call, op.bytes(), &plan, &x);
    return status ? status : for_each_view(plan, x, call->out[0].data, op, launch);
}

/* Calls Rung::rows(call, view, op) for each view of rows in the order of out. */
template <typename Rung, typename Op>
gpo_status
for_each_row_view(gpo_call *call, const Op &op)
{
    const int64_t stride = scan_plan_of(call)->stride;
    return for_each_ordered_view(
        call, op, stride == 1 || stride == -1,
        [&](const scan_view<typename Op::Out> &a) { return Rung::rows(call, a, op); });
}

/* ---- launchers in other translation units, for the table ---- */

template <typename T>
gpo_status scan_v5(gpo_call *call);

template <typename T>
gpo_status scan_short_rows(gpo_call *call);

template <typename T>
gpo_status scan_cluster_rows(gpo_call *call);

template <typename T>
gpo_status scan_one_wave(gpo_call *call);

template <typename T>
gpo_status scan_columns(gpo_call *call);

template <typename T>
gpo_status scan_walked_columns(gpo_call *call);

template <typename T>
gpo_status scan_warp_rows(gpo_call *call);

template <typename T>
gpo_status scan_one_element(gpo_call *call);

#endif
