/*
 * one_launch.cu  Few elements: one launch checks the indices, clears out and adds.
 * Each block checks all indices, so that none writes before they are known to be good,
 * and tells the host while it goes on.  It then sorts the elements of its own places in
 * shared memory and adds them in that order: no atomics, one rounding.
 * Cost:  the indices once per block of 8,192 places, the values once.
 */
#include "../few.cuh"

static_assert(MOST_ELEMENTS == FEW, "few_sums.cuh sorts so many");

template <typename Input, int ITEMS>
__global__ void
__launch_bounds__(FEW_THREADS)
    scatter_add_one_launch_kernel(Input x, few_digits key,
                                  result_of<typename Input::T> *out,
                                  verdict_word verdict)
{
    using T = typename Input::T;
    using Sum = typename Input::Sum;
    GPO_SHARED(few_space, space, [1]);
    GPO_SHARED(unsigned long long, bad, [1]);
    const int tid = threadIdx.x, n = static_cast<int>(x.n);
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * PLACES;
    const int places =
        static_cast<int>(begin + PLACES < x.size ? PLACES : x.size - begin);

    if (tid == 0) {
        bad[0] = NONE_BAD;
    }
    __syncthreads();
    x.bad = &bad[0];
    int64_t raw[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int i = j * FEW_THREADS + tid;
        raw[j] = i < n ? x.raw(i) : 0;
    }
    int kept = 0; /* elements that go to this block's places */
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int i = j * FEW_THREADS + tid;
        const bool is_element = i < n;
        const int64_t k = is_element ? x.place(raw[j], i) - begin : -1;
        const bool is_mine = k >= 0 && k < places;
        if (is_element) {
            space[0].key[i] = static_cast<uint32_t>(is_mine ? k : places);
        }
        kept += __syncthreads_count(is_mine);
    }
    const unsigned long long first_bad = bad[0];
    if (blockIdx.x == 0 && tid == 0) {
        tell_verdict(verdict, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }
#pragma unroll 2
    for (int k = tid; k < places; k += FEW_THREADS) {
        out[begin + k] = result_of<T>{};
    }
    if (kept == 0) {
        return;
    }
    few_sort<ITEMS>(&space[0], n, key);
    few_runs<Sum, ITEMS>(
        &space[0], kept, 0,
        [&](int i) { return x.lift(x.values[i * x.values_stride]); },
        [&](uint32_t k, Sum sum) { out[begin + k] = rounded<T>(sum); });
}

struct scatter_add_sorted {
    static constexpr bool DETERMINISTIC = true;

    template <typename T>
    static gpo_status run(gpo_call *call, const scatter_add_frame &f,
                          const verdict_word &verdict)
    {
        using Input = scatter_add_input<T, int64_t>;
        const scatter_add_plan &plan = *scatter_add_plan_of(call);
        const int64_t largest = plan.size < PLACES ? plan.size : PLACES;
        const few_digits key = few_digits_of(largest);
        const dim3 grid = blocks_of_places(plan.size, PLACES);
        const Input x = input_of<T, int64_t>(call, f);
        result_of<T> *const out = static_cast<result_of<T> *>(call->out[0].data);
        return plan.n <= FEW_THREADS
                   ? GPO_LAUNCH(call, grid, FEW_THREADS, 0,
                                (scatter_add_one_launch_kernel<Input, 1>), x, key, out,
                                verdict)
                   : GPO_LAUNCH(call, grid, FEW_THREADS, 0,
                                (scatter_add_one_launch_kernel<Input, MOST_ITEMS>), x,
                                key, out, verdict);
    }
};

template <typename T>
gpo_status
scatter_add_one_launch(gpo_call *call)
{
    return run_few<scatter_add_sorted, T>(call);
}

template gpo_status scatter_add_one_launch<uint8_t>(gpo_call *call);
template gpo_status scatter_add_one_launch<uint16_t>(gpo_call *call);
template gpo_status scatter_add_one_launch<uint32_t>(gpo_call *call);
template gpo_status scatter_add_one_launch<uint64_t>(gpo_call *call);
template gpo_status scatter_add_one_launch<f16>(gpo_call *call);
template gpo_status scatter_add_one_launch<bf16>(gpo_call *call);
template gpo_status scatter_add_one_launch<float>(gpo_call *call);
template gpo_status scatter_add_one_launch<double>(gpo_call *call);
template gpo_status scatter_add_one_launch<c64>(gpo_call *call);
template gpo_status scatter_add_one_launch<c128>(gpo_call *call);
