/*
 * ascending.cu  Floats below 64 bits and 32-bit integers whose index may ascend.  Then the
 * elements of a place are side by side: each warp adds the runs that begin among its 256
 * elements, floats in float64, and stores them, rounded once, with the zeros after each, so
 * that index and values are read once and the result written once.  Whether the index ascends is found out on the
 * way: a descent, an index out of bounds or a run of more than 32 elements beyond a warp's
 * own tells the other blocks to end and the kernels of buckets to do it all.
 * Cost:  of an ascending index its own bytes; of another one launch and some first
 *        elements more than buckets.
 */
#include "../../../device/words.cuh"
#include "../buckets.cuh"

constexpr int RUN_ITEMS = 8,
              RUN_TILE = RUN_ITEMS * WARP; /* elements of a lane, a warp */

/* Elements [i, i + RUN_ITEMS); past the last of the input place x.size, value 0. */
template <typename Input>
struct ascending_items {
    int32_t place[RUN_ITEMS]; /* -1 if out of bounds */
    typename Input::T value[RUN_ITEMS];

    template <typename I>
    __device__ __forceinline__ void load_places(const Input &x, int64_t i, bool packed)
    {
        const I *const index = reinterpret_cast<const I *>(x.index);
        const group<I, RUN_ITEMS> raw =
            load_group<I, RUN_ITEMS>(index, x.index_stride, i, packed);
#pragma unroll
        for (int j = 0; j < RUN_ITEMS; j++) {
            const bool good =
                static_cast<uint64_t>(raw.v[j]) < static_cast<uint64_t>(x.size);
            place[j] = good ? static_cast<int32_t>(raw.v[j]) : -1;
        }
    }
};

template <typename Input>
__device__ __forceinline__ int32_t
place_at(const Input &x, int64_t i)
{
    if (i >= x.n) {
        return static_cast<int32_t>(x.size);
    }
    const int64_t raw = x.raw(i);
    return static_cast<uint64_t>(raw) < static_cast<uint64_t>(x.size)
               ? static_cast<int32_t>(raw)
               : -1;
}

/* The sum of `mine` over the lanes of a warp. */
template <typename Sum>
__device__ __forceinline__ Sum
warp_sum(Sum mine)
{
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        mine += shuffle_down(mine, d);
    }
    return shuffle_from(mine, 0);
}

/*
 * Clears [begin, end) but for the places of runs, which are stored after.  Where it is
 * long and one gap makes most of it, that gap is left to the last kernel.  False if it
 * is long and has several.
 */
template <typename Result>
__device__ __forceinline__ bool
clear_between(const int32_t (&place)[RUN_ITEMS], int32_t after, int32_t begin,
              int32_t end, scatter_add_gaps *gaps, unsigned *count, Result *out)
{
    const int lane = threadIdx.x % WARP;
    int32_t low = end, high = end;
    if (end - begin > MOST_BETWEEN) {
        int32_t longest = 0, from = begin;
#pragma unroll
        for (int j = 0; j < RUN_ITEMS; j++) {
            const int32_t next = j + 1 < RUN_ITEMS ? place[j + 1] : after;
            const int32_t first = place[j] + 1 > begin ? place[j] + 1 : begin;
            const int32_t last = next < end ? next : end;
            if (last - first > longest) {
                longest = last - first;
                from = first;
            }
        }
        if (lane == 0 && begin < place[0] && place[0] - begin > longest) {
            longest = (place[0] < end ? place[0] : end) - begin;
            from = begin;
        }
#pragma unroll
        for (int d = WARP / 2; d > 0; d /= 2) {
            const int32_t other = shuffle_down(longest, d);
            const int32_t other_from = shuffle_down(from, d);
            from = other > longest ? other_from : from;
            longest = other > longest ? other : longest;
        }
        low = shuffle_from(from, 0);
        high = low + shuffle_from(longest, 0);
        unsigned slot = 0;
        if (lane == 0) {
            slot = atomicAdd(count, 1u);
        }
        slot = shuffle_from(slot, 0);
        if (end - begin - (high - low) > MOST_BETWEEN || slot >= gaps->MOST) {
            return false;
        }
        if (lane == 0) {
            gaps->begin[slot] = low;
            gaps->end[slot] = high;
        }
    }
    for (int32_t k = begin + lane; k < low; k += WARP) {
        out[k] = Result{};
    }
    for (int32_t k = high + lane; k < end; k += WARP) {
        out[k] = Result{};
    }
    __syncwarp();
    return true;
}

/* The runs that begin in elements [begin, begin + RUN_TILE); false if buckets has to. */
template <typename Input, typename Result>
__device__ __forceinline__ bool
add_runs(const Input &x, bool in_packs, int64_t begin, scatter_add_gaps *gaps,
         unsigned *count, Result *out, Result *stage, int32_t staged)
{
    using T = typename Input::T;
    using Sum = typename Input::Sum;
    const int lane = threadIdx.x % WARP;
    const int64_t first = begin + lane * RUN_ITEMS, end = begin + RUN_TILE;
    const int32_t size = static_cast<int32_t>(x.size);
    ascending_items<Input> mine;
    if (end <= x.n) {
        if (x.is_wide) {
            mine.template load_places<int64_t>(x, first, in_packs);
        }
        else {
            mine.template load_places<int32_t>(x, first, in_packs);
        }
        const group<T, RUN_ITEMS> v =
            load_group<T, RUN_ITEMS>(x.values, x.values_stride, first, in_packs);
#pragma unroll
        for (int j = 0; j < RUN_ITEMS; j++) {
            mine.value[j] = v.v[j];
        }
    }
    else {
#pragma unroll
        for (int j = 0; j < RUN_ITEMS; j++) {
            const int64_t i = first + j;
            mine.place[j] = place_at(x, i);
            mine.value[j] = i < x.n ? x.values[i * x.values_stride] : T{};
        }
    }
    const int32_t beyond = place_at(x, end + lane);
    const T value_beyond =
        end + lane < x.n ? x.values[(end + lane) * x.values_stride] : T{};
    int32_t before = begin > 0 ? place_at(x, begin - 1) : -1;
    const int32_t left = shuffle_up(mine.place[RUN_ITEMS - 1], 1);
    const int32_t right = shuffle_down(mine.place[0], 1);
    const int32_t before_warp = before;
    before = lane > 0 ? left : before;

    bool good = mine.place[0] >= 0;
    int32_t last = before, owned = size; /* `owned`: the first run's place */
#pragma unroll
    for (int j = 0; j < RUN_ITEMS; j++) {
        good = good && mine.place[j] >= last;
        owned = mine.place[j] != last && mine.place[j] < owned ? mine.place[j] : owned;
        last = mine.place[j];
    }
    const int32_t last_of_warp = shuffle_from(last, WARP - 1);
    const unsigned others = __ballot_sync(ALL_LANES, beyond != last_of_warp);
    const bool owns = last_of_warp != before_warp;
    const int32_t next =
        shuffle_from(beyond, others != 0 ? __ffs(static_cast<int>(others)) - 1 : 0);
    const bool ends = others != 0 || last_of_warp == size;
    if (!__all_sync(ALL_LANES, good && (ends || !owns) && next >= last_of_warp)) {
        return false;
    }
    if (!owns) {
        return true;
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        const int32_t other = shuffle_down(owned, d);
        owned = other < owned ? other : owned;
    }
    const int32_t from = begin > 0 ? shuffle_from(owned, 0) : 0;
    const int32_t until = last_of_warp == size ? size : next;
    /* Short ranges of places are written as a whole, by way of shared memory. */
    const bool is_short = until - from <= staged;
    Result *const to = is_short ? stage : out;
    const int32_t origin = is_short ? from : 0;
    if (is_short) {
        for (int32_t k = lane; k < until - from; k += WARP) {
            stage[k] = Result{};
        }
        __syncwarp();
    }
    else if (!clear_between(mine.place, lane < WARP - 1 ? right : until, from, until,
                            gaps, count, out)) {
        return false;
    }

    /* The lane's own runs; `head` is of one that began before it. */
    Sum sum = 0, head = 0;
    bool through = true; /* no run begins in this lane */
    int32_t open = before;
#pragma unroll
    for (int j = 0; j < RUN_ITEMS; j++) {
        if (mine.place[j] != open) {
            if (through) {
                head = sum;
            }
            else {
                to[open - origin] = rounded<T>(sum);
            }
            through = false;
            open = mine.place[j];
            sum = 0;
        }
        sum += x.lift(mine.value[j]);
    }
    head = through ? sum : head;
    /* What the lanes after this one have of its last run. */
    const unsigned same = others != 0 ? (others & (0 - others)) - 1 : ALL_LANES;
    const Sum far =
        same != 0 ? warp_sum(same >> lane & 1 ? x.lift(value_beyond) : Sum{}) : Sum{};
    Sum rest = shuffle_down(head, 1);
    rest = lane < WARP - 1 ? rest : far;
    int goes_on = shuffle_down(static_cast<int>(through), 1);
    goes_on = lane < WARP - 1 ? goes_on : 0;
    for (int d = 1; d < WARP && __any_sync(ALL_LANES, goes_on); d *= 2) {
        const Sum other = shuffle_down(rest, d);
        const int other_on = shuffle_down(goes_on, d);
        rest = goes_on ? rest + other : rest;
        goes_on = goes_on ? other_on : 0;
    }
    if (!through && open < size) {
        to[open - origin] = rounded<T>(sum + rest);
    }
    if (is_short) {
        __syncwarp();
        for (int32_t k = lane; k < until - from; k += WARP) {
            out[from + k] = stage[k];
        }
        __syncwarp();
    }
    return true;
}

/* The sums of an ascending index; of another, gaps->other.  The counters are the stream's:
   a ticket, whether a block has found another, how many gaps there are. */
template <typename Input, typename Result>
__global__ void
__launch_bounds__(BLOCK, LOOKING_BLOCKS)
    scatter_add_ascending_runs(Input x, bool in_packs, int32_t staged,
                               unsigned *counters, scatter_add_gaps *gaps,
                               uint64_t *words, int64_t cleared, Result *out)
{
    GPO_SHARED(bool, last, [1]);
    GPO_DYN_SHARED(Result, stages);
    const int lane = threadIdx.x % WARP;
    const int64_t warp =
        static_cast<int64_t>(blockIdx.x) * (BLOCK / WARP) + threadIdx.x / WARP;
    const int64_t warps = static_cast<int64_t>(gridDim.x) * (BLOCK / WARP);
    Result *const stage = stages + threadIdx.x / WARP * staged; /* of the warp */
    for (int64_t k = warp * WARP + lane; k < cleared; k += warps * WARP) {
        words[k] = 0;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0 && x.fresh != nullptr) {
        *x.fresh = NONE_BAD;
    }
    /* A look at some elements of each block, which most other indices do not pass. */
    const int32_t place = place_at(x, warp * RUN_TILE + lane);
    bool good = !__any_sync(ALL_LANES, shuffle_up(place, 1) > place || place < 0);
    for (int64_t begin = warp * RUN_TILE; good && (begin < x.n || begin == 0);
         begin += warps * RUN_TILE) {
        const unsigned other = load_word(&counters[1]);
        good = add_runs(x, in_packs, begin, gaps, &counters[2], out, stage, staged);
        if (other != 0) {
            break;
        }
    }
    let_next_start();
    if (__syncthreads_or(!good) && threadIdx.x == 0 && load_word(&counters[1]) == 0) {
        atomicOr(&counters[1], 1u);
    }
    if (is_last_block(&counters[0], gridDim.x, last) && threadIdx.x == 0) {
        gaps->other = atomicExch(&counters[1], 0u);
        gaps->count = atomicExch(&counters[2], 0u);
    }
}

/*
 * The places that a warp writes by way of shared memory: those of its elements, on average,
 * and a quarter more; 0 if that is more than `most`.
 */
static int32_t
staged_places(const scatter_add_plan &plan, int64_t most)
{
    constexpr int64_t MORE = 64;
    const int64_t n = plan.n > 0 ? plan.n : 1;
    const int64_t mean = ceil_div(RUN_TILE * plan.size, n);
    const int64_t places = mean + mean / 4 + MORE;
    return places <= most ? static_cast<int32_t>(places) : 0;
}

bool
scatter_add_may_ascend(const gpo_call *call)
{
    const gpo_dtype dtype = call->in[SCATTER_ADD_VALUES].dtype;
    const char kind = gpo_dtypes[dtype].kind;
    const int bytes = gpo_dtypes[dtype].bytes;
    const bool is_whole = (kind == 'i' || kind == 'u') && bytes == 4;
    return (is_whole || (kind == 'f' && bytes < 8)) && scatter_add_may_split(call);
}

template <typename T>
gpo_status
scatter_add_ascending(gpo_call *call)
{
    using Input = scatter_add_input<T, int64_t>;
    using Result = result_of<T>;
    scatter_add_frame f;
    scatter_add_buckets b;
    int64_t words = 0;
    unsigned *counters = nullptr;
    void *memory = nullptr;
    gpo_status status = open_inputs(call, false, &f);
    if (!status) {
        status = open_buckets<false>(call, sizeof(T), &b, &words);
    }
    if (!status) {
        status = gpo_tickets(call, &counters);
    }
    if (!status) {
        status = gpo_scratch(call, sizeof(scatter_add_gaps), &memory);
    }
    scatter_add_gaps *const gaps = static_cast<scatter_add_gaps *>(memory);
    if (!status) {
        const Input x = input_of<T, int64_t>(call, f);
        const bool in_packs = x.index_stride == 1 && x.values_stride == 1 &&
                              (reinterpret_cast<uintptr_t>(x.index) |
                               reinterpret_cast<uintptr_t>(x.values)) %
                                      16 ==
                                  0;
        const int64_t blocks =
            clamp(ceil_div(x.n, RUN_TILE * (BLOCK / WARP)), 1,
                  static_cast<int64_t>(gpo_processors(call)) * LOOKING_BLOCKS);
        const int64_t most = STAGED_BYTES / static_cast<int64_t>(sizeof(Result));
        const int32_t staged = staged_places(*scatter_add_plan_of(call), most);
        const size_t bytes = BLOCK / WARP * sizeof(Result) * staged;
        gpo_allow_shared(scatter_add_ascending_runs<Input, Result>, bytes);
        status =
            GPO_LAUNCH(call, grid_of(blocks), BLOCK, bytes,
                       (scatter_add_ascending_runs<Input, Result>), x, in_packs, staged,
                       counters, gaps, reinterpret_cast<uint64_t *>(b.total), words,
                       static_cast<Result *>(call->out[0].data));
    }
    if (!status) {
        status = add_by_buckets<false, T>(call, f, b, gaps);
    }
    return status ? status : close_frame(call, f);
}

template gpo_status scatter_add_ascending<uint32_t>(gpo_call *call);
template gpo_status scatter_add_ascending<f16>(gpo_call *call);
template gpo_status scatter_add_ascending<bf16>(gpo_call *call);
template gpo_status scatter_add_ascending<float>(gpo_call *call);
