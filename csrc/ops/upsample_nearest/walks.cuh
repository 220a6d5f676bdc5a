/*
 * walks.cuh  What v2 and the shape kernels of upsample_nearest share on the host: the
 * walk over rows of a launch, and which rows move in words of 16 bytes.
 * Order: the walk, rows and their words, the calls that kernels take, the shape
 * kernels.
 */
#ifndef GPO_UPSAMPLE_NEAREST_WALKS_CUH
#define GPO_UPSAMPLE_NEAREST_WALKS_CUH

#include "../../device/warp.cuh"
#include "rows.cuh"

/* ---- the walk ---- */

static_assert(BLOCK == 1 << MOST_LOG_LANES, "a row of units may fill a block");

/* Lanes of a row, as a logarithm: the widest blocks, unless they leave more idle. */
inline int
log_lanes_of(int64_t units)
{
    int best = MOST_LOG_LANES;
    int64_t least = INT64_MAX;
    for (int log = MOST_LOG_LANES; log >= LEAST_LOG_LANES; log--) {
        const int64_t padded = ceil_div(units, int64_t{1} << log) << log;
        if (padded < least - least / 16) {
            least = padded;
            best = log;
        }
    }
    return best;
}

/*
 * The walk over the rows of planes of d by h rows, `items` per thread, and its grid.
 * Units follow on end where lanes would be idle or have less than a warp of a row, and
 * where there are so few, up to `threads`, that a row per thread keeps more of them
 * busy.
 */
inline row_walk
walk_of(const upsample_nearest_plan &p, int64_t d, int64_t h, int64_t units, int items,
        dim3 *grid, int64_t threads = ONE_ROW_EACH)
{
    const int best = log_lanes_of(units);
    const int64_t rows = p.images * p.channels * d * h, lanes = int64_t{1} << best;
    const int64_t together = BLOCK >> best;
    const bool is_narrow =
        lanes < WARP || ceil_div(units, lanes) * lanes > units + units / 16;
    int64_t apart = ceil_div(rows, items), few = ceil_div(threads, units);
    few = few < rows ? few : rows;
    apart = apart > few ? apart : few;
    row_walk walk = {};
    walk.on_end = (is_narrow || apart == rows) && apart * units <= 1 << 30;
    walk.apart = static_cast<unsigned>(walk.on_end ? apart : together);
    walk.per_row = divider_of(units);
    walk.rows = static_cast<unsigned>(rows);
    walk.units = static_cast<unsigned>(units);
    walk.log_lanes = static_cast<unsigned>(best);
    walk.tiles = static_cast<unsigned>(ceil_div(units, lanes));
    walk.channels = static_cast<unsigned>(p.channels);
    walk.depth = static_cast<unsigned>(d);
    walk.height = static_cast<unsigned>(h);
    unsigned step = walk.apart;
    walk.step.h = step % walk.height;
    step /= walk.height;
    walk.step.d = step % walk.depth;
    step /= walk.depth;
    walk.step.b = step % walk.channels;
    walk.step.a = step / walk.channels;
    const int64_t groups = ceil_div(rows, together * items);
    *grid = dim3(static_cast<unsigned>(walk.on_end ? ceil_div(apart * units, BLOCK)
                                                   : groups * walk.tiles));
    return walk;
}

/* Whether 31 bits can count rows, blocks and the elements of a row on both sides. */
inline bool
fits_rows(const upsample_nearest_plan &p)
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
    const double row = longest * static_cast<double>(p.inner);
    const double blocks = rows * (row / BLOCK + 1); /* at most, of v2 */
    return rows < MOST && row < MOST && p.reach < MOST && blocks < MOST;
}

/* ---- rows and their words ---- */

/*
 * Where a pack of 16 bytes comes from: PAIRS, 8 bytes of the shorter row, each element
 * twice; WHOLE, 16 bytes; PICKED, single elements.
 */
enum row_mode { PAIRS, WHOLE, PICKED };

/* Whether every row of `from` begins on a boundary of `bytes`. */
inline bool
rows_lie_on(const gpo_call *call, int64_t bytes)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    bool good = lies_on(call->in[0].data, static_cast<unsigned>(bytes));
    for (int k = UPSAMPLE_A; k <= UPSAMPLE_H; k++) {
        good = good && (p.length[k] == 1 || p.stride[k] * p.bytes % bytes == 0);
    }
    return good;
}

inline bool
result_lies_on(const gpo_call *call, int64_t bytes)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    return lies_on(call->out[0].data, static_cast<unsigned>(bytes)) &&
           p.row * p.bytes % bytes == 0;
}

/* Whether each 16 bytes of a row are 16 aligned bytes of a row of the other side. */
inline bool
has_whole_packs(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    if (!rows_lie_on(call, 16)) {
        return false;
    }
    if (p.inner > 1) {
        return p.stride[UPSAMPLE_I] == 1 && p.inner * p.bytes % 16 == 0 &&
               p.stride[UPSAMPLE_W] * p.bytes % 16 == 0;
    }
    return p.axis[2].log == 0 && p.packed;
}

/* Whether rows are twice as long, and aligned to words of `size` of the longer side. */
inline bool
has_pairs(const gpo_call *call, int64_t size)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const int64_t half = p.bytes * size / 2;
    return p.inner == 1 && p.axis[2].log == 1 && p.stride[UPSAMPLE_W] == 1 &&
           rows_lie_on(call, p.backward ? 2 * half : half) &&
           result_lies_on(call, p.backward ? half : 2 * half);
}

/*
 * Whether H is doubled and D is not changed, and the rows of `from` are evenly spaced,
 * `pitch` elements apart.
 */
inline bool
doubles_rows(const upsample_nearest_plan &p, int64_t *pitch)
{
    int64_t rows = 1;
    bool good = p.axis[0].log == 0 && p.axis[1].log == 1;
    *pitch = 0;
    for (int k = UPSAMPLE_H; k >= UPSAMPLE_A; k--) {
        if (p.length[k] > 1) {
            *pitch = rows == 1 ? p.stride[k] : *pitch;
            good = good && p.stride[k] == *pitch * rows;
            rows *= p.length[k];
        }
    }
    return good;
}

/* ---- the calls that kernels take ---- */

/* v2: twice as many rows, twice as long, in words of at least a pair. */
inline bool
takes_doubles(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    int64_t pitch;
    return p.bytes < 16 && fits_rows(p) && doubles_rows(p, &pitch) &&
           (has_pairs(call, 16 / p.bytes) || has_pairs(call, 2));
}

inline bool
takes_any_rows(const gpo_call *call)
{
    return fits_rows(*upsample_nearest_plan_of(call));
}

/* Forward, one_each: elements that 30 bits can count. */
inline bool
takes_one_each(const gpo_call *call)
{
    return takes_any_rows(call) && upsample_nearest_plan_of(call)->size <= 1 << 30;
}

/* Forward: rows of the result aligned to 16 bytes, and no fewer of them than x has. */
inline bool
takes_aligned_rows(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    const upsample_axis &depth = p.axis[0], &height = p.axis[1];
    const bool shrinks = depth.out * height.out < depth.in * height.in;
    return fits_rows(p) && !shrinks && result_lies_on(call, 16);
}

/* Backward: 16 bytes of a row of dy make 16 bytes of dx, or 8 of rows twice as long. */
inline bool
takes_aligned_rows_of_dy(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    return fits_rows(p) && ((has_whole_packs(call) && result_lies_on(call, 16)) ||
                            (p.bytes < 16 && has_pairs(call, 16 / p.bytes)));
}

/*
 * Whether output i comes from i / scale for a whole scale.  For fewer than 2^20 outputs
 * the rule's two roundings, of 2^-24 each, cannot reach the next source from the last
 * output of one (1 / out away, or half of that).  The first output keeps its source if
 * it lies half an output past it, or if 1 / scale was rounded up.
 */
inline bool
has_whole_scale(const upsample_axis &axis)
{
    const int64_t scale = axis.out / axis.in;
    const bool kept =
        axis.shift > 0 ||
        static_cast<double>(axis.inverse) * static_cast<double>(scale) >= 1.0;
    const double inverse = 1.0 / static_cast<double>(scale);
    const bool near_enough =
        fabs(static_cast<double>(axis.inverse) - inverse) <= inverse * 0x1p-23;
    return scale * axis.in == axis.out && axis.out < 1 << 20 && kept && near_enough;
}

/* Backward: whole scales, and elements that 30 bits can count. */
inline bool
takes_whole_scales(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    bool whole = p.size > 0 && p.size <= 1 << 30;
    for (int k = 0; k < UPSAMPLE_SPATIAL && whole; k++) {
        whole = has_whole_scale(p.axis[k]);
    }
    return whole;
}

/*
 * Backward: scales of 1 and less along axes of fewer than 2^20 elements, so that each
 * element of dx is the source of one output or of none: products of the rule are at
 * least 1 apart, and rounding keeps them on different sides of an integer.
 */
inline bool
takes_small_scales(const gpo_call *call)
{
    const upsample_nearest_plan &p = *upsample_nearest_plan_of(call);
    bool small = p.size > 0 && p.size <= 1 << 30;
    for (int k = 0; k < UPSAMPLE_SPATIAL; k++) {
        small = small && p.axis[k].inverse >= 1 && p.axis[k].in < 1 << 20;
    }
    return small;
}

/* Macro(T) for each T that is copied, by its width, and for each whose gradients are added. */
#define UPSAMPLE_NEAREST_EVERY_WIDTH(Macro) \
    Macro(uint8_t) Macro(uint16_t) Macro(uint32_t) Macro(uint64_t) Macro(uint4)
#define UPSAMPLE_NEAREST_EVERY_SUM(Macro)                                     \
    Macro(uint8_t) Macro(uint16_t) Macro(uint32_t) Macro(uint64_t) Macro(f16) \
        Macro(bf16) Macro(float) Macro(double) Macro(c64) Macro(c128)

/* ---- the shape kernels, for the table and for v2 (shapes/) ---- */

/* aligned_rows runs any_rows where it does not take the call. */
template <typename T>
gpo_status upsample_nearest_aligned_rows(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_any_rows(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_one_each(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_backward_aligned_rows(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_backward_any_rows(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_backward_whole_scales(gpo_call *call);

template <typename T>
gpo_status upsample_nearest_backward_small_scales(gpo_call *call);

#endif
