/*
 * backward_few_taps_channels_last.cu  The gradients of filters of 2 to 8 taps, neighbouring
 * channels (BTC), in one pass and mostly one launch.  As
 * backward_short_filters_channels_last.cu, but compiled for numbers of taps: a turn of
 * the window inside a row has no tests.  dw of a step follows together with dx, when the
 * last g that both need is in the window.
 * Cost:  reads x and dy once, and taps - 1 steps after each stretch (x before it, too, with
 * SiLU) twice; the parts of dw that blocks of threads write.
 * See few_taps.cuh for the sums, backward_few_taps.cu for layout BCT.
 */
#include "few_taps.cuh"

struct columns_work {
    int shift;         /* log2 of the chunks of channels of a block */
    divider groups;    /* of channels, a block's each */
    divider stretches; /* of a row */
    int length;        /* of a stretch */
    int64_t units;     /* stretches of a chunk in all rows */
    part_sums sums;
    segment_marks marks;
    unsigned x_t, dy_t, out_t; /* bytes from a step to the next */
};

/* Steps of the window, of which the last LAGS are in use: a divisor of those of a turn. */
template <int LAGS>
constexpr int RING = LAGS == 2   ? 2
                     : LAGS <= 4 ? 4
                                 : 8;

/*
 * Whether the window has no x: without SiLU only the x of a step is multiplied, and comes
 * when its dx is made, which saves LAGS - 1 values of each channel.
 */
template <int LAGS, bool SILU>
constexpr bool X_COMES_LATE = LAGS > 4 && !SILU;

/* The window of a thread, and the TURN steps that are under way. */
template <typename T, int LAGS, int W, int TURN>
struct columns_window {
    static_assert(TURN % RING<LAGS> == 0, "a step has one place in both");
    value_type<T> x[RING<LAGS>][W], g[RING<LAGS>][W];
    chunk<T, W> x_ahead[TURN], dy_ahead[TURN];
};

template <typename V, int LAGS, int W>
struct columns_filter {
    V tap[LAGS][W], offset[W];
    bool has_last; /* see has_lag */
};

template <typename V, int LAGS, int W>
struct columns_sums {
    V lag[LAGS][W], bias[W];
};

/* A stretch of a row: its own steps from t0 on, n of them. */
struct columns_stretch {
    const char *x, *dy; /* of step t0 */
    char *dx;
    int t0, steps, n;
    int loaded; /* own steps whose last g is of a step of the row */
    row_marks marks;
};

/* Chunk `step` after p, with `bytes` from a step to the next. */
template <typename T, int W>
__device__ __forceinline__ chunk<T, W>
chunk_at(const char *p, unsigned bytes, int step)
{
    return *reinterpret_cast<const chunk<T, W> *>(p + uint64_t{bytes} * step);
}

/* g of the step in slot K: dy times the slope at the sum of the lags up to `most`. */
template <int LAGS, int W, int TURN, typename T, typename V>
__device__ __forceinline__ void
multiply_by_slope(columns_window<T, LAGS, W, TURN> *at,
                  const columns_filter<V, LAGS, W> &of, int slot, int most)
{
    constexpr int R = RING<LAGS>;
    V sum[W];
#pragma unroll
    for (int i = 0; i < W; i++) {
        sum[i] = of.offset[i];
    }
#pragma unroll
    for (int s = 0; s < LAGS; s++) {
        if (s <= most && has_lag<LAGS>(s, of.has_last)) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum[i] += of.tap[s][i] * at->x[(slot + R - s) % R][i];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < W; i++) {
        at->g[slot][i] *= silu_slope<T>(sum[i]);
    }
}

/* Whether lag s of step k of bits.from(t) is of one segment with it, k steps after t. */
__device__ __forceinline__ int
steps_back(unsigned bits, int k)
{
    return __clz(static_cast<int>(bits << (31 - k)));
}

__device__ __forceinline__ int
steps_ahead(unsigned bits, int k)
{
    return __clz(static_cast<int>(__brev(bits >> (k + 1))));
}

/*
 * Starts the loads of the first TURN steps, and makes the window of the first LAGS - 1,
 * whose g is that of own steps: complete once `of` is.
 */
template <int LAGS, int W, int TURN, typename T>
struct columns_start {
    chunk<T, W> before[LAGS - 1], x[LAGS - 1], dy[LAGS - 1];

    template <bool SILU>
    __device__ __forceinline__ void load(columns_window<T, LAGS, W, TURN> *at,
                                         const columns_stretch &of,
                                         const columns_work &work)
    {
        constexpr bool IS_LATE = X_COMES_LATE<LAGS, SILU>;
#pragma unroll
        for (int k = 0; k < LAGS - 1; k++) {
            const int back = LAGS - 1 - k;
            const bool is_step = of.t0 + k < of.steps;
            before[k] = {};
            if (SILU && back <= of.t0) {
                before[k] = *reinterpret_cast<const chunk<T, W> *>(
                    of.x - uint64_t{work.x_t} * back);
            }
            x[k] = {};
            dy[k] = {};
            if (is_step) {
                if constexpr (!IS_LATE) {
                    x[k] = chunk_at<T, W>(of.x, work.x_t, k);
                }
                dy[k] = chunk_at<T, W>(of.dy, work.dy_t, k);
            }
        }
#pragma unroll
        for (int k = 0; k < TURN; k++) {
            at->x_ahead[k] = {};
            at->dy_ahead[k] = {};
            if (k < (IS_LATE ? of.n : of.loaded)) {
                at->x_ahead[k] =
                    chunk_at<T, W>(of.x, work.x_t, IS_LATE ? k : LAGS - 1 + k);
            }
            if (k < of.loaded) {
                at->dy_ahead[k] = chunk_at<T, W>(of.dy, work.dy_t, LAGS - 1 + k);
            }
        }
    }

    /* Steps before the stretch are in the slots that those after the first will take. */
    template <bool SILU, short_rows ROWS, typename V>
    __device__ __forceinline__ void fill(columns_window<T, LAGS, W, TURN> *at,
                                         const columns_filter<V, LAGS, W> &filter,
                                         const columns_stretch &of) const
    {
        constexpr int R = RING<LAGS>;
        V old[LAGS - 1][W];
#pragma unroll
        for (int k = 0; k < LAGS - 1; k++) {
            values_of_chunk<T>(old[k], before[k]);
            values_of_chunk<T>(at->x[k], x[k]);
            values_of_chunk<T>(at->g[k], dy[k]);
        }
        if constexpr (SILU) {
            unsigned bits = 0;
            if constexpr (ROWS == CUT) {
                bits = of.marks.from(of.t0 - (LAGS - 1));
            }
#pragma unroll
            for (int k = 0; k < LAGS - 1; k++) {
                const int most =
                    ROWS == CUT ? steps_back(bits, LAGS - 1 + k) : of.t0 + k;
                V sum[W];
#pragma unroll
                for (int i = 0; i < W; i++) {
                    sum[i] = filter.offset[i];
                }
#pragma unroll
                for (int s = 0; s < LAGS; s++) {
                    if (s <= most && has_lag<LAGS>(s, filter.has_last)) {
#pragma unroll
                        for (int i = 0; i < W; i++) {
                            const V value = s <= k
                                                ? at->x[k >= s ? k - s : 0][i]
                                                : old[k < s ? LAGS - 1 + k - s : 0][i];
                            sum[i] += filter.tap[s][i] * value;
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < W; i++) {
                    at->g[k][i] *= silu_slope<T>(sum[i]);
                }
            }
        }
        static_assert(R >= LAGS, "slots of the first steps");
    }
};

/*
 * Own steps i to i + TURN - 1: step i + LAGS - 1 + k enters the window, then dx of step
 * i + k and its terms follow.  EDGE: some are not there, or bits (of step i on) cut them.
 */
template <bool SILU, short_rows ROWS, bool EDGE, int LAGS, int W, int TURN, typename T,
          typename V>
__device__ __forceinline__ void
columns_turn(columns_window<T, LAGS, W, TURN> *at, columns_sums<V, LAGS, W> *sums,
             const columns_filter<V, LAGS, W> &filter, const columns_stretch &of,
             const columns_work &work, int i, unsigned bits)
{
    constexpr int R = RING<LAGS>;
    constexpr bool IS_LATE = X_COMES_LATE<LAGS, SILU>;
#pragma unroll
    for (int k = 0; k < TURN; k++) {
        if (EDGE && i + k >= of.n) {
            return;
        }
        const int slot = (k + LAGS - 1) % R;
        values_of_chunk<T>(at->x[IS_LATE ? k % R : slot], at->x_ahead[k]);
        values_of_chunk<T>(at->g[slot], at->dy_ahead[k]);
        if (i + k + TURN < (IS_LATE ? of.n : of.loaded)) {
            at->x_ahead[k] =
                chunk_at<T, W>(of.x, work.x_t, (IS_LATE ? 0 : LAGS - 1) + TURN + k);
        }
        if (i + k + TURN < of.loaded) {
            at->dy_ahead[k] = chunk_at<T, W>(of.dy, work.dy_t, LAGS - 1 + TURN + k);
        }
        if constexpr (SILU) {
            const int most =
                EDGE && ROWS == CUT ? steps_back(bits, LAGS - 1 + k) : LAGS;
            multiply_by_slope(at, filter, slot, most);
        }
        const int after = of.steps - 1 - of.t0 - i - k;
        const int most = EDGE ? (ROWS == CUT ? steps_ahead(bits, k) : after) : LAGS;
        V sum[W] = {};
#pragma unroll
        for (int s = 0; s < LAGS; s++) {
            if (s <= most) {
#pragma unroll
                for (int c = 0; c < W; c++) {
                    const V g = at->g[(k + s) % R][c];
                    if (has_lag<LAGS>(s, filter.has_last)) {
                        sum[c] += filter.tap[s][c] * g;
                    }
                    sums->lag[s][c] += at->x[k % R][c] * g;
                }
            }
        }
#pragma unroll
        for (int c = 0; c < W; c++) {
            sums->bias[c] += at->g[k % R][c];
        }
        *reinterpret_cast<chunk<T, W> *>(of.dx + uint64_t{work.out_t} * k) =
            chunk_of_values<T>(sum);
    }
}

template <bool SILU, short_rows ROWS, int LAGS, int W, int TURN, typename T, typename V>
__device__ __forceinline__ void
walk_columns(columns_window<T, LAGS, W, TURN> *at, columns_sums<V, LAGS, W> *sums,
             const columns_filter<V, LAGS, W> &filter, columns_stretch of,
             const columns_work &work)
{
    /* Between these steps a segment that begins cuts some product of a turn. */
    constexpr unsigned SEEN_HERE = ((1u << (TURN + LAGS - 2)) - 1) << 1;
    for (int i = 0; i < of.n; i += TURN) {
        unsigned bits = 0;
        bool whole = i + TURN <= of.loaded;
        if constexpr (ROWS == CUT) {
            bits = of.marks.from(of.t0 + i);
            whole = whole && (bits & SEEN_HERE) == 0;
        }
        if (whole) {
            columns_turn<SILU, ROWS, false>(at, sums, filter, of, work, i, bits);
        }
        else {
            columns_turn<SILU, ROWS, true>(at, sums, filter, of, work, i, bits);
        }
        of.x += uint64_t{work.x_t} * TURN;
        of.dy += uint64_t{work.dy_t} * TURN;
        of.dx += uint64_t{work.out_t} * TURN;
    }
}

/* Taps and offsets of the channels from `first` on, through shared memory. */
template <bool SILU, int LAGS, int W, typename T, typename V>
__device__ __forceinline__ void
stage_filter(columns_filter<V, LAGS, W> *filter, V *staged, const conv_view<T> &v,
             int64_t first, int chunk_of_block, int channels)
{
    constexpr int MOST = W * WARP;
    filter->has_last = v.lags == LAGS;
    for (int i = threadIdx.x; i < channels * LAGS; i += SHORT_BLOCK) {
        const int c = i / LAGS, s = i % LAGS; /* neighbours: taps, from the last lag */
        const int lag = LAGS - 1 - s;
        if (first + c < v.channels) {
            staged[lag * MOST + c] =
                has_lag<LAGS>(lag, filter->has_last)
                    ? value_of(v.w[(first + c) * v.w_c + lag * v.w_s])
                    : V(0);
        }
    }
    if constexpr (SILU) {
        for (int c = threadIdx.x; c < channels; c += SHORT_BLOCK) {
            if (first + c < v.channels) {
                staged[LAGS * MOST + c] = v.offset(first + c);
            }
        }
    }
    __syncthreads();
    if (first + chunk_of_block * W >= v.channels) {
        return;
    }
#pragma unroll
    for (int s = 0; s < LAGS + SILU; s++) {
        const V *const from = staged + s * MOST + chunk_of_block * W;
        V value[W];
        values_of_chunk<V>(value, load_chunk<W>(from));
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (s < LAGS) {
                filter->tap[s < LAGS ? s : 0][i] = value[i];
            }
            else {
                filter->offset[i] = value[i];
            }
        }
    }
}

/* Channels of a thread; steps under way, for up to 4 lags as many bytes for any type. */
template <typename T, int LAGS, bool SILU>
constexpr int CHANNELS_OF = LAGS <= 4 || (X_COMES_LATE<LAGS, SILU> && sizeof(T) == 2)
                                ? FOURS
                                : FOURS / 2;
template <typename T, int LAGS>
constexpr int STEPS_OF_TURN = LAGS <= 4 ? 16 / sizeof(T) : 8;

/* Blocks per SM for which registers are kept. */
template <typename T, int LAGS, bool SILU>
constexpr int columns_blocks = LAGS > 4 ? (CHANNELS_OF<T, LAGS, SILU> == FOURS ? 3 : 4)
                               : LAGS == 2                           ? 5 - SILU
                               : LAGS == 4 && SILU && sizeof(T) == 4 ? 3
                                                                     : 4;

template <typename T, int LAGS, bool SILU, short_rows ROWS>
__global__ void
__launch_bounds__(SHORT_BLOCK, columns_blocks<T, LAGS, SILU>)
    causal_conv1d_backward_few_taps_channels_last(conv_view<T> v, lag_view<T> to,
                                                  columns_work work)
{
    constexpr int W = CHANNELS_OF<T, LAGS, SILU>, TURN = STEPS_OF_TURN<T, LAGS>;
    using V = value_type<T>;
    using sum_chunk = chunk<V, W>;
    GPO_SHARED(sum_chunk, staged, [(LAGS + 1) * WARP]);
    GPO_SHARED(sum_chunk, totals, [(LAGS + 1) * SHORT_BLOCK]);
    GPO_SHARED(bool, last, [1]);
    const int shift = work.shift, mask = (1 << shift) - 1;
    const int chunk_of_block = threadIdx.x & mask, row = threadIdx.x >> shift;
    const int part = work.groups.narrow(static_cast<int>(blockIdx.x));
    const int group =
        static_cast<int>(blockIdx.x) - part * static_cast<int>(work.groups.by);
    const int64_t first = (int64_t{group} << shift) * W;
    const int64_t c = first + chunk_of_block * W;
    const int64_t unit = int64_t{part} * (SHORT_BLOCK >> shift) + row;
    const bool there = c < v.channels && unit < work.units;
    columns_stretch of = {};
    columns_window<T, LAGS, W, TURN> at;
    columns_start<LAGS, W, TURN, T> start;
    if (there) {
        const int64_t b = work.stretches.of(unit);
        of.t0 = static_cast<int>(unit - b * work.stretches.by) * work.length;
        of.steps = static_cast<int>(v.steps);
        const int left = of.steps - of.t0;
        of.n = left < work.length ? left : work.length;
        of.loaded = left - (LAGS - 1) < of.n ? left - (LAGS - 1) : of.n;
        of.x =
            reinterpret_cast<const char *>(v.x.row(b, c)) + uint64_t{work.x_t} * of.t0;
        of.dy = reinterpret_cast<const char *>(v.dy.row(b, c)) +
                uint64_t{work.dy_t} * of.t0;
        of.dx =
            reinterpret_cast<char *>(v.out.row(b, c)) + uint64_t{work.out_t} * of.t0;
        if constexpr (ROWS == CUT) {
            of.marks = work.marks.row(b);
        }
    }
    start.template load<SILU>(&at, of, work);
    columns_filter<V, LAGS, W> filter = {};
    stage_filter<SILU>(&filter, reinterpret_cast<V *>(staged), v, first, chunk_of_block,
                       W << shift);
    columns_sums<V, LAGS, W> sums = {};
    if (there) {
        start.template fill<SILU, ROWS>(&at, filter, of);
        walk_columns<SILU, ROWS>(&at, &sums, filter, of, work);
    }
#pragma unroll
    for (int s = 0; s <= LAGS; s++) {
        totals[s * SHORT_BLOCK + threadIdx.x] =
            s < LAGS ? chunk_of_values<V>(sums.lag[s < LAGS ? s : 0])
                     : chunk_of_values<V>(sums.bias);
    }
    __syncthreads();
    const auto add_up = [&](V(&sum)[W], int s, int k) {
        const sum_chunk *const from = totals + s * SHORT_BLOCK + k;
#pragma unroll 4
        for (int r = 0; r < SHORT_BLOCK >> shift; r++) {
            V value[W];
            values_of_chunk<V>(value, from[r << shift]);
#pragma unroll
            for (int i = 0; i < W; i++) {
                sum[i] += value[i];
            }
        }
    };
    put_block_sums<LAGS, W>(to, work.sums, part, group, first, shift, last, add_up);
}

/* ---- the launch ---- */

constexpr int64_t WIDE_STEPS = 64; /* of stretches, from which wide groups pay */
constexpr int64_t MOST_WIDE_PARTS = 96;

/*
 * Stretches as long as one wave of threads allows.  Groups have 32 chunks of channels, if
 * that leaves few parts to add; else those of 16-bit types if stretches are long, since
 * their warps read 256 bytes of a step only then; others are narrower.
 */
static void
split_columns(columns_work *work, int64_t slots, int width, bool has_halves,
              int64_t channels, int64_t batches, int64_t steps)
{
    const int64_t chunks = channels / width;
    const int narrow = width == FOURS ? 2 : 3; /* log2 of the chunks of 16 channels */
    int shift = 0;
    while (shift < 5 && int64_t{1} << shift < chunks) {
        shift++;
    }
    while (shift > narrow &&
           ceil_div(chunks, int64_t{1} << shift) << shift > chunks + chunks / 8) {
        shift--;
    }
    const double each = static_cast<double>(chunks * batches * steps) /
                        static_cast<double>(slots * SHORT_BLOCK);
    int64_t least = MOST_STEPS_SUMMED;
    if (each < static_cast<double>(least)) {
        least = static_cast<int64_t>(each) / STEPS_TOGETHER * STEPS_TOGETHER;
        least = least < LEAST_STEPS ? LEAST_STEPS : least;
    }
    const auto parts_of = [&](int64_t l) {
        return ceil_div(batches * ceil_div(steps, l), SHORT_BLOCK >> shift);
    };
    const auto in_one_wave = [&](int64_t l) {
        const int64_t groups = ceil_div(chunks, int64_t{1} << shift);
        while (l < MOST_STEPS_SUMMED && groups * parts_of(l) > slots) {
            l += STEPS_TOGETHER;
        }
        return l;
    };
    int64_t length = in_one_wave(least);
    const bool is_wide =
        has_halves && length >= WIDE_STEPS && parts_of(length) <= MOST_WIDE_PARTS;
    if (!is_wide) {
        while (shift > narrow + 1 && parts_of(least) > FEW_PARTS) {
            shift--;
        }
        length = in_one_wave(least);
    }
    length = ceil_div(ceil_div(steps, ceil_div(steps, length)), STEPS_TOGETHER) *
             STEPS_TOGETHER;
    while (shift > narrow && parts_of(length) > FEW_PARTS &&
           chunks * batches * ceil_div(steps, length) <= slots * SHORT_BLOCK / 4) {
        shift--;
    }
    work->shift = shift;
    work->length = static_cast<int>(length);
    work->groups = divider_of(ceil_div(chunks, int64_t{1} << shift));
    work->stretches = divider_of(ceil_div(steps, length));
    work->units = batches * work->stretches.by;
    work->sums.parts = ceil_div(work->units, SHORT_BLOCK >> shift);
}

template <typename T, int LAGS, bool SILU>
static gpo_status
launch_columns(gpo_call *call, const conv_view<T> &v, const lag_view<T> &lags)
{
    columns_work work = {};
    split_columns(&work, gpo_processors(call) * columns_blocks<T, LAGS, SILU>,
                  CHANNELS_OF<T, LAGS, SILU>, sizeof(T) == 2, v.channels, v.batches,
                  v.steps);
    work.x_t = static_cast<unsigned>(v.x.t * sizeof(T));
    work.dy_t = static_cast<unsigned>(v.dy.t * sizeof(T));
    work.out_t = static_cast<unsigned>(v.out.t * sizeof(T));
    lag_view<T> to = lags;
    gpo_status status = mark_segments(call, &work.marks);
    if (!status) {
        status = plan_part_sums(call, &work.sums, work.sums.parts, work.groups.by, &to);
    }
    if (status) {
        return status;
    }
    const dim3 grid = grid_of(work.groups.by * work.sums.parts);
#define WITH(ROWS)                                                                   \
    GPO_LAUNCH(call, grid, SHORT_BLOCK, 0,                                           \
               (causal_conv1d_backward_few_taps_channels_last<T, LAGS, SILU, ROWS>), \
               v, to, work)
    status = work.marks.words ? WITH(CUT) : WITH(PLAIN);
#undef WITH
    return status ? status : finish_part_sums(call, work.sums, to);
}

/* A call that packed its arrays after the choice may have other rows. */
template <typename T>
gpo_status
gradients_few_taps_channels_last(gpo_call *call, const conv_view<T> &v,
                                 const lag_view<T> &lags)
{
    if (!takes_few_taps(v, true, true)) {
        return gradients_short_filters_channels_last(call, v, lags);
    }
    /* A block has 1024 elements or more, so the launch has fewer than 2^31 blocks. */
#define WITH(LAGS)                                                          \
    (v.finish == FINISH_SILU ? launch_columns<T, LAGS, true>(call, v, lags) \
                             : launch_columns<T, LAGS, false>(call, v, lags))
    return GPO_BY_FEW_TAPS(v.lags, WITH);
#undef WITH
}

GPO_EVERY_FLOAT32(GPO_GRADIENTS_OF, gradients_few_taps_channels_last)
