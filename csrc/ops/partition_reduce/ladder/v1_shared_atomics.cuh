/*
 * v1  Shared-memory atomics, then global ones (method C).
 * Was:   v0 sends every element to L2.
 * Now:   a block adds its elements to a copy of the outputs in shared memory, and that
 *        copy to the result.  A copy holds at most 2^12 sums: more outputs are cut into
 *        windows by their highest kept bits, and a block reads only the elements of its
 *        window.
 * Cost:  2^n atomics in shared memory, blocks * outputs in L2.
 * Measured: 0.206 ms where v0 takes 0.621 (2^25 float64 on an H200, bits 0..9), but
 *        0.859 and 0.253 with 2^15 outputs (bits 0..14), where atomics of v0 rarely
 *        collide.
 * Left:  lanes of a warp still collide at an address; 32 KiB limit occupancy -> v2.
 */
#ifndef GPO_PARTITION_REDUCE_V1_SHARED_ATOMICS_CUH
#define GPO_PARTITION_REDUCE_V1_SHARED_ATOMICS_CUH

#include "../sums.cuh"

/* The kept bits of a window, and those that number the windows. */
struct partition_windows {
    int bits;              /* inside a window */
    int from[WINDOW_BITS]; /* bit b of a sum's place in the window is from[b] of i */
    int to[WINDOW_BITS];   /* and to[b] of its output's index */
    uint64_t outer, inner; /* bits of i that number windows; all others */
    int64_t elements, windows; /* elements of a window; number of windows */
};

inline partition_windows
windows_of(const partition_plan &plan)
{
    partition_windows w = {0, {}, {}, 0, 0, 0, 0};
    for (int b = 0; b < plan.n; b++) {
        const uint64_t bit = static_cast<uint64_t>(1) << b;
        if (plan.to[b] >= 0 && w.bits == WINDOW_BITS) {
            w.outer |= bit;
            continue;
        }
        w.inner |= bit;
        if (plan.to[b] >= 0) {
            w.from[w.bits] = b;
            w.to[w.bits++] = plan.to[b];
        }
    }
    w.windows = static_cast<int64_t>(1) << (plan.k - w.bits);
    w.elements = static_cast<int64_t>(1) << (plan.n - (plan.k - w.bits));
    return w;
}

template <typename Term>
__global__ void
partition_reduce_v1_shared_atomics(partition_view<typename Term::T> x,
                                   partition_windows w, typename Term::Acc *sums)
{
    GPO_DYN_SHARED(typename Term::Acc, copy); /* 2^w.bits sums */
    const int size = 1 << w.bits;
    for (int s = threadIdx.x; s < size; s += BLOCK) {
        copy[s] = 0;
    }
    __syncthreads();

    const int64_t step = gridDim.x / w.windows * BLOCK;
    const int64_t window = deposit(blockIdx.x % w.windows, w.outer);
    for (int64_t j = blockIdx.x / w.windows * BLOCK + threadIdx.x; j < w.elements;
         j += step) {
        const int64_t i = w.windows == 1 ? j : deposit(j, w.inner) | window;
        int s = 0;
        for (int b = 0; b < w.bits; b++) {
            s |= static_cast<int>(i >> w.from[b] & 1) << b;
        }
        atomic_add(&copy[s], Term::of(x.x[x.place(i)], x.square));
    }
    __syncthreads();

    const int64_t first = output_of(x, window);
    for (int s = threadIdx.x; s < size; s += BLOCK) {
        int64_t o = first;
        for (int b = 0; b < w.bits; b++) {
            o |= static_cast<int64_t>(s >> b & 1) << w.to[b];
        }
        atomic_add(&sums[o], copy[s]);
    }
}

struct partition_reduce_v1 {
    template <typename Term>
    static gpo_status run(gpo_call *call)
    {
        typename Term::Acc *sums;
        gpo_status status = zeroed_sums<Term>(call, 1, &sums);
        if (!status) {
            const partition_windows w = windows_of(*partition_plan_of(call));
            const int64_t room = static_cast<int64_t>(gpo_processors(call)) * 8;
            const int64_t most = ceil_div(w.elements, BLOCK * V1_ITEMS);
            const int64_t fill = ceil_div(room, w.windows);
            const dim3 grid(w.windows * (fill < most ? fill : most));
            const size_t shared_bytes = sizeof(typename Term::Acc) << w.bits;
            status = GPO_LAUNCH(call, grid, BLOCK, shared_bytes,
                                (partition_reduce_v1_shared_atomics<Term>),
                                view_of<typename Term::T>(call), w, sums);
        }
        return status ? status : finish_sums<Term>(call, 1, sums);
    }
};

#endif
