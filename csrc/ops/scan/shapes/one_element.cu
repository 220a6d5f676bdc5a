/*
 * one_element.cu  Scans along an axis of one element: each result is what a scan begins
 * with, combined with an element, so this is a copy, which may widen integers.  Threads
 * load and store packs of 16 bytes of results, or where these are not aligned neighbouring
 * elements.
 * Cost:  reads x once, writes out once.
 */
#include "../prepare.cuh"

template <typename Op>
__global__ void
__launch_bounds__(THREADS)
    scan_one_element_kernel(Op op, const void *x, typename Op::Out *out, int64_t n,
                            bool exclusive, bool packed)
{
    using Raw = typename Op::Raw;
    using Out = typename Op::Out;
    constexpr int VEC = Op::VEC;
    const int64_t tile =
        static_cast<int64_t>(blockIdx.x) * (THREADS * PACKS_OF_ONE * VEC);
    const auto result_of = [&](Raw raw) {
        return op.finish(exclusive ? op.first
                                   : Op::Fold::combine(op.first, op.lift(raw)));
    };
    if (packed && tile + THREADS * PACKS_OF_ONE * VEC <= n) {
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
#pragma unroll 4
    for (int j = 0; j < PACKS_OF_ONE * VEC; j++) {
        const int64_t i = tile + j * THREADS + threadIdx.x;
        if (i < n) {
            out[i] = result_of(op.read(x, i));
        }
    }
}

struct one_element {
    template <typename Op>
    static gpo_status run(gpo_call *call, const Op &op)
    {
        return for_each_view(call, op, [&](const scan_view<typename Op::Out> &a) {
            constexpr int64_t TILE = THREADS * PACKS_OF_ONE * Op::VEC;
            const bool packed =
                reinterpret_cast<uintptr_t>(a.x) % (Op::VEC * op.bytes()) == 0 &&
                reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
            return GPO_LAUNCH(call, grid_of(ceil_div(a.rows, TILE)), THREADS, 0,
                              (scan_one_element_kernel<Op>), op, a.x, a.out, a.rows,
                              a.exclusive, packed);
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
