/*
 * v2  Private copies per block, then a second kernel (method A).
 * Was:   v1's copies must fit into shared memory and end in atomics of all blocks.
 * Now:   each block has a copy of the outputs in device memory, of any size; a second
 *        kernel adds the copies up, in order and without atomics.
 * Cost:  2^n atomics in L2, contended only within a block; copies * outputs written and
 *        read.
 * Measured: 0.590 ms where v1 takes 0.206 (2^25 float64 on an H200, bits 0..9): private
 *        copies do not help while the atomics go to L2.  They do with more outputs than
 *        v1's window holds, 0.515 and 0.859 (bits 0..14).
 * Left:  the atomics, though the bits tell in advance which elements are added -> v3.
 */
#ifndef GPO_PARTITION_REDUCE_V2_PRIVATE_COPIES_CUH
#define GPO_PARTITION_REDUCE_V2_PRIVATE_COPIES_CUH

#include "../sums.cuh"

template <typename Term>
__global__ void
partition_reduce_v2_private_copies(partition_view<typename Term::T> x,
                                   typename Term::Acc *copies)
{
    typename Term::Acc *own = copies + (static_cast<int64_t>(blockIdx.x) << x.k);
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
         i >> x.n == 0; i += step) {
        atomic_add(&own[output_of(x, i)], Term::of(x.x[x.place(i)], x.square));
    }
}

struct partition_reduce_v2 {
    template <typename Term>
    static gpo_status run(gpo_call *call)
    {
        using Acc = typename Term::Acc;
        const partition_plan &plan = *partition_plan_of(call);
        const int64_t fit = COPIES_BYTES / static_cast<int64_t>(sizeof(Acc)) >> plan.k;
        const int64_t room = static_cast<int64_t>(gpo_processors(call)) * 8;
        const int64_t most = ceil_div(static_cast<int64_t>(1) << plan.n, BLOCK);
        int64_t copies = fit < room ? fit : room;
        copies = copies < most ? copies : most;
        copies = copies > 1 ? copies : 1;
        Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, copies, &sums);
        if (!status) {
            status = GPO_LAUNCH(call, copies, BLOCK, 0,
                                (partition_reduce_v2_private_copies<Term>),
                                view_of<typename Term::T>(call), sums);
        }
        return status ? status : finish_sums<Term>(call, copies, sums);
    }
};

#endif
