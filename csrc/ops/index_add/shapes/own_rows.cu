/*
 * own_rows.cu  Some thousands of rows of 16-bit floats, of which a block takes those of its
 * destinations.
 * Block g of `groups` has destinations g, g + groups, ...: it reads the whole index and
 * keeps the rows that go there.  Their elements and those of out come from memory while
 * it ranks the rows by destination and place in the source, a warp for each; then the first
 * row of a destination adds the others in order, from shared memory.  Each sum is made in
 * registers and rounded once: no atomics on floats, no sums in memory, and only
 * destinations that have rows are read and written.
 * own_places has sums for all its destinations, adds by atomics and writes all of out.
 * Cost:  the index once for each block; the source once, or again for rows that do not fit
 *        into shared memory; out where rows go.
 */
#include "../frame.cuh"

static constexpr int RANKED_BLOCK = 512;
/* Packs of a thread in shared memory: more of them where blocks would else take turns.
   They share 48 KB with the lists below. */
static constexpr int FEW_RANKED = 2, MANY_RANKED = 7;
static constexpr int64_t RANKED_BLOCKS = 2; /* of an SM, at once */

/* How a launch is shared by blocks. */
struct index_add_ranking {
    divider groups;  /* of destinations, odd: no step of the index is a bad one */
    divider across;  /* packs of a row of one slice */
    divider columns; /* packs of a block */
    int packs;       /* of a row, in all slices */
};

/* What the block keeps of its rows, and `SPACE` elements. */
template <typename T, int SPACE>
struct index_add_ranked {
    unsigned key[MOST_ROWS];              /* destination */
    uint16_t row[MOST_ROWS];              /* of the source */
    uint16_t rank[MOST_ROWS];             /* among the kept ones */
    unsigned heads[MOST_ROWS / WARP + 1]; /* bit p: a destination begins at rank p */
    int count;
    union {
        uint4 value[SPACE * sizeof(T) / 16]; /* elements by rank */
        uint16_t order[MOST_ROWS]; /* if they do not fit: of rank p its place in key */
    };
};

/* The rows of the destination that begins at p. */
template <typename Ranked>
static __device__ __forceinline__ int
rows_from(const Ranked &mine, int p, int n)
{
    int word = p / WARP;
    unsigned bits = mine.heads[word] >> (p % WARP) >> 1;
    int next = p + 1;
    while (bits == 0 && (word + 1) * WARP < n) {
        bits = mine.heads[++word];
        next = word * WARP;
    }
    next = bits == 0 ? n : next + __ffs(static_cast<int>(bits)) - 1;
    return next - p;
}

template <typename Ranked>
static __device__ __forceinline__ bool
is_head(const Ranked &mine, int p)
{
    return (mine.heads[p / WARP] >> (p % WARP) & 1) != 0;
}

/* Where a pack of a row is: its slice, its first column. */
struct index_add_pack_place {
    int o, c;
};

template <int V>
static __device__ __forceinline__ index_add_pack_place
place_of_pack(const index_add_ranking &own, int pack)
{
    const int o = own.across.narrow(pack);
    return {o, (pack - o * static_cast<int>(own.across.by)) * V};
}

/* V elements, which are aligned together. */
template <typename T, int V>
static __device__ __forceinline__ values<T, V>
load_pack(const T *p)
{
    return *reinterpret_cast<const values<T, V> *>(p);
}

/* out[to..to + V) = old + sum, rounded once. */
template <typename T, int V>
static __device__ __forceinline__ void
store_sums(const index_add_view<T> &a, int64_t to, values<T, V> old,
           const acc_of<T> (&sum)[V])
{
#pragma unroll
    for (int e = 0; e < V; e++) {
        old.v[e] = sum_stored(old.v[e], sum[e]);
    }
    *reinterpret_cast<values<T, V> *>(a.out + to) = old;
}

/* Adds a pack of the rows of the destination that begins at rank p. */
template <typename T, int V, typename Ranked>
static __device__ __forceinline__ void
add_from_source(const index_add_view<T> &a, const Ranked &mine, int p, int n,
                index_add_pack_place pack)
{
    const T *const from = a.source + pack.o * a.by_outer + pack.c * a.by_inner;
    const int at = mine.order[p], many = rows_from(mine, p, n);
    const int64_t to = (pack.o * a.length + mine.key[at]) * a.inner + pack.c;
    const auto old = load_pack<T, V>(a.base + to);
    const auto first = load_pack<T, V>(from + mine.row[at] * a.by_row);
    acc_of<T> sum[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        sum[e] = scaled(first.v[e], a.alpha);
    }
#pragma unroll 4
    for (int q = 1; q < many; q++) {
        const auto next =
            load_pack<T, V>(from + mine.row[mine.order[p + q]] * a.by_row);
#pragma unroll
        for (int e = 0; e < V; e++) {
            sum[e] += scaled(next.v[e], a.alpha);
        }
    }
    store_sums<T, V>(a, to, old, sum);
}

template <typename T, int V, int EACH>
__global__ void
__launch_bounds__(RANKED_BLOCK, 2)
    index_add_own_rows_kernel(index_add_view<T> a, index_add_ranking own)
{
    using Acc = acc_of<T>;
    constexpr int ITEMS = 4; /* entries of the index in flight */
    constexpr int SPACE = RANKED_BLOCK * EACH;
    using Ranked = index_add_ranked<T, SPACE * V>;
    GPO_SHARED(Ranked, ranked, [1]);
    Ranked &mine = ranked[0];
    T *const value = reinterpret_cast<T *>(mine.value);
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const int groups = static_cast<int>(own.groups.by);
    const int columns = static_cast<int>(own.columns.by);
    const int tile = static_cast<int>(blockIdx.x) / groups;
    const int group = static_cast<int>(blockIdx.x) - tile * groups;
    const int left = own.packs - tile * columns;

    if (a.verdict != nullptr && *a.verdict != NONE_BAD) {
        return;
    }
    if (tid <= MOST_ROWS / WARP) {
        mine.heads[tid] = 0;
    }
    if (tid == 0) {
        mine.count = 0;
    }
    __syncthreads();
    for (int first = tid; first - tid < count; first += ITEMS * RANKED_BLOCK) {
        int64_t entry[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int s = first + j * RANKED_BLOCK;
            if (s < count) {
                entry[j] = entry_of(a.index, s);
            }
        }
#pragma unroll 1
        for (int s = first; s < count && s < first + ITEMS * RANKED_BLOCK;
             s += RANKED_BLOCK) { /* of the first entry; the others move up */
            const int k = static_cast<int>(place_of_entry(a.index, entry[0], s));
            if (k >= 0 && k - own.groups.narrow(k) * groups == group) {
                const int at = atomicAdd(&mine.count, 1);
                mine.key[at] = static_cast<unsigned>(k);
                mine.row[at] = static_cast<uint16_t>(s);
            }
#pragma unroll
            for (int m = 1; m < ITEMS; m++) {
                entry[m - 1] = entry[m];
            }
        }
    }
    __syncthreads();

    const int n = mine.count;
    const bool fits = n * columns <= SPACE;
    values<T, V> v[EACH] = {}, old[EACH] = {};
    int64_t to[EACH]; /* -1: no pack */
    const auto load_old = [&] {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (to[j] >= 0) {
                old[j] = load_pack<T, V>(a.base + to[j]);
            }
        }
    };
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int at = j * RANKED_BLOCK + tid, i = own.columns.narrow(at);
        const int pack = at - i * columns;
        to[j] = -1;
        if (fits && i < n && pack < left) {
            const auto p = place_of_pack<V>(own, tile * columns + pack);
            v[j] = load_pack<T, V>(a.source + p.o * a.by_outer +
                                   mine.row[i] * a.by_row + p.c * a.by_inner);
            to[j] = (p.o * a.length + mine.key[i]) * a.inner + p.c;
        }
    }
    if (!a.follows) {
        load_old();
    }

    const int lane = tid % WARP;
#pragma unroll 1
    for (int i = tid / WARP; i < n; i += RANKED_BLOCK / WARP) {
        const unsigned k = mine.key[i];
        const int s = mine.row[i];
        int rank = 0;
        unsigned before = 0; /* lanes that saw a row of k before this one */
#pragma unroll 1
        for (int j = lane; j - lane < n; j += WARP) {
            const unsigned key = j < n ? mine.key[j] : ~0u;
            const bool is_before = key == k && mine.row[j] < s;
            rank += __popc(__ballot_sync(ALL_LANES, key < k || is_before));
            before |= __ballot_sync(ALL_LANES, is_before);
        }
        if (lane == 0) {
            mine.rank[i] = static_cast<uint16_t>(rank);
            if (!fits) {
                mine.order[rank] = static_cast<uint16_t>(i);
            }
            if (before == 0) {
                atomicOr(&mine.heads[rank / WARP], 1u << (rank % WARP));
            }
        }
    }
    wait_for_before();
    if (a.follows) { /* x was being copied */
        load_old();
    }
    __syncthreads();

    if (!fits) { /* the same in all threads */
#pragma unroll 1
        for (int at = tid; at < n * columns; at += RANKED_BLOCK) {
            const int p = own.columns.narrow(at), pack = at - p * columns;
            if (pack < left && is_head(mine, p)) {
                add_from_source<T, V>(a, mine, p, n,
                                      place_of_pack<V>(own, tile * columns + pack));
            }
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        if (to[j] >= 0) {
            const int at = j * RANKED_BLOCK + tid, i = own.columns.narrow(at);
            *reinterpret_cast<values<T, V> *>(
                value + (mine.rank[i] * columns + at - i * columns) * V) = v[j];
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int j = 0; j < EACH; j++) { /* of the first; the others move up */
        const int at = j * RANKED_BLOCK + tid, i = own.columns.narrow(at);
        const int p = to[0] >= 0 ? mine.rank[i] : 0;
        if (to[0] >= 0 && is_head(mine, p)) {
            const int many = rows_from(mine, p, n);
            const T *const from = value + (p * columns + at - i * columns) * V;
            Acc sum[V];
            const auto first = load_pack<T, V>(from);
#pragma unroll
            for (int e = 0; e < V; e++) {
                sum[e] = scaled(first.v[e], a.alpha);
            }
#pragma unroll 4
            for (int q = 1; q < many; q++) {
                const auto next = load_pack<T, V>(from + q * columns * V);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    sum[e] += scaled(next.v[e], a.alpha);
                }
            }
            store_sums<T, V>(a, to[0], old[0], sum);
        }
#pragma unroll
        for (int m = 1; m < EACH; m++) {
            to[m - 1] = to[m];
            old[m - 1] = old[m];
        }
    }
}

/*
 * At least 16 rows for a block, as each reads the whole index, and at most what shared memory
 * takes, with a fifth to spare; columns are shared where that leaves a block 32 packs, which
 * are whole sectors.
 */
template <int V>
static index_add_ranking
ranking_of(const gpo_call *call, int each)
{
    constexpr int64_t PACKS = 32, MOST_TILES = 8, WIDEST = 512, ROWS = 16;
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t across = plan.inner / V, packs = plan.outer * across;
    int64_t tiles = ceil_div(packs, PACKS);
    tiles = tiles < MOST_TILES ? tiles : MOST_TILES;
    const int64_t columns =
        ceil_div(packs, tiles) < WIDEST ? ceil_div(packs, tiles) : WIDEST;
    const int64_t wanted = RANKED_BLOCKS * gpo_processors(call) / tiles;
    const int64_t whole = ceil_div(plan.count * columns * 5, RANKED_BLOCK * each * 4);
    const int64_t most = ceil_div(plan.count, ROWS);
    int64_t groups = wanted < most ? wanted : most;
    groups = groups > whole ? groups : whole;
    groups = groups < plan.length ? groups : plan.length;
    groups = groups < 1 ? 1 : groups - (groups + 1) % 2;
    return {divider_of(groups), divider_of(across), divider_of(columns),
            static_cast<int>(packs)};
}

static int64_t
ranking_blocks(const index_add_ranking &own)
{
    return own.groups.by * ceil_div(own.packs, own.columns.by);
}

template <typename T, int V>
static gpo_status
launch_ranked(gpo_call *call, const index_add_view<T> &a)
{
    index_add_ranking own = ranking_of<V>(call, FEW_RANKED);
    const bool many = ranking_blocks(own) > RANKED_BLOCKS * gpo_processors(call);
    if (many) {
        own = ranking_of<V>(call, MANY_RANKED);
    }
    const dim3 grid(static_cast<unsigned>(ranking_blocks(own)));
    return many ? GPO_FOLLOW(call, a.follows, grid, RANKED_BLOCK, 0,
                             (index_add_own_rows_kernel<T, V, MANY_RANKED>), a, own)
                : GPO_FOLLOW(call, a.follows, grid, RANKED_BLOCK, 0,
                             (index_add_own_rows_kernel<T, V, FEW_RANKED>), a, own);
}

struct index_add_ranks {
    static constexpr index_add_traits TRAITS = {true, false, true, false};

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        return index_add_is_paired(a) ? launch_ranked<T, 2>(call, a)
                                      : launch_ranked<T, 1>(call, a);
    }
};

template <typename T>
gpo_status
index_add_own_rows(gpo_call *call)
{
    return index_add_with<index_add_ranks, T>(call);
}

template gpo_status index_add_own_rows<f16>(gpo_call *call);
template gpo_status index_add_own_rows<bf16>(gpo_call *call);
