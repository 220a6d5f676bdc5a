/*
 * v0  One global atomic per element: the source's method B.
 * Was:   nothing; a thread per element, as one would write it.
 * Now:   each thread adds its value to the result at its index.
 * Cost:  reads every value and index once; one atomic per element, done by L2, which
 *        serializes atomics to one address.
 * Left:  a short result has few addresses for many elements -> v1.
 */
#ifndef GPO_SCATTER_ADD_V0_GLOBAL_CUH
#define GPO_SCATTER_ADD_V0_GLOBAL_CUH

#include "../copies.cuh"

template <typename Input, typename Sum>
__global__ void
scatter_add_v0_global(Input x, Sum *total)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i >= x.n) {
        return;
    }
    const int64_t at = x.place(x.raw(i), i);
    if (at >= 0) {
        atomic_add(&total[at], x.lift(x.values[i * x.values_stride]));
    }
}

struct scatter_add_v0 {
    static constexpr bool DETERMINISTIC = false;

    template <typename Input, typename Sum>
    static gpo_status run(gpo_call *call, const Input &x, Sum *total)
    {
        const dim3 grid(static_cast<unsigned>(ceil_div(x.n, BLOCK)));
        const gpo_status status =
            clear(call, total, x.size * static_cast<int64_t>(sizeof(Sum)), x.fresh);
        return status ? status
                      : GPO_LAUNCH(call, grid, BLOCK, 0,
                                   (scatter_add_v0_global<Input, Sum>), x, total);
    }
};

#endif
