/*
 * cuda.cu  The table of elementwise on CUDA and the choice.
 * See ladder/ for the rungs, kernels.cuh for functors, packs and the tables of kernels,
 * arithmetic.cuh for what the functors compute, op.c for the contract.
 */
#include "../../device/types.cuh"
#include "any_strides.cuh"

#include <stdio.h>
#include <string_view>

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

/* The element types of each functor in functors.def. */
static constexpr std::string_view types_of[] = {
#define FUNCTOR(name, inputs, types, expression) #types,
#include "functors.def"
#undef FUNCTOR
};

/* Whether v2 clips between two numbers, which are no operands then. */
static bool
is_bounded(const elementwise_plan &plan)
{
    return plan.functor == ELEMENTWISE_clip && elementwise_is_scalar(&plan, 1) &&
           elementwise_is_scalar(&plan, 2);
}

/*
 * Whether packs of any_strides, one of a thread and each aligned, beat v1 and v2, whose
 * threads have several: operands of 4 bytes and more, contiguous, numbers, or columns.  On
 * an H200 248 million float32 plus a number 233 us, v2 237, sqrt of 134 million 252 and 262;
 * divisions, which are long, from MIDDLE_BYTES on: of 33,554,432 float32 by a number 64.5,
 * v1 69.3; columns: minimum of (128, 75839) float64 and a column 39.2, v2 44.2.
 */
static bool
are_single_packs(const gpo_call *call, const elementwise_plan &plan, int64_t bytes)
{
    constexpr int64_t MANY_IN_COLUMNS = 1 << 20;
    const int pack = elementwise_pack(plan), last = plan.ndim - 1;
    bool good = plan.inputs <= 2 && gpo_dtypes[plan.to].bytes >= 4 &&
                elementwise_has_rows(plan) && elementwise_has_strided_packs(plan) &&
                elementwise_has_offsets(plan);
    const bool divides = plan.functor == ELEMENTWISE_divide &&
                         elementwise_is_scalar(&plan, plan.inputs - 1);
    bool has_column = false;
    for (int k = 0; k < plan.inputs; k++) {
        const bool is_number = elementwise_is_scalar(&plan, k);
        const bool is_column = !is_number && plan.strides[k][last] == 0;
        const uintptr_t at = reinterpret_cast<uintptr_t>(operand<void>(call, k));
        const bool is_aligned = at % (static_cast<size_t>(pack) * plan.bytes[k]) == 0;
        good = good && plan.bytes[k] >= 4 &&
               (is_number || is_column ||
                (elementwise_lies_as_result(plan, k) && is_aligned));
        has_column = has_column || is_column;
    }
    return good && (has_column ? plan.size > MANY_IN_COLUMNS
                               : bytes > (divides ? MIDDLE_BYTES : SMALL_BYTES));
}

/* Whether v2's loads, all before the first store, are sooner than v1's from MIDDLE_BYTES on:
   clip of 10,869,871 float32 22.5 us on an H200, v1 23.7, 35,053,998 to float16 49.1 and 51. */
static bool
is_for_packs_in_flight(const elementwise_plan &plan)
{
    const bool narrows = plan.functor == ELEMENTWISE_cast &&
                         gpo_dtypes[plan.to].bytes < gpo_dtypes[plan.type].bytes;
    return narrows || is_bounded(plan);
}

/* From times on an H200: benchmarks/results/h200-elementwise.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    int64_t bytes = gpo_dtypes[plan.to].bytes;
    for (int k = 0; k < plan.inputs; k++) {
        bytes += elementwise_is_scalar(&plan, k) ? 0 : plan.bytes[k];
    }
    bytes *= plan.size;
    if (plan.size <= FEW_RESULTS && is_repeated(call, plan)) {
        GPO_SAY(why, "few elements, one of them for many: v0, the shortest code");
        return &variants[0];
    }
    const bool is_fresh = call->out_given[0] == GPO_NONE; /* then out is aligned */
    const bool is_packed =
        is_fresh && elementwise_is_packed(call, elementwise_pack(plan));
    if (is_packed && plan.type == GPO_F64 && types_of[plan.functor] == "SMOOTH") {
        GPO_SAY(why, "v1: the arithmetic of float64 takes longer than its bytes");
        return &variants[1];
    }
    if (is_fresh && are_single_packs(call, plan, bytes)) {
        GPO_SAY(why, "any_strides: a thread for each pack of many bytes, of a division "
                     "or of a column");
        return &variants[3];
    }
    if (is_packed && bytes <= SMALL_BYTES &&
        !(bytes > MIDDLE_BYTES && is_for_packs_in_flight(plan))) {
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
