/*
 * long_result.cu  Sums that no table in shared memory holds: an atomic for each place of
 * a warp's elements, a range of places at a time.
 * Lanes of one place add up their values first: atomics of one address wait for each other
 * in L2, some 2.7 ns each on an H200.  Where places repeat in no order, so do the warps of a
 * block, in a table in shared memory: a place that a fifth of all elements want then gets
 * an atomic for each 512 of them.  An atomic whose sum is not in L2 waits for memory
 * (v0 makes 28 of them per nanosecond into 66 MB, 65 into 33 MB), so the result is cut into
 * ranges that L2 holds, and a launch for each adds the elements that go there.
 * Cost:  at most v0's atomics; the index once per range, most of the values, a match per
 *        32 elements.
 */
#include "../ranges.cuh"

struct scatter_add_by_ranges {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
        return status ? status : add_by_ranges(call, x, total, nullptr);
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
