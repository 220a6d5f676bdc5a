/*
 * cuda.cu  The table of dot on CUDA: the ladder (ladder/), the shape kernels (shapes/)
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
/* one_block: 16 KiB of single bytes are more elements than it is chosen for. */
using wider_types = gpo_types<int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t,
                              f16, bf16, float, double, c64, c128>;

static bool
takes_gaps(const gpo_call *call)
{
    return has_gaps(*dot_plan_of(call));
}

/* The bytes of an array, in the type of the products. */
static int64_t
array_bytes(const gpo_call *call)
{
    return dot_plan_of(call)->n * gpo_dtypes[call->out[0].dtype].bytes;
}

static bool
takes_short(const gpo_call *call)
{
    return !takes_gaps(call) && array_bytes(call) <= ONE_BLOCK_BYTES;
}

enum { V3 = 3, STRIDED, ONE };

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
    gpo_shape(gpo_row<wider_types>("one_block", "wide sums, one block of 1024 threads",
                                   GPO_RUN(dot_one_block)),
              "arrays without gaps of at most 64 KiB each", takes_short),
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
    if (takes_short(call) && dot_plan_of(call)->n <= ONE_BLOCK_ITEMS &&
        array_bytes(call) > BLOCK * ITEMS * 16) { /* a block of v3 has fewer threads */
        GPO_SAY(why, "one_block: v3 would share so few bytes among blocks, which wait");
        return &variants[ONE];
    }
    GPO_SAY(why, "v3 alone adds in float, in a fixed order, and takes every dtype");
    return &variants[V3];
}

extern "C" const gpo_table dot_cuda = {variants, choose};
