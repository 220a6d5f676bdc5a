/*
 * any_strides.cu  Operands of any strides, and rows too short for v2.
 * A thread makes one pack of neighbouring results, in whatever rows they are, and stores
 * it at once.  An operand is read by wide loads where the pack lies in one of its rows,
 * aligned, and the last axis is contiguous or takes every second element; else all
 * elements of the pack are loaded before the first is used.  Offsets are computed for all
 * elements together, by a multiplication per axis and element.  Types of 8 bytes and more
 * stay with v0: their elements take longer to move than to find.
 * Cost:  one store of 8 or 16 bytes per thread; reads each sector once from memory.
 */
#include "../../../device/divide.cuh"
#include "../any_strides.cuh"
#include "../gathers.cuh"

/* The axes of a call; `low` and `high` are the ends of an operand. */
struct strided_axes {
    int ndim, n;
    unsigned held, dense; /* bit k: operand k is a scalar, lies as the result */
    divider length[FEW_AXES];
    int strides[ELEMENTWISE_INPUTS][FEW_AXES];
    int low[ELEMENTWISE_INPUTS], high[ELEMENTWISE_INPUTS];
};

/* Elements of a thread's pack: 8 of one byte, as more would fill the registers. */
template <typename F>
__host__ __device__ constexpr int
strided_pack()
{
    return pack_size<F>() > 8 ? 8 : pack_size<F>();
}

/*
 * at[k][j] = the offset in operand k of result first + j, or of the last result; returns
 * whether the results are neighbours in one row.
 */
template <int INPUTS, int SIZE>
__device__ __forceinline__ bool
offsets_of(const strided_axes &axes, int first, int (&at)[INPUTS][SIZE])
{
    int rest[SIZE];
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        rest[j] = first < axes.n - j ? first + j : axes.n - 1;
    }
    bool in_row = first <= axes.n - SIZE;
#pragma unroll 1
    for (int d = axes.ndim - 1; d > 0; d--) {
        const int length = static_cast<int>(axes.length[d].by);
#pragma unroll
        for (int j = 0; j < SIZE; j++) {
            const int quotient = axes.length[d].narrow(rest[j]);
            const int i = rest[j] - quotient * length;
            rest[j] = quotient;
#pragma unroll
            for (int k = 0; k < INPUTS; k++) {
                at[k][j] += i * axes.strides[k][d];
            }
        }
        in_row = in_row && (d < axes.ndim - 1 || rest[0] == rest[SIZE - 1]);
    }
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
#pragma unroll
        for (int k = 0; k < INPUTS; k++) {
            at[k][j] += rest[j] * axes.strides[k][0];
        }
    }
    return in_row;
}

/* The pack of operand k. */
template <typename T, int INPUTS, int SIZE>
__device__ __forceinline__ void
gather(gathered<T, SIZE> &to, const strided_axes &axes, int k, const T *x,
       number<T> given, const int (&at)[INPUTS][SIZE], bool whole, bool in_row)
{
    if (axes.held >> k & 1u) {
        to.hold(given.or_at(x));
    }
    else {
        const bool dense = axes.dense >> k & 1u;
        to.load(x, at[k], dense ? whole : in_row,
                dense ? 1 : axes.strides[k][axes.ndim - 1], axes.low[k], axes.high[k]);
    }
}

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_any_strides_kernel(F f, typename F::R *out, const typename F::In0 *a,
                                   const typename F::In1 *b, const typename F::In2 *c,
                                   numbers<F> given, strided_axes axes)
{
    constexpr int SIZE = strided_pack<F>();
    const unsigned tid = blockIdx.x * BLOCK + threadIdx.x;
    if (tid >= static_cast<unsigned>(ceil_div(axes.n, SIZE))) {
        return;
    }
    const int first = static_cast<int>(tid * SIZE);
    const bool whole = first <= axes.n - SIZE;
    int at[F::N][SIZE] = {};
    const bool in_row = offsets_of(axes, first, at);

    gathered<typename F::In0, SIZE> x;
    gathered<typename F::In1, SIZE> y;
    gathered<typename F::In2, SIZE> z;
    gather(x, axes, 0, a, given.a, at, whole, in_row);
    if constexpr (F::N > 1) {
        gather(y, axes, 1, b, given.b, at, whole, in_row);
    }
    if constexpr (F::N > 2) {
        gather(z, axes, 2, c, given.c, at, whole, in_row);
    }

    const elements<typename F::In0, SIZE> p = x.pack();
    elements<typename F::In1, SIZE> q = {};
    elements<typename F::In2, SIZE> r = {};
    if constexpr (F::N > 1) {
        q = y.pack();
    }
    if constexpr (F::N > 2) {
        r = z.pack();
    }
    const elements<typename F::R, SIZE> result = apply_pack<SIZE>(f, p, q, r);
    out += first;
    if (whole && reinterpret_cast<uintptr_t>(out) % sizeof result == 0) {
        store_elements<SIZE>(out, result);
        return;
    }
#pragma unroll
    for (int j = 0; j < SIZE; j++) {
        if (first < axes.n - j) {
            out[j] = result.v[j];
        }
    }
}

/* Whether operand k lies as the result does: element i at offset i. */
static bool
lies_as_result(const elementwise_plan &plan, int k)
{
    int64_t inside = 1;
    bool good = true;
    for (int d = plan.ndim - 1; d >= 0; d--) {
        good = good && plan.strides[k][d] == inside;
        inside *= plan.shape[d];
    }
    return good;
}

static strided_axes
axes_of(const elementwise_plan &plan)
{
    strided_axes axes = {};
    axes.ndim = plan.ndim > 0 ? plan.ndim : 1; /* a single element is a row, too */
    axes.n = static_cast<int>(plan.size);
    axes.held = elementwise_scalars(plan);
    for (int d = 0; d < plan.ndim; d++) {
        axes.length[d] = divider_of(plan.shape[d]);
    }
    for (int k = 0; k < plan.inputs; k++) {
        for (int d = 0; d < plan.ndim; d++) {
            axes.strides[k][d] = static_cast<int>(plan.strides[k][d]);
        }
        int64_t low, high;
        elementwise_reach(plan, k, &low, &high);
        axes.low[k] = static_cast<int>(low);
        axes.high[k] = static_cast<int>(high);
        axes.dense |= lies_as_result(plan, k) ? 1u << k : 0u;
    }
    return axes;
}

struct any_strides_launcher {
    template <typename F>
    static gpo_status run(gpo_call *call)
    {
        if constexpr (pack_size<F>() >= 4) {
            const elementwise_plan &plan = *elementwise_plan_of(call);
            const int64_t threads = ceil_div(plan.size, strided_pack<F>());
            return GPO_LAUNCH(
                call, dim3(static_cast<unsigned>(ceil_div(threads, BLOCK))), BLOCK, 0,
                (elementwise_any_strides_kernel<F>), F::make(call),
                result<typename F::R>(call), operand<typename F::In0>(call, 0),
                operand<typename F::In1>(call, 1), operand<typename F::In2>(call, 2),
                numbers_of<F>(call), axes_of(plan));
        }
        return GPO_OK; /* not taken: see elementwise_has_any_strides */
    }
};

gpo_status
elementwise_any_strides(gpo_call *call)
{
    return run_kernel<any_strides_launcher>(call);
}
