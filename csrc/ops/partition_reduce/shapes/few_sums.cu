/*
 * few_sums.cu  Few sums of up to 4,096 elements: a block for each.  A thread's elements are
 * those whose summed bits begin with its number: an addition for each bit of it, no tables
 * of shifts and masks, and all loads in flight at once.
 * Cost:  reads 2^n elements once, neighbours in other blocks if low bits are kept; one
 *        launch, two barriers at most, no loop over loads.
 */
#include "../../../device/block.cuh"
#include "../tiles.cuh"

template <typename Term>
struct few_sums_call {
    const typename Term::T *x;
    typename Term::Out *out;
    int64_t from[FEW_KEPT];    /* what each bit of a sum's index adds to a place in x */
    int64_t jump[MOST_FEW];    /* and each summed bit, the lowest first */
    int kept, elements, items; /* bits; of a sum; of a thread */
    bool square;
};

struct few_sums_add {
    template <typename V>
    static __device__ __forceinline__ V combine(V a, V b)
    {
        return a + b;
    }
};

template <typename Term, int ITEMS>
__global__ void
__launch_bounds__(BLOCK) partition_reduce_few_sums(few_sums_call<Term> p)
{
    using Part = part_of<typename Term::Acc>;
    GPO_SHARED(Part, slots, [WARPS]);
    const int tid = threadIdx.x;
    int64_t at = 0;
    for (int b = 0; b < p.kept; b++) {
        at += blockIdx.x >> b & 1 ? p.from[b] : 0;
    }
#pragma unroll
    for (int b = 0; b < LOG_BLOCK; b++) {
        at += tid >> b & 1 ? p.jump[b] : 0;
    }
    typename Term::T loaded[ITEMS][1];
    memset(static_cast<void *>(loaded), 0, sizeof loaded);
#pragma unroll
    for (int k = 0; k < ITEMS; k++) {
        int64_t more = 0;
#pragma unroll
        for (int b = 0; 1 << b < ITEMS; b++) {
            more += k >> b & 1 ? p.jump[LOG_BLOCK + b] : 0;
        }
        if (tid < p.elements && k < p.items) {
            loaded[k][0] = p.x[at + more];
        }
    }
    const Part sum = block_combine<few_sums_add, BLOCK>(
        static_cast<Part>(sum_loads<Term, ITEMS, 1>(loaded, 0, p.square)), slots);
    if (tid == 0) {
        p.out[blockIdx.x] = result_of<Term>(sum);
    }
}

bool
has_few_sums(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    return plan.k <= FEW_KEPT && plan.n - plan.k <= MOST_FEW;
}

bool
few_sums_pays(const gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    return has_few_sums(call) && plan.n - plan.k >= LEAST_FEW &&
           plan.n <= FEW_SUMS_BITS;
}

template <typename Term>
gpo_status
few_sums::run(gpo_call *call)
{
    const partition_plan &plan = *partition_plan_of(call);
    const int summed = plan.n - plan.k;
    few_sums_call<Term> p = {};
    p.x = static_cast<const typename Term::T *>(call->in[0].data);
    p.out = static_cast<typename Term::Out *>(call->out[0].data);
    p.kept = plan.k;
    p.elements = 1 << summed;
    p.items = summed > LOG_BLOCK ? 1 << (summed - LOG_BLOCK) : 1;
    p.square = plan.square;
    int bits = 0;
    for (int b = 0; b < plan.n; b++) {
        (plan.to[b] < 0 ? p.jump[bits++] : p.from[plan.to[b]]) =
            place_of(plan, bit_at(b));
    }
    const dim3 grid(1u << plan.k);
    return p.items > 4   ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                      (partition_reduce_few_sums<Term, 16>), p)
           : p.items > 1 ? GPO_LAUNCH(call, grid, BLOCK, 0,
                                      (partition_reduce_few_sums<Term, 4>), p)
                         : GPO_LAUNCH(call, grid, BLOCK, 0,
                                      (partition_reduce_few_sums<Term, 1>), p);
}

#define INSTANTIATE(Term) template gpo_status few_sums::run<Term>(gpo_call * call);
PARTITION_REDUCE_EVERY_TERM(INSTANTIATE)
