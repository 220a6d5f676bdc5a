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

/* The state after the last step, for kernels that write it; p is NULL if nobody asked. */
struct later_steps {
    void *p;
    int64_t b, c, t;
    int kept; /* steps */

    /* Its first step. */
    template <typename T>
    __device__ __forceinline__ T *row(int64_t batch, int64_t channel) const
    {
        return static_cast<T *>(p) + batch * b + channel * c;
    }
};

inline later_steps
later_steps_of(const gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    if (!p.returns_state || p.taps == 1) {
        return {};
    }
    return {conv_arrays_of(call).last, p.last.b, p.last.c, p.last.t,
            static_cast<int>(p.taps - 1)};
}

/* Copies them. */
template <typename T>
gpo_status join_rows(gpo_call *call, const joined_rows<T> &rows, row_view<T> to);

/* The rows of x behind the call's state, from step `from` on. */
template <typename T>
static joined_rows<T>
joined_of(const gpo_call *call, int64_t from, int64_t steps)
{
    const conv_plan &p = *conv_plan_of(call);
    const conv_arrays arrays = conv_arrays_of(call);
    joined_rows<T> rows = {};
    rows.state = {static_cast<const T *>(arrays.state), p.state.b, p.state.c,
                  p.state.t};
    rows.x = {static_cast<const T *>(arrays.x), p.x.b, p.x.c, p.x.t};
    rows.batches = p.batches;
    rows.channels = p.channels;
    rows.kept = p.taps - 1;
    rows.from = from;
    rows.steps = steps;
    return rows;
}

/* The state after the last step of a call, if it returns one. */
template <typename T>
gpo_status
write_last_state(gpo_call *call)
{
    const conv_plan &p = *conv_plan_of(call);
    if (!p.returns_state) {
        return GPO_OK;
    }
    return join_rows(
        call, joined_of<T>(call, p.steps, p.taps - 1),
        {static_cast<T *>(conv_arrays_of(call).last), p.last.b, p.last.c, p.last.t});
}

#endif
