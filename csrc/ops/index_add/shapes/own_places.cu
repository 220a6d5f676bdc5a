/*
 * own_places.cu  Some thousands of rows, in one launch without a sort.
 * Each block owns a range of out, whose sums it has in shared memory: it reads the whole
 * index, adds the rows that go there by shared atomics, and writes x and the sums, each
 * rounded once.  No block waits for another, so neither a copy of x nor the sums take a
 * launch of their own.
 * Sums are of float32, of float64 where a destination may have more than 1,024 rows.
 * Cost:  the index once for each block; x and out once; the source once, or with rows of
 *        one element once for each block.
 */
#include "../owning.cuh"
#include "../separate_sums.cuh"

/* ALONE: rows of one element, each loaded together with its entry. */
template <typename T, typename Sum, bool ALONE>
__global__ void
__launch_bounds__(OWNING_BLOCK, 1)
    index_add_own_places_kernel(index_add_view<T> a, index_add_owning own)
{
    constexpr int EACH = OWNED<Sum> / OWNING_BLOCK; /* sums of a thread */
    constexpr int ITEMS = 4; /* more would be more code, which comes from memory */
    GPO_SHARED(Sum, sums, [OWNED<Sum>]);
    GPO_SHARED(unsigned, list, [ALONE ? 1 : OWNED_WIDE_ROWS]); /* row, destination */
    GPO_SHARED(int, kept, [1]);
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const int columns = static_cast<int>(own.columns.by);
    const int inner = static_cast<int>(a.inner);
    const unsigned unit = blockIdx.x / own.tiles, slice = unit / own.ranges;
    const int64_t tile = blockIdx.x - unit * own.tiles, o = slice;
    const int64_t begin = (unit - slice * own.ranges) * own.places;
    const int64_t left = a.length - begin, wide = a.inner - tile * columns;
    const int mine = static_cast<int>(left < own.places ? left : own.places);
    const int across = static_cast<int>(wide < columns ? wide : columns);
    const int64_t at = (o * a.length + begin) * a.inner + tile * columns;
    const T *const from = a.source + o * a.by_outer + tile * columns * a.by_inner;

    T old[EACH];
    int to[EACH]; /* behind `at`; -1: none */
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const int e = j * OWNING_BLOCK + tid;
        const int k = own.columns.narrow(e), c = e - k * columns;
        to[j] = k < mine && c < across ? k * inner + c : -1;
        old[j] = to[j] >= 0 ? a.base[at + to[j]] : T{};
        sums[e] = 0;
    }
    if (tid == 0) {
        kept[0] = 0;
    }
    __syncthreads();
    for (int first = tid; first - tid < count; first += ITEMS * OWNING_BLOCK) {
        int64_t entry[ITEMS] = {};
        T v[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int s = first + j * OWNING_BLOCK;
            if (s < count) {
                entry[j] = entry_of(a.index, s);
                if constexpr (ALONE) {
                    v[j] = from[s * a.by_row];
                }
            }
        }
#pragma unroll 1
        for (int j = 0; j < ITEMS; j++) { /* of the first; the others move up */
            const int s = first + j * OWNING_BLOCK;
            const int64_t k =
                s < count ? place_of_entry(a.index, entry[0], s) - begin : -1;
            const bool is_mine = k >= 0 && k < mine;
            if constexpr (ALONE) {
                Sum term = index_add_term<Sum>(v[0], a);
                bool sends = is_mine;
                if (own.joins) { /* the same in all threads */
                    const unsigned key = is_mine ? static_cast<unsigned>(k) : ~0u;
                    sends = add_up_key(key, &term) && is_mine;
                }
                if (sends) {
                    atomic_add(&sums[k], term);
                }
            }
            else if (is_mine) {
                list[atomicAdd(&kept[0], 1)] =
                    static_cast<unsigned>(s) << 16 | static_cast<unsigned>(k);
            }
#pragma unroll
            for (int m = 1; m < ITEMS; m++) {
                entry[m - 1] = entry[m];
                v[m - 1] = v[m];
            }
        }
    }
    if constexpr (!ALONE) {
        __syncthreads();
        const int n = kept[0] * columns;
        for (int first = tid; first < n; first += ITEMS * OWNING_BLOCK) {
            T v[ITEMS] = {};
            int sum[ITEMS];
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                const int i = first + j * OWNING_BLOCK;
                const int r = own.columns.narrow(i), c = i - r * columns;
                sum[j] = -1;
                if (i < n && c < across) {
                    const unsigned row = list[r];
                    v[j] = from[(row >> 16) * a.by_row + c * a.by_inner];
                    sum[j] = static_cast<int>(row & 0xffff) * columns + c;
                }
            }
#pragma unroll 1
            for (int j = 0; j < ITEMS; j++) {
                if (sum[0] >= 0) {
                    atomic_add(&sums[sum[0]], index_add_term<Sum>(v[0], a));
                }
#pragma unroll
                for (int m = 1; m < ITEMS; m++) {
                    sum[m - 1] = sum[m];
                    v[m - 1] = v[m];
                }
            }
        }
    }
    __syncthreads();
    if (a.verdict != nullptr && *a.verdict != NONE_BAD) {
        return;
    }
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        const Sum sum = sums[j * OWNING_BLOCK + tid];
        if (to[j] >= 0 && (sum != 0 || a.base != a.out)) {
            const Sum both = static_cast<Sum>(value_of(old[j])) + sum;
            T result = old[j];
            if constexpr (is_same<T, double>) {
                result = sum != 0 ? both : result;
            }
            else {
                result = sum != 0 ? stored_as<T>(static_cast<float>(both)) : result;
            }
            a.out[at + to[j]] = result;
        }
    }
}

struct index_add_by_owners {
    static constexpr index_add_traits TRAITS = {false, true, true, false};

    template <typename T, typename Sum>
    static gpo_status launch(gpo_call *call, const index_add_view<T> &a)
    {
        const index_add_owning own = index_add_owning_of(call, OWNED<Sum>);
        const int64_t blocks = index_add_owners(*index_add_plan_of(call), own);
        const dim3 grid(static_cast<unsigned>(blocks));
        return a.inner == 1
                   ? GPO_LAUNCH(call, grid, OWNING_BLOCK, 0,
                                (index_add_own_places_kernel<T, Sum, true>), a, own)
                   : GPO_LAUNCH(call, grid, OWNING_BLOCK, 0,
                                (index_add_own_places_kernel<T, Sum, false>), a, own);
    }

    template <typename T>
    static gpo_status run(gpo_call *call, const index_add_view<T> &a)
    {
        if constexpr (is_same<T, double>) {
            return launch<T, double>(call, a);
        }
        else {
            return index_add_float32_does(call) ? launch<T, float>(call, a)
                                                : launch<T, double>(call, a);
        }
    }
};

template <typename T>
gpo_status
index_add_own_places(gpo_call *call)
{
    return index_add_with<index_add_by_owners, T>(call);
}

template gpo_status index_add_own_places<f16>(gpo_call *call);
template gpo_status index_add_own_places<bf16>(gpo_call *call);
template gpo_status index_add_own_places<float>(gpo_call *call);
template gpo_status index_add_own_places<double>(gpo_call *call);
