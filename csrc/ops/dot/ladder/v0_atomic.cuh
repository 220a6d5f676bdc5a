/*
 * v0  One atomicAdd per thread.
 * Was:   nothing; the first parallel dot product one would write.
 * Now:   each thread adds its products in a grid-stride loop, then its sum to the
 *        result.
 * Cost:  reads 2 * n * sizeof(T) bytes, one element per load; one atomic for every
 *        thread that fits on the GPU, all on one address; the atomic of a single half
 *        is a compare-and-swap loop.
 * Left:  a load moves 2 bytes of float16 and each product is an instruction -> v1.
 */
#ifndef GPO_DOT_V0_ATOMIC_CUH
#define GPO_DOT_V0_ATOMIC_CUH

#include "../atomic_sum.cuh"

template <typename T>
__global__ void
__launch_bounds__(BLOCK) dot_v0_atomic(dot_view<T> a, T *sum)
{
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    T mine = {};
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x; i < a.n;
         i += step) {
        mine = multiply_add(mine, element(a.x + i * a.x_stride),
                            element(a.y + i * a.y_stride));
    }
    atomic_add(sum, mine);
}

template <typename T>
static gpo_status
dot_v0_of(gpo_call *call)
{
    T *sum = static_cast<T *>(call->out[0].data);
    const dot_view<T> a = view_of<T>(call);
    const gpo_status status = GPO_LAUNCH(call, 1, 1, 0, (dot_clear<T>), sum);
    return status ? status
                  : GPO_LAUNCH(call, atomic_grid(call, a.n), BLOCK, 0,
                               (dot_v0_atomic<T>), a, sum);
}

template <typename T>
static gpo_status
dot_v0(gpo_call *call)
{
    if constexpr (std::is_integral_v<T>) { /* two's complement: the same sum */
        return dot_v0_of<typename sum_of<T>::T>(call);
    }
    else {
        return dot_v0_of<T>(call);
    }
}

#endif
