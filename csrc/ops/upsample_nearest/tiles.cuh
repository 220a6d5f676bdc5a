/*
 * tiles.cuh  How shapes/backward_contiguous_rows.cu shares out a call: tiles of dx, and
 * the box of dy that each is the sum of.  For the kernel's launcher, and the table,
 * which asks whether there are such tiles.
 * Order: outputs of some sources, what is contiguous, the tiles; then the axes that
 * shapes/backward_long_rows.cu takes as well.
 */
#ifndef GPO_UPSAMPLE_NEAREST_TILES_CUH
#define GPO_UPSAMPLE_NEAREST_TILES_CUH

#include "walks.cuh"

/* ---- outputs of some sources ---- */

/* An axis of fewer than 2^20 outputs. */
struct output_axis {
    int in, out;
    float inverse, shift, scale;
};

inline output_axis
output_axis_of(const upsample_axis &axis)
{
    return {static_cast<int>(axis.in), static_cast<int>(axis.out), axis.inverse,
            axis.shift, 1 / axis.inverse};
}

/* As upsample_first, for such an axis: the quotient is off by less than one. */
__device__ __forceinline__ int
first_output(const output_axis &axis, int s)
{
    const float at = static_cast<float>(s) * axis.scale;
    const int guess = static_cast<int>(at) - 1;
    int i = guess > 0 ? guess : 0;
#pragma unroll
    for (int step = 0; step < 3; step++) {
        const float source = (static_cast<float>(i) + axis.shift) * axis.inverse;
        i += static_cast<int>(source) < s;
    }
    return s == axis.in || i > axis.out ? axis.out : i;
}

constexpr double ROUNDED = 0.125; /* outputs: both ends */

/*
 * Outputs of n neighbouring sources of an axis of fewer than 2^20, at most: n scales,
 * rounded up.  The product of the rule, rounded, moves an end by up to 1 / 16 output.
 */
inline int64_t
most_outputs(const upsample_axis &axis, int64_t n)
{
    const double scale = 1.0 / static_cast<double>(axis.inverse);
    const double most = floor(static_cast<double>(n) * scale + ROUNDED) + 1;
    return n >= axis.in || most >= static_cast<double>(axis.out)
               ? axis.out
               : static_cast<int64_t>(most);
}

/* The most sources with no more than so many outputs, up to `cap`; perhaps none. */
inline int64_t
sources_within(const upsample_axis &axis, int64_t outputs, int64_t cap)
{
    const double n = (static_cast<double>(outputs) - 1 - ROUNDED) *
                     static_cast<double>(axis.inverse);
    const int64_t all = axis.in < cap ? axis.in : cap;
    return outputs >= axis.out || n >= static_cast<double>(all)
               ? all
               : static_cast<int64_t>(n > 0 ? n : 0);
}

/* ---- what is contiguous ---- */

/*
 * Strides of dy in elements; those of axes with one element are as if dy were
 * contiguous.  Whether the rows of a slice are contiguous, slices, and planes.
 */
struct dy_layout {
    int64_t image, plane, slice, row;
    bool joins_rows, joins_slices, joins_planes;
};

inline dy_layout
dy_layout_of(const upsample_nearest_plan &p)
{
    const int64_t row = p.axis[2].out * p.inner;
    const int64_t slices = p.axis[0].out, rows = p.axis[1].out;
    dy_layout y = {};
    y.row = rows > 1 ? p.stride[UPSAMPLE_H] : row;
    y.slice = slices > 1 ? p.stride[UPSAMPLE_D] : rows * y.row;
    y.plane = p.channels > 1 ? p.stride[UPSAMPLE_B] : slices * y.slice;
    y.image = p.stride[UPSAMPLE_A];
    y.joins_rows = y.row == row;
    y.joins_slices = y.joins_rows && y.slice == rows * row;
    y.joins_planes = y.joins_slices && p.images == 1 && y.plane == slices * rows * row;
    return y;
}

/* ---- the tiles ---- */

/*
 * A tile has `together` planes, or slices of one, or rows of one slice, or columns of
 * one row: where an axis is cut, those before it have one element.
 */
struct dx_tiles {
    int64_t together;
    int64_t side[UPSAMPLE_SPATIAL];
    int64_t pitch, slice_pitch; /* of a tile's box of dy in shared memory */
    int64_t box_bytes, bytes;   /* of shared memory: for that box, in all */
    int64_t blocks;
};

/* n in pieces of at most `most`, all about the same. */
inline int64_t
balanced(int64_t n, int64_t most)
{
    return ceil_div(n, ceil_div(n, most));
}

/* The least number of n and more that is `stride` modulo a pack. */
inline int64_t
in_step(int64_t n, int64_t stride, int64_t pack)
{
    return n + ((stride - n) % pack + pack) % pack;
}

/* The tiles of a call of at least one element; false if a row's does not fit. */
inline bool
plan_tiles(const gpo_call *call, dx_tiles *t)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const upsample_axis &depth = p.axis[0], &height = p.axis[1], &width = p.axis[2];
    const dy_layout y = dy_layout_of(p);
    const int64_t few = p.from_size * p.bytes / (TILES_EACH * gpo_processors(call));
    const int64_t wanted = few > LEAST_TILE_BYTES ? few : LEAST_TILE_BYTES;
    const int64_t row = width.out * p.inner, slice = height.out * row;
    const int64_t deep = most_outputs(depth, 1), high = most_outputs(height, 1);
    const int64_t pack = 16 / p.bytes,
                  room = (wanted < TILE_BYTES ? wanted : TILE_BYTES) / p.bytes;
    const auto most = [](int64_t a, int64_t b) { return a < b ? a : b; };

    *t = {1, {1, 1, 1}, 0, 0, 0, 0, 0};
    const int64_t columns = TILE_SUMS / p.inner;
    int64_t w = sources_within(width, room / (deep * high * p.inner),
                               most(columns, TILE_COLUMNS));
    if (w < width.in && w * p.inner < CUT_COLUMNS) { /* a larger tile after all */
        w = sources_within(width, TILE_BYTES / p.bytes / (deep * high * p.inner),
                           most(columns, ceil_div(CUT_COLUMNS, p.inner)));
    }
    if (w < width.in && (w == 0 || w * p.inner < CUT_COLUMNS)) {
        return false;
    }
    t->side[2] = balanced(width.in, w);
    if (w == width.in) {
        const int64_t rows = TILE_SUMS / p.row;
        const int64_t held = row + (y.joins_rows ? 0 : pack - 1);
        const int64_t h =
            sources_within(height, room / (deep * held), most(rows, TILE_LINES));
        t->side[1] = balanced(height.in, h > 1 ? h : 1);
    }
    if (t->side[1] == height.in && w == width.in && y.joins_slices) {
        const int64_t slices = TILE_SUMS / (p.row * height.in);
        const int64_t d =
            sources_within(depth, room / slice, most(slices, TILE_LINES / height.in));
        t->side[0] = balanced(depth.in, d > 1 ? d : 1);
        const int64_t plane = height.in * depth.in;
        const int64_t planes =
            most(room / (depth.out * slice),
                 most(TILE_SUMS / (p.row * plane), TILE_LINES / plane));
        if (t->side[0] == depth.in && y.joins_planes && planes > 1) {
            t->together = balanced(p.channels, planes);
        }
    }

    t->pitch = in_step(most_outputs(width, t->side[2]) * p.inner, y.row, pack);
    t->slice_pitch =
        in_step(most_outputs(height, t->side[1]) * t->pitch, y.slice, pack);
    const int64_t slices =
        t->together > 1 ? t->together * depth.out : most_outputs(depth, t->side[0]);
    const int64_t lines = t->together * t->side[0] * t->side[1];
    t->box_bytes = ceil_div(slices * t->slice_pitch + pack - 1, pack) * 16;
    t->bytes = t->box_bytes + lines * 8 + (t->side[2] + 1) * 4;
    t->blocks = ceil_div(p.images * p.channels, t->together);
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        t->blocks *= ceil_div(p.axis[k].in, t->side[k]);
    }
    return t->bytes <= MOST_TILE_BYTES;
}

/* Axes of fewer than 2^20 outputs, and up to 2^30 elements. */
inline bool
has_few_outputs(const upsample_nearest_plan &p)
{
    bool has = p.size > 0 && p.size <= 1 << 30;
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        const upsample_axis &axis = p.axis[k];
        has = has && axis.in < 1 << 20 && axis.out < 1 << 20;
    }
    return has;
}

/* The same with elements of a row of dy beside each other. */
inline bool
has_short_axes(const upsample_nearest_plan &p)
{
    return p.packed && has_few_outputs(p);
}

/* Backward, few_elements. */
inline bool
takes_few_elements(const gpo_call *call)
{
    return takes_any_rows(call) && has_few_outputs(*upsample_nearest_plan_of(call));
}

template <typename T>
gpo_status upsample_nearest_backward_few_elements(gpo_call *call);

/* Backward: such axes, and rows of which a part fits into shared memory. */
inline bool
takes_contiguous_rows(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    dx_tiles t;
    return has_short_axes(p) && plan_tiles(call, &t);
}

template <typename T>
gpo_status upsample_nearest_backward_contiguous_rows(gpo_call *call);

/* ---- rows of one axis ---- */

/* Backward: such an axis alone, channels first, with planes of dy evenly spaced. */
inline bool
takes_long_rows(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    return has_short_axes(p) && p.images == 1 && p.inner == 1 && depth.in == 1 &&
           depth.out == 1 && height.in == 1 && height.out == 1;
}

template <typename T>
gpo_status upsample_nearest_backward_long_rows(gpo_call *call);

#endif
