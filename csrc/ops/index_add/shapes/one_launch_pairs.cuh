/*
 * one_launch_pairs.cuh  The kernel of one_launch for at most PAIRED rows, which are not
 * sorted: a destination has a slot with a bit for each row that goes there, and the first row
 * adds the others, in their order.  Its three barriers are the time of such a call.
 */
#ifndef GPO_INDEX_ADD_ONE_LAUNCH_PAIRS_CUH
#define GPO_INDEX_ADD_ONE_LAUNCH_PAIRS_CUH

#include "../../../device/slot.cuh"
#include "../../../device/verdict.cuh"
#include "../frame.cuh"

static constexpr unsigned NOBODY = ~0u;
/* Slots: two for each row, or a destination has one of its own. */
static constexpr int LOG_PAIR_SLOTS = 9, PAIR_SLOTS = 1 << LOG_PAIR_SLOTS;
static constexpr int PAIR_WORDS = PAIRED / WARP; /* a bit for each row */
static_assert(PAIR_SLOTS >= 2 * PAIRED, "a row soon finds its slot");
static_assert(COPIED_BY_THREAD == 2, "the kernel keeps so many in registers");

/* How a launch of them is shared by blocks. */
struct index_add_pairs {
    int64_t columns; /* of all slices: outer * inner */
    int64_t places; /* destinations of a block, up to PAIR_SLOTS with a slot for each */
    divider lanes;  /* columns of a block */
    bool copies;    /* out = x first */
    verdict_word verdict;
};

/* The rows of each destination that has some. */
struct index_add_pair_slots {
    unsigned owner[PAIR_SLOTS]; /* a destination, or NOBODY */
    union {
        unsigned rows[PAIR_SLOTS][PAIR_WORDS];
        uint4 packs[PAIR_SLOTS * PAIR_WORDS / 4];
    };
    uint16_t slot[PAIRED]; /* of a row */
};

/* The slot of destination k, which is `own` if each has one. */
static __device__ __forceinline__ unsigned
take_pair_slot(index_add_pair_slots &slots, unsigned k, bool own)
{
    unsigned at = own ? k : slot_of_key(k, LOG_PAIR_SLOTS);
    while (!own) {
        const unsigned was = atomicCAS(&slots.owner[at], NOBODY, k);
        if (was == NOBODY || was == k) {
            break;
        }
        at = (at + 1) % PAIR_SLOTS;
    }
    return at;
}

template <typename T>
__global__ void
__launch_bounds__(PAIRED)
    index_add_one_launch_pairs(index_add_view<T> a, index_add_pairs share)
{
    using Acc = acc_of<T>;
    GPO_SHARED(index_add_pair_slots, all_slots, [1]);
    GPO_SHARED(Acc, value, [PAIRED]);
    GPO_SHARED(unsigned long long, bad, [1]);
    index_add_pair_slots &slots = all_slots[0];
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
    const int step = share.lanes.narrow(PAIRED);
    const int64_t first = begin + s, second = first + step; /* places to copy */
    const bool copies = share.copies && is_column && s < step;
    T kept[COPIED_BY_THREAD] = {};
    if (copies && first < end) {
        kept[0] = a.base[at + first * a.inner];
    }
    if (copies && second < end) {
        kept[1] = a.base[at + second * a.inner];
    }
    for (int p = tid; p < PAIR_SLOTS; p += PAIRED) {
        slots.owner[p] = NOBODY;
    }
#pragma unroll
    for (int p = tid; p < PAIR_SLOTS * PAIR_WORDS / 4; p += PAIRED) {
        slots.packs[p] = make_uint4(0, 0, 0, 0);
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
    if (is_mine && lane == 0) {
        const unsigned mine = take_pair_slot(slots, static_cast<unsigned>(k - begin),
                                             share.places <= PAIR_SLOTS);
        slots.slot[s] = static_cast<uint16_t>(mine);
        atomicOr(&slots.rows[mine][s / WARP], 1u << (s % WARP));
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
    const unsigned *const rows = slots.rows[leads ? slots.slot[s] : 0];
#pragma unroll 1
    for (int from = 0; from < count && leads; from += WARP) {
        const unsigned same = rows[from / WARP];
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
    const int64_t most = PAIRED / a.count;
    const int64_t lanes = s.columns < most ? s.columns : most;
    const int64_t copied = COPIED_BY_THREAD * (PAIRED / lanes);
    s.lanes = divider_of(lanes);
    s.places = !s.copies ? a.length : copied < PAIR_SLOTS ? copied : PAIR_SLOTS;
    s.verdict = verdict;
    const dim3 grid(static_cast<unsigned>(ceil_div(s.columns, lanes)),
                    static_cast<unsigned>(ceil_div(a.length, s.places)));
    return GPO_LAUNCH(call, grid, PAIRED, 0, (index_add_one_launch_pairs<T>), a, s);
}

#endif
