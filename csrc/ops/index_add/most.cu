/*
 * most.cu  A bound on the rows that go to one destination, for an index that calls use
 * again and again: the rows of each of SLOTS groups of destinations are counted, and
 * the largest count is told to the host.
 * Cost:  reads the index once; an atomic per row on 256 KiB of counters.
 */
#include "../../device/verdict.cuh"
#include "frame.cuh"

static constexpr int SLOTS = 1 << 16, MOST_BLOCK = 1024;
/* Rows: to look at more would cost more than a call. */
static constexpr int64_t MOST_LOOKED_AT = 1 << 22;

static __global__ void
index_add_clear_slots(unsigned *slots)
{
    slots[blockIdx.x * BLOCK + threadIdx.x] = 0;
}

static __global__ void
__launch_bounds__(BLOCK)
    index_add_count_slots(index_reader index, int64_t count, unsigned *slots)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t s = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; s < count;
         s += step) {
        const int64_t k = destination_of(index, entry_of(index, s), s);
        if (k >= 0) { /* Fibonacci hashing: neighbours go to different groups */
            const uint64_t mixed = static_cast<uint64_t>(k) * 0x9e3779b97f4a7c15u;
            atomicAdd(&slots[mixed >> 48], 1u);
        }
    }
}

static __global__ void
__launch_bounds__(MOST_BLOCK)
    index_add_tell_most(const unsigned *slots, uint64_t *answer)
{
    GPO_SHARED(unsigned, largest, [1]);
    unsigned mine = 0;
#pragma unroll 8
    for (int k = threadIdx.x; k < SLOTS; k += MOST_BLOCK) {
        const unsigned count = slots[k];
        mine = mine > count ? mine : count;
    }
    if (threadIdx.x == 0) {
        largest[0] = 0;
    }
    __syncthreads();
    atomicMax(&largest[0], mine);
    __syncthreads();
    if (threadIdx.x == 0) {
        tell_host(answer, largest[0]);
    }
}

gpo_status
index_add_look(gpo_call *call, const index_reader &index)
{
    const index_add_plan &plan = *index_add_plan_of(call);
    const bool pays = plan.dtype == GPO_F32 && !plan.is_deterministic &&
                      plan.count > INDEX_ADD_FEW_ROWS && plan.count <= MOST_LOOKED_AT;
    if (!pays || call->found.most > 0 || gpo_may_wait(call) != GPO_OK) {
        return GPO_OK;
    }
    void *memory = nullptr;
    uint64_t *answer = nullptr, most = 0;
    gpo_status status = gpo_scratch(call, SLOTS * sizeof(unsigned), &memory);
    unsigned *const slots = static_cast<unsigned *>(memory);
    if (!status) {
        status = gpo_question(call, &answer);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(SLOTS / BLOCK), BLOCK, 0, index_add_clear_slots,
                            slots);
    }
    if (!status) {
        const dim3 grid(grid_extent(ceil_div(plan.count, BLOCK), MAX_GRID));
        status = GPO_LAUNCH(call, grid, BLOCK, 0, index_add_count_slots, index,
                            plan.count, slots);
    }
    if (!status) {
        status = GPO_LAUNCH(call, dim3(1), MOST_BLOCK, 0, index_add_tell_most, slots,
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
