/*
 * short_filters.cu  Filters of at most 16 taps, rows of neighbouring steps (BCT).
 * - A warp has a stretch of a row, or several rows where they are short.  In a turn each
 *   lane has four packs (one in small calls), all loaded before the first is used.  The
 *   steps before a pack come from the neighbouring lanes by shuffles, so an element is
 *   read once.
 * - Packs are those of the result: where x begins at another offset from a 16-byte
 *   boundary, or steps are not neighbours, elements are moved one by one.
 * Cost:  reads x once and writes the result once.
 * See short_filters_channels_last.cu for layout BTC, backward_short_filters.cu for the
 * gradients.
 */
#include "short_filters.cuh"

/* What is known of the steps before a row, or of the borders in it. */
template <typename T>
struct row_start {
    row_marks marks;
    const T *state; /* step 0, if the steps before it were before it in memory */
    int64_t state_t;
};

struct row_work {
    int shift;         /* log2 of the lanes of a row */
    int turns;         /* of SHORT_ITEMS items in a stretch */
    divider stretches; /* of a row */
    divider channels;
    int64_t tasks, rows;
    segment_marks marks;
    earlier_steps state;
};

/* As fill_pack, but no element waits for another. */
template <typename T>
__device__ __forceinline__ void
fill_at_once(uint4 *to, const pack_row<const T> &row, int u)
{
    constexpr int SIZE = pack<T>::SIZE;
    if (row.partial(u)) {
        T got[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            const bool is_inside = u + i >= 0 && u + i < row.steps;
            const T one = row.p[is_inside ? (u + i) * row.t : (u < 0 ? 0 : u * row.t)];
            got[i] = is_inside ? one : stored_as<T>(value_type<T>(0));
        }
        memcpy(static_cast<void *>(to), static_cast<const void *>(got), 16);
    }
}

/* ITEMS packs of each lane from step u on. */
template <int ITEMS, typename T>
__device__ __forceinline__ void
load_items(uint4 (&in)[ITEMS], const pack_row<const T> &x, int u)
{
    constexpr int ITEM = WARP * pack<T>::SIZE;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        in[k] = whole_pack(x, u + k * ITEM);
    }
    if constexpr (ITEMS == 1) {
        fill_at_once(&in[0], x, u);
    }
    else if (!x.whole(u) || !x.whole(u + (ITEMS - 1) * ITEM)) {
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            fill_pack(&in[k], x, u + k * ITEM);
        }
    }
}

/* The results of a pack: taps, then SiLU. */
template <int LAGS, typename T, typename Where>
__device__ __forceinline__ uint4
result_of_pack(const conv_view<T> &v, const value_type<T> (&tap)[LAGS],
               value_type<T> offset, const uint4 &in, const uint4 &before,
               lane_group at, const Where &where)
{
    using V = value_type<T>;
    constexpr int SIZE = pack<T>::SIZE;
    V value[LAGS - 1 + SIZE], sum[SIZE];
    values_of_lane<LAGS, T>(value, in, before, at);
    where.add_earlier(value);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        sum[i] = offset;
    }
    add_lags(sum, tap, value, static_cast<int>(v.lags), where);
    if (v.finish == FINISH_SILU) {
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            sum[i] = silu<T>(sum[i]);
        }
    }
    return chunk_of_values<T>(sum);
}

/*
 * The results of the pack at step u: a product at a time where one may be missing, that
 * is, at the start of a row or where some lane's pack has parts of two segments.
 */
template <short_rows ROWS, int LAGS, typename T>
__device__ __forceinline__ uint4
results_at(const conv_view<T> &v, const value_type<T> (&tap)[LAGS],
           value_type<T> offset, const uint4 &in, const uint4 &before, int u,
           lane_group at, bool is_first, const row_start<T> &row)
{
    if constexpr (ROWS == CUT) {
        const bool inside = u < static_cast<int>(v.steps);
        const unsigned marks = inside ? row.marks.from(u - (LAGS - 1)) : 0;
        if (__any_sync(ALL_LANES, (marks & SEEN<LAGS, T>) != 0)) {
            const in_a_segment<LAGS> where = {{}, marks, 0};
            return result_of_pack(v, tap, offset, in, before, at, where);
        }
    }
    if constexpr (ROWS == BEHIND) {
        if (is_first) {
            const behind_a_state<T> where = {
                {}, row.state, row.state_t, static_cast<int>(v.lags), u};
            return result_of_pack(v, tap, offset, in, before, at, where);
        }
    }
    const at_an_edge edge = {u < LAGS ? u : LAGS, 0};
    return ROWS == PLAIN && is_first
               ? result_of_pack(v, tap, offset, in, before, at, edge)
               : result_of_pack(v, tap, offset, in, before, at, in_the_middle{});
}

/* A stretch of a row from step u of each lane on; `begin` is that of the warp. */
template <short_rows ROWS, int ITEMS, int LAGS, typename T>
__device__ __forceinline__ void
walk(const conv_view<T> &v, const value_type<T> (&tap)[LAGS], value_type<T> offset,
     const pack_row<const T> &x, const pack_row<T> &out, int begin, int turns,
     bool is_first, lane_group at, const row_start<T> &row)
{
    constexpr int SIZE = pack<T>::SIZE, HALO = (LAGS - 2 + SIZE) / SIZE;
    constexpr int ITEM = WARP * SIZE;
    const int steps = static_cast<int>(v.steps);
    int u = begin + at.place * SIZE;
    const bool last_lanes = !is_first && at.lane >= WARP - HALO;
    const int earlier = last_lanes ? u - ITEM : steps; /* no pack begins there */
    uint4 before = whole_pack(x, earlier), in[ITEMS];
    fill_pack(&before, x, earlier);
    for (; turns > 0 && begin < steps; turns--) {
        load_items(in, x, u);
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            if (k > 0 && (!at.all || begin + k * ITEM >= steps)) {
                break;
            }
            const uint4 &old = k > 0 ? in[k > 0 ? k - 1 : 0] : before;
            const int first = u + k * ITEM;
            store_pack(out, first,
                       results_at<ROWS>(v, tap, offset, in[k], old, first, at,
                                        k == 0 && is_first, row));
        }
        before = in[ITEMS - 1];
        is_first = false;
        begin += ITEMS * ITEM;
        u += ITEMS * ITEM;
    }
}

template <typename T, int LAGS, short_rows ROWS, int ITEMS>
__global__ void
__launch_bounds__(SHORT_BLOCK, sizeof(T) == 8 ? 4 : 0)
    causal_conv1d_short_filters(conv_view<T> v, row_work work)
{
    constexpr int WARPS = SHORT_BLOCK / WARP, TURN = ITEMS * WARP * pack<T>::SIZE;
    const lane_group at(work.shift);
    for (int64_t task = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
         task < work.tasks; task += static_cast<int64_t>(gridDim.x) * WARPS) {
        const int64_t slot = work.stretches.of(task);
        const int stretch = static_cast<int>(task - slot * work.stretches.by);
        const int64_t wanted = (slot << (5 - work.shift)) + (at.lane >> work.shift);
        const bool there = wanted < work.rows;
        const int64_t row = there ? wanted : 0, b = work.channels.of(row);
        const int64_t c = row - b * work.channels.by;
        T *const first = v.out.row(b, c);
        const int past = elements_past_boundary(first, v.out.t);
        const int steps = there ? static_cast<int>(v.steps) : 0;
        const auto x = row_of_packs(v.x.row(b, c), v.x.t, steps, past);
        const auto out = row_of_packs(first, v.out.t, steps, past);
        value_type<T> tap[LAGS];
        load_taps<LAGS>(tap, v, c);
        row_start<T> start = {};
        if constexpr (ROWS == CUT) {
            start.marks = work.marks.row(b);
        }
        if constexpr (ROWS == BEHIND) {
            start.state = work.state.before<T>(b, c);
            start.state_t = work.state.t;
        }
        walk<ROWS, ITEMS>(v, tap, v.offset(c), x, out,
                          stretch * work.turns * TURN - past, work.turns, stretch == 0,
                          at, start);
    }
}

template <int ITEMS, typename T>
static gpo_status
convolve(gpo_call *call, const conv_view<T> &v)
{
    const int64_t packs = packs_of_row(v.out, v.steps);
    const int64_t groups = ceil_div(packs, ITEMS * WARP);
    row_work work = {};
    work.shift = lanes_of_row(packs);
    work.rows = v.batches * v.channels;
    const int64_t all = ceil_div(work.rows, WARP >> work.shift) * groups;
    const int64_t turns = all / (gpo_processors(call) * SHORT_ROW_WARPS);
    work.turns = static_cast<int>(turns < 1 ? 1 : turns < groups ? turns : groups);
    work.stretches = divider_of(ceil_div(groups, work.turns));
    work.channels = divider_of(v.channels);
    work.tasks = ceil_div(work.rows, WARP >> work.shift) * work.stretches.by;
    const dim3 grid = grid_of(ceil_div(work.tasks, SHORT_BLOCK / WARP));
    const gpo_status status = mark_segments(call, &work.marks);
    if (status) {
        return status;
    }
    work.state = earlier_steps_of(call);
#define WITH(LAGS, ROWS)                   \
    GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, \
               (causal_conv1d_short_filters<T, LAGS, ROWS, ITEMS>), v, work)
    if constexpr (ITEMS == 1) { /* its calls have no segments, and at most 8 lags */
        if (work.state.p) {
            return v.lags <= 4 ? WITH(4, BEHIND) : WITH(8, BEHIND);
        }
        return v.lags <= 4 ? WITH(4, PLAIN) : WITH(8, PLAIN);
    }
    else {
        return work.state.p ? GPO_BY_LAGS(v.lags, BEHIND, WITH)
                            : GPO_BY_LAGS_AND_CUT(v.lags, work.marks.words, WITH);
    }
#undef WITH
}

constexpr int64_t FEW_ITEMS = 16; /* warps of one item per SM: each has its own warp */

/*
 * Few packs have a warp for each item, whose instructions then take a quarter as long, and
 * rows of one item need no more.
 */
template <typename T>
gpo_status
conv_short_filters(gpo_call *call, const conv_view<T> &v)
{
    if constexpr (sizeof(T) < 8) {
        const int64_t packs = packs_of_row(v.out, v.steps);
        const int64_t items =
            ceil_div(v.batches * v.channels, WARP >> lanes_of_row(packs)) *
            ceil_div(packs, WARP);
        const bool is_small = items <= FEW_ITEMS * gpo_processors(call);
        const bool is_usual = v.lags <= 8 && !conv_plan_of(call)->segments;
        if (is_usual && (packs <= WARP || is_small)) {
            return convolve<1>(call, v);
        }
    }
    return convolve<SHORT_ITEMS>(call, v);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_short_filters)
