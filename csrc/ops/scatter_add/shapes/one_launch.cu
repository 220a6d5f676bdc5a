/*
 * one_launch.cu  Few elements: one launch checks the indices, clears out and adds.
 * Each block checks all indices, so that none writes before they are known to be good,
 * and tells the host while it goes on.  It then sorts the elements of its own places in
 * shared memory and adds them in that order: no atomics, one rounding.
 * Cost:  the indices once per block of 8,192 places, the values once.
 */
#include "../../../device/few_sums.cuh"
#include "../frame.cuh"

static_assert(MOST_ELEMENTS == FEW, "few_sums.cuh sorts so many");

/* A sum as an element of out: integers have 64 bits there. */
template <typename T, typename Sum>
__device__ __forceinline__ auto
rounded(Sum sum)
{
    if constexpr (std::is_same_v<Sum, uint64_t>) {
        return sum;
    }
    else if constexpr (IS_COMPLEX<T>) {
        using Real = decltype(T::re);
        return T{static_cast<Real>(sum.re), static_cast<Real>(sum.im)};
    }
    else if constexpr (sizeof(T) == 2) {
        return stored_as<T>(rounded_to_odd(sum));
    }
    else {
        return static_cast<T>(sum);
    }
}

template <typename Input, typename Out>
__global__ void
__launch_bounds__(FEW_THREADS)
    scatter_add_one_launch_kernel(Input x, int bits, Out *out, uint64_t *answer)
{
    using Sum = typename Input::Sum;
    GPO_SHARED(uint32_t, key, [FEW]);
    GPO_SHARED(uint16_t, entry, [FEW]);
    GPO_SHARED(uint4, space, [FEW_SPACE]);
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
    for (int i = tid; i < n; i += FEW_THREADS) {
        const int64_t k = x.place(x.index[i * x.index_stride], i) - begin;
        key[i] = static_cast<uint32_t>(k >= 0 && k < places ? k : places);
    }
    __syncthreads();
    const unsigned long long first_bad = bad[0];
    if (answer != nullptr && blockIdx.x == 0 && tid == 0) {
        tell_host(answer, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }
    for (int k = tid; k < places; k += FEW_THREADS) {
        out[begin + k] = Out{};
    }
    few_sort(&key[0], &entry[0], &space[0], n, bits);
    few_runs<Sum>(
        &key[0], &entry[0], &space[0], n, 1,
        [&](int i) { return x.lift(x.values[i * x.values_stride]); },
        [&](uint32_t k, Sum sum) {
            if (k < static_cast<unsigned>(places)) {
                out[begin + k] = rounded<typename Input::T>(sum);
            }
        });
}

template <typename T, typename I>
static gpo_status
run_few(gpo_call *call, const scatter_add_frame &f, uint64_t *answer)
{
    using Input = scatter_add_input<T, I>;
    using Out = decltype(rounded<T>(typename Input::Sum{}));
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const int64_t largest = plan.size < PLACES ? plan.size : PLACES;
    int bits = 0;
    while (largest >> bits > 0) {
        bits++;
    }
    const dim3 grid(static_cast<unsigned>(ceil_div(plan.size, PLACES)));
    return GPO_LAUNCH(
        call, grid, FEW_THREADS, 0, (scatter_add_one_launch_kernel<Input, Out>),
        (input_of<T, I>(call, f)), bits, static_cast<Out *>(call->out[0].data), answer);
}

template <typename T>
gpo_status
scatter_add_one_launch(gpo_call *call)
{
    const bool raises = scatter_add_plan_of(call)->mode == GPO_INDEX_RAISE;
    scatter_add_frame f = {};
    uint64_t *answer = nullptr, place = NONE_BAD;
    gpo_status status = raises ? gpo_may_wait(call) : GPO_OK;
    if (!status) {
        status = make_lines(call, &f);
    }
    if (!status && raises) {
        status = gpo_question(call, &answer);
    }
    if (!status) {
        status = call->in[SCATTER_ADD_INDEX].dtype == GPO_I32
                     ? run_few<T, int32_t>(call, f, answer)
                     : run_few<T, int64_t>(call, f, answer);
    }
    if (!status && raises) {
        status = gpo_answer(call, answer, &place);
    }
    return status || place == NONE_BAD ? status : refuse(call, f, place);
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
