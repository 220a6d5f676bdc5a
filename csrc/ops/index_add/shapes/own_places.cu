/*
 * own_places.cu  Some thousands of rows, in one launch without a sort.
 * Each block owns a range of out, whose sums it has in shared memory: it reads the whole
 * index, adds the rows that go there by shared atomics, and writes x and the sums, each
 * rounded once.  No block waits for another, so neither a copy of x nor the sums take a
 * launch of their own.  Where its sums are few, it has copies of them for its warps: a shared
 * atomic on floats is a loop of compare-and-swap, in which the warps of a hot destination
 * would take turns.
 * Sums are of float32, of float64 where a destination may have more than 1,024 rows.
 * Cost:  the index once for each block; x and out once; the source once, or with rows of
 *        one element once for each block.
 */
#include "../owning.cuh"
#include "../separate_sums.cuh"

/* ALONE: rows of one element, each loaded together with its entry.  A block's time is that of
   its instructions, half of them before the first row: so none are for sums it has not. */
template <typename T, typename Sum, bool ALONE>
__global__ void
__launch_bounds__(OWNING_BLOCK, 1)
    index_add_own_places_kernel(index_add_view<T> a, index_add_owning own)
{
    constexpr int EACH = OWNED<Sum> / OWNING_BLOCK; /* sums of a thread */
    static_assert(OWNED_BYTES == OWNING_BLOCK * sizeof(uint4),
                  "a thread clears a pack");
    constexpr int ITEMS = 4; /* more would be more code, which comes from memory */
    GPO_SHARED(uint4, space, [OWNING_BLOCK]);
    GPO_SHARED(unsigned, list, [ALONE ? 1 : OWNED_WIDE_ROWS]); /* row, destination */
    GPO_SHARED(int, kept, [1]);
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const int columns = ALONE ? 1 : static_cast<int>(own.columns.by);
    const int inner = ALONE ? 1 : static_cast<int>(a.inner);
    Sum *const sums = reinterpret_cast<Sum *>(space);
    const unsigned slice = a.outer > 1 ? blockIdx.x / own.ranges : 0;
    const int64_t tile = ALONE ? 0 : blockIdx.y, o = slice;
    const int64_t begin = (blockIdx.x - slice * own.ranges) * own.places;
    const int64_t left = a.length - begin, wide = a.inner - tile * columns;
    const int mine = static_cast<int>(left < own.places ? left : own.places);
    const int across = static_cast<int>(wide < columns ? wide : columns);
    const int64_t at = (o * a.length + begin) * a.inner + tile * columns;
    const T *const from = a.source + o * a.by_outer + tile * columns * a.by_inner;
    const int span = own.sums; /* of a copy */
    Sum *const of_warp = sums + (tid / WARP & (own.copies - 1)) * span;

    /* Where sum e of the block goes, behind `at`; -1: nowhere. */
    const auto place_of_sum = [&](int e) {
        const int k = ALONE ? e : own.columns.narrow(e), c = e - k * columns;
        return k < mine && c < across ? k * inner + c : -1;
    };
    T old[EACH] = {};
    const auto begin_sums = [&] {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (j * OWNING_BLOCK >= span) {
                break;
            }
            const int to = place_of_sum(j * OWNING_BLOCK + tid);
            old[j] = to >= 0 ? a.base[at + to] : T{};
        }
        space[tid] = make_uint4(0, 0, 0, 0);
        if (tid == 0) {
            kept[0] = 0;
        }
        __syncthreads();
    };
    for (int first = tid; first - tid < count; first += ITEMS * OWNING_BLOCK) {
        int64_t entry[ITEMS] = {};
        T v[ITEMS] = {};
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            if (first - tid + j * OWNING_BLOCK >= count) { /* the same in all threads */
                break;
            }
            const int s = first + j * OWNING_BLOCK;
            if (s < count) {
                entry[j] = entry_of(a.index, s);
                if constexpr (ALONE) {
                    v[j] = from[s * a.by_row];
                }
            }
        }
        if (first == tid) { /* while the entries come from memory */
            begin_sums();
        }
        int to_sum[ITEMS]; /* -1: none of this block's */
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const int s = first + j * OWNING_BLOCK;
            int64_t k = entry[j] - begin;
            if (s < count &&
                static_cast<uint64_t>(entry[j]) >= static_cast<uint64_t>(a.length)) {
                k = place_of_entry(a.index, entry[j], s) - begin;
            }
            const bool is_mine =
                s < count && static_cast<uint64_t>(k) < static_cast<uint64_t>(mine);
            to_sum[j] = is_mine ? static_cast<int>(k) : -1;
        }
        const int rest = count - (first - tid);
#pragma unroll 1
        for (int j = 0; j < ITEMS && j * OWNING_BLOCK < rest;
             j++) { /* of the first; the others move up */
            const int k = to_sum[0];
            const bool is_mine = k >= 0;
            const unsigned lanes = __ballot_sync(ALL_LANES, is_mine);
            if (ALONE && lanes != 0) {
                Sum term = index_add_term<Sum>(v[0], a);
                bool sends = is_mine;
                if (own.joins && (lanes & (lanes - 1)) != 0) {
                    const unsigned peers =
                        __match_any_sync(ALL_LANES, static_cast<unsigned>(k));
                    const unsigned self = 1u << (tid % WARP);
                    add_up(is_mine ? peers : self, &term);
                    sends = is_mine && (peers & (self - 1)) == 0;
                }
                if (sends) {
                    atomic_add(&of_warp[k], term);
                }
            }
            if (!ALONE && is_mine) {
                const unsigned s = static_cast<unsigned>(first + j * OWNING_BLOCK);
                list[atomicAdd(&kept[0], 1)] = s << 16 | static_cast<unsigned>(k);
            }
#pragma unroll
            for (int m = 1; m < ITEMS; m++) {
                to_sum[m - 1] = to_sum[m];
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
                    atomic_add(&of_warp[sum[0]], index_add_term<Sum>(v[0], a));
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
        if (j * OWNING_BLOCK >= span) {
            break;
        }
        const int to = place_of_sum(j * OWNING_BLOCK + tid);
        Sum sum = 0;
#pragma unroll 4
        for (int e = j * OWNING_BLOCK + tid; to >= 0 && e < own.copies * span;
             e += span) {
            sum += sums[e];
        }
        if (to >= 0 && (sum != 0 || a.base != a.out)) {
            const Sum both = static_cast<Sum>(value_of(old[j])) + sum;
            T result = old[j];
            if constexpr (is_same<T, double>) {
                result = sum != 0 ? both : result;
            }
            else {
                result = sum != 0 ? stored_as<T>(static_cast<float>(both)) : result;
            }
            a.out[at + to] = result;
        }
    }
}

struct index_add_by_owners {
    static constexpr index_add_traits TRAITS = {false, true, true, false};

    template <typename T, typename Sum>
    static gpo_status launch(gpo_call *call, const index_add_view<T> &a)
    {
        const index_add_owning own = index_add_owning_of(call, OWNED<Sum>);
        const dim3 grid(static_cast<unsigned>(a.outer * own.ranges), own.tiles);
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
