/*
 * joined_sums.cu  Sums apart from x, as in v5, for calls whose rows v5 is not made for.
 * Where rows are short and nearby ones share a destination, lanes of a warp with the same
 * destination find each other, and the lowest one sends their sum, as in short_rows.
 * Where no destination has more than 1,024 rows, sums are of float32: half the bytes to
 * clear, to add to and to read, and on sm_90 four in one atomic where rows of 16-bit
 * floats split into packs of 16 bytes.
 * Sums that L2 does not hold are made in ranges, which read the index again, but of the
 * source only the rows that go there: a warp lists those of its rows first, so that lanes
 * have packs of these alone.
 * Cost:  4 or 8 bytes for each element of x, written twice and read; the source once.
 */
#include "../separate_sums.cuh"

static constexpr int JOINED_IN_FLIGHT = 4; /* packs of a thread */
static constexpr unsigned NOWHERE = ~0u;
/* Of one range of several: rows that a warp looks at at once; columns, so that their packs are
   counted in 32 bits. */
static constexpr int LISTED_ROWS = 4 * WARP;
static constexpr int64_t MOST_LISTED_COLUMNS = 1 << 23;

/* sums[at..at + V) += the terms of v, 16 bytes in one atomic, or 8. */
template <typename T, typename Sum, int V>
static __device__ __forceinline__ void
add_terms(Sum *sums, int64_t at, int64_t n, const values<T, V> &v,
          const index_add_view<T> &a)
{
    if constexpr (V == 1) {
        atomic_add(sums + at, index_add_term<Sum>(v.v[0], a));
    }
    else {
        constexpr int AT_ONCE =
            V < static_cast<int>(16 / sizeof(Sum)) ? V : 16 / sizeof(Sum);
#pragma unroll
        for (int c = 0; c < V; c += AT_ONCE) {
            values<Sum, AT_ONCE> term;
#pragma unroll
            for (int d = 0; d < AT_ONCE; d++) {
                term.v[d] = index_add_term<Sum>(v.v[c + d], a);
            }
            atomic_add_values<Sum, AT_ONCE>(sums, at + c, n, term);
        }
    }
}

/* across: packs of V elements in a row. */
template <typename T, typename Sum, int V, bool JOINS>
__global__ void
__launch_bounds__(BLOCK)
    index_add_joined_sums_kernel(index_add_view<T> a, index_add_range range, Sum *sums,
                                 divider across)
{
    let_next_start();
    const int64_t n = a.outer * a.count * across.by;
    const bool is_narrow =
        n < INT32_MAX - BLOCK * JOINED_IN_FLIGHT; /* for all threads */
    const bool has_slices = a.outer > 1;
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * JOINED_IN_FLIGHT);
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * (BLOCK * JOINED_IN_FLIGHT);
         begin < n; begin += step) { /* whole warps: lanes join */
        values<T, V> v[JOINED_IN_FLIGHT] = {};
        int64_t row[JOINED_IN_FLIGHT], entry[JOINED_IN_FLIGHT] = {};
        int64_t at[JOINED_IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
            const int64_t i = begin + j * BLOCK + threadIdx.x;
            row[j] = is_narrow ? across.narrow(static_cast<int>(i)) : across.of(i);
            at[j] = i - row[j] * across.by; /* the pack of the row */
            const int64_t o = has_slices ? a.counts.of(row[j]) : 0;
            if (i < n) {
                entry[j] = entry_of(a.index, row[j] - o * a.count);
            }
        }
        wait_for_before();
        const T *from[JOINED_IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
            const int64_t o = has_slices ? a.counts.of(row[j]) : 0;
            const int64_t s = row[j] - o * a.count, c = at[j] * V;
            const bool is_row = begin + j * BLOCK + threadIdx.x < n;
            const int64_t k = is_row ? place_of_entry(a.index, entry[j], s) : -1;
            const int64_t to = (o * a.length + k) * a.inner + c - range.begin;
            from[j] = a.source + o * a.by_outer + s * a.by_row + c * a.by_inner;
            at[j] = k >= 0 && to >= 0 && to < range.n ? to : -1;
        }
#pragma unroll
        for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
            if (at[j] >= 0) {
                v[j] = load_values<T, V>(from[j]);
            }
        }
#pragma unroll
        for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
            if constexpr (JOINS) { /* a range has less than 2^32 sums */
                const unsigned key = at[j] < 0 ? NOWHERE : static_cast<unsigned>(at[j]);
                Sum sum = index_add_term<Sum>(v[j].v[0], a);
                if (add_up_key(key, &sum) && at[j] >= 0) {
                    atomic_add(sums + at[j], sum);
                }
            }
            else if (at[j] >= 0) {
                add_terms<T, Sum, V>(sums, at[j], range.n, v[j], a);
            }
        }
    }
}

/* ---- rows of one element ---- */

/* A thread for each: the shortest code, which comes from memory as data does, and as many
   SMs as there are blocks.  One slice; all of out. */
template <typename T, typename Sum>
__global__ void
__launch_bounds__(BLOCK) index_add_single_sums_kernel(index_add_view<T> a, Sum *sums)
{
    let_next_start();
    const int s = static_cast<int>(blockIdx.x * BLOCK + threadIdx.x);
    if (s >= a.count) {
        return;
    }
    const int64_t entry = entry_of(a.index, s);
    const Sum term = index_add_term<Sum>(a.source[s * a.by_row], a);
    wait_for_before();
    const int64_t k = place_of_entry(a.index, entry, s);
    if (k >= 0) {
        atomic_add(sums + k, term);
    }
}

/* ---- one of several ranges ---- */

/* Rows of a warp that go to the range: the destination, and the row from the warp's first
   on. */
struct index_add_listed {
    unsigned place[LISTED_ROWS];
    unsigned row[LISTED_ROWS];
};

/* One slice, fewer than 2^32 destinations.  across: packs of V elements in a row. */
template <typename T, typename Sum, int V>
__global__ void
__launch_bounds__(BLOCK)
    index_add_joined_range_kernel(index_add_view<T> a, index_add_range range, Sum *sums,
                                  divider across)
{
    constexpr int EACH = LISTED_ROWS / WARP;
    GPO_SHARED(index_add_listed, lists, [BLOCK / WARP]);
    let_next_start();
    const int lane = threadIdx.x % WARP, packs = static_cast<int>(across.by);
    index_add_listed &list = lists[threadIdx.x / WARP];
    const int64_t step = static_cast<int64_t>(gridDim.x) * (BLOCK * EACH);
    bool waits = true;
    for (int64_t begin = static_cast<int64_t>(blockIdx.x) * (BLOCK * EACH) +
                         threadIdx.x / WARP * LISTED_ROWS;
         begin < a.count; begin += step) { /* whole warps */
        int64_t entry[EACH] = {};
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64_t s = begin + j * WARP + lane;
            if (s < a.count) {
                entry[j] = entry_of(a.index, s);
            }
        }
        int listed = 0;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int64_t s = begin + j * WARP + lane;
            const int64_t k = s < a.count ? place_of_entry(a.index, entry[j], s) : -1;
            const int64_t to = k * a.inner - range.begin;
            const bool is_mine = k >= 0 && to + a.inner > 0 && to < range.n;
            const unsigned lanes = __ballot_sync(ALL_LANES, is_mine);
            if (is_mine) {
                const int at = listed + __popc(lanes & ((1u << lane) - 1));
                list.place[at] = static_cast<unsigned>(k);
                list.row[at] = static_cast<unsigned>(j * WARP + lane);
            }
            listed += __popc(lanes);
        }
        __syncwarp();
        if (waits) {
            wait_for_before();
            waits = false;
        }
        const int n = listed * packs;
        for (int first = lane; first - lane < n; first += JOINED_IN_FLIGHT * WARP) {
            values<T, V> v[JOINED_IN_FLIGHT] = {};
            int64_t at[JOINED_IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
                const int p = first + j * WARP;
                at[j] = -1;
                if (p < n) {
                    const int r = across.narrow(p), c = (p - r * packs) * V;
                    const int64_t to = list.place[r] * a.inner + c - range.begin;
                    if (to >= 0 && to < range.n) {
                        at[j] = to;
                        v[j] = load_values<T, V>(a.source +
                                                 (begin + list.row[r]) * a.by_row +
                                                 c * a.by_inner);
                    }
                }
            }
#pragma unroll
            for (int j = 0; j < JOINED_IN_FLIGHT; j++) {
                if (at[j] >= 0) {
                    add_terms<T, Sum, V>(sums, at[j], range.n, v[j], a);
                }
            }
        }
        __syncwarp(); /* before the list is written again */
    }
}

/* ---- the launches ---- */

struct index_add_joins : index_add_wide_atomics {
    /* Packs of V elements, which a row is split into. */
    template <typename T, typename Sum, int V>
    static gpo_status add_packs(gpo_call *call, const index_add_view<T> &a,
                                index_add_range range, Sum *sums)
    {
        const bool is_part = range.n < a.length * a.inner && a.outer == 1 &&
                             a.length <= UINT32_MAX && a.inner < MOST_LISTED_COLUMNS;
        const int64_t n = a.outer * a.count * (a.inner / V);
        const divider across = divider_of(a.inner / V);
        return is_part
                   ? GPO_FOLLOW(call, true,
                                grid_for(ceil_div(a.count, LISTED_ROWS / WARP)), BLOCK,
                                0, (index_add_joined_range_kernel<T, Sum, V>), a, range,
                                sums, across)
                   : GPO_FOLLOW(call, true, grid_for(ceil_div(n, JOINED_IN_FLIGHT)),
                                BLOCK, 0,
                                (index_add_joined_sums_kernel<T, Sum, V, false>), a,
                                range, sums, across);
    }

    template <typename T, typename Sum>
    static gpo_status add(gpo_call *call, const index_add_view<T> &a,
                          index_add_range range, Sum *sums)
    {
        constexpr int V = sizeof(T) == 2 && sizeof(Sum) == 4 ? pack<T>::SIZE : 1;
        const int64_t n = a.outer * a.count * a.inner;
        const dim3 grid = grid_for(ceil_div(n, JOINED_IN_FLIGHT));
        const bool may_join = a.inner <= SHORT_ROW && index_add_most(call) == 0;
        if (may_join || index_add_joins_lanes(call)) {
            return GPO_FOLLOW(call, true, grid, BLOCK, 0,
                              (index_add_joined_sums_kernel<T, Sum, 1, true>), a, range,
                              sums, a.inners);
        }
        if (index_add_has_few_singles(*index_add_plan_of(call)) &&
            range.n == a.length) {
            return GPO_FOLLOW(call, true, grid_for(n), BLOCK, 0,
                              (index_add_single_sums_kernel<T, Sum>), a, sums);
        }
        if (V > 1 && is_packed(a)) {
            return add_packs<T, Sum, V>(call, a, range, sums);
        }
        constexpr int PAIR = V > 1 ? 2 : 1;
        if (PAIR > 1 && index_add_is_paired(a)) {
            return add_packs<T, Sum, PAIR>(call, a, range, sums);
        }
        return add_packs<T, Sum, 1>(call, a, range, sums);
    }

    template <typename T, typename Sum>
    static gpo_status sum(gpo_call *call, const index_add_view<T> &a)
    {
        return index_add_in_ranges<Sum>(call, a, [&](index_add_range range, Sum *sums) {
            return add<T, Sum>(call, a, range, sums);
        });
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return index_add_float32_does(call) ? sum<T, float>(call, a)
                                            : sum<T, double>(call, a);
    }
};

template <typename T>
gpo_status
index_add_joined_sums(gpo_call *call)
{
    return index_add_with<index_add_joins, T>(call);
}

template gpo_status index_add_joined_sums<f16>(gpo_call *call);
template gpo_status index_add_joined_sums<bf16>(gpo_call *call);
template gpo_status index_add_joined_sums<float>(gpo_call *call);
