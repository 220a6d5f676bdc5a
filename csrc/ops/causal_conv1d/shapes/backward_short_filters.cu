/*
 * backward_short_filters.cu  The gradients of filters of at most 16 taps, rows of
 * neighbouring steps (BCT), in one pass.
 * - A warp walks along a row from its end to its start, one pack in each lane; the packs
 *   of the next two items are loaded ahead.  With SiLU the value before it is computed
 *   from x again, so g exists in registers alone; it is not rounded.
 * - dx needs the g of later steps: those of the lanes after by shuffles, those of the item
 *   after from the turn before.  A stretch begins with the g of its first taps - 1 later
 *   steps, which its neighbour computes, too.
 * - dw and dbias: a lane adds its products pack by pack over all rows of the channel that
 *   the warp has, then lanes are added, then warps by a second kernel, in fixed order.
 * Cost:  reads x and dy once and writes dx once.
 * See backward_short_filters_channels_last.cu for layout BTC.
 */
#include "short_filters.cuh"

struct gradient_work {
    int shift;            /* log2 of the lanes of a row */
    divider stretches;    /* of a row */
    divider splits;       /* parts of a channel */
    int row_items, items; /* items of a row, of a stretch */
    int64_t units, share; /* stretches of a channel in all rows, of a part */
    int64_t tasks;
    segment_marks marks;
};

/* The rows of a channel, and which items of them are computed. */
template <typename T>
struct gradient_rows {
    pack_row<const T> x, dy;
    pack_row<T> dx;
    int past;
    int first, last;
    row_marks marks;

    /* The step at which a lane's pack of an item begins. */
    __device__ __forceinline__ int step(int item, lane_group at) const
    {
        return (item * WARP + at.place) * pack<T>::SIZE - past;
    }
};

/* What a warp knows of its channel. */
template <typename T, int LAGS>
struct channel_taps {
    value_type<T> tap[LAGS], offset;
    int lags;
    bool silu;
};

template <typename T>
__device__ __forceinline__ uint4
pack_at(const pack_row<const T> &row, int u)
{
    uint4 got = whole_pack(row, u);
    fill_pack(&got, row, u);
    return got;
}

/* g of a lane's pack; zeros outside the row. */
template <int LAGS, int SIZE, typename T, typename V, typename Where>
__device__ __forceinline__ void
gradient_of_pack(V (&g)[SIZE], const uint4 &dy, const channel_taps<T, LAGS> &of,
                 const V (&x)[LAGS - 1 + SIZE], const Where &where)
{
    values_of_chunk<T>(g, dy);
    if (of.silu) {
        V sum[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            sum[i] = of.offset;
        }
        add_lags(sum, of.tap, x, of.lags, where);
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            const V slope = g[i] * silu_slope<T>(sum[i]);
            g[i] = where.is_step(i) ? slope : V(0);
        }
    }
}

/* g of a lane's pack and of the LAGS - 1 steps after it; `next`: of the item after. */
template <int LAGS, int SIZE, typename V>
__device__ __forceinline__ void
gradients_of_lane(V (&later)[SIZE + LAGS - 1], const V (&g)[SIZE],
                  const V (&next)[SIZE], lane_group at, int shift)
{
#pragma unroll
    for (int j = 0; j < SIZE + LAGS - 1; j++) {
        const int d = j / SIZE;
        if (d == 0) {
            later[j] = g[j];
        }
        else {
            const V give = at.lane < d ? next[j % SIZE] : g[j % SIZE];
            const V got = shuffle_from(give, (at.lane + d) & (WARP - 1));
            later[j] = at.all || at.place + d < 1 << shift ? got : V(0);
        }
    }
}

/* dx of a pack, and its terms of dw and dbias (the last total). */
template <int LAGS, int SIZE, typename T, typename V, typename Where>
__device__ __forceinline__ void
add_pack(V (&sum)[SIZE], V (&total)[LAGS + 1], const channel_taps<T, LAGS> &of,
         const V (&x)[LAGS - 1 + SIZE], const V (&g)[SIZE + LAGS - 1],
         const Where &where)
{
    V part = 0;
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s < of.lags) {
            V lag = 0;
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                if (where.has_ahead(i, s)) {
                    sum[i] += of.tap[s] * g[i + s];
                }
                if (where.has_back(i, s) && where.has_ahead(i, 0)) {
                    lag += g[i] * x[LAGS - 1 + i - s];
                }
            }
            total[s] += lag;
        }
    }
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        part += g[i];
    }
    total[LAGS] += part;
}

/* One item: its g into `next`, and if `own` dx and the terms of dw. */
template <int LAGS, typename T, typename V, typename Where>
__device__ __forceinline__ void
compute_item(V (&total)[LAGS + 1], V (&next)[pack<T>::SIZE],
             const channel_taps<T, LAGS> &of, const gradient_rows<T> &rows, int u,
             bool own, const uint4 (&x)[2], const uint4 &dy, lane_group at, int shift,
             const Where &where)
{
    constexpr int SIZE = pack<T>::SIZE;
    V values[LAGS - 1 + SIZE], g[SIZE];
    values_of_lane<LAGS, T>(values, x[0], x[1], at);
    gradient_of_pack(g, dy, of, values, where);
    if (own) {
        V later[SIZE + LAGS - 1];
        gradients_of_lane<LAGS>(later, g, next, at, shift);
        V sum[SIZE] = {};
        add_pack<LAGS, SIZE>(sum, total, of, values, later, where);
        store_pack(rows.dx, u, chunk_of_values<T>(sum));
    }
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        next[i] = g[i];
    }
}

/*
 * The same, a product at a time where one may be missing: at the ends of a row, or where
 * some lane's pack has parts of two segments around it.
 */
template <short_rows ROWS, int LAGS, typename T, typename V>
__device__ __forceinline__ void
compute_item_at(V (&total)[LAGS + 1], V (&next)[pack<T>::SIZE],
                const channel_taps<T, LAGS> &of, const gradient_rows<T> &rows, int item,
                const uint4 (&x)[2], const uint4 &dy, lane_group at, int shift,
                bool is_edge)
{
    constexpr int FAR = pack<T>::SIZE + LAGS;
    const int u = rows.step(item, at), left = rows.dx.steps - u;
    const bool own = item <= rows.last;
    unsigned marks = 0, later = 0;
    bool is_cut = false;
    if constexpr (ROWS == CUT) {
        if (left > 0) {
            marks = rows.marks.from(u - (LAGS - 1));
            later = rows.marks.from(u);
        }
        const bool mine = ((marks | later) & SEEN<LAGS, T>) != 0;
        is_cut = __any_sync(ALL_LANES, mine) != 0;
    }
    if (is_edge || is_cut) {
        const at_an_edge row = {u < FAR ? u : FAR,
                                left < FAR ? (left < 0 ? 0 : left) : FAR};
        if constexpr (ROWS == CUT) {
            const in_a_segment<LAGS> where = {row, marks, later};
            compute_item(total, next, of, rows, u, own, x, dy, at, shift, where);
        }
        else {
            compute_item(total, next, of, rows, u, own, x, dy, at, shift, row);
        }
    }
    else {
        compute_item(total, next, of, rows, u, own, x, dy, at, shift, in_the_middle{});
    }
}

/* A stretch of a row, from its end to its start. */
template <short_rows ROWS, int LAGS, typename T, typename V>
__device__ __forceinline__ void
walk_back(V (&total)[LAGS + 1], const channel_taps<T, LAGS> &of,
          const gradient_rows<T> &rows, int steps, lane_group at, int shift)
{
    constexpr int SIZE = pack<T>::SIZE, HALO = (LAGS - 2 + SIZE) / SIZE;
    constexpr int ITEM = WARP * SIZE;
    V next[SIZE] = {};
    int item = rows.last + ((rows.last + 1) * ITEM - rows.past < steps && at.all);
    /* Beside the stretch only the packs next to it are read: x before, both after. */
    const int lowest = rows.first - (rows.first > 0 && at.lane >= WARP - HALO);
    int u = item <= rows.last || at.lane < HALO ? rows.step(item, at) : steps;
    uint4 x[2], dy = pack_at(rows.dy, u), dy_ahead;
    x[0] = pack_at(rows.x, u);
    u = rows.step(item - 1, at);
    x[1] = pack_at(rows.x, item - 1 >= lowest ? u : steps);
    dy_ahead = pack_at(rows.dy, item - 1 >= rows.first ? u : steps);
    for (; item >= rows.first; item--) {
        u -= ITEM;
        const uint4 x_ahead = pack_at(rows.x, item - 2 >= lowest ? u : steps);
        const uint4 dy_later = pack_at(rows.dy, item - 2 >= rows.first ? u : steps);
        const bool edge =
            !at.all || item == 0 || (item + 1) * ITEM - rows.past + LAGS - 1 > steps;
        compute_item_at<ROWS>(total, next, of, rows, item, x, dy, at, shift, edge);
        x[0] = x[1];
        x[1] = x_ahead;
        dy = dy_ahead;
        dy_ahead = dy_later;
    }
}

template <typename T, int LAGS, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK, sizeof(T) == 4 && LAGS == 4 ? 6 : 0)
    causal_conv1d_backward_short_filters(conv_view<T> v, lag_view<T> to,
                                         gradient_work work)
{
    using V = value_type<T>;
    constexpr int WARPS = SHORT_BLOCK / WARP;
    const lane_group at(work.shift);
    for (int64_t task = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
         task < work.tasks; task += static_cast<int64_t>(gridDim.x) * WARPS) {
        const int64_t slot = work.splits.of(task), part = task - slot * work.splits.by;
        const int64_t wanted = (slot << (5 - work.shift)) + (at.lane >> work.shift);
        const bool there = wanted < v.channels;
        const int64_t c = there ? wanted : 0;
        const int steps = there ? static_cast<int>(v.steps) : 0;
        channel_taps<T, LAGS> of;
        load_taps<LAGS>(of.tap, v, c);
        of.offset = v.offset(c);
        of.lags = static_cast<int>(v.lags);
        of.silu = v.finish == FINISH_SILU;
        V total[LAGS + 1] = {};
        const int64_t begin = part * work.share, left = work.units - begin;
        const int64_t end = begin + (left < work.share ? left : work.share);
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t b = work.stretches.of(unit);
            const int stretch = static_cast<int>(unit - b * work.stretches.by);
            T *const dx = v.out.row(b, c);
            gradient_rows<T> rows;
            rows.past = elements_past_boundary(dx, v.out.t);
            rows.x = row_of_packs(v.x.row(b, c), v.x.t, steps, rows.past);
            rows.dy = row_of_packs(v.dy.row(b, c), v.dy.t, steps, rows.past);
            rows.dx = row_of_packs(dx, v.out.t, steps, rows.past);
            rows.first = stretch * work.items;
            const int rest = work.row_items - rows.first;
            rows.last = rows.first + (rest < work.items ? rest : work.items) - 1;
            if constexpr (ROWS == CUT) {
                rows.marks = work.marks.row(b);
            }
            walk_back<ROWS>(total, of, rows, static_cast<int>(v.steps), at, work.shift);
        }
#pragma unroll
        for (int s = 0; s <= LAGS; s++) {
            if (s < of.lags || s == LAGS) {
                const V sum = warp_combine<add>(total[s], 1 << work.shift);
                if (at.place == 0 && there) {
                    put_short_part(to, work.splits.by, part, c, s < LAGS ? s : of.lags,
                                   sum);
                }
            }
        }
    }
}

/* ---- the parts of dw and dbias ---- */

/*
 * Eight warps add the parts of 32 neighbouring sums, each every eighth.  The only part
 * has been written as the result.
 */
template <typename T>
__global__ void
__launch_bounds__(REST_BLOCK)
    causal_conv1d_backward_short_filters_sums(lag_view<T> v, int64_t groups)
{
    using V = value_type<T>;
    constexpr int WARPS = REST_BLOCK / WARP;
    GPO_SHARED(V, slots, [WARPS][WARP]);
    const int64_t zeros = v.taps - v.lags;
    const int64_t sums = groups == 1 ? 0 : v.channels * (v.lags + 1); /* 1: written */
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * WARP; first < sums;
         first += static_cast<int64_t>(gridDim.x) * WARP) {
        const int64_t i = first + lane;
        V sum = 0;
        if (i < sums) {
#pragma unroll 16
            for (int64_t k = warp; k < groups; k += WARPS) {
                sum += v.parts[k * sums + i];
            }
        }
        slots[warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && i < sums) {
#pragma unroll
            for (int k = 1; k < WARPS; k++) {
                sum += slots[k][lane];
            }
            const int64_t s = i / v.channels;
            put_short_part(v, 1, 0, i - s * v.channels, s, sum);
        }
        __syncthreads();
    }
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * REST_BLOCK + threadIdx.x;
         i < v.channels * zeros; i += static_cast<int64_t>(gridDim.x) * REST_BLOCK) {
        v.dw[i / zeros * v.taps + i % zeros] = stored_as<T>(V(0));
    }
}

template <typename T>
gpo_status
add_short_parts(gpo_call *call, const lag_view<T> &v, int64_t groups)
{
    if (groups == 1 && v.taps == v.lags) {
        return GPO_OK;
    }
    const dim3 grid = grid_of(ceil_div(v.channels * (v.lags + 1), WARP));
    return GPO_LAUNCH(call, grid, REST_BLOCK, 0,
                      (causal_conv1d_backward_short_filters_sums<T>), v, groups);
}

/* ---- the launch ---- */

template <typename T>
static gradient_work
work_of(const gpo_call *call, const conv_view<T> &v)
{
    const int64_t packs = packs_of_row(v.out, v.steps);
    gradient_work work = {};
    work.shift = lanes_of_row(packs);
    const int64_t slots = ceil_div(v.channels, WARP >> work.shift);
    const int64_t pieces = gpo_processors(call) * SHORT_WARPS / slots / v.batches;
    const int64_t wanted = gpo_processors(call) * SHARING_WARPS / slots;
    work.row_items = static_cast<int>(ceil_div(packs, WARP));
    work.items = pieces > 1 ? static_cast<int>(ceil_div(work.row_items, pieces))
                            : work.row_items;
    work.stretches = divider_of(ceil_div(work.row_items, work.items));
    work.units = v.batches * work.stretches.by;
    work.share = wanted > 1 ? ceil_div(work.units, wanted) : work.units;
    work.splits = divider_of(ceil_div(work.units, work.share));
    work.tasks = slots * work.splits.by;
    return work;
}

template <typename T>
gpo_status
gradients_short_filters(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    if (v.batches == 0) {
        return add_short_parts(call, lags, 0);
    }
    gradient_work work = work_of(call, v);
    lag_view<T> to = lags;
    gpo_status status = mark_segments(call, &work.marks);
    if (!status) {
        status = make_short_parts(call, work.splits.by, &to);
    }
    if (!status) {
        const dim3 grid = grid_of(ceil_div(work.tasks, SHORT_BLOCK / WARP));
#define WITH(LAGS, ROWS)                   \
    GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, \
               (causal_conv1d_backward_short_filters<T, LAGS, ROWS>), v, to, work)
        status = GPO_BY_LAGS_AND_CUT(v.lags, work.marks.words, WITH);
#undef WITH
    }
    return status ? status : add_short_parts(call, to, work.splits.by);
}

#define SUMS(T, launcher) \
    template gpo_status launcher<T>(gpo_call *, const lag_view<T> &, int64_t);
GPO_EVERY_FLOAT(SUMS, add_short_parts)
GPO_EVERY_FLOAT(GPO_GRADIENTS_OF, gradients_short_filters)
