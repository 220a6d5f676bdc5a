/*
 * columns.cu  Rows whose elements are not contiguous: columns, or rows with gaps.
 * Elements of neighbouring results are close together, so neighbouring threads take
 * neighbouring columns and walk down together, coalesced where the columns are
 * contiguous.  Results are numbered by the places of their elements in memory, so
 * neighbours may be of several tiles of narrow columns.  A long row with gaps is a
 * column of width 1.  Of 1- and 2-byte elements, columns with gaps between them are read
 * as one span without gaps, in packs: what lies in a gap is combined and not stored.
 * Packs that begin anywhere are cut out of two aligned ones.
 * Cost:  reads n * sizeof(T) bytes once; 64 bytes in flight per thread in packs, else 8
 *        elements.
 * Order: the span, the walk down, the fold, the kernel, the grid, the launch.
 */
#include "../views.cuh"

/* ---- the span: columns with gaps between them as columns without ---- */

/*
 * The innermost kept axes, outermost first, as the elements from the first to the last of
 * them: a place in this span is a column, but not all belong to a result.
 */
constexpr int SPAN_AXES = 3;

struct column_span {
    int ndim;     /* 0: none, every column belongs to a result */
    int width;    /* elements; the span as an axis of x.kept has whole packs */
    bool shifted; /* some of its rows begin between 16-byte boundaries */
    divider stride[SPAN_AXES];
    int length[SPAN_AXES];
    int64_t places[SPAN_AXES];
};

/* Elements that have spans; loads of wider ones bring as many bytes one by one. */
template <typename T>
constexpr bool HAS_SPANS = sizeof(T) <= 2;

/* Those of which packs may begin anywhere: 16-bit integers keep to their boundaries. */
template <typename T>
constexpr bool HAS_SHIFTS = sizeof(T) == 1 || (sizeof(T) == 2 && IS_FLOAT<T>);

struct no_span {};

template <typename T>
using span_of = std::conditional_t<HAS_SPANS<T>, column_span, no_span>;

/* The place of the result of column `at`, from that of the span's first; -1 in a gap. */
__device__ __forceinline__ int64_t
place_in(const column_span &span, int at)
{
    if (span.ndim == 1) {
        const int step = static_cast<int>(span.stride[0].by),
                  i = span.stride[0].narrow(at);
        return i * step == at && i < span.length[0] ? i * span.places[0] : -1;
    }
    int64_t place = 0;
#pragma unroll
    for (int d = 0; d < SPAN_AXES; d++) {
        if (d < span.ndim) {
            const int i = span.stride[d].narrow(at);
            at -= i * static_cast<int>(span.stride[d].by);
            place = i < span.length[d] ? place + i * span.places[d] : INT64_MIN;
        }
    }
    return at == 0 && place >= 0 ? place : -1;
}

/* The column of the span that column `row` of all is. */
template <typename T>
__device__ __forceinline__ int
column_in(const reduce_view<T> &x, int64_t row)
{
    const divider &width = x.kept.length[x.kept.ndim - 1];
    return static_cast<int>(row - width.of(row) * width.by);
}

/* Whether what is loaded for columns from `row` on, `reach` of them, ends behind x in the
   last row of the span. */
template <typename T>
__device__ __forceinline__ bool
ends_behind(const reduce_view<T> &x, const column_span &span, int64_t row, int reach)
{
    return span.ndim > 0 && x.rows - row <= reach &&
           column_in(x, row) + reach > span.width;
}

/*
 * The span of sorted axes for packs of `size` elements; without axes where there is none.
 * A gap is read if it is smaller than a sector, or than what is between gaps, and all if
 * as many bytes for each result come with packs as with loads of one element.  The last
 * pack of the span, or the two that a shifted one is cut out of, may end behind it, but
 * not behind x, if it is not the last one of x: the next row is not nearer.
 */
static column_span
column_span_of(const reduce_plan &plan, const reduce_axes &kept, const void *x,
               const result_places &places, int size)
{
    const int sector = 2 * size; /* 32 bytes */
    column_span span = {0, 1, false, {}, {}, {}};
    int first = kept.ndim;
    int64_t results = 1;
    while (first > 0 && kept.ndim - first < SPAN_AXES) {
        const int64_t stride = kept.strides[first - 1], length = kept.shape[first - 1];
        const int64_t gap = stride - span.width;
        if (gap < 0 || (gap >= sector && gap >= span.width) ||
            stride > (1 << 30) / length) {
            break;
        }
        span.width += static_cast<int>((length - 1) * stride);
        results *= length;
        first--;
    }
    span.shifted = !are_aligned(kept, first, size) ||
                   !are_aligned(plan.reduced, plan.reduced.ndim, size);
    const int64_t apart = span.shifted ? 2 * size : 1; /* rows of the span */
    bool fits = plan.cols > 0 && results > 1 && 2 * span.width <= size * results &&
                are_columns(plan) && is_aligned(x);
    for (int d = 0; d < first; d++) {
        fits = fits && kept.strides[d] >= apart;
    }
    for (int d = 0; d < plan.reduced.ndim; d++) {
        fits = fits && plan.reduced.strides[d] >= apart;
    }
    span.ndim = fits ? kept.ndim - first : 0;
    for (int d = 0; d < span.ndim; d++) {
        span.stride[d] = divider_of(kept.strides[first + d]);
        span.length[d] = static_cast<int>(kept.shape[first + d]);
        span.places[d] = places.strides[first + d];
    }
    return span;
}

/* The kept axes as the kernel walks them: those outside the span, and the span in packs. */
static reduce_axes
in_packs(reduce_axes kept, const column_span &span, result_places *places, int size)
{
    const int last = kept.ndim - span.ndim;
    kept.ndim = last + 1;
    kept.shape[last] = ceil_div(span.width, size) * size;
    kept.strides[last] = 1;
    places->in_order = false;
    places->strides[last] = 0;
    return kept;
}

/* The elements of these axes. */
static int64_t
elements_of(const reduce_axes &axes)
{
    int64_t n = 1;
    for (int d = 0; d < axes.ndim; d++) {
        n *= axes.shape[d];
    }
    return n;
}

/* ---- the walk down: the offset of element k of a row, then of k + step, ... ---- */

/* Along at most two axes: additions, and no division for each element. */
struct near_walk {
    int64_t offset, jump, carry;
    int inner, inner_step, length; /* places along the last axis */

    __device__ __forceinline__ near_walk(const few_axes &axes, int64_t k, int64_t step)
    {
        const bool two = axes.ndim == 2;
        const int64_t own = axes.strides[two];
        length = two ? static_cast<int>(axes.length[1].by) : INT32_MAX;
        const int64_t outer = two ? axes.length[1].of(k) : 0;
        const int64_t outer_step = two ? axes.length[1].of(step) : 0;
        inner = two ? static_cast<int>(k - outer * length) : 0;
        inner_step = two ? static_cast<int>(step - outer_step * length) : 0;
        const int64_t across = two ? axes.strides[0] : 0;
        offset = outer * across + (two ? inner : k) * own;
        jump = outer_step * across + (two ? inner_step : step) * own;
        carry = across - length * own;
    }

    __device__ __forceinline__ int64_t next()
    {
        const int64_t at = offset;
        offset += jump;
        inner += inner_step;
        if (inner >= length) {
            inner -= length;
            offset += carry;
        }
        return at;
    }
};

/* Whether a near_walk can take these axes: `inner` stays below 2^31. */
__host__ __device__ __forceinline__ bool
are_near(const few_axes &axes)
{
    return axes.ndim < 2 || (axes.ndim == 2 && axes.length[1].by < 1 << 30);
}

/* Along any axes. */
struct far_walk {
    const few_axes &axes;
    int64_t k, step;

    __device__ __forceinline__ far_walk(const few_axes &axes, int64_t k, int64_t step)
        : axes(axes), k(k), step(step)
    {
    }

    __device__ __forceinline__ int64_t next()
    {
        const int64_t at = offset_of(axes, k);
        k += step;
        return at;
    }
};

/* ---- the fold ---- */

/* How a thread loads its columns. */
enum column_loads {
    PLAIN,   /* one element, or an aligned pack */
    DEEP,    /* twice as many aligned packs in flight, of float64 */
    SHIFTED, /* a pack that begins anywhere */
};

/* The 16 bytes from p on. */
template <column_loads LOADS, typename T>
__device__ __forceinline__ uint4
load_bytes(const T *p, uint64_t policy)
{
    if constexpr (LOADS == SHIFTED) {
        const unsigned past = reinterpret_cast<uintptr_t>(p) % 16;
        const uint4 *const low = reinterpret_cast<const uint4 *>(p - past / sizeof(T));
        return cut_out(load_streamed(low, policy),
                       load_streamed(past > 0 ? low + 1 : low, policy), past);
    }
    else {
        return load_streamed(reinterpret_cast<const uint4 *>(p), policy);
    }
}

/* An element of each of VEC columns. */
template <column_loads LOADS, int VEC, typename T>
__device__ __forceinline__ void
load_columns(const T *p, uint64_t policy, T (&loaded)[VEC])
{
    if constexpr (VEC > 1) {
        const uint4 bytes = load_bytes<LOADS>(p, policy);
        memcpy(static_cast<void *>(loaded), &bytes, sizeof bytes);
    }
    else {
        loaded[0] = *p;
    }
}

/* Parts, of so many bytes for all columns of a thread, that it loads together: as many as
   registers allow. */
__host__ __device__ constexpr int
parts_at_once(int64_t bytes)
{
    return bytes >= 64 ? 1 : bytes >= 32 ? 2 : bytes >= 16 ? 4 : 8;
}

/* Loads of a thread in flight; of packs of 8 more, as an SM has three blocks of them. */
template <typename Op, int VEC, column_loads LOADS>
constexpr int loads_in_flight = VEC == 1 || LOADS == DEEP ? 2 * TILE_ITEMS
                                : VEC == 8 && LOADS == PLAIN &&
                                        sizeof(typename Op::Fold) <= 8
                                    ? TILE_ITEMS * 3 / 2
                                    : TILE_ITEMS;

/* any and all of bytes: four columns of a pack at once. */
template <typename Op, int VEC>
constexpr bool IN_WORDS = VEC == 16 && std::is_same_v<Op, reduce_any<uint8_t>>;

/* fold_columns of bytes: a word has the results of four columns until the end. */
template <column_loads LOADS, typename Op, typename Walk>
__device__ __forceinline__ void
fold_bytes(const Op &op, typename Op::Fold (&fold)[16], const uint8_t *p, Walk walk,
           int64_t k, int64_t step, int64_t cols, uint64_t policy)
{
    constexpr int WORDS = 4, ITEMS = 2 * TILE_ITEMS;
    uint32_t found[WORDS] = {};
    for (; k < cols; k += ITEMS * step) {
        uint32_t loaded[ITEMS][WORDS];
#pragma unroll
        for (int u = 0; u < ITEMS; u++) { /* all before the first is used */
            const int64_t at = walk.next();
            if (k + u * step < cols) {
                const uint4 bytes = load_bytes<LOADS>(p + at, policy);
                memcpy(loaded[u], &bytes, sizeof bytes);
            }
        }
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
#pragma unroll
            for (int w = 0; w < WORDS && k + u * step < cols; w++) {
                found[w] |= op.lift_bytes(loaded[u][w]);
            }
        }
    }
#pragma unroll
    for (int v = 0; v < 16; v++) {
        fold[v].add((found[v / 4] >> (v % 4 * 8) & 0xff) != 0);
    }
}

/*
 * Elements k, k + step, ... of VEC columns, of which the first begins at p; `walk`
 * begins at k.
 */
template <column_loads LOADS, typename Op, int VEC, typename Walk>
__device__ __forceinline__ void
fold_columns(const Op &op, typename Op::Fold (&fold)[VEC], const typename Op::T *p,
             Walk walk, int64_t k, int64_t step, int64_t cols, uint64_t policy)
{
    if constexpr (IN_WORDS<Op, VEC>) {
        fold_bytes<LOADS>(op, fold, p, walk, k, step, cols, policy);
        return;
    }
    using T = typename Op::T;
    constexpr int ITEMS = loads_in_flight<Op, VEC, LOADS>;
    T loaded[ITEMS][VEC];
    for (; k + (ITEMS - 1) * step < cols; k += ITEMS * step) {
#pragma unroll
        for (int u = 0; u < ITEMS; u++) {
            load_columns<LOADS>(p + walk.next(), policy, loaded[u]);
        }
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            typename Op::Acc acc = op.lift(loaded[0][v], k);
#pragma unroll
            for (int u = 1; u < ITEMS; u++) {
                acc = Op::combine(acc, op.lift(loaded[u][v], k + u * step));
            }
            fold[v].add(Op::widen(acc));
        }
    }
    constexpr int MOST = parts_at_once(VEC * sizeof(typename Op::Part));
    constexpr int REST = sizeof(T) > 8 || MOST < 4 ? (MOST < 4 ? MOST : 4)
                                                   : loads_in_flight<Op, VEC, PLAIN>;
#pragma unroll 1
    for (; k < cols; k += REST * step) {
#pragma unroll
        for (int u = 0; u < REST; u++) { /* all before the first is used */
            const int64_t at = walk.next();
            if (k + u * step < cols) {
                load_columns<LOADS>(p + at, policy, loaded[u]);
            }
        }
#pragma unroll
        for (int u = 0; u < REST; u++) {
            const int64_t i = k + u * step;
#pragma unroll
            for (int v = 0; v < VEC && i < cols; v++) {
                fold[v].add(Op::widen(op.lift(loaded[u][v], i)));
            }
        }
    }
}

/* The same, along the walk that the axes allow, by the loads that the span asks for. */
template <column_loads LOADS, typename Op, int VEC>
__device__ __forceinline__ void
fold_along(const Op &op, typename Op::Fold (&fold)[VEC], const typename Op::T *p,
           const few_axes &reduced, const span_of<typename Op::T> &span, int64_t k,
           int64_t step, int64_t cols, uint64_t policy)
{
    if constexpr (VEC > 1 && HAS_SHIFTS<typename Op::T>) {
        if (span.shifted) {
            fold_columns<SHIFTED>(op, fold, p, near_walk(reduced, k, step), k, step,
                                  cols, policy);
            return;
        }
    }
    if constexpr (LOADS != DEEP) {
        if (!are_near(reduced)) {
            fold_columns<LOADS>(op, fold, p, far_walk(reduced, k, step), k, step, cols,
                                policy);
            return;
        }
    }
    fold_columns<LOADS>(op, fold, p, near_walk(reduced, k, step), k, step, cols,
                        policy);
}

/* The parts of VEC columns from blocks b, b + height, ..., `rows` parts apart. */
template <typename Op, int VEC>
__device__ __forceinline__ void
fold_parts(typename Op::Fold *fold, const typename Op::Part *part, int64_t rows, int b,
           int height, int blocks)
{
    constexpr int LOADS = parts_at_once(VEC * sizeof(typename Op::Part));
#pragma unroll 1
    for (; b < blocks; b += LOADS * height) {
        typename Op::Part loaded[LOADS][VEC];
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
#pragma unroll
            for (int v = 0; v < VEC && b + u * height < blocks; v++) {
                loaded[u][v] = part[(b + u * height) * rows + v];
            }
        }
#pragma unroll
        for (int u = 0; u < LOADS; u++) {
#pragma unroll
            for (int v = 0; v < VEC && b + u * height < blocks; v++) {
                fold[v].add(loaded[u][v]);
            }
        }
    }
}

/* ---- the kernel ---- */

/* Blocks per SM, for the launch bound: each column of a thread takes registers. */
template <typename Op, int VEC, column_loads LOADS>
__host__ __device__ constexpr int
column_blocks()
{
    constexpr int PART = sizeof(typename Op::Part), FOLD = sizeof(typename Op::Fold);
    constexpr bool WIDE = VEC == 1 ? PART + sizeof(typename Op::T) > 20
                                   : VEC > 2 && FOLD > PART; /* means of integers */
    return (VEC > 8 ? 2 + IN_WORDS<Op, VEC> : VEC == 8 || LOADS == DEEP ? 3 : 4) - WIDE;
}

/*
 * Results are numbered along x.kept; for VEC > 1 the next one is of the next element.
 * Threads (lane, y) of a block share a tile of `used` lanes * VEC results and split its
 * height; blocks (tile, s) split it further, and the last one to take the tile's ticket
 * combines their parts.
 */
template <typename Op, int VEC, column_loads LOADS>
__global__ void
__launch_bounds__(BLOCK, (column_blocks<Op, VEC, LOADS>()))
    reduce_columns_kernel(Op op, reduce_view<typename Op::T> x, result_places places,
                          span_of<typename Op::T> span, int lanes, int used,
                          block_parts<typename Op::Part> parts, reduce_result to)
{
    using T = typename Op::T;
    using Part = typename Op::Part;
    constexpr int HALF = BLOCK / 2;
    GPO_DYN_SHARED(Part,
                   shared); /* HALF * VEC parts; none if all threads have columns */
    GPO_SHARED(bool, last, [1]);
    const int lane = threadIdx.x % lanes, y = threadIdx.x / lanes;
    const int height = BLOCK / lanes;
    const int64_t tile = x.first + blockIdx.x;
    const int64_t row = (tile * used + lane) * VEC;
    const bool inside = lane < used && row < x.rows;
    const T *p = x.x + (inside ? offset_of(x.kept, row) : 0);
    int64_t cols = inside ? x.cols : 0;
    const int64_t step = static_cast<int64_t>(height) * gridDim.y;
    const int64_t begin = static_cast<int64_t>(blockIdx.y) * height + y;
    const uint64_t policy = l2_policy(x.keep_l2);

    constexpr bool SPANS = HAS_SPANS<T> && VEC > 1;
    if constexpr (SPANS) {
        cols -= inside && ends_behind(x, span, row, span.shifted ? 2 * VEC : VEC);
    }
    typename Op::Fold fold[VEC];
    fold_along<LOADS>(op, fold, p, x.reduced, span, begin, step, cols, policy);
    if constexpr (SPANS) {
        if (begin == 0 && inside && cols < x.cols) {
            const T *const rest = p + offset_of(x.reduced, x.cols - 1);
            const int at = column_in(x, row);
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                if (at + v < span.width) {
                    fold[v].add(Op::widen(op.lift(rest[v], x.cols - 1)));
                }
            }
        }
    }

    /* Combine a column's threads in shared memory; the last block, then all parts. */
    Part total[VEC];
#pragma unroll 1
    for (unsigned blocks = gridDim.y;; blocks = 1) {
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            total[v] = fold[v].value();
        }
        int d = height / 2;
        for (; d * lanes >= WARP; d /= 2) {
            if (y >= d && y < 2 * d) {
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                    shared[v * HALF + threadIdx.x - d * lanes] = total[v];
                }
            }
            __syncthreads();
            if (y < d) {
#pragma unroll
                for (int v = 0; v < VEC; v++) {
                    total[v] = Op::combine(total[v], shared[v * HALF + threadIdx.x]);
                }
            }
            __syncthreads();
        }
        for (; d > 0; d /= 2) { /* y < 2 * d is within the first warp */
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                const Part other = shuffle_down(total[v], d * lanes);
                total[v] = y < d ? Op::combine(total[v], other) : total[v];
            }
        }
        if (blocks == 1) {
            break;
        }
        if (y == 0 && inside) {
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                parts.part[blockIdx.y * x.rows + row + v] = total[v];
            }
        }
        if (!is_last_block(&parts.ticket[tile], blocks, last)) {
            return;
        }
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            fold[v] = typename Op::Fold();
        }
        if (inside) {
            fold_parts<Op, VEC>(fold, parts.part + row, x.rows, y, height,
                                static_cast<int>(blocks));
        }
    }
    if (y > 0 || !inside) {
        return;
    }
    int64_t place = row, apart = 1;
    if (!places.in_order) {
        place = offset_of(x.kept, places.strides, row);
        apart = VEC > 1 ? places.strides[x.kept.ndim - 1] : 1;
    }
    if constexpr (SPANS) {
        if (span.ndim > 0) {
            const int at = column_in(x, row);
#pragma unroll 1 /* one copy of the store */
            for (int v = 0; v < VEC; v++) {
                const int64_t from_first = place_in(span, at + v);
                if (from_first >= 0) {
                    op.store(to, place + from_first, total[0], x.cols);
                }
#pragma unroll
                for (int u = 1; u < VEC; u++) {
                    total[u - 1] = total[u];
                }
            }
            return;
        }
    }
#pragma unroll
    for (int v = 0; v < VEC; v++) {
        op.store(to, place + v * apart, total[v], x.cols);
    }
}

/* ---- the grid ---- */

constexpr int LINE_LANES = 8; /* with packs of a line of 128 bytes */

/* How columns are divided: threads across, those that have columns, blocks across and
   down. */
struct column_grid {
    int lanes, used;
    int64_t tiles, split;
};

/*
 * The grid for threads of `vec` of so many columns, `beside` threads on neighbours in
 * memory, parts of `bytes` bytes, and `resident` blocks of an SM.  Wide tiles read longer
 * runs and split fewer columns; lanes are doubled until all tiles run at once, and while
 * one round of loads is enough.  A block may have several rows with gaps, but some lanes
 * of a warp stay on each.  Long
 * columns that have few neighbours get lanes of their own, some without a column: lanes
 * on those of the next neighbours would read sectors that other blocks read as well.
 * Where the last tile of some would leave an eighth of all lanes idle, tiles are
 * narrower, but of 128 bytes.
 */
static column_grid
column_grid_of(const gpo_call *call, int64_t number, int64_t beside, int vec,
               int64_t bytes, int resident)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t room = gpo_processors(call) * resident;
    const int64_t threads = number / vec, items = (vec > 1 ? 1 : 2) * TILE_ITEMS;
    const bool columns = are_columns(plan);
    const int most = power_of_two_from(threads, columns ? BLOCK : ROWS_WITH_GAPS);
    int lanes = power_of_two_from(columns ? beside : 1, most < WARP ? most : WARP);
    while (lanes < most && (ceil_div(threads, lanes) > room ||
                            BLOCK / lanes / 2 * items >= plan.cols)) {
        lanes *= 2;
    }
    while (vec > 1 && lanes > LINE_LANES &&
           ceil_div(threads, lanes) * lanes - threads > threads / 8 &&
           2 * ceil_div(threads, lanes) <= room &&
           2 * BLOCK / lanes * items <= plan.cols) {
        lanes /= 2;
    }
    const bool apart = columns && plan.cols >= LONG_COLUMN && beside < threads &&
                       beside < lanes && lanes < 2 * beside &&
                       ceil_div(threads, beside) <= room;
    const int used = apart ? static_cast<int>(beside) : lanes;
    const int64_t tiles = ceil_div(threads, used), height = BLOCK / lanes;
    const bool alone = plan.cols <= ROUNDS_ALONE * height * items;
    int64_t deepest = alone ? 1 : plan.cols / (height * TILE_ITEMS);
    if (deepest > room) {
        deepest = room;
    }
    /* The last block would take longer for the parts: of as many bytes as a thread loads at
       once twice as long. */
    const bool are_wide = parts_at_once(vec * bytes) == 1;
    while (deepest * deepest > (are_wide ? plan.cols / 2 : 2 * plan.cols)) {
        deepest /= 2;
    }
    return {lanes, used, tiles,
            blocks_per(call, tiles, lanes * vec * bytes, deepest, resident)};
}

/* ---- the launch ---- */

struct reduce_columns_launcher {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        using T = typename Op::T;
        using Part = typename Op::Part;
        constexpr int SIZE = pack<T>::SIZE;
        const reduce_plan &plan = *reduce_plan_of(call);
        if (plan.rows == 0) {
            return GPO_OK;
        }
        reduce_axes kept = plan.kept;
        result_places places = sort_by_distance(&kept);
        reduce_view<T> x = view_of<T>(call);
        bool packed =
            SIZE > 1 && !are_few(call, SIZE) && are_packed(plan, kept, x.x, SIZE);
        span_of<T> span = {};
        if constexpr (HAS_SPANS<T>) {
            if (!packed && !are_few(call, SIZE)) {
                span = column_span_of(plan, kept, x.x, places, SIZE);
                if (span.shifted && !(HAS_SHIFTS<T> && are_near(x.reduced))) {
                    span.ndim = 0;
                }
                packed = span.ndim > 0;
                span.shifted = span.shifted && packed;
            }
            if (span.ndim > 0) {
                kept = in_packs(kept, span, &places, SIZE);
                x.rows = elements_of(kept);
            }
        }
        x.kept = few_axes_of(kept);
        const int vec = packed ? SIZE : 1;
        const int64_t width = kept.ndim > 0 ? kept.shape[kept.ndim - 1] : 1;
        const column_grid g = column_grid_of(
            call, x.rows, ceil_div(width, vec), vec, sizeof(Part),
            packed ? column_blocks<Op, SIZE, PLAIN>() : column_blocks<Op, 1, PLAIN>());
        const size_t shared_bytes =
            g.lanes < BLOCK ? BLOCK / 2 * vec * sizeof(Part) : 0;
        const reduce_result to = result_of(call);
        block_parts<Part> parts;
        gpo_status status = parts_for(call, g.split, &parts);
        for (; !status && x.first < g.tiles; x.first += MAX_GRID_X) {
            const dim3 grid(grid_extent(g.tiles - x.first, MAX_GRID_X), g.split);
            if constexpr (std::is_same_v<T, double>) {
                if (packed && are_deep(call, SIZE) && are_near(x.reduced)) {
                    status = GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                        (reduce_columns_kernel<Op, SIZE, DEEP>), op, x,
                                        places, span, g.lanes, g.used, parts, to);
                    continue;
                }
            }
            status = packed ? GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                         (reduce_columns_kernel<Op, SIZE, PLAIN>), op,
                                         x, places, span, g.lanes, g.used, parts, to)
                            : GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                         (reduce_columns_kernel<Op, 1, PLAIN>), op, x,
                                         places, span, g.lanes, g.used, parts, to);
        }
        return status;
    }

  private:
    /*
     * Whether threads of one result each have no more than a few rounds of loads, where
     * threads of `size` results do not fill the device: there are more of them, and less
     * to combine.
     */
    static bool are_few(const gpo_call *call, int size)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        constexpr int64_t LOADS = ROUNDS_ALONE * 2 * TILE_ITEMS;
        const int64_t threads = gpo_processors(call) * BLOCKS_PER_PROCESSOR * BLOCK;
        return plan.rows / size < threads && plan.cols <= LOADS * BLOCK / WARP &&
               plan.rows * plan.cols <= LOADS * threads;
    }

    /*
     * Whether threads have long columns and no others share these: of float64 each has
     * twice the loads in flight ((537, 368218) 551 us on an H100, 574 without).
     */
    static bool are_deep(const gpo_call *call, int size)
    {
        const reduce_plan &plan = *reduce_plan_of(call);
        const int64_t threads = gpo_processors(call) * BLOCKS_PER_PROCESSOR * BLOCK;
        return plan.rows / size >= threads && plan.cols >= DEEP_COLUMN;
    }

    /* Whether threads may load `size` neighbouring columns as 16 bytes. */
    static bool are_packed(const reduce_plan &plan, const reduce_axes &kept,
                           const void *x, int size)
    {
        const int last = kept.ndim - 1;
        return last >= 0 && kept.strides[last] == 1 && kept.shape[last] % size == 0 &&
               is_aligned(x) && are_aligned(kept, last, size) &&
               are_aligned(plan.reduced, plan.reduced.ndim, size);
    }
};

template <typename T>
gpo_status
reduce_columns(gpo_call *call)
{
    return reduce_with<reduce_columns_launcher, T>(call);
}

#define INSTANTIATE(T) template gpo_status reduce_columns<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
