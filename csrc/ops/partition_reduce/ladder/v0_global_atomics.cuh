/*
 * v0  One global atomic per element (method B).
 * Now:   a thread per element computes its output from the bits of its index and adds
 *        to it; the first kernel one would write.
 * Cost:  2^n atomics in L2; with few outputs they queue at a few addresses.
 * Left:  every element goes to L2 -> v1.
 */
#ifndef GPO_PARTITION_REDUCE_V0_GLOBAL_ATOMICS_CUH
#define GPO_PARTITION_REDUCE_V0_GLOBAL_ATOMICS_CUH

#include "../sums.cuh"

template <typename Term>
__global__ void
partition_reduce_v0_global_atomics(partition_view<typename Term::T> x,
                                   typename Term::Acc *sums)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >> x.n == 0) {
        atomic_add(&sums[output_of(x, i)], Term::of(x.x[x.place(i)], x.square));
    }
}

struct partition_reduce_v0 {
    template <typename Term>
    static gpo_status run(gpo_call *call)
    {
        typename Term::Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, 1, &sums);
        if (!status) {
            const int n = partition_plan_of(call)->n;
            const dim3 grid(ceil_div(static_cast<int64_t>(1) << n, BLOCK));
            status = GPO_LAUNCH(call, grid, BLOCK, 0,
                                (partition_reduce_v0_global_atomics<Term>),
                                view_of<typename Term::T>(call), sums);
        }
        return status ? status : finish_sums<Term>(call, 1, sums);
    }
};

#endif
