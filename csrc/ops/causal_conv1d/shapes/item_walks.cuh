/*
 * item_walks.cuh  The walk of backward_few_taps.cu where g is dy: without SiLU an item
 * needs none of the items beside it but the first few dy after it, so the items of a channel
 * are divided evenly, whatever its rows are, and the warps of a block take them by turns,
 * four neighbouring ones at a time.  Rows may begin anywhere, if those of x, dy and dx
 * begin alike: what is no whole pack is made element by element.
 * Order: words of dy, elements beside the packs, products of a pack, the walk, its shares.
 */
#ifndef GPO_CAUSAL_CONV1D_ITEM_WALKS_CUH
#define GPO_CAUSAL_CONV1D_ITEM_WALKS_CUH

#include "few_taps.cuh"

constexpr int BLOCK_WARPS = SHORT_BLOCK / WARP;
constexpr int DEPTH = 2; /* items under way */

/* The items of a channel, and the way from an item to the next one of a warp. */
struct item_walks {
    divider row_items;
    int64_t total, share;       /* items of a channel in all rows, of a block */
    int turn;                   /* items within a row */
    int64_t x[2], dy[2], dx[2]; /* elements; in the second place with one row more */
};

/* ---- words of dy ---- */

/* The word at p, of which `left` elements are in the row: those, else zeros. */
template <typename T>
__device__ __forceinline__ unsigned
word_of_row(const T *p, int left)
{
    constexpr int PER_WORD = 4 / sizeof(T);
    if (left >= PER_WORD) {
        return *reinterpret_cast<const unsigned *>(p);
    }
    return PER_WORD == 2 && left == 1 ? *reinterpret_cast<const unsigned short *>(p)
                                      : 0;
}

template <int LAGS, typename T>
constexpr int WORDS_AFTER = (LAGS - 1 + 4 / sizeof(T) - 1) / (4 / sizeof(T));

/* dy of a pack and of the LAGS - 1 steps after it; lane i has word i after the item. */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
gradients_and_later(V (&g)[pack<T>::SIZE + LAGS - 1], const uint4 &dy, unsigned after,
                    int lane)
{
    constexpr int SIZE = pack<T>::SIZE, PER_WORD = 4 / sizeof(T);
    constexpr int WORDS = WORDS_AFTER<LAGS, T>;
    const unsigned mine[4] = {dy.x, dy.y, dy.z, dy.w};
    V own[SIZE];
    values_of_chunk<T>(own, dy);
#pragma unroll
    for (int i = 0; i < SIZE; i++) {
        g[i] = own[i];
    }
    unsigned beyond[4] = {};
#pragma unroll
    for (int i = 0; i < 4 && i < WORDS; i++) {
        beyond[i] = __shfl_sync(ALL_LANES, after, (lane * 4 + i) & (WARP - 1));
    }
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
        const int d = 1 + k / 4, i = k % 4;
        const unsigned give = lane < d ? beyond[i] : mine[i];
        V some[PER_WORD];
        values_of_chunk<T>(some, __shfl_sync(ALL_LANES, give, (lane + d) & (WARP - 1)));
#pragma unroll
        for (int j = 0; j < PER_WORD; j++) {
            if (k * PER_WORD + j < LAGS - 1) {
                g[SIZE + k * PER_WORD + j] = some[j];
            }
        }
    }
}

/* ---- elements beside the packs ---- */

template <typename V, int LAGS>
struct few_taps_of {
    V tap[LAGS];
    bool has_last; /* see has_lag */
};

/*
 * The elements of a row that are in no whole pack, `past` elements lying between the
 * boundary before the row and its start: one for each lane of the row, in turns.
 */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
compute_ends(V (&total)[LAGS + 1], const few_taps_of<V, LAGS> &filter, const T *x,
             const T *dy, T *dx, int steps, int past, int place, int lanes)
{
    constexpr int SIZE = pack<T>::SIZE;
    const int first = (SIZE - past) % SIZE, head = first < steps ? first : steps;
    const int tail = head + (steps - head) / SIZE * SIZE;
    const int count = head + steps - tail;
    for (int k = place; k < count; k += lanes) {
        const int t = k < head ? k : tail + k - head;
        const V own = value_of(x[t]);
        V sum = 0;
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (t + s < steps) {
                const V g = value_of(dy[t + s]);
                if (has_lag<LAGS>(s, filter.has_last)) {
                    sum += filter.tap[s] * g;
                }
                total[s] += own * g;
                total[LAGS] += s == 0 ? g : V(0);
            }
        }
        dx[t] = stored_as<T>(sum);
    }
}

/* ---- the products of a pack ---- */

/* dx of a whole pack of which `after` steps are left in the row, and its terms of dw. */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
compute_pack(V (&total)[LAGS + 1], const few_taps_of<V, LAGS> &filter, const uint4 &own,
             const V (&g)[pack<T>::SIZE + LAGS - 1], T *dx, int after)
{
    constexpr int SIZE = pack<T>::SIZE;
    V x[SIZE], sum[SIZE] = {}, part = 0;
    values_of_chunk<T>(x, own);
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        V lag = 0;
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            if (i + s < SIZE || i + s < after) {
                if (has_lag<LAGS>(s, filter.has_last)) {
                    sum[i] += filter.tap[s] * g[i + s];
                }
                lag += x[i] * g[i + s];
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

/* ---- the walk ---- */

/* The items of channel c from `begin` up to `end`, every BLOCK_WARPS-th. */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
walk_items(V (&total)[LAGS + 1], const conv_view<T> &v, const item_walks &work,
           int64_t c, bool is_channel, int64_t begin, int64_t end, lane_group at,
           int lanes)
{
    constexpr int SIZE = pack<T>::SIZE, ITEM = WARP * SIZE;
    constexpr int PER_WORD = 4 / sizeof(T);
    const int steps = is_channel ? static_cast<int>(v.steps) : 0;
    const int row_items = static_cast<int>(work.row_items.by);
    const int64_t b = work.row_items.of(begin);
    const int count = static_cast<int>((end - begin + BLOCK_WARPS - 1) / BLOCK_WARPS);
    int item = static_cast<int>(begin - b * row_items);
    const T *x = v.x.row(b, c) + item * ITEM, *dy = v.dy.row(b, c) + item * ITEM;
    T *dx = v.out.row(b, c) + item * ITEM;
    few_taps_of<V, LAGS> filter;
    load_few_taps<LAGS>(filter.tap, v, c);
    filter.has_last = v.lags == LAGS;
    uint4 own[DEPTH], gradient[DEPTH];
    unsigned after[DEPTH];
    T *to[DEPTH];
    int left[DEPTH]; /* steps from a lane's pack on; 0: no whole pack */
    const auto load = [&](int k, bool is_there) {
        const int past =
            static_cast<int>(reinterpret_cast<uintptr_t>(dx) % 16 / sizeof(T));
        const int offset = at.place * SIZE - past;
        const int u = item * ITEM + offset, rest = is_there && u >= 0 ? steps - u : 0;
        const bool is_whole = rest >= SIZE;
        own[k] = pack_from(x + offset, is_whole);
        gradient[k] = pack_from(dy + offset, is_whole);
        if (!is_whole && rest > 0) {
            gradient[k].x = word_of_row(dy + offset, rest);
            gradient[k].y = word_of_row(dy + offset + PER_WORD, rest - PER_WORD);
            gradient[k].z =
                word_of_row(dy + offset + 2 * PER_WORD, rest - 2 * PER_WORD);
            gradient[k].w =
                word_of_row(dy + offset + 3 * PER_WORD, rest - 3 * PER_WORD);
        }
        const int word = ITEM - past + at.lane * PER_WORD;
        const bool has_after = at.lane < WORDS_AFTER<LAGS, T> && at.all && is_there;
        after[k] = word_of_row(dy + word, has_after ? steps - item * ITEM - word : 0);
        to[k] = dx + offset;
        left[k] = is_whole ? rest : 0;
        if (is_there && item == 0) {
            compute_ends<LAGS>(total, filter, x, dy, dx, steps, past, at.place, lanes);
        }
        item += work.turn;
        const bool ends = item >= row_items;
        item -= ends ? row_items : 0;
        x += work.x[ends];
        dy += work.dy[ends];
        dx += work.dx[ends];
    };
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        load(k, k < count);
    }
    for (int done = 0; done < count; done += DEPTH) {
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (done + k < count) {
                V g[SIZE + LAGS - 1];
                gradients_and_later<LAGS, T>(g, gradient[k], after[k], at.lane);
                if (left[k] > 0) {
                    compute_pack<LAGS, T>(total, filter, own[k], g, to[k], left[k]);
                }
                load(k, done + k + DEPTH < count);
            }
        }
    }
}

/* ---- the shares of blocks ---- */

/*
 * The parts of each group of channels: the fewest that fill 9 of 10 places in waves of
 * `slots` blocks, or those that fill them best.  A part is added by the last block of its
 * group, and begins by waiting for its first loads, so warps have at least LEAST items.
 */
inline int64_t
parts_of_items(int64_t groups, int64_t total, int64_t slots)
{
    constexpr int64_t LEAST = 4, MOST = MOST_PARTS_OF_ONE;
    const int64_t most = total / (LEAST * BLOCK_WARPS);
    int64_t best = 1, best_full = 0; /* thousandths of the places */
    for (int64_t parts = 1; parts <= MOST && (parts <= most || parts == 1); parts++) {
        const int64_t share = ceil_div(total, parts);
        const int64_t places = ceil_div(groups * parts, slots) * slots;
        const int64_t full = 1000 * groups * total / (places * share);
        if (full > best_full) {
            best_full = full;
            best = parts;
        }
        if (full >= 900) {
            break;
        }
    }
    return best;
}

template <typename T>
item_walks
walks_of_items(const conv_view<T> &v, int64_t packs, int64_t groups, int64_t slots)
{
    constexpr int64_t ITEM = WARP * pack<T>::SIZE;
    const int64_t row_items = ceil_div(packs, WARP);
    item_walks work = {};
    work.row_items = divider_of(row_items);
    work.total = v.batches * row_items;
    const int64_t parts = parts_of_items(groups, work.total, slots);
    work.share = ceil_div(work.total, parts);
    const int64_t rows = BLOCK_WARPS / row_items;
    work.turn = static_cast<int>(BLOCK_WARPS % row_items);
    for (int more = 0; more < 2; more++) {
        const int64_t steps = (work.turn - more * row_items) * ITEM;
        work.x[more] = (rows + more) * v.x.b + steps;
        work.dy[more] = (rows + more) * v.dy.b + steps;
        work.dx[more] = (rows + more) * v.out.b + steps;
    }
    return work;
}

#endif
