/*
 * v0  One thread per channel of a sequence.
 * Now:   a thread reads the K - 1 steps of its state and its steps of x, writes its
 *        results, then moves its state on: nobody else touches it, so that may be in
 *        place.
 * Cost:  reads state, x and w once for each step they enter (later reads hit L1),
 *        writes y and the state.
 * Left:  neighbouring threads are S steps apart in a state of shape (N, C, S).
 */
#ifndef GPO_CAUSAL_CONV1D_UPDATE_V0_THREAD_PER_CHANNEL_CUH
#define GPO_CAUSAL_CONV1D_UPDATE_V0_THREAD_PER_CHANNEL_CUH

#include "../update.cuh"

template <typename T>
__global__ void
causal_conv1d_update_v0_thread_per_channel(update_view<T> u)
{
    using V = value_type<T>;
    const int64_t all = u.v.batches * u.v.channels;
    const int64_t stride = static_cast<int64_t>(gridDim.x) * UPDATE_BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * UPDATE_BLOCK + threadIdx.x;
         i < all; i += stride) {
        const int64_t b = i / u.v.channels, c = i - b * u.v.channels;
        const int64_t row = u.row_of(b);
        if (row < 0) {
            u.note(b);
            continue;
        }
        const T *state = u.state.row(row, c), *x = u.v.x.row(b, c);
        T *next = u.next.row(row, c);
        for (int64_t t = 0; t < u.v.steps; t++) {
            V total = 0;
            for (int64_t k = 0; k < u.v.lags; k += TERMS) {
                const int64_t end = u.v.lags - k < TERMS ? u.v.lags : k + TERMS;
                V sum = 0;
                for (int64_t s = k; s < end; s++) {
                    sum += u.v.w_at(c, s) *
                           static_cast<V>(value_of(u.step(state, x, u.kept + t - s)));
                }
                total += sum;
            }
            u.v.put(b, c, t, total);
        }
        for (int64_t k = 0; k < u.kept; k++) { /* ascending: it may be in place */
            next[k * u.next.t] = u.step(state, x, k + u.v.steps);
        }
    }
}

template <typename T>
static gpo_status
update_v0(gpo_call *call, const update_view<T> &u)
{
    const int64_t all = u.v.batches * u.v.channels;
    return GPO_LAUNCH(call, grid_of(ceil_div(all, UPDATE_BLOCK)), UPDATE_BLOCK, 0,
                      (causal_conv1d_update_v0_thread_per_channel<T>), u);
}

#endif
