/*
 * owning.cuh  How a launch of own_places is shared by blocks: the kernel's launcher and the
 * choice (cuda.cu) ask the same function.
 */
#ifndef GPO_INDEX_ADD_OWNING_CUH
#define GPO_INDEX_ADD_OWNING_CUH

#include "frame.cuh"

struct index_add_owning {
    int64_t places; /* destinations of a block */
    divider columns;
    unsigned ranges, tiles; /* of a slice: blocks by destinations, by columns */
    int sums, copies; /* of a block; a warp adds to one of the copies, a power of two */
    bool joins;       /* rows of one element: lanes with one destination */
};

/* Sums of a block. */
template <typename Sum>
static constexpr int OWNED = OWNED_BYTES / sizeof(Sum);

/*
 * As many whole rows as a block's `owned` sums take; fewer, and in the end fewer columns,
 * where blocks would be few.
 */
inline index_add_owning
index_add_owning_of(const gpo_call *call, int64_t owned)
{
    constexpr int64_t WIDEST = 512, NARROWEST = 4;
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t processors = gpo_processors(call);
    const int64_t least = processors < OWNING_BLOCKS ? processors : OWNING_BLOCKS;
    int64_t columns = plan.inner < WIDEST ? plan.inner : WIDEST;
    const int64_t across = plan.outer * ceil_div(plan.inner, columns);
    const int64_t even = ceil_div(plan.length, ceil_div(least, across));
    const int64_t most = owned / columns, few = ceil_div(OWNED_AT_LEAST, columns);
    const int64_t enough = even > few ? even : few;
    const int64_t places = enough < most ? enough : most;
    const auto are_few = [&] {
        return plan.outer * ceil_div(plan.inner, columns) *
                   ceil_div(plan.length, places) <
               least;
    };
    while (columns > NARROWEST && are_few()) {
        columns = ceil_div(columns, 2);
    }
    const int64_t warps = ceil_div(plan.count, WARP);
    int64_t copies = 1;
    while (2 * copies <= OWNING_BLOCK / WARP && copies < warps &&
           2 * copies * places * columns <= owned) {
        copies *= 2;
    }
    return {places,
            divider_of(columns),
            static_cast<unsigned>(ceil_div(plan.length, places)),
            static_cast<unsigned>(ceil_div(plan.inner, columns)),
            static_cast<int>(places * columns),
            static_cast<int>(copies),
            index_add_joins_lanes(call)};
}

/* The blocks of all slices. */
inline int64_t
index_add_owners(const index_add_plan &plan, const index_add_owning &own)
{
    return plan.outer * own.ranges * own.tiles;
}

#endif
