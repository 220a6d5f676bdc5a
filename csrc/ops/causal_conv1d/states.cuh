/*
 * states.cuh  Rows behind a state: steps -(K - 1) to -1, then those of x.
 * See calls.cuh for their use, common.cu for the kernel.
 */
#ifndef GPO_CAUSAL_CONV1D_STATES_CUH
#define GPO_CAUSAL_CONV1D_STATES_CUH

#include "rows.cuh"

/*
 * Of rows of `kept` steps of the state, zeros if it has no memory, and then those of x,
 * `steps` steps from step `from` on, counted from the first of the state.
 */
template <typename T>
struct joined_rows {
    row_view<const T> state, x;
    int64_t batches, channels, kept, from, steps;
};

/* Copies them. */
template <typename T>
gpo_status join_rows(gpo_call *call, const joined_rows<T> &rows, row_view<T> to);

#endif
