/*
 * cuda.cu  The ladder of index_add on CUDA, v0 to v5, then the table and the choice.
 * Each rung is a comment, a kernel and a launcher.  Not here: the frame that copies x
 * and checks the index (index_add.cuh), the kernels of v4 (deterministic.cuh) and of v5
 * (wide.cuh), the contract (op.c).
 */
#include "deterministic.cuh"
#include "wide.cuh"

#include <stdio.h>

/*
 * v0  One atomic per element.
 * Now:   a thread for each element of the source; it finds its slice, its row and its
 *        column by 64-bit division, reads the index and adds.
 * Cost:  reads the source and, for each element, the index; one atomic per element.
 * Left:  every lane issues its own 4-byte atomic -> v1.
 */
template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_v0_atomic(index_add_view<T> a)
{
    const int64_t n = a.outer * a.count * a.inner, slice = a.count * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        const int64_t o = i / slice;
        const int64_t s = (i - o * slice) / a.inner;
        const int64_t c = i - o * slice - s * a.inner;
        const int64_t k = position_of(a.index, s);
        if (k >= 0) {
            const T v = a.source[o * a.by_outer + s * a.by_row + c * a.by_inner];
            atomic_add(a.out + (o * a.length + k) * a.inner + c,
                       stored_as<T>(scaled(v, a.alpha)));
        }
    }
}

/* What v0 to v3 have in common: atomics, on a copy of x. */
struct atomic_rung {
    static constexpr bool IS_DETERMINISTIC = false;

    static bool reads_x(const index_add_plan &)
    {
        return false;
    }
};

struct rung_v0 : atomic_rung {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return GPO_LAUNCH(call, grid_for(a.outer * a.count * a.inner), BLOCK, 0,
                          (index_add_v0_atomic<T>), a);
    }
};

/*
 * v1  Vector atomics.
 * Was:   v0 adds 2 to 8 bytes per atomic.
 * Now:   a thread takes 16 bytes of a row: on sm_90 four floats or eight of 16 bits go in
 *        one atomic, before one by one and in pairs.  Where rows do not split into packs,
 *        one element, a 16-bit float through the aligned pair around it.  Four packs are
 *        in flight; a division is a multiplication by what the host found out.
 * Cost:  as v0 with up to a quarter of the atomic instructions.
 * Left:  sources that share a destination meet in L2, one after the other -> v2.
 */
template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK, 4) index_add_v1_vector(index_add_view<T> a, divider across)
{
    constexpr int ITEMS = 4;
    const int64_t n = a.outer * a.count * across.by;
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * ITEMS);
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * (BLOCK * ITEMS); begin < n;
         begin += step) {
        values<T, V> v[ITEMS];
        int64_t to[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t i = begin + j * BLOCK + threadIdx.x;
            to[j] = -1;
            if (i < n) {
                const int64_t row = across.of(i), o = a.counts.of(row);
                const int64_t s = row - o * a.count, c = (i - row * across.by) * V;
                const int64_t k = position_of(a.index, s);
                v[j] = load_scaled<T, V>(
                    a.source + o * a.by_outer + s * a.by_row + c * a.by_inner, a.alpha);
                to[j] = k < 0 ? -1 : (o * a.length + k) * a.inner + c;
            }
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (to[j] >= 0) {
                atomic_add_values<T, V>(a.out, to[j], size, v[j]);
            }
        }
    }
}

struct rung_v1 : atomic_rung {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int V = pack<T>::SIZE, ITEMS = 4;
        const int64_t n = a.outer * a.count * a.inner;
        return is_packed(a)
                   ? GPO_LAUNCH(call, grid_for(ceil_div(n / V, ITEMS)), BLOCK, 0,
                                (index_add_v1_vector<T, V>), a, divider_of(a.inner / V))
                   : GPO_LAUNCH(call, grid_for(ceil_div(n, ITEMS)), BLOCK, 0,
                                (index_add_v1_vector<T, 1>), a, a.inners);
    }
};

/*
 * v2  Hot destinations pre-summed.
 * Was:   v1 sends every element of the source to L2.
 * Now:   where the destinations of a few columns fit into shared memory, a block adds
 *        its part of the source there and sends each sum once; few destinations get
 *        several copies, so that lanes do not meet.  Else lanes of a warp that have the
 *        same destination find each other and send one sum; rows of more columns than
 *        that pays for go as in v1.
 * Cost:  reads the source once; a table of sums per block, in float for 16-bit floats.
 * Left:  for long rows the index is read, and the row found, once per 16 bytes -> v3.
 */
constexpr int64_t MATCH_INNER =
    16; /* columns up to which rows of a warp are compared */

template <typename T>
__global__ void
__launch_bounds__(TABLE_BLOCK)
    index_add_v2_shared(index_add_view<T> a, index_add_table t)
{
    using Acc = acc_of<T>;
    constexpr int TABLE_ITEMS = sizeof(Acc) == 8 ? 3 : 8; /* rows in flight */
    GPO_DYN_SHARED(Acc, table);
    const unsigned unit = blockIdx.x / t.slices;
    const int64_t slice = blockIdx.x - unit * t.slices;
    const int64_t o = unit / t.tiles, tile = unit % t.tiles;
    const int64_t begin = slice * t.rows;
    const int64_t end = begin + t.rows < a.count ? begin + t.rows : a.count;
    const int places = static_cast<int>(a.length) * t.columns;
    const int tid = threadIdx.x, rows = TABLE_BLOCK / t.lanes, mine = tid / t.lanes;
    const int column = tid % t.lanes, copy = mine % t.copies;
    const int64_t c = tile * t.columns + column;
    const bool is_column = column < t.columns && c < a.inner;

    for (int i = tid; i < places * t.copies; i += TABLE_BLOCK) {
        table[i] = 0;
    }
    __syncthreads();
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    for (int64_t s = begin + mine; is_column && s < end; s += TABLE_ITEMS * rows) {
        Acc v[TABLE_ITEMS];
        int at[TABLE_ITEMS];
#pragma unroll
        for (int j = 0; j < TABLE_ITEMS; j++) {
            at[j] = -1;
            if (s + j * rows < end) {
                const int64_t k = position_of(a.index, s + j * rows);
                v[j] = scaled(from[(s + j * rows) * a.by_row], a.alpha);
                at[j] = k < 0 ? -1
                              : (static_cast<int>(k) * t.columns + column) * t.copies +
                                    copy;
            }
        }
#pragma unroll
        for (int j = 0; j < TABLE_ITEMS; j++) {
            if (at[j] >= 0) {
                atomic_add(table + at[j], v[j]);
            }
        }
    }
    __syncthreads();
    for (int i = tid; i < places; i += TABLE_BLOCK) {
        Acc sum = 0;
        for (int j = 0; j < t.copies; j++) {
            sum += table[i * t.copies + j];
        }
        const int64_t k = i / t.columns, at = tile * t.columns + i % t.columns;
        if (sum != 0 && at < a.inner) {
            values<T, 1> one;
            one.v[0] = stored_as<T>(sum);
            atomic_add_values<T, 1>(a.out, (o * a.length + k) * a.inner + at,
                                    a.outer * a.length * a.inner, one);
        }
    }
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK) index_add_v2_match(index_add_view<T> a)
{
    using Acc = acc_of<T>;
    const int64_t n = a.outer * a.count * a.inner;
    const int64_t size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const unsigned lane = threadIdx.x % WARP;
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * BLOCK; begin < n;
         begin += step) { /* whole warps: all lanes meet below */
        const int64_t i = begin + threadIdx.x;
        unsigned long long to = NONE_BAD;
        Acc sum = 0;
        if (i < n) {
            const int64_t row = a.inners.of(i), o = a.counts.of(row);
            const int64_t s = row - o * a.count, c = i - row * a.inner;
            const int64_t k = position_of(a.index, s);
            sum = scaled(a.source[o * a.by_outer + s * a.by_row + c * a.by_inner],
                         a.alpha);
            to =
                k < 0
                    ? NONE_BAD
                    : static_cast<unsigned long long>((o * a.length + k) * a.inner + c);
        }
        const unsigned peers = __match_any_sync(ALL_LANES, to);
        const bool leads = (peers & ((1u << lane) - 1)) == 0;
        unsigned rest = leads ? peers & ~(1u << lane) : 0; /* to be fetched */
        while (__any_sync(ALL_LANES, rest != 0)) {
            const int from = rest != 0 ? __ffs(static_cast<int>(rest)) - 1 : 0;
            const Acc other = __shfl_sync(ALL_LANES, sum, from);
            if (rest != 0) {
                sum += other;
                rest &= rest - 1;
            }
        }
        if (leads && to != NONE_BAD) {
            values<T, 1> one;
            one.v[0] = stored_as<T>(sum);
            atomic_add_values<T, 1>(a.out, static_cast<int64_t>(to), size, one);
        }
    }
}

/* The table of Acc for a call; false if it does not fit or holds too little to pay. */
template <typename Acc, typename T>
static bool
plan_table(const gpo_call *call, const index_add_view<T> &a, index_add_table *t,
           size_t *bytes)
{
    constexpr int64_t size = sizeof(Acc);
    constexpr int64_t FEW = 8 * 1024 * size; /* bytes that copies of a table may take */
    constexpr int64_t MIN_BYTES = 32;        /* of a row, read at once */
    int64_t columns = a.inner < WARP ? a.inner : WARP;
    while (a.length * columns * size > gpo_shared_room(call) && columns > 1) {
        columns = (columns + 1) / 2;
    }
    const bool fits = a.length * columns * size <= gpo_shared_room(call);
    const bool is_whole = columns == a.inner;
    const bool is_long = columns * static_cast<int64_t>(sizeof(T)) >= MIN_BYTES;
    if (!fits || (!is_whole && !is_long) || a.count < 2 * a.length) {
        return false;
    }
    t->columns = static_cast<int>(columns);
    t->lanes = 1;
    while (t->lanes < columns) {
        t->lanes *= 2;
    }
    t->copies = 1;
    while (t->copies * t->lanes < WARP &&
           2 * t->copies * a.length * columns * size <= FEW) {
        t->copies *= 2;
    }
    *bytes = static_cast<size_t>(a.length * columns * t->copies * size);
    const int64_t tiles = ceil_div(a.inner, columns), units = a.outer * tiles;
    const int64_t wanted = ceil_div(gpo_processors(call), units);
    const int64_t deepest = a.count / (2 * a.length);
    const int64_t slices = wanted < deepest ? wanted : deepest;
    t->tiles = static_cast<unsigned>(tiles);
    t->slices = static_cast<unsigned>(slices);
    t->rows = ceil_div(a.count, slices);
    return units * slices < MAX_GRID;
}

struct rung_v2 : atomic_rung {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        index_add_table t;
        size_t bytes = 0;
        if (plan_table<acc_of<T>>(call, a, &t, &bytes)) {
            gpo_allow_shared(index_add_v2_shared<T>, bytes);
            const dim3 grid(static_cast<unsigned>(a.outer * t.tiles * t.slices));
            return GPO_LAUNCH(call, grid, TABLE_BLOCK, bytes, (index_add_v2_shared<T>),
                              a, t);
        }
        if (a.inner > MATCH_INNER) {
            return rung_v1::run<T>(call, a);
        }
        return GPO_LAUNCH(call, grid_for(a.outer * a.count * a.inner), BLOCK, 0,
                          (index_add_v2_match<T>), a);
    }
};

/*
 * v3  A warp per source row.
 * Was:   v1 divides, and reads the index, once per 16 bytes of the source.
 * Now:   a warp reads the index of four rows and then only adds offsets: the lanes take
 *        16 bytes each, four rows at once.
 * Cost:  as v1 with one index read per row; lanes idle where a row is short.
 * Left:  atomics add in any order -> v4.
 */
template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK) index_add_v3_rows(index_add_view<T> a)
{
    constexpr int ROWS = 4;
    const int64_t rows = a.outer * a.count, size = a.outer * a.length * a.inner;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK / WARP) * ROWS;
    const int64_t warp =
        (static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x) / WARP;
    const int lane = threadIdx.x % WARP;
    for (int64_t first = warp * ROWS; first < rows; first += step) {
        const T *from[ROWS];
        int64_t to[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            const int64_t row = first + j;
            to[j] = -1;
            if (row < rows) {
                const int64_t o = a.counts.of(row);
                const int64_t s = row - o * a.count, k = position_of(a.index, s);
                from[j] = a.source + o * a.by_outer + s * a.by_row;
                to[j] = k < 0 ? -1 : (o * a.length + k) * a.inner;
            }
        }
        for (int64_t c = lane * V; c < a.inner; c += WARP * V) {
            values<T, V> v[ROWS];
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (to[j] >= 0) {
                    v[j] = load_scaled<T, V>(from[j] + c * a.by_inner, a.alpha);
                }
            }
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                if (to[j] >= 0) {
                    atomic_add_values<T, V>(a.out, to[j] + c, size, v[j]);
                }
            }
        }
    }
}

struct rung_v3 : atomic_rung {
    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int V = pack<T>::SIZE, ROWS = 4;
        const dim3 grid = grid_for(ceil_div(a.outer * a.count, ROWS) * WARP);
        return is_packed(a)
                   ? GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v3_rows<T, V>), a)
                   : GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v3_rows<T, 1>), a);
    }
};

/*
 * v4  Sorted, no atomics.
 * Was:   v3's sums depend on which atomic came first.
 * Now:   the positions are sorted by destination, stably, and each destination gathers
 *        its rows and adds them in the order of the source, so that x is read and out
 *        written once.  More than 128 rows of one destination are added in chunks of 64,
 *        side by side, and their sums in a kernel of its own.  Rows of one element are
 *        summed by tiles of 2,048; those of 4 bytes travel with their key.
 * Cost:  a pass over 8 bytes per row of the source, read and written, for every 8 bits
 *        of the number of destinations; then the source once.
 * Left:  one element per row moves more bytes in the sort than in the sum.
 */
struct rung_v4 {
    static constexpr bool IS_DETERMINISTIC = true;

    static bool reads_x(const index_add_plan &plan)
    {
        return plan.inner > 1;
    }

    /* `bytes` rounded up, so that what follows is aligned. */
    static size_t room(size_t bytes)
    {
        return (bytes + 255) / 256 * 256;
    }

    /* Payload: the number of the source row, or the bits of its only element. */
    template <typename T, typename Payload>
    static gpo_status sorted(gpo_call *call, const index_add_view<T> &a, bool carries)
    {
        const bool wide = a.inner > 1;
        const size_t keys = room(a.count * sizeof(uint32_t));
        const size_t payloads = room(a.count * sizeof(Payload));
        const size_t runs = wide ? room(a.length * sizeof(index_add_run<Payload>)) : 0;
        void *memory = nullptr; /* one piece: each asks the driver */
        gpo_status status = gpo_scratch(
            call, 2 * keys + 2 * payloads + runs + (wide ? part_bytes(a) : 0), &memory);
        if (status) {
            return status;
        }
        char *at = static_cast<char *>(memory);
        sort_pairs<Payload> pairs = {};
        pairs.key = reinterpret_cast<uint32_t *>(at);
        pairs.key_space = reinterpret_cast<uint32_t *>(at + keys);
        at += 2 * keys;
        pairs.payload = reinterpret_cast<Payload *>(at);
        pairs.payload_space = reinterpret_cast<Payload *>(at + payloads);
        at += 2 * payloads;
        index_add_run<Payload> *const run =
            wide ? reinterpret_cast<index_add_run<Payload> *>(at) : nullptr;
        acc_of<T> *const part = reinterpret_cast<acc_of<T> *>(at + runs);
        const Payload *const values_from =
            carries ? reinterpret_cast<const Payload *>(a.source) : nullptr;
        status = GPO_LAUNCH(call, grid_for(a.count), BLOCK, 0,
                            (index_add_v4_keys<Payload>), a.index, a.count, pairs.key,
                            values_from, a.by_row, pairs.payload, run);
        if (!status) {
            status = sort_by_key(call, &pairs, a.count, static_cast<uint64_t>(a.length),
                                 !carries);
        }
        if (status || wide) {
            return status ? status
                          : gather_rows<T, Payload>(call, a, pairs.key, pairs.payload,
                                                    run, part);
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
        if (a.length > INT64_C(1) << 32) {
            return gpo_fail(call, GPO_EUNSUPPORTED,
                            "v4 sorts by 32-bit positions; the axis has length %lld",
                            static_cast<long long>(a.length));
        }
        const bool single = a.inner == 1 && a.outer == 1;
        if (a.count >> 32 != 0) {
            return sorted<T, uint64_t>(call, a, sizeof(T) == 8 && single);
        }
        return sorted<T, uint32_t>(call, a, sizeof(T) == 4 && single);
    }
};

/*
 * v5  Sums in float64.
 * Was:   v0 to v3 round to the dtype of x after every addition: n rows of one destination
 *        may err by n units, and a float16 sum of ones stands still at 2,048.
 * Now:   sums of the shape of x begin at zero in float64, take the rows by atomics, from
 *        a table in shared memory where v2 would have one, and are rounded once, with x.
 * Cost:  8 bytes for each element of x, written twice and read; one 8-byte atomic per
 *        element of the source, which L2 takes as fast as one of 4 bytes for rows of one
 *        element, at half the rate for long ones.
 * Left:  long rows -> v4, which has no atomics.
 */
struct rung_v5 : atomic_rung {
    static bool reads_x(const index_add_plan &)
    {
        return true;
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        constexpr int64_t ITEMS = 4;
        const int64_t size = a.outer * a.length * a.inner;
        void *memory = nullptr;
        gpo_status status =
            gpo_scratch(call, static_cast<size_t>(size) * sizeof(double), &memory);
        double *const sums = static_cast<double *>(memory);
        if (!status) {
            status = GPO_LAUNCH(call, grid_for(size), BLOCK, 0, index_add_v5_clear,
                                sums, size);
        }
        index_add_table t;
        size_t bytes = 0;
        if (!status && plan_table<double>(call, a, &t, &bytes)) {
            gpo_allow_shared(index_add_v5_table<T>, bytes);
            const dim3 grid(static_cast<unsigned>(a.outer * t.tiles * t.slices));
            status = GPO_LAUNCH(call, grid, TABLE_BLOCK, bytes, (index_add_v5_table<T>),
                                a, t, sums);
        }
        else if (!status) {
            const int64_t n = a.outer * a.count * a.inner;
            status = GPO_LAUNCH(call, grid_for(ceil_div(n, ITEMS)), BLOCK, 0,
                                (index_add_v5_direct<T>), a, sums);
        }
        return status ? status
                      : GPO_LAUNCH(call, grid_for(size), BLOCK, 0,
                                   (index_add_v5_close<T>), a.base, sums, a.out, size);
    }
};

/* ---- table and choice ---- */

/* The type that adds for a dtype: integers modulo 2^bits, complex numbers by parts. */
template <typename T>
struct added_as {
    using type = T;
};
template <>
struct added_as<int8_t> {
    using type = uint8_t;
};
template <>
struct added_as<int16_t> {
    using type = uint16_t;
};
template <>
struct added_as<int32_t> {
    using type = uint32_t;
};
template <>
struct added_as<int64_t> {
    using type = uint64_t;
};
template <>
struct added_as<c64> {
    using type = float;
};
template <>
struct added_as<c128> {
    using type = double;
};

#define RUNG(v)                                                            \
    template <typename T>                                                  \
    static gpo_status index_add_##v(gpo_call *call)                        \
    {                                                                      \
        return index_add_with<rung_##v, typename added_as<T>::type>(call); \
    }
RUNG(v0)
RUNG(v1)
RUNG(v2)
RUNG(v3)
RUNG(v4)
RUNG(v5)

/* The dtypes that hardware adds atomically: from int32 on. */
#define ATOMIC(f)                                                                  \
    {                                                                              \
        nullptr, nullptr, nullptr, nullptr, nullptr, f<int32_t>, f<uint32_t>,      \
            f<int64_t>, f<uint64_t>, f<f16>, f<bf16>, f<float>, f<double>, f<c64>, \
            f<c128>                                                                \
    }

/* The dtypes that float64 holds exactly, with room for sums. */
#define NARROW_FLOATS(f)                                                        \
    {                                                                           \
        nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, \
            nullptr, f<f16>, f<bf16>, f<float>, nullptr, f<c64>, nullptr        \
    }

static const gpo_variant variants[] = {
    {"v0", "one atomic per element", "", "no", ATOMIC(index_add_v0)},
    {"v1", "vector and packed half atomics", "", "no", ATOMIC(index_add_v1)},
    {"v2", "hot destinations pre-summed in shared memory or a warp", "", "no",
     ATOMIC(index_add_v2)},
    {"v3", "a warp per source row", "", "no", ATOMIC(index_add_v3)},
    {"v4", "sorted by destination, no atomics", "", "run-to-run",
     GPO_ALL(index_add_v4)},
    {"v5", "sums in float64, rounded once", "", "no", NARROW_FLOATS(index_add_v5)},
    {nullptr, nullptr, nullptr, nullptr, {}},
};

/*
 * Picoseconds that v4 and v5 take, by their times on an H200 (benchmarks/results/
 * h200-index_add.json): v4 starts a dozen kernels, sorts 8 bits of a position at a time and
 * gathers at 3 TB/s; v5 sends each 32 bytes of sums of a row to L2, and clears and reads
 * sums.
 */
static double
time_of_v4(const index_add_plan &plan)
{
    constexpr double STARTS = 30e6, PASS = 18, BYTE = 0.33;
    int passes = 1;
    while (passes < 4 && (plan.length - 1) >> (8 * passes) > 0) {
        passes++;
    }
    const double rows = static_cast<double>(plan.count);
    const double elements = static_cast<double>(plan.outer * plan.inner) * rows;
    return STARTS + PASS * passes * rows +
           BYTE * gpo_dtypes[plan.dtype].bytes * elements;
}

static double
time_of_v5(const index_add_plan &plan)
{
    constexpr double SECTOR = 16, SUM = 3.7;
    const double sectors = static_cast<double>(plan.outer * ceil_div(plan.inner, 4)) *
                           static_cast<double>(plan.count);
    const double sums =
        static_cast<double>(plan.outer * plan.inner) * static_cast<double>(plan.length);
    return SECTOR * sectors + SUM * sums;
}

/*
 * For floats below float64 where more than a few rows may meet, and 16-bit ones always:
 * v4 or v5, whose error does not grow with the rows of a destination.
 */
static const gpo_variant *
choose_bounded(const gpo_call *call, const index_add_plan &plan, bool fits_table,
               char why[GPO_MESSAGE])
{
    if (fits_table && plan.inner * plan.length * 8 <= gpo_shared_room(call)) {
        snprintf(
            why, GPO_MESSAGE,
            "many rows for each of few destinations: v5 sums them in shared memory, "
            "in float64");
        return &variants[5];
    }
    if (plan.length > INT64_C(1) << 32 || time_of_v5(plan) <= time_of_v4(plan)) {
        snprintf(why, GPO_MESSAGE,
                 "v5: float64 sums cost less than a sort of the positions would");
        return &variants[5];
    }
    snprintf(why, GPO_MESSAGE,
             "v4: a sort of the positions costs less than atomics in float64");
    return &variants[4];
}

/* By times on an H200, benchmarks/results/h200-index_add.json. */
static const gpo_variant *
choose(const gpo_call *call, char why[GPO_MESSAGE])
{
    constexpr int64_t MANY_ROWS = 16;                     /* for a destination */
    constexpr int64_t WIDE = 256, WARP_WIDE = 512;        /* bytes of a row */
    constexpr int64_t TABLE = 48 * 1024, LARGE = 1 << 28; /* bytes */
    const gpo_dtype dtype = call->in[0].dtype;
    index_add_plan plan;
    index_add_make_plan(call, &plan);
    const int64_t row = plan.inner * gpo_dtypes[plan.dtype].bytes;
    const bool fits_table =
        plan.count >= MANY_ROWS * plan.length && row * plan.length <= TABLE;
    if (index_add_is_deterministic(call)) {
        snprintf(why, GPO_MESSAGE, "deterministic=True: v4 adds without atomics");
        return &variants[4];
    }
    if (variants[1].run[dtype] == nullptr) {
        snprintf(why, GPO_MESSAGE, "no hardware adds '%s' atomically; v4 needs none",
                 gpo_dtypes[dtype].name);
        return &variants[4];
    }
    const bool half = dtype == GPO_F16 || dtype == GPO_BF16;
    const bool narrow = half || plan.dtype == GPO_F32;
    if (half || (narrow && plan.count > INDEX_ADD_FEW_ROWS)) {
        return choose_bounded(call, plan, fits_table, why);
    }
    if (row >= WIDE && plan.outer * plan.count * row >= LARGE) {
        snprintf(why, GPO_MESSAGE,
                 "%d MiB of rows of %d bytes and more: v4 sorts for less than the "
                 "atomics cost",
                 static_cast<int>(LARGE >> 20), static_cast<int>(WIDE));
        return &variants[4];
    }
    if (row >= WARP_WIDE) {
        snprintf(why, GPO_MESSAGE, "rows of %d bytes or more: v3 gives each a warp",
                 static_cast<int>(WARP_WIDE));
        return &variants[3];
    }
    if (fits_table) {
        snprintf(why, GPO_MESSAGE,
                 "%d rows and more for each destination, which fit into shared "
                 "memory: v2 sums there first",
                 static_cast<int>(MANY_ROWS));
        return &variants[2];
    }
    if (plan.inner == 1) {
        snprintf(why, GPO_MESSAGE, "rows of one element: v0, there is nothing to pack");
        return &variants[0];
    }
    snprintf(why, GPO_MESSAGE, "short rows: v1 takes 16 bytes a thread");
    return &variants[1];
}

extern "C" const gpo_table index_add_cuda = {variants, choose};
