/*
 * deterministic.cuh  The kernels of v4: the keys to sort by, where the rows of each
 * destination stand after the sort, then their sums: by destination for wide rows, by
 * tiles of entries for rows of one element.
 *
 * Each destination is added to once, and the order of additions depends on the index
 * alone.
 */
#ifndef GPO_INDEX_ADD_DETERMINISTIC_CUH
#define GPO_INDEX_ADD_DETERMINISTIC_CUH

#include "../../device/sort.cuh"

#include "index_add.cuh"

/* n / d; most of the time 32 bits do. */
__device__ __forceinline__ int64_t
quotient(int64_t n, int64_t d)
{
    if ((n | d) >> 32 == 0) {
        return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
    }
    return n / d;
}

/* ---- keys ---- */

/* The entries of a destination after the sort are [begin, end). */
template <typename Payload>
struct alignas(2 * sizeof(Payload)) index_add_run {
    Payload begin, end;
};

/* runs[0..length) = {0, 0}, too, if it is not NULL. */
template <typename Payload>
static __global__ void
__launch_bounds__(BLOCK)
    index_add_v4_keys(index_reader index, int64_t count, uint32_t *key,
                      const Payload *values_from, int64_t by_row, Payload *payload,
                      index_add_run<Payload> *runs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        const int64_t k = position_of(index, s);
        key[s] = static_cast<uint32_t>(k < 0 ? 0 : k); /* the result is dropped then */
        if (values_from != nullptr) {
            payload[s] = values_from[s * by_row];
        }
    }
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         runs != nullptr && k < index.length; k += step) {
        runs[k] = {0, 0};
    }
}

/* runs[k], for the destinations that have entries. */
template <typename Payload>
static __global__ void
__launch_bounds__(BLOCK)
    index_add_v4_runs(const uint32_t *key, int64_t count, index_add_run<Payload> *runs)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < count;
         i += step) {
        const uint32_t k = key[i];
        if (i == 0 || key[i - 1] != k) {
            runs[k].begin = static_cast<Payload>(i);
        }
        if (i + 1 == count || key[i + 1] != k) {
            runs[k].end = static_cast<Payload>(i + 1);
        }
    }
}

/* ---- entries ---- */

/*
 * Entry i has key[i]; its row is the source row that number[i] or wide_number[i] says,
 * i itself with neither, or, from the second step on, row i of `part`.
 */
template <typename T>
struct index_add_entries {
    const uint32_t *key, *number;
    const uint64_t *wide_number;
    const acc_of<T> *part;
    int64_t n, by_row, by_outer;
    const T *source; /* by_row and by_outer are its strides, or those of part */
};

enum { NARROW_ITEMS = 8, NARROW_TILE = BLOCK * NARROW_ITEMS };

template <typename T, int V>
struct index_add_sums {
    acc_of<T> v[V];
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

/* ---- wide rows: each destination gathers its own ---- */

/*
 * A destination of more than HOT rows is hot: its entries are summed chunk by chunk, and
 * the sums of the chunks in a kernel of their own.  A chunk has at most two hot runs, for
 * HOT >= CHUNK: one that ends in it or passes through, one that begins in it.
 */
enum { CHUNK = 64, HOT = 128, SPAN = WARP /* chunks that a block combines */ };

template <typename T, typename Payload>
struct index_add_gathering {
    const Payload *number; /* of the source row of each entry */
    const index_add_run<Payload> *runs;
    const T *base; /* what is added to: x or out */
    /* What chunk c leaves: row 2 c, and 2 c + 1 for the run that begins in it. */
    acc_of<T> *part;
    int64_t chunks;
};

/* V elements on their way: a word until they are added, or they are waited for at once. */
template <typename T, int V>
struct in_flight {
    uint4 word;
};
template <typename T>
struct in_flight<T, 1> {
    T word;
};

/* V elements that nothing writes during the kernel. */
template <typename T, int V>
__device__ __forceinline__ in_flight<T, V>
send_for(const T *p)
{
    if constexpr (V == 1) {
        return {*p};
    }
    else {
        return {load_streamed(reinterpret_cast<const uint4 *>(p))};
    }
}

/*
 * The sum of the rows that number[0..n) name, V columns from `from` on; up to eight rows
 * are in flight, and the numbers of the next eight.
 */
template <typename T, int V, typename Payload>
__device__ __forceinline__ index_add_sums<T, V>
sum_rows(const T *from, int64_t by_row, alpha_of<T> alpha, const Payload *number, int n)
{
    constexpr int AT_ONCE = V <= 8 ? 8 : 4; /* sums fill the registers, too */
    index_add_sums<T, V> sum = {};
    Payload row[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        row[k] = k < n ? number[k] : 0;
    }
    for (; n > 0; n -= AT_ONCE) {
        in_flight<T, V> loaded[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (k < n) {
                loaded[k] = send_for<T, V>(from + row[k] * by_row);
            }
        }
        number += AT_ONCE;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            row[k] = k < n - AT_ONCE ? number[k] : 0;
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (k < n) {
                values<T, V> v;
                memcpy(v.v, &loaded[k].word, sizeof v.v);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    sum.v[c] = sum_of<T>(sum.v[c], scaled(v.v[c], alpha));
                }
            }
        }
    }
    return sum;
}

/*
 * `lanes` threads side by side take a unit, each of them V columns: the first run of a
 * chunk, the last run of a chunk, if they are hot, or a destination, if it is not.
 */
template <typename T, int V, typename Payload>
__global__ void
__launch_bounds__(BLOCK, 3)
    index_add_v4_gather(index_add_view<T> a, const uint32_t *key, int64_t n,
                        index_add_gathering<T, Payload> g, int64_t tiles, int lanes)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK / lanes);
    const int64_t each = 2 * g.chunks + a.length, units = a.outer * each * tiles;
    for (int64_t u =
             static_cast<int64_t>(blockIdx.x) * (BLOCK / lanes) + threadIdx.x / lanes;
         u < units; u += step) {
        const int64_t row = quotient(u, tiles), o = quotient(row, each);
        const int64_t unit = row - o * each;
        const int64_t column = ((u - row * tiles) * lanes + threadIdx.x % lanes) * V;
        if (column >= a.inner) {
            continue;
        }
        const bool is_chunk = unit < 2 * g.chunks, is_last = unit >= g.chunks;
        const int64_t chunk = unit - (is_last ? g.chunks : 0), from = chunk * CHUNK;
        const int64_t to = from + CHUNK < n ? from + CHUNK : n;
        const int64_t k = is_chunk ? static_cast<int64_t>(key[is_last ? to - 1 : from])
                                   : unit - 2 * g.chunks;
        const index_add_run<Payload> run = g.runs[k];
        int64_t begin = run.begin, end = run.end;
        if (is_chunk != (end - begin > HOT) || (is_chunk && is_last && begin <= from)) {
            continue; /* or the first run of the chunk is its last */
        }
        const int64_t at = (o * a.length + k) * a.inner + column;
        in_flight<T, V> base = {};
        if (is_chunk) {
            begin = begin < from ? from : begin;
            end = end < to ? end : to;
        }
        else {
            base = *reinterpret_cast<const in_flight<T, V> *>(g.base + at); /* or out */
        }
        const index_add_sums<T, V> sum =
            sum_rows<T, V>(a.source + o * a.by_outer + column * a.by_inner, a.by_row,
                           a.alpha, g.number + begin, static_cast<int>(end - begin));
        if (is_chunk) {
            const int64_t part = (o * g.chunks + chunk) * 2 + (is_last ? 1 : 0);
            memcpy(g.part + part * a.inner + column, sum.v, sizeof sum.v);
        }
        else {
            values<T, V> v;
            memcpy(v.v, &base.word, sizeof v.v);
#pragma unroll
            for (int c = 0; c < V; c++) {
                v.v[c] = sum_stored(v.v[c], sum.v[c]);
            }
            *reinterpret_cast<values<T, V> *>(a.out + at) = v;
        }
    }
}

/* What the sums of chunks are added in: any number of them must not add up errors. */
template <typename T>
struct total {
    using type = acc_of<T>;
};
template <>
struct total<f16> {
    using type = double;
};
template <>
struct total<bf16> {
    using type = double;
};
template <>
struct total<float> {
    using type = double;
};

template <typename T>
__device__ __forceinline__ typename total<T>::type
total_of(typename total<T>::type a, typename total<T>::type b)
{
    if constexpr (is_bool<T>) {
        return a | b;
    }
    else {
        return a + b;
    }
}

template <typename T>
__device__ __forceinline__ T
total_stored(T old, typename total<T>::type sum)
{
    if constexpr (is_same<typename total<T>::type, acc_of<T>>) {
        return sum_stored(old, sum);
    }
    else {
        const double both = static_cast<double>(value_of(old)) + sum;
        return stored_as<T>(static_cast<float>(both));
    }
}

/* A block adds what the chunks have left of the hot runs that begin in SPAN of them. */
template <typename T, typename Payload>
__global__ void
__launch_bounds__(BLOCK)
    index_add_v4_combine(index_add_view<T> a, const uint32_t *key, int64_t n,
                         index_add_gathering<T, Payload> g, int64_t spans,
                         int64_t tiles)
{
    using Total = typename total<T>::type;
    constexpr int WARPS = BLOCK / WARP, AT_ONCE = 8;
    GPO_SHARED(Total, sums, [WARPS][WARP]);
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int64_t units = a.outer * spans * tiles;
    for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
        const int64_t row = quotient(u, tiles), o = quotient(row, spans);
        const int64_t column = (u - row * tiles) * WARP + lane;
        const int64_t chunk = (row - o * spans) * SPAN + lane;
        uint32_t last_key = 0;
        index_add_run<Payload> run = {0, 0};
        if (chunk < g.chunks) {
            const int64_t past = (chunk + 1) * CHUNK;
            last_key = key[(past < n ? past : n) - 1];
            run = g.runs[last_key];
        }
        unsigned hot = __ballot_sync(ALL_LANES, run.end - run.begin > HOT &&
                                                    static_cast<int64_t>(run.begin) >=
                                                        chunk * CHUNK);
        for (; hot != 0; hot &= hot - 1) {
            const int owner = __ffs(static_cast<int>(hot)) - 1;
            const int64_t k = __shfl_sync(ALL_LANES, last_key, owner);
            const int64_t b = __shfl_sync(ALL_LANES, run.begin, owner);
            const int64_t last = __shfl_sync(ALL_LANES, run.end, owner) - 1;
            const int64_t first = b / CHUNK, parts = last / CHUNK - first + 1;
            Total sum = 0;
            for (int64_t p = warp; column < a.inner && p < parts;
                 p += WARPS * AT_ONCE) {
                acc_of<T> part[AT_ONCE];
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    const int64_t q = p + j * WARPS;
                    const int64_t at = 2 * (first + q) + (q == 0 && b % CHUNK != 0);
                    part[j] = q < parts
                                  ? g.part[(o * 2 * g.chunks + at) * a.inner + column]
                                  : acc_of<T>(0);
                }
#pragma unroll
                for (int j = 0; j < AT_ONCE; j++) {
                    sum = total_of<T>(sum, part[j]);
                }
            }
            sums[warp][lane] = sum;
            __syncthreads();
            if (warp == 0 && column < a.inner) {
#pragma unroll
                for (int w = 1; w < WARPS; w++) {
                    sum = total_of<T>(sum, sums[w][lane]);
                }
                const int64_t at = (o * a.length + k) * a.inner + column;
                a.out[at] = total_stored(g.base[at], sum);
            }
            __syncthreads();
        }
    }
}

/* The bytes that the chunks of the entries leave. */
template <typename T>
static size_t
part_bytes(const index_add_view<T> &a)
{
    return sizeof(acc_of<T>) * 2 * ceil_div(a.count, CHUNK) * a.outer * a.inner;
}

/* out = base + the sums of rows, for rows of several elements, sorted by key. */
template <typename T, typename Payload>
static gpo_status
gather_rows(gpo_call *call, const index_add_view<T> &a, const uint32_t *key,
            const Payload *number, index_add_run<Payload> *runs, acc_of<T> *part)
{
    const int64_t chunks = ceil_div(a.count, CHUNK);
    gpo_status status = GPO_LAUNCH(call, grid_for(a.count), BLOCK, 0,
                                   (index_add_v4_runs<Payload>), key, a.count, runs);
    const index_add_gathering<T, Payload> g = {number, runs, a.base, part, chunks};
    const bool packed = is_packed(a);
    const int64_t across = packed ? a.inner / pack<T>::SIZE : a.inner;
    int lanes = 1;
    while (lanes < WARP && lanes < across) {
        lanes *= 2;
    }
    const int64_t tiles = ceil_div(across, lanes);
    const dim3 grid = grid_for(a.outer * (2 * chunks + a.length) * tiles * lanes);
    if (!status) {
        status = packed ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                     (index_add_v4_gather<T, pack<T>::SIZE, Payload>),
                                     a, key, a.count, g, tiles, lanes)
                        : GPO_LAUNCH(call, grid, BLOCK, 0,
                                     (index_add_v4_gather<T, 1, Payload>), a, key,
                                     a.count, g, tiles, lanes);
    }
    const int64_t spans = ceil_div(chunks, SPAN), warps = ceil_div(a.inner, WARP);
    if (!status && a.count > HOT) {
        status = GPO_LAUNCH(call, grid_for(a.outer * spans * warps * BLOCK), BLOCK, 0,
                            (index_add_v4_combine<T, Payload>), a, key, a.count, g,
                            spans, warps);
    }
    return status;
}

/* ---- rows of one element: a block takes a tile ---- */

/*
 * One step takes entries in the order of their keys.  A run of equal keys inside a tile
 * is added to its destination.  What a tile has of the first and of the last run becomes
 * two entries of the next step, whose entries are again in order; a step of one tile
 * leaves none.
 */

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

/* A run that is open at the end of a thread's entries, and whether it began there. */
template <typename T>
struct index_add_open {
    acc_of<T> sum;
    bool is_new;
};

/* Where entry i of a tile lies: no two lanes, 8 entries apart, meet in a bank. */
__device__ __forceinline__ int
padded(int i)
{
    return i + i / NARROW_ITEMS;
}

template <typename T>
__global__ void
__launch_bounds__(BLOCK, 3)
    index_add_v4_tiles(index_add_view<T> a, index_add_entries<T> e,
                       index_add_next<T> next, int64_t tiles)
{
    using Acc = acc_of<T>;
    constexpr int WARPS = BLOCK / WARP;
    GPO_SHARED(uint32_t, key, [NARROW_TILE + BLOCK]);
    GPO_SHARED(Acc, value, [NARROW_TILE + BLOCK]);
    GPO_SHARED(Acc, warp_sum, [WARPS]);
    GPO_SHARED(bool, warp_new, [WARPS]);
    const int tid = threadIdx.x, lane = tid % WARP, warp = tid / WARP;
    const int64_t units = a.outer * tiles;
    const bool alone = tiles == 1;

    for (int64_t u = blockIdx.x; u < units; u += gridDim.x) {
        const int64_t o = quotient(u, tiles), tile = u - o * tiles;
        const int64_t begin = tile * NARROW_TILE;
        const int valid =
            static_cast<int>(e.n - begin < NARROW_TILE ? e.n - begin : NARROW_TILE);
        const int first = tid * NARROW_ITEMS;
        const int last = first + NARROW_ITEMS < valid ? first + NARROW_ITEMS : valid;
        Acc loaded[NARROW_ITEMS];
        uint32_t keys[NARROW_ITEMS];
#pragma unroll
        for (int k = 0; k < NARROW_ITEMS; k++) {
            const int i = k * BLOCK + tid;
            if (i < valid) {
                keys[k] = e.key[begin + i];
                loaded[k] = load_entry<T>(a, e, o, begin + i);
            }
        }
        __syncthreads(); /* the tile before is done with */
#pragma unroll
        for (int k = 0; k < NARROW_ITEMS; k++) {
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

        /* What is open at the end of each thread: sums of the threads it runs over. */
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
        Acc before = 0; /* open at the end of the warp before */
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
        const int64_t tiles = ceil_div(e.n, NARROW_TILE), units = a.outer * tiles;
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
            const dim3 grid(static_cast<unsigned>(units < MAX_GRID ? units : MAX_GRID));
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v4_tiles<T>), a, e,
                                next, tiles);
        }
        e = {next.key, nullptr, nullptr, next.part, 2 * tiles, 1, 2 * tiles, nullptr};
    }
    return status;
}

#endif
