/*
 * cuda.cu  The table of partition_reduce on CUDA: the ladder (ladder/), the shape
 * kernel (shapes/) and the choice.  v0, v1 and v2 are methods B, C and A of the source
 * document, in the order of how they use atomics; v3 needs none.
 * See sums.cuh for terms and indices, op.c for the contract.
 */
#include "ladder/v0_global_atomics.cuh"
#include "ladder/v1_shared_atomics.cuh"
#include "ladder/v2_private_copies.cuh"
#include "ladder/v3_no_atomics.cuh"

#include <stdio.h>

/* ---- table ---- */

#define RUNG(rung) \
    [](auto t) -> gpo_run { return run_rung<rung, typename decltype(t)::type>; }

using summed_types = gpo_types<int32_t, int64_t, f16, bf16, float, double, c64, c128>;

enum { V3 = 3, SHORT_LOOPS, FEW_BITS_ROW, FEW_SUMS_ROW, ANY_ORDER };

static const gpo_variant variants[] = {
    gpo_row<summed_types>("v0", "one global atomic per element",
                          RUNG(partition_reduce_v0), "no"),
    gpo_row<summed_types>("v1", "shared-memory atomics, then global ones",
                          RUNG(partition_reduce_v1), "no"),
    gpo_row<summed_types>("v2", "private copies per block, then a second kernel",
                          RUNG(partition_reduce_v2), "no"),
    gpo_row<summed_types>("v3", "atomic-free: kept and reduced bits told apart",
                          RUNG(partition_reduce_v3)),
    gpo_shape(gpo_row<summed_types>("short_loops", "a warp takes several tiles",
                                    RUNG(short_loops)),
              "sums over fewer than 3 bits of an index above those of a warp's load",
              has_short_loops),
    gpo_shape(gpo_row<summed_types>("few_bits",
                                    "a thread for each sum or 16 bytes of them",
                                    RUNG(few_bits)),
              "sums over 1 to 4 bits, the others in ascending order", has_few_bits),
    gpo_shape(gpo_row<summed_types>("few_sums", "a block for each sum", RUNG(few_sums)),
              "at most 512 sums of at most 4,096 elements", has_few_sums),
    gpo_shape(gpo_row<summed_types>("any_order",
                                    "a block puts its sums in the order of the result",
                                    RUNG(any_order)),
              "at least 8 tiles of whole packs, sums as those of short_loops",
              has_any_order),
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/* ---- choice, by benchmarks/results/h200-partition_reduce.json ---- */

/* Whether any_order is faster than short_loops, by some 170 calls on an H200: sums of 8 bytes, large
   x (2^25 float64 173 us, 132); of 4 bytes 2^23 took 24 and 28. */
static bool
any_order_pays(const gpo_call *call)
{
    constexpr int64_t BYTES = INT64_C(1) << 24;
    const partition_plan &plan = *partition_plan_of(call);
    return has_any_order(call) && gpo_dtypes[plan.out_dtype].bytes == 8 &&
           gpo_dtypes[plan.dtype].bytes * bit_at(plan.n) >= BYTES;
}

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    if (has_few_bits(call)) {
        GPO_SAY(why, "few_bits: a thread has all elements of its sums in flight");
        return &variants[FEW_BITS_ROW];
    }
    if (few_sums_pays(call)) {
        GPO_SAY(why,
                "few_sums: a block for each of few sums, whose code is the shortest");
        return &variants[FEW_SUMS_ROW];
    }
    if (any_order_pays(call)) {
        GPO_SAY(why, "any_order: whole lines of x, and runs of neighbouring sums");
        return &variants[ANY_ORDER];
    }
    if (has_short_loops(call)) {
        GPO_SAY(why,
                "short_loops: under 8 loads of a warp make a result, and no atomics");
        return &variants[SHORT_LOOPS];
    }
    GPO_SAY(why, "v3 reads x once, needs no atomics and gives the same bits each run");
    return &variants[V3];
}

extern "C" const gpo_table partition_reduce_cuda = {variants, choose};
