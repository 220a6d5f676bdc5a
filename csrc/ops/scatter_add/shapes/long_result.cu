/*
 * long_result.cu  Sums that L2 does not hold: the result is cut into ranges of places
 * that it holds, and a launch for each adds the elements that go there.  An atomic whose
 * sum is not in L2 waits for memory: v0 makes 28 of them per nanosecond into 66 MB on an
 * H200, 65 into 33 MB.
 * Cost:  v0's atomics; the index once per range, and most of the values.
 */
#include "../copies.cuh"
#include "../frame.cuh"

template <typename Input, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_long_result_kernel(Input x, int64_t begin, int64_t end, Sum *total)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= x.n) {
        return;
    }
    const int64_t at = x.place(x.index[i * x.index_stride], i);
    if (at >= begin && at < end) {
        atomic_add(&total[at], x.lift(x.values[i * x.values_stride]));
    }
}

struct scatter_add_by_ranges {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const dim3 grid(static_cast<unsigned>(ceil_div(x.n, BLOCK)));
        const int64_t ranges = scatter_add_ranges(call, sizeof(Sum));
        const int64_t each = ceil_div(x.size, ranges);
        gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
        for (int64_t begin = 0; begin < x.size && !status; begin += each) {
            status = GPO_LAUNCH(call, grid, BLOCK, 0,
                                (scatter_add_long_result_kernel<Input, Sum>), x, begin,
                                begin + each, total);
        }
        return status;
    }
};

template <typename T>
gpo_status
scatter_add_long_result(gpo_call *call)
{
    return scatter_add_with<scatter_add_by_ranges, T>(call);
}

template gpo_status scatter_add_long_result<uint8_t>(gpo_call *call);
template gpo_status scatter_add_long_result<uint16_t>(gpo_call *call);
template gpo_status scatter_add_long_result<uint32_t>(gpo_call *call);
template gpo_status scatter_add_long_result<uint64_t>(gpo_call *call);
template gpo_status scatter_add_long_result<f16>(gpo_call *call);
template gpo_status scatter_add_long_result<bf16>(gpo_call *call);
template gpo_status scatter_add_long_result<float>(gpo_call *call);
template gpo_status scatter_add_long_result<double>(gpo_call *call);
template gpo_status scatter_add_long_result<c64>(gpo_call *call);
template gpo_status scatter_add_long_result<c128>(gpo_call *call);
