/*
 * cuda.cu  The ladder of scatter_add on CUDA, then the table and the choice.
 * Order: what the rungs share (clear, the sum of copies, the frame of a call), then each
 * rung as a comment, a kernel and a launcher.  v0, v1 and v2 are the methods B, C and A
 * of the source.  Not here: what an index means (input.cuh), the contract (op.c).
 */
#include "../../device/sort.cuh"
#include "input.cuh"

#include <stdio.h>

extern "C" gpo_status gpo_device_copy(gpo_call *call, const gpo_array *from,
                                      const gpo_array *to);

constexpr int BLOCK = 256;
constexpr int64_t MOST_COPIES_BYTES = 1 << 28; /* of private copies of the result */

static inline int64_t
ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t
clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

/* ---- clear: zeros, and no bad index yet ---- */

__global__ void
scatter_add_clear(uint32_t *words, int64_t n, unsigned long long *bad)
{
    const int64_t first = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    if (first == 0 && bad) {
        *bad = NONE_BAD;
    }
    for (int64_t i = first; i < n; i += step) {
        words[i] = 0;
    }
}

static gpo_status
clear(gpo_call *call, void *memory, int64_t bytes, unsigned long long *bad)
{
    const int64_t words = bytes / static_cast<int64_t>(sizeof(uint32_t));
    const dim3 grid(static_cast<unsigned>(clamp(ceil_div(words, BLOCK), 1, 4096)));
    return GPO_LAUNCH(call, grid, BLOCK, 0, scatter_add_clear,
                      static_cast<uint32_t *>(memory), words, bad);
}

/* ---- the sum of copies: total[b] = copies[0][b] + copies[1][b] + ..., in order ---- */

constexpr int ACROSS = 32, DEEP = BLOCK / ACROSS;

template <typename Sum>
__global__ void
scatter_add_sum_copies(const Sum *copies, int64_t count, int64_t size, Sum *total)
{
    GPO_SHARED(Sum, part, [DEEP][ACROSS]);
    const int across = threadIdx.x % ACROSS, deep = threadIdx.x / ACROSS;
    for (int64_t first = static_cast<int64_t>(blockIdx.x) * ACROSS; first < size;
         first += static_cast<int64_t>(gridDim.x) * ACROSS) {
        const int64_t b = first + across;
        Sum sum{};
#pragma unroll 4
        for (int64_t p = deep; p < count; p += DEEP) {
            if (b < size) {
                sum = sum + copies[p * size + b];
            }
        }
        part[deep][across] = sum;
        __syncthreads();
        if (deep == 0 && b < size) {
            for (int d = 1; d < DEEP; d++) {
                sum = sum + part[d][across];
            }
            total[b] = sum;
        }
        __syncthreads();
    }
}

template <typename Sum>
static gpo_status
sum_copies(gpo_call *call, const Sum *copies, int64_t count, int64_t size, Sum *total)
{
    const dim3 grid(static_cast<unsigned>(clamp(ceil_div(size, ACROSS), 0, 1 << 20)));
    return GPO_LAUNCH(call, grid, BLOCK, 0, (scatter_add_sum_copies<Sum>), copies,
                      count, size, total);
}

/* Copies of the result that the memory for them allows, at least 1 and at most `most`. */
template <typename Sum>
static int64_t
copies_of(int64_t size, int64_t most)
{
    const int64_t bytes = static_cast<int64_t>(sizeof(Sum)) * (size > 0 ? size : 1);
    return clamp(most, 1, clamp(MOST_COPIES_BYTES / bytes, 1, INT32_MAX));
}

/*
 * v0  One global atomic per element: the source's method B.
 * Was:   nothing; a thread per element, as one would write it.
 * Now:   each thread adds its value where its index says, straight into the result.
 * Cost:  reads every value and index once; one atomic per element, carried out by L2,
 *        which makes those at one address wait for each other.
 * Left:  a short result has few addresses for many elements -> v1.
 */
template <typename Input, typename Sum>
__global__ void
scatter_add_v0_global(Input x, Sum *total)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= x.n) {
        return;
    }
    const int64_t at = x.place(x.index[i * x.index_stride], i);
    if (at >= 0) {
        atomic_add(&total[at], x.lift(x.values[i * x.values_stride]));
    }
}

struct rung_v0 {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const dim3 grid(static_cast<unsigned>(ceil_div(x.n, BLOCK)));
        const gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.bad);
        return status ? status
                      : GPO_LAUNCH(call, grid, BLOCK, 0,
                                   (scatter_add_v0_global<Input, Sum>), x, total);
    }
};

/*
 * v1  Shared-memory atomics, then global ones: the source's method C.
 * Was:   v0 sends each element to L2.
 * Now:   a fixed grid; each block adds into tables in shared memory and at the end makes
 *        one global atomic per place.  A shared atomic of floats is a loop that reads,
 *        adds and compares, so warps that meet in one table undo each other's work:
 *        up to one table per warp.  Indices come in 16-byte packs, values in groups of
 *        as many, several of both in flight.
 * Cost:  as v0, with n shared atomics and blocks * size global ones.  Where the result
 *        is longer than a table can be, its later part is added as in v0.
 * Left:  the order of additions, here and in v0, is the hardware's -> v2, v3.
 */
constexpr int SHARED_BLOCK = 512, SHARED_WARPS = SHARED_BLOCK / WARP;
constexpr int GROUPS_AT_ONCE = 2;
constexpr int64_t COPIES_BYTES = 64 << 10; /* of tables: two blocks fit on an H200 */
constexpr int64_t WORTH = 4; /* elements of a block per place of its table */

template <typename Input, typename Sum>
__global__ void
__launch_bounds__(SHARED_BLOCK, 2)
    scatter_add_v1_shared(Input x, Sum *total, int64_t width, int copies)
{
    using T = typename Input::T;
    using I = typename Input::I;
    constexpr int N = pack<I>::SIZE;
    GPO_DYN_SHARED(Sum, tables);
    const int tid = threadIdx.x, warp = tid / WARP;
    Sum *const table = tables + warp % copies * width;

    for (int64_t b = tid; b < width * copies; b += SHARED_BLOCK) {
        tables[b] = Sum{};
    }
    __syncthreads();

    const auto add = [&](T value, I raw, int64_t i) {
        const int64_t at = x.place(raw, i);
        if (static_cast<uint64_t>(at) < static_cast<uint64_t>(width)) {
            atomic_add(&table[at], x.lift(value));
        }
        else if (at >= 0) {
            atomic_add(&total[at], x.lift(value));
        }
    };
    const auto add_group = [&](const group<T, N> &v, const group<I, N> &raw,
                               int64_t i) {
#pragma unroll
        for (int k = 0; k < N; k++) {
            add(v.v[k], raw.v[k], i + k);
        }
    };

    const bool line = x.index_stride == 1;
    const int64_t head = line ? elements_to_boundary(x.index, x.n) : 0;
    const int64_t groups = line ? (x.n - head) / N : 0;
    const bool packed =
        x.values_stride == 1 &&
        reinterpret_cast<uintptr_t>(x.values + head) % alignof(group<T, N>) == 0;
    constexpr int64_t TILE = SHARED_BLOCK * GROUPS_AT_ONCE;
    for (int64_t first = blockIdx.x * TILE; first < groups; first += gridDim.x * TILE) {
        const int64_t g = first + tid;
        if (first + TILE <= groups) {
            group<T, N> v[GROUPS_AT_ONCE];
            group<I, N> raw[GROUPS_AT_ONCE];
#pragma unroll
            for (int u = 0; u < GROUPS_AT_ONCE; u++) {
                const int64_t i = head + (g + u * SHARED_BLOCK) * N;
                raw[u] = load_group<I, N>(x.index, 1, i, true);
                v[u] = load_group<T, N>(x.values, x.values_stride, i, packed);
            }
#pragma unroll
            for (int u = 0; u < GROUPS_AT_ONCE; u++) {
                add_group(v[u], raw[u], head + (g + u * SHARED_BLOCK) * N);
            }
            continue;
        }
#pragma unroll 1
        for (int64_t last = g; last < groups; last += SHARED_BLOCK) {
            const int64_t i = head + last * N;
            add_group(load_group<T, N>(x.values, x.values_stride, i, packed),
                      load_group<I, N>(x.index, 1, i, true), i);
        }
    }
    /* Before the first pack and after the last; all of an index with a stride. */
    const int64_t loose = x.n - groups * N;
#pragma unroll 1
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * SHARED_BLOCK + tid; k < loose;
         k += static_cast<int64_t>(gridDim.x) * SHARED_BLOCK) {
        const int64_t i = k < head ? k : groups * N + k;
        add(x.values[i * x.values_stride], x.index[i * x.index_stride], i);
    }
    __syncthreads();

    for (int64_t b = tid; b < width; b += SHARED_BLOCK) {
        Sum sum = tables[b];
        for (int c = 1; c < copies; c++) {
            sum = sum + tables[c * width + b];
        }
        atomic_add(&total[b], sum);
    }
}

struct rung_v1 {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        constexpr int64_t BYTES = sizeof(Sum);
        const int64_t room = gpo_shared_room(call);
        const int64_t width = x.size < room / BYTES ? x.size : room / BYTES;
        int copies = 1;
        while (copies < SHARED_WARPS && 2 * copies * width * BYTES <= COPIES_BYTES) {
            copies *= 2;
        }
        const int64_t bytes = copies * width * BYTES;
        const int64_t per_processor = clamp((room + 1024) / (bytes + 1024), 1, 2);
        const int64_t tile =
            SHARED_BLOCK * GROUPS_AT_ONCE * pack<typename Input::I>::SIZE;
        const int64_t least = WORTH * width > tile ? WORTH * width : tile;
        const dim3 grid(static_cast<unsigned>(
            clamp(ceil_div(x.n, least), 0, per_processor * gpo_processors(call))));
        gpo_allow_shared(scatter_add_v1_shared<Input, Sum>, static_cast<size_t>(bytes));
        const gpo_status status = clear(call, total, x.size * BYTES, x.bad);
        return status ? status
                      : GPO_LAUNCH(call, grid, SHARED_BLOCK, static_cast<size_t>(bytes),
                                   (scatter_add_v1_shared<Input, Sum>), x, total, width,
                                   copies);
    }
};

/*
 * v2  Private copies per block, then a second kernel: the source's method A.
 * Was:   blocks of v0 and v1 meet in one result.
 * Now:   each block of a fixed grid adds into a copy of its own in global memory; a
 *        second kernel sums the copies in order.  Published, the block computed the
 *        place in its copy and then used the shared one.
 * Cost:  as v0, and copies * size sums written as zeros, and read.
 * Left:  within a block the order is still the hardware's -> v3.
 */
template <typename Input, typename Sum>
__global__ void
scatter_add_v2_private(Input x, Sum *copies)
{
    Sum *const own = copies + blockIdx.x * x.size;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < x.n;
         i += step) {
        const int64_t at = x.place(x.index[i * x.index_stride], i);
        if (at >= 0) {
            atomic_add(&own[at], x.lift(x.values[i * x.values_stride]));
        }
    }
}

struct rung_v2 {
    static constexpr bool DETERMINISTIC = false;
    static constexpr int64_t PER_PROCESSOR = 8, ITEMS = 8;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const int64_t blocks = clamp(ceil_div(x.n, BLOCK * ITEMS), 1,
                                     PER_PROCESSOR * gpo_processors(call));
        const int64_t count = copies_of<Sum>(x.size, blocks);
        const int64_t bytes = count * x.size * static_cast<int64_t>(sizeof(Sum));
        void *copies = nullptr;
        gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &copies);
        if (!status) {
            status = clear(call, copies, bytes, x.bad);
        }
        if (!status) {
            status = GPO_LAUNCH(call, dim3(static_cast<unsigned>(count)), BLOCK, 0,
                                (scatter_add_v2_private<Input, Sum>), x,
                                static_cast<Sum *>(copies));
        }
        return status
                   ? status
                   : sum_copies(call, static_cast<Sum *>(copies), count, x.size, total);
    }
};

/*
 * v3  One writer per table, no atomics.
 * Was:   v2 has copies, but many threads write each.
 * Now:   each warp has a table and takes its elements in order.  Lanes with the same
 *        place find each other (match), the lowest adds their values in the order of
 *        lanes, and it alone writes.  Tables meet in order: the same bits each run.
 * Cost:  reads every value and index once for each tile of places that four tables in
 *        48 KB hold: 1,536 of 8 bytes.
 * Left:  a long result takes many tiles -> v4.
 */
constexpr int ORDERED_BLOCK = 128, ORDERED_WARPS = ORDERED_BLOCK / WARP;
constexpr int STEPS_AT_ONCE = 4;
constexpr int64_t MAX_GRID_Y = 65535;

template <typename Sum>
constexpr int64_t TILE_PLACES = (48 << 10) / (ORDERED_WARPS * sizeof(Sum));

/* table[b] += v for the lanes with a place b >= 0, equal places in the order of lanes. */
template <typename Sum>
__device__ __forceinline__ void
add_in_order(Sum *table, int b, Sum v, int lane)
{
    const unsigned alone = 0x80000000u | static_cast<unsigned>(lane);
    const unsigned key = b >= 0 ? static_cast<unsigned>(b) : alone;
    const unsigned peers = __match_any_sync(ALL_LANES, key);
    const bool first = lane == __ffs(static_cast<int>(peers)) - 1;
    unsigned rest = first ? peers & (peers - 1) : 0;
    Sum sum = v;
    while (__any_sync(ALL_LANES, rest != 0)) {
        const int from = rest ? __ffs(static_cast<int>(rest)) - 1 : lane;
        const Sum other = shuffle(v, from);
        if (rest) {
            sum = sum + other;
            rest &= rest - 1;
        }
    }
    if (first && b >= 0) {
        table[b] = table[b] + sum;
    }
    __syncwarp();
}

template <typename Input, typename Sum>
__global__ void
__launch_bounds__(ORDERED_BLOCK)
    scatter_add_v3_one_writer(Input x, Sum *copies, int64_t first_tile, int64_t width,
                              int64_t per_warp)
{
    GPO_DYN_SHARED(Sum, tables);
    const int tid = threadIdx.x, warp = tid / WARP, lane = tid % WARP;
    const int64_t first = (first_tile + blockIdx.y) * width;
    const int64_t places = x.size - first < width ? x.size - first : width;
    Sum *const table = tables + warp * width;
    for (int64_t b = lane; b < places; b += WARP) {
        table[b] = Sum{};
    }
    __syncwarp();

    const int64_t start =
        (static_cast<int64_t>(blockIdx.x) * ORDERED_WARPS + warp) * per_warp;
    const int64_t end = start + per_warp < x.n ? start + per_warp : x.n;
    for (int64_t base = start; base < end; base += WARP * STEPS_AT_ONCE) {
        Sum v[STEPS_AT_ONCE];
        int b[STEPS_AT_ONCE];
#pragma unroll
        for (int u = 0; u < STEPS_AT_ONCE; u++) {
            const int64_t i = base + u * WARP + lane;
            int64_t at = -1;
            v[u] = Sum{};
            if (i < end) {
                at = x.place(x.index[i * x.index_stride], i) - first;
                v[u] = x.lift(x.values[i * x.values_stride]);
            }
            b[u] = at >= 0 && at < places ? static_cast<int>(at) : -1;
        }
#pragma unroll
        for (int u = 0; u < STEPS_AT_ONCE; u++) {
            add_in_order(table, b[u], v[u], lane);
        }
    }
    __syncthreads();

    for (int64_t b = tid; b < places; b += ORDERED_BLOCK) {
        Sum sum = tables[b];
        for (int w = 1; w < ORDERED_WARPS; w++) {
            sum = sum + tables[w * width + b];
        }
        copies[blockIdx.x * x.size + first + b] = sum;
    }
}

struct rung_v3 {
    static constexpr bool DETERMINISTIC = true;
    static constexpr int64_t PER_PROCESSOR = 6, ITEMS = 1024;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        constexpr int64_t MOST = TILE_PLACES<Sum>;
        const int64_t width = x.size < MOST ? x.size : MOST;
        const int64_t tiles = width > 0 ? ceil_div(x.size, width) : 1;
        const int64_t blocks = clamp(ceil_div(x.n, ORDERED_WARPS * ITEMS), 1,
                                     PER_PROCESSOR * gpo_processors(call));
        const int64_t count = copies_of<Sum>(x.size, blocks);
        const int64_t step = WARP * STEPS_AT_ONCE;
        const int64_t per_warp = ceil_div(x.n, count * ORDERED_WARPS * step) * step;
        const int64_t bytes = count * x.size * static_cast<int64_t>(sizeof(Sum));
        void *copies = nullptr;
        gpo_status status = gpo_scratch(call, static_cast<size_t>(bytes), &copies);
        if (!status) {
            status = clear(call, nullptr, 0, x.bad);
        }
        for (int64_t tile = 0; tile < tiles && !status; tile += MAX_GRID_Y) {
            const dim3 grid(static_cast<unsigned>(count),
                            static_cast<unsigned>(clamp(tiles - tile, 0, MAX_GRID_Y)));
            status = GPO_LAUNCH(call, grid, ORDERED_BLOCK,
                                ORDERED_WARPS * width * sizeof(Sum),
                                (scatter_add_v3_one_writer<Input, Sum>), x,
                                static_cast<Sum *>(copies), tile, width, per_warp);
        }
        return status
                   ? status
                   : sum_copies(call, static_cast<Sum *>(copies), count, x.size, total);
    }
};

/*
 * v4  Stable sort by place, then sums of runs.
 * Was:   v3 reads the input once for each tile of places.
 * Now:   places are sorted with the positions they came from; equal ones stay in order.
 *        A warp adds the runs of 1,024 sorted elements by a segmented scan; a run that
 *        passes the end of its chunk is joined from the chunks' parts, in order.
 * Cost:  16 bytes of memory per element; each pass of 8 bits of the place reads the keys
 *        twice and moves key and position once; then one gather of the values.
 *        2^32 elements or places do not fit the sort's words and take v3.
 * Left:  the positions could carry the values along and save the gather.
 */
constexpr int RUN_CHUNK = 1024, RUN_WARPS = BLOCK / WARP;
constexpr uint32_t NO_PLACE = ~0u;

/* An index out of bounds sorts behind all places. */
template <typename Input>
__global__ void
scatter_add_v4_places(Input x, uint32_t *key)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < x.n;
         i += step) {
        const int64_t at = x.place(x.index[i * x.index_stride], i);
        key[i] = static_cast<uint32_t>(at >= 0 ? at : x.size);
    }
}

/*
 * total[k] = the sum of run k where it lies in one chunk; of a run that began before the
 * chunk heads[chunk], of one that goes on after it tails[chunk].
 */
template <typename Input, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_v4_runs(Input x, const uint32_t *key, const uint32_t *from, Sum *total,
                        Sum *heads, Sum *tails)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * RUN_WARPS + warp;
    const int64_t begin = chunk * RUN_CHUNK;
    const int64_t end = begin + RUN_CHUNK < x.n ? begin + RUN_CHUNK : x.n;
    if (begin >= x.n) {
        return;
    }
    const uint32_t before = begin > 0 ? key[begin - 1] : NO_PLACE;
    uint32_t carried = NO_PLACE;
    Sum carry{};
    for (int64_t row = begin; row < end; row += WARP) {
        const int64_t i = row + lane;
        const uint32_t k = i < end ? key[i] : NO_PLACE;
        const uint32_t next = i + 1 < x.n ? key[i + 1] : NO_PLACE;
        const bool is_place = k < x.size;
        Sum sum = is_place ? x.lift(x.values[from[i] * x.values_stride]) : Sum{};
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const int left = lane >= d ? lane - d : lane;
            const Sum other = shuffle(sum, left);
            const uint32_t of_other = __shfl_sync(ALL_LANES, k, left);
            if (lane >= d && of_other == k) {
                sum = other + sum;
            }
        }
        if (k == carried) {
            sum = carry + sum;
        }
        if (is_place && (next != k || i == end - 1)) {
            Sum *const to = k == before ? &heads[chunk]
                            : next == k ? &tails[chunk]
                                        : &total[k];
            *to = sum;
        }
        carried = __shfl_sync(ALL_LANES, k, WARP - 1);
        carry = shuffle(sum, WARP - 1);
    }
}

/* The runs that go on after the chunk they begin in: a warp for each chunk. */
template <typename Sum>
__global__ void
scatter_add_v4_join(const uint32_t *key, int64_t n, int64_t size, const Sum *heads,
                    const Sum *tails, Sum *total)
{
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t chunk = static_cast<int64_t>(blockIdx.x) * RUN_WARPS + warp;
    const int64_t begin = chunk * RUN_CHUNK, end = begin + RUN_CHUNK;
    if (end >= n) {
        return;
    }
    const uint32_t k = key[end - 1];
    if (k >= size || key[end] != k || (begin > 0 && key[begin - 1] == k)) {
        return;
    }
    int64_t low = end, high = n; /* where the run ends */
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (key[middle] == k) {
            low = middle + 1;
        }
        else {
            high = middle;
        }
    }
    Sum sum = lane == 0 ? tails[chunk] : Sum{};
    for (int64_t c = chunk + 1 + lane; c <= (low - 1) / RUN_CHUNK; c += WARP) {
        sum = sum + heads[c];
    }
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
        sum = sum + shuffle_down(sum, d);
    }
    if (lane == 0) {
        total[k] = sum;
    }
}

struct rung_v4 {
    static constexpr bool DETERMINISTIC = true;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        if (x.n > UINT32_MAX || x.size >= UINT32_MAX) {
            return rung_v3::run(call, x, total);
        }
        constexpr int64_t BYTES = sizeof(Sum);
        const size_t words = static_cast<size_t>(x.n) * sizeof(uint32_t);
        const int64_t chunks = ceil_div(x.n, RUN_CHUNK);
        void *memory[5] = {};
        gpo_status status = clear(call, total, x.size * BYTES, x.bad);
        for (int k = 0; k < 4 && !status; k++) {
            status = gpo_scratch(call, words, &memory[k]);
        }
        if (!status) {
            status =
                gpo_scratch(call, static_cast<size_t>(2 * chunks * BYTES), &memory[4]);
        }
        if (status) {
            return status;
        }
        sort_pairs<uint32_t> pairs = {
            static_cast<uint32_t *>(memory[0]), static_cast<uint32_t *>(memory[1]),
            static_cast<uint32_t *>(memory[2]), static_cast<uint32_t *>(memory[3])};
        Sum *const heads = static_cast<Sum *>(memory[4]);

        /* Places ask for the index alone and runs for the values: fewer kernels. */
        scatter_add_input<uint8_t, typename Input::I> index = {};
        index.index = x.index;
        index.index_stride = x.index_stride;
        index.n = x.n;
        index.size = x.size;
        index.mode = x.mode;
        index.is_unsigned = x.is_unsigned;
        index.bad = x.bad;
        scatter_add_input<typename Input::T, int64_t> values = {};
        values.values = x.values;
        values.values_stride = x.values_stride;
        values.n = x.n;
        values.size = x.size;
        values.truth = x.truth;
        values.sign = x.sign;

        const dim3 wide(static_cast<unsigned>(clamp(ceil_div(x.n, BLOCK), 0, 1 << 16)));
        const dim3 grid(static_cast<unsigned>(ceil_div(chunks, RUN_WARPS)));
        status = GPO_LAUNCH(call, wide, BLOCK, 0,
                            (scatter_add_v4_places<decltype(index)>), index, pairs.key);
        if (!status) {
            status =
                sort_by_key(call, &pairs, x.n, static_cast<uint64_t>(x.size) + 1, true);
        }
        if (!status) {
            status = GPO_LAUNCH(call, grid, BLOCK, 0,
                                (scatter_add_v4_runs<decltype(values), Sum>), values,
                                pairs.key, pairs.payload, total, heads, heads + chunks);
        }
        return status
                   ? status
                   : GPO_LAUNCH(call, grid, BLOCK, 0, (scatter_add_v4_join<Sum>),
                                pairs.key, x.n, x.size, heads, heads + chunks, total);
    }
};

/* ---- the frame of a call: inputs as lines, sums, the bad index, the result ---- */

/* A view of `a` as one line of elements; an array that is none is packed first. */
static gpo_status
make_line(gpo_call *call, const gpo_array *a, const void **data, int64_t *stride)
{
    *data = a->data;
    if (scatter_add_is_line(a, stride)) {
        return GPO_OK;
    }
    gpo_array line = *a;
    gpo_status status = gpo_array_contiguous(call, &line);
    if (!status) {
        const size_t bytes = static_cast<size_t>(gpo_dtypes[a->dtype].bytes);
        status = gpo_scratch(call, bytes * static_cast<size_t>(a->size), &line.data);
    }
    if (!status) {
        status = gpo_device_copy(call, a, &line);
    }
    *data = line.data;
    *stride = 1;
    return status;
}

/* Waits for the kernels and raises what they found. */
template <typename Input>
static gpo_status
check_indices(gpo_call *call, const scatter_add_plan &plan, const Input &x)
{
    unsigned long long bad = NONE_BAD;
    gpo_status status = gpo_fetch(call, &bad, x.bad, sizeof bad);
    if (status || bad == NONE_BAD) {
        return status;
    }
    typename Input::I raw = 0;
    const int64_t position = static_cast<int64_t>(bad);
    status = gpo_fetch(call, &raw, x.index + position * x.index_stride, sizeof raw);
    return status ? status : scatter_add_refuse(call, &plan, raw, position);
}

template <typename Rung, typename T, typename I>
static gpo_status
run_with_index(gpo_call *call, const scatter_add_plan &plan)
{
    using Input = scatter_add_input<carrier_of<T>, I>;
    using Sum = typename Input::Sum;
    constexpr bool SIGNED = std::is_integral_v<T> && std::is_signed_v<T>;
    gpo_array *const out = &call->out[0];
    const void *values = nullptr, *index = nullptr;
    void *memory = nullptr;
    Input x = {};
    gpo_status status =
        make_line(call, &call->in[SCATTER_ADD_VALUES], &values, &x.values_stride);
    if (!status) {
        status = make_line(call, &call->in[SCATTER_ADD_INDEX], &index, &x.index_stride);
    }
    if (!status && plan.mode == SCATTER_ADD_RAISE) {
        status = gpo_scratch(call, sizeof *x.bad, &memory);
        x.bad = static_cast<unsigned long long *>(memory);
    }
    x.values = static_cast<const carrier_of<T> *>(values);
    x.index = static_cast<const I *>(index);
    x.n = plan.n;
    x.size = plan.size;
    x.mode = plan.mode;
    x.is_unsigned = plan.is_unsigned;
    x.truth = std::is_same_v<T, b8>;
    x.sign = SIGNED ? static_cast<uint64_t>(1) << (8 * sizeof(T) - 1) : 0;

    gpo_array sums = *out;
    if (!IS_WHOLE<T>) {
        sums.dtype = IS_COMPLEX<T> ? GPO_C128 : GPO_F64;
    }
    const bool apart = sums.dtype != out->dtype || plan.late;
    if (!status && apart) {
        status =
            gpo_scratch(call, sizeof(Sum) * static_cast<size_t>(plan.size), &sums.data);
    }
    if (!status) {
        status = Rung::run(call, x, static_cast<Sum *>(sums.data));
    }
    if (!status && x.bad) {
        status = check_indices(call, plan, x);
    }
    return !status && apart ? gpo_device_copy(call, &sums, out) : status;
}

template <typename Rung, typename T>
static gpo_status
run_rung(gpo_call *call)
{
    scatter_add_plan plan;
    scatter_add_make_plan(call, &plan);
    if (plan.deterministic && !Rung::DETERMINISTIC) {
        return gpo_fail(
            call, GPO_EVARIANT,
            "scatter_add() with deterministic=True has no variant '%s': its "
            "atomics add in the order the hardware finds; take 'auto'",
            call->variant->name);
    }
    if (plan.mode == SCATTER_ADD_RAISE) {
        const gpo_status status = gpo_may_wait(call);
        if (status) {
            return status;
        }
    }
    return call->in[SCATTER_ADD_INDEX].dtype == GPO_I32
               ? run_with_index<Rung, T, int32_t>(call, plan)
               : run_with_index<Rung, T, int64_t>(call, plan);
}

/* ---- table and choice ---- */

constexpr int64_t ORDERED_BYTES = 96 << 10; /* eight tiles of v3 */

#define RUNG(v)                                       \
    template <typename T>                             \
    static gpo_status scatter_add_##v(gpo_call *call) \
    {                                                 \
        return run_rung<rung_##v, T>(call);           \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)
RUNG(v3)
RUNG(v4)

static const gpo_variant variants[] = {
    {"v0", "one global atomic per element (method B)", "", "no",
     GPO_ALL(scatter_add_v0)},
    {"v1", "shared-memory atomics, then global ones (method C)", "", "no",
     GPO_ALL(scatter_add_v1)},
    {"v2", "private copies per block, then a second kernel (method A)", "", "no",
     GPO_ALL(scatter_add_v2)},
    {"v3", "one writer per table, no atomics", "", "run-to-run",
     GPO_ALL(scatter_add_v3)},
    {"v4", "stable sort by place, then sums of runs", "", "run-to-run",
     GPO_ALL(scatter_add_v4)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    scatter_add_plan plan;
    scatter_add_make_plan(call, &plan);
    const int own = gpo_dtypes[call->out[0].dtype].bytes;
    const int64_t sum_bytes = gpo_dtypes[call->out[0].dtype].kind == 'c' ? 16 : 8;
    if (plan.deterministic && plan.size * sum_bytes <= ORDERED_BYTES) {
        snprintf(why, GPO_MESSAGE,
                 "v3: deterministic=True, and up to 96 KB of sums take few tiles");
        return &variants[3];
    }
    if (plan.deterministic) {
        snprintf(why, GPO_MESSAGE,
                 "v4: deterministic=True, and sums above 96 KB are worth a sort");
        return &variants[4];
    }
    if (plan.size * (own < 4 ? 4 : own) > COPIES_BYTES) {
        snprintf(why, GPO_MESSAGE,
                 "v0: so long a result has addresses enough for global atomics");
        return &variants[0];
    }
    if (plan.n < WORTH * plan.size) {
        snprintf(why, GPO_MESSAGE,
                 "v0: tables in shared memory cost more than so few elements");
        return &variants[0];
    }
    snprintf(why, GPO_MESSAGE,
             "v1: the result fits into shared memory, where atomics cost least");
    return &variants[1];
}

extern "C" const gpo_table scatter_add_cuda = {variants, choose};
