/*
 * cuda.cu  The ladders of upsample_nearest and its backward on CUDA, v0 to v2, then the
 * tables and the choice.  Each rung is a comment, the kernel forward and its launcher,
 * then the same backward.
 * Not here: what the rungs share (rows.cuh), the rule (upsample_nearest.h), the contract
 * (op.c).
 */
#include "rows.cuh"

#include <stdio.h>

inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* One thread for each of n elements, at most MOST_THREADS. */
constexpr int64_t MOST_GRID = 2147483647, MOST_THREADS = MOST_GRID * BLOCK;

static dim3
grid_of(int64_t n)
{
    return dim3(static_cast<unsigned>(ceil_div(n, BLOCK)));
}

/*
 * v0  One output per thread.
 * Now:   a thread finds its place by five divisions and its source by the rule, and
 *        moves one element.  Backward a thread has an element of dx, finds the range of
 *        its outputs on each axis, and adds them up.
 * Cost:  each output has its own load and its own store of one element.
 * Left:  neighbours load the same element; a store of 2 or 4 bytes -> v1.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v0_output(upsample_plan p)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= p.size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].out, p.axis[1].out, p.axis[2].out);
    int64_t from = channel_offset(p, at);
#pragma unroll
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        from += upsample_source(&p.axis[k], at.at[UPSAMPLE_D + k]) *
                p.stride[UPSAMPLE_D + k];
    }
    static_cast<T *>(p.to)[i] = static_cast<const T *>(p.from)[from];
}

template <typename T>
static gpo_status
forward_v0(gpo_call *call, const upsample_plan &p)
{
    return GPO_LAUNCH(call, grid_of(p.size), BLOCK, 0, (upsample_nearest_v0_output<T>),
                      p);
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_backward_v0_input(upsample_plan p)
{
    using V = typename sum_of<T>::type;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= p.size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].in, p.axis[1].in, p.axis[2].in);
    const range d = outputs_of(p.axis[0], at.at[UPSAMPLE_D]);
    const range h = outputs_of(p.axis[1], at.at[UPSAMPLE_H]);
    const range w = outputs_of(p.axis[2], at.at[UPSAMPLE_W]);
    const T *y = static_cast<const T *>(p.from) + channel_offset(p, at);
    V sum = {};
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const T *here = y + l * p.stride[UPSAMPLE_D] + m * p.stride[UPSAMPLE_H];
            for (int64_t n = w.first; n < w.end; n++) {
                add_to(sum, here[n * p.stride[UPSAMPLE_W]]);
            }
        }
    }
    static_cast<T *>(p.to)[i] = stored_as<T>(sum);
}

template <typename T>
static gpo_status
backward_v0(gpo_call *call, const upsample_plan &p)
{
    return GPO_LAUNCH(call, grid_of(p.size), BLOCK, 0,
                      (upsample_nearest_backward_v0_input<T>), p);
}

/*
 * v1  Pairs of equal outputs.
 * Was:   v0 loads an element once for each of its outputs.
 * Now:   a thread has an element of x, loads it once and stores all its outputs, two
 *        neighbours at a time where they lie on a boundary of two; the source's kernel,
 *        for any scale.  Backward a thread loads such pairs.
 * Cost:  x once; stores of two elements.
 * Left:  still five divisions for each element, and words of 4 or 8 bytes -> v2.
 */
template <typename T>
__device__ __forceinline__ void
store_pair(T *to, T x)
{
    if constexpr (sizeof(T) <= 8) {
        const T two[2] = {x, x};
        word_of<T, 2> bits;
        memcpy(static_cast<void *>(&bits), two, sizeof bits);
        *reinterpret_cast<word_of<T, 2> *>(to) = bits;
    }
    else {
        to[0] = x;
        to[1] = x;
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v1_pairs(upsample_plan p, int64_t size)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].in, p.axis[1].in, p.axis[2].in);
    int64_t from = channel_offset(p, at);
#pragma unroll
    for (int k = UPSAMPLE_D; k <= UPSAMPLE_W; k++) {
        from += at.at[k] * p.stride[k];
    }
    const T x = static_cast<const T *>(p.from)[from];
    const range d = outputs_of(p.axis[0], at.at[UPSAMPLE_D]);
    const range h = outputs_of(p.axis[1], at.at[UPSAMPLE_H]);
    const range w = outputs_of(p.axis[2], at.at[UPSAMPLE_W]);
    const int64_t image = at.at[UPSAMPLE_A] * p.channels + at.at[UPSAMPLE_B];
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const int64_t row = (image * p.axis[0].out + l) * p.axis[1].out + m;
            T *to = static_cast<T *>(p.to) + row * p.axis[2].out * p.inner +
                    at.at[UPSAMPLE_I];
            int64_t n = w.first;
            if (p.inner == 1) {
                if (n < w.end && !lies_on(to + n, 2 * sizeof(T))) {
                    to[n++] = x;
                }
                for (; n + 1 < w.end; n += 2) {
                    store_pair(to + n, x);
                }
            }
            for (; n < w.end; n++) {
                to[n * p.inner] = x;
            }
        }
    }
}

template <typename T>
static gpo_status
forward_v1(gpo_call *call, const upsample_plan &p)
{
    const int64_t size =
        p.images * p.channels * p.axis[0].in * p.axis[1].in * p.axis[2].in * p.inner;
    if (size > MOST_THREADS) { /* a broadcast x that is made small */
        return forward_v0<T>(call, p);
    }
    return GPO_LAUNCH(call, grid_of(size), BLOCK, 0, (upsample_nearest_v1_pairs<T>), p,
                      size);
}

template <typename V, typename T>
__device__ __forceinline__ void
add_pair(V &sum, const T *y)
{
    if constexpr (sizeof(T) <= 8) {
        const auto bits = *reinterpret_cast<const word_of<T, 2> *>(y);
        T two[2];
        memcpy(static_cast<void *>(two), &bits, sizeof bits);
        add_to(sum, two[0]);
        add_to(sum, two[1]);
    }
    else {
        add_to(sum, y[0]);
        add_to(sum, y[1]);
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_backward_v1_pairs(upsample_plan p)
{
    using V = typename sum_of<T>::type;
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= p.size) {
        return;
    }
    const place at = place_of(p, i, p.axis[0].in, p.axis[1].in, p.axis[2].in);
    const range d = outputs_of(p.axis[0], at.at[UPSAMPLE_D]);
    const range h = outputs_of(p.axis[1], at.at[UPSAMPLE_H]);
    const range w = outputs_of(p.axis[2], at.at[UPSAMPLE_W]);
    const int64_t across = p.stride[UPSAMPLE_W];
    const T *y = static_cast<const T *>(p.from) + channel_offset(p, at);
    V sum = {};
    for (int64_t l = d.first; l < d.end; l++) {
        for (int64_t m = h.first; m < h.end; m++) {
            const T *here = y + l * p.stride[UPSAMPLE_D] + m * p.stride[UPSAMPLE_H];
            int64_t n = w.first;
            if (across == 1) {
                if (n < w.end && !lies_on(here + n, 2 * sizeof(T))) {
                    add_to(sum, here[n++]);
                }
                for (; n + 1 < w.end; n += 2) {
                    add_pair(sum, here + n);
                }
            }
            for (; n < w.end; n++) {
                add_to(sum, here[n * across]);
            }
        }
    }
    static_cast<T *>(p.to)[i] = stored_as<T>(sum);
}

template <typename T>
static gpo_status
backward_v1(gpo_call *call, const upsample_plan &p)
{
    return GPO_LAUNCH(call, grid_of(p.size), BLOCK, 0,
                      (upsample_nearest_backward_v1_pairs<T>), p);
}

/*
 * v2  16-byte stores on all rows, no division.
 * Was:   v1 divides for every element and stores 4 or 8 bytes.
 * Now:   a thread keeps to one column of 16 bytes and takes several rows of x, whose
 *        loads are in flight together; then it stores 16 bytes on each row they feed.
 *        Rows twice as many and as long need no rule: 8 bytes go to two rows.  For others
 *        a thread works out once where its column comes from and walks over rows by
 *        carrying from axis to axis; where rows begin off a 16-byte boundary, or fewer
 *        come out than go in, it has one row of the result, counted from the boundary
 *        before it.  Backward 16 bytes of each row of dy give 8 bytes of dx, or 16 where
 *        channels lie side by side.
 * Cost:  each byte once: x is read once for all rows it feeds.  32 bytes of loads and
 *        128 of stores in flight per thread, backward 64 of loads.
 * Left:  scales other than 2 load element by element through the cache; those backward
 *        add so, too.
 */
template <typename T>
constexpr int PACK = 16 / static_cast<int>(sizeof(T));

/*
 * Each row of x makes two, each thread SIZE elements of them: 16 bytes, or a pair where
 * rows begin anywhere.  Rows of x begin `pitch` elements apart.
 */
enum { DOUBLED_ROWS = 4 };

template <typename T, int SIZE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_v2_doubled(const T *from, T *to, int64_t pitch, row_walk walk)
{
    constexpr int HALF = SIZE / 2;
    using In = word_of<T, HALF>;
    using Out = word_of<T, SIZE>;
    const first_unit first = first_unit_of(walk, DOUBLED_ROWS);
    if (first.unit >= walk.units) {
        return;
    }
    const unsigned step = BLOCK >> walk.log_lanes;
    from += first.number * pitch + first.unit * HALF;
    In half[DOUBLED_ROWS];
#pragma unroll
    for (unsigned k = 0; k < DOUBLED_ROWS; k++) {
        if (first.number + k * step < walk.rows) {
            half[k] = *reinterpret_cast<const In *>(from);
        }
        from += step * pitch;
    }
    const int64_t row = static_cast<int64_t>(walk.units) * SIZE;
    to += 2 * first.number * row + first.unit * SIZE;
#pragma unroll
    for (unsigned k = 0; k < DOUBLED_ROWS; k++) {
        if (first.number + k * step < walk.rows) {
            T x[HALF], pairs[SIZE];
            memcpy(x, &half[k], sizeof x);
#pragma unroll
            for (int i = 0; i < SIZE; i++) {
                pairs[i] = x[i / 2];
            }
            Out bits;
            memcpy(static_cast<void *>(&bits), pairs, sizeof bits);
            store_streamed(reinterpret_cast<Out *>(to), bits);
            store_streamed(reinterpret_cast<Out *>(to + row), bits);
        }
        to += 2 * step * row;
    }
}

enum row_mode { PAIRS, WHOLE, PICKED };

/* Sources of the pack `unit` of a row of the result: one, or one for each element. */
template <typename T, row_mode MODE>
__device__ __forceinline__ void
find_sources(const upsample_plan &p, unsigned unit, int *at)
{
    constexpr int SIZE = PACK<T>;
    const upsample_axis &width = p.axis[2];
    const int across = static_cast<int>(p.stride[UPSAMPLE_W]);
    const int inner = static_cast<int>(p.inner);
    const int first = static_cast<int>(unit) * SIZE;
    if constexpr (MODE == PAIRS) {
        at[0] = first / 2;
    }
    else {
        int w = inner > 1 ? first / inner : first, c = first - w * inner;
        if constexpr (MODE == WHOLE) {
            at[0] = source_column(width, w) * across + c;
        }
        else {
            const int by = static_cast<int>(p.stride[UPSAMPLE_I]);
#pragma unroll
            for (int k = 0; k < SIZE; k++) {
                at[k] = source_column(width, w) * across + c * by;
                c++;
                w += c == inner;
                c = c == inner ? 0 : c;
            }
        }
    }
}

template <typename T, row_mode MODE>
__device__ __forceinline__ uint4
load_sources(const T *x, const int *at)
{
    constexpr int SIZE = PACK<T>;
    uint4 bits = {0, 0, 0, 0};
    if constexpr (MODE == WHOLE) {
        bits = *reinterpret_cast<const uint4 *>(x + at[0]);
    }
    else if constexpr (MODE == PAIRS && SIZE > 1) {
        const uint2 half = *reinterpret_cast<const uint2 *>(x + at[0]);
        bits.x = half.x;
        bits.y = half.y;
    }
    else if constexpr (MODE == PICKED) {
        T v[SIZE];
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            v[k] = x[at[k]];
        }
        memcpy(static_cast<void *>(&bits), v, sizeof bits);
    }
    return bits;
}

/* 16 bytes of result: what was loaded, or the first 8 bytes of it with each element twice. */
template <typename T, row_mode MODE>
__device__ __forceinline__ uint4
spread(uint4 bits)
{
    if constexpr (MODE == PAIRS) {
        constexpr int SIZE = PACK<T>;
        T from[SIZE], to[SIZE];
        memcpy(from, &bits, sizeof bits);
#pragma unroll
        for (int k = 0; k < SIZE; k++) {
            to[k] = from[k / 2];
        }
        memcpy(static_cast<void *>(&bits), to, sizeof bits);
    }
    return bits;
}

template <row_mode MODE>
__host__ __device__ constexpr int
rows_in_flight()
{
    return MODE == PICKED ? 2 : 4;
}

template <typename T, row_mode MODE>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v2_rows(upsample_plan p, row_walk walk)
{
    constexpr int SIZE = PACK<T>, ITEMS = rows_in_flight<MODE>();
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    walker w = start_walk(walk, ITEMS);
    if (w.unit >= walk.units) {
        return;
    }
    int at[MODE == PICKED ? SIZE : 1];
    find_sources<T, MODE>(p, w.unit, at);

    uint4 bits[ITEMS];
    walker ahead = w;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (ahead.number < walk.rows) {
            const T *x = static_cast<const T *>(p.from) +
                         row_offset(p, ahead.at, ahead.at.d, ahead.at.h);
            bits[k] = load_sources<T, MODE>(x, at);
        }
        next_row(walk, ahead);
    }
    const int64_t row = p.axis[2].out * p.inner;
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        if (w.number < walk.rows) {
            const uint4 pack = spread<T, MODE>(bits[k]);
            const column_range d = columns_of(depth, static_cast<int>(w.at.d));
            const column_range h = columns_of(height, static_cast<int>(w.at.h));
            const int64_t image = static_cast<int64_t>(w.at.a) * p.channels + w.at.b;
#pragma unroll 1
            for (int l = d.first; l < d.end; l++) {
                T *to = static_cast<T *>(p.to) + w.unit * SIZE +
                        ((image * depth.out + l) * height.out + h.first) * row;
#pragma unroll 1
                for (int m = h.first; m < h.end; m++, to += row) {
                    store_streamed(reinterpret_cast<uint4 *>(to), pack);
                }
            }
        }
        next_row(walk, w);
    }
}

/* Rows of the result one by one; unit 0 begins at the boundary at or before the row. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) upsample_nearest_v2_peeled(upsample_plan p, row_walk walk)
{
    constexpr int SIZE = PACK<T>;
    const int row = static_cast<int>(p.axis[2].out * p.inner);
    const int inner = static_cast<int>(p.inner);
    const walker r = start_walk(walk, 1);
    if (r.number >= walk.rows) {
        return;
    }
    const int64_t d = source_column(p.axis[0], static_cast<int>(r.at.d));
    const int64_t h = source_column(p.axis[1], static_cast<int>(r.at.h));
    const T *x = static_cast<const T *>(p.from) + row_offset(p, r.at, d, h);
    T *to = static_cast<T *>(p.to) + static_cast<int64_t>(r.number) * row;
    const int past = static_cast<int>(reinterpret_cast<uintptr_t>(to) % 16 / sizeof(T));
    const int begin = static_cast<int>(r.unit) * SIZE - past;
    const int first = begin > 0 ? begin : 0;
    if (begin >= row) {
        return;
    }
    int w = inner > 1 ? first / inner : first, c = first - w * inner;
    T v[SIZE] = {};
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int i = begin + k;
        if (i >= 0 && i < row) {
            v[k] = x[source_column(p.axis[2], w) * p.stride[UPSAMPLE_W] +
                     c * p.stride[UPSAMPLE_I]];
            c++;
            w += c == inner;
            c = c == inner ? 0 : c;
        }
    }
    if (begin >= 0 && begin + SIZE <= row) {
        uint4 bits;
        memcpy(static_cast<void *>(&bits), v, sizeof bits);
        store_streamed(reinterpret_cast<uint4 *>(to + begin), bits);
        return;
    }
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        const int i = begin + k;
        if (i >= 0 && i < row) {
            to[i] = v[k];
        }
    }
}

enum { LEAST_LOG_LANES = 2, MOST_LOG_LANES = 8 };
static_assert(BLOCK == 1 << MOST_LOG_LANES, "a row of units may fill a block");

/* The walk over rows of sides d by h, and its grid; ITEMS rows of a thread. */
static row_walk
walk_of(const upsample_plan &p, int64_t d, int64_t h, int64_t units, int items,
        dim3 *grid)
{
    /* The widest blocks of those that leave the fewest lanes idle. */
    int best = MOST_LOG_LANES;
    int64_t least = INT64_MAX;
    for (int log = MOST_LOG_LANES; log >= LEAST_LOG_LANES; log--) {
        const int64_t padded = ceil_div(units, int64_t{1} << log) << log;
        if (padded < least - least / 16) {
            least = padded;
            best = log;
        }
    }
    row_walk walk;
    walk.rows = static_cast<unsigned>(p.images * p.channels * d * h);
    walk.units = static_cast<unsigned>(units);
    walk.log_lanes = static_cast<unsigned>(best);
    walk.tiles = static_cast<unsigned>(ceil_div(units, int64_t{1} << best));
    walk.channels = static_cast<unsigned>(p.channels);
    walk.depth = static_cast<unsigned>(d);
    walk.height = static_cast<unsigned>(h);
    unsigned step = BLOCK >> best;
    const int64_t groups = ceil_div(walk.rows, static_cast<int64_t>(step) * items);
    walk.step.h = step % walk.height;
    step /= walk.height;
    walk.step.d = step % walk.depth;
    step /= walk.depth;
    walk.step.b = step % walk.channels;
    walk.step.a = step / walk.channels;
    *grid = dim3(static_cast<unsigned>(groups * walk.tiles));
    return walk;
}

/* Whether rows, blocks and places in a row are counted in 31 bits on both sides. */
static bool
fits_rows(const upsample_plan &p, int64_t from_width)
{
    constexpr double MOST = 2147483648.0 - 4096;
    double rows = static_cast<double>(p.images) * p.channels;
    for (int k = 0; k < 2; k++) {
        const upsample_axis &axis = p.axis[k];
        rows *= static_cast<double>(axis.in > axis.out ? axis.in : axis.out);
    }
    const upsample_axis &width = p.axis[2];
    const double longest =
        static_cast<double>(width.in > width.out ? width.in : width.out);
    const double reach =
        static_cast<double>(from_width) *
            fabs(static_cast<double>(p.stride[UPSAMPLE_W])) +
        static_cast<double>(p.inner) * fabs(static_cast<double>(p.stride[UPSAMPLE_I]));
    const double row = longest * static_cast<double>(p.inner);
    const double blocks = rows * (row / BLOCK + 1); /* at most, of v2 */
    return rows < MOST && row < MOST && reach < MOST && blocks < MOST;
}

/* Whether every row of `from` begins on a boundary of `bytes`. */
static bool
rows_lie_on(const upsample_plan &p, bool backward, int64_t bytes, int64_t element)
{
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    const int64_t length[4] = {p.images, p.channels, backward ? depth.out : depth.in,
                               backward ? height.out : height.in};
    bool good =
        reinterpret_cast<uintptr_t>(p.from) % static_cast<uintptr_t>(bytes) == 0;
    for (int k = 0; k < 4; k++) {
        good = good && (length[k] == 1 || p.stride[k] * element % bytes == 0);
    }
    return good;
}

static bool
result_lies_on(const upsample_plan &p, int64_t row, int64_t bytes, int64_t element)
{
    return reinterpret_cast<uintptr_t>(p.to) % static_cast<uintptr_t>(bytes) == 0 &&
           row * element % bytes == 0;
}

/* Whether 16 bytes of a row are 16 bytes, on a boundary, of a row of the other side. */
static bool
has_whole_packs(const upsample_plan &p, bool backward, int64_t element)
{
    const upsample_axis &width = p.axis[2];
    if (!rows_lie_on(p, backward, 16, element)) {
        return false;
    }
    if (p.inner > 1) {
        return p.stride[UPSAMPLE_I] == 1 && p.inner * element % 16 == 0 &&
               p.stride[UPSAMPLE_W] * element % 16 == 0;
    }
    return width.log == 0 && (width.in == 1 || p.stride[UPSAMPLE_W] == 1);
}

/* Whether rows are twice as long, and SIZE elements a word of the side that has more. */
static bool
has_pairs(const upsample_plan &p, bool backward, int64_t element, int64_t size)
{
    const int64_t half = element * size / 2;
    const int64_t from_bytes = backward ? 2 * half : half;
    const int64_t to_bytes = backward ? half : 2 * half;
    const upsample_axis &width = p.axis[2];
    const int64_t row = backward ? width.in : width.out;
    return p.inner == 1 && width.log == 1 && p.stride[UPSAMPLE_W] == 1 &&
           rows_lie_on(p, backward, from_bytes, element) &&
           result_lies_on(p, row, to_bytes, element);
}

/*
 * Whether rows are twice as many and nothing else but their width changes, and those of
 * `from` are evenly spaced, `pitch` elements apart.
 */
static bool
doubles_rows(const upsample_plan &p, bool backward, int64_t *pitch)
{
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    const int64_t length[4] = {p.images, p.channels, depth.in,
                               backward ? height.out : height.in};
    int64_t rows = 1;
    bool good = depth.log == 0 && height.log == 1;
    *pitch = 0;
    for (int k = 3; k >= 0; k--) {
        if (length[k] > 1) {
            *pitch = rows == 1 ? p.stride[k] : *pitch;
            good = good && p.stride[k] == *pitch * rows;
            rows *= length[k];
        }
    }
    return good;
}

template <typename T, int SIZE>
static gpo_status
doubled(gpo_call *call, const upsample_plan &p, int64_t pitch)
{
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.axis[2].out / SIZE,
                                  DOUBLED_ROWS, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_v2_doubled<T, SIZE>),
                      static_cast<const T *>(p.from), static_cast<T *>(p.to), pitch,
                      walk);
}

template <typename T, row_mode MODE>
static gpo_status
forward_rows(gpo_call *call, const upsample_plan &p)
{
    dim3 grid;
    const int64_t units = p.axis[2].out * p.inner / PACK<T>;
    const row_walk walk =
        walk_of(p, p.axis[0].in, p.axis[1].in, units, rows_in_flight<MODE>(), &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_v2_rows<T, MODE>), p,
                      walk);
}

template <typename T>
static gpo_status
forward_v2(gpo_call *call, const upsample_plan &p)
{
    constexpr int SIZE = PACK<T>;
    constexpr int64_t BYTES = sizeof(T);
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    const int64_t row = p.axis[2].out * p.inner;
    if (!fits_rows(p, p.axis[2].in)) {
        return forward_v0<T>(call, p);
    }
    if constexpr (SIZE > 1) {
        int64_t pitch = 0;
        const bool doubles = doubles_rows(p, false, &pitch);
        if (doubles && has_pairs(p, false, BYTES, SIZE)) {
            return doubled<T, SIZE>(call, p, pitch);
        }
        if (doubles && has_pairs(p, false, BYTES, 2)) {
            return doubled<T, 2>(call, p, pitch);
        }
    }
    const bool shrinks = depth.out * height.out < depth.in * height.in;
    if (shrinks || !result_lies_on(p, row, 16, BYTES)) {
        dim3 grid;
        const row_walk walk =
            walk_of(p, depth.out, height.out, ceil_div(row + SIZE - 1, SIZE), 1, &grid);
        return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_v2_peeled<T>), p,
                          walk);
    }
    if (has_whole_packs(p, false, BYTES)) {
        return forward_rows<T, WHOLE>(call, p);
    }
    if constexpr (SIZE > 1) {
        if (has_pairs(p, false, BYTES, SIZE)) {
            return forward_rows<T, PAIRS>(call, p);
        }
    }
    return forward_rows<T, PICKED>(call, p);
}

/* sum[k] += y[k], or the pair 2 k and 2 k + 1, of 16 bytes of a row of dy. */
template <typename T, row_mode MODE>
__device__ __forceinline__ void
add_pack(typename sum_of<T>::type *sum, uint4 bits)
{
    constexpr int SIZE = PACK<T>;
    const pack<T> y = pack_of<T>(bits);
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        add_to(sum[MODE == PAIRS ? k / 2 : k], y.v[k]);
    }
}

template <typename T, int SUMS>
__device__ __forceinline__ void
store_sums(T *to, const typename sum_of<T>::type *sum)
{
    T rounded[SUMS];
#pragma unroll
    for (int k = 0; k < SUMS; k++) {
        rounded[k] = stored_as<T>(sum[k]);
    }
    word_of<T, SUMS> bits;
    memcpy(static_cast<void *>(&bits), rounded, sizeof bits);
    store_streamed(reinterpret_cast<word_of<T, SUMS> *>(to), bits);
}

/*
 * Two rows of dy make one of dx, each thread adds SIZE elements of both: 16 bytes, or a
 * pair where rows begin anywhere.  Rows of dy begin `pitch` elements apart.
 */
enum { HALVED_ROWS = 2 };

template <typename T, int SIZE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_v2_halved(const T *from, T *to, int64_t pitch,
                                        row_walk walk)
{
    using V = typename sum_of<T>::type;
    using In = word_of<T, SIZE>;
    constexpr int SUMS = SIZE / 2;
    const first_unit first = first_unit_of(walk, HALVED_ROWS);
    if (first.unit >= walk.units) {
        return;
    }
    const unsigned step = BLOCK >> walk.log_lanes;
    from += 2 * first.number * pitch + first.unit * SIZE;
    In two[HALVED_ROWS][2];
#pragma unroll
    for (unsigned k = 0; k < HALVED_ROWS; k++) {
        if (first.number + k * step < walk.rows) {
            two[k][0] = __ldg(reinterpret_cast<const In *>(from));
            two[k][1] = __ldg(reinterpret_cast<const In *>(from + pitch));
        }
        from += 2 * step * pitch;
    }
    const int64_t row = static_cast<int64_t>(walk.units) * SUMS;
    to += first.number * row + first.unit * SUMS;
#pragma unroll
    for (unsigned k = 0; k < HALVED_ROWS; k++) {
        if (first.number + k * step < walk.rows) {
            V sum[SUMS] = {};
#pragma unroll
            for (int j = 0; j < 2; j++) {
                T y[SIZE];
                memcpy(static_cast<void *>(y), &two[k][j], sizeof y);
#pragma unroll
                for (int i = 0; i < SIZE; i++) {
                    add_to(sum[i / 2], y[i]);
                }
            }
            store_sums<T, SUMS>(to, sum);
        }
        to += step * row;
    }
}

/*
 * PAIRS: 16 bytes of each row of dy give 8 bytes of dx.  WHOLE: 16 bytes of each pixel
 * give 16 bytes.  Up to four loads are in flight before the first is added.
 */
template <typename T, row_mode MODE>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_v2_rows(upsample_plan p, row_walk walk)
{
    using V = typename sum_of<T>::type;
    constexpr int SIZE = PACK<T>, SUMS = MODE == PAIRS ? SIZE / 2 : SIZE, FLIGHT = 4;
    const walker w = start_walk(walk, 1);
    if (w.unit >= walk.units || w.number >= walk.rows) {
        return;
    }
    /* Where the unit's first pack lies in a row of dy, and how many follow, how far. */
    int at = static_cast<int>(w.unit) * SIZE, across = 0;
    column_range n = {0, 1};
    if (MODE == WHOLE && p.inner > 1) {
        const int inner = static_cast<int>(p.inner), s = at / inner;
        across = static_cast<int>(p.stride[UPSAMPLE_W]);
        n = columns_of(p.axis[2], s);
        at += n.first * across - s * inner;
    }
    const column_range d = columns_of(p.axis[0], static_cast<int>(w.at.d));
    const column_range h = columns_of(p.axis[1], static_cast<int>(w.at.h));
    const int high = h.end - h.first, wide = n.end - n.first;
    const int terms = (d.end - d.first) * high * wide;
    const T *plane =
        static_cast<const T *>(p.from) + at + row_offset(p, w.at, d.first, h.first);
    const T *y = plane;
    int m = 0, x = 0; /* of the next term, carried from axis to axis */
    V sum[SUMS] = {};
    for (int t = 0; t < terms; t += FLIGHT) {
        uint4 bits[FLIGHT];
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (t + f < terms) {
                bits[f] =
                    load_streamed(reinterpret_cast<const uint4 *>(y + x * across));
                x++;
                if (x == wide) {
                    x = 0;
                    m++;
                    y += p.stride[UPSAMPLE_H];
                }
                if (m == high) {
                    m = 0;
                    plane += p.stride[UPSAMPLE_D];
                    y = plane;
                }
            }
        }
#pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            if (t + f < terms) {
                add_pack<T, MODE>(sum, bits[f]);
            }
        }
    }
    const int64_t row = p.axis[2].in * p.inner;
    store_sums<T, SUMS>(static_cast<T *>(p.to) + w.number * row + w.unit * SUMS, sum);
}

/* One element of dx for each of ITEMS rows; its columns of dy are found once. */
enum { ELEMENT_ITEMS = 4 };

template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    upsample_nearest_backward_v2_columns(upsample_plan p, row_walk walk)
{
    using V = typename sum_of<T>::type;
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    walker w = start_walk(walk, ELEMENT_ITEMS);
    if (w.unit >= walk.units) {
        return;
    }
    const int inner = static_cast<int>(p.inner), e = static_cast<int>(w.unit);
    const int s = inner > 1 ? e / inner : e;
    const column_range n = columns_of(p.axis[2], s);
    const int across = static_cast<int>(p.stride[UPSAMPLE_W]);
    const int at =
        n.first * across + (e - s * inner) * static_cast<int>(p.stride[UPSAMPLE_I]);
    for (int k = 0; k < ELEMENT_ITEMS && w.number < walk.rows; k++) {
        const column_range d = columns_of(depth, static_cast<int>(w.at.d));
        const column_range h = columns_of(height, static_cast<int>(w.at.h));
        V sum = {};
        for (int l = d.first; l < d.end; l++) {
            for (int m = h.first; m < h.end; m++) {
                const T *y =
                    static_cast<const T *>(p.from) + at + row_offset(p, w.at, l, m);
                for (int x = 0; x < n.end - n.first; x++) {
                    add_to(sum, y[x * across]);
                }
            }
        }
        static_cast<T *>(p.to)[static_cast<int64_t>(w.number) * walk.units + w.unit] =
            stored_as<T>(sum);
        next_row(walk, w);
    }
}

template <typename T, int SIZE>
static gpo_status
halved(gpo_call *call, const upsample_plan &p, int64_t pitch)
{
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, p.axis[2].out / SIZE,
                                  HALVED_ROWS, &grid);
    return GPO_LAUNCH(
        call, grid, BLOCK, 0, (upsample_nearest_backward_v2_halved<T, SIZE>),
        static_cast<const T *>(p.from), static_cast<T *>(p.to), pitch, walk);
}

template <typename T, row_mode MODE>
static gpo_status
backward_rows(gpo_call *call, const upsample_plan &p, int64_t units)
{
    dim3 grid;
    const row_walk walk = walk_of(p, p.axis[0].in, p.axis[1].in, units, 1, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0,
                      (upsample_nearest_backward_v2_rows<T, MODE>), p, walk);
}

template <typename T>
static gpo_status
backward_v2(gpo_call *call, const upsample_plan &p)
{
    constexpr int SIZE = PACK<T>;
    constexpr int64_t BYTES = sizeof(T);
    const int64_t row = p.axis[2].in * p.inner;
    if (!fits_rows(p, p.axis[2].out)) {
        return backward_v0<T>(call, p);
    }
    if (has_whole_packs(p, true, BYTES) && result_lies_on(p, row, 16, BYTES)) {
        return backward_rows<T, WHOLE>(call, p, row / SIZE);
    }
    if constexpr (SIZE > 1) {
        int64_t pitch = 0;
        const bool doubles = doubles_rows(p, true, &pitch);
        if (has_pairs(p, true, BYTES, SIZE)) {
            return doubles ? halved<T, SIZE>(call, p, pitch)
                           : backward_rows<T, PAIRS>(call, p, row * 2 / SIZE);
        }
        if (doubles && has_pairs(p, true, BYTES, 2)) {
            return halved<T, 2>(call, p, pitch);
        }
    }
    dim3 grid;
    const row_walk walk =
        walk_of(p, p.axis[0].in, p.axis[1].in, row, ELEMENT_ITEMS, &grid);
    return GPO_LAUNCH(call, grid, BLOCK, 0, (upsample_nearest_backward_v2_columns<T>),
                      p, walk);
}

/* ---- tables and choice ---- */

template <gpo_status (*RUNG)(gpo_call *, const upsample_plan &)>
static gpo_status
planned(gpo_call *call)
{
    upsample_plan p;
    upsample_make_plan(call, &p);
    return p.size == 0 ? GPO_OK : RUNG(call, p);
}

/* What is moved has a size, what is added up whole a width; dtypes.def has the order. */
#define FORWARD(f)                                                            \
    {                                                                         \
        planned<f<uint8_t>>, planned<f<uint8_t>>, planned<f<uint8_t>>,        \
            planned<f<uint16_t>>, planned<f<uint16_t>>, planned<f<uint32_t>>, \
            planned<f<uint32_t>>, planned<f<uint64_t>>, planned<f<uint64_t>>, \
            planned<f<uint16_t>>, planned<f<uint16_t>>, planned<f<uint32_t>>, \
            planned<f<uint64_t>>, planned<f<uint64_t>>, planned<f<uint4>>     \
    }
#define BACKWARD(f)                                                                   \
    {                                                                                 \
        nullptr, planned<f<uint8_t>>, planned<f<uint8_t>>, planned<f<uint16_t>>,      \
            planned<f<uint16_t>>, planned<f<uint32_t>>, planned<f<uint32_t>>,         \
            planned<f<uint64_t>>, planned<f<uint64_t>>, planned<f<f16>>,              \
            planned<f<bf16>>, planned<f<float>>, planned<f<double>>, planned<f<c64>>, \
            planned<f<c128>>                                                          \
    }

static const gpo_variant forward_variants[] = {
    {"v0", "one output per thread", "", "run-to-run", FORWARD(forward_v0)},
    {"v1", "one input per thread, pairs of outputs", "", "run-to-run",
     FORWARD(forward_v1)},
    {"v2", "16-byte stores on all rows, no division", "", "run-to-run",
     FORWARD(forward_v2)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant backward_variants[] = {
    {"v0", "one input per thread gathers", "", "run-to-run", BACKWARD(backward_v0)},
    {"v1", "pairs of dy", "", "run-to-run", BACKWARD(backward_v1)},
    {"v2", "16-byte loads on all rows, no division", "", "run-to-run",
     BACKWARD(backward_v2)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose_from(const gpo_variant *variants, char why[GPO_MESSAGE])
{
    snprintf(why, GPO_MESSAGE,
             "v2 moves 16 bytes at a time and divides once per thread");
    return &variants[2];
}

static const gpo_variant *
choose_forward(const gpo_call *, char why[GPO_MESSAGE])
{
    return choose_from(forward_variants, why);
}

static const gpo_variant *
choose_backward(const gpo_call *, char why[GPO_MESSAGE])
{
    return choose_from(backward_variants, why);
}

extern "C" const gpo_table upsample_nearest_cuda = {forward_variants, choose_forward};
extern "C" const gpo_table upsample_nearest_backward_cuda = {backward_variants,
                                                             choose_backward};
