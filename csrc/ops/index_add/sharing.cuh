/*
 * sharing.cuh  How a launch of one_launch that sorts is shared by blocks: the kernel's
 * launcher and the estimate of its time (costs.cuh) ask the same function.
 */
#ifndef GPO_INDEX_ADD_SHARING_CUH
#define GPO_INDEX_ADD_SHARING_CUH

#include "../../device/few_sums.cuh"
#include "frame.cuh"

static_assert(MOST_ROWS == FEW, "few_sums.cuh sorts so many");

struct index_add_share {
    int64_t columns; /* of all slices: outer * inner */
    int64_t places;  /* destinations of a block */
    int lane_bits;   /* a block has 2^lane_bits columns */
    unsigned slices; /* blocks side by side */
    few_digits key;
    bool copies; /* out = x first */
    verdict_word verdict;
};

/*
 * As many columns to a block as its threads add at once, and more if there would be more
 * blocks than SMs; 32 bytes, at least, where a block copies much of x.
 */
inline index_add_share
index_add_share_of(const gpo_call *call, bool copies)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    index_add_share s = {};
    s.columns = plan.outer * plan.inner;
    const int64_t sector = 32 / gpo_dtypes[plan.dtype].bytes;
    const int64_t least =
        copies && s.columns * plan.length > COPIED_BY_COLUMNS ? sector : 1;
    int64_t lanes = 1;
    while (lanes < WARP && lanes < s.columns &&
           (lanes < least || 2 * lanes * plan.count <= FEW_THREADS ||
            s.columns > gpo_processors(call) * lanes)) {
        lanes *= 2;
        s.lane_bits++;
    }
    s.slices = static_cast<unsigned>(ceil_div(s.columns, lanes));
    const int64_t most = COPIED / lanes;
    s.places = copies && plan.length > most ? most : plan.length;
    s.key = few_digits_of(s.places < plan.length ? s.places : plan.length - 1);
    s.copies = copies;
    return s;
}

/* The blocks of all slices and ranges. */
inline int64_t
index_add_sharers(const index_add_plan &plan, const index_add_share &s)
{
    return s.slices * ceil_div(plan.length, s.places);
}

#endif
