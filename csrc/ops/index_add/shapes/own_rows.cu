/*
 * own_rows.cu  Some thousands of rows, of which a block takes those of its destinations.
 * Block g of `groups` has destinations g, g + groups, ...: it reads the whole index, keeps
 * the rows that go there, ranks them by destination and place in the source, loads their
 * columns into shared memory, and the first row of a destination adds the others in order.
 * Each sum is made in registers and rounded once: no atomics, no sums in memory, one
 * launch, and only destinations that have rows are read and written.  A small x is copied
 * by the blocks, a large one before.
 * own_places has sums for all its destinations, adds by atomics and writes all of out.
 * Cost:  the index once for each block; the source once; x and out where rows go.
 */
#include "../frame.cuh"

static constexpr int RANKED_BLOCK = 512,
                     RANKED_ITEMS = 3; /* packs of a thread at once */
static constexpr int RANKED_SPACE = RANKED_BLOCK * RANKED_ITEMS;

/* How a launch is shared by blocks. */
struct index_add_ranking {
    divider groups;  /* of destinations, odd: no step of the index is a bad one */
    divider across;  /* packs of a row of one slice */
    divider columns; /* packs of a block */
    int packs;       /* of a row, in all slices */
    bool copies;     /* out = x first */
};

/* What the block keeps of its rows. */
struct index_add_ranked {
    unsigned key[MOST_ROWS];              /* destination */
    uint16_t row[MOST_ROWS];              /* of the source */
    uint16_t order[MOST_ROWS];            /* sorted: places in key and row */
    unsigned heads[MOST_ROWS / WARP + 1]; /* bit p: a destination begins at p */
    int count;
};

/* The rows of the destination that begins at p. */
static __device__ __forceinline__ int
rows_from(const index_add_ranked &mine, int p, int n)
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

template <typename T, int V>
__global__ void
__launch_bounds__(RANKED_BLOCK, 1)
    index_add_own_rows_kernel(index_add_view<T> a, index_add_ranking own)
{
    using Acc = acc_of<T>;
    constexpr int ITEMS = 4; /* entries of the index in flight */
    GPO_SHARED(index_add_ranked, ranked, [1]);
    GPO_SHARED(Acc, value, [RANKED_SPACE * V]);
    index_add_ranked &mine = ranked[0];
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const int groups = static_cast<int>(own.groups.by);
    const int columns = static_cast<int>(own.columns.by);
    const int tile = static_cast<int>(blockIdx.x) / groups;
    const int group = static_cast<int>(blockIdx.x) - tile * groups;
    const int left = own.packs - tile * columns;
    const int length = static_cast<int>(a.length);

    if (a.verdict != nullptr && *a.verdict != NONE_BAD) {
        return;
    }
    for (int w = tid; w <= MOST_ROWS / WARP; w += RANKED_BLOCK) {
        mine.heads[w] = 0;
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
        for (int j = 0; j < ITEMS; j++) { /* of the first; the others move up */
            const int s = first + j * RANKED_BLOCK;
            const int k =
                s < count ? static_cast<int>(place_of_entry(a.index, entry[0], s)) : -1;
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
    if (own.copies) {
        const int n = (length - group + groups - 1) / groups * columns;
#pragma unroll 2
        for (int i = tid; i < n; i += RANKED_BLOCK) {
            const int j = own.columns.narrow(i), pack = i - j * columns;
            if (pack < left) {
                const auto p = place_of_pack<V>(own, tile * columns + pack);
                const int at =
                    (p.o * length + group + j * groups) * static_cast<int>(a.inner) +
                    p.c;
                *reinterpret_cast<values<T, V> *>(a.out + at) =
                    load_pack<T, V>(a.base + at);
            }
        }
    }
    __syncthreads();

    const int n = mine.count;
    for (int i = tid; i < n; i += RANKED_BLOCK) {
        const unsigned k = mine.key[i];
        const int s = mine.row[i];
        int rank = 0, before = 0;
#pragma unroll 4
        for (int j = 0; j < n; j++) {
            const unsigned key = mine.key[j];
            const bool is_before = key == k && mine.row[j] < s;
            before += is_before ? 1 : 0;
            rank += key < k || is_before ? 1 : 0;
        }
        mine.order[rank] = static_cast<uint16_t>(i);
        if (before == 0) {
            atomicOr(&mine.heads[rank / WARP], 1u << (rank % WARP));
        }
    }
    __syncthreads();

    const int rows = RANKED_SPACE / columns; /* at once */
    for (int begin = 0; begin < n; begin += rows) {
        const int end = begin + rows < n ? begin + rows : n;
        values<T, V> v[RANKED_ITEMS], old[RANKED_ITEMS] = {};
        int64_t to[RANKED_ITEMS]; /* -1: another row's thread adds this one */
#pragma unroll
        for (int j = 0; j < RANKED_ITEMS; j++) {
            const int i = j * RANKED_BLOCK + tid, r = own.columns.narrow(i);
            const int p = begin + r, pack = i - r * columns;
            to[j] = -1;
            v[j] = {};
            if (p < end && pack < left) {
                const auto to_pack = place_of_pack<V>(own, tile * columns + pack);
                const int at = mine.order[p];
                v[j] =
                    load_pack<T, V>(a.source + to_pack.o * a.by_outer +
                                    mine.row[at] * a.by_row + to_pack.c * a.by_inner);
                if ((mine.heads[p / WARP] >> (p % WARP) & 1) != 0) {
                    to[j] = (to_pack.o * a.length + mine.key[at]) * a.inner + to_pack.c;
                    old[j] = load_pack<T, V>(a.base + to[j]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < RANKED_ITEMS; j++) {
#pragma unroll
            for (int e = 0; e < V; e++) {
                value[(j * RANKED_BLOCK + tid) * V + e] = scaled(v[j].v[e], a.alpha);
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int j = 0; j < RANKED_ITEMS; j++) { /* of the first; the others move up */
            if (to[0] >= 0) {
                const int i = j * RANKED_BLOCK + tid, r = own.columns.narrow(i);
                const int p = begin + r, many = rows_from(mine, p, n);
                const int here = p + many < end ? many : end - p;
                Acc sum[V];
#pragma unroll
                for (int e = 0; e < V; e++) {
                    sum[e] = value[i * V + e];
                }
#pragma unroll 4
                for (int q = 1; q < here; q++) {
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        sum[e] += value[(i + q * columns) * V + e];
                    }
                }
                const auto at = place_of_pack<V>(own, tile * columns + i - r * columns);
                const T *const from = a.source + at.o * a.by_outer + at.c * a.by_inner;
#pragma unroll 1
                for (int q = here; q < many; q++) { /* behind those in shared memory */
                    const auto next =
                        load_pack<T, V>(from + mine.row[mine.order[p + q]] * a.by_row);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        sum[e] += scaled(next.v[e], a.alpha);
                    }
                }
#pragma unroll
                for (int e = 0; e < V; e++) {
                    old[0].v[e] = sum_stored(old[0].v[e], sum[e]);
                }
                *reinterpret_cast<values<T, V> *>(a.out + to[0]) = old[0];
            }
#pragma unroll
            for (int m = 1; m < RANKED_ITEMS; m++) {
                to[m - 1] = to[m];
                old[m - 1] = old[m];
            }
        }
        __syncthreads();
    }
}

/*
 * Some `rows` rows for a block at least, as it ranks them by comparison; columns are shared
 * where that leaves it 32 packs, which are whole sectors.
 */
template <int V>
static index_add_ranking
ranking_of(const gpo_call *call, bool copies, int64_t rows)
{
    constexpr int64_t BLOCKS = 2, PACKS = 32, MOST_TILES = 8, WIDEST = 512;
    const index_add_plan &plan = *index_add_plan_of(call);
    const int64_t across = plan.inner / V, packs = plan.outer * across;
    const int64_t wanted = BLOCKS * gpo_processors(call);
    int64_t tiles = ceil_div(packs, PACKS);
    tiles = tiles < MOST_TILES ? tiles : MOST_TILES;
    const int64_t columns =
        ceil_div(packs, tiles) < WIDEST ? ceil_div(packs, tiles) : WIDEST;
    int64_t groups = wanted / tiles;
    const int64_t most = ceil_div(plan.count, rows);
    groups = groups < most ? groups : most;
    groups = groups < plan.length ? groups : plan.length;
    groups = groups < 1 ? 1 : groups - (groups + 1) % 2;
    return {divider_of(groups), divider_of(across), divider_of(columns),
            static_cast<int>(packs), copies};
}

template <typename T, int V>
static gpo_status
launch_ranked(gpo_call *call, const index_add_view<T> &a, int64_t rows)
{
    const index_add_ranking own = ranking_of<V>(call, a.base != a.out, rows);
    const int64_t tiles = ceil_div(own.packs, own.columns.by);
    const dim3 grid(static_cast<unsigned>(own.groups.by * tiles));
    return GPO_LAUNCH(call, grid, RANKED_BLOCK, 0, (index_add_own_rows_kernel<T, V>), a,
                      own);
}

template <typename T>
gpo_status
index_add_ranked_rows(gpo_call *call, int64_t rows)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    index_add_frame frame;
    const index_add_traits traits = {true, index_add_ranks_copy(plan), true, false};
    gpo_status status = index_add_begin(call, traits, &frame);
    if (!status && !frame.nothing) {
        const index_add_view<T> view = view_of<T>(call, frame);
        if constexpr (sizeof(T) == 2) {
            status = index_add_is_paired(view) ? launch_ranked<T, 2>(call, view, rows)
                                               : launch_ranked<T, 1>(call, view, rows);
        }
        else {
            status = launch_ranked<T, 1>(call, view, rows);
        }
    }
    return status ? status : index_add_end(call, frame);
}

template <typename T>
gpo_status
index_add_own_rows(gpo_call *call)
{
    return index_add_ranked_rows<T>(call, 16);
}

template gpo_status index_add_ranked_rows<f16>(gpo_call *call, int64_t rows);
template gpo_status index_add_ranked_rows<bf16>(gpo_call *call, int64_t rows);
template gpo_status index_add_ranked_rows<float>(gpo_call *call, int64_t rows);
template gpo_status index_add_ranked_rows<double>(gpo_call *call, int64_t rows);
template gpo_status index_add_own_rows<f16>(gpo_call *call);
template gpo_status index_add_own_rows<bf16>(gpo_call *call);
template gpo_status index_add_own_rows<float>(gpo_call *call);
template gpo_status index_add_own_rows<double>(gpo_call *call);
