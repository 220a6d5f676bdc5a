/*
 * few_taps.cuh  Shared by the kernels of few_taps: numbers of taps, rows of whole packs,
 * which calls they take, and the sums of dw and dbias.  A block adds those of its threads,
 * and the last block of a group of channels adds those of all, in fixed order, so that a
 * call is one launch.
 */
#ifndef GPO_CAUSAL_CONV1D_FEW_TAPS_CUH
#define GPO_CAUSAL_CONV1D_FEW_TAPS_CUH

#include "channels_last.cuh"
#include "short_filters.cuh"

constexpr int64_t MOST_PARTS_OF_ONE = 64; /* parts that one block adds */

constexpr int64_t FEW_TAPS = 8;

/*
 * Kernels are compiled for 2, 3, 4, 6 and 8 taps; in the last two the last lag may be one
 * that the filter does not have: its products are skipped.
 */
template <int LAGS>
__device__ __forceinline__ bool
has_lag(int s, bool has_last)
{
    return LAGS <= 4 || s < LAGS - 1 || has_last;
}

/*
 * The taps of a channel, with no branch between their loads; in place of a last lag that
 * the filter does not have the first, which is not used.
 */
template <int LAGS, typename T>
__device__ __forceinline__ void
load_few_taps(value_type<T> (&tap)[LAGS], const conv_view<T> &v, int64_t c)
{
    const T *const w = v.w + c * v.w_c;
    const bool has_last = v.lags == LAGS;
    T got[LAGS];
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        got[s] = w[has_lag<LAGS>(s, has_last) ? s * v.w_s : 0];
    }
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        tap[s] = value_of(got[s]);
    }
}

#define GPO_BY_FEW_TAPS(lags, launch) \
    ((lags) == 2   ? launch(2)        \
     : (lags) == 3 ? launch(3)        \
     : (lags) == 4 ? launch(4)        \
     : (lags) <= 6 ? launch(6)        \
                   : launch(8))
static_assert(FEW_TAPS == 8, "GPO_BY_FEW_TAPS");

/* ---- rows of whole packs ---- */

/*
 * Products of a pack in a row of whole packs: only those across its ends are missing, so a
 * condition for each pack beside it is enough.  `before` the pack and `after` its start
 * the row has so many steps.
 */
template <int SIZE>
struct at_row_ends {
    int before, after;

    __device__ __forceinline__ bool has_back(int i, int s) const
    {
        return s <= i || before > (s - i - 1) / SIZE * SIZE;
    }

    __device__ __forceinline__ bool has_ahead(int i, int s) const
    {
        return i + s < SIZE || after > (i + s) / SIZE * SIZE;
    }
};

/* The pack at p if it is wanted, else zeros. */
template <typename T>
__device__ __forceinline__ uint4
pack_from(const T *p, bool wanted)
{
    return wanted ? load_streamed(reinterpret_cast<const uint4 *>(p))
                  : uint4{0, 0, 0, 0};
}

constexpr int64_t FEW_PARTS = 16; /* of a small call: narrower groups for fewer */

/* ---- which calls the kernels take ---- */

/* Whether all packs of the rows are 16 bytes of memory. */
template <typename T>
bool
has_whole_packs(const row_view<T> &rows)
{
    constexpr int64_t SIZE = 16 / sizeof(T);
    return rows.t == 1 && rows.b % SIZE == 0 && rows.c % SIZE == 0 &&
           reinterpret_cast<uintptr_t>(rows.p) % 16 == 0;
}

/* Whether the rows have fours of channels, steps ascending in memory. */
constexpr int FOURS = 4;
template <typename T>
bool
has_columns(const row_view<T> &rows, int64_t channels)
{
    constexpr int64_t MOST = INT64_C(0xffffffff) / sizeof(T);
    return has_chunks<FOURS>(rows, channels) && rows.t >= 0 && rows.t <= MOST;
}

template <typename T>
bool
has_few_lags(const conv_view<T> &v)
{
    return v.batches > 0 && v.channels > 0 && v.lags >= 2 && v.lags <= FEW_TAPS;
}

/* Forward: whether rows of x and of the result are whole packs. */
template <typename T>
bool
takes_whole_rows(const conv_view<T> &v)
{
    return has_few_lags(v) && v.steps % pack<T>::SIZE == 0 && has_whole_packs(v.x) &&
           has_whole_packs(v.out);
}

/* Whether rows follow each other in memory from a boundary of 16 bytes on. */
template <typename T>
bool
has_no_gaps(const row_view<T> &rows, int64_t batches, int64_t channels, int64_t steps)
{
    return rows.t == 1 && (channels == 1 || rows.c == steps) &&
           (batches == 1 || rows.b == channels * steps) &&
           reinterpret_cast<uintptr_t>(rows.p) % 16 == 0;
}

constexpr int64_t CONTIGUOUS_LAGS = 4;

/* Forward: whether contiguous_rows, which counts in 31 bits, takes the rows. */
template <typename T>
bool
takes_contiguous_rows(const conv_view<T> &v)
{
    constexpr double MOST = 1 << 30;
    return has_few_lags(v) && v.lags <= CONTIGUOUS_LAGS && v.steps >= pack<T>::SIZE &&
           static_cast<double>(v.batches) * static_cast<double>(v.channels) *
                   static_cast<double>(v.steps) <=
               MOST &&
           has_no_gaps(v.x, v.batches, v.channels, v.steps) &&
           has_no_gaps(v.out, v.batches, v.channels, v.steps);
}

/* Whether rows of two arrays begin alike, as far from a boundary of 16 bytes. */
template <typename T, typename U>
bool
begin_alike(const row_view<T> &a, const row_view<U> &b, const conv_view<U> &v)
{
    constexpr int64_t SIZE = 16 / sizeof(T);
    return (reinterpret_cast<uintptr_t>(a.p) - reinterpret_cast<uintptr_t>(b.p)) % 16 ==
               0 &&
           (v.batches == 1 || (a.b - b.b) % SIZE == 0) &&
           (v.channels == 1 || (a.c - b.c) % SIZE == 0);
}

constexpr int64_t ITEM_LAGS = 4; /* of filters whose items may go by turns, at most */

/* Backward, without segments: whether items may go by turns (item_walks.cuh). */
template <typename T>
bool
takes_items(const conv_view<T> &v)
{
    return v.finish == FINISH_NONE && has_few_lags(v) && v.lags <= ITEM_LAGS &&
           v.x.t == 1 && v.dy.t == 1 && v.out.t == 1 && begin_alike(v.x, v.out, v) &&
           begin_alike(v.dy, v.out, v);
}

/* Backward: whether all rows are whole packs. */
template <typename T>
bool
takes_rows(const conv_view<T> &v)
{
    return takes_whole_rows(v) && has_whole_packs(v.dy);
}

/* Backward. */
template <typename T>
bool
takes_few_taps(const conv_view<T> &v, bool by_channels, bool has_segments)
{
    if (!has_few_lags(v)) {
        return false;
    }
    if (by_channels) {
        return has_columns(v.x, v.channels) && has_columns(v.dy, v.channels) &&
               has_columns(v.out, v.channels);
    }
    return takes_rows(v) || (!has_segments && takes_items(v));
}

/*
 * one_block: lags, threads, and bytes of the values of a channel in shared memory; one_cluster:
 * the same in each of the blocks of a channel, with the steps around them.
 */
constexpr int LAGS_OF_ONE_BLOCK = 128;
constexpr int MOST_OF_ONE_BLOCK = 512;
constexpr int64_t MOST_BYTES_OF_ONE = 40960;
constexpr int CHANNEL_CLUSTER = 8;
constexpr int64_t MOST_OF_CLUSTER =
    CHANNEL_CLUSTER * (MOST_BYTES_OF_ONE / 8 - 2 * (SHORT - 1)); /* elements */

/* How the blocks of a group of channels add their sums. */
struct part_sums {
    int64_t parts;     /* of each channel */
    unsigned *tickets; /* of each group; NULL: one part, or a second kernel adds them */
};

/* Parts of `groups` groups of channels; memory for them and tickets, if needed. */
template <typename T>
gpo_status
plan_part_sums(gpo_call *call, part_sums *sums, int64_t parts, int64_t groups,
               lag_view<T> *to)
{
    *sums = {parts, nullptr};
    gpo_status status = make_short_parts(call, parts, to);
    const bool by_last = parts <= MOST_PARTS_OF_ONE && groups <= GPO_TICKETS;
    return status || parts == 1 || !by_last ? status
                                            : gpo_tickets(call, &sums->tickets);
}

/* What the kernel has left: sums of many parts, and dw of taps beyond the row. */
template <typename T>
gpo_status
finish_part_sums(gpo_call *call, const part_sums &sums, const lag_view<T> &to)
{
    const bool by_last = sums.tickets != nullptr;
    return add_short_parts(call, to, by_last ? 1 : sums.parts);
}

/*
 * A block's sums of the 1 << shift chunks of channels from `first` on: add_up(sum, s, k)
 * adds those of its threads, for sum s of chunk k; sum LAGS is that of dbias.  All threads
 * call it.
 */
template <int LAGS, int W, typename T, typename AddUp>
__device__ __forceinline__ void
put_block_sums(const lag_view<T> &to, const part_sums &sums, int64_t part,
               int64_t group, int64_t first, int shift, bool *last, const AddUp &add_up)
{
    using V = value_type<T>;
    const int lags = LAGS <= 4 ? LAGS : static_cast<int>(to.lags);
    const int items = (lags + 1) << shift, mask = (1 << shift) - 1;
    for (int q = threadIdx.x; q < items; q += SHORT_BLOCK) {
        const int64_t c = first + (q & mask) * W;
        if (c < to.channels) {
            V sum[W] = {};
            const int s = q >> shift;
            add_up(sum, s == lags ? LAGS : s, q & mask);
            put_chunk_sums<W>(to, sums.parts, part, c, s, sum);
        }
    }
    if (sums.tickets == nullptr ||
        !is_last_block(sums.tickets + group, static_cast<unsigned>(sums.parts), last)) {
        return;
    }
    const int parts = static_cast<int>(sums.parts);
    const int64_t stride = (lags + 1) * to.channels;
    for (int q = threadIdx.x; q < items; q += SHORT_BLOCK) {
        const int64_t c = first + (q & mask) * W;
        if (c < to.channels) {
            V sum[W] = {};
            const V *from = to.parts + (q >> shift) * to.channels + c;
#pragma unroll 16
            for (int k = 0; k < parts; k++) {
                V value[W];
                values_of_chunk<V>(value, load_chunk<W>(from + k * stride));
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[i] += value[i];
                }
            }
            put_chunk_sums<W>(to, 1, 0, c, q >> shift, sum);
        }
    }
}

/* ---- launchers ---- */

template <typename T>
gpo_status conv_few_taps(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status conv_contiguous_rows(gpo_call *call, const conv_view<T> &v);
template <typename T>
gpo_status gradients_one_block(gpo_call *call, const conv_view<T> &v,
                               const lag_view<T> &lags);
template <typename T>
gpo_status gradients_one_cluster(gpo_call *call, const conv_view<T> &v,
                                 const lag_view<T> &lags);
template <typename T>
gpo_status gradients_few_taps(gpo_call *call, const conv_view<T> &v,
                              const lag_view<T> &lags);
template <typename T>
gpo_status gradients_few_taps_channels_last(gpo_call *call, const conv_view<T> &v,
                                            const lag_view<T> &lags);

#endif
