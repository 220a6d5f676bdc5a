/*
 * verdict.cuh  The host learns whether kernels met an index out of bounds.
 */
#ifndef GPO_VERDICT_CUH
#define GPO_VERDICT_CUH

#include "index.cuh"

static __global__ void
tell_verdict(const unsigned long long *bad, uint64_t *answer)
{
    tell_host(answer, *bad);
}

/* *place = *bad after the kernels before; NONE_BAD if no index was out of bounds. */
static inline gpo_status
wait_for_verdict(gpo_call *call, const unsigned long long *bad, uint64_t *place)
{
    uint64_t *answer = nullptr;
    gpo_status status = gpo_question(call, &answer);
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), dim3(1), 0, tell_verdict, bad, answer);
    }
    return status ? status : gpo_answer(call, answer, place);
}

/* The index of a call at `at`, which was out of bounds. */
static inline gpo_status
fetch_index(gpo_call *call, const void *index, bool is_wide, int64_t at, int64_t *value)
{
    int32_t narrow = 0;
    if (is_wide) {
        return gpo_fetch(call, value, static_cast<const int64_t *>(index) + at,
                         sizeof *value);
    }
    const gpo_status status = gpo_fetch(
        call, &narrow, static_cast<const int32_t *>(index) + at, sizeof narrow);
    *value = narrow;
    return status;
}

#endif
