/*
 * narrow.cuh  Which calls shapes/narrow_rows.cu and shapes/flat_columns.cu take, and which of
 * them they are chosen for: rows, or rows of all columns, that are a few loads of 16 bytes
 * and begin anywhere.
 */
#ifndef GPO_REDUCE_NARROW_CUH
#define GPO_REDUCE_NARROW_CUH

#include "views.cuh"

/* narrow_rows: bytes between the starts of rows at most, of which a lane adds so many;
   threads of a block, blocks of an SM at least; bytes of a stretch at least, and stretches
   in shared memory, all but one on their way.  Estimated. */
constexpr int NARROW_BYTES = 512, NARROW_LANE_BYTES = 64;
constexpr int NARROW_BLOCK = 128, NARROW_BLOCKS = 8;
constexpr int NARROW_CHUNK = 4096, NARROW_RING = 3;

/* flat_columns: columns at most, beyond which columns find packs of their own; parts of
   other blocks that a thread of the last one combines, at most. */
constexpr int64_t FLAT_COLUMNS = 32, FLAT_PARTS = 16;

/* Elements from a row to the next one in memory, where all are equally far apart; else 0. */
inline int64_t
pitch_of_rows(const reduce_plan &plan)
{
    if (plan.kept.ndim > FEW_AXES) {
        return 0;
    }
    reduce_axes kept = plan.kept;
    sort_by_distance(&kept);
    kept = merged(kept);
    return kept.ndim == 1 && kept.strides[0] > 0 ? kept.strides[0] : 0;
}

/* Whether short rows lie at equal distances, for narrow_rows.cu; their results may not. */
inline bool
are_narrow_rows(const reduce_plan &plan, int bytes)
{
    const reduce_axes &reduced = plan.reduced;
    const int64_t pitch = pitch_of_rows(plan);
    return reduced.ndim == 1 && plan.rows > 0 && plan.cols > 0 &&
           reduced.strides[0] > 0 && pitch > 0 && pitch <= NARROW_BYTES / bytes &&
           plan.cols <= ceil_div(pitch, reduced.strides[0]);
}

/* Whether x is a few columns without gaps, for flat_columns.cu. */
inline bool
are_flat_columns(const reduce_plan &plan)
{
    const reduce_axes &kept = plan.kept, &reduced = plan.reduced;
    return kept.ndim == 1 && reduced.ndim == 1 && kept.strides[0] == 1 &&
           reduced.strides[0] == plan.rows && plan.rows <= FLAT_COLUMNS &&
           plan.rows > 0 && plan.cols > 0 && plan.op != REDUCE_ARGMIN &&
           plan.op != REDUCE_ARGMAX;
}

/* The choice: bytes of x at least, below which all loads of other kernels are on their way
   at once; of rows of whole packs at most, which conflict in few banks; of rows of columns
   at most, of elements that are wide enough for loads of one.  Elements of rows of few
   elements at most, which few_down loads one by one. */
constexpr int64_t NARROW_LEAST = 4 << 20, FLAT_LEAST = 1 << 19;
constexpr int64_t NARROW_EVEN = 128, NARROW_FEW = 3, FLAT_WIDE = 80;

/*
 * Whether narrow_rows is chosen: for many rows of no whole packs, or of an odd number of
 * few packs, or of every second element.  Of 4 to 8 elements only bytes are: few_down
 * takes (5000000, 7) float32 43.9 us on an H200, this 45.9, (5350284, 4) float16 33.9 and
 * 33.7, (16765558, 3) float32 113.6 and 85.8, (7097350, 2) 49.0 and 36.5.
 */
inline bool
are_for_narrow_rows(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const int64_t bytes = gpo_dtypes[call->in[0].dtype].bytes;
    const int64_t pitch = pitch_of_rows(plan) * bytes;
    if (!are_narrow_rows(plan, static_cast<int>(bytes)) ||
        plan.rows < gpo_processors(call) * MANY_ROWS ||
        plan.rows * pitch < NARROW_LEAST) {
        return false;
    }
    const int64_t step = plan.reduced.strides[0];
    const bool is_spread = pitch % 16 != 0 || (pitch % 32 != 0 && pitch < NARROW_EVEN);
    return is_spread && step <= 2 && 2 * plan.cols * step * bytes > pitch &&
           (plan.cols > FEW_DOWN ||
            (plan.cols > 1 && (plan.cols <= NARROW_FEW || bytes == 1)));
}

/* Whether flat_columns is chosen: a load of columns would be of one narrow element. */
inline bool
are_for_flat_columns(const gpo_call *call)
{
    const reduce_plan &plan = *reduce_plan_of(call);
    const auto &dtype = gpo_dtypes[call->in[0].dtype];
    const int64_t row = plan.rows * dtype.bytes;
    return dtype.kind != 'c' && row % 16 != 0 &&
           (dtype.bytes <= 2 || row <= FLAT_WIDE) && row * plan.cols >= FLAT_LEAST &&
           are_flat_columns(plan);
}

template <typename T>
gpo_status reduce_narrow_rows(gpo_call *call);

template <typename T>
gpo_status reduce_flat_columns(gpo_call *call);

#endif
