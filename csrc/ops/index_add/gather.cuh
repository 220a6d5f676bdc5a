/*
 * gather.cuh  What v4 and unpacked_rows share: rows sorted by destination, the memory for
 * their runs and for the sums of chunks, and the sums of hot destinations.
 */
#ifndef GPO_INDEX_ADD_GATHER_CUH
#define GPO_INDEX_ADD_GATHER_CUH

#include "chunks.cuh"
#include "row_sums.cuh"

/*
 * Kernel::start(call, a, key, g, others, units) adds up the units: the first and the last run
 * of each chunk, if hot, and `others`.  Payload: the number of the source row.
 */
template <typename Kernel, typename T, typename Payload>
gpo_status
gather_sorted(gpo_call *call, const index_add_view<T> &a)
{
    /* Only destinations with rows are written. */
    const bool by_entry = a.base == a.out && a.count < a.length;
    const int64_t others = by_entry ? a.count : a.length;
    const size_t sorted = sort_bytes<Payload>(a.count);
    const size_t runs =
        by_entry ? 0 : aligned(a.length * sizeof(index_add_run<Payload>));
    void *memory = nullptr; /* one allocation: each is a call to the driver */
    gpo_status status = gpo_scratch(call, sorted + runs + part_bytes(a), &memory);
    if (status) {
        return status;
    }
    char *const at = static_cast<char *>(memory) + sorted;
    auto *const run =
        by_entry ? nullptr : reinterpret_cast<index_add_run<Payload> *>(at);
    sort_pairs<Payload> pairs = {};
    status =
        index_add_sort<Payload>(call, a.index, memory, nullptr, a.by_row, run, &pairs);
    if (!status && !by_entry) {
        status = GPO_LAUNCH(call, grid_for(a.count), BLOCK, 0,
                            (index_add_runs<Payload>), pairs.key, a.count, run);
    }
    const index_add_gathering<T, Payload> g = {pairs.payload, run, a.base,
                                               reinterpret_cast<acc_of<T> *>(at + runs),
                                               ceil_div(a.count, CHUNK)};
    if (!status) {
        status = Kernel::start(call, a, pairs.key, g, others, 2 * g.chunks + others);
    }
    return status ? status : combine_chunks(call, a, pairs.key, g);
}

/* The same, of rows with 32- or 64-bit numbers. */
template <typename Kernel, typename T>
gpo_status
gather_rows(gpo_call *call, const index_add_view<T> &a)
{
    const gpo_status status = index_add_check_length(call);
    if (status) {
        return status;
    }
    return a.count >> 32 != 0 ? gather_sorted<Kernel, T, uint64_t>(call, a)
                              : gather_sorted<Kernel, T, uint32_t>(call, a);
}

/*
 * A unit of the gather: rows [begin, end) of the sorted list, for destination k; if `skips`,
 * they belong to another unit.  Unit 2 c + 1 of chunks ... see chunks.cuh.
 */
struct index_add_unit {
    int64_t k, begin, end, chunk;
    bool is_chunk, is_last, skips;
};

/*
 * A unit is the first or the last run of a chunk, if that run is hot, or one of `others`: a
 * destination that is not hot, or without g.runs the first entry of its run.
 */
template <typename T, typename Payload>
__device__ __forceinline__ index_add_unit
unit_of(const uint32_t *key, int64_t n, const index_add_gathering<T, Payload> &g,
        const T *out, int64_t unit)
{
    index_add_unit u = {};
    u.is_chunk = unit < 2 * g.chunks;
    u.is_last = unit >= g.chunks;
    u.chunk = unit - (u.is_last ? g.chunks : 0);
    const int64_t from = u.chunk * CHUNK, to = from + CHUNK < n ? from + CHUNK : n;
    const int64_t other = unit - 2 * g.chunks;
    const int64_t entry = !u.is_chunk ? other : u.is_last ? to - 1 : from;
    const bool by_entry = g.runs == nullptr;
    if (by_entry && !u.is_chunk && entry > 0 && key[entry - 1] == key[entry]) {
        u.skips = true; /* not the first of its run */
        return u;
    }
    u.k = u.is_chunk || by_entry ? key[entry] : other;
    const index_add_run<Payload> run =
        by_entry ? run_of<Payload>(key, n, nullptr, entry) : g.runs[u.k];
    u.begin = run.begin;
    u.end = run.end;
    if (u.is_chunk != (u.end - u.begin > HOT) ||
        (u.is_chunk && u.is_last && u.begin <= from)) {
        u.skips = true; /* belongs to another unit; a chunk's only run is its first */
    }
    if (!u.is_chunk && u.begin == u.end && g.base == out) {
        u.skips = true; /* nothing to add, and out has x's elements already */
    }
    if (u.is_chunk) {
        u.begin = u.begin < from ? from : u.begin;
        u.end = u.end < to ? u.end : to;
    }
    return u;
}

#endif
