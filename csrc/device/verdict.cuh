/*
 * verdict.cuh  The host learns whether kernels met an index out of bounds (verdict.cu).
 */
#ifndef GPO_VERDICT_CUH
#define GPO_VERDICT_CUH

#include "index.cuh"

/* *place = *bad after the kernels before; NONE_BAD if no index was out of bounds. */
gpo_status wait_for_verdict(gpo_call *call, const unsigned long long *bad,
                            uint64_t *place);

/* Indices of a call, good if low <= index < high. */
struct index_line {
    const void *at;
    int64_t step, count, low, high;
    bool is_wide; /* 64 bits, else 32 */
    bool is_unsigned;
};

/* So many are checked before the other kernels, which the host need not wait for. */
constexpr int64_t CHECKED_FIRST = 1 << 20;

/*
 * Launches the check; gpo_answer tells the first bad position, or NONE_BAD.  So does
 * *place, in memory of the device, to kernels that start later; it may be NULL.
 */
gpo_status ask_verdict(gpo_call *call, const index_line &line, uint64_t **answer,
                       unsigned long long *place);

/* The index of a call at `at`, which was out of bounds. */
gpo_status fetch_index(gpo_call *call, const void *index, bool is_wide, int64_t at,
                       int64_t *value);

#endif
