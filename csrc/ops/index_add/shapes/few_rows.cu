/*
 * few_rows.cu  Rows that are fewer than destinations, summed in float64.
 * As v5, but sums are made only for destinations that have rows.  They are in a hash
 * table of two slots for each row: a row claims a slot for its destination and adds to its
 * sums; the last kernel adds each slot to x and rounds once.
 * Where out is another array, blocks behind those that add copy x at the same time.
 * Cost:  the index and the source once; 2 * (8 * columns + 4) bytes for each row,
 *        written and read; x once if it is copied.
 */
#include "../../../device/words.cuh"
#include "../separate_sums.cuh"

static constexpr int SLOTS_OF_ROW = 2;
static constexpr int BUCKET = 4;          /* slots */
static constexpr int PACKS_IN_FLIGHT = 4; /* 16 bytes each, of a thread */
static constexpr unsigned NO_KEY = ~0u;

/* The table: slot j has destination key[j] and sums[j * columns..(j + 1) * columns). */
struct index_add_hash {
    double *sums;
    unsigned *key;
    unsigned slots;
    divider columns;   /* of all slices: outer * inner */
    int64_t sum_packs; /* of 16 bytes, cleared to 0 */
    int64_t key_packs; /* behind them, set to NO_KEY */
    unsigned adders;   /* blocks that add; those behind them copy x to out */
    int64_t x_packs;   /* 0: x or out is not aligned to 16 bytes */
};

static __global__ void
__launch_bounds__(BLOCK) index_add_few_rows_clear(index_add_hash table)
{
    let_next_start();
    uint4 *const words = reinterpret_cast<uint4 *>(table.sums);
    const int64_t packs = table.sum_packs + table.key_packs;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t p = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; p < packs;
         p += step) {
        words[p] = p < table.sum_packs ? make_uint4(0, 0, 0, 0)
                                       : make_uint4(NO_KEY, NO_KEY, NO_KEY, NO_KEY);
    }
}

/* out = x, by block `block` of those that copy, unless an index is bad. */
template <typename T>
static __device__ __forceinline__ void
copy_part(const index_add_view<T> &a, const index_add_hash &table, int64_t block)
{
    if (a.verdict != nullptr && *a.verdict != NONE_BAD) {
        return;
    }
    const int64_t first = block * (BLOCK * PACKS_IN_FLIGHT) + threadIdx.x;
    copy_packs<PACKS_IN_FLIGHT>(reinterpret_cast<const uint4 *>(a.base),
                                reinterpret_cast<uint4 *>(a.out), first, BLOCK,
                                table.x_packs);
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x - table.adders) * BLOCK;
    for (int64_t i = table.x_packs * static_cast<int64_t>(16 / sizeof(T)) +
                     block * BLOCK + threadIdx.x;
         i < size; i += step) {
        a.out[i] = a.base[i];
    }
}

/*
 * The slot of destination k; -1 if the table is full, which takes an index that changes
 * during the call.  Slots are looked at in buckets, whose keys come at once: of 100,000
 * keys in twice as many slots, some would be 30 slots away from where they belong.
 */
static __device__ __forceinline__ int
hash_slot(const index_add_hash &table, unsigned k)
{
    unsigned mixed =
        k; /* MurmurHash3's last steps: no step of the index is a bad one */
    mixed = (mixed ^ mixed >> 16) * 0x85ebca6bu;
    mixed = (mixed ^ mixed >> 13) * 0xc2b2ae35u;
    mixed ^= mixed >> 16;
    unsigned slot = __umulhi(mixed, table.slots / BUCKET) * BUCKET;
#pragma unroll 1
    for (unsigned tried = 0; tried < 2 * table.slots; tried++) {
        unsigned key[BUCKET];
#pragma unroll
        for (int j = 0; j < BUCKET; j++) {
            key[j] = load_word(table.key + slot + j);
        }
        int at = BUCKET; /* the first that is k's or may be */
        unsigned was = 0;
#pragma unroll
        for (int j = BUCKET - 1; j >= 0; j--) {
            const bool fits = key[j] == k || key[j] == NO_KEY;
            at = fits ? j : at;
            was = fits ? key[j] : was;
        }
        if (at == BUCKET) {
            slot = slot + BUCKET < table.slots ? slot + BUCKET : 0;
            continue;
        }
        if (was ==
            NO_KEY) { /* read before it is set: rows of one destination may be many */
            was = atomicCAS(table.key + slot + at, NO_KEY, k);
        }
        if (was == NO_KEY || was == k) {
            return static_cast<int>(slot) + at;
        }
    }
    return -1;
}

/* A thread for each element; of the lanes with one row the first finds its slot.  `joins`:
   lanes with one place send one sum. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    index_add_few_rows_add(index_add_view<T> a, index_add_hash table, bool joins)
{
    let_next_start();
    if (blockIdx.x >= table.adders) {
        copy_part(a, table, blockIdx.x - table.adders);
        return;
    }
    const int inner = static_cast<int>(a.inner), count = static_cast<int>(a.count);
    const int n = static_cast<int>(a.outer) * count * inner; /* at most 2^26 */
    const int i = static_cast<int>(blockIdx.x * BLOCK + threadIdx.x);
    const int lane = static_cast<int>(threadIdx.x % WARP);
    int o = 0, c = 0, slot = -1;
    T v = {};
    if (i < n) {
        const int row = a.inners.narrow(i);
        o = a.counts.narrow(row);
        c = i - row * inner;
        const int s = row - o * count;
        const int64_t entry = entry_of(a.index, s);
        v = a.source[o * a.by_outer + s * a.by_row + c * a.by_inner];
        wait_for_before();
        if (c == 0 || lane == 0) {
            const int64_t k = place_of_entry(a.index, entry, s);
            slot = k < 0 ? -1 : hash_slot(table, static_cast<unsigned>(k));
        }
    }
    if (inner > 1) { /* the same in all threads */
        slot = __shfl_sync(ALL_LANES, slot, c < lane ? lane - c : 0);
    }
    const int64_t at = slot >= 0 ? slot * table.columns.by + o * inner + c : -1;
    double sum = wide_scaled(v, a.wide_alpha);
    const bool sends = !joins || add_up_key(static_cast<unsigned long long>(at), &sum);
    if (sends && at >= 0) {
        atomic_add(table.sums + at, sum);
    }
}

/* A thread for each sum.  Where it is 0, x keeps its bits; out has those of x by now. */
template <typename T>
__global__ void
__launch_bounds__(BLOCK)
    index_add_few_rows_round(index_add_view<T> a, index_add_hash table)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t slot = table.columns.of(i);
    wait_for_before();
    if (slot >= table.slots || (a.verdict != nullptr && *a.verdict != NONE_BAD)) {
        return;
    }
    const unsigned key = table.key[slot];
    const double sum = table.sums[i];
    if (key != NO_KEY && sum != 0) {
        const int64_t column = i - slot * table.columns.by, o = a.inners.of(column);
        const int64_t at = (o * a.length + key) * a.inner + column - o * a.inner;
        const double both = static_cast<double>(value_of(a.out[at])) + sum;
        a.out[at] = stored_as<T>(static_cast<float>(both));
    }
}

/* The table of a call, in its scratch memory. */
template <typename T>
static gpo_status
hash_for(gpo_call *call, const index_add_view<T> &a, index_add_hash *table)
{
    const int64_t columns = a.outer * a.inner;
    const int64_t slots = ceil_div(SLOTS_OF_ROW * a.count, BUCKET) * BUCKET;
    const int64_t size = columns * a.length;
    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(a.out) | reinterpret_cast<uintptr_t>(a.base);
    table->slots = static_cast<unsigned>(slots);
    table->columns = divider_of(columns);
    table->sum_packs = ceil_div(slots * columns, 2);
    table->key_packs = ceil_div(slots, 4);
    table->x_packs =
        addresses % 16 == 0 ? size * static_cast<int64_t>(sizeof(T)) / 16 : 0;
    void *memory = nullptr;
    const gpo_status status =
        gpo_scratch(call, (table->sum_packs + table->key_packs) * 16, &memory);
    table->sums = static_cast<double *>(memory);
    table->key = reinterpret_cast<unsigned *>(table->sums + 2 * table->sum_packs);
    return status;
}

struct index_add_sparse : index_add_wide_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        index_add_hash table = {};
        gpo_status status = hash_for(call, a, &table);
        if (!status) {
            const int64_t packs = table.sum_packs + table.key_packs;
            status = GPO_LAUNCH(call, grid_for(packs), BLOCK, 0,
                                index_add_few_rows_clear, table);
        }
        const int64_t size = a.outer * a.length * a.inner;
        const int64_t parts = table.x_packs > 0 ? table.x_packs : size;
        const int64_t copiers =
            a.base != a.out ? ceil_div(parts, BLOCK * PACKS_IN_FLIGHT) : 0;
        table.adders = grid_for(a.outer * a.count * a.inner).x;
        if (!status) {
            status = GPO_FOLLOW(
                call, true, dim3(grid_extent(table.adders + copiers, MAX_GRID)), BLOCK,
                0, (index_add_few_rows_add<T>), a, table, index_add_joins_lanes(call));
        }
        return status ? status
                      : GPO_FOLLOW(call, true, grid_for(table.slots * table.columns.by),
                                   BLOCK, 0, (index_add_few_rows_round<T>), a, table);
    }
};

template <typename T>
gpo_status
index_add_few_rows(gpo_call *call)
{
    return index_add_with<index_add_sparse, T>(call);
}

template gpo_status index_add_few_rows<f16>(gpo_call *call);
template gpo_status index_add_few_rows<bf16>(gpo_call *call);
template gpo_status index_add_few_rows<float>(gpo_call *call);
