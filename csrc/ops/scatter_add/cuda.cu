/*
 * cuda.cu  The table of scatter_add on CUDA: the ladder (ladder/) and the choice.  v0,
 * v1 and v2 are the methods B, C and A of the source.
 * See frame.cuh for setup and checks, input.cuh for what an index means, op.c for the
 * contract.
 */
#include "costs.cuh"
#include "frame.cuh"
#include "ladder/v0_global.cuh"
#include "ladder/v1_shared.cuh"
#include "ladder/v2_private.cuh"
#include "ladder/v3_one_writer.cuh"
#include "ladder/v4_runs.cuh"

#include <stdio.h>

/* ---- table ---- */

#define RUNG(rung)                                                             \
    [](auto t) -> gpo_run {                                                    \
        return scatter_add_with<rung, carrier_of<typename decltype(t)::type>>; \
    }

#define SHAPE(run) \
    [](auto t) -> gpo_run { return run<carrier_of<typename decltype(t)::type>>; }

static bool
takes_all(const gpo_call *)
{
    return true;
}

using narrow_types = gpo_types<int32_t, uint32_t, f16, bf16, float>;
using wide_elements =
    gpo_types<int32_t, uint32_t, int64_t, uint64_t, f16, bf16, float, double>;

/* What buckets and ordered_buckets take. */
constexpr char IF_SPLIT[] = "up to 2^25 places, 160 KB of shared memory for a block, "
                            "and out= not given or no index an error";

enum {
    V0,
    V1,
    V2,
    V3,
    V4,
    ONE_LAUNCH,
    ONE_TABLE,
    LONG_RESULT,
    BUCKETS,
    ORDERED,
    ASCENDING
};

static const gpo_variant variants[] = {
    gpo_row<every_type>("v0", "one global atomic per element (method B)",
                        RUNG(scatter_add_v0), "no"),
    gpo_row<every_type>("v1", "shared-memory atomics, then global ones (method C)",
                        RUNG(scatter_add_v1), "no"),
    gpo_row<every_type>("v2",
                        "private copies per block, then a second kernel (method A)",
                        RUNG(scatter_add_v2), "no"),
    gpo_row<every_type>("v3", "one writer per table, no atomics", RUNG(scatter_add_v3)),
    gpo_row<every_type>("v4", "stable sort by place, then sums of runs",
                        RUNG(scatter_add_v4)),
    gpo_shape(gpo_row<every_type>("one_launch",
                                  "each block checks, sorts and adds: no second launch",
                                  SHAPE(scatter_add_one_launch)),
              "at most 4,096 elements", scatter_add_is_few),
    gpo_shape(
        gpo_row<every_type>("one_table",
                            "each block checks and adds in shared memory, and rounds",
                            SHAPE(scatter_add_one_table), "no"),
        "at most 4,096 elements", scatter_add_is_few),
    gpo_shape(gpo_row<every_type>("long_result",
                                  "one atomic for each place of a warp's elements",
                                  SHAPE(scatter_add_long_result), "no"),
              "every call; made for sums that no shared memory holds", takes_all),
    gpo_shape(gpo_row<wide_elements>(
                  "buckets",
                  "tiles ordered by ranges of places, a block for each range",
                  SHAPE(scatter_add_by_buckets), "no"),
              IF_SPLIT, scatter_add_may_split),
    gpo_shape(gpo_row<float_types>("ordered_buckets",
                                   "tiles and sums of buckets in one order, by warps",
                                   SHAPE(scatter_add_ordered_buckets)),
              IF_SPLIT, scatter_add_may_split),
    gpo_shape(
        gpo_row<narrow_types>("ascending",
                              "runs of an ascending index, no sums of all places",
                              SHAPE(scatter_add_ascending), "no"),
        "floats below 64 bits and 32-bit integers, if out= is not given or no index "
        "is an error",
        scatter_add_may_ascend),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by times on an H200: benchmarks/results/h200-scatter_add.json ---- */

/* So much more than long_result may ascending take, as it takes a third to a half of that where
   the index is sorted: 33,554,432 int32 into 4,309,009 133 us on an H200, long_result 373. */
constexpr double IF_SORTED = 1.25;

/* Whether buckets, or ascending in its place, is faster than long_result.  It was timed for
   up to eight elements for each place. */
static bool
is_split(const gpo_call *call)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const gpo_dtype_info &in = gpo_dtypes[call->in[SCATTER_ADD_VALUES].dtype];
    const bool is_whole = (in.kind == 'i' || in.kind == 'u') && in.bytes >= 4;
    const bool is_float = in.kind == 'f', ascends = scatter_add_may_ascend(call);
    const bool takes =
        ascends || ((is_whole || is_float) && plan.size >= LONG_RESULT_PLACES);
    return takes && scatter_add_may_split(call) && plan.n <= LONGEST_MEAN * plan.size &&
           time_of_buckets(plan, is_float, ascends) <
               (ascends ? IF_SORTED : 1) * time_of_long_result(plan, is_float);
}

/* Whether long_result is faster than one_table, which the check of an index keeps waiting. */
static bool
joins_sooner(const gpo_call *call)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    return !plan.deterministic && plan.n > ONE_TABLE_ELEMENTS &&
           (plan.mode != GPO_INDEX_RAISE || is_known(call, plan.size));
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const int own = gpo_dtypes[call->out[0].dtype].bytes;
    const char kind = gpo_dtypes[call->in[SCATTER_ADD_VALUES].dtype].kind;
    const int64_t sum_bytes = gpo_dtypes[call->out[0].dtype].kind == 'c' ? 16 : 8;
    if (scatter_add_is_few(call) && !joins_sooner(call)) {
        const bool sorts = plan.deterministic;
        GPO_SAY(why, "few elements: %s starts one kernel",
                variants[sorts ? ONE_LAUNCH : ONE_TABLE].name);
        return &variants[sorts ? ONE_LAUNCH : ONE_TABLE];
    }
    const bool orders = kind == 'f' && scatter_add_may_split(call);
    if (plan.deterministic &&
        plan.size * sum_bytes <= (orders ? FEW_TILES_BYTES : ORDERED_BYTES)) {
        GPO_SAY(why, "v3: deterministic=True, and so few sums take few tiles");
        return &variants[V3];
    }
    if (plan.deterministic && orders && plan.size <= ORDERED_PLACES) {
        GPO_SAY(why, "ordered_buckets: deterministic=True, and a warp for some hundred "
                     "places");
        return &variants[ORDERED];
    }
    if (plan.deterministic) {
        GPO_SAY(why, "v4: deterministic=True, and sums above 96 KB are worth a sort");
        return &variants[V4];
    }
    const int64_t table_bytes = plan.size * (own < 4 ? 4 : own);
    const bool is_small = table_bytes <= SMALL_BYTES && plan.n >= WORTH * plan.size;
    const int64_t sums = plan.size * sum_bytes;
    const bool has_many =
        (sums <= MANY_BYTES && plan.n >= MANY * plan.size) ||
        (sums <= ONE_TABLE_BYTES && plan.n >= MANY_OF_ONE * plan.size);
    if ((is_small || has_many) && plan.n > FEW_FOR_TABLES) {
        GPO_SAY(why, "v1: shared memory holds the sums, which have many elements for "
                     "each place");
        return &variants[V1];
    }
    if (is_split(call)) {
        if (scatter_add_may_ascend(call)) {
            GPO_SAY(why,
                    "ascending: short runs if the index ascends, else buckets, for "
                    "sums of many places");
            return &variants[ASCENDING];
        }
        GPO_SAY(why, "buckets: the sums of many places are made in shared memory");
        return &variants[BUCKETS];
    }
    GPO_SAY(why, "long_result: lanes of a warp that want one place add up before they "
                 "send an atomic");
    return &variants[LONG_RESULT];
}

extern "C" const gpo_table scatter_add_cuda = {variants, choose};
