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
    int first_inner, end_inner; /* items that are whole, as is the pack after them */
    bool has_ends;              /* some rows have elements in no whole pack */
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
 * The elements in no whole pack of `rows` rows of channel c from `first` on: an element for
 * each lane that has the channel, in all warps of a block.
 */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
compute_ends(V (&total)[LAGS + 1], const few_taps_of<V, LAGS> &filter,
             const conv_view<T> &v, int64_t c, int steps, int64_t first, int rows,
             int lane, int lanes)
{
    constexpr int SIZE = pack<T>::SIZE, MOST = 2 * SIZE; /* elements of a row */
    for (int k = lane; k < rows * MOST; k += lanes) {
        const int64_t b = first + k / MOST;
        T *const dx = v.out.row(b, c);
        const int before = (SIZE - elements_past_boundary(dx, 1)) % SIZE;
        const int head = before < steps ? before : steps;
        const int t =
            k % MOST < head ? k % MOST : k % MOST + (steps - head) / SIZE * SIZE;
        if (t < steps) {
            const V own = value_of(v.x.row(b, c)[t]);
            const T *const dy = v.dy.row(b, c) + t;
            V sum = 0;
#pragma unroll
            for (int s = 0; s < LAGS; s++) {
                if (t + s < steps) {
                    const V g = value_of(dy[s]);
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

/*
 * The items of channel c from `begin` up to `end`, every BLOCK_WARPS-th from that of the
 * warp on; `lanes` of a warp have the channel.
 */
template <int LAGS, typename T, typename V>
__device__ __forceinline__ void
walk_items(V (&total)[LAGS + 1], const conv_view<T> &v, const item_walks &work,
           int64_t c, bool is_channel, int64_t begin, int64_t end, int warp,
           lane_group at, int lanes)
{
    constexpr int SIZE = pack<T>::SIZE, ITEM = WARP * SIZE;
    constexpr int PER_WORD = 4 / sizeof(T);
    const int steps = is_channel ? static_cast<int>(v.steps) : 0;
    const int row_items = static_cast<int>(work.row_items.by);
    const int64_t b = work.row_items.of(begin + warp);
    const int count =
        static_cast<int>((end - begin - warp + BLOCK_WARPS - 1) / BLOCK_WARPS);
    int item = static_cast<int>(begin + warp - b * row_items);
    /* Of a lane's pack, which begins `past` elements before a whole number of packs. */
    T *dx = v.out.row(b, c) + item * ITEM + at.place * SIZE;
    int past = elements_past_boundary(dx, 1);
    dx -= past;
    const T *x = v.x.row(b, c) + item * ITEM + at.place * SIZE - past;
    const T *dy = v.dy.row(b, c) + item * ITEM + at.place * SIZE - past;
    const int word = ITEM - at.place * SIZE + at.lane * PER_WORD; /* from a pack */
    const bool has_word = at.lane < WORDS_AFTER<LAGS, T> && at.all;
    few_taps_of<V, LAGS> filter;
    load_few_taps<LAGS>(filter.tap, v, c);
    filter.has_last = v.lags == LAGS;
    uint4 own[DEPTH], gradient[DEPTH];
    unsigned after[DEPTH];
    T *to[DEPTH];
    int left[DEPTH]; /* steps from a lane's pack on; 0: no whole pack */
    const auto load = [&](int k, bool is_there) {
        to[k] = dx;
        if (is_there && item >= work.first_inner && item < work.end_inner) {
            own[k] = pack_from(x, true);
            gradient[k] = pack_from(dy, true);
            after[k] = has_word ? *reinterpret_cast<const unsigned *>(dy + word) : 0;
            left[k] = SIZE + LAGS;
        }
        else {
            const int u = item * ITEM + at.place * SIZE - past;
            const int rest = is_there && u >= 0 ? steps - u : 0;
            own[k] = pack_from(x, rest >= SIZE);
            gradient[k] = pack_from(dy, rest >= SIZE);
            if (rest > 0 && rest < SIZE) {
                unsigned words[4];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    words[i] = word_of_row(dy + i * PER_WORD, rest - i * PER_WORD);
                }
                gradient[k] = {words[0], words[1], words[2], words[3]};
            }
            after[k] =
                word_of_row(dy + word, is_there && has_word ? steps - u - word : 0);
            left[k] = rest >= SIZE ? rest : 0;
        }
        item += work.turn;
        const bool ends = item >= row_items;
        if (row_items > BLOCK_WARPS && !ends) {
            x += BLOCK_WARPS * ITEM;
            dy += BLOCK_WARPS * ITEM;
            dx += BLOCK_WARPS * ITEM;
        }
        else {
            item -= ends ? row_items : 0;
            dx += work.dx[ends] + past;
            const int old = past;
            past = elements_past_boundary(dx, 1);
            dx -= past;
            x += work.x[ends] + old - past;
            dy += work.dy[ends] + old - past;
        }
    };
    for (int done = -DEPTH; done < count; done += DEPTH) { /* the first turn loads */
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            if (done + k < count) {
                if (done >= 0) {
                    V g[SIZE + LAGS - 1];
                    gradients_and_later<LAGS, T>(g, gradient[k], after[k], at.lane);
                    if (left[k] > 0) {
                        compute_pack<LAGS, T>(total, filter, own[k], g, to[k], left[k]);
                    }
                }
                load(k, done + k + DEPTH < count);
            }
        }
    }
    if (work.has_ends) { /* of the rows whose first item is among those of the block */
        const int64_t first = work.row_items.of(begin + row_items - 1);
        const int64_t last = work.row_items.of(end + row_items - 1);
        compute_ends<LAGS>(total, filter, v, c, steps, first,
                           static_cast<int>(last - first), warp * lanes + at.place,
                           BLOCK_WARPS * lanes);
    }
}

/* ---- the shares of blocks ---- */

/*
 * The parts of each group of channels that take the fewest turns in waves of `slots` blocks.
 * A block begins by waiting for its first loads and ends by adding sums, as long as START
 * turns; several parts, which the last block of a group adds, take as long as ANOTHER.
 */
inline int64_t
parts_of_items(int64_t groups, int64_t total, int64_t slots)
{
    constexpr int64_t START = 4, ANOTHER = 8, LEAST = 4, MOST = MOST_PARTS_OF_ONE;
    int64_t best = 1, fewest = INT64_MAX;
    for (int64_t parts = 1; parts <= MOST; parts++) {
        const int64_t turns = ceil_div(ceil_div(total, parts), int64_t{BLOCK_WARPS});
        const int64_t all = ceil_div(groups * parts, slots) * (turns + START) +
                            (parts > 1 ? ANOTHER : 0);
        if (all < fewest && (parts == 1 || turns >= LEAST)) {
            fewest = all;
            best = parts;
        }
    }
    return best;
}

/*
 * Whether items of a call that few_taps takes go by turns: on an H100 float32 rows of 13
 * items and more take up to a tenth less time so, and rows of 1 to 6 up to a tenth more.
 */
template <typename T>
bool
goes_by_items(const conv_view<T> &v, bool has_segments)
{
    constexpr int64_t LONG = 12 * WARP * pack<T>::SIZE; /* steps */
    return !has_segments && takes_items(v) &&
           (sizeof(T) == 2 || v.steps >= LONG || !takes_rows(v));
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
    work.has_ends = v.steps % pack<T>::SIZE != 0 || !has_whole_packs(v.out);
    work.first_inner = work.has_ends ? 1 : 0;
    work.end_inner = static_cast<int>((v.steps - FEW_TAPS) / ITEM);
    return work;
}

#endif
