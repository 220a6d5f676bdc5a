/*
 * any_strides.cuh  Which calls elementwise's any_strides takes, on the host.
 */
#ifndef GPO_ELEMENTWISE_ANY_STRIDES_CUH
#define GPO_ELEMENTWISE_ANY_STRIDES_CUH

#include "flat.cuh"

/* The lowest and the highest offset of operand k from its first element. */
inline void
elementwise_reach(const elementwise_plan &plan, int k, int64_t *low, int64_t *high)
{
    *low = *high = 0;
    for (int d = 0; d < plan.ndim; d++) {
        const int64_t far = (plan.shape[d] - 1) * plan.strides[k][d];
        *(far < 0 ? low : high) += far;
    }
}

/* Whether a launch takes all axes, and offsets have 31 bits. */
inline bool
elementwise_has_offsets(const elementwise_plan &plan)
{
    bool good = plan.ndim <= FEW_AXES && plan.size <= MOST_OFFSET;
    for (int k = 0; k < plan.inputs && good && plan.size > 0; k++) {
        int64_t low, high;
        elementwise_reach(plan, k, &low, &high);
        good = -low <= MOST_OFFSET && high <= MOST_OFFSET;
    }
    return good;
}

/* Packs have 4 elements or more: 8 bytes take longer to move than to find. */
inline bool
elementwise_has_strided_packs(const elementwise_plan &plan)
{
    return elementwise_pack(plan) >= STRIDED_PACK;
}

gpo_status elementwise_any_strides(gpo_call *call);

#endif
