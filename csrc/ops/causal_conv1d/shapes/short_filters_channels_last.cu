/*
 * short_filters_channels_last.cu  Filters of at most 16 taps, neighbouring channels
 * (BTC), by tiles of steps and channels in shared memory.  All of a block's loads are
 * under way together, by cp.async, with those of the taps; a thread then walks along a few
 * steps of its channels with a window in registers.  Many small blocks per SM take turns.
 * Cost:  reads x once, and the first taps - 1 steps of each tile twice.
 * float64 and rows that are not aligned chunks: see short_filters_chunks.cu.
 */
#include "channels_last.cuh"
#include "earlier_chunk.cuh"

constexpr int TILE_STEPS = 64;    /* of a block, at most */
constexpr int LEAST_TILE = 16;    /* where there are few blocks */
constexpr int64_t TILE_WAVES = 4; /* blocks per SM, before tiles are shortened */

/*
 * 256 bytes of neighbouring channels, of which a thread has up to 8.  Half of each for
 * float32 and more than 8 taps: 467 us for 488 (B8 C4096 T4096 K16 on an H100).  For 16
 * bits and 5 to 8 taps a thread has 2, not 4, so that 5 blocks of an SM have registers, not
 * 3.
 */
template <typename T, int LAGS>
struct tile_of {
    static constexpr bool IS_NARROW = sizeof(T) == 4 && LAGS > 8;
    static constexpr int BYTES = IS_NARROW ? 128 : 256, CHUNK = BYTES / 32;
    static constexpr int LOADED = 16 / sizeof(T); /* channels in a copy */
    static constexpr int UNITS = BYTES / 16;      /* copies of a step */
    static constexpr int CHANNELS = BYTES / sizeof(T);
    static constexpr bool HAS_PAIRS = sizeof(T) == 2 && LAGS == 8;
    static constexpr int MOST =
        (HAS_PAIRS ? 64 : 128) / (LAGS * static_cast<int>(sizeof(value_type<T>)));
    static constexpr int WISHED = CHUNK / static_cast<int>(sizeof(T));
    static constexpr int LEAST = WISHED < MOST ? WISHED : MOST;
    static constexpr int W = LEAST < 1 ? 1 : LEAST; /* channels of a thread */
    static constexpr int LANES = CHANNELS / W;
    static constexpr int GROUPS = SHORT_BLOCK / LANES; /* of a thread's steps */
    static_assert(SHORT_BLOCK % LANES == 0 && SHORT_BLOCK % UNITS == 0);
    static_assert(TILE_STEPS % GROUPS == 0 && LEAST_TILE % GROUPS == 0);
};

struct tile_work {
    divider blocks;    /* of channels */
    divider stretches; /* of a row */
    int64_t tasks;
    int length; /* steps of a tile, a multiple of the groups */
    bool has_chunked_taps;
    segment_marks marks;
    earlier_steps state;
    later_steps last;
};

/* Where a tile begins. */
struct tile_place {
    int64_t b;
    int c, t0, n;
};

/* Starts the copies of steps t0 - (lags - 1) to t0 + n - 1, of those there are. */
template <int LAGS, typename Tile, typename T>
__device__ __forceinline__ void
load_tile(uint4 *tile, const conv_view<T> &v, const tile_place &at, int lags)
{
    constexpr int AT_ONCE = SHORT_BLOCK / Tile::UNITS; /* steps */
    constexpr int COPIES = (LAGS - 2 + TILE_STEPS + AT_ONCE) / AT_ONCE;
    const int tid = static_cast<int>(threadIdx.x);
    const int c = at.c + tid % Tile::UNITS * Tile::LOADED;
    if (c >= static_cast<int>(v.channels)) {
        return;
    }
    const uint64_t policy = l2_evict_unchanged();
    const int rows = at.n + lags - 1, r = tid / Tile::UNITS, t = at.t0 - (lags - 1) + r;
    const T *const x = v.x.p + at.b * v.x.b + c + t * v.x.t;
#pragma unroll
    for (int k = 0; k < COPIES; k++) {
        if (r + k * AT_ONCE < rows && t + k * AT_ONCE >= 0) {
            start_copy(tile + tid + k * SHORT_BLOCK, x + k * AT_ONCE * v.x.t, policy);
        }
    }
}

/* The steps before the row: of the state, or zeros. */
template <short_rows ROWS, typename Tile, typename T>
__device__ __forceinline__ void
load_before(uint4 *tile, const conv_view<T> &v, const tile_place &at, int lags,
            const earlier_steps &state)
{
    const int before = (lags - 1 - at.t0) * Tile::UNITS;
#pragma unroll 1
    for (int i = threadIdx.x; i < before; i += SHORT_BLOCK) {
        const int c = at.c + i % Tile::UNITS * Tile::LOADED;
        uint4 bits = {0, 0, 0, 0};
        if constexpr (ROWS == BEHIND) {
            if (c < static_cast<int>(v.channels)) {
                const int t = at.t0 - (lags - 1) + i / Tile::UNITS;
                bits = earlier_chunk<Tile::LOADED, T>(state, at.b, c, t);
            }
        }
        tile[i] = bits;
    }
}

/* The state after the row, whose last steps are in the tile as far as there are any. */
template <typename Tile, typename T>
__device__ __forceinline__ void
keep_last(const T *tile, const conv_view<T> &v, const tile_place &at, int lags,
          const later_steps &last)
{
    for (int i = threadIdx.x; i < last.kept * Tile::CHANNELS; i += SHORT_BLOCK) {
        const int k = i / Tile::CHANNELS, channel = i % Tile::CHANNELS;
        const int row = at.n + (lags - 1) - (last.kept - k);
        if (at.c + channel < v.channels) {
            last.row<T>(at.b, at.c + channel)[k * last.t] =
                row >= 0 ? tile[row * Tile::CHANNELS + channel]
                         : stored_as<T>(value_type<T>(0));
        }
    }
}

/* Taps, what is added to each sum, and the last LAGS steps of W channels. */
template <int LAGS, int W, typename V>
struct tile_lane {
    V tap[LAGS][W], offset[W];
    V window[LAGS][W]; /* step j is in slot j % LAGS */
};

/*
 * The results of at most LAGS steps, the first of which goes to slot 0.  IS_WHOLE: of as
 * many, with all products; else `past(k)` is how many steps before step k there are.
 */
template <bool IS_WHOLE, int LAGS, int W, typename T, typename Past>
__device__ __forceinline__ void
add_steps(tile_lane<LAGS, W, value_type<T>> &at, const chunk<T, W> (&now)[LAGS],
          const conv_view<T> &v, T *out, int n, const Past &past)
{
    const int lags = static_cast<int>(v.lags);
#pragma unroll
    for (int k = 0; k < LAGS; k++) {
        if (!IS_WHOLE && k >= n) {
            break;
        }
        value_type<T> sum[W];
        values_of_chunk<T>(at.window[k], now[k]);
        const int most = lags - 1 < past(k) ? lags - 1 : past(k);
#pragma unroll
        for (int i = 0; i < W; i++) {
            sum[i] = at.offset[i];
        }
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (IS_WHOLE || s <= most) {
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[i] += at.tap[s][i] * at.window[(k - s + LAGS) % LAGS][i];
                }
            }
        }
        if (v.finish == FINISH_SILU) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum[i] = silu<T>(sum[i]);
            }
        }
        *reinterpret_cast<chunk<T, W> *>(out + k * v.out.t) = chunk_of_values<T>(sum);
    }
}

/* The results of W channels: `n` steps from t0 on, which begin at `tile`. */
template <short_rows ROWS, int LAGS, typename Tile, typename T>
__device__ __forceinline__ void
walk(const conv_view<T> &v, const T (&taps)[LAGS][Tile::W], const T (&bias)[Tile::W],
     const chunk<T, Tile::W> *tile, T *out, int t0, int n, const row_marks &marks)
{
    using V = value_type<T>;
    constexpr int W = Tile::W, LANES = Tile::LANES;
    const int lags = static_cast<int>(v.lags);
    tile_lane<LAGS, W, V> at;
#pragma unroll
    for (int i = 0; i < W; i++) {
        at.offset[i] = static_cast<V>(v.eps) + static_cast<V>(value_of(bias[i]));
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            at.tap[s][i] = value_of(taps[s][i]);
        }
    }
#pragma unroll
    for (int k = 1; k < LAGS; k++) {
        const int back = LAGS - k;
        values_of_chunk<T>(at.window[k],
                           back < lags ? tile[-back * LANES] : chunk<T, W>{});
    }
    for (int j = 0; j < n; j += LAGS) {
        chunk<T, W> now[LAGS];
#pragma unroll
        for (int k = 0; k < LAGS; k++) {
            now[k] = j + k < n ? tile[k * LANES] : chunk<T, W>{};
        }
        const bool is_whole = lags == LAGS && j + LAGS <= n;
        if constexpr (ROWS == CUT) {
            const slot_marks<LAGS> begins = {marks.from(t0 + j - (LAGS - 1))};
            constexpr unsigned SEEN_HERE = ((1u << (2 * LAGS - 2)) - 1) << 1;
            const auto past = [&](int k) { return begins.back(k); };
            if (is_whole && (begins.bits & SEEN_HERE) == 0) {
                add_steps<true>(at, now, v, out, n - j, past);
            }
            else {
                add_steps<false>(at, now, v, out, n - j, past);
            }
        }
        else {
            const int inside = ROWS == BEHIND ? LAGS : t0 + j;
            const auto past = [&](int k) { return inside + k; };
            if (is_whole && inside >= LAGS - 1) {
                add_steps<true>(at, now, v, out, n - j, past);
            }
            else {
                add_steps<false>(at, now, v, out, n - j, past);
            }
        }
        tile += LAGS * LANES;
        out += LAGS * v.out.t;
    }
}

template <typename T, int LAGS, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK, tile_of<T, LAGS>::HAS_PAIRS ? 5 : 0)
    causal_conv1d_short_filters_channels_last(conv_view<T> v, tile_work work)
{
    using Tile = tile_of<T, LAGS>;
    constexpr int W = Tile::W;
    GPO_SHARED(uint4, tile, [(LAGS - 1 + TILE_STEPS) * Tile::UNITS]);
    const int lane = static_cast<int>(threadIdx.x) % Tile::LANES;
    const int group = static_cast<int>(threadIdx.x) / Tile::LANES;
    const int lags = static_cast<int>(v.lags), share = work.length / Tile::GROUPS;
    const int tasks = static_cast<int>(work.tasks);
    for (int task = static_cast<int>(blockIdx.x); task < tasks;
         task += static_cast<int>(gridDim.x)) {
        tile_place at;
        const int stretch = work.blocks.narrow(task);
        const int b = work.stretches.narrow(stretch);
        at.c = (task - stretch * static_cast<int>(work.blocks.by)) * Tile::CHANNELS;
        at.b = b;
        at.t0 = (stretch - b * static_cast<int>(work.stretches.by)) * work.length;
        const int left = static_cast<int>(v.steps) - at.t0;
        at.n = left < work.length ? left : work.length;
        load_tile<LAGS, Tile>(tile, v, at, lags);
        if (at.t0 < lags - 1) {
            load_before<ROWS, Tile>(tile, v, at, lags, work.state);
        }
        const int c = at.c + lane * W;
        const int k0 = group * share, mine = at.n - k0 < share ? at.n - k0 : share;
        const bool is_inside = c < static_cast<int>(v.channels) && mine > 0;
        T taps[LAGS][W] = {}, bias[W] = {};
        chunked<T, LAGS> chunks[W];
        if (is_inside) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                const T *const w = v.w + (c + i) * v.w_c;
                if (work.has_chunked_taps) {
                    chunks[i].load(w - (LAGS - 1));
                }
                else {
#pragma unroll
                    for (int s = 0; s < LAGS; s++) {
                        if (s < lags) {
                            taps[s][i] = w[s * v.w_s];
                        }
                    }
                }
                if (v.bias) {
                    bias[i] = v.bias[(c + i) * v.bias_c];
                }
            }
        }
        await_copies();
        __syncthreads();
        if (is_inside) {
            if (work.has_chunked_taps) {
#pragma unroll
                for (int i = 0; i < W; i++) {
                    T turned[LAGS];
                    chunks[i].put_turned(turned);
#pragma unroll
                    for (int s = 0; s < LAGS; s++) {
                        taps[s][i] = turned[s];
                    }
                }
            }
            const chunk<T, W> *const first =
                reinterpret_cast<const chunk<T, W> *>(tile) +
                (k0 + lags - 1) * Tile::LANES + lane;
            T *const out = v.out.p + at.b * v.out.b + c + (at.t0 + k0) * v.out.t;
            walk<ROWS, LAGS, Tile>(v, taps, bias, first, out, at.t0 + k0, mine,
                                   work.marks.row(at.b));
        }
        if (work.last.p && at.n == left) {
            keep_last<Tile>(reinterpret_cast<const T *>(tile), v, at, lags, work.last);
        }
        __syncthreads(); /* the tile has been read */
    }
}

/* ---- launches ---- */

/* Tiles of a length that divides a row evenly, short ones where blocks are few. */
template <typename Tile>
static void
split_into_tiles(tile_work *work, int64_t wanted, int64_t channels, int64_t batches,
                 int64_t steps)
{
    int64_t most = TILE_STEPS;
    work->blocks = divider_of(ceil_div(channels, Tile::CHANNELS));
    while (most > LEAST_TILE &&
           work->blocks.by * batches * ceil_div(steps, most) < wanted) {
        most /= 2;
    }
    const int64_t even = ceil_div(steps, ceil_div(steps, most));
    const int64_t length = ceil_div(even, Tile::GROUPS) * Tile::GROUPS;
    work->length = static_cast<int>(length);
    work->stretches = divider_of(ceil_div(steps, length));
    work->tasks = work->blocks.by * batches * work->stretches.by;
}

/* As the kernel of short_filters_chunks.cu does it. */
template <typename T>
static gpo_status
conv_by_chunks(gpo_call *call, const conv_view<T> &v)
{
    const gpo_status status = write_last_state<T>(call);
    return status ? status : conv_short_filters_chunks(call, v);
}

template <typename T, int LAGS, short_rows ROWS>
static gpo_status
launch(gpo_call *call, const conv_view<T> &v, const segment_marks &marks)
{
    using Tile = tile_of<T, LAGS>;
    const row_view<const T> taps = {v.w - (LAGS - 1), 0, v.w_c, -v.w_s};
    tile_work work = {};
    split_into_tiles<Tile>(&work, TILE_WAVES * gpo_processors(call), v.channels,
                           v.batches, v.steps);
    if (work.tasks >> 31 != 0) {
        return conv_by_chunks(call, v);
    }
    work.has_chunked_taps = v.lags == LAGS && has_chunked_steps<LAGS>(taps);
    work.marks = marks;
    work.state = earlier_steps_of(call);
    work.last = later_steps_of(call);
    return GPO_LAUNCH(call, grid_of(work.tasks), SHORT_BLOCK, 0,
                      (causal_conv1d_short_filters_channels_last<T, LAGS, ROWS>), v,
                      work);
}

/* The last state, too.  Rows without aligned chunks are left to the other kernel. */
template <typename T>
gpo_status
conv_short_filters_channels_last(gpo_call *call, const conv_view<T> &v)
{
    constexpr int LOADED = 16 / sizeof(T);
    if constexpr (sizeof(T) < 8) {
        if (v.channels >> 31 == 0 && has_chunks<LOADED>(v.x, v.channels) &&
            has_chunks<LOADED>(v.out, v.channels)) {
            segment_marks marks;
            const gpo_status status = mark_segments(call, &marks);
            if (status) {
                return status;
            }
#define WITH(LAGS, ROWS) launch<T, LAGS, ROWS>(call, v, marks)
            return earlier_steps_of(call).p
                       ? GPO_BY_LAGS(v.lags, BEHIND, WITH)
                       : GPO_BY_LAGS_AND_CUT(v.lags, marks.words, WITH);
#undef WITH
        }
    }
    return conv_by_chunks(call, v);
}

GPO_EVERY_FLOAT(GPO_CONV_OF, conv_short_filters_channels_last)
