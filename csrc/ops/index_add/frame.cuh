/*
 * frame.cuh  Setup and checks shared by every rung and shape kernel: the copy of x, the
 * check of the index, the wait for it (frame.cu), and the call as a kernel argument.
 */
#ifndef GPO_INDEX_ADD_FRAME_CUH
#define GPO_INDEX_ADD_FRAME_CUH

#include "../../device/verdict.cuh"
#include "index_add.cuh"

struct index_add_frame {
    index_reader index;
    const void *base;         /* x, or out if that has x's elements already */
    bool nothing;             /* no element to add */
    unsigned long long *late; /* the first bad index that the kernels note, or */
    uint64_t *answer;         /* that of a check before them (gpo_question), or NULL */
    const unsigned long long *verdict; /* of that check, for kernels; or NULL */
    uint64_t *later; /* the index is known: the word of gpo_later_question, or NULL */
    bool follows;    /* the kernels that add come right behind the copy of x */
};

/* What a rung does with x and out. */
struct index_add_traits {
    bool is_deterministic;
    bool reads_x;     /* it writes x and the sums to out, unless out has x's elements
                         already; else it adds to out */
    bool writes_last; /* only its last kernel writes out, and not against a verdict */
    bool skips_empty; /* it is faster where out has x's elements already and most
                         destinations have no row; x is then copied before */
};

/*
 * Queues the work before the kernels that add: they add to out, which is then a copy of
 * x, or, with `reads_x`, read x and write out.  A short index is checked by a kernel
 * before them; a long one, with a fresh output, by those kernels as they add.  The
 * caller's output must not change on an error, so there the host waits for the check,
 * except if the rung `writes_last`.
 */
gpo_status index_add_begin(gpo_call *call, index_add_traits traits,
                           index_add_frame *frame);

/* Waits for the kernels; IndexError if they found a bad index. */
gpo_status index_add_end(gpo_call *call, const index_add_frame &frame);

/*
 * For an index that is known to be good, once: call->found.most, where the choice of a
 * rung that adds rows one by one depends on it.  Waits for the stream.
 */
gpo_status index_add_look(gpo_call *call, const index_reader &index);

/* A bound on the rows of one destination; 0: none is known.  'clip' moves entries to
   other destinations than those that were counted. */
inline int64_t
index_add_most(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    return plan.mode == GPO_INDEX_CLIP ? 0 : most_of(call, plan.length);
}

/* So many of INDEX_ADD_BEHIND_PARTS rows share a destination with one before; 0: or it
   is not known. */
constexpr unsigned INDEX_ADD_BEHIND_PARTS = 256;

inline int64_t
index_add_behind(const gpo_call *call)
{
    const bool known = call->known.high == index_add_plan_of(call)->length;
    return known ? call->known.behind : 0;
}

/* Whether the index is known to be sorted, and equal entries alone are one destination. */
inline bool
index_add_is_sorted(const gpo_call *call)
{
    const bool known = call->known.high == index_add_plan_of(call)->length;
    return known && call->known.sorted;
}

/* Whether float32 sums do for floats below float64: no destination takes many rows. */
inline bool
index_add_float32_does(const gpo_call *call)
{
    const int64_t most = index_add_most(call);
    return index_add_plan_of(call)->count <= INDEX_ADD_FEW_ROWS ||
           (most > 0 && most <= INDEX_ADD_FEW_ROWS);
}

/* Whether lanes with one destination are worth looking for: rows are short, and neighbours
   are known to share destinations. */
inline bool
index_add_joins_lanes(const gpo_call *call)
{
    return index_add_plan_of(call)->inner <= SHORT_ROW &&
           index_add_behind(call) >= WORTH_JOINING;
}

/* For one_launch, which checks the index itself; out = x if x is long or has gaps. */
gpo_status index_add_start(gpo_call *call, index_add_frame *frame);

/* The IndexError of the entry at `place`. */
gpo_status index_add_refuse(gpo_call *call, int64_t place);

template <typename T>
index_add_view<T>
view_of(const gpo_call *call, const index_add_frame &frame)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    index_add_view<T> view = {static_cast<T *>(call->out[0].data),
                              static_cast<const T *>(frame.base),
                              static_cast<const T *>(call->in[2].data),
                              plan.outer,
                              plan.length,
                              plan.count,
                              plan.inner,
                              plan.by_outer,
                              plan.by_row,
                              plan.by_inner,
                              frame.index,
                              divider_of(plan.count),
                              divider_of(plan.inner),
                              {},
                              plan.alpha,
                              frame.verdict,
                              frame.follows};
    if constexpr (is_same<alpha_of<T>, float> || is_same<alpha_of<T>, double>) {
        view.alpha = static_cast<alpha_of<T>>(plan.alpha);
    }
    else {
        view.alpha = is_bool<T> ? static_cast<alpha_of<T>>(plan.whole != 0)
                                : static_cast<alpha_of<T>>(plan.whole);
    }
    return view;
}

/* Rung::run(call, view) queues the kernels that add. */
template <typename Rung, typename T>
gpo_status
index_add_with(gpo_call *call)
{
    index_add_frame frame;
    gpo_status status = index_add_begin(call, Rung::TRAITS, &frame);
    if (!status && !frame.nothing) {
        status = Rung::run(call, view_of<T>(call, frame));
    }
    return status ? status : index_add_end(call, frame);
}

/* Traits of the rungs with atomics: they add to a copy of x, in any order. */
struct index_add_atomics {
    static constexpr index_add_traits TRAITS = {false, false, false, false};
};

/* ---- the shape kernels, for the table (shapes/) ---- */

template <typename T>
gpo_status index_add_short_rows(gpo_call *call);

template <typename T>
gpo_status index_add_one_element(gpo_call *call);

template <typename T>
gpo_status index_add_few_destinations(gpo_call *call);

template <typename T>
gpo_status index_add_few_rows(gpo_call *call);

template <typename T>
gpo_status index_add_one_launch(gpo_call *call);

template <typename T>
gpo_status index_add_own_places(gpo_call *call);

template <typename T>
gpo_status index_add_own_rows(gpo_call *call);

template <typename T>
gpo_status index_add_sorted_rows(gpo_call *call);

template <typename T>
gpo_status index_add_one_writer(gpo_call *call);

template <typename T>
gpo_status index_add_gathered_rows(gpo_call *call);

template <typename T>
gpo_status index_add_unpacked_rows(gpo_call *call);

template <typename T>
gpo_status index_add_joined_sums(gpo_call *call);

template <typename T>
gpo_status index_add_one_by_one(gpo_call *call);

/* Whether one_launch takes the call. */
inline bool
index_add_is_few(const gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t columns = plan.outer * plan.inner;
    const bool is_gapped = plan.is_first && !gpo_array_is_contiguous(&call->in[0]);
    return plan.count > 0 && plan.count <= MOST_ROWS && columns > 0 &&
           columns * plan.count <= FEW_ELEMENTS && plan.length > 0 &&
           plan.length < INT64_C(1) << 32 && !is_gapped;
}

/*
 * Whether its rows then find each other in slots: so few, that a block of a few columns reads
 * and copies no more sectors than another would.
 */
inline bool
index_add_is_for_pairs(const index_add_plan &plan, bool copies)
{
    const int64_t columns = plan.outer * plan.inner;
    const int64_t copied = columns == 1 ? COPIED_BY_PAIRS : COPIED_BY_COLUMNS;
    return plan.count <= PAIRED && columns * plan.count <= PAIRED_ELEMENTS &&
           (!copies || columns * plan.length <= copied);
}

/* Whether own_places takes the call: every block reads the whole index. */
inline bool
index_add_fits_own_places(const index_add_plan &plan)
{
    const int64_t most = plan.inner == 1 ? OWNED_ROWS : OWNED_WIDE_ROWS;
    return plan.count > 0 && plan.count <= most && plan.length > 0 &&
           plan.outer * plan.inner > 0 &&
           plan.outer * plan.inner * plan.length <= OWNED_PLACES;
}

/* Whether own_rows takes the call: the same, and it counts columns in 32 bits. */
inline bool
index_add_fits_own_rows(const index_add_plan &plan)
{
    const int64_t columns = plan.outer * plan.inner;
    return plan.count > 0 && plan.count <= MOST_ROWS && plan.length > 0 &&
           plan.length < INT64_C(1) << 31 && columns > 0 && columns < INT64_C(1) << 30;
}

#endif
