/*
 * buckets.cuh  What buckets and ascending share: pairs of place and value are ordered by
 * ranges of places, the buckets, in tiles that each lie where their elements did; then a
 * block adds the elements of a bucket in shared memory.  See shapes/buckets.cu.
 * Order: the layout, the tiles, the parts of a bucket, the sums, the launcher.
 */
#ifndef GPO_SCATTER_ADD_BUCKETS_CUH
#define GPO_SCATTER_ADD_BUCKETS_CUH

#include "../../device/block.cuh"
#include "frame.cuh"
#include "neighbours.cuh"
#include "places.cuh"

/* ---- the layout ---- */

constexpr int BUCKET_ITEMS = 8; /* elements of a thread in a tile */

struct scatter_add_buckets {
    int log_places; /* of a bucket */
    unsigned count, tiles, tile;
    uint32_t
        *segment;    /* [count][tiles]: where a bucket begins in a tile, and 2^16 times
                          how many elements it has there */
    unsigned *total; /* [count]: the elements of a bucket, in tiles that have `least` */
    unsigned *splits; /* not 0: a bucket has several parts */
    unsigned least;
    uint16_t
        *place; /* of the elements, tile by tile, from the bucket's first place on */
    void *value;
    unsigned most; /* elements of a block that adds */
    unsigned more; /* blocks beyond one for each bucket */
};

/* ---- the tiles ---- */

/* Bytes of shared memory of a block, and how they are used: see the kernel. */
template <typename V, bool ORDERED>
size_t
bytes_of_tile(const scatter_add_buckets &b)
{
    const size_t warps = ORDERED ? b.tile / (BUCKET_ITEMS * WARP) : 0;
    return b.tile * (sizeof(V) + sizeof(uint16_t)) +
           b.count * (sizeof(unsigned) + warps * sizeof(uint16_t));
}

/*
 * A tile's elements, by bucket; if ORDERED, those of a bucket in their old order, else as
 * atomics find it.  `carried` are the values; x.values are not read.
 */
template <bool ORDERED, typename V, typename Input>
__global__ void
__launch_bounds__(TILE_BLOCK, 2)
    scatter_add_buckets_split(Input x, const V *carried, scatter_add_buckets b,
                              const unsigned *only_if)
{
    constexpr int ITEMS = BUCKET_ITEMS;
    constexpr uint32_t NONE = ~0u;
    GPO_DYN_SHARED(V, value);
    GPO_SHARED(unsigned, slots, [WARP]);
    const int tid = threadIdx.x, threads = blockDim.x;
    unsigned *const seen = reinterpret_cast<unsigned *>(&value[b.tile]);
    uint16_t *const place = reinterpret_cast<uint16_t *>(&seen[b.count]);
    const unsigned lane = tid % WARP, warp = tid / WARP, warps = threads / WARP;
    uint16_t *const of_warp = place + b.tile; /* ORDERED: [warps][count] */

    let_next_start();
    if (only_if != nullptr) {
        wait_for_before();
        if (*only_if == 0) {
            return;
        }
    }
    for (unsigned t = blockIdx.x; t < b.tiles; t += gridDim.x) {
        const int64_t begin = static_cast<int64_t>(t) * b.tile;
        const int64_t first = begin + warp * (ITEMS * WARP) + lane; /* step WARP */
        int64_t raw[ITEMS];
        V v[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t i = first + j * WARP;
            raw[j] = i < x.n ? x.raw(i) : 0;
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t i = first + j * WARP;
            v[j] = i < x.n ? carried[i * x.values_stride] : V{};
        }
        for (unsigned k = tid; k < b.count; k += threads) {
            seen[k] = 0;
        }
        for (unsigned k = tid; ORDERED && k < b.count * warps; k += threads) {
            of_warp[k] = 0;
        }
        if (t == blockIdx.x) {
            wait_for_before();
        }
        __syncthreads();
        uint32_t key[ITEMS], rank[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int64_t i = first + j * WARP;
            const int64_t at = i < x.n ? x.place(raw[j], i) : -1;
            key[j] = at >= 0 ? static_cast<uint32_t>(at) : NONE;
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const uint32_t k = key[j] >> b.log_places;
            const bool is_first = shuffle_from(k, 0) == k;
            rank[j] = 0;
            if constexpr (ORDERED) {
                uint16_t *const count = &of_warp[warp * b.count + k];
                const unsigned peers = __match_any_sync(ALL_LANES, k);
                const unsigned lower = __popc(peers & ((1u << lane) - 1));
                const unsigned before = key[j] != NONE ? *count : 0;
                __syncwarp();
                if (key[j] != NONE && lower == 0) {
                    *count = static_cast<uint16_t>(before + __popc(peers));
                }
                __syncwarp();
                rank[j] = before + lower;
            }
            else if (__all_sync(ALL_LANES, is_first && key[j] != NONE)) {
                unsigned before = 0; /* one atomic for all lanes */
                if (lane == 0) {
                    before = atomicAdd(&seen[k], static_cast<unsigned>(WARP));
                }
                rank[j] = shuffle_from(before, 0) + lane;
            }
            else if (key[j] != NONE) {
                rank[j] = atomicAdd(&seen[k], 1u);
            }
        }
        __syncthreads();
        unsigned kept = 0;
        for (unsigned base = 0; base < b.count; base += threads) {
            const unsigned k = base + tid;
            unsigned mine = k < b.count ? seen[k] : 0;
            for (unsigned w = 0; ORDERED && w < warps && k < b.count; w++) {
                const unsigned more = of_warp[w * b.count + k];
                of_warp[w * b.count + k] = static_cast<uint16_t>(mine);
                mine += more;
            }
            unsigned all;
            const unsigned start = kept + sum_before(mine, slots, &all);
            kept += all;
            if (k < b.count) {
                b.segment[static_cast<int64_t>(k) * b.tiles + t] = start | mine << 16;
                if (mine >= b.least) {
                    atomicAdd(&b.total[k], mine);
                }
                seen[k] = start;
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (key[j] != NONE) {
                const unsigned k = key[j] >> b.log_places;
                const unsigned to =
                    seen[k] + rank[j] + (ORDERED ? of_warp[warp * b.count + k] : 0);
                place[to] = static_cast<uint16_t>(key[j] & ((1u << b.log_places) - 1));
                value[to] = v[j];
            }
        }
        __syncthreads();
        V *const values = static_cast<V *>(b.value) + begin;
        for (unsigned k = tid; k < kept; k += threads) {
            values[k] = value[k];
        }
        const uint32_t *const pairs = reinterpret_cast<const uint32_t *>(place);
        uint32_t *const places = reinterpret_cast<uint32_t *>(b.place + begin);
        for (unsigned k = tid; k < (kept + 1) / 2; k += threads) {
            places[k] = pairs[k];
        }
        __syncthreads();
    }
}

/* ---- the parts of a bucket ---- */

/* What a block adds: part `part` of `parts` of a bucket; `first` extra block of it. */
struct bucket_part {
    unsigned bucket, part, parts, first;
};

__device__ __forceinline__ unsigned
parts_of(const scatter_add_buckets &b, unsigned bucket)
{
    const unsigned total = b.total[bucket];
    return total > b.most ? (total + b.most - 1) / b.most : 1;
}

/* Of block `blockIdx.x`; parts = 0 if it has none.  All threads call it. */
__device__ __forceinline__ bucket_part
part_of_block(const scatter_add_buckets &b, unsigned *slots, bucket_part *found)
{
    const bool is_extra = blockIdx.x >= b.count;
    const unsigned extra = blockIdx.x - b.count;
    if (!is_extra) {
        const unsigned parts = parts_of(b, blockIdx.x);
        if (parts == 1) {
            return {blockIdx.x, 0, 1, 0};
        }
    }
    if (threadIdx.x == 0) {
        *found = {0, 0, 0, 0};
    }
    unsigned before = 0;
    for (unsigned base = 0; base < b.count; base += blockDim.x) {
        const unsigned k = base + threadIdx.x;
        const unsigned parts = k < b.count ? parts_of(b, k) : 1;
        unsigned all;
        const unsigned first = before + sum_before(parts - 1, slots, &all);
        before += all;
        if (is_extra ? first <= extra && extra < first + parts - 1 : k == blockIdx.x) {
            *found = {k, is_extra ? extra - first + 1 : 0, parts, first};
        }
    }
    __syncthreads();
    return *found;
}

/* Which of the tables of all parts is that of part `part` of a bucket. */
__device__ __forceinline__ int64_t
slot_of_part(const scatter_add_buckets &b, const bucket_part &of, unsigned part)
{
    return part > 0 ? of.first + part - 1 : b.more + of.first;
}

/* ---- the sums ---- */

/* Places without an element that another kernel leaves to be cleared. */
struct scatter_add_gaps {
    static constexpr unsigned MOST = 64;
    unsigned count, other; /* `other`: all of the result is to be computed */
    int64_t begin[MOST], end[MOST];
};

/* Whether another kernel left the sums to this one; if not, clears the gaps. */
template <typename Result>
__device__ __forceinline__ bool
sums_are_left(const scatter_add_gaps *gaps, Result *out)
{
    if (gaps->other != 0) {
        return true;
    }
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (unsigned g = 0; g < gaps->count; g++) {
        const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x;
        for (int64_t k = gaps->begin[g] + first + threadIdx.x; k < gaps->end[g];
             k += step) {
            out[k] = Result{};
        }
    }
    return false;
}

/*
 * Adds up and writes the result.  If ORDERED, a block is one warp, which alone adds to its
 * table: lanes of one place first add up their values.
 */
template <bool ORDERED, typename Input, typename Sum, typename Result>
__global__ void
__launch_bounds__(ORDERED ? WARP : SUM_BLOCK, ORDERED ? 1
                                              : sizeof(typename Input::T) > 4
                                                  ? 2
                                                  : SUMMING_BLOCKS)
    scatter_add_buckets_sum(Input x, scatter_add_buckets b, Sum *partial,
                            const scatter_add_gaps *gaps, Result *out)
{
    using T = typename Input::T;
    GPO_DYN_SHARED(Sum, table);
    GPO_SHARED(unsigned, slots, [WARP]);
    GPO_SHARED(bucket_part, found, [1]);
    GPO_SHARED(unsigned, longs, [1]);
    GPO_SHARED(unsigned, long_begin, [LONG_SEGMENTS]);
    GPO_SHARED(unsigned, long_count, [LONG_SEGMENTS]);
    const unsigned tid = threadIdx.x, threads = blockDim.x;
    const unsigned lane = tid % WARP, warp = tid / WARP, warps = threads / WARP;
    const unsigned places = 1u << b.log_places;
    let_next_start();
    if (gaps != nullptr) {
        wait_for_before();
        if (!sums_are_left(gaps, out)) {
            return;
        }
    }
    const bool is_extra = blockIdx.x >= b.count; /* most of these have no part */
    const auto clear_table = [&] {
        for (unsigned k = tid; k < places; k += threads) {
            table[k] = Sum{};
        }
    };
    if (!is_extra) {
        clear_table();
    }
    if (tid == 0) {
        longs[0] = 0;
    }
    wait_for_before();
    const bucket_part mine = part_of_block(b, slots, &found[0]);
    if (mine.parts == 0) {
        return;
    }
    if (is_extra) {
        clear_table();
    }
    __syncthreads();
    const uint64_t tiles = b.tiles;
    /* If ORDERED, parts of equally many elements: of a sorted index a bucket's are in few tiles.
       Else of equally many tiles, as warps share long segments. */
    const bool by_rank = ORDERED && mine.parts > 1;
    unsigned from = by_rank ? 0 : static_cast<unsigned>(tiles * mine.part / mine.parts);
    const unsigned to =
        by_rank ? b.tiles : static_cast<unsigned>(tiles * (mine.part + 1) / mine.parts);
    const uint64_t total = by_rank ? b.total[mine.bucket] : 0;
    const unsigned low = static_cast<unsigned>(total * mine.part / mine.parts);
    const unsigned high =
        by_rank && mine.part + 1 < mine.parts
            ? static_cast<unsigned>(total * (mine.part + 1) / mine.parts)
            : ~0u;
    const unsigned even = (to - from + warps - 1) / warps;
    const unsigned width = even < WARP ? even : WARP; /* tiles of a warp at once */
    const uint32_t *const segment = b.segment + mine.bucket * tiles;
    const T *const values = static_cast<const T *>(b.value);
    const auto add = [&](uint32_t place, T value) {
        Sum sum = x.lift(value);
        if constexpr (ORDERED) {
            const unsigned peers = __match_any_sync(ALL_LANES, place);
            const unsigned lower = peers & ((1u << lane) - 1);
            add_up(place != places ? peers : 1u << lane, &sum);
            if (lower == 0 && place != places) {
                table[place] = table[place] + sum;
            }
            __syncwarp();
        }
        else if (joined_anywhere(place, place != places, &sum, WARP + 1)) {
            add_to_table(&table[place], sum);
        }
    };
    const auto word_of = [&](unsigned t) {
        return lane < width && t + lane < to ? segment[t + lane] : 0;
    };
    unsigned done = 0; /* elements of tiles that come before */
    for (bool skips = low > 0; skips;) {
        constexpr unsigned GROUPS = 16;
        unsigned words = 0;
#pragma unroll
        for (unsigned u = 0; u < GROUPS; u++) {
            const unsigned t = from + u * WARP + lane;
            words += t < to ? segment[t] >> 16 : 0;
        }
        const unsigned all = __reduce_add_sync(ALL_LANES, words);
        skips = done + all <= low && from < to;
        done += skips ? all : 0;
        from += skips ? GROUPS * WARP : 0;
    }
    uint32_t next = word_of(from + warp * width);
    for (unsigned t = from + warp * width; t < to; t += warps * width) {
        const uint32_t word = next;
        next = word_of(t + warps * width);
        unsigned count = word >> 16;
        const unsigned start = word & 0xffff;
        if (!ORDERED && count >= LONG_SEGMENT) { /* is left to all warps */
            const unsigned slot = atomicAdd(&longs[0], 1u);
            if (slot < LONG_SEGMENTS) {
                long_begin[slot] = (t + lane) * b.tile + start;
                long_count[slot] = count;
                count = 0;
            }
        }
        unsigned until = count; /* elements up to this tile's last */
#pragma unroll
        for (unsigned d = 1; d < WARP; d *= 2) {
            const unsigned left = __shfl_up_sync(ALL_LANES, until, d);
            until += lane >= d ? left : 0;
        }
        const unsigned all = __shfl_sync(ALL_LANES, until, WARP - 1);
        const unsigned base = (t + lane) * b.tile + start - (until - count);
        const unsigned first = low > done ? low - done : 0; /* of those of the part */
        if (ORDERED && done >= high) {
            break;
        }
        const unsigned past = ORDERED && high - done < all ? high - done : all;
        done += all;
        for (unsigned e = first + lane; e - lane < past; e += SUMMED_AT_ONCE * WARP) {
            uint32_t place[SUMMED_AT_ONCE];
            T value[SUMMED_AT_ONCE];
#pragma unroll
            for (int u = 0; u < SUMMED_AT_ONCE; u++) {
                const unsigned i = e + u * WARP;
                int at = 0; /* tiles whose elements all come before i */
#pragma unroll
                for (int d = WARP / 2; d > 0; d /= 2) {
                    const unsigned end = __shfl_sync(ALL_LANES, until, at + d - 1);
                    at += end <= i ? d : 0;
                }
                const unsigned k = i + __shfl_sync(ALL_LANES, base, at);
                place[u] = i < past ? b.place[k] : places;
                value[u] = i < past ? values[k] : T{};
            }
#pragma unroll
            for (int u = 0; u < SUMMED_AT_ONCE; u++) {
                add(place[u], value[u]);
            }
        }
    }
    __syncthreads();
    /* What is listed, by all warps: a step of each takes a part of one segment. */
    constexpr unsigned STEP = SUMMED_AT_ONCE * WARP;
    const unsigned listed = longs[0] < LONG_SEGMENTS ? longs[0] : LONG_SEGMENTS;
    unsigned s = 0, steps = 0; /* those of the segments before s */
    for (unsigned step = warp; s < listed; step += warps) {
        while (s < listed && step >= steps + (long_count[s] + STEP - 1) / STEP) {
            steps += (long_count[s] + STEP - 1) / STEP;
            s++;
        }
        if (s == listed) {
            break;
        }
        const unsigned e = (step - steps) * STEP + lane;
        uint32_t place[SUMMED_AT_ONCE];
        T value[SUMMED_AT_ONCE];
#pragma unroll
        for (int u = 0; u < SUMMED_AT_ONCE; u++) {
            const unsigned i = e + u * WARP, k = long_begin[s] + i;
            place[u] = i < long_count[s] ? b.place[k] : places;
            value[u] = i < long_count[s] ? values[k] : T{};
        }
#pragma unroll
        for (int u = 0; u < SUMMED_AT_ONCE; u++) {
            add(place[u], value[u]);
        }
    }
    __syncthreads();
    if (mine.parts > 1) {
        if (tid == 0 && mine.part == 0) {
            atomicOr(b.splits, 1u);
        }
        Sum *const to = partial + (slot_of_part(b, mine, mine.part) << b.log_places);
        for (unsigned k = tid; k < places; k += threads) {
            to[k] = table[k];
        }
        return;
    }
    const int64_t begin = static_cast<int64_t>(mine.bucket) << b.log_places;
    const int64_t rest = x.size - begin;
    for (unsigned k = tid; k < places && k < rest; k += threads) {
        out[begin + k] = rounded<T>(table[k]);
    }
}

/* The sums of the buckets that have several parts, in order: a thread for each place. */
template <typename T, typename Sum>
__global__ void
__launch_bounds__(BLOCK)
    scatter_add_buckets_join(scatter_add_buckets b, const Sum *partial, int64_t size,
                             const scatter_add_gaps *gaps, result_of<T> *out)
{
    GPO_SHARED(unsigned, slots, [WARP]);
    GPO_SHARED(bucket_part, split, [BLOCK]);
    wait_for_before();
    if ((gaps != nullptr && gaps->other == 0) || *b.splits == 0) {
        return;
    }
    const int64_t column = static_cast<int64_t>(blockIdx.y) * BLOCK + threadIdx.x;
    unsigned before = 0, splits = 0;
    for (unsigned base = 0; base < b.count; base += BLOCK) {
        const unsigned k = base + threadIdx.x;
        const unsigned parts = k < b.count ? parts_of(b, k) : 1;
        const unsigned is_split = parts > 1;
        unsigned all, found;
        const unsigned first = before + sum_before(parts - 1, slots, &all);
        const unsigned rank = sum_before(is_split, slots, &found);
        if (is_split) {
            split[rank] = {k, 0, parts, first};
        }
        __syncthreads();
        const unsigned turn = (blockIdx.x + gridDim.x - splits % gridDim.x) % gridDim.x;
        for (unsigned s = turn; s < found; s += gridDim.x) {
            const bucket_part mine = split[s];
            const int64_t place =
                (static_cast<int64_t>(mine.bucket) << b.log_places) + column;
            if (column >> b.log_places != 0 || place >= size) {
                continue;
            }
            Sum sum = partial[(slot_of_part(b, mine, 0) << b.log_places) + column];
#pragma unroll 4
            for (unsigned part = 1; part < mine.parts; part++) {
                const int64_t slot = slot_of_part(b, mine, part);
                sum = sum + partial[(slot << b.log_places) + column];
            }
            out[place] = rounded<T>(sum);
        }
        __syncthreads();
        before += all;
        splits += found;
    }
}

/* ---- the launcher ---- */

/* Memory for the buckets, of which `words` words are to be cleared.  ORDERED: sizes follow
   from n and size alone, as the order of additions does from them. */
template <bool ORDERED>
gpo_status
open_buckets(gpo_call *call, int64_t value_bytes, scatter_add_buckets *b,
             int64_t *words)
{
    const scatter_add_plan &plan = *scatter_add_plan_of(call);
    const int64_t size = plan.size > 0 ? plan.size : 1;
    int log_places = ORDERED ? LEAST_LOG_ORDERED : LEAST_LOG_PLACES;
    const auto is_more = [&](int64_t most) { return (size - 1) >> log_places >= most; };
    while (is_more(ORDERED ? ORDERED_BUCKETS : MANY_BUCKETS) &&
           log_places < (ORDERED ? MOST_LOG_PLACES : USUAL_LOG_PLACES)) {
        log_places++;
    }
    while (is_more(USUAL_BUCKETS) && log_places < MOST_LOG_PLACES) {
        log_places++;
    }
    const int64_t count = ceil_div(size, int64_t{1} << log_places);
    const int64_t tile = TILE_BLOCK * BUCKET_ITEMS;
    const int64_t tiles = ceil_div(plan.n, tile);
    const int64_t blocks =
        ORDERED ? ORDERED_BLOCKS_OF_ALL : SUMMING_BLOCKS * gpo_processors(call);
    /* Halves of a wave of ordered warps; more tables cost more than they save. */
    const int64_t least =
        ORDERED ? clamp(plan.n / 2048, LEAST_OF_WARP, MOST_OF_LEAST) : LEAST_OF_BLOCK;
    const int64_t most = plan.n / blocks > least ? plan.n / blocks : least;
    const bool shares = 2 * plan.n > most * count; /* so do most buckets' blocks */
    const int64_t counted = shares ? 1 : 2 * tile / count + 8;
    *words = (count + 2) / 2; /* `total` and `splits` */
    *b = {log_places,
          static_cast<unsigned>(count),
          static_cast<unsigned>(tiles),
          static_cast<unsigned>(tile),
          nullptr,
          nullptr,
          nullptr,
          static_cast<unsigned>(counted),
          nullptr,
          nullptr,
          static_cast<unsigned>(most),
          static_cast<unsigned>(plan.n / most)};
    const size_t rows = static_cast<size_t>(tiles * tile);
    void *memory = nullptr;
    gpo_status status = gpo_scratch(call, static_cast<size_t>(*words) * 8, &memory);
    b->total = static_cast<unsigned *>(memory);
    b->splits = b->total + count;
    if (!status) {
        status = gpo_scratch(call, static_cast<size_t>(count * tiles) * 4, &memory);
        b->segment = static_cast<uint32_t *>(memory);
    }
    if (!status) {
        status = gpo_scratch(call, rows * static_cast<size_t>(value_bytes), &b->value);
    }
    if (!status) {
        status = gpo_scratch(call, rows * sizeof(uint16_t), &memory);
        b->place = static_cast<uint16_t *>(memory);
    }
    return status;
}

/* V: an unsigned integer of the size of T, so that fewer kernels are built. */
template <typename T>
using carried_as =
    std::conditional_t<sizeof(T) == 2, uint16_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

/* Writes the result, if `gaps` do not say that it is there. */
template <bool ORDERED, typename T>
gpo_status
add_by_buckets(gpo_call *call, const scatter_add_frame &f, const scatter_add_buckets &b,
               const scatter_add_gaps *gaps)
{
    using V = carried_as<T>;
    using Input = scatter_add_input<T, int64_t>;
    using Sum = typename Input::Sum;
    using Result = result_of<T>;
    const Input x = input_of<T, int64_t>(call, f);
    const size_t split_bytes = bytes_of_tile<V, ORDERED>(b);
    const size_t sum_bytes = sizeof(Sum) << b.log_places;
    const int64_t most_blocks =
        static_cast<int64_t>(gpo_processors(call)) * SPLITTING_BLOCKS;
    const dim3 split(grid_extent(b.tiles, most_blocks)), sums(b.count + b.more);
    const unsigned *const only_if = gaps != nullptr ? &gaps->other : nullptr;
    Result *const out = static_cast<Result *>(call->out[0].data);
    void *partial = nullptr;
    gpo_status status = GPO_OK;
    if (b.more > 0) {
        status = gpo_scratch(call, 2 * b.more * sum_bytes, &partial);
    }
    auto index = index_of(x);
    index.values_stride = x.values_stride;
    using Index = decltype(index);
    gpo_allow_shared(scatter_add_buckets_split<ORDERED, V, Index>, split_bytes);
    gpo_allow_shared(scatter_add_buckets_sum<ORDERED, Input, Sum, Result>, sum_bytes);
    if (!status) {
        status = GPO_FOLLOW(call, true, split, b.tile / BUCKET_ITEMS, split_bytes,
                            (scatter_add_buckets_split<ORDERED, V, Index>), index,
                            static_cast<const V *>(f.values), b, only_if);
    }
    if (!status) {
        status = GPO_FOLLOW(call, true, sums, ORDERED ? WARP : SUM_BLOCK, sum_bytes,
                            (scatter_add_buckets_sum<ORDERED, Input, Sum, Result>), x,
                            b, static_cast<Sum *>(partial), gaps, out);
    }
    const unsigned columns = ((1u << b.log_places) + BLOCK - 1) / BLOCK;
    return status || b.more == 0
               ? status
               : GPO_FOLLOW(
                     call, true,
                     dim3(b.more < JOINING_BLOCKS ? b.more : JOINING_BLOCKS, columns),
                     BLOCK, 0, (scatter_add_buckets_join<T, Sum>), b,
                     static_cast<const Sum *>(partial), x.size, gaps, out);
}

/* Clears what the kernels count in, then adds. */
template <bool ORDERED, typename T>
gpo_status
scatter_add_split(gpo_call *call)
{
    scatter_add_frame f;
    scatter_add_buckets b;
    int64_t words = 0;
    gpo_status status = open_inputs(call, ORDERED, &f);
    if (!status) {
        status = open_buckets<ORDERED>(call, sizeof(T), &b, &words);
    }
    if (!status) {
        const int64_t bytes = words * static_cast<int64_t>(sizeof(uint64_t));
        status = clear(call, b.total, bytes, f.later ? nullptr : f.bad);
    }
    if (!status) {
        status = add_by_buckets<ORDERED, T>(call, f, b, nullptr);
    }
    return status ? status : close_frame(call, f);
}

#endif
