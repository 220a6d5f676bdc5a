/*
 * backward_few_taps.cu  The gradients of filters of 2 to 8 taps, rows of neighbouring steps
 * (BCT), in one pass and mostly one launch.  As backward_short_filters.cu, but compiled for
 * numbers of taps, and a warp walks through all items of its rows, which are whole packs,
 * without a stop between rows: DEPTH items are under way.  dw is made of the same g of
 * later steps as dx, so without SiLU nothing before a pack is needed.  Long rows, and those
 * that are no whole packs, go by items (item_walks.cuh) if they have neither SiLU nor
 * segments.
 * Cost:  reads x and dy once and writes dx once.
 * See few_taps.cuh for the sums, backward_few_taps_channels_last.cu for layout BTC.
 */
#include "item_walks.cuh"

struct walks_work {
    int shift;            /* log2 of the lanes of a row */
    divider groups;       /* of channels, a block's each */
    divider stretches;    /* of a row */
    int items;            /* of a stretch */
    int64_t units, share; /* stretches of a channel in all rows, of a warp */
    int64_t next_x, next_dy, next_dx; /* from the first item to what a warp has next */
    int64_t tasks;
    part_sums sums;
    segment_marks marks;
    item_walks by_items; /* total 0: by rows */
};

constexpr int64_t FULL_WALK = 8; /* items of a warp, below which a part costs more */

/* Blocks per SM for which registers are kept; with segments the kernels have SILU. */
template <typename T, int LAGS, bool SILU, short_rows ROWS>
constexpr int walks_blocks = sizeof(T) == 4 && ROWS == PLAIN ? (LAGS <= 4 ? 8 : 6)
                             : SILU                          ? (LAGS <= 4 ? 6 : 5)
                                                             : (LAGS <= 6 ? 7 : 6);

/* Packs on either side of one that share a product with it, of those beside it NEXT steps. */
template <int LAGS, typename T>
constexpr int HALO = (LAGS - 2 + pack<T>::SIZE) / pack<T>::SIZE;
template <int LAGS, typename T>
constexpr int NEXT = LAGS - 1 < pack<T>::SIZE ? LAGS - 1 : pack<T>::SIZE;

/* What an item gives to the one before it: its first g or, without SiLU, words of dy. */
template <bool SILU, int LAGS, typename T>
struct first_gradients {
    using V = value_type<T>;
    static constexpr int PER_WORD = SILU ? 1 : 4 / sizeof(T);
    static constexpr int COUNT = (NEXT<LAGS, T> + PER_WORD - 1) / PER_WORD;
    std::conditional_t<SILU, V, unsigned> v[COUNT];

    __device__ __forceinline__ void set(const V (&g)[pack<T>::SIZE], const uint4 &dy)
    {
        const unsigned words[4] = {dy.x, dy.y, dy.z, dy.w};
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if constexpr (SILU) {
                v[i] = g[i];
            }
            else {
                v[i] = words[i];
            }
        }
    }
};

template <typename V, int LAGS>
struct row_filter {
    V tap[LAGS], offset;
    bool has_slope; /* with SiLU: whether the call has it */
    bool has_last;  /* the last lag: see has_lag */
};

/* g of a pack, of dy and the values of x from LAGS - 1 before it. */
template <bool SILU, int LAGS, typename T, typename V, typename Where>
__device__ __forceinline__ void
gradient_of_row_pack(V (&g)[pack<T>::SIZE], const uint4 &dy,
                     const row_filter<V, LAGS> &filter,
                     const V (&x)[LAGS - 1 + pack<T>::SIZE], const Where &where)
{
    constexpr int SIZE = pack<T>::SIZE;
    values_of_chunk<T>(g, dy);
    if (SILU && filter.has_slope) {
        V sum[SIZE];
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            sum[i] = filter.offset;
        }
        add_lags(sum, filter.tap, x,
                 has_lag<LAGS>(LAGS - 1, filter.has_last) ? LAGS : LAGS - 1, where);
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            g[i] *= silu_slope<T>(sum[i]);
        }
    }
}

/* g of a pack and of the LAGS - 1 steps after it; `next` as in compute_row_item. */
template <bool SILU, int LAGS, typename T, typename V>
__device__ __forceinline__ void
gradients_from_pack(V (&later)[pack<T>::SIZE + LAGS - 1],
                    first_gradients<SILU, LAGS, T> &next, const V (&g)[pack<T>::SIZE],
                    const uint4 &dy, lane_group at)
{
    constexpr int SIZE = pack<T>::SIZE;
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        later[i] = g[i];
    }
    if constexpr (SILU) {
#pragma unroll
        for (int j = 0; j < LAGS - 1; j++) {
            const int d = 1 + j / SIZE, i = j % SIZE;
            const V give = at.lane < d ? next.v[i] : g[i];
            later[SIZE + j] = shuffle_from(give, (at.lane + d) & (WARP - 1));
        }
    }
    else {
        constexpr int PER_WORD = first_gradients<SILU, LAGS, T>::PER_WORD;
        const unsigned mine[4] = {dy.x, dy.y, dy.z, dy.w};
#pragma unroll
        for (int k = 0; k < (LAGS - 2 + PER_WORD) / PER_WORD; k++) {
            const int d = 1 + k / 4, i = k % 4;
            const unsigned give = at.lane < d ? next.v[i] : mine[i];
            V some[PER_WORD];
            values_of_chunk<T>(
                some, __shfl_sync(ALL_LANES, give, (at.lane + d) & (WARP - 1)));
#pragma unroll
            for (int j = 0; j < PER_WORD; j++) {
                if (k * PER_WORD + j < LAGS - 1) {
                    later[SIZE + k * PER_WORD + j] = some[j];
                }
            }
        }
    }
    next.set(g, dy);
}

/*
 * One item.  `next`: in the first lanes the first g of the item after, then of this one.
 * Lanes after the end of the row have no pack.
 */
template <bool SILU, int LAGS, typename T, typename V, typename Where>
__device__ __forceinline__ void
compute_row_item(V (&total)[LAGS + 1], first_gradients<SILU, LAGS, T> &next,
                 const row_filter<V, LAGS> &filter, const uint4 &own,
                 const uint4 &before, const uint4 &dy, T *dx, bool is_there,
                 lane_group at, const Where &where)
{
    constexpr int SIZE = pack<T>::SIZE;
    V x[LAGS - 1 + SIZE] = {}, g[SIZE], later[SIZE + LAGS - 1];
    if constexpr (SILU) {
        values_of_lane<LAGS, T>(x, own, before, at);
    }
    else {
        V mine[SIZE];
        values_of_chunk<T>(mine, own);
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            x[LAGS - 1 + i] = mine[i];
        }
    }
    gradient_of_row_pack<SILU, LAGS, T>(g, dy, filter, x, where);
    gradients_from_pack<SILU, LAGS, T>(later, next, g, dy, at);
    if (is_there) {
        V sum[SIZE] = {}, part = 0;
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            V lag = 0;
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                if (where.has_ahead(i, s)) {
                    if (has_lag<LAGS>(s, filter.has_last)) {
                        sum[i] += filter.tap[s] * later[i + s];
                    }
                    lag += x[LAGS - 1 + i] * later[i + s];
                }
            }
            total[s] += lag;
        }
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            part += g[i];
        }
        total[LAGS] += part;
        *reinterpret_cast<uint4 *>(dx) = chunk_of_values<T>(sum);
    }
}

/* The same where segments may begin: then a product at a time, in all lanes. */
template <bool SILU, int LAGS, typename T, typename V>
__device__ __forceinline__ void
compute_cut_item(V (&total)[LAGS + 1], first_gradients<SILU, LAGS, T> &next,
                 const row_filter<V, LAGS> &filter, const uint4 &own,
                 const uint4 &before, const uint4 &dy, T *dx, int u, bool is_there,
                 lane_group at, row_marks row)
{
    unsigned marks = 0, later = 0;
    if (is_there) {
        marks = row.from(u - (LAGS - 1));
        later = row.from(u);
    }
    if (__any_sync(ALL_LANES, ((marks | later) & SEEN<LAGS, T>) != 0)) {
        const in_a_segment<LAGS> where = {{}, marks, later};
        compute_row_item<SILU>(total, next, filter, own, before, dy, dx, is_there, at,
                               where);
    }
    else {
        compute_row_item<SILU>(total, next, filter, own, before, dy, dx, is_there, at,
                               in_the_middle{});
    }
}

/* The first g after a stretch that ends inside the row, `u` the step of a lane's pack. */
template <bool SILU, short_rows ROWS, int LAGS, typename T, typename V>
__device__ __forceinline__ void
gradients_after(first_gradients<SILU, LAGS, T> &next, const row_filter<V, LAGS> &filter,
                const T *x, const T *dy, int u, row_marks row)
{
    constexpr int SIZE = pack<T>::SIZE;
    V values[LAGS - 1 + SIZE] = {}, g[SIZE];
    const uint4 after = pack_from(dy + u, true);
    if constexpr (SILU) {
        constexpr int BEFORE = HALO<LAGS, T> * SIZE;
#pragma unroll
        for (int h = 0; h <= HALO<LAGS, T>; h++) {
            V some[SIZE];
            values_of_chunk<T>(some, pack_from(x + u - BEFORE + h * SIZE, true));
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                const int k = h * SIZE + i - (BEFORE - (LAGS - 1));
                if (k >= 0) {
                    values[k] = some[i];
                }
            }
        }
    }
    if constexpr (SILU && ROWS == CUT) {
        const in_a_segment<LAGS> where = {{}, row.from(u - (LAGS - 1)), 0};
        gradient_of_row_pack<SILU, LAGS, T>(g, after, filter, values, where);
    }
    else {
        gradient_of_row_pack<SILU, LAGS, T>(g, after, filter, values, in_the_middle{});
    }
    next.set(g, after);
}

/*
 * All items of `units` units of channel c from `begin` on, each row from its end to its
 * start; the loads of the last DEPTH reach into the next row.
 */
template <bool SILU, short_rows ROWS, int LAGS, typename T, typename V>
__device__ __forceinline__ void
walk_rows(V (&total)[LAGS + 1], const conv_view<T> &v, const walks_work &work,
          int64_t c, bool is_channel, int64_t begin, int units, lane_group at)
{
    constexpr int SIZE = pack<T>::SIZE, ITEM = WARP * SIZE;
    const int steps = is_channel ? static_cast<int>(v.steps) : 0, items = work.items;
    int64_t b = work.stretches.of(begin);
    const int stretch = static_cast<int>(begin - b * work.stretches.by);
    const bool is_cut = work.stretches.by > 1; /* then this is one stretch */
    const int first = stretch * items * ITEM, top = first + (items - 1) * ITEM;
    const int next_u = is_cut ? -ITEM : (items - 1) * ITEM; /* after the first item */
    const T *x = v.x.row(b, c) + top + at.place * SIZE;
    const T *dy = v.dy.row(b, c) + top + at.place * SIZE;
    T *dx = v.out.row(b, c) + top + at.place * SIZE;
    const bool has_before = SILU && stretch > 0 && at.lane >= WARP - HALO<LAGS, T>;
    const int count = units * items;
    int u = top + at.place * SIZE, item = items, load_u = u, load_item = items;
    uint4 own[DEPTH], gradient[DEPTH];
    const auto load =
        [&](int k, int n) { /* item n */
                            const bool inside = load_u < steps;
                            const bool is_before = n == count && has_before;
                            own[k] = pack_from(x, inside && (n < count || is_before));
                            gradient[k] = pack_from(dy, inside && n < count);
                            load_item--;
                            const bool ends = load_item == 0;
                            x += ends ? work.next_x : -ITEM;
                            dy += ends ? work.next_dy : -ITEM;
                            load_u += ends ? next_u : -ITEM;
                            load_item = ends ? items : load_item;
        };
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        load(k, k);
    }
    row_filter<V, LAGS> filter;
    load_few_taps<LAGS>(filter.tap, v, c);
    filter.offset = SILU ? v.offset(c) : V(0);
    filter.has_slope = ROWS == PLAIN || v.finish == FINISH_SILU;
    filter.has_last = v.lags == LAGS;
    row_marks row = {};
    if constexpr (ROWS == CUT) {
        row = work.marks.row(b);
    }
    first_gradients<SILU, LAGS, T> next = {};
    if (is_cut && at.lane < HALO<LAGS, T> && u + ITEM < steps) {
        gradients_after<SILU, ROWS, LAGS>(next, filter, v.x.row(b, c), v.dy.row(b, c),
                                          u + ITEM, row);
    }
    for (int done = 0; done < count; done += DEPTH) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (done + k < count) {
                const uint4 &before = own[(k + 1) % DEPTH];
                if constexpr (ROWS == CUT) {
                    compute_cut_item<SILU>(total, next, filter, own[k], before,
                                           gradient[k], dx, u, u < steps, at, row);
                }
                else {
                    const at_row_ends<SIZE> where = {u, steps - u};
                    compute_row_item<SILU>(total, next, filter, own[k], before,
                                           gradient[k], dx, u < steps, at, where);
                }
                load(k, done + k + DEPTH);
                item--;
                const bool ends = item == 0;
                dx += ends ? work.next_dx : -ITEM;
                u += ends ? next_u : -ITEM;
                item = ends ? items : item;
                if constexpr (ROWS == CUT) {
                    if (ends && !is_cut) {
                        b++;
                        row = work.marks.row(b < v.batches ? b : 0);
                    }
                }
            }
        }
    }
}

/* Whether a kernel has items, and whether it then has rows, too (see goes_by_items). */
template <int LAGS, bool SILU>
constexpr bool HAS_ITEMS = !SILU && LAGS <= ITEM_LAGS;
template <typename T>
constexpr bool HAS_ROWS = sizeof(T) == 4;

/*
 * With segments SILU is true for every call, and has_slope tells.  A block for each task: more
 * than a grid has would be a terabyte.
 */
template <typename T, int LAGS, bool SILU, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK, walks_blocks<T, LAGS, SILU, ROWS>)
    causal_conv1d_backward_few_taps(conv_view<T> v, lag_view<T> to, walks_work work)
{
    using V = value_type<T>;
    GPO_SHARED(V, totals, [LAGS + 1][BLOCK_WARPS][WARP]);
    GPO_SHARED(bool, last, [1]);
    const lane_group at(work.shift);
    const int warp = threadIdx.x / WARP, channels = WARP >> work.shift;
    const int64_t task = blockIdx.x, part = work.groups.of(task);
    const int64_t group = task - part * work.groups.by, first = group * channels;
    const int64_t wanted = first + (at.lane >> work.shift);
    const int64_t c = wanted < v.channels ? wanted : 0;
    V total[LAGS + 1] = {};
    const item_walks &by = work.by_items;
    bool is_by_rows = true;
    if constexpr (HAS_ITEMS<LAGS, SILU>) {
        is_by_rows = HAS_ROWS<T> && by.total == 0;
        if (!is_by_rows) {
            const int64_t begin = part * by.share, end = begin + by.share;
            walk_items<LAGS>(total, v, by, c, wanted < v.channels, begin,
                             end < by.total ? end : by.total, warp, at,
                             1 << work.shift);
        }
    }
    if constexpr (HAS_ROWS<T> || !HAS_ITEMS<LAGS, SILU>) {
        const int64_t begin = (part * BLOCK_WARPS + warp) * work.share;
        const int64_t rest = work.units - begin;
        if (is_by_rows && rest > 0) {
            walk_rows<SILU, ROWS, LAGS>(
                total, v, work, c, wanted < v.channels, begin,
                static_cast<int>(rest < work.share ? rest : work.share), at);
        }
    }
#pragma unroll
    for (int s = 0; s <= LAGS; s++) {
        const V sum = warp_combine<add>(total[s], 1 << work.shift);
        if (at.place == 0) {
            totals[s][warp][at.lane >> work.shift] = sum;
        }
    }
    __syncthreads();
    const auto add_up = [&](V(&sum)[1], int s, int k) {
#pragma unroll
        for (int w = 0; w < BLOCK_WARPS; w++) {
            sum[0] += totals[s][w][k];
        }
    };
    put_block_sums<LAGS, 1>(to, work.sums, part, group, first, 5 - work.shift, last,
                            add_up);
}

/* ---- the launch ---- */

/*
 * The rows of a warp if rows are whole: in as few parts of each group as fill 7 of 10 of the
 * warps in waves of `slots` blocks, or in those that fill them best.  A warp without a
 * row is empty, too: 19 rows in twos are 10 of 12 warps.
 */
static int64_t
rows_of_warp(int64_t groups, int64_t units, int64_t least, int64_t slots)
{
    constexpr int64_t TRIES = 16;
    const int64_t first = slots * 7 / (10 * groups);
    int64_t best = least, most = 0; /* thousandths of all warps */
    for (int64_t k = 0; k < TRIES; k++) {
        const int64_t parts = (first > 1 ? first : 1) + k;
        const int64_t wanted = ceil_div(units, parts * BLOCK_WARPS);
        const int64_t share = wanted > least ? wanted : least;
        const int64_t blocks = groups * ceil_div(units, share * BLOCK_WARPS);
        const int64_t rows = ceil_div(blocks, slots) * slots * BLOCK_WARPS * share;
        const int64_t full = 1000 * groups * units / rows;
        if (full > most) {
            most = full;
            best = share;
        }
        if (full >= 700 || share == least) {
            break;
        }
    }
    return best;
}

/*
 * Rows are cut where there are fewer than warps in `slots` blocks, else warps take several.
 * Each block more of a channel is a part to add, so only warps with about FULL_WALK items
 * make room for one.
 */
static void
split_walks(walks_work *work, int64_t slots, int64_t packs, int64_t batches)
{
    const int64_t groups = work->groups.by;
    const int64_t row_items = ceil_div(packs, WARP);
    const int64_t block = batches < BLOCK_WARPS ? BLOCK_WARPS / batches : 1;
    const int64_t full = slots * BLOCK_WARPS / (groups * batches);
    const int64_t most = (row_items + FULL_WALK / 2) / FULL_WALK;
    const int64_t more = (full < most ? full : most) / block * block;
    const int64_t pieces = more > block ? more : block;
    int64_t items = ceil_div(row_items, pieces);
    items = items < 2 && row_items > 1 ? 2 : items;
    work->items = static_cast<int>(items);
    work->stretches = divider_of(ceil_div(row_items, items));
    work->units = batches * work->stretches.by;
    work->share = 1;
    if (work->stretches.by == 1) {
        const int64_t of_one = ceil_div(work->units, int64_t{BLOCK_WARPS});
        const int64_t least = ceil_div(FULL_WALK, items);
        work->share =
            rows_of_warp(groups, work->units, of_one < least ? of_one : least, slots);
    }
    work->sums.parts = ceil_div(work->units, work->share * BLOCK_WARPS);
}

template <typename T, int LAGS>
static gpo_status
launch_walks(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    walks_work work = {};
    lag_view<T> to = lags;
    gpo_status status = mark_segments(call, &work.marks);
    if (!status) {
        const int blocks = work.marks.words ? walks_blocks<T, LAGS, true, CUT>
                           : v.finish == FINISH_SILU
                               ? walks_blocks<T, LAGS, true, PLAIN>
                               : walks_blocks<T, LAGS, false, PLAIN>;
        const int64_t slots = gpo_processors(call) * blocks;
        const int64_t packs = packs_of_row(v.out, v.steps);
        work.shift = lanes_of_row(packs);
        work.groups = divider_of(ceil_div(v.channels, WARP >> work.shift));
        if (goes_by_items(v, work.marks.words != nullptr)) {
            work.by_items = walks_of_items(v, packs, work.groups.by, slots);
            work.sums.parts = ceil_div(work.by_items.total, work.by_items.share);
        }
        else {
            split_walks(&work, slots, packs, v.batches);
        }
        work.tasks = work.groups.by * work.sums.parts;
        constexpr int64_t ITEM = WARP * pack<T>::SIZE;
        const auto next = [&](int64_t b) {
            return work.stretches.by > 1 ? -ITEM : b + (work.items - 1) * ITEM;
        };
        work.next_x = next(v.x.b);
        work.next_dy = next(v.dy.b);
        work.next_dx = next(v.out.b);
        status = plan_part_sums(call, &work.sums, work.sums.parts, work.groups.by, &to);
    }
    if (status) {
        return status;
    }
    const dim3 grid(static_cast<unsigned>(work.tasks));
#define WITH(SILU, ROWS)                   \
    GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, \
               (causal_conv1d_backward_few_taps<T, LAGS, SILU, ROWS>), v, to, work)
    status = work.marks.words          ? WITH(true, CUT)
             : v.finish == FINISH_SILU ? WITH(true, PLAIN)
                                       : WITH(false, PLAIN);
#undef WITH
    return status ? status : finish_part_sums(call, work.sums, to);
}

/* A call that packed its arrays after the choice may have other rows. */
template <typename T>
gpo_status
gradients_few_taps(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    if (!takes_few_taps(v, false, conv_plan_of(call)->segments != SEGMENTS_NONE)) {
        return gradients_short_filters(call, v, lags);
    }
#define WITH(LAGS) launch_walks<T, LAGS>(call, v, lags)
    return GPO_BY_FEW_TAPS(v.lags, WITH);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps)
