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

/* The state of a call for kernels that read it where it is; p is NULL without one. */
struct earlier_steps {
    const void *p;
    int64_t b, c, t, kept;

    /* Where step 0 of a row would be behind its state. */
    template <typename T>
    __device__ __forceinline__ const T *before(int64_t batch, int64_t channel) const
    {
        return static_cast<const T *>(p) + batch * b + channel * c + kept * t;
    }
};

inline earlier_steps
earlier_steps_of(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    if (!p.has_state || p.taps == 1) {
        return {};
    }
    return {conv_arrays_of(call).state, p.state.b, p.state.c, p.state.t, p.taps - 1};
}

/* Copies them. */
template <typename T>
gpo_status join_rows(gpo_call *call, const joined_rows<T> &rows, row_view<T> to);

#endif
