/*
 * cuda.cu  The table of elementwise on CUDA and the choice.
 * See ladder/ for the rungs, kernels.cuh for functors, packs and the tables of kernels,
 * arithmetic.cuh for what the functors compute, op.c for the contract.
 */
#include "../../device/types.cuh"
#include "rungs.cuh"

#include <stdio.h>

/* A rung finds its kernel by the functor and the type in the plan. */
#define RUNG(rung) [](auto) -> gpo_run { return rung; }

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "one element per thread", RUNG(elementwise_v0)),
    gpo_row<every_type>("v1", "packs of up to 16 bytes, two halves at a time",
                        RUNG(elementwise_v1)),
    gpo_row<every_type>("v2", "peeled misalignment, packs in flight, rows",
                        RUNG(elementwise_v2)),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* From times on an H200: benchmarks/results/h200-elementwise.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    if (elementwise_has_rows(*elementwise_plan_of(call))) {
        GPO_SAY(why, "v2 reads packs where the last axis is contiguous or repeated");
        return &variants[2];
    }
    GPO_SAY(why,
            "an operand has strides on the last axis, or it is short: v0 takes any");
    return &variants[0];
}

extern "C" const gpo_table elementwise_cuda = {variants, choose};
