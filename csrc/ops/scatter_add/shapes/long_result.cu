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
#include "../../../device/slot.cuh"
#include "../copies.cuh"
#include "../frame.cuh"
#include "../neighbours.cuh"

/* The sums of a block's elements by place; a slot belongs to the first place that wants it. */
template <typename Sum>
struct block_table {
    static constexpr int LOG_SLOTS = 9, SLOTS = 1 << LOG_SLOTS;
    uint32_t key[SLOTS];
    Sum sum[SLOTS];
};

/* Whether places repeat between lanes side by side in a block, and whether they descend:
   if not, they are sorted, and a warp's own runs are all there is to join. */
struct repeats_of_block {
    bool any, in_any_order;
};

template <int ITEMS>
__device__ __forceinline__ repeats_of_block
find_repeats(const uint32_t (&key)[ITEMS], uint32_t none)
{
    const bool follows = threadIdx.x % WARP > 0;
    bool repeats = false, descends = false;
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const uint32_t before = shuffle_up(key[j], 1);
        repeats = repeats || (follows && key[j] != none && before == key[j]);
        descends = descends || (follows && key[j] < before);
    }
    if (!__syncthreads_or(repeats)) {
        return {false, false};
    }
    return {true, __syncthreads_or(descends) != 0};
}

/* Adds to the places [begin, begin + places): what L2 holds are fewer than 2^32. */
template <typename Input, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_long_result_kernel(Input x, int64_t begin, uint32_t places, Sum *total)
{
    constexpr int ITEMS = LANES_ITEMS;
    let_next_start();
    const int64_t first =
        static_cast<int64_t>(blockIdx.x) * BLOCK * ITEMS + threadIdx.x;
    const bool all = places == x.size; /* then values are loaded with their indices */
    int64_t raw[ITEMS];
    typename Input::T v[ITEMS] = {};
    Sum sum[ITEMS];
    uint32_t key[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = first + j * BLOCK;
        raw[j] = i < x.n ? x.raw(i) : 0;
        if (all && i < x.n) {
            v[j] = x.values[i * x.values_stride];
        }
    }
    wait_for_before();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int64_t i = first + j * BLOCK;
        const int64_t at = i < x.n ? x.place(raw[j], i) : -1;
        const bool is_mine = at >= begin && at - begin < places;
        key[j] = is_mine ? static_cast<uint32_t>(at - begin) : places;
        if (!all && is_mine) {
            v[j] = x.values[i * x.values_stride];
        }
        sum[j] = is_mine ? x.lift(v[j]) : Sum{};
    }
    GPO_SHARED(block_table<Sum>, table, [1]);
    const repeats_of_block repeats = find_repeats(key, places);
    if (!repeats.in_any_order) {
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const bool is_element = key[j] != places;
            if (repeats.any ? joined_anywhere(key[j], is_element, &sum[j])
                            : is_element) {
                atomic_add(&total[begin + key[j]], sum[j]);
            }
        }
        return;
    }
    for (int k = threadIdx.x; k < table->SLOTS; k += BLOCK) {
        table->key[k] = places;
        table->sum[k] = Sum{};
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (joined_anywhere(key[j], key[j] != places, &sum[j], WARP + 1)) {
            const uint32_t slot = slot_of_key(key[j], table->LOG_SLOTS);
            const uint32_t owner = atomicCAS(&table->key[slot], places, key[j]);
            if (owner == places || owner == key[j]) {
                atomic_add(&table->sum[slot], sum[j]);
            }
            else {
                atomic_add(&total[begin + key[j]], sum[j]);
            }
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < table->SLOTS; k += BLOCK) {
        if (table->key[k] != places) {
            atomic_add(&total[begin + table->key[k]], table->sum[k]);
        }
    }
}

/* Of no places one launch, which notes every index as bad. */
template <typename T>
gpo_status
scatter_add_long_result(gpo_call *call)
{
    using Input = scatter_add_input<T, int64_t>;
    using Sum = typename Input::Sum;
    scatter_add_frame f;
    gpo_status status = open_frame(call, false, &f);
    const Input x = input_of<T, int64_t>(call, f);
    const dim3 grid(static_cast<unsigned>(ceil_div(x.n, BLOCK * LANES_ITEMS)));
    const int64_t ranges = scatter_add_ranges(call, sizeof(Sum));
    const int64_t each = ceil_div(x.size, ranges);
    Sum *const total = static_cast<Sum *>(f.sums.data);
    if (!status) {
        status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
    }
    int64_t begin = 0;
    while (!status && (begin < x.size || begin == 0)) {
        const int64_t rest = x.size - begin;
        const uint32_t places = static_cast<uint32_t>(rest < each ? rest : each);
        status = GPO_FOLLOW(call, true, grid, BLOCK, 0,
                            (scatter_add_long_result_kernel<Input, Sum>), x, begin,
                            places, total);
        begin += each > 0 ? each : 1;
    }
    if (!status) {
        status = round_sums<T>(call, &f);
    }
    return status ? status : close_frame(call, f);
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
