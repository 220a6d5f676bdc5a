/*
 * flat.cuh  Whether v1 reads packs: operands that are contiguous and aligned, or scalars.
 */
#ifndef GPO_ELEMENTWISE_FLAT_CUH
#define GPO_ELEMENTWISE_FLAT_CUH

#include "rungs.cuh"

/* Bit k: operand k is a scalar. */
inline unsigned
elementwise_scalars(const elementwise_plan &plan)
{
    unsigned scalars = 0;
    for (int k = 0; k < plan.inputs; k++) {
        scalars |= elementwise_is_scalar(&plan, k) ? 1u << k : 0u;
    }
    return scalars;
}

/* Elements of a pack: of 16 bytes of the widest of the result and the operands. */
inline int
elementwise_pack(const elementwise_plan &plan)
{
    int widest = gpo_dtypes[plan.to].bytes;
    for (int k = 0; k < plan.inputs; k++) {
        widest = plan.bytes[k] > widest ? plan.bytes[k] : widest;
    }
    return 16 / widest;
}

/* Whether v1 reads packs of `pack` elements, each aligned; else it runs v0. */
inline bool
elementwise_is_packed(const gpo_call *call, int pack)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const unsigned scalars = elementwise_scalars(plan);
    const uintptr_t out = reinterpret_cast<uintptr_t>(result<void>(call));
    bool packed = elementwise_is_flat(&plan) &&
                  out % (static_cast<size_t>(pack) * gpo_dtypes[plan.to].bytes) == 0;
    for (int k = 0; k < plan.inputs; k++) {
        const uintptr_t at = reinterpret_cast<uintptr_t>(operand<void>(call, k));
        const bool good = at % (static_cast<size_t>(pack) * plan.bytes[k]) == 0;
        packed = packed && (good || (scalars >> k & 1u));
    }
    return packed;
}

#endif
