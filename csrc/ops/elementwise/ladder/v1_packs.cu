/*
 * v1  Packs.
 * Was:   v0 loads one element at a time and computes its address.
 * Now:   a thread loads up to 16 bytes of each operand at once and computes two 16-bit
 *        floats per instruction where the hardware can; the pack size is the smallest
 *        over the types of result and operands.  A scalar operand stays in registers.
 *        A fixed grid strides through the packs; the tail is one element per thread.
 * Cost:  one load, one store of 16 bytes per pack; 32 waves of blocks.
 * Left:  one misaligned or strided operand sends the whole call to v0's kernel -> v2.
 */
#include "../flat.cuh"
#include "../kernels.cuh"

template <typename F>
__global__ void
__launch_bounds__(BLOCK)
    elementwise_v1_packs(F f, typename F::R *out, const typename F::In0 *a,
                         const typename F::In1 *b, const typename F::In2 *c,
                         numbers<F> given, unsigned scalars, int64_t n)
{
    constexpr int SIZE = pack_size<F>();
    const int64_t tid = static_cast<int64_t>(blockIdx.x) * BLOCK + threadIdx.x;
    const int64_t step = static_cast<int64_t>(gridDim.x) * BLOCK;
    const int64_t packs = n / SIZE;
    const bool hold0 = scalars & 1u, hold1 = scalars & 2u, hold2 = scalars & 4u;

    elements<typename F::In0, SIZE> x = {};
    elements<typename F::In1, SIZE> y = {};
    elements<typename F::In2, SIZE> z = {};
    if (hold0) {
        x = repeated<SIZE>(given.a.or_at(a));
    }
    if (F::N > 1 && hold1) {
        y = repeated<SIZE>(given.b.or_at(b));
    }
    if (F::N > 2 && hold2) {
        z = repeated<SIZE>(given.c.or_at(c));
    }
    for (int64_t i = tid; i < packs; i += step) {
        if (!hold0) {
            x = load_elements<SIZE>(a + i * SIZE);
        }
        if (F::N > 1 && !hold1) {
            y = load_elements<SIZE>(b + i * SIZE);
        }
        if (F::N > 2 && !hold2) {
            z = load_elements<SIZE>(c + i * SIZE);
        }
        store_elements<SIZE>(out + i * SIZE, apply_pack<SIZE>(f, x, y, z));
    }
    const int64_t i = packs * SIZE + tid;
    if (i < n) {
        out[i] = f(hold0 ? x.v[0] : a[i], F::N > 1 && !hold1 ? b[i] : y.v[0],
                   F::N > 2 && !hold2 ? c[i] : z.v[0]);
    }
}

/* Calls launch(call, grid, scalars), or v0 if any pack would be misaligned. */
static gpo_status
in_packs(gpo_call *call, int pack,
         gpo_status (*launch)(gpo_call *, dim3 grid, unsigned scalars))
{
    const elementwise_plan &plan = *elementwise_plan_of(call);
    const unsigned scalars = elementwise_scalars(plan);
    if (!elementwise_is_packed(call, pack)) {
        return elementwise_v0(call);
    }
    const int64_t threads = ceil_div(plan.size, pack);
    const int64_t most =
        static_cast<int64_t>(gpo_processors(call)) * BLOCKS_PER_PROCESSOR * WAVES;
    const int64_t blocks = ceil_div(threads, BLOCK);
    return launch(call, dim3(static_cast<unsigned>(blocks < most ? blocks : most)),
                  scalars);
}

struct elementwise_v1_launcher {
    template <typename F>
    static gpo_status launch(gpo_call *call, dim3 grid, unsigned scalars)
    {
        const elementwise_plan &plan = *elementwise_plan_of(call);
        return GPO_LAUNCH(
            call, grid, BLOCK, 0, (elementwise_v1_packs<F>), F::make(call),
            result<typename F::R>(call), operand<typename F::In0>(call, 0),
            operand<typename F::In1>(call, 1), operand<typename F::In2>(call, 2),
            numbers_of<F>(call), scalars, plan.size);
    }

    template <typename F>
    static gpo_status run(gpo_call *call)
    {
        return in_packs(call, pack_size<F>(), launch<F>);
    }
};

gpo_status
elementwise_v1(gpo_call *call)
{
    return run_kernel<elementwise_v1_launcher>(call);
}
