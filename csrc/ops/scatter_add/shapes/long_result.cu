/*
 * long_result.cu  Sums that no table in shared memory holds: an atomic for each place of
 * a warp's elements, a range of places at a time.
 * Lanes of one place add up their values first: atomics of one address wait for each other
 * in L2, some 2.7 ns each on an H200.  An atomic whose sum is not in L2 waits for memory
 * (v0 makes 28 of them per nanosecond into 66 MB, 65 into 33 MB), so the result is cut into
 * ranges that L2 holds, and a launch for each adds the elements that go there.
 * Cost:  at most v0's atomics; the index once per range, most of the values, a match per
 *        32 elements.
 */
#include "../copies.cuh"
#include "../frame.cuh"
#include "../neighbours.cuh"

/* Adds to the places [begin, begin + places): what L2 holds are fewer than 2^32. */
template <typename Input, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_long_result_kernel(Input x, int64_t begin, uint32_t places, Sum *total)
{
    constexpr int ITEMS = LANES_ITEMS;
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x;
    typename Input::I raw[ITEMS];
    Sum sum[ITEMS];
    uint32_t key[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = first + j * BLOCK;
        raw[j] = i < x.n ? x.index[i * x.index_stride] : 0;
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = first + j * BLOCK;
        const int64_t at = i < x.n ? x.place(raw[j], i) : -1;
        const bool is_mine = at >= begin && at - begin < places;
        key[j] = is_mine ? static_cast<uint32_t>(at - begin) : places;
        sum[j] = is_mine ? x.lift(x.values[i * x.values_stride]) : Sum{};
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (joined_anywhere(key[j], key[j] != places, &sum[j])) {
            atomic_add(&total[begin + key[j]], sum[j]);
        }
    }
}

struct scatter_add_by_ranges {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const dim3 grid(static_cast<unsigned>(ceil_div(x.n, BLOCK * LANES_ITEMS)));
        const int64_t ranges = scatter_add_ranges(call, sizeof(Sum));
        const int64_t each = ceil_div(x.size, ranges);
        gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
        int64_t begin = 0;
        do { /* also of no places: it notes every index as bad */
            const int64_t rest = x.size - begin;
            const uint32_t places = static_cast<uint32_t>(rest < each ? rest : each);
            status = status ? status
                            : GPO_LAUNCH(call, grid, BLOCK, 0,
                                         (scatter_add_long_result_kernel<Input, Sum>),
                                         x, begin, places, total);
            begin += each;
        } while (begin < x.size && !status);
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
