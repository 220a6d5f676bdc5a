/*
 * most.cu  A bound on the rows that go to one destination, for an index that calls use
 * again and again: the rows of each of SLOTS groups of destinations are counted, and
 * the largest count is told to the host.  Where a bit for each destination takes little
 * memory, those bits tell whether any destination has a second row; if none has, the
 * bound is 1.
 * Cost:  reads the index once; an atomic per row on 256 KiB of counters, and one on the
 *        bits.
 */
#include "../../device/verdict.cuh"
#include "frame.cuh"

static constexpr int SLOTS = 1 << 16, MOST_BLOCK = 1024;
/* Rows: to look at more would cost more than a call. */
static constexpr int64_t MOST_LOOKED_AT = 1 << 22;

/* The words that a look counts in. */
struct index_add_counters {
    unsigned *slots; /* rows of a group of destinations */
    unsigned
        *second;   /* not 0: a destination has a second row; or NULL: not looked at */
    unsigned *met; /* a bit for each destination */
};

static __global__ void
__launch_bounds__(BLOCK) index_add_clear_counters(unsigned *words, int64_t n)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < n;
         i += step) {
        words[i] = 0;
    }
}

static __global__ void
__launch_bounds__(BLOCK)
    index_add_count_rows(index_reader index, int64_t count, index_add_counters to)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        const int64_t k = destination_of(index, entry_of(index, s), s);
        if (k >= 0) { /* Fibonacci hashing: neighbours go to different groups */
            const uint64_t mixed = static_cast<uint64_t>(k) * 0x9e3779b97f4a7c15u;
            atomicAdd(&to.slots[mixed >> 48], 1u);
            const unsigned bit = 1u << (k & 31);
            if (to.second != nullptr && (atomicOr(&to.met[k >> 5], bit) & bit) != 0) {
                atomicOr(to.second, 1u);
            }
        }
    }
}

static __global__ void
__launch_bounds__(MOST_BLOCK)
    index_add_tell_most(index_add_counters from, uint64_t *answer)
{
    GPO_SHARED(unsigned, largest, [1]);
    unsigned mine = 0;
#pragma unroll 8
    for (int k = threadIdx.x; k < SLOTS; k += MOST_BLOCK) {
        const unsigned count = from.slots[k];
        mine = mine > count ? mine : count;
    }
    if (threadIdx.x == 0) {
        largest[0] = 0;
    }
    __syncthreads();
    atomicMax(&largest[0], mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool distinct = from.second != nullptr && *from.second == 0;
        tell_host(answer, distinct ? 1u : largest[0]);
    }
}

/* Whether each row may have a destination of its own, and bits that tell are few: no
   more than the counters, or than an index of int32. */
static bool
may_be_distinct(const index_add_plan &plan)
{
    const int64_t index_bytes = plan.count * static_cast<int64_t>(sizeof(int32_t));
    const int64_t slot_bytes = SLOTS * static_cast<int64_t>(sizeof(unsigned));
    return plan.count <= plan.length &&
           plan.length / 8 <= (index_bytes > slot_bytes ? index_bytes : slot_bytes);
}

/* Whether the answer may change the choice for this call's dtype. */
static bool
look_pays(const index_add_plan &plan, bool distinct)
{
    const bool half = plan.dtype == GPO_F16 || plan.dtype == GPO_BF16;
    const int64_t row = plan.inner * gpo_dtypes[plan.dtype].bytes;
    return !plan.is_deterministic && plan.count > 0 && plan.count <= MOST_LOOKED_AT &&
           (half ? distinct && !plan.is_scaled
                 : (plan.dtype == GPO_F32 || row >= WARP_WIDE ||
                    plan.count >= MANY_DOUBLES) &&
                       plan.count > INDEX_ADD_FEW_ROWS);
}

gpo_status
index_add_look(gpo_call *call, const index_reader &index)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const bool distinct = may_be_distinct(plan);
    if (!look_pays(plan, distinct) || call->found.most > 0 ||
        gpo_may_wait(call) != GPO_OK) {
        return GPO_OK;
    }
    const int64_t words = SLOTS + (distinct ? 1 + ceil_div(plan.length, 32) : 0);
    void *memory = nullptr;
    uint64_t *answer = nullptr, most = 0;
    gpo_status status = gpo_scratch(call, words * sizeof(unsigned), &memory);
    unsigned *const slots = static_cast<unsigned *>(memory);
    const index_add_counters counters = {slots, distinct ? slots + SLOTS : nullptr,
                                         slots + SLOTS + 1};
    if (!status) {
        status = gpo_question(call, &answer);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_for(words), BLOCK, 0, index_add_clear_counters,
                            slots, words);
    }
    if (!status) {
        status = GPO_LAUNCH(call, grid_for(plan.count), BLOCK, 0, index_add_count_rows,
                            index, plan.count, counters);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), MOST_BLOCK, 0, index_add_tell_most, counters,
                            answer);
    }
    if (!status) {
        status = gpo_answer(call, answer, &most);
    }
    if (!status) {
        call->found.most = most > 0 ? static_cast<int64_t>(most) : 1;
    }
    return status;
}
