/*
 * v0  One element per thread.
 * Now:   thread i computes element i of the result; each operand's address is computed
 *        from the axes, so any strides and any broadcasting work.
 * Cost:  a load of one element per operand, a division and a remainder per axis except
 *        the outermost (in 32 bits: larger arrays take several launches); 2 bytes per
 *        load in float16.
 * Left:  too few bytes in flight, and addresses cost more than the arithmetic -> v1.
 */
#include "../kernels.cuh"

struct elementwise_axes {
    int ndim;
    int64_t shape[FEW_AXES];
    int64_t strides[ELEMENTWISE_INPUTS][FEW_AXES];
};

/* Elements of a launch, so that their numbers have 32 bits. */
constexpr int64_t MOST = UINT32_MAX;

template <typename F>
__device__ __forceinline__ typename F::R
element(const F &f, const typename F::In0 *a, const typename F::In1 *b,
        const typename F::In2 *c, const numbers<F> &given, const elementwise_axes &axes,
        uint32_t i)
{
    int64_t at0 = 0, at1 = 0, at2 = 0;
#pragma unroll 1
    for (int d = axes.ndim - 1; d >= 0; d--) {
        uint32_t k = i;
        if (d > 0) {
            const uint32_t length = static_cast<uint32_t>(axes.shape[d]);
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
        out[i] = element(f, a, b, c, given, axes, static_cast<uint32_t>(i));
    }
}

/* Launches elements [first, first + n) of the result; at[k] is where operand k begins. */
using launch_part = gpo_status (*)(gpo_call *, const elementwise_axes &, int64_t n,
                                   int64_t first, const int64_t *at);

/* Calls launch for parts of the first axis that have at most MOST elements. */
static gpo_status
in_parts(gpo_call *call, const elementwise_axes &axes, int64_t first,
         const int64_t *from, launch_part launch)
{
    int64_t inside = 1; /* elements of one index of the first axis */
    for (int d = 1; d < axes.ndim; d++) {
        inside *= axes.shape[d];
    }
    const int64_t length = axes.ndim > 0 ? axes.shape[0] : 1;
    const int64_t step = inside > 0 ? MOST / inside : length;
    gpo_status status = GPO_OK;
    for (int64_t begin = 0; begin < length && !status; begin += step) {
        const int64_t left = length - begin;
        int64_t at[ELEMENTWISE_INPUTS];
        for (int k = 0; k < ELEMENTWISE_INPUTS; k++) {
            at[k] = from[k] + begin * axes.strides[k][0];
        }
        status = launch(call, axes, (left < step ? left : step) * inside,
                        first + begin * inside, at);
    }
    return status;
}

/* Axes that a launch does not take: all but the last 8, or but as many as have MOST. */
static int
axes_outside(const elementwise_plan &plan)
{
    int outer = plan.ndim > FEW_AXES ? plan.ndim - FEW_AXES : 0, d = plan.ndim;
    for (int64_t inside = 1; d > outer + 1; d--) {
        if (plan.shape[d - 1] > MOST / inside) {
            return d - 1;
        }
        inside *= plan.shape[d - 1];
    }
    return outer;
}

/* Calls launch for each part of at most 8 axes and MOST elements. */
static gpo_status
in_few_axes(gpo_call *call, launch_part launch)
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const int outer = axes_outside(plan);
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
    for (int64_t i = 0; i < launches && !status; i++) {
        int64_t at[ELEMENTWISE_INPUTS] = {0, 0, 0}, rest = i;
        for (int d = outer - 1; d >= 0; d--) {
            for (int k = 0; k < plan.inputs; k++) {
                at[k] += rest % plan.shape[d] * plan.strides[k][d];
            }
            rest /= plan.shape[d];
        }
        status = in_parts(call, axes, i * inside, at, launch);
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
