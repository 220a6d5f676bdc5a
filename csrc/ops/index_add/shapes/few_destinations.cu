/*
 * few_destinations.cu  Many rows for each of few destinations, summed in float64.
 * As v5, but atomics to few addresses would be serialized in L2: each block adds its
 * part of the source to a table in shared memory (tables.cuh), as in v2, and sends each
 * sum once.  Small tables are kept in memory, and the last block to finish adds them to
 * x: one launch, where atomics to float64 sums take three.  Of thousands of destinations
 * a thread has two columns of a row, so that it finds a place once for two sums.
 * Cost:  reads the source once; a table of sums per block; 8 bytes for each element of
 *        x, written twice and read, or once for each block.
 */
#include "../../../device/block.cuh"
#include "../separate_sums.cuh"
#include "../tables.cuh"

/* Where sums of blocks go: to float64 sums of x, or to a table of each block. */
struct index_add_block_sums {
    double *sums;
    unsigned *ticket; /* of each unit, see is_last_block; or NULL */
    double *part;     /* by unit, slice, and place in a table */
    int splits;       /* threads that add the tables of one place: a power of two */
};

/* The last block of a unit: out = x + the sums of its slices, rounded once. */
template <typename T>
static __device__ __forceinline__ void
finish_unit(const index_add_view<T> &a, const index_add_table &t, const double *part,
            int splits, unsigned unit, double *table)
{
    const int places = static_cast<int>(a.length) * t.columns, tid = threadIdx.x;
    const int split = tid / places, i = tid - split * places;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t k = i / t.columns, c = tile * t.columns + i % t.columns;
    const int64_t at = (o * a.length + k) * a.inner + c;
    const bool finishes = split == 0 && c < a.inner;
    const T old = finishes ? a.base[at] : T{}; /* comes with the tables */
    double *const mine = table + tid; /* of place i, and of the split behind it */
    double sum = 0;
    if (split < splits) {
#pragma unroll 4
        for (unsigned j = split; j < t.slices; j += splits) {
            sum += part[static_cast<int64_t>(j) * places + i];
        }
        *mine = sum;
    }
    for (int h = splits / 2; h > 0; h /= 2) {
        __syncthreads();
        if (split < h) {
            sum += mine[h * places];
            *mine = sum;
        }
    }
    if (finishes) {
        const double both = static_cast<double>(value_of(old)) + sum;
        if (sum != 0 || a.base != a.out) {
            a.out[at] = sum != 0 ? stored_as<T>(static_cast<float>(both)) : old;
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_few_destinations_kernel(index_add_view<T> a, index_add_table t,
                                      index_add_block_sums to)
{
    constexpr int ITEMS = 4; /* rows in flight */
    GPO_DYN_SHARED(double, table);
    let_next_start();
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int places = static_cast<int>(a.length) * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes, copy = mine % t.copies;
    const int64_t c = tile * t.columns + column;
    const bool is_column = mine < rows && column < t.columns && c < a.inner;

    for (int i = tid; i < places * t.copies; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    for (int64_t first = begin + mine; is_column && first < end;
         first += ITEMS * rows) {
        T v[ITEMS] = {};
        int64_t entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            if (s < end) {
                entry[j] = entry_of(a.index, s);
                v[j] = from[s * a.by_row];
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            const int64_t k = s < end ? destination_of(a.index, entry[j], s) : -1;
            if (k >= 0) {
                atomic_add(
                    &table[(static_cast<int>(k) * t.columns + column) * t.copies +
                           copy],
                    wide_scaled(v[j], a.wide_alpha));
            }
        }
    }
    __syncthreads();
    wait_for_before();
    double *const part = to.part + static_cast<int64_t>(unit) * t.slices * places;
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        double sum = 0;
        for (int j = 0; j < t.copies; j++) {
            sum += table[i * t.copies + j];
        }
        const int64_t k = i / t.columns, at = tile * t.columns + i % t.columns;
        if (to.ticket != nullptr) {
            part[slice * places + i] = sum;
        }
        else if (sum != 0 && at < a.inner) {
            atomic_add(to.sums + (o * a.length + k) * a.inner + at, sum);
        }
    }
    /* Behind what finish_unit writes; no static memory, as a table may take all. */
    bool *const last = reinterpret_cast<bool *>(table + TABLE_BLOCK);
    if (to.ticket != nullptr && is_last_block(to.ticket + unit, t.slices, last) &&
        (a.verdict == nullptr || *a.verdict == NONE_BAD)) {
        finish_unit(a, t, part, to.splits, unit, table);
    }
}

/* ---- two columns of a thread ---- */

/* Elements p[0] and p[step]; as one load where they are an aligned pair. */
template <typename T>
static __device__ __forceinline__ void
load_two(const T *p, int64_t step, bool is_pair, T (&v)[2])
{
    if (is_pair) {
        using Word = std::conditional_t<sizeof(T) == 4, uint2, uint32_t>;
        const Word bits = *reinterpret_cast<const Word *>(p);
        memcpy(static_cast<void *>(v), &bits, sizeof bits);
    }
    else {
        v[0] = p[0];
        v[1] = p[step];
    }
}

/* Sum (k, c) of a table is at c * length + k, so lanes of a column are in any bank. */
template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_pair_tables_kernel(index_add_view<T> a, index_add_table t, double *sums,
                                 bool is_paired)
{
    constexpr int ITEMS = 4; /* rows in flight */
    GPO_DYN_SHARED(double, table);
    let_next_start();
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int length = static_cast<int>(a.length), places = length * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes * 2;

    for (int i = tid; i < places; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    double *const left = table + column * length, *const right = left + length;
    const T *const from =
        a.source + o * a.by_outer + (tile * t.columns + column) * a.by_inner;
    for (int64_t first = begin + mine; mine < rows && first < end;
         first += ITEMS * rows) {
        T v[ITEMS][2] = {};
        int64_t entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            if (s < end) {
                entry[j] = entry_of(a.index, s);
                load_two(from + s * a.by_row, a.by_inner, is_paired, v[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t s = first + j * rows;
            const int64_t k = s < end ? destination_of(a.index, entry[j], s) : -1;
            if (k >= 0) {
                atomic_add(left + k, wide_scaled(v[j][0], a.wide_alpha));
                atomic_add(right + k, wide_scaled(v[j][1], a.wide_alpha));
            }
        }
    }
    __syncthreads();
    wait_for_before();
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        const int k = i / t.columns, c = i - k * t.columns;
        const double sum = table[c * length + k];
        if (sum != 0) {
            atomic_add(sums + (o * a.length + k) * a.inner + tile * t.columns + c, sum);
        }
    }
}

/* Whether two neighbouring elements of a row of the source are an aligned pair. */
template <typename T>
static bool
has_pairs(const index_add_view<T> &a)
{
    return a.by_inner == 1 && (a.outer == 1 || a.by_outer % 2 == 0) &&
           (a.count == 1 || a.by_row % 2 == 0) &&
           reinterpret_cast<uintptr_t>(a.source) % (2 * sizeof(T)) == 0;
}

/* ---- the launches ---- */

/* One launch: the blocks' tables are in the stream's memory. */
template <typename T>
static gpo_status
launch_alone(gpo_call *call, const index_add_view<T> &a, const index_add_table &t,
             size_t bytes)
{
    index_add_block_sums to = {};
    const gpo_status status = gpo_tickets(call, &to.ticket);
    if (status) {
        return status;
    }
    to.part = reinterpret_cast<double *>(to.ticket + GPO_TICKETS);
    const int64_t places = a.length * t.columns;
    to.splits = 1;
    const int slices = static_cast<int>(t.slices);
    while (2 * to.splits * places <= TABLE_BLOCK && to.splits < slices) {
        to.splits *= 2;
    }
    const size_t least = (TABLE_BLOCK + 1) * sizeof(double);
    bytes = bytes > least ? bytes : least;
    gpo_allow_shared(index_add_few_destinations_kernel<T>, bytes);
    return GPO_LAUNCH(call, table_grid(a.outer, t), TABLE_BLOCK, bytes,
                      (index_add_few_destinations_kernel<T>), a, t, to);
}

struct index_add_tables : index_add_wide_atomics {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        index_add_table t;
        size_t bytes = 0;
        const bool are_pairs = plan_pairs(call, &t, &bytes);
        if (!are_pairs && !plan_table(call, sizeof(double), &t, &bytes, true) &&
            !plan_table(call, sizeof(double), &t, &bytes)) {
            return gpo_fail(&call->error, GPO_EVARIANT,
                            "the sums of index_add() do not fit into shared memory");
        }
        if (!are_pairs && is_finished_alone(*index_add_plan_of(call), t)) {
            return launch_alone(call, a, t, bytes);
        }
        const index_add_range all = {0, a.outer * a.length * a.inner};
        void *memory = nullptr;
        const int64_t bytes_of_sums = ceil_div(all.n, 2) * 16;
        gpo_status status = gpo_scratch(call, bytes_of_sums, &memory);
        const index_add_block_sums to = {static_cast<double *>(memory), nullptr,
                                         nullptr, 0};
        if (!status) {
            status = index_add_clear_sums(call, memory, bytes_of_sums);
        }
        if (!status && are_pairs) {
            gpo_allow_shared(index_add_pair_tables_kernel<T>, bytes);
            status = GPO_FOLLOW(call, true, table_grid(a.outer, t), TABLE_BLOCK, bytes,
                                (index_add_pair_tables_kernel<T>), a, t, to.sums,
                                has_pairs(a));
        }
        else if (!status) {
            gpo_allow_shared(index_add_few_destinations_kernel<T>, bytes);
            status = GPO_FOLLOW(call, true, table_grid(a.outer, t), TABLE_BLOCK, bytes,
                                (index_add_few_destinations_kernel<T>), a, t, to);
        }
        return status ? status : index_add_round_sums(call, a, all, to.sums);
    }
};

template <typename T>
gpo_status
index_add_few_destinations(gpo_call *call)
{
    return index_add_with<index_add_tables, T>(call);
}

template gpo_status index_add_few_destinations<f16>(gpo_call *call);
template gpo_status index_add_few_destinations<bf16>(gpo_call *call);
template gpo_status index_add_few_destinations<float>(gpo_call *call);
