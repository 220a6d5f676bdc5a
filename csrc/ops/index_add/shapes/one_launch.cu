/*
 * one_launch.cu  Few source rows: one launch checks the index, copies x and adds.
 * Each block checks the whole index, so that none writes before all entries are known
 * to be good, and tells the host while it goes on.  It then sorts the rows by
 * destination in shared memory and adds them in that order: no atomics, one rounding.
 * Blocks share the columns and, where x is copied, the destinations; every one sorts
 * for itself.
 * Cost:  the index once per block, the source once; x once if it is copied.
 */
#include "../../../device/few_sums.cuh"
#include "../frame.cuh"

static_assert(MOST_ROWS == FEW, "few_sums.cuh sorts so many");

/* How a launch is shared by blocks. */
struct index_add_share {
    int64_t columns;  /* of all slices: outer * inner */
    int64_t places;   /* destinations of a block */
    int lanes;        /* columns of a block */
    unsigned slices;  /* blocks side by side */
    int bits;         /* of a key */
    bool copies;      /* out = x first */
    uint64_t *answer; /* mode 'raise': see gpo_question */
};

template <typename T>
__global__ void
__launch_bounds__(FEW_THREADS)
    index_add_one_launch_kernel(index_add_view<T> a, index_add_share share)
{
    using Acc = acc_of<T>;
    GPO_SHARED(uint32_t, key, [FEW]);
    GPO_SHARED(uint16_t, entry, [FEW]);
    GPO_SHARED(uint4, space, [FEW_SPACE]);
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
    for (int s = tid; s < count; s += FEW_THREADS) {
        const int64_t k = position_of(index, s);
        key[s] =
            static_cast<uint32_t>(k >= begin && k < end ? k - begin : share.places);
    }
    __syncthreads();
    const unsigned long long first_bad = bad[0];
    if (share.answer != nullptr && blockIdx.x == 0 && tid == 0) {
        tell_host(share.answer, first_bad);
    }
    if (first_bad != NONE_BAD) {
        return;
    }

    const int64_t column =
        static_cast<int64_t>(slice) * share.lanes + tid % share.lanes;
    const bool is_column = column < share.columns;
    const int64_t o = is_column ? a.inners.of(column) : 0, c = column - o * a.inner;
    const int64_t at = o * a.length * a.inner + c;
    if (share.copies && is_column) {
        const int step = FEW_THREADS / share.lanes;
#pragma unroll 8
        for (int64_t k = begin + tid / share.lanes; k < end; k += step) {
            a.out[at + k * a.inner] = a.base[at + k * a.inner];
        }
    }
    few_sort(&key[0], &entry[0], &space[0], count, share.bits);
    const T *const from = a.source + o * a.by_outer + c * a.by_inner;
    few_runs<Acc>(
        &key[0], &entry[0], &space[0], count, share.lanes,
        [&](int s) { return is_column ? scaled(from[s * a.by_row], a.alpha) : Acc{}; },
        [&](uint32_t k, Acc sum) {
            if (is_column && k < end - begin) {
                const int64_t to = at + (begin + k) * a.inner;
                a.out[to] = sum_stored(a.base[to], sum);
            }
        });
}

/* Columns of 32 bytes to a block; more if there would be many blocks. */
template <typename T>
static index_add_share
share_of(const index_add_plan &plan, bool copies)
{
    constexpr int64_t MANY = 512;
    index_add_share s = {};
    s.columns = plan.outer * plan.inner;
    s.lanes = 1;
    while (s.lanes < WARP && s.lanes < s.columns &&
           (s.lanes * sizeof(T) < 32 || s.columns > MANY * s.lanes)) {
        s.lanes *= 2;
    }
    s.slices = static_cast<unsigned>(ceil_div(s.columns, s.lanes));
    const int64_t most = COPIED / s.lanes;
    s.places = copies && plan.length > most ? most : plan.length;
    const int64_t largest = s.places < plan.length ? s.places : plan.length - 1;
    while (s.bits < 32 && largest >> s.bits > 0) {
        s.bits++;
    }
    s.copies = copies;
    return s;
}

template <typename T>
gpo_status
index_add_one_launch(gpo_call *call)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const bool raises = plan.mode == GPO_INDEX_RAISE;
    index_add_frame frame;
    uint64_t *answer = nullptr;
    gpo_status status = index_add_start(call, &frame);
    if (!status && raises) {
        status = gpo_may_wait(call);
        status = status ? status : gpo_question(call, &answer);
    }
    if (status) {
        return status;
    }
    index_add_view<T> view = view_of<T>(call, frame);
    index_add_share share =
        share_of<T>(plan, static_cast<const void *>(view.base) != call->out[0].data);
    share.answer = answer;
    const int64_t blocks = share.slices * ceil_div(plan.length, share.places);
    status = GPO_LAUNCH(call, dim3(grid_extent(blocks, MAX_GRID)), FEW_THREADS, 0,
                        (index_add_one_launch_kernel<T>), view, share);
    uint64_t place = NONE_BAD;
    if (!status && raises) {
        status = gpo_answer(call, answer, &place);
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
