/*
 * rows.cuh  What the kernels of upsample_nearest share, in this order: the plan as a
 * kernel argument, places of elements by division (v0, v1), sums, words of adjacent
 * elements, the walk over rows (v2, shapes) and the columns of a row.
 * See walks.cuh for the host's side of the walk, upsample_nearest.h for the rule.
 */
#ifndef GPO_UPSAMPLE_ROWS_CUH
#define GPO_UPSAMPLE_ROWS_CUH

#include "../../device/divide.cuh"
#include "../../device/grid.cuh"
#include "../../device/number.cuh"
#include "../../device/vec.cuh"
#include "tuning.cuh"
#include "upsample_nearest.h"

/* ---- the plan as a kernel argument ---- */

/* The parts of upsample_nearest_plan that kernels read, and the two arrays. */
struct upsample_plan {
    const void *from;
    void *to;
    int64_t size;
    int64_t images, channels;
    upsample_axis axis[UPSAMPLE_SPATIAL];
    int64_t inner;
    int64_t stride[UPSAMPLE_AXES];
};

static inline upsample_plan
argument_of(const gpo_call *call)
{
    const upsample_nearest_plan &plan = *upsample_nearest_plan_of(call);
    const upsample_axis *axis = plan.axis;
    const int64_t *stride = plan.stride;
    return {call->in[0].data,
            call->out[0].data,
            plan.size,
            plan.images,
            plan.channels,
            {axis[0], axis[1], axis[2]},
            plan.inner,
            {stride[0], stride[1], stride[2], stride[3], stride[4], stride[5]}};
}

/* One thread for each of n elements. */
static inline dim3
grid_of_threads(int64_t n)
{
    return grid_of(ceil_div(n, BLOCK));
}

/* ---- places by division ---- */

struct place {
    int64_t at[UPSAMPLE_AXES]; /* A, B, D, H, W, I */
};

/* The place of element i of an array whose spatial axes have lengths d, h and w. */
__device__ __forceinline__ place
place_of(const upsample_plan &p, int64_t i, int64_t d, int64_t h, int64_t w)
{
    const int64_t length[UPSAMPLE_AXES] = {p.images, p.channels, d, h, w, p.inner};
    place where;
#pragma unroll
    for (int k = UPSAMPLE_AXES - 1; k > 0; k--) {
        const int64_t rest = i / length[k];
        where.at[k] = i - rest * length[k];
        i = rest;
    }
    where.at[0] = i;
    return where;
}

/* The offset of a place in `from` along A, B and I, without D, H and W. */
__device__ __forceinline__ int64_t
channel_offset(const upsample_plan &p, const place &at)
{
    return at.at[UPSAMPLE_A] * p.stride[UPSAMPLE_A] +
           at.at[UPSAMPLE_B] * p.stride[UPSAMPLE_B] +
           at.at[UPSAMPLE_I] * p.stride[UPSAMPLE_I];
}

/* The outputs along one axis that belong to one element of x. */
struct range {
    int64_t first, end;
};

__device__ __forceinline__ range
outputs_of(const upsample_axis &axis, int64_t s)
{
    return {upsample_first(&axis, s), upsample_first(&axis, s + 1)};
}

/* ---- sums: 16-bit floats in float32, integers modulo 2^width ---- */

template <typename T>
struct sum_of {
    using type = T;
};
template <>
struct sum_of<f16> {
    using type = float;
};
template <>
struct sum_of<bf16> {
    using type = float;
};

template <typename V, typename T>
__device__ __forceinline__ void
add_to(V &sum, T y)
{
    sum = static_cast<V>(sum + value_of(y));
}

template <typename Real>
__device__ __forceinline__ void
add_to(complex<Real> &sum, complex<Real> y)
{
    sum.re += y.re;
    sum.im += y.im;
}

/*
 * Adds the elements of up to NEAR_ROWS rows and COLUMNS columns of dy at y, which are
 * `down` and `across` apart, at least one; all loads are in flight before the first
 * addition.
 */
template <int COLUMNS, typename V, typename T, typename Offset>
__device__ __forceinline__ void
add_near(V &sum, const T *y, Offset down, int across, int rows, int columns)
{
    T e[NEAR_ROWS][COLUMNS] = {};
#pragma unroll
    for (int m = 0; m < NEAR_ROWS; m++) {
#pragma unroll
        for (int x = 0; x < COLUMNS; x++) {
            if ((m == 0 || m < rows) && (x == 0 || x < columns)) {
                e[m][x] = y[m * down + x * across];
            }
        }
    }
#pragma unroll
    for (int m = 0; m < NEAR_ROWS; m++) {
#pragma unroll
        for (int x = 0; x < COLUMNS; x++) {
            add_to(sum, e[m][x]); /* 0 where it has no element */
        }
    }
}

/* Rows for add_near, if a sum of so many columns is to be in the order of dy. */
template <int COLUMNS>
__device__ __forceinline__ int
rows_at_once(int columns)
{
    return columns > COLUMNS ? 1 : NEAR_ROWS;
}

/* ---- words: adjacent elements that move together ---- */

template <int BYTES>
struct word;
template <>
struct word<1> {
    using type = uint8_t;
};
template <>
struct word<2> {
    using type = uint16_t;
};
template <>
struct word<4> {
    using type = uint32_t;
};
template <>
struct word<8> {
    using type = uint2;
};
template <>
struct word<16> {
    using type = uint4;
};

template <typename T, int SIZE>
using word_of = typename word<SIZE *static_cast<int>(sizeof(T))>::type;

/* Elements in 16 bytes. */
template <typename T>
constexpr int PACK = 16 / static_cast<int>(sizeof(T));

/* Stores a word of a result that is not read again soon. */
template <typename Word>
__device__ __forceinline__ void
store_streamed(Word *to, Word bits)
{
    __stcs(to, bits);
}

/* Stores sums, rounded, as a word of dx. */
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

__host__ __device__ __forceinline__ bool
lies_on(const void *p, unsigned bytes)
{
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

/* ---- the walk over rows ---- */

/*
 * Rows are numbered through A, B, D and H of one side.  A block of BLOCK threads has
 * BLOCK / lanes rows at once and `lanes` units of each, or, where that leaves lanes
 * idle, units on end, whatever rows they are of.  A thread takes ITEMS rows that lie
 * `apart`, found by carrying `step` from axis to axis instead of by division.
 */
struct row {
    unsigned a, b, d, h;
};

struct row_walk {
    unsigned rows, units; /* of the side that is walked; of a row */
    unsigned tiles;       /* blocks along a row */
    unsigned log_lanes;   /* lanes = 1 << log_lanes */
    bool on_end;          /* threads are numbered through the units of all rows */
    divider per_row;      /* units */
    unsigned apart;       /* rows of a thread */
    unsigned channels, depth, height;
    row step;
};

/* The unit of a thread, and the number of its first row. */
struct first_unit {
    unsigned unit, number;
};

__device__ __forceinline__ first_unit
first_unit_of(const row_walk &walk, int items)
{
    if (walk.on_end) {
        const unsigned place = blockIdx.x * BLOCK + threadIdx.x;
        const unsigned number =
            static_cast<unsigned>(walk.per_row.narrow(static_cast<int>(place)));
        const bool is_idle = number >= walk.apart; /* past the first rows */
        return {place - number * walk.units, is_idle ? walk.rows : number};
    }
    const unsigned lanes = 1u << walk.log_lanes, lane = threadIdx.x & (lanes - 1);
    const unsigned group = walk.tiles > 1 ? blockIdx.x / walk.tiles : blockIdx.x;
    const unsigned tile = blockIdx.x - group * walk.tiles;
    const unsigned together = BLOCK >> walk.log_lanes;
    return {tile * lanes + lane,
            group * together * items + (threadIdx.x >> walk.log_lanes)};
}

struct walker {
    unsigned unit, number;
    row at;
};

__device__ __forceinline__ walker
start_walk(const row_walk &walk, int items)
{
    const first_unit first = first_unit_of(walk, items);
    walker w = {first.unit, first.number, {}};
    unsigned rest = w.number;
    w.at.h = rest % walk.height;
    rest /= walk.height;
    w.at.d = rest % walk.depth;
    rest /= walk.depth;
    w.at.b = rest % walk.channels;
    w.at.a = rest / walk.channels;
    return w;
}

__device__ __forceinline__ void
next_row(const row_walk &walk, walker &w)
{
    w.number += walk.apart;
    w.at.h += walk.step.h;
    const bool over_h = w.at.h >= walk.height;
    w.at.h -= over_h ? walk.height : 0;
    w.at.d += walk.step.d + over_h;
    const bool over_d = w.at.d >= walk.depth;
    w.at.d -= over_d ? walk.depth : 0;
    w.at.b += walk.step.b + over_d;
    const bool over_b = w.at.b >= walk.channels;
    w.at.b -= over_b ? walk.channels : 0;
    w.at.a += walk.step.a + over_b;
}

/* The offset of the row of `from` at depth d and height h, in elements. */
__device__ __forceinline__ int64_t
row_offset(const upsample_plan &p, const row &r, int64_t d, int64_t h)
{
    return r.a * p.stride[UPSAMPLE_A] + r.b * p.stride[UPSAMPLE_B] +
           d * p.stride[UPSAMPLE_D] + h * p.stride[UPSAMPLE_H];
}

/* ---- the columns of a row, in 32 bits ---- */

struct column_range {
    int first, end;
};

/* upsample_source for an axis of fewer than 2^31 outputs. */
__device__ __forceinline__ int
source_column(const upsample_axis &axis, int i)
{
    const float at = floorf((static_cast<float>(i) + axis.shift) * axis.inverse);
    const int last = static_cast<int>(axis.in) - 1;
    const int source = static_cast<int>(at);
    return source < last ? source : last;
}

/* upsample_first for such an axis. */
__device__ __forceinline__ int
first_column(const upsample_axis &axis, int s)
{
    const int in = static_cast<int>(axis.in), out = static_cast<int>(axis.out);
    if (axis.log >= 0) {
        return s << axis.log;
    }
    if (s <= 0 || s >= in) {
        return s <= 0 ? 0 : out;
    }
    const float guess = static_cast<float>(s) / axis.inverse;
    int i = guess < static_cast<float>(out) ? static_cast<int>(guess) : out;
    while (i > 0 && source_column(axis, i - 1) >= s) {
        i--;
    }
    while (i < out && source_column(axis, i) < s) {
        i++;
    }
    return i;
}

__device__ __forceinline__ column_range
columns_of(const upsample_axis &axis, int s)
{
    return {first_column(axis, s), first_column(axis, s + 1)};
}

/*
 * The sum of a box of dy in the order of dy: slices d and rows h of row `at`, and `columns`
 * columns, of which the first lies at y in row 0 of slice 0.  Up to COLUMNS are loaded at once.
 */
template <int COLUMNS, typename T>
__device__ __forceinline__ typename sum_of<T>::type
sum_of_box(const upsample_plan &p, const T *y, const row &at, column_range d,
           column_range h, int columns)
{
    const int across = static_cast<int>(p.stride[UPSAMPLE_W]);
    const int64_t down = p.stride[UPSAMPLE_H];
    const int at_once = rows_at_once<COLUMNS>(columns);
    typename sum_of<T>::type sum = {};
    for (int l = d.first; l < d.end; l++) {
        for (int m = h.first; m < h.end; m += at_once) {
            const T *const from = y + row_offset(p, at, l, m);
            const int rows = h.end - m < at_once ? h.end - m : at_once;
            for (int x = 0; x < columns; x += COLUMNS) {
                add_near<COLUMNS>(sum, from + x * across, down, across, rows,
                                  columns - x);
            }
        }
    }
    return sum;
}

#endif
