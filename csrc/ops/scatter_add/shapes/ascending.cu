/*
 * ascending.cu  Floats below 64 bits into more places than elements.  long_result clears a
 * float64 sum for each place and reads it again, 20 bytes of traffic for each of float32;
 * if the index ascends, the elements of a place are side by side, and the thread of the
 * first adds them up and stores the rounded sum.  Whether it does is found out first, in the
 * kernel that clears the result, whose blocks end as soon as one has met a descent; then
 * the others do as long_result does.
 * Cost:  of an ascending index with short runs, the index twice, the values once, the result
 *        cleared; of another, long_result's and one launch.
 */
#include "../../../device/block.cuh"
#include "../few.cuh"
#include "../ranges.cuh"

/*
 * Clears out, unless the index descends, is out of bounds or has more than LONGEST_RUN
 * elements of one place: then *other becomes 1, else 0.  The counters are the stream's: a
 * ticket, and whether a block has met such an element.
 */
template <typename Input, typename Result>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_ascending_look(Input x, unsigned *counters, unsigned *other,
                               Result *out, bool in_packs)
{
    GPO_SHARED(bool, flag, [1]);
    if (threadIdx.x == 0) {
        flag[0] = atomicOr(&counters[1], 0u) != 0;
        if (blockIdx.x == 0 && x.fresh != nullptr) {
            *x.fresh = NONE_BAD;
        }
    }
    __syncthreads();
    bool good = !flag[0];
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t begin = first; begin < x.n && good; begin += LOOKED_AT * step) {
        int64_t place[LOOKED_AT], before[LOOKED_AT], far[LOOKED_AT];
#pragma unroll
        for (int j = 0; j < LOOKED_AT; j++) {
            const int64_t i = begin + j * step;
            const typename Input::I *const at = x.index + i * x.index_stride;
            const bool is_element = i < x.n;
            place[j] = is_element ? at[0] : 0;
            before[j] = is_element && i > 0 ? at[-x.index_stride] : 0;
            far[j] =
                is_element && i >= LONGEST_RUN ? at[-LONGEST_RUN * x.index_stride] : -1;
        }
#pragma unroll
        for (int j = 0; j < LOOKED_AT; j++) {
            good = good &&
                   static_cast<uint64_t>(place[j]) < static_cast<uint64_t>(x.size) &&
                   before[j] <= place[j] && far[j] != place[j];
        }
    }
    const bool is_other = __syncthreads_or(!good) != 0;
    if (is_other && threadIdx.x == 0) {
        atomicOr(&counters[1], 1u);
    }
    constexpr int64_t SIZE = 16 / sizeof(Result);
    const int64_t packs = in_packs ? x.size / SIZE : 0;
    if (!is_other) {
        for (int64_t k = first; k < packs; k += step) {
            reinterpret_cast<uint4 *>(out)[k] = uint4{};
        }
        for (int64_t k = packs * SIZE + first; k < x.size; k += step) {
            out[k] = Result{};
        }
    }
    if (is_last_block(&counters[0], gridDim.x, flag) && threadIdx.x == 0) {
        *other = atomicExch(&counters[1], 0u);
    }
}

/* The sums of an ascending index, unless *other: then total = 0. */
template <typename Input, typename Sum, typename Result>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_ascending_sum(Input x, const unsigned *other, Sum *total, Result *out)
{
    static_assert(sizeof(Sum) == 8, "two to a store");
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (*other != 0) {
        const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
        for (int64_t k = i; k < x.size / 2; k += step) {
            reinterpret_cast<uint4 *>(total)[k] = uint4{};
        }
        if (i == 0 && x.size % 2 != 0) {
            total[x.size - 1] = Sum{};
        }
        return;
    }
    if (i >= x.n) {
        return;
    }
    const int64_t left = x.n - i < LONGEST_RUN ? x.n - i : LONGEST_RUN;
    const typename Input::I *const at = x.index + i * x.index_stride;
    const typename Input::T *const value = x.values + i * x.values_stride;
    const int64_t place = at[0];
    const int64_t before = i > 0 ? at[-x.index_stride] : -1;
    int64_t next = left > 1 ? at[x.index_stride] : -1;
    Sum sum = Sum{} + x.lift(value[0]); /* -0 becomes 0 */
    if (before == place ||
        static_cast<uint64_t>(place) >= static_cast<uint64_t>(x.size)) {
        return;
    }
    for (int64_t k = 1; next == place; k++) {
        sum = sum + x.lift(value[k * x.values_stride]);
        next = k + 1 < left ? at[(k + 1) * x.index_stride] : -1;
    }
    out[place] = rounded<typename Input::T>(sum);
}

/* out = total, if *other. */
template <typename T, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_ascending_round(const unsigned *other, const Sum *total, int64_t size,
                                result_of<T> *out)
{
    if (*other == 0) {
        return;
    }
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * BLOCK * ROUNDED_ITEMS + threadIdx.x;
    Sum sum[ROUNDED_ITEMS];
#pragma unroll
    for (int j = 0; j < ROUNDED_ITEMS; j++) {
        const int64_t k = first + j * BLOCK;
        sum[j] = k < size ? total[k] : Sum{};
    }
#pragma unroll
    for (int j = 0; j < ROUNDED_ITEMS; j++) {
        const int64_t k = first + j * BLOCK;
        if (k < size) {
            out[k] = rounded<T>(sum[j]);
        }
    }
}

template <typename T, typename I>
static gpo_status
run(gpo_call *call, const scatter_add_frame &f)
{
    using Input = scatter_add_input<T, I>;
    using Sum = typename Input::Sum;
    const Input x = input_of<T, I>(call, f);
    Sum *const total = static_cast<Sum *>(f.sums.data);
    result_of<T> *const out = static_cast<result_of<T> *>(call->out[0].data);
    const bool in_packs = reinterpret_cast<uintptr_t>(out) % 16 == 0;
    const int64_t most = static_cast<int64_t>(gpo_processors(call)) * LOOKING_BLOCKS;
    const int64_t looks = ceil_div(x.n > x.size / 4 ? x.n : x.size / 4, BLOCK);
    const int64_t rounds = ceil_div(x.size, BLOCK * ROUNDED_ITEMS);
    const dim3 look(static_cast<unsigned>(clamp(looks, 1, most)));
    const int64_t clears = clamp(ceil_div(x.size, 2 * BLOCK), 1, MOST_CLEARING);
    const int64_t sums = ceil_div(x.n, BLOCK);
    const dim3 sum(static_cast<unsigned>(sums > clears ? sums : clears));
    const dim3 round(static_cast<unsigned>(clamp(rounds, 1, INT32_MAX)));
    unsigned *counters = nullptr;
    void *memory = nullptr;
    gpo_status status = gpo_tickets(call, &counters);
    if (!status) {
        status = gpo_scratch(call, sizeof(unsigned), &memory);
    }
    unsigned *const other = static_cast<unsigned *>(memory);
    if (!status) {
        status = GPO_LAUNCH(call, look, BLOCK, 0,
                            (scatter_add_ascending_look<Input, result_of<T>>), x,
                            counters, other, out, in_packs);
    }
    if (!status) {
        status = GPO_LAUNCH(call, sum, BLOCK, 0,
                            (scatter_add_ascending_sum<Input, Sum, result_of<T>>), x,
                            other, total, out);
    }
    if (!status) {
        status = add_by_ranges(call, x, total, other);
    }
    return status ? status
                  : GPO_LAUNCH(call, round, BLOCK, 0,
                               (scatter_add_ascending_round<T, Sum>), other, total,
                               x.size, out);
}

bool
scatter_add_may_ascend(const gpo_call *call)
{
    const gpo_dtype dtype = call->in[SCATTER_ADD_VALUES].dtype;
    return gpo_dtypes[dtype].kind == 'f' && gpo_dtypes[dtype].bytes < 8 &&
           !scatter_add_plan_of(call)->late && scatter_add_plan_of(call)->size > 0;
}

template <typename T>
gpo_status
scatter_add_ascending(gpo_call *call)
{
    scatter_add_frame f;
    gpo_status status = open_frame(call, false, &f);
    if (!status) {
        status = call->in[SCATTER_ADD_INDEX].dtype == GPO_I32
                     ? run<T, int32_t>(call, f)
                     : run<T, int64_t>(call, f);
    }
    f.apart = false; /* the result is rounded already */
    return status ? status : close_frame(call, f);
}

template gpo_status scatter_add_ascending<f16>(gpo_call *call);
template gpo_status scatter_add_ascending<bf16>(gpo_call *call);
template gpo_status scatter_add_ascending<float>(gpo_call *call);
