/*
 * v0  One element per thread.
 * Now:   thread i computes element i of the result; each operand's address is computed
 *        from the axes, so any strides and any broadcasting work.
 * Cost:  a load of one element per operand, a division and a remainder per axis except
 *        the outermost (in 32 bits below 2^32 elements); 2 bytes per load in float16.
 * Left:  too few bytes in flight, and addresses cost more than the arithmetic -> v1.
 */
#include "../kernels.cuh"

struct elementwise_axes {
    int ndim;
    int64_t shape[FEW_AXES];
    int64_t strides[ELEMENTWISE_INPUTS][FEW_AXES];
};

template <typename F, typename Index>
__device__ __forceinline__ typename F::R
element(const F &f, const typename F::In0 *a, const typename F::In1 *b,
        const typename F::In2 *c, const numbers<F> &given, const elementwise_axes &axes,
        Index i)
{
    int64_t at0 = 0, at1 = 0, at2 = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d >= 0; d--) {
        Index k = i;
        if (d > 0) {
            const Index length = static_cast<Index>(axes.shape[d]);
            i = k / length;
            k -= i * length;
        }
        at0 += static_cast<int64_t>(k) * axes.strides[0][d];
        at1 += F::N > 1 ? static_cast<int64_t>(k) * axes.strides[1][d] : 0;
        at2 += F::N > 2 ? static_cast<int64_t>(k) * axes.strides[2][d] : 0;
    }
    const typename F::In0 x = given.a.or_at(a + at0);
    if constexpr (F::N == 1) {
        return f(x, x, x);
    }
    else {
        const typename F::In1 y = given.b.or_at(b + at1);
        if constexpr (F::N == 2) {
            return f(x, y, x);
        }
        else {
            return f(x, y, given.c.or_at(c + at2));
        }
    }
}

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v0_one_each(F f, typename F::R *out, const typename F::In0 *a,
                            const typename F::In1 *b, const typename F::In2 *c,
                            numbers<F> given, elementwise_axes axes, int64_t n)
{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    if (i < n) {
        out[i] = n <= UINT32_MAX
                     ? element(f, a, b, c, given, axes, static_cast<uint32_t>(i))
                     : element(f, a, b, c, given, axes, static_cast<uint64_t>(i));
    }
}

/* Calls launch(call, axes, inside, first, at) for each part of at most 8 axes. */
static gpo_status
in_few_axes(gpo_call *call,
            gpo_status (*launch)(gpo_call *, const elementwise_axes &, int64_t inside,
                                 int64_t first, const int64_t *at))
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const int outer = plan.ndim > FEW_AXES ? plan.ndim - FEW_AXES : 0;
    elementwise_axes axes = {plan.ndim - outer, {}, {}};
    int64_t inside = 1, launches = 1;
    for (int d = 0; d < axes.ndim; d++) {
        axes.shape[d] = plan.shape[outer + d];
        inside *= axes.shape[d];
        for (int k = 0; k < plan.inputs; k++) {
            axes.strides[k][d] = plan.strides[k][outer + d];
        }
    }
    for (int d = 0; d < outer; d++) {
        launches *= plan.shape[d];
    }
    gpo_status status = GPO_OK;
    for (int64_t i = 0; i < launches && !status; i++) { /* more than 8 axes */
        int64_t at[ELEMENTWISE_INPUTS] = {0, 0, 0}, rest = i;
        for (int d = outer - 1; d >= 0; d--) {
            for (int k = 0; k < plan.inputs; k++) {
                at[k] += rest % plan.shape[d] * plan.strides[k][d];
            }
            rest /= plan.shape[d];
        }
        status = launch(call, axes, inside, i * inside, at);
    }
    return status;
}

struct elementwise_v0_launcher {
    template <typename F>
    static gpo_status launch(gpo_call *call, const elementwise_axes &axes,
                             int64_t inside, int64_t first, const int64_t *at)
    {
        return GPO_LAUNCH(call, dim3(static_cast<unsigned>(ceil_div(inside, BLOCK))),
                          BLOCK, 0, (elementwise_v0_one_each<F>), F::make(call),
                          result<typename F::R>(call) + first,
                          operand<typename F::In0>(call, 0) + at[0],
                          operand<typename F::In1>(call, 1) + at[1],
                          operand<typename F::In2>(call, 2) + at[2],
                          numbers_of<F>(call), axes, inside);
    }

    template <typename F>
    static gpo_status run(gpo_call *call)
    {
        return in_few_axes(call, launch<F>);
    }
};

gpo_status
elementwise_v0(gpo_call *call)
{
    return run_kernel<elementwise_v0_launcher>(call);
}
