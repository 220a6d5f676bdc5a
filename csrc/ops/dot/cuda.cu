/*
 * cuda.cu  The table of dot on CUDA: the ladder (ladder/), the shape kernel (shapes/)
 * and the choice.  v0 to v2 end in one atomic per thread and accumulate in the type of
 * the arrays: in float16 they overflow at 65504 and round every addition to 11 bits.
 * v3 adds in float, and in a fixed order.  See products.cuh for how products are added,
 * op.c for the contract.
 */
#include "ladder/v0_atomic.cuh"
#include "ladder/v1_pairs.cuh"
#include "ladder/v2_neighbour.cuh"
#include "ladder/v3_packs.cuh"

#include <stdio.h>

/* ---- table ---- */

using atomic_types = gpo_types<int32_t, uint32_t, int64_t, uint64_t, f16, bf16, float,
                               double, c64, c128>;
using halves = gpo_types<f16, bf16>;

static bool
takes_gaps(const gpo_call *call)
{
    return has_gaps(*dot_plan_of(call));
}

enum { V3 = 3, STRIDED };

static const gpo_variant variants[] = {
    gpo_row<atomic_types>("v0", "one atomicAdd per thread, in the arrays' own type",
                          GPO_RUN(dot_v0), "no"),
    gpo_row<halves>("v1", "pairs of halves, one packed atomic", GPO_RUN(dot_v1), "no"),
    gpo_row<halves>("v2", "the half's aligned neighbour makes its atomic a packed one",
                    GPO_RUN(dot_v2), "no"),
    gpo_row<every_type>("v3", "wide sums, many 16-byte loads in flight, one launch",
                        GPO_RUN(dot_v3)),
    gpo_shape(gpo_row<every_type>("strided", "wide sums of single elements",
                                  GPO_RUN(dot_strided)),
              "arrays with gaps, or in opposite directions,", takes_gaps),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice ---- */

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    if (takes_gaps(call)) {
        GPO_SAY(why, "strided: an array with gaps is read one element at a time");
        return &variants[STRIDED];
    }
    GPO_SAY(why, "v3 alone adds in float, in a fixed order, and takes every dtype");
    return &variants[V3];
}

extern "C" const gpo_table dot_cuda = {variants, choose};
