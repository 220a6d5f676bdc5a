/*
 * one_launch.cu  Few source rows: one launch checks the index, copies x and adds.
 * Each block checks the whole index, so that none writes before all entries are known
 * to be good, and tells the host while it goes on.  It then sorts the rows by
 * destination in shared memory and adds them in that order: no atomics, one rounding.
 * Blocks share the columns and, where x is copied, the destinations; every one sorts
 * for itself.
 * Up to 256 rows are not sorted: one_launch_pairs.cuh.
 * Cost:  the index once per block, the source once; x once if it is copied.
 */
#include "../../../device/verdict.cuh"
#include "../sharing.cuh"
#include "one_launch_pairs.cuh"

template <typename T, int ITEMS>
__global__ void
__launch_bounds__(FEW_THREADS)
    index_add_one_launch_kernel(index_add_view<T> a, index_add_share share)
{
    using Acc = acc_of<T>;
    GPO_SHARED(few_space, space, [1]);
    GPO_SHARED(unsigned long long, bad, [1]);
    const int tid = threadIdx.x, count = static_cast<int>(a.count);
    const unsigned range = blockIdx.x / share.slices;
    const unsigned slice = blockIdx.x - range * share.slices;
    const int64_t begin = range * share.places;
    const int64_t end =
        begin + share.places < a.length ? begin + share.places : a.length;

    if (tid == 0) {
        bad[0] = NONE_BAD;
    }
    __syncthreads();
    index_reader index = a.index;
    index.bad = &bad[0];
    int64_t entry[ITEMS];
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int s = j * FEW_THREADS + tid;
        entry[j] = s < count ? entry_of(index, s) : 0;
    }
    int kept = 0; /* rows that go to this block's destinations */
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        const int s = j * FEW_THREADS + tid;
        const bool is_row = s < count;
        const int64_t k = is_row ? destination_of(index, entry[j], s) - begin : -1;
        const bool is_mine = k >= 0 && k < end - begin;
        if (is_row) {
            space[0].key[s] = static_cast<uint32_t>(is_mine ? k : share.places);
        }
        kept += __syncthreads_count(is_mine);
    }
    const unsigned long long first_bad = bad[0];
    if (blockIdx.x == 0 && tid == 0) {
        tell_verdict(share.verdict, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }

    const int lanes = 1 << share.lane_bits;
    const int64_t column =
        (static_cast<int64_t>(slice) << share.lane_bits) + (tid & (lanes - 1));
    const bool is_column = column < share.columns;
    const int64_t o = is_column ? a.inners.of(column) : 0, c = column - o * a.inner;
    const int64_t at = o * a.length * a.inner + c;
    if (share.copies && is_column) {
        const int step = FEW_THREADS >> share.lane_bits;
#pragma unroll 4
        for (int64_t k = begin + (tid >> share.lane_bits); k < end; k += step) {
            a.out[at + k * a.inner] = a.base[at + k * a.inner];
        }
    }
    if (kept == 0) {
        return;
    }
    few_sort<ITEMS>(&space[0], count, share.key);
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    few_runs<Acc, ITEMS>(
        &space[0], kept, share.lane_bits,
        [&](int s) { return is_column ? scaled(from[s * a.by_row], a.alpha) : Acc{}; },
        [&](uint32_t k, Acc sum) {
            if (is_column) {
                const int64_t to = at + (begin + k) * a.inner;
                a.out[to] = sum_stored(a.base[to], sum);
            }
        });
}

/* ---- a call ---- */

template <typename T>
static gpo_status
launch_sorted(gpo_call *call, const index_add_view<T> &a, const verdict_word &verdict)
{
    index_add_share share = index_add_share_of(call, a.base != a.out);
    share.verdict = verdict;
    const int64_t blocks = index_add_sharers(*index_add_plan_of(call), share);
    const dim3 grid(grid_extent(blocks, MAX_GRID));
    return a.count <= FEW_THREADS
               ? GPO_LAUNCH(call, grid, FEW_THREADS, 0,
                            (index_add_one_launch_kernel<T, 1>), a, share)
               : GPO_LAUNCH(call, grid, FEW_THREADS, 0,
                            (index_add_one_launch_kernel<T, MOST_ITEMS>), a, share);
}

template <typename T>
gpo_status
index_add_one_launch(gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const bool raises = plan.mode == GPO_INDEX_RAISE;
    index_add_frame frame;
    verdict_word verdict = {};
    gpo_status status = raises ? open_verdict(call, plan.length, &verdict) : GPO_OK;
    if (!status) {
        status = index_add_start(call, &frame);
    }
    if (status) {
        return status;
    }
    const index_add_view<T> view = view_of<T>(call, frame);
    status = index_add_is_for_pairs(plan, view.base != view.out)
                 ? launch_pairs(call, view, verdict)
                 : launch_sorted(call, view, verdict);
    uint64_t place = NONE_BAD;
    if (!status && raises) {
        status = close_verdict(call, plan.length, verdict, &place);
    }
    if (!status && place == NONE_BAD && verdict.if_bad) {
        status = index_add_look(call, frame.index);
    }
    return status || place == NONE_BAD
               ? status
               : index_add_refuse(call, static_cast<int64_t>(place));
}

template gpo_status index_add_one_launch<b8>(gpo_call *call);
template gpo_status index_add_one_launch<uint8_t>(gpo_call *call);
template gpo_status index_add_one_launch<uint16_t>(gpo_call *call);
template gpo_status index_add_one_launch<uint32_t>(gpo_call *call);
template gpo_status index_add_one_launch<uint64_t>(gpo_call *call);
template gpo_status index_add_one_launch<f16>(gpo_call *call);
template gpo_status index_add_one_launch<bf16>(gpo_call *call);
template gpo_status index_add_one_launch<float>(gpo_call *call);
template gpo_status index_add_one_launch<double>(gpo_call *call);
