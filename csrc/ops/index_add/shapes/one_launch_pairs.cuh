/*
 * one_launch_pairs.cuh  The kernel of one_launch for at most PAIRED rows, which are not
 * sorted: each element is compared with all rows, 32 at a time, and the first of a
 * destination adds the others, in their order.  Its three barriers are the time of such
 * a call.
 */
#ifndef GPO_INDEX_ADD_ONE_LAUNCH_PAIRS_CUH
#define GPO_INDEX_ADD_ONE_LAUNCH_PAIRS_CUH

#include "../../../device/verdict.cuh"
#include "../frame.cuh"

static constexpr unsigned NO_ROW = ~0u;
static_assert(COPIED_BY_THREAD == 2, "the kernel keeps so many in registers");

/* How a launch of them is shared by blocks. */
struct index_add_pairs {
    int64_t columns; /* of all slices: outer * inner */
    int64_t places;  /* destinations of a block */
    divider lanes;   /* columns of a block */
    bool copies;     /* out = x first */
    verdict_word verdict;
};

/* Which of 32 keys equal `key`, as bits. */
static __device__ __forceinline__ unsigned
rows_of_key(const uint4 *keys, unsigned key)
{
    unsigned same = 0;
#pragma unroll
    for (int q = 0; q < WARP / 4; q++) {
        const uint4 four = keys[q];
        same |= four.x == key ? 1u << (4 * q) : 0;
        same |= four.y == key ? 2u << (4 * q) : 0;
        same |= four.z == key ? 4u << (4 * q) : 0;
        same |= four.w == key ? 8u << (4 * q) : 0;
    }
    return same;
}

template <typename T>
__global__ void
__launch_bounds__(PAIR_THREADS)
    index_add_one_launch_pairs(index_add_view<T> a, index_add_pairs share)
{
    using Acc = acc_of<T>;
    GPO_SHARED(uint4, keys, [PAIRED / 4]);
    GPO_SHARED(Acc, value, [PAIR_THREADS]);
    GPO_SHARED(unsigned long long, bad, [1]);
    unsigned *const key = reinterpret_cast<unsigned *>(keys);
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const int lanes = static_cast<int>(share.lanes.by);
    const int s = share.lanes.narrow(tid), lane = tid - s * lanes;
    const int64_t begin = blockIdx.y * share.places;
    const int64_t end =
        begin + share.places < a.length ? begin + share.places : a.length;
    const int64_t column = static_cast<int64_t>(blockIdx.x) * lanes + lane;
    const bool is_column = column < share.columns, is_row = s < count;
    const int64_t o = is_column ? a.inners.of(column) : 0, c = column - o * a.inner;
    const int64_t at = o * a.length * a.inner + c;

    const int64_t entry = is_row ? entry_of(a.index, s) : 0;
    T v = {};
    if (is_row && is_column) {
        v = a.source[o * a.by_outer + s * a.by_row + c * a.by_inner];
    }
    const int step = share.lanes.narrow(PAIR_THREADS);
    const int64_t first = begin + s, second = first + step; /* places to copy */
    const bool copies = share.copies && is_column && s < step;
    T kept[COPIED_BY_THREAD] = {};
    if (copies && first < end) {
        kept[0] = a.base[at + first * a.inner];
    }
    if (copies && second < end) {
        kept[1] = a.base[at + second * a.inner];
    }
    if (tid < PAIRED) {
        key[tid] = NO_ROW;
    }
    if (tid == 0) {
        bad[0] = NONE_BAD;
    }
    __syncthreads();
    index_reader index = a.index;
    index.bad = &bad[0];
    const int64_t k = is_row ? destination_of(index, entry, s) : -1;
    const bool is_mine = k >= begin && k < end;
    T old = {};
    if (is_mine && is_column) {
        old = a.base[at + k * a.inner];
    }
    const unsigned mine = static_cast<unsigned>(k - begin);
    if (is_mine && lane == 0) {
        key[s] = mine;
    }
    value[tid] = scaled(v, a.alpha);
    __syncthreads();
    const unsigned long long first_bad = bad[0];
    if (blockIdx.x == 0 && blockIdx.y == 0 && tid == 0) {
        tell_verdict(share.verdict, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }

    if (share.copies) {
        if (copies && first < end) {
            a.out[at + first * a.inner] = kept[0];
        }
        if (copies && second < end) {
            a.out[at + second * a.inner] = kept[1];
        }
        __syncthreads();
    }
    bool leads = is_mine && is_column;
    Acc sum = value[tid];
#pragma unroll 1
    for (int from = 0; from < count && leads; from += WARP) {
        const unsigned same = rows_of_key(keys + from / 4, mine);
        const int here = s - from; /* of this element's row, among these */
        const unsigned before = here >= WARP ? ~0u : here > 0 ? (1u << here) - 1 : 0;
        const unsigned own = here >= 0 && here < WARP ? 1u << here : 0;
        leads = leads && (same & before) == 0;
        unsigned rest = leads ? same & ~(before | own) : 0;
        while (rest != 0) {
            constexpr int AT_ONCE = 4;
            Acc other[AT_ONCE];
            bool is_row_of[AT_ONCE];
#pragma unroll
            for (int q = 0; q < AT_ONCE; q++) {
                is_row_of[q] = rest != 0;
                const int next = rest != 0 ? __ffs(static_cast<int>(rest)) - 1 : 0;
                other[q] = value[(from + next) * lanes + lane];
                rest &= rest - 1;
            }
#pragma unroll
            for (int q = 0; q < AT_ONCE; q++) {
                sum = is_row_of[q] ? sum + other[q] : sum;
            }
        }
    }
    if (leads) {
        a.out[at + k * a.inner] = sum_stored(old, sum);
    }
}

template <typename T>
static gpo_status
launch_pairs(gpo_call *call, const index_add_view<T> &a, const verdict_word &verdict)
{
    index_add_pairs s = {};
    s.columns = a.outer * a.inner;
    s.copies = a.base != a.out;
    const int64_t most = PAIR_THREADS / a.count;
    const int64_t lanes = s.columns < most ? s.columns : most;
    s.lanes = divider_of(lanes);
    s.places = s.copies ? COPIED_BY_THREAD * (PAIR_THREADS / lanes) : a.length;
    s.verdict = verdict;
    const dim3 grid(static_cast<unsigned>(ceil_div(s.columns, lanes)),
                    static_cast<unsigned>(ceil_div(a.length, s.places)));
    return GPO_LAUNCH(call, grid, PAIR_THREADS, 0, (index_add_one_launch_pairs<T>), a,
                      s);
}

#endif
