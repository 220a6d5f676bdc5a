/*
 * one_element.cu  Rows of one element, sorted by destination; no atomics.
 * As v4, but each block takes a tile of 2,048 sorted entries: a thread per destination
 * would read its elements one by one.  The sort carries the elements themselves, not
 * row numbers, if they are as wide: 4 bytes, or 8 from 2^32 rows on.
 *
 * Each step takes entries sorted by key.  A run of equal keys that lies inside a tile
 * is added to its destination.  The sums of a tile's first and last run become two
 * entries of the next step, which are again sorted; a step of one tile leaves none.
 * Cost:  each pass of the sort reads and writes 8 bytes per source row, one pass for
 *        every 8 bits of the number of destinations; then those 8 bytes are read once.
 */
#include "../sorted.cuh"

/*
 * Entry i has key[i].  In the first step its source row is number[i] or wide_number[i],
 * or i if both are NULL; from the second step on it is row i of `part`.
 */
template <typename T>
struct index_add_entries {
    const uint32_t *key, *number;
    const uint64_t *wide_number;
    const acc_of<T> *part;
    int64_t n, by_row, by_outer;
    const T *source; /* by_row and by_outer are its strides, or those of part */
};

/* The only element of one entry's row, times alpha. */
template <typename T>
__device__ __forceinline__ acc_of<T>
load_entry(const index_add_view<T> &a, const index_add_entries<T> &e, int64_t o,
           int64_t i)
{
    if (e.part != nullptr) {
        return e.part[o * e.by_outer + i * e.by_row];
    }
    int64_t s = e.number != nullptr ? e.number[i] : i;
    s = e.wide_number != nullptr ? static_cast<int64_t>(e.wide_number[i]) : s;
    return scaled(e.source[o * e.by_outer + s * e.by_row], a.alpha);
}

/* Entries 2 t and 2 t + 1 of the next step; none after a step of one tile. */
template <typename T>
struct index_add_next {
    uint32_t *key;
    acc_of<T> *part;
};

template <typename T>
__device__ __forceinline__ void
add_to_out(const index_add_view<T> &a, int64_t o, uint32_t key, acc_of<T> sum)
{
    T *const at = a.out + o * a.length + key;
    *at = sum_stored(*at, sum);
}

/* The run still open after a thread's entries, and whether it began in that thread. */
template <typename T>
struct index_add_open {
    acc_of<T> sum;
    bool is_new;
};

/* Where entry i of a tile lies: lanes, 8 entries apart, have no bank conflicts. */
__device__ __forceinline__ int
padded(int i)
{
    return i + i / TILE_ITEMS;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK, 3)
    index_add_one_element_kernel(index_add_view<T> a, index_add_entries<T> e,
                                 index_add_next<T> next, int64_t tiles)
{
    using Acc = acc_of<T>;
    constexpr int WARPS = BLOCK / WARP;
    GPO_SHARED(uint32_t, key, [TILE + BLOCK]);
    GPO_SHARED(Acc, value, [TILE + BLOCK]);
    GPO_SHARED(Acc, warp_sum, [WARPS]);
    GPO_SHARED(bool, warp_new, [WARPS]);
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int64_t units = a.outer * tiles;
    const bool alone = tiles == 1;

    for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
        const int64_t o = quotient(u, tiles), tile = u - o * tiles;
        const int64_t begin = tile * TILE;
        const int valid = static_cast<int>(e.n - begin < TILE ? e.n - begin : TILE);
        const int first = tid * TILE_ITEMS;
        const int last = first + TILE_ITEMS < valid ? first + TILE_ITEMS : valid;
        Acc loaded[TILE_ITEMS];
        uint32_t keys[TILE_ITEMS];
#pragma unroll
        for (int k = 0; k < TILE_ITEMS; k++) {
            const int i = k * BLOCK + tid;
            if (i < valid) {
                keys[k] = e.key[begin + i];
                loaded[k] = load_entry<T>(a, e, o, begin + i);
            }
        }
        __syncthreads(); /* the previous tile has been read */
#pragma unroll
        for (int k = 0; k < TILE_ITEMS; k++) {
            const int i = k * BLOCK + tid;
            if (i < valid) {
                key[padded(i)] = keys[k];
                value[padded(i)] = loaded[k];
            }
        }
        __syncthreads();

        const bool any = first < valid;
        const uint32_t tile_key = key[0];
        const uint32_t first_key = any ? key[padded(first)] : 0;
        const bool joins = any && tid > 0 && key[padded(first - 1)] == first_key;
        uint32_t current = first_key;
        Acc sum = 0, head = 0;
        bool is_head = true;
        for (int i = first; i < last; i++) {
            const uint32_t k = key[padded(i)];
            if (k != current) {
                if (is_head) {
                    head = sum;
                }
                else {
                    add_to_out(a, o, current, sum);
                }
                is_head = false;
                current = k;
                sum = 0;
            }
            sum = sum_of<T>(sum, value[padded(i)]);
        }

        /* The sums of open runs over the threads they span: a segmented scan. */
        index_add_open<T> open = {sum, !any || !is_head || !joins};
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const Acc left = __shfl_up_sync(ALL_LANES, open.sum, d);
            const int left_new = __shfl_up_sync(ALL_LANES, int(open.is_new), d);
            if (lane >= d && !open.is_new) {
                open.sum = sum_of<T>(left, open.sum);
                open.is_new = left_new != 0;
            }
        }
        if (lane == WARP - 1) {
            warp_sum[warp] = open.sum;
            warp_new[warp] = open.is_new;
        }
        __syncthreads();
        Acc before = 0; /* the run still open after the previous warp */
        for (int w = 0; w < warp; w++) {
            before = warp_new[w] ? warp_sum[w] : sum_of<T>(before, warp_sum[w]);
        }
        if (!open.is_new) {
            open.sum = sum_of<T>(before, open.sum);
        }
        Acc carried = __shfl_up_sync(ALL_LANES, open.sum, 1);
        carried = lane == 0 ? before : carried;

        Acc *const part = alone ? nullptr : next.part + o * 2 * tiles + 2 * tile;
        if (any && !is_head) { /* the first run of this thread ends in it */
            const Acc total = joins ? sum_of<T>(carried, head) : head;
            if (first_key == tile_key && !alone) {
                part[0] = total;
            }
            else {
                add_to_out(a, o, first_key, total);
            }
        }
        if (any && (last == valid || key[padded(last)] != current)) {
            if (alone || (current != tile_key && last < valid)) {
                add_to_out(a, o, current, open.sum);
            }
            else {
                part[current == tile_key ? 0 : 1] = open.sum;
            }
            if (!alone && last == valid) {
                if (current == tile_key) {
                    part[1] = 0;
                }
                if (o == 0) {
                    next.key[2 * tile] = tile_key;
                    next.key[2 * tile + 1] = current;
                }
            }
        }
    }
}

template <typename T>
static gpo_status
sum_tiles(gpo_call *call, const index_add_view<T> &a, index_add_entries<T> e)
{
    gpo_status status = GPO_OK;
    for (bool more = true; more && !status;) {
        const int64_t tiles = ceil_div(e.n, TILE), units = a.outer * tiles;
        index_add_next<T> next = {nullptr, nullptr};
        more = tiles > 1;
        if (more) {
            void *key = nullptr, *part = nullptr;
            status = gpo_scratch(call, 2 * tiles * sizeof(uint32_t), &key);
            if (!status) {
                status = gpo_scratch(call, 2 * units * sizeof(acc_of<T>), &part);
            }
            next = {static_cast<uint32_t *>(key), static_cast<acc_of<T> *>(part)};
        }
        if (!status) {
            const dim3 grid(grid_extent(units, MAX_GRID));
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_one_element_kernel<T>),
                                a, e, next, tiles);
        }
        e = {next.key, nullptr, nullptr, next.part, 2 * tiles, 1, 2 * tiles, nullptr};
    }
    return status;
}

struct index_add_tiles {
    static constexpr index_add_traits TRAITS = {true, false, false, false};

    /* Payload: the number of the source row, or the bits of its only element. */
    template <typename T, typename Payload>
    static gpo_status sorted(gpo_call *call, const index_add_view<T> &a, bool carries)
    {
        void *memory = nullptr;
        gpo_status status = gpo_scratch(call, sort_bytes<Payload>(a.count), &memory);
        const Payload *const carried =
            carries ? reinterpret_cast<const Payload *>(a.source) : nullptr;
        sort_pairs<Payload> pairs = {};
        if (!status) {
            status = index_add_sort<Payload>(call, a.index, memory, carried, a.by_row,
                                             nullptr, &pairs);
        }
        if (status) {
            return status;
        }
        index_add_entries<T> entries = {pairs.key, nullptr,  nullptr,    nullptr,
                                        a.count,   a.by_row, a.by_outer, a.source};
        if (carries) {
            entries.by_row = 1;
            entries.source = reinterpret_cast<const T *>(pairs.payload);
        }
        else if constexpr (sizeof(Payload) == 4) {
            entries.number = pairs.payload;
        }
        else {
            entries.wide_number = pairs.payload;
        }
        return sum_tiles(call, a, entries);
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        const gpo_status status = index_add_check_length(call);
        if (status) {
            return status;
        }
        const bool single = a.outer == 1;
        return a.count >> 32 != 0
                   ? sorted<T, uint64_t>(call, a, sizeof(T) == 8 && single)
                   : sorted<T, uint32_t>(call, a, sizeof(T) == 4 && single);
    }
};

template <typename T>
gpo_status
index_add_one_element(gpo_call *call)
{
    return index_add_with<index_add_tiles, T>(call);
}

template gpo_status index_add_one_element<b8>(gpo_call *call);
template gpo_status index_add_one_element<uint8_t>(gpo_call *call);
template gpo_status index_add_one_element<uint16_t>(gpo_call *call);
template gpo_status index_add_one_element<uint32_t>(gpo_call *call);
template gpo_status index_add_one_element<uint64_t>(gpo_call *call);
template gpo_status index_add_one_element<f16>(gpo_call *call);
template gpo_status index_add_one_element<bf16>(gpo_call *call);
template gpo_status index_add_one_element<float>(gpo_call *call);
template gpo_status index_add_one_element<double>(gpo_call *call);
