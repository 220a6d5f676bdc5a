/*
 * deterministic.cuh  The kernels of v4: the keys to sort by, then sums over runs of
 * equal keys, by columns for wide rows and by tiles for rows of one element.
 *
 * One step takes entries in the order of their keys, cut into chunks of a fixed size.  A
 * run of equal keys inside a chunk is added to its destination.  What a chunk has of
 * the first and of the last run becomes two entries of the next step, whose entries are
 * again in order; a step of one chunk leaves none.  So each destination is added to once,
 * and the order of additions depends on the index alone.
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

template <typename Payload>
static __global__ void
__launch_bounds__(BLOCK)
    index_add_v4_keys(index_reader index, int64_t count, uint32_t *key,
                      const Payload *values_from, int64_t by_row, Payload *payload)
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
}

/* ---- one step over the entries ---- */

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

/* Entries 2 c and 2 c + 1 of the next step; none after a step of one chunk. */
template <typename T>
struct index_add_next {
    uint32_t *key;
    acc_of<T> *part;
};

enum { CHUNK = 64, NARROW_ITEMS = 8, NARROW_TILE = BLOCK * NARROW_ITEMS };

template <typename T, int V>
struct index_add_sums {
    acc_of<T> v[V];
};

/* The V columns of one entry's row from `column` on, times alpha. */
template <typename T, int V>
__device__ __forceinline__ index_add_sums<T, V>
load_entry(const index_add_view<T> &a, const index_add_entries<T> &e, int64_t o,
           int64_t i, int64_t column)
{
    index_add_sums<T, V> sum;
    if (e.part != nullptr) {
        const acc_of<T> *from = e.part + o * e.by_outer + i * e.by_row + column;
#pragma unroll
        for (int c = 0; c < V; c++) {
            sum.v[c] = from[c];
        }
        return sum;
    }
    int64_t s = e.number != nullptr ? e.number[i] : i;
    s = e.wide_number != nullptr ? static_cast<int64_t>(e.wide_number[i]) : s;
    const values<T, V> v = load_values<T, V>(e.source + o * e.by_outer + s * e.by_row +
                                             column * a.by_inner);
#pragma unroll
    for (int c = 0; c < V; c++) {
        sum.v[c] = scaled(v.v[c], a.alpha);
    }
    return sum;
}

template <typename T, int V>
__device__ __forceinline__ void
add_to_out(const index_add_view<T> &a, int64_t o, uint32_t key, int64_t column,
           const index_add_sums<T, V> &sum)
{
    values<T, V> *at = reinterpret_cast<values<T, V> *>(
        a.out + (o * a.length + key) * a.inner + column);
    values<T, V> old = *at;
#pragma unroll
    for (int c = 0; c < V; c++) {
        old.v[c] = sum_stored(old.v[c], sum.v[c]);
    }
    *at = old;
}

/*
 * `lanes` threads side by side walk one chunk of entries, each with V columns; up to
 * eight rows are in flight before the first is added, fewer if sums fill the registers.
 */
template <typename T, int V>
__global__ void
__launch_bounds__(BLOCK, 2)
    index_add_v4_columns(index_add_view<T> a, index_add_entries<T> e,
                         index_add_next<T> next, int64_t chunks, int64_t tiles,
                         int lanes)
{
    constexpr int AT_ONCE = V <= 4 ? 8 : 32 / V;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK / lanes);
    const int64_t units = a.outer * chunks * tiles;
    for (int64_t u =
             static_cast<int64_t>(blockIdx.x) * (BLOCK / lanes) + threadIdx.x / lanes;
         u < units; u += step) {
        const int64_t row = quotient(u, tiles), o = quotient(row, chunks);
        const int64_t chunk = row - o * chunks;
        const int64_t column = ((u - row * tiles) * lanes + threadIdx.x % lanes) * V;
        if (column >= a.inner) {
            continue;
        }
        const int64_t begin = chunk * CHUNK;
        const int64_t end = begin + CHUNK < e.n ? begin + CHUNK : e.n;
        const bool alone = chunks == 1;
        acc_of<T> *const head =
            alone ? nullptr
                  : next.part + (o * 2 * chunks + 2 * chunk) * a.inner + column;
        uint32_t current = e.key[begin];
        bool is_head = !alone; /* the run began in an earlier chunk, perhaps */
        index_add_sums<T, V> sum = {};
        for (int64_t i = begin; i < end; i += AT_ONCE) {
            index_add_sums<T, V> loaded[AT_ONCE];
            uint32_t key[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (i + k < end) {
                    key[k] = e.key[i + k];
                    loaded[k] = load_entry<T, V>(a, e, o, i + k, column);
                }
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; k++) {
                if (i + k < end) {
                    if (key[k] != current) {
                        if (is_head) {
#pragma unroll
                            for (int c = 0; c < V; c++) {
                                head[c] = sum.v[c];
                            }
                        }
                        else {
                            add_to_out<T, V>(a, o, current, column, sum);
                        }
                        current = key[k];
                        is_head = false;
                        sum = {};
                    }
#pragma unroll
                    for (int c = 0; c < V; c++) {
                        sum.v[c] = sum_of<T>(sum.v[c], loaded[k].v[c]);
                    }
                }
            }
        }
        if (alone) {
            add_to_out<T, V>(a, o, current, column, sum);
            continue;
        }
        acc_of<T> *const tail =
            head + a.inner; /* the last run, if it is not the first */
#pragma unroll
        for (int c = 0; c < V; c++) {
            tail[c] = is_head ? acc_of<T>(0) : sum.v[c];
            if (is_head) {
                head[c] = sum.v[c];
            }
        }
        if (o == 0 && column == 0) {
            next.key[2 * chunk] = e.key[begin];
            next.key[2 * chunk + 1] = current;
        }
    }
}

/* ---- rows of one element: a block takes a tile ---- */

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
                loaded[k] = load_entry<T, 1>(a, e, o, begin + i, 0).v[0];
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
                    add_to_out<T, 1>(a, o, current, 0, {{sum}});
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
                add_to_out<T, 1>(a, o, first_key, 0, {{total}});
            }
        }
        if (any && (last == valid || key[padded(last)] != current)) {
            if (alone || (current != tile_key && last < valid)) {
                add_to_out<T, 1>(a, o, current, 0, {{open.sum}});
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

/* ---- the steps ---- */

template <typename T>
static gpo_status
sum_runs(gpo_call *call, const index_add_view<T> &a, index_add_entries<T> e)
{
    const bool narrow = a.inner == 1;
    gpo_status status = GPO_OK;
    for (bool more = true; more && !status;) {
        const int64_t chunks = ceil_div(e.n, narrow ? NARROW_TILE : CHUNK);
        index_add_next<T> next = {nullptr, nullptr};
        more = chunks > 1;
        if (more) {
            void *key = nullptr, *part = nullptr;
            status = gpo_scratch(call, 2 * chunks * sizeof(uint32_t), &key);
            if (!status) {
                status = gpo_scratch(
                    call, 2 * chunks * a.outer * a.inner * sizeof(acc_of<T>), &part);
            }
            next = {static_cast<uint32_t *>(key), static_cast<acc_of<T> *>(part)};
        }
        if (status) {
            break;
        }
        if (narrow) {
            const int64_t units = a.outer * chunks;
            const dim3 grid(static_cast<unsigned>(units < MAX_GRID ? units : MAX_GRID));
            status = GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v4_tiles<T>), a, e,
                                next, chunks);
        }
        else {
            const bool packed = e.part == nullptr && is_packed(a);
            const int64_t across = packed ? a.inner / pack<T>::SIZE : a.inner;
            int lanes = 1;
            while (lanes < WARP && lanes < across) {
                lanes *= 2;
            }
            const int64_t tiles = ceil_div(across, lanes);
            const dim3 grid = grid_for(a.outer * chunks * tiles * lanes);
            status =
                packed ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                    (index_add_v4_columns<T, pack<T>::SIZE>), a, e,
                                    next, chunks, tiles, lanes)
                       : GPO_LAUNCH(call, grid, BLOCK, 0, (index_add_v4_columns<T, 1>),
                                    a, e, next, chunks, tiles, lanes);
        }
        e = {next.key,
             nullptr,
             nullptr,
             next.part,
             2 * chunks,
             a.inner,
             2 * chunks * a.inner,
             nullptr};
    }
    return status;
}

#endif
