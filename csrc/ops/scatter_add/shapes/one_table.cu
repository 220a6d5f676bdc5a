/*
 * one_table.cu  Few elements, in any order: one launch checks the indices, adds and rounds.
 * Each block checks all indices, so that none writes before they are known to be good,
 * and tells the host while it goes on.  It then adds the elements of its own places into a
 * table in shared memory by atomics, of which lanes of one place send one.
 * Cost:  the indices and values once per block of 4,096 places; no sums in memory.
 */
#include "../few.cuh"
#include "../neighbours.cuh"

template <typename Input, int ITEMS>
__global__ void
__launch_bounds__(FEW_THREADS)
    scatter_add_one_table_kernel(Input x, result_of<typename Input::T> *out,
                                 verdict_word verdict)
{
    using T = typename Input::T;
    using Sum = typename Input::Sum;
    GPO_DYN_SHARED(Sum, table);
    GPO_SHARED(unsigned long long, bad, [1]);
    const int tid = threadIdx.x, n = static_cast<int>(x.n);
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * TABLE_PLACES;
    const int places =
        static_cast<int>(begin + TABLE_PLACES < x.size ? TABLE_PLACES : x.size - begin);

    int64_t raw[ITEMS];
    T value[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int i = j * FEW_THREADS + tid;
        raw[j] = i < n ? x.raw(i) : 0;
        value[j] = i < n ? x.values[i * x.values_stride] : T{};
    }
    if (tid == 0) {
        bad[0] = NONE_BAD;
    }
#pragma unroll 1
    for (int k = tid; k < places; k += FEW_THREADS) {
        table[k] = Sum{};
    }
    __syncthreads();
    x.bad = &bad[0];
    uint32_t key[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int i = j * FEW_THREADS + tid;
        const int64_t k = i < n ? x.place(raw[j], i) - begin : -1;
        key[j] = static_cast<uint32_t>(k >= 0 && k < places ? k : places);
    }
    __syncthreads();
    const unsigned long long first_bad = bad[0];
    if (blockIdx.x == 0 && tid == 0) {
        tell_verdict(verdict, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        Sum sum = x.lift(value[j]);
        if (joined_anywhere(key[j], key[j] != static_cast<uint32_t>(places), &sum,
                            WARP + 1)) {
            add_to_table(&table[key[j]], sum);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int k = tid; k < places; k += FEW_THREADS) {
        out[begin + k] = rounded<T>(table[k]);
    }
}

struct scatter_add_tabled {
    static constexpr bool DETERMINISTIC = false;

    template <typename T>
    static gpo_status run(gpo_call *call, const scatter_add_frame &f,
                          const verdict_word &verdict)
    {
        using Input = scatter_add_input<T, int64_t>;
        const scatter_add_plan &plan = *scatter_add_plan_of(call);
        const int64_t places = plan.size < TABLE_PLACES ? plan.size : TABLE_PLACES;
        const size_t bytes = static_cast<size_t>(places) * sizeof(typename Input::Sum);
        const dim3 grid = blocks_of_places(plan.size, TABLE_PLACES);
        const Input x = input_of<T, int64_t>(call, f);
        result_of<T> *const out = static_cast<result_of<T> *>(call->out[0].data);
        gpo_allow_shared(scatter_add_one_table_kernel<Input, 1>, bytes);
        gpo_allow_shared(scatter_add_one_table_kernel<Input, MOST_ITEMS>, bytes);
        return plan.n <= FEW_THREADS
                   ? GPO_LAUNCH(call, grid, FEW_THREADS, bytes,
                                (scatter_add_one_table_kernel<Input, 1>), x, out,
                                verdict)
                   : GPO_LAUNCH(call, grid, FEW_THREADS, bytes,
                                (scatter_add_one_table_kernel<Input, MOST_ITEMS>), x,
                                out, verdict);
    }
};

template <typename T>
gpo_status
scatter_add_one_table(gpo_call *call)
{
    return run_few<scatter_add_tabled, T>(call);
}

template gpo_status scatter_add_one_table<uint8_t>(gpo_call *call);
template gpo_status scatter_add_one_table<uint16_t>(gpo_call *call);
template gpo_status scatter_add_one_table<uint32_t>(gpo_call *call);
template gpo_status scatter_add_one_table<uint64_t>(gpo_call *call);
template gpo_status scatter_add_one_table<f16>(gpo_call *call);
template gpo_status scatter_add_one_table<bf16>(gpo_call *call);
template gpo_status scatter_add_one_table<float>(gpo_call *call);
template gpo_status scatter_add_one_table<double>(gpo_call *call);
template gpo_status scatter_add_one_table<c64>(gpo_call *call);
template gpo_status scatter_add_one_table<c128>(gpo_call *call);
