/*
 * one_element.cu  Scans along an axis of one element: each result is what a scan begins
 * with, combined with an element, so this is a copy, which may widen integers.  Threads
 * load and store packs of 16 bytes of results.  Where these are not aligned, at the end,
 * and if there are few, neighbouring threads take neighbouring elements.
 * Cost:  reads x once, writes out once.
 */
#include "../prepare.cuh"

template <typename Op>
__global__ void
__launch_bounds__(THREADS)
    scan_one_element_kernel(Op op, const void *x, typename Op::Out *out, int64_t n,
                            bool exclusive, bool packed, int each)
{
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    constexpr int VEC = Op::VEC, TOGETHER = 4;
    const int64_t tile = static_cast<int64_t>(blockIdx.x) * (THREADS * each);
    const auto result_of = [&](Raw raw) {
        return op.finish(exclusive ? op.first
                                   : Op::Fold::combine(op.first, op.lift(raw)));
    };
    if (packed && tile + THREADS * each <= n) {
        const int64_t begin = tile + threadIdx.x * VEC;
        Raw raw[PACKS_OF_ONE][VEC];
#pragma unroll
        for (int j = 0; j < PACKS_OF_ONE; j++) {
            op.read_pack(x, begin + j * (THREADS * VEC), raw[j]);
        }
#pragma unroll
        for (int j = 0; j < PACKS_OF_ONE; j++) {
            Out result[VEC];
#pragma unroll
            for (int v = 0; v < VEC; v++) {
                result[v] = result_of(raw[j][v]);
            }
            store_together(out + begin + j * (THREADS * VEC), result);
        }
        return;
    }
    for (int j = 0; j < each; j += TOGETHER) {
        const int64_t first = tile + j * THREADS + threadIdx.x;
        Raw raw[TOGETHER] = {};
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int64_t i = first + k * THREADS;
            if (j + k < each && i < n) {
                raw[k] = op.read(x, i);
            }
        }
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) {
            const int64_t i = first + k * THREADS;
            if (j + k < each && i < n) {
                out[i] = result_of(raw[k]);
            }
        }
    }
}

struct one_element {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_view(call, op, [&](const scan_view<typename Op::Out> &a) {
            const int64_t all = gpo_processors(call) * THREADS;
            const bool few = a.rows <= 4 * all;
            const bool packed =
                !few &&
                reinterpret_cast<uintptr_t>(a.x) % (Op::VEC * op.bytes()) == 0 &&
                reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
            const int each = !few ? PACKS_OF_ONE * Op::VEC : a.rows > all ? 2 : 1;
            return GPO_LAUNCH(call, grid_of(ceil_div(a.rows, THREADS * each)), THREADS,
                              0, (scan_one_element_kernel<Op>), op, a.x, a.out, a.rows,
                              a.exclusive, packed, each);
        });
    }
};

template <typename T>
gpo_status
scan_one_element(gpo_call *call)
{
    return scan_with<one_element, T>(call);
}

#define INSTANTIATE(T) template gpo_status scan_one_element<T>(gpo_call * call);
GPO_EVERY_TYPE(INSTANTIATE)
