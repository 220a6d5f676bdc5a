/*
 * cuda.cu  The table of elementwise on CUDA and the choice.
 * See ladder/ for the rungs, kernels.cuh for functors, packs and the tables of kernels,
 * arithmetic.cuh for what the functors compute, op.c for the contract.
 */
#include "../../device/types.cuh"
#include "any_strides.cuh"

#include <stdio.h>

/* A rung finds its kernel by the functor and the type in the plan. */
#define RUNG(rung) [](auto) -> gpo_run { return rung; }

static bool
takes_any_strides(const gpo_call *call)
{
    return elementwise_has_offsets(*elementwise_plan_of(call));
}

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "one element per thread", RUNG(elementwise_v0)),
    gpo_row<every_type>("v1", "packs of up to 16 bytes, two halves at a time",
                        RUNG(elementwise_v1)),
    gpo_row<every_type>("v2", "peeled misalignment, packs in flight, rows",
                        RUNG(elementwise_v2)),
    gpo_shape(gpo_row<every_type>("any_strides", "packs of results, in any rows",
                                  RUNG(elementwise_any_strides)),
              "calls of at most 8 axes, of which all but the first span less than 2^31 "
              "elements",
              takes_any_strides),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* Whether each element of an operand is in a sector of its own, as if transposed. */
static bool
is_turned(const elementwise_plan &plan)
{
    bool turned = false;
    /* of a narrow array lanes are neighbours along the axis before the last */
    const bool is_narrow = plan.ndim == 0 || (plan.shape[plan.ndim - 1] <= NARROW &&
                                              plan.size >= MANY_NARROW);
    for (int k = 0; k < plan.inputs && !is_narrow; k++) {
        const int64_t stride = plan.strides[k][plan.ndim - 1];
        const int64_t apart = (stride < 0 ? -stride : stride) * plan.bytes[k];
        turned = turned || apart >= SECTOR_BYTES;
    }
    return turned;
}

/* Whether lanes read one element of an operand in memory, as of a column. */
static bool
is_repeated(const gpo_call *call, const elementwise_plan &plan)
{
    bool repeated = false;
    for (int k = 0; k < plan.inputs && plan.ndim > 0; k++) {
        repeated = repeated || (plan.strides[k][plan.ndim - 1] == 0 &&
                                !call->in[plan.input[k]].on_host);
    }
    return repeated;
}

/* From times on an H200: benchmarks/results/h200-elementwise.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    int64_t bytes = gpo_dtypes[plan.to].bytes;
    for (int k = 0; k < plan.inputs; k++) {
        bytes += plan.bytes[k];
    }
    if (plan.size <= FEW_RESULTS && is_repeated(call, plan)) {
        GPO_SAY(why, "few elements, one of them for many: v0, the shortest code");
        return &variants[0];
    }
    const bool is_fresh = call->out_given[0] == GPO_NONE; /* then out is aligned */
    if (is_fresh && plan.size * bytes <= SMALL_BYTES &&
        elementwise_is_packed(call, elementwise_pack(plan))) {
        GPO_SAY(why,
                "v1: few bytes, for which its shorter code pays more than v2's packs "
                "in flight");
        return &variants[1];
    }
    if (elementwise_has_rows(plan) && plan.ndim > 1 && plan.size <= FEW_IN_ROWS &&
        is_repeated(call, plan)) {
        GPO_SAY(why,
                "few elements of rows, one of them for many: v0, the shortest code");
        return &variants[0];
    }
    if (elementwise_has_rows(plan)) {
        GPO_SAY(why, "v2 reads packs where the last axis is contiguous or repeated");
        return &variants[2];
    }
    const bool has_tiles =
        plan.size >= MANY_NARROW && elementwise_turn_of(plan).rows > 1;
    if (plan.size >= MANY_RESULTS && (has_tiles || !is_turned(plan)) &&
        elementwise_has_strided_packs(plan) && elementwise_has_offsets(plan)) {
        GPO_SAY(why,
                has_tiles
                    ? "an operand is transposed: any_strides has tiles of rows that "
                      "share its lines"
                    : "an operand has strides on the last axis, or it is short: "
                      "any_strides stores packs");
        return &variants[3];
    }
    GPO_SAY(why,
            "an operand has strides on the last axis, or it is short: v0 takes any");
    return &variants[0];
}

extern "C" const gpo_table elementwise_cuda = {variants, choose};
