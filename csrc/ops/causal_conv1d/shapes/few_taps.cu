/*
 * few_taps.cu  Filters of 2 to 8 taps, rows of neighbouring steps (BCT) that are whole
 * packs.  As short_filters.cu, but compiled for numbers of taps, and a warp walks through
 * the rows of its channels in several batches, each from its end to its start, with DEPTH
 * items under way: taps are loaded once, and nothing stops between rows.
 * - The steps before a pack are words of the lanes before or, in the first lanes, of the
 *   item that comes next.  At the start of a row they are those of another row: all
 *   products across it have one predicate for each pack beside it, and no code for edges.
 * Cost:  reads x once and writes the result once.
 * See backward_few_taps.cu for the gradients.
 */
#include "few_taps.cuh"

struct few_taps_work {
    int shift;            /* log2 of the lanes of a row */
    divider groups;       /* of channels, a warp's each */
    divider stretches;    /* of a row */
    int items;            /* of a stretch */
    int64_t units, share; /* stretches of a channel in all batches, of a warp */
    int64_t tasks;        /* of warps */
};

constexpr int DEPTH = 4; /* items under way */

/* Warps per SM, before one has a second item; then its items, if rows are not longer. */
constexpr int64_t WALKING_WARPS = 16, MOST_WALKED = 8;

/* Blocks per SM for which registers are kept. */
template <typename T, int LAGS, bool WHOLE>
constexpr int rows_blocks = sizeof(T) == 4 || LAGS <= 4 ? 8
                            : WHOLE                     ? 7
                                                        : 6;

/* The results of an item; `next` is the one that is walked next, so before it in a row. */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ uint4
results_of_item(const V (&tap)[LAGS], V offset, bool has_last, bool has_silu,
                const uint4 &own, const uint4 &next, int u, lane_group at)
{
    constexpr int SIZE = pack<T>::SIZE;
    const at_row_ends<SIZE> where = {u, 0};
    V value[LAGS - 1 + SIZE], sum[SIZE];
    values_of_lane<LAGS, T>(value, own, next, at);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        sum[i] = offset;
    }
    add_lags(sum, tap, value, has_lag<LAGS>(LAGS - 1, has_last) ? LAGS : LAGS - 1,
             where);
    if (has_silu) {
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            sum[i] = silu<T>(sum[i]);
        }
    }
    return chunk_of_values<T>(sum);
}

/* WHOLE: each row is one item, of which a warp may have several. */
template <typename T, int LAGS, bool WHOLE>
__global__ void
__launch_bounds__(SHORT_BLOCK, rows_blocks<T, LAGS, WHOLE>)
    causal_conv1d_few_taps(conv_view<T> v, few_taps_work work)
{
    using V = value_type<T>;
    constexpr int WARPS = SHORT_BLOCK / WARP, SIZE = pack<T>::SIZE, ITEM = WARP * SIZE;
    constexpr int HALO = (LAGS - 2 + SIZE) / SIZE;
    const lane_group at(work.shift);
    lane_group any = at;
    any.all = true; /* what is of another row is skipped, not cleared */
    for (int64_t task = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / WARP;
         task < work.tasks; task += static_cast<int64_t>(gridDim.x) * WARPS) {
        const int64_t part = work.groups.of(task), group = task - part * work.groups.by;
        const int64_t wanted = group * (WARP >> work.shift) + (at.lane >> work.shift);
        const int64_t c = wanted < v.channels ? wanted : 0;
        const int steps = wanted < v.channels ? static_cast<int>(v.steps) : 0;
        const int64_t begin = part * work.share, rest = work.units - begin;
        const int64_t b = WHOLE ? begin : work.stretches.of(begin);
        const int stretch = static_cast<int>(begin - b * work.stretches.by);
        const bool is_cut = !WHOLE && work.stretches.by > 1; /* then this is one */
        const int items = WHOLE ? 1 : work.items;
        const int top = (stretch * items + items - 1) * ITEM + at.place * SIZE;
        const int next_u = (items - 1) * ITEM; /* from the start of a row to the end */
        const bool has_before = is_cut && stretch > 0 && at.lane >= WARP - HALO;
        const int count =
            static_cast<int>(rest < work.share ? rest : work.share) * items;
        const T *x = v.x.row(b, c) + top;
        T *out = v.out.row(b, c) + top;
        int u = top, item = items, load_u = top, load_item = items, loads = 0;
        uint4 own[DEPTH];
        const auto load = [&](int k) {
            const bool is_before = !WHOLE && loads == count && has_before;
            own[k] = pack_from(x, load_u < steps && (loads < count || is_before));
            loads++;
            load_item--;
            const bool ends = WHOLE || (load_item == 0 && !is_cut);
            x += ends ? v.x.b + next_u : -ITEM;
            load_u += ends ? next_u : -ITEM;
            load_item = ends ? items : load_item;
        };
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            load(k);
        }
        V tap[LAGS];
        load_few_taps<LAGS>(tap, v, c);
        const V offset = v.offset(c);
        const bool has_last = v.lags == LAGS, has_silu = v.finish == FINISH_SILU;
        for (int done = 0; done < count; done += DEPTH) {
#pragma unroll
            for (int k = 0; k < DEPTH; k++) {
                if (done + k < count) {
                    const uint4 &next = WHOLE ? own[k] : own[(k + 1) % DEPTH];
                    const uint4 results = results_of_item<LAGS, T>(
                        tap, offset, has_last, has_silu, own[k], next, u, any);
                    if (u < steps) {
                        *reinterpret_cast<uint4 *>(out) = results;
                    }
                    load(k);
                    item--;
                    const bool ends = WHOLE || (item == 0 && !is_cut);
                    out += ends ? v.out.b + next_u : -ITEM;
                    u += ends ? next_u : -ITEM;
                    item = ends ? items : item;
                }
            }
        }
    }
}

/* ---- the launch ---- */

/* `places`: of warps.  A warp has a stretch of a long row, or rows of several batches. */
static few_taps_work
split_rows(int64_t places, int64_t packs, int64_t batches, int64_t channels)
{
    few_taps_work work = {};
    work.shift = lanes_of_row(packs);
    const int64_t groups = ceil_div(channels, WARP >> work.shift);
    const int64_t row_items = ceil_div(packs, WARP);
    const int64_t each = groups * batches * row_items / places;
    const int64_t wanted = each < 1 ? 1 : each < MOST_WALKED ? each : MOST_WALKED;
    const int64_t items = ceil_div(row_items, ceil_div(row_items, wanted));
    work.items = static_cast<int>(items);
    work.groups = divider_of(groups);
    work.stretches = divider_of(ceil_div(row_items, items));
    work.units = batches * work.stretches.by;
    const int64_t parts =
        work.stretches.by > 1 ? work.units : ceil_div(work.units, wanted / items);
    work.share = ceil_div(work.units, parts);
    work.tasks = groups * ceil_div(work.units, work.share);
    return work;
}

template <typename T, int LAGS>
static gpo_status
launch_rows(gpo_call *call, const conv_view<T> &v)
{
    constexpr int WARPS = SHORT_BLOCK / WARP;
    const few_taps_work work =
        split_rows(gpo_processors(call) * WALKING_WARPS, v.steps / pack<T>::SIZE,
                   v.batches, v.channels);
    const dim3 grid = grid_of(ceil_div(work.tasks, WARPS));
#define WITH(WHOLE)                                                                  \
    GPO_LAUNCH(call, grid, SHORT_BLOCK, 0, (causal_conv1d_few_taps<T, LAGS, WHOLE>), \
               v, work)
    return v.steps <= WARP * pack<T>::SIZE ? WITH(true) : WITH(false);
#undef WITH
}

/* A call that packed its arrays after the choice may have other rows. */
template <typename T>
gpo_status
conv_few_taps(gpo_call *call, const conv_view<T> &v)
{
    if (!takes_whole_rows(v)) {
        return conv_short_filters(call, v);
    }
#define WITH(LAGS) launch_rows<T, LAGS>(call, v)
    return GPO_BY_FEW_TAPS(v.lags, WITH);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_CONV_OF, conv_few_taps)
